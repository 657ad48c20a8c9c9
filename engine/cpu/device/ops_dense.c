/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

/* Channels of a row that are converted together. */
#define PART_CHANNELS 256

static size_t number_bytes(const struct vx_to_dense_args *args)
{
    return args->type == VX_NUMBER_F32 ? sizeof(f32) : sizeof(u16);
}

/* Numbers of one channel of one sample. */
static i64 plane_of(const struct vx_to_dense_args *args)
{
    return (i64)args->shape[0] * args->shape[1] * args->shape[2];
}

/* All types have zero bytes for 0. */
static void zero_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_to_dense_args *args = op->args;
    const size_t bytes = number_bytes(args);
    memset((u8 *)args->out + (size_t)begin * bytes, 0, (size_t)(end - begin) * bytes);
}

static i64 place_of(const struct vx_to_dense_args *args, u64 key)
{
    i64 place = (i64)vx_key_sample(key) * args->c;
    VX_ASSERT(vx_key_sample(key) < args->samples);
    for (int axis = 0; axis < 3; axis++) {
        i32 at = vx_key_axis(key, axis);
        VX_ASSERT(at >= 0);
        VX_ASSERT(at < args->shape[axis]);
        place = place * args->shape[axis] + at;
    }
    return place;
}

static void row_scatter(const struct vx_op *op, const f32 *row, i64 place)
{
    const struct vx_to_dense_args *args = op->args;
    const i64 plane = plane_of(args);
    u16 halves[PART_CHANNELS];
    if (args->type == VX_NUMBER_F32) {
        f32 *out = (f32 *)args->out + place;
        for (i32 c = 0; c < args->c; c++) out[c * plane] = row[c];
        return;
    }
    for (i32 first = 0; first < args->c; first += PART_CHANNELS) {
        i32 count = args->c - first < PART_CHANNELS ? args->c - first : PART_CHANNELS;
        u16 *out = (u16 *)args->out + place + first * plane;
        if (args->type == VX_NUMBER_F16)
            op->loops->f32_to_f16(row + first, halves, count);
        else
            op->loops->f32_to_bf16(row + first, halves, count);
        for (i32 c = 0; c < count; c++) out[c * plane] = halves[c];
    }
}

/* Voxels ascend, so that a thread writes to places of its own most of the time. */
static void scatter_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_to_dense_args *args = op->args;
    for (i64 i = begin; i < end; i++)
        row_scatter(op, args->in + (i64)args->rows[i] * args->c,
                    place_of(args, args->keys[i]));
}

void vx_cpu_to_dense(struct vx_cpu *cpu, const struct vx_to_dense_args *args)
{
    VX_ASSERT(args->c >= 1);
    VX_ASSERT(args->c <= VX_CHANNELS_MAX);
    VX_ASSERT(args->type >= VX_NUMBER_F32);
    VX_ASSERT(args->type <= VX_NUMBER_BF16);
    vx_op_run(cpu, args->samples * (i64)args->c * plane_of(args), VX_PIECE_ELEMENTS,
              zero_task, args);
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), scatter_task, args);
}
