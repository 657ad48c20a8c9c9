/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_work.h"

#include "engine/base/process/check.h"
#include "engine/gpu/run/round_making.h"

struct work {
    struct vx_gpu_round *round;
    struct vx_gpu_lane *lane;
    struct vx_gpu_making making;
    bool begun; /* the streams beside have work of this round */
    struct vx_why *why;
};

/* Rows of the features that are there, and the end of what comes with them. */
static vx_status feats_take(const struct work *work)
{
    VX_TRY(vx_gpu_forward_feats(&work->round->forward, work->why));
    return vx_gpu_lane_mark(work->lane, VX_GPU_MARK_FEATS, work->why);
}

static vx_status feats_copy(const struct work *work)
{
    VX_TRY(vx_gpu_forward_send(&work->round->forward, &work->lane->queue, work->why));
    return feats_take(work);
}

/* --- all on the main stream --- */

static vx_status run_in_line(struct work *work)
{
    struct vx_gpu_lane *lane = work->lane;
    const i32 stage = work->making.stage;
    VX_TRY(vx_gpu_making_maps(&work->making));
    VX_TRY(vx_gpu_making_orders(&work->making));
    VX_TRY(vx_gpu_making_end(&work->making));
    if (stage)
        return vx_gpu_event_record(lane->gpu, lane->stages[stage][1], lane->queue.stream,
                                   work->why);
    VX_TRY(vx_gpu_lane_mark(lane, VX_GPU_MARK_GEOMETRY, work->why));
    VX_TRY(feats_copy(work));
    return vx_gpu_lane_mark(lane, VX_GPU_MARK_MAPS, work->why);
}

/* --- on several streams --- */

/* The streams beside go on behind what is on the main one. */
static vx_status beside_begin(struct work *work)
{
    const struct vx_gpu_lane *lane = work->lane;
    struct vx_gpu_queues *queues = &work->making.maps_on;
    _Static_assert(VX_GPU_BESIDE_STREAMS == VX_COUNT(queues->of), "a queue for each");
    work->begun = work->making.makes || vx_gpu_making_ends(&work->making);
    queues->count = VX_GPU_BESIDE_STREAMS;
    for (i32 i = 0; work->begun && i < queues->count; i++) {
        queues->of[i] =
            (struct vx_gpu_queue){.set = lane->queue.set, .stream = lane->beside[i]};
        VX_TRY(vx_gpu_stream_after(lane->gpu, lane->beside[i],
                                   lane->marks[VX_GPU_MARK_GEOMETRY], work->why));
    }
    return VX_OK;
}

/* The main stream goes on behind the maps, if any are made, and so does the first one beside,
 * which is behind its own. */
static vx_status maps_await(const struct work *work)
{
    const struct vx_gpu_lane *lane = work->lane;
    for (i32 i = 0; work->making.makes && i < VX_GPU_BESIDE_STREAMS; i++) {
        VX_TRY(vx_gpu_event_record(lane->gpu, lane->come[i], lane->beside[i], work->why));
        VX_TRY(
            vx_gpu_stream_after(lane->gpu, lane->queue.stream, lane->come[i], work->why));
        if (i)
            VX_TRY(vx_gpu_stream_after(lane->gpu, lane->beside[0], lane->come[i],
                                       work->why));
    }
    return VX_OK;
}

static vx_status run_beside(struct work *work)
{
    struct vx_gpu_lane *lane = work->lane;
    struct vx_gpu_making *making = &work->making;
    if (work->round->members_count > 1) VX_TRY(vx_gpu_making_rows(making));
    VX_TRY(vx_gpu_lane_mark(lane, VX_GPU_MARK_GEOMETRY, work->why));
    VX_TRY(beside_begin(work));
    VX_TRY(vx_gpu_making_maps(making));
    VX_TRY(feats_copy(work));
    VX_TRY(maps_await(work));
    VX_TRY(vx_gpu_making_orders(making));
    return vx_gpu_lane_mark(lane, VX_GPU_MARK_MAPS, work->why);
}

/* --- features ahead of the geometry --- */

/* Behind the coordinates, which were sent before. */
static vx_status feats_send(const struct work *work)
{
    const struct vx_gpu_lane *lane = work->lane;
    const struct vx_gpu_queue ahead = {.set = lane->queue.set, .stream = lane->beside[0]};
    VX_TRY(vx_gpu_forward_send(&work->round->forward, &ahead, work->why));
    return vx_gpu_event_record(lane->gpu, lane->come[0], ahead.stream, work->why);
}

/* Of one set.  If all geometries are known there is nothing to send features ahead of, and no reason
 * to wait for another stream. */
static vx_status run_ahead(struct work *work)
{
    struct vx_gpu_lane *lane = work->lane;
    const bool ahead = vx_gpu_making_builds(&work->making);
    if (ahead) VX_TRY(feats_send(work));
    VX_TRY(vx_gpu_making_maps(&work->making));
    VX_TRY(vx_gpu_making_orders(&work->making));
    VX_TRY(vx_gpu_lane_mark(lane, VX_GPU_MARK_GEOMETRY, work->why));
    VX_TRY(beside_begin(work));
    if (ahead)
        VX_TRY(
            vx_gpu_stream_after(lane->gpu, lane->queue.stream, lane->come[0], work->why));
    VX_TRY(ahead ? feats_take(work) : feats_copy(work));
    return vx_gpu_lane_mark(lane, VX_GPU_MARK_MAPS, work->why);
}

/* What no layer has waited for.  The outputs wait for it where they need it and the host has
 * not: waiting costs a stream 15 to 20 us, even for what has happened long ago. */
static vx_status end_beside(struct work *work)
{
    struct vx_gpu_lane *lane = work->lane;
    struct vx_gpu_making *making = &work->making;
    work->round->ends_beside = work->begun;
    if (!work->begun) return VX_OK;
    making->queue = making->maps_on.of[0];
    if (!making->ordered_late && making->plan->ordered_count) /* it is checked there */
        VX_TRY(vx_gpu_stream_after(lane->gpu, lane->beside[0],
                                   lane->marks[VX_GPU_MARK_MAPS], work->why));
    VX_TRY(vx_gpu_making_end(making));
    VX_TRY(vx_gpu_event_record(lane->gpu, lane->made, lane->beside[0], work->why));
    if (!making->ordered_late || vx_gpu_round_wants_places(work->round)) return VX_OK;
    return vx_gpu_stream_after(lane->gpu, lane->queue.stream, lane->made, work->why);
}

vx_status vx_gpu_round_work(struct vx_gpu_round *round, struct vx_why *why)
{
    struct work work = {.round = round, .lane = round->lane, .why = why};
    VX_TRY(vx_gpu_making_begin(&work.making, round, why));
    if (!work.making.places->beside)
        VX_TRY(run_in_line(&work));
    else
        VX_TRY(work.making.plan->levels ? run_beside(&work) : run_ahead(&work));
    VX_TRY(vx_gpu_forward_layers(&round->forward, work.making.stage, why));
    return end_beside(&work);
}
