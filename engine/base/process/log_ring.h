/* log_ring - carries log lines from any thread to one writer thread.
 *
 * write(2) waits when a pipe is full, a terminal is stopped or a disk hangs.  Here only
 * the writer thread waits.  A line that finds no room is dropped and counted.  Lines keep
 * their order; where some are missing, the writer inserts a line that says how many, as
 * soon as it can write again.
 *
 *   VX_TRY(vx_log_ring_open(fd, say_lost, say_rest));
 *   if (vx_log_ring_is_open()) vx_log_ring_give(line, length);
 *   vx_log_ring_flush(VX_NS_PER_S);
 *
 * Owner    the process: the ring lives until it ends, or until a test closes it.
 * Thread   any.  The lock is held while one line is copied, never during a write(2).
 * Limits   VX_LOG_RING_BYTES of waiting lines.
 * Fails    open: RESOURCE_EXHAUSTED without a thread.  give: false for a dropped line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_LOG_RING_H
#define VX_ENGINE_BASE_LOG_RING_H

#include "engine/base/status.h"

/* Some 4,000 lines: a tenth of a second of the access log at 35,000 requests a second. */
#define VX_LOG_RING_BYTES (1u << 20)

/* Writes the line that reports `lines` missing lines to `text`; returns its length.  The
 * writer thread calls it. */
typedef size_t (*vx_log_say_lost)(u64 lines, char *text, size_t capacity);

/* The writer thread calls it once after a second in which it wrote lines, so that what
 * was held back in that second can be said with vx_log_ring_give. */
typedef void (*vx_log_say_rest)(void);

/* `say_rest` may be NULL. */
VX_MUST_USE vx_status vx_log_ring_open(int fd, vx_log_say_lost say_lost,
                                       vx_log_say_rest say_rest);
bool vx_log_ring_is_open(void);
/* `line` includes its end-of-line. */
bool vx_log_ring_give(const char *line, size_t length);
/* Waits until every line given before is written or counted as lost, and the gaps before
 * the end are reported if anything can be written.  False: that takes longer than
 * `limit_ns`.  Takes no lock, so that a signal handler may call it. */
bool vx_log_ring_flush(i64 limit_ns);
/* Lines lost since the start. */
u64 vx_log_ring_lost(void);
/* For tests.  Writes for up to `limit_ns`.  If all is written then, the thread is joined;
 * if it still waits for a reader, it is detached. */
void vx_log_ring_close(i64 limit_ns);

#endif
