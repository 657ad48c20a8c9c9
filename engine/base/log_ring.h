/* log_ring - lines from any thread to one writer, so that nobody else waits for who reads them.
 *
 * A pipe that is full, a terminal that is stopped and a disk that hangs make write(2) wait.  Only
 * the writer's thread waits here.  A line that finds no room is lost and counted; lines keep their
 * order, and where some are missing the writer says how many, once it can write again.
 *
 *   VX_TRY(vx_log_ring_open(fd, say_lost));
 *   if (vx_log_ring_is_open()) vx_log_ring_give(line, length);
 *   vx_log_ring_flush(VX_NS_PER_S);
 *
 * Owner    the process; it ends with it, or when a test closes it.
 * Thread   any.  The lock is held for a copy of one line, never while something is written.
 * Limits   VX_LOG_RING_BYTES of lines that wait.
 * Fails    open: RESOURCE_EXHAUSTED without a thread.  give: false, and the line is counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_LOG_RING_H
#define VX_ENGINE_BASE_LOG_RING_H

#include "engine/base/status.h"

/* Some 4,000 lines: a tenth of a second of the access log at 35,000 requests a second. */
#define VX_LOG_RING_BYTES (1u << 20)

/* The line that says that `lines` are missing; its length.  Called by the writer. */
typedef size_t (*vx_log_say_lost)(u64 lines, char *text, size_t capacity);

VX_MUST_USE vx_status vx_log_ring_open(int fd, vx_log_say_lost say_lost);
bool vx_log_ring_is_open(void);
/* One line, its end included. */
bool vx_log_ring_give(const char *line, size_t length);
/* True: all that was given before is written, or lost.  False: not within `limit_ns`. */
bool vx_log_ring_flush(i64 limit_ns);
/* Lines that were lost since the start. */
u64 vx_log_ring_lost(void);
/* For tests: what can be written within `limit_ns` is; then the thread has ended, or, when it
 * still waits for a reader, is left behind. */
void vx_log_ring_close(i64 limit_ns);

#endif
