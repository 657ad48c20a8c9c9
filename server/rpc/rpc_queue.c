/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* A thread that has left the crew, and still has calls, looks so often whether the last one
 * has ended on another thread. */
#define LEAVE_NS VX_NS_PER_S
/* A message from this size on is decoded for a millisecond and more, in which others would
 * wait for the thread if it were alone. */
#define LARGE_BYTES (4 << 20)

bool vx_rpc_queue_turn(struct vx_rpc_queue *queue, gpr_timespec until)
{
    struct vx_call *stream = vx_rpc_turn_take(&queue->turn);
    if (stream) {
        vx_rpc_stream_hear(stream);
        return true;
    }
    if (queue->turn.streams.first) until = gpr_inf_past(GPR_CLOCK_MONOTONIC);
    grpc_event event = grpc_completion_queue_next(queue->cq, until, NULL);
    vx_rpc_turn_asked(&queue->turn, event.type == GRPC_OP_COMPLETE);
    if (event.type == GRPC_OP_COMPLETE) {
        struct vx_rpc_tag *tag = event.tag;
        VX_RPC_TAG_TAKE(tag);
        tag->on(tag->context, event.success);
    }
    return event.type != GRPC_QUEUE_SHUTDOWN;
}

/* ------- who takes calls ------- */

static i32 index_of(const struct vx_rpc_queue *queue)
{
    return (i32)(queue - queue->rpc->queues);
}

static bool is_in_crew(const struct vx_rpc_queue *queue)
{
    return index_of(queue) <
           atomic_load_explicit(&queue->rpc->crew, memory_order_relaxed);
}

/* Whether calls of `method` are still armed on queues that have left the crew. */
static bool others_have(const struct vx_rpc *rpc, i32 method)
{
    i32 crew = atomic_load_explicit(&rpc->crew, memory_order_relaxed);
    for (i32 i = crew; i < rpc->options.threads; i++)
        if (atomic_load_explicit(&rpc->queues[i].armed[method], memory_order_relaxed) > 0)
            return true;
    return false;
}

/* The first queue takes all methods, the others those that cost something: calls that are
 * armed for rare methods would keep their threads in gRPC for ever.  gRPC cannot take back
 * what is armed, and gives a connection's calls to a first queue that it draws once, and only
 * then to the next ones.  So the first queue takes no call while those that have left can:
 * they are used up, whichever queue a client was given, and their threads leave gRPC. */
static bool takes(const struct vx_rpc_queue *queue, i32 method)
{
    if (queue->rpc->arming_over || !is_in_crew(queue)) return false;
    if (index_of(queue) == 0) return !others_have(queue->rpc, method);
    if (method == VX_RPC_METHOD_UNKNOWN) return false;
    enum vx_method_kind kind = vx_method_get(method)->kind;
    bool streams = kind == VX_METHOD_INFER_STREAM && queue->rpc->streams;
    return kind == VX_METHOD_UNARY_BIG || streams;
}

i32 vx_rpc_queue_missing(const struct vx_rpc_queue *queue, i32 method)
{
    i32 armed = atomic_load_explicit(&queue->armed[method], memory_order_relaxed);
    i32 most = takes(queue, method) ? vx_rpc_armed(method) : 0;
    return most - armed - queue->owed[method];
}

/* Under the lock. */
static void owe_nothing(struct vx_rpc_queue *queue)
{
    for (i32 method = 0; method <= VX_METHODS_COUNT; method++) {
        queue->rpc->owed_count -= queue->owed[method];
        queue->owed[method] = 0;
    }
}

/* Under the lock. */
static void crew_set(struct vx_rpc *rpc, i32 crew)
{
    atomic_store_explicit(&rpc->crew, crew, memory_order_relaxed);
    for (i32 i = crew; i < rpc->options.threads; i++) owe_nothing(&rpc->queues[i]);
    pthread_cond_broadcast(&rpc->crew_joins);
}

void vx_rpc_crew_begin(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    crew_set(rpc, 1);
    pthread_mutex_unlock(&rpc->lock);
}

void vx_rpc_crew_end(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->arming_over = true;
    crew_set(rpc, rpc->options.threads);
    pthread_mutex_unlock(&rpc->lock);
}

static void arm_missing_of(struct vx_rpc_queue *queue, i32 method)
{
    struct vx_rpc *rpc = queue->rpc;
    pthread_mutex_lock(&rpc->lock);
    i32 more = vx_rpc_queue_missing(queue, method);
    pthread_mutex_unlock(&rpc->lock);
    for (; more > 0; more--) vx_rpc_call_arm(rpc, index_of(queue), method);
}

/* All of it when the thread has joined, and streams when there are some. */
static void arm_missing(struct vx_rpc_queue *queue)
{
    for (i32 method = 0; method <= VX_METHODS_COUNT; method++)
        arm_missing_of(queue, method);
}

void vx_rpc_queue_arrived(struct vx_rpc_queue *queue, i32 method)
{
    atomic_fetch_sub_explicit(&queue->armed[method], 1, memory_order_relaxed);
    vx_rpc_call_arm(queue->rpc, index_of(queue), method);
    if (!is_in_crew(queue)) arm_missing_of(&queue->rpc->queues[0], method);
}

/* Waits outside gRPC while the thread is not in the crew and has no call.  Every tag of gRPC's
 * belongs to a call, so none can be there. */
static void await_crew(struct vx_rpc_queue *queue)
{
    struct vx_rpc *rpc = queue->rpc;
    pthread_mutex_lock(&rpc->lock);
    while (!is_in_crew(queue) && !queue->records)
        pthread_cond_wait(&rpc->crew_joins, &rpc->lock);
    pthread_mutex_unlock(&rpc->lock);
}

/* ------- how many are needed ------- */

static i64 cpu_ns_of(clockid_t clock)
{
    struct timespec used = {0};
    clock_gettime(clock, &used);
    return used.tv_sec * VX_NS_PER_S + used.tv_nsec;
}

/* How long this thread was ready to run, and another one ran; 0 where the system does not
 * say. */
static i64 kept_waiting_ns(int schedstat)
{
    char text[96]; /* three numbers: time on a processor, time spent waiting, turns */
    long long ran_ns, waited_ns = 0;
    ssize_t bytes = pread(schedstat, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return sscanf(text, "%lld %lld", &ran_ns, &waited_ns) == 2 ? waited_ns : 0;
}

/* Under the lock. */
static i64 cpu_ns_of_all(const struct vx_rpc *rpc)
{
    i64 sum_ns = 0;
    clockid_t clock;
    for (i32 i = 0; i < rpc->options.threads; i++)
        if (rpc->queues[i].running &&
            !pthread_getcpuclockid(rpc->queues[i].thread, &clock))
            sum_ns += cpu_ns_of(clock);
    return sum_ns;
}

/* Under the lock. */
static bool is_idle(struct vx_rpc *rpc, i64 now_ns)
{
    return vx_rpc_crew_is_due(&rpc->watch, now_ns, VX_RPC_CREW_IDLE_NS) &&
           vx_rpc_crew_is_idle(&rpc->watch, now_ns, cpu_ns_of_all(rpc));
}

/* All are looked at a whole second later, not before.  The first may have left its calls to
 * those that were away, and arms them again. */
static void all_join(struct vx_rpc *rpc, i64 now_ns)
{
    pthread_mutex_lock(&rpc->lock);
    i32 crew = atomic_load_explicit(&rpc->crew, memory_order_relaxed);
    bool away = crew < rpc->options.threads;
    if (away) {
        crew_set(rpc, rpc->options.threads);
        rpc->watch = (struct vx_rpc_watch){now_ns, cpu_ns_of_all(rpc)};
    }
    pthread_mutex_unlock(&rpc->lock);
    if (away) arm_missing(&rpc->queues[0]);
}

/* One stays, if it is time to look and all have little to do. */
static void others_leave(struct vx_rpc *rpc, i64 now_ns)
{
    pthread_mutex_lock(&rpc->lock);
    if (!rpc->arming_over && is_idle(rpc, now_ns)) crew_set(rpc, 1);
    pthread_mutex_unlock(&rpc->lock);
}

void vx_rpc_crew_large(struct vx_rpc *rpc, size_t bytes)
{
    if (bytes >= LARGE_BYTES) all_join(rpc, vx_clock_ns());
}

static void look(struct vx_rpc_queue *queue)
{
    struct vx_rpc *rpc = queue->rpc;
    i64 now_ns = vx_clock_ns();
    if (!vx_rpc_crew_is_due(&queue->watch, now_ns, VX_RPC_CREW_BUSY_NS)) return;
    i64 used_ns = cpu_ns_of(CLOCK_THREAD_CPUTIME_ID) + kept_waiting_ns(queue->schedstat);
    bool busy = vx_rpc_crew_is_busy(&queue->watch, now_ns, used_ns);
    if (busy)
        all_join(rpc, now_ns);
    else
        others_leave(rpc, now_ns);
    arm_missing(queue);
}

void vx_rpc_queue_run(void *context)
{
    struct vx_rpc_queue *queue = context;
    queue->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    vx_alloc_freeze();
    bool goes_on = true;
    while (goes_on) {
        gpr_timespec until = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        if (!is_in_crew(queue)) await_crew(queue);
        bool joined = is_in_crew(queue);
        if (joined && !queue->joined) arm_missing(queue);
        if (!joined)
            until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_nanos(LEAVE_NS, GPR_TIMESPAN));
        queue->joined = joined;
        goes_on = vx_rpc_queue_turn(queue, until);
        look(queue);
    }
    if (queue->schedstat >= 0) close(queue->schedstat);
}
