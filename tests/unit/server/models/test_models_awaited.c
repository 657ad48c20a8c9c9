/* Which models the server waits for: those of its start, and what has served since.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/models/models_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me;

static void start(const char *control, const char *load)
{
    rig_start(control, load);
    rig_worker_up(0);
}

/* Lists version 1 of "m", with these files, and of "n" if it has any. */
static void list(u64 m, u64 n)
{
    rig_list_begin();
    rig_list_add("m", 1, m);
    if (n) rig_list_add("n", 1, n);
    rig_list_give(false);
}

static bool is_ready(void)
{
    vx_models_step(rig_models);
    return vx_registry_all_ready(rig_registry);
}

/* As the front does when is_ready is true for the first time. */
static void serve(void)
{
    ck_assert(is_ready());
    vx_registry_on_ready(rig_registry);
}

static const char *const controls[] = {"none", "poll"};

START_TEST(a_model_that_is_new_takes_no_readiness)
{
    start(controls[_i], "");
    list(10, 0);
    rig_answer(0, VX_CODE_OK);
    serve();
    list(10, 20);
    ck_assert(is_ready()); /* while it loads */
    rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert(is_ready());
    list(10, 21);
    ck_assert(is_ready());
    rig_answer(0, VX_CODE_OK);
    ck_assert_int_ge(rig_picked("n", 0), 0);
    ck_assert(is_ready());
}
END_TEST

/* A folder that is being copied has no version yet. */
START_TEST(a_folder_that_is_new_takes_no_readiness)
{
    start("poll", "");
    list(10, 0);
    rig_answer(0, VX_CODE_OK);
    serve();
    rig_list_begin();
    rig_list_add("m", 1, 10);
    rig_listing.odds[0] = (struct vx_repository_odd){.model = true, .why = {"odd"}};
    snprintf(rig_listing.odds[0].name, VX_NAME_BYTES, "n");
    rig_listing.odds_count = 1;
    rig_list_give(true);
    ck_assert_int_eq(vx_models_listing(rig_models)->odds_missed, 1);
    ck_assert(is_ready());
    rig_list_begin(); /* but a server that serves nothing is not ready with it */
    rig_list_give(true);
    rig_listing.odds_count = 1;
    rig_list_give(true);
    ck_assert(!is_ready());
}
END_TEST

START_TEST(at_the_start_all_are_awaited)
{
    start("poll", "");
    list(10, 20);
    rig_answer(0, VX_CODE_OK);
    ck_assert(!is_ready());
    rig_answer(0, VX_CODE_DATA_LOSS);
    ck_assert(!is_ready());
    list(10, 21);
    ck_assert(!is_ready());
    rig_answer(0, VX_CODE_OK);
    ck_assert(is_ready());
}
END_TEST

/* Loses its model when a worker has restarted and cannot read the files any more. */
static void lose(void)
{
    rig_worker_down(0);
    rig_worker_up(0);
    rig_answer(0, VX_CODE_OK);
    rig_answer(0, VX_CODE_DATA_LOSS);
}

START_TEST(what_has_served_is_awaited)
{
    start("poll", "");
    list(10, 0);
    rig_answer(0, VX_CODE_OK);
    serve();
    list(10, 20);
    rig_answer(0, VX_CODE_OK);
    lose();
    ck_assert_int_eq(rig_picked("n", 0), -1);
    ck_assert(!is_ready());
    list(10, 21); /* other files, and then another version */
    ck_assert(!is_ready());
    rig_list_begin();
    rig_list_add("m", 1, 10);
    rig_list_add("n", 2, 10);
    rig_list_give(true);
    ck_assert(!is_ready());
    rig_answer_all(0);
    ck_assert(is_ready());
    ck_assert_int_ge(rig_picked("n", 2), 0);
}
END_TEST

/* Files that are still being written may look whole to one poll: also while others of the version
 * load, and when those failed. */
START_TEST(a_poll_loads_changed_files_that_two_polls_have_seen)
{
    start("poll", "");
    list(10, 0);
    rig_answer(0, VX_CODE_OK);
    serve();
    const i32 before = rig_loads_told(0);
    static const struct {
        u64 fingerprint;
        bool quiet;
        i32 loads;
        enum {
            ENDS_WELL,
            FAILS,
            GOES_ON
        } load; /* that the look begins, or that goes on */
    } looks[] = {
        {11, true, 0, ENDS_WELL}, {12, true, 0, ENDS_WELL},  {10, true, 0, ENDS_WELL},
        {12, true, 0, ENDS_WELL}, {12, true, 1, ENDS_WELL},  /* the second in a row */
        {13, true, 1, ENDS_WELL}, {13, false, 2, ENDS_WELL}, /* SIGHUP */
        {14, false, 3, FAILS},    {15, true, 3, ENDS_WELL},  {15, true, 4, GOES_ON},
        {16, true, 4, GOES_ON},   {17, true, 4, ENDS_WELL}};
    for (size_t i = 0; i < VX_COUNT(looks); i++) {
        rig_list_begin();
        rig_list_add("m", 1, looks[i].fingerprint);
        rig_list_give(looks[i].quiet);
        ck_assert_int_eq(rig_loads_told(0) - before, looks[i].loads);
        if (!i || looks[i].loads == looks[i - 1].loads || looks[i].load == GOES_ON)
            continue;
        rig_answer(0, looks[i].load == FAILS ? VX_CODE_INVALID_ARGUMENT : VX_CODE_OK);
    }
}
END_TEST

START_TEST(the_first_model_of_an_empty_server_is_awaited)
{
    start("poll", "");
    vx_registry_on_ready(rig_registry); /* nothing was there to serve */
    list(10, 20);
    rig_answer(0, VX_CODE_OK);
    ck_assert(!is_ready());
    rig_answer(0, VX_CODE_OK);
    ck_assert(is_ready());
}
END_TEST

static void load(const char *name)
{
    struct vx_why why = {""};
    vx_status status = vx_models_ask_load(rig_models, name, &me, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    list(10, 20);
}

static bool awaits(const char *name)
{
    struct vx_instance *row;
    i32 cursor = 0;
    while ((row = vx_registry_next(rig_registry, &cursor)))
        if (!strcmp(row->name, name) && row->state != VX_INSTANCE_UNLOADING)
            return row->awaited;
    return false;
}

START_TEST(a_load_of_a_client_takes_no_readiness)
{
    struct vx_why why = {""};
    start("explicit", "m");
    load("n"); /* before the server is ready */
    ck_assert(awaits("m") && !awaits("n") && !is_ready());
    rig_answer(0, VX_CODE_OK);
    serve();
    rig_answer(0, VX_CODE_OK);
    ck_assert(is_ready() && awaits("n"));
    lose();
    ck_assert(!is_ready());
    /* Who unloads a model and loads it again is not kept waiting for. */
    for (int i = 0; i < 2; i++) {
        ck_assert(!vx_models_ask_unload(rig_models, i ? "m" : "n", &me, &why).fault);
        load(i ? "m" : "n");
        ck_assert(!awaits(i ? "m" : "n"));
        ck_assert(i || is_ready());
        rig_answer_all(0);
        ck_assert(is_ready());
    }
}
END_TEST

START_TEST(all_that_a_star_names_is_awaited)
{
    start("explicit", "*");
    list(10, 20);
    rig_answer(0, VX_CODE_OK);
    ck_assert(awaits("n") && !is_ready());
    rig_answer(0, VX_CODE_OK);
    ck_assert(is_ready());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models awaited");
    TCase *tcase = tcase_create("awaited");
    tcase_add_checked_fixture(tcase, rig_set_up, rig_tear_down);
    tcase_add_loop_test(tcase, a_model_that_is_new_takes_no_readiness, 0, 2);
    tcase_add_test(tcase, a_folder_that_is_new_takes_no_readiness);
    tcase_add_test(tcase, at_the_start_all_are_awaited);
    tcase_add_test(tcase, what_has_served_is_awaited);
    tcase_add_test(tcase, a_poll_loads_changed_files_that_two_polls_have_seen);
    tcase_add_test(tcase, the_first_model_of_an_empty_server_is_awaited);
    tcase_add_test(tcase, a_load_of_a_client_takes_no_readiness);
    tcase_add_test(tcase, all_that_a_star_names_is_awaited);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
