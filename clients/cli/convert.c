/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/convert.h"

#include "clients/c/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float convert_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 31;
    uint32_t mantissa = half & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float small = ldexpf((float)mantissa, -24);
    return sign ? -small : small;
}

uint16_t convert_to_half(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        /* A subnormal half counts in units of 2^-24; rintf rounds ties to even. */
        return (uint16_t)(sign | (uint16_t)rintf(ldexpf(float_of(magnitude), 24)));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000) >> 13));
}

float convert_from_bfloat(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t convert_to_bfloat(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct range {
    double most;   /* the largest finite number */
    double beyond; /* half a step above it: rounds to even, which is infinity */
};

static struct range range_of(enum voxel_type type)
{
    if (type == VOXEL_FP16) return (struct range){65504, 65520};
    if (type == VOXEL_BF16) return (struct range){0x1.fep127, 0x1.ffp127};
    return (struct range){0x1.fffffep127, 0x1.ffffffp127};
}

bool convert_overflows(double value, enum voxel_type type)
{
    return isfinite(value) && fabs(value) >= range_of(type).beyond;
}

enum voxel_code convert_refuse(const struct convert_cell *cell, enum voxel_type type,
                               struct voxel_error *error)
{
    char came[CONVERT_TEXT_BYTES];
    char most[CONVERT_TEXT_BYTES];
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "row %lld, channel %d of feats: expected a number that fits %s, at "
        "most %s, got %s%s",
        (long long)cell->row, (int)cell->channel, voxel_type_name(type),
        convert_text(range_of(type).most, most), convert_text(cell->value, came),
        type == VOXEL_FP32 ? "" : "; use --dtype fp32");
}

enum voxel_code convert_check_whole(const char *name, const struct convert_cell *cell,
                                    struct voxel_error *error)
{
    char came[CONVERT_TEXT_BYTES];
    if (fabs(cell->value) <= CONVERT_WHOLE_MAX) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "row %lld, channel %d of '%s': expected an integer from %d to %d, which a float "
        "holds exactly, got %s; store them as float if they may be rounded",
        (long long)cell->row, (int)cell->channel, name, -CONVERT_WHOLE_MAX,
        CONVERT_WHOLE_MAX, convert_text(cell->value, came));
}

#define CELL(type)                                                                       \
    do {                                                                                 \
        type cell;                                                                       \
        memcpy(&cell, at, sizeof cell);                                                  \
        return (float)cell;                                                              \
    } while (0)

float convert_cell(const struct voxel_tensor *tensor, int64_t index)
{
    const uint8_t *at =
        (const uint8_t *)tensor->data + (size_t)index * voxel_type_bytes(tensor->type);
    uint16_t half = 0;
    switch (tensor->type) {
    case VOXEL_FP32: CELL(float);
    case VOXEL_FP64: CELL(double);
    case VOXEL_BOOL:
    case VOXEL_UINT8: CELL(uint8_t);
    case VOXEL_UINT16: CELL(uint16_t);
    case VOXEL_UINT32: CELL(uint32_t);
    case VOXEL_UINT64: CELL(uint64_t);
    case VOXEL_INT8: CELL(int8_t);
    case VOXEL_INT16: CELL(int16_t);
    case VOXEL_INT32: CELL(int32_t);
    case VOXEL_INT64: CELL(int64_t);
    case VOXEL_FP16: memcpy(&half, at, sizeof half); return convert_from_half(half);
    case VOXEL_BF16: memcpy(&half, at, sizeof half); return convert_from_bfloat(half);
    case VOXEL_NONE:
    case VOXEL_BYTES: break;
    }
    return 0.0f;
}

const char *convert_text(double value, char text[CONVERT_TEXT_BYTES])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, CONVERT_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}
