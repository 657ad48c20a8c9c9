/* Which models are wanted, on which workers they are loaded, and which clients wait for
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
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

/* ------- one load at a time ------- */

START_TEST(a_worker_has_one_load_at_a_time_and_what_serves_comes_first)
{
    rig_list_begin();
    for (int i = 0; i < 60; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%d", i);
        rig_list_add(name, 1, 10);
    }
    rig_worker_up(0);
    rig_list_give(false);
    ck_assert_int_eq(rig_told_count, 1);
    i32 first = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_state(first), VX_INSTANCE_READY); /* before the others */
    ck_assert_int_eq(rig_loads_told(0), 2);
    rig_answer_all(0);
    ck_assert_int_eq(rig_loads_told(0), 60);
    ck_assert(vx_registry_all_ready(rig_registry));
    rig_list_add("late", 1, 10);
    rig_list_give(false);
    rig_worker_down(0);
    rig_worker_up(0);
    rig_answer_all(0);
    ck_assert_int_eq(rig_loads_told(0), 60 + 1 + 60);
    /* The model that was loading when the worker died is last now, after its pause. */
    rig_later(250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_loads_told(0), 60 + 1 + 61);
    ck_assert_str_eq(
        vx_registry_row(rig_registry, rig_told[rig_told_count - 1].instance)->name,
        "late");
}
END_TEST

START_TEST(a_row_that_failed_is_not_loaded_by_others_any_more)
{
    rig_worker_up(0);
    rig_worker_up(1);
    list_all(false);
    rig_answer(0, VX_CODE_OK); /* "a"; worker 1 still loads it */
    i32 failed = rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(rig_state(failed), VX_INSTANCE_UNAVAILABLE);
    rig_answer_all(1);
    ck_assert_int_eq(rig_loads_told(1), 1);
    ck_assert_int_ge(rig_picked("a", 0), 0);
    /* A worker that is loading when another one fails does so in vain. */
    rig_listing.entries[1].fingerprint++;
    rig_list_give(false);
    failed = rig_answer(0, VX_CODE_DATA_LOSS);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_eq(rig_told[rig_told_count - 1].kind, VX_MESSAGE_UNLOAD);
    ck_assert_int_eq(rig_told[rig_told_count - 1].instance, failed);
    ck_assert_int_eq(rig_told_to[rig_told_count - 1], 1);
    ck_assert_int_eq(rig_state(failed), VX_INSTANCE_UNAVAILABLE);
}
END_TEST

/* ------- rows ------- */

START_TEST(a_version_without_a_row_gets_the_next_that_is_free)
{
    rig_worker_up(0);
    rig_list_begin();
    for (int i = 1; i <= VX_INSTANCES_MAX; i++) rig_list_add("m", i, 10);
    rig_list_give(false);
    rig_answer_all(0);
    i32 old = rig_picked("m", 5);
    rig_listing.entries[4].fingerprint = 11; /* version 5 changed */
    rig_list_give(false);
    ck_assert_int_eq(rig_picked("m", 5), old); /* no row is free for both */
    i32 said = rig_told_count;
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_told_count, said);
    rig_listing.count--; /* the last version is removed */
    rig_list_give(true);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_told[rig_told_count - 1].kind, VX_MESSAGE_LOAD);
    i32 new = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(rig_picked("m", 5), new);
    ck_assert_int_ne(new, old);
    ck_assert_int_eq(rig_picked("m", VX_INSTANCES_MAX), -1);
}
END_TEST

/* It is named in every listing, and the server is not ready while a model has no row. */
START_TEST(a_model_without_a_row_is_missed_until_it_has_one)
{
    char name[16];
    struct vx_why why = {""};
    i32 instance;
    rig_worker_up(0);
    rig_list_begin();
    for (int i = 0; i < VX_INSTANCES_MAX + 2; i++) {
        snprintf(name, sizeof name, "f%04d", i);
        rig_list_add(name, 1, 10);
    }
    rig_list_give(false);
    rig_answer_all(0);
    ck_assert_int_eq(vx_models_listing(rig_models)->missed, 2);
    ck_assert(!vx_registry_all_ready(rig_registry));
    ck_assert_int_eq(rig_picked("f0000", 0), 0); /* the first by name have the rows */
    ck_assert_int_eq(
        vx_status_code(vx_registry_find(rig_registry, name, 1, &why, &instance)),
        VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "is not found: " VX_REPOSITORY_NO_ROW));
    ck_assert(vx_registry_find(rig_registry, name, 2, &why, &instance).fault);
    ck_assert_ptr_null(
        strstr(why.text, VX_REPOSITORY_NO_ROW)); /* there is no version 2 */
    memmove(rig_listing.entries, rig_listing.entries + 2,
            (size_t)(rig_listing.count -= 2) * sizeof *rig_listing.entries);
    rig_list_give(true);
    vx_models_step(rig_models);
    rig_answer_all(0);
    ck_assert_int_eq(vx_models_listing(rig_models)->missed, 0);
    ck_assert(vx_registry_all_ready(rig_registry));
    ck_assert_int_ge(rig_picked(name, 1), 0);
}
END_TEST

START_TEST(a_version_without_a_row_beside_one_that_serves_is_not_missed)
{
    rig_worker_up(0);
    rig_list_begin();
    for (int i = 1; i <= VX_INSTANCES_MAX + 1; i++) rig_list_add("m", i, 10);
    rig_list_give(false);
    rig_answer_all(0);
    ck_assert(vx_models_listing(rig_models)->entries[VX_INSTANCES_MAX].no_row);
    ck_assert_int_eq(vx_models_listing(rig_models)->missed, 0);
    ck_assert(vx_registry_all_ready(rig_registry));
}
END_TEST

START_TEST(a_look_of_our_own_does_not_try_again_what_did_not_change)
{
    rig_start("poll", "");
    rig_worker_up(0);
    list_all(false);
    i32 failed = rig_answer(0, VX_CODE_DATA_LOSS);
    rig_answer(0, VX_CODE_OK);
    i32 said = rig_told_count;
    list_all(true);
    ck_assert_int_eq(rig_told_count, said);
    ck_assert_int_eq(rig_state(failed), VX_INSTANCE_UNAVAILABLE);
    rig_listing.entries[0].fingerprint++;
    rig_list_give(true);
    ck_assert_int_eq(rig_told_count, said + 1); /* changed */
    rig_answer(0, VX_CODE_DATA_LOSS);
    rig_list_give(false); /* SIGHUP */
    ck_assert_int_eq(rig_told_count, said + 2);
}
END_TEST

START_TEST(poll_looks_when_it_is_time)
{
    rig_config.repository_poll_ms = 20;
    i64 before = vx_clock_ns();
    rig_start("poll", "");
    i64 begin = vx_clock_ns();
    vx_models_step(rig_models);
    if (vx_clock_ns() - before < 20 * VX_NS_PER_MS) ck_assert_int_eq(rig_looks, 0);
    i32 early = rig_looks; /* 1: the machine was slow */
    while (vx_clock_ns() - begin < 21 * VX_NS_PER_MS) continue;
    vx_models_step(rig_models);
    ck_assert_int_ge(rig_looks, 1);
    ck_assert_int_le(rig_looks, early + 1);
    i32 looks = rig_looks;
    vx_models_stop(rig_models);
    while (vx_clock_ns() - begin < 60 * VX_NS_PER_MS) continue;
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_looks, looks);
}
END_TEST

/* ------- placement and settings ------- */

START_TEST(only_the_workers_that_are_to_have_it_are_asked)
{
    snprintf(rig_config.placement, sizeof rig_config.placement, "a=cuda:0; b=1; *=all");
    rig_start("none", "");
    rig_worker_up(0);
    list_all(false);
    ck_assert_int_eq(rig_loads_told(0), 1); /* "b": "a" is for worker 1 */
    i32 b = rig_answer(0, VX_CODE_OK);
    ck_assert_str_eq(vx_registry_row(rig_registry, b)->name, "b");
    ck_assert_int_eq(rig_state(b), VX_INSTANCE_READY); /* it waits for no other worker */
    ck_assert_int_eq(rig_picked("a", 0), -1);
    rig_worker_up(1);
    ck_assert_int_eq(rig_loads_told(1), 1);
    rig_answer(1, VX_CODE_OK);
    ck_assert_int_ge(rig_picked("a", 0), 0);
    /* A new version is loaded where the old one is, though the other worker has less. */
    rig_list_add("b", 2, 10);
    rig_list_give(false);
    ck_assert_int_eq(rig_loads_told(0), 2);
    ck_assert_int_eq(rig_loads_told(1), 1);
    /* A replica stays on its worker. */
    rig_worker_down(0);
    vx_models_step(rig_models);
    ck_assert_int_eq(rig_loads_told(1), 1);
}
END_TEST

START_TEST(what_fits_is_what_fits_on_the_smallest)
{
    rig_voxels[1] = 700;
    rig_batch_voxels[1] = 900;
    rig_worker_up(0);
    rig_worker_up(1);
    rig_list(1, 10);
    rig_answer(1, VX_CODE_OK);
    i32 instance = rig_answer(0, VX_CODE_OK);
    const struct vx_signature *signature =
        &vx_registry_row(rig_registry, instance)->signature;
    ck_assert_int_eq(signature->voxels_max, 700);
    ck_assert_int_eq(signature->batching.voxels_max, 900);
    ck_assert_int_eq(signature->batching.requests_max, VX_BATCH_ITEMS_MAX);
}
END_TEST

START_TEST(batching_off_is_one_request_a_batch)
{
    snprintf(rig_config.batching, sizeof rig_config.batching, "off");
    rig_start("none", "");
    rig_worker_up(0);
    rig_list(1, 10);
    i32 instance = rig_answer(0, VX_CODE_OK);
    ck_assert_int_eq(
        vx_registry_row(rig_registry, instance)->signature.batching.requests_max, 1);
}
END_TEST

START_TEST(settings_that_cannot_be_are_refused)
{
    struct vx_why why = {""};
    snprintf(rig_config.load_model, sizeof rig_config.load_model, "a");
    ck_assert_int_eq(vx_status_code(vx_models_start(rig_models, &why)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, "--load-model needs --model-control explicit, got none");
    memset(rig_config.load_model, 'a', VX_NAME_BYTES);
    rig_config.load_model[VX_NAME_BYTES] = '\0';
    snprintf(rig_config.model_control, sizeof rig_config.model_control, "explicit");
    ck_assert_int_eq(vx_status_code(vx_models_start(rig_models, &why)),
                     VX_CODE_INVALID_ARGUMENT);
    snprintf(rig_config.placement, sizeof rig_config.placement, "a=cuda:9");
    ck_assert_int_eq(vx_status_code(vx_models_start(rig_models, &why)),
                     VX_CODE_INVALID_ARGUMENT);
}
END_TEST

/* ------- explicit ------- */

START_TEST(explicit_loads_what_is_named_and_star_what_is_there)
{
    rig_start("explicit", " b ,c");
    rig_worker_up(0);
    list_all(false);
    rig_answer_all(0);
    ck_assert_int_eq(rig_loads_told(0), 1);
    ck_assert_int_ge(rig_picked("b", 0), 0);
    rig_tear_down();
    rig_set_up();
    rig_start("explicit", "*");
    rig_worker_up(0);
    list_all(false);
    rig_answer_all(0);
    ck_assert_int_eq(rig_loads_told(0), 2);
    rig_list_add("late", 1, 10);
    rig_list_give(false);
    ck_assert_int_eq(rig_loads_told(0), 2);
}
END_TEST

START_TEST(a_load_ends_when_the_model_serves_or_failed)
{
    rig_start("explicit", "");
    rig_worker_up(0);
    list_all(false);
    ck_assert_int_eq(rig_told_count, 0);
    ck_assert(!vx_models_ask_load(rig_models, "a", &me, NULL).fault);
    ck_assert_int_eq(rig_looks, 1);
    /* A scan that began before the model was there does not count. */
    rig_list_begin();
    rig_listing.begun_ns = 1;
    vx_models_on_listing(rig_models, &rig_listing);
    vx_models_step(rig_models);
    ck_assert_ptr_null(rig_ended);
    list_all(true);
    ck_assert_ptr_null(rig_ended);
    rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(
        rig_ended_why,
        "load failed for model 'a': version 1 is at UNAVAILABLE state: the reason");
    rig_ended = NULL;
    ck_assert(!vx_models_ask_load(rig_models, "a", &me, NULL).fault);
    list_all(true); /* unchanged, but asked for */
    ck_assert_int_eq(rig_loads_told(0), 2);
    ck_assert_ptr_null(rig_ended);
    rig_answer(0, VX_CODE_OK);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
    rig_ended = NULL;
    ck_assert(!vx_models_ask_load(rig_models, "a", &you, NULL).fault);
    list_all(true); /* it serves already */
    ck_assert_ptr_eq(rig_ended, &you);
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
    ck_assert_int_eq(rig_loads_told(0), 2);
}
END_TEST

START_TEST(a_load_of_what_is_not_there)
{
    rig_start("explicit", "");
    ck_assert(!vx_models_ask_load(rig_models, "x", &me, NULL).fault);
    list_all(true);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_NOT_FOUND);
    ck_assert_str_eq(rig_ended_why, "failed to load 'x', failed to poll from model "
                                    "repository: it has no model of that "
                                    "name with a version");
    rig_list_add("x", 1, 10);
    rig_list_give(false); /* no client wants it now */
    ck_assert_int_eq(rig_picked("x", 0), -1);
    ck_assert_int_eq(rig_state(0), VX_INSTANCE_FREE);
    /* A scan that cannot read the repository says nothing about the model. */
    ck_assert(!vx_models_ask_load(rig_models, "a", &you, NULL).fault);
    rig_listing = (struct vx_repository_listing){.begun_ns = vx_clock_ns()};
    vx_models_on_listing(rig_models, &rig_listing);
    ck_assert_ptr_eq(rig_ended, &you);
    ck_assert_int_eq(rig_ended_code, VX_CODE_NOT_FOUND);
}
END_TEST

START_TEST(an_unload_ends_when_the_last_request_has)
{
    rig_start("explicit", "a");
    rig_worker_up(0);
    list_all(false);
    i32 instance = rig_answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(rig_sched, &job, 0, NULL, NULL).fault);
    ck_assert(!vx_models_ask_unload(rig_models, "a", &me, NULL).fault);
    ck_assert_int_eq(rig_picked("a", 0), -1);
    vx_models_step(rig_models);
    ck_assert_ptr_null(rig_ended);
    /* A load in the meantime uses another row, and does not delay the unload. */
    ck_assert(!vx_models_ask_load(rig_models, "a", &you, NULL).fault);
    list_all(true);
    rig_answer(0, VX_CODE_OK);
    ck_assert_ptr_eq(rig_ended, &you);
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
    ck_assert_int_ge(rig_picked("a", 0), 0);
    ck_assert(vx_sched_cancel(rig_sched, &job));
    vx_models_step(rig_models);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
    ck_assert_int_eq(rig_state(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(an_unload_takes_back_a_load)
{
    rig_start("explicit", "");
    rig_worker_up(0);
    list_all(false);
    ck_assert(!vx_models_ask_load(rig_models, "a", &me, NULL).fault);
    list_all(true);
    ck_assert(!vx_models_ask_unload(rig_models, "a", &you, NULL).fault);
    vx_models_step(rig_models);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_UNAVAILABLE);
    rig_answer(0, VX_CODE_OK); /* "a" was loading; freed at once */
    ck_assert_ptr_eq(rig_ended, &you);
    ck_assert_int_eq(rig_told[rig_told_count - 1].kind, VX_MESSAGE_UNLOAD);
    /* A model that is there and not loaded counts as unloaded. */
    rig_ended = NULL;
    ck_assert(!vx_models_ask_unload(rig_models, "b", &you, NULL).fault);
    vx_models_step(rig_models);
    ck_assert_ptr_eq(rig_ended, &you);
}
END_TEST

START_TEST(who_may_not_ask_is_told_why)
{
    struct vx_why why = {""};
    vx_status status = vx_models_ask_load(rig_models, "a", &me, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(vx_status_text(status, &why),
                                 "explicit model load / unload is not allowed"));
    rig_start("poll", "");
    status = vx_models_ask_unload(rig_models, "a", &me, &why);
    ck_assert_str_eq(vx_status_text(status, &why),
                     "explicit model load / unload is not allowed if polling is enabled");
    rig_start("explicit", "");
    status = vx_models_ask_load(rig_models, "", &me, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    status = vx_models_ask_unload(rig_models, "nowhere", &me, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(why.text, "Request for unknown model: 'nowhere' is not found: this "
                               "server has no models");
    for (int i = 0; i < VX_MODELS_WAITERS_MAX; i++)
        ck_assert(!vx_models_ask_load(rig_models, "a", &rig_told[i], &why).fault);
    status = vx_models_ask_load(rig_models, "a", &me, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    /* A waiter that leaves frees its place; the others are answered at the server's end. */
    ck_assert(vx_models_forget(rig_models, &rig_told[3]));
    ck_assert(!vx_models_forget(rig_models, &rig_told[3]));
    ck_assert(!vx_models_ask_load(rig_models, "a", &me, &why).fault);
    ck_assert_ptr_null(rig_ended);
    vx_models_stop(rig_models);
    ck_assert_ptr_nonnull(rig_ended);
    ck_assert_int_eq(rig_ended_code, VX_CODE_UNAVAILABLE);
    ck_assert(!vx_models_forget(rig_models, &me));
    status = vx_models_ask_load(rig_models, "a", &me, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_UNAVAILABLE);
}
END_TEST

/* And which versions take rows though they cannot be loaded: _i of them. */
START_TEST(a_load_without_a_row_says_so)
{
    rig_start("explicit", "m");
    rig_worker_up(0);
    rig_list_begin();
    for (int i = 1; i <= VX_INSTANCES_MAX; i++) rig_list_add("m", i, 10);
    rig_list_add("x", 1, 10);
    rig_list_give(false);
    for (int i = 0; i < _i; i++) rig_answer(0, VX_CODE_DATA_LOSS);
    rig_answer_all(0);
    ck_assert(!vx_models_ask_load(rig_models, "x", &me, NULL).fault);
    rig_list_give(true);
    ck_assert_ptr_eq(rig_ended, &me);
    ck_assert_int_eq(rig_ended_code, VX_CODE_RESOURCE_EXHAUSTED);
    const char *expected =
        _i ? "and 3 that cannot be loaded take some of it: unload them, "
             "first model 'm'"
           : "512 model versions are loaded: unload one";
    ck_assert_ptr_nonnull(strstr(rig_ended_why, expected));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models wanted");
    TCase *tcase = tcase_create("wanted");
    tcase_add_checked_fixture(tcase, rig_set_up, rig_tear_down);
    tcase_add_test(tcase, a_worker_has_one_load_at_a_time_and_what_serves_comes_first);
    tcase_add_test(tcase, a_row_that_failed_is_not_loaded_by_others_any_more);
    tcase_add_test(tcase, a_version_without_a_row_gets_the_next_that_is_free);
    tcase_add_test(tcase, a_model_without_a_row_is_missed_until_it_has_one);
    tcase_add_test(tcase, a_version_without_a_row_beside_one_that_serves_is_not_missed);
    tcase_add_test(tcase, a_look_of_our_own_does_not_try_again_what_did_not_change);
    tcase_add_test(tcase, poll_looks_when_it_is_time);
    tcase_add_test(tcase, only_the_workers_that_are_to_have_it_are_asked);
    tcase_add_test(tcase, what_fits_is_what_fits_on_the_smallest);
    tcase_add_test(tcase, batching_off_is_one_request_a_batch);
    tcase_add_test(tcase, settings_that_cannot_be_are_refused);
    tcase_add_test(tcase, explicit_loads_what_is_named_and_star_what_is_there);
    tcase_add_test(tcase, a_load_ends_when_the_model_serves_or_failed);
    tcase_add_test(tcase, a_load_of_what_is_not_there);
    tcase_add_test(tcase, an_unload_ends_when_the_last_request_has);
    tcase_add_test(tcase, an_unload_takes_back_a_load);
    tcase_add_test(tcase, who_may_not_ask_is_told_why);
    tcase_add_loop_test(tcase, a_load_without_a_row_says_so, 0, 1);
    tcase_add_loop_test(tcase, a_load_without_a_row_says_so, 3, 4);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
