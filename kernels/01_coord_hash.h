/* 01_coord_hash - coordinates packed into 64-bit keys, and a hash table from key to row.
 *
 * Math     key       = sample << 54 | (x + 2^17) << 36 | (y + 2^17) << 18 | (z + 2^17)
 *          slot(key) = mix(key) mod S, then the next free slot
 *          The fields have 9, 18, 18 and 18 bits: keys sort by sample, x, y, z.
 * Shapes   coords (N,4) sample x y z, or (N,3) x y z of sample 0
 *          keys (N)  slots_key, slots_row (S)
 * Types    i32 coords, u64 keys, i32 rows.
 * Idea     With one number instead of four, equality is one compare and a neighbour is
 *          one addition.  S is a power of two, at least 2 N, so that probes stay short
 *          (1.5 on average for a key that is found).  Keys and rows are separate arrays:
 *          a miss reads keys only.
 * Steps    1 check the ranges
 *          2 pack
 *          3 insert in the order of rows; a row that finds its own key is a duplicate,
 *            and the row stored there is the first of the pair
 * Tiles    rows.
 * Cost     bytes 24*N + 12*S, about 1.5 random accesses per row.
 * Limits   0 <= sample < 512; -2^17 <= x,y,z < 2^17; N < 2^31; S a power of two > N.
 *          Out of range: bad_row is the first such row, bad_column its first such column.
 * Order    of all duplicates the pair with the smallest second row is reported, on every
 *          machine.
 * Oracle   01_coord_hash_ref.c, tests/unit/kernels/test_kernels.c.
 * Source   Knuth, TAOCP 3, 6.4 (linear probing); the mix is the finaliser of splitmix64
 *          (Steele, Lea, Flood, OOPSLA 2014).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_COORD_HASH_H
#define VX_KERNELS_COORD_HASH_H

#include <stdint.h>

#include "kernels/both.h"

#define VX_KEY_SAMPLE_BITS 9
#define VX_KEY_AXIS_BITS   18
#define VX_KEY_AXIS_MASK   ((UINT64_C(1) << VX_KEY_AXIS_BITS) - 1)
#define VX_KEY_AXIS_BIAS   (1 << (VX_KEY_AXIS_BITS - 1))
/* No key has this value: keys have 63 bits. */
#define VX_KEY_EMPTY (~UINT64_C(0))

VX_BOTH uint64_t vx_key_pack(int32_t sample, int32_t x, int32_t y, int32_t z)
{
    uint64_t key = (uint64_t)(uint32_t)sample;
    key = key << VX_KEY_AXIS_BITS | (uint64_t)((uint32_t)x + VX_KEY_AXIS_BIAS);
    key = key << VX_KEY_AXIS_BITS | (uint64_t)((uint32_t)y + VX_KEY_AXIS_BIAS);
    return key << VX_KEY_AXIS_BITS | (uint64_t)((uint32_t)z + VX_KEY_AXIS_BIAS);
}

VX_BOTH int32_t vx_key_sample(uint64_t key)
{
    return (int32_t)(key >> (3 * VX_KEY_AXIS_BITS));
}

/* axis: 0 = x, 1 = y, 2 = z */
VX_BOTH int32_t vx_key_axis(uint64_t key, int axis)
{
    return (int32_t)(key >> ((2 - axis) * VX_KEY_AXIS_BITS) & VX_KEY_AXIS_MASK) -
           VX_KEY_AXIS_BIAS;
}

VX_BOTH uint64_t vx_key_mix(uint64_t key)
{
    key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
    return key ^ key >> 31;
}

struct vx_coord_hash_args {
    int64_t n;
    int32_t columns;       /* 3 or 4 */
    const int32_t *coords; /* (N, columns) */
    uint64_t slots_count;  /* power of two, > N */
    uint64_t *keys;        /* (N) out */
    uint64_t *slots_key;   /* (slots_count) out; VX_KEY_EMPTY where free */
    int32_t *slots_row;    /* (slots_count) out */
    /* out: the first row out of range, -1 none; if >= 0, no key or slot is written */
    int64_t bad_row;
    int32_t bad_column;    /* out: its first column out of range, -1 none */
    int64_t first, second; /* out: the first pair of equal rows, -1 none */
};

void vx_coord_hash_ref(struct vx_coord_hash_args *args);
/* The row that has `key`, -1 none. */
int32_t vx_coord_hash_find(const uint64_t *slots_key, const int32_t *slots_row,
                           uint64_t slots_count, uint64_t key);

#endif
