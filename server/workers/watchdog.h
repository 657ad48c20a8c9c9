/* watchdog - decides when a silent worker has hung: a pure function of times.
 *
 * A worker must send a message within a limit while it has a batch, a load or an
 * unanswered STATS.  A worker whose device never ends a batch can still answer STATS, so
 * only messages about one kind of work are signs of life for that work.  For STATS any
 * message is one.  DONE of a batch says nothing about a load, because another thread
 * reads the model's files.  When they are read, the device thread warms the model up, or
 * tunes it, in steps with batches in between.  Then the longer limit applies, as for a
 * worker that opens its device; it is per step, because each step sends a message.
 *
 *   struct vx_watchdog_verdict verdict = vx_watchdog_judge(&facts, &limits);
 *   if (now >= verdict.due_ns) kill(...);
 *
 * Times are read from a clock that stands still while the front itself does not run: when
 * the front or its machine was suspended, the workers are not blamed for the silence.
 *
 *   struct vx_watchdog_clock clock = {.tick_ns = vx_watchdog_tick_ns(&limits)};
 *   vx_watchdog_look(&clock, vx_clock_ns());             each tick_ns, by a timer
 *   facts.heard_ns = vx_watchdog_now(&clock, vx_clock_ns());
 *
 * Thread   any; the clock is the only state.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WATCHDOG_H
#define VX_SERVER_WATCHDOG_H

#include "engine/base/types.h"

struct vx_watchdog_limits {
    i64 silence_ns; /* 0 = no limit */
    i64 start_ns;   /* for a worker that starts, or one step of a load; 0 = no limit */
};

/* Work of one kind.  Times here and below are by the watchdog's clock. */
struct vx_watchdog_work {
    i32 count;    /* sent and not answered */
    i64 since_ns; /* when `count` last rose from 0 */
    i64 word_ns;  /* last message that is a sign of life for it */
};

struct vx_watchdog_facts {
    bool starting;
    i64 started_ns;
    struct vx_watchdog_work batches;
    struct vx_watchdog_work loads, warms; /* models being read; models being warmed up */
    bool asked;                           /* STATS was sent and is not answered */
    i64 asked_ns, heard_ns;               /* heard: last message of any kind */
};

struct vx_watchdog_verdict {
    i64 due_ns;       /* silent until then: it has hung; INT64_MAX = no message is due */
    i64 since_ns;     /* silent since */
    const char *owes; /* due: "start" "load" "warm-up" "batch" "answer", or NULL */
};

void vx_watchdog_sent(struct vx_watchdog_work *work, i64 now_ns);
void vx_watchdog_answered(struct vx_watchdog_work *work, i64 now_ns);

struct vx_watchdog_verdict vx_watchdog_judge(const struct vx_watchdog_facts *facts,
                                             const struct vx_watchdog_limits *limits);

/* The interval of checks: an eighth of the shorter limit, 10 ms to 1 s; 0 = no checks. */
i64 vx_watchdog_tick_ns(const struct vx_watchdog_limits *limits);

struct vx_watchdog_clock {
    i64 tick_ns;
    i64 looked_ns; /* the last check; 0 = none yet */
    i64 away_ns;   /* total time in which the front did not run: checks came late */
};
void vx_watchdog_look(struct vx_watchdog_clock *clock, i64 now_ns);
i64 vx_watchdog_now(const struct vx_watchdog_clock *clock, i64 now_ns);

#endif
