/* e4m3 - numbers of 8 bits: a sign, 4 bits of exponent, 3 of fraction.
 *
 * 0x00 is 0, 0x01 is 2^-9, 0x08 is 2^-6, 0x7e is 448, the largest; 0x7f is NaN, and there is no
 * infinity.  A tensor of them has a scale, always a power of two: the number of byte b is
 * vx_e4m3_value(b) times the scale, and to multiply or divide by it rounds nothing.
 *
 * Owner    -
 * Thread   any; device code.
 * Limits   |x| beyond 448 becomes 448, infinity too; NaN stays NaN.
 * Fails    never.
 * Oracle   tests/unit/kernels/test_kernels_fp8.c: all 256 bytes, and the middle of each two.
 * Source   "OCP 8-bit Floating Point Specification" 1.0 (2023); Micikevicius et al., "FP8
 *          formats for deep learning" (2022).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_E4M3_H
#define VX_KERNELS_E4M3_H

#include <stdint.h>

#include "kernels/both.h"

#define VX_E4M3_MOST 448.0f
/* The scales that a tensor may have: 2 to the power of these. */
#define VX_E4M3_SCALE_EXPONENT_MAX 60

union vx_e4m3_bits {
    float number;
    uint32_t bits;
};

/* The nearest number of e4m3, ties to even. */
VX_BOTH float vx_e4m3_round(float x)
{
    union vx_e4m3_bits it;
    it.number = x;
    const uint32_t sign = it.bits & 0x80000000u;
    it.bits &= 0x7fffffffu;
    if (it.bits > 0x7f800000u) return x;
    if (it.number > VX_E4M3_MOST) it.number = VX_E4M3_MOST;
    /* Below 2^-6 the numbers are 2^-9 apart, as those of f32 are at 1.5 * 2^14. */
    if (it.number < 0.015625f)
        it.number = (it.number + 24576.0f) - 24576.0f;
    else
        it.bits = (it.bits + 0x7ffffu + (it.bits >> 20 & 1u)) & 0xfff00000u;
    it.bits |= sign;
    return it.number;
}

/* The byte of the nearest number. */
VX_BOTH uint8_t vx_e4m3_of(float x)
{
    union vx_e4m3_bits it;
    it.number = vx_e4m3_round(x);
    const uint32_t sign = it.bits >> 24 & 0x80u;
    it.bits &= 0x7fffffffu;
    if (it.bits > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (it.number < 0.015625f) return (uint8_t)(sign | (uint32_t)(it.number * 512.0f));
    return (uint8_t)(sign | ((it.bits >> 20) - ((127 - 7) << 3)));
}

VX_BOTH float vx_e4m3_value(uint8_t byte)
{
    union vx_e4m3_bits it;
    const uint32_t sign = (uint32_t)(byte & 0x80u) << 24, rest = byte & 0x7fu;
    if (rest == 0x7fu)
        it.bits = 0x7fc00000u;
    else if (rest < 8)
        it.number = (float)rest / 512.0f;
    else
        it.bits = (rest + ((127 - 7) << 3)) << 20;
    it.bits |= sign;
    return it.number;
}

/* The smallest scale with which numbers up to `most`, which is finite, are not cut off. */
VX_BOTH float vx_e4m3_scale(float most)
{
    union vx_e4m3_bits it;
    it.number = most;
    int32_t exponent = (int32_t)(it.bits >> 23 & 0xffu) - 127 - 8;
    if ((it.bits & 0x7fffffu) > 0x600000u) exponent++; /* beyond 1.75 */
    if (most == 0) exponent = 0;
    if (exponent < -VX_E4M3_SCALE_EXPONENT_MAX) exponent = -VX_E4M3_SCALE_EXPONENT_MAX;
    if (exponent > VX_E4M3_SCALE_EXPONENT_MAX) exponent = VX_E4M3_SCALE_EXPONENT_MAX;
    it.bits = (uint32_t)(exponent + 127) << 23;
    return it.number;
}

#endif
