/* pool - threads that run one job at a time, chunk by chunk.
 *
 * The thread that spreads a job takes part, so a pool of one starts no thread.  A worker
 * spins for a moment before it sleeps: layers follow each other within microseconds.
 *
 *   VX_TRY(vx_pool_open(threads, &pool));
 *   vx_pool_tell(pool, told, context);                           (not needed)
 *   vx_pool_spread(pool, &(struct vx_pool_job){n, 512, task, context});
 *   vx_pool_close(&pool);
 *
 * Owner    the caller; a job is borrowed until spread returns.
 * Thread   spread: one at a time.  Tasks run on the caller and VX_ROLE_COMPUTE threads.
 * Limits   VX_CPU_THREADS_MAX threads.
 * Fails    open: RESOURCE_EXHAUSTED without memory or threads.  spread cannot fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_POOL_H
#define VX_ENGINE_CPU_POOL_H

#include "engine/base/status.h"

struct vx_pool;

struct vx_pool_job {
    i64 count;
    i64 grain; /* chunks begin at multiples of it */
    /* worker is in [0, threads); 0 is the caller */
    void (*task)(void *context, i32 worker, i64 begin, i64 end);
    void *context;
};

/* From then on the caller's arithmetic takes subnormal numbers for 0, as the threads' does (flush.h). */
VX_MUST_USE vx_status vx_pool_open(i32 threads, struct vx_pool **pool);
void vx_pool_close(struct vx_pool **pool);
i32 vx_pool_threads(const struct vx_pool *pool);
/* The thread that spreads calls told(context) whenever it takes a chunk but the first of a job: a
 * long job goes on.  It takes no more once it waits for a thread that does not end its own. */
void vx_pool_tell(struct vx_pool *pool, void (*told)(void *context), void *context);
/* Calls it once, where the same thread has a long loop of its own, or is within a chunk. */
void vx_pool_go_on(struct vx_pool *pool);
/* Runs task over [0, count) in chunks; returns when all are done. */
void vx_pool_spread(struct vx_pool *pool, const struct vx_pool_job *job);

#endif
