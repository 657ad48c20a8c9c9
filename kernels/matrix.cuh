/* matrix - matrix instructions and asynchronous copies, one small function each.
 *
 * A fragment is what one lane holds of a 16x8 tile of the result.  With g = lane / 4 and
 * t = lane % 4, c[0], c[1] are row g, columns 2t and 2t+1; c[2], c[3] the same of row
 * g + 8.  One step multiplies VX_STEP numbers of the sum.
 *
 * Owner    -
 * Thread   device code; every lane of the wave arrives.
 * Limits   NVIDIA from sm_80.
 * Fails    #error elsewhere: AMD's matrix instructions have other shapes and need kernels
 *          with tiles of their own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MATRIX_CUH
#define VX_KERNELS_MATRIX_CUH

#include "kernels/device.h"

#if !VX_CUDA
#error "matrix.cuh knows the matrix instructions of NVIDIA"
#endif

/* Terms of the sum that one instruction takes: the K of the mma. */
#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
#define VX_STEP 16
#elif VX_TYPE == VX_TYPE_TF32
#define VX_STEP 8
#else
#define VX_STEP 4 /* fused multiply-adds, four at a time */
#endif

/* Elements in 16 bytes, the unit of every copy. */
#define VX_CHUNK_ELEMENTS (16 / (int)sizeof(vx_element))

VX_DEVICE uint32_t vx_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

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
/* `at` is a constant. */
VX_DEVICE float vx_word_float(struct vx_words4 words, int at)
{
    return vx_float_of_bits(at == 0   ? words.x
                            : at == 1 ? words.y
                            : at == 2 ? words.z
                                      : words.w);
}

/* Waits for all copies of this thread, committed or not. */
VX_DEVICE void vx_copy_wait_all(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

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
#if VX_TYPE == VX_TYPE_F16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif VX_TYPE == VX_TYPE_BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif VX_TYPE == VX_TYPE_TF32
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

/* Rounds to nearest, to the 10 bits of fraction that the instruction would cut to. */
VX_DEVICE uint32_t vx_tf32(uint32_t bits)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(vx_float_of_bits(bits)));
    return rounded;
}

#endif
