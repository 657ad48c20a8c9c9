/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/metrics/metrics_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"

#include <stdlib.h>
#include <string.h>

/* ns.  A small request over loopback takes 0.2 ms; a client waits at most 30 s. */
static const u64 bounds_time[] = {
    100000,     200000,     500000,     1000000,     2000000,    5000000,
    10000000,   20000000,   50000000,   100000000,   200000000,  500000000,
    1000000000, 2000000000, 5000000000, 10000000000, 30000000000};
/* ns.  Waking a process twice takes about 10 us; a predicted batch time is good enough
 * when its error is less than a client would notice. */
static const u64 bounds_short[] = {
    2000,    5000,    10000,   20000,    50000,    100000,   200000,    500000,
    1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000, 1000000000};
/* Billionths of the budget. */
static const u64 bounds_share[] = {10000000,  20000000,  50000000,  100000000, 200000000,
                                   300000000, 400000000, 500000000, 600000000, 700000000,
                                   800000000, 900000000, 1000000000};
/* From a cloud of one object to the largest request, in steps of 4. */
static const u64 bounds_voxels[] = {64,     256,     1024,    4096,     16384,   65536,
                                    262144, 1048576, 4194304, 16777216, 67108864};
/* A voxel is 16 bytes of coords and about as many of feats. */
static const u64 bounds_bytes[] = {1024,     4096,      16384,     65536,
                                   262144,   1048576,   4194304,   16777216,
                                   67108864, 268435456, 1073741824};
/* A voxel of a surface has about 9 of 27 neighbours. */
static const u64 bounds_pairs[] = {256,      1024,     4096,      16384,
                                   65536,    262144,   1048576,   4194304,
                                   16777216, 67108864, 268435456, 1073741824};
static const u64 bounds_requests[] = {1, 2, 4, 8, 16, 32, 64};
_Static_assert(VX_BATCH_ITEMS_MAX <= 64, "bounds_requests ends at the largest batch");

const struct vx_metrics_scale vx_metrics_scales[VX_HISTOGRAMS_COUNT] = {
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_) {bounds_, VX_COUNT(bounds_)},
#include "server/metrics/metrics_forms.h"
};
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_)                                  \
    _Static_assert(VX_COUNT(bounds_) <= VX_METRICS_BOUNDS_MAX, #name_);
#include "server/metrics/metrics_forms.h"

vx_status vx_metrics_open(struct vx_metrics **metrics)
{
    *metrics = vx_alloc_zero(sizeof **metrics);
    VX_ENSURE(*metrics, RESOURCE_EXHAUSTED, "no memory for metrics");
    (*metrics)->magic = VX_METRICS_MAGIC;
    (*metrics)->started_ms = vx_clock_wall_ms();
    (*metrics)->slice = vx_clock_ns() / VX_METRICS_SLICE_NS;
    (*metrics)->track.began_ns = vx_clock_ns();
    vx_failures_init(&(*metrics)->failures);
    return VX_OK;
}

void vx_metrics_close(struct vx_metrics **metrics)
{
    if (!*metrics) return;
    (*metrics)->magic = 0;
    vx_failures_fini(&(*metrics)->failures);
    vx_free(*metrics);
    *metrics = NULL;
}

/* ------- counting ------- */

void vx_metrics_turn(struct vx_metrics *metrics, i64 now_ns)
{
    VX_ASSERT(metrics->magic == VX_METRICS_MAGIC);
    i64 slice = now_ns / VX_METRICS_SLICE_NS;
    if (slice <= metrics->slice) return;
    i64 passed = slice - metrics->slice;
    if (passed > VX_METRICS_SLICES) passed = VX_METRICS_SLICES;
    for (i64 k = slice - passed + 1; k <= slice; k++)
        memcpy(metrics->slices[k % VX_METRICS_SLICES], metrics->histograms,
               sizeof metrics->histograms);
    metrics->slice = slice;
}

static void observe(struct vx_metrics *metrics, enum vx_histogram_id id, u64 value)
{
    struct vx_histogram *histogram = &metrics->histograms[id];
    size_t bucket = 0;
    while (bucket < vx_metrics_scales[id].count &&
           value > vx_metrics_scales[id].bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
}

static u64 not_negative(i64 value)
{
    return value > 0 ? (u64)value : 0;
}

void vx_metrics_observe_request(struct vx_metrics *metrics,
                                const struct vx_metrics_request *request)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    VX_ASSERT((unsigned)request->code < VX_METRICS_CODES);
    metrics->codes[request->code]++;
    metrics->refused_late += request->refused_late;
    if (request->by_name) {
        metrics->refs_hit += request->code == VX_CODE_OK;
        metrics->refs_unknown += request->unknown_geometry;
    }
    if (request->ran) {
        observe(metrics, VX_HISTOGRAM_QUEUE, not_negative(request->queue_ns));
        observe(metrics, VX_HISTOGRAM_COMPUTE, not_negative(request->compute_ns));
        observe(metrics, VX_HISTOGRAM_GEOMETRY, not_negative(request->geometry_ns));
    }
    /* Refusals take microseconds; among latencies they would make an overloaded server
     * look fast. */
    if (request->code != VX_CODE_OK) return;
    observe(metrics, VX_HISTOGRAM_REQUEST, not_negative(request->total_ns));
    observe(metrics, VX_HISTOGRAM_REQUEST_VOXELS, not_negative(request->voxels));
    observe(metrics, VX_HISTOGRAM_REQUEST_BYTES, request->bytes_in);
    observe(metrics, VX_HISTOGRAM_ANSWER_BYTES, request->bytes_out);
    observe(metrics, VX_HISTOGRAM_REQUEST_PAIRS, not_negative(request->pairs));
}

void vx_metrics_observe_batch(struct vx_metrics *metrics,
                              const struct vx_metrics_batch *batch)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    u64 set_voxels = not_negative(batch->set_voxels);
    observe(metrics, VX_HISTOGRAM_BATCH_REQUESTS, not_negative(batch->requests));
    observe(metrics, VX_HISTOGRAM_BATCH_VOXELS, not_negative(batch->voxels));
    observe(metrics, VX_HISTOGRAM_BORDER, not_negative(batch->border_ns));
    if (batch->voxels_max > 0)
        observe(metrics, VX_HISTOGRAM_BATCH_FILL,
                (u64)((f64)set_voxels / (f64)batch->voxels_max * 1e9));
    if (batch->predicted_ns > 0 && batch->device_ns > 0)
        observe(metrics, VX_HISTOGRAM_BATCH_PREDICTION,
                (u64)llabs(batch->device_ns - batch->predicted_ns));
}
