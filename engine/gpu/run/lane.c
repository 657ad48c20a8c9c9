/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/lane.h"

#include "engine/base/limits.h"
#include "engine/gpu/conv/blas.h"
#include "kernels/03_brick_index.h"
#include "kernels/28_to_dense_device.h"

#include <string.h>

_Static_assert(VX_GPU_PAIRS_MAX >= VX_LAYERS_MAX, "all maps of a single member");
_Static_assert(sizeof(struct vx_gpu_piece_result) % sizeof(u64) == 0, "pairs follow");

/* Offsets in the lane's device memory and host memory, behind the descriptions. */
struct layout {
    size_t results, differs, faults, counts, dense, bytes;
};

static size_t take(size_t *bytes, size_t each)
{
    size_t offset = *bytes;
    *bytes += vx_round_up(VX_BATCH_ITEMS_MAX * each, 256);
    return offset;
}

static struct layout layout_make(void)
{
    struct layout layout = {.bytes = VX_GPU_UPLOAD_BYTES};
    layout.results = take(&layout.bytes, sizeof(struct vx_gpu_piece_result));
    layout.bytes += VX_GPU_PAIRS_MAX * sizeof(u64);
    layout.differs = take(&layout.bytes, sizeof(u32));
    layout.faults = take(&layout.bytes, 2 * sizeof(u32));
    layout.counts = take(&layout.bytes, VX_SETS_MAX * sizeof(struct vx_brick_counts));
    layout.dense =
        take(&layout.bytes, VX_GPU_DENSE_EACH_MAX * (sizeof(struct vx_dense_job) +
                                                     sizeof(struct vx_dense_found)));
    return layout;
}

static vx_status open_memory(struct vx_gpu_lane *lane, struct vx_why *why)
{
    struct layout layout = layout_make();
    VX_TRY(vx_gpu_alloc(lane->gpu, layout.bytes, why, &lane->device));
    VX_TRY(vx_gpu_host_alloc(lane->gpu, layout.bytes, why, &lane->host));
    u8 *device = lane->device, *host = lane->host;
    lane->answers = (void *)(host + layout.results);
    const bool reached = vx_gpu_host_reach(lane->gpu, host, layout.bytes).bytes > 0;
    lane->upload = (struct vx_gpu_upload){host, device, VX_GPU_UPLOAD_BYTES, 0, reached};
    lane->results = reached ? lane->answers : (void *)(device + layout.results);
    lane->differs = (void *)(device + layout.differs);
    lane->faults = (void *)(device + layout.faults);
    lane->counts = host + layout.counts;
    lane->dense_host = host + layout.dense;
    lane->dense_device = device + layout.dense;
    return VX_OK;
}

static vx_status open_streams(struct vx_gpu_lane *lane, bool urgent, struct vx_why *why)
{
    struct vx_gpu_lane_streams *streams = &lane->streams[urgent];
    vx_status (*const open)(struct vx_gpu *, struct vx_why *, struct vx_gpu_stream **) =
        urgent ? vx_gpu_stream_open_urgent : vx_gpu_stream_open;
    VX_TRY(open(lane->gpu, why, &streams->main));
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++)
        VX_TRY(open(lane->gpu, why, &streams->beside[i]));
    return VX_OK;
}

static void close_streams(struct vx_gpu_lane *lane, struct vx_gpu_lane_streams *streams)
{
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++)
        if (streams->beside[i]) vx_gpu_stream_close(lane->gpu, &streams->beside[i]);
    if (streams->main) vx_gpu_stream_close(lane->gpu, &streams->main);
}

void vx_gpu_lane_hurry(struct vx_gpu_lane *lane, bool urgent)
{
    const struct vx_gpu_lane_streams *streams = &lane->streams[urgent];
    lane->queue.stream = streams->main;
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++) lane->beside[i] = streams->beside[i];
}

static vx_status open_parts(struct vx_gpu_lane *lane, struct vx_why *why)
{
    for (int urgent = 0; urgent < 2; urgent++) VX_TRY(open_streams(lane, urgent, why));
    vx_gpu_lane_hurry(lane, false);
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++)
        VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->come[i]));
    VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->made));
    for (int i = 0; i < VX_GPU_MARKS_COUNT; i++)
        VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->marks[i]));
    for (int i = 1; i < VX_SETS_MAX; i++)
        for (int end = 0; end < 2; end++)
            VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->stages[i][end]));
    VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->sized));
    VX_TRY(vx_gpu_event_open(lane->gpu, why, &lane->told));
    return open_memory(lane, why);
}

vx_status vx_gpu_lane_open(struct vx_gpu *gpu, struct vx_kernel_set *set,
                           struct vx_why *why, struct vx_gpu_lane *lane)
{
    u32 bit = lane->bit;
    *lane = (struct vx_gpu_lane){.bit = bit, .gpu = gpu, .queue = {.set = set}};
    vx_status status = open_parts(lane, why);
    if (status.fault) vx_gpu_lane_close(lane);
    return status;
}

void vx_gpu_lane_close(struct vx_gpu_lane *lane)
{
    if (!lane->gpu) return;
    vx_blas_gpu_close(&lane->queue.blas);
    if (lane->host) vx_gpu_host_free(lane->gpu, &lane->host);
    if (lane->device) vx_gpu_free(lane->gpu, &lane->device);
    for (int i = 0; i < VX_GPU_MARKS_COUNT; i++)
        if (lane->marks[i]) vx_gpu_event_close(lane->gpu, &lane->marks[i]);
    for (int i = 0; i < 2 * VX_SETS_MAX; i++) {
        struct vx_gpu_event **event = &lane->stages[i / 2][i % 2];
        if (*event) vx_gpu_event_close(lane->gpu, event);
    }
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++)
        if (lane->come[i]) vx_gpu_event_close(lane->gpu, &lane->come[i]);
    if (lane->made) vx_gpu_event_close(lane->gpu, &lane->made);
    if (lane->sized) vx_gpu_event_close(lane->gpu, &lane->sized);
    if (lane->told) vx_gpu_event_close(lane->gpu, &lane->told);
    for (int i = 0; i < 2; i++) close_streams(lane, &lane->streams[i]);
    memset(lane, 0, sizeof *lane);
}

vx_status vx_gpu_lane_mark(struct vx_gpu_lane *lane, enum vx_gpu_mark mark,
                           struct vx_why *why)
{
    return vx_gpu_event_record(lane->gpu, lane->marks[mark], lane->queue.stream, why);
}

vx_status vx_gpu_lane_elapsed(struct vx_gpu_lane *lane, enum vx_gpu_mark begin,
                              enum vx_gpu_mark end, struct vx_why *why, i64 *ns)
{
    f64 elapsed;
    VX_TRY(vx_gpu_event_elapsed(lane->gpu, lane->marks[begin], lane->marks[end], why,
                                &elapsed));
    *ns = (i64)elapsed;
    return VX_OK;
}

vx_status vx_gpu_lane_answer(struct vx_gpu_lane *lane, struct vx_gpu_stream *stream,
                             size_t bytes, struct vx_why *why)
{
    const struct vx_gpu_copy copy = {lane->answers, lane->results, bytes};
    if (lane->results == lane->answers) return VX_OK;
    return vx_gpu_copy_out(lane->gpu, stream, &copy, why);
}

vx_status vx_gpu_lane_wait(struct vx_gpu_lane *lane, struct vx_why *why)
{
    for (int i = 0; i < VX_GPU_BESIDE_STREAMS; i++)
        VX_TRY(vx_gpu_stream_wait(lane->gpu, lane->beside[i], why));
    return vx_gpu_stream_wait(lane->gpu, lane->queue.stream, why);
}
