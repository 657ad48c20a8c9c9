/* Dense outputs, whose samples one voxel can make: what does not fit is named, and what they take is
 * paid for, once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "server/sched/sched_private.h"
#include "tests/unit/server/infer/infer_sizes_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Nor would fewer voxels be, of an output with a row for each sample: 512 of 8,192 bytes
 * need 4 MiB. */
START_TEST(samples_that_never_fit_are_named)
{
    rig_signature()->outputs[FAR] = (struct vx_output){
        "far", VX_DTYPE_F32, 2048, VX_OUTPUT_DENSE, -1, "", 4, {2, 32, 32, 1}};
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    say_sizes(run, 0, 512);
    ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    end_refused(run, 0);
    struct rig_answer *answer = rig_expect(call, VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(answer->why.text,
                         "and arena_bytes is 1048576: send fewer samples, numbered from "
                         "0: output 'far' is [512,2,32,32,1] FP32, a row for each "
                         "sample"),
                  "%s", answer->why.text);
}
END_TEST

/* Of 8,192 bytes for each sample, four voxels; and as many voxels a connection may have. */
static void limit_voxels(struct vx_access **access, f64 burst, struct vx_call *first,
                         struct vx_call *second)
{
    const struct vx_access_arrival arrival = {
        .method = VX_METHOD_ID_MODEL_INFER, .connection = 1, .is_request = true};
    struct vx_why why = {""};
    rig_signature()->outputs[FAR] = (struct vx_output){
        "far", VX_DTYPE_F32, 2048, VX_OUTPUT_DENSE, -1, "", 4, {2, 32, 32, 1}};
    ck_assert(
        !vx_access_open(
             &(struct vx_access_options){
                 .connections_max = 4,
                 .connection = {[VX_ACCESS_VOXELS] = {.per_s = 1e-3, .burst = burst}}},
             access)
             .fault);
    ck_assert(!vx_access_enter(*access, &arrival, &why, &first->ticket).fault);
    second->ticket = first->ticket;
    infer->access = *access;
}

static u64 voxels_paid(struct vx_access *access)
{
    char name[VX_ACCESS_NAME_BYTES];
    struct vx_access_counts counts;
    ck_assert(vx_access_counts_get(access, -1, name, &counts));
    return counts.voxels;
}

/* Both were let in with their 10 voxels.  What the first one's samples cost leaves a debt, in
 * which the second gets no places; its own voxels are no reason to refuse it. */
START_TEST(samples_cost_what_their_bytes_do)
{
    struct vx_access *access;
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    limit_voxels(&access, _i ? 20 : 300, calls[0], calls[1]);
    const struct rig_run *run = start_two(calls[0], calls[1]);
    ck_assert_uint_eq(voxels_paid(access), 20);
    say_sizes(run, 0, _i ? 64 : 3);
    ck_assert_int_eq(expect_places(run, 0)->refused, 0);
    ck_assert_uint_eq(voxels_paid(access), 20 + 4 * (_i ? 64 : 3));
    ck_assert_int_eq(calls[0]->job.unforeseen_bytes, 8192 * (_i ? 63 : 2));
    say_sizes(run, 1, 2);
    ck_assert_int_eq(expect_places(run, 1)->refused, _i);
    rig_done(run);
    if (_i) rig_said.items[1].code = VX_CODE_CANCELLED;
    rig_end(run);
    rig_expect(calls[0], VX_CODE_OK);
    const struct rig_answer *answer =
        rig_expect(calls[1], _i ? VX_CODE_RESOURCE_EXHAUSTED : VX_CODE_OK);
    if (_i)
        ck_assert_msg(strstr(answer->why.text,
                             "this connection has used its limit of 0.001 "
                             "voxels per second; try again in about"),
                      "%s", answer->why.text);
    infer->access = NULL;
    vx_access_close(&access);
}
END_TEST

/* 10 voxels grew to 41 on all sets.  Of a model whose features decide that, the 31 are paid when it
 * has run, also by a token in debt, and the next request waits; other sets are a part of the price of
 * a voxel. */
START_TEST(predicted_voxels_cost_what_they_are)
{
    struct vx_access *access;
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    limit_voxels(&access, 11, calls[0], calls[1]);
    rig_signature()->outputs_count = FAR; /* those of its own voxels */
    rig_signature()->predicts = _i;
    for (int i = 0; i < 2; i++) {
        struct rig_run *run = rig_start(calls[i]);
        rig_done(run);
        rig_said.items[0].set_voxels = 41;
        rig_end(run);
        rig_expect(calls[i], VX_CODE_OK);
        if (_i) break;
    }
    ck_assert_uint_eq(voxels_paid(access), _i ? 41 : 20);
    if (_i) {
        vx_infer_on_call(infer, calls[1]);
        rig_expect(calls[1], VX_CODE_RESOURCE_EXHAUSTED);
    }
    infer->access = NULL;
    vx_access_close(&access);
}
END_TEST

/* For as long as they took, who asks next from there goes behind them; no other set is charged. */
START_TEST(predicted_voxels_are_charged_to_their_origin)
{
    enum { MADE = 100000, OF_BATCH_S = 600 };
    struct vx_call *call = rig_call(0, 10), *next = rig_call(1, 10);
    rig_signature()->outputs_count = FAR;
    rig_signature()->predicts = _i;
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_said.items[0].set_voxels = MADE;
    rig_said.device_ns = OF_BATCH_S * VX_NS_PER_S;
    const u64 before = call->job.turn;
    rig_end(run);
    rig_expect(call, VX_CODE_OK);
    ck_assert_uint_eq(call->job.origin, next->job.origin);
    ck_assert_uint_ne(call->job.client, next->job.client);
    vx_infer_on_call(infer, next);
    const u64 behind = next->job.turn - before - (u64)next->job.set_voxels;
    ck_assert_int_eq(behind > MADE / 2, _i);
    vx_infer_on_gone(infer, next);
}
END_TEST

/* Another that made less than it was counted with lowers the debt, unless it has failed. */
START_TEST(fewer_voxels_lower_the_debt)
{
    enum { MADE = 100000, FEWER = 40000 };
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    rig_signature()->outputs_count = FAR;
    rig_signature()->predicts = true;
    for (int k = 0; k < 2; k++) {
        struct rig_run *run = rig_start(calls[k]);
        rig_done(run);
        rig_said.device_ns = k ? 0 : 600 * VX_NS_PER_S;
        calls[k]->job.set_voxels = k ? FEWER + 10 : 0;
        rig_said.items[0].set_voxels = k ? 10 : MADE;
        if (k && _i) rig_said.items[0].code = VX_CODE_RESOURCE_EXHAUSTED;
        rig_end(run);
    }
    const u64 owes = vx_sched_owes(infer->sched, &calls[1]->job, vx_clock_ns());
    ck_assert_int_eq(owes > MADE - FEWER / 2, _i);
    ck_assert_uint_gt(owes, MADE / 2);
}
END_TEST

/* Two that ran within a long one and took over 100 ms: the rest of their origin waits its turn.  What a
 * worker builds though it was said to hold it is not counted. */
START_TEST(one_that_was_not_brief_is_remembered)
{
    struct vx_call *call;
    rig_signature()->outputs_count = FAR;
    for (int k = 0; k < 2; k++) {
        call = rig_call(k, 10);
        struct rig_run *run = rig_start(call);
        rig_done(run);
        call->job.holders = _i == 2 ? 1u << run->worker : 0;
        rig_said.items[0].aside = _i > 0;
        *(_i == 2 ? &rig_said.items[0].geometry_ns : &rig_said.items[0].compute_ns) =
            200 * VX_NS_PER_MS;
        rig_end(run);
        rig_expect(call, VX_CODE_OK);
    }
    ck_assert_int_eq(vx_sched_is_patient(infer->sched, &call->job, vx_clock_ns()),
                     _i == 1);
}
END_TEST

/* A worker that dies is not the client's fault. */
START_TEST(samples_are_paid_once)
{
    struct vx_access *access;
    struct vx_call *call = rig_call(0, 10);
    limit_voxels(&access, 300, call, call);
    struct rig_run *run = rig_start(call);
    say_sizes(run, 0, 5);
    rig_restart(run->worker);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 2);
    say_sizes(&rig.runs[1], 0, 5);
    ck_assert_int_eq(expect_places(&rig.runs[1], 0)->refused, 0);
    ck_assert_uint_eq(voxels_paid(access), 10 + 4 * 5);
    rig_done(&rig.runs[1]);
    rig_end(&rig.runs[1]);
    rig_expect(call, VX_CODE_OK);
    infer->access = NULL;
    vx_access_close(&access);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_samples");
    TCase *tcase = tcase_create("infer_samples");
    tcase_add_checked_fixture(tcase, sizes_set_up, rig_tear_down);
    tcase_add_test(tcase, samples_that_never_fit_are_named);
    tcase_add_loop_test(tcase, samples_cost_what_their_bytes_do, 0, 2);
    tcase_add_loop_test(tcase, predicted_voxels_cost_what_they_are, 0, 2);
    tcase_add_loop_test(tcase, predicted_voxels_are_charged_to_their_origin, 0, 2);
    tcase_add_loop_test(tcase, fewer_voxels_lower_the_debt, 0, 2);
    tcase_add_loop_test(tcase, one_that_was_not_brief_is_remembered, 0, 3);
    tcase_add_test(tcase, samples_are_paid_once);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
