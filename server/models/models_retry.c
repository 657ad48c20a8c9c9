/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/utf8.h"
#include "server/base/backoff.h"
#include "server/models/models_private.h"

#include <stdio.h>

/* A death may be an accident (the out-of-memory killer, a person), and so may a refusal of a
 * device that has had the model (another process took its memory): neither ever ends the retries of
 * a load.  A death may also be caused by the model: then each retry interrupts the other models of
 * that worker, so the pauses grow. */
static const struct vx_backoff retry_pauses = {.first_ms = 250, .most_ms = 60000};
/* A suspect is loaded alone.  It waits this long for the worker's other loads to end, and
 * is then loaded beside them. */
#define ALONE_NS (10 * VX_NS_PER_S)
/* The interval of the checks for suspects that are due. */
#define LOOK_NS (50 * VX_NS_PER_MS)
_Static_assert(VX_JOB_DEATHS_MAX < VX_LOAD_FAILURES_MAX, "one job condemns no load");

static i64 retry_now_ns(const struct vx_models *models)
{
    return models->options.now_ns ? models->options.now_ns() : vx_clock_ns();
}

/* No worker has the instance, after several failures in a row: requests are refused with
 * the reason, because nobody knows how long they would wait. */
static void retry_stop_serving(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = vx_models_row(models, instance);
    if (row->state == VX_INSTANCE_READY) {
        row->state = VX_INSTANCE_LOADING;
        row->load_started_ns = vx_clock_ns();
        row->load_total = 0;
    }
    vx_sched_drop_instance(models->options.sched, instance, models->options.on_lost,
                           models->options.context);
}

static void retry_say_death(struct vx_models *models, i32 instance, i32 worker,
                            i64 pause_ns)
{
    struct vx_instance *row = vx_models_row(models, instance);
    const i32 deaths = models->loads[instance].worker_failures[worker];
    if (models->stopped) return; /* all workers end, and nothing is tried again */
    if (row->state == VX_INSTANCE_LOADING)
        snprintf(row->reason, sizeof row->reason,
                 "worker %d died %d time%s in a row while it loaded this model: the next "
                 "try is %.4g s after the last death",
                 worker, deaths, deaths == 1 ? "" : "s", (f64)pause_ns / 1e9);
    VX_LOG(MODEL_RETRY, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version), VX_LOG_I64("worker", worker),
           VX_LOG_I64("deaths", deaths), VX_LOG_I64("retry_ms", pause_ns / VX_NS_PER_MS));
}

static void retry_say_refusal(struct vx_models *models, i32 instance, i32 worker,
                              i64 pause_ns)
{
    struct vx_instance *row = vx_models_row(models, instance);
    const struct vx_model_load *load = &models->loads[instance];
    const i32 refusals = load->worker_failures[worker];
    if (row->state == VX_INSTANCE_LOADING)
        vx_utf8_print(
            row->reason, sizeof row->reason,
            "worker %d could not load this model again, %d time%s in a row, and "
            "tries again after %.4g s: %.120s",
            worker, refusals, refusals == 1 ? "" : "s", (f64)pause_ns / 1e9,
            load->refusal.text);
    VX_LOG(MODEL_RETRY, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version), VX_LOG_I64("worker", worker),
           VX_LOG_I64("refusals", refusals),
           VX_LOG_I64("retry_ms", pause_ns / VX_NS_PER_MS),
           VX_LOG_TEXT("why", load->refusal.text));
}

/* Counts a failure of a load that goes on, and returns the pause before the next try. */
static i64 retry_after(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_model_load *load = &models->loads[instance];
    const i64 pause_ns =
        vx_backoff_ms(&retry_pauses, load->worker_failures[worker]) * VX_NS_PER_MS;
    load->retry |= 1u << worker;
    load->retry_ns[worker] = retry_now_ns(models) + pause_ns;
    if (load->failures >= VX_LOAD_FAILURES_MAX && !load->asked)
        retry_stop_serving(models, instance);
    return pause_ns;
}

static void retry_count(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_model_load *load = &models->loads[instance];
    const bool serves = vx_models_row(models, instance)->workers_loaded != 0;
    load->worker_failures[worker]++;
    load->failures = serves ? 0 : load->failures + 1;
}

void vx_models_on_load_death(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_model_load *load = &models->loads[instance];
    if (load->notes_by == worker + 1) load->notes_by = 0; /* they may not be logged yet */
    retry_count(models, instance, worker);
    if (vx_models_is_wanted(models, instance))
        retry_say_death(models, instance, worker, retry_after(models, instance, worker));
    vx_models_strand(models, instance);
}

/* Whether any model serves on the worker, or may soon. */
static bool worker_has_work(const struct vx_models *models, i32 worker)
{
    if (vx_instance_set_any(&models->loading[worker])) return true;
    for (i32 i = 0; i < vx_models_end(models); i++)
        if (vx_models_row(models, i)->workers_loaded >> worker & 1) return true;
    return false;
}

void vx_models_on_load_refused(struct vx_models *models, i32 instance, i32 worker,
                               const struct vx_why *why)
{
    struct vx_model_load *load = &models->loads[instance];
    if (!load->refused) load->refusal = *why;
    retry_count(models, instance, worker);
    retry_say_refusal(models, instance, worker, retry_after(models, instance, worker));
    vx_models_strand(models, instance);
    if (load->worker_failures[worker] < VX_LOAD_FAILURES_MAX) return;
    if (models->useless >> worker & 1 || worker_has_work(models, worker)) return;
    /* Another process may get what this one does not.  Once: if it does not either, no further one
     * will. */
    models->useless |= UINT32_C(1) << worker;
    if (models->options.on_useless)
        models->options.on_useless(models->options.context, worker);
}

/* The load with fewer failures first, then the one that was due earlier. */
static bool retry_before(const struct vx_model_load *a, const struct vx_model_load *b,
                         i32 worker)
{
    i32 more = a->worker_failures[worker] - b->worker_failures[worker];
    return more ? more < 0 : a->retry_ns[worker] < b->retry_ns[worker];
}

i32 vx_models_retry_due(const struct vx_models *models, i32 worker)
{
    i64 now = 0;
    i32 first = -1;
    if (vx_sched_worker_has_solo(models->options.sched, worker)) return -1;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_model_load *load = &models->loads[i];
        if (!(load->retry & (1u << worker))) continue;
        if (!vx_models_is_wanted(models, i)) continue;
        if (!now) now = retry_now_ns(models);
        i64 since = load->retry_ns[worker];
        if (vx_instance_set_any(&models->loading[worker])) since += ALONE_NS;
        if (since > now) continue;
        if (first < 0 || retry_before(load, &models->loads[first], worker)) first = i;
    }
    return first;
}

void vx_models_retry_now(struct vx_models *models, i32 instance)
{
    struct vx_model_load *load = &models->loads[instance];
    u32 again = load->retry;
    load->retry = 0;
    load->failures = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        if (!load->worker_failures[w]) continue;
        load->worker_failures[w] = 0;
        if (!(again & (1u << w))) continue; /* the worker is loading it now */
        if (vx_workers_info(*models->options.workers, w)->state != VX_WORKER_UP) continue;
        if (!load->asked) load->ask = ++models->asks;
        load->asked |= 1u << w;
        vx_models_feed(models, w);
    }
}

void vx_models_retry_step(struct vx_models *models)
{
    u32 retries = 0;
    for (i32 i = 0; i < vx_models_end(models); i++) retries |= models->loads[i].retry;
    if (!retries) return;
    i64 now = retry_now_ns(models);
    if (now < models->retry_look_ns) return;
    models->retry_look_ns = now + LOOK_NS;
    i32 count = vx_workers_count(*models->options.workers);
    for (i32 w = 0; w < count; w++)
        if (retries & (1u << w)) vx_models_feed(models, w);
}
