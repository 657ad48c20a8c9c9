/* gpu/limits - every maximum of the GPU rooms, with its reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LIMITS_H
#define VX_ENGINE_GPU_LIMITS_H

/* Oldest CUDA driver (1000 * major + 10 * minor): graphs and stream capture as they are
 * used here are in every 12.x; a binary that needs a newer one is refused when loaded. */
#define VX_CUDA_DRIVER_MIN 12000

/* Shared memory that a block has without asking; more is asked for per function. */
#define VX_GPU_SHARED_FREE (48 << 10)

/* Bound of the cache directory when a person says none: at 50 KB each, every kernel with
 * every tile for a handful of architectures. */
#define VX_JIT_CACHE_BYTES_DEFAULT (INT64_C(1) << 30)

/* One binary: a hundred times the largest we have seen. */
#define VX_JIT_IMAGE_BYTES_MAX (16 << 20)

/* A compiler's log: what is longer is cut; the resource report of one text is 2 KB. */
#define VX_JIT_LOG_BYTES_MAX (64 << 10)

/* Binaries one process may hold; tuning everything for one device makes some thousand. */
#define VX_JIT_IMAGES_MAX 8192

/* Compilers at once: each takes about 100 MB and a core. */
#define VX_JIT_THREADS_MAX 16

/* Files of kernels/, and the largest of them. */
#define VX_JIT_TEXTS_MAX      128
#define VX_JIT_TEXT_BYTES_MAX (1 << 20)

/* Compiler versions whose binaries are looked for when there is no compiler. */
#define VX_JIT_COMPILERS_MAX 8

/* Kernels a set may hold: a power of two, since it is also the size of its table. */
#define VX_KERNEL_SET_MAX 8192

#endif
