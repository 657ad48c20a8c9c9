/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/gpu/fake/fake_parts.h"

#include <string.h>
#include <sys/mman.h>

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, _ISOLATION, CUDA_ERROR_ILLEGAL_STATE. */
#define CAPTURE_UNSUPPORTED 900
#define CAPTURE_ISOLATION   905
#define ILLEGAL_STATE       401

/* The limits of a block and a grid on every known device. */
#define THREADS_MAX 1024
#define GRID_X_MAX  2147483647u
#define GRID_YZ_MAX 65535u

/* One operation, of a stream or of a graph. */
struct node {
    enum { NODE_LAUNCH, NODE_COPY, NODE_FILL, NODE_RECORD, NODE_AFTER } kind;
    struct fake_event *event;
    i64 ticket; /* which record of the event */
    const struct vx_fake_function *function;
    void *to;
    const void *from;
    u32 value;
    size_t bytes; /* of a fill: words */
    _Alignas(16) u8 args[VX_FAKE_ARGS_BYTES];
};
struct nodes {
    struct nodes *next; /* in the list `living` */
    i32 count;
    i32 done; /* of a queue: rows that have run */
    struct node rows[VX_FAKE_NODES_MAX];
};
struct fake_event {
    struct vx_fake_object object;
    i64 ns;            /* of the last record that has happened; 0 = none */
    i64 tickets;       /* records that were put on streams */
    i64 happened;      /* records that have happened */
    i32 polls;         /* since the last record was put on a stream */
    void *last_stream; /* of the last record */
};
static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER; /* of all queues */

static struct nodes *living;
static pthread_mutex_t living_lock = PTHREAD_MUTEX_INITIALIZER;

/* Uses mmap, because a driver may allocate on a thread whose allocator is frozen. */
static struct nodes *nodes_open(void)
{
    void *made = mmap(NULL, sizeof(struct nodes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    VX_ASSERT(made != MAP_FAILED);
    struct nodes *nodes = made;
    pthread_mutex_lock(&living_lock);
    nodes->next = living;
    living = nodes;
    pthread_mutex_unlock(&living_lock);
    return nodes;
}

/* False when there is no such graph or recording. */
static bool nodes_close(struct nodes *nodes)
{
    pthread_mutex_lock(&living_lock);
    struct nodes **link = &living;
    while (*link && *link != nodes) link = &(*link)->next;
    bool found = *link != NULL;
    if (found) *link = nodes->next;
    pthread_mutex_unlock(&living_lock);
    if (found) (void)munmap(nodes, sizeof *nodes);
    return found;
}

void vx_fake_queue_close(void)
{
    while (living) (void)nodes_close(living);
}

static void stream_step(struct vx_fake_object *stream);

static void node_run(const struct node *node)
{
    switch (node->kind) {
    case NODE_RECORD:
        node->event->ns = vx_clock_ns();
        node->event->happened = node->ticket;
        break;
    case NODE_AFTER:
        while (node->event->happened < node->ticket)
            stream_step(node->event->last_stream);
        break;
    case NODE_LAUNCH: node->function->spec->ref(node->args, node->function->type); break;
    case NODE_COPY: memcpy(node->to, node->from, node->bytes); break;
    case NODE_FILL:
        for (size_t i = 0; i < node->bytes; i++) ((u32 *)node->to)[i] = node->value;
        break;
    }
}

/* --- deferred work --- */

/* Takes a node off the queue before it runs it: a NODE_AFTER steps another stream, which
 * must not run the same node again. */
static void stream_step(struct vx_fake_object *stream)
{
    struct nodes *queue = stream->queue;
    VX_ASSERT(queue && queue->done < queue->count); /* else the record is on no queue */
    node_run(&queue->rows[queue->done++]);
}

static void stream_drain(struct vx_fake_object *stream)
{
    struct nodes *queue = stream->queue;
    while (queue && queue->done < queue->count) stream_step(stream);
    if (queue) queue->done = queue->count = 0;
}

void vx_fake_queue_drain(void)
{
    pthread_mutex_lock(&waiting_lock);
    vx_fake_each(VX_FAKE_STREAM, stream_drain);
    pthread_mutex_unlock(&waiting_lock);
}

static bool lets_early(const struct node *node)
{
    return node->kind == NODE_LAUNCH && node->function->spec->turn != VX_TURN_PLAIN;
}

/* Runs the node now, or queues it if work is deferred (event_polls). */
static void stream_put(struct vx_fake_object *stream, const struct node *node)
{
    stream->lets_early = lets_early(node);
    pthread_mutex_lock(&waiting_lock);
    if (vx_fake_event_polls()) {
        if (!stream->queue) stream->queue = nodes_open();
        struct nodes *queue = stream->queue;
        if (queue->count == VX_FAKE_NODES_MAX) stream_drain(stream);
        queue->rows[queue->count++] = *node;
    } else {
        stream_drain(stream); /* nodes from before a change of event_polls */
        node_run(node);
    }
    pthread_mutex_unlock(&waiting_lock);
}

/* Runs or queues the node, or adds it to the capture of the stream. */
static int stream_do(void *stream, const struct node *node)
{
    if (!vx_fake_is(stream, VX_FAKE_STREAM)) return VX_DRIVER_INVALID_HANDLE;
    struct nodes *recording = ((struct vx_fake_object *)stream)->inside;
    if (!recording) {
        stream_put(stream, node);
        return 0;
    }
    VX_ASSERT(recording->count < VX_FAKE_NODES_MAX);
    ((struct vx_fake_object *)stream)->lets_early = lets_early(node);
    recording->rows[recording->count++] = *node;
    return 0;
}

/* --- copies: stricter than a device, which may accept host or device memory --- */

static int fake_copy_in(u64 to, const void *from, size_t bytes, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    bool within = vx_fake_holds((u64)(uintptr_t)from, 1);
    if (within || !vx_fake_holds(to, bytes)) return VX_DRIVER_INVALID_VALUE;
    const struct node node = {
        .kind = NODE_COPY, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes};
    return stream_do(stream, &node);
}

static int fake_copy_out(void *to, u64 from, size_t bytes, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    bool within = vx_fake_holds((u64)(uintptr_t)to, 1);
    if (within || !vx_fake_holds(from, bytes)) return VX_DRIVER_INVALID_VALUE;
    const struct node node = {.kind = NODE_COPY,
                              .to = to,
                              .from = (const void *)(uintptr_t)from,
                              .bytes = bytes};
    return stream_do(stream, &node);
}

static int fake_copy_within(u64 to, u64 from, size_t bytes, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_holds(to, bytes) || !vx_fake_holds(from, bytes))
        return VX_DRIVER_INVALID_VALUE;
    const struct node node = {.kind = NODE_COPY,
                              .to = (void *)(uintptr_t)to,
                              .from = (const void *)(uintptr_t)from,
                              .bytes = bytes};
    return stream_do(stream, &node);
}

static int fake_fill(u64 to, unsigned value, size_t words, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_holds(to, words * sizeof value)) return VX_DRIVER_INVALID_VALUE;
    const struct node node = {
        .kind = NODE_FILL, .to = (void *)(uintptr_t)to, .value = value, .bytes = words};
    return stream_do(stream, &node);
}

/* --- launches --- */

static int fake_start(const struct vx_driver *driver,
                      const struct vx_driver_launch *launch)
{
    bool run;
    (void)driver;
    const struct vx_fake_function *function = launch->function;
    const struct vx_fake_object *stream = launch->stream;
    const bool there = vx_fake_is(launch->function, VX_FAKE_FUNCTION) &&
                       vx_fake_is(launch->stream, VX_FAKE_STREAM);
    const bool asked = there && launch->early && function->spec->turn != VX_TURN_FIRST;
    int code = vx_fake_step_launch(asked, there && stream->urgent, &run);
    if (code || !run) return code;
    if (!there) return VX_DRIVER_INVALID_HANDLE;
    /* A device would not notice; the answer would be wrong now and then. */
    VX_ASSERT(!asked || (function->spec->turn == VX_TURN_ASKED && stream->lets_early));
    bool fits = launch->grid.x <= GRID_X_MAX && launch->grid.y <= GRID_YZ_MAX &&
                launch->grid.z <= GRID_YZ_MAX && launch->threads &&
                launch->threads <= THREADS_MAX &&
                launch->shared <= (unsigned)function->shared;
    if (!fits) return VX_DRIVER_INVALID_VALUE;
    VX_ASSERT(function->spec->args_bytes <= VX_FAKE_ARGS_BYTES);
    struct node node = {.kind = NODE_LAUNCH, .function = function};
    memcpy(node.args, launch->args, function->spec->args_bytes);
    return stream_do(launch->stream, &node);
}

/* --- streams and events --- */

static int fake_stream_open(void **stream, unsigned flags, int priority)
{
    int code = vx_fake_step();
    if (code) return code;
    VX_ASSERT(flags == VX_STREAM_NON_BLOCKING);
    struct vx_fake_object *made =
        vx_fake_object_open(VX_FAKE_STREAM, sizeof(struct vx_fake_object));
    VX_ASSERT(made);
    made->urgent = priority < VX_STREAM_USUAL;
    *stream = made;
    return 0;
}

static int object_close(void *object, enum vx_fake_kind kind)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(object, kind)) return VX_DRIVER_INVALID_HANDLE;
    vx_fake_object_close(object);
    return 0;
}

static int fake_stream_close(void *stream)
{
    struct nodes *recording = vx_fake_is(stream, VX_FAKE_STREAM)
                                  ? ((struct vx_fake_object *)stream)->inside
                                  : NULL;
    struct nodes *queue = vx_fake_is(stream, VX_FAKE_STREAM)
                              ? ((struct vx_fake_object *)stream)->queue
                              : NULL;
    vx_fake_queue_drain();
    int code = object_close(stream, VX_FAKE_STREAM);
    if (!code && recording) (void)nodes_close(recording);
    if (!code && queue) (void)nodes_close(queue);
    return code;
}

static int fake_stream_wait(void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(stream, VX_FAKE_STREAM)) return VX_DRIVER_INVALID_HANDLE;
    if (((struct vx_fake_object *)stream)->inside) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&waiting_lock);
    stream_drain(stream);
    pthread_mutex_unlock(&waiting_lock);
    return 0;
}

static int fake_event_open(void **event, unsigned flags)
{
    int code = vx_fake_step();
    if (code) return code;
    VX_ASSERT(flags == VX_EVENT_TIMED);
    *event = vx_fake_object_open(VX_FAKE_EVENT, sizeof(struct fake_event));
    VX_ASSERT(*event);
    return 0;
}

static int fake_event_close(void *event)
{
    vx_fake_queue_drain(); /* queued nodes may still refer to it */
    return object_close(event, VX_FAKE_EVENT);
}

static int fake_event_record(void *event, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(event, VX_FAKE_EVENT) || !vx_fake_is(stream, VX_FAKE_STREAM))
        return VX_DRIVER_INVALID_HANDLE;
    if (((struct vx_fake_object *)stream)->inside) return 0;
    struct fake_event *it = event;
    pthread_mutex_lock(&waiting_lock);
    it->last_stream = stream;
    it->polls = 0;
    const struct node node = {.kind = NODE_RECORD, .event = it, .ticket = ++it->tickets};
    pthread_mutex_unlock(&waiting_lock);
    stream_put(stream, &node);
    return 0;
}

/* As with the vendors, an event that was never recorded is done. */
static int fake_event_done(void *event)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(event, VX_FAKE_EVENT)) return VX_DRIVER_INVALID_HANDLE;
    struct fake_event *it = event;
    pthread_mutex_lock(&waiting_lock);
    bool done = it->happened == it->tickets;
    if (!done && ++it->polls > vx_fake_event_polls()) {
        while (it->happened < it->tickets) stream_step(it->last_stream);
        done = true;
    }
    pthread_mutex_unlock(&waiting_lock);
    return done ? 0 : VX_DRIVER_NOT_READY;
}

static int fake_stream_after(void *stream, void *event, unsigned flags)
{
    int code = vx_fake_step();
    if (code || flags) return code ? code : VX_DRIVER_INVALID_VALUE;
    if (!vx_fake_is(event, VX_FAKE_EVENT) || !vx_fake_is(stream, VX_FAKE_STREAM))
        return VX_DRIVER_INVALID_HANDLE;
    /* A capture may depend only on events of the same capture. */
    if (((struct vx_fake_object *)stream)->inside) return CAPTURE_ISOLATION;
    struct fake_event *it = event;
    pthread_mutex_lock(&waiting_lock);
    const struct node node = {.kind = NODE_AFTER, .event = it, .ticket = it->tickets};
    pthread_mutex_unlock(&waiting_lock);
    stream_put(stream, &node);
    return 0;
}

static int fake_event_elapsed(f32 *ms, void *begin, void *end)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(begin, VX_FAKE_EVENT) || !vx_fake_is(end, VX_FAKE_EVENT))
        return VX_DRIVER_INVALID_HANDLE;
    const struct fake_event *first = begin, *last = end;
    if (!first->tickets || !last->tickets) return VX_DRIVER_INVALID_HANDLE;
    if (first->happened < first->tickets || last->happened < last->tickets)
        return VX_DRIVER_NOT_READY;
    *ms = (f32)((f64)(last->ns - first->ns) / 1e6);
    return 0;
}

/* --- recording --- */

static int fake_capture_begin(void *stream, int mode)
{
    int code = vx_fake_step();
    if (code) return code;
    VX_ASSERT(mode == VX_CAPTURE_THREAD_LOCAL);
    if (!vx_fake_is(stream, VX_FAKE_STREAM)) return VX_DRIVER_INVALID_HANDLE;
    struct vx_fake_object *it = stream;
    if (it->inside) return ILLEGAL_STATE;
    it->inside = nodes_open();
    it->lets_early = false;
    return 0;
}

/* As with the vendors, the capture ends even if the call fails. */
static int fake_capture_end(void *stream, void **recording)
{
    struct vx_fake_object *it = stream;
    if (!vx_fake_is(it, VX_FAKE_STREAM)) return VX_DRIVER_INVALID_HANDLE;
    void *nodes = it->inside;
    it->inside = NULL;
    it->lets_early = false; /* what was recorded did not run */
    int code = vx_fake_step();
    if (!code && !nodes) code = ILLEGAL_STATE;
    if (!code)
        *recording = nodes;
    else if (nodes)
        (void)nodes_close(nodes);
    return code;
}

static int fake_graph_open(void **graph, void *recording, unsigned long long flags)
{
    int code = vx_fake_step();
    if (code || flags) return code ? code : VX_DRIVER_INVALID_VALUE;
    const struct nodes *from = recording;
    struct nodes *to = nodes_open();
    to->count = from->count;
    memcpy(to->rows, from->rows, (size_t)from->count * sizeof from->rows[0]);
    *graph = to;
    return 0;
}

static int fake_recording_close(void *recording)
{
    bool found = nodes_close(recording);
    int code = vx_fake_step();
    return code || found ? code : VX_DRIVER_INVALID_HANDLE;
}

static int fake_graph_launch(void *graph, void *stream)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(stream, VX_FAKE_STREAM)) return VX_DRIVER_INVALID_HANDLE;
    const struct nodes *nodes = graph;
    for (i32 i = 0; i < nodes->count; i++) stream_put(stream, &nodes->rows[i]);
    return 0;
}

static int fake_graph_close(void *graph)
{
    return fake_recording_close(graph);
}

void vx_driver_fake_queue(struct vx_driver *driver)
{
    driver->copy_in = fake_copy_in;
    driver->copy_out = fake_copy_out;
    driver->copy_within = fake_copy_within;
    driver->fill = fake_fill;
    driver->start = fake_start;
    driver->stream_open = fake_stream_open;
    driver->stream_close = fake_stream_close;
    driver->stream_wait = fake_stream_wait;
    driver->event_open = fake_event_open;
    driver->event_close = fake_event_close;
    driver->event_record = fake_event_record;
    driver->event_done = fake_event_done;
    driver->stream_after = fake_stream_after;
    driver->event_elapsed = fake_event_elapsed;
    driver->capture_begin = fake_capture_begin;
    driver->capture_end = fake_capture_end;
    driver->graph_open = fake_graph_open;
    driver->recording_close = fake_recording_close;
    driver->graph_launch = fake_graph_launch;
    driver->graph_close = fake_graph_close;
}
