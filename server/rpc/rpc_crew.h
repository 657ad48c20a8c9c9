/* rpc_crew - how many threads take calls: one while it is enough, else all.
 *
 * gRPC's threads share one poll.  Whichever polls reads any connection, and an event of
 * another thread's queue wakes that thread, which takes tens of microseconds, twice or three
 * times a request: one client alone had 0.52 ms with four threads and 0.40 ms with one (848
 * voxels, 8 layers, H200), but 64 clients had 10,800 requests a second with one and 25,700
 * with four.  So a thread that is not needed stays outside gRPC, where it takes part in no
 * poll.  There is nothing between one and all: from two on threads wake each other, and three
 * that are two thirds busy would have 5 % less of the 64 clients' requests than four.
 *
 *   if (vx_rpc_crew_is_busy(&watch, now_ns, cpu_ns)) ...           a thread: all join
 *   if (vx_rpc_crew_is_idle(&all, now_ns, cpu_ns_of_all)) ...      one is enough again
 *
 * Owner    the caller owns the watch; all zeros is new.
 * Thread   one at a time.  Pure.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_CREW_H
#define VX_SERVER_RPC_CREW_H

#include "engine/base/types.h"

/* When the time of processors was last looked at, and how much it was. */
struct vx_rpc_watch {
    i64 since_ns, cpu_ns;
};

/* A thread looks so often, and is busy when it has run, or has waited for a processor, for
 * seven tenths of that time: one client alone uses up to half of a thread, for some
 * milliseconds. */
#define VX_RPC_CREW_BUSY_NS (4 * VX_NS_PER_MS)
/* The threads are looked at so often, and one is enough when they have run for less than four
 * tenths of it together: far less than makes them join, so that their number does not
 * swing. */
#define VX_RPC_CREW_IDLE_NS VX_NS_PER_S

/* Whether it is time to look. */
bool vx_rpc_crew_is_due(const struct vx_rpc_watch *watch, i64 now_ns, i64 every_ns);
/* Looks: whether the thread was busy since the last time. */
bool vx_rpc_crew_is_busy(struct vx_rpc_watch *watch, i64 now_ns, i64 cpu_ns);
/* Looks: whether all threads together had little to do since the last time. */
bool vx_rpc_crew_is_idle(struct vx_rpc_watch *watch, i64 now_ns, i64 cpu_ns);

#endif
