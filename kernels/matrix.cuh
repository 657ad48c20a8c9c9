/* matrix - matrix instructions and copies into shared memory, one small function each.
 *
 * A fragment is what one lane holds of a tile of the result.  One step multiplies VX_STEP
 * numbers of the sum.  Shared memory is addressed by 32-bit numbers, as both vendors'
 * instructions do.
 *
 *   NVIDIA   16x8.  With g = lane / 4 and t = lane % 4, c[0], c[1] are row g, columns 2t and
 *            2t+1; c[2], c[3] the same of row g + 8.
 *   AMD      16x16.  Lane l has column l % 16 of the result, of the rows that vx_sum_row
 *            tells.  Of both operands it has VX_OPERAND_TERMS numbers that follow each
 *            other in the sum, of row (of column) l % 16.  Where one instruction takes
 *            fewer than a step's 16 terms, several take them in another order.
 *
 * Owner    -
 * Thread   device code; every lane of the wave arrives.
 * Limits   NVIDIA from sm_80; sm_75 of fp16, and copies through registers.  AMD: MFMA on
 *          gfx90a, gfx940 to gfx942 and gfx950, of every type; WMMA on gfx11 and gfx12, of
 *          16-bit types; elsewhere VX_STEP is for fused multiply-adds.
 * Fails    never.
 * Oracle   tests/amd: AMD's lane maps by tables of their own.
 * Source   AMD, CDNA2, CDNA3, RDNA3 and RDNA4 instruction set architecture guides;
 *          github.com/ROCm/amd_matrix_instruction_calculator.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MATRIX_CUH
#define VX_KERNELS_MATRIX_CUH

#include "kernels/device.h"

/* Elements in 16 bytes, the unit of every copy. */
#define VX_CHUNK_ELEMENTS (16 / (int)sizeof(vx_element))

/* `at` is a constant. */
VX_DEVICE float vx_word_float(struct vx_words4 words, int at)
{
    return vx_float_of_bits(at == 0   ? words.x
                            : at == 1 ? words.y
                            : at == 2 ? words.z
                                      : words.w);
}

/* --- NVIDIA --- */
#if VX_CUDA
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define VX_TURING 1
#endif

/* Terms of the sum that one instruction takes: the K of the mma. */
#if VX_TURING && VX_TYPE != VX_TYPE_F16
#define VX_STEP VX_CHUNK_ELEMENTS /* fused multiply-adds */
#define VX_FMA  1
#elif VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
#define VX_STEP 16
#elif VX_TYPE == VX_TYPE_TF32
#define VX_STEP 8
#else
#define VX_STEP 4 /* fused multiply-adds, four at a time */
#define VX_FMA  1
#endif

VX_DEVICE uint32_t vx_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

#if VX_TURING /* no asynchronous copies: what is copied is there after a barrier */
VX_DEVICE void vx_copy_async(uint32_t to, const void *from, int present)
{
    uint4 words = *(const uint4 *)from;
    if (!present) words = make_uint4(0, 0, 0, 0);
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}
VX_DEVICE void vx_copy_async4(void *to, const void *from)
{
    *(uint32_t *)to = *(const uint32_t *)from;
}
VX_DEVICE void vx_copy_commit(void)
{
}
#define vx_copy_wait(left_)
VX_DEVICE void vx_copy_wait_all(void)
{
}
#else
/* Copies 16 bytes from device to shared memory, or writes zeros if not `present`; `from`
 * is a legal address in both cases. */
VX_DEVICE void vx_copy_async(uint32_t to, const void *from, int present)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "r"(present ? 16 : 0)
                 : "memory");
}
/* Copies 4 bytes, from any multiple of 4: for lists. */
VX_DEVICE void vx_copy_async4(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(vx_shared_address(to)),
                 "l"(from)
                 : "memory");
}
VX_DEVICE void vx_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until all but the latest `left_` groups of this thread have arrived. */
#define vx_copy_wait(left_)                                                              \
    asm volatile("cp.async.wait_group %0;" ::"n"(left_) : "memory")
#endif

VX_DEVICE uint32_t vx_load_shared(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
VX_DEVICE struct vx_words4 vx_load_shared4(uint32_t address)
{
    struct vx_words4 words;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(address)
                 : "memory");
    return words;
}
#if !VX_TURING
/* Waits for all copies of this thread, committed or not. */
VX_DEVICE void vx_copy_wait_all(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#endif

/* Loads four 8x8 tiles of 16-bit numbers (or 8x4 of 32-bit ones): lane l passes the
 * address of row l % 8 of tile l / 8. */
VX_DEVICE void vx_load_tiles(uint32_t to[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}
VX_DEVICE void vx_load_tiles_turned(uint32_t to[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

VX_DEVICE void vx_multiply(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if VX_TYPE == VX_TYPE_F16 && VX_TURING
#pragma unroll
    for (int half = 0; half < 2; half++) /* eight terms each */
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#elif VX_TYPE == VX_TYPE_F16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif VX_TYPE == VX_TYPE_BF16 && !VX_TURING
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif VX_TYPE == VX_TYPE_TF32 && !VX_TURING
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

#if !VX_TURING
/* Rounds to nearest, to the 10 bits of fraction that the instruction would cut to. */
VX_DEVICE uint32_t vx_tf32(uint32_t bits)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(vx_float_of_bits(bits)));
    return rounded;
}
#endif

/* --- AMD --- */
#else
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) ||                 \
    defined(__gfx942__) || defined(__gfx950__)
#define VX_MFMA 1
#elif (defined(__GFX11__) || defined(__GFX12__)) &&                                      \
    (VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16)
#define VX_WMMA 1
#endif

#define VX_ON_CHIP __attribute__((address_space(3)))

VX_DEVICE uint32_t vx_shared_address(const void *shared)
{
    return (uint32_t)(uintptr_t)(const VX_ON_CHIP void *)shared;
}

/* There are no asynchronous copies: what is copied is there after a barrier. */
VX_DEVICE void vx_copy_async4(void *to, const void *from)
{
    *(uint32_t *)to = *(const uint32_t *)from;
}
VX_DEVICE void vx_copy_wait_all(void)
{
}

VX_DEVICE uint32_t vx_load_shared(uint32_t address)
{
    return *(const VX_ON_CHIP uint32_t *)(uintptr_t)address;
}
/* 8 bytes, the first two words. */
VX_DEVICE void vx_load_shared2(uint32_t *to, uint32_t address)
{
    const uint64_t words = *(const VX_ON_CHIP uint64_t *)(uintptr_t)address;
    to[0] = (uint32_t)words;
    to[1] = (uint32_t)(words >> 32);
}
typedef uint32_t vx_words __attribute__((ext_vector_type(4)));
VX_DEVICE struct vx_words4 vx_load_shared4(uint32_t address)
{
    const vx_words words = *(const VX_ON_CHIP vx_words *)(uintptr_t)address;
    const struct vx_words4 result = {words.x, words.y, words.z, words.w};
    return result;
}
VX_DEVICE void vx_store_shared4(uint32_t address, struct vx_words4 words)
{
    const vx_words all = {words.x, words.y, words.z, words.w};
    *(VX_ON_CHIP vx_words *)(uintptr_t)address = all;
}
VX_DEVICE void vx_store_shared_element(uint32_t address, vx_element element)
{
    *(VX_ON_CHIP vx_element *)(uintptr_t)address = element;
}

#if VX_MFMA
#define VX_STEP          16
#define VX_OPERAND_TERMS 4
#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
#define VX_OPERAND_WORDS 2
#else
#define VX_OPERAND_WORDS 4
#endif
#define VX_FRAGMENT_SUMS 4
VX_DEVICE int vx_operand_first(int lane)
{
    return lane / 16 * 4;
}
VX_DEVICE int vx_sum_row(int lane, int sum)
{
    return lane / 16 * 4 + sum;
}
#elif VX_WMMA && defined(__GFX11__)
#define VX_STEP          16
#define VX_OPERAND_TERMS 16 /* lanes 16 to 31 have the same as 0 to 15 */
#define VX_OPERAND_WORDS 8
#define VX_FRAGMENT_SUMS 8
VX_DEVICE int vx_operand_first(int lane)
{
    (void)lane;
    return 0;
}
VX_DEVICE int vx_sum_row(int lane, int sum)
{
    return 2 * sum + lane / 16;
}
#elif VX_WMMA
#define VX_STEP          16
#define VX_OPERAND_TERMS 8
#define VX_OPERAND_WORDS 4
#define VX_FRAGMENT_SUMS 8
VX_DEVICE int vx_operand_first(int lane)
{
    return lane / 16 * 8;
}
VX_DEVICE int vx_sum_row(int lane, int sum)
{
    return lane / 16 * 8 + sum;
}
#else
#define VX_STEP VX_CHUNK_ELEMENTS
#endif

#if VX_MFMA || VX_WMMA
typedef float vx_sums __attribute__((ext_vector_type(VX_FRAGMENT_SUMS)));
#if VX_TYPE == VX_TYPE_F16
typedef _Float16 vx_operand __attribute__((ext_vector_type(VX_OPERAND_TERMS)));
#elif VX_TYPE == VX_TYPE_BF16
typedef short vx_operand __attribute__((ext_vector_type(VX_OPERAND_TERMS)));
#else
typedef float vx_operand __attribute__((ext_vector_type(VX_OPERAND_TERMS)));
typedef float vx_operand_half __attribute__((ext_vector_type(2)));
#endif

/* TF32 is a type of gfx940 to gfx942; elsewhere its numbers are multiplied as f32. */
VX_DEVICE vx_sums vx_multiply_add(vx_operand a, vx_operand b, vx_sums c)
{
#if VX_MFMA && VX_TYPE == VX_TYPE_F16
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
#elif VX_MFMA && VX_TYPE == VX_TYPE_BF16
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#elif VX_MFMA && VX_TYPE == VX_TYPE_TF32 && !defined(__gfx90a__) && !defined(__gfx950__)
    const vx_operand_half a0 = {a.x, a.y}, a1 = {a.z, a.w};
    const vx_operand_half b0 = {b.x, b.y}, b1 = {b.z, b.w};
    c = __builtin_amdgcn_mfma_f32_16x16x8_xf32(a0, b0, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x8_xf32(a1, b1, c, 0, 0, 0);
#elif VX_MFMA
    c = __builtin_amdgcn_mfma_f32_16x16x4f32(a.x, b.x, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x4f32(a.y, b.y, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x4f32(a.z, b.z, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x4f32(a.w, b.w, c, 0, 0, 0);
#elif VX_TYPE == VX_TYPE_F16 && defined(__GFX11__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
#elif VX_TYPE == VX_TYPE_F16
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
#elif defined(__GFX11__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
#else
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
#endif
    return c;
}

VX_DEVICE void vx_multiply(float c[VX_FRAGMENT_SUMS], const uint32_t a[VX_OPERAND_WORDS],
                           const uint32_t b[VX_OPERAND_WORDS])
{
    vx_operand left, right;
    vx_sums sums;
    __builtin_memcpy(&left, a, sizeof left);
    __builtin_memcpy(&right, b, sizeof right);
    __builtin_memcpy(&sums, c, sizeof sums);
    sums = vx_multiply_add(left, right, sums);
    __builtin_memcpy(c, &sums, sizeof sums);
}
#endif
#endif

#endif
