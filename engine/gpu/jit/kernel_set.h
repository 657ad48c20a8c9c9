/* kernel_set - the kernels that are loaded on a device, ready to launch.
 *
 * The loading thread makes the kernels ready that a model will launch: compiles them or
 * reads them from the cache, and loads them on the device.  The device thread launches
 * them.  A kernel stays loaded until the set is closed; models share kernels.
 *
 *   VX_TRY(vx_kernel_set_open(gpu, jit, &why, &set));
 *   VX_TRY(vx_kernel_set_ready(set, wanted, count, progress, &why));
 *   VX_TRY(vx_kernel_launch(set, stream, &wanted[0], &args, &why));
 *
 * Owner    the caller; gpu and jit are borrowed and outlive it.
 * Thread   ready: the loading thread; launch: the device thread, also while ready runs.
 * Limits   VX_KERNEL_SET_MAX kernels.
 * Fails    as gpu.h and jit.h; launch asserts that the kernel was made ready.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_KERNEL_SET_H
#define VX_ENGINE_GPU_KERNEL_SET_H

#include "engine/gpu/driver/gpu.h"
#include "engine/gpu/jit/jit.h"

struct vx_kernel_set;
struct vx_blas_gpu;

/* Where launches go. */
struct vx_gpu_queue {
    struct vx_kernel_set *set;
    struct vx_gpu_stream *stream;
    struct vx_blas_gpu *blas; /* for EXPLICIT (blas.h); NULL = it uses our own kernel */
};

VX_MUST_USE vx_status vx_kernel_set_open(struct vx_gpu *gpu, struct vx_jit *jit,
                                         struct vx_why *why, struct vx_kernel_set **set);
void vx_kernel_set_close(struct vx_kernel_set **set);
VX_MUST_USE vx_status vx_kernel_set_ready(struct vx_kernel_set *set,
                                          const struct vx_jit_wanted *wanted, i32 count,
                                          const struct vx_progress *progress,
                                          struct vx_why *why);
/* Grid, threads and shared memory come from the spec and the arguments. */
VX_MUST_USE vx_status vx_kernel_launch(struct vx_kernel_set *set,
                                       struct vx_gpu_stream *stream,
                                       const struct vx_jit_wanted *kernel,
                                       const void *args, struct vx_why *why);
/* The same, and it may begin early (gpu.h). */
VX_MUST_USE vx_status vx_kernel_launch_early(struct vx_kernel_set *set,
                                             struct vx_gpu_stream *stream,
                                             const struct vx_jit_wanted *kernel,
                                             const void *args, struct vx_why *why);
struct vx_gpu *vx_kernel_set_gpu(struct vx_kernel_set *set);
/* A random number that nobody outside can know, to seed hash tables on the device. */
u64 vx_kernel_set_seed(const struct vx_kernel_set *set);

#endif
