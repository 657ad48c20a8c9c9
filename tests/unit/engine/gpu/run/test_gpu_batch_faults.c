/* Batches on the fake GPU when one request is wrong, refers to an unknown geometry, or the device
 * fails in the middle: the others are answered, and nothing wrong is kept.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_mix.h"
#include "tests/support/trials.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The requests that a test here sends: none of the largest. */
#define SENT                                                                             \
    (0xfu | 1u << 6 | 1u << 7 | 1u << 8 | 1u << VX_GPU_MIX_DUPLICATE |                   \
     1u << VX_GPU_MIX_RANGE)

static struct vx_gpu_mix mix;
static struct vx_model *model;

static void load(i32 event_polls)
{
    struct vx_why why = {{0}};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = event_polls});
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
}

static void set_up(void)
{
    vx_gpu_rig_set_up();
    vx_gpu_mix_write("fp32");
    vx_gpu_mix_open(4, &mix);
    model = vx_gpu_rig_load(vx_rig_root);
    vx_gpu_mix_expect(&mix, model, SENT);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    load(0);
}

static void tear_down(void)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_gpu_mix_close(&mix);
    vx_gpu_rig_tear_down();
}

static void submit(struct vx_gpu_mix_sent *sent)
{
    vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch);
}

static struct vx_gpu_mix_sent *collect(void)
{
    return (struct vx_gpu_mix_sent *)(void *)vx_engine_collect(vx_gpu_rig_engine, true);
}

static struct vx_gpu_mix_sent *run(const struct vx_gpu_mix_pick *picks, i32 count)
{
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, count);
    submit(sent);
    ck_assert_ptr_eq(collect(), sent);
    return sent;
}

static i64 cache_bytes(void)
{
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    return stats.cache_bytes;
}

/* The same bad coordinates with a coords_ref, twice, between good requests: only these are refused,
 * and their coords_ref finds nothing afterwards. */
START_TEST(what_is_bad_is_not_remembered)
{
    const struct vx_gpu_mix_pick picks[5] = {{.request = 2},
                                             {.request = VX_GPU_MIX_DUPLICATE},
                                             {.request = VX_GPU_MIX_RANGE},
                                             {.request = VX_GPU_MIX_DUPLICATE},
                                             {.request = 8}};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = _i});
    struct vx_gpu_mix_sent *sent = run(&picks[1], 3);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 3);
    ck_assert_int_eq(cache_bytes(), 0);
    for (i32 round = 0; round < 2; round++) {
        sent = run(picks, 5);
        for (i32 i = 0; i < 5; i++)
            ck_assert(sent->items[i].geometry_kept == (i == 0 || i == 4));
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 5);
        struct vx_gpu_mix_pick named = {.request = VX_GPU_MIX_DUPLICATE,
                                        .reference = true};
        sent = run(&named, 1);
        ck_assert_int_eq(vx_status_code(sent->items[0].status),
                         VX_CODE_FAILED_PRECONDITION);
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 0);
    }
}
END_TEST

/* Both lanes use the same bad geometry, which only one of them builds. */
START_TEST(a_bad_geometry_on_its_way_is_refused)
{
    const struct vx_gpu_mix_pick first[2] = {{.request = VX_GPU_MIX_DUPLICATE},
                                             {.request = 1}};
    const struct vx_gpu_mix_pick second[3] = {
        {.request = 6},
        {.request = VX_GPU_MIX_DUPLICATE},
        {.request = VX_GPU_MIX_DUPLICATE, .reference = true}};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 3});
    struct vx_gpu_mix_sent *a = vx_gpu_mix_send(&mix, first, 2);
    struct vx_gpu_mix_sent *b = vx_gpu_mix_send(&mix, second, 3);
    submit(a);
    submit(b);
    (void)collect();
    (void)collect();
    ck_assert_int_eq(vx_status_code(b->items[2].status), VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &a, false), 2);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &b, false), 2);
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert_int_eq(stats.cache_hits, 0); /* the geometry that was found was bad */
    ck_assert_int_eq(stats.cache_misses, 5);
}
END_TEST

/* A coords_ref alone, of a bad geometry that the other lane is still building: a round that asks
 * the device for nothing else must ask whether that geometry is good. */
START_TEST(a_bad_name_on_its_way_is_refused)
{
    const struct vx_gpu_mix_pick first = {.request = VX_GPU_MIX_DUPLICATE};
    const struct vx_gpu_mix_pick second = {.request = VX_GPU_MIX_DUPLICATE,
                                           .reference = true};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 3});
    struct vx_gpu_mix_sent *a = vx_gpu_mix_send(&mix, &first, 1);
    struct vx_gpu_mix_sent *b = vx_gpu_mix_send(&mix, &second, 1);
    submit(a);
    submit(b);
    (void)collect();
    (void)collect();
    ck_assert_int_eq(vx_status_code(b->items[0].status), VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &a, false), 1);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &b, false), 0);
}
END_TEST

/* References: to an unknown geometry, with another number of voxels, to a geometry of the same
 * batch. */
START_TEST(references_are_checked)
{
    const struct vx_gpu_mix_pick picks[4] = {{.request = 3, .reference = true},
                                             {.request = 3},
                                             {.request = 3, .reference = true},
                                             {.request = 8, .reference = true}};
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, 4);
    sent->items[2].coords_ref = sent->items[3].coords_ref;
    sent->picks[2] = sent->picks[3];
    submit(sent);
    ck_assert_ptr_eq(collect(), sent);
    for (i32 i = 0; i < 4; i++) {
        if (i < 2) { /* the item that it refers to may come later */
            ck_assert(sent->items[i].geometry_kept);
            continue;
        }
        ck_assert_int_eq(vx_status_code(sent->items[i].status),
                         VX_CODE_FAILED_PRECONDITION);
        ck_assert_str_eq(sent->items[i].why.text,
                         "coords_ref: the geometry is not in the device's cache; send "
                         "coords");
        ck_assert(!sent->items[i].geometry_kept);
    }
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 2);

    sent = run(picks, 3); /* now it is there */
    ck_assert(sent->items[0].geometry_hit);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 3);

    sent = vx_gpu_mix_send(&mix, picks, 2);
    sent->items[0].voxels = 899;
    submit(sent);
    ck_assert_ptr_eq(collect(), sent);
    ck_assert_int_eq(vx_status_code(sent->items[0].status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(sent->items[0].why.text,
                     "coords_ref names a geometry of 900 voxels, the request has 899");
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 1);
}
END_TEST

static const struct vx_gpu_mix_pick busy[2][4] = {
    {{.request = 2}, {.request = VX_GPU_MIX_RANGE}, {.request = 7}, {.request = 0}},
    {{.request = 2}, {.request = 6}, {.request = 7, .nameless = true}, {.request = 2}}};

/* Two batches are under way and the nth call fails; returns how many items were answered. */
static i32 run_busy(bool broken)
{
    i32 answered = 0;
    struct vx_gpu_mix_sent *sent[2] = {vx_gpu_mix_send(&mix, busy[0], 4),
                                       vx_gpu_mix_send(&mix, busy[1], 4)};
    for (i32 i = 0; i < 2; i++) submit(sent[i]);
    for (i32 i = 0; i < 2; i++) {
        struct vx_gpu_mix_sent *it = collect();
        ck_assert(it == sent[0] || it == sent[1]);
        answered += vx_gpu_mix_check(&mix, &it, broken);
    }
    return answered;
}

/* The device is lost at each launch in turn: items that ended before are answered, the others are
 * UNAVAILABLE. */
START_TEST(a_lost_device_loses_nothing_that_was_right)
{
    i64 before = vx_fake_launches();
    ck_assert_int_eq(run_busy(false), 8);
    i64 launches = vx_fake_launches() - before;
    i32 all = 0;
    for (i64 nth = 1; nth <= launches; nth += 1 + _i) {
        struct vx_why why;
        vx_engine_unload(vx_gpu_rig_engine, &model);
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
        load(0);
        vx_fake_set(&(struct vx_fake_settings){.lose_launch = nth, .event_polls = _i});
        all += run_busy(true) == 8;
        ck_assert(vx_engine_lost(vx_gpu_rig_engine, &why));
        vx_engine_unload(vx_gpu_rig_engine, &model);
        vx_engine_close(&vx_gpu_rig_engine); /* the work on its streams never runs */
        vx_fake_set(&(struct vx_fake_settings){0});
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
        load(0);
    }
    ck_assert_int_eq(all, 0);
}
END_TEST

/* Every call fails once: one batch or both report it; the next ones are right, and the
 * store holds nothing wrong. */
START_TEST(a_failing_call_leaves_nothing_wrong)
{
    i64 calls = 0;
    i32 spoilt = 0;
    for (i64 nth = 0; nth <= calls; nth++) {
        vx_engine_unload(vx_gpu_rig_engine, &model);
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
        load(0);
        vx_fake_set(&(struct vx_fake_settings){
            .fail_call = nth, .fail_code = 2, .event_polls = _i});
        spoilt += run_busy(true) < 8;
        if (!nth) calls = vx_fake_calls();
        ck_assert_int_eq(run_busy(false), 8);
        ck_assert_int_eq(run_busy(false), 8);
    }
    ck_assert_int_gt(calls, 80);
    /* Some calls only query, so that their failure changes nothing; times that two batches share
     * are an estimate. */
    ck_assert_int_gt(spoilt, (i32)calls - 8);
}
END_TEST

/* When waiting for a device fails, its work may still be running: its memory, and the
 * items', is not used again. */
START_TEST(a_device_that_cannot_be_waited_for_is_lost)
{
    static const struct {
        i64 call, count; /* calls after the submit: a query, a wait, a second wait */
        bool lost;
    } cases[] = {{1, 1, false}, {2, 1, false}, {1, 2, true}, {2, 2, true}};
    struct vx_why why = {{0}};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 2});
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, busy[1], 4);
    submit(sent);
    vx_fake_set(&(struct vx_fake_settings){.fail_call = cases[_i].call,
                                           .fail_count = cases[_i].count,
                                           .fail_code = 2,
                                           .event_polls = 2});
    ck_assert_ptr_eq(collect(), sent);
    ck_assert(vx_engine_lost(vx_gpu_rig_engine, &why) == cases[_i].lost);
    if (cases[_i].lost)
        ck_assert_msg(strstr(why.text, "cuStreamSynchronize") != NULL, "%s", why.text);
    for (i32 i = 0; i < 4; i++)
        ck_assert_int_eq(vx_status_code(sent->items[i].status),
                         cases[_i].lost ? VX_CODE_UNAVAILABLE
                                        : VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, true), 0);
    ck_assert_int_eq(cache_bytes(), 0);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_close(&vx_gpu_rig_engine);
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    load(0);
}
END_TEST

/* The CPU finds out which row is bad while the device's thread waits, so only for few rows. */
START_TEST(rows_are_named_when_that_is_quick)
{
    static const struct {
        i64 n;
        const char *range, *twice;
    } cases[] = {{100000, "coords row 70000, column 2 (a voxel coordinate): expected",
                  "rows 5 and 99999"},
                 {100001, "a coordinate in coords is out of range: expected -131072 to",
                  "a voxel appears twice in coords; each"}};
    i64 n = cases[_i].n;
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_rig_write("fp32",
                     VX_RIG_HEAD "{\"name\":\"y\",\"op\":\"linear\",\"input\":"
                                 "\"feats\",\"channels\":2}],"
                                 "\"outputs\":[{\"layer\":\"y\"}]}",
                     5);
    model = vx_gpu_rig_load(vx_rig_root);
    struct vx_item item = {.coords_columns = 3, .voxels = n, .feats_dtype = VX_DTYPE_F32};
    i32 *coords = vx_alloc_zero((size_t)n * 3 * sizeof *coords);
    void *feats = vx_alloc_zero((size_t)n * VX_RIG_CHANNELS * sizeof(f32));
    item.outputs[0] = vx_alloc_zero((size_t)n * 2 * sizeof(f32));
    item.coords = coords;
    item.feats = feats;
    for (i64 i = 0; i < n; i++) coords[3 * i] = (i32)i;
    vx_gpu_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    coords[3 * 99999] = 5;
    vx_gpu_rig_run(model, &item);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(item.why.text, cases[_i].twice) != NULL, "%s", item.why.text);
    coords[3 * 70000 + 2] = VX_AXIS_MIN - 1;
    vx_gpu_rig_run(model, &item);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(item.why.text, cases[_i].range) != NULL, "%s", item.why.text);
    vx_free(coords);
    vx_free(feats);
    vx_free(item.outputs[0]);
}
END_TEST

/* The first batch of a model that was not warmed copies its weights, or fails. */
START_TEST(weights_that_do_not_arrive_fail_a_batch)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
    vx_fake_set(&(struct vx_fake_settings){.fail_call = 1, .fail_code = 2});
    struct vx_gpu_mix_sent *sent = run(busy[1], 4);
    for (i32 i = 0; i < 4; i++) {
        ck_assert_int_eq(vx_status_code(sent->items[i].status),
                         VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_msg(strstr(sent->items[i].why.text, "its weights need") != NULL, "%s",
                      sent->items[i].why.text);
    }
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, true), 0);
    sent = run(busy[1], 4);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 4);
}
END_TEST

/* A model is warmed while two batches are under way: they end, and can be collected. */
START_TEST(a_warm_up_waits_for_what_is_under_way)
{
    struct vx_why why = {{0}};
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 5});
    struct vx_model *other = vx_gpu_rig_load(vx_rig_root);
    struct vx_gpu_mix_sent *sent[2] = {vx_gpu_mix_send(&mix, busy[0], 4),
                                       vx_gpu_mix_send(&mix, busy[1], 4)};
    for (i32 i = 0; i < 2; i++) submit(sent[i]);
    vx_alloc_freeze();
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, other, &why);
    ck_assert(vx_alloc_thaw());
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_int_eq(vx_engine_under_way(vx_gpu_rig_engine), 2);
    vx_engine_unload(vx_gpu_rig_engine, &other);
    for (i32 i = 0; i < 2; i++) {
        struct vx_gpu_mix_sent *it = collect();
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &it, false), 4);
    }
    ck_assert_int_gt(cache_bytes(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_batch_faults");
    TCase *tcase = tcase_create("gpu_batch_faults");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, what_is_bad_is_not_remembered, 0, 2);
    tcase_add_test(tcase, a_bad_geometry_on_its_way_is_refused);
    tcase_add_test(tcase, a_bad_name_on_its_way_is_refused);
    tcase_add_test(tcase, references_are_checked);
    /* Under a sanitizer every third launch, and calls whose work ends at once. */
    tcase_add_loop_test(tcase, a_lost_device_loses_nothing_that_was_right,
                        VX_TRIALS(0, 2), 3);
    tcase_add_loop_test(tcase, a_failing_call_leaves_nothing_wrong, 0, VX_TRIALS(2, 1));
    tcase_add_loop_test(tcase, a_device_that_cannot_be_waited_for_is_lost, 0, 4);
    tcase_add_loop_test(tcase, rows_are_named_when_that_is_quick, 0, 2);
    tcase_add_test(tcase, weights_that_do_not_arrive_fail_a_batch);
    tcase_add_test(tcase, a_warm_up_waits_for_what_is_under_way);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
