/* types - short names for number types, and attributes that make the compiler check more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_TYPES_H
#define VX_ENGINE_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

#define VX_MUST_USE                __attribute__((warn_unused_result))
#define VX_PRINTF(format_, first_) __attribute__((format(printf, format_, first_)))
#define VX_COUNT(array_)           (sizeof(array_) / sizeof((array_)[0]))

/* The struct that holds `member`, from a pointer to the member. */
#define VX_CONTAINER(pointer_, type_, member_)                                           \
    ((type_ *)(void *)((char *)(pointer_)-offsetof(type_, member_)))

/* True when a * b does not fit; *out is then undefined. */
static inline bool vx_mul_overflows(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

/* Rounds up to a multiple of `unit`, a power of two. */
static inline size_t vx_round_up(size_t value, size_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

/* Bits needed to write n: 0 for 0, 1 for 1, 2 for 2 and 3, ... */
static inline int vx_bit_length(u64 n)
{
    return n ? 64 - __builtin_clzll(n) : 0;
}

#endif
