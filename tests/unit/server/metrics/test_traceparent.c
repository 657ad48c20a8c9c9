/* tracing: which strings are a traceparent, and whose spans are exported.
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

/* ------- which requests are exported ------- */

static struct vx_tracing *open_tracing(void)
{
    struct vx_tracing *tracing;
    ck_assert(!vx_tracing_open(NULL, &tracing).fault);
    return tracing;
}

START_TEST(without_a_collector_nothing_is_exported)
{
    struct vx_tracing *tracing = open_tracing();
    ck_assert(!vx_tracing_begin(tracing, "m", "").exported);
    ck_assert(!vx_tracing_begin(tracing, "m", PARENT "01").exported);
    vx_tracing_close(&tracing);
}
END_TEST

START_TEST(the_callers_flag_counts)
{
    for (i32 ratio = 0; ratio < 2; ratio++) {
        struct vx_tracing *tracing = open_tracing();
        vx_tracing_export(tracing, ratio);
        struct vx_trace on = vx_tracing_begin(tracing, "m", PARENT "01");
        struct vx_trace off = vx_tracing_begin(tracing, "m", PARENT "00");
        struct vx_trace bad = vx_tracing_begin(tracing, "m", "nonsense");
        ck_assert(on.exported && on.wanted && !off.exported && !off.wanted);
        ck_assert_str_eq(on.trace_id, off.trace_id);
        ck_assert_uint_eq(strlen(off.span_id), 16); /* for the access log */
        ck_assert(bad.exported == (ratio == 1) && !bad.wanted);
        ck_assert_str_eq(bad.parent_id, "");
        vx_tracing_close(&tracing);
    }
}
END_TEST

/* Of the setting's own choice, whatever the ratio; but not against the caller's. */
START_TEST(a_trace_setting_exports)
{
    struct vx_tracing *tracing = open_tracing();
    struct vx_trace_settings every = {0};
    vx_tracing_export(tracing, 0);
    every.said[VX_TRACE_LEVEL] = every.said[VX_TRACE_RATE] = true;
    every.values[VX_TRACE_LEVEL] = every.values[VX_TRACE_RATE] = 1;
    ck_assert(!vx_tracing_set(tracing, "", &every).fault);
    struct vx_trace own = vx_tracing_begin(tracing, "m", "");
    struct vx_trace off = vx_tracing_begin(tracing, "m", PARENT "00");
    ck_assert(own.wanted && own.exported && off.wanted && !off.exported);
    ck_assert_uint_eq(strlen(own.trace_id), 32);
    vx_tracing_close(&tracing);
}
END_TEST

/* A quarter of 4,000 coins: outside of these bounds once in 10^20. */
START_TEST(the_ratio_is_a_property_of_the_id)
{
    struct vx_tracing *tracing = open_tracing();
    i32 exported = 0;
    vx_tracing_export(tracing, 0.25);
    for (i32 i = 0; i < 4000; i++) {
        struct vx_trace trace = vx_tracing_begin(tracing, "m", "");
        ck_assert(!trace.wanted);
        ck_assert(trace.exported == (trace.trace_id[0] != '\0'));
        ck_assert(trace.exported == (trace.span_id[0] != '\0'));
        if (!trace.exported) continue;
        exported++;
        /* The last 56 bits of the id are at least 0.75 * 2^56. */
        ck_assert_int_ge(trace.trace_id[18], 'c');
    }
    ck_assert_int_gt(exported, 740);
    ck_assert_int_lt(exported, 1260);
    vx_tracing_close(&tracing);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("traceparent");
    TCase *tests = tcase_create("traceparent");
    tcase_add_test(tests, traceparents_are_what_w3c_says);
    tcase_add_test(tests, without_a_collector_nothing_is_exported);
    tcase_add_test(tests, the_callers_flag_counts);
    tcase_add_test(tests, a_trace_setting_exports);
    tcase_add_test(tests, the_ratio_is_a_property_of_the_id);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
