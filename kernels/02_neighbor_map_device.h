/* 02_neighbor_map_device - 02_neighbor_map on a device: row-major, with masks.
 *
 * Math     nbr[i,v] = row of the neighbour at offset v, as in 02_neighbor_map
 *          masks[i]   has bit v set when nbr[i,v] >= 0
 *          pairs    = number of entries >= 0
 * Shapes   coords (N,4) or (N,3); the table of 01_coord_hash_device
 *          nbr (N,S), S = V rounded up to 4, entries past V are -1
 *          masks (N,W), W = V/32 rounded up
 * Types    i32 in and out, u32 masks.
 * Idea     The plain design against which bricks (03_brick_map) are measured.  Half of
 *          the offsets are looked up, each hit writes both entries; rows are those of the
 *          request.
 * Steps    1 before the launch nbr is -1, masks and pairs are 0
 *          2 a thread per row and offset of the first half: look up, write both entries
 *          3 add up the pairs of the block
 * Tiles    VX_KEY_BITS 64 or 32; key_bits of the table has the same value.
 * Cost     (V-1)/2 look-ups per voxel of 1.5 to 2.5 random accesses; bytes 4*N*S twice; 2
 *          atomics on masks for each hit.
 * Limits   kernel odd, V <= 343, dilation >= 1.  A neighbour beyond the coordinate range
 *          does not exist.
 * Order    exact.
 * Oracle   02_neighbor_map_device_ref.c, tests/oracle.
 * Source   as 02_neighbor_map.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NEIGHBOR_MAP_DEVICE_H
#define VX_KERNELS_NEIGHBOR_MAP_DEVICE_H

#include "kernels/01_coord_hash_device.h"

/* Threads of a block.  A row takes one for each of its offsets, at most 171: half of
 * 7^3. */
#define VX_HASH_MAP_THREADS 256

struct vx_hash_map_args {
    int64_t n;
    int32_t columns;       /* 3 or 4 */
    const int32_t *coords; /* (N, columns) */
    struct vx_hash_table table;
    int32_t kernel[3];   /* odd, along x y z */
    int32_t dilation[3]; /* >= 1 */
    int32_t v;           /* kernel[0] * kernel[1] * kernel[2] */
    int32_t words;       /* of one mask */
    int32_t nbr_stride;  /* entries of one row of nbr */
    uint32_t blocks;     /* of the launch */
    int32_t *nbr;        /* (N, nbr_stride) out; -1 before the launch */
    uint32_t *masks;     /* (N, words) out; 0 before the launch */
    uint64_t *pairs;     /* (1) out; 0 before the launch */
};

void vx_hash_map_ref(const struct vx_hash_map_args *args);

/* The row found at offset v from row i, -1 none. */
VX_BOTH int32_t vx_hash_beside(const struct vx_hash_map_args *args,
                               const struct vx_hash_table *table, int64_t i, int32_t v)
{
    int32_t at[4];
    vx_hash_voxel(args->coords, args->columns, i, at);
    for (int axis = 2; axis >= 0; axis--) {
        int32_t size = args->kernel[axis];
        int32_t far = (v % size - size / 2) * args->dilation[axis];
        at[axis + 1] = (int32_t)((uint32_t)at[axis + 1] + (uint32_t)far);
        v /= size;
    }
    return vx_hash_find(table, at);
}

#endif
