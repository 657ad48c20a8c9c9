/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "server/worker/worker_private.h"

#include <string.h>

/* A device that has batches now and then spends one part in this many of its time on
 * warm-up, so that requests seldom meet a step; one that always has batches no less, so that
 * warm-ups end. */
#define WARM_SHARE 4
/* A device that has had no batch for so long has all its time for warm-up: clients that send a
 * request a second or more often never see it idle for as long.  While it has one it is busy. */
#define WARM_ALONE_NS (3 * VX_NS_PER_S)

void vx_worker_on_load(struct vx_worker *worker, const struct vx_message_load *message)
{
    VX_ASSERT(message->head.instance >= 0);
    VX_ASSERT(message->head.instance < VX_INSTANCES_MAX);
    struct vx_worker_load *load = &worker->loads[message->head.instance];
    VX_ASSERT(load->state == VX_LOAD_FREE);
    load->state = VX_LOAD_MAKING;
    load->worker = worker;
    load->message = *message;
    load->model = NULL;
    load->pieces = 0;
    load->progress_said_ns = 0;
    load->stage_said = VX_PROGRESS_READ;
    vx_mailbox_give(&worker->to_main, &load->link);
}

void vx_worker_on_unload(struct vx_worker *worker, i32 instance)
{
    VX_ASSERT(instance >= 0);
    VX_ASSERT(instance < VX_INSTANCES_MAX);
    if (!worker->models[instance]) return;
    if (!worker->within) vx_worker_answer_those(worker, instance);
    if (!worker->models[instance]) return; /* it went with the last answer */
    /* What is left waits for places, or goes on below: the model goes with the last of it. */
    worker->leaving[instance] = vx_worker_has_batch(worker, instance);
    if (worker->leaving[instance]) return;
    vx_engine_unload(worker->engine, &worker->models[instance]);
}

/* ------- warming up ------- */

/* The load has ended: keeps the model, or discards it if it failed, and sends LOADED. */
static void load_finish(struct vx_worker *worker, struct vx_worker_load *load)
{
    i32 instance = load->message.head.instance;
    struct vx_message_loaded *out = &worker->out.loaded;
    memset(out, 0, sizeof *out);
    out->head = load->message.head;
    out->head.kind = VX_MESSAGE_LOADED;
    out->code = (i32)vx_status_code(load->status);
    if (load->status.fault) {
        vx_why_set(&out->why, "%s", vx_status_text(load->status, &load->why));
        if (load->model) vx_engine_unload(worker->engine, &load->model);
    } else {
        vx_worker_on_unload(worker, instance);
        worker->models[instance] = load->model;
        out->signature = *vx_model_signature(load->model);
    }
    load->model = NULL;
    load->state = VX_LOAD_FREE;
    worker->warming--;
    vx_worker_say(worker, &out->head, sizeof *out);
}

void vx_worker_on_made(struct vx_worker *worker, struct vx_worker_load *load)
{
    VX_ASSERT(load->state == VX_LOAD_MAKING);
    struct vx_message_progress made = {.stage = VX_PROGRESS_MADE};
    load->state = VX_LOAD_WARMING;
    worker->warming++;
    vx_worker_say_progress(load, &made);
    if (load->status.fault) load_finish(worker, load);
}

/* The load with the fewest steps so far: a model that needs few steps is soon ready, even
 * beside one that needs thousands. */
static struct vx_worker_load *load_next(struct vx_worker *worker)
{
    struct vx_worker_load *next = NULL;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        struct vx_worker_load *load = &worker->loads[i];
        if (load->state != VX_LOAD_WARMING) continue;
        if (!next || load->pieces < next->pieces) next = load;
    }
    return next;
}

i64 vx_worker_warm_rest_ns(const struct vx_worker *worker, bool busy, i64 now_ns)
{
    i64 length_ns = (WARM_SHARE - 1) * worker->piece_ns;
    if (length_ns > WARM_ALONE_NS)
        length_ns = WARM_ALONE_NS; /* the watchdog hears nothing */
    i64 rest_ns = worker->piece_ended + length_ns - now_ns;
    const i64 alone_ns = worker->served_ns + WARM_ALONE_NS - now_ns;
    if (!busy && alone_ns < rest_ns) rest_ns = alone_ns;
    return rest_ns > 0 ? rest_ns : 0;
}

void vx_worker_warm(struct vx_worker *worker)
{
    struct vx_worker_load *load = load_next(worker);
    struct vx_warm warm;
    VX_ASSERT(load);
    VX_ASSERT(!vx_engine_under_way(worker->engine)); /* no answer waits for a step */
    i64 began_ns = vx_clock_ns();
    vx_panic_note("warm-up of row", (u64)load->message.head.instance);
    load->status = vx_engine_warm_step(worker->engine, load->model, &load->why, &warm);
    vx_worker_end_if_lost(worker);
    load->pieces++;
    worker->piece_ended = vx_clock_ns();
    worker->piece_ns = worker->piece_ended - began_ns;
    if (load->status.fault || !warm.more) {
        load_finish(worker, load);
        return;
    }
    struct vx_message_progress message = {
        .done = warm.done,
        .total = warm.total,
        .stage = warm.tuning ? VX_PROGRESS_TUNE : VX_PROGRESS_WARM,
    };
    vx_worker_say_progress(load, &message);
}
