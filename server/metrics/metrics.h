/* metrics - counts what happened, and writes it as Prometheus text.
 *
 * metrics.def is the list.  Most numbers live with their owners (registry, rpc, workers)
 * and are only read here, at a scrape; histograms and the counts of status codes live
 * here.  Histograms have fixed bounds and cost a few additions per request.  For the page,
 * the last minute of each is kept separately, and points of the last ten minutes.
 *
 *   VX_TRY(vx_metrics_open(&metrics));
 *   vx_metrics_observe_request(metrics, &request);
 *   vx_metrics_observe_batch(metrics, &batch);
 *   vx_metrics_step(metrics, queued, now_ns);        once a second
 *   VX_TRY(vx_metrics_render(&sources, text, capacity, &length));
 *
 * Owner    the caller.  Sources are borrowed for the call.
 * Thread   loop; `failures` may be noted on any.
 * Limits   VX_METRICS_BOUNDS_MAX bounds of a histogram.
 * Fails    render: RESOURCE_EXHAUSTED when the text does not fit; do not send it then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_METRICS_H
#define VX_SERVER_METRICS_H

#include "engine/device.h"
#include "server/access/access.h"
#include "server/metrics/failures.h"
#include "server/models/registry.h"
#include "server/rpc/rpc.h"
#include "server/sched/sched.h"
#include "server/trace/exporter.h"

#define VX_METRICS_BOUNDS_MAX 20
/* The page's percentiles cover the last VX_METRICS_SLICES slices. */
#define VX_METRICS_SLICE_NS (10 * VX_NS_PER_S)
#define VX_METRICS_SLICES   6
/* Its charts cover ten minutes. */
#define VX_METRICS_POINT_NS (5 * VX_NS_PER_S)
#define VX_METRICS_POINTS   120
/* gRPC's status codes are 0 .. 16. */
#define VX_METRICS_CODES 17

enum vx_histogram_id {
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_) VX_HISTOGRAM_##id_,
#include "server/metrics/metrics_forms.h"
    VX_HISTOGRAMS_COUNT
};

struct vx_histogram {
    /* Per bucket, not cumulative; the last is above all bounds. */
    u64 counts[VX_METRICS_BOUNDS_MAX + 1];
    u64 sum; /* in the histogram's unit; times in ns */
};

/* What happened in one interval of about VX_METRICS_POINT_NS. */
struct vx_metrics_point {
    i64 span_ns;
    u64 answered, failed;
    u64 p50_ns, p99_ns; /* from arrival to answer; 0 when none was answered */
    u64 batches;
    u64 fill;       /* mean of the batches, in billionths of the model's budget */
    i32 queued_max; /* as seen once a second */
};
/* The points that have ended, a ring, and the state of what they count when the current
 * one began. */
struct vx_metrics_track {
    struct vx_metrics_point points[VX_METRICS_POINTS];
    u64 count; /* ever */
    i64 began_ns;
    u64 failed;
    i32 queued_max;
    struct vx_histogram request, fill;
};

struct vx_metrics {
    u32 magic;
    i64 started_ms; /* since 1970 */
    u64 codes[VX_METRICS_CODES];
    u64 refs_hit, refs_unknown; /* requests with a coords_ref: succeeded; not known */
    u64 refused_late;
    struct vx_histogram histograms[VX_HISTOGRAMS_COUNT];
    /* The histograms as they were when each of the last slices began. */
    struct vx_histogram slices[VX_METRICS_SLICES][VX_HISTOGRAMS_COUNT];
    i64 slice; /* the current one: time / VX_METRICS_SLICE_NS */
    struct vx_metrics_track track;
    struct vx_failures failures;
};

VX_MUST_USE vx_status vx_metrics_open(struct vx_metrics **metrics);
void vx_metrics_close(struct vx_metrics **metrics);

/* One inference request that has ended, also with an error. */
struct vx_metrics_request {
    enum vx_code code;
    i64 total_ns; /* from arrival */
    i64 voxels;
    u64 bytes_in, bytes_out;
    bool by_name;          /* it sent a coords_ref in place of coords */
    bool unknown_geometry; /* and the coords_ref is not known */
    bool refused_late;     /* on arrival: its deadline would pass before it could run */
    bool ran;              /* on a device; only then the fields below are valid */
    i64 queue_ns, compute_ns, geometry_ns, pairs;
};
void vx_metrics_observe_request(struct vx_metrics *metrics,
                                const struct vx_metrics_request *request);

/* One device batch that has ended. */
struct vx_metrics_batch {
    i64 requests, voxels;
    i64 set_voxels; /* of all sets */
    i64 voxels_max; /* the model's budget */
    i64 border_ns;  /* in the IPC channel, both ways: RUN to the worker, DONE back */
    i64 device_ns;
    i64 predicted_ns; /* the prediction of device_ns; 0 = there was none */
};
void vx_metrics_observe_batch(struct vx_metrics *metrics,
                              const struct vx_metrics_batch *batch);

/* The last minute of one histogram, in its unit; times in ns. */
struct vx_recent {
    u64 count, sum;    /* the sum of what was observed */
    u64 p50, p90, p99; /* interpolated between bounds; at most the highest bound */
    const u64 *bounds;
    size_t bounds_count;
    u64 counts[VX_METRICS_BOUNDS_MAX + 1]; /* per bucket; the last is above all bounds */
};
/* Requests that were answered with another code than OK, since the start. */
u64 vx_metrics_failed(const struct vx_metrics *metrics);
struct vx_recent vx_metrics_recent(struct vx_metrics *metrics, enum vx_histogram_id id);
/* Begins new slices up to now_ns; observe and recent call it with the clock's time. */
void vx_metrics_turn(struct vx_metrics *metrics, i64 now_ns);

/* Ends the current point if it is time. */
void vx_metrics_step(struct vx_metrics *metrics, i32 queued, i64 now_ns);
/* The points that are kept, and one of them: 0 is the oldest. */
i32 vx_metrics_points(const struct vx_metrics *metrics);
const struct vx_metrics_point *vx_metrics_point(const struct vx_metrics *metrics,
                                                i32 index);

/* One worker, as the pages show it. */
struct vx_worker_view {
    i32 index;
    const char *device; /* as configured: "cpu" */
    const char *state;  /* "up" */
    bool up;
    i32 restarts, losses, hangs;
    i32 pid;             /* 0 when there is none */
    const char *problem; /* why it ended, until it is up again; "" = unknown */
    struct vx_engine_stats stats;
};
/* Everything that metrics and pages read. */
struct vx_metrics_sources {
    struct vx_metrics *metrics;
    struct vx_registry *registry;
    const struct vx_rpc_counters *rpc;
    const struct vx_sched *sched; /* NULL: the pending requests of models are left out */
    const struct vx_worker_view *workers;
    i32 workers_count;
    i32 queued, running;
    i64 queued_voxels;
    u64 arena_bytes, arena_bytes_used;
    struct vx_regions *regions; /* NULL: shared memory of clients is not served */
    struct vx_access *access;   /* NULL: no tokens and no limits */
    const struct vx_exporter_counts *spans; /* NULL: there is no collector */
    const char *problem;                    /* with the repository; NULL, "" = none */
    bool ready;
};

VX_MUST_USE vx_status vx_metrics_render(const struct vx_metrics_sources *sources,
                                        char *out, size_t capacity, size_t *length);

#endif
