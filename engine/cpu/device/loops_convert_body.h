/* loops_convert_body - the inner loops that change the type of numbers: f16, bf16, e4m3.
 *
 * A part of loops_body.h, which includes it behind its vectors.
 *
 * Thread   any; pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_LOOPS_CONVERT_BODY_H
#define VX_ENGINE_CPU_LOOPS_CONVERT_BODY_H

INLINE f32 f32_of_bits(u32 bits)
{
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE u32 bits_of_f32(f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void f16_to_f32(const u16 *from, f32 *to, i64 count)
{
    for (i64 e = 0; e < count; e++) {
        u32 sign = (u32)(from[e] & 0x8000) << 16;
        u32 magnitude = from[e] & 0x7fff;
        /* f16 exponents begin at -14, those of f32 at -126.  A subnormal f16 counts 2^-24; as the
         * bits of an f32 it would be flushed (flush.h). */
        u32 normal = (magnitude << 13) + (112u << 23);
        u32 small = bits_of_f32((f32)(i32)magnitude * 0x1p-24f);
        u32 finite = magnitude < 0x400 ? small : normal;
        u32 special = 0x7f800000u | magnitude << 13;
        special |= magnitude > 0x7c00 ? 0x00400000u : 0;
        to[e] = f32_of_bits(sign | (magnitude >= 0x7c00 ? special : finite));
    }
}

static void bf16_to_f32(const u16 *from, f32 *to, i64 count)
{
    for (i64 e = 0; e < count; e++) {
        u32 bits = (u32)from[e] << 16;
        to[e] =
            f32_of_bits(bits | ((bits & 0x7fffffffu) > 0x7f800000u ? 0x00400000u : 0));
    }
}

static void f32_to_f16(const f32 *from, u16 *to, i64 count)
{
    for (i64 e = 0; e < count; e++) {
        u32 bits = bits_of_f32(from[e]);
        u32 sign = bits >> 16 & 0x8000;
        u32 magnitude = bits & 0x7fffffffu;
        /* Adds half a unit minus one bit, plus the lowest kept bit: ties go to even.  A
         * carry raises the exponent; beyond the largest number it gives infinity. */
        u32 normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
        /* The last bit of 0.5f is one unit of an f16 subnormal: the addition rounds. */
        u32 small = bits_of_f32(f32_of_bits(magnitude) + 0.5f) - 0x3f000000u;
        u32 nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
        u32 value = magnitude < 0x38800000u ? small : normal;
        value = magnitude >= 0x477ff000u ? 0x7c00 : value;
        value = magnitude > 0x7f800000u ? nan : value;
        to[e] = (u16)(sign | value);
    }
}

static void f32_to_bf16(const f32 *from, u16 *to, i64 count)
{
    for (i64 e = 0; e < count; e++) {
        u32 bits = bits_of_f32(from[e]);
        u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        u32 nan = bits >> 16 | 0x40;
        to[e] = (u16)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}

/* vx_e4m3_round (kernels/e4m3.h), bit for bit. */
INLINE vf e4m3(vf x)
{
    vi sign = (vi)x & INT32_MIN;
    vf a = absolute(x);
    a = pick(a > 448.0f, (vf){0} + 448.0f, a);
    vf small = (a + 24576.0f) - 24576.0f;
    vu bits = (vu)a;
    bits = (bits + 0x7ffffu + (bits >> 20 & 1u)) & 0xfff00000u;
    vf y = pick(a < 0.015625f, small, (vf)bits);
    y = pick(a == a, y, a);
    return (vf)((vi)y | sign);
}

/* The reciprocal of a power of two is exact. */
static void e4m3_round(f32 scale, const f32 *in, f32 *out, i64 count)
{
    const f32 inverse = 1.0f / scale;
    for (i64 e = 0; e < count; e += VX_LANES)
        vector_store(out + e, count - e,
                     e4m3(vector_load(in + e, count - e) * inverse) * scale);
}

#endif
