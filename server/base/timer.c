/* SPDX-License-Identifier: Apache-2.0 */
#include "server/base/timer.h"

#include "engine/base/process/check.h"

/* libuv's clock stands still during an iteration, so this falls after the iteration. */
#define SOONEST_MS 1

static u64 timer_delay(i64 ms)
{
    return ms < SOONEST_MS ? SOONEST_MS : (u64)ms;
}

void vx_timer_once(uv_timer_t *timer, uv_timer_cb on_timer, i64 after_ms)
{
    VX_ASSERT(!uv_timer_start(timer, on_timer, timer_delay(after_ms), 0));
}

void vx_timer_every(uv_timer_t *timer, uv_timer_cb on_timer, i64 period_ms)
{
    u64 period = timer_delay(period_ms);
    VX_ASSERT(!uv_timer_start(timer, on_timer, period, period));
}

void vx_timer_stop(uv_timer_t *timer)
{
    uv_timer_stop(timer);
}
