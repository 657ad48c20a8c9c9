/* Models that the settings name, or that have a directory, but that cannot be served.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/models/models_private.h"
#include "tests/unit/server/models/models_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BY_LOAD_MODEL "it is named by load_model and is not in the repository"

static int me;

static void start(const char *control, const char *load, const char *placement)
{
    struct vx_why why = {""};
    snprintf(rig_config.model_control, sizeof rig_config.model_control, "%s", control);
    snprintf(rig_config.load_model, sizeof rig_config.load_model, "%s", load);
    snprintf(rig_config.placement, sizeof rig_config.placement, "%s", placement);
    vx_status status = vx_models_start(rig_models, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    rig_worker_up(0);
    rig_worker_up(1);
}

/* Lists version 1 of "half", and of "other" if it is not NULL; workers load what they
 * are sent. */
static void list(const char *other)
{
    rig_list_begin();
    rig_list_add("half", 1, 10);
    if (other) rig_list_add(other, 1, 10);
    rig_list_give(false);
    rig_answer_all(0);
    rig_answer_all(1);
}

/* Like list(NULL), and also a directory without a version. */
static void list_odd(const char *name, bool model)
{
    rig_list_begin();
    rig_list_add("half", 1, 10);
    rig_listing.odds[0] = (struct vx_repository_odd){.model = model, .why = {"odd"}};
    snprintf(rig_listing.odds[0].name, VX_NAME_BYTES, "%s", name);
    rig_listing.odds_count = 1;
    rig_list_give(false);
    rig_answer_all(0);
    rig_answer_all(1);
}

/* The reason why the server is not ready for this model; "" = it is. */
static const char *missed(const char *name)
{
    const struct vx_repository_odd *odd;
    i32 cursor = 0;
    while ((odd = vx_repository_next_odd_model(vx_models_listing(rig_models), &cursor))) {
        if (!odd->missed || strcmp(odd->name, name)) continue;
        ck_assert(!vx_registry_all_ready(rig_registry));
        return odd->why.text;
    }
    return "";
}

START_TEST(a_name_of_load_model_is_missed_until_it_is_there)
{
    start("explicit", "half, hlf", "");
    list(NULL);
    ck_assert_int_ge(rig_picked("half", 0), 0);
    ck_assert_str_eq(missed("hlf"), BY_LOAD_MODEL);
    list("hlf");
    ck_assert_str_eq(missed("hlf"), "");
    ck_assert(vx_registry_all_ready(rig_registry));
    list(NULL); /* it was removed */
    ck_assert_str_eq(missed("hlf"), BY_LOAD_MODEL);
}
END_TEST

START_TEST(a_failed_load_takes_no_name_back_and_an_unload_does)
{
    start("explicit", "half, hlf", "");
    list(NULL);
    ck_assert(!vx_models_ask_load(rig_models, "hlf", &me, NULL).fault);
    list(NULL);
    ck_assert_int_eq(rig_ended_code, VX_CODE_NOT_FOUND);
    ck_assert_str_eq(missed("hlf"), BY_LOAD_MODEL);
    ck_assert(!vx_models_ask_unload(rig_models, "hlf", &me, NULL).fault);
    ck_assert_str_eq(missed("hlf"), "");
    ck_assert(vx_registry_all_ready(rig_registry));
}
END_TEST

/* A model that nobody asked for does not make the server unready. */
START_TEST(a_load_that_a_client_asked_for_in_vain_is_not_missed)
{
    start("explicit", "half", "");
    list(NULL);
    ck_assert(!vx_models_ask_load(rig_models, "hlf", &me, NULL).fault);
    list_odd("hlf", true);
    ck_assert_int_eq(rig_ended_code, VX_CODE_NOT_FOUND);
    ck_assert_str_eq(missed("hlf"), "");
    ck_assert(vx_registry_all_ready(rig_registry));
}
END_TEST

/* A rule may be for a model that is added later, or was removed. */
START_TEST(placement_asks_for_no_model)
{
    start(_i ? "explicit" : "poll", _i ? "half" : "", "hlf=1; *=all");
    list(NULL);
    ck_assert_str_eq(missed("hlf"), "");
    ck_assert_str_eq(vx_models_problem(rig_models),
                     "'hlf' is named by placement and is not in the repository");
    ck_assert(vx_registry_all_ready(rig_registry));
}
END_TEST

START_TEST(a_directory_without_a_version_is_missed_when_its_model_is_wanted)
{
    start("none", "", "");
    list_odd("v", true);
    ck_assert_str_eq(missed("v"), "odd");
    list("v");
    ck_assert(vx_registry_all_ready(rig_registry));
    list_odd("lost+found", false);
    ck_assert(vx_registry_all_ready(rig_registry));
    rig_tear_down();
    rig_set_up();
    start("explicit", "half", "");
    list_odd("v", true);
    ck_assert(vx_registry_all_ready(rig_registry));
    rig_tear_down();
    rig_set_up();
    start("explicit", "*", "");
    list_odd("v", true);
    ck_assert_str_eq(missed("v"), "odd");
    rig_tear_down();
    rig_set_up();
    start("explicit", "half, v", "");
    list_odd("v", false); /* it has a more precise sentence */
    ck_assert_str_eq(missed("v"), "odd");
}
END_TEST

START_TEST(an_unreadable_repository_does_not_make_it_ready)
{
    start("none", "", "");
    list_odd("v", true);
    for (int i = 0; i < 2; i++) {
        rig_listing = (struct vx_repository_listing){
            .odds = {{.why = {"cannot be read"}}}, .odds_count = 1};
        rig_list_give(true);
        ck_assert_str_eq(missed("v"), "odd");
        ck_assert_int_eq(vx_models_listing(rig_models)->odds_count, 2);
        ck_assert_str_eq(vx_models_problem(rig_models), "cannot be read");
    }
}
END_TEST

/* A model that serves continues to, when its directory cannot be read any more. */
START_TEST(a_directory_of_a_model_that_serves_is_only_noted)
{
    start("none", "", "");
    list("v");
    rig_list_begin();
    rig_list_add("half", 1, 10);
    rig_list_unread("v");
    rig_listing.odds[0] =
        (struct vx_repository_odd){.name = "v", .model = true, .why = {"odd"}};
    rig_listing.odds_count = 1;
    rig_list_give(false);
    ck_assert_int_ge(rig_picked("v", 0), 0);
    ck_assert(vx_registry_all_ready(rig_registry));
    ck_assert_str_eq(missed("v"), "");
    ck_assert_str_eq(vx_repository_note(vx_models_listing(rig_models), "v"), "odd");
}
END_TEST

/* Of what is not listed only that stays which the folder that cannot be read may have. */
START_TEST(a_folder_that_cannot_be_read_keeps_no_other_model)
{
    start("none", "", "");
    rig_list_begin();
    rig_list_add("half", 1, 10);
    rig_list_add("half", 2, 10);
    rig_list_add("other", 1, 10);
    rig_list_add("v", 1, 10);
    rig_list_give(false);
    rig_answer_all(0);
    rig_answer_all(1);
    rig_list_begin();
    rig_list_add("half", 1, 10);
    rig_list_unread("v");
    rig_list_give(false);
    ck_assert_int_ge(rig_picked("v", 1), 0);
    ck_assert_int_lt(rig_picked("other", 0), 0);
    ck_assert_int_lt(rig_picked("half", 2), 0);
    ck_assert_int_eq(rig_picked("half", 0), rig_picked("half", 1));
    list(NULL);
    ck_assert_int_lt(rig_picked("v", 1), 0);
}
END_TEST

/* Behind the last that is listed there may be others. */
START_TEST(a_listing_that_a_limit_cut_keeps_what_is_behind_it)
{
    start("none", "", "");
    rig_list_begin();
    rig_list_add("a", 1, 10);
    rig_list_add("half", 2, 10);
    rig_list_add("half", 4, 10);
    rig_list_add("v", 1, 10);
    rig_list_give(false);
    rig_answer_all(0);
    rig_answer_all(1);
    rig_list_begin();
    rig_list_add("half", 3, 10);
    rig_listing.cut = true;
    rig_list_give(false);
    ck_assert_int_lt(rig_picked("a", 1), 0);
    ck_assert_int_lt(rig_picked("half", 2), 0);
    ck_assert_int_ge(rig_picked("half", 4), 0);
    ck_assert_int_ge(rig_picked("v", 1), 0);
}
END_TEST

/* A client asks for a model that serves while its folder cannot be read. */
START_TEST(a_load_in_vain_of_a_model_that_serves_takes_no_wish_back)
{
    start("explicit", "half", "");
    ck_assert(!vx_models_ask_load(rig_models, "v", &me, NULL).fault);
    list("v");
    ck_assert_int_eq(rig_ended_code, VX_CODE_OK);
    ck_assert(!vx_models_ask_load(rig_models, "v", &me, NULL).fault);
    rig_list_begin();
    rig_list_add("half", 1, 10);
    rig_list_unread("v");
    rig_list_give(false);
    ck_assert_int_eq(rig_ended_code, VX_CODE_NOT_FOUND);
    ck_assert_int_ge(rig_picked("v", 0), 0);
    list("v");
    ck_assert_int_ge(rig_picked("v", 0), 0);
}
END_TEST

START_TEST(more_absent_names_than_are_kept_are_counted)
{
    char names[512] = "";
    for (int i = 0; i < VX_REPOSITORY_ODDS_MAX + 4; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "x%d,", i);
    start("explicit", names, "");
    list(NULL);
    ck_assert_int_eq(vx_models_listing(rig_models)->absent_count,
                     VX_REPOSITORY_ODDS_MAX + 4);
    ck_assert_str_eq(missed("x0"), BY_LOAD_MODEL);
}
END_TEST

static const char *unknown(const char *name, i64 version)
{
    static struct vx_why why;
    i32 instance;
    why.text[0] = '\0';
    ck_assert_int_eq(
        vx_status_code(vx_registry_find(rig_registry, name, version, &why, &instance)),
        VX_CODE_NOT_FOUND);
    return why.text;
}

START_TEST(a_request_for_what_is_not_loaded_is_told_how_to_load_it)
{
    static const char expected[] =
        "Request for unknown model: 'other' is not found: it is in the repository and "
        "not loaded: load it with RepositoryModelLoad";
    start("explicit", "half", "");
    list("other");
    ck_assert_str_eq(unknown("other", 0), expected);
    ck_assert_str_eq(unknown("other", 1), expected);
    ck_assert_str_eq(unknown("othr", 0), "Request for unknown model: 'othr' is not "
                                         "found: this server has 'half'");
    ck_assert(!vx_models_ask_unload(rig_models, "half", &me, NULL).fault);
    vx_models_step(rig_models);
    ck_assert_ptr_nonnull(strstr(unknown("half", 0), "load it with RepositoryModelLoad"));
}
END_TEST

/* Who asks and leaves before anybody has looked leaves no wish behind: there is room for only so
 * many.  What is there is loaded all the same. */
START_TEST(a_load_whose_client_left_leaves_nothing)
{
    struct vx_why why = {""};
    start("explicit", "gone", "");
    for (i32 i = 0; i < 2 * VX_INSTANCES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "none%d", i);
        ck_assert(!vx_models_ask_load(rig_models, name, &me, &why).fault);
        ck_assert(vx_models_forget(rig_models, &me));
        if (i % 100 == 99) list("there");
    }
    ck_assert(!vx_models_ask_load(rig_models, "there", &me, &why).fault);
    ck_assert(vx_models_forget(rig_models, &me));
    list("there");
    ck_assert_int_ge(rig_picked("there", 0), 0);
    ck_assert(!vx_models_wants(rig_models, "none3"));
    ck_assert(vx_models_wants(rig_models, "there"));
    ck_assert(vx_models_wants(rig_models, "gone")); /* load_model names it */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models absent");
    TCase *tcase = tcase_create("absent");
    tcase_add_checked_fixture(tcase, rig_set_up, rig_tear_down);
    tcase_add_test(tcase, a_name_of_load_model_is_missed_until_it_is_there);
    tcase_add_test(tcase, a_failed_load_takes_no_name_back_and_an_unload_does);
    tcase_add_test(tcase, a_load_that_a_client_asked_for_in_vain_is_not_missed);
    tcase_add_loop_test(tcase, placement_asks_for_no_model, 0, 2);
    tcase_add_test(tcase,
                   a_directory_without_a_version_is_missed_when_its_model_is_wanted);
    tcase_add_test(tcase, an_unreadable_repository_does_not_make_it_ready);
    tcase_add_test(tcase, a_directory_of_a_model_that_serves_is_only_noted);
    tcase_add_test(tcase, a_folder_that_cannot_be_read_keeps_no_other_model);
    tcase_add_test(tcase, a_listing_that_a_limit_cut_keeps_what_is_behind_it);
    tcase_add_test(tcase, a_load_in_vain_of_a_model_that_serves_takes_no_wish_back);
    tcase_add_test(tcase, more_absent_names_than_are_kept_are_counted);
    tcase_add_test(tcase, a_request_for_what_is_not_loaded_is_told_how_to_load_it);
    tcase_add_test(tcase, a_load_whose_client_left_leaves_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
