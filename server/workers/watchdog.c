/* SPDX-License-Identifier: Apache-2.0 */
#include "server/workers/watchdog.h"

#include "engine/base/process/clock.h"

#include <stddef.h>

/* One check per second costs nothing, and more than one per 10 ms gains nothing. */
#define TICK_NS_MAX VX_NS_PER_S
#define TICK_NS_MIN (10 * VX_NS_PER_MS)
#define LOOKS       8 /* checks within one limit */

static i64 later(i64 a, i64 b)
{
    return a > b ? a : b;
}

static void judge_add(struct vx_watchdog_verdict *verdict, i64 since_ns, i64 limit_ns,
                      const char *owes)
{
    if (!limit_ns || since_ns + limit_ns >= verdict->due_ns) return;
    *verdict = (struct vx_watchdog_verdict){since_ns + limit_ns, since_ns, owes};
}

static void judge_work(struct vx_watchdog_verdict *verdict,
                       const struct vx_watchdog_work *work, i64 limit_ns,
                       const char *owes)
{
    if (work->count)
        judge_add(verdict, later(work->since_ns, work->word_ns), limit_ns, owes);
}

void vx_watchdog_sent(struct vx_watchdog_work *work, i64 now_ns)
{
    if (!work->count) work->since_ns = now_ns;
    work->count++;
}

void vx_watchdog_answered(struct vx_watchdog_work *work, i64 now_ns)
{
    work->word_ns = now_ns;
    /* A damaged worker may answer once too often: the count must not become negative. */
    if (work->count) work->count--;
}

struct vx_watchdog_verdict vx_watchdog_judge(const struct vx_watchdog_facts *facts,
                                             const struct vx_watchdog_limits *limits)
{
    struct vx_watchdog_verdict verdict = {INT64_MAX, 0, NULL};
    if (facts->starting) {
        judge_add(&verdict, facts->started_ns, limits->start_ns, "start");
        return verdict;
    }
    i64 limit_ns = facts->warms.count ? limits->start_ns : limits->silence_ns;
    judge_work(&verdict, &facts->loads, limits->start_ns, "load");
    judge_work(&verdict, &facts->warms, limits->start_ns, "warm-up");
    judge_work(&verdict, &facts->batches, limit_ns, "batch");
    if (facts->asked)
        judge_add(&verdict, later(facts->asked_ns, facts->heard_ns), limit_ns, "answer");
    return verdict;
}

i64 vx_watchdog_tick_ns(const struct vx_watchdog_limits *limits)
{
    i64 least = limits->silence_ns;
    if (limits->start_ns && (!least || limits->start_ns < least))
        least = limits->start_ns;
    i64 tick = least / LOOKS;
    if (!least || tick > TICK_NS_MAX) return least ? TICK_NS_MAX : 0;
    return later(tick, TICK_NS_MIN);
}

/* A check may be late by one tick.  The front did not run in the time beyond that. */
static i64 clock_late_ns(const struct vx_watchdog_clock *clock, i64 now_ns)
{
    if (!clock->looked_ns) return 0;
    return later(0, now_ns - clock->looked_ns - 2 * clock->tick_ns);
}

void vx_watchdog_look(struct vx_watchdog_clock *clock, i64 now_ns)
{
    clock->away_ns += clock_late_ns(clock, now_ns);
    clock->looked_ns = now_ns;
}

i64 vx_watchdog_now(const struct vx_watchdog_clock *clock, i64 now_ns)
{
    return now_ns - clock->away_ns - clock_late_ns(clock, now_ns);
}
