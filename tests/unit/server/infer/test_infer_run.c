/* infer_run, infer_count: batches to workers and back, workers that answer falsely, die
 * or forget, and how that is counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "tests/unit/server/infer/infer_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct vx_infer *const infer = &rig.infer;

static struct vx_instance_stats *stats(void)
{
    return vx_registry_row(infer->registry, 0)->stats;
}

/* Only this worker serves the model. */
static void only(i32 worker)
{
    for (i32 w = 0; w < RIG_WORKERS; w++)
        vx_sched_instance_ready(infer->sched, 0, w, w == worker);
}

static u64 observed(enum vx_histogram_id id)
{
    u64 count = 0;
    for (i32 i = 0; i <= VX_METRICS_BOUNDS_MAX; i++)
        count += infer->metrics->histograms[id].counts[i];
    return count;
}

/* ------- workers that lie ------- */

/* Fewer or more items than were sent: none of them counts, and the requests run
 * elsewhere. */
START_TEST(who_answers_another_number_is_killed)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 20)};
    vx_infer_on_call(infer, calls[0]);
    vx_infer_on_call(infer, calls[1]);
    vx_infer_dispatch(infer);
    struct rig_run *run = &rig.runs[0];
    ck_assert_int_eq(run->run.items_count, 2);
    rig_done(run);
    rig_said.items_count = _i ? 3 : 1;
    rig_said.items[0].geometry_kept = true;
    rig_end(run);
    ck_assert_int_eq(rig.killed, 1 << run->worker);
    ck_assert_int_eq(rig.answers_count, 0);
    ck_assert_int_eq(vx_sched_running(infer->sched), 2);
    ck_assert_int_eq(vx_geometries_count(infer->geometries), 0);
    rig_restart(run->worker);
    for (i32 i = 1; i <= 2; i++) { /* each alone: its worker was killed */
        vx_infer_dispatch(infer);
        ck_assert_int_ge(rig.runs_count, i + 1);
        rig_done(&rig.runs[i]);
        rig_end(&rig.runs[i]);
    }
    rig_expect(calls[0], VX_CODE_OK);
    rig_expect(calls[1], VX_CODE_OK);
}
END_TEST

START_TEST(a_batch_that_nobody_sent_is_not_answered)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call), other = *run;
    other.run.head.serial += 100;
    rig_done(&other);
    rig_end(&other);
    ck_assert_int_eq(rig.killed, 0); /* late messages of an earlier process */
    ck_assert_int_eq(rig.answers_count, 0);
    other = *run;
    other.worker = !run->worker;
    rig_done(&other);
    rig_end(&other);
    ck_assert_int_eq(rig.answers_count, 0);
    rig_done(run);
    rig_end(run);
    rig_end(run); /* a second answer has no effect */
    rig_expect(call, VX_CODE_OK);
    ck_assert_uint_eq(stats()->execution_count, 1);
}
END_TEST

/* ------- workers that die ------- */

START_TEST(what_two_workers_died_of_is_not_tried_again)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    if (_i) vx_infer_on_gone(infer, call);
    rig_restart(run->worker);
    ck_assert_int_eq(rig.answers_count, 0);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 2);
    rig_restart(rig.runs[1].worker);
    ck_assert_str_eq(
        rig_expect(call, VX_CODE_INTERNAL)->why.text,
        "2 worker processes died while this request ran; it will not be tried again");
    ck_assert_uint_eq(stats()->broken, 1);
    ck_assert_uint_eq(stats()->cancelled, 0);
    ck_assert_uint_eq(rig_used(), 0);
}
END_TEST

/* A message that the worker did not accept is no death. */
START_TEST(what_a_worker_never_heard_of_runs_elsewhere)
{
    struct vx_call *call = rig_call(0, 10);
    for (i32 turn = 0; turn < 3; turn++) {
        only(0);
        rig.deaf = true;
        if (!turn) vx_infer_on_call(infer, call);
        vx_infer_dispatch(infer);
        ck_assert_int_eq(rig.runs_count, 0);
        rig.deaf = false;
        rig_restart(0);
    }
    ck_assert_int_eq(rig.answers_count, 0);
    ck_assert_int_eq(call->job.deaths, 0);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 1);
    rig_done(&rig.runs[0]);
    rig_end(&rig.runs[0]);
    rig_expect(call, VX_CODE_OK);
}
END_TEST

/* The geometries of a dead worker have no holder, and the batches it was sent are
 * forgotten. */
START_TEST(a_dead_worker_holds_nothing)
{
    only(0);
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_said.items[0].geometry_kept = true;
    rig_end(run);
    ck_assert_int_eq(vx_geometries_count(infer->geometries), 1);
    struct vx_call *waits = rig_call_named(1, 10, 1), *running = rig_call(2, 10);
    running->request.sent_ref = (struct vx_coords_ref){0};
    rig_start(running);
    ck_assert_uint_ne(infer->sent[0][0].batch | infer->sent[0][1].batch, 0);
    vx_sched_instance_ready(infer->sched, 0, 0, false);
    vx_infer_on_call(infer, waits);
    ck_assert_ptr_null(rig_answer_of(waits));
    rig_restart(0);
    rig_expect(waits, VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(vx_geometries_count(infer->geometries), 0);
    for (i32 i = 0; i < VX_WORKER_DEPTH; i++) {
        ck_assert_uint_eq(infer->sent[0][i].batch, 0);
        ck_assert_int_eq(infer->sent[0][i].sent_ns, 0);
    }
    struct vx_call *late = rig_call_named(3, 10, 1);
    vx_infer_on_call(infer, late);
    rig_expect(late, VX_CODE_FAILED_PRECONDITION);
}
END_TEST

/* ------- workers that have forgotten ------- */

/* 0: another worker holds it; 1: none does; 2: another does, but the client has left. */
START_TEST(a_geometry_that_is_gone_is_tried_elsewhere)
{
    rig_kept((struct vx_coords_ref){42, 0}, 0);
    if (_i != 1) rig_kept((struct vx_coords_ref){42, 0}, 1);
    struct vx_call *call = rig_call_named(0, 10, 42);
    struct rig_run *run = rig_start(call);
    if (_i == 2) vx_infer_on_gone(infer, call);
    rig_done(run);
    rig_said.items[0].code = VX_CODE_FAILED_PRECONDITION;
    rig_said.items[0].ran = false;
    rig_end(run);
    vx_infer_dispatch(infer);
    struct vx_geometry_fact fact = {0};
    bool known =
        vx_geometries_find(infer->geometries, (struct vx_coords_ref){42, 0}, 0, &fact);
    ck_assert_int_eq(known, _i != 1);
    ck_assert_int_eq(fact.workers >> run->worker & 1, 0);
    ck_assert_uint_eq(stats()->execution_count, 0);
    ck_assert_int_eq(rig.runs_count, _i ? 1 : 2);
    if (_i) {
        rig_expect(call, VX_CODE_FAILED_PRECONDITION);
        ck_assert_uint_eq(infer->metrics->refs_unknown, 1);
        return;
    }
    ck_assert_int_eq(rig.answers_count, 0);
    ck_assert_int_ne(rig.runs[1].worker, run->worker);
    rig_done(&rig.runs[1]);
    rig_end(&rig.runs[1]);
    rig_expect(call, VX_CODE_OK);
    ck_assert_uint_eq(infer->metrics->refs_hit, 1);
}
END_TEST

/* A worker, and the table of names, are told in whose share the geometry is. */
START_TEST(a_run_says_whose_share_it_is)
{
    struct vx_call *call = rig_call(0, 10);
    call->names_origin = 77;
    call->request.sent_ref = (struct vx_coords_ref){42, 0};
    struct rig_run *run = rig_start(call);
    ck_assert_uint_eq(run->run.items[0].origin, 77);
    rig_done(run);
    rig_end(run);
    rig_expect(call, VX_CODE_OK);
}
END_TEST

/* Another holder that does not have the model does not count. */
START_TEST(elsewhere_is_where_the_model_is)
{
    struct vx_instance *row = vx_registry_row(infer->registry, 0);
    rig_kept((struct vx_coords_ref){42, 0}, 0);
    rig_kept((struct vx_coords_ref){42, 0}, 1);
    struct vx_call *call = rig_call_named(0, 10, 42);
    struct rig_run *run = rig_start(call);
    row->workers_loaded = 1u << run->worker;
    rig_done(run);
    rig_said.items[0].code = VX_CODE_FAILED_PRECONDITION;
    rig_end(run);
    rig_expect(call, VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(vx_sched_queued(infer->sched), 0);
}
END_TEST

/* For a request with coordinates a failed precondition says nothing about the
 * coords_ref. */
START_TEST(who_sent_coordinates_is_told_what_the_worker_said)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_kept((struct vx_coords_ref){1, 0}, 1);
    rig_said.items[0].code = VX_CODE_FAILED_PRECONDITION;
    vx_done_add_why(&rig_said, 0, "as the test wants");
    rig_end(run);
    ck_assert_str_eq(rig_expect(call, VX_CODE_FAILED_PRECONDITION)->why.text,
                     "as the test wants");
    ck_assert_int_eq(vx_geometries_count(infer->geometries), 1);
    ck_assert_uint_eq(infer->metrics->refs_unknown, 0);
}
END_TEST

/* A region that a worker found cut is cut for all; an index that the request does not
 * have is ignored. */
START_TEST(a_region_that_a_worker_lost_is_refused_from_then_on)
{
    char key[64];
    snprintf(key, sizeof key, "/vx-infer-%d", (int)getpid());
    int object = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(object, 0);
    ck_assert(!ftruncate(object, 4096));
    struct vx_peer peer = {
        .connection = 1, .kind = VX_PEER_UNIX, .uid = geteuid(), .gid = getegid()};
    const struct vx_region_wanted wanted = {.name = "r", .key = key, .bytes = 4096};
    struct vx_why why = {""};
    vx_status st = vx_regions_add_system(infer->regions, &peer, &wanted, &why);
    ck_assert(!shm_unlink(key) && !close(object));
    ck_assert_msg(!st.fault, "%s", why.text);
    const struct vx_request_region piece = {.name = "r", .bytes = 160};
    struct vx_place *held = &rig.calls[0].inputs_held[0], again;
    struct vx_call *call = rig_call(0, 10);
    rig_drop_slots(call);
    ck_assert(!vx_regions_use(infer->regions, &peer, &piece, &why, held).fault);
    call->request.inputs[0].place = *held;
    struct rig_run *run = rig_start(call);
    ck_assert_int_eq(run->run.items[0].feats.region, held->region);
    i32 region = held->region;
    rig_done(run);
    rig_said.items[0].code = VX_CODE_FAILED_PRECONDITION;
    rig_said.items[0].region_lost = _i ? region + 1 : region;
    rig_end(run);
    rig_expect(call, VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(call->inputs_held[0].region, 0); /* given back */
    st = vx_regions_use(infer->regions, &peer, &piece, &why, &again);
    ck_assert_int_eq(vx_status_code(st), _i ? VX_CODE_OK : VX_CODE_FAILED_PRECONDITION);
    vx_regions_done(infer->regions, &again);
}
END_TEST

/* ------- what is counted ------- */

START_TEST(requests_and_batches_are_counted)
{
    struct vx_call *calls[3];
    only(0);
    for (i32 i = 0; i < 3; i++) {
        calls[i] = rig_call(i, 10 * (i + 1));
        calls[i]->decoded_ns -= 1000 * VX_NS_PER_S;
        vx_infer_on_call(infer, calls[i]);
    }
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 1);
    rig_done(&rig.runs[0]);
    rig_said.items[1].code = VX_CODE_INVALID_ARGUMENT;
    rig_said.items[2].ran = false; /* it was never on the device */
    rig_said.items[2].code = VX_CODE_RESOURCE_EXHAUSTED;
    rig_said.items[2].convert_ns = rig_said.items[2].geometry_ns = 0;
    rig_said.items[2].compute_ns = rig_said.items[2].output_ns = 0;
    rig_said.items[0].geometry_hit = true;
    rig_end(&rig.runs[0]);
    rig_expect(calls[0], VX_CODE_OK);
    const struct vx_instance_stats *s = stats();
    ck_assert_uint_eq(s->inference_count, 1);
    ck_assert_uint_eq(s->execution_count, 1);
    ck_assert_uint_eq(s->voxels, 10);
    ck_assert_uint_eq(s->pairs, 27);
    ck_assert_uint_eq(s->set_voxels, 15);
    ck_assert_uint_gt(s->last_inference_ms, 0);
    ck_assert_uint_eq(s->success.count, 1);
    ck_assert_uint_ge(s->success.ns, 1000 * VX_NS_PER_S);
    ck_assert_uint_eq(s->fail.count, 2);
    ck_assert_uint_ge(s->fail.ns, 2000 * VX_NS_PER_S);
    ck_assert_uint_eq(s->rejected, 1);
    ck_assert_uint_eq(s->cancelled + s->broken, 0);
    ck_assert_uint_eq(s->geometry_hit.count, 1);
    ck_assert_uint_eq(s->geometry_hit.ns, 200);
    ck_assert_uint_eq(s->geometry_miss.count, 0);
    /* 1000 ns of the device, as 100 : 200 : 300 : 400. */
    ck_assert_uint_eq(s->compute_input.ns, 100);
    ck_assert_uint_eq(s->compute_infer.ns, 500);
    ck_assert_uint_eq(s->compute_output.ns, 400);
    ck_assert_uint_eq(s->queue.count, 1);
    ck_assert_uint_eq(s->batches[0].compute_input.count, 0);
    ck_assert_uint_eq(s->batches[1].compute_input.count, 1); /* two ran */
    ck_assert_uint_eq(s->batches[1].compute_infer.ns, 500);
    ck_assert_uint_eq(infer->metrics->codes[VX_CODE_OK], 1);
    ck_assert_uint_eq(infer->metrics->codes[VX_CODE_INVALID_ARGUMENT], 1);
    ck_assert_uint_eq(infer->metrics->codes[VX_CODE_RESOURCE_EXHAUSTED], 1);
    const struct vx_histogram *histograms = infer->metrics->histograms;
    ck_assert_uint_eq(observed(VX_HISTOGRAM_BATCH_REQUESTS), 1);
    ck_assert_uint_eq(histograms[VX_HISTOGRAM_BATCH_REQUESTS].sum, 2);
    ck_assert_uint_eq(histograms[VX_HISTOGRAM_BATCH_VOXELS].sum, 30);
}
END_TEST

/* A batch of which no item ran does not count. */
START_TEST(what_never_ran_is_no_batch)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_said.items[0].ran = false;
    rig_said.items[0].code = VX_CODE_INVALID_ARGUMENT;
    rig_end(run);
    ck_assert_uint_eq(observed(VX_HISTOGRAM_BATCH_REQUESTS), 0);
    ck_assert_uint_eq(stats()->execution_count, 0);
    ck_assert_uint_eq(stats()->fail.count, 1);
}
END_TEST

/* No item of the batch succeeded: it took time, and no answer counts. */
START_TEST(what_failed_is_no_execution)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_said.items[0].code = VX_CODE_INTERNAL;
    rig_end(run);
    ck_assert_uint_eq(observed(VX_HISTOGRAM_BATCH_REQUESTS), 1);
    ck_assert_uint_eq(stats()->execution_count, 0);
    ck_assert_uint_eq(stats()->broken, 1);
    ck_assert_uint_eq(stats()->success.count, 0);
}
END_TEST

/* Queue time ends when the device begins, but not before the worker has received the
 * batch. */
START_TEST(the_queue_ends_where_the_device_begins)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    i64 queued_ns = call->job.queued_ns;
    rig_done(run);
    rig_said.received_ns = queued_ns + 1000;
    rig_said.sent_ns = queued_ns + (_i ? 1500 : 9000); /* 1000 ns on the device */
    rig_end(run);
    ck_assert_uint_eq(stats()->queue.ns, _i ? 1000 : 8000);
}
END_TEST

/* From the front's send to the worker's receipt, and back; each batch has its own
 * time. */
START_TEST(the_border_is_measured_for_each_batch)
{
    only(0);
    rig_signature()->batching.requests_max = 1;
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, true);
    vx_infer_on_call(infer, rig_call(0, 10));
    vx_infer_on_call(infer, rig_call(1, 10));
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, VX_WORKER_DEPTH);
    const struct vx_histogram *border = &infer->metrics->histograms[VX_HISTOGRAM_BORDER];
    u64 before = 0;
    for (i32 i = 0; i < VX_WORKER_DEPTH; i++) {
        rig_done(&rig.runs[i]);
        rig_said.received_ns += 1000 * VX_NS_PER_S; /* received that much later */
        rig_end(&rig.runs[i]);
        ck_assert_uint_ge(border->sum, before + 900 * VX_NS_PER_S);
        ck_assert_uint_le(border->sum, before + 1100 * VX_NS_PER_S);
        before = border->sum;
    }
    ck_assert_uint_eq(infer->sent[0][0].batch | infer->sent[0][1].batch, 0);
}
END_TEST

/* What layers took goes to those that asked for it, if there was room for it. */
START_TEST(layers_go_to_those_that_asked)
{
    static const struct vx_taken taken = {"AVX2: stem"};
    struct vx_call *calls[] = {rig_call(0, 10), rig_call(1, 30), rig_call(2, 20)};
    calls[0]->request.timing = calls[0]->request.layers = true;
    calls[1]->request.timing = true;
    calls[2]->request.timing = calls[2]->request.layers = true;
    for (size_t i = 0; i < VX_COUNT(calls); i++) vx_infer_on_call(infer, calls[i]);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 1);
    const struct vx_message_run *run = &rig.runs[0].run;
    ck_assert(run->items[0].says_taken && !run->items[1].says_taken);
    ck_assert(run->items[2].says_taken);
    rig_done(&rig.runs[0]);
    vx_done_add_taken(&rig_said, &taken);
    rig_said.items[0].taken = 1;
    rig_end(&rig.runs[0]);
    const struct rig_answer *answer = rig_expect(calls[0], VX_CODE_OK);
    const struct vx_reply_parameter *layers = &answer->reply.parameters[12];
    ck_assert_int_eq(answer->reply.parameters_count, 13);
    ck_assert_str_eq(layers->name, "layers");
    ck_assert_str_eq(layers->long_text, "AVX2: stem");
    for (int i = 1; i < 3; i++)
        ck_assert_int_eq(rig_expect(calls[i], VX_CODE_OK)->reply.parameters_count, 12);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_run");
    TCase *tests = tcase_create("there and back");
    tcase_add_checked_fixture(tests, rig_set_up, rig_tear_down);
    tcase_add_loop_test(tests, who_answers_another_number_is_killed, 0, 2);
    tcase_add_test(tests, a_batch_that_nobody_sent_is_not_answered);
    tcase_add_loop_test(tests, what_two_workers_died_of_is_not_tried_again, 0, 2);
    tcase_add_test(tests, what_a_worker_never_heard_of_runs_elsewhere);
    tcase_add_test(tests, a_dead_worker_holds_nothing);
    tcase_add_loop_test(tests, a_geometry_that_is_gone_is_tried_elsewhere, 0, 3);
    tcase_add_test(tests, a_run_says_whose_share_it_is);
    tcase_add_test(tests, elsewhere_is_where_the_model_is);
    tcase_add_test(tests, who_sent_coordinates_is_told_what_the_worker_said);
    tcase_add_loop_test(tests, a_region_that_a_worker_lost_is_refused_from_then_on, 0, 2);
    tcase_add_test(tests, requests_and_batches_are_counted);
    tcase_add_test(tests, what_never_ran_is_no_batch);
    tcase_add_test(tests, what_failed_is_no_execution);
    tcase_add_loop_test(tests, the_queue_ends_where_the_device_begins, 0, 2);
    tcase_add_test(tests, the_border_is_measured_for_each_batch);
    tcase_add_test(tests, layers_go_to_those_that_asked);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
