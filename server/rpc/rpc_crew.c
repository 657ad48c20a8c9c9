/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_crew.h"

#define BUSY_TENTHS 7
#define IDLE_TENTHS 4

bool vx_rpc_crew_is_due(const struct vx_rpc_watch *watch, i64 now_ns, i64 every_ns)
{
    return now_ns - watch->since_ns >= every_ns;
}

/* In tenths of the time that has passed; 0 for the first look. */
static i64 look(struct vx_rpc_watch *watch, i64 now_ns, i64 cpu_ns)
{
    i64 passed_ns = watch->since_ns ? now_ns - watch->since_ns : 0;
    i64 used_ns = cpu_ns - watch->cpu_ns;
    *watch = (struct vx_rpc_watch){now_ns, cpu_ns};
    return passed_ns > 0 ? 10 * used_ns / passed_ns : 0;
}

bool vx_rpc_crew_is_busy(struct vx_rpc_watch *watch, i64 now_ns, i64 cpu_ns)
{
    return look(watch, now_ns, cpu_ns) >= BUSY_TENTHS;
}

bool vx_rpc_crew_is_idle(struct vx_rpc_watch *watch, i64 now_ns, i64 cpu_ns)
{
    return look(watch, now_ns, cpu_ns) < IDLE_TENTHS;
}
