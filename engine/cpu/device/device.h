/* device - the state of the CPU device, shared by its files, with one workspace a thread.
 *
 * Owner    vx_cpu_open makes it, vx_cpu_close ends it.
 * Thread   a workspace belongs to the thread whose worker index it has; the sums to the
 *          operator that runs.
 * Fails    as cpu.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_DEVICE_H
#define VX_ENGINE_CPU_DEVICE_H

#include "engine/cpu/device/blas.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/loops.h"
#include "engine/cpu/device/pool.h"

/* Rows of out in one tile: 64 columns of them are 128 KiB, half of a small second-level
 * cache, and a panel of weights packed for a tile is used about 40 times. */
#define VX_TILE_ROWS_MAX 512

/* Room for the gathered rows and the product of one call of the BLAS.  The rows of a
 * panel depend on the layer only; 32 rows of the widest layer fit. */
#define VX_BLAS_FLOATS   (1 << 20)
#define VX_BLAS_ROWS_MAX 240
_Static_assert(VX_BLAS_FLOATS / (2 * VX_CHANNELS_MAX) >= 32, "a wide layer has a panel");
_Static_assert(VX_TILE_ROWS_MAX >= VX_KERNEL_OFFSETS_MAX,
               "a row's neighbours fit a list");

/* Elements of one chunk of work: 64 KiB of floats stay in the first- or second-level
 * cache between a layer and its activation. */
#define VX_PIECE_ELEMENTS 16384

/* Room for the sums of samples: a row of f64 for each chunk of rows, and two for each
 * sample.  64 rows of the widest layer fit, and 16,384 of a layer of 64 channels.  A sample
 * is cut into no more chunks than fit, and samples that do not fit together go one after
 * the other.  Pages are touched only when they are used. */
#define VX_SUMS_FLOATS (1 << 20)
_Static_assert(VX_SUMS_FLOATS / VX_CHANNELS_MAX >= 64, "a wide layer has some chunks");

struct vx_work {
    /* The pairs of one offset and one tile; depthwise: of one row. */
    i32 in_rows[VX_TILE_ROWS_MAX];
    i32 out_rows[VX_TILE_ROWS_MAX];
    _Alignas(64) f32 panel[VX_PANEL_ROWS * VX_PANEL_COLUMNS];
    _Alignas(64) f32 block[VX_TILE_ROWS_MAX * VX_PANEL_COLUMNS];
    _Alignas(64) f32 blas[VX_BLAS_FLOATS];  /* pages are touched only when it is used */
    _Alignas(64) f64 sums[VX_CHANNELS_MAX]; /* of the points of a voxel; likewise */
    i64 untold; /* products since the thread that spreads last said that it goes on */
};

/* Which code multiplies.  Serving uses AUTO; the others are for tests and benchmarks. */
enum vx_multiplier { VX_MULTIPLIER_AUTO, VX_MULTIPLIER_LOOPS, VX_MULTIPLIER_BLAS };

struct vx_cpu {
    u32 magic;
    struct vx_pool *pool;
    const struct vx_loops *loops;
    enum vx_multiplier multiplier;
    struct vx_blas blas;
    struct vx_work *works; /* one per thread */
    f64 *sums;             /* (VX_SUMS_FLOATS) */
    char name[VX_NAME_BYTES];
};

struct vx_cpu_choice {
    i32 threads;
    const struct vx_loops *loops; /* NULL: the widest that this machine runs */
    enum vx_multiplier multiplier;
};
/* INVALID_ARGUMENT when BLAS is asked for and there is none. */
VX_MUST_USE vx_status vx_cpu_open_as(const struct vx_cpu_choice *choice,
                                     struct vx_why *why, struct vx_cpu **cpu);

/* What a task over rows or elements needs: the loops and the caller's arguments. */
struct vx_op {
    const struct vx_loops *loops;
    const void *args;
};

/* Spreads a task whose context is a struct vx_op. */
void vx_op_run(struct vx_cpu *cpu, i64 count, i64 grain,
               void (*task)(void *context, i64 begin, i64 end), const void *args);

/* Applies an activation to c channels of each row, in place. */
struct vx_rows {
    f32 *first;
    i64 count, stride;
    i32 c;
};
void vx_rows_activate(const struct vx_loops *loops, enum vx_activation activation,
                      const struct vx_rows *rows);

/* Lists what row i of a map with n rows names: the rows at its offsets, and the offsets.
 * `column` is the map's entry of offset 0 and row i.  Returns their number. */
i32 vx_gather_list(const i32 *column, i64 n, i32 v, i32 *rows, i32 *offsets);

/* Rows of c channels that make one chunk of work, at least one. */
i64 vx_piece_rows(i64 c);

#endif
