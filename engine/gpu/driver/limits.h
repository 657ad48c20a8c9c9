/* gpu/limits - every limit of the GPU code, with its reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LIMITS_H
#define VX_ENGINE_GPU_LIMITS_H

/* Oldest CUDA driver (1000 * major + 10 * minor): every 12.x has the graphs and stream
 * captures that are used here.  A binary that needs a newer driver is refused at load. */
#define VX_CUDA_DRIVER_MIN 12000

/* Oldest HIP (10,000,000 * major + 100,000 * minor): 5.2 is the oldest that was looked at,
 * and has every function of driver.def. */
#define VX_HIP_DRIVER_MIN 50200000
/* Oldest AMD architecture, as gfx_target_version: gfx900, the oldest of ROCm 5. */
#define VX_HIP_ARCH_MIN 90000

/* Shared memory that a block may use by default; functions that need more ask for it. */
#define VX_GPU_SHARED_FREE (48 << 10)

/* The default bound of the cache directory: at 50 KB each, every kernel with every tile
 * for a handful of architectures. */
#define VX_JIT_CACHE_BYTES_DEFAULT (INT64_C(1) << 30)

/* One binary: a hundred times the largest known. */
#define VX_JIT_IMAGE_BYTES_MAX (16 << 20)

/* A compiler's log; a longer one is cut.  The resource report of one source is 2 KB. */
#define VX_JIT_LOG_BYTES_MAX (64 << 10)

/* Binaries of one process; tuning everything for one device makes thousands. */
#define VX_JIT_IMAGES_MAX 8192

/* Compilers at once: each takes about 100 MB and a core. */
#define VX_JIT_THREADS_MAX 16

/* The longest that one source may take: seconds, and more on a machine that is busy. */
#define VX_JIT_CHILD_MS 600000
/* The longest that a compiler may take to say its version. */
#define VX_JIT_ASK_MS 60000

/* Files of kernels/, and the largest of them. */
#define VX_JIT_TEXTS_MAX      128
#define VX_JIT_TEXT_BYTES_MAX (1 << 20)

/* Compiler versions whose cached binaries are used when there is no compiler. */
#define VX_JIT_COMPILERS_MAX 8

/* Kernels a set may hold: a power of two, since it is also the size of its table. */
#define VX_KERNEL_SET_MAX 8192

#endif
