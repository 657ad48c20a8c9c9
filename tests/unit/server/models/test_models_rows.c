/* models: instances that are loaded again, refused, freed and used again, and what
 * remains of their earlier use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/models/models_rig.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static i32 told(i32 kind, i32 worker)
{
    i32 count = 0;
    for (i32 i = 0; i < rig_told_count; i++)
        count += rig_told[i].kind == kind && rig_told_to[i] == worker;
    return count;
}

static const struct vx_instance *row(i32 instance)
{
    return vx_registry_row(rig_registry, instance);
}

/* Both workers are up and have version 1 of "m" as instance 0. */
static void serve(void)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 1);
    rig_answer(0, VX_CODE_OK);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
}

/* A changed model is loaded beside the old one, once, however often its files are
 * scanned. */
START_TEST(a_change_that_is_seen_again_takes_no_other_row)
{
    serve();
    for (int look = 0; look < 3; look++) {
        rig_list(1, 2);
        ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
        ck_assert_int_eq(rig_state(1), VX_INSTANCE_LOADING);
        ck_assert_int_eq(rig_state(2), VX_INSTANCE_FREE);
        ck_assert_int_eq(rig_picked("m", 0), 0);
    }
    rig_answer(0, VX_CODE_OK);
    rig_answer(1, VX_CODE_OK);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_picked("m", 0), 1);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_FREE);
    rig_list(1, 2);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_FREE);
}
END_TEST

/* All versions share network.json: an edit for a new version logs which others change
 * their answers.  A version that comes with its own weights, or does not serve, causes no
 * warning. */
static void list_versions(u64 network, u64 weights)
{
    rig_list_begin();
    for (i64 version = 1; version <= 2; version++) {
        rig_list_add("m", version, 10 * network + weights);
        rig_listing.entries[version - 1].network = network;
        rig_listing.entries[version - 1].weights = weights;
    }
    rig_list_give(false);
}

START_TEST(a_network_of_versions_that_serve_is_said)
{
    const struct {
        u64 network, weights;
        u64 said; /* so far */
    } looks[] = {{1, 1, 0}, {2, 1, 1}, {2, 1, 1}, {3, 2, 1}};
    rig_worker_up(0);
    rig_worker_up(1);
    for (size_t i = 0; i < VX_COUNT(looks); i++) {
        list_versions(looks[i].network, looks[i].weights);
        ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_NETWORK), looks[i].said);
        rig_answer_all(0);
        rig_answer_all(1);
        vx_models_step(rig_models);
        ck_assert_int_ge(rig_picked("m", 2), 0);
    }
}
END_TEST

/* A network that could not be loaded hides nothing: the next one replaces the one that serves.
 * What is still loading, has failed or serves already is not said again. */
START_TEST(a_network_behind_one_that_failed_is_said)
{
    const struct {
        u64 network;
        enum vx_code code; /* of the worker that loads it */
        u64 said;
    } looks[] = {{1, VX_CODE_OK, 0},
                 {2, VX_CODE_INVALID_ARGUMENT, 1},
                 {2, VX_CODE_INVALID_ARGUMENT, 1},
                 {3, VX_CODE_OK, 2},
                 {4, VX_CODE_INVALID_ARGUMENT, 3},
                 {3, VX_CODE_OK, 3}};
    rig_worker_up(0);
    for (size_t i = 0; i < VX_COUNT(looks); i++) {
        list_versions(looks[i].network, 1);
        ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_NETWORK), looks[i].said);
        list_versions(looks[i].network, 1);
        ck_assert_uint_eq(vx_log_count(VX_EVENT_MODEL_NETWORK), looks[i].said);
        for (i32 version = 1; version <= 2; version++) rig_answer(0, looks[i].code);
        vx_models_step(rig_models);
        ck_assert_int_ge(rig_picked("m", 2), 0);
    }
}
END_TEST

/* One worker has it, the other refuses it: then no worker has it, and the one that had
 * it is sent one UNLOAD. */
START_TEST(what_is_given_up_is_unloaded_once)
{
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 1);
    rig_answer(0, VX_CODE_OK);
    ck_assert_uint_eq(row(0)->workers_loaded, 1);
    rig_answer(1, VX_CODE_INVALID_ARGUMENT);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_UNAVAILABLE);
    ck_assert_uint_eq(row(0)->workers_loaded, 0);
    ck_assert_uint_eq(vx_models_workers(rig_models, 0), 0);
    ck_assert_int_eq(told(VX_MESSAGE_UNLOAD, 0), 1);
    rig_list(0, 0); /* and its files are gone */
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_FREE);
    ck_assert_int_eq(told(VX_MESSAGE_UNLOAD, 0), 1);
    ck_assert_int_eq(told(VX_MESSAGE_UNLOAD, 1), 0);
}
END_TEST

/* A message about another use of the instance, an earlier one or one that never was. */
START_TEST(words_about_another_load_are_not_believed)
{
    static union vx_message message;
    rig_worker_up(0);
    rig_list(1, 1);
    ck_assert_int_eq(told(VX_MESSAGE_LOAD, 0), 1);
    struct vx_message_head head = rig_told[rig_told_count - 1];
    message.progress = (struct vx_message_progress){.head = head, .done = 1, .total = 2};
    message.head.kind = VX_MESSAGE_PROGRESS;
    message.head.serial = _i ? head.serial + 1 : head.serial - 1;
    vx_models_on_message(rig_models, 0, &message);
    ck_assert_ptr_null(strstr(row(0)->reason, "1 of 2"));
    message.head.serial = head.serial;
    vx_models_on_message(rig_models, 0, &message);
    ck_assert_ptr_nonnull(strstr(row(0)->reason, "1 of 2 layers"));
    message.loaded = (struct vx_message_loaded){.head = head};
    message.head.kind = VX_MESSAGE_LOADED;
    message.head.serial = _i ? head.serial + 1 : head.serial - 1;
    vx_models_on_message(rig_models, 0, &message);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_LOADING);
    ck_assert_uint_eq(row(0)->workers_loaded, 0);
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
}
END_TEST

/* A request that saw a death waits until a load ends, and the load has ended. */
START_TEST(who_has_loaded_takes_what_must_be_alone)
{
    serve();
    struct vx_job job = {.voxels = 10, .deadline_ns = VX_NEVER};
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    i32 first = plan.worker;
    rig_worker_down(first);
    ck_assert_int_eq(job.deaths, 1);
    ck_assert(vx_sched_pick(rig_sched, 0, &plan));
    ck_assert_int_eq(plan.worker, !first);
    const struct vx_batch_end end = {.worker = plan.worker, .batch = plan.batch};
    ck_assert(vx_sched_finish(rig_sched, &end, &plan));
}
END_TEST

/* An admitted request fits every worker that has the model, in whatever order they
 * loaded it. */
START_TEST(the_smallest_worker_says_what_fits)
{
    rig_voxels[_i] = 300;
    rig_batch_voxels[!_i] = 200;
    serve();
    ck_assert_int_eq(row(0)->signature.voxels_max, 300);
    ck_assert_int_eq(row(0)->signature.batching.voxels_max, 200);
}
END_TEST

static void reason_is(i32 instance, const char *text)
{
    ck_assert_str_eq(row(instance)->reason, text);
}

/* A client that asks for the model gets the error of the device that the log reports. */
START_TEST(a_row_without_workers_says_what_keeps_them)
{
    struct vx_why why = {""};
    i32 instance;
    rig_list(1, 1);
    reason_is(0, "waiting for a worker");
    vx_why_set(&rig_infos[1].problem, "no CUDA driver");
    rig_worker_down(1);
    reason_is(0, "waiting for a worker: the worker of cuda:0 ended: no CUDA driver");
    ck_assert(vx_registry_pick(rig_registry, "m", 0, &why, &instance).fault);
    ck_assert_ptr_nonnull(strstr(why.text, "worker of cuda:0 ended: no CUDA driver"));
    rig_list_begin();
    rig_list_add("m", 1, 1);
    rig_list_add("new", 1, 1);
    rig_list_give(false);
    reason_is(1, "waiting for a worker: the worker of cuda:0 ended: no CUDA driver");
    rig_worker_up(0);
    reason_is(0, "waiting for a worker");
    rig_answer_all(0);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
    reason_is(0, "");
    vx_why_set(&rig_infos[0].problem, "device lost");
    rig_worker_down(0);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_READY);
    reason_is(0, "waiting for a worker: the worker of cpu ended: device lost");
    rig_worker_up(0);
    reason_is(0, "waiting for a worker");
    rig_answer_all(0);
    reason_is(0, "");
    rig_list(1, 2); /* a worker is up, no progress known yet */
    reason_is(2, "waiting for a worker");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models_rows");
    TCase *tests = tcase_create("rows");
    tcase_add_checked_fixture(tests, rig_set_up, rig_tear_down);
    tcase_add_test(tests, a_change_that_is_seen_again_takes_no_other_row);
    tcase_add_test(tests, a_network_of_versions_that_serve_is_said);
    tcase_add_test(tests, a_network_behind_one_that_failed_is_said);
    tcase_add_test(tests, what_is_given_up_is_unloaded_once);
    tcase_add_loop_test(tests, words_about_another_load_are_not_believed, 0, 2);
    tcase_add_test(tests, who_has_loaded_takes_what_must_be_alone);
    tcase_add_test(tests, a_row_without_workers_says_what_keeps_them);
    tcase_add_loop_test(tests, the_smallest_worker_says_what_fits, 0, RIG_WORKERS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
