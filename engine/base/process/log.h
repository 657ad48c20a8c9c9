/* log - one line per event, text or JSON, from a table of events.
 *
 * Events are rows of log_events.def (name, level, meaning).  A line is `ts level event
 * k=v ...` or one JSON object with the same keys.  Payload bytes are never logged.  Of
 * one event at most VX_LOG_BURST lines a second are written; the others are counted, and
 * the event's next line reports them ("suppressed=N"), or a line LOG_SUPPRESSED when none
 * comes in the next second, and at exit.  ACCESS, which is only written when access_log
 * is on, and events about models and the repository have no such limit.
 *
 * A process that serves calls vx_log_open.  From then on a thread writes the lines, and
 * VX_LOG never waits for the reader of the log.  Lines that come faster than they are
 * read are dropped; a LOG_DROPPED line in their place says how many.  Without vx_log_open
 * the thread that logs a line writes it itself.
 *
 *   VX_LOG(WORKER_EXIT, VX_LOG_I64("pid", pid), VX_LOG_TEXT("signal", name));
 *   vx_log_choice_get(&choice);
 *   choice.verbose = 1;
 *   vx_log_choice_set(&choice);
 *
 * Owner    one log per process, for its whole life.  The levels may be changed while it
 *          runs; that changes this process only, not the workers of a front.
 * Thread   any.
 * Limits   VX_LOG_LINE_BYTES a line, longer values are cut; VX_LOG_RING_BYTES of lines
 *          that wait to be written.
 * Fails    a line never: one that cannot be written is dropped and counted.  open:
 *          RESOURCE_EXHAUSTED without a thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_LOG_H
#define VX_ENGINE_BASE_LOG_H

#include "engine/base/status.h"

#define VX_LOG_LINE_BYTES                                                                \
    3072                /* below PIPE_BUF (4096): lines of two processes never mix */
#define VX_LOG_BURST 20 /* lines of one event in a second */

enum vx_log_level { VX_LOG_DEBUG, VX_LOG_INFO, VX_LOG_WARN, VX_LOG_ERROR };

enum vx_log_event {
#define VX_ROW(name_, level_, meaning_) VX_EVENT_##name_,
#include "engine/base/process/log_events.def"
#undef VX_ROW
    VX_EVENTS_COUNT
};

struct vx_log_field {
    const char *key;
    enum { VX_LOG_FIELD_I64, VX_LOG_FIELD_F64, VX_LOG_FIELD_TEXT } kind;
    i64 number;
    f64 real;
    const char *text;
};
#define VX_LOG_I64(key_, value_)                                                         \
    ((struct vx_log_field){(key_), VX_LOG_FIELD_I64, (value_), 0, 0})
#define VX_LOG_F64(key_, value_)                                                         \
    ((struct vx_log_field){(key_), VX_LOG_FIELD_F64, 0, (value_), 0})
#define VX_LOG_TEXT(key_, value_)                                                        \
    ((struct vx_log_field){(key_), VX_LOG_FIELD_TEXT, 0, 0, (value_)})

/* Logs an event with at least one field. */
#define VX_LOG(event_, ...)                                                              \
    do {                                                                                 \
        const struct vx_log_field fields_[] = {__VA_ARGS__};                             \
        vx_log_write(VX_EVENT_##event_, fields_, (int)VX_COUNT(fields_));                \
    } while (0)

struct vx_log_options {
    enum vx_log_level level; /* the lowest level that is written */
    bool json;
    int fd; /* 2, except in tests */
};
/* Once, before any other thread starts.  `process` is static: "front", "worker". */
void vx_log_init(const struct vx_log_options *wanted, const char *process);
/* Which levels are written, with the fields of Triton's LogSettings. */
struct vx_log_choice {
    bool info, warn, error;
    bool iso;    /* log_format reads back as ISO8601, not default; lines do not differ */
    u32 verbose; /* above 0: DEBUG is written, too */
};
void vx_log_choice_get(struct vx_log_choice *choice);
void vx_log_choice_set(const struct vx_log_choice *choice);
void vx_log_write(enum vx_log_event event, const struct vx_log_field *fields,
                  int fields_count);
/* Starts the thread that writes from now on, until the process ends, and that says once a
 * second what was suppressed; without it only the exit does.  An exit gives it up to 3 s, a panic or a fatal signal 1 s, for the lines that still wait. */
VX_MUST_USE vx_status vx_log_open(void);
/* Waits until all lines logged before are written or counted as dropped; false when that
 * takes longer than `limit_ns`. */
bool vx_log_flush(i64 limit_ns);
/* Lines dropped since the start, without room or after a failed write. */
u64 vx_log_dropped(void);
/* How often an event was logged, written or not: tests check that a path was taken. */
u64 vx_log_count(enum vx_log_event event);

#endif
