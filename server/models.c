/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <stdio.h>
#include <string.h>

/* Worker deaths in the middle of one row's load before the model is given up: one may be an
 * accident, three are the model, and the others should not wait for it for ever. */
#define LOAD_DEATHS_MAX 3

/* Beside each registry row: the load under way. */
struct model_load {
    u64 id;    /* of the row's load, so that a late word about an earlier one is known as
                  such */
    u32 asked; /* bit per worker: LOAD sent, LOADED not yet heard */
    u64 ask; /* when it was asked for last, in asks of all rows: workers load in that order */
    i32 deaths;  /* of workers that were loading it, in a row */
    bool listed; /* seen in the scan that is being compared */
};

struct vx_models {
    struct vx_models_options options;
    u64 load_id, asks;
    struct model_load loads[VX_INSTANCES_MAX];
};

vx_status vx_models_open(const struct vx_models_options *options,
                         struct vx_models **models)
{
    *models = vx_alloc_zero(sizeof **models);
    VX_ENSURE(*models, RESOURCE_EXHAUSTED, "no memory for the table of models");
    (*models)->options = *options;
    return VX_OK;
}

void vx_models_close(struct vx_models **models)
{
    vx_free(*models);
    *models = NULL;
}

static struct vx_instance *models_row(struct vx_models *models, i32 instance)
{
    return vx_registry_row(models->options.registry, instance);
}

static void models_log(enum vx_log_event event, const struct vx_instance *row)
{
    const struct vx_log_field fields[] = {
        VX_LOG_TEXT("model", row->name),
        VX_LOG_I64("version", row->version),
        VX_LOG_TEXT("why", row->reason),
    };
    vx_log_write(event, fields, row->reason[0] ? 3 : 2);
}

/* ------- words to workers ------- */

static bool worker_is_up(const struct vx_models *models, i32 worker)
{
    return vx_workers_info(*models->options.workers, worker)->state == VX_WORKER_UP;
}

/* Its load is reading layers; a GPU's is making kernels ready as well. */
static bool worker_is_cpu(const struct vx_models *models, i32 worker)
{
    return !strcmp(vx_workers_info(*models->options.workers, worker)->device, "cpu");
}

static void models_ask(struct vx_models *models, i32 instance, i32 worker)
{
    const struct vx_instance *row = models_row(models, instance);
    struct model_load *load = &models->loads[instance];
    static struct vx_message_load message; /* the loop's alone; 4 KiB of path */
    message = (struct vx_message_load){
        .head = {.kind = VX_MESSAGE_LOAD, .instance = instance, .batch = load->id},
        .version = (i32)row->version,
    };
    int length = snprintf(message.directory, sizeof message.directory, "%s/%s",
                          models->options.repository, row->name);
    VX_ASSERT(length > 0 && length < (int)sizeof message.directory);
    load->asked |= 1u << worker;
    load->ask = ++models->asks;
    vx_workers_send(*models->options.workers, worker, &message.head, sizeof message);
}

static void models_release(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = models_row(models, instance);
    struct vx_message_head message = {.kind = VX_MESSAGE_UNLOAD, .instance = instance};
    for (i32 w = 0; w < vx_workers_count(*models->options.workers); w++) {
        if (!(row->workers_loaded & (1u << w))) continue;
        vx_sched_instance_ready(models->options.sched, instance, w, false);
        if (worker_is_up(models, w))
            vx_workers_send(*models->options.workers, w, &message, sizeof message);
    }
    row->workers_loaded = 0;
}

/* ------- rows and their states ------- */

static void models_load(struct vx_models *models, const struct vx_repository_entry *entry)
{
    i32 instance = vx_registry_add(models->options.registry, entry->name, entry->version,
                                   entry->fingerprint);
    if (instance < 0) {
        VX_LOG(REPOSITORY, VX_LOG_TEXT("model", entry->name),
               VX_LOG_I64("versions_max", VX_INSTANCES_MAX));
        return;
    }
    struct vx_instance *row = models_row(models, instance);
    row->load_started_ns = vx_clock_ns();
    snprintf(row->reason, sizeof row->reason, "waiting for a worker");
    models->loads[instance] =
        (struct model_load){.id = ++models->load_id, .listed = true};
    VX_LOG(MODEL_LOADING, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version));
    for (i32 w = 0; w < vx_workers_count(*models->options.workers); w++)
        if (worker_is_up(models, w)) models_ask(models, instance, w);
}

/* The row stops being picked; step frees it once nothing of it is under way. */
static void models_retire(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = models_row(models, instance);
    row->state = VX_INSTANCE_UNLOADING;
    row->reason[0] = '\0';
}

static void models_fail(struct vx_models *models, i32 instance, const char *text)
{
    struct vx_instance *row = models_row(models, instance);
    snprintf(row->reason, sizeof row->reason, "%s", text);
    models_log(VX_EVENT_MODEL_FAILED, row);
    models_release(models, instance);
    /* One that is on its way out keeps going. */
    if (row->state != VX_INSTANCE_UNLOADING) row->state = VX_INSTANCE_UNAVAILABLE;
    vx_sched_drop_instance(models->options.sched, instance, models->options.on_lost,
                           models->options.context);
}

/* Every worker that is up has it: it serves, and what it replaces does not any more. */
static void models_publish(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = models_row(models, instance);
    row->state = VX_INSTANCE_READY;
    row->reason[0] = '\0';
    row->load_ns = vx_clock_ns() - row->load_started_ns;
    VX_LOG(MODEL_READY, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version),
           VX_LOG_F64("seconds", (f64)row->load_ns / 1e9),
           VX_LOG_I64("weights_bytes", row->signature.weights_bytes));
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        struct vx_instance *other = models_row(models, i);
        if (i == instance || other->state == VX_INSTANCE_FREE) continue;
        if (other->version != row->version || strcmp(other->name, row->name)) continue;
        if (models->loads[i].id < models->loads[instance].id) models_retire(models, i);
    }
}

/* ------- what comes in ------- */

/* The newest row for a listed entry that is not on its way out, or -1. */
static i32 models_match(struct vx_models *models, const struct vx_repository_entry *entry)
{
    i32 newest = -1;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        const struct vx_instance *row = models_row(models, i);
        if (row->state == VX_INSTANCE_FREE || row->state == VX_INSTANCE_UNLOADING)
            continue;
        if (row->version != entry->version || strcmp(row->name, entry->name)) continue;
        /* Both the one that serves and the one that is to replace it stay. */
        models->loads[i].listed = true;
        if (newest < 0 || models->loads[i].id > models->loads[newest].id) newest = i;
    }
    return newest;
}

void vx_models_on_listing(struct vx_models *models,
                          const struct vx_repository_listing *listing)
{
    if (listing->problem.text[0])
        VX_LOG(REPOSITORY, VX_LOG_TEXT("why", listing->problem.text));
    if (!listing->readable)
        return; /* a repository that cannot be read takes no model away */
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) models->loads[i].listed = false;
    for (i32 e = 0; e < listing->count; e++) {
        const struct vx_repository_entry *entry = &listing->entries[e];
        i32 instance = models_match(models, entry);
        /* What failed is tried again at each look: the reason may be gone without a change. */
        const struct vx_instance *row =
            instance < 0 ? NULL : models_row(models, instance);
        if (row && row->fingerprint == entry->fingerprint &&
            row->state != VX_INSTANCE_UNAVAILABLE)
            continue;
        if (instance >= 0 && models_row(models, instance)->state != VX_INSTANCE_READY)
            models_retire(models, instance);
        models_load(models, entry);
    }
    if (!listing->complete) return; /* what was not seen may still be there */
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        const struct vx_instance *row = models_row(models, i);
        if (row->state != VX_INSTANCE_FREE && row->state != VX_INSTANCE_UNLOADING &&
            !models->loads[i].listed)
            models_retire(models, i);
    }
}

void vx_models_on_worker_up(struct vx_models *models, i32 worker)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        enum vx_instance_state state = models_row(models, i)->state;
        bool wanted = state == VX_INSTANCE_LOADING || state == VX_INSTANCE_READY ||
                      (state == VX_INSTANCE_UNLOADING &&
                       vx_sched_instance_jobs(models->options.sched, i) > 0);
        if (wanted) models_ask(models, i, worker);
    }
}

/* The row that `worker` was loading: of those it was asked for, the one asked for first. */
static i32 models_loading_on(const struct vx_models *models, i32 worker)
{
    i32 first = -1;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        const struct model_load *load = &models->loads[i];
        if (!(load->asked & (1u << worker))) continue;
        if (first < 0 || load->ask < models->loads[first].ask) first = i;
    }
    return first;
}

void vx_models_on_worker_down(struct vx_models *models, i32 worker)
{
    i32 suspect = models_loading_on(models, worker);
    bool ran_batch = vx_sched_worker_batches(models->options.sched, worker) > 0;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        models->loads[i].asked &= ~(1u << worker);
        models_row(models, i)->workers_loaded &= ~(1u << worker);
    }
    /* With a batch on the worker it is the batch that is suspected (sched.h). */
    if (suspect < 0 || ran_batch || models_row(models, suspect)->workers_loaded) return;
    if (++models->loads[suspect].deaths >= LOAD_DEATHS_MAX)
        models_fail(models, suspect,
                    "the device process died each time it loaded this model");
}

/* Whether requests admitted under `a` may run on `b`.  How many voxels fit is not asked: it
 * differs between devices, and on a GPU with what was tuned. */
static bool signature_same(const struct vx_signature *a, const struct vx_signature *b)
{
    bool same = !strcmp(a->coords_name, b->coords_name) &&
                !strcmp(a->feats_name, b->feats_name) &&
                a->feats_channels == b->feats_channels &&
                a->outputs_count == b->outputs_count;
    for (i32 o = 0; same && o < a->outputs_count; o++)
        same = !strcmp(a->outputs[o].name, b->outputs[o].name) &&
               a->outputs[o].dtype == b->outputs[o].dtype &&
               a->outputs[o].channels == b->outputs[o].channels;
    return same;
}

/* Any worker may get any request: what is admitted fits the smallest of them. */
static void signature_join(struct vx_signature *row, const struct vx_signature *worker,
                           bool alone)
{
    i64 voxels = row->voxels_max, batch = row->batch_voxels_max;
    *row = *worker;
    if (alone) return;
    if (voxels < row->voxels_max) row->voxels_max = voxels;
    if (batch < row->batch_voxels_max) row->batch_voxels_max = batch;
}

/* A restarted worker read files that are no longer those of the row: requests admitted for the
 * old model must not run on the new one.  The next look at the repository finds the change. */
static void models_on_changed(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_message_head message = {.kind = VX_MESSAGE_UNLOAD, .instance = instance};
    vx_workers_send(*models->options.workers, worker, &message, sizeof message);
    if (!models_row(models, instance)->workers_loaded && !models->loads[instance].asked)
        models_fail(models, instance,
                    "the model's files changed on disk; SIGHUP loads the new ones");
}

static void models_on_loaded(struct vx_models *models, i32 worker,
                             const struct vx_message_loaded *message)
{
    i32 instance = message->head.instance;
    struct vx_instance *row = models_row(models, instance);
    struct model_load *load = &models->loads[instance];
    load->asked &= ~(1u << worker);
    load->deaths = 0;
    if (message->code != VX_CODE_OK) {
        bool elsewhere = row->workers_loaded || load->asked;
        if (row->state == VX_INSTANCE_LOADING || !elsewhere)
            models_fail(models, instance, message->why.text);
        else /* the others serve on */
            VX_LOG(MODEL_FAILED, VX_LOG_TEXT("model", row->name),
                   VX_LOG_I64("worker", worker), VX_LOG_TEXT("why", message->why.text));
        return;
    }
    if (row->signature.outputs_count &&
        !signature_same(&row->signature, &message->signature)) {
        models_on_changed(models, instance, worker);
        return;
    }
    bool alone = !(row->workers_loaded & ~(1u << worker));
    row->workers_loaded |= 1u << worker;
    if (row->state == VX_INSTANCE_UNAVAILABLE) {
        models_release(models, instance); /* another worker refused it meanwhile */
        return;
    }
    signature_join(&row->signature, &message->signature, alone);
    vx_sched_instance_set(models->options.sched, instance,
                          row->signature.batch_voxels_max,
                          row->signature.batch_delay_us * VX_NS_PER_US);
    vx_sched_instance_ready(models->options.sched, instance, worker, true);
}

/* A worker says the last step too; the warm-up that follows it is not counted. */
static void models_on_progress(struct vx_models *models, i32 worker,
                               const struct vx_message_progress *message)
{
    struct vx_instance *row = models_row(models, message->head.instance);
    const char *what = worker_is_cpu(models, worker) ? "layers" : "layers and kernels";
    if (message->tuning) what = "convolutions tuned";
    if (row->state != VX_INSTANCE_LOADING) return;
    snprintf(row->reason, sizeof row->reason, "%lld of %lld %s%s",
             (long long)message->done, (long long)message->total, what,
             message->done < message->total ? "" : ", warming up");
}

void vx_models_on_message(struct vx_models *models, i32 worker,
                          const union vx_message *message)
{
    i32 instance = message->head.instance;
    if (message->head.batch != models->loads[instance].id)
        return; /* of a row since freed */
    if (message->head.kind == VX_MESSAGE_LOADED) {
        models_on_loaded(models, worker, &message->loaded);
    } else if (message->head.kind == VX_MESSAGE_PROGRESS) {
        models_on_progress(models, worker, &message->progress);
    }
}

static void models_free(struct vx_models *models, i32 instance)
{
    models_release(models, instance);
    models_log(VX_EVENT_MODEL_UNLOADED, models_row(models, instance));
    models_row(models, instance)->state = VX_INSTANCE_FREE;
    models->loads[instance] = (struct model_load){0};
}

void vx_models_step(struct vx_models *models)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        const struct vx_instance *row = models_row(models, i);
        if (models->loads[i].asked) continue; /* a worker's word is still to come */
        /* What ran when it failed, and came back to the queue with its worker's death. */
        if (row->state == VX_INSTANCE_UNAVAILABLE &&
            vx_sched_instance_jobs(models->options.sched, i))
            vx_sched_drop_instance(models->options.sched, i, models->options.on_lost,
                                   models->options.context);
        if (row->state == VX_INSTANCE_LOADING && row->workers_loaded)
            models_publish(models, i);
        if (row->state == VX_INSTANCE_UNLOADING &&
            !vx_sched_instance_jobs(models->options.sched, i))
            models_free(models, i);
    }
}
