/* Models and their states.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/models/models_rig.h"

#include "engine/base/process/log.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(ready_when_every_worker_that_is_up_has_it)
{
    rig_list(1, 10);
    ck_assert_int_eq(rig_told_count, 0); /* no worker is up */
    rig_worker_up(0);
    rig_worker_up(1);
    i32 instance = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_picked("m", 0), instance);
}
END_TEST

START_TEST(a_worker_that_dies_before_answering_does_not_hold_readiness_back)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    rig_worker_down(1);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
}
END_TEST

START_TEST(a_changed_version_takes_over_in_one_step)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 old = rig_answer(0, VX_CODE_OK);
    rig_list(1, 11);
    ck_assert_int_eq(rig_picked("m", 0), old);
    i32 new = rig_answer(0, VX_CODE_OK);
    ck_assert_int_ne(new, old);
    ck_assert_int_eq(rig_picked("m", 0), new);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(old), VX_INSTANCE_FREE);
    ck_assert_int_eq(rig_told[rig_told_count - 1].kind, VX_MESSAGE_UNLOAD);
    ck_assert_int_eq(rig_told[rig_told_count - 1].instance, old);
}
END_TEST

START_TEST(a_failed_change_leaves_the_old_one_and_mending_it_is_seen)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 old = rig_answer(0, VX_CODE_OK);
    rig_list(1, 11);
    i32 bad = rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(rig_state(bad), VX_INSTANCE_UNAVAILABLE);
    ck_assert_str_eq(vx_registry_row(rig_registry, bad)->reason, "the reason");
    ck_assert_int_eq(rig_picked("m", 0), old);
    rig_list(1, 11); /* the files are the same, but a cause may be gone: retried */
    bad = rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(rig_picked("m", 0), old);
    rig_list(1, 12);
    i32 mended = rig_answer(0, VX_CODE_OK);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_picked("m", 0), mended);
    ck_assert_int_eq(rig_state(old), VX_INSTANCE_FREE);
    ck_assert_int_eq(rig_state(bad), VX_INSTANCE_FREE);
}
END_TEST

/* Neither a load that failed nor one that is taken back: a person who waits for the line
 * would take it for the end of a version that served. */
START_TEST(only_what_was_ready_is_logged_as_unloaded)
{
    u64 before = vx_log_count(VX_EVENT_MODEL_UNLOADED);
    rig_worker_up(0);
    rig_list(1, 10);
    rig_answer(0, VX_CODE_DATA_LOSS); /* half of its files */
    rig_list(1, 11);
    vx_models_step(rig_models);
    rig_list(1, 12); /* while it loads */
    rig_answer(0, VX_CODE_OK);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(rig_answer(0, VX_CODE_OK)), VX_INSTANCE_READY);
    vx_models_step(rig_models);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_UNLOADED), before);
    rig_list(1, 13);
    rig_answer(0, VX_CODE_DATA_LOSS);
    rig_list(0, 0);
    for (int i = 0; i < 2; i++) vx_models_step(rig_models);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_UNLOADED), before + 1);
}
END_TEST

START_TEST(a_version_that_is_gone_is_unloaded_after_its_last_job)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    rig_list(0, 0);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_picked("m", 0), -1);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_UNLOADING);
    struct vx_batch_plan plan;
    ck_assert(vx_sched_pick(rig_sched, 0, &plan)); /* admitted requests still run */
    const struct vx_batch_end end = {.batch = plan.batch};
    ck_assert(vx_sched_finish(rig_sched, &end, &plan));
    ck_assert_int_gt(rig_most, 0);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_FREE);
    ck_assert_int_eq(rig_most, 0);
}
END_TEST

START_TEST(a_death_without_a_load_under_way_counts_against_nobody)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    for (int death = 0; death < 10; death++) {
        rig_worker_down(0);
        rig_worker_up(0);
        rig_answer(0, VX_CODE_OK);
    }
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_lost, 0);
}
END_TEST

/* The workers that have a model or will have it: not one that refused it, while it is
 * up, nor one that died of it several times; and no job waits for such a worker. */
START_TEST(a_worker_that_will_not_have_it_is_not_waited_for)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 3); /* 1 may come up */
    rig_worker_up(1);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 3);
    struct vx_job bound = {.instance = instance, .deadline_ns = VX_NEVER, .only = 2},
                  other = {.instance = instance, .deadline_ns = VX_NEVER, .only = 3};
    struct vx_why why = {""};
    ck_assert(!vx_sched_submit(rig_sched, &bound, 0, NULL, &why).fault);
    ck_assert(!vx_sched_submit(rig_sched, &other, 0, NULL, &why).fault);
    rig_answer(1, VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 1);
    ck_assert_int_eq(rig_lost, 1);
    ck_assert_int_eq(bound.state, VX_JOB_NEW);
    ck_assert_int_eq(other.state, VX_JOB_QUEUED);
    rig_worker_down(1);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 3); /* it is asked again */
    for (int death = 0; death < 3; death++) {
        ck_assert_uint_eq(vx_models_workers(rig_models, instance), 3);
        rig_worker_up(1);
        rig_later(60 * VX_NS_PER_S);
        rig_worker_down(1);
    }
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 1);
    ck_assert(vx_sched_cancel(rig_sched, &other));
}
END_TEST

/* Worker processes that end before they have opened their device. */
START_TEST(a_worker_that_cannot_open_its_device_is_not_waited_for)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job bound = {.instance = instance, .deadline_ns = VX_NEVER, .only = 2};
    struct vx_why why = {""};
    ck_assert(!vx_sched_submit(rig_sched, &bound, 0, NULL, &why).fault);
    for (i32 failures = 1; failures <= 3; failures++) {
        rig_infos[1].open_failures = failures;
        vx_models_on_worker_down(rig_models, 1);
        ck_assert_int_eq(rig_lost, failures == 3);
        ck_assert_uint_eq(vx_models_workers(rig_models, instance), failures == 3 ? 1 : 3);
    }
    ck_assert_int_eq(bound.state, VX_JOB_NEW);
}
END_TEST

START_TEST(a_load_that_every_worker_refuses_is_said_once)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_DATA_LOSS);
    rig_answer(1, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_FAILED), 1);
}
END_TEST

/* One line for the device that refuses while another may have it, one when none may. */
START_TEST(a_load_that_every_device_refuses_fails_with_the_last)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_FAILED), 1);
    rig_answer(1, VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_str_eq(vx_registry_row(rig_registry, instance)->reason, "the reason");
    ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_FAILED), 2);
}
END_TEST

/* Both orders of the answers, and a worker that comes up after the refusal. */
START_TEST(a_device_that_refuses_does_not_decide_for_the_others)
{
    rig_worker_up(0);
    if (_i < 2) rig_worker_up(1);
    rig_list(1, 10);
    i32 first = _i == 1;
    i32 instance = rig_answer(first, _i == 1 ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    if (_i == 2) rig_worker_up(1);
    rig_answer(!first, _i == 1 ? VX_CODE_UNAVAILABLE : VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_picked("m", 0), instance);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 2);
    rig_worker_down(1); /* the one that has it: it is asked again */
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    rig_worker_up(1);
    rig_answer(1, VX_CODE_UNAVAILABLE); /* what it had: requests wait for the next try */
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_uint_eq(vx_models_workers(rig_models, instance), 2);
}
END_TEST

/* The worker that refused is up, and the other will not come. */
START_TEST(a_refused_load_fails_when_the_last_other_worker_is_given_up)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_UNAVAILABLE);
    for (i32 failures = 1; failures <= 3; failures++) {
        ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
        rig_infos[1].open_failures = failures;
        vx_models_on_worker_down(rig_models, 1);
    }
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_str_eq(vx_registry_row(rig_registry, instance)->reason, "the reason");
}
END_TEST

START_TEST(a_change_that_one_worker_refuses_leaves_the_old_one)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    i32 old = rig_answer(0, VX_CODE_OK);
    rig_answer(1, VX_CODE_OK);
    rig_list(1, 11);
    i32 bad = rig_answer(1, VX_CODE_RESOURCE_EXHAUSTED);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(bad), VX_INSTANCE_UNAVAILABLE);
    ck_assert_int_eq(rig_state(old), VX_INSTANCE_READY);
    ck_assert_int_eq(rig_picked("m", 0), old);
}
END_TEST

START_TEST(a_load_that_could_not_be_sent_is_no_suspect)
{
    rig_list(1, 10);
    i32 instance = 0;
    rig_refuses = true;
    for (int death = 0; death < 5; death++) {
        rig_worker_up(0);
        rig_worker_down(0);
        vx_models_step(rig_models);
    }
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_LOADING);
    rig_refuses = false;
    rig_worker_up(0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
}
END_TEST

START_TEST(an_incomplete_listing_takes_nothing_away)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    static const struct vx_repository_listing partial = {
        .readable = true, .unread_count = VX_REPOSITORY_UNREAD_MAX + 1};
    vx_models_on_listing(rig_models, &partial);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_picked("m", 0), instance);
}
END_TEST

START_TEST(a_row_on_its_way_out_does_not_come_back_as_unavailable)
{
    rig_worker_up(0);
    rig_list(1, 10);
    rig_list(0, 0); /* removed before it was loaded */
    i32 instance = rig_answer(0, VX_CODE_DATA_LOSS);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(a_job_of_a_row_on_its_way_out_is_answered_when_it_cannot_be_loaded_again)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    rig_list(0, 0);
    rig_worker_down(0);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_lost, 0); /* the restarted worker may run it */
    rig_worker_up(0);
    rig_answer(0, VX_CODE_NOT_FOUND);
    ck_assert_int_eq(rig_lost, 1);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(files_that_changed_under_a_restart_do_not_take_the_old_models_requests)
{
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    rig_worker_down(0);
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    rig_channels = 5; /* the new model was written, no SIGHUP sent */
    rig_worker_up(0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_lost, 1);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_int_eq(rig_told[rig_told_count - 1].kind, VX_MESSAGE_UNLOAD);
    rig_list(1, 11);
    ck_assert_int_eq(rig_state(rig_answer(0, VX_CODE_OK)), VX_INSTANCE_READY);
}
END_TEST

static enum vx_bound row_bound(i32 instance)
{
    return vx_registry_row(rig_registry, instance)->signature.voxels_bound;
}

/* A CPU beside a GPU, or a GPU whose tuning table changed: different limits do not
 * make a different model. */
START_TEST(workers_on_which_less_fits_serve_too)
{
    rig_voxels[0] = 5000;
    rig_bound[0] = VX_BOUND_DEVICE_BYTES;
    rig_bound[1] = VX_BOUND_CACHE_BYTES;
    rig_voxels[1] = 3000;
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(vx_registry_row(rig_registry, instance)->signature.voxels_max, 5000);
    ck_assert_int_eq(row_bound(instance), VX_BOUND_DEVICE_BYTES);
    ck_assert_int_eq(rig_most, 5000);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(vx_registry_row(rig_registry, instance)->workers_loaded, 3);
    ck_assert_int_eq(vx_registry_row(rig_registry, instance)->signature.voxels_max, 3000);
    ck_assert_int_eq(row_bound(instance), VX_BOUND_CACHE_BYTES);
    ck_assert_int_eq(rig_most, 3000);
    /* Both die; when one comes back, its limits alone count. */
    rig_worker_down(0);
    rig_worker_down(1);
    rig_voxels[0] = 4000;
    rig_worker_up(0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(vx_registry_row(rig_registry, instance)->signature.voxels_max, 4000);
    memset(rig_voxels, 0, sizeof rig_voxels);
    memset(rig_bound, 0, sizeof rig_bound);
}
END_TEST

START_TEST(words_about_a_row_since_freed_are_ignored)
{
    rig_worker_up(0);
    rig_list(1, 10);
    static union vx_message late;
    late.loaded = (struct vx_message_loaded){.head = rig_told[0]};
    late.head.kind = VX_MESSAGE_LOADED;
    rig_worker_down(0);
    rig_list(0, 0);
    vx_models_step(rig_models);
    rig_worker_up(0);
    vx_models_on_message(rig_models, 0, &late);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_picked("m", 0), -1);
    ck_assert_int_eq(rig_state(late.head.instance), VX_INSTANCE_FREE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models");
    TCase *tcase = tcase_create("states");
    tcase_add_checked_fixture(tcase, rig_set_up, rig_tear_down);
    tcase_add_test(tcase, ready_when_every_worker_that_is_up_has_it);
    tcase_add_test(tcase,
                   a_worker_that_dies_before_answering_does_not_hold_readiness_back);
    tcase_add_test(tcase, a_changed_version_takes_over_in_one_step);
    tcase_add_test(tcase, a_failed_change_leaves_the_old_one_and_mending_it_is_seen);
    tcase_add_test(tcase, only_what_was_ready_is_logged_as_unloaded);
    tcase_add_test(tcase, a_version_that_is_gone_is_unloaded_after_its_last_job);
    tcase_add_test(tcase, a_worker_that_will_not_have_it_is_not_waited_for);
    tcase_add_test(tcase, a_worker_that_cannot_open_its_device_is_not_waited_for);
    tcase_add_test(tcase, a_load_that_every_worker_refuses_is_said_once);
    tcase_add_test(tcase, a_load_that_every_device_refuses_fails_with_the_last);
    tcase_add_loop_test(tcase, a_device_that_refuses_does_not_decide_for_the_others, 0,
                        3);
    tcase_add_test(tcase, a_refused_load_fails_when_the_last_other_worker_is_given_up);
    tcase_add_test(tcase, a_change_that_one_worker_refuses_leaves_the_old_one);
    tcase_add_test(tcase, a_load_that_could_not_be_sent_is_no_suspect);
    tcase_add_test(tcase, a_death_without_a_load_under_way_counts_against_nobody);
    tcase_add_test(
        tcase, files_that_changed_under_a_restart_do_not_take_the_old_models_requests);
    tcase_add_test(tcase, an_incomplete_listing_takes_nothing_away);
    tcase_add_test(tcase, a_row_on_its_way_out_does_not_come_back_as_unavailable);
    tcase_add_test(
        tcase, a_job_of_a_row_on_its_way_out_is_answered_when_it_cannot_be_loaded_again);
    tcase_add_test(tcase, workers_on_which_less_fits_serve_too);
    tcase_add_test(tcase, words_about_a_row_since_freed_are_ignored);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
