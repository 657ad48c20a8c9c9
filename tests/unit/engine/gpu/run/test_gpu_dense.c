/* Dense outputs on the fake GPU: the same bytes as on the CPU, which rounds the same numbers
 * in the same way, and the same sentence for a voxel outside of a shape; in a batch, from
 * the store, of sets that follow from logits, in a client's memory, and when a call fails.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h> /* memfd_create */
#include <unistd.h>

/* Layers that only move numbers: of set 0, of a coarser one, and of live children. */
#define HEAD "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":8}},\"layers\":["
#define SET_0                                                                            \
    "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"feats\"},"                              \
    "{\"name\":\"z\",\"op\":\"to_dense\",\"input\":\"feats\",\"shape\":[6,5,7]}"
#define COARSE                                                                           \
    ",{\"name\":\"p\",\"op\":\"max_pool\",\"input\":\"feats\",\"kernel\":2,\"stride\":"  \
    "2,\"rule\":\"floor\"},"                                                             \
    "{\"name\":\"q\",\"op\":\"to_dense\",\"input\":\"p\",\"shape\":[3,3,4],\"fold\":"    \
    "true},"                                                                             \
    "{\"name\":\"n\",\"op\":\"group_norm\",\"input\":\"p\",\"groups\":2,\"affine\":"     \
    "false},"                                                                            \
    "{\"name\":\"m\",\"op\":\"to_dense\",\"input\":\"n\",\"shape\":4}"
#define LIVE                                                                             \
    ",{\"name\":\"l\",\"op\":\"affine\",\"input\":\"feats\"},"                           \
    "{\"name\":\"c\",\"op\":\"channel_to_space\",\"input\":\"l\",\"occupancy\":\"l\","   \
    "\"stride\":2},"                                                                     \
    "{\"name\":\"w\",\"op\":\"to_dense\",\"input\":\"c\",\"shape\":[12,10,13]}"
#define OUTPUTS_0 "],\"outputs\":[{\"layer\":\"r\"},{\"layer\":\"z\"}"
#define OUTPUTS_1 OUTPUTS_0 ",{\"layer\":\"q\",\"datatype\":\"FP16\"},{\"layer\":\"m\"}"
#define OUTPUTS_2 OUTPUTS_1 ",{\"layer\":\"w\",\"datatype\":\"BF16\"}"
#define TAIL      "],\"limits\":{\"voxels_max\":440,\"samples\":5}}"

enum { RELU, FEATS, FOLDED, NORMED, CHILDREN, OUTPUTS };
enum { ONE_SET, LEVELS, STAGES, NETWORKS };
static const struct {
    const char *json;
    i32 outputs;
} networks[NETWORKS] = {
    {HEAD SET_0 OUTPUTS_0 TAIL, FOLDED},
    {HEAD SET_0 COARSE OUTPUTS_1 TAIL, CHILDREN},
    {HEAD SET_0 COARSE LIVE OUTPUTS_2 TAIL, OUTPUTS},
};

/* STORED is kept, AGAIN sends only its name.  Voxels outside of a shape: on set 0 above it
 * and below 0, of a request that does not want that output, and among the children. */
enum {
    GOOD,
    THREE_COLUMNS,
    STORED,
    AGAIN,
    DEAD,
    ABOVE,
    BELOW,
    UNWANTED,
    CHILD,
    OWN_SHAPE,
    MANY,
    KINDS
};
#define VOXELS    40
#define SAMPLES   5 /* the last and the first have voxels, and one between */
#define OUT_BYTES (SAMPLES * 8 * 6 * 5 * 7 * sizeof(f32))
#define UNTOUCHED 0xaa
#define OUTSIDE   "lies outside of the shape of to_dense: expected 0 to "

struct request {
    struct vx_item item;
    i32 coords[VOXELS * 4];
    f32 feats[VOXELS * 8];
    u8 out[OUTPUTS][OUT_BYTES];
};

/* What it fails with; NULL: it succeeds. */
static const char *why_of(i32 kind, i32 network)
{
    switch (kind) {
    case ABOVE: return "output 'z': coords row 11 (4, 6, 0, 0) " OUTSIDE "5, 0 to 4 and";
    case BELOW: return "output 'z': coords row 7 (0, 2, -1, 3) " OUTSIDE "5, 0 to 4 and";
    case MANY: return "'z': the largest sample is 5, which makes 6 samples; limits.sa";
    case CHILD:
        return network == STAGES ? "output 'w': voxel (2, 6, 4, 13) of set " : NULL;
    default: return NULL;
    }
}

static void voxel_of(i32 kind, i32 i, i32 at[4])
{
    static const i32 samples[] = {0, 2, 4};
    at[0] = kind == THREE_COLUMNS ? 0 : samples[i * 7 % 3];
    at[1] = i % 6;
    at[2] = i / 6 % 5;
    at[3] = (i * 5 + i / 30) % (kind == OWN_SHAPE ? 3 : 6);
    if (kind == CHILD && i == 21) at[0] = 2, at[1] = 3, at[2] = 2, at[3] = 6;
}

static struct request *request_open(i32 kind, i32 network)
{
    struct request *it = vx_alloc_zero(sizeof *it);
    ck_assert_ptr_nonnull(it);
    const i32 columns = kind == THREE_COLUMNS ? 3 : 4,
              seed = kind == AGAIN ? STORED : kind;
    for (i32 i = 0; i < VOXELS; i++) {
        i32 at[4];
        voxel_of(kind, i, at);
        memcpy(it->coords + columns * i, at + 4 - columns, (size_t)columns * sizeof *at);
        for (i32 c = 0; c < 8; c++) {
            /* Thirds, which every type rounds, a fifth of them above 0. */
            f32 x = (f32)((i * 37 + c * 11 + seed * 5) % 29 - 22) / 3;
            it->feats[8 * i + c] = kind == DEAD ? -fabsf(x) : x;
        }
    }
    if (kind == ABOVE) memcpy(it->coords + 4 * 11, (i32[]){4, 6, 0, 0}, 4 * sizeof(i32));
    if (kind == BELOW || kind == UNWANTED)
        memcpy(it->coords + 4 * 7, (i32[]){0, 2, -1, 3}, 4 * sizeof(i32));
    if (kind == MANY) it->coords[4 * 9] = 5;
    if (kind == CHILD) it->feats[8 * 21 + 4] = 2;      /* the child at z = 2 * 6 + 1 */
    if (network != STAGES) it->feats[8 * 2 + 1] = NAN; /* there it is a logit */
    it->item = (struct vx_item){.coords = kind == AGAIN ? NULL : it->coords,
                                .coords_columns = columns,
                                .voxels = VOXELS,
                                .feats = it->feats,
                                .feats_dtype = VX_DTYPE_F32};
    for (i32 o = FEATS; o < networks[network].outputs; o++) it->item.asks |= 1u << o;
    if (kind == UNWANTED) it->item.asks = 0;
    if (kind == OWN_SHAPE) memcpy(it->item.shape, (i32[]){6, 5, 3}, 3 * sizeof(i32));
    if (kind == STORED || kind == AGAIN)
        it->item.coords_ref = (struct vx_coords_ref){7, 9};
    memset(it->out, UNTOUCHED, sizeof it->out);
    it->item.outputs[RELU] = it->out[RELU];
    return it;
}

struct sent {
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_batch batch;
    struct request *const *requests;
};

static void send(struct vx_engine *engine, struct vx_model *model, struct sent *sent,
                 i32 count)
{
    sent->batch = (struct vx_batch){.items = sent->items, .items_count = count};
    for (i32 i = 0; i < count; i++) sent->items[i] = sent->requests[i]->item;
    vx_engine_submit(engine, model, &sent->batch);
}

static void place(struct vx_engine *engine, struct sent *sent, i32 at)
{
    struct vx_item *item = &sent->items[at];
    for (i32 o = FEATS; o < OUTPUTS; o++) {
        ck_assert_int_le(item->rows[o], SAMPLES);
        if (item->asks >> o & 1) item->outputs[o] = sent->requests[at]->out[o];
    }
    vx_engine_place(engine, &sent->batch, at);
}

/* Until both batches have ended, of which the second may have no items. */
static void await(struct vx_engine *engine, struct sent sent[2])
{
    const i32 count = sent[0].batch.items_count + sent[1].batch.items_count;
    struct vx_asked asked;
    for (i32 calls = 0; vx_engine_under_way(engine); calls++) {
        ck_assert_int_le(calls, 5 * count);
        while (vx_engine_asked(engine, &asked))
            for (i32 i = 0; i < asked.count; i++)
                place(engine, &sent[asked.batch == &sent[1].batch], asked.items[i]);
        (void)vx_engine_collect(engine, true);
    }
    for (i32 b = 0; b < 2; b++)
        for (i32 i = 0; i < sent[b].batch.items_count; i++)
            sent[b].requests[i]->item = sent[b].items[i];
}

/* Runs them as one batch on the engine. */
static void run(struct vx_engine *engine, struct vx_model *model,
                struct request *const *requests, i32 count)
{
    struct sent sent[2] = {{.requests = requests}};
    send(engine, model, &sent[0], count);
    await(engine, sent);
}

static void check_end(const struct request *request, i32 kind, i32 network)
{
    const char *why = why_of(kind, network);
    const struct vx_item *item = &request->item;
    const enum vx_code code = !why           ? VX_CODE_OK
                              : kind == MANY ? VX_CODE_RESOURCE_EXHAUSTED
                                             : VX_CODE_INVALID_ARGUMENT;
    ck_assert_msg(vx_status_code(item->status) == code, "%d: %s", kind, item->why.text);
    if (why) ck_assert_msg(strstr(item->why.text, why), "%d: %s", kind, item->why.text);
    for (i32 o = FEATS; o < networks[network].outputs && !why; o++)
        ck_assert_int_eq(item->rows[o], kind == UNWANTED        ? 0
                                        : kind == THREE_COLUMNS ? 1
                                                                : SAMPLES);
}

static bool is_nan(u16 half)
{
    return (half & 0x7fff) > 0x7c00;
}

/* Of FP16, a number that is none is any of them: a processor's conversion has its own. */
static void check_halves(const u8 *a, const u8 *b)
{
    for (size_t at = 0; at < OUT_BYTES; at += sizeof(u16)) {
        u16 one, other;
        memcpy(&one, a + at, sizeof one);
        memcpy(&other, b + at, sizeof other);
        if (is_nan(one) && is_nan(other)) continue;
        ck_assert_msg(one == other, "half %zu: %04x, %04x", at / 2, one, other);
    }
}

/* With the norm, whose sums the CPU adds up in another order, or without. */
static void check_bits(const struct request *a, const struct request *b, bool norm)
{
    ck_assert_str_eq(a->item.why.text, b->item.why.text);
    if (a->item.status.fault) return;
    ck_assert(!memcmp(a->item.rows, b->item.rows, sizeof a->item.rows));
    for (i32 o = 0; o < OUTPUTS; o++)
        if (o == FOLDED)
            check_halves(a->out[o], b->out[o]);
        else if (norm || o != NORMED)
            ck_assert_msg(!memcmp(a->out[o], b->out[o], OUT_BYTES), "output %d", o);
}

/* Every number of the tensor of the features, by the request's own. */
static void check_numbers(const struct request *request)
{
    const i32 columns = request->item.coords_columns, plane = 6 * 5 * 7;
    const f32 *out = (const void *)request->out[FEATS];
    const i64 count = request->item.rows[FEATS] * 8 * plane;
    i64 others = 0;
    for (i64 e = 0; e < count; e++) others += out[e] != 0 || signbit(out[e]);
    for (i32 e = 0; e < VOXELS * 8; e++)
        others -= request->feats[e] != 0 || signbit(request->feats[e]);
    ck_assert_int_eq(others, 0);
    for (i32 i = 0; i < VOXELS; i++)
        for (i32 c = 0; c < 8; c++) {
            const i32 *at = request->coords + i * columns + columns - 3;
            i64 place = (columns == 4 ? at[-1] : 0) * 8 + c;
            place = ((place * 6 + at[0]) * 5 + at[1]) * 7 + at[2];
            ck_assert(!memcmp(&out[place], &request->feats[8 * i + c], sizeof *out));
        }
    if (request->item.rows[FEATS] < SAMPLES)
        ck_assert_uint_eq(request->out[FEATS][count * 4], UNTOUCHED);
}

/* Each kind alone: as on the CPU, again from the store, and with the numbers it has. */
START_TEST(alone)
{
    vx_gpu_rig_write("fp32", networks[_i].json, 3);
    struct vx_model *gpu = vx_gpu_rig_load(vx_rig_root), *cpu = vx_rig_load(vx_rig_root);
    for (i32 kind = 0; kind < KINDS; kind++) {
        struct request *mine = request_open(kind, _i), *truth = request_open(kind, _i);
        run(vx_gpu_rig_engine, gpu, &mine, 1);
        run(vx_rig_engine, cpu, &truth, 1);
        check_end(mine, kind, _i);
        check_bits(mine, truth, false);
        if (kind == GOOD || kind == THREE_COLUMNS || kind == AGAIN) check_numbers(mine);
        if (kind == AGAIN) ck_assert(mine->item.geometry_hit);
        vx_free(mine);
        vx_free(truth);
    }
    vx_engine_unload(vx_gpu_rig_engine, &gpu);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

/* All kinds in one batch, in every rotation, and again when the store has some of them:
 * those that fail fail alone, and all others have the bits that they have alone. */
START_TEST(mates_are_answered)
{
    const i32 network = _i % NETWORKS, turn = _i / NETWORKS;
    vx_gpu_rig_write(turn % 2 ? "fp16" : "fp32", networks[network].json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *lone[KINDS], *requests[KINDS];
    for (i32 k = 0; k < KINDS; k++) {
        lone[k] = request_open(k, network);
        lone[k]->item.coords = lone[k]->coords;
        lone[k]->item.coords_ref = (struct vx_coords_ref){0};
        run(vx_gpu_rig_engine, model, &lone[k], 1);
        check_end(lone[k], k, network);
    }
    for (i32 again = 0; again < 3; again++) {
        for (i32 i = 0; i < KINDS; i++) {
            const i32 kind = (i + turn) % KINDS;
            requests[i] = request_open(kind, network);
            if (again < 2 || kind == AGAIN) continue;
            /* Names for all, so that each is kept. */
            requests[i]->item.coords_ref =
                (struct vx_coords_ref){7, 9 + (u64)kind - STORED};
        }
        run(vx_gpu_rig_engine, model, requests, KINDS);
        for (i32 i = 0; i < KINDS; i++) {
            const i32 kind = (i + turn) % KINDS;
            check_end(requests[i], kind, network);
            check_bits(requests[i], lone[kind], true);
            vx_free(requests[i]);
        }
    }
    for (i32 k = 0; k < KINDS; k++) vx_free(lone[k]);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Two batches of one model at once: each has its own voxels, questions and places. */
START_TEST(two_lanes)
{
    static const i32 kinds[2][3] = {{ABOVE, GOOD, STORED},
                                    {THREE_COLUMNS, CHILD, OWN_SHAPE}};
    vx_gpu_rig_write("fp32", networks[_i].json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *lone[2][3], *requests[2][3];
    struct sent sent[2] = {{.requests = requests[0]}, {.requests = requests[1]}};
    for (i32 k = 0; k < 6; k++) {
        lone[k / 3][k % 3] = request_open(kinds[k / 3][k % 3], _i);
        requests[k / 3][k % 3] = request_open(kinds[k / 3][k % 3], _i);
        run(vx_gpu_rig_engine, model, &lone[k / 3][k % 3], 1);
    }
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 3}); /* work runs later */
    for (i32 b = 0; b < 2; b++) send(vx_gpu_rig_engine, model, &sent[b], 3);
    await(vx_gpu_rig_engine, sent);
    vx_fake_set(&(struct vx_fake_settings){0});
    for (i32 k = 0; k < 6; k++) {
        check_end(requests[k / 3][k % 3], kinds[k / 3][k % 3], _i);
        check_bits(requests[k / 3][k % 3], lone[k / 3][k % 3], true);
        vx_free(requests[k / 3][k % 3]);
        vx_free(lone[k / 3][k % 3]);
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Where the request has sent no coordinates, the sentence has the voxel alone. */
START_TEST(what_is_kept_may_lie_outside)
{
    vx_gpu_rig_write("fp32", networks[LEVELS].json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *kept = request_open(UNWANTED, LEVELS),
                   *named = request_open(UNWANTED, LEVELS);
    kept->item.coords_ref = named->item.coords_ref = (struct vx_coords_ref){3, 4};
    named->item.coords = NULL;
    named->item.asks = 1u << FEATS;
    run(vx_gpu_rig_engine, model, &kept, 1);
    ck_assert(kept->item.geometry_kept);
    for (i32 again = 0; again < 2; again++) {
        named->item.status = VX_OK;
        run(vx_gpu_rig_engine, model, &named, 1);
        ck_assert_int_eq(vx_status_code(named->item.status), VX_CODE_INVALID_ARGUMENT);
        ck_assert_msg(strstr(named->item.why.text,
                             "output 'z': voxel (0, 2, -1, 3) " OUTSIDE) != NULL,
                      "%s", named->item.why.text);
    }
    named->item.status = VX_OK;
    named->item.asks = 1u << FOLDED; /* a block at y = -1, too */
    run(vx_gpu_rig_engine, model, &named, 1);
    ck_assert_msg(
        strstr(named->item.why.text, "output 'q': voxel (0, 1, -1, 1) of set 1") != NULL,
        "%s", named->item.why.text);
    vx_free(kept);
    vx_free(named);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* A network without the dense output keeps no voxels: what it keeps under the same name is
 * not what the other needs, nor the other way round. */
START_TEST(other_networks_keep_other_geometries)
{
    static const char *const pooled =
        ",{\"name\":\"p\",\"op\":\"max_pool\",\"input\":\"feats\",\"kernel\":2,"
        "\"stride\":2,\"rule\":\"floor\"}";
    static const char *const dense =
        ",{\"name\":\"q\",\"op\":\"to_dense\",\"input\":\"p\",\"shape\":4}";
    char json[2][2048];
    struct vx_model *models[2];
    struct request *truth = request_open(STORED, ONE_SET);
    for (i32 m = 0; m < 2; m++) {
        snprintf(json[m], sizeof json[m], "%s%s%s%s%s%s", HEAD SET_0, pooled,
                 m ? dense : "", OUTPUTS_0,
                 m ? ",{\"layer\":\"q\",\"datatype\":\"FP16\"}" : "",
                 ",{\"layer\":\"p\"}" TAIL);
        vx_gpu_rig_write("fp32", json[m], 3);
        models[m] = vx_gpu_rig_load(vx_rig_root);
    }
    truth->item.coords_ref = (struct vx_coords_ref){0};
    truth->item.asks = 1u << FOLDED;
    run(vx_gpu_rig_engine, models[1], &truth, 1);
    ck_assert_msg(!truth->item.status.fault, "%s", truth->item.why.text);
    for (i32 turn = 0; turn < 4; turn++) {
        struct request *mine = request_open(STORED, ONE_SET);
        mine->item.asks = turn % 2 ? 1u << FOLDED : 0;
        run(vx_gpu_rig_engine, models[turn % 2], &mine, 1);
        ck_assert_msg(!mine->item.status.fault, "%s", mine->item.why.text);
        ck_assert_int_eq(mine->item.geometry_hit, turn >= 2);
        if (turn % 2) check_bits(mine, truth, true);
        vx_free(mine);
    }
    vx_free(truth);
    for (i32 m = 0; m < 2; m++) vx_engine_unload(vx_gpu_rig_engine, &models[m]);
}
END_TEST

/* Every call of the driver fails once: the request fails, and the next one is right. */
START_TEST(a_failing_call_fails_one_request)
{
    vx_gpu_rig_write("fp32", networks[_i].json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *first = request_open(GOOD, _i), *truth = request_open(GOOD, _i);
    run(vx_gpu_rig_engine, model, &first, 1); /* uploads the weights */
    const i64 before = vx_fake_calls();
    run(vx_gpu_rig_engine, model, &truth, 1);
    const i64 calls = vx_fake_calls() - before;
    check_end(truth, GOOD, _i);
    for (i64 nth = 1; nth <= calls; nth++) {
        struct request *failed = request_open(GOOD, _i), *next = request_open(GOOD, _i);
        vx_fake_set(&(struct vx_fake_settings){.fail_call = nth, .fail_code = 2});
        run(vx_gpu_rig_engine, model, &failed, 1);
        vx_fake_set(&(struct vx_fake_settings){0});
        run(vx_gpu_rig_engine, model, &next, 1);
        ck_assert_msg(failed->item.status.fault != NULL, "call %d", (int)nth);
        check_bits(next, truth, true);
        vx_free(failed);
        vx_free(next);
    }
    vx_free(first);
    vx_free(truth);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Coordinates, features and outputs in memory of another process on the device: the host
 * cannot say which row lies outside. */
START_TEST(in_memory_of_a_client)
{
    const size_t bytes = sizeof(struct request);
    u8 handle[VX_IPC_HANDLE_BYTES];
    struct vx_why why = {{0}};
    void *memory;
    int fd = memfd_create("client", MFD_CLOEXEC);
    ck_assert(!ftruncate(fd, (off_t)bytes));
    vx_fake_handle(getpid(), fd, bytes, handle);
    vx_gpu_rig_write("fp32", networks[STAGES].json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    vx_status status = vx_engine_import(vx_gpu_rig_engine, handle, bytes, &why, &memory);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (i32 kind = GOOD; kind <= MANY; kind += ABOVE - GOOD) {
        struct request *truth = request_open(kind, STAGES), *there = memory;
        *there = *truth;
        there->item.coords = there->coords;
        there->item.feats = there->feats;
        there->item.outputs[RELU] = there->out[RELU];
        there->item.on_device = VX_ITEM_OUTPUT(OUTPUTS) - 1; /* all bits below */
        there->item.coords_change = true;
        run(vx_gpu_rig_engine, model, &truth, 1);
        run(vx_gpu_rig_engine, model, &there, 1);
        if (kind == GOOD) check_bits(there, truth, true);
        if (kind == MANY) check_bits(there, truth, true), check_end(there, kind, STAGES);
        if (kind == ABOVE)
            ck_assert_ptr_nonnull(
                strstr(there->item.why.text, "'z': voxel (4, 6, 0, 0) " OUTSIDE));
        vx_free(truth);
    }
    vx_engine_release(vx_gpu_rig_engine, &memory);
    close(fd);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_dense");
    TCase *tcase = tcase_create("gpu_dense");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, alone, 0, NETWORKS);
    tcase_add_loop_test(tcase, mates_are_answered, 0, NETWORKS * KINDS);
    tcase_add_loop_test(tcase, two_lanes, 0, NETWORKS);
    tcase_add_test(tcase, what_is_kept_may_lie_outside);
    tcase_add_test(tcase, other_networks_keep_other_geometries);
    tcase_add_loop_test(tcase, a_failing_call_fails_one_request, 0, NETWORKS);
    tcase_add_test(tcase, in_memory_of_a_client);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
