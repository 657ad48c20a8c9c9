/* tracing: which strings are a traceparent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/metrics/tracing.h"

#include <check.h>
#include <string.h>

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

START_TEST(traceparents_are_what_w3c_says)
{
    static const struct {
        const char *text;
        bool good, sampled;
    } cases[] = {
        {PARENT "01", true, true},
        {PARENT "00", true, false},
        {PARENT "03", true, true},
        {PARENT "fe", true, false},
        {"cc" PARENT "", false, false},
        {"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true, true},
        {"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", true, true},
        {"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more", false, false},
        {PARENT "01-more", false, false}, /* version 00 has no more */
        {PARENT "01 ", false, false},
        {PARENT "0", false, false},
        {PARENT "0g", false, false},
        {PARENT "0A", false, false},
        {"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false, false},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false, false},
        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false, false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false, false},
        {"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false, false},
        {"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01", false, false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b\"-01", false, false},
        {"", false, false},
        {"-", false, false},
    };
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        struct vx_trace trace;
        bool good = vx_tracing_parse(cases[i].text, &trace);
        ck_assert_msg(good == cases[i].good, "'%s'", cases[i].text);
        ck_assert_msg(trace.wanted == cases[i].sampled, "'%s'", cases[i].text);
        ck_assert_str_eq(trace.trace_id, good ? "4bf92f3577b34da6a3ce929d0e0e4736" : "");
        ck_assert_str_eq(trace.parent_id, good ? "00f067aa0ba902b7" : "");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("traceparent");
    TCase *tests = tcase_create("traceparent");
    tcase_add_test(tests, traceparents_are_what_w3c_says);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
