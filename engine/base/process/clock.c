/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"

#include <time.h>

i64 vx_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (i64)now.tv_sec * VX_NS_PER_S + now.tv_nsec;
}

i64 vx_clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (i64)now.tv_sec * 1000 + now.tv_nsec / VX_NS_PER_MS;
}
