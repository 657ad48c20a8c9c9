/* clock - monotonic nanoseconds, the only clock that the daemon schedules by.
 *
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_CLOCK_H
#define VX_ENGINE_BASE_CLOCK_H

#include "engine/base/types.h"

#define VX_NS_PER_US INT64_C(1000)
#define VX_NS_PER_MS INT64_C(1000000)
#define VX_NS_PER_S  INT64_C(1000000000)
#define VX_NEVER     INT64_MAX /* a deadline that never passes */

i64 vx_clock_ns(void); /* CLOCK_MONOTONIC */
/* Milliseconds since 1970: for logs and ModelStatistics only. */
i64 vx_clock_wall_ms(void);

#endif
