/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/host.h"

#include "engine/base/process/clock.h"

#include <malloc.h>
#include <sys/resource.h>
#include <uv.h>

#define RPC_THREADS_MIN 2
#define RPC_THREADS_MAX 4
/* A quarter: the loop, the workers and clients on this host need the other processors. */
#define RPC_THREADS_SHARE 4
/* With fewer, a spinning thread may keep the processor from the one that it waits for. */
#define SPIN_PROCESSORS_MIN 8

/* Enough for the largest connections_max.  Some systems set no limit, and the kernel's
 * table grows with the largest descriptor. */
#define FILES_MAX ((rlim_t)1 << 18)

i32 vx_host_processors(void)
{
    return (i32)uv_available_parallelism();
}

i32 vx_host_rpc_threads(const struct vx_config *config, i32 processors)
{
    if (config->rpc_threads) return (i32)config->rpc_threads;
    i32 threads = processors / RPC_THREADS_SHARE;
    if (threads < RPC_THREADS_MIN) return RPC_THREADS_MIN;
    return threads < RPC_THREADS_MAX ? threads : RPC_THREADS_MAX;
}

i64 vx_host_spin_ns(const struct vx_config *config, i32 processors)
{
    return processors < SPIN_PROCESSORS_MIN ? 0 : config->spin_us * VX_NS_PER_US;
}

void vx_host_heap_open(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
}

void vx_host_raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    rlim_t most = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
    if (limit.rlim_cur >= most) return;
    limit.rlim_cur = most;
    /* If refused, fewer connections are allowed, which is logged when they are set up. */
    if (setrlimit(RLIMIT_NOFILE, &limit)) return;
}
