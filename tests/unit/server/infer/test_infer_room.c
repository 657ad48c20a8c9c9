/* infer: a request that leaves a full queue for one of an address with fewer there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/infer/infer_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct vx_infer *const infer = &rig.infer;

enum { HEAVY = 1, OTHER, NEWCOMER };
#define FULL 4

/* One worker, which does not have the model yet. */
static void room_open(i32 queue_max)
{
    vx_sched_close(&infer->sched);
    rig.config.queue_max = queue_max;
    ck_assert(!vx_sched_open(queue_max, &infer->sched).fault);
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, true);
    vx_sched_worker_up(infer->sched, 0);
}

static struct vx_call *call_from(i32 i, u16 origin)
{
    struct vx_call *call = rig_call(i, 10);
    call->peer.origin = origin;
    call->peer.connection = 1 + (u64)i;
    return call;
}

/* Three of one address and one of another. */
static void room_fill(void)
{
    for (i32 i = 0; i < FULL; i++)
        vx_infer_on_call(infer, call_from(i, i < FULL - 1 ? HEAVY : OTHER));
    ck_assert_int_eq(rig.answers_count, 0);
    ck_assert_int_eq(vx_sched_queued(infer->sched), FULL);
}

/* The worker runs a request alone, and is known to need 200 ms for one: all others wait. */
static void keep_busy(void)
{
    struct vx_batching *batching = &rig_signature()->batching;
    batching->requests_max = 1;
    batching->policies[0].allow_timeout_override = true;
    vx_sched_instance_set(infer->sched, 0, batching, false);
    vx_sched_instance_ready(infer->sched, 0, 0, true);
    for (i32 i = 0; i < 12; i++) {
        struct rig_run *run = rig_start(rig_call(0, 10));
        rig_done(run);
        rig_said.device_ns = 200 * VX_NS_PER_MS;
        rig_end(run);
        rig.runs_count = rig.answers_count = 0;
    }
    rig_start(rig_call(RIG_CALLS - 1, 10));
}

/* It is told, and counted, what it would have been if the queue had been full when it came. */
START_TEST(who_makes_room_is_refused_as_by_a_full_queue)
{
    struct vx_instance_stats *stats = vx_registry_row(infer->registry, 0)->stats;
    room_open(FULL);
    room_fill();
    struct vx_call *few = call_from(4, NEWCOMER), *more = call_from(5, HEAVY);
    vx_infer_on_call(infer, few);
    ck_assert_ptr_null(rig_answer_of(few));
    ck_assert_int_eq(rig.answers_count, 1);
    vx_infer_on_call(infer, more);
    const struct rig_answer *left = rig_expect(&rig.calls[FULL - 2], VX_CODE_UNAVAILABLE),
                            *refused = rig_expect(more, VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(
        left->why.text,
        "Exceeds maximum queue size: 4 requests are already waiting; try again later");
    ck_assert_str_eq(left->why.text, refused->why.text);
    ck_assert_uint_eq(stats->rejected, 2);
    ck_assert_uint_eq(infer->metrics->refused_late, 0);
    ck_assert_int_eq(vx_sched_queued(infer->sched), FULL);
}
END_TEST

/* _i: gRPC's deadline, or the parameter `timeout`: that has Triton's code of a full queue, and is
 * late all the same. */
START_TEST(nobody_makes_room_for_who_comes_too_late)
{
    room_open(FULL);
    keep_busy();
    room_fill();
    struct vx_call *late = call_from(4, NEWCOMER);
    if (_i)
        late->request.timeout_us = 1;
    else
        late->deadline_ns = vx_clock_ns() + 100 * VX_NS_PER_MS;
    vx_infer_on_call(infer, late);
    const struct rig_answer *answer =
        rig_expect(late, _i ? VX_CODE_UNAVAILABLE : VX_CODE_DEADLINE_EXCEEDED);
    ck_assert_ptr_nonnull(
        strstr(answer->why.text,
               _i ? "Request timeout expired: the expected" : "cannot be met"));
    ck_assert_ptr_null(strstr(answer->why.text, "try again"));
    ck_assert_int_eq(rig.answers_count, 1);
    ck_assert_int_eq(vx_sched_queued(infer->sched), FULL);
    ck_assert_uint_eq(infer->metrics->refused_late, 1);
    late = call_from(5, NEWCOMER); /* with all the time there is, it gets a place */
    vx_infer_on_call(infer, late);
    ck_assert_ptr_null(rig_answer_of(late));
    rig_expect(&rig.calls[FULL - 2], VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(rig.runs_count, 1);
}
END_TEST

/* A model's limit that only looks reached: the requests of this iteration are sent first. */
START_TEST(a_model_that_only_looks_full_is_emptied_first)
{
    room_open(512);
    rig_signature()->batching.policies[0].max_queue_size = FULL;
    vx_sched_instance_set(infer->sched, 0, &rig_signature()->batching, false);
    vx_sched_instance_ready(infer->sched, 0, 0, true);
    room_fill();
    vx_infer_on_call(infer, call_from(4, NEWCOMER));
    ck_assert_int_eq(rig.answers_count, 0);
    ck_assert_int_eq(rig.runs_count, 1);
    ck_assert_int_eq(rig.runs[0].run.items_count, FULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_room");
    TCase *room = tcase_create("room");
    tcase_add_checked_fixture(room, rig_set_up, rig_tear_down);
    tcase_add_test(room, who_makes_room_is_refused_as_by_a_full_queue);
    tcase_add_loop_test(room, nobody_makes_room_for_who_comes_too_late, 0, 2);
    tcase_add_test(room, a_model_that_only_looks_full_is_emptied_first);
    suite_add_tcase(suite, room);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
