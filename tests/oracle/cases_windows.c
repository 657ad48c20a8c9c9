/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/24_conv_group.h"
#include "kernels/36_conv_narrow.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/rows.h"

#include <math.h>
#include <string.h>

/* Operators that read rows of one set for each row of another, through a map.  Weights are 1
 * at most. */

/* A map from `n` rows to `from` others, entries of which below `v` are used. */
struct map {
    i64 n, from;
    i32 v, stride;
};

/* Of 4 entries 3 are there, but none at all in every 7th row.  What lies behind V leads nowhere. */
static i32 *map_make(struct vx_rig *rig, const struct map *map)
{
    i32 *nbr = vx_rig_take(rig, (size_t)(map->n * map->stride) * sizeof *nbr);
    for (i64 i = 0; i < map->n; i++)
        for (i32 v = 0; v < map->stride; v++) {
            bool there = i % 7 != 3 && vx_rig_below(rig, 4) > 0;
            nbr[i * map->stride + v] = there ? (i32)vx_rig_below(rig, map->from) : -1;
            if (v >= map->v) nbr[i * map->stride + v] = 0x70000000;
        }
    return nbr;
}

/* An output in rows of `stride`, cp of them written: what is behind those must not change. */
struct out {
    i64 n;
    i32 cp, stride;
    f64 absolute;
};

static void out_rows(struct vx_rig *rig, struct vx_trial *trial, const void *pointer,
                     const struct out *out)
{
    const enum vx_number type = trial->kernel.type;
    const size_t bytes = rows_bytes(type, out->n, out->stride);
    if (out->stride == out->cp) {
        out_reals(rig, trial, pointer, bytes, out->absolute);
        return;
    }
    void *before = vx_rig_reals(rig, type, out->n * out->stride, SCALE);
    struct vx_field *field = vx_trial_both(trial, pointer, before, bytes);
    field->kind = VX_FIELD_REAL;
    field->type = type;
    field->absolute = out->absolute;
}

/* References are slow: without a device the large shapes are left out. */
static bool too_much(const struct vx_rig *rig, i64 work)
{
    return work > (rig->size == VX_RIG_FULL ? 20000000 : 150000);
}

/* --- 16 --- */

static void gather_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                        i32 turn)
{
    static const struct {
        i32 kernel[3], blocks, stride;
    } kinds[] = {
        {{1, 1, 1}, 1, 1}, {{1, 1, 1}, 8, 4}, {{2, 2, 2}, 1, 8},
        {{2, 1, 3}, 1, 8}, {{1, 1, 1}, 6, 1}, {{7, 7, 7}, 1, 344},
    };
    static const i32 channels[] = {1, 3, 4, 8, 16, 20, 64, 7};
    const enum vx_number type = kernel->type;
    const i64 from = n / 2 + 3;
    struct vx_row_gather_device_args args = {.n = n,
                                             .c = channels[turn / 6 % 8],
                                             .blocks = kinds[turn % 6].blocks,
                                             .nbr_stride = kinds[turn % 6].stride,
                                             .activation = turn % 5};
    memcpy(args.kernel, kinds[turn % 6].kernel, sizeof args.kernel);
    args.v = args.kernel[0] * args.kernel[1] * args.kernel[2];
    args.in_cp = vx_channels_padded(args.blocks * args.c);
    args.cp = vx_channels_padded(args.v * args.c);
    args.in_cp += turn % 3 * 16;
    const i32 stride = args.cp + turn % 4 * 16;
    if (stride > args.cp) args.out_stride = stride;
    if (too_much(rig, n * args.cp * 4)) return;
    const struct map map = {n, from * args.blocks, args.v, args.nbr_stride};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d C=%d blocks %d activation %d", (long long)n,
                   args.v, args.c, args.blocks, args.activation);
    vx_trial_in(&trial, &args.nbr, map_make(rig, &map), (size_t)(n * map.stride) * 4);
    vx_trial_in(&trial, &args.in,
                rows_make(rig, type, from, args.blocks * args.c, args.in_cp),
                rows_bytes(type, from, args.in_cp));
    /* Without an activation numbers are copied. */
    const struct out out = {n, args.cp, stride, args.activation ? CURVE : -1};
    out_rows(rig, &trial, &args.out, &out);
    vx_trial_run(rig, &trial);
}

/* --- 17 --- */

static const i32 offsets[] = {1, 8, 27, 2, 125, 343};

/* V roundings of partial sums of numbers with random signs, which keep them below 2 sqrt V
 * times SCALE: together a random walk, sqrt V times as long.  Four times that is beyond
 * chance. */
static f64 walk_bound(i32 v)
{
    return 4 * 2 * SCALE * v * 0x1p-24 + CURVE;
}

/* The same where a few rows are read again and again (N = 1: 7 rows, 343 offsets), so that
 * signs do not cancel and partial sums reach V times SCALE. */
static f64 pool_bound(i32 v)
{
    return 2 * SCALE * v * sqrt(v) * 0x1p-24 + CURVE;
}

static void pool_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                      i32 turn)
{
    static const i32 channels[] = {1, 16, 20, 64, 3, 128, 300, 1040, 8, 4100};
    const enum vx_number type = kernel->type;
    const i64 from = n / 3 + 7;
    const i32 v = offsets[turn / 3 % 6];
    struct vx_pool_device_args args = {.n = n,
                                       .v = v,
                                       .nbr_stride = (v + 3) / 4 * 4,
                                       .c = channels[turn / 18 % 10],
                                       .mode = turn % 3,
                                       .activation = turn % 5};
    args.cp = vx_channels_padded(args.c);
    if (turn % 3 == 1) args.in_stride = args.cp + 32;
    if (turn % 4 == 1) args.out_stride = args.cp + 16;
    const i32 in_stride = args.in_stride ? args.in_stride : args.cp;
    if (too_much(rig, n * args.cp * v)) return;
    const struct map map = {n, from, v, args.nbr_stride};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d C=%d mode %d activation %d", (long long)n, v,
                   args.c, args.mode, args.activation);
    vx_trial_in(&trial, &args.nbr, map_make(rig, &map), (size_t)(n * map.stride) * 4);
    vx_trial_in(&trial, &args.in, rows_make(rig, type, from, args.c, in_stride),
                rows_bytes(type, from, in_stride));
    const struct out out = {n, args.cp, args.out_stride ? args.out_stride : args.cp,
                            pool_bound(v)};
    out_rows(rig, &trial, &args.out, &out);
    vx_trial_run(rig, &trial);
}

/* --- 24 --- */

/* Of V * Cig products, bias and residual. */
static f64 group_bound(const struct vx_conv_group_args *args)
{
    return walk_bound(args->v * args->cig + 2);
}

static void group_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                       i32 turn)
{
    static const i32 groups[][3] = {{16, 1, 1},  {20, 1, 1}, {2, 8, 8},  {3, 5, 7},
                                    {4, 16, 8},  {20, 2, 1}, {8, 1, 2},  {300, 1, 1},
                                    {1, 16, 32}, {5, 3, 1},  {2, 33, 4}, {2100, 1, 1}};
    const enum vx_number type = kernel->type;
    const i32 *group = groups[turn / 5 % 12];
    const i32 v = offsets[turn % 5], stride = (v + 3) / 4 * 4;
    const i64 from = n / 2 + 5;
    struct vx_conv_group_args args = {.n = n,
                                      .v = v,
                                      .nbr_stride = stride,
                                      .groups = group[0],
                                      .cig = group[1],
                                      .cog = group[2],
                                      .activation = turn % 5};
    args.in_cp = vx_channels_padded(group[0] * group[1]);
    args.cp = vx_channels_padded(group[0] * group[2]);
    if (too_much(rig, n * args.cp * v * args.cig)) return;
    const struct map map = {n, from, v, stride};
    const i64 weights = (i64)v * args.cig * args.cp;
    struct vx_field *field = NULL;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d groups %d of %d to %d, turn %d", (long long)n, v,
                   args.groups, args.cig, args.cog, turn);
    vx_trial_in(&trial, &args.nbr, map_make(rig, &map), (size_t)(n * stride) * 4);
    vx_trial_in(&trial, &args.in,
                rows_make(rig, type, from, group[0] * group[1], args.in_cp),
                rows_bytes(type, from, args.in_cp));
    vx_trial_in(&trial, &args.weight, vx_rig_reals(rig, type, weights, 1),
                (size_t)weights * (size_t)vx_number_bytes(type));
    if (turn % 2)
        vx_trial_in(&trial, &args.bias, vx_rig_reals(rig, VX_NUMBER_F32, args.cp, SCALE),
                    (size_t)args.cp * sizeof(f32));
    if (turn % 3 == 2) {
        field =
            vx_trial_both(&trial, &args.out, vx_rig_reals(rig, type, n * args.cp, SCALE),
                          rows_bytes(type, n, args.cp));
        field->kind = VX_FIELD_REAL;
        field->type = type;
        field->absolute = group_bound(&args);
        vx_trial_same(&trial, &args.residual, field);
    } else {
        if (turn % 3)
            vx_trial_in(&trial, &args.residual,
                        vx_rig_reals(rig, type, n * args.cp, SCALE),
                        rows_bytes(type, n, args.cp));
        out_reals(rig, &trial, &args.out, rows_bytes(type, n, args.cp),
                  group_bound(&args));
    }
    vx_trial_run(rig, &trial);
}

/* --- 36 --- */

/* Of V * Ci products, bias and residual; TF32 rounds both factors to 11 bits, of which the sums of
 * the reference know nothing. */
static f64 narrow_bound(const struct vx_conv_narrow_args *args, enum vx_number type)
{
    const f64 terms = args->v * args->ci;
    return walk_bound(args->v * args->ci + 2) +
           (type == VX_NUMBER_TF32 ? 2 * SCALE * terms * 0x1p-11 : 0);
}

static void narrow_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                        i32 turn)
{
    static const i32 widths[] = {16, 20, 32, 40, 100}, blocks[] = {1, 3, 264};
    const enum vx_number type = kernel->type;
    const i32 slot = kernel->tile->values[0], most = kernel->tile->values[1];
    const i32 v = turn % 4 == 3 ? most : (turn % 4 + 1) * most / 4 - turn / 4 % 5;
    const i32 stride = (v + 3) / 4 * 4 + turn % 3 * 4;
    const i64 from = n / 2 + 5;
    struct vx_conv_narrow_args args = {.n = n,
                                       .v = v,
                                       .nbr_stride = stride,
                                       .ci = 1 + turn % slot,
                                       .weight_rows = slot + turn % 2 * 8,
                                       .co = widths[turn % 5],
                                       .in_stride = 16 + turn % 2 * 16,
                                       .activation = turn / 2 % 5,
                                       .blocks = blocks[turn % 3]};
    args.cp = args.out_stride = vx_channels_padded(args.co);
    args.residual_stride = args.cp + turn % 4 * 16;
    if (turn % 3 == 1) args.out_stride += 32;
    if (too_much(rig, n * args.cp * v * args.ci)) return;
    const struct map map = {n, from, v, stride};
    const i64 weights = (i64)v * args.weight_rows * args.cp;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d Ci=%d Co=%d, turn %d", (long long)n, v, args.ci,
                   args.co, turn);
    vx_trial_in(&trial, &args.nbr, map_make(rig, &map), (size_t)(n * stride) * 4);
    void *in = vx_rig_reals(rig, type, from * args.in_stride, SCALE);
    if (turn % 5 == 4) vx_number_ref_write(in, type, 4 * (i64)args.in_stride, (f64)NAN);
    vx_trial_in(&trial, &args.in, in, rows_bytes(type, from, args.in_stride));
    vx_trial_in(&trial, &args.weight, vx_rig_reals(rig, type, weights, 1),
                (size_t)weights * (size_t)vx_number_bytes(type));
    if (turn % 2)
        vx_trial_in(&trial, &args.bias, vx_rig_reals(rig, VX_NUMBER_F32, args.cp, SCALE),
                    (size_t)args.cp * sizeof(f32));
    if (turn % 3)
        vx_trial_in(&trial, &args.residual,
                    vx_rig_reals(rig, type, n * args.residual_stride, SCALE),
                    rows_bytes(type, n, args.residual_stride));
    const struct out out = {n, args.cp, args.out_stride, narrow_bound(&args, type)};
    out_rows(rig, &trial, &args.out, &out);
    vx_trial_run(rig, &trial);
}

void vx_cases_windows(struct vx_rig *rig)
{
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                    i32 turn);
        i32 turns; /* different cases */
    } kernels[] = {{"row_gather", gather_case, 240},
                   {"pool", pool_case, 180},
                   {"conv_group", group_case, 60},
                   {"conv_narrow", narrow_case, 60}};
    static const i64 sizes[] = {1, 33, 257, 0, 1000, 10007};
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (i32 turn = 0; turn < kernels[k].turns; turn++)
                for (size_t s = 0; s < VX_COUNT(sizes); s++) {
                    const bool full = rig->size == VX_RIG_FULL;
                    /* The small sizes in every turn, the others in some. */
                    if (s > 1 && (turn + (i32)s) % 5) continue;
                    if (!full && (sizes[s] > 300 || (turn + (i32)s) % 4)) continue;
                    if (rig->size == VX_RIG_SMALL && turn % 3) continue;
                    kernels[k].run(rig, kernel, sizes[s], turn);
                    vx_rig_reset(rig);
                }
}
