/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"

#include <string.h>

/* Operators that read the rows of one set and write those of another, through a map. */

i32 vx_gather_list(const i32 *column, i64 n, i32 v, i32 *rows, i32 *offsets)
{
    i32 count = 0;
    for (i32 k = 0; k < v; k++) {
        i32 row = column[k * n];
        rows[count] = row;
        offsets[count] = k;
        count += row >= 0;
    }
    return count;
}

/* The offset whose rows are block w of a row: blocks have x fastest, offsets z. */
static i32 gather_offset(const i32 kernel[3], i32 w)
{
    i32 x = w % kernel[0];
    i32 y = w / kernel[0] % kernel[1];
    i32 z = w / kernel[0] / kernel[1];
    return (x * kernel[1] + y) * kernel[2] + z;
}

static void row_gather_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_row_gather_args *args = op->args;
    const size_t bytes = (size_t)args->c * sizeof *args->out;
    const i64 wide = (i64)args->v * args->c;
    const i64 stride = args->out_stride ? args->out_stride : wide;
    const i64 in_stride = args->in_stride ? args->in_stride : args->c;
    VX_ASSERT(stride >= wide && in_stride >= args->c);
    for (i32 w = 0; w < args->v; w++) {
        const i32 *nbr = args->nbr + gather_offset(args->kernel, w) * args->n;
        f32 *out = args->out + begin * stride + (i64)w * args->c;
        for (i64 i = begin; i < end; i++, out += stride) {
            if (nbr[i] >= 0)
                memcpy(out, args->in + nbr[i] * in_stride, bytes);
            else
                memset(out, 0, bytes);
        }
    }
    vx_rows_activate(
        op->loops, args->activation,
        &(struct vx_rows){args->out + begin * stride, end - begin, stride, (i32)wide});
}

void vx_cpu_row_gather(struct vx_cpu *cpu, const struct vx_row_gather_args *args)
{
    VX_ASSERT(args->v >= 1);
    VX_ASSERT(args->v <= VX_KERNEL_OFFSETS_MAX);
    VX_ASSERT(args->kernel[0] * args->kernel[1] * args->kernel[2] == args->v);
    VX_ASSERT(args->nbr || !args->n);
    vx_op_run(cpu, args->n, vx_piece_rows((i64)args->v * args->c), row_gather_task, args);
}

static void pool_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_pool_args *args = op->args;
    i32 rows[VX_KERNEL_OFFSETS_MAX], offsets[VX_KERNEL_OFFSETS_MAX];
    const i64 stride = args->out_stride ? args->out_stride : args->c;
    struct vx_gathered gathered = {.c = args->c,
                                   .rows = rows,
                                   .in = args->in,
                                   .stride = args->in_stride ? args->in_stride : args->c};
    VX_ASSERT(stride >= args->c && gathered.stride >= args->c);
    for (i64 i = begin; i < end; i++) {
        gathered.count = vx_gather_list(args->nbr + i, args->n, args->v, rows, offsets);
        op->loops->pool(args->mode, &gathered, args->out + i * stride);
    }
    vx_rows_activate(
        op->loops, args->activation,
        &(struct vx_rows){args->out + begin * stride, end - begin, stride, args->c});
}

void vx_cpu_pool(struct vx_cpu *cpu, const struct vx_pool_args *args)
{
    VX_ASSERT(args->v >= 1);
    VX_ASSERT(args->v <= VX_KERNEL_OFFSETS_MAX);
    VX_ASSERT(args->mode >= VX_POOL_MAX);
    VX_ASSERT(args->mode <= VX_POOL_SUM);
    VX_ASSERT(args->nbr || !args->n);
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), pool_task, args);
}
