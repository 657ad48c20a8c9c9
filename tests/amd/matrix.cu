/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel for each matrix instruction: a wave loads its registers as they lie in memory,
 * lane by lane, multiplies once, and stores the sums. */
#include "kernels/device.h"

#include "tests/amd/faults.h"

typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16 __attribute__((ext_vector_type(16)));
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef short s16x8 __attribute__((ext_vector_type(8)));
typedef short s16x16 __attribute__((ext_vector_type(16)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));

#define MATRIX(name_, operand_, sums_, ...)                                              \
    VX_KERNEL(VX_WAVE, 1) name_(const struct amd_matrix_args args)                       \
    {                                                                                    \
        if (vx_lane() == args.absent) return;                                            \
        operand_ a = ((const operand_ *)args.a)[vx_lane()];                              \
        operand_ b = ((const operand_ *)args.b)[vx_lane()];                              \
        sums_ c = ((const sums_ *)args.c)[vx_lane()];                                    \
        ((sums_ *)args.c)[vx_lane()] = __VA_ARGS__;                                      \
    }

#if VX_WAVE == 64
MATRIX(f16_16, f16x4, f32x4, __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0))
MATRIX(bf16_16, s16x4, f32x4, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0))
MATRIX(f32_16, float, f32x4, __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0))
MATRIX(f16_32, f16x4, f32x16, __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0))
MATRIX(bf16_32, s16x4, f32x16, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0))
#if defined(__gfx942__)
MATRIX(xf32_16, f32x2, f32x4, __builtin_amdgcn_mfma_f32_16x16x8_xf32(a, b, c, 0, 0, 0))
#endif
#elif defined(__gfx1100__)
MATRIX(f16_16, f16x16, f32x8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c))
MATRIX(bf16_16, s16x16, f32x8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c))
#else
MATRIX(f16_16, f16x8, f32x8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c))
MATRIX(bf16_16, s16x8, f32x8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c))
#endif
