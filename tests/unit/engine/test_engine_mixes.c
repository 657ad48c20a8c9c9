/* Random mixes of requests on the CPU device: each answer has the bits that it has alone on a new
 * engine, and a bad request fails alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "tests/support/engine_rig.h"
#include "tests/support/trials.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX        900
#define CHANNELS     VX_RIG_CHANNELS
#define OUTPUTS      4
#define OUTPUT_BYTES (N_MAX * 8 * sizeof(f32)) /* the widest output of the network */
#define POOL         12                        /* geometries that are sent repeatedly */

/* What one item is made of; `alone` holds the answer that it must have. */
enum kind { GOOD, UNNAMED, REFERENCE, TWICE, OUTSIDE, UNKNOWN, WRONG_N, KINDS };
struct request {
    enum kind kind;
    i32 coords[N_MAX * 4];
    f32 feats[(N_MAX + 1) * CHANNELS]; /* in the item's datatype */
    u8 outputs[OUTPUTS][OUTPUT_BYTES];
    u8 alone[OUTPUTS][OUTPUT_BYTES];
    enum vx_code code;
    i64 pairs;
};

static struct vx_test_random random_;

static bool by_name(const struct request *request)
{
    return request->kind == REFERENCE || request->kind >= UNKNOWN;
}

static i64 pick(i64 count)
{
    return (i64)(vx_test_next(&random_) % (u64)count);
}

/* Different cells of a box, in any order. */
static void make_coords(i32 *rows, i64 n, i32 columns)
{
    enum { SIDE = 10, CELLS = SIDE * SIDE * SIDE };
    static i32 cells[CELLS];
    for (i32 i = 0; i < CELLS; i++) cells[i] = i;
    for (i64 i = 0; i < n; i++) {
        i64 j = i + pick(CELLS - i);
        i32 cell = cells[j];
        cells[j] = cells[i];
        if (columns == 4) *rows++ = (i32)(i % 3);
        *rows++ = cell / (SIDE * SIDE) - SIDE / 2;
        *rows++ = cell / SIDE % SIDE - SIDE / 2;
        *rows++ = cell % SIDE - SIDE / 2;
    }
}

static void make_feats(struct request *request, enum vx_dtype dtype)
{
    u16 *halves = (u16 *)(void *)request->feats;
    for (i32 i = 0; i < (N_MAX + 1) * CHANNELS; i++) {
        f32 value = vx_test_uniform(&random_, -2, 2);
        if (dtype == VX_DTYPE_F32) request->feats[i] = value;
        if (dtype == VX_DTYPE_F16) halves[i] = vx_test_f16(value);
        if (dtype == VX_DTYPE_BF16) halves[i] = vx_test_bf16(value);
    }
}

static void make_bad(struct request *request, struct vx_item *item)
{
    i32 columns = item->coords_columns;
    i32 *row;
    switch (request->kind) {
    case TWICE:
        row = request->coords + (1 + pick(item->voxels - 1)) * columns;
        memcpy(row, request->coords, (size_t)columns * sizeof *row);
        break;
    case OUTSIDE:
        row = request->coords + pick(item->voxels) * columns;
        row[columns - 1] = VX_AXIS_MAX + 1;
        break;
    case UNKNOWN: item->coords_ref.high ^= 1; break;
    case WRONG_N: item->voxels += pick(2) ? 1 : -1; break;
    default: return;
    }
    request->code =
        request->kind == UNKNOWN ? VX_CODE_FAILED_PRECONDITION : VX_CODE_INVALID_ARGUMENT;
}

/* An item with coordinates of its own or of the pool.  Without a pool: a good item with a
 * coords_ref, to be put into the pool. */
static void make_item(struct request *request, const struct request *pool,
                      const struct vx_item *pool_items, struct vx_item *item)
{
    static const i64 sizes[] = {0, 1, 30, 30, 900};
    static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};
    i64 of = pick(2 * POOL);
    request->kind = pick(3) ? (enum kind)pick(3) : (enum kind)pick(KINDS);
    if (!pool) request->kind = GOOD;
    request->code = VX_CODE_OK;
    *item = (struct vx_item){.coords = request->coords,
                             .coords_columns = 3 + (i32)pick(2),
                             .voxels = sizes[pool ? pick(5) : 1 + pick(4)],
                             .feats = request->feats,
                             .feats_dtype = dtypes[pick(3)]};
    /* A reference means a geometry of the pool; an item that is made bad needs rows to make bad. */
    bool refers = by_name(request);
    if (refers || (pool && of < POOL)) {
        of %= POOL;
        item->coords_columns = pool_items[of].coords_columns;
        item->voxels = pool_items[of].voxels;
        memcpy(request->coords, pool[of].coords, sizeof request->coords);
    } else {
        make_coords(request->coords, item->voxels, item->coords_columns);
    }
    if (request->kind >= TWICE && item->voxels < 2) request->kind = GOOD;
    make_feats(request, item->feats_dtype);
    if (request->kind != UNNAMED) vx_rig_name(item);
    make_bad(request, item);
    for (i32 i = 0; i < OUTPUTS; i++)
        if (pick(8)) item->outputs[i] = request->outputs[i];
}

static void open_engine(void)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 2,
                                              .device_bytes = VX_RIG_DEVICE_BYTES,
                                              .cache_bytes = 64 << 20};
    struct vx_why why = {{0}};
    vx_status status = vx_engine_open(&options, &why, &vx_rig_engine);
    ck_assert_msg(!status.fault, "%s", why.text);
}

/* The answer of a new engine; a reference is sent with its coordinates instead. */
static void run_alone(struct request *request, const struct vx_item *item)
{
    struct vx_item alone = *item;
    open_engine();
    struct vx_model *model = vx_rig_load(vx_rig_root);
    vx_rig_run(model, &alone);
    if (!request->code)
        ck_assert_msg(!alone.status.fault, "%s", alone.why.text);
    else if (request->kind < UNKNOWN)
        ck_assert_int_eq(vx_status_code(alone.status), request->code);
    memcpy(request->alone, request->outputs, sizeof request->alone);
    memset(request->outputs, 0, sizeof request->outputs);
    request->pairs = alone.pairs;
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
}

static void ck_item(const struct request *request, const struct vx_item *item)
{
    ck_assert_msg(vx_status_code(item->status) == request->code, "kind %d: %s",
                  request->kind, vx_status_text(item->status, &item->why));
    if (request->code) {
        ck_assert_uint_gt(strlen(item->why.text), 0);
        ck_assert(!item->geometry_kept);
        return;
    }
    if (memcmp(request->outputs, request->alone, sizeof request->alone) != 0)
        ck_abort_msg("kind %d, %d voxels: another answer than alone", request->kind,
                     (int)item->voxels);
    ck_assert_int_eq(item->pairs, request->pairs);
    if (!item->voxels) return;
    ck_assert_int_eq(item->geometry_kept, request->kind != UNNAMED);
    if (request->kind == UNNAMED) ck_assert(!item->geometry_hit);
    if (request->kind == REFERENCE) ck_assert(item->geometry_hit);
}

struct mix {
    struct vx_batch batch;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct request *requests;
};

static void mix_make(struct mix *mix, i32 count, const struct mix *pool)
{
    mix->requests = vx_alloc_zero((size_t)count * sizeof *mix->requests);
    mix->batch = (struct vx_batch){.items = mix->items, .items_count = count};
    for (i32 i = 0; i < count; i++) {
        struct request *request = &mix->requests[i];
        make_item(request, pool ? pool->requests : NULL, pool ? pool->items : NULL,
                  &mix->items[i]);
        run_alone(request, &mix->items[i]);
        if (by_name(request)) mix->items[i].coords = NULL;
    }
}

static void mix_check(struct mix *mix)
{
    for (i32 i = 0; i < mix->batch.items_count; i++)
        ck_item(&mix->requests[i], &mix->items[i]);
}

START_TEST(test_mixes)
{
    static struct mix pool, mixes[2];
    random_.state = 1000 + (u64)_i;
    vx_thread_enter(VX_ROLE_DEVICE);
    vx_test_directory(vx_rig_root);
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 7);
    mix_make(&pool, POOL, NULL);
    mix_make(&mixes[0], _i % 3 ? 1 + (i32)pick(64) : 64, &pool);
    mix_make(&mixes[1], 1 + (i32)pick(64), &pool);
    u32 kinds = 0;
    for (i32 i = 0; i < mixes[0].batch.items_count; i++)
        kinds |= UINT32_C(1) << mixes[0].requests[i].kind;
    if (_i % 3 == 0) ck_assert_uint_eq(kinds, (1 << KINDS) - 1); /* every kind */
    open_engine();
    struct vx_model *model = vx_rig_load(vx_rig_root);
    vx_engine_run(vx_rig_engine, model, &pool.batch);
    mix_check(&pool);
    ck_assert(vx_engine_has_room(vx_rig_engine));
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
    vx_engine_submit(vx_rig_engine, model, &mixes[0].batch);
    ck_assert(vx_engine_has_room(vx_rig_engine));
    vx_engine_submit(vx_rig_engine, model, &mixes[1].batch);
    ck_assert(!vx_engine_has_room(vx_rig_engine));
    ck_assert_int_eq(vx_engine_under_way(vx_rig_engine), 2);
    for (int i = 0; i < 2; i++) {
        struct vx_batch *ended = vx_engine_collect(vx_rig_engine, true);
        ck_assert_ptr_eq(ended, &mixes[i].batch);
        ck_assert_int_gt(ended->device_ns, 0);
        mix_check(&mixes[i]);
    }
    ck_assert_int_eq(vx_engine_under_way(vx_rig_engine), 0);
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, false));
    ck_assert_int_eq(vx_engine_numa_node(vx_rig_engine), -1);
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    vx_free(pool.requests);
    for (int i = 0; i < 2; i++) vx_free(mixes[i].requests);
    vx_test_remove(vx_rig_root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_mixes");
    TCase *tests = tcase_create("engine_mixes");
    tcase_set_timeout(tests, 60);
    /* The first of three has every kind. */
    tcase_add_loop_test(tests, test_mixes, 0, VX_TRIALS(6, 3));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
