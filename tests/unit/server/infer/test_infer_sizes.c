/* Outputs whose size is known only while the request runs: places are taken when a worker
 * asks and not before; what finds none fails alone; and when a client leaves or a worker
 * dies in that moment, every slot comes back and every other request is answered.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/check.h"
#include "tests/unit/server/infer/infer_sizes_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

START_TEST(places_are_taken_when_they_are_asked_for)
{
    struct vx_call *call = rig_call(0, 10);
    const u64 inputs = rig_used();
    struct rig_run *run = rig_start(call);
    const struct vx_run_item *item = &run->run.items[0];
    ck_assert_uint_eq(item->asks, ASKS);
    ck_assert_int_eq(item->outputs[NORMALS].kind, VX_PLACE_ARENA);
    ck_assert_int_eq(item->outputs[FAR].kind, VX_PLACE_NONE);
    ck_assert_int_eq(item->outputs[FAR_XYZ].kind, VX_PLACE_NONE);
    const u64 before = rig_used();
    ck_assert_uint_gt(before, inputs);
    say_sizes(run, 0, 700);
    const struct vx_places_item *places = expect_places(run, 0);
    ck_assert_int_eq(places->refused, 0);
    ck_assert_uint_eq(places->outputs[FAR].bytes, 700 * 8);
    ck_assert_uint_eq(places->outputs[FAR_XYZ].bytes, 700 * 16);
    struct vx_call *next = rig_call(1, 10); /* pays for 16,800 bytes, 2,048 as a voxel */
    vx_infer_on_call(infer, next);
    ck_assert_uint_eq(next->job.turn, 2 * call->job.turn + 8);
    vx_infer_on_gone(infer, next);
    ck_assert_int_eq(places->outputs[NORMALS].kind, VX_PLACE_NONE);
    ck_assert_uint_gt(rig_used(), before);
    rig_done(run);
    rig_end(run);
    const struct vx_reply *reply = &rig_expect(call, VX_CODE_OK)->reply;
    ck_assert_int_eq(reply->outputs_count, 4);
    ck_assert_int_eq(reply->outputs[NORMALS].shape[0], 10);
    ck_assert_ptr_null(reply->outputs[NORMALS].coords);
    ck_assert_ptr_null(reply->outputs[NORMALS].stride);
    ck_assert_int_eq(reply->outputs[FAR].shape[0], 700);
    ck_assert_int_eq(reply->outputs[FAR].shape[1], 2);
    ck_assert_str_eq(reply->outputs[FAR].coords, "far_xyz");
    ck_assert_str_eq(reply->outputs[FAR].stride, "2x2x2");
    ck_assert_int_eq(reply->outputs[FAR_XYZ].shape[0], 700);
    ck_assert_ptr_null(reply->outputs[FAR_XYZ].coords);
    ck_assert_str_eq(reply->outputs[FAR_XYZ].stride, "2x2x2");
}
END_TEST

/* No rows are an answer: a set may be empty, and a request without voxels never asks. */
START_TEST(no_rows_are_an_answer)
{
    struct vx_call *call = rig_call(0, _i ? 10 : 0);
    struct rig_run *run = rig_start(call);
    ck_assert_uint_eq(run->run.items[0].asks, _i ? ASKS : 0);
    if (_i) {
        say_sizes(run, 0, 0);
        ck_assert_int_eq(expect_places(run, 0)->refused, 0);
    }
    rig_done(run);
    rig_end(run);
    const struct vx_reply *reply = &rig_expect(call, VX_CODE_OK)->reply;
    ck_assert_int_eq(reply->outputs[FAR].shape[0], 0);
    ck_assert_int_eq(reply->outputs[FAR].shape[1], 2);
    ck_assert_uint_eq(reply->outputs[FAR].bytes, 0);
}
END_TEST

/* Only wanted outputs are asked for; without any, nothing is. */
START_TEST(unwanted_outputs_are_not_asked_for)
{
    struct vx_call *call = rig_call(0, 10);
    call->request.outputs_count = 1;
    snprintf(call->request.outputs[0], VX_WIRE_NAME_BYTES, _i ? "far_xyz" : "score");
    struct rig_run *run = rig_start(call);
    ck_assert_uint_eq(run->run.items[0].asks, _i ? 1u << FAR_XYZ : 0);
    if (_i) say_sizes(run, 0, 5);
    rig_done(run);
    rig_end(run);
    const struct vx_reply *reply = &rig_expect(call, VX_CODE_OK)->reply;
    ck_assert_int_eq(reply->outputs_count, 1);
    ck_assert_int_eq(reply->outputs[0].shape[0], _i ? 5 : 10);
}
END_TEST

/* An arena that is full fails the one request; its batch mate is answered. */
START_TEST(what_finds_no_room_fails_alone)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    const struct rig_run *run = start_two(calls[0], calls[1]);
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    struct vx_place other[2];
    ck_assert(arena->take(arena->context, 512 << 10, &other[0]));
    ck_assert(arena->take(arena->context, 256 << 10, &other[1]));
    const u64 before = rig_used();
    const i64 counted = rig.counted[0];
    say_sizes(run, 0, 16000); /* 128,000 bytes fit, 256,000 more do not */
    ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    for (i32 o = 0; o < 4; o++)
        ck_assert_int_eq(expect_places(run, 0)->outputs[o].kind, VX_PLACE_NONE);
    ck_assert_uint_eq(rig_used(), before); /* nothing of it stays taken, or counted */
    ck_assert_int_eq(rig.counted[0], counted);
    say_sizes(run, 1, 100);
    ck_assert_int_eq(expect_places(run, 1)->refused, 0);
    end_refused(run, 0);
    struct rig_answer *answer = rig_expect(calls[0], VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(answer->why.text, "no room for 256000 bytes of output "
                                           "'far_xyz'") != NULL,
                  "%s", answer->why.text);
    rig_expect(calls[1], VX_CODE_OK);
    for (i32 i = 0; i < 2; i++) arena->give(arena->context, &other[i]);
}
END_TEST

/* 320,000 and 640,000 bytes are blocks of 512 KiB and 1 MiB, and the arena has 1 MiB: no
 * later time is better. */
START_TEST(what_never_fits_is_not_to_be_tried_again)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    const struct rig_run *run = start_two(calls[0], calls[1]);
    say_sizes(run, 0, 40000);
    ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    say_sizes(run, 1, 100);
    ck_assert_int_eq(expect_places(run, 1)->refused, 0);
    end_refused(run, 0);
    struct rig_answer *answer = rig_expect(calls[0], VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(answer->why.text,
                         "and arena_bytes is 1048576: send fewer voxels, "
                         "or ask for fewer outputs"),
                  "%s", answer->why.text);
    ck_assert_ptr_null(strstr(answer->why.text, "try again"));
    rig_expect(calls[1], VX_CODE_OK);
}
END_TEST

/* 4.8 GB are told before anything is computed or counted as an answer. */
START_TEST(what_no_message_can_have_is_refused)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    const struct rig_run *run = start_two(calls[0], calls[1]);
    say_sizes(run, 0, 200000000);
    ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    say_sizes(run, 1, 100);
    ck_assert_int_eq(expect_places(run, 1)->refused, 0);
    end_refused(run, 0);
    struct rig_answer *answer = rig_expect(calls[0], VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(answer->why.text,
                         "bytes exceeds gRPC's byte size limit of 2147483647: "
                         "send fewer voxels, or ask for fewer outputs"),
                  "%s", answer->why.text);
    rig_expect(calls[1], VX_CODE_OK);
}
END_TEST

/* A region of 160 bytes holds 20 rows of "far", and 21 not. */
START_TEST(a_region_is_large_enough_or_fails_alone)
{
    char key[64];
    snprintf(key, sizeof key, "/vx-infer-sizes-%d", (int)getpid());
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
    const struct vx_request_region piece = {.name = "r", .offset = 64, .bytes = 160};
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    calls[0]->request.outputs_count = 1;
    snprintf(calls[0]->request.outputs[0], VX_WIRE_NAME_BYTES, "far");
    struct vx_place *held = &calls[0]->outputs_held[0];
    ck_assert(!vx_regions_use(infer->regions, &peer, &piece, &why, held).fault);
    const i32 region = held->region;
    const struct rig_run *run = start_two(calls[0], calls[1]);
    ck_assert_int_eq(run->run.items[0].outputs[FAR].kind, VX_PLACE_NONE);
    say_sizes(run, 0, _i ? 21 : 20);
    const struct vx_places_item *places = expect_places(run, 0);
    ck_assert_int_eq(places->refused, _i);
    ck_assert_int_eq(places->outputs[FAR].region, _i ? 0 : region);
    if (!_i) ck_assert_uint_eq(places->outputs[FAR].offset, 64);
    say_sizes(run, 1, 3);
    if (_i) {
        end_refused(run, 0);
        ck_assert_str_eq(rig_expect(calls[0], VX_CODE_INTERNAL)->why.text,
                         "shared memory size specified with the request for output "
                         "'far' (160 bytes) should be at least 168 bytes to hold the "
                         "results");
    } else {
        rig_done(run);
        rig_end(run);
        ck_assert_int_eq(rig_expect(calls[0], VX_CODE_OK)->reply.outputs[0].shape[0], 20);
    }
    rig_expect(calls[1], VX_CODE_OK);
    ck_assert_int_eq(held->region, 0); /* given back */
}
END_TEST

/* The client leaves before the worker asks, or when the places are there. */
START_TEST(a_client_that_leaves_loses_nothing)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    const struct rig_run *run = start_two(calls[0], calls[1]);
    if (!_i) vx_infer_on_gone(infer, calls[0]);
    say_sizes(run, 0, 9);
    ck_assert_int_eq(expect_places(run, 0)->refused, !_i);
    if (_i) vx_infer_on_gone(infer, calls[0]);
    say_sizes(run, 1, 9);
    rig_done(run);
    if (!_i) rig_said.items[0].code = VX_CODE_CANCELLED;
    rig_end(run);
    rig_expect(calls[0], VX_CODE_CANCELLED);
    rig_expect(calls[1], VX_CODE_OK);
}
END_TEST

/* A worker dies before it asks, after it was told, or after a refusal: the places come
 * back, and the next worker asks again. */
START_TEST(a_batch_that_runs_again_asks_again)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    const u64 before = rig_used();
    if (_i == 1) say_sizes(run, 0, 500);
    if (_i == 2) say_sizes(run, 0, 100000);
    if (_i == 2) ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    rig_restart(run->worker);
    ck_assert_uint_eq(rig_used(), before);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 2);
    struct rig_run *again = &rig.runs[1];
    ck_assert_uint_eq(again->run.items[0].asks, ASKS);
    ck_assert_int_eq(again->run.items[0].outputs[FAR].kind, VX_PLACE_NONE);
    say_sizes(run, 0, 900); /* the dead worker's: too late */
    say_sizes(again, 0, 30);
    ck_assert_int_eq(rig.killed, 0);
    ck_assert_int_eq(expect_places(again, 0)->refused, 0);
    rig_done(again);
    rig_end(again);
    ck_assert_int_eq(rig_expect(call, VX_CODE_OK)->reply.outputs[FAR].shape[0], 30);
}
END_TEST

/* Its places are counted for its connection once, and cost its client once; so does what runs
 * again elsewhere, since a worker that has asked says that it does not know the geometry. */
START_TEST(what_runs_again_is_counted_once)
{
    if (_i) rig_kept((struct vx_coords_ref){42, 0}, 0);
    if (_i) rig_kept((struct vx_coords_ref){42, 0}, 1);
    struct vx_call *call = _i ? rig_call_named(0, 10, 42) : rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    const i64 before = rig.counted[0];
    say_sizes(run, 0, 700); /* 5,600 and 11,200 bytes */
    ck_assert_int_eq(rig.counted[0], before + 8192 + 16384);
    if (_i) {
        rig_done(run);
        rig_said.items[0].code = VX_CODE_FAILED_PRECONDITION;
        rig_end(run);
    } else {
        rig_restart(run->worker);
    }
    ck_assert_int_eq(rig.counted[0], before);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 2);
    ck_assert_int_eq(rig.runs[1].run.items[0].outputs[FAR].kind, VX_PLACE_NONE);
    say_sizes(&rig.runs[1], 0, 900); /* 7,200 and 14,400 bytes */
    ck_assert_int_eq(rig.killed, 0);
    ck_assert_int_eq(expect_places(&rig.runs[1], 0)->refused, 0);
    ck_assert_int_eq(rig.counted[0], before + 8192 + 16384);
    struct vx_call *next = rig_call(1, 10); /* pays for 21,600 bytes, 2,048 as a voxel */
    vx_infer_on_call(infer, next);
    ck_assert_uint_eq(next->job.turn,
                      call->job.turn + 10 + 32 + (u64)next->job.set_voxels);
    vx_infer_on_gone(infer, next);
    rig_done(&rig.runs[1]);
    rig_end(&rig.runs[1]);
    rig_expect(call, VX_CODE_OK);
}
END_TEST

/* Beyond its connection's share of the arena a request fails alone, and nothing of it stays
 * counted. */
START_TEST(what_is_beyond_the_share_fails_alone)
{
    struct vx_call *calls[2] = {rig_call(0, 10), rig_call(1, 10)};
    const struct rig_run *run = start_two(calls[0], calls[1]);
    const i64 before = rig.counted[0];
    const u64 used = rig_used();
    rig.beyond = true;
    say_sizes(run, 0, 700);
    rig.beyond = false;
    ck_assert_int_eq(expect_places(run, 0)->refused, 1);
    ck_assert_int_eq(rig.counted[0], before);
    ck_assert_uint_eq(rig_used(), used);
    say_sizes(run, 1, 700);
    ck_assert_int_eq(expect_places(run, 1)->refused, 0);
    end_refused(run, 0);
    const struct rig_answer *answer = rig_expect(calls[0], VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(answer->why.text,
                                 "no room for 24576 bytes of outputs: that "
                                 "exceeds the share"));
    rig_expect(calls[1], VX_CODE_OK);
}
END_TEST

/* It is about to end, and does not hear where the places are: they come back with it. */
START_TEST(a_worker_that_does_not_hear_costs_nothing)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    const u64 before = rig_used();
    rig.deaf = true;
    say_sizes(run, 0, 500);
    rig.deaf = false;
    rig_restart(run->worker);
    ck_assert_uint_eq(rig_used(), before);
}
END_TEST

/* A worker asks twice, for an item that the batch does not have, or for one that wants
 * nothing: it is killed, and its requests run again. */
START_TEST(who_asks_for_what_nobody_wants_is_killed)
{
    struct vx_call *call = rig_call(0, 10);
    if (_i == 2) {
        call->request.outputs_count = 1;
        snprintf(call->request.outputs[0], VX_WIRE_NAME_BYTES, "score");
    }
    struct rig_run *run = rig_start(call);
    if (_i == 0) say_sizes(run, 0, 5);
    ck_assert_int_eq(rig.killed, 0);
    const i32 said = rig.places_count;
    say_sizes(run, _i == 1 ? 1 : 0, 5);
    ck_assert_int_eq(rig.killed, 1 << run->worker);
    ck_assert_int_eq(rig.places_count, said);
    ck_assert_int_eq(rig.answers_count, 0);
}
END_TEST

/* A worker that has not asked cannot have written the outputs. */
START_TEST(an_answer_without_a_question_is_none)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    rig_done(run);
    rig_end(run);
    rig_expect(call, VX_CODE_INTERNAL);
}
END_TEST

/* What failed by itself never asked, or asked before. */
START_TEST(what_fails_by_itself_says_why)
{
    struct vx_call *call = rig_call(0, 10);
    struct rig_run *run = rig_start(call);
    if (_i) say_sizes(run, 0, 50);
    rig_done(run);
    rig_said.items[0].code = VX_CODE_INVALID_ARGUMENT;
    vx_done_add_why(&rig_said, 0, "duplicate voxel");
    rig_end(run);
    ck_assert_str_eq(rig_expect(call, VX_CODE_INVALID_ARGUMENT)->why.text,
                     "duplicate voxel");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_sizes");
    TCase *tcase = tcase_create("infer_sizes");
    tcase_add_checked_fixture(tcase, sizes_set_up, rig_tear_down);
    tcase_add_test(tcase, places_are_taken_when_they_are_asked_for);
    tcase_add_loop_test(tcase, no_rows_are_an_answer, 0, 2);
    tcase_add_loop_test(tcase, unwanted_outputs_are_not_asked_for, 0, 2);
    tcase_add_test(tcase, what_finds_no_room_fails_alone);
    tcase_add_test(tcase, what_never_fits_is_not_to_be_tried_again);
    tcase_add_test(tcase, what_no_message_can_have_is_refused);
    tcase_add_loop_test(tcase, a_region_is_large_enough_or_fails_alone, 0, 2);
    tcase_add_loop_test(tcase, a_client_that_leaves_loses_nothing, 0, 2);
    tcase_add_loop_test(tcase, a_batch_that_runs_again_asks_again, 0, 3);
    tcase_add_loop_test(tcase, what_runs_again_is_counted_once, 0, 2);
    tcase_add_test(tcase, what_is_beyond_the_share_fails_alone);
    tcase_add_test(tcase, a_worker_that_does_not_hear_costs_nothing);
    tcase_add_loop_test(tcase, who_asks_for_what_nobody_wants_is_killed, 0, 3);
    tcase_add_test(tcase, an_answer_without_a_question_is_none);
    tcase_add_loop_test(tcase, what_fails_by_itself_says_why, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
