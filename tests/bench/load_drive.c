/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include "clients/c/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include <grpc/grpc_security.h>
#include <grpc/support/time.h>

/* How long a thread waits for an event before it checks whether the run is over. */
#define LOOK_MS 100
/* A server that does not answer within this time is reported as absent. */
#define CONNECT_US 20000000

static bool channel_open(struct load_drive *drive, struct load_channel *channel)
{
    grpc_arg list[] = {
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
         .value.integer = INT32_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_SEND_MESSAGE_LENGTH,
         .value.integer = INT32_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
         .value.integer = 1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_RETRIES,
         .value.integer = 0},
    };
    grpc_channel_args args = {sizeof list / sizeof *list, list};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    channel->channel = grpc_channel_create(drive->options->server, plain, &args);
    grpc_channel_credentials_release(plain);
    if (!channel->channel) return false;
    channel->method =
        grpc_channel_register_call(channel->channel, drive->work->method, NULL, NULL);
    return true;
}

static bool wants_more(struct load_drive *drive)
{
    if (load_clock_ns() >= drive->count_to_ns) return false;
    return !drive->options->requests ||
           atomic_fetch_sub_explicit(&drive->requests_left, 1, memory_order_relaxed) > 0;
}

/* One event, or none within LOOK_MS. */
static struct load_call *thread_event(struct load_thread *thread)
{
    gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(LOOK_MS, GPR_TIMESPAN));
    grpc_event event = grpc_completion_queue_next(thread->queue, until, NULL);
    if (event.type != GRPC_OP_COMPLETE) return NULL;
    LOAD_TAG_TAKE(event.tag);
    return event.tag;
}

static void spare_give(struct load_thread *thread, struct load_call *call)
{
    pthread_mutex_lock(&thread->lock);
    call->next = thread->spare;
    thread->spare = call;
    pthread_mutex_unlock(&thread->lock);
}

static struct load_call *spare_take(struct load_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    struct load_call *call = thread->spare;
    if (call) thread->spare = call->next;
    pthread_mutex_unlock(&thread->lock);
    return call;
}

/* The thread of a completion queue. */
static void *thread_main(void *context)
{
    struct load_thread *thread = context;
    bool open = thread->drive->options->rate > 0;
    for (int64_t i = 0; !open && i < thread->calls_count; i++) {
        if (!wants_more(thread->drive)) break;
        thread->calls[i].intended_ns = load_clock_ns();
        load_call_next(&thread->calls[i], &thread->random, &thread->stats);
    }
    while (atomic_load(&thread->under_way) > 0 || !atomic_load(&thread->sender_done)) {
        struct load_call *call = thread_event(thread);
        if (!call || !load_call_finish(call)) continue;
        if (open) {
            spare_give(thread, call);
        } else if (wants_more(thread->drive)) {
            call->intended_ns = load_clock_ns();
            load_call_next(call, &thread->random, &thread->stats);
        }
    }
    return NULL;
}

/* Arrivals of an open loop: the Poisson streams of all threads add up to one of the whole rate. */
static void *sender_main(void *context)
{
    struct load_thread *thread = context;
    struct load_drive *drive = thread->drive;
    struct load_stats *stats = &thread->sender_stats;
    struct voxels_random random = {(uint64_t)drive->options->seed * 31 +
                                   (uint64_t)thread->index + 1000};
    double rate = drive->options->rate / (double)drive->options->threads;
    double at_ns = (double)load_clock_ns();
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    for (;;) {
        double u = ((double)(voxels_next(&random) >> 11) + 0.5) / 9007199254740992.0;
        at_ns += -log(u) / rate * 1e9;
        int64_t planned = (int64_t)at_ns;
        if (planned >= drive->count_to_ns) break;
        const struct timespec until = {.tv_sec = planned / 1000000000,
                                       .tv_nsec = planned % 1000000000};
        while (load_clock_ns() < planned) /* sleep: until the next arrival */
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        if (!wants_more(drive)) break;
        struct load_call *call = spare_take(thread);
        if (!call) {
            stats->not_sent++;
            continue;
        }
        int64_t late = load_clock_ns() - planned;
        if (late > stats->latest_send_ns) stats->latest_send_ns = late;
        call->intended_ns = planned;
        load_call_next(call, &random, stats);
    }
    atomic_store(&thread->sender_done, true);
    return NULL;
}

static void *vanisher_main(void *context)
{
    struct load_drive *drive = context;
    struct voxels_random random = {(uint64_t)drive->options->seed + 5000};
    for (;;) {
        sem_wait(&drive->to_vanish);
        if (atomic_load(&drive->over)) return NULL;
        const struct load_request *request = load_work_pick(drive->work, &random);
        if (load_vanish(drive->work, &request->full, &random))
            drive->vanisher_stats.vanished++;
    }
}

/* The requests run alone, on one channel after the other, so that all channels are connected when
 * the run begins. */
static bool ask_alone(struct load_drive *drive, const struct load_request *request,
                      int64_t turn)
{
    int32_t channel = (int32_t)(turn % drive->options->channels);
    struct load_thread *thread = &drive->threads[channel % drive->options->threads];
    struct load_call call = {.thread = thread,
                             .channel = channel,
                             .request = request,
                             .body = &request->full,
                             .bad = LOAD_GOOD,
                             .by_itself = true};
    atomic_fetch_add(&thread->under_way, 1);
    if (!load_call_start(&call, CONNECT_US + drive->options->deadline_ms * 1000, true))
        return false;
    while (!thread_event(thread)) continue; /* the deadline ends the call */
    load_call_finish(&call);
    if (call.status == GRPC_STATUS_OK && thread->stats.wrong == 0) return true;
    fprintf(stderr, "bench_load: a request sent alone failed: %s\n",
            thread->stats.first_failure);
    return false;
}

static bool ask_each_alone(struct load_drive *drive)
{
    struct load_work *work = drive->work;
    int64_t turns = work->requests_count;
    if (turns < drive->options->channels) turns = drive->options->channels;
    for (int64_t i = 0; i < turns; i++)
        if (!ask_alone(drive, &work->requests[i % work->requests_count], i)) return false;
    if (drive->options->bad > 0 && !ask_alone(drive, &work->empty, 0)) return false;
    for (int64_t i = 0; i < drive->options->threads; i++)
        memset(&drive->threads[i].stats, 0, sizeof drive->threads[i].stats);
    return true;
}

static bool thread_open(struct load_drive *drive, int32_t index)
{
    const struct load_options *options = drive->options;
    struct load_thread *thread = &drive->threads[index];
    bool open = options->rate > 0;
    int64_t slots = open ? options->in_flight : options->clients;
    thread->drive = drive;
    thread->index = index;
    thread->random.state = (uint64_t)options->seed * 17 + (uint64_t)index;
    atomic_store(&thread->sender_done, !open);
    pthread_mutex_init(&thread->lock, NULL);
    thread->queue = grpc_completion_queue_create_for_next(NULL);
    thread->calls = voxel_memory_take((size_t)slots, sizeof *thread->calls);
    if (!thread->calls) return false;
    for (int64_t i = 0; i < slots; i++) {
        int32_t channel = (int32_t)(i % options->channels);
        if (channel % options->threads != index) continue;
        struct load_call *call = &thread->calls[thread->calls_count++];
        call->thread = thread;
        call->channel = channel;
        if (open) spare_give(thread, call);
    }
    return true;
}

static bool drive_open(struct load_drive *drive)
{
    const struct load_options *options = drive->options;
    bool good = true;
    drive->channels =
        voxel_memory_take((size_t)options->channels, sizeof *drive->channels);
    drive->threads = voxel_memory_take((size_t)options->threads, sizeof *drive->threads);
    if (!drive->channels || !drive->threads) return false;
    for (int64_t i = 0; good && i < options->channels; i++)
        good = channel_open(drive, &drive->channels[i]);
    for (int64_t i = 0; good && i < options->threads; i++)
        good = thread_open(drive, (int32_t)i);
    return good;
}

static void drive_close(struct load_drive *drive)
{
    for (int64_t i = 0; drive->threads && i < drive->options->threads; i++) {
        struct load_thread *thread = &drive->threads[i];
        if (!thread->queue) continue;
        gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
        grpc_completion_queue_shutdown(thread->queue);
        while (grpc_completion_queue_next(thread->queue, never, NULL).type !=
               GRPC_QUEUE_SHUTDOWN)
            continue;
        grpc_completion_queue_destroy(thread->queue);
        pthread_mutex_destroy(&thread->lock);
        voxel_memory_give(thread->spans.list);
        voxel_memory_give(thread->calls);
    }
    for (int64_t i = 0; drive->channels && i < drive->options->channels; i++)
        if (drive->channels[i].channel) grpc_channel_destroy(drive->channels[i].channel);
    voxel_memory_give(drive->channels);
    voxel_memory_give(drive->threads);
}

static void run_threads(struct load_drive *drive)
{
    const struct load_options *options = drive->options;
    int64_t begin = load_clock_ns();
    drive->count_from_ns = begin + (int64_t)(options->warmup * 1e9);
    drive->count_to_ns = options->seconds > 0
                             ? drive->count_from_ns + (int64_t)(options->seconds * 1e9)
                             : INT64_MAX;
    atomic_store(&drive->requests_left, options->requests);
    atomic_store(&drive->counted, false);
    sem_init(&drive->to_vanish, 0, 0);
    pthread_create(&drive->vanisher, NULL, vanisher_main, drive);
    for (int64_t i = 0; i < options->threads; i++) {
        struct load_thread *thread = &drive->threads[i];
        pthread_create(&thread->thread, NULL, thread_main, thread);
        if (options->rate > 0) pthread_create(&thread->sender, NULL, sender_main, thread);
    }
    for (int64_t i = 0; i < options->threads; i++) {
        if (options->rate > 0) pthread_join(drive->threads[i].sender, NULL);
        pthread_join(drive->threads[i].thread, NULL);
    }
    atomic_store(&drive->over, true);
    sem_post(&drive->to_vanish);
    pthread_join(drive->vanisher, NULL);
    sem_destroy(&drive->to_vanish);
}

bool load_drive_run(struct load_work *work, struct load_stats *stats, double *seconds)
{
    static struct load_drive drive;
    drive.work = work;
    drive.options = work->options;
    drive.allowed = 0;
    drive.count_to_ns = INT64_MAX;
    bool good = drive_open(&drive) && ask_each_alone(&drive);
    char names[LOAD_TEXT_BYTES];
    char *rest = NULL;
    snprintf(names, sizeof names, "%s", work->options->allow);
    for (char *name = strtok_r(names, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest))
        drive.allowed |= 1u << load_code_of(name);
    if (good) {
        run_threads(&drive);
        for (int64_t i = 0; i < work->options->threads; i++) {
            load_stats_add(stats, &drive.threads[i].stats);
            load_stats_add(stats, &drive.threads[i].sender_stats);
        }
        load_stats_add(stats, &drive.vanisher_stats);
        *seconds = work->options->seconds;
        if (*seconds <= 0 || stats->last_ns > drive.count_to_ns)
            *seconds = (double)(stats->last_ns - drive.count_from_ns) / 1e9;
        if (!(*seconds > 0)) *seconds = 1;
    }
    drive_close(&drive);
    return good;
}
