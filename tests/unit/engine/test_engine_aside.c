/* Brief batches that run while a long request of the batch before goes on: calls from the engine's report
 * of progress, as a worker makes them.
 *
 * Every answer is held, byte by byte, against the same request alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"

#include "tests/support/engine_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The long one: a box of 30 x 20 x 15 in reverse order; the brief one: a row of voxels far off. */
#define LONG_VOXELS  9000
#define BRIEF_VOXELS 40
#define CHANNELS     6
#define MS           VX_NS_PER_MS

static const char network[] = VX_RIG_HEAD VX_RIG_CONV(
    "a", "feats", "16", ",\"kernel\":3,\"layout\":\"spconv\"")
    VX_RIG_CONV("b", "a", "16",
                ",\"kernel\":3") "{\"name\":\"g\",\"op\":\"group_norm\",\"input\":\"b\","
                                 "\"groups\":4}," VX_RIG_LINEAR(
                                     "c", "g", "6") "{\"name\":\"y\",\"op\":"
                                                    "\"relu\",\"input\":"
                                                    "\"c\"}],\"outputs\":[{"
                                                    "\"layer\":\"y\"}]}";

static const size_t ROOM = 64 << 20;

static struct vx_model *model;
static i32 long_coords[LONG_VOXELS][4], brief_coords[BRIEF_VOXELS][4];
static f32 long_feats[LONG_VOXELS][3], brief_feats[BRIEF_VOXELS][3];
static f32 long_alone[LONG_VOXELS][CHANNELS], long_out[LONG_VOXELS][CHANNELS];
static f32 brief_alone[BRIEF_VOXELS][CHANNELS], brief_out[BRIEF_VOXELS][CHANNELS];

/* What the report does while the long request goes on. */
static struct {
    bool acts, sent;
    i64 wait_until_ns;
    struct vx_item item;
    struct vx_batch batch;
    i32 ended, most; /* brief batches; how many are sent */
    u32 names;
} within;

static struct vx_item item_long(void)
{
    memset(long_out, 0x55, sizeof long_out);
    return (struct vx_item){.coords = long_coords[0],
                            .coords_columns = 4,
                            .voxels = LONG_VOXELS,
                            .feats = long_feats,
                            .feats_dtype = VX_DTYPE_F32,
                            .coords_ref = {7, 7},
                            .outputs = {long_out}};
}

static struct vx_item item_brief(void)
{
    memset(brief_out, 0x55, sizeof brief_out);
    return (struct vx_item){.coords = brief_coords[0],
                            .coords_columns = 4,
                            .voxels = BRIEF_VOXELS,
                            .feats = brief_feats,
                            .feats_dtype = VX_DTYPE_F32,
                            .outputs = {brief_out}};
}

static void sleep_until(i64 ns)
{
    const struct timespec nap = {.tv_nsec = MS};
    while (vx_clock_ns() < ns) nanosleep(&nap, NULL); /* sleep: the rule is about time */
}

static void send_brief(void)
{
    within.batch.items = &within.item;
    within.batch.items_count = 1;
    vx_engine_submit(vx_rig_engine, model, &within.batch);
    within.sent = true;
}

static void end_brief(void)
{
    ck_assert_msg(!within.item.status.fault, "%s", within.item.why.text);
    ck_assert_mem_eq(brief_out, brief_alone, sizeof brief_alone);
    within.sent = false;
    within.ended++;
}

/* Each call is later than the rest that the last brief one left to the long one. */
static void on_report(void *context, i64 done, i64 total)
{
    (void)context;
    (void)done;
    (void)total;
    if (!within.acts) return;
    sleep_until(within.wait_until_ns);
    if (!within.sent && within.ended < within.most) {
        const bool brief = within.batch.brief;
        const struct vx_item like = within.item;
        within.item = item_brief();
        within.item.coords_ref = like.coords_ref;
        within.item.coords_ref.high += within.names++;
        within.item.asks = like.asks;
        within.batch = (struct vx_batch){.brief = brief};
        send_brief();
    }
    const i64 begin_ns = vx_clock_ns();
    const struct vx_batch *batch = vx_engine_collect(vx_rig_engine, false);
    if (!batch) return;
    ck_assert_ptr_eq(batch, &within.batch);
    end_brief();
    within.wait_until_ns = vx_clock_ns() + 2 * (vx_clock_ns() - begin_ns);
}

static void reopen(i32 threads, size_t device_bytes, size_t cache_bytes)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = threads,
                                              .device_bytes = device_bytes,
                                              .cache_bytes = cache_bytes,
                                              .running = {on_report, NULL}};
    struct vx_why why = {""};
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    ck_assert_msg(!vx_engine_open(&options, &why, &vx_rig_engine).fault, "%s", why.text);
    model = vx_rig_load(vx_rig_root);
}

static void set_up(void)
{
    vx_rig_set_up();
    vx_rig_write_model(vx_rig_root, network, 3);
    for (i32 i = 0; i < LONG_VOXELS; i++) {
        const i32 at = LONG_VOXELS - 1 - i;
        const i32 row[4] = {0, at / 300, at / 15 % 20, at % 15};
        memcpy(long_coords[i], row, sizeof row);
        for (i32 c = 0; c < 3; c++) long_feats[i][c] = (f32)((i * 7 + c * 5) % 23 - 11);
    }
    for (i32 i = 0; i < BRIEF_VOXELS; i++) {
        const i32 row[4] = {3, 1000, i, -i / 2};
        memcpy(brief_coords[i], row, sizeof row);
        for (i32 c = 0; c < 3; c++) brief_feats[i][c] = (f32)((i * 3 + c) % 13 - 6);
    }
    model = vx_rig_load(vx_rig_root);
    struct vx_item item = item_long();
    vx_rig_run(model, &item);
    memcpy(long_alone, long_out, sizeof long_out);
    item = item_brief();
    vx_rig_run(model, &item);
    memcpy(brief_alone, brief_out, sizeof brief_out);
    memset(&within, 0, sizeof within);
    within.batch.brief = true;
    within.most = 1000;
}

static void tear_down(void)
{
    vx_engine_unload(vx_rig_engine, &model);
    vx_rig_tear_down();
}

/* Runs the long one with the brief ones meanwhile, and what is left of those; returns how many ended while
 * it went on. */
static i32 run_both(void)
{
    struct vx_item item = item_long();
    struct vx_batch batch = {.items = &item, .items_count = 1};
    within.acts = true;
    within.wait_until_ns = vx_clock_ns() + 105 * MS;
    vx_engine_submit(vx_rig_engine, model, &batch);
    within.acts = false;
    const i32 meanwhile = within.ended;
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_mem_eq(long_out, long_alone, sizeof long_alone);
    if (within.sent) {
        ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &within.batch);
        end_brief();
    }
    ck_assert_int_eq(vx_engine_under_way(vx_rig_engine), 0);
    return meanwhile;
}

/* On one thread and on several; with names and without; many times in one request. */
START_TEST(brief_ones_end_while_a_long_one_goes_on)
{
    reopen(1 + _i % 3, ROOM, ROOM);
    if (_i / 3) within.item.coords_ref = (struct vx_coords_ref){1, 1};
    ck_assert_int_ge(run_both(), 3);
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_rig_engine, &stats);
    ck_assert_int_le(stats.device_bytes_used_max, (i64)ROOM);
}
END_TEST

/* Only what is brief, and not while the same geometry is read, begins before the long one has ended.  All
 * are answered. */
START_TEST(others_wait)
{
    reopen(2, ROOM, ROOM);
    within.batch.brief = _i != 0;
    within.most = 1;
    if (_i == 1) {
        struct vx_item same = item_long();
        within.item.coords_ref = same.coords_ref;
    }
    ck_assert_int_eq(run_both(), 0);
    ck_assert_int_eq(within.ended, 1);
}
END_TEST

/* The long one has just begun, or has waited as long as a brief one took. */
START_TEST(a_request_that_has_just_begun_goes_on)
{
    reopen(2, ROOM, ROOM);
    struct vx_item item = item_long();
    struct vx_batch batch = {.items = &item, .items_count = 1};
    within.acts = true;
    within.wait_until_ns = 0;
    const i64 begin_ns = vx_clock_ns();
    vx_engine_submit(vx_rig_engine, model, &batch);
    within.acts = false;
    if (vx_clock_ns() - begin_ns < 100 * MS) ck_assert_int_eq(within.ended, 0);
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert_mem_eq(long_out, long_alone, sizeof long_alone);
    if (within.sent) {
        ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &within.batch);
        end_brief();
    }
}
END_TEST

/* In the least device memory that the long one needs there is no room beside it: the brief one waits.  With
 * more there is. */
START_TEST(without_room_beside_it_the_brief_one_waits)
{
    const size_t step = 4 << 10;
    size_t bytes = 1 << 20;
    struct vx_item item;
    do {
        bytes += step;
        item = item_long();
        reopen(2, bytes, ROOM);
        vx_engine_run(vx_rig_engine, model,
                      &(struct vx_batch){.items = &item, .items_count = 1});
    } while (item.status.fault);
    within.most = 1;
    ck_assert_int_eq(run_both(), 0);
    ck_assert_int_eq(within.ended, 1);
    within.ended = 0;
    reopen(2, bytes + (64 << 10), ROOM);
    ck_assert_int_eq(run_both(), 1);
}
END_TEST

/* The same of the cache: its blocks stay where they are while the long one reads them. */
START_TEST(the_cache_stays_still_meanwhile)
{
    i32 meanwhile = 0, ran = 0;
    for (size_t bytes = 512 << 10; bytes <= 4 << 20; bytes += 128 << 10) {
        struct vx_item item = item_long();
        reopen(2, ROOM, bytes);
        vx_engine_run(vx_rig_engine, model,
                      &(struct vx_batch){.items = &item, .items_count = 1});
        if (item.status.fault) continue;
        within.ended = 0;
        within.most = 8;
        within.item.coords_ref = (struct vx_coords_ref){1, 1};
        meanwhile += run_both() > 0;
        ran++;
    }
    ck_assert_int_ge(ran, 5);
    ck_assert_int_ge(meanwhile, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_aside");
    TCase *tests = tcase_create("aside");
    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, brief_ones_end_while_a_long_one_goes_on, 0, 6);
    tcase_add_loop_test(tests, others_wait, 0, 2);
    tcase_add_test(tests, a_request_that_has_just_begun_goes_on);
    tcase_add_test(tests, without_room_beside_it_the_brief_one_waits);
    tcase_add_test(tests, the_cache_stays_still_meanwhile);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
