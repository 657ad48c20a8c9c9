/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/worker/worker_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "server/devices/devices.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* While a batch is under way, the device is polled without sleep for this long after the
 * last event: small batches end within that time, and a sleep with its wakeup would make
 * them noticeably slower. */
#define SPIN_NS (200 * VX_NS_PER_US)
/* After that, the sleep between two polls: at most a tenth of a batch that took longer
 * than SPIN_NS, and the core is free for other work. */
#define NAP_NS (20 * VX_NS_PER_US)
/* How late the kernel may end a sleep; its default, 50 us, is more than the sleep. */
#define TIMER_SLACK_NS 1
/* How often the channel is read while the CPU device computes: a system call of a microsecond. */
#define HEAR_NS VX_NS_PER_MS
/* Pause instructions between two polls without sleep: a fraction of a microsecond.
 * Polling more often is not worth its system calls and the driver's reads. */
#define SPIN_PAUSES 8

/* With a lost device all contexts of the process are gone, and the driver may crash when
 * it is closed.  So the process ends here and leaves the batch or the load unanswered:
 * the front gives both to a new process. */
void vx_worker_end_if_lost(struct vx_worker *worker)
{
    struct vx_why why = {""};
    if (!vx_engine_lost(worker->engine, &why)) return;
    vx_worker_say_end(worker, true, why.text);
    vx_process_end(VX_WORKER_EXIT_LOST);
}

/* ------- batches ------- */

static struct vx_item device_item(const struct vx_worker *worker,
                                  const struct vx_run_item *in,
                                  const struct vx_signature *signature,
                                  struct vx_worker_uses *uses)
{
    size_t feat_bytes = vx_dtype_bytes((enum vx_dtype)in->feats_dtype);
    struct vx_item item = {
        .coords_ref = in->coords_ref,
        .origin = in->origin,
        .coords_columns = in->coords_columns,
        .voxels = in->voxels,
        .feats_dtype = (enum vx_dtype)in->feats_dtype,
        .coords_change = vx_place_in_region(&in->coords),
        .says_taken = in->says_taken,
    };
    const struct vx_worker_tensor coords = {in->voxels * in->coords_columns * 4, 4,
                                            VX_ITEM_COORDS};
    const struct vx_worker_tensor feats = {in->voxels * signature->feats_channels *
                                               (i64)feat_bytes,
                                           feat_bytes, VX_ITEM_FEATS};
    *uses = (struct vx_worker_uses){.count = 0};
    item.coords = vx_worker_at(worker, &in->coords, &coords, &item, uses);
    item.feats = vx_worker_at(worker, &in->feats, &feats, &item, uses);
    item.asks = in->asks;
    memcpy(item.shape, in->shape, sizeof item.shape);
    for (i32 o = 0; o < signature->outputs_count; o++) {
        const struct vx_output *output = &signature->outputs[o];
        size_t element = vx_dtype_bytes(output->dtype);
        VX_ASSERT(!(in->asks >> o & 1) ||
                  (output->set && in->outputs[o].kind == VX_PLACE_NONE));
        const struct vx_worker_tensor out = {in->voxels * output->channels * (i64)element,
                                             element, VX_ITEM_OUTPUT(o)};
        item.outputs[o] = vx_worker_at(worker, &in->outputs[o], &out, &item, uses);
    }
    return item;
}

bool vx_worker_has_batch(const struct vx_worker *worker, i32 instance)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
        const struct vx_message_head *head = &worker->batches[i].head;
        if (head->serial && head->instance == instance) return true;
    }
    return false;
}

static struct vx_worker_batch *device_take_batch(struct vx_worker *worker)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++)
        if (!worker->batches[i].head.serial) return &worker->batches[i];
    vx_panic(__FILE__, __LINE__, "the front sent more batches than a worker takes");
}

static void device_submit(struct vx_worker *worker, struct vx_worker_batch *batch)
{
    batch->held = false;
    vx_panic_note("batch", batch->head.serial);
    vx_engine_submit(worker->engine, worker->models[batch->head.instance], &batch->batch);
    vx_worker_say_sizes(worker);
}

/* Submits the batches that were held, in the order in which they came. */
static void device_submit_held(struct vx_worker *worker)
{
    struct vx_worker_batch *next;
    worker->holds = false; /* of what is heard meanwhile */
    do {
        next = NULL;
        for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
            struct vx_worker_batch *batch = &worker->batches[i];
            bool held = batch->head.serial && batch->held;
            if (held && (!next || batch->received_ns < next->received_ns)) next = batch;
        }
        if (next) device_submit(worker, next);
    } while (next);
}

static void device_on_run(struct vx_worker *worker, const struct vx_message_run *run)
{
    VX_ASSERT(run->head.serial); /* 0 means a free place */
    struct vx_model *model = worker->models[run->head.instance];
    VX_ASSERT(model);
    struct vx_worker_batch *batch = device_take_batch(worker);
    batch->head = run->head;
    batch->received_ns = vx_clock_ns();
    if (!worker->within) worker->working_said_ns = batch->received_ns;
    for (i32 i = 0; i < run->items_count; i++)
        batch->items[i] = device_item(worker, &run->items[i], vx_model_signature(model),
                                      &batch->uses[i]);
    batch->batch = (struct vx_batch){.items = batch->items,
                                     .items_count = run->items_count,
                                     .brief = run->brief,
                                     .taken = batch->taken};
    batch->held = worker->holds;
    if (!batch->held) device_submit(worker, batch);
}

static struct vx_done_item device_done_item(const struct vx_item *item)
{
    return (struct vx_done_item){
        .code = (i32)vx_status_code(item->status),
        .why = -1,
        .geometry_hit = item->geometry_hit,
        .geometry_kept = item->geometry_kept,
        .aside = item->aside,
        .convert_ns = item->convert_ns,
        .geometry_ns = item->geometry_ns,
        .compute_ns = item->compute_ns,
        .output_ns = item->output_ns,
        .pairs = item->pairs,
        .set_voxels = item->set_voxels,
        .taken = item->taken,
    };
}

static void device_say_done(struct vx_worker *worker, struct vx_worker_batch *batch)
{
    struct vx_message_done *out = &worker->out.done;
    out->head = batch->head;
    out->head.kind = VX_MESSAGE_DONE;
    out->received_ns = batch->received_ns;
    out->device_ns = batch->batch.device_ns;
    out->aside = batch->batch.aside;
    out->items_count = batch->batch.items_count;
    out->whys_count = out->taken_count = 0;
    for (i32 i = 0; i < out->items_count; i++) {
        vx_worker_check(worker, &batch->uses[i], &batch->items[i]);
        out->items[i] = device_done_item(&batch->items[i]);
        out->items[i].region_lost = batch->uses[i].lost;
        out->items[i].ran = !batch->uses[i].refused;
    }
    for (i32 i = 0; i < out->items_count; i++) {
        const struct vx_item *item = &batch->items[i];
        if (item->status.fault)
            vx_done_add_why(out, i, vx_status_text(item->status, &item->why));
    }
    for (i32 i = 0; i < batch->batch.taken_count; i++)
        vx_done_add_taken(out, &batch->taken[i]);
    vx_panic_note("after batch", batch->head.serial);
    batch->head.serial = 0;
    out->sent_ns = worker->served_ns = vx_clock_ns();
    vx_worker_say(worker, &out->head, vx_message_done_bytes(out));
    if (worker->leaving[batch->head.instance])
        vx_worker_on_unload(worker, batch->head.instance);
}

/* Answers one batch that has ended; with `wait`, waits for one that is under way.  False
 * when there is none, or when those that are under way wait for places. */
static bool device_answer(struct vx_worker *worker, bool wait)
{
    if (!vx_engine_under_way(worker->engine)) return false;
    struct vx_batch *batch = vx_engine_collect(worker->engine, wait);
    vx_worker_end_if_lost(worker); /* if so, its batch stays unanswered and runs again */
    vx_worker_say_sizes(worker);
    if (!batch) return false;
    device_say_done(worker, VX_CONTAINER(batch, struct vx_worker_batch, batch));
    return true;
}

void vx_worker_answer_all(struct vx_worker *worker)
{
    while (device_answer(worker, true)) continue;
}

void vx_worker_answer_those(struct vx_worker *worker, i32 instance)
{
    while (vx_worker_has_batch(worker, instance) && device_answer(worker, true)) continue;
}

/* So that the engine no longer uses the arena. */
static void device_end_all(struct vx_worker *worker)
{
    while (vx_engine_under_way(worker->engine)) {
        vx_worker_answer_all(worker);
        vx_worker_refuse_places(worker);
    }
}

/* A step of a warm-up takes long and needs the device for itself.  No answer waits for it,
 * and it does not wait for ever: while batches wait for places, new ones are held. */
static void device_warm(struct vx_worker *worker)
{
    worker->holds = true;
    vx_worker_answer_all(worker);
    if (vx_engine_under_way(worker->engine)) return;
    vx_worker_warm(worker);
    device_submit_held(worker);
}

/* ------- what the main thread gives back ------- */

static void device_take_made(struct vx_worker *worker)
{
    struct vx_link *next;
    for (struct vx_link *link = vx_mailbox_take_all(&worker->to_device); link;
         link = next) {
        next = link->next;
        if (link == &worker->regions.pin.link)
            vx_worker_on_pinned(worker);
        else
            vx_worker_on_made(worker, VX_CONTAINER(link, struct vx_worker_load, link));
    }
}

/* ------- the channel ------- */

void vx_worker_say_stats(struct vx_worker *worker, enum vx_message_kind kind)
{
    struct vx_message_up *out = &worker->out.up;
    memset(out, 0, sizeof *out);
    out->head.kind = kind;
    vx_engine_stats_get(worker->engine, &out->stats);
    vx_worker_say(worker, &out->head, sizeof *out);
}

static void device_on_message(struct vx_worker *worker)
{
    const struct vx_message_head *head = &worker->in.head;
    switch ((enum vx_message_kind)head->kind) {
    case VX_MESSAGE_LOAD: vx_worker_on_load(worker, &worker->in.load); return;
    case VX_MESSAGE_UNLOAD: vx_worker_on_unload(worker, head->instance); return;
    case VX_MESSAGE_RUN: device_on_run(worker, &worker->in.run); return;
    case VX_MESSAGE_PLACES: vx_worker_on_places(worker, &worker->in.places); return;
    case VX_MESSAGE_STATS: vx_worker_say_stats(worker, VX_MESSAGE_STATED); return;
    case VX_MESSAGE_MAP: vx_worker_on_map(worker, &worker->in.map); return;
    case VX_MESSAGE_UNMAP: vx_worker_on_unmap(worker, &worker->in.unmap); return;
    case VX_MESSAGE_UP:
    case VX_MESSAGE_PROGRESS:
    case VX_MESSAGE_WORKING:
    case VX_MESSAGE_LOADED:
    case VX_MESSAGE_SIZES:
    case VX_MESSAGE_DONE:
    case VX_MESSAGE_STATED:
    case VX_MESSAGE_MAPPED:
    case VX_MESSAGE_ENDS: break; /* sent by workers only */
    }
    vx_panic(__FILE__, __LINE__, "the front sent a message that only workers send");
}

static void device_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* How long to wait for the next message; the last event was at `event_ns`.  When a batch
 * is under way: not at all during the spin, then NAP_NS.  When none is: not at all for
 * spin_us, then without limit (NULL), or until the next step of a warm-up. */
static struct timespec *device_patience(const struct vx_worker *worker, i64 event_ns,
                                        struct timespec *room)
{
    bool works = vx_engine_under_way(worker->engine) > 0;
    const i64 now_ns = vx_clock_ns();
    const i64 rest_ns =
        worker->warming ? vx_worker_warm_rest_ns(worker, works, now_ns) : 0;
    *room = (struct timespec){0};
    if (worker->warming && !rest_ns) return room;
    i64 spin_ns = worker->config->spin_us * VX_NS_PER_US;
    if (works && spin_ns < SPIN_NS) spin_ns = SPIN_NS;
    bool spins = now_ns - event_ns < spin_ns;
    if (!works && !spins) {
        *room = (struct timespec){rest_ns / VX_NS_PER_S, rest_ns % VX_NS_PER_S};
        return worker->warming ? room : NULL;
    }
    if (spins)
        for (int i = 0; i < SPIN_PAUSES; i++) device_pause();
    *room = (struct timespec){.tv_nsec = spins ? 0 : NAP_NS};
    return room;
}

/* Handles one message from the front, and waits for it; false: there is none.  The worker is no longer
 * open when the front has closed its end, or the message is invalid. */
static bool device_hear(struct vx_worker *worker)
{
    size_t bytes;
    vx_status st =
        vx_channel_receive_fd(worker->channel, &worker->in, &bytes, &worker->passed);
    worker->open = !st.fault;
    if (vx_status_code(st) == VX_CODE_UNAVAILABLE) return false;
    if (st.fault) {
        struct vx_why none = {""};
        vx_worker_say_end(worker, false, vx_status_text(st, &none));
        worker->exit_code = VX_WORKER_EXIT_CHANNEL;
        return false;
    }
    if (bytes) device_on_message(worker);
    return bytes > 0;
}

static bool channel_speaks(const struct vx_worker *worker)
{
    struct pollfd one = {.fd = worker->channel, .events = POLLIN};
    return poll(&one, 1, 0) > 0;
}

void vx_worker_hear_within(struct vx_worker *worker, i64 now_ns)
{
    if (worker->within || now_ns - worker->heard_ns < HEAR_NS) return;
    worker->within = true;
    while (worker->open && channel_speaks(worker)) (void)device_hear(worker);
    if (vx_engine_under_way(worker->engine)) (void)device_answer(worker, false);
    worker->within = false;
    worker->heard_ns = vx_clock_ns();
}

void vx_worker_serve(struct vx_worker *worker)
{
    VX_ON(DEVICE);
    struct pollfd polls[2] = {{.fd = worker->channel, .events = POLLIN},
                              {.fd = worker->wakeup, .events = POLLIN}};
    /* Best effort: if it fails, sleeps are only longer. */
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    worker->open = true;
    worker->regions.locks = vx_device_id(worker->config->device, 0) >= 0;
    for (i64 event_ns = vx_clock_ns(); worker->open;) {
        struct timespec room;
        bool event = false;
        if (ppoll(polls, 2, device_patience(worker, event_ns, &room), NULL) < 0) {
            VX_ASSERT(errno == EINTR);
            continue;
        }
        if (polls[1].revents) {
            u64 rings;
            VX_ASSERT(read(worker->wakeup, &rings, sizeof rings) == sizeof rings);
            device_take_made(worker);
        }
        if (polls[0].revents) event = device_hear(worker);
        /* No more than are under way now: a CPU hears of others while it computes these. */
        for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX && device_answer(worker, false); i++)
            event = true;
        if (event) event_ns = vx_clock_ns();
        bool busy = event || vx_engine_under_way(worker->engine) > 0;
        if (worker->open && worker->warming &&
            !vx_worker_warm_rest_ns(worker, busy, vx_clock_ns()))
            device_warm(worker);
    }
    device_end_all(worker);
}
