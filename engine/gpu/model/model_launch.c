/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_launch.h"

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_dense.h"
#include "engine/gpu/model/model_parts.h"
#include "engine/plan/dense.h"
#include "kernels/14_rows.h"

vx_status vx_gpu_item_in(const struct vx_gpu_queue *queue, bool on_device,
                         const struct vx_gpu_copy *copy, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    if (on_device) return vx_gpu_copy_within(gpu, queue->stream, copy, why);
    return vx_gpu_copy_in(gpu, queue->stream, copy, why);
}

vx_status vx_gpu_item_out(const struct vx_gpu_queue *queue, bool on_device,
                          const struct vx_gpu_copy *copy, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    if (on_device) return vx_gpu_copy_within(gpu, queue->stream, copy, why);
    return vx_gpu_copy_out(gpu, queue->stream, copy, why);
}

/* Adjacent items with features of one type, which are converted together. */
struct run {
    i32 first, count; /* items */
    i64 row, n;       /* first row in the round, and number of rows */
    enum vx_dtype dtype;
};

/* Moves to the next run, or from a zeroed run to the first one; false = there is none. */
static bool run_next(const struct vx_gpu_forward *forward, struct run *run)
{
    run->first += run->count;
    run->row += run->n;
    run->count = 0;
    run->n = 0;
    if (run->first == forward->items_count) return false;
    run->dtype = forward->items[run->first]->feats_dtype;
    for (i32 i = run->first; i < forward->items_count; i++) {
        if (forward->items[i]->feats_dtype != run->dtype) break;
        run->n += forward->items[i]->voxels;
        run->count++;
    }
    return true;
}

/* Whether the rows of the round's only item are read or written where they lie. */
static bool rows_direct(const struct vx_gpu_forward *forward, u32 part, const void *at,
                        const struct vx_rows_args *args)
{
    const size_t number = args->number == VX_NUMBER_F32 ? sizeof(f32) : sizeof(u16);
    const size_t row = (size_t)args->c * number;
    return forward->items_count == 1 && args->n <= vx_gpu_direct_rows(row) &&
           (u64)(uintptr_t)at % number == 0 &&
           vx_gpu_direct(forward->host, forward->items[0]->on_device & part, at,
                         (size_t)args->n * row);
}

/* Where a run is staged: where it would begin if all features had the widest type, so that runs do
 * not overlap. */
static u8 *run_staged(const struct vx_gpu_forward *forward, const struct run *run)
{
    u8 *staged = vx_gpu_tensor(forward, forward->choices->plan->staged_feats);
    return staged + (size_t)run->row * (size_t)vx_gpu_channels(forward, 0) * sizeof(f32);
}

/* Whether the features of a run are read where they lie, and not staged. */
static bool run_direct(const struct vx_gpu_forward *forward, const struct run *run)
{
    const struct vx_rows_args args = {.n = run->n,
                                      .c = vx_gpu_channels(forward, 0),
                                      .number = vx_gpu_number_of(run->dtype)};
    return rows_direct(forward, VX_ITEM_FEATS, forward->items[run->first]->feats, &args);
}

/* What becomes rows of the input.  Row numbers count from the first row of the round, so staged rows
 * are read from where that row would be. */
static struct vx_rows_args run_args(const struct vx_gpu_forward *forward,
                                    const struct run *run)
{
    const i32 c = vx_gpu_channels(forward, 0), cp = vx_gpu_padded(forward, 0);
    const size_t first = (size_t)run->row;
    const size_t row_bytes = (size_t)c * vx_dtype_bytes(run->dtype);
    const size_t tensor_row =
        (size_t)cp * (size_t)forward->choices->plan->options.element_bytes;
    const void *lies = forward->items[run->first]->feats;
    u8 *tensor = vx_gpu_tensor(forward, 0);
    return (struct vx_rows_args){
        .n = run->n,
        .c = c,
        .cp = cp,
        .number = vx_gpu_number_of(run->dtype),
        .rows = forward->rows + run->row,
        .in = run_direct(forward, run) ? lies
                                       : run_staged(forward, run) - first * row_bytes,
        .out = tensor + first * tensor_row,
    };
}

static vx_status run_send(const struct vx_gpu_forward *forward, const struct run *run,
                          const struct vx_gpu_queue *queue, struct vx_why *why)
{
    const size_t row_bytes =
        (size_t)vx_gpu_channels(forward, 0) * vx_dtype_bytes(run->dtype);
    u8 *staged = run_staged(forward, run);
    if (run_direct(forward, run)) return VX_OK;
    for (i32 i = run->first; i < run->first + run->count; i++) {
        const struct vx_item *item = forward->items[i];
        const size_t bytes = (size_t)item->voxels * row_bytes;
        VX_TRY(vx_gpu_item_in(queue, item->on_device & VX_ITEM_FEATS,
                              &(struct vx_gpu_copy){staged, item->feats, bytes}, why));
        staged += bytes;
    }
    return VX_OK;
}

vx_status vx_gpu_forward_send(const struct vx_gpu_forward *forward,
                              const struct vx_gpu_queue *queue, struct vx_why *why)
{
    struct run run = {0};
    if (!forward->items[0]->feats) return VX_OK;
    while (run_next(forward, &run)) VX_TRY(run_send(forward, &run, queue, why));
    return VX_OK;
}

static vx_status feats_zero(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    const size_t row_bytes = (size_t)vx_gpu_padded(forward, 0) *
                             (size_t)forward->choices->plan->options.element_bytes;
    VX_ASSERT(forward->items_count == 1);
    return vx_gpu_fill(
        forward->gpu, forward->queue.stream,
        &(struct vx_gpu_words){vx_gpu_tensor(forward, 0), 0,
                               (size_t)forward->places->rows[0] * row_bytes},
        why);
}

vx_status vx_gpu_forward_feats(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    struct run run = {0};
    if (!forward->items[0]->feats) return feats_zero(forward, why);
    while (run_next(forward, &run)) {
        const struct vx_rows_args args = run_args(forward, &run);
        VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_ROWS_IN, &args, why));
    }
    return VX_OK;
}

static bool output_wanted(const struct vx_gpu_forward *forward, i32 output)
{
    for (i32 i = 0; i < forward->items_count; i++)
        if (forward->items[i]->outputs[output]) return true;
    return false;
}

/* The rows of an item on a set. */
static i64 item_rows(const struct vx_gpu_forward *forward, i32 item, i32 set)
{
    return forward->item_rows[(i64)item * forward->choices->plan->sets_count + set];
}

/* Where each row of the round goes: to its row of the request, or to its rank. */
static const i32 *output_rows(const struct vx_gpu_forward *forward, i32 output)
{
    const struct vx_network *network = forward->choices->plan->graph->network;
    i32 coords = network->outputs[output].coords;
    return coords < 0 ? forward->rows : forward->ranks[coords];
}

/* Copies an output, staged for all items one after the other, to those that want it. */
static vx_status output_copy(const struct vx_gpu_forward *forward, i32 output,
                             const u8 *staged, struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const i32 tensor = plan->outputs[output], set = plan->tensor_sets[tensor];
    const size_t row_bytes = (size_t)vx_gpu_channels(forward, tensor) *
                             vx_dtype_bytes(plan->graph->network->outputs[output].dtype);
    for (i32 i = 0; i < forward->items_count; i++) {
        const struct vx_item *item = forward->items[i];
        const size_t bytes = (size_t)item_rows(forward, i, set) * row_bytes;
        if (item->outputs[output] && bytes && !item->status.fault)
            VX_TRY(vx_gpu_item_out(
                &forward->queue, item->on_device & VX_ITEM_OUTPUT(output),
                &(struct vx_gpu_copy){item->outputs[output], staged, bytes}, why));
        staged += bytes;
    }
    return VX_OK;
}

/* Converts an output from the rows of the round to the rows of the requests, for all
 * items, then copies it to those that want it. */
static vx_status output_run(const struct vx_gpu_forward *forward, i32 output,
                            struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    enum vx_dtype dtype = plan->graph->network->outputs[output].dtype;
    i32 tensor = plan->outputs[output], c = vx_gpu_channels(forward, tensor);
    i32 set = plan->tensor_sets[tensor];
    struct vx_rows_args args = {
        .n = forward->places->rows[set],
        .c = c,
        .cp = vx_gpu_stride(forward, tensor),
        .number = dtype == VX_DTYPE_I32 ? 0 : vx_gpu_number_of(dtype),
        .rows = output_rows(forward, output),
        .in = vx_gpu_tensor(forward, tensor),
        .out = vx_gpu_tensor(forward, plan->staged_outputs[output]),
    };
    if (!args.n) return VX_OK;
    if (dtype == VX_DTYPE_I32) /* an argmax, which is as the outputs want it */
        return output_copy(forward, output, args.in, why);
    const struct vx_item *item = forward->items[0];
    const bool direct =
        item_rows(forward, 0, set) == args.n && !item->status.fault &&
        rows_direct(forward, VX_ITEM_OUTPUT(output), item->outputs[output], &args);
    if (direct) args.out = item->outputs[output];
    VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_ROWS_OUT, &args, why));
    return direct ? VX_OK : output_copy(forward, output, args.out, why);
}

/* The coordinates of a set with outputs. */
static vx_status coords_run(const struct vx_gpu_forward *forward, i32 coords,
                            struct vx_why *why)
{
    const struct vx_network *network = forward->choices->plan->graph->network;
    const i32 output = network->outputs_count + coords;
    for (i32 i = 0; i < forward->items_count; i++) {
        const struct vx_item *item = forward->items[i];
        size_t rows = (size_t)item_rows(forward, i, network->coords[coords].set);
        if (!item->outputs[output] || !rows || item->status.fault) continue;
        VX_TRY(vx_gpu_item_out(&forward->queue, item->on_device & VX_ITEM_OUTPUT(output),
                               &(struct vx_gpu_copy){item->outputs[output],
                                                     forward->coords[i][coords],
                                                     rows * 4 * sizeof(i32)},
                               why));
    }
    return VX_OK;
}

/* One output after the other, because they may be staged in the same memory. */
vx_status vx_gpu_forward_outputs(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_network *network = plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++) {
        if (!output_wanted(forward, i)) continue;
        VX_TRY((vx_plan_is_dense(plan, i) ? vx_gpu_dense_output : output_run)(forward, i,
                                                                              why));
    }
    for (i32 i = 0; i < network->coords_count; i++) VX_TRY(coords_run(forward, i, why));
    return VX_OK;
}
