/* config_file: the file that explains every setting is itself a good one, with its settings
 * as comments and without; comments move no line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/base/config.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 32768

static struct vx_config config;
static struct vx_why why;

/* Parses a file with this text as --config. */
static vx_status parse_file(const char *text)
{
    char path[] = "/tmp/vx_config_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    why.text[0] = '\0';
    vx_status st =
        vx_config_parse(2, (char *[]){(char[]){"--config"}, path}, &why, &config);
    unlink(path);
    return st;
}

static void assert_defaults(void)
{
    struct vx_config standard;
    vx_config_defaults(&standard);
    standard.said = config.said;
    standard.file = config.file;
    memcpy(standard.places, config.places, sizeof standard.places);
    ck_assert_mem_eq(&config, &standard, sizeof config);
}

static int said_count(void)
{
    const bool *said = (const bool *)&config.said;
    int count = 0;
    for (size_t i = 0; i < sizeof config.said; i++) count += said[i];
    return count;
}

START_TEST(the_file_as_it_is_says_nothing)
{
    char file[FILE_BYTES];
    ck_assert_uint_le(vx_config_file(file, sizeof file), sizeof file);
    ck_assert_msg(!parse_file(file).fault, "%s", why.text);
    assert_defaults();
    ck_assert_int_eq(said_count(), 0);
}
END_TEST

START_TEST(without_its_slashes_every_setting_says_its_default)
{
    char file[FILE_BYTES];
    vx_config_file(file, sizeof file);
    for (char *at = file; (at = strstr(at, "  //\""));) memcpy(at, "    ", 4);
    ck_assert_msg(!parse_file(file).fault, "%s", why.text);
    assert_defaults();
    ck_assert_int_eq(said_count(), VX_CONFIG_SETTINGS);
}
END_TEST

START_TEST(no_line_is_too_long_and_a_short_buffer_says_what_it_needs)
{
    char file[FILE_BYTES], small[10];
    size_t needed = vx_config_file(file, sizeof file);
    ck_assert_uint_eq(needed, strlen(file) + 1);
    ck_assert_uint_eq(vx_config_file(small, sizeof small), needed);
    for (char *line = strtok(file, "\n"); line; line = strtok(NULL, "\n"))
        if (!strstr(line, "\": ")) ck_assert_msg(strlen(line) <= 100, "%s", line);
}
END_TEST

START_TEST(comments_and_the_last_comma_are_no_error)
{
    ck_assert(!parse_file("// first\n{\n \t// \"queue_max\": 7,\r\n"
                          "  \"grpc\": \"unix://a//b\",\n  // }\n  \"queue_max\": 9,\n"
                          "  // last\n}\n// behind\n")
                   .fault);
    ck_assert_str_eq(config.grpc, "unix://a//b");
    ck_assert_int_eq(config.queue_max, 9);
    ck_assert_int_eq(said_count(), 2);
}
END_TEST

static const struct {
    const char *text, *said;
} refused[] = {
    {"// one\n// two\n{\n  // three\n  \"queue_mux\": 9,\n}\n", "line 5"},
    {"{\n  \"queue_max\": 9, // nine\n}\n",
     "line 2, column 19: expected '\"', got '/' (a comment must stand on a "
     "line "
     "of its own that begins with //)"},
    {"{\"queue_max\": 9 /* nine */}", "(a comment must stand on a line of its own"},
    {"{\"grpc\": \"(JSON has no comments)\", \"http\": 7}", "line 1, column"},
    {"{\n  \"queue_max\": 9,,\n}\n", "line 3"},
    {"// nothing\n", "expected"},
    {"", "expected"},
    {"{\"queue_max\": 9,}}", "line 1"},
};

START_TEST(what_is_wrong_is_named_with_its_line)
{
    vx_status st = parse_file(refused[_i].text);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, refused[_i].said), "%s", why.text);
}
END_TEST

/* A share is kept as a text; in the file it may be a number, as what it is. */
START_TEST(a_share_may_be_a_number)
{
    static const struct {
        const char *text, *kept;
    } rows[] = {{"0.5", "0.5"}, {"\"0.5\"", "0.5"}, {"1", "1"},       {"0", "0"},
                {"1.0", "1"},   {"0.1", "0.1"},     {"1e-7", "1e-07"}};
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"otlp_ratio\": %s}", rows[i].text);
        ck_assert_msg(!parse_file(text).fault, "%s", why.text);
        ck_assert_str_eq(config.otlp_ratio, rows[i].kept);
    }
}
END_TEST

START_TEST(changed_settings_are_lines)
{
    char changed[FILE_BYTES];
    ck_assert(!parse_file("{}").fault);
    vx_config_changed(&config, changed, sizeof changed);
    ck_assert_str_eq(changed, "every setting has its default\n");
    ck_assert(!parse_file("{\"queue_max\": 9, \"access_log\": true}").fault);
    vx_config_changed(&config, changed, sizeof changed);
    ck_assert(strstr(changed, "queue_max 9\n") && strstr(changed, "access_log true\n"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_file");
    TCase *tcase = tcase_create("config_file");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, the_file_as_it_is_says_nothing);
    tcase_add_test(tcase, without_its_slashes_every_setting_says_its_default);
    tcase_add_test(tcase, no_line_is_too_long_and_a_short_buffer_says_what_it_needs);
    tcase_add_test(tcase, comments_and_the_last_comma_are_no_error);
    tcase_add_loop_test(tcase, what_is_wrong_is_named_with_its_line, 0,
                        sizeof refused / sizeof refused[0]);
    tcase_add_test(tcase, a_share_may_be_a_number);
    tcase_add_test(tcase, changed_settings_are_lines);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
