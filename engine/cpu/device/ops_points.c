/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

/* Operators between points and the voxels that they lie in. */

/* --- voxelize --- */

struct voxelize {
    struct vx_cpu *cpu;
    const struct vx_voxelize_args *args;
};

/* The voxel of the point at a place of the order. */
static i32 voxel_at(const struct vx_voxelize_args *args, i64 place)
{
    return args->voxels[args->order[place]];
}

/* The first place from `place` on, or `end`, that belongs to another voxel. */
static i64 voxel_end(const struct vx_voxelize_args *args, i64 place, i64 end)
{
    const i32 voxel = voxel_at(args, place);
    while (place < end && voxel_at(args, place) == voxel) place++;
    return place;
}

static void voxel_mean(const struct voxelize *voxelize, f64 *sums, i64 begin, i64 end)
{
    const struct vx_voxelize_args *args = voxelize->args;
    const struct vx_columns columns = {
        .kind = VX_COLUMN_SUM,
        .c = args->c,
        .count = end - begin,
        .rows = args->order + begin,
        .in = args->in,
    };
    f32 *out = args->out + (i64)voxel_at(args, begin) * args->c;
    voxelize->cpu->loops->columns(&columns, sums);
    for (i32 e = 0; e < args->c; e++) out[e] = (f32)(sums[e] / (f64)columns.count);
}

/* The voxels that begin in [begin, end) of the order; the last may end behind it. */
static void voxelize_task(void *context, i32 worker, i64 begin, i64 end)
{
    const struct voxelize *voxelize = context;
    const struct vx_voxelize_args *args = voxelize->args;
    f64 *sums = voxelize->cpu->works[worker].sums;
    i64 place = begin;
    if (begin && voxel_at(args, begin) == voxel_at(args, begin - 1))
        place = voxel_end(args, begin, end);
    while (place < end) {
        i64 next = voxel_end(args, place, args->n);
        if (voxel_at(args, place) >= 0) voxel_mean(voxelize, sums, place, next);
        place = next;
    }
}

static void zero_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_voxelize_args *args = op->args;
    memset(args->out + begin, 0, (size_t)(end - begin) * sizeof *args->out);
}

void vx_cpu_voxelize(struct vx_cpu *cpu, const struct vx_voxelize_args *args)
{
    struct voxelize voxelize = {cpu, args};
    VX_ASSERT(args->c >= 1);
    VX_ASSERT(args->c <= VX_CHANNELS_MAX);
    vx_op_run(cpu, args->m * args->c, VX_PIECE_ELEMENTS, zero_task, args);
    vx_pool_spread(cpu->pool, &(struct vx_pool_job){args->n, vx_piece_rows(args->c),
                                                    voxelize_task, &voxelize});
}

/* --- devoxelize --- */

/* How near a coordinate is to the two ends of its cell, as parts of 1. */
static void shares_of(i32 p, i32 stride, f32 shares[2])
{
    i32 in_cell = p % stride;
    if (in_cell < 0) in_cell += stride;
    shares[0] = (f32)(stride - in_cell) / (f32)stride;
    shares[1] = (f32)in_cell / (f32)stride;
}

/* Lists the rows at the corners of the i-th key, with their weights; returns how many.  A
 * weight of 0 is left out, so that it does not make NaN of a row that is infinite. */
static i32 corners_list(const struct vx_devoxelize_args *args, i64 i, i32 *rows,
                        f32 *weights)
{
    f32 shares[3][2], sum = 0;
    i32 count = 0;
    for (int axis = 0; axis < 3; axis++)
        shares_of(vx_key_axis(args->keys[i], axis), args->stride[axis], shares[axis]);
    for (int k = 0; k < VX_CORNERS; k++) {
        f32 weight = shares[0][k >> 2] * shares[1][k >> 1 & 1] * shares[2][k & 1];
        rows[count] = args->voxels[k * args->n + args->rows[i]];
        weights[count] = weight;
        if (rows[count] < 0 || weight == 0) continue;
        sum += weight;
        count++;
    }
    sum += (f32)VX_CORNERS_EPS;
    for (i32 k = 0; k < count; k++) weights[k] /= sum;
    return count;
}

static void devoxelize_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_devoxelize_args *args = op->args;
    i32 rows[VX_CORNERS];
    f32 weights[VX_CORNERS];
    struct vx_gathered gathered = {
        .c = args->c, .rows = rows, .in = args->in, .stride = args->c, .shares = weights};
    for (i64 i = begin; i < end; i++) {
        f32 *out = args->out + (i64)args->rows[i] * args->c;
        gathered.count = corners_list(args, i, rows, weights);
        op->loops->blend(&gathered, out);
        op->loops->activate(args->activation, out, out, args->c);
    }
}

void vx_cpu_devoxelize(struct vx_cpu *cpu, const struct vx_devoxelize_args *args)
{
    VX_ASSERT(args->c >= 1);
    VX_ASSERT(args->c <= VX_CHANNELS_MAX);
    for (int axis = 0; axis < 3; axis++) VX_ASSERT(args->stride[axis] >= 1);
    VX_ASSERT(args->voxels || !args->n);
    vx_op_run(cpu, args->n, vx_piece_rows(VX_CORNERS * (i64)args->c), devoxelize_task,
              args);
}
