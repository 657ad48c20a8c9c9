/* Tables that are replaced while calls ask, and the file of tokens, read and watched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/access/access_file.h"
#include "tests/unit/server/access/access_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void set_up(void)
{
    rig_open(&(struct vx_access_options){.tokens = true, .connections_max = 4});
}
static void tear_down(void)
{
    vx_access_close(&rig_access);
}

/* ------- tables that are replaced ------- */

START_TEST(a_ticket_follows_the_table)
{
    rig_use_a("\"models\": [\"m\"], \"methods\": [\"infer\"]");
    rig_passes(rig_enter(M_MODEL_STREAM_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(rig_spend(1, 1, 1, 0));
    rig_use_a("\"models\": [\"n\"], \"methods\": [\"infer\"]");
    rig_refused(vx_access_model(rig_access, &rig_ticket, "m", &rig_why),
                VX_CODE_PERMISSION_DENIED, "");
    rig_passes(vx_access_model(rig_access, &rig_ticket, "n", &rig_why));
    rig_passes(vx_access_stays(rig_access, &rig_ticket, M_MODEL_STREAM_INFER, &rig_why));
    rig_refused(vx_access_stays(rig_access, &rig_ticket, M_MODEL_READY, &rig_why),
                VX_CODE_PERMISSION_DENIED, "of the methods 'read'");
    /* Another entry in front of it: the same token, another place. */
    char text[1024];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"b\", \"sha256\": \"%s\", \"models\": [\"b\"], "
             "\"methods\": [\"read\"]}, {\"name\": \"a2\", \"sha256\": \"%s\", "
             "\"models\": [\"x\"], \"methods\": [\"infer\"]}]}",
             rig_hex(TOKEN_B), rig_hex(TOKEN_A));
    rig_use(text);
    rig_passes(vx_access_model(rig_access, &rig_ticket, "x", &rig_why));
    ck_assert_str_eq(rig_ticket.name, "a2");
    /* It is taken away: the stream's next message is refused, and each after it. */
    rig_use("{\"tokens\": []}");
    for (i32 i = 0; i < 3; i++)
        rig_refused(rig_spend(1, 1, 0, 0), VX_CODE_UNAUTHENTICATED, "or no longer");
    rig_refused(vx_access_model(rig_access, &rig_ticket, "x", &rig_why),
                VX_CODE_UNAUTHENTICATED, "");
    rig_refused(vx_access_stays(rig_access, &rig_ticket, M_MODEL_STREAM_INFER, &rig_why),
                VX_CODE_UNAUTHENTICATED, "or no longer");
    ck_assert(!vx_access_sees(rig_access, &rig_ticket, "x"));
    ck_assert_str_eq(rig_ticket.name, "");
    struct vx_access_counts counts;
    char name[VX_ACCESS_NAME_BYTES];
    ck_assert(!vx_access_counts_get(rig_access, 0, name, &counts));
}
END_TEST

START_TEST(counts_and_buckets_stay_by_name)
{
    const char *may = "\"models\": [\"*\"], \"methods\": [\"infer\"], \"limits\": "
                      "{\"requests\": {\"per_second\": 1, \"burst\": 2}}";
    char text[1024], name[VX_ACCESS_NAME_BYTES];
    struct vx_access_counts counts;
    rig_use_a(may);
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    for (i32 i = 0; i < 5; i++) rig_use_a(may); /* reloads fill nothing */
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0),
                VX_CODE_RESOURCE_EXHAUSTED, "");
    ck_assert_uint_eq(rig_counts(0).requests, 2);
    /* The token is replaced by another, and an entry comes before it. */
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"z\", \"anyone\": true, \"models\": [\"*\"], "
             "\"methods\": [\"read\"]}, {\"name\": \"a\", \"sha256\": \"%s\", %s}]}",
             rig_hex(TOKEN_B), may);
    rig_use(text);
    ck_assert(vx_access_counts_get(rig_access, 1, name, &counts));
    ck_assert_str_eq(name, "a");
    ck_assert_uint_eq(counts.requests, 2);
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_B, 0),
                VX_CODE_RESOURCE_EXHAUSTED, "");
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
                "");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_B, 2 * S));
}
END_TEST

/* Threads ask while the table is replaced: a token that every table has always passes. */
static atomic_bool over;
static void *ask(void *context)
{
    struct vx_access_ticket own;
    struct vx_why text;
    u64 asked = 0, *out = context;
    static const char authorization[] = "Bearer " TOKEN_A;
    const struct vx_access_arrival arrival = {.method = M_MODEL_INFER,
                                              .connection = 1,
                                              .authorization = authorization,
                                              .authorization_length =
                                                  sizeof authorization - 1,
                                              .is_request = true};
    while (!atomic_load(&over) || asked < 100) {
        const struct vx_access_cost cost = {.of = {[VX_ACCESS_BYTES] = 10}};
        bool bad = vx_access_enter(rig_access, &arrival, &text, &own).fault ||
                   vx_access_model(rig_access, &own, "m", &text).fault ||
                   vx_access_spend(rig_access, &own, &cost, 0, &text).fault;
        if (bad) return (void *)1;
        asked++;
    }
    *out = asked;
    return NULL;
}

START_TEST(tables_are_replaced_under_load)
{
    pthread_t threads[3];
    u64 asked[3] = {0};
    rig_use_a("\"models\": [\"m\"], \"methods\": [\"infer\"]");
    atomic_store(&over, false);
    for (i32 t = 0; t < 3; t++)
        ck_assert(!pthread_create(&threads[t], NULL, ask, &asked[t]));
    for (i32 i = 0; i < 300; i++)
        rig_use_a(i % 2
                      ? "\"models\": [\"m\"], \"methods\": [\"infer\"]"
                      : "\"models\": [\"x\", \"*\"], \"methods\": [\"infer\", \"read\"]");
    atomic_store(&over, true);
    u64 sum = 0;
    for (i32 t = 0; t < 3; t++) {
        void *bad;
        ck_assert(!pthread_join(threads[t], &bad));
        ck_assert_ptr_null(bad);
        sum += asked[t];
    }
    struct vx_access_counts a = rig_counts(0);
    ck_assert_uint_eq(a.requests, sum);
    ck_assert_uint_eq(a.bytes, 10 * sum);
}
END_TEST

/* ------- the file ------- */

static char folder[64], path[96];
static uv_loop_t loop;
static struct vx_access_file file;

static void write_file(const char *text, mode_t mode)
{
    char next[128];
    snprintf(next, sizeof next, "%s.next", path);
    FILE *to = fopen(next, "w");
    ck_assert_ptr_nonnull(to);
    fputs(text, to);
    ck_assert(!fclose(to));
    ck_assert(!chmod(next, mode));
    ck_assert(!rename(next, path));
}

static const char *entry_a(void)
{
    static char text[512];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}]}",
             rig_hex(TOKEN_A));
    return text;
}

static void set_up_file(void)
{
    set_up();
    snprintf(folder, sizeof folder, "/tmp/vx-access-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokens.json", folder);
    ck_assert(!uv_loop_init(&loop));
    file = (struct vx_access_file){.path = NULL};
}
static void tear_down_file(void)
{
    vx_access_file_close(&file);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(!uv_loop_close(&loop));
    unlink(path);
    ck_assert(!rmdir(folder));
    tear_down();
}

START_TEST(a_file_that_cannot_be_used_is_an_error)
{
    static const struct {
        const char *text;
        mode_t mode;
        enum vx_code code;
        const char *sentence;
    } rows[] = {
        {"{\"tokens\": [\n {}]}", 0600, VX_CODE_INVALID_ARGUMENT, "tokens.json: line 2"},
        {"{\"tokens\": []}", 0602, VX_CODE_PERMISSION_DENIED, "got mode 0602: chmod o-w"},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        write_file(rows[i].text, rows[i].mode);
        rig_refused(vx_access_file_open(&file, &loop, path, rig_access, &rig_why),
                    rows[i].code, rows[i].sentence);
        file.loop = NULL; /* it was not opened */
    }
    unlink(path);
    rig_refused(vx_access_file_open(&file, &loop, path, rig_access, &rig_why),
                VX_CODE_NOT_FOUND, "expected a file of tokens that can be read");
    rig_refused(vx_access_file_open(&file, &loop, folder, rig_access, &rig_why),
                VX_CODE_NOT_FOUND, "expected a regular file of tokens, got a directory");
    file.loop = NULL;
}
END_TEST

START_TEST(a_file_of_another_user_is_told_without_opening_it_to_all)
{
    bool is_root = !geteuid();
    write_file(entry_a(), is_root ? 0600 : 0000);
    ck_assert(!chmod(folder, 0755));
    ck_assert(!is_root || !seteuid(10001));
    vx_status status = vx_access_file_open(&file, &loop, path, rig_access, &rig_why);
    ck_assert(!is_root || !seteuid(0));
    file.loop = NULL;
    rig_refused(status, VX_CODE_NOT_FOUND, ": chown it, or chgrp and chmod g+r it");
}
END_TEST

START_TEST(a_file_that_others_may_read_is_a_warning)
{
    u64 before = vx_log_count(VX_EVENT_TOKENS_OPEN);
    write_file(entry_a(), 0600);
    rig_passes(vx_access_file_open(&file, &loop, path, rig_access, &rig_why));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_OPEN), before);
    vx_access_file_close(&file);
    uv_run(&loop, UV_RUN_DEFAULT);
    write_file(entry_a(), 0644);
    rig_passes(vx_access_file_open(&file, &loop, path, rig_access, &rig_why));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_OPEN), before + 1);
}
END_TEST

static void wait_for(enum vx_log_event event, u64 count)
{
    while (vx_log_count(event) < count) uv_run(&loop, UV_RUN_ONCE);
}

START_TEST(a_changed_file_is_read_again)
{
    write_file(entry_a(), 0600);
    rig_passes(vx_access_file_open(&file, &loop, path, rig_access, &rig_why));
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    /* Asked for, as by SIGHUP, many times at once: it is read at least once more. */
    u64 reads = vx_log_count(VX_EVENT_TOKENS);
    for (i32 i = 0; i < 10; i++) vx_access_file_look(&file);
    wait_for(VX_EVENT_TOKENS, reads + 2);
    ck_assert_uint_le(vx_log_count(VX_EVENT_TOKENS), reads + 3);
    /* A wrong one changes nothing and is reported once. */
    u64 failures = vx_log_count(VX_EVENT_TOKENS_FAILED);
    write_file("{\"tokens\": [", 0600);
    wait_for(VX_EVENT_TOKENS_FAILED, failures + 1);
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    /* A right one applies, without being asked for. */
    reads = vx_log_count(VX_EVENT_TOKENS);
    write_file("{\"tokens\": []}", 0600);
    wait_for(VX_EVENT_TOKENS, reads + 1);
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
                "");
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_FAILED), failures + 1);
    /* One that is gone, too, changes nothing. */
    unlink(path);
    wait_for(VX_EVENT_TOKENS_FAILED, failures + 2);
    reads = vx_log_count(VX_EVENT_TOKENS);
    write_file(entry_a(), 0600);
    wait_for(VX_EVENT_TOKENS, reads + 1);
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access_file");
    TCase *tcase = tcase_create("tables");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_ticket_follows_the_table);
    tcase_add_test(tcase, counts_and_buckets_stay_by_name);
    tcase_add_test(tcase, tables_are_replaced_under_load);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("file");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up_file, tear_down_file);
    tcase_add_test(tcase, a_file_that_cannot_be_used_is_an_error);
    tcase_add_test(tcase, a_file_of_another_user_is_told_without_opening_it_to_all);
    tcase_add_test(tcase, a_file_that_others_may_read_is_a_warning);
    tcase_add_test(tcase, a_changed_file_is_read_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
