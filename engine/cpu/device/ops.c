/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"

#include <string.h>

/* Elements converted at a time when neither side is F32. */
#define CONVERT_ELEMENTS 1024

i64 vx_piece_rows(i64 c)
{
    VX_ASSERT(c >= 1);
    return c < VX_PIECE_ELEMENTS ? VX_PIECE_ELEMENTS / c : 1;
}

void vx_op_run(struct vx_cpu *cpu, i64 count, i64 grain,
               void (*task)(void *context, i64 begin, i64 end), const void *args)
{
    VX_ASSERT(count >= 0);
    struct vx_op op = {cpu->loops, args};
    vx_cpu_spread(cpu, count, grain, task, &op);
}

static void activation_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_activation_args *args = op->args;
    op->loops->activate(args->activation, args->in + begin, args->out + begin,
                        end - begin);
}

void vx_cpu_activation(struct vx_cpu *cpu, const struct vx_activation_args *args)
{
    vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, activation_task, args);
}

void vx_rows_activate(const struct vx_loops *loops, enum vx_activation activation,
                      const struct vx_rows *rows)
{
    f32 *row = rows->first;
    if (rows->stride == rows->c) {
        loops->activate(activation, row, row, rows->count * rows->c);
        return;
    }
    if (activation == VX_ACTIVATION_NONE) return;
    for (i64 i = 0; i < rows->count; i++, row += rows->stride)
        loops->activate(activation, row, row, rows->c);
}

static i64 stride_or(i32 stride, i32 c)
{
    VX_ASSERT(!stride || stride >= c);
    return stride ? stride : c;
}

static void batch_norm_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_batch_norm_args *args = op->args;
    const i64 in = stride_or(args->in_stride, args->c);
    const i64 out = stride_or(args->out_stride, args->c);
    for (i64 i = begin; i < end; i++)
        op->loops->scale_shift(args->in + i * in, args->scale, args->shift,
                               args->out + i * out, args->c);
    vx_rows_activate(
        op->loops, args->activation,
        &(struct vx_rows){args->out + begin * out, end - begin, out, args->c});
}

void vx_cpu_batch_norm(struct vx_cpu *cpu, const struct vx_batch_norm_args *args)
{
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), batch_norm_task, args);
}

static void layer_norm_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_layer_norm_args *args = op->args;
    const struct vx_norm_row norm = {args->c, args->eps, args->weight, args->bias};
    const i64 in = stride_or(args->in_stride, args->c);
    const i64 out = stride_or(args->out_stride, args->c);
    for (i64 i = begin; i < end; i++)
        op->loops->layer_norm(&norm, args->in + i * in, args->out + i * out);
    vx_rows_activate(
        op->loops, args->activation,
        &(struct vx_rows){args->out + begin * out, end - begin, out, args->c});
}

void vx_cpu_layer_norm(struct vx_cpu *cpu, const struct vx_layer_norm_args *args)
{
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), layer_norm_task, args);
}

/* Add or mul, of elements that lie together. */
typedef void pair_loop(const f32 *a, const f32 *b, f32 *out, i64 count);

static void pair_elements(const struct vx_op *op, pair_loop *loop, i64 begin, i64 end)
{
    const struct vx_pair_args *args = op->args;
    f32 *out = args->out + begin;
    loop(args->a + begin, args->b + begin, out, end - begin);
    op->loops->activate(args->activation, out, out, end - begin);
}

static void pair_rows(const struct vx_op *op, pair_loop *loop, i64 begin, i64 end)
{
    const struct vx_pair_args *args = op->args;
    const i64 a = stride_or(args->a_stride, args->c),
              b = stride_or(args->b_stride, args->c);
    const i64 stride = stride_or(args->out_stride, args->c);
    for (i64 i = begin; i < end; i++)
        loop(args->a + i * a, args->b + i * b, args->out + i * stride, args->c);
    vx_rows_activate(
        op->loops, args->activation,
        &(struct vx_rows){args->out + begin * stride, end - begin, stride, args->c});
}

static void add_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    pair_elements(op, op->loops->add, begin, end);
}

static void add_rows_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    pair_rows(op, op->loops->add, begin, end);
}

static void mul_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    pair_elements(op, op->loops->mul, begin, end);
}

static void mul_rows_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    pair_rows(op, op->loops->mul, begin, end);
}

/* Rows that lie together are one run of elements, however few channels they have. */
static bool pair_is_run(const struct vx_pair_args *args)
{
    return stride_or(args->a_stride, args->c) == args->c &&
           stride_or(args->b_stride, args->c) == args->c &&
           stride_or(args->out_stride, args->c) == args->c;
}

void vx_cpu_add(struct vx_cpu *cpu, const struct vx_pair_args *args)
{
    if (pair_is_run(args))
        vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, add_task, args);
    else
        vx_op_run(cpu, args->n, vx_piece_rows(args->c), add_rows_task, args);
}

void vx_cpu_mul(struct vx_cpu *cpu, const struct vx_pair_args *args)
{
    if (pair_is_run(args))
        vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, mul_task, args);
    else
        vx_op_run(cpu, args->n, vx_piece_rows(args->c), mul_rows_task, args);
}

static void affine_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_affine_args *args = op->args;
    f32 *out = args->out + begin;
    op->loops->affine(args, begin, end);
    op->loops->activate(args->activation, out, out, end - begin);
}

void vx_cpu_affine(struct vx_cpu *cpu, const struct vx_affine_args *args)
{
    vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, affine_task, args);
}

static void curve_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    op->loops->curve(op->args, begin, end);
}

void vx_cpu_curve(struct vx_cpu *cpu, const struct vx_curve_args *args)
{
    VX_ASSERT(args->curve >= VX_CURVE_LEAKY_RELU);
    VX_ASSERT(args->curve <= VX_CURVE_TANH);
    vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, curve_task, args);
}

static void e4m3_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_e4m3_args *args = op->args;
    op->loops->e4m3_round(args->scale, args->in + begin, args->out + begin, end - begin);
}

static void e4m3_rows_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_e4m3_args *args = op->args;
    for (i64 i = begin; i < end; i++)
        op->loops->e4m3_round(args->scale, args->in + i * args->in_stride,
                              args->out + i * args->c, args->c);
}

void vx_cpu_e4m3(struct vx_cpu *cpu, const struct vx_e4m3_args *args)
{
    if (stride_or(args->in_stride, args->c) == args->c)
        vx_op_run(cpu, args->n * args->c, VX_PIECE_ELEMENTS, e4m3_task, args);
    else
        vx_op_run(cpu, args->n, vx_piece_rows(args->c), e4m3_rows_task, args);
}

static void softmax_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_softmax_args *args = op->args;
    for (i64 i = begin; i < end; i++)
        op->loops->softmax(args->in + i * args->c, args->out + i * args->c, args->c);
}

void vx_cpu_softmax(struct vx_cpu *cpu, const struct vx_softmax_args *args)
{
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), softmax_task, args);
}

static void argmax_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_argmax_args *args = op->args;
    for (i64 i = begin; i < end; i++)
        args->out[i] = op->loops->argmax(args->in + i * args->c, args->c);
}

void vx_cpu_argmax(struct vx_cpu *cpu, const struct vx_argmax_args *args)
{
    vx_op_run(cpu, args->n, vx_piece_rows(args->c), argmax_task, args);
}

static i32 concat_channels(const struct vx_concat_args *args)
{
    i32 c = 0;
    for (i32 k = 0; k < args->inputs_count; k++) c += args->inputs[k].c;
    return c;
}

static void concat_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_concat_args *args = op->args;
    f32 *out = args->out + begin * concat_channels(args);
    for (i64 i = begin; i < end; i++) {
        for (i32 k = 0; k < args->inputs_count; k++) {
            const struct vx_concat_input *in = &args->inputs[k];
            if (in->data)
                memcpy(out, in->data + i * stride_or(in->stride, in->c),
                       (size_t)in->c * sizeof *out);
            out += in->c;
        }
    }
}

void vx_cpu_concat(struct vx_cpu *cpu, const struct vx_concat_args *args)
{
    VX_ASSERT(args->inputs_count >= 1);
    VX_ASSERT(args->inputs_count <= VX_CONCAT_INPUTS_MAX);
    vx_op_run(cpu, args->n, vx_piece_rows(concat_channels(args)), concat_task, args);
}

static size_t number_bytes(enum vx_number type)
{
    return type == VX_NUMBER_F32 ? sizeof(f32) : sizeof(u16);
}

static void convert_read(const struct vx_loops *loops, const struct vx_convert_args *args,
                         i64 begin, f32 *to, i64 count)
{
    const u16 *from = (const u16 *)args->from + begin;
    if (args->from_type == VX_NUMBER_F16)
        loops->f16_to_f32(from, to, count);
    else
        loops->bf16_to_f32(from, to, count);
}

static void convert_write(const struct vx_loops *loops,
                          const struct vx_convert_args *args, i64 begin, const f32 *from,
                          i64 count)
{
    u16 *to = (u16 *)args->to + begin;
    if (args->to_type == VX_NUMBER_F16)
        loops->f32_to_f16(from, to, count);
    else
        loops->f32_to_bf16(from, to, count);
}

static void convert_task(void *context, i64 begin, i64 end)
{
    const struct vx_op *op = context;
    const struct vx_convert_args *args = op->args;
    if (args->from_type == args->to_type) {
        size_t bytes = number_bytes(args->from_type);
        memcpy((u8 *)args->to + (size_t)begin * bytes,
               (const u8 *)args->from + (size_t)begin * bytes,
               (size_t)(end - begin) * bytes);
    } else if (args->to_type == VX_NUMBER_F32) {
        convert_read(op->loops, args, begin, (f32 *)args->to + begin, end - begin);
    } else if (args->from_type == VX_NUMBER_F32) {
        convert_write(op->loops, args, begin, (const f32 *)args->from + begin,
                      end - begin);
    } else {
        /* Both have 16 bits.  F32 holds either exactly, so there is only one rounding. */
        f32 between[CONVERT_ELEMENTS];
        for (i64 e = begin; e < end; e += CONVERT_ELEMENTS) {
            i64 count = end - e < CONVERT_ELEMENTS ? end - e : CONVERT_ELEMENTS;
            convert_read(op->loops, args, e, between, count);
            convert_write(op->loops, args, e, between, count);
        }
    }
}

void vx_cpu_convert(struct vx_cpu *cpu, const struct vx_convert_args *args)
{
    VX_ASSERT(args->from_type >= VX_NUMBER_F32);
    VX_ASSERT(args->from_type <= VX_NUMBER_BF16);
    VX_ASSERT(args->to_type >= VX_NUMBER_F32);
    VX_ASSERT(args->to_type <= VX_NUMBER_BF16);
    vx_op_run(cpu, args->count, VX_PIECE_ELEMENTS, convert_task, args);
}
