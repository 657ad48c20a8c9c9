/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_dense.h"

#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/model/model_parts.h"
#include "engine/gpu/model/sizes.h"
#include "engine/plan/dense.h"
#include "kernels/28_to_dense_device.h"

#include <string.h>

/* What is staged of an output at a time: the rows' numbers by voxel, then the tensor. */
struct staging {
    const struct vx_layer *layer;
    enum vx_dtype dtype;
    i32 samples;
    size_t cells_bytes, sample_bytes; /* of all cells, and of the tensor of one sample */
};

static struct staging staging_of(const struct vx_plan *plan, i32 output)
{
    const struct vx_network *network = plan->graph->network;
    const struct vx_network_output *it = &network->outputs[output];
    struct staging made = {.layer = &network->layers[it->layer], .dtype = it->dtype};
    const size_t plane = (size_t)vx_dense_plane(made.layer->shape);
    made.sample_bytes = plane * (size_t)made.layer->channels * vx_dtype_bytes(it->dtype);
    const size_t fit = VX_GPU_DENSE_BYTES / (plane * sizeof(i32) + made.sample_bytes);
    made.samples = (i32)(fit < VX_SAMPLE_MAX + 1 ? fit : VX_SAMPLE_MAX + 1);
    if (!made.samples) made.samples = 1;
    made.cells_bytes = (size_t)made.samples * plane * sizeof(i32);
    return made;
}

size_t vx_gpu_dense_bytes(const struct vx_plan *plan)
{
    size_t most = 0;
    for (i32 o = 0; o < plan->graph->network->outputs_count; o++) {
        if (!vx_plan_is_dense(plan, o)) continue;
        const struct staging staging = staging_of(plan, o);
        size_t bytes = vx_add_line(vx_add_line(0, staging.cells_bytes),
                                   (size_t)staging.samples * staging.sample_bytes);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* An output of an item. */
struct dense {
    const struct vx_gpu_forward *forward;
    struct staging staging;
    i32 output, item;
    i64 row, rows; /* of the item in the round */
};

/* Writes the rows' numbers by voxel, of `samples` samples from `first` on. */
static vx_status cells_write(const struct dense *it, i32 first, i32 samples,
                             struct vx_why *why)
{
    const struct vx_gpu_forward *forward = it->forward;
    const struct vx_layer *layer = it->staging.layer;
    void *cells = forward->block + forward->places->workspace;
    struct vx_dense_cells_args args = {.n = it->rows,
                                       .keys = forward->keys[layer->set] + it->row,
                                       .first = first,
                                       .samples = samples,
                                       .cells = cells};
    memcpy(args.shape, layer->shape, sizeof args.shape);
    VX_TRY(vx_gpu_fill(
        forward->gpu, forward->queue.stream,
        &(struct vx_gpu_words){
            cells, ~0u, (size_t)(samples * vx_dense_plane(layer->shape)) * sizeof(i32)},
        why));
    return vx_gpu_map_launch(&forward->queue, "dense_cells", &args, why);
}

/* Memory of a client on the device is written in place. */
static vx_status samples_write(const struct dense *it, i32 first, i32 samples,
                               struct vx_why *why)
{
    const struct vx_gpu_forward *forward = it->forward;
    const struct vx_plan *plan = forward->choices->plan;
    const struct staging *staging = &it->staging;
    const struct vx_item *item = forward->items[it->item];
    const i32 tensor = plan->outputs[it->output], cp = vx_gpu_padded(forward, tensor);
    const size_t row_bytes = (size_t)cp * (size_t)plan->options.element_bytes;
    u8 *cells = forward->block + forward->places->workspace;
    u8 *staged = cells + vx_add_line(0, staging->cells_bytes);
    const bool there = item->on_device & VX_ITEM_OUTPUT(it->output);
    u8 *to = (u8 *)item->outputs[it->output] + (size_t)first * staging->sample_bytes;
    struct vx_to_dense_device_args args = {
        .samples = samples,
        .c = staging->layer->channels,
        .cp = cp,
        .number = vx_gpu_number_of(staging->dtype),
        .cells = (const void *)cells,
        .in = (const u8 *)vx_gpu_tensor(forward, tensor) + (size_t)it->row * row_bytes,
        .out = there ? to : staged,
    };
    memcpy(args.shape, staging->layer->shape, sizeof args.shape);
    VX_TRY(cells_write(it, first, samples, why));
    VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_TO_DENSE, &args, why));
    if (there) return VX_OK;
    return vx_gpu_copy_out(
        forward->gpu, forward->queue.stream,
        &(struct vx_gpu_copy){to, staged, (size_t)samples * staging->sample_bytes}, why);
}

/* The stream makes what comes next in the same memory when the copy has left. */
static vx_status item_write(const struct dense *it, struct vx_why *why)
{
    const struct vx_item *item = it->forward->items[it->item];
    const i32 count = (i32)item->rows[it->output], most = it->staging.samples;
    VX_ASSERT(item->asks >> it->output & 1);
    for (i32 first = 0; first < count; first += most) {
        i32 left = count - first;
        VX_TRY(samples_write(it, first, left < most ? left : most, why));
    }
    return VX_OK;
}

vx_status vx_gpu_dense_output(const struct vx_gpu_forward *forward, i32 output,
                              struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    struct dense it = {
        .forward = forward, .staging = staging_of(plan, output), .output = output};
    const i32 set = it.staging.layer->set;
    for (it.item = 0; it.item < forward->items_count; it.item++) {
        const struct vx_item *item = forward->items[it.item];
        it.rows = forward->item_rows[(i64)it.item * plan->sets_count + set];
        if (item->outputs[output] && !item->status.fault) VX_TRY(item_write(&it, why));
        it.row += it.rows;
    }
    return VX_OK;
}

i32 vx_gpu_dense_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {"dense_check", "dense_cells"};
    i32 count = vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
    VX_ASSERT(count < room);
    wanted[count++] = vx_gpu_pass_wanted(VX_GPU_TO_DENSE, type);
    return count;
}
