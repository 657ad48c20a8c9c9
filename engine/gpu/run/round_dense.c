/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_dense.h"

#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/model/model_dense.h"
#include "engine/gpu/run/round_geometry.h"
#include "engine/plan/dense.h"
#include "kernels/28_to_dense_device.h"

#include <string.h>

/* Voxels of a thread, and blocks for each processor: a launch of a few microseconds. */
#define THREAD_VOXELS    4
#define PROCESSOR_BLOCKS 4

/* The questions about all members, `each` about one: its samples, then its outputs. */
struct asked {
    struct vx_dense_job *jobs;
    struct vx_dense_found *found;
    i32 count, each;
};

/* In memory of the lane, the host's or the device's. */
static struct asked asked_in(const struct vx_gpu_round *round, u8 *memory)
{
    struct asked asked = {.jobs = (void *)memory};
    asked.each = 1 + round->model->network->outputs_count;
    asked.count = round->members_count * asked.each;
    asked.found = (void *)(asked.jobs + asked.count);
    return asked;
}

static bool wants(const struct vx_gpu_round *round, i32 index, i32 output)
{
    const struct vx_item *item = round->members[index].item;
    if (item->status.fault || !(item->asks >> output & 1)) return false;
    return vx_plan_is_dense(round->model->plan, output);
}

static const struct vx_layer *layer_of(const struct vx_gpu_round *round, i32 output)
{
    const struct vx_network *network = round->model->network;
    return &network->layers[network->outputs[output].layer];
}

/* The first row of a member on a set, in the round. */
static i64 row_of(const struct vx_gpu_round *round, i32 index, i32 set)
{
    i64 row = 0;
    for (i32 i = 0; i < index; i++)
        row += round->rows[(i64)i * round->model->plan->sets_count + set];
    return row;
}

/* Whether the voxels of a member lie in the shape of an output. */
static struct vx_dense_job job_make(const struct vx_gpu_round *round, i32 index,
                                    i32 output)
{
    const struct vx_layer *layer = layer_of(round, output);
    const i32 set = layer->set;
    struct vx_dense_job job = {
        .n = round->rows[(i64)index * round->model->plan->sets_count + set],
        .keys = round->forward.keys[set] + row_of(round, index, set)};
    memcpy(job.shape, layer->shape, sizeof job.shape);
    return job;
}

/* Asks about a member; returns the most voxels of a question, 0: there is none. */
static i64 member_ask(const struct vx_gpu_round *round, i32 index,
                      const struct asked *asked)
{
    struct vx_dense_job *jobs = asked->jobs + (i64)index * asked->each;
    struct vx_dense_found *found = asked->found + (i64)index * asked->each;
    i32 columns;
    i64 most = 0;
    for (i32 i = 0; i < asked->each; i++) {
        jobs[i] = (struct vx_dense_job){0};
        found[i] = vx_dense_nothing();
        if (!i || !wants(round, index, i - 1)) continue;
        jobs[i] = job_make(round, index, i - 1);
        if (jobs[i].n > most) most = jobs[i].n;
        if (jobs[0].n) continue;
        jobs[0].n = round->members[index].item->voxels;
        jobs[0].coords = vx_gpu_round_coords(round, index, &columns);
        if (jobs[0].n > most) most = jobs[0].n;
        if (columns == 4) continue;
        jobs[0].coords = NULL; /* without samples, all voxels are of sample 0 */
        jobs[0].n = 0;
        found[0].samples = 1;
    }
    return most;
}

vx_status vx_gpu_round_dense_launch(struct vx_gpu_round *round,
                                    const struct vx_gpu_queue *queue, struct vx_why *why)
{
    struct vx_gpu_lane *lane = round->lane;
    const struct asked host = asked_in(round, lane->dense_host),
                       device = asked_in(round, lane->dense_device);
    const size_t jobs = (size_t)host.count * sizeof *host.jobs;
    const size_t found = (size_t)host.count * sizeof *host.found;
    i64 most = 0;
    if (!vx_gpu_dense_bytes(round->model->plan)) return VX_OK;
    for (i32 i = 0; i < round->members_count; i++) {
        i64 mine = member_ask(round, i, &host);
        if (mine > most) most = mine;
    }
    if (!most) return VX_OK;
    VX_TRY(vx_gpu_copy_in(lane->gpu, queue->stream,
                          &(struct vx_gpu_copy){device.jobs, host.jobs, jobs + found},
                          why));
    const i64 part = THREAD_VOXELS * VX_DENSE_THREADS;
    const i64 blocks = (most + part - 1) / part;
    const i64 enough = (i64)vx_gpu_caps(lane->gpu)->processors * PROCESSOR_BLOCKS;
    const struct vx_dense_check_args args = {
        host.count, (u32)(blocks < enough ? blocks : enough), device.jobs, device.found};
    VX_TRY(vx_gpu_map_launch(queue, "dense_check", &args, why));
    return vx_gpu_copy_out(lane->gpu, queue->stream,
                           &(struct vx_gpu_copy){host.found, device.found, found}, why);
}

/* --- read --- */

/* The row of a voxel in the coordinates of the request; -1: the host cannot say. */
static i64 row_find(const struct vx_item *item, const i32 at[4])
{
    const i32 columns = item->coords_columns;
    if (!item->coords || item->coords_change || item->on_device & VX_ITEM_COORDS)
        return -1;
    for (i64 row = 0; row < item->voxels; row++)
        if (!memcmp(item->coords + row * columns, at + 4 - columns,
                    (size_t)columns * sizeof *at))
            return row;
    return -1;
}

static vx_status outside(const struct vx_gpu_round *round, i32 index, i32 output, u64 key)
{
    struct vx_item *item = round->members[index].item;
    struct vx_plan_voxel voxel = {.row = -1, .at = {vx_key_sample(key)}};
    for (int axis = 0; axis < 3; axis++) voxel.at[axis + 1] = vx_key_axis(key, axis);
    if (!layer_of(round, output)->set) voxel.row = row_find(item, voxel.at);
    return vx_plan_dense_outside(round->model->plan, output, &voxel, &item->why);
}

vx_status vx_gpu_round_dense_read(struct vx_gpu_round *round, i32 index)
{
    const struct asked asked = asked_in(round, round->lane->dense_host);
    const struct vx_dense_found *found = asked.found + (i64)index * asked.each;
    for (i32 o = 0; o < round->model->network->outputs_count; o++) {
        if (!wants(round, index, o)) continue;
        VX_TRY(vx_plan_check_samples(round->model->plan, o, found[0].samples,
                                     &round->members[index].item->why));
        if (found[1 + o].key != VX_KEY_EMPTY)
            return outside(round, index, o, found[1 + o].key);
        round->members[index].item->rows[o] = found[0].samples;
    }
    return VX_OK;
}
