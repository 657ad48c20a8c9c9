/* watchdog - when a worker that says nothing has hung: a pure function of times.
 *
 * A worker owes a word while it has a batch, a load, or a question about its numbers.  A
 * batch that the device never ends leaves the worker able to chat about its numbers, so
 * only words about a kind of work are signs of life of that work; a question is answered
 * by any word.  Batches that end say nothing about a load, which another thread reads.
 * Once it is read, the thread that would answer warms it up, or tunes it, in pieces with
 * batches in between: then the limit is the longer one, as for a worker that opens its
 * device, and it is for one piece, since each piece is a word.
 *
 *   struct vx_watchdog_verdict verdict = vx_watchdog_judge(&facts, &limits);
 *   if (now >= verdict.due_ns) kill(...);
 *
 * Times are read from a clock that stands still while the front itself did not listen: a
 * front that was stopped, or whose machine was, does not blame its workers for it.
 *
 *   struct vx_watchdog_clock clock = {.tick_ns = vx_watchdog_tick_ns(&limits)};
 *   vx_watchdog_look(&clock, vx_clock_ns());             each tick_ns, by a timer
 *   facts.heard_ns = vx_watchdog_now(&clock, vx_clock_ns());
 *
 * Thread   any; nothing is kept but the clock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WATCHDOG_H
#define VX_SERVER_WATCHDOG_H

#include "engine/base/types.h"

struct vx_watchdog_limits {
    i64 silence_ns; /* 0 = never */
    i64 start_ns;   /* of a worker that starts, or of a piece of a load; 0 = never */
};

/* Work of one kind.  Times here and below are by the watchdog's clock. */
struct vx_watchdog_work {
    i32 count;    /* sent and not answered */
    i64 since_ns; /* when the first of these was sent, if there are any */
    i64 word_ns;  /* last word that is a sign of it */
};

struct vx_watchdog_facts {
    bool starting;
    i64 started_ns;
    struct vx_watchdog_work batches;
    struct vx_watchdog_work loads, warms; /* models that are read; that are warmed up */
    bool asked;                           /* for its numbers, and not answered */
    i64 asked_ns, heard_ns;               /* heard: last word of any kind */
};

struct vx_watchdog_verdict {
    i64 due_ns;       /* silent until then: it has hung; INT64_MAX = it owes nothing */
    i64 since_ns;     /* silent since */
    const char *owes; /* "start" "load" "warm-up" "batch" "answer", or NULL */
};

void vx_watchdog_sent(struct vx_watchdog_work *work, i64 now_ns);
void vx_watchdog_answered(struct vx_watchdog_work *work, i64 now_ns);

struct vx_watchdog_verdict vx_watchdog_judge(const struct vx_watchdog_facts *facts,
                                             const struct vx_watchdog_limits *limits);

/* How often to look, so that a hang is found within an eighth of its limit; 0 = never. */
i64 vx_watchdog_tick_ns(const struct vx_watchdog_limits *limits);

struct vx_watchdog_clock {
    i64 tick_ns;
    i64 looked_ns; /* 0 = not yet */
    i64 away_ns;   /* in all, when looks came late */
};
void vx_watchdog_look(struct vx_watchdog_clock *clock, i64 now_ns);
i64 vx_watchdog_now(const struct vx_watchdog_clock *clock, i64 now_ns);

#endif
