/* Requests of networks on the fake GPU in which the voxels of sets follow from logits: the
 * rows, values and coordinates that the request's own numbers say; and requests that fail
 * alone in a stage (a logit that is no number, too many voxels) or have empty sets, whose
 * mates in the batch have the bits that they have alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The features are the logits of the children, and what a live child has: then those above
 * 5 stay, or in each sample the 3 largest.  "b" comes back to the request's voxels. */
#define NETWORK                                                                          \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":8}},\"layers\":["                 \
    "{\"name\":\"l\",\"op\":\"affine\",\"input\":\"feats\"},"                            \
    "{\"name\":\"c\",\"op\":\"channel_to_space\",\"input\":\"l\",\"occupancy\":\"l\","   \
    "\"stride\":2},"                                                                     \
    "{\"name\":\"k\",\"op\":\"affine\",\"input\":\"c\",\"shift\":-5},"                   \
    "{\"name\":\"p\",\"op\":\"prune\",\"input\":\"c\",\"keep\":\"k\"},"                  \
    "{\"name\":\"t\",\"op\":\"prune\",\"input\":\"c\",\"keep\":\"k\",\"top\":3},"        \
    "{\"name\":\"s\",\"op\":\"subm_conv\",\"input\":\"p\",\"channels\":4,\"kernel\":3,"  \
    "\"layout\":\"vio\"},"                                                               \
    "{\"name\":\"g\",\"op\":\"group_norm\",\"input\":\"s\",\"groups\":2,\"affine\":"     \
    "false},"                                                                            \
    "{\"name\":\"d\",\"op\":\"max_pool\",\"input\":\"g\",\"kernel\":2,\"stride\":2,"     \
    "\"rule\":\"floor\"},"                                                               \
    "{\"name\":\"b\",\"op\":\"upsample\",\"input\":\"d\",\"onto\":\"l\",\"stride\":1}]," \
    "\"outputs\":[{\"layer\":\"c\"},{\"layer\":\"p\"},{\"layer\":\"t\"},"                \
    "{\"layer\":\"g\"},{\"layer\":\"b\"}],"                                              \
    "\"limits\":{\"voxels_max\":1000,\"sets\":{\"c\":120}}}"

enum { LIVE, KEPT, TOP, NORM, BACK, OUTPUTS, COORDS = OUTPUTS, PLACES = COORDS + 3 };
enum { GOOD, OTHER, STORED, NONE_KEPT, EMPTY, NANS, NANS_LATER, LARGE, DUPLICATE, KINDS };
#define VOXELS 40
#define ROWS   120 /* limits.sets */
#define TOP_K  3

/* What each kind of request says; NULL: it succeeds. */
static const struct {
    enum vx_code code;
    const char *why;
} ends[KINDS] = {
    [NANS] = {VX_CODE_INVALID_ARGUMENT,
              "layer \"l\": the logit of voxel (0, 2, 4, 0) of set 0, child 3, is not a"},
    [NANS_LATER] = {VX_CODE_INVALID_ARGUMENT, "layer \"k\": the logit of voxel (0, "},
    [LARGE] = {VX_CODE_RESOURCE_EXHAUSTED, "has 320 voxels; limits.sets allows 120"},
    [DUPLICATE] = {VX_CODE_INVALID_ARGUMENT, "the same voxel"},
};

struct row {
    i32 at[4];
    f32 value;
};
struct request {
    struct vx_item item;
    i32 coords[VOXELS * 4];
    f32 feats[VOXELS * 8];
    f32 back[VOXELS * 4];
    f32 out[BACK][ROWS * 4];
    i32 places[3][ROWS * 4];
};

static f32 feat_of(i32 kind, i32 i, i32 c)
{
    const i32 number = (i * 37 + c * 11 + kind * 5) % 29;
    switch (kind) {
    case EMPTY: return -1.0f - (f32)number;
    case LARGE: return 1.0f + (f32)number;
    case NONE_KEPT: return number % 4 ? -0.0f : 5.0f;
    default: return (f32)(number - 22); /* a fifth is above 0 */
    }
}

/* 40 voxels in two samples. */
static struct request *request_open(i32 kind)
{
    struct request *it = vx_alloc_zero(sizeof *it);
    ck_assert_ptr_nonnull(it);
    for (i32 i = 0; i < VOXELS; i++) {
        const i32 at[4] = {i % 2, i / 2 % 5 - 1, i / 10 + (i % 2) * 3,
                           kind == OTHER ? -7 : 0};
        memcpy(it->coords + 4 * i, at, sizeof at);
        for (i32 c = 0; c < 8; c++) it->feats[8 * i + c] = feat_of(kind, i, c);
    }
    if (kind == DUPLICATE) memcpy(it->coords + 4 * 8, it->coords, 4 * sizeof(i32));
    if (kind ==
        NANS) { /* two voxels; the first in canonical order is the second one here */
        memcpy(it->coords + 4 * 38, (const i32[]){0, 2, 4, 0}, 4 * sizeof(i32));
        memcpy(it->coords + 4 * 10, (const i32[]){0, 2, 9, 0}, 4 * sizeof(i32));
        it->feats[8 * 38 + 3] = it->feats[8 * 38 + 6] = it->feats[8 * 10 + 1] = NAN;
    }
    it->item = (struct vx_item){.coords = it->coords,
                                .coords_columns = 4,
                                .voxels = VOXELS,
                                .feats = it->feats,
                                .feats_dtype = VX_DTYPE_F32};
    for (i32 o = 0; o < PLACES; o++)
        if (o != BACK) it->item.asks |= 1u << o;
    it->item.outputs[BACK] = it->back;
    if (kind == STORED) it->item.coords_ref = (struct vx_coords_ref){7, 9};
    /* Infinity is live, and infinity - infinity is no number: see the other network. */
    if (kind == NANS_LATER) it->feats[8 * 6] = INFINITY;
    return it;
}

static void place(struct request *request, struct vx_item *item)
{
    for (i32 o = 0; o < PLACES; o++) {
        if (o == BACK) continue;
        ck_assert_int_le(item->rows[o], ROWS);
        item->outputs[o] =
            o < BACK ? (void *)request->out[o] : request->places[o - COORDS];
    }
}

/* Runs them as one batch on the engine. */
static void run(struct vx_engine *engine, struct vx_model *model,
                struct request *const *requests, i32 count)
{
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    for (i32 i = 0; i < count; i++) items[i] = requests[i]->item;
    vx_engine_submit(engine, model, &batch);
    for (i32 calls = 0; vx_engine_under_way(engine); calls++) {
        ck_assert_int_le(calls, 5 * count);
        while (vx_engine_asked(engine, &asked))
            for (i32 i = 0; i < asked.count; i++) {
                const i32 at = asked.items[i];
                place(requests[at], &items[at]);
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
    /* What it costs all the same: its own voxels and the sets that were made, within limits.sets. */
    if (kind == DUPLICATE) ck_assert_int_eq(item->set_voxels, 0);
    if (kind == NANS) ck_assert_int_ge(item->set_voxels, VOXELS);
    if (kind == NANS_LATER) ck_assert_int_gt(item->set_voxels, VOXELS);
    if (kind == LARGE) ck_assert_int_eq(item->set_voxels, VOXELS + ROWS);
}

/* --- by the request's own numbers --- */

static int compare_places(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    for (int axis = 0; axis < 4; axis++)
        if (a->at[axis] != b->at[axis]) return a->at[axis] < b->at[axis] ? -1 : 1;
    return 0;
}

static int compare_values(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    if (a->at[0] != b->at[0]) return a->at[0] < b->at[0] ? -1 : 1;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return compare_places(left, right);
}

static i32 live_rows(const struct request *request, struct row rows[VOXELS * 8])
{
    i32 count = 0;
    for (i32 e = 0; e < VOXELS * 8; e++) {
        const i32 *p = request->coords + e / 8 * 4, c = e % 8;
        if (!(request->feats[e] > 0)) continue;
        rows[count++] =
            (struct row){{p[0], 2 * p[1] + c % 2, 2 * p[2] + c / 2 % 2, 2 * p[3] + c / 4},
                         request->feats[e]};
    }
    qsort(rows, (size_t)count, sizeof *rows, compare_places);
    return count;
}

static i32 kept_rows(struct row *rows, i32 count)
{
    i32 kept = 0;
    for (i32 i = 0; i < count; i++)
        if (rows[i].value > 5) rows[kept++] = rows[i];
    return kept;
}

static i32 top_rows(struct row *rows, i32 count)
{
    i32 kept = 0, of_sample = 0;
    qsort(rows, (size_t)count, sizeof *rows, compare_values);
    for (i32 i = 0; i < count; i++) {
        of_sample = i && rows[i].at[0] == rows[i - 1].at[0] ? of_sample + 1 : 0;
        if (of_sample < TOP_K) rows[kept++] = rows[i];
    }
    qsort(rows, (size_t)kept, sizeof *rows, compare_places);
    return kept;
}

static void check_rows(const struct request *request, i32 output, const struct row *rows,
                       i32 count)
{
    ck_assert_int_eq(request->item.rows[output], count);
    ck_assert_int_eq(request->item.rows[COORDS + output], count);
    for (i32 i = 0; i < count; i++) {
        ck_assert(request->out[output][i] == rows[i].value);
        ck_assert(!memcmp(request->places[output] + 4 * i, rows[i].at, sizeof rows->at));
    }
}

static void check_numbers(const struct request *request)
{
    struct row rows[VOXELS * 8];
    i32 count = live_rows(request, rows);
    check_rows(request, LIVE, rows, count);
    check_rows(request, KEPT, rows, kept_rows(rows, count));
    count = live_rows(request, rows);
    check_rows(request, TOP, rows, top_rows(rows, count));
}

static void check_bits(const struct request *a, const struct request *b)
{
    ck_assert(!memcmp(a->item.rows, b->item.rows, sizeof a->item.rows));
    ck_assert(!memcmp(a->back, b->back, sizeof a->back));
    ck_assert(!memcmp(a->out, b->out, sizeof a->out));
    ck_assert(!memcmp(a->places, b->places, sizeof a->places));
}

START_TEST(each_alone)
{
    vx_gpu_rig_write("fp32", NETWORK, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *request = request_open(_i);
    i32 kind = _i == NANS_LATER ? GOOD : _i; /* infinity alone is a number */
    run(vx_gpu_rig_engine, model, &request, 1);
    check_end(request, kind);
    if (!ends[kind].why) check_numbers(request);
    if (_i == EMPTY) ck_assert_int_eq(request->item.rows[LIVE], 0);
    if (_i == NONE_KEPT) ck_assert_int_eq(request->item.rows[KEPT], 0);
    if (_i == NONE_KEPT) ck_assert_int_gt(request->item.rows[LIVE], 0);
    vx_free(request);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* The same network, where the logits of "p" are infinite less infinite for one voxel. */
static char *network_with_nans(void)
{
    static const char plain[] = NETWORK;
    static char text[sizeof plain + 400];
    const char *at = strstr(plain, "{\"name\":\"k\"");
    const char *rest = strchr(at, '}') + 2;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - plain), plain,
             "{\"name\":\"m\",\"op\":\"affine\",\"input\":\"c\",\"scale\":-1},"
             "{\"name\":\"n\",\"op\":\"add\",\"inputs\":[\"c\",\"m\"]},"
             "{\"name\":\"o\",\"op\":\"add\",\"inputs\":[\"c\",\"n\"]},"
             "{\"name\":\"k\",\"op\":\"affine\",\"input\":\"o\",\"shift\":-5},",
             rest);
    return text;
}

/* All kinds in one batch, in every rotation, so that each is once the first and once the
 * last; and again, when the store has one of them. */
START_TEST(mates_are_answered)
{
    vx_gpu_rig_write("fp32", network_with_nans(), 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *alone[KINDS], *requests[KINDS];
    for (i32 k = 0; k < KINDS; k++) {
        alone[k] = request_open(k);
        alone[k]->item.coords_ref = (struct vx_coords_ref){0};
        run(vx_gpu_rig_engine, model, &alone[k], 1);
        check_end(alone[k], k);
        if (!ends[k].why) check_numbers(alone[k]);
    }
    for (i32 again = 0; again < 2; again++) {
        for (i32 i = 0; i < KINDS; i++) requests[i] = request_open((i + _i) % KINDS);
        run(vx_gpu_rig_engine, model, requests, KINDS);
        for (i32 i = 0; i < KINDS; i++) {
            const i32 kind = (i + _i) % KINDS;
            check_end(requests[i], kind);
            if (!ends[kind].why) check_bits(requests[i], alone[kind]);
            if (kind == STORED) ck_assert(requests[i]->item.geometry_hit == again);
            if (kind == STORED) ck_assert(requests[i]->item.geometry_kept);
            vx_free(requests[i]);
        }
    }
    for (i32 k = 0; k < KINDS; k++) vx_free(alone[k]);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Two requests of one coords_ref with other features do not see each other's sets, whether
 * they send the coordinates again or not, and in one batch; and what is sent counts, not
 * what is kept under its name. */
START_TEST(one_name_many_features)
{
    vx_gpu_rig_write("fp32", NETWORK, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct request *first = request_open(GOOD), *requests[4];
    first->item.coords_ref = (struct vx_coords_ref){7, 9};
    run(vx_gpu_rig_engine, model, &first, 1);
    check_numbers(first);
    for (i32 i = 0; i < 4; i++) {
        requests[i] = request_open(i == 2 ? OTHER : GOOD);
        requests[i]->item.coords_ref = (struct vx_coords_ref){7, 9};
        if (i % 2) requests[i]->item.coords = NULL;
        for (i32 e = 0; e < VOXELS * 8; e++)
            requests[i]->feats[e] = feat_of(GOOD, e / 8 + i * 3, e % 8);
    }
    run(vx_gpu_rig_engine, model, requests, 4);
    for (i32 i = 0; i < 4; i++) {
        check_end(requests[i], GOOD);
        check_numbers(requests[i]);
        ck_assert(requests[i]->item.geometry_hit == (i != 2));
        vx_free(requests[i]);
    }
    vx_free(first);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* --- more voxels than one block makes at once --- */

#define MANY      2300
#define MANY_ROWS (MANY * 8)
struct many {
    struct vx_item item;
    i32 coords[MANY * 4];
    f32 feats[MANY * 8];
    f32 back[MANY * 4];
    f32 out[BACK][MANY_ROWS * 4];
    i32 places[3][MANY_ROWS * 4];
};

/* In three samples, the rows in no order. */
static struct many *many_open(i32 turn)
{
    struct many *it = vx_alloc_zero(sizeof *it);
    ck_assert_ptr_nonnull(it);
    for (i32 i = 0; i < MANY; i++) {
        const i32 place = i * 1231 % MANY; /* a permutation */
        const i32 at[4] = {place % 3, place / 3 % 40 - 20, place / 120 % 5, place / 600};
        memcpy(it->coords + 4 * i, at, sizeof at);
        for (i32 c = 0; c < 8; c++)
            it->feats[8 * i + c] = (f32)((i * 37 + c * 11 + turn) % 29 - 18);
    }
    it->item = (struct vx_item){.coords = it->coords,
                                .coords_columns = 4,
                                .voxels = MANY,
                                .feats = it->feats,
                                .feats_dtype = VX_DTYPE_F32};
    for (i32 o = 0; o < PLACES; o++)
        if (o != BACK) it->item.asks |= 1u << o;
    it->item.outputs[BACK] = it->back;
    return it;
}

static void many_run(struct vx_engine *engine, struct vx_model *model,
                     struct many *const *requests, i32 count)
{
    struct vx_item items[2];
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    for (i32 i = 0; i < count; i++) items[i] = requests[i]->item;
    vx_engine_submit(engine, model, &batch);
    while (vx_engine_under_way(engine)) {
        while (vx_engine_asked(engine, &asked))
            for (i32 i = 0; i < asked.count; i++) {
                const i32 at = asked.items[i];
                for (i32 o = 0; o < PLACES; o++)
                    if (o != BACK)
                        items[at].outputs[o] = o < BACK
                                                   ? (void *)requests[at]->out[o]
                                                   : requests[at]->places[o - COORDS];
                vx_engine_place(engine, &batch, at);
            }
        (void)vx_engine_collect(engine, true);
    }
    for (i32 i = 0; i < count; i++) {
        requests[i]->item = items[i];
        ck_assert_msg(!items[i].status.fault, "%s", items[i].why.text);
    }
}

/* The CPU's rows, values and coordinates; and in a batch of two the bits of alone. */
START_TEST(many_voxels)
{
    static char text[sizeof NETWORK];
    snprintf(text, sizeof text, "%s", NETWORK);
    memcpy(strstr(text, "{\"voxels_max\""), "{\"voxels_max\":4700}}",
           sizeof "{\"voxels_max\":4700}}");
    vx_gpu_rig_write("fp32", text, 3);
    struct vx_model *gpu = vx_gpu_rig_load(vx_rig_root), *cpu = vx_rig_load(vx_rig_root);
    struct many *alone = many_open(0), *truth = many_open(0),
                *both[2] = {many_open(4), many_open(0)};
    many_run(vx_gpu_rig_engine, gpu, &alone, 1);
    many_run(vx_rig_engine, cpu, &truth, 1);
    many_run(vx_gpu_rig_engine, gpu, both, 2);
    ck_assert_int_gt(truth->item.rows[LIVE], 2 * 2048);
    ck_assert_int_eq(truth->item.rows[TOP], 3 * TOP_K);
    ck_assert(!memcmp(alone->item.rows, truth->item.rows, sizeof truth->item.rows));
    ck_assert(!memcmp(alone->places, truth->places, sizeof truth->places));
    for (i32 o = 0; o < NORM; o++)
        ck_assert(!memcmp(alone->out[o], truth->out[o], sizeof truth->out[o]));
    for (i32 e = 0; e < MANY * 4; e++)
        ck_assert_float_eq_tol(alone->back[e], truth->back[e], 1e-3f);
    ck_assert(!memcmp(alone->back, both[1]->back, sizeof alone->back));
    ck_assert(!memcmp(alone->out, both[1]->out, sizeof alone->out));
    ck_assert(!memcmp(alone->places, both[1]->places, sizeof alone->places));
    vx_free(alone);
    vx_free(truth);
    for (i32 i = 0; i < 2; i++) vx_free(both[i]);
    vx_engine_unload(vx_gpu_rig_engine, &gpu);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_stages");
    TCase *tcase = tcase_create("stages");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, each_alone, 0, KINDS);
    tcase_add_loop_test(tcase, mates_are_answered, 0, KINDS);
    tcase_add_test(tcase, one_name_many_features);
    tcase_add_test(tcase, many_voxels);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
