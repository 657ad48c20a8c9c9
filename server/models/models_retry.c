/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/backoff.h"
#include "server/models/models_private.h"

#include <stdio.h>

/* A death may be an accident (the out-of-memory killer, a person), so deaths never end
 * the retries of a load.  It may also be caused by the model: then each retry also
 * interrupts the other models of that worker, so the pauses grow. */
static const struct vx_backoff retry_pauses = {.first_ms = 250, .most_ms = 60000};
/* A suspect is loaded alone.  It waits this long for the worker's other loads to end, and
 * is then loaded beside them. */
#define ALONE_NS (10 * VX_NS_PER_S)
/* The interval of the checks for suspects that are due. */
#define LOOK_NS (50 * VX_NS_PER_MS)
_Static_assert(VX_JOB_DEATHS_MAX < VX_LOAD_DEATHS_MAX, "one job condemns no load");

static i64 retry_now_ns(const struct vx_models *models)
{
    return models->options.now_ns ? models->options.now_ns() : vx_clock_ns();
}

/* No worker has the instance, after several deaths in a row: requests are refused with
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

static void retry_say(struct vx_models *models, i32 instance, i32 worker, i64 pause_ns)
{
    const struct vx_model_load *load = &models->loads[instance];
    struct vx_instance *row = vx_models_row(models, instance);
    i32 deaths = load->worker_deaths[worker];
    if (row->state == VX_INSTANCE_LOADING)
        snprintf(row->reason, sizeof row->reason,
                 "worker %d died %d time%s in a row while it loaded this model: the next "
                 "try is %.4g s after the last death",
                 worker, deaths, deaths == 1 ? "" : "s", (f64)pause_ns / 1e9);
    VX_LOG(MODEL_RETRY, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version), VX_LOG_I64("worker", worker),
           VX_LOG_I64("deaths", deaths), VX_LOG_I64("retry_ms", pause_ns / VX_NS_PER_MS));
}

void vx_models_on_load_death(struct vx_models *models, i32 instance, i32 worker)
{
    struct vx_model_load *load = &models->loads[instance];
    bool serves = vx_models_row(models, instance)->workers_loaded != 0;
    if (load->notes_by == worker + 1) load->notes_by = 0; /* they may not be logged yet */
    load->worker_deaths[worker]++;
    load->deaths = serves ? 0 : load->deaths + 1;
    if (vx_models_is_wanted(models, instance)) {
        i64 pause_ns =
            vx_backoff_ms(&retry_pauses, load->worker_deaths[worker]) * VX_NS_PER_MS;
        load->retry |= 1u << worker;
        load->retry_ns[worker] = retry_now_ns(models) + pause_ns;
        if (load->deaths >= VX_LOAD_DEATHS_MAX && !load->asked)
            retry_stop_serving(models, instance);
        retry_say(models, instance, worker, pause_ns);
    }
    vx_models_strand(models, instance);
}

/* The suspect with fewer deaths first, then the one that was due earlier. */
static bool retry_before(const struct vx_model_load *a, const struct vx_model_load *b,
                         i32 worker)
{
    i32 more = a->worker_deaths[worker] - b->worker_deaths[worker];
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
    load->deaths = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        if (!load->worker_deaths[w]) continue;
        load->worker_deaths[w] = 0;
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
