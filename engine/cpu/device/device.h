/* device - the state of the CPU device, shared by its files, with one workspace a thread.
 *
 * Owner    vx_cpu_open makes it, vx_cpu_close ends it.
 * Thread   a workspace belongs to the thread whose worker index it has.
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

struct vx_work {
    i32 in_rows[VX_TILE_ROWS_MAX]; /* the pairs of one offset and one tile */
    i32 out_rows[VX_TILE_ROWS_MAX];
    _Alignas(64) f32 panel[VX_PANEL_ROWS * VX_PANEL_COLUMNS];
    _Alignas(64) f32 block[VX_TILE_ROWS_MAX * VX_PANEL_COLUMNS];
    _Alignas(64) f32 blas[VX_BLAS_FLOATS]; /* pages are touched only when it is used */
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

#endif
