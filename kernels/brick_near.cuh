/* brick_near - what the two ways of 03_brick_map have in common: the table of places and
 * offsets, what is near, and the rows that follow from them.
 *
 *   fill_table(args, scattered, shared.table);       every thread of a block
 *   near_is(near + 2 * b, &brick);                   a lane to each brick that is near
 *   pairs += map_row(args, near, quads_of(shared.table, place), row, write);
 *
 * Owner    -
 * Thread   device code; every lane of a wave calls map_row, after a barrier of the wave.
 * Limits   VX_BRICK_MAP_THREADS threads.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BRICK_NEAR_CUH
#define VX_KERNELS_BRICK_NEAR_CUH

#include "kernels/03_brick_map.h"
#include "kernels/waves.cuh"

#ifndef VX_WORDS
#define VX_WORDS 1
#endif
#define VX_WAVES (VX_BRICK_MAP_THREADS / VX_WAVE)
/* Eight lanes with four entries each make one word of mask. */
#define VX_LANES 8
/* Voxels whose rows a wave writes at once. */
#define VX_AT_ONCE (VX_WAVE / VX_LANES)
/* A brick, its 26 neighbours, and one brick that is always empty, for entries past V. */
#define VX_NEAR 28
#define VX_OWN  13 /* the brick itself */
/* Scattered: the brick of a voxel, 7 beside it, and the empty one; for VX_AT_ONCE voxels.  The
 * table of 7^3 leaves no room for them. */
#define VX_NEAR_FEW  9
#define VX_SCATTERED (VX_WORDS <= 4)
#define VX_NEAR_HALVES                                                                   \
    (VX_SCATTERED && VX_AT_ONCE * VX_NEAR_FEW > VX_NEAR ? 2 * VX_AT_ONCE * VX_NEAR_FEW   \
                                                        : 2 * VX_NEAR)
/* Before a loop that would be long if it were unrolled. */
#define VX_ROLLED _Pragma("unroll 1")

/* One half of a brick's mask, and the number of the row before its first voxel. */
struct __attribute__((aligned(8))) near_half {
    uint32_t bits;
    uint32_t before;
};
/* Four entries of the table.  An entry is 64 * brick + 32 * half + the left shift that
 * brings the voxel's bit to the top of its half.  The last of `near` is the empty brick. */
struct __attribute__((aligned(8))) quad {
    uint16_t entries[4];
};

/* A brick of the list. */
struct brick {
    uint64_t key, mask;
    int32_t base;
};

VX_DEVICE struct brick brick_of(const struct vx_brick_map_args *args, uint32_t slot)
{
    struct vx_brick_slot it = args->slots[slot];
    struct brick brick = {it.key, it.mask, args->base[slot]};
    return brick;
}

/* What one axis adds to an entry: the neighbour's brick along it, and its place there.
 * at: where the voxel is in its brick; far: how far away the neighbour is. */
VX_DEVICE uint32_t entry_part(int32_t axis, uint32_t at, int32_t far, int scattered)
{
    const uint32_t all[3] = {9 << 6, 3 << 6, 1 << 6}, few[3] = {4 << 6, 2 << 6, 1 << 6};
    const uint32_t to = at + 4 + (uint32_t)far, brick = to >> 2;
    const uint32_t part = scattered ? (brick != 1) * few[axis] : brick * all[axis];
    return part + ((to & 3u) << (4 - 2 * axis));
}

/* A thread fills one column, an offset, at every eighth place: of them z is the same, y is one
 * of two, and x each of four. */
#define VX_COLUMN_STEP (VX_BRICK_MAP_THREADS / 32)
#if VX_COLUMN_STEP != 8
#error "fill_table takes every eighth place"
#endif

VX_DEVICE void fill_table(const struct vx_brick_map_args *args, int scattered,
                          struct quad *table)
{
    const uint32_t empty = (scattered ? VX_NEAR_FEW : VX_NEAR) - 1;
    const uint32_t first = vx_thread() / 32, at = vx_thread() % 32;
    for (int32_t word = 0; word < VX_WORDS; word++) {
        const int32_t v = word * 32 + (int32_t)at;
        const int32_t xy = v / args->kernel[2], x = xy / args->kernel[1];
        const int32_t at_axis[3] = {x, xy - x * args->kernel[1],
                                    v - xy * args->kernel[2]};
        int32_t far[3];
        VX_UNROLL
        for (int32_t axis = 0; axis < 3; axis++)
            far[axis] = (at_axis[axis] - args->kernel[axis] / 2) * args->dilation[axis];
        const uint32_t z = entry_part(2, first & 3u, far[2], scattered);
        VX_ROLLED
        for (uint32_t step = 0; step < 64 / VX_COLUMN_STEP; step++) {
            const uint32_t place = first + step * VX_COLUMN_STEP;
            const uint32_t entry = entry_part(0, place >> 4, far[0], scattered) +
                                   entry_part(1, place >> 2 & 3u, far[1], scattered) + z;
            struct quad *quad = table + (place * VX_WORDS + word) * VX_LANES + at / 4;
            quad->entries[at % 4] = (uint16_t)(v < args->v ? entry ^ 31u : empty << 6);
        }
    }
}

/* What is near: the mask of a brick and the row of its first voxel. */
VX_DEVICE void near_is(struct near_half *half, const struct brick *brick)
{
    half[0].bits = (uint32_t)brick->mask;
    half[0].before = (uint32_t)brick->base - 1u;
    half[1].bits = (uint32_t)(brick->mask >> 32);
    half[1].before = half[0].before + (uint32_t)vx_count_bits(half[0].bits);
}

VX_DEVICE void near_none(struct near_half *half)
{
    const struct brick none = {0, 0, 0};
    near_is(half, &none);
}

/* The brick with a key; without voxels where there is none. */
VX_DEVICE struct brick look_up(const struct vx_brick_map_args *args, uint64_t key)
{
    struct brick brick = {key, 0, 0};
    const uint32_t slot =
        vx_brick_find(args->slots, args->slots_count, args->seed, key, &brick.mask);
    if (brick.mask) brick.base = args->base[slot];
    return brick;
}

/* Row of an entry, or -1; *there gets 1 or 0. */
VX_DEVICE uint32_t row_of(const struct near_half *near, uint32_t entry, uint32_t *there)
{
    struct near_half half = near[entry >> 5];
    uint32_t upto = half.bits << (entry & 31u); /* the voxel's bit and those below it */
    *there = upto >> 31;
    return *there ? half.before + (uint32_t)vx_count_bits(upto) : ~0u;
}

/* Writes one row, VX_LANES lanes together; every lane of the wave calls it.  quads: the voxel's,
 * from this lane's first.  Returns the pairs of the row in the first of its lanes. */
VX_DEVICE uint32_t map_row(const struct vx_brick_map_args *args,
                           const struct near_half *near, const struct quad *quads,
                           int64_t row, int write)
{
    const uint32_t part = vx_lane() % VX_LANES;
    uint32_t pairs = 0;
    struct vx_words4 *nbr =
        (struct vx_words4 *)(args->nbr + row * args->nbr_stride) + part;
    for (int32_t word = 0; word < VX_WORDS && word < args->words; word++) {
        struct quad quad = quads[word * VX_LANES];
        uint32_t there[4];
        struct vx_words4 rows;
        rows.x = row_of(near, quad.entries[0], &there[0]);
        rows.y = row_of(near, quad.entries[1], &there[1]);
        rows.z = row_of(near, quad.entries[2], &there[2]);
        rows.w = row_of(near, quad.entries[3], &there[3]);
        uint32_t mask = there[0] | there[1] << 1 | there[2] << 2 | there[3] << 3;
        mask <<= part * 4;
        for (uint32_t step = 1; step < VX_LANES; step *= 2)
            mask |= vx_shuffle_xor(mask, step);
        if (!write) continue;
        if (word * 32 + (int32_t)part * 4 < args->nbr_stride) nbr[word * VX_LANES] = rows;
        if (part) continue;
        args->masks[row * args->words + word] = mask;
        pairs += (uint32_t)vx_count_bits(mask);
    }
    return pairs;
}

/* A voxel's quads of the table, from this lane's first. */
VX_DEVICE const struct quad *quads_of(const struct quad *table, uint32_t place)
{
    return table + place * VX_WORDS * VX_LANES + vx_lane() % VX_LANES;
}

/* What the waves of a block share. */
struct map_shared {
    struct quad table[64 * VX_WORDS * VX_LANES];
    struct near_half near[VX_WAVES][VX_NEAR_HALVES];
    uint8_t places[VX_WAVES][64];
};

#endif
