/* Requests of networks of several sets on the fake GPU that fail alone: bad coordinates, a
 * voxel outside of the spatial shape, a set that passes its limit, places that are refused.
 * Their mates in the batch have the answers that they have alone, from the store too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/model/model_choice.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <string.h>

/* "full" lies on set 0; "coarse" and its coordinates on another, of at most 60 voxels. */
#define NETWORK                                                                          \
    "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\",\"spatial_shape\":"       \
    "[64,64,64]},\"feats\":{\"channels\":3}},\"layers\":["                               \
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":8},"             \
    "{\"name\":\"d\",\"op\":\"max_pool\",\"input\":\"a\",\"kernel\":2,\"stride\":2,"     \
    "\"rule\":\"spconv\"},"                                                              \
    "{\"name\":\"g\",\"op\":\"group_norm\",\"input\":\"d\",\"groups\":2,\"affine\":"     \
    "false},"                                                                            \
    "{\"name\":\"u\",\"op\":\"unpool\",\"input\":\"g\",\"of\":\"d\"},"                   \
    "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"u\",\"a\"]}],"                         \
    "\"outputs\":[{\"layer\":\"s\",\"name\":\"full\"},{\"layer\":\"g\",\"name\":"        \
    "\"coarse\"}],\"limits\":{\"voxels_max\":400,\"sets\":{\"d\":60}}}"

enum { FULL, COARSE, COORDS, OUTPUTS };
enum { GOOD, KEPT, DUPLICATE, OUTSIDE, LARGE, REFUSED, KINDS };
#define VOXELS   100
#define CHANNELS 8

/* What each kind of request says; NULL: it succeeds. */
static const struct {
    enum vx_code code;
    const char *why;
} ends[KINDS] = {
    [DUPLICATE] = {VX_CODE_INVALID_ARGUMENT, "the same voxel"},
    [OUTSIDE] = {VX_CODE_INVALID_ARGUMENT, "outside of the network's spatial_shape"},
    [LARGE] = {VX_CODE_RESOURCE_EXHAUSTED, "limits.sets allows 60"},
    [REFUSED] = {VX_CODE_RESOURCE_EXHAUSTED, "no room for it"},
};

struct request {
    struct vx_item item;
    i32 coords[VOXELS * 4];
    f32 feats[VOXELS * 3];
    f32 full[VOXELS * CHANNELS], coarse[VOXELS * CHANNELS];
    i32 places[VOXELS * 4];
};

/* 100 voxels in blocks of 2 x 2 x 1, in two samples; LARGE: in 100 blocks. */
static struct request *request_open(i32 kind)
{
    struct request *it = vx_alloc_zero(sizeof *it);
    ck_assert_ptr_nonnull(it);
    for (i32 i = 0; i < VOXELS; i++) {
        const i32 block = kind == LARGE ? i : i / 4, in = kind == LARGE ? 0 : i % 4;
        const i32 at[4] = {block % 2, block / 2 % 7 * 2 + in / 2, block / 14 * 2 + in % 2,
                           30 + kind};
        memcpy(it->coords + 4 * i, at, sizeof at);
        for (i32 c = 0; c < 3; c++)
            it->feats[3 * i + c] = (f32)((i * 7 + c * 5 + kind) % 23 - 11);
    }
    if (kind == DUPLICATE) memcpy(it->coords + 4 * 50, it->coords, 4 * sizeof(i32));
    if (kind == OUTSIDE) it->coords[4 * 50 + 1] = 64;
    it->item = (struct vx_item){.coords = it->coords,
                                .coords_columns = 4,
                                .voxels = VOXELS,
                                .feats = it->feats,
                                .feats_dtype = VX_DTYPE_F32,
                                .asks = 1u << COARSE | 1u << COORDS};
    it->item.outputs[FULL] = it->full;
    if (kind == KEPT) it->item.coords_ref = (struct vx_coords_ref){7, 9};
    return it;
}

/* Runs them as one batch on the engine; REFUSED ones get no places. */
static void run(struct vx_engine *engine, struct vx_model *model,
                struct request *const *requests, const i32 *kinds, i32 count)
{
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    for (i32 i = 0; i < count; i++) items[i] = requests[i]->item;
    vx_engine_submit(engine, model, &batch);
    for (i32 calls = 0; vx_engine_under_way(engine); calls++) {
        ck_assert_int_le(calls, 3 * count);
        while (vx_engine_asked(engine, &asked))
            for (i32 i = 0; i < asked.count; i++) {
                const i32 at = asked.items[i];
                ck_assert_int_eq(items[at].rows[COARSE], items[at].rows[COORDS]);
                ck_assert_int_eq(items[at].rows[COARSE], 25);
                items[at].outputs[COARSE] = requests[at]->coarse;
                items[at].outputs[COORDS] = requests[at]->places;
                if (kinds[at] == REFUSED) {
                    items[at].status = vx_status_of_code(ends[REFUSED].code);
                    vx_why_set(&items[at].why, "%s", ends[REFUSED].why);
                    items[at].outputs[COARSE] = items[at].outputs[COORDS] = NULL;
                }
                vx_engine_place(engine, &batch, at);
            }
        (void)vx_engine_collect(engine, true);
    }
    for (i32 i = 0; i < count; i++) requests[i]->item = items[i];
}

static void check_end(const struct request *request, i32 kind)
{
    const struct vx_item *item = &request->item;
    ck_assert_msg(vx_status_code(item->status) == ends[kind].code, "kind %d: %s",
                  (int)kind, item->why.text);
    if (!ends[kind].why) return;
    ck_assert_msg(strstr(item->why.text, ends[kind].why) != NULL, "kind %d: %s",
                  (int)kind, item->why.text);
    /* The sets that were made, within limits.sets, count all the same. */
    if (kind == LARGE) ck_assert_int_ge(item->set_voxels, VOXELS + 60);
    if (kind == REFUSED) ck_assert_int_gt(item->set_voxels, VOXELS);
}

static void check_bits(const struct request *a, const struct request *b)
{
    ck_assert(!memcmp(a->full, b->full, sizeof a->full));
    ck_assert(!memcmp(a->coarse, b->coarse, sizeof a->coarse));
    ck_assert(!memcmp(a->places, b->places, sizeof a->places));
}

/* Each kind alone, on the CPU and on the fake GPU: the same status, and the same
 * coordinates of the coarse set. */
START_TEST(each_alone)
{
    vx_gpu_rig_write("fp32", NETWORK, 3);
    struct vx_model *gpu = vx_gpu_rig_load(vx_rig_root), *cpu = vx_rig_load(vx_rig_root);
    struct request *mine = request_open(_i), *theirs = request_open(_i);
    run(vx_gpu_rig_engine, gpu, &mine, &_i, 1);
    run(vx_rig_engine, cpu, &theirs, &_i, 1);
    check_end(mine, _i);
    check_end(theirs, _i);
    ck_assert(!memcmp(mine->places, theirs->places, sizeof mine->places));
    for (i32 i = 0; i < VOXELS * CHANNELS && !ends[_i].why; i++)
        ck_assert_float_eq_tol(mine->full[i], theirs->full[i], 1e-3f);
    vx_free(mine);
    vx_free(theirs);
    vx_engine_unload(vx_gpu_rig_engine, &gpu);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

/* All kinds in one batch, in every rotation, so that each is once the first and once the
 * last; and again, when the store has one of them. */
START_TEST(mates_are_answered)
{
    vx_gpu_rig_write("fp32", NETWORK, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *alone[KINDS], *requests[KINDS];
    i32 kinds[KINDS];
    for (i32 k = 0; k < KINDS; k++) {
        alone[k] = request_open(k);
        alone[k]->item.coords_ref = (struct vx_coords_ref){0};
        run(vx_gpu_rig_engine, model, &alone[k], &k, 1);
    }
    for (i32 again = 0; again < 2; again++) {
        for (i32 i = 0; i < KINDS; i++) {
            kinds[i] = (i + _i) % KINDS;
            requests[i] = request_open(kinds[i]);
        }
        run(vx_gpu_rig_engine, model, requests, kinds, KINDS);
        for (i32 i = 0; i < KINDS; i++) {
            const i32 kind = kinds[i];
            check_end(requests[i], kind);
            if (!ends[kind].why) check_bits(requests[i], alone[kind]);
            if (kind == KEPT) ck_assert(requests[i]->item.geometry_hit == again);
            vx_free(requests[i]);
        }
    }
    for (i32 k = 0; k < KINDS; k++) vx_free(alone[k]);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Coarse layers of many channels, whose sums are split or listed in pairs when rows are
 * few: what a round reserves before it knows the sizes is enough for all smaller ones. */
#define WIDE                                                                             \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":3}},\"layers\":["                 \
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":512},"           \
    "{\"name\":\"d\",\"op\":\"max_pool\",\"input\":\"a\",\"kernel\":2,\"stride\":2,"     \
    "\"rule\":\"floor\"},"                                                               \
    "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"d\",\"channels\":1024,"            \
    "\"kernel\":3,\"layout\":\"vio\"},"                                                  \
    "{\"name\":\"e\",\"op\":\"subm_conv\",\"input\":\"c\",\"channels\":16,\"kernel\":"   \
    "3,\"layout\":\"vio\"}],\"outputs\":[{\"layer\":\"e\"}]}"

START_TEST(bounds_are_enough)
{
    static u8 block[VX_NETWORK_ARENA_BYTES];
    static struct vx_gpu_places places;
    const struct vx_fuse_options fuse = {true, true, true, true, true};
    const struct vx_plan_options options = vx_plan_gpu(2);
    const struct vx_network_text text = {WIDE, strlen(WIDE), "wide"};
    const struct vx_pick pick = {.caps = vx_arch_caps("sm_90a")};
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_gpu_choices *choices;
    struct vx_arena arena;
    struct vx_why why;
    vx_arena_init(&arena, block, sizeof block);
    ck_assert(!vx_network_parse(&text, &arena, &why, &network).fault);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &plan).fault);
    const struct vx_gpu_choices_want want = {plan, VX_NUMBER_F16, 1 << 20, &pick};
    ck_assert(!vx_gpu_choices_open(&want, &choices).fault);
    /* As tuning may find: layer "c" lists pairs from 512 to 1023 rows. */
    ck_assert_int_eq(plan->launches[2].node->layer->channels, 1024);
    vx_gpu_choice_set(choices, 2, vx_size_class(600),
                      &(struct vx_conv_choice){VX_CONV_PAIRS_LIST, 0});
    for (i64 n = 40; n <= 1 << 20; n = n * 7 / 2) {
        i64 rows[2] = {n, n};
        vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, 1, true, NULL}, &places);
        const size_t most = places.bytes;
        for (rows[1] = 1; rows[1] <= n; rows[1] = rows[1] * 4 / 3 + 1) {
            vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, 1, false, NULL},
                               &places);
            ck_assert_msg(places.bytes <= most, "%lld of %lld rows: %zu bytes, not %zu",
                          (long long)rows[1], (long long)n, places.bytes, most);
        }
    }
    vx_gpu_choices_close(&choices);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_sets");
    TCase *tcase = tcase_create("sets");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, bounds_are_enough);
    tcase_add_loop_test(tcase, each_alone, 0, KINDS);
    tcase_add_loop_test(tcase, mates_are_answered, 0, KINDS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
