/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_gather.h"
#include "kernels/07_conv_reduce.h"
#include "kernels/29_weight_tile.h"
#include "tests/oracle/cases.h"

#include <math.h>

/* Parts have size 1.  V additions of numbers up to V lose V * V * 2^-24; a curve behind
 * them loses 2^-19, as in cases_pointwise.c. */
#define SUM_LOSS(v_) ((f64)(v_) * (v_)*0x1p-24 + 0x1p-19)

struct shape {
    i64 n;
    i32 v, groups, co;
    i32 stride; /* of features, residual and output: co, or more */
};

static size_t rows_bytes(const struct shape *shape, enum vx_number type)
{
    return (size_t)(shape->n * shape->stride) * (size_t)vx_number_bytes(type);
}

/* Bias, residual and output of either kernel; a residual is sometimes in place. */
static void epilogue(struct vx_rig *rig, struct vx_trial *trial, const void *pointers[3],
                     const struct shape *shape, i32 variant)
{
    const enum vx_number type = trial->kernel.type;
    const size_t bytes = rows_bytes(shape, type);
    struct vx_field *out;
    if (variant & 1)
        vx_trial_in(trial, pointers[0], vx_rig_reals(rig, VX_NUMBER_F32, shape->co, 1),
                    (size_t)shape->co * sizeof(f32));
    void *residual = vx_rig_reals(rig, type, shape->n * shape->stride, 1);
    if ((variant & 6) == 6) {
        out = vx_trial_both(trial, pointers[2], residual, bytes);
        vx_trial_same(trial, pointers[1], out);
    } else {
        if (variant & 2) vx_trial_in(trial, pointers[1], residual, bytes);
        /* What is between rows must not change. */
        out = shape->stride == shape->co
                  ? vx_trial_out(rig, trial, pointers[2], bytes)
                  : vx_trial_both(trial, pointers[2],
                                  vx_rig_reals(rig, type, shape->n * shape->stride, 2),
                                  bytes);
    }
    out->kind = VX_FIELD_REAL;
    out->type = type;
    out->absolute = SUM_LOSS(shape->v);
}

/* A part that no mask has is never written: it is poison here and must not be read. */
static void reduce_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape, i32 variant)
{
    struct vx_conv_device_args args = {.n = shape->n,
                                       .v = shape->v,
                                       .words = vx_mask_words(shape->v),
                                       .co = shape->co,
                                       .residual_stride = shape->stride,
                                       .out_stride = shape->stride,
                                       .groups = shape->groups,
                                       .activation = variant % 5};
    const i64 rows = shape->n * shape->co;
    const i32 span = shape->v / shape->groups;
    struct vx_trial trial;
    f32 *partial = vx_rig_reals(rig, VX_NUMBER_F32, rows * shape->groups, 1);
    u32 *masks = vx_rig_take(rig, (size_t)(shape->n * args.words) * 4);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d groups %d Co=%d variant %d", (long long)shape->n,
                   shape->v, shape->groups, shape->co, variant);
    for (i64 i = 0; i < shape->n; i++)
        for (i32 group = 0; group < shape->groups; group++) {
            i32 v = group * span + (i32)vx_rig_below(rig, span);
            bool there = i % 50 != 7 && (vx_rig_random(rig) & 1);
            if (there) masks[i * args.words + v / 32] |= 1u << v % 32;
            if (!there && variant < 8)
                vx_rig_poison(partial + (group * shape->n + i) * shape->co,
                              (size_t)shape->co * sizeof(f32));
        }
    if (variant < 8)
        vx_trial_in(&trial, &args.masks, masks, (size_t)(shape->n * args.words) * 4);
    vx_trial_in(&trial, &args.partial, partial,
                (size_t)(rows * shape->groups) * sizeof(f32));
    const void *pointers[3] = {&args.bias, &args.residual, &args.out};
    epilogue(rig, &trial, pointers, shape, variant);
    vx_trial_run(rig, &trial);
}

static void pairs_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 variant)
{
    struct vx_pair_reduce_args args = {.n = shape->n,
                                       .v = shape->v,
                                       .nbr_stride = vx_nbr_stride(shape->v),
                                       .co = shape->co,
                                       .residual_stride = shape->stride,
                                       .out_stride = shape->stride,
                                       .activation = variant % 5};
    const i64 entries = shape->n * args.nbr_stride;
    i32 *places = vx_rig_take(rig, (size_t)entries * 4);
    i64 pairs = 0;
    struct vx_trial trial;
    for (i64 e = 0; e < entries; e++) {
        bool there = e % args.nbr_stride < shape->v && (vx_rig_random(rig) & 1) &&
                     e / args.nbr_stride % 50 != 7;
        places[e] = there ? (i32)pairs++ : -1;
    }
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d Co=%d variant %d", (long long)shape->n, shape->v,
                   shape->co, variant);
    vx_trial_in(&trial, &args.places, places, (size_t)entries * 4);
    vx_trial_in(&trial, &args.partial,
                vx_rig_reals(rig, VX_NUMBER_F32, pairs * shape->co, 1),
                (size_t)(pairs * shape->co) * sizeof(f32));
    const void *pointers[3] = {&args.bias, &args.residual, &args.out};
    epilogue(rig, &trial, pointers, shape, variant);
    vx_trial_run(rig, &trial);
}

static void gather_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape, i32 variant)
{
    struct vx_conv_gather_args args = {.first = shape->n / 3 * (variant % 2),
                                       .v = shape->v,
                                       .nbr_stride = vx_nbr_stride(shape->v),
                                       .ci = shape->co,
                                       .in_stride = shape->stride};
    const i64 entries = shape->n * args.nbr_stride;
    i32 *nbr = vx_rig_take(rig, (size_t)entries * 4);
    struct vx_trial trial;
    args.rows = shape->n - args.first;
    for (i64 e = 0; e < entries; e++) {
        bool there = variant & 2 ? true : vx_rig_random(rig) & 1;
        nbr[e] = there ? (i32)vx_rig_below(rig, shape->n) : -1;
    }
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "rows %lld from %lld V=%d Ci=%d", (long long)args.rows,
                   (long long)args.first, args.v, args.ci);
    vx_trial_in(&trial, &args.nbr, nbr, (size_t)entries * 4);
    vx_trial_in(&trial, &args.in,
                vx_rig_reals(rig, kernel->type, shape->n * shape->stride, 1),
                rows_bytes(shape, kernel->type));
    vx_trial_out(rig, &trial, &args.panel,
                 (size_t)(args.rows * args.v * args.ci) *
                     (size_t)vx_number_bytes(kernel->type));
    vx_trial_run(rig, &trial);
}

static const struct {
    const char *name;
    void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                const struct shape *shape, i32 variant);
} kernels[] = {
    {"conv_reduce", reduce_case},
    {"pair_reduce", pairs_case},
    {"conv_gather", gather_case},
};

static void weight_tile_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                             const i32 shape[3], i32 number_bytes)
{
    struct vx_weight_tile_args args = {
        .v = shape[0], .ci = shape[1], .co = shape[2], .number_bytes = number_bytes};
    const i64 count = args.v * args.ci * args.co;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "V=%d Ci=%d Co=%d of %d bytes", shape[0], args.ci, args.co,
                   number_bytes);
    vx_trial_in(&trial, &args.in, vx_rig_reals(rig, VX_NUMBER_F16, count, 1),
                (size_t)(count * number_bytes));
    vx_trial_out(rig, &trial, &args.out,
                 (size_t)args.v *
                     (size_t)vx_weight_tile_blocks(args.ci, args.number_bytes) *
                     (size_t)args.co * VX_WEIGHT_TILE_LINE);
    vx_trial_run(rig, &trial);
    vx_rig_reset(rig);
}

static void weight_tile_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    static const i32 shapes[][3] = {
        {1, 16, 16}, {27, 64, 48}, {3, 80, 128}, {8, 256, 32}, {1, 1024, 256}};
    for (size_t s = 0; s < VX_COUNT(shapes); s++)
        for (i32 number_bytes = 1; number_bytes <= 2; number_bytes++)
            weight_tile_case(rig, kernel, shapes[s], number_bytes);
}

void vx_cases_parts(struct vx_rig *rig)
{
    static const i64 sizes[] = {0, 1, 33, 257, 31, 32, 255, 256, 1000, 10007};
    static const i32 offsets[][2] = {{27, 3}, {27, 9}, {1, 1}, {125, 5}, {343, 49}};
    static const i32 channels[] = {16, 32, 64, 96, 128, 256, 1040, 2048};
    const size_t count = rig->size == VX_RIG_FULL ? 10 : rig->size == VX_RIG_FAKE ? 4 : 3;
    const i64 most = rig->size == VX_RIG_FULL ? 20000000 : 200000;
    const struct vx_jit_wanted *kernel = NULL;
    i32 turn = 0;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t s = 0; s < count; s++)
                for (size_t o = 0; o < VX_COUNT(offsets); o++)
                    for (size_t c = 0; c < VX_COUNT(channels); c++, turn++) {
                        const struct shape shape = {
                            sizes[s], offsets[o][0], offsets[o][1], channels[c],
                            channels[c] + (turn % 3 == 1) * 16 * (turn % 4)};
                        i64 work = shape.n * shape.v * shape.co;
                        if (work > most) continue;
                        if (rig->size == VX_RIG_SMALL && turn % 3) continue;
                        if (work > most / 10 && turn % 4) continue;
                        kernels[k].run(rig, kernel, &shape, turn % 11);
                        vx_rig_reset(rig);
                    }
    kernel = NULL;
    while ((kernel = vx_rig_next(rig, "weight_tile", kernel)))
        weight_tile_cases(rig, kernel);
}
