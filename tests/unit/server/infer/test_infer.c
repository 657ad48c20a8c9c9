/* infer: from arrival to the scheduler, and the single exit: which request is refused
 * with which sentence, and that no request, however it ends, leaves anything in the
 * arena.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/infer/infer_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vx_infer *const infer = &rig.infer;

static const struct vx_reply_parameter *parameter(const struct rig_answer *answer,
                                                  const char *name)
{
    for (i32 i = 0; i < answer->reply.parameters_count; i++)
        if (!strcmp(answer->reply.parameters[i].name, name))
            return &answer->reply.parameters[i];
    return NULL;
}

static i64 number(const struct rig_answer *answer, const char *name)
{
    const struct vx_reply_parameter *found = parameter(answer, name);
    ck_assert_msg(found && found->kind == VX_PARAMETER_I64, "%s", name);
    return found->number;
}

/* No worker can run it, so it waits. */
static void nobody_serves(void)
{
    for (i32 w = 0; w < RIG_WORKERS; w++)
        vx_sched_instance_ready(infer->sched, 0, w, false);
}

/* ------- well ------- */

START_TEST(an_answer_has_what_was_asked)
{
    struct vx_call *call = rig_call(0, 10);
    call->request.outputs_count = 2; /* in another order than the model's */
    strcpy(call->request.outputs[0], "score");
    strcpy(call->request.outputs[1], "normals");
    struct rig_run *run = rig_start(call);
    const struct vx_run_item *item = &run->run.items[0];
    ck_assert_int_eq(item->voxels, 10);
    ck_assert_int_eq(item->coords_columns, 4);
    ck_assert_int_eq(item->feats_dtype, VX_DTYPE_F32);
    ck_assert_uint_eq(item->coords_ref.low, 1);
    ck_assert_uint_eq(item->feats.offset, call->request.inputs[0].place.offset);
    ck_assert_uint_eq(item->coords.offset, call->request.inputs[1].place.offset);
    ck_assert_uint_eq(item->outputs[0].offset, call->outputs[0].offset);
    ck_assert_uint_eq(item->outputs[1].offset, call->outputs[1].offset);
    ck_assert_int_eq(item->outputs[2].kind, VX_PLACE_NONE);
    struct vx_place normals = call->outputs[0], score = call->outputs[1];
    ck_assert_uint_eq(normals.bytes, 120);
    ck_assert_uint_eq(score.bytes, 20);
    ck_assert_int_eq(call->job.answer_bytes, 140);
    rig_done(run);
    rig_end(run);
    const struct rig_answer *answer = rig_expect(call, VX_CODE_OK);
    ck_assert_str_eq(answer->reply.model, "conv");
    ck_assert_str_eq(answer->reply.id, "call-0");
    ck_assert_int_eq(answer->reply.version, 7);
    ck_assert_int_eq(answer->reply.outputs_count, 2);
    ck_assert_str_eq(answer->reply.outputs[0].name, "score");
    ck_assert_uint_eq(answer->reply.outputs[0].bytes, 20);
    ck_assert_uint_eq(answer->outputs[0].offset, score.offset);
    ck_assert_uint_eq(answer->outputs[1].offset, normals.offset);
    ck_assert_int_eq(answer->reply.parameters_count, 0);
    ck_assert_int_eq(answer->coming, 1);
    ck_assert_int_eq(rig.coming, 0);
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

START_TEST(one_output_of_two_takes_one_slot)
{
    struct vx_call *call = rig_call(0, 10);
    call->request.outputs_count = 1;
    strcpy(call->request.outputs[0], "score");
    struct rig_run *run = rig_start(call);
    ck_assert_int_eq(run->run.items[0].outputs[0].kind, VX_PLACE_NONE);
    ck_assert_uint_eq(call->outputs[0].bytes, 0);
    rig_done(run);
    rig_end(run);
    ck_assert_int_eq(rig_expect(call, VX_CODE_OK)->reply.outputs_count, 1);
}
END_TEST

START_TEST(timing_says_what_the_worker_said)
{
    struct vx_call *call = rig_call(0, 10), *with = rig_call(1, 30);
    call->request.timing = call->request.coords_named = true;
    call->method = VX_METHOD_ID_MODEL_STREAM_INFER;
    call->arrived_ns -= 5000;
    vx_infer_on_call(infer, call);
    vx_infer_on_call(infer, with);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 1);
    call->job.started_ns = call->job.queued_ns + 77;
    rig_done(&rig.runs[0]);
    rig_said.items[0].geometry_hit = rig_said.items[0].geometry_kept = true;
    rig_end(&rig.runs[0]);
    const struct rig_answer *answer = rig_expect(call, VX_CODE_OK);
    ck_assert_int_eq(number(answer, "queue_ns"), 77);
    ck_assert_int_eq(number(answer, "convert_ns"), 100);
    ck_assert_int_eq(number(answer, "geometry_ns"), 200);
    ck_assert_int_eq(number(answer, "compute_ns"), 300);
    ck_assert_int_eq(number(answer, "output_ns"), 400);
    ck_assert_int_ge(number(answer, "total_ns"), 5000);
    ck_assert_int_eq(number(answer, "pairs"), 27);
    ck_assert_int_eq(number(answer, "set_voxels"), 15);
    ck_assert_int_eq(number(answer, "batch_size"), 2);
    ck_assert_int_eq(number(answer, "batch_voxels"), 40);
    ck_assert_int_eq(parameter(answer, "geometry_hit")->kind, VX_PARAMETER_BOOL);
    ck_assert_int_eq(parameter(answer, "geometry_hit")->number, 1);
    ck_assert_int_eq(parameter(answer, "triton_final_response")->kind, VX_PARAMETER_BOOL);
    ck_assert_int_eq(parameter(answer, "triton_final_response")->number, 1);
    char device[16];
    snprintf(device, sizeof device, "cpu:%d", rig.runs[0].worker);
    ck_assert_str_eq(parameter(answer, "device")->text, device);
    ck_assert_str_eq(parameter(answer, "coords_ref")->text,
                     "00000000000000000000000000000001");
    answer = rig_expect(with, VX_CODE_OK); /* no coords_ref unless it is asked for */
    ck_assert_int_eq(answer->reply.parameters_count, 0);
    ck_assert_int_eq(answer->coming, 2);
}
END_TEST

/* The answer has a coords_ref only when it was asked for and the worker keeps the
 * geometry. */
START_TEST(a_geometry_that_was_not_kept_has_no_name)
{
    struct vx_call *call = rig_call(0, 10);
    call->request.coords_named = _i;
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_said.items[0].geometry_kept = !_i;
    rig_end(run);
    ck_assert_ptr_null(parameter(rig_expect(call, VX_CODE_OK), "coords_ref"));
}
END_TEST

/* ------- geometries by name ------- */

START_TEST(a_name_goes_to_who_holds_it_and_has_the_model)
{
    struct vx_instance *row = vx_registry_row(infer->registry, 0);
    const struct vx_coords_ref geometry = {42, 0};
    rig_kept(geometry, 0);
    rig_kept(geometry, 1);
    row->workers_loaded = 2;
    struct vx_call *call = rig_call_named(0, 10, 42);
    struct rig_run *run = rig_start(call);
    ck_assert_uint_eq(call->job.holders, 2);
    ck_assert_int_eq(run->worker, 1);
    ck_assert_int_eq(run->run.items[0].coords.kind, VX_PLACE_NONE);
    ck_assert_int_eq(run->run.items[0].coords_columns, 4);
    ck_assert_uint_eq(run->run.items[0].coords_ref.low, 42);
    ck_assert_int_eq(call->job.pairs, 270);
    ck_assert_int_eq(call->job.set_voxels, 41);
    rig_done(run);
    rig_end(run);
    rig_expect(call, VX_CODE_OK);
    /* A request with coordinates may go to any worker, also one without their
     * geometry. */
    call = rig_call(0, 10);
    call->request.sent_ref = geometry;
    nobody_serves();
    vx_infer_on_call(infer, call);
    ck_assert_uint_eq(call->job.holders, 3);
    ck_assert(!call->job.must_hold);
    vx_infer_on_gone(infer, call);
    /* A worker without the model is no holder: this is refused on arrival, not when it
     * would have run. */
    row->workers_loaded = 0;
    call = rig_call_named(1, 10, 42);
    vx_infer_on_call(infer, call);
    const struct rig_answer *answer = rig_expect(call, VX_CODE_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(
        strstr(answer->why.text, "coords_ref '0000...' is not known here"));
    ck_assert_uint_eq(infer->metrics->refs_unknown, 1);
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

START_TEST(a_name_has_its_own_number_of_rows)
{
    rig_kept((struct vx_coords_ref){42, 0}, 0);
    struct vx_call *call = rig_call_named(0, 11, 42);
    vx_infer_on_call(infer, call);
    ck_assert_ptr_nonnull(
        strstr(rig_expect(call, VX_CODE_INVALID_ARGUMENT)->why.text,
               "input 'feats' must have one row per voxel of the geometry that "
               "coords_ref names, expected 10, got 11"));
}
END_TEST

/* ------- limits ------- */

/* voxels in flight, voxels of the request; whether they fit a limit of 100 */
/* What a geometry costs is known for the model that reported it alone; and where features decide about
 * voxels, what it cost once says nothing of the next time. */
START_TEST(a_geometry_costs_what_its_model_said)
{
    const struct vx_coords_ref geometry = {42, 0};
    const struct vx_geometry_report report = {geometry, 0, 0, 10, {_i == 1, 270, 41}};
    rig_signature()->predicts = _i == 2;
    vx_geometries_kept(infer->geometries, &report);
    struct vx_call *call = rig_call(0, 10);
    call->request.sent_ref = geometry;
    nobody_serves();
    vx_infer_on_call(infer, call);
    ck_assert_uint_eq(call->job.holders, 1);
    ck_assert_int_eq(call->job.pairs, _i ? 0 : 270);
    ck_assert_int_eq(call->job.set_voxels, _i ? 10 : 41);
    vx_infer_on_gone(infer, call);
}
END_TEST

/* 10 voxels are those of rig_kept, which are 41 on all sets. */
static const struct {
    i64 before, voxels;
    bool fits;
} voxels_rows[] = {{0, 100, true},  {0, 101, true}, {60, 40, true},
                   {60, 41, false}, {59, 10, true}, {60, 10, false}};

START_TEST(voxels_in_flight_are_limited)
{
    nobody_serves();
    rig.config.voxels_max = 100;
    if (voxels_rows[_i].before)
        vx_infer_on_call(infer, rig_call(0, voxels_rows[_i].before));
    struct vx_call *call = rig_call(1, voxels_rows[_i].voxels);
    call->request.sent_ref = (struct vx_coords_ref){42, 0};
    if (voxels_rows[_i].voxels == 10) rig_kept(call->request.sent_ref, 0);
    vx_infer_on_call(infer, call);
    ck_assert_int_eq(rig_answer_of(call) == NULL, voxels_rows[_i].fits);
    if (voxels_rows[_i].fits) return;
    const struct rig_answer *answer = rig_expect(call, VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(answer->why.text, "60 voxels are in flight and 41 more would exceed "
                                       "the server's voxels_max of 100; try again later");
    ck_assert_uint_eq(vx_registry_row(infer->registry, 0)->stats->rejected, 1);
}
END_TEST

/* Powers of two, not the bytes in them: 683 voxels have normals of 8,196 and scores of 1,366
 * bytes. */
START_TEST(what_answers_take_is_counted_for_the_connection)
{
    struct rig_run *run = rig_start(rig_call(0, 683));
    ck_assert_uint_eq(rig.took, 16384 + 2048);
    ck_assert_uint_eq(rig.gave, 0);
    rig_done(run);
    rig_end(run);
    ck_assert_uint_eq(rig.gave, 16384 + 16384); /* coords of 10,928 bytes, and feats */
}
END_TEST

START_TEST(no_room_for_an_answer_gives_back_all)
{
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    struct vx_place large[64];
    i32 count = 0;
    struct vx_call *call = rig_call(0, 10);
    /* One page is left: the first output takes it, and none is left for the second. */
    while (count < 64) {
        u64 left = vx_shared_bytes(infer->shared) - rig_used(), bytes = 4096;
        if (left == 4096) break;
        while (2 * bytes < left) bytes *= 2;
        if (!arena->take(arena->context, bytes, &large[count])) break;
        count++;
    }
    u64 used = rig_used() - 2 * 4096; /* of the test itself */
    vx_infer_on_call(infer, call);
    const struct rig_answer *answer = rig_expect(call, VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(answer->why.text, "of output 'score'"));
    ck_assert_ptr_nonnull(strstr(answer->why.text, "try again later"));
    ck_assert_uint_eq(rig_used(), used);
    while (count > 0) arena->give(arena->context, &large[--count]);
}
END_TEST

/* Arrivals of one iteration are sent at its end, except when a queue only looks full. */
START_TEST(a_queue_that_only_looks_full_is_emptied_first)
{
    vx_sched_close(&infer->sched);
    rig.config.queue_max = 1;
    ck_assert(!vx_sched_open(1, &infer->sched).fault);
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, true);
    vx_sched_worker_up(infer->sched, 0);
    vx_sched_instance_ready(infer->sched, 0, 0, true);
    vx_infer_on_call(infer, rig_call(0, 10));
    ck_assert_int_eq(rig.runs_count, 0);
    vx_infer_on_call(infer, rig_call(1, 10));
    ck_assert_int_eq(rig.runs_count, 1);
    ck_assert_int_eq(rig.answers_count, 0);
    nobody_serves();
    struct vx_call *call = rig_call(2, 10);
    u64 before = infer->metrics->refused_late;
    vx_infer_on_call(infer, call);
    const struct rig_answer *answer = rig_expect(call, VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(
        answer->why.text,
        "Exceeds maximum queue size: 1 requests are already waiting; try again later");
    ck_assert_uint_eq(infer->metrics->refused_late, before); /* full is not late */
}
END_TEST

START_TEST(a_deadline_that_has_passed_is_refused_late)
{
    struct vx_call *call = rig_call(0, 10);
    call->deadline_ns = 1;
    vx_infer_on_call(infer, call);
    rig_expect(call, VX_CODE_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(infer->metrics->refused_late, 1);
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

START_TEST(who_comes_while_workers_end_is_refused)
{
    infer->stopping = true;
    struct vx_call *call = rig_call(0, 10);
    vx_infer_on_call(infer, call);
    ck_assert_ptr_nonnull(
        strstr(rig_expect(call, VX_CODE_UNAVAILABLE)->why.text, "is shutting down"));
    ck_assert_uint_eq(infer->metrics->codes[VX_CODE_UNAVAILABLE], 1);
    /* No model was looked up: none counts the error. */
    ck_assert_uint_eq(vx_registry_row(infer->registry, 0)->stats->fail.count, 0);
}
END_TEST

/* The loop reports what was wrong with the regions, because it knows the model's name. */
START_TEST(what_was_wrong_with_its_regions_is_said)
{
    struct vx_call *call = rig_call(0, 10);
    call->regions_status = vx_status_of_code(VX_CODE_NOT_FOUND);
    vx_why_set(&call->regions_why, "no region of that name");
    vx_infer_on_call(infer, call);
    ck_assert_str_eq(rig_expect(call, VX_CODE_NOT_FOUND)->why.text,
                     "no region of that name");
    ck_assert_uint_eq(vx_registry_row(infer->registry, 0)->stats->fail.count, 1);
}
END_TEST

/* ------- time ------- */

/* The request's timeout_us, and when it expires; 0 = never. */
static const struct {
    i64 timeout_us, after_ns;
} timeout_rows[] = {
    {0, 0},
    {-5, 0},
    {1500, 1500000},
    {INT64_MAX, 0},
    {INT64_MAX / 4 / VX_NS_PER_US, INT64_MAX / 4 / VX_NS_PER_US *VX_NS_PER_US},
    {INT64_MAX / 4 / VX_NS_PER_US + 1, 0},
};

START_TEST(a_timeout_is_microseconds_in_the_queue)
{
    rig_signature()->batching.policies[0].allow_timeout_override = true;
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, true);
    nobody_serves();
    struct vx_call *call = rig_call(0, 10);
    call->request.timeout_us = timeout_rows[_i].timeout_us;
    vx_infer_on_call(infer, call);
    ck_assert_int_eq(call->job.timeout_ns, timeout_rows[_i].after_ns);
    if (timeout_rows[_i].after_ns)
        ck_assert_int_eq(call->job.expires_ns,
                         call->job.queued_ns + timeout_rows[_i].after_ns);
}
END_TEST

/* The queue's timeout or the caller's deadline has passed: they have different codes
 * and sentences. */
START_TEST(who_waited_too_long_is_told_which_time_is_over)
{
    rig_signature()->batching.policies[0].allow_timeout_override = true;
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, true);
    nobody_serves();
    struct vx_call *call = rig_call(0, 10);
    if (_i)
        call->deadline_ns = vx_clock_ns() + 1000 * VX_NS_PER_S;
    else
        call->request.timeout_us = 1;
    vx_infer_on_call(infer, call);
    if (_i) { /* as if it had arrived a second ago */
        i64 then_ns = call->job.queued_ns - VX_NS_PER_S;
        ck_assert(vx_sched_cancel(infer->sched, &call->job));
        call->job.deadline_ns = then_ns + 1;
        ck_assert(!vx_sched_submit(infer->sched, &call->job, then_ns, NULL, NULL).fault);
    }
    while (!rig.answers_count) vx_infer_dispatch(infer);
    const struct rig_answer *answer =
        rig_expect(call, _i ? VX_CODE_DEADLINE_EXCEEDED : VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(answer->why.text, _i ? "the deadline passed after"
                                                      : "Request timeout expired: it "
                                                        "waited"));
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

/* ------- who leaves ------- */

START_TEST(who_leaves_while_it_waits_is_answered_at_once)
{
    nobody_serves();
    struct vx_call *call = rig_call(0, 10);
    vx_infer_on_call(infer, call);
    vx_infer_on_gone(infer, call);
    rig_expect(call, VX_CODE_CANCELLED);
    ck_assert_uint_eq(rig_used(), 0);
    ck_assert_int_eq(vx_sched_queued(infer->sched), 0);
    vx_infer_on_gone(infer, call); /* a second time is no error */
    ck_assert_int_eq(rig.answers_count, 1);
}
END_TEST

START_TEST(who_leaves_while_it_runs_is_answered_at_its_end)
{
    struct vx_instance_stats *stats = vx_registry_row(infer->registry, 0)->stats;
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    vx_infer_on_gone(infer, call);
    ck_assert_int_eq(rig.answers_count, 0);
    rig_done(run);
    if (_i) rig_said.items[0].code = VX_CODE_INVALID_ARGUMENT;
    rig_end(run);
    rig_expect(call, _i ? VX_CODE_INVALID_ARGUMENT : VX_CODE_CANCELLED);
    ck_assert_uint_eq(rig_used(), 0);
    /* A request that failed by itself is counted, whether or not its client is still
     * there. */
    ck_assert_uint_eq(
        infer->metrics->codes[_i ? VX_CODE_INVALID_ARGUMENT : VX_CODE_CANCELLED], 1);
    ck_assert_uint_eq(stats->cancelled, !_i);
    ck_assert_uint_eq(stats->success.count, 0);
    ck_assert_uint_eq(stats->fail.count, 1);
}
END_TEST

START_TEST(what_still_waits_at_the_end_is_told)
{
    nobody_serves();
    struct vx_call *first = rig_call(0, 10), *second = rig_call(1, 10);
    vx_infer_on_call(infer, first);
    vx_infer_on_call(infer, second);
    ck_assert(vx_sched_cancel(infer->sched, &first->job));
    vx_infer_on_lost(infer, &first->job);
    ck_assert_str_eq(rig_expect(first, VX_CODE_UNAVAILABLE)->why.text,
                     "model 'conv' became unavailable while the request waited");
    vx_infer_drop_all(infer);
    ck_assert_ptr_nonnull(
        strstr(rig_expect(second, VX_CODE_UNAVAILABLE)->why.text, "is stopping"));
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer");
    TCase *tests = tcase_create("arrivals and ends");
    tcase_add_checked_fixture(tests, rig_set_up, rig_tear_down);
    tcase_add_test(tests, an_answer_has_what_was_asked);
    tcase_add_test(tests, one_output_of_two_takes_one_slot);
    tcase_add_test(tests, timing_says_what_the_worker_said);
    tcase_add_loop_test(tests, a_geometry_that_was_not_kept_has_no_name, 0, 2);
    tcase_add_test(tests, a_name_goes_to_who_holds_it_and_has_the_model);
    tcase_add_test(tests, a_name_has_its_own_number_of_rows);
    tcase_add_loop_test(tests, a_geometry_costs_what_its_model_said, 0, 3);
    tcase_add_loop_test(tests, voxels_in_flight_are_limited, 0,
                        (int)VX_COUNT(voxels_rows));
    tcase_add_test(tests, what_answers_take_is_counted_for_the_connection);
    tcase_add_test(tests, no_room_for_an_answer_gives_back_all);
    tcase_add_test(tests, a_queue_that_only_looks_full_is_emptied_first);
    tcase_add_test(tests, a_deadline_that_has_passed_is_refused_late);
    tcase_add_test(tests, who_comes_while_workers_end_is_refused);
    tcase_add_test(tests, what_was_wrong_with_its_regions_is_said);
    tcase_add_loop_test(tests, a_timeout_is_microseconds_in_the_queue, 0,
                        (int)VX_COUNT(timeout_rows));
    tcase_add_loop_test(tests, who_waited_too_long_is_told_which_time_is_over, 0, 2);
    tcase_add_test(tests, who_leaves_while_it_waits_is_answered_at_once);
    tcase_add_loop_test(tests, who_leaves_while_it_runs_is_answered_at_its_end, 0, 2);
    tcase_add_test(tests, what_still_waits_at_the_end_is_told);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
