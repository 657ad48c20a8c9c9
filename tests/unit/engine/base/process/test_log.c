/* log: both formats of a line, what is escaped, cut, suppressed and dropped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "engine/base/text/json.h"
#include "tests/support/wait.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int fd;

static void log_to(bool json, enum vx_log_level level)
{
    if (fd > 0) close(fd);
    fd = memfd_create("log", MFD_CLOEXEC);
    ck_assert_int_gt(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_APPEND),
                     0); /* a memfd does not lock its position */
    vx_log_init(&(struct vx_log_options){.level = level, .json = json, .fd = fd}, "test");
}

/* All that was logged since log_to. */
static const char *logged(void)
{
    static char text[1 << 20];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    ck_assert_int_ge(length, 0);
    text[length] = '\0';
    return text;
}

static int lines_count(const char *text)
{
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

static int words_count(const char *text, const char *word)
{
    int count = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) count++;
    return count;
}

/* The sum of the numbers behind `key` in the text. */
static u64 sum_after(const char *text, const char *key)
{
    u64 sum = 0;
    for (; (text = strstr(text, key)); text += strlen(key))
        sum += strtoull(text + strlen(key), NULL, 10);
    return sum;
}

/* The number behind the last `key` in the text, 0 when there is none. */
static u64 number_after(const char *text, const char *key)
{
    const char *at = NULL;
    for (const char *next = text; (next = strstr(next, key)); next++) at = next;
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static bool matches(const char *text, const char *pattern)
{
    regex_t regex;
    ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool found = !regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    return found;
}

/* The limit on lines is per second of this clock. */
static i64 second_now(void)
{
    return vx_clock_ns() / VX_NS_PER_S;
}

static const struct vx_json *parse_line(const char *line, size_t length,
                                        struct vx_arena *arena)
{
    static char block[1 << 18];
    struct vx_why why = {""};
    const struct vx_json *root = NULL;
    vx_arena_init(arena, block, sizeof block);
    vx_status st = vx_json_parse(line, length, arena, &why, &root);
    ck_assert_msg(!st.fault, "%s in: %.*s", vx_status_text(st, &why), (int)length, line);
    ck_assert_int_eq(root->kind, VX_JSON_OBJECT);
    return root;
}

START_TEST(text_line_has_its_shape)
{
    log_to(false, VX_LOG_INFO);
    VX_LOG(START, VX_LOG_TEXT("version", "0.1.0"), VX_LOG_I64("pid", -7),
           VX_LOG_F64("load", 0.25));
    ck_assert_msg(matches(logged(),
                          "^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6]"
                          "[0-9]\\.[0-9]{3}Z info START process=test version=0\\.1\\.0 "
                          "pid=-7 load=0\\.25\n$"),
                  "%s", logged());
}
END_TEST

START_TEST(json_line_has_its_shape)
{
    log_to(true, VX_LOG_INFO);
    VX_LOG(STOP, VX_LOG_TEXT("code", "OK"), VX_LOG_I64("n", INT64_MIN),
           VX_LOG_F64("x", 1e300), VX_LOG_F64("nan", (f64)NAN),
           VX_LOG_TEXT("none", NULL));
    struct vx_arena arena;
    const struct vx_json *root = parse_line(logged(), strlen(logged()), &arena);
    ck_assert_str_eq(vx_json_find(root, "level")->text, "info");
    ck_assert_str_eq(vx_json_find(root, "event")->text, "STOP");
    ck_assert_str_eq(vx_json_find(root, "process")->text, "test");
    ck_assert_int_eq((int)strlen(vx_json_find(root, "ts")->text), 24);
    ck_assert_str_eq(vx_json_find(root, "code")->text, "OK");
    ck_assert_int_eq(vx_json_find(root, "n")->number, INT64_MIN);
    ck_assert_double_eq(vx_json_find(root, "x")->real, 1e300);
    ck_assert_int_eq(vx_json_find(root, "nan")->kind, VX_JSON_NULL);
    ck_assert_str_eq(vx_json_find(root, "none")->text, "");
}
END_TEST

static const struct {
    const char *value, *text, *json;
} escapes[] = {
    {"plain-1.5/x:y", "plain-1.5/x:y", "\"plain-1.5/x:y\""},
    {"", "\"\"", "\"\""},
    {"two words", "\"two words\"", "\"two words\""},
    /* What turns the order of letters, or has no width; and its neighbours, which are seen. */
    {"a\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8b\xd8\x9c\xef\xbb\xbf",
     "\"a\\u202e\\u2066\\u200b\\u061c\\ufeff\"",
     "\"a\\u202e\\u2066\\u200b\\u061c\\ufeff\""},
    {"b\xe2\x80\x8a\xe2\x80\xaf\xd8\x9b\xf0\x9f\x98\x80",
     "\"b\xe2\x80\x8a\xe2\x80\xaf\xd8\x9b\xf0\x9f\x98\x80\"",
     "\"b\xe2\x80\x8a\xe2\x80\xaf\xd8\x9b\xf0\x9f\x98\x80\""},
    {"new\xe2\x80\xa8line\xe2\x80\xa9", "\"new\\u2028line\\u2029\"",
     "\"new\\u2028line\\u2029\""},
    {"a=b", "\"a=b\"", "\"a=b\""},
    {"say \"hi\"", "\"say \\\"hi\\\"\"", "\"say \\\"hi\\\"\""},
    {"back\\slash", "\"back\\\\slash\"", "\"back\\\\slash\""},
    {"line\nbreak\r\ttab", "\"line\\nbreak\\r\\ttab\"", "\"line\\nbreak\\r\\ttab\""},
    {"\x01\x1b[31m\x7f", "\"\\u0001\\u001b[31m\\u007f\"",
     "\"\\u0001\\u001b[31m\\u007f\""},
    {"gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"", "\"gr\xc3\xbc\xc3\x9f\""},
    {"\xc2\x9b"
     "csi",
     "\"\\u009bcsi\"", "\"\\u009bcsi\""},
    {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"", "\"\xf0\x9f\x98\x80\""},
    {"bad\xff", "\"bad\\xff\"", "\"bad\\ufffd\""},
    {"cut\xe2\x82", "\"cut\\xe2\\x82\"", "\"cut\\ufffd\\ufffd\""},
    {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\"", "\"\\ufffd\\ufffd\\ufffd\""},
    {"\xc0\xaf", "\"\\xc0\\xaf\"", "\"\\ufffd\\ufffd\""},
};

START_TEST(values_are_escaped)
{
    char expected[256];
    log_to(false, VX_LOG_INFO);
    VX_LOG(LISTEN, VX_LOG_TEXT("v", escapes[_i].value));
    snprintf(expected, sizeof expected, " v=%s\n", escapes[_i].text);
    ck_assert_msg(strstr(logged(), expected) != NULL, "%sexpected%s", logged(), expected);
    log_to(true, VX_LOG_INFO);
    VX_LOG(LISTEN, VX_LOG_TEXT("v", escapes[_i].value));
    snprintf(expected, sizeof expected, ",\"v\":%s}\n", escapes[_i].json);
    ck_assert_msg(strstr(logged(), expected) != NULL, "%sexpected%s", logged(), expected);
}
END_TEST

START_TEST(level_hides_lines_but_counts_them)
{
    log_to(false, VX_LOG_WARN);
    u64 before = vx_log_count(VX_EVENT_START);
    VX_LOG(START, VX_LOG_I64("n", 1));
    VX_LOG(GRPC, VX_LOG_I64("n", 2));
    VX_LOG(WORKER_EXIT, VX_LOG_I64("n", 3));
    ck_assert_int_eq(lines_count(logged()), 2);
    ck_assert(!strstr(logged(), "START"));
    ck_assert(strstr(logged(), " warn GRPC ") && strstr(logged(), " error WORKER_EXIT "));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_START), before + 1);
}
END_TEST

START_TEST(flood_is_counted_and_said_once)
{
    log_to(false, VX_LOG_INFO);
    i64 first = second_now();
    for (int i = 0; i < 10000; i++) VX_LOG(GRPC, VX_LOG_I64("i", i));
    i64 last = second_now();               /* the same, or a tick or two later */
    VX_LOG(LISTEN, VX_LOG_I64("port", 1)); /* another event is not silenced */
    ck_assert(strstr(logged(), "LISTEN"));
    int said = words_count(logged(), " GRPC ");
    ck_assert_int_ge(said, VX_LOG_BURST);
    ck_assert_int_le(said, VX_LOG_BURST * (int)(last - first + 1));
    VX_WAIT_UNTIL(second_now() > last);
    VX_LOG(GRPC, VX_LOG_I64("i", 10000));
    ck_assert(matches(logged(), "i=10000( suppressed=[0-9]+)?\n$"));
    ck_assert_uint_eq(sum_after(logged(), " suppressed="), 10000 - (u64)said);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_GRPC), 10001);
}
END_TEST

/* A repository may have 512 versions and more: a line of each must be found. */
START_TEST(lines_of_access_and_of_models_are_all_written)
{
    log_to(false, VX_LOG_INFO);
    for (int i = 0; i < 10 * VX_LOG_BURST; i++) {
        VX_LOG(ACCESS, VX_LOG_I64("i", i));
        VX_LOG(MODEL_FAILED, VX_LOG_I64("i", i));
        VX_LOG(MODEL_LOADING, VX_LOG_I64("i", i));
        VX_LOG(MODEL_NETWORK, VX_LOG_I64("i", i));
        VX_LOG(MODEL_NOTE, VX_LOG_I64("i", i));
        VX_LOG(MODEL_READY, VX_LOG_I64("i", i));
        VX_LOG(MODEL_RETRY, VX_LOG_I64("i", i));
        VX_LOG(MODEL_UNLOADED, VX_LOG_I64("i", i));
        VX_LOG(REPOSITORY, VX_LOG_I64("i", i));
    }
    ck_assert_int_eq(lines_count(logged()), 9 * 10 * VX_LOG_BURST);
    ck_assert(!strstr(logged(), "suppressed"));
}
END_TEST

START_TEST(levels_change_while_it_runs)
{
    struct vx_log_choice choice;
    log_to(false, VX_LOG_WARN);
    vx_log_choice_get(&choice);
    ck_assert(!choice.info && choice.warn && choice.error && !choice.verbose);
    VX_LOG(START, VX_LOG_I64("n", 1));
    choice.info = true;
    choice.error = false;
    choice.iso = true;
    vx_log_choice_set(&choice);
    VX_LOG(START, VX_LOG_I64("n", 2));
    VX_LOG(WORKER_EXIT, VX_LOG_I64("n", 3));
    ck_assert_int_eq(lines_count(logged()), 1);
    ck_assert(strstr(logged(), " info START ") && strstr(logged(), " n=2\n"));
    choice = (struct vx_log_choice){.verbose = UINT32_MAX};
    vx_log_choice_set(&choice);
    vx_log_choice_get(&choice);
    ck_assert(!choice.info && !choice.warn && !choice.error && !choice.iso);
    ck_assert_uint_eq(choice.verbose, UINT32_MAX);
    log_to(false, VX_LOG_DEBUG);
    vx_log_choice_get(&choice);
    ck_assert(choice.info && choice.warn && choice.error && choice.verbose == 1);
}
END_TEST

static void check_long(bool json)
{
    char value[4000];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    value[100] = '\n';                /* an escape far from any limit, and */
    memset(value + 600, '\x01', 100); /* many near the limit */
    log_to(json, VX_LOG_INFO);
    VX_LOG(CONFIG, VX_LOG_TEXT("a", value), VX_LOG_I64("after", 42));
    const char *line = logged();
    ck_assert(strlen(line) <= VX_LOG_LINE_BYTES);
    ck_assert(strstr(line, "...\""));
    ck_assert(strstr(line, json ? "\"after\":42}\n" : " after=42\n"));
    struct vx_log_field fields[40];
    for (size_t i = 0; i < VX_COUNT(fields); i++)
        fields[i] = VX_LOG_TEXT("key", value + i);
    log_to(json, VX_LOG_INFO);
    vx_log_write(VX_EVENT_CONFIG, fields, (int)VX_COUNT(fields));
    line = logged();
    ck_assert_int_eq(lines_count(line), 1);
    ck_assert(strlen(line) <= VX_LOG_LINE_BYTES);
    ck_assert_uint_gt(number_after(line, json ? "\"cut\":" : " cut="), 30);
    if (!json) return;
    /* Duplicate keys come from this test, not from the log: renamed, the line must be JSON. */
    static char keys[40][8];
    for (size_t i = 0; i < VX_COUNT(fields); i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        fields[i].key = keys[i];
    }
    log_to(json, VX_LOG_INFO);
    vx_log_write(VX_EVENT_CONFIG, fields, (int)VX_COUNT(fields));
    struct vx_arena arena;
    parse_line(logged(), strlen(logged()), &arena);
}

START_TEST(long_values_are_cut)
{
    check_long(_i == 1);
}
END_TEST

START_TEST(lost_lines_are_counted)
{
    log_to(false, VX_LOG_INFO);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = -1}, "test");
    for (int i = 0; i < 3; i++) VX_LOG(DRAIN, VX_LOG_I64("i", i));
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]); /* nobody reads: a signal must not end the process */
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = ends[1]}, "test");
    VX_LOG(DRAIN, VX_LOG_I64("i", 3));
    close(ends[1]);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = fd}, "test");
    VX_LOG(DRAIN, VX_LOG_I64("i", 4));
    VX_LOG(DRAIN, VX_LOG_I64("i", 5));
    ck_assert(matches(logged(), "i=4 dropped=4\n"));
    ck_assert(matches(logged(), "i=5\n$"));
}
END_TEST

#define THREADS      4
#define THREAD_LINES 5000
static void *thread_main(void *context)
{
    i64 thread = (i64)(intptr_t)context;
    for (i64 i = 0; i < THREAD_LINES; i++)
        vx_log_write((enum vx_log_event)(i % VX_EVENTS_COUNT),
                     (struct vx_log_field[]){VX_LOG_I64("thread", thread),
                                             VX_LOG_TEXT("text", "some words")},
                     2);
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    log_to(false, VX_LOG_DEBUG);
    pthread_t threads[THREADS];
    for (i64 i = 0; i < THREADS; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i), 0);
    for (i64 i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    u64 total = 0;
    for (int event = 0; event < VX_EVENTS_COUNT; event++) total += vx_log_count(event);
    ck_assert_uint_eq(total, THREADS * THREAD_LINES);
    const char *line = logged();
    ck_assert_int_ge(lines_count(line), VX_LOG_BURST * VX_EVENTS_COUNT);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        char copy[VX_LOG_LINE_BYTES];
        snprintf(copy, sizeof copy, "%.*s", (int)(end - line), line);
        ck_assert_msg(matches(copy, "^20[^ ]+Z [a-z]+ [A-Z_]+ process=test thread=[0-3] "
                                    "text=\"some words\"( suppressed=[0-9]+)?$"),
                      "%s", copy);
    }
    ck_assert_str_eq(line, "");
}
END_TEST

START_TEST(random_bytes_are_json)
{
    u64 state = 88172645463325252u;
    int checked = 0;
    for (int round = 0; round < VX_LOG_BURST * VX_EVENTS_COUNT; round++) {
        char value[900];
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t length = (size_t)(state >> 33) % (sizeof value - 1);
        for (size_t i = 0; i < length; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            value[i] = (char)((state >> 40) % 255 + 1);
        }
        value[length] = '\0';
        log_to(true, VX_LOG_DEBUG);
        vx_log_write((enum vx_log_event)(round % VX_EVENTS_COUNT),
                     (struct vx_log_field[]){VX_LOG_TEXT("v", value)}, 1);
        const char *line = logged();
        if (!*line) continue;
        ck_assert(strlen(line) <= VX_LOG_LINE_BYTES);
        struct vx_arena arena;
        ck_assert_ptr_nonnull(vx_json_find(parse_line(line, strlen(line), &arena), "v"));
        checked++;
    }
    ck_assert_int_ge(checked, VX_LOG_BURST * VX_EVENTS_COUNT / 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, text_line_has_its_shape);
    tcase_add_test(tests, json_line_has_its_shape);
    tcase_add_loop_test(tests, values_are_escaped, 0, (int)VX_COUNT(escapes));
    tcase_add_test(tests, level_hides_lines_but_counts_them);
    tcase_add_test(tests, flood_is_counted_and_said_once);
    tcase_add_test(tests, lines_of_access_and_of_models_are_all_written);
    tcase_add_test(tests, levels_change_while_it_runs);
    tcase_add_loop_test(tests, long_values_are_cut, 0, 2);
    tcase_add_test(tests, lost_lines_are_counted);
    tcase_add_test(tests, lines_of_threads_do_not_mix);
    tcase_add_test(tests, random_bytes_are_json);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
