/* A worker ends while the files of a version that serves are replaced, in every order: requests that
 * wait are served by the new files, or answered where those do not serve them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/models/models_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define OLD 10 /* fingerprints of the files */
#define NEW 11

static i32 serving; /* the instance of the old files, on worker 0 */
static struct vx_job job;

static void set_up(void)
{
    rig_set_up();
    rig_worker_up(0);
    rig_list(1, OLD);
    serving = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(serving), VX_INSTANCE_READY);
    job = (struct vx_job){.instance = serving, .deadline_ns = INT64_MAX};
}

static void submit(void)
{
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
}

/* The last message is LOAD of this instance to this worker. */
static void expect_load(i32 worker, i32 instance)
{
    ck_assert_int_gt(rig_told_count, 0);
    const struct vx_message_head *last = &rig_told[rig_told_count - 1];
    ck_assert_int_eq(last->kind, VX_MESSAGE_LOAD);
    ck_assert_int_eq(last->instance, instance);
    ck_assert_int_eq(rig_told_to[rig_told_count - 1], worker);
}

/* The worker finds other files than those that it is told to load. */
static i32 stale(i32 worker)
{
    return rig_answer(worker, VX_CODE_FAILED_PRECONDITION);
}

static void expect_runs(void)
{
    struct vx_batch_plan plan;
    ck_assert_int_eq(rig_lost, 0);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    ck_assert_int_eq(plan.jobs_count, 1);
    ck_assert_ptr_eq(plan.jobs[0], &job);
    struct vx_batch_end end = {.worker = plan.worker, .batch = plan.batch};
    ck_assert(vx_sched_finish(rig_sched, &end, &plan));
}

static i32 replacement(void)
{
    i32 last = rig_told[rig_told_count - 1].instance;
    ck_assert_int_ne(last, serving);
    return last;
}

/* rename, SIGHUP, the listing, then the death: the replacement loads already. */
START_TEST(a_death_while_the_replacement_loads)
{
    rig_list(1, NEW);
    i32 next = replacement();
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    expect_load(0, serving);
    ck_assert_int_eq(stale(0), serving);
    expect_load(0,
                serving); /* the new files, and before the replacement: requests wait */
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), serving);
    expect_runs();
    rig_later(1 * VX_NS_PER_S); /* it was a suspect */
    expect_load(0, next);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_picked("m", 0), next);
    ck_assert_int_eq(rig_looks, 0);
}
END_TEST

/* The death, then the rename and SIGHUP: the listing comes before the worker is back, or after it
 * was told to load the old files, or after it has refused them. */
START_TEST(a_death_before_the_listing)
{
    rig_worker_down(0);
    submit();
    if (_i == 0) rig_list(1, NEW);
    rig_worker_up(0);
    expect_load(0, serving);
    if (_i == 1) rig_list(1, NEW);
    ck_assert_int_eq(stale(0), serving);
    ck_assert_int_eq(rig_looks, _i == 2);
    ck_assert_int_eq(rig_lost, 0);
    if (_i == 2) rig_list(1, NEW);
    expect_load(0, serving);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), serving);
    expect_runs();
}
END_TEST

/* The replacement has taken over, and a request that ran on the old one when the worker ended runs
 * again: on the new files. */
START_TEST(a_death_behind_the_replacement)
{
    struct vx_batch_plan plan;
    submit();
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    rig_list(1, NEW);
    i32 next = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_picked("m", 0), next);
    ck_assert_int_eq(rig_state(serving), VX_INSTANCE_UNLOADING);
    rig_worker_down(0);
    vx_models_step(rig_models);
    rig_worker_up(0);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), next);
    ck_assert_int_eq(stale(0), serving);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), serving);
    expect_runs();
}
END_TEST

/* No SIGHUP: a look of our own finds the files, and only one that began after the refusal. */
START_TEST(nobody_says_that_the_files_changed)
{
    rig_list_begin();
    rig_list_add("m", 1, OLD);
    rig_list_give(true);
    struct vx_repository_listing early = rig_listing;
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    ck_assert_int_eq(stale(0), serving);
    ck_assert_int_eq(rig_looks, 1);
    ck_assert_int_eq(rig_state(serving), VX_INSTANCE_READY);
    vx_models_on_listing(rig_models, &early); /* begun before */
    ck_assert_int_eq(rig_lost, 0);
    rig_list_begin();
    rig_list_add("m", 1, NEW);
    rig_list_give(true);
    expect_load(0, serving);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_picked("m", 0), serving);
    expect_runs();
    i32 told = rig_told_count;
    rig_list_give(false); /* SIGHUP has nothing to load */
    ck_assert_int_eq(rig_told_count, told);
}
END_TEST

/* They change again while the worker reads them, as often as they do. */
START_TEST(files_that_change_again)
{
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    for (u64 files = NEW; files < NEW + 5; files++) {
        ck_assert_int_eq(stale(0), serving);
        ck_assert_int_eq(rig_looks, (int)(files - NEW) + 1);
        rig_list(1, files);
        expect_load(0, serving);
    }
    rig_answer(0, VX_CODE_OK);
    expect_runs();
}
END_TEST

/* The worker ends again while the listing is awaited: what it answers next decides. */
START_TEST(a_second_death_while_a_listing_is_awaited)
{
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    ck_assert_int_eq(stale(0), serving);
    rig_worker_down(0);
    rig_worker_up(0);
    expect_load(0, serving); /* the old files */
    rig_list(1, OLD);        /* for a moment they are there again */
    ck_assert_int_eq(rig_lost, 0);
    ck_assert_int_eq(stale(0), serving);
    rig_list(1, NEW);
    expect_load(0, serving);
    rig_answer(0, VX_CODE_OK);
    expect_runs();
}
END_TEST

static void list_two(u64 files)
{
    rig_list_begin();
    rig_list_add("a", 1, 1);
    rig_list_add("m", 1, files);
    rig_list_give(false);
}

/* The same, and it is to be told again when it has read another model. */
START_TEST(a_second_death_with_another_model_before)
{
    rig_tear_down();
    rig_set_up();
    rig_worker_up(0);
    list_two(OLD);
    i32 other = rig_answer(0, VX_CODE_OK);
    job.instance = serving = rig_answer(0, VX_CODE_OK);
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    ck_assert_int_eq(rig_answer(0, VX_CODE_OK), other);
    ck_assert_int_eq(stale(0), serving);
    rig_worker_down(0);
    rig_worker_up(0);
    expect_load(0, other);
    list_two(OLD);
    ck_assert_int_eq(rig_lost, 0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(stale(0), serving);
    list_two(NEW);
    expect_load(0, serving);
    rig_answer(0, VX_CODE_OK);
    expect_runs();
}
END_TEST

enum { SAME, GONE, UNREADABLE, BAD, OTHER, CASES };

/* What does not serve the requests: a listing without a change, without the version or that could
 * not be read, files that cannot be loaded, and those of other inputs. */
START_TEST(files_that_do_not_serve_them)
{
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    ck_assert_int_eq(stale(0), serving);
    ck_assert_int_eq(rig_lost, 0);
    if (_i == OTHER) rig_channels = 5;
    rig_list_begin();
    rig_listing.readable = _i != UNREADABLE;
    if (_i != GONE && _i != UNREADABLE) rig_list_add("m", 1, _i == SAME ? OLD : NEW);
    rig_list_give(true);
    if (_i == BAD) rig_answer(0, VX_CODE_DATA_LOSS);
    if (_i == OTHER) rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_lost, 1);
    ck_assert_int_eq(rig_picked("m", 0), -1);
    rig_channels = 5;
    for (i32 poll = 0; _i == OTHER && poll < 2;
         poll++) { /* which finds them without SIGHUP */
        rig_list_begin();
        rig_list_add("m", 1, NEW);
        rig_list_give(true);
    }
    if (_i != OTHER) rig_list(1, NEW + 1); /* SIGHUP, when they are whole */
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_ge(rig_picked("m", 0), 0);
}
END_TEST

/* A worker that has the old ones serves them, and nothing follows. */
START_TEST(another_worker_has_them)
{
    rig_worker_up(1);
    ck_assert_int_eq(rig_answer(1, VX_CODE_OK), serving);
    rig_worker_down(0);
    submit();
    rig_worker_up(0);
    ck_assert_int_eq(stale(0), serving);
    ck_assert_int_eq(rig_looks + rig_lost, 0);
    ck_assert_int_eq(rig_picked("m", 0), serving);
    rig_worker_down(1); /* it had the last */
    rig_worker_up(1);
    expect_load(1, serving);
    ck_assert_int_eq(stale(1), serving);
    i32 told[] = {rig_loads_told(0), rig_loads_told(1)};
    rig_list(1, NEW);
    ck_assert_int_eq(rig_loads_told(0), told[0] + 1); /* both are asked */
    ck_assert_int_eq(rig_loads_told(1), told[1] + 1);
    rig_answer(0, VX_CODE_OK);
    expect_runs();
}
END_TEST

/* A client that asks for a load is told how the new files did. */
START_TEST(a_load_by_name_waits_for_what_follows)
{
    static int me;
    struct vx_why why = {""};
    rig_tear_down();
    rig_set_up();
    rig_start("explicit", "m");
    rig_worker_up(0);
    rig_list(1, OLD);
    serving = rig_answer(0, VX_CODE_OK);
    rig_worker_down(0);
    rig_worker_up(0);
    ck_assert_int_eq(stale(0), serving);
    ck_assert(!vx_models_ask_load(rig_models, "m", &me, &why).fault);
    rig_list_begin();
    rig_list_add("m", 1, NEW);
    rig_list_give(true);
    ck_assert_ptr_null(rig_ended);
    for (i32 death = 0; _i == 2 && death < 3; death++) { /* they end the worker */
        rig_worker_down(0);
        rig_worker_up(0);
        rig_later(60 * VX_NS_PER_S);
    }
    if (_i < 2) rig_answer(0, _i ? VX_CODE_OK : VX_CODE_DATA_LOSS);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, _i == 2 ? VX_CODE_UNAVAILABLE
                                     : _i    ? VX_CODE_OK
                                             : VX_CODE_INVALID_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models follow");
    TCase *tcase = tcase_create("follow");
    tcase_add_checked_fixture(tcase, set_up, rig_tear_down);
    tcase_add_test(tcase, a_death_while_the_replacement_loads);
    tcase_add_loop_test(tcase, a_death_before_the_listing, 0, 3);
    tcase_add_test(tcase, a_death_behind_the_replacement);
    tcase_add_test(tcase, nobody_says_that_the_files_changed);
    tcase_add_test(tcase, files_that_change_again);
    tcase_add_test(tcase, a_second_death_while_a_listing_is_awaited);
    tcase_add_test(tcase, a_second_death_with_another_model_before);
    tcase_add_loop_test(tcase, files_that_do_not_serve_them, 0, CASES);
    tcase_add_test(tcase, another_worker_has_them);
    tcase_add_loop_test(tcase, a_load_by_name_waits_for_what_follows, 0, 3);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
