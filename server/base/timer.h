/* timer - libuv's timers, which here never fire twice in one iteration of the loop.
 *
 * libuv 1.44 runs timers until none is due, and does not update its clock meanwhile.  A
 * timer that its own callback, or another timer's, sets to 0 ms is due at once, so the
 * loop would never leave its timer phase: no sockets and no signals any more.  So every
 * delay here is at least a millisecond, and the iteration ends first.  tidy refuses
 * uv_timer_start elsewhere.
 *
 *   VX_ASSERT(!uv_timer_init(&loop, &timer));
 *   vx_timer_once(&timer, on_timer, 250);
 *   vx_timer_every(&timer, on_timer, 1000);
 *   vx_timer_stop(&timer);
 *
 * Owner    the caller, who closes it with uv_close.
 * Thread   loop.
 * Limits   from 1 ms; due.h has shorter delays.
 * Fails    never; must not be called after uv_close.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TIMER_H
#define VX_SERVER_TIMER_H

#include "engine/base/types.h"

#include <uv.h>

/* `after_ms` below 1 counts as 1: not in this iteration. */
void vx_timer_once(uv_timer_t *timer, uv_timer_cb on_timer, i64 after_ms);
void vx_timer_every(uv_timer_t *timer, uv_timer_cb on_timer, i64 period_ms);
void vx_timer_stop(uv_timer_t *timer);

#endif
