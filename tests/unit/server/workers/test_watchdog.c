/* watchdog: what a worker must answer, by when, and a front that did not read in time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/workers/watchdog.h"

#include <check.h>
#include <stdlib.h>

#define LIMITS                                                                           \
    {                                                                                    \
        .silence_ns = 20, .start_ns = 120                                                \
    }

static const struct {
    const char *name;
    struct vx_watchdog_facts facts;
    struct vx_watchdog_limits limits;
    i64 due_ns, since_ns;
    const char *owes; /* NULL: nothing, and it is never due */
} verdicts[] = {
    {"idle", {.heard_ns = 5}, LIMITS, INT64_MAX, 0, NULL},
    {"starting", {.starting = true, .started_ns = 7}, LIMITS, 127, 7, "start"},
    {"starting, whatever it said",
     {.starting = true, .started_ns = 7, .heard_ns = 100, .batches = {.word_ns = 100}},
     LIMITS,
     127,
     7,
     "start"},
    {"starting owes nothing else",
     {.starting = true,
      .started_ns = 7,
      .asked = true,
      .asked_ns = 8,
      .batches = {1, 8, 0}},
     LIMITS,
     127,
     7,
     "start"},
    {"a batch", {.batches = {1, 30, 0}}, LIMITS, 50, 30, "batch"},
    {"a batch behind one that ended",
     {.batches = {1, 30, 45}, .heard_ns = 45},
     LIMITS,
     65,
     45,
     "batch"},
    {"a batch long after the last word",
     {.batches = {2, 300, 45}, .heard_ns = 45},
     LIMITS,
     320,
     300,
     "batch"},
    {"a batch that never ends, and a worker that chats",
     {.batches = {1, 30, 20}, .heard_ns = 49},
     LIMITS,
     50,
     30,
     "batch"},
    {"a question", {.asked = true, .asked_ns = 40}, LIMITS, 60, 40, "answer"},
    {"a question behind a batch that has just ended",
     {.asked = true, .asked_ns = 40, .heard_ns = 55, .batches = {0, 30, 55}},
     LIMITS,
     75,
     55,
     "answer"},
    {"a question and a batch: the batch is older",
     {.batches = {1, 30, 0}, .asked = true, .asked_ns = 40},
     LIMITS,
     50,
     30,
     "batch"},
    {"a question and a batch: the question is older",
     {.batches = {1, 40, 0}, .asked = true, .asked_ns = 30},
     LIMITS,
     50,
     30,
     "answer"},
    {"a load", {.loads = {1, 30, 0}}, LIMITS, 150, 30, "load"},
    {"a load that goes on",
     {.loads = {1, 30, 140}, .heard_ns = 140},
     LIMITS,
     260,
     140,
     "load"},
    {"a batch beside a model that is read",
     {.batches = {1, 30, 0}, .loads = {1, 30, 0}, .asked = true, .asked_ns = 31},
     LIMITS,
     50,
     30,
     "batch"},
    {"a batch and a question behind a piece of a warm-up wait as long",
     {.batches = {1, 30, 0}, .warms = {1, 30, 0}, .asked = true, .asked_ns = 31},
     LIMITS,
     150,
     30,
     "warm-up"},
    {"a warm-up that goes on, piece by piece",
     {.warms = {1, 30, 1000}, .heard_ns = 1000},
     LIMITS,
     1120,
     1000,
     "warm-up"},
    {"a warm-up that hangs while another model is read",
     {.loads = {1, 140, 145}, .warms = {1, 30, 0}, .heard_ns = 145},
     LIMITS,
     150,
     30,
     "warm-up"},
    {"a load that hangs while batches end",
     {.batches = {1, 140, 145}, .loads = {1, 30, 0}, .heard_ns = 145},
     LIMITS,
     150,
     30,
     "load"},
    {"a batch that hangs while a warm-up goes on",
     {.batches = {1, 40, 50}, .warms = {1, 30, 160}, .heard_ns = 160},
     LIMITS,
     170,
     50,
     "batch"},
    {"a batch behind a load that has just ended",
     {.batches = {1, 40, 160}, .warms = {0, 30, 160}, .heard_ns = 160},
     LIMITS,
     180,
     160,
     "batch"},
    {"no limit of silence",
     {.batches = {1, 30, 0}, .asked = true, .asked_ns = 31},
     {.start_ns = 120},
     INT64_MAX,
     0,
     NULL},
    {"no limit of starts",
     {.starting = true, .started_ns = 7},
     {.silence_ns = 20},
     INT64_MAX,
     0,
     NULL},
    {"no limit of loads",
     {.loads = {1, 30, 0}, .warms = {1, 30, 0}, .asked = true, .asked_ns = 31},
     {.silence_ns = 20},
     INT64_MAX,
     0,
     NULL},
};

START_TEST(what_is_owed_and_until_when)
{
    struct vx_watchdog_verdict verdict =
        vx_watchdog_judge(&verdicts[_i].facts, &verdicts[_i].limits);
    ck_assert_msg(verdict.due_ns == verdicts[_i].due_ns, "%s: due %lld",
                  verdicts[_i].name, (long long)verdict.due_ns);
    ck_assert_msg(verdict.since_ns == verdicts[_i].since_ns, "%s: since %lld",
                  verdicts[_i].name, (long long)verdict.since_ns);
    if (!verdicts[_i].owes)
        ck_assert_ptr_null(verdict.owes);
    else
        ck_assert_str_eq(verdict.owes, verdicts[_i].owes);
}
END_TEST

START_TEST(work_is_owed_since_the_first_that_was_not_answered)
{
    struct vx_watchdog_work work = {0};
    vx_watchdog_sent(&work, 10);
    vx_watchdog_sent(&work, 20);
    ck_assert_int_eq(work.count, 2);
    ck_assert_int_eq(work.since_ns, 10);
    vx_watchdog_answered(&work, 30);
    vx_watchdog_answered(&work, 31);
    vx_watchdog_answered(&work, 32); /* one too many */
    ck_assert_int_eq(work.count, 0);
    ck_assert_int_eq(work.word_ns, 32);
    vx_watchdog_sent(&work, 40);
    ck_assert_int_eq(work.count, 1);
    ck_assert_int_eq(work.since_ns, 40);
}
END_TEST

static const struct {
    i64 silence_ms, start_ms, tick_ms;
} ticks[] = {
    {0, 0, 0},     {20000, 120000, 1000}, {800, 120000, 100}, {0, 800, 100},
    {800, 0, 100}, {8000, 0, 1000},       {7992, 0, 999},     {800, 400, 50},
    {1, 0, 10},    {80, 0, 10},           {3600000, 0, 1000},
};

START_TEST(how_often_to_look)
{
    const struct vx_watchdog_limits limits = {ticks[_i].silence_ms * VX_NS_PER_MS,
                                              ticks[_i].start_ms * VX_NS_PER_MS};
    ck_assert_int_eq(vx_watchdog_tick_ns(&limits), ticks[_i].tick_ms * VX_NS_PER_MS);
}
END_TEST

START_TEST(looks_in_time_leave_the_clock_alone)
{
    struct vx_watchdog_clock clock = {.tick_ns = 10};
    ck_assert_int_eq(vx_watchdog_now(&clock, 12345), 12345); /* before the first check */
    vx_watchdog_look(&clock, 20000);
    vx_watchdog_look(&clock, 20010);
    vx_watchdog_look(&clock, 20030); /* a tick late, as a busy machine is */
    ck_assert_int_eq(vx_watchdog_now(&clock, 20035), 20035);
}
END_TEST

START_TEST(time_in_which_the_front_was_stopped_does_not_count)
{
    struct vx_watchdog_clock clock = {.tick_ns = 10};
    vx_watchdog_look(&clock, 1000);
    ck_assert_int_eq(vx_watchdog_now(&clock, 1005), 1005);
    /* Stopped from there to 5000: what is read before the next check is in time. */
    ck_assert_int_eq(vx_watchdog_now(&clock, 5000), 1020);
    vx_watchdog_look(&clock, 5001);
    ck_assert_int_eq(clock.away_ns, 5001 - 1020);
    ck_assert_int_eq(vx_watchdog_now(&clock, 5011), 1030);
    /* A front that is always late still finds a hang: each check counts for two ticks. */
    i64 before = vx_watchdog_now(&clock, 5001);
    for (i64 now = 5101; now <= 6001; now += 100) vx_watchdog_look(&clock, now);
    ck_assert_int_eq(vx_watchdog_now(&clock, 6001), before + 10 * 20);
}
END_TEST

START_TEST(its_clock_never_goes_back)
{
    struct vx_watchdog_clock clock = {.tick_ns = 10};
    i64 now = 1, last = 0;
    u32 random = (u32)_i * 2654435761u + 1;
    for (int i = 0; i < 10000; i++) {
        random = random * 1664525u + 1013904223u;
        now += random >> 26;
        if (random & 1024) vx_watchdog_look(&clock, now);
        ck_assert_int_ge(vx_watchdog_now(&clock, now), last);
        last = vx_watchdog_now(&clock, now);
        ck_assert_int_le(last, now);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tests = tcase_create("watchdog");
    tcase_add_loop_test(tests, what_is_owed_and_until_when, 0, (int)VX_COUNT(verdicts));
    tcase_add_test(tests, work_is_owed_since_the_first_that_was_not_answered);
    tcase_add_loop_test(tests, how_often_to_look, 0, (int)VX_COUNT(ticks));
    tcase_add_test(tests, looks_in_time_leave_the_clock_alone);
    tcase_add_test(tests, time_in_which_the_front_was_stopped_does_not_count);
    tcase_add_loop_test(tests, its_clock_never_goes_back, 0, 4);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
