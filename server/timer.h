/* timer - libuv's timers, as the front may use them: none is due again in the turn it fired in.
 *
 * libuv 1.44 runs timers until none is due, by a clock that stands still meanwhile.  One that is
 * set to 0 ms by its own callback, or by that of another, is due at once, and the loop never
 * leaves: no socket, no signal, for ever.  So nothing here is due in less than a millisecond: the
 * turn ends first.  tidy refuses uv_timer_start elsewhere.
 *
 *   VX_ASSERT(!uv_timer_init(&loop, &timer));
 *   vx_timer_once(&timer, on_timer, 250);
 *   vx_timer_every(&timer, on_timer, 1000);
 *   vx_timer_stop(&timer);
 *
 * Owner    the caller, who closes it with uv_close.
 * Thread   loop.
 * Limits   from 1 ms; below that is due.h.
 * Fails    never; not to be used once it is closing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TIMER_H
#define VX_SERVER_TIMER_H

#include "engine/base/types.h"

#include <uv.h>

/* `after_ms` below 1 is 1: in the next turn. */
void vx_timer_once(uv_timer_t *timer, uv_timer_cb on_timer, i64 after_ms);
void vx_timer_every(uv_timer_t *timer, uv_timer_cb on_timer, i64 period_ms);
void vx_timer_stop(uv_timer_t *timer);

#endif
