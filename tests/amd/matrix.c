/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/matrix.h"

#include <stdio.h>
#include <string.h>

/* Sources.  MFMA: "AMD Instinct MI200 Instruction Set Architecture" and "AMD Instinct
 * MI300 Instruction Set Architecture", chapter on matrix arithmetic (the layout of
 * matrices in registers), and AMD's lab notes "AMD matrix cores" on GPUOpen.  WMMA: "RDNA3
 * Instruction Set Architecture" and "RDNA4 Instruction Set Architecture", sections on
 * WMMA, and GPUOpen "How to accelerate AI applications on RDNA 3 using WMMA".
 *
 * With l the lane and e the element of its register:
 *
 *               A[i][k]                    B[k][j]                    C[i][j]
 *  MFMA m=16    i = l % 16                 j = l % 16                 j = l % 16
 *               k = K/4 * (l / 16) + e     k = K/4 * (l / 16) + e     i = 4 * (l / 16) + e
 *  MFMA m=32    i = l % 32                 j = l % 32                 j = l % 32
 *               k = K/2 * (l / 32) + e     k = K/2 * (l / 32) + e     i = 8 * (e / 4)
 *                                                                  + 4 * (l / 32) + e % 4
 *  WMMA gfx11   i = l % 16, k = e; lanes   j = l % 16, k = e; lanes   j = l % 16
 *               16-31 repeat lanes 0-15    16-31 repeat lanes 0-15    i = 2 * e + l / 16
 *  WMMA gfx12   i = l % 16                 j = l % 16                 j = l % 16
 *               k = 8 * (l / 16) + e       k = 8 * (l / 16) + e       i = 8 * (l / 16) + e
 *
 * The order of k inside A and B is the same in both and cannot be seen in the product:
 * AMD's calculator numbers it otherwise for gfx12, which no program can tell.
 *
 * Sums.  Products of 16-bit numbers are exact in fp32.  Assumed: a product is not rounded
 * (it is taken in double), the products are added to C one after the other, k upwards,
 * each sum rounded to fp32 to nearest; subnormal numbers are kept.  The hardware adds in
 * another order, so only sums that are exact in any order (whole numbers) are the same
 * bits.  XF32 cuts its operands to 10 bits of fraction (MI300 ISA, "XF32"). */

enum number { NUMBER_F16, NUMBER_BF16, NUMBER_F32, NUMBER_XF32 };
enum layout { MFMA_16, MFMA_32, WMMA_11, WMMA_12 };

static const struct instruction {
    const char *name;
    enum layout layout;
    enum number number;
    u32 size;     /* m and n */
    u32 depth;    /* k */
    u32 elements; /* of A, or of B, in one lane */
} instructions[AMD_MATRICES_COUNT] = {
    [AMD_MFMA_16X16X16_F16] = {"mfma_f32_16x16x16f16", MFMA_16, NUMBER_F16, 16, 16, 4},
    [AMD_MFMA_16X16X16_BF16] = {"mfma_f32_16x16x16bf16_1k", MFMA_16, NUMBER_BF16, 16, 16,
                                4},
    [AMD_MFMA_16X16X4_F32] = {"mfma_f32_16x16x4f32", MFMA_16, NUMBER_F32, 16, 4, 1},
    [AMD_MFMA_16X16X8_XF32] = {"mfma_f32_16x16x8_xf32", MFMA_16, NUMBER_XF32, 16, 8, 2},
    [AMD_MFMA_32X32X8_F16] = {"mfma_f32_32x32x8f16", MFMA_32, NUMBER_F16, 32, 8, 4},
    [AMD_MFMA_32X32X8_BF16] = {"mfma_f32_32x32x8bf16_1k", MFMA_32, NUMBER_BF16, 32, 8, 4},
    [AMD_WMMA11_F16] = {"wmma_f32_16x16x16_f16", WMMA_11, NUMBER_F16, 16, 16, 16},
    [AMD_WMMA11_BF16] = {"wmma_f32_16x16x16_bf16", WMMA_11, NUMBER_BF16, 16, 16, 16},
    [AMD_WMMA12_F16] = {"wmma_f32_16x16x16_f16", WMMA_12, NUMBER_F16, 16, 16, 8},
    [AMD_WMMA12_BF16] = {"wmma_f32_16x16x16_bf16", WMMA_12, NUMBER_BF16, 16, 16, 8},
};

#define SIZE_MAX_  32
#define DEPTH_MAX_ 16

const char *amd_matrix_name(u32 which)
{
    return which < AMD_MATRICES_COUNT ? instructions[which].name : "no such instruction";
}

static bool is_mfma(const struct instruction *it)
{
    return it->layout == MFMA_16 || it->layout == MFMA_32;
}

u32 amd_matrix_wave(u32 which)
{
    return is_mfma(&instructions[which]) ? 64 : 32;
}

/* --- numbers --- */

static f32 float_of_bits(u32 bits)
{
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static f32 float_of_f16(u16 half)
{
    u32 sign = (u32)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    u32 fraction = half & 1023u;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    f32 small = (f32)fraction * 0x1p-24f;
    return sign ? -small : small;
}

static f32 element(const void *registers, u32 e, enum number number)
{
    if (number == NUMBER_F16) return float_of_f16(((const u16 *)registers)[e]);
    if (number == NUMBER_BF16)
        return float_of_bits((u32)((const u16 *)registers)[e] << 16);
    u32 bits;
    memcpy(&bits, (const u8 *)registers + 4 * (size_t)e, sizeof bits);
    return float_of_bits(number == NUMBER_XF32 ? bits & ~0x1fffu : bits);
}

static u32 element_bits(const void *registers, u32 e)
{
    return ((const u16 *)registers)[e];
}

/* --- which element a lane holds --- */

/* k of element e of A or B in lane l; its other index is l % size. */
static u32 depth_of(const struct instruction *it, u32 lane, u32 e)
{
    return it->layout == WMMA_11 ? e : it->elements * (lane / it->size) + e;
}

static u32 row_of(const struct instruction *it, u32 lane, u32 e)
{
    switch (it->layout) {
    case MFMA_16: return 4 * (lane / 16) + e;
    case MFMA_32: return 8 * (e / 4) + 4 * (lane / 32) + e % 4;
    case WMMA_11: return 2 * e + lane / 16;
    case WMMA_12: return 8 * (lane / 16) + e;
    }
    return 0;
}

/* --- the product --- */

/* Lanes 16-31 must repeat lanes 0-15, bit by bit. */
static bool repeats(const struct instruction *it, const struct amd_registers *lanes,
                    char why[AMD_WHY_BYTES])
{
    for (u32 lane = 0; lane < 16; lane++) {
        for (u32 e = 0; e < it->elements; e++) {
            const struct amd_registers *low = lanes + lane, *high = lanes + lane + 16;
            bool a = element_bits(low->a, e) == element_bits(high->a, e);
            bool b = element_bits(low->b, e) == element_bits(high->b, e);
            if (a && b) continue;
            (void)snprintf(why, AMD_WHY_BYTES,
                           "%s: element %u of %c differs between lanes %u and %u: "
                           "expected lanes 16-31 to repeat lanes 0-15",
                           it->name, e, a ? 'B' : 'A', lane, lane + 16);
            return false;
        }
    }
    return true;
}

bool amd_matrix_multiply(u32 which, const struct amd_registers *lanes,
                         char why[AMD_WHY_BYTES])
{
    const struct instruction *it = &instructions[which];
    u32 wave = amd_matrix_wave(which), sums = it->size * it->size / wave;
    f32 a[SIZE_MAX_][DEPTH_MAX_], b[SIZE_MAX_][DEPTH_MAX_]; /* [i][k], [j][k] */
    if (it->layout == WMMA_11 && !repeats(it, lanes, why)) return false;
    for (u32 lane = 0; lane < wave; lane++) {
        for (u32 e = 0; e < it->elements; e++) {
            u32 k = depth_of(it, lane, e);
            a[lane % it->size][k] = element(lanes[lane].a, e, it->number);
            b[lane % it->size][k] = element(lanes[lane].b, e, it->number);
        }
    }
    for (u32 lane = 0; lane < wave; lane++) {
        const f32 *column = b[lane % it->size];
        f32 *c = lanes[lane].c;
        for (u32 e = 0; e < sums; e++) {
            const f32 *row = a[row_of(it, lane, e)];
            for (u32 k = 0; k < it->depth; k++)
                c[e] = (f32)((f64)c[e] + (f64)row[k] * (f64)column[k]);
        }
    }
    return true;
}
