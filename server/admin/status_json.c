/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/admin/status_json.h"

#include "engine/base/process/clock.h"
#include "server/admin/json_write.h"
#include "server/admin/missed.h"

#include <string.h>

/* What a page shows of many.  They bound the answer: 512 models with
 * the longest names, each character escaped, are 3 MB. */
#define OUTPUTS_SHOWN 4
#define MISSING_SHOWN 64

/* ------- the server ------- */

static void put_server(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    char why[VX_MISSED_WHY_BYTES], note[VX_MISSED_WHY_BYTES];
    vx_missed_server(s, why);
    vx_missed_note(s, note);
    i64 now_ms = vx_clock_wall_ms();
    vx_json_text(json, "version", VX_VERSION);
    vx_json_i64(json, "now_ms", now_ms);
    vx_json_i64(json, "started_ms", s->metrics->started_ms);
    vx_json_bool(json, "ready", s->ready);
    vx_json_text(json, "why", why);
    vx_json_text(json, "note", note);
    vx_json_open(json, "requests", '{');
    vx_json_i64(json, "answered", (i64)s->metrics->codes[VX_CODE_OK]);
    vx_json_i64(json, "failed", (i64)vx_metrics_failed(s->metrics));
    vx_json_i64(json, "waiting", s->queued);
    vx_json_i64(json, "waiting_voxels", s->queued_voxels);
    vx_json_i64(json, "running", s->running);
    vx_json_i64(json, "connections", s->rpc->connections);
    vx_json_close(json, '}');
    vx_json_open(json, "arena", '{');
    vx_json_i64(json, "bytes", (i64)s->arena_bytes);
    vx_json_i64(json, "used", (i64)s->arena_bytes_used);
    vx_json_close(json, '}');
}

/* ------- the last minute, and the last ten ------- */

static void put_recent(const struct vx_metrics_sources *s, const char *key,
                       enum vx_histogram_id id, struct vx_json_writer *json)
{
    struct vx_recent recent = vx_metrics_recent(s->metrics, id);
    vx_json_open(json, key, '{');
    vx_json_i64(json, "count", (i64)recent.count);
    vx_json_i64(json, "sum", (i64)recent.sum);
    vx_json_i64(json, "p50", (i64)recent.p50);
    vx_json_i64(json, "p90", (i64)recent.p90);
    vx_json_i64(json, "p99", (i64)recent.p99);
    vx_json_close(json, '}');
}

static void put_minute(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    vx_json_open(json, "minute", '{');
    put_recent(s, "request_ns", VX_HISTOGRAM_REQUEST, json);
    put_recent(s, "queue_ns", VX_HISTOGRAM_QUEUE, json);
    put_recent(s, "geometry_ns", VX_HISTOGRAM_GEOMETRY, json);
    put_recent(s, "layers_ns", VX_HISTOGRAM_COMPUTE, json);
    put_recent(s, "batch_requests", VX_HISTOGRAM_BATCH_REQUESTS, json);
    put_recent(s, "batch_fill_billionths", VX_HISTOGRAM_BATCH_FILL, json);
    vx_json_close(json, '}');
    struct vx_recent latency = vx_metrics_recent(s->metrics, VX_HISTOGRAM_REQUEST);
    vx_json_open(json, "latency", '{');
    vx_json_open(json, "bounds_ns", '[');
    for (size_t i = 0; i < latency.bounds_count; i++)
        vx_json_i64(json, NULL, (i64)latency.bounds[i]);
    vx_json_close(json, ']');
    vx_json_open(json, "counts", '[');
    for (size_t i = 0; i <= latency.bounds_count; i++)
        vx_json_i64(json, NULL, (i64)latency.counts[i]);
    vx_json_close(json, ']');
    vx_json_close(json, '}');
}

/* One list for each number: a third of the bytes that one object for each point has. */
static void put_points(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    static const char *const keys[] = {"span_ms", "answered", "failed", "p50_ns",
                                       "p99_ns",  "batches",  "fill",   "waiting"};
    i32 count = vx_metrics_points(s->metrics);
    vx_json_open(json, "points", '{');
    for (size_t k = 0; k < VX_COUNT(keys); k++) {
        vx_json_open(json, keys[k], '[');
        for (i32 i = 0; i < count; i++) {
            const struct vx_metrics_point *p = vx_metrics_point(s->metrics, i);
            const i64 values[VX_COUNT(keys)] = {p->span_ns / VX_NS_PER_MS,
                                                (i64)p->answered,
                                                (i64)p->failed,
                                                (i64)p->p50_ns,
                                                (i64)p->p99_ns,
                                                (i64)p->batches,
                                                (i64)p->fill / 1000000,
                                                p->queued_max};
            vx_json_i64(json, NULL, values[k]);
        }
        vx_json_close(json, ']');
    }
    vx_json_close(json, '}');
}

/* ------- models ------- */

static const char *state_name(enum vx_instance_state state)
{
    static const char *const names[] = {[VX_INSTANCE_FREE] = "free",
                                        [VX_INSTANCE_LOADING] = "loading",
                                        [VX_INSTANCE_READY] = "ready",
                                        [VX_INSTANCE_UNLOADING] = "unloading",
                                        [VX_INSTANCE_UNAVAILABLE] = "unavailable"};
    return names[state];
}

static void put_outputs(const struct vx_signature *signature, struct vx_json_writer *json)
{
    vx_json_open(json, "outputs", '[');
    for (i32 i = 0; i < signature->outputs_count && i < OUTPUTS_SHOWN; i++) {
        vx_json_open(json, NULL, '{');
        vx_json_text(json, "name", signature->outputs[i].name);
        vx_json_i64(json, "channels", signature->outputs[i].channels);
        vx_json_close(json, '}');
    }
    vx_json_close(json, ']');
    vx_json_i64(json, "outputs_count", signature->outputs_count);
}

static void put_model(const struct vx_metrics_sources *s, i32 instance,
                      struct vx_json_writer *json)
{
    const struct vx_instance *model = vx_registry_row(s->registry, instance);
    const struct vx_instance_stats *stats = model->stats;
    bool loads = model->state == VX_INSTANCE_LOADING;
    vx_json_open(json, NULL, '{');
    vx_json_i64(json, "row", instance);
    vx_json_text(json, "name", model->name);
    vx_json_i64(json, "version", model->version);
    vx_json_text(json, "state", state_name(model->state));
    vx_json_text(json, "why", model->reason);
    vx_json_i64(json, "load_done", loads ? model->load_done : 0);
    vx_json_i64(json, "load_total", loads ? model->load_total : 0);
    vx_json_i64(json, "load_ns", model->load_ns);
    vx_json_i64(json, "workers", __builtin_popcount(model->workers_loaded));
    vx_json_i64(json, "weights_bytes", model->signature.weights_bytes);
    vx_json_i64(json, "channels", model->signature.feats_channels);
    put_outputs(&model->signature, json);
    vx_json_i64(json, "pending",
                s->sched ? vx_sched_instance_jobs(s->sched, instance) : 0);
    vx_json_i64(json, "answered", (i64)stats->success.count);
    vx_json_i64(json, "answered_ns", (i64)stats->success.ns);
    vx_json_i64(json, "failed", (i64)stats->fail.count);
    vx_json_i64(json, "batches", (i64)stats->execution_count);
    vx_json_i64(json, "voxels", (i64)stats->voxels);
    vx_json_i64(json, "geometry_hits", (i64)stats->geometry_hit.count);
    vx_json_i64(json, "geometry_misses", (i64)stats->geometry_miss.count);
    vx_json_close(json, '}');
}

/* Models of the repository that have no row.  To find all of thousands takes long, so the
 * walk ends where the list does. */
static void put_missing(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    struct vx_missed missed = {.kind = VX_MISSED_ENTRY};
    i32 count = 0;
    bool more = false;
    vx_json_open(json, "missing", '[');
    while (vx_missed_next(s, &missed)) {
        more = count++ == MISSING_SHOWN;
        if (more) break;
        vx_json_open(json, NULL, '{');
        vx_json_text(json, "name", missed.name);
        vx_json_i64(json, "version", missed.version);
        vx_json_text(json, "why", missed.why);
        vx_json_close(json, '}');
    }
    vx_json_close(json, ']');
    vx_json_bool(json, "missing_more", more);
}

static void put_models(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    i32 cursor = 0;
    vx_json_open(json, "models", '[');
    const struct vx_instance *model, *first = vx_registry_row(s->registry, 0);
    while ((model = vx_registry_next(s->registry, &cursor)))
        put_model(s, (i32)(model - first), json);
    vx_json_close(json, ']');
    put_missing(s, json);
}

/* ------- devices ------- */

static void put_gpu(const struct vx_gpu_stats *gpu, struct vx_json_writer *json)
{
    vx_json_open(json, "gpu", '{');
    vx_json_text(json, "uuid", gpu->uuid);
    vx_json_i64(json, "memory", gpu->memory_bytes);
    vx_json_i64(json, "memory_used", gpu->memory_bytes_used);
    if (gpu->utilization_known) vx_json_i64(json, "busy_percent", gpu->utilization);
    if (gpu->power_known) vx_json_i64(json, "power_mw", gpu->power_mw);
    vx_json_close(json, '}');
}

static void put_device(const struct vx_worker_view *worker, struct vx_json_writer *json)
{
    const struct vx_engine_stats *stats = &worker->stats;
    vx_json_open(json, NULL, '{');
    vx_json_i64(json, "worker", worker->index);
    vx_json_text(json, "device", worker->device);
    vx_json_text(json, "name", stats->device_name);
    vx_json_text(json, "state", worker->state);
    vx_json_bool(json, "up", worker->up);
    vx_json_text(json, "why", worker->problem ? worker->problem : "");
    vx_json_i64(json, "pid", worker->pid);
    vx_json_i64(json, "restarts", worker->restarts);
    vx_json_i64(json, "losses", worker->losses);
    vx_json_i64(json, "hangs", worker->hangs);
    vx_json_i64(json, "memory", stats->device_bytes);
    vx_json_i64(json, "memory_peak", stats->device_bytes_used_max);
    vx_json_i64(json, "cache", stats->cache_bytes_max);
    vx_json_i64(json, "cache_used", stats->cache_bytes);
    vx_json_i64(json, "cache_hits", stats->cache_hits);
    vx_json_i64(json, "cache_misses", stats->cache_misses);
    vx_json_i64(json, "cache_evictions", stats->cache_evictions);
    if (stats->gpu.uuid[0]) put_gpu(&stats->gpu, json);
    vx_json_close(json, '}');
}

static void put_devices(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    vx_json_open(json, "devices", '[');
    for (i32 w = 0; w < s->workers_count; w++) put_device(&s->workers[w], json);
    vx_json_close(json, ']');
}

/* ------- failures ------- */

static void put_failures(const struct vx_metrics_sources *s, struct vx_json_writer *json)
{
    struct vx_failure rows[VX_FAILURES_MAX];
    i32 count = vx_failures_list(&s->metrics->failures, rows);
    vx_json_open(json, "failures", '[');
    for (i32 i = 0; i < count; i++) {
        const char *slash = strrchr(rows[i].method, '/');
        vx_json_open(json, NULL, '{');
        vx_json_i64(json, "id", (i64)rows[i].id);
        vx_json_i64(json, "first_ms", rows[i].first_ms);
        vx_json_i64(json, "last_ms", rows[i].last_ms);
        vx_json_i64(json, "count", (i64)rows[i].count);
        vx_json_text(json, "code", vx_code_name(rows[i].code));
        vx_json_text(json, "method", slash ? slash + 1 : rows[i].method);
        vx_json_text(json, "model", rows[i].model);
        vx_json_text(json, "text", rows[i].text);
        vx_json_close(json, '}');
    }
    vx_json_close(json, ']');
}

void vx_status_json(const struct vx_metrics_sources *sources, struct vx_text *text)
{
    struct vx_json_writer json = {.text = text};
    vx_json_open(&json, NULL, '{');
    put_server(sources, &json);
    put_minute(sources, &json);
    put_points(sources, &json);
    put_models(sources, &json);
    put_devices(sources, &json);
    put_failures(sources, &json);
    vx_json_close(&json, '}');
    vx_text_add(text, "\n");
}
