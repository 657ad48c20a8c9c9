/* wait - until a condition is true: the only way in which a test waits for other threads.
 *
 *   VX_WAIT_UNTIL(atomic_load(&submits) == 2);
 *   VX_WAIT_UNTIL_MSG(took_ns() < limit, "%d attempts", attempts);
 *
 * The condition is evaluated about a thousand times a second.  When it does not become true the
 * test fails and prints the condition.  The limit only catches what never happens: it is far
 * longer than anything takes on a machine that is busy with other work.
 *
 * Thread   any of the test's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_WAIT_H
#define VX_TESTS_SUPPORT_WAIT_H

#include "engine/base/process/clock.h"

#include <check.h>

#include <time.h>

#define VX_WAIT_SECONDS 300

static inline void vx_wait_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = VX_NS_PER_MS},
              NULL); /* sleep: between evaluations */
}

#define VX_WAIT_UNTIL_MSG(condition, ...)                                                \
    do {                                                                                 \
        i64 vx_wait_end_ns = vx_clock_ns() + VX_WAIT_SECONDS * VX_NS_PER_S;              \
        while (!(condition)) {                                                           \
            if (vx_clock_ns() > vx_wait_end_ns) ck_abort_msg(__VA_ARGS__);               \
            vx_wait_nap();                                                               \
        }                                                                                \
    } while (0)

#define VX_WAIT_UNTIL(condition)                                                         \
    VX_WAIT_UNTIL_MSG(condition, "waited %d s for: %s", VX_WAIT_SECONDS, #condition)

#endif
