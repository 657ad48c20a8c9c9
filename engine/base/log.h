/* log - one line per event, text or JSON, from a table of events.
 *
 * Events are rows of log_events.def (name, level, meaning).  A line is `ts level event
 * k=v ...` or one JSON object with the same keys.  Payload bytes are never logged.  The
 * same event more than VX_LOG_BURST times a second is counted and said once
 * ("suppressed=N"); ACCESS, which somebody asked for, is said each time.
 *
 *   VX_LOG(WORKER_EXIT, VX_LOG_I64("pid", pid), VX_LOG_TEXT("signal", name));
 *   vx_log_choice_get(&choice);  choice.verbose = 1;  vx_log_choice_set(&choice);
 *
 * Owner    one log per process, for its whole life.  What is written may be changed while
 *          it runs: that is this process's choice, a front's workers keep theirs.
 * A process that serves calls vx_log_open: then a thread writes, and VX_LOG never waits for who
 * reads.  Lines that come faster than they are read are dropped and counted, and where they are
 * missing LOG_DROPPED says how many.  Without it a line is written by who says it.
 *
 * Thread   any.
 * Limits   VX_LOG_LINE_BYTES a line, longer values are cut; VX_LOG_RING_BYTES that wait.
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
#define VX_LOG_BURST 20 /* lines a second of one event; more is a flood, not news */

enum vx_log_level { VX_LOG_DEBUG, VX_LOG_INFO, VX_LOG_WARN, VX_LOG_ERROR };

enum vx_log_event {
#define VX_ROW(name_, level_, meaning_) VX_EVENT_##name_,
#include "engine/base/log_events.def"
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

/* At least one field. */
#define VX_LOG(event_, ...)                                                              \
    do {                                                                                 \
        const struct vx_log_field fields_[] = {__VA_ARGS__};                             \
        vx_log_write(VX_EVENT_##event_, fields_, (int)VX_COUNT(fields_));                \
    } while (0)

struct vx_log_options {
    enum vx_log_level level; /* the least that is written */
    bool json;
    int fd; /* 2 unless a test says otherwise */
};
/* Once, before any other thread starts.  `process` is static: "front", "worker". */
void vx_log_init(const struct vx_log_options *wanted, const char *process);
/* What is written, level by level, as Triton's LogSettings has it. */
struct vx_log_choice {
    bool info, warn, error;
    bool iso;    /* log_format is called ISO8601, and not default: lines are the same */
    u32 verbose; /* above 0: DEBUG too */
};
void vx_log_choice_get(struct vx_log_choice *choice);
void vx_log_choice_set(const struct vx_log_choice *choice);
void vx_log_write(enum vx_log_event event, const struct vx_log_field *fields,
                  int fields_count);
/* A thread writes from here on, to its end; at the exit of the process, of a panic too, it has
 * seconds for what is still there. */
VX_MUST_USE vx_status vx_log_open(void);
/* True: all that was said before is out.  False: not within `limit_ns`. */
bool vx_log_flush(i64 limit_ns);
/* Lines that nobody will read, ever: there was no room for them, or they could not be written. */
u64 vx_log_dropped(void);
/* How often an event was written or suppressed: lets tests require that a path was taken. */
u64 vx_log_count(enum vx_log_event event);

#endif
