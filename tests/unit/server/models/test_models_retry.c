/* Models while workers die during their loads, or take long over them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "tests/unit/server/models/models_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, you; /* two waiters */

static void list_all(bool quiet)
{
    rig_list_begin();
    rig_list_add("a", 1, 10);
    rig_list_add("b", 1, 10);
    rig_list_give(quiet);
}

/* While "a" warms up, "b" is read, warmed up and served. */
START_TEST(a_long_warm_up_holds_up_no_other_model)
{
    list_all(false);
    rig_worker_up(0); /* "a" is loaded first */
    ck_assert_int_eq(rig_loads_told(0), 1);
    rig_made(0);
    ck_assert_int_eq(rig_loads_told(0), 2);
    i32 b = rig_answer(0, VX_CODE_OK);
    ck_assert_str_eq(vx_registry_row(rig_registry, b)->name, "b");
    ck_assert_int_eq(rig_state(b), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_LOADING);
    ck_assert_str_eq(vx_registry_row(rig_registry, 0)->reason, "warming up");
}
END_TEST

/* Workers that end with the server have not died of a model. */
START_TEST(nobody_is_blamed_when_all_end)
{
    const u64 before = vx_log_count(VX_EVENT_MODEL_RETRY);
    list_all(false);
    rig_worker_up(0);
    vx_models_stop(rig_models);
    rig_worker_down(0);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_RETRY), before);
}
END_TEST

START_TEST(the_model_that_was_loading_is_blamed_and_no_other)
{
    list_all(false);
    rig_worker_up(0); /* "a" is loaded first */
    rig_worker_down(0);
    rig_worker_up(0);
    i32 other = rig_answer(0, VX_CODE_OK); /* then "b", then the others */
    ck_assert_str_eq(vx_registry_row(rig_registry, other)->name, "b");
    ck_assert_int_eq(rig_state(other), VX_INSTANCE_READY);
    rig_answer_all(0);
    i32 said = rig_told_count;
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_LOADING);
    rig_later(250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_told_count, said + 1);
    ck_assert_int_eq(rig_told[said].instance, 0);
}
END_TEST

/* Both workers load "m"; notes are logged once, so only one LOAD asks for them. */
START_TEST(notes_are_asked_for_until_a_worker_has_said_them)
{
    rig_list(1, 10);
    rig_worker_up(0);
    rig_worker_up(1);
    ck_assert_int_eq(rig_notes_asked[0], 1);
    ck_assert_int_eq(rig_notes_asked[1], 0);
    rig_worker_down(0); /* perhaps before it read them */
    rig_worker_up(0);
    rig_later(250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_notes_asked[0], 2);
    rig_answer(0, VX_CODE_OK);
    rig_answer(1, VX_CODE_OK);
    rig_worker_down(0);
    rig_worker_up(0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_notes_asked[0], 2);
    rig_list(1, 11); /* other files */
    ck_assert_int_eq(rig_notes_asked[0], 3);
    ck_assert_int_eq(rig_notes_asked[1], 0);
}
END_TEST

/* Two loads were on the worker that died: each is tried alone, so that the next death
 * names its cause; but one that takes long does not delay the other for ever. */
START_TEST(suspects_are_loaded_one_by_one)
{
    rig_list_begin();
    rig_list_add("a", 1, 10);
    rig_list_add("b", 1, 10);
    rig_list_give(false);
    rig_worker_up(0);
    rig_made(0);
    rig_made(0); /* both warm up */
    rig_worker_down(0);
    rig_worker_up(0);
    ck_assert_int_eq(rig_loads_told(0), 2);
    rig_later(250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_loads_told(0), 3);
    rig_made(0);
    rig_later(9 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), 3);
    rig_later(1 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), 4);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(rig_told[3].instance), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_state(rig_told[2].instance), VX_INSTANCE_LOADING);
}
END_TEST

/* Workers die of the load: the client that asked for it gets an error, and the retries
 * go on. */
START_TEST(a_load_that_workers_die_of_ends_for_who_asked)
{
    rig_start("explicit", "");
    rig_worker_up(0);
    ck_assert(!vx_models_ask_load(rig_models, "a", &me, NULL).fault);
    list_all(true);
    for (int death = 1; death <= 3; death++) {
        ck_assert_ptr_null(rig_ended);
        rig_later(60 * VX_NS_PER_S);
        ck_assert_int_eq(rig_loads_told(0), death);
        rig_worker_down(0);
        rig_worker_up(0);
        vx_models_step(rig_models);
    }
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(
        rig_ended_why,
        "load failed for model 'a': version 1 is at LOADING state: worker 0 died 3 times "
        "in a row while it loaded this model: the next try is 1 s after the last death");
    rig_ended = NULL;
    ck_assert(!vx_models_ask_load(rig_models, "a", &you, NULL).fault);
    list_all(true); /* a client asks: no pause, no deaths counted */
    ck_assert_int_eq(rig_loads_told(0), 4);
    rig_answer(0, VX_CODE_OK);
    ck_assert_ptr_eq(rig_ended, &you);
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
}
END_TEST

/* Whatever kills the worker, the load is retried for ever, after a longer pause each
 * time. */
START_TEST(a_load_that_workers_die_of_is_tried_again_later_each_time)
{
    static const i64 pauses_ms[] = {250,   500,   1000,  2000,  4000, 8000,
                                    16000, 32000, 60000, 60000, 60000};
    rig_list(1, 10);
    rig_worker_up(0);
    for (int death = 0; death < (int)VX_COUNT(pauses_ms); death++) {
        i32 told = rig_loads_told(0);
        ck_assert_int_eq(told, death + 1);
        rig_worker_down(0);
        rig_worker_up(0);
        rig_later((pauses_ms[death] - 1) * VX_NS_PER_MS);
        ck_assert_int_eq(rig_loads_told(0), told);
        rig_later(51 * VX_NS_PER_MS); /* the models are checked every 50 ms */
        ck_assert_int_eq(rig_loads_told(0), told + 1);
    }
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_LOADING);
    ck_assert_str_eq(vx_registry_row(rig_registry, 0)->reason,
                     "worker 0 died 11 times in a row while it loaded this model: the "
                     "next try is 60 s after the last death");
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_RETRY), VX_COUNT(pauses_ms));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_FAILED), 0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
    rig_worker_down(0); /* a load that succeeded resets the pauses */
    rig_worker_up(0);
    ck_assert_int_eq(rig_loads_told(0), (int)VX_COUNT(pauses_ms) + 2);
    rig_worker_down(0);
    rig_worker_up(0);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY); /* it waits for its worker */
    rig_later(250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_loads_told(0), (int)VX_COUNT(pauses_ms) + 3);
}
END_TEST

/* A model that served and cannot be loaded again: its requests do not wait for an
 * unknown time. */
START_TEST(a_model_that_cannot_come_back_refuses_and_comes_back)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    rig_worker_down(0);
    for (int death = 1; death <= 3; death++) {
        ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
        ck_assert_int_eq(rig_lost, 0);
        rig_worker_up(0);
        rig_later(60 * VX_NS_PER_S);
        rig_worker_down(0);
    }
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    ck_assert_int_eq(rig_lost, 1);
    rig_worker_up(0);
    rig_later(60 * VX_NS_PER_S);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_picked("m", 0), instance);
}
END_TEST

/* A load that crashes runs beside batches of the models that serve: it is identified
 * all the same, is loaded last, and costs them a restart each time. */
START_TEST(a_load_that_kills_workers_stops_no_other_model_and_loses_no_job)
{
    rig_worker_up(0);
    rig_list_begin();
    rig_list_add("good", 1, 10);
    rig_list_give(false);
    i32 good = rig_answer(0, VX_CODE_OK);
    rig_list_add("m", 1, 11);
    rig_list_give(false);
    i32 instance = rig_told[rig_told_count - 1].instance;
    ck_assert_int_ne(instance, good);
    for (int death = 0; death < 6; death++) {
        struct vx_job job = {.instance = good, .deadline_ns = INT64_MAX};
        ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
        struct vx_batch_plan plan;
        ck_assert(vx_sched_pick(rig_sched, 0, &plan));
        rig_worker_down(0);
        vx_models_step(rig_models);
        ck_assert(vx_sched_cancel(rig_sched, &job)); /* it waits for the next worker */
        rig_later(60 * VX_NS_PER_S);                 /* the suspect's pause is over */
        rig_worker_up(0);
        ck_assert_int_eq(rig_answer(0, VX_CODE_OK), good); /* what serves comes first */
        ck_assert_int_eq(rig_told[rig_told_count - 1].instance, instance);
        ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
        ck_assert_int_eq(rig_picked("good", 0), good);
    }
    ck_assert_int_eq(rig_lost, 0);
}
END_TEST

START_TEST(a_worker_that_dies_of_it_leaves_it_to_the_others)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    for (int death = 0; death < 5; death++) {
        rig_worker_up(1);
        rig_later(60 * VX_NS_PER_S);
        ck_assert_int_eq(rig_loads_told(1), death + 1);
        rig_worker_down(1);
        vx_models_step(rig_models);
        ck_assert_int_eq(rig_picked("m", 0), instance);
    }
    i32 said = rig_told_count;
    rig_worker_up(1); /* it serves other models until the pause ends */
    rig_listing.quiet = true;
    vx_models_on_listing(rig_models, &rig_listing); /* a periodic scan changes nothing */
    ck_assert_int_eq(rig_told_count, said);
    rig_list(1, 10); /* a client asks */
    ck_assert_int_eq(rig_told_count, said + 1);
    ck_assert_int_eq(rig_told_to[said], 1);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_eq(vx_registry_row(rig_registry, instance)->workers_loaded, 3);
}
END_TEST

START_TEST(a_worker_that_dies_of_a_load_does_not_condemn_it_while_another_tries)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_told[0].instance;
    for (int death = 0; death < 3; death++) {
        rig_worker_up(1);
        rig_later(60 * VX_NS_PER_S);
        rig_worker_down(1);
        vx_models_step(rig_models);
    }
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
}
END_TEST

/* A request that saw a death runs alone: not while a model is read, nor beside a
 * suspected load, which waits for it; but it runs beside a warm-up that is not
 * suspected. */
START_TEST(a_request_that_saw_a_death_does_not_wait_for_a_warm_up)
{
    rig_list_begin();
    rig_list_add("good", 1, 10);
    rig_list_add("slow", 1, 10);
    rig_list_give(false);
    rig_worker_up(0);
    i32 good = rig_answer(0, VX_CODE_OK), slow = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = good, .deadline_ns = INT64_MAX};
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    rig_worker_down(0);
    rig_worker_up(0);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), good);
    ck_assert_int_eq(rig_told[rig_told_count - 1].instance, slow);
    ck_assert(!vx_sched_pick(rig_sched, 0, &plan)); /* the slow model is read */
    rig_made(0);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan)); /* and warms up for minutes */
    rig_worker_down(0);                            /* its second death */
    ck_assert_int_eq(rig_lost, 1);

    job = (struct vx_job){.instance = good, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    rig_worker_up(0);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), good);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    rig_worker_down(0);
    rig_worker_up(0);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), good);
    i32 told = rig_loads_told(0);
    rig_later(60 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), told); /* the suspect waits for the request */
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    rig_later(60 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), told);
    const struct vx_batch_end done = {.batch = plan.batch};
    ck_assert(vx_sched_finish(rig_sched, &done, &plan));
    rig_later(60 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), told + 1);
    ck_assert_int_eq(rig_told[rig_told_count - 1].instance, slow);
}
END_TEST

/* The device refuses after a restart what it had before: it is asked again for ever, and after the
 * third time requests are refused with the reason and the process is said to be of no use. */
START_TEST(what_a_device_had_and_refuses_is_tried_again)
{
    static const enum vx_code codes[] = {VX_CODE_INTERNAL, VX_CODE_RESOURCE_EXHAUSTED,
                                         VX_CODE_UNAVAILABLE, VX_CODE_INTERNAL};
    static const i64 pauses_ms[] = {250, 500, 1000, 2000};
    rig_list(1, 10);
    rig_worker_up(0);
    const i32 m = rig_answer(0, VX_CODE_OK);
    rig_worker_down(0);
    rig_worker_up(0);
    for (i32 i = 0; i < (i32)VX_COUNT(codes); i++) {
        ck_assert_int_eq(rig_loads_told(0), 2 + i);
        rig_answer(0, codes[i]);
        ck_assert_int_eq(rig_state(m), i < 2 ? VX_INSTANCE_READY : VX_INSTANCE_LOADING);
        ck_assert_uint_eq(rig_useless, i < 2 ? 0 : 1);
        rig_later((pauses_ms[i] - 100) * VX_NS_PER_MS);
        ck_assert_int_eq(rig_loads_told(0), 2 + i);
        rig_later(100 * VX_NS_PER_MS);
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_RETRY), VX_COUNT(codes));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_FAILED), 0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(m), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_picked("m", 0), m);
    rig_worker_down(0);
    rig_worker_up(0);
    rig_answer(0, VX_CODE_INTERNAL); /* counted from the beginning */
    ck_assert_int_eq(rig_state(m), VX_INSTANCE_READY);
    rig_later(250 * VX_NS_PER_MS);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(m), VX_INSTANCE_READY);
}
END_TEST

/* What the reason says, once nothing waits any more. */
START_TEST(a_refusal_of_what_was_there_says_when_it_is_tried_again)
{
    rig_list(1, 10);
    rig_worker_up(0);
    const i32 m = rig_answer(0, VX_CODE_OK);
    rig_worker_down(0);
    rig_worker_up(0);
    for (i32 i = 0; i < 3; i++) {
        rig_answer(0, VX_CODE_INTERNAL);
        if (i < 2) rig_later(60 * VX_NS_PER_S);
    }
    const char *reason = vx_registry_row(rig_registry, m)->reason;
    static const char begins[] =
        "worker 0 could not load this model again, 3 times in a row, "
        "and tries again after 1 s: ";
    ck_assert_msg(!strncmp(reason, begins, sizeof begins - 1), "%s", reason);
}
END_TEST

/* Another worker serves it, and another model serves on this one: neither stops the retries, and
 * the process is of use. */
START_TEST(a_refusal_of_what_was_there_stops_nothing_else)
{
    list_all(false);
    rig_worker_up(0);
    rig_worker_up(1);
    rig_answer_all(0);
    rig_answer_all(1);
    rig_worker_down(0);
    rig_worker_up(0);
    const i32 refused = rig_answer(0, VX_CODE_INTERNAL);
    rig_answer_all(0); /* the other one */
    for (i32 i = 0; i < 4; i++) {
        ck_assert_int_eq(rig_state(refused), VX_INSTANCE_READY);
        rig_later(60 * VX_NS_PER_S);
        ck_assert_int_eq(rig_answer(0, VX_CODE_INTERNAL), refused);
    }
    ck_assert_uint_eq(rig_useless, 0);
    ck_assert_int_eq(rig_lost, 0);
}
END_TEST

/* Two models are refused, one after the other: the worker is ended once, and not while a load may
 * end well. */
START_TEST(a_worker_is_of_no_use_once)
{
    list_all(false);
    rig_worker_up(0);
    rig_answer_all(0);
    rig_worker_down(0);
    rig_worker_up(0);
    for (i32 i = 0; i < 12; i++) {
        rig_answer(0, VX_CODE_INTERNAL);
        rig_later(60 * VX_NS_PER_S);
    }
    ck_assert_uint_eq(rig_useless, 1); /* the rig fails at a second time */
}
END_TEST

/* A device that never had it, and files that are wrong, are not asked again. */
START_TEST(what_a_device_never_had_is_given_up)
{
    static const enum vx_code codes[] = {VX_CODE_INTERNAL, VX_CODE_INVALID_ARGUMENT};
    rig_list(1, 10);
    rig_worker_up(0);
    if (_i) {
        rig_answer(0, VX_CODE_OK);
        rig_worker_down(0);
        rig_worker_up(0);
    }
    rig_infos[1].open_failures = 3; /* no other worker will come */
    const i32 told = rig_loads_told(0), m = rig_answer(0, codes[_i]);
    rig_later(600 * VX_NS_PER_S);
    ck_assert_int_eq(rig_loads_told(0), told);
    ck_assert_int_eq(rig_state(m), VX_INSTANCE_UNAVAILABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models_retry");
    TCase *tcase = tcase_create("retry");
    tcase_add_checked_fixture(tcase, rig_set_up, rig_tear_down);
    tcase_add_test(tcase, notes_are_asked_for_until_a_worker_has_said_them);
    tcase_add_test(tcase, a_long_warm_up_holds_up_no_other_model);
    tcase_add_test(tcase, nobody_is_blamed_when_all_end);
    tcase_add_test(tcase, the_model_that_was_loading_is_blamed_and_no_other);
    tcase_add_test(tcase, suspects_are_loaded_one_by_one);
    tcase_add_test(tcase, a_load_that_workers_die_of_ends_for_who_asked);
    tcase_add_test(tcase, a_load_that_workers_die_of_is_tried_again_later_each_time);
    tcase_add_test(tcase, a_model_that_cannot_come_back_refuses_and_comes_back);
    tcase_add_test(tcase,
                   a_load_that_kills_workers_stops_no_other_model_and_loses_no_job);
    tcase_add_test(tcase, a_worker_that_dies_of_it_leaves_it_to_the_others);
    tcase_add_test(tcase,
                   a_worker_that_dies_of_a_load_does_not_condemn_it_while_another_tries);
    tcase_add_test(tcase, a_request_that_saw_a_death_does_not_wait_for_a_warm_up);
    tcase_add_test(tcase, what_a_device_had_and_refuses_is_tried_again);
    tcase_add_test(tcase, a_refusal_of_what_was_there_says_when_it_is_tried_again);
    tcase_add_test(tcase, a_refusal_of_what_was_there_stops_nothing_else);
    tcase_add_test(tcase, a_worker_is_of_no_use_once);
    tcase_add_loop_test(tcase, what_a_device_never_had_is_given_up, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
