/* device - blocks, waves, atomics and 16-bit numbers, for every vendor.
 *
 * Device code is the common subset of C and C++: no templates, no vendor headers, sizes
 * as macros with defaults, one struct of arguments by value.  Every .cu and .cuh includes
 * this file, host code never does.  Only this file, both.h and matrix.cuh look at a
 * compiler's own macros; other texts test VX_CUDA at most.
 *
 * All that differs between vendors.  A function stands once for each, with one contract:
 *
 *   what                   NVIDIA                AMD                         where
 *   lanes of a wave        32                    64 up to gfx9, then 32      here
 *   threads of a block     launch bounds         that number, no other       here
 *   barrier of a block     __syncthreads         s_barrier and fences        here
 *   barrier of a wave      __syncwarp            a fence: they go together   here
 *   shuffles, ballots      with a mask of lanes  ds_bpermute, ballot         here
 *   atomics                atomicAdd and others  __hip_atomic_..., relaxed   here
 *   bits, 16-bit numbers   intrinsics, PTX       clang's builtins, _Float16  here
 *   exp, erf, tanh, log1p  CUDA's                ours                        math.cuh
 *   products of a tile     mma 16x8, wgmma       MFMA, WMMA 16x16, or fma    matrix.cuh
 *   copies into shared     cp.async, TMA         through registers           matrix.cuh
 *   stages of a tile       several in flight     one loaded, one used        tile_walk
 *   VX_MULTIPLY of a tile  0 to 2                3 to 5                      06's spec
 *   launches begin early   griddepcontrol        never                       here
 *
 * Only on NVIDIA: stage_async, tile_wgmma_sm90, stream_sm90, and 33_mlp, which Hopper's
 * copies carry; without it three other kernels do the same.  A kernel never asks for
 * blockDim or gridDim, because on AMD those are hidden arguments.
 *
 * Owner    -
 * Thread   device code.
 * Limits   NVIDIA from sm_75.  AMD: waves of 64 lanes up to gfx9, of 32 from gfx10 on.
 * Fails    #error for an unknown compiler.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_DEVICE_H
#define VX_KERNELS_DEVICE_H

#include <stdint.h>

/* The type that a typed kernel is compiled for, an enum vx_number.  The default lets an
 * editor compile any text as it is. */
#ifndef VX_TYPE
#define VX_TYPE 2
#endif
#define VX_TYPE_F32  1
#define VX_TYPE_F16  2
#define VX_TYPE_BF16 3
#define VX_TYPE_TF32 4
#define VX_TYPE_E4M3 5

/* Only what is multiplied has 8 bits: all else is F16. */
#if VX_TYPE == VX_TYPE_E4M3
#define VX_E4M3 1
#undef VX_TYPE
#define VX_TYPE VX_TYPE_F16
#endif

#if defined(__CUDACC__)
#define VX_CUDA   1
#define VX_WAVE   32
#define VX_DEVICE static __device__ __forceinline__
#define VX_SHARED __shared__
#define VX_KERNEL(threads_, blocks_)                                                     \
    extern "C" __global__ void __launch_bounds__(threads_, blocks_)
#elif defined(__AMDGCN__) || defined(__HIP__)
#define VX_HIP 1
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define VX_WAVE 32
#else
#define VX_WAVE 64
#endif
#define VX_DEVICE static __attribute__((device)) __attribute__((always_inline)) inline
#define VX_SHARED __attribute__((shared))
#define VX_KERNEL(threads_, blocks_)                                                     \
    extern "C" __attribute__((global))                                                   \
    __attribute__((amdgpu_flat_work_group_size(threads_, threads_))) void
#else
#error "device.h knows nvcc, NVRTC, and clang or hipRTC for AMD"
#endif

/* --- where am I --- */
#if VX_CUDA
VX_DEVICE uint32_t vx_thread(void)
{
    return threadIdx.x;
}
VX_DEVICE uint32_t vx_block_x(void)
{
    return blockIdx.x;
}
VX_DEVICE uint32_t vx_block_y(void)
{
    return blockIdx.y;
}
VX_DEVICE uint32_t vx_block_z(void)
{
    return blockIdx.z;
}
/* Waits for all threads of the block, and orders their shared and global accesses. */
VX_DEVICE void vx_barrier(void)
{
    __syncthreads();
}
VX_DEVICE void vx_wave_barrier(void)
{
    __syncwarp();
}
#else
VX_DEVICE uint32_t vx_thread(void)
{
    return __builtin_amdgcn_workitem_id_x();
}
VX_DEVICE uint32_t vx_block_x(void)
{
    return __builtin_amdgcn_workgroup_id_x();
}
VX_DEVICE uint32_t vx_block_y(void)
{
    return __builtin_amdgcn_workgroup_id_y();
}
VX_DEVICE uint32_t vx_block_z(void)
{
    return __builtin_amdgcn_workgroup_id_z();
}
VX_DEVICE void vx_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/* The lanes of a wave go together: only the compiler must not move accesses across. */
VX_DEVICE void vx_wave_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
VX_DEVICE uint32_t vx_lane(void)
{
    return vx_thread() % VX_WAVE;
}
VX_DEVICE uint32_t vx_wave(void)
{
    return vx_thread() / VX_WAVE;
}

/* A condition that rarely holds.  What it guards is compiled away from the code around it, so that
 * a loop stays together in the instruction cache. */
#define VX_RARELY(condition_) __builtin_expect(!!(condition_), 0)

/* --- launches that begin early (gpu.h); in any other launch these two do nothing --- */
#if VX_CUDA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/* Lets an early launch behind this one begin, once every block of this one has come here. */
VX_DEVICE void vx_launch_next(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
/* Waits until all launches before this one have ended.  Until then a kernel may read only what was
 * written before the last launch that did not begin early, and write nothing.  Every block calls
 * it: a launch that ended before those in front of it would let the one behind it go too soon. */
VX_DEVICE void vx_launch_before(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#else
VX_DEVICE void vx_launch_next(void)
{
}
VX_DEVICE void vx_launch_before(void)
{
}
#endif

/* --- operations of a whole wave: every lane must call them --- */
#if VX_CUDA
/* Bit l is set when lane l passes true. */
VX_DEVICE uint64_t vx_ballot(int said)
{
    return __ballot_sync(0xffffffffu, said);
}
VX_DEVICE uint32_t vx_shuffle(uint32_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}
VX_DEVICE uint32_t vx_shuffle_xor(uint32_t value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
/* `value` is the same in all lanes; the compiler is told so. */
VX_DEVICE uint32_t vx_uniform(uint32_t value)
{
    return value;
}
#else
VX_DEVICE uint64_t vx_ballot(int said)
{
#if VX_WAVE == 64
    return __builtin_amdgcn_ballot_w64(said);
#else
    return __builtin_amdgcn_ballot_w32(said);
#endif
}
VX_DEVICE uint32_t vx_shuffle(uint32_t value, uint32_t lane)
{
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(lane * 4), (int)value);
}
VX_DEVICE uint32_t vx_shuffle_xor(uint32_t value, uint32_t mask)
{
    return vx_shuffle(value, vx_lane() ^ mask);
}
VX_DEVICE uint32_t vx_uniform(uint32_t value)
{
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}
#endif

#if VX_CUDA /* NVRTC does not know __builtin_memcpy */
VX_DEVICE float vx_float_of_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}
VX_DEVICE uint32_t vx_bits_of_float(float value)
{
    return __float_as_uint(value);
}
VX_DEVICE double vx_double_of_bits(uint64_t bits)
{
    return __longlong_as_double((long long)bits);
}
VX_DEVICE uint64_t vx_bits_of_double(double value)
{
    return (uint64_t)__double_as_longlong(value);
}
#else
VX_DEVICE float vx_float_of_bits(uint32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
VX_DEVICE uint32_t vx_bits_of_float(float value)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
VX_DEVICE double vx_double_of_bits(uint64_t bits)
{
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
VX_DEVICE uint64_t vx_bits_of_double(double value)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
#endif
VX_DEVICE float vx_shuffle_xor_float(float value, uint32_t mask)
{
    return vx_float_of_bits(vx_shuffle_xor(vx_bits_of_float(value), mask));
}

/* --- bits --- */
#if VX_CUDA
VX_DEVICE int32_t vx_count_bits(uint32_t bits)
{
    return __popc(bits);
}
VX_DEVICE int32_t vx_count_bits64(uint64_t bits)
{
    return __popcll(bits);
}
/* Index of the lowest set bit; `bits` is not 0. */
VX_DEVICE int32_t vx_lowest_bit(uint32_t bits)
{
    return __ffs((int)bits) - 1;
}
#else
VX_DEVICE int32_t vx_count_bits(uint32_t bits)
{
    return __builtin_popcount(bits);
}
VX_DEVICE int32_t vx_count_bits64(uint64_t bits)
{
    return __builtin_popcountll(bits);
}
VX_DEVICE int32_t vx_lowest_bit(uint32_t bits)
{
    return __builtin_ctz(bits);
}
#endif

/* --- atomics on device memory (and on shared memory): relaxed, device scope --- */
#if VX_CUDA
VX_DEVICE uint32_t vx_atomic_add(uint32_t *at, uint32_t value)
{
    return atomicAdd(at, value);
}
VX_DEVICE uint64_t vx_atomic_add64(uint64_t *at, uint64_t value)
{
    return atomicAdd((unsigned long long *)at, (unsigned long long)value);
}
VX_DEVICE uint32_t vx_atomic_or(uint32_t *at, uint32_t value)
{
    return atomicOr(at, value);
}
VX_DEVICE uint64_t vx_atomic_or64(uint64_t *at, uint64_t value)
{
    return atomicOr((unsigned long long *)at, (unsigned long long)value);
}
/* Stores `value` if *at is `expected`; returns what *at was. */
VX_DEVICE uint32_t vx_atomic_swap_if(uint32_t *at, uint32_t expected, uint32_t value)
{
    return atomicCAS(at, expected, value);
}
VX_DEVICE uint64_t vx_atomic_swap_if64(uint64_t *at, uint64_t expected, uint64_t value)
{
    return atomicCAS((unsigned long long *)at, (unsigned long long)expected,
                     (unsigned long long)value);
}
#else
VX_DEVICE uint32_t vx_atomic_add(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
VX_DEVICE uint64_t vx_atomic_add64(uint64_t *at, uint64_t value)
{
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
VX_DEVICE uint32_t vx_atomic_or(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_or(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
VX_DEVICE uint64_t vx_atomic_or64(uint64_t *at, uint64_t value)
{
    return __hip_atomic_fetch_or(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
VX_DEVICE uint32_t vx_atomic_swap_if(uint32_t *at, uint32_t expected, uint32_t value)
{
    (void)__hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED,
                                               __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
VX_DEVICE uint64_t vx_atomic_swap_if64(uint64_t *at, uint64_t expected, uint64_t value)
{
    (void)__hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED,
                                               __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
#endif

/* --- 16-bit numbers are passed as bits; rounding is to nearest, ties to even --- */
VX_DEVICE float vx_float_of_bf16(uint16_t bits)
{
    return vx_float_of_bits((uint32_t)bits << 16);
}
VX_DEVICE uint16_t vx_bf16_of_float(float value)
{
    uint32_t bits = vx_bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#if VX_CUDA
VX_DEVICE float vx_float_of_f16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
VX_DEVICE uint16_t vx_f16_of_float(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#else
VX_DEVICE float vx_float_of_f16(uint16_t bits)
{
    _Float16 half;
    __builtin_memcpy(&half, &bits, sizeof half);
    return (float)half;
}
VX_DEVICE uint16_t vx_f16_of_float(float value)
{
    _Float16 half = (_Float16)value;
    uint16_t bits;
    __builtin_memcpy(&bits, &half, sizeof bits);
    return bits;
}
#endif

/* --- one element of a tensor of VX_TYPE --- */
#if VX_TYPE == VX_TYPE_F16
typedef uint16_t vx_element;
VX_DEVICE float vx_float_of(vx_element bits)
{
    return vx_float_of_f16(bits);
}
VX_DEVICE vx_element vx_element_of(float value)
{
    return vx_f16_of_float(value);
}
#elif VX_TYPE == VX_TYPE_BF16
typedef uint16_t vx_element;
VX_DEVICE float vx_float_of(vx_element bits)
{
    return vx_float_of_bf16(bits);
}
VX_DEVICE vx_element vx_element_of(float value)
{
    return vx_bf16_of_float(value);
}
#else
typedef float vx_element;
VX_DEVICE float vx_float_of(vx_element value)
{
    return value;
}
VX_DEVICE vx_element vx_element_of(float value)
{
    return value;
}
#endif

/* Four 32-bit words that are loaded and stored in one access of 16 bytes. */
struct __attribute__((aligned(16))) vx_words4 {
    uint32_t x, y, z, w;
};

#endif
