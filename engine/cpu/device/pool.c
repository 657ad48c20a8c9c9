/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/device/pool.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/flush.h"

#include <stdatomic.h>

#define POOL_MAGIC 0x7678504cu /* "vxPL" */

/* About 20 us: longer than the gap between two layers, and short enough that idle workers
 * cost nothing measurable. */
#define SPIN_ROUNDS 400

struct worker {
    struct vx_pool *pool;
    i32 index;
    pthread_t thread;
};

struct vx_pool {
    u32 magic;
    i32 threads;
    i32 started;
    pthread_mutex_t lock;
    pthread_cond_t published; /* workers sleep on it */
    pthread_cond_t left;      /* the caller sleeps on it */
    /* Changed under the lock; threads that spin read them without it. */
    atomic_uint_fast64_t generation; /* of the newest job; a worker joins each once */
    atomic_int inside;               /* workers that have joined and not left */
    const struct vx_pool_job *job;   /* NULL: no worker may join any more */
    bool closing;
    /* Only the caller reads and writes these. */
    bool busy;                   /* a job is being spread */
    void (*told)(void *context); /* or NULL */
    void *told_context;
    atomic_int_fast64_t next;
    struct worker workers[];
};

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(struct vx_pool *pool, const struct vx_pool_job *job, i32 index)
{
    for (;;) {
        i64 begin =
            atomic_fetch_add_explicit(&pool->next, job->grain, memory_order_relaxed);
        if (begin >= job->count) return;
        if (!index && begin && pool->told) pool->told(pool->told_context);
        i64 end = job->count - begin > job->grain ? begin + job->grain : job->count;
        job->task(job->context, index, begin, end);
    }
}

/* Waits for a job newer than `seen` and joins it; NULL when the pool closes. */
static const struct vx_pool_job *worker_join(struct vx_pool *pool, u64 *seen)
{
    for (int i = 0; i < SPIN_ROUNDS && atomic_load(&pool->generation) == *seen; i++)
        relax();
    const struct vx_pool_job *job = NULL;
    pthread_mutex_lock(&pool->lock);
    while (!pool->closing) {
        if (pool->generation != *seen) {
            *seen = pool->generation;
            job = pool->job; /* NULL: that job is finished */
            if (job) break;
        }
        pthread_cond_wait(&pool->published, &pool->lock);
    }
    if (job) atomic_fetch_add(&pool->inside, 1);
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void worker_main(void *context)
{
    struct worker *worker = context;
    struct vx_pool *pool = worker->pool;
    u64 seen = 0;
    vx_alloc_freeze();
    vx_flush_subnormals();
    for (;;) {
        const struct vx_pool_job *job = worker_join(pool, &seen);
        if (!job) return;
        work(pool, job, worker->index);
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->inside, 1) == 1) pthread_cond_signal(&pool->left);
        pthread_mutex_unlock(&pool->lock);
    }
}

vx_status vx_pool_open(i32 threads, struct vx_pool **pool)
{
    VX_ASSERT(threads >= 1);
    VX_ASSERT(threads <= VX_CPU_THREADS_MAX);
    *pool = NULL;
    struct vx_pool *made =
        vx_alloc_zero(sizeof *made + (size_t)threads * sizeof made->workers[0]);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the CPU device's threads");
    vx_flush_subnormals(); /* the caller works, too */
    made->magic = POOL_MAGIC;
    made->threads = threads;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->published, NULL);
    pthread_cond_init(&made->left, NULL);
    for (i32 i = 1; i < threads; i++) {
        struct worker *worker = &made->workers[i];
        worker->pool = made;
        worker->index = i;
        vx_status status =
            vx_thread_open(&worker->thread, VX_ROLE_COMPUTE, worker_main, worker);
        if (status.fault) {
            vx_pool_close(&made);
            return status;
        }
        made->started++;
    }
    *pool = made;
    return VX_OK;
}

void vx_pool_close(struct vx_pool **pool)
{
    struct vx_pool *it = *pool;
    *pool = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == POOL_MAGIC);
    VX_ASSERT(!it->busy);
    pthread_mutex_lock(&it->lock);
    it->closing = true;
    pthread_cond_broadcast(&it->published);
    pthread_mutex_unlock(&it->lock);
    for (i32 i = 1; i <= it->started; i++) pthread_join(it->workers[i].thread, NULL);
    it->magic = 0;
    pthread_cond_destroy(&it->left);
    pthread_cond_destroy(&it->published);
    pthread_mutex_destroy(&it->lock);
    vx_free(it);
}

i32 vx_pool_threads(const struct vx_pool *pool)
{
    return pool->threads;
}

void vx_pool_tell(struct vx_pool *pool, void (*told)(void *context), void *context)
{
    VX_ASSERT(pool->magic == POOL_MAGIC);
    VX_ASSERT(!pool->busy);
    pool->told = told;
    pool->told_context = context;
}

void vx_pool_go_on(struct vx_pool *pool)
{
    VX_ASSERT(pool->magic == POOL_MAGIC);
    if (pool->told) pool->told(pool->told_context);
}

/* Lets no more workers join, and waits until those inside have finished their chunk. */
static void spread_finish(struct vx_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->job = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < SPIN_ROUNDS && atomic_load(&pool->inside); i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->inside)) pthread_cond_wait(&pool->left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void vx_pool_spread(struct vx_pool *pool, const struct vx_pool_job *job)
{
    VX_ASSERT(pool->magic == POOL_MAGIC);
    VX_ASSERT(!pool->busy);
    VX_ASSERT(job->grain > 0);
    if (job->count <= 0) return;
    pool->busy = true;
    atomic_store(&pool->next, 0);
    bool shared = pool->threads > 1 && job->count > job->grain;
    if (shared) {
        pthread_mutex_lock(&pool->lock);
        pool->job = job;
        atomic_fetch_add(&pool->generation, 1);
        pthread_cond_broadcast(&pool->published);
        pthread_mutex_unlock(&pool->lock);
    }
    work(pool, job, 0);
    if (shared) spread_finish(pool);
    pool->busy = false;
}
