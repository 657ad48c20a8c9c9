/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/standin.h"

#include "tests/amd/fibers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct standin_stream *streams;

/* --- work --- */

static i64 now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fill(const struct standin_node *node)
{
    for (size_t i = 0; i < node->bytes; i++)
        memcpy((u8 *)node->to + i * sizeof node->value, &node->value, sizeof node->value);
}

/* Without the lock. */
static void launch(struct standin_stream *stream, struct standin_node *node)
{
    char why[AMD_WHY_BYTES] = "the launch that the settings name";
    bool done = !node->loses && amd_fibers_run(&node->launch, why);
    if (done) return;
    pthread_mutex_lock(&standin.lock);
    standin_lose(stream->device,
                 node->loses ? STANDIN_ILLEGAL_ADDRESS : STANDIN_LAUNCH_FAILED, why);
    pthread_mutex_unlock(&standin.lock);
    (void)dprintf(2, "hip_standin: device %d is lost: %s\n", stream->device, why);
}

/* A lost device runs nothing, but events happen and streams become idle. */
static void node_run(struct standin_stream *stream, struct standin_node *node, bool lost)
{
    struct standin_event *event = node->event;
    switch (node->kind) {
    case NODE_LAUNCH:
        if (!lost) launch(stream, node);
        break;
    case NODE_COPY:
        if (!lost) memcpy(node->to, node->from, node->bytes);
        break;
    case NODE_FILL:
        if (!lost) fill(node);
        break;
    case NODE_RECORD:
        pthread_mutex_lock(&standin.lock);
        event->ns = now_ns();
        event->happened = node->ticket;
        pthread_mutex_unlock(&standin.lock);
        break;
    case NODE_AFTER:
        pthread_mutex_lock(&standin.lock);
        while (event->happened < node->ticket)
            pthread_cond_wait(&standin.changed, &standin.lock);
        pthread_mutex_unlock(&standin.lock);
        break;
    }
}

static void *stream_main(void *argument)
{
    struct standin_stream *stream = argument;
    pthread_mutex_lock(&standin.lock);
    for (;;) {
        struct standin_node *node = stream->queue.first;
        if (!node && stream->closing) break;
        if (!node) {
            pthread_cond_wait(&standin.changed, &standin.lock);
            continue;
        }
        stream->queue.first = node->next;
        if (!node->next) stream->queue.last = &stream->queue.first;
        stream->busy = true;
        bool lost = standin.lost[stream->device] != 0;
        pthread_mutex_unlock(&standin.lock);
        node_run(stream, node, lost);
        pthread_mutex_lock(&standin.lock);
        stream->busy = false;
        standin_give(node);
        (void)pthread_cond_broadcast(&standin.changed);
    }
    pthread_mutex_unlock(&standin.lock);
    return NULL;
}

static bool is_idle(const struct standin_stream *stream)
{
    return !stream->queue.first && !stream->busy;
}

void standin_wait_idle(int device)
{
    struct standin_stream *it = streams;
    while (it) {
        if (it->device == device && !is_idle(it)) {
            pthread_cond_wait(&standin.changed, &standin.lock);
            it = streams; /* the list may have changed */
        } else {
            it = it->next;
        }
    }
}

void standin_append(struct standin_nodes *nodes, struct standin_node *node)
{
    node->next = NULL;
    if (!nodes->last) nodes->last = &nodes->first;
    *nodes->last = node;
    nodes->last = &node->next;
}

void standin_put(struct standin_stream *stream, struct standin_node *node)
{
    if (stream->capture) {
        standin_append(&stream->capture->nodes, node);
        return;
    }
    standin_append(&stream->queue, node);
    (void)pthread_cond_broadcast(&standin.changed);
}

/* --- copies --- */

struct copy {
    enum { COPY_IN, COPY_OUT, COPY_WITHIN } kind;
    void *to;
    const void *from;
    size_t bytes;
};

static bool copy_holds(const struct copy *copy)
{
    u64 to = (u64)(uintptr_t)copy->to, from = (u64)(uintptr_t)copy->from;
    bool to_device = standin_holds(to, copy->kind == COPY_OUT ? 1 : copy->bytes);
    bool from_device = standin_holds(from, copy->kind == COPY_IN ? 1 : copy->bytes);
    return to_device == (copy->kind != COPY_OUT) &&
           from_device == (copy->kind != COPY_IN);
}

static int copy_put(const struct copy *copy, void *stream)
{
    int code = standin_enter();
    if (!code && !standin_is(stream, STANDIN_STREAM)) code = STANDIN_INVALID_HANDLE;
    if (!code && !copy_holds(copy)) code = STANDIN_INVALID_VALUE;
    struct standin_node *node = code ? NULL : standin_take();
    if (!code && !node) code = STANDIN_OUT_OF_MEMORY;
    if (node) {
        node->kind = NODE_COPY;
        node->to = copy->to;
        node->from = copy->from;
        node->bytes = copy->bytes;
        standin_put(stream, node);
    }
    return standin_leave(code);
}

int hipMemcpyHtoDAsync(u64 to, const void *from, size_t bytes, void *stream)
{
    const struct copy copy = {COPY_IN, (void *)(uintptr_t)to, from, bytes};
    return copy_put(&copy, stream);
}

int hipMemcpyDtoHAsync(void *to, u64 from, size_t bytes, void *stream)
{
    const struct copy copy = {COPY_OUT, to, (const void *)(uintptr_t)from, bytes};
    return copy_put(&copy, stream);
}

int hipMemcpyDtoDAsync(u64 to, u64 from, size_t bytes, void *stream)
{
    const struct copy copy = {COPY_WITHIN, (void *)(uintptr_t)to,
                              (const void *)(uintptr_t)from, bytes};
    return copy_put(&copy, stream);
}

int hipMemsetD32Async(u64 to, unsigned value, size_t words, void *stream)
{
    int code = standin_enter();
    if (!code && !standin_is(stream, STANDIN_STREAM)) code = STANDIN_INVALID_HANDLE;
    if (!code && !standin_holds(to, words * sizeof value)) code = STANDIN_INVALID_VALUE;
    struct standin_node *node = code ? NULL : standin_take();
    if (!code && !node) code = STANDIN_OUT_OF_MEMORY;
    if (node) {
        node->kind = NODE_FILL;
        node->to = (void *)(uintptr_t)to;
        node->value = value;
        node->bytes = words;
        standin_put(stream, node);
    }
    return standin_leave(code);
}

/* --- streams --- */

/* Signals are for the threads of the program, but for those that a kernel raises. */
static bool thread_start(struct standin_stream *stream)
{
    sigset_t blocked, before;
    (void)sigfillset(&blocked);
    const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < VX_COUNT(raised); i++) (void)sigdelset(&blocked, raised[i]);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    bool started = !pthread_create(&stream->thread, NULL, stream_main, stream);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    int code = standin_enter();
    if (!code && flags != VX_STREAM_NON_BLOCKING) code = STANDIN_INVALID_VALUE;
    struct standin_stream *made = code ? NULL : standin_take();
    (void)priority;
    if (made) {
        made->kind = STANDIN_STREAM;
        made->device = standin_device();
        made->queue.last = &made->queue.first;
        made->next = streams;
        if (thread_start(made)) {
            streams = made;
            *stream = made;
            return standin_leave(0);
        }
        standin_give(made);
    }
    return standin_leave(code ? code : STANDIN_OUT_OF_MEMORY);
}

int hipStreamDestroy(void *stream)
{
    int code = standin_enter();
    struct standin_stream *it = stream;
    if (!standin_is(it, STANDIN_STREAM))
        return standin_leave(code ? code : STANDIN_INVALID_HANDLE);
    it->closing = true;
    (void)pthread_cond_broadcast(&standin.changed);
    pthread_t thread = it->thread;
    (void)standin_leave(0);
    (void)pthread_join(thread, NULL);
    pthread_mutex_lock(&standin.lock);
    struct standin_stream **link = &streams;
    while (*link != it) link = &(*link)->next;
    *link = it->next;
    standin_give(it);
    return standin_leave(code);
}

static int stream_code(int code, const void *stream)
{
    const struct standin_stream *it = stream;
    if (code) return code;
    if (!standin_is(it, STANDIN_STREAM)) return STANDIN_INVALID_HANDLE;
    return it->capture ? STANDIN_CAPTURE_UNSUPPORTED : 0;
}

int hipStreamSynchronize(void *stream)
{
    int code = stream_code(standin_enter(), stream);
    struct standin_stream *it = stream;
    if (code) return standin_leave(code);
    while (!is_idle(it)) pthread_cond_wait(&standin.changed, &standin.lock);
    return standin_leave(standin.lost[it->device]);
}

int hipStreamQuery(void *stream)
{
    int code = stream_code(standin_enter(), stream);
    if (!code && !is_idle(stream)) code = STANDIN_NOT_READY;
    return standin_leave(code);
}

/* --- events --- */

int hipEventCreateWithFlags(void **event, unsigned flags)
{
    int code = standin_enter();
    if (!code && flags != VX_EVENT_TIMED) code = STANDIN_INVALID_VALUE;
    struct standin_event *made = code ? NULL : standin_take();
    if (!code && !made) code = STANDIN_OUT_OF_MEMORY;
    if (made) {
        made->kind = STANDIN_EVENT;
        *event = made;
    }
    return standin_leave(code);
}

/* Work that is queued may still refer to it. */
int hipEventDestroy(void *event)
{
    int code = standin_enter();
    bool is = standin_is(event, STANDIN_EVENT);
    if (is) {
        for (int i = 0; i < STANDIN_DEVICES_MAX; i++) standin_wait_idle(i);
        standin_give(event);
    }
    return standin_leave(code || is ? code : STANDIN_INVALID_HANDLE);
}

/* Puts a record of the event, or a wait for its last record. */
static int event_put(void *event, void *stream, bool record)
{
    int code = standin_enter();
    bool objects = standin_is(event, STANDIN_EVENT) && standin_is(stream, STANDIN_STREAM);
    if (!code && !objects) code = STANDIN_INVALID_HANDLE;
    struct standin_stream *it = stream;
    if (!code && it->capture) /* a capture depends only on events of the same capture */
        return standin_leave(record ? 0 : STANDIN_CAPTURE_ISOLATION);
    struct standin_node *node = code ? NULL : standin_take();
    if (!code && !node) code = STANDIN_OUT_OF_MEMORY;
    if (node) {
        node->kind = record ? NODE_RECORD : NODE_AFTER;
        node->event = event;
        if (record) node->event->tickets++;
        node->ticket = node->event->tickets;
        standin_put(it, node);
    }
    return standin_leave(code);
}

int hipEventRecord(void *event, void *stream)
{
    return event_put(event, stream, true);
}

int hipStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return flags ? STANDIN_INVALID_VALUE : event_put(event, stream, false);
}

/* As with the vendors, an event that was never recorded is done. */
int hipEventQuery(void *event)
{
    int code = standin_enter();
    const struct standin_event *it = event;
    if (!code && !standin_is(it, STANDIN_EVENT)) code = STANDIN_INVALID_HANDLE;
    if (!code && it->happened < it->tickets) code = STANDIN_NOT_READY;
    return standin_leave(code);
}

int hipEventSynchronize(void *event)
{
    int code = standin_enter();
    const struct standin_event *it = event;
    if (!code && !standin_is(it, STANDIN_EVENT)) code = STANDIN_INVALID_HANDLE;
    while (!code && it->happened < it->tickets)
        pthread_cond_wait(&standin.changed, &standin.lock);
    return standin_leave(code ? code : standin.lost[standin_device()]);
}

int hipEventElapsedTime(f32 *ms, void *begin, void *end)
{
    int code = standin_enter();
    const struct standin_event *first = begin, *last = end;
    if (!code && !(standin_is(first, STANDIN_EVENT) && standin_is(last, STANDIN_EVENT)))
        code = STANDIN_INVALID_HANDLE;
    if (!code && (!first->tickets || !last->tickets)) code = STANDIN_INVALID_HANDLE;
    if (!code && (first->happened < first->tickets || last->happened < last->tickets))
        code = STANDIN_NOT_READY;
    if (!code) *ms = (f32)((f64)(last->ns - first->ns) / 1e6);
    return standin_leave(code);
}
