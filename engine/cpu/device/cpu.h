/* cpu - the CPU device: its threads, a BLAS, and the operators of kernels/.
 *
 * Every operator takes the argument struct of its kernel, as the kernel's reference does,
 * and gives the same answer within the bound that its test derives.  All tensors are
 * row-major f32.
 *
 *   VX_TRY(vx_cpu_open(threads, &why, &cpu));
 *   vx_cpu_conv(cpu, &args);
 *   vx_cpu_close(&cpu);
 *
 * Owner    the caller; argument memory is borrowed for the call.
 * Thread   one at a time (the device thread); work is spread over VX_ROLE_COMPUTE threads
 *          and joined before return.
 * Limits   VX_CPU_THREADS_MAX.  Workspaces are taken at open; operators never allocate.
 * Numbers  below 1.2e-38 (subnormal ones) count as 0, in the thread that opens it from then on,
 *          too: flush.h says why.
 * Order    the bits of a row depend on the operator and this machine, never on N, on the
 *          row's place, on other requests in the batch, or on the number of threads.
 *          global_pool and group_norm: the bits of a sample depend on its own rows in
 *          their order, and on nothing else of these.
 * Fails    open: INVALID_ARGUMENT for a bad number of threads, RESOURCE_EXHAUSTED when
 *          memory or threads are refused.  Operators cannot fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_CPU_H
#define VX_ENGINE_CPU_CPU_H

#include "engine/base/limits.h"
#include "engine/base/status.h"
#include "engine/signature.h"
#include "kernels/04_conv_explicit.h"
#include "kernels/10_activation.h"
#include "kernels/11_linear.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/18_group_norm.h"
#include "kernels/19_softmax.h"
#include "kernels/20_curve.h"
#include "kernels/28_to_dense.h"
#include "kernels/31_voxelize.h"
#include "kernels/32_devoxelize.h"

_Static_assert((int)VX_NUMBER_F32 == (int)VX_DTYPE_F32,
               "a dtype may be cast to a number");
_Static_assert((int)VX_NUMBER_F16 == (int)VX_DTYPE_F16,
               "a dtype may be cast to a number");
_Static_assert((int)VX_NUMBER_BF16 == (int)VX_DTYPE_BF16,
               "a dtype may be cast to a number");
_Static_assert(VX_CONCAT_INPUTS_MAX == VX_LAYER_INPUTS_MAX,
               "a legal layer is a legal concat");

struct vx_cpu;

/* out (N, C), dense, is the nearest numbers of e4m3 times `scale`, a power of two within
 * VX_E4M3_SCALE_EXPONENT_MAX. */
struct vx_e4m3_args {
    i64 n;
    i32 c;
    f32 scale;
    const f32 *in;
    f32 *out;      /* not in */
    i32 in_stride; /* 0 = c */
};

/* threads: 0 = as many as this process may use at once (affinity and cgroup quota). */
VX_MUST_USE vx_status vx_cpu_open(i32 threads, struct vx_why *why, struct vx_cpu **cpu);
/* Another of one thread, the caller's, with the same loops and BLAS: an operator may run on it while
 * one of `cpu` tells (vx_cpu_tell).  Its rows have the same bits. */
VX_MUST_USE vx_status vx_cpu_open_beside(const struct vx_cpu *cpu, struct vx_why *why,
                                         struct vx_cpu **beside);
void vx_cpu_close(struct vx_cpu **cpu);
/* "AMD EPYC, 2 threads, AVX-512", or "..., baseline vectors, OpenBLAS Nehalem" */
const char *vx_cpu_name(const struct vx_cpu *cpu);
i32 vx_cpu_threads(const struct vx_cpu *cpu);

/* Runs task(context, begin, end) on all threads over [0, count), in chunks that begin at
 * multiples of `grain`.  A task may not call spread. */
void vx_cpu_spread(struct vx_cpu *cpu, i64 count, i64 grain,
                   void (*task)(void *context, i64 begin, i64 end), void *context);

/* told(context) is called on the thread that calls an operator, or spread, while that goes on:
 * with each chunk but the first that this thread takes, and within chunks of convolutions and linear
 * layers each 0.1 to 0.3 ms. */
void vx_cpu_tell(struct vx_cpu *cpu, void (*told)(void *context), void *context);
/* Calls told once: that thread is in a long loop of its own, or within a chunk. */
void vx_cpu_go_on(struct vx_cpu *cpu);

void vx_cpu_conv(struct vx_cpu *cpu, const struct vx_conv_args *args);
/* Of the same its first `rows` rows only, for a warm-up. */
void vx_cpu_conv_rows(struct vx_cpu *cpu, const struct vx_conv_args *args, i64 rows);
/* What multiplies a convolution or linear layer of so many channels: "AVX2", or the BLAS. */
const char *vx_cpu_multiplier(const struct vx_cpu *cpu, i32 ci, i32 co);
const char *
vx_cpu_loops_name(const struct vx_cpu *cpu); /* "AVX2": they multiply groups */
void vx_cpu_linear(struct vx_cpu *cpu, const struct vx_linear_args *args);
void vx_cpu_activation(struct vx_cpu *cpu, const struct vx_activation_args *args);
void vx_cpu_batch_norm(struct vx_cpu *cpu, const struct vx_batch_norm_args *args);
void vx_cpu_layer_norm(struct vx_cpu *cpu, const struct vx_layer_norm_args *args);
void vx_cpu_group_norm(struct vx_cpu *cpu, const struct vx_group_norm_args *args);
void vx_cpu_curve(struct vx_cpu *cpu, const struct vx_curve_args *args);
void vx_cpu_softmax(struct vx_cpu *cpu, const struct vx_softmax_args *args);
void vx_cpu_argmax(struct vx_cpu *cpu, const struct vx_argmax_args *args);
void vx_cpu_add(struct vx_cpu *cpu, const struct vx_pair_args *args);
void vx_cpu_mul(struct vx_cpu *cpu, const struct vx_pair_args *args);
void vx_cpu_affine(struct vx_cpu *cpu, const struct vx_affine_args *args);
void vx_cpu_concat(struct vx_cpu *cpu, const struct vx_concat_args *args);
void vx_cpu_convert(struct vx_cpu *cpu, const struct vx_convert_args *args);
void vx_cpu_e4m3(struct vx_cpu *cpu, const struct vx_e4m3_args *args);
void vx_cpu_row_gather(struct vx_cpu *cpu, const struct vx_row_gather_args *args);
void vx_cpu_pool(struct vx_cpu *cpu, const struct vx_pool_args *args);
void vx_cpu_to_dense(struct vx_cpu *cpu, const struct vx_to_dense_args *args);
void vx_cpu_voxelize(struct vx_cpu *cpu, const struct vx_voxelize_args *args);
void vx_cpu_devoxelize(struct vx_cpu *cpu, const struct vx_devoxelize_args *args);
void vx_cpu_global_pool(struct vx_cpu *cpu, const struct vx_global_pool_args *args);

#endif
