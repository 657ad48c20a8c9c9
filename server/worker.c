/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/worker.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mailbox.h"
#include "engine/base/thread.h"
#include "engine/engine.h"
#include "server/channel.h"
#include "server/sched.h"
#include "server/shared.h"
#include "server/worker_device.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* PROGRESS at most this often: for people, who read no faster. */
#define PROGRESS_NS (100 * VX_NS_PER_MS)

/* One load on its way device -> main -> device.  One per row: the front asks for a row's
 * load only when the last one has been answered. */
struct load {
    struct vx_link link;
    struct worker *worker;
    bool busy;
    struct vx_message_load message;
    i64 progress_said_ns;
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
};

struct worker {
    const struct vx_config *config;
    struct vx_shared *shared;
    struct vx_engine *engine;
    struct vx_model *models[VX_INSTANCES_MAX]; /* device thread's */
    struct load loads[VX_INSTANCES_MAX];
    struct vx_mailbox to_main;   /* loads to make; the stop link last */
    struct vx_mailbox to_device; /* loads made */
    struct vx_link stop;
    int bell; /* eventfd: something is in to_device */
    int exit_code;
    union vx_message in,
        out; /* device thread's; too large for a stack that people read */
};

static void worker_say(const struct vx_message_head *message, size_t bytes)
{
    /* A front that is gone shows as the end of the channel at the next read; nothing to
     * do here. */
    vx_status st = vx_channel_send(VX_WORKER_CHANNEL_FD, message, bytes);
    if (st.fault) return;
}

/* Why this process is about to end by itself: the front's log and pages tell. */
static void worker_say_end(struct worker *worker, bool lost, const char *why)
{
    struct vx_message_ends *out = &worker->out.ends;
    memset(out, 0, sizeof *out);
    out->head.kind = VX_MESSAGE_ENDS;
    out->lost = lost;
    vx_why_set(&out->why, "%s", why);
    worker_say(&out->head, sizeof *out);
}

/* ------- main thread: model files ------- */

static void load_say_progress(struct load *load, struct vx_message_progress *message)
{
    i64 now = vx_clock_ns();
    if (message->done < message->total && now - load->progress_said_ns < PROGRESS_NS)
        return;
    load->progress_said_ns = now;
    message->head = load->message.head;
    message->head.kind = VX_MESSAGE_PROGRESS;
    worker_say(&message->head, sizeof *message);
}

static void load_on_progress(void *context, i64 done, i64 total)
{
    struct vx_message_progress message = {.done = done, .total = total};
    load_say_progress(context, &message);
}

/* On the device thread. */
static void load_on_tuned(void *context, i64 done, i64 total)
{
    struct vx_message_progress message = {.done = done, .total = total, .tuning = true};
    load_say_progress(context, &message);
}

static void main_make_model(struct worker *worker, struct load *load)
{
    struct vx_model_source source = {load->message.directory, load->message.version};
    struct vx_progress progress = {load_on_progress, load};
    load->why.text[0] = '\0';
    load->status =
        vx_engine_load(worker->engine, &source, &progress, &load->why, &load->model);
    vx_mailbox_give(&worker->to_device, &load->link);
}

/* Until the device thread sends the stop link, which is the last it gives; it goes back
 * as the last that main gives. */
static void main_serve(struct worker *worker)
{
    VX_ON(MAIN);
    for (;;) {
        struct vx_link *next;
        for (struct vx_link *link = vx_mailbox_wait_all(&worker->to_main); link;
             link = next) {
            next = link->next;
            if (link == &worker->stop) {
                vx_mailbox_give(&worker->to_device, link);
                return;
            }
            main_make_model(worker, VX_CONTAINER(link, struct load, link));
        }
    }
}

/* ------- device thread: the channel, and running ------- */

static void device_on_load(struct worker *worker, const struct vx_message_load *message)
{
    VX_ASSERT(message->head.instance >= 0 && message->head.instance < VX_INSTANCES_MAX);
    struct load *load = &worker->loads[message->head.instance];
    VX_ASSERT(!load->busy);
    load->busy = true;
    load->worker = worker;
    load->message = *message;
    load->model = NULL;
    load->progress_said_ns = 0;
    vx_mailbox_give(&worker->to_main, &load->link);
}

static void device_on_unload(struct worker *worker, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    if (worker->models[instance])
        vx_engine_unload(worker->engine, &worker->models[instance]);
}

/* The contexts of a lost device are gone, other devices' in this process as well, and its
 * driver may crash when it is closed.  So the process ends here, with the batch or the load
 * unanswered: the front gives both to a new one. */
static void device_end_if_lost(struct worker *worker)
{
    struct vx_why why = {""};
    if (!vx_engine_lost(worker->engine, &why)) return;
    worker_say_end(worker, true, why.text);
    vx_process_end(VX_WORKER_EXIT_LOST);
}

/* A model came back from main: warm it, keep it, say so. */
static void device_on_made(struct worker *worker, struct load *load)
{
    i32 instance = load->message.head.instance;
    const struct vx_progress progress = {load_on_tuned, load};
    if (!load->status.fault)
        load->status = vx_engine_warm(worker->engine, load->model, &progress, &load->why);
    device_end_if_lost(worker);
    struct vx_message_loaded *out = &worker->out.loaded;
    memset(out, 0, sizeof *out);
    out->head = load->message.head;
    out->head.kind = VX_MESSAGE_LOADED;
    out->code = (i32)vx_status_code(load->status);
    if (load->status.fault) {
        vx_why_set(&out->why, "%s", vx_status_text(load->status, &load->why));
        if (load->model) vx_engine_unload(worker->engine, &load->model);
    } else {
        device_on_unload(worker, instance);
        worker->models[instance] = load->model;
        out->signature = *vx_model_signature(load->model);
    }
    load->busy = false;
    worker_say(&out->head, sizeof *out);
}

static const void *device_view(const struct worker *worker, u64 offset, i64 bytes)
{
    const u8 *view = vx_shared_view(worker->shared, offset, (u64)bytes);
    VX_ASSERT(view);
    return view;
}

static struct vx_item device_item(const struct worker *worker,
                                  const struct vx_run_item *in,
                                  const struct vx_signature *signature)
{
    i64 feats_element = (i64)vx_dtype_bytes((enum vx_dtype)in->feats_dtype);
    struct vx_item item = {
        .coords =
            device_view(worker, in->coords_offset, in->voxels * in->coords_columns * 4),
        .coords_columns = in->coords_columns,
        .voxels = in->voxels,
        .feats = device_view(worker, in->feats_offset,
                             in->voxels * signature->feats_channels * feats_element),
        .feats_dtype = (enum vx_dtype)in->feats_dtype,
    };
    for (i32 o = 0; o < signature->outputs_count; o++) {
        if (in->outputs_offset[o] == VX_NO_OUTPUT) continue;
        const struct vx_output *output = &signature->outputs[o];
        i64 bytes = in->voxels * output->channels * (i64)vx_dtype_bytes(output->dtype);
        item.outputs[o] =
            (void *)(uintptr_t)device_view(worker, in->outputs_offset[o], bytes);
    }
    return item;
}

static struct vx_done_item device_done_item(const struct vx_item *item)
{
    struct vx_done_item done = {
        .code = (i32)vx_status_code(item->status),
        .geometry_hit = item->geometry_hit,
        .convert_ns = item->convert_ns,
        .geometry_ns = item->geometry_ns,
        .compute_ns = item->compute_ns,
        .output_ns = item->output_ns,
        .pairs = item->pairs,
    };
    if (item->status.fault)
        vx_why_set(&done.why, "%s", vx_status_text(item->status, &item->why));
    return done;
}

static void device_on_run(struct worker *worker, const struct vx_message_run *run)
{
    struct vx_model *model = worker->models[run->head.instance];
    VX_ASSERT(model);
    VX_ASSERT(run->items_count > 0 && run->items_count <= VX_BATCH_ITEMS_MAX);
    vx_panic_note("batch", run->head.batch);
    static struct vx_item
        items[VX_BATCH_ITEMS_MAX]; /* one device thread, one batch at a time */
    for (i32 i = 0; i < run->items_count; i++)
        items[i] = device_item(worker, &run->items[i], vx_model_signature(model));
    struct vx_batch batch = {items, run->items_count};
    vx_engine_run(worker->engine, model, &batch);
    device_end_if_lost(worker);
    struct vx_message_done *out = &worker->out.done;
    out->head = run->head;
    out->head.kind = VX_MESSAGE_DONE;
    out->items_count = run->items_count;
    for (i32 i = 0; i < run->items_count; i++)
        out->items[i] = device_done_item(&items[i]);
    worker_say(&out->head, vx_message_done_bytes(out->items_count));
    vx_panic_note("waiting after batch", run->head.batch);
}

static void device_say_stats(struct worker *worker, enum vx_message_kind kind)
{
    struct vx_message_up *out = &worker->out.up;
    memset(out, 0, sizeof *out);
    out->head.kind = kind;
    vx_engine_stats_get(worker->engine, &out->stats);
    worker_say(&out->head, sizeof *out);
}

static void device_on_message(struct worker *worker)
{
    const struct vx_message_head *head = &worker->in.head;
    switch ((enum vx_message_kind)head->kind) {
    case VX_MESSAGE_LOAD: device_on_load(worker, &worker->in.load); return;
    case VX_MESSAGE_UNLOAD: device_on_unload(worker, head->instance); return;
    case VX_MESSAGE_RUN: device_on_run(worker, &worker->in.run); return;
    case VX_MESSAGE_STATS: device_say_stats(worker, VX_MESSAGE_STATED); return;
    case VX_MESSAGE_UP:
    case VX_MESSAGE_PROGRESS:
    case VX_MESSAGE_LOADED:
    case VX_MESSAGE_DONE:
    case VX_MESSAGE_STATED:
    case VX_MESSAGE_ENDS: break; /* ours to say, not to hear */
    }
    vx_panic(__FILE__, __LINE__, "a message that is not the front's to say");
}

static void device_take_made(struct worker *worker)
{
    struct vx_link *next;
    for (struct vx_link *link = vx_mailbox_take_all(&worker->to_device); link;
         link = next) {
        next = link->next;
        device_on_made(worker, VX_CONTAINER(link, struct load, link));
    }
}

/* Until the front closes its end. */
static void device_serve(struct worker *worker)
{
    struct pollfd polls[2] = {{.fd = VX_WORKER_CHANNEL_FD, .events = POLLIN},
                              {.fd = worker->bell, .events = POLLIN}};
    for (;;) {
        if (poll(polls, 2, -1) < 0) {
            VX_ASSERT(errno == EINTR);
            continue;
        }
        if (polls[1].revents) {
            u64 rings;
            VX_ASSERT(read(worker->bell, &rings, sizeof rings) == sizeof rings);
            device_take_made(worker);
        }
        if (!polls[0].revents) continue;
        size_t bytes;
        vx_status st = vx_channel_receive(VX_WORKER_CHANNEL_FD, &worker->in, &bytes);
        if (st.fault) return;
        if (bytes) device_on_message(worker);
    }
}

static void device_ring(void *context)
{
    struct worker *worker = context;
    u64 one = 1;
    VX_ASSERT(write(worker->bell, &one, sizeof one) == sizeof one);
}

static void device_open_and_serve(struct worker *worker)
{
    struct vx_why why = {""};
    vx_status st =
        vx_worker_device_open(worker->config, worker->shared, &why, &worker->engine);
    if (st.fault) {
        worker_say_end(worker, false, vx_status_text(st, &why));
        worker->exit_code = VX_WORKER_EXIT_NO_DEVICE;
        return;
    }
    device_say_stats(worker, VX_MESSAGE_UP);
    vx_alloc_freeze(); /* from here on memory is what open took */
    device_serve(worker);
    vx_alloc_thaw();
}

/* Main has been told to stop: waits for its last word, then frees what the device thread
 * owns. */
static void device_release(struct worker *worker)
{
    bool main_stopped = false;
    while (!main_stopped) {
        struct vx_link *next;
        for (struct vx_link *link = vx_mailbox_wait_all(&worker->to_device); link;
             link = next) {
            next = link->next;
            if (link == &worker->stop) {
                main_stopped = true;
                continue;
            }
            struct load *load = VX_CONTAINER(link, struct load, link);
            if (load->model) vx_engine_unload(worker->engine, &load->model);
        }
    }
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) device_on_unload(worker, i);
    if (worker->engine) vx_engine_close(&worker->engine);
}

static void device_main(void *context)
{
    struct worker *worker = context;
    device_open_and_serve(worker);
    vx_mailbox_give(&worker->to_main, &worker->stop);
    device_release(worker);
}

int vx_worker_run(const struct vx_config *config)
{
    vx_thread_enter(VX_ROLE_MAIN);
    struct worker *worker = vx_alloc_zero(sizeof *worker);
    VX_ASSERT(worker);
    worker->config = config;
    worker->bell = eventfd(0, EFD_CLOEXEC);
    VX_ASSERT(worker->bell >= 0);
    vx_mailbox_init(&worker->to_main, NULL, NULL);
    vx_mailbox_init(&worker->to_device, device_ring, worker);
    struct vx_why why = {""};
    pthread_t device;
    vx_status st = vx_shared_map(VX_WORKER_ARENA_FD, &why, &worker->shared);
    if (!st.fault) st = vx_thread_open(&device, VX_ROLE_DEVICE, device_main, worker);
    if (st.fault) {
        VX_LOG(WORKER_EXIT, VX_LOG_TEXT("why", vx_status_text(st, &why)));
        return 1;
    }
    main_serve(worker);
    pthread_join(device, NULL);
    vx_mailbox_fini(&worker->to_main);
    vx_mailbox_fini(&worker->to_device);
    vx_shared_close(&worker->shared);
    close(worker->bell);
    int exit_code = worker->exit_code;
    vx_free(worker);
    return exit_code;
}
