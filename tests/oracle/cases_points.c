/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash.h"
#include "kernels/31_voxelize.h"
#include "kernels/32_devoxelize.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/rows.h"

#include <math.h>
#include <string.h>

/* Points to voxels and back. */
/* Of a weighted sum of 8: network_oracle_points.c. */
#define BLEND (32 * SCALE * 0x1p-24)

static i32 *shuffled(struct vx_rig *rig, i64 n)
{
    i32 *rows = vx_rig_take(rig, (size_t)(n + 1) * sizeof *rows);
    for (i64 i = 0; i < n; i++) {
        i64 j = vx_rig_below(rig, i + 1);
        rows[i] = rows[j];
        rows[j] = (i32)i;
    }
    return rows;
}

static void words_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                       i32 turn)
{
    struct vx_voxel_words_args args = {
        .n = n, .m = n / 3 + 1, .nbr_stride = turn % 2 ? 4 : 1};
    i32 *nbr = vx_rig_take(rig, (size_t)(n * args.nbr_stride + 1) * sizeof *nbr);
    for (i64 i = 0; i < n * args.nbr_stride; i++) {
        bool real = i % args.nbr_stride == 0; /* behind it is what leads nowhere */
        nbr[i] = real ? (i32)vx_rig_below(rig, args.m + 1) - 1 : 0x70000000;
    }
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld stride %d", (long long)n, args.nbr_stride);
    vx_trial_in(&trial, &args.nbr, nbr, (size_t)(n * args.nbr_stride) * sizeof *nbr);
    vx_trial_out(rig, &trial, &args.words, (size_t)n * sizeof(u64));
    vx_trial_run(rig, &trial);
}

static const i32 channels[] = {1, 16, 20, 64, 3, 128, 300, 1040, 8, 4100};

/* Voxels of 1, of some and of very many points, and without any; points without a voxel. */
static void mean_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                      i32 turn)
{
    static const i32 runs[] = {1, 5, 3000, 40};
    const enum vx_number type = kernel->type;
    struct vx_voxelize_device_args args = {.n = n,
                                           .m = n / runs[turn % 4] + 2,
                                           .c = channels[turn % 10],
                                           .activation = turn % 5};
    args.cp = vx_channels_padded(args.c);
    if ((n + args.m) * args.cp > (rig->size == VX_RIG_FULL ? 20000000 : 150000)) return;
    const i32 *order = shuffled(rig, n);
    u64 *words = vx_rig_take(rig, (size_t)(n + 1) * sizeof *words);
    for (i64 i = 0; i < n; i++) {
        u64 voxel = (u64)(i / runs[turn % 4]);
        if (voxel % 7 == 2) voxel++; /* one has the points of two */
        words[order[i]] = i > n - n / 9 ? (u64)args.m : voxel;
    }
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld M=%lld C=%d activation %d", (long long)n,
                   (long long)args.m, args.c, args.activation);
    vx_trial_in(&trial, &args.order, order, (size_t)n * sizeof *order);
    vx_trial_in(&trial, &args.words, words, (size_t)n * sizeof *words);
    vx_trial_in(&trial, &args.in, rows_make(rig, type, n, args.c, args.cp),
                rows_bytes(type, n, args.cp));
    out_reals(rig, &trial, &args.out, rows_bytes(type, args.m, args.cp),
              args.activation ? CURVE : 0);
    vx_trial_run(rig, &trial);
}

static void back_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                      i32 turn)
{
    static const i32 strides[][3] = {{1, 1, 1}, {2, 3, 16}, {4096, 1, 7}, {16, 16, 16}};
    const enum vx_number type = kernel->type;
    const i64 m = n / 4 + 6;
    struct vx_devoxelize_device_args args = {.n = n,
                                             .c = channels[turn % 10],
                                             .activation = turn % 5,
                                             .nbr_stride = VX_CORNERS};
    memcpy(args.stride, strides[turn % 4], sizeof args.stride);
    args.cp = vx_channels_padded(args.c);
    if (n * args.cp > (rig->size == VX_RIG_FULL ? 10000000 : 100000)) return;
    u64 *keys = vx_rig_take(rig, (size_t)(n + 1) * sizeof *keys);
    i32 *nbr = vx_rig_take(rig, (size_t)(n + 1) * VX_CORNERS * sizeof *nbr);
    for (i64 i = 0; i < n; i++)
        keys[i] = vx_key_pack(3, (i32)vx_rig_below(rig, 9999) - 5000, -(i32)i,
                              (i32)vx_rig_below(rig, 99));
    for (i64 i = 0; i < n * VX_CORNERS; i++) {
        bool there = i / VX_CORNERS % 7 != 3 && vx_rig_below(rig, 4) > 0;
        nbr[i] = there ? (i32)vx_rig_below(rig, m) : -1;
    }
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld C=%d stride %dx%dx%d activation %d", (long long)n,
                   args.c, args.stride[0], args.stride[1], args.stride[2],
                   args.activation);
    vx_trial_in(&trial, &args.keys, keys, (size_t)n * sizeof *keys);
    vx_trial_in(&trial, &args.rows, shuffled(rig, n), (size_t)n * sizeof(i32));
    vx_trial_in(&trial, &args.nbr, nbr, (size_t)n * VX_CORNERS * sizeof *nbr);
    vx_trial_in(&trial, &args.in, rows_make(rig, type, m, args.c, args.cp),
                rows_bytes(type, m, args.cp));
    out_reals(rig, &trial, &args.out, rows_bytes(type, n, args.cp), BLEND + CURVE);
    vx_trial_run(rig, &trial);
}

void vx_cases_points(struct vx_rig *rig)
{
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n,
                    i32 turn);
        i32 turns; /* different cases */
    } kernels[] = {{"voxel_words", words_case, 2},
                   {"voxel_mean", mean_case, 20},
                   {"devoxelize", back_case, 20}};
    static const i64 sizes[] = {1, 33, 257, 0, 1000, 10007};
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (i32 turn = 0; turn < kernels[k].turns; turn++)
                for (size_t s = 0; s < VX_COUNT(sizes); s++) {
                    if (rig->size != VX_RIG_FULL && sizes[s] > 300) continue;
                    if (rig->size == VX_RIG_SMALL && turn % 3) continue;
                    kernels[k].run(rig, kernel, sizes[s], turn);
                    vx_rig_reset(rig);
                }
}
