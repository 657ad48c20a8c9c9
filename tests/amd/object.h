/* amd/object - a kernel that hip_clang made for the CPU: what it holds and what it calls.
 *
 * A shared object for x86-64 with one exported symbol, `amd_object`.  The loader (load.c)
 * sets *hooks before the first launch.  Wave operations go through the hooks; each place
 * in the text has a number of its own (`site`), so that lanes that wait at two different
 * ballots are not taken for lanes that wait at one.  hip_clang writes these structs as
 * LLVM IR (retarget.py): change both together, and AMD_OBJECT_VERSION.
 *
 * Shared memory (LDS) has fixed addresses below 4 GB: kernels keep them in 32 bits.
 * Static variables end at AMD_LDS_STATIC_END, so that the fence behind them is exact;
 * dynamic shared memory begins at AMD_LDS_DYNAMIC.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_OBJECT_H
#define VX_TESTS_AMD_OBJECT_H

#include "engine/base/types.h"

#define AMD_OBJECT_VERSION 1
#define AMD_OBJECT_SYMBOL  "amd_object"
#define AMD_OBJECT_MAGIC   "vx-amd" /* 8 bytes with its zeros */

#define AMD_LDS_STATIC_END 0x50010000u
#define AMD_LDS_DYNAMIC    0x50020000u
#define AMD_LDS_BYTES      0x10000u /* of a block, static and dynamic together */

enum amd_where { AMD_THREAD, AMD_BLOCK_X, AMD_BLOCK_Y, AMD_BLOCK_Z };

/* Matrix instructions, by the shape m x n x k of the product. */
enum amd_matrix {
    AMD_MFMA_16X16X16_F16,
    AMD_MFMA_16X16X16_BF16,
    AMD_MFMA_16X16X4_F32,
    AMD_MFMA_16X16X8_XF32,
    AMD_MFMA_32X32X8_F16,
    AMD_MFMA_32X32X8_BF16,
    AMD_WMMA11_F16,
    AMD_WMMA11_BF16,
    AMD_WMMA12_F16,
    AMD_WMMA12_BF16,
    AMD_MATRICES_COUNT
};

struct amd_hooks {
    u32 (*where)(u32 what);
    void (*barrier)(u32 site);
    void (*wave_barrier)(u32 site);
    u64 (*ballot)(u32 site, u32 said);
    /* Of the other lane: `lane` modulo the size of the wave. */
    u32 (*shuffle)(u32 site, u32 lane, u32 value);
    u32 (*first)(u32 site, u32 value); /* of the lowest lane that has not left */
    /* c += a * b; each points to this lane's registers. */
    void (*matrix)(u32 site, u32 which, const void *a, const void *b, void *c);
};

struct amd_kernel {
    const char *name;
    void (*run)(const void *args); /* one thread */
    u64 args_bytes;
    u32 lds_static;               /* bytes below AMD_LDS_STATIC_END */
    u32 threads_min, threads_max; /* of a block, as the text declares it */
    u32 zero;
};

struct amd_object {
    char magic[8];
    u32 version;
    u32 wave; /* lanes: 32 or 64 */
    char arch[16];
    const struct amd_hooks **hooks;
    const struct amd_kernel *kernels;
    u64 kernels_count;
};

#endif
