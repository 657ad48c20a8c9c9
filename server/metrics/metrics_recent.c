/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics/metrics_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* ------- of one histogram, between two moments ------- */

/* The value that `permille` of the observations do not exceed, interpolated linearly
 * within its bucket. */
static u64 percentile(const struct vx_metrics_scale *scale,
                      const struct vx_recent *recent, u64 permille)
{
    u64 wanted = (recent->count * permille + 999) / 1000, below = 0;
    for (size_t i = 0; i < scale->count; i++) {
        u64 low = i ? scale->bounds[i - 1] : 0, here = recent->counts[i];
        if (here && below + here >= wanted) {
            f64 part = (f64)(wanted - below) / (f64)here;
            return low + (u64)(part * (f64)(scale->bounds[i] - low));
        }
        below += here;
    }
    return scale->bounds[scale->count - 1];
}

static struct vx_recent recent_make(enum vx_histogram_id id,
                                    const struct vx_histogram *then,
                                    const struct vx_histogram *now)
{
    const struct vx_metrics_scale *scale = &vx_metrics_scales[id];
    struct vx_recent recent = {.bounds = scale->bounds, .bounds_count = scale->count};
    for (size_t i = 0; i <= scale->count; i++) {
        recent.counts[i] = now->counts[i] - then->counts[i];
        recent.count += recent.counts[i];
    }
    if (!recent.count) return recent;
    recent.sum = now->sum - then->sum;
    recent.p50 = percentile(scale, &recent, 500);
    recent.p90 = percentile(scale, &recent, 900);
    recent.p99 = percentile(scale, &recent, 990);
    return recent;
}

/* ------- the last minute ------- */

struct vx_recent vx_metrics_recent(struct vx_metrics *metrics, enum vx_histogram_id id)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    const struct vx_histogram *then =
        &metrics->slices[(metrics->slice + 1) % VX_METRICS_SLICES][id];
    return recent_make(id, then, &metrics->histograms[id]);
}

/* ------- the last ten minutes ------- */

u64 vx_metrics_failed(const struct vx_metrics *metrics)
{
    u64 failed = 0;
    for (i32 code = 0; code < VX_METRICS_CODES; code++)
        if (code != VX_CODE_OK) failed += metrics->codes[code];
    return failed;
}

static void point_end(struct vx_metrics *metrics, i64 now_ns)
{
    struct vx_metrics_track *track = &metrics->track;
    const struct vx_histogram *now = metrics->histograms;
    struct vx_recent request =
        recent_make(VX_HISTOGRAM_REQUEST, &track->request, &now[VX_HISTOGRAM_REQUEST]);
    struct vx_recent fill =
        recent_make(VX_HISTOGRAM_BATCH_FILL, &track->fill, &now[VX_HISTOGRAM_BATCH_FILL]);
    u64 failed = vx_metrics_failed(metrics);
    track->points[track->count++ % VX_METRICS_POINTS] =
        (struct vx_metrics_point){.span_ns = now_ns - track->began_ns,
                                  .answered = request.count,
                                  .failed = failed - track->failed,
                                  .p50_ns = request.p50,
                                  .p99_ns = request.p99,
                                  .batches = fill.count,
                                  .fill = fill.count ? fill.sum / fill.count : 0,
                                  .queued_max = track->queued_max};
    track->began_ns = now_ns;
    track->failed = failed;
    track->queued_max = 0;
    track->request = now[VX_HISTOGRAM_REQUEST];
    track->fill = now[VX_HISTOGRAM_BATCH_FILL];
}

void vx_metrics_step(struct vx_metrics *metrics, i32 queued, i64 now_ns)
{
    VX_ASSERT(metrics->magic == VX_METRICS_MAGIC);
    struct vx_metrics_track *track = &metrics->track;
    if (queued > track->queued_max) track->queued_max = queued;
    if (now_ns - track->began_ns >= VX_METRICS_POINT_NS) point_end(metrics, now_ns);
}

i32 vx_metrics_points(const struct vx_metrics *metrics)
{
    u64 count = metrics->track.count;
    return count < VX_METRICS_POINTS ? (i32)count : VX_METRICS_POINTS;
}

const struct vx_metrics_point *vx_metrics_point(const struct vx_metrics *metrics,
                                                i32 index)
{
    i32 count = vx_metrics_points(metrics);
    VX_ASSERT(index >= 0);
    VX_ASSERT(index < count);
    u64 at = metrics->track.count - (u64)count + (u64)index;
    return &metrics->track.points[at % VX_METRICS_POINTS];
}
