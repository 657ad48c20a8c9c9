/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models/models_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/utf8.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* After this many consecutive processes of a worker that could not open their device,
 * requests do not wait for that worker. */
#define OPEN_FAILURES_MAX 3

static i32 models_workers(const struct vx_models *models)
{
    return vx_workers_count(*models->options.workers);
}

static bool worker_is_up(const struct vx_models *models, i32 worker)
{
    return vx_workers_info(*models->options.workers, worker)->state == VX_WORKER_UP;
}

/* On a CPU a load reads layers; on a GPU it also prepares kernels. */
static bool worker_is_cpu(const struct vx_models *models, i32 worker)
{
    return !strcmp(vx_workers_info(*models->options.workers, worker)->device, "cpu");
}

/* ------- where ------- */

/* Bytes of the instance's weights: as a worker reported, before that the file's size. */
static i64 row_bytes(const struct vx_models *models, i32 instance)
{
    i64 said = vx_models_row(models, instance)->signature.weights_bytes;
    return said ? said : models->loads[instance].weights_bytes;
}

u32 vx_models_place(const struct vx_models *models, const char *name)
{
    struct vx_placement_load load = {.count = models_workers(models)};
    u32 sibling = 0;
    u64 newest = 0;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE) continue;
        for (i32 w = 0; w < load.count; w++)
            if (models->loads[i].placed & (1u << w))
                load.bytes[w] += row_bytes(models, i);
        if (models->loads[i].id < newest || strcmp(row->name, name)) continue;
        newest = models->loads[i].id;
        sibling = models->loads[i].placed;
    }
    /* All versions of a model are on the same workers. */
    return sibling ? sibling : vx_placement_pick(&models->placement, name, &load);
}

/* ------- messages to workers ------- */

/* Solo jobs (sched.h) do not run on a worker whose next death would not name its cause:
 * while it reads a model, and until its suspects are loaded.  They do not wait for the
 * warm-up of a model that is not a suspect, which may take minutes. */
static void models_guard(struct vx_models *models, i32 worker)
{
    bool guarded = models->reading[worker] >= 0;
    VX_INSTANCES_EACH(i, &models->loading[worker])
    if (models->loads[i].worker_failures[worker]) guarded = true;
    vx_sched_worker_loading(models->options.sched, worker, guarded);
}

static void models_send_load(struct vx_models *models, i32 instance, i32 worker)
{
    const struct vx_instance *row = vx_models_row(models, instance);
    struct vx_message_load *message = &models->load;
    bool notes = !models->loads[instance].notes_by; /* one of its workers logs them */
    *message = (struct vx_message_load){
        .head = {.kind = VX_MESSAGE_LOAD,
                 .instance = instance,
                 .serial = models->loads[instance].id},
        .version = (i32)row->version,
        .fingerprint = row->fingerprint,
        .notes = notes,
    };
    int length = snprintf(message->directory, sizeof message->directory, "%s/%s",
                          models->options.repository, row->name);
    VX_ASSERT(length > 0 && length < (int)sizeof message->directory);
    /* A worker that does not get LOAD cannot die of it. */
    if (!vx_workers_send(*models->options.workers, worker, &message->head,
                         sizeof *message))
        return;
    models->loads[instance].stale_ns = 0;
    if (notes) models->loads[instance].notes_by = worker + 1;
    vx_instance_set_put(&models->loading[worker], instance, true);
    models->reading[worker] = instance;
    models_guard(models, worker);
}

void vx_models_feed(struct vx_models *models, i32 worker)
{
    if (models->reading[worker] >= 0 || !worker_is_up(models, worker)) return;
    i32 first = -1;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_model_load *load = &models->loads[i];
        if (!(load->asked & (1u << worker))) continue;
        if (vx_instance_set_has(&models->loading[worker], i)) continue;
        if (first < 0 || load->ask < models->loads[first].ask) first = i;
    }
    if (first < 0) {
        first = vx_models_retry_due(models, worker);
        if (first < 0) return;
        models->loads[first].retry &= ~(1u << worker);
        models->loads[first].asked |= 1u << worker;
    }
    models_send_load(models, first, worker);
}

void vx_models_ask_workers(struct vx_models *models, i32 instance)
{
    struct vx_model_load *load = &models->loads[instance];
    if (!load->ask) load->ask = ++models->asks;
    for (i32 w = 0; w < models_workers(models); w++) {
        if (!(load->placed & (1u << w)) || !worker_is_up(models, w)) continue;
        load->asked |= 1u << w;
        vx_models_feed(models, w);
    }
}

static bool worker_may_come(const struct vx_models *models, i32 worker)
{
    const struct vx_worker_info *info = vx_workers_info(*models->options.workers, worker);
    return info->state != VX_WORKER_UP && info->open_failures < OPEN_FAILURES_MAX;
}

u32 vx_models_workers(const struct vx_models *models, i32 instance)
{
    const struct vx_model_load *load = &models->loads[instance];
    u32 workers = vx_models_row(models, instance)->workers_loaded | load->asked;
    for (i32 w = 0; w < models_workers(models); w++) {
        bool will_ask = worker_may_come(models, w) || (load->retry & (1u << w));
        if (will_ask && !vx_models_is_spared(load, w))
            workers |= load->placed & (1u << w);
    }
    return workers;
}

/* Whether a worker has it or may have it yet. */
static bool models_may_serve(const struct vx_models *models, i32 instance)
{
    const struct vx_model_load *load = &models->loads[instance];
    u32 workers =
        vx_models_row(models, instance)->workers_loaded | load->asked | load->retry;
    for (i32 w = 0; w < models_workers(models); w++)
        if (worker_may_come(models, w)) workers |= load->placed & (1u << w);
    return workers != 0;
}

void vx_models_strand(struct vx_models *models, i32 instance)
{
    vx_sched_only_gone(models->options.sched, instance,
                       vx_models_workers(models, instance), models->options.on_lost,
                       models->options.context);
}

void vx_models_take_back(struct vx_models *models, i32 instance)
{
    u32 sent = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        if (vx_instance_set_has(&models->loading[w], instance)) sent |= 1u << w;
    models->loads[instance].asked &= sent;
    models->loads[instance].retry = 0;
}

/* ------- why no worker has it ------- */

static const char waiting[] = "waiting for a worker";

/* A worker that the instance is placed on and that is up, or -1.  When none is up, *down
 * is the first of them that reported why it ended, or -1. */
static i32 placed_up(const struct vx_models *models, i32 instance, i32 *down)
{
    *down = -1;
    for (i32 w = 0; w < models_workers(models); w++) {
        if (!(models->loads[instance].placed & (1u << w))) continue;
        if (worker_is_up(models, w)) return w;
        bool said = vx_workers_info(*models->options.workers, w)->problem.text[0];
        if (said && *down < 0) *down = w;
    }
    return -1;
}

void vx_models_say_waiting(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = vx_models_row(models, instance);
    bool loads = row->state == VX_INSTANCE_LOADING;
    if (!loads && row->state != VX_INSTANCE_READY) return;
    if (row->workers_loaded || models->loads[instance].retry) return;
    i32 down, up = placed_up(models, instance, &down);
    bool was_waiting = !strncmp(row->reason, waiting, sizeof waiting - 1);
    if (up >= 0) { /* it reports its progress, or will */
        if (was_waiting || (loads && !row->reason[0]))
            snprintf(row->reason, sizeof row->reason, "%s", waiting);
        return;
    }
    const struct vx_worker_info *info =
        down < 0 ? NULL : vx_workers_info(*models->options.workers, down);
    vx_utf8_print(row->reason, sizeof row->reason, "%s%s%.40s%s%.160s", waiting,
                  info ? ": the worker of " : "", info ? info->device : "",
                  info ? " ended: " : "", info ? info->problem.text : "");
}

static void models_send_unload(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_message_head message = {.kind = VX_MESSAGE_UNLOAD, .instance = instance};
    vx_workers_send(*models->options.workers, worker, &message, sizeof message);
}

void vx_models_release(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = vx_models_row(models, instance);
    for (i32 w = 0; w < models_workers(models); w++) {
        if (!(row->workers_loaded & (1u << w))) continue;
        vx_sched_instance_ready(models->options.sched, instance, w, false);
        if (worker_is_up(models, w)) models_send_unload(models, instance, w);
    }
    row->workers_loaded = 0;
}

/* ------- workers that come and go ------- */

bool vx_models_is_wanted(const struct vx_models *models, i32 instance)
{
    switch (vx_models_row(models, instance)->state) {
    case VX_INSTANCE_READY:
    case VX_INSTANCE_LOADING: return true;
    case VX_INSTANCE_UNLOADING:
        return vx_sched_instance_jobs(models->options.sched, instance) > 0;
    case VX_INSTANCE_FREE:
    case VX_INSTANCE_UNAVAILABLE: break;
    }
    return false;
}

/* READY models are loaded first, so that a restarted worker serves again soon.  Its
 * suspects are asked for when their retry is due. */
void vx_models_on_worker_up(struct vx_models *models, i32 worker)
{
    for (i32 i = 0; i < vx_models_end(models); i++) vx_models_say_waiting(models, i);
    for (int later = 0; later < 2; later++)
        for (i32 i = 0; i < vx_models_end(models); i++) {
            struct vx_model_load *load = &models->loads[i];
            bool serves = vx_models_row(models, i)->state == VX_INSTANCE_READY;
            if (serves == later || !(load->placed & (1u << worker))) continue;
            if (!vx_models_is_wanted(models, i)) continue;
            if (load->retry & (1u << worker)) continue;
            if (!load->asked) load->ask = ++models->asks;
            load->asked |= 1u << worker;
        }
    vx_models_feed(models, worker);
}

void vx_models_on_worker_down(struct vx_models *models, i32 worker)
{
    struct vx_instance_set suspects = models->loading[worker];
    models->loading[worker] = (struct vx_instance_set){{0}};
    models->reading[worker] = -1;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        models->loads[i].asked &= ~(1u << worker);
        models->loads[i].refused &= ~(1u << worker);
        vx_models_row(models, i)->workers_loaded &= ~(1u << worker);
    }
    VX_INSTANCES_EACH(i, &suspects) vx_models_on_load_death(models, i, worker);
    for (i32 i = 0; i < vx_models_end(models); i++) vx_models_say_waiting(models, i);
    if (worker_may_come(models, worker)) return;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        if (vx_models_row(models, i)->state == VX_INSTANCE_FREE) continue;
        const struct vx_model_load *load = &models->loads[i];
        if (load->refused && vx_models_is_wanted(models, i) &&
            !models_may_serve(models, i))
            vx_models_fail(models, i, load->refusal.text);
        vx_models_strand(models, i);
    }
}

/* ------- messages from workers ------- */

/* Whether requests admitted under `a` may run on `b`.  How many voxels fit is not
 * compared: it depends on the device, and on a GPU on the result of tuning.  The shape is: who
 * sent the one that `a` has was admitted as one who sent none. */
static bool signature_same(const struct vx_signature *a, const struct vx_signature *b)
{
    bool same = !strcmp(a->coords_name, b->coords_name) &&
                !strcmp(a->feats_name, b->feats_name) && !strcmp(a->axes, b->axes) &&
                a->feats_channels == b->feats_channels &&
                !memcmp(a->shape, b->shape, sizeof a->shape) &&
                a->predicts == b->predicts && a->samples_max == b->samples_max &&
                a->outputs_count == b->outputs_count;
    for (i32 o = 0; same && o < a->outputs_count; o++)
        same =
            !strcmp(a->outputs[o].name, b->outputs[o].name) &&
            a->outputs[o].dtype == b->outputs[o].dtype &&
            a->outputs[o].channels == b->outputs[o].channels &&
            a->outputs[o].set == b->outputs[o].set &&
            a->outputs[o].dims_count == b->outputs[o].dims_count &&
            !memcmp(a->outputs[o].dims, b->outputs[o].dims, sizeof a->outputs[o].dims) &&
            a->outputs[o].coords == b->outputs[o].coords &&
            !strcmp(a->outputs[o].stride, b->outputs[o].stride);
    return same;
}

/* Any worker may get any request: the largest request and the largest batch are those of
 * the smallest worker. */
static void signature_join(struct vx_signature *row, const struct vx_signature *worker,
                           bool alone)
{
    i64 voxels = row->voxels_max, batch = row->batching.voxels_max;
    enum vx_bound bound = row->voxels_bound;
    *row = *worker;
    if (alone) return;
    if (voxels < row->voxels_max) {
        row->voxels_max = voxels;
        row->voxels_bound = bound;
    }
    if (batch < row->batching.voxels_max) row->batching.voxels_max = batch;
}

/* A restarted worker read a network that differs from the instance's.  The fingerprint
 * normally prevents this, but file times can be wrong.  Requests admitted for the old
 * model must not run on the new one.  The next scan of the repository finds the
 * change. */
static void models_on_changed(struct vx_models *models, i32 instance, i32 worker)
{
    models_send_unload(models, instance, worker);
    if (!vx_models_row(models, instance)->workers_loaded &&
        !models->loads[instance].asked)
        vx_models_fail(models, instance,
                       "the model's files changed on disk; SIGHUP loads the new ones");
    /* Whichever files they were, they are not what it serves: the next listing differs. */
    vx_models_row(models, instance)->fingerprint = 0;
    vx_models_strand(models, instance);
}

/* Whether the device refuses, not the model's files: another worker's may not. */
static bool refusal_is_device(i32 code)
{
    return code == VX_CODE_RESOURCE_EXHAUSTED || code == VX_CODE_UNAVAILABLE ||
           code == VX_CODE_UNIMPLEMENTED || code == VX_CODE_INTERNAL;
}

/* What a device had, it can have again: it is short of something for a while, or its process is
 * damaged. */
static bool models_goes_on(struct vx_models *models, i32 worker,
                           const struct vx_message_loaded *message)
{
    const i32 instance = message->head.instance;
    const struct vx_model_load *load = &models->loads[instance];
    if (!refusal_is_device(message->code) || load->follows) return false;
    if (!(load->had >> worker & 1) || !vx_models_is_wanted(models, instance))
        return false;
    vx_models_on_load_refused(models, instance, worker, &message->why);
    return true;
}

static void models_on_refused(struct vx_models *models, i32 worker,
                              const struct vx_message_loaded *message)
{
    i32 instance = message->head.instance;
    const struct vx_instance *row = vx_models_row(models, instance);
    struct vx_model_load *load = &models->loads[instance];
    if (!load->refused) load->refusal = message->why;
    load->refused |= 1u << worker;
    if (message->code == VX_CODE_FAILED_PRECONDITION &&
        vx_models_on_stale(models, instance))
        return;
    bool loads = row->state == VX_INSTANCE_LOADING, goes_on;
    bool device = refusal_is_device(message->code);
    if (device) /* A load that fails changes nothing for what it would replace. */
        goes_on = models_may_serve(models, instance) &&
                  !(loads && vx_models_replaces(models, instance));
    else
        goes_on = !loads && (row->workers_loaded || load->asked);
    if (goes_on) /* on other workers */
        VX_LOG(MODEL_FAILED, VX_LOG_TEXT("model", row->name),
               VX_LOG_I64("worker", worker), VX_LOG_TEXT("why", message->why.text));
    else
        vx_models_fail(models, instance, device ? load->refusal.text : message->why.text);
    vx_models_strand(models, instance);
}

void vx_models_tell_most(const struct vx_models *models)
{
    if (models->options.voxels_most)
        atomic_store_explicit(models->options.voxels_most,
                              vx_registry_voxels_most(models->options.registry),
                              memory_order_relaxed);
}

static void models_on_loaded(struct vx_models *models, i32 worker,
                             const struct vx_message_loaded *message)
{
    i32 instance = message->head.instance;
    struct vx_instance *row = vx_models_row(models, instance);
    struct vx_model_load *load = &models->loads[instance];
    load->asked &= ~(1u << worker);
    if (message->code != VX_CODE_OK && models_goes_on(models, worker, message)) return;
    load->failures = load->worker_failures[worker] = 0;
    if (message->code != VX_CODE_OK) {
        models_on_refused(models, worker, message);
        return;
    }
    bool fresh = !row->signature.outputs_count;
    if (!fresh && !signature_same(&row->signature, &message->signature)) {
        models_on_changed(models, instance, worker);
        return;
    }
    load->refused &= ~(1u << worker);
    load->had |= 1u << worker;
    models->useless &= ~(1u << worker);
    load->follows = false;
    bool alone = !(row->workers_loaded & ~(1u << worker));
    row->workers_loaded |= 1u << worker;
    if (row->state == VX_INSTANCE_READY) row->reason[0] = '\0'; /* no longer waiting */
    row->weights_bytes[worker] = message->signature.weights_bytes;
    if (row->state == VX_INSTANCE_UNAVAILABLE) {
        vx_models_release(models, instance); /* another worker refused it meanwhile */
        return;
    }
    signature_join(&row->signature, &message->signature, alone);
    vx_models_tell_most(models);
    if (models->batching_off) row->signature.batching.requests_max = 1;
    vx_sched_instance_set(models->options.sched, instance, &row->signature.batching,
                          fresh);
    vx_sched_instance_ready(models->options.sched, instance, worker, true);
}

static void models_on_progress(struct vx_models *models, i32 worker,
                               const struct vx_message_progress *message)
{
    i32 instance = message->head.instance;
    struct vx_instance *row = vx_models_row(models, instance);
    const char *read = worker_is_cpu(models, worker) ? "layers" : "layers and kernels";
    const char *before = "", *after = read;
    if (message->stage == VX_PROGRESS_MADE && models->reading[worker] == instance) {
        models->reading[worker] = -1;
        models_guard(models, worker);
        vx_models_feed(models, worker);
    }
    if (row->state != VX_INSTANCE_LOADING) return;
    if (message->stage == VX_PROGRESS_TUNE) after = "convolutions tuned";
    if (message->stage == VX_PROGRESS_WARM) {
        before = "warming up: ";
        after = "steps";
    }
    bool counts = message->stage != VX_PROGRESS_MADE;
    row->load_done = counts ? message->done : 0;
    row->load_total = counts ? message->total : 0;
    if (!counts)
        snprintf(row->reason, sizeof row->reason, "warming up");
    else
        snprintf(row->reason, sizeof row->reason, "%s%lld of %lld %s", before,
                 (long long)message->done, (long long)message->total, after);
}

static void models_on_answered(struct vx_models *models, i32 worker,
                               const struct vx_message_loaded *message)
{
    i32 instance = message->head.instance;
    vx_instance_set_put(&models->loading[worker], instance, false);
    if (models->reading[worker] == instance) models->reading[worker] = -1;
    models_on_loaded(models, worker, message);
    models_guard(models, worker);
    vx_models_feed(models, worker);
}

void vx_models_on_message(struct vx_models *models, i32 worker,
                          const union vx_message *message)
{
    i32 instance = message->head.instance;
    if (message->head.serial != models->loads[instance].id)
        return; /* about an earlier load of this instance */
    if (message->head.kind == VX_MESSAGE_PROGRESS)
        models_on_progress(models, worker, &message->progress);
    else if (message->head.kind == VX_MESSAGE_LOADED &&
             vx_instance_set_has(&models->loading[worker], instance))
        models_on_answered(models, worker, &message->loaded);
}
