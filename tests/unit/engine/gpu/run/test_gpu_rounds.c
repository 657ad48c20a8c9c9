/* Rounds of batches on the fake GPU at their limits: memory to the last line, voxels_max to the
 * last voxel, unknown coords_refs, counters, and which item comes first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/backend_gpu.h"
#include "engine/gpu/run/batches.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 4
#define VOXELS    40 /* of the model, at most */

/* One convolution of 3 channels to 5. */
#define NETWORK                                                                          \
    VX_RIG_HEAD "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\","              \
                "\"channels\":5,\"kernel\":3,\"layout\":\"spconv\"}],"                   \
                "\"outputs\":[{\"layer\":\"y\"}],"                                       \
                "\"limits\":{\"voxels_max\":40},\"warmup\":[1]}"

static struct vx_model *model;
static struct vx_rig_request *requests[ITEMS_MAX]; /* of 10, 20, 30, 40 voxels, named */
static f32 expected[ITEMS_MAX][VOXELS * 5];        /* the answer of each alone */

static void reopen(size_t device_bytes)
{
    if (model) vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_rig_reopen(device_bytes, NULL);
    model = vx_gpu_rig_load(vx_rig_root);
    ck_assert(!vx_engine_warm(vx_gpu_rig_engine, model, NULL).fault);
}

static void set_up(void)
{
    vx_gpu_rig_set_up();
    vx_gpu_rig_write("fp32", NETWORK, 5);
    reopen(VX_RIG_DEVICE_BYTES);
    for (i32 i = 0; i < ITEMS_MAX; i++) {
        requests[i] = vx_rig_request((u64)i + 1, 10 * (i + 1), 4, VX_DTYPE_F32);
        struct vx_item item = requests[i]->item;
        item.coords_ref = (struct vx_coords_ref){0, 0};
        vx_gpu_rig_run(model, &item);
        ck_assert_msg(!item.status.fault, "%s", item.why.text);
        memcpy(expected[i], requests[i]->outputs[0], sizeof expected[i]);
    }
}

static void tear_down(void)
{
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_engine_unload(vx_gpu_rig_engine, &model);
    for (i32 i = 0; i < ITEMS_MAX; i++) vx_free(requests[i]);
    vx_gpu_rig_tear_down();
}

static struct vx_engine_stats stats(void)
{
    struct vx_engine_stats now;
    vx_engine_stats_get(vx_gpu_rig_engine, &now);
    return now;
}

/* A batch of items with answers of their own. */
struct sent {
    struct vx_batch batch;
    struct vx_item items[ITEMS_MAX];
    i32 request[ITEMS_MAX];
    f32 answers[ITEMS_MAX][VOXELS * 5];
};

static void sent_make(struct sent *sent, const i32 *picks, i32 count)
{
    memset(sent, 0, sizeof *sent);
    for (i32 i = 0; i < count; i++) {
        sent->request[i] = picks[i];
        sent->items[i] = requests[picks[i]]->item;
        sent->items[i].outputs[0] = sent->answers[i];
    }
    sent->batch = (struct vx_batch){.items = sent->items, .items_count = count};
}

static void submit(struct sent *sent)
{
    vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch);
}

static struct sent *collect(void)
{
    return (struct sent *)(void *)vx_engine_collect(vx_gpu_rig_engine, true);
}

static void run(struct sent *sent)
{
    submit(sent);
    ck_assert_ptr_eq(collect(), sent);
}

static void check_item(const struct sent *sent, i32 i)
{
    const struct vx_item *item = &sent->items[i];
    ck_assert_msg(!item->status.fault, "%s", item->why.text);
    ck_assert(!memcmp(sent->answers[i], expected[sent->request[i]],
                      (size_t)item->voxels * 5 * sizeof(f32)));
}

static void check_all(const struct sent *sent)
{
    for (i32 i = 0; i < sent->batch.items_count; i++) check_item(sent, i);
}

static i64 launches_of(const i32 *picks, i32 count)
{
    struct sent sent;
    sent_make(&sent, picks, count);
    for (i32 i = 0; i < count; i++)
        sent.items[i].coords_ref = (struct vx_coords_ref){0, 0};
    const i64 before = vx_fake_launches();
    run(&sent);
    check_all(&sent);
    return vx_fake_launches() - before;
}

static size_t bytes_of(const i64 *sizes, i32 count)
{
    static struct vx_gpu_places places;
    vx_gpu_places_make(model->gpu->choices,
                       &(struct vx_gpu_sizes){sizes, count, false, NULL}, &places);
    return places.bytes;
}

/* As many voxels as the model takes are one round; one item more is two. */
START_TEST(a_round_may_be_full)
{
    const i64 small = launches_of((i32[]){0, 1}, 2), full = launches_of((i32[]){0, 2}, 2);
    const i64 over = launches_of((i32[]){1, 2}, 2);
    ck_assert_int_eq(small, full);
    ck_assert_int_gt(over, full);
    (void)launches_of((i32[]){3}, 1);
}
END_TEST

/* A round may use all of the device's memory. */
START_TEST(a_round_may_need_everything)
{
    const i64 n = 9000;
    struct vx_item item = {.coords_columns = 3, .voxels = n, .feats_dtype = VX_DTYPE_F32};
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_rig_write("fp32",
                     VX_RIG_HEAD "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\","
                                 "\"channels\":5}],\"outputs\":[{\"layer\":\"y\"}],"
                                 "\"limits\":{\"voxels_max\":9000},\"warmup\":[1]}",
                     5);
    reopen(VX_RIG_DEVICE_BYTES);
    model->gpu->choices->beside_rows_most =
        0; /* as where a round takes most of the memory */
    const size_t bytes = bytes_of(&n, 1);
    ck_assert_uint_ge(bytes, 1 << 20); /* the least that an engine takes */
    reopen(bytes);
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, n);
    i32 *coords = vx_alloc_zero((size_t)n * 12);
    f32 *feats = vx_alloc_zero((size_t)n * 12), *out = vx_alloc((size_t)n * 20);
    for (i32 i = 0; i < n; i++) coords[3 * i] = i;
    item.coords = coords;
    item.feats = feats;
    item.outputs[0] = out;
    vx_gpu_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_int_eq(stats().device_bytes_used_max, (i64)bytes);
    vx_free(coords);
    vx_free(feats);
    vx_free(out);
}
END_TEST

/* Two batches that run at the same time use the memory of both, and later small ones do not lower
 * the maximum. */
START_TEST(the_most_in_use_is_of_both)
{
    const i64 sizes[] = {30, 40};
    struct sent a, b;
    reopen(VX_RIG_DEVICE_BYTES);
    sent_make(&a, (i32[]){2}, 1);
    sent_make(&b, (i32[]){3}, 1);
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 4});
    submit(&a);
    submit(&b);
    (void)collect();
    (void)collect();
    check_all(&a);
    check_all(&b);
    const i64 both = (i64)(bytes_of(sizes, 1) + bytes_of(sizes + 1, 1));
    ck_assert_int_eq(stats().device_bytes_used_max, both);
    sent_make(&a, (i32[]){0}, 1);
    run(&a);
    ck_assert_int_eq(stats().device_bytes_used_max, both);
}
END_TEST

/* A geometry that is hit reports the same pairs as when it was built, with the device's time. */
START_TEST(a_hit_tells_the_same)
{
    struct sent sent;
    i64 pairs = 0;
    for (i32 round = 0; round < 3; round++) {
        sent_make(&sent, (i32[]){2}, 1);
        if (round == 2) sent.items[0].coords = NULL;
        const i64 before = vx_fake_launches();
        run(&sent);
        /* Rows in, the layer, rows out: no launch computes what is known. */
        if (round == 2) ck_assert_int_eq(vx_fake_launches() - before, 3);
        check_all(&sent);
        ck_assert_int_eq(sent.items[0].geometry_hit, round > 0);
        ck_assert(sent.items[0].geometry_kept);
        ck_assert_int_gt(sent.batch.device_ns, 0);
        if (!round) pairs = sent.items[0].pairs;
        ck_assert_int_ge(sent.items[0].pairs, 30); /* each voxel is its own neighbour */
        ck_assert_int_eq(sent.items[0].pairs, pairs);
    }
    ck_assert_int_eq(stats().cache_hits, 2);
    ck_assert_int_eq(stats().cache_misses, 1);
}
END_TEST

/* An unknown coords_ref is a miss and fails alone; the known geometries stay known. */
START_TEST(a_refused_name_forgets_nothing)
{
    struct sent sent;
    sent_make(&sent, (i32[]){0}, 1);
    run(&sent);
    for (i32 round = 0; round < 2; round++) {
        const struct vx_engine_stats before = stats();
        sent_make(&sent, (i32[]){0, 1}, 2);
        sent.items[0].coords = sent.items[1].coords = NULL;
        run(&sent);
        check_item(&sent, 0);
        ck_assert(sent.items[0].geometry_hit);
        ck_assert_int_eq(vx_status_code(sent.items[1].status),
                         VX_CODE_FAILED_PRECONDITION);
        ck_assert_int_eq(stats().cache_hits, before.cache_hits + 1);
        ck_assert_int_eq(stats().cache_misses, before.cache_misses + 1);
        ck_assert_int_eq(stats().cache_bytes, before.cache_bytes);
    }
}
END_TEST

/* A geometry that a batch has three times is kept once: half of what two small ones take. */
START_TEST(twins_are_kept_once)
{
    struct sent sent;
    sent_make(&sent, (i32[]){0, 1}, 2);
    run(&sent);
    const i64 two = stats().cache_bytes;
    reopen(VX_RIG_DEVICE_BYTES);
    sent_make(&sent, (i32[]){0, 0, 0}, 3);
    run(&sent);
    check_all(&sent);
    ck_assert_int_eq(stats().cache_bytes, two / 2);
    ck_assert_int_eq(stats().cache_misses, 1);
    ck_assert_int_eq(stats().cache_hits, 2);
}
END_TEST

/* Another geometry with a coords_ref that is taken: it is detected, built once and counted once. */
START_TEST(a_borrowed_name_counts_once)
{
    struct sent sent;
    i32 moved[10 * 4];
    sent_make(&sent, (i32[]){0}, 1);
    run(&sent);
    memcpy(moved, requests[0]->coords, sizeof moved);
    for (i32 i = 0; i < 10; i++) moved[4 * i + 1] += 100; /* the same neighbours */
    for (i32 round = 1; round < 3; round++) {
        sent_make(&sent, (i32[]){0}, 1);
        sent.items[0].coords = moved;
        run(&sent);
        check_all(&sent);
        ck_assert(!sent.items[0].geometry_hit);
        ck_assert(!sent.items[0].geometry_kept);
        ck_assert_int_eq(stats().cache_hits, 0);
        ck_assert_int_eq(stats().cache_misses, 1 + round);
    }
}
END_TEST

/* Bad coordinates have no coords_ref afterwards. */
START_TEST(a_fault_is_not_kept)
{
    struct sent sent;
    i32 bad[10 * 4];
    memcpy(bad, requests[0]->coords, sizeof bad);
    if (_i)
        memcpy(bad + 4 * 9, bad, 16);
    else
        bad[4 * 9 + 3] = VX_AXIS_MAX + 1;
    for (i32 round = 0; round < 2; round++) {
        sent_make(&sent, (i32[]){0}, 1);
        sent.items[0].coords = bad;
        run(&sent);
        ck_assert_int_eq(vx_status_code(sent.items[0].status), VX_CODE_INVALID_ARGUMENT);
        ck_assert(!sent.items[0].geometry_kept);
        ck_assert_int_eq(stats().cache_bytes, 0);
        ck_assert_int_eq(stats().cache_hits, 0);
    }
    sent_make(&sent, (i32[]){0}, 1);
    run(&sent);
    check_all(&sent);
}
END_TEST

/* A round that fails does not harm a geometry that it only read: it stays known. */
START_TEST(a_failed_reader_forgets_nothing)
{
    struct sent sent;
    sent_make(&sent, (i32[]){2}, 1);
    run(&sent);
    check_all(&sent);
    for (i64 nth = 1; nth <= 8; nth++) {
        sent_make(&sent, (i32[]){2}, 1);
        sent.items[0].coords = NULL;
        vx_fake_set(&(struct vx_fake_settings){.fail_call = nth, .fail_code = 2});
        run(&sent);
        vx_fake_set(&(struct vx_fake_settings){0});
        sent_make(&sent, (i32[]){2}, 1);
        sent.items[0].coords = NULL;
        run(&sent);
        check_all(&sent);
        ck_assert(sent.items[0].geometry_hit);
    }
}
END_TEST

/* A lane waits for an order that the other lane still sorts, though its stream would run its work
 * immediately. */
START_TEST(an_order_on_its_way_is_waited_for)
{
    struct sent sent, a, b;
    sent_make(&sent, (i32[]){2, 0}, 2);
    run(&sent); /* known now, and in a join no item's own order is sorted */
    const i64 before = stats().cache_bytes;
    sent_make(&a, (i32[]){2}, 1);
    sent_make(&b, (i32[]){2}, 1);
    a.items[0].coords = b.items[0].coords = NULL;
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 4});
    submit(&a);
    ck_assert_int_gt(stats().cache_bytes, before);
    vx_fake_set(&(struct vx_fake_settings){0});
    submit(&b);
    (void)collect();
    (void)collect();
    check_all(&a);
    check_all(&b);
}
END_TEST

/* A batch may be submitted again as soon as it was collected, whichever was submitted after it. */
START_TEST(a_batch_can_be_sent_again)
{
    struct sent a, b;
    sent_make(&a, (i32[]){0}, 1);
    sent_make(&b, (i32[]){1}, 1);
    for (i32 round = 0; round < 3; round++) {
        submit(&a);
        submit(&b);
        ck_assert_ptr_eq(collect(), &a);
        ck_assert_ptr_eq(collect(), &b);
        sent_make(&b, (i32[]){1}, 1);
        a.items[0].status = VX_OK;
        run(&a);
        ck_assert_ptr_null(collect());
        check_all(&a);
    }
}
END_TEST

/* An item without voxels needs no weights: in a batch whose weights cannot be copied only the other
 * items fail. */
START_TEST(a_refused_batch_leaves_what_is_done)
{
    struct sent sent;
    vx_engine_unload(vx_gpu_rig_engine, &model);
    model = vx_gpu_rig_load(vx_rig_root); /* not warmed */
    sent_make(&sent, (i32[]){0, 1}, 2);
    sent.items[0].voxels = 0;
    vx_fake_set(&(struct vx_fake_settings){.fail_call = 1, .fail_code = 2});
    run(&sent);
    ck_assert_msg(!sent.items[0].status.fault, "%s", sent.items[0].why.text);
    ck_assert_int_eq(vx_status_code(sent.items[1].status), VX_CODE_RESOURCE_EXHAUSTED);
    sent_make(&sent, (i32[]){0, 1}, 2);
    run(&sent);
    check_all(&sent);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_rounds");
    TCase *tcase = tcase_create("gpu_rounds");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, a_round_may_be_full);
    tcase_add_test(tcase, a_round_may_need_everything);
    tcase_add_test(tcase, the_most_in_use_is_of_both);
    tcase_add_test(tcase, a_hit_tells_the_same);
    tcase_add_test(tcase, a_refused_name_forgets_nothing);
    tcase_add_test(tcase, twins_are_kept_once);
    tcase_add_test(tcase, a_borrowed_name_counts_once);
    tcase_add_loop_test(tcase, a_fault_is_not_kept, 0, 2);
    tcase_add_test(tcase, a_failed_reader_forgets_nothing);
    tcase_add_test(tcase, an_order_on_its_way_is_waited_for);
    tcase_add_test(tcase, a_batch_can_be_sent_again);
    tcase_add_test(tcase, a_refused_batch_leaves_what_is_done);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
