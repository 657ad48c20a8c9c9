/* backoff - how long to wait before trying again what failed: pure.
 *
 *   static const struct vx_backoff pauses = {.first_ms = 250, .most_ms = 60000};
 *   i64 pause_ms = vx_backoff_ms(&pauses, failures);     250, 500, 1000 ... 60000, 60000
 *
 * Owner    none: plain numbers.
 * Thread   any.
 * Limits   most_ms.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_BACKOFF_H
#define VX_SERVER_BACKOFF_H

#include "engine/base/types.h"

struct vx_backoff {
    i64 first_ms, most_ms;
};

/* The pause after so many failures in a row; 0 after none. */
static inline i64 vx_backoff_ms(const struct vx_backoff *backoff, i32 failures)
{
    i64 pause = failures > 0 ? backoff->first_ms : 0;
    for (i32 i = 1; i < failures && pause < backoff->most_ms; i++) pause *= 2;
    return pause < backoff->most_ms ? pause : backoff->most_ms;
}

#endif
