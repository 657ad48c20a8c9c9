/* 03_brick_index - the active set as bricks of 4^3 voxels, and its rows brick by brick.
 *
 * Math     brick(voxel) = sample, floor(x/4), floor(y/4), floor(z/4)
 *          bit(voxel)   = 16*(x mod 4) + 4*(y mod 4) + z mod 4
 *          mask(brick)  = the bits of its voxels
 *          base(brick)  = number of mask bits of all bricks before it
 *          row(voxel)   = base(brick) + number of mask bits below bit(voxel)
 * Shapes   coords (N,4) sample x y z, or (N,3) x y z of sample 0
 *          slots, base (S)  list, places, rows (N)
 * Types    i32 coords, u64 keys and masks, i32 rows.
 * Idea     The slots are a hash table from brick to mask.  One entry serves up to 64
 *          voxels: a surface has 14 voxels in a brick, so that the table in use is a
 *          fourteenth of one of voxels, and stays in cache.  A voxel's neighbours lie in
 *          at most 27 bricks, and their rows follow from masks by counting bits
 *          (03_brick_map).  Rows in this order are near in memory when they are near in
 *          space.  A table starts as zeros: key 0 is a free slot.
 * Steps    1 insert: find or create the brick, set the bit, list a new brick
 *          2 number: count the bits of each listed brick, take that many rows
 *          3 rank: write the row of each voxel
 *          small zeroes the table and does all three in one block; small_many does so for
 *          many sets, one block to each.
 * Tiles    VX_THREADS voxels or bricks to a block.
 * Cost     bytes 16*S zeroed, 20*N coordinates and places, 12*N places and rows; three
 *          random accesses per voxel to insert, two to rank.
 * Limits   0 <= sample < 512; -2^17 <= x,y,z < 2^17, and 0 <= x,y,z < shape if there is
 *          one: a voxel out of range sets fault[0] and has no row.  A duplicate sets fault[1].  N <= 2^30; S a power of two >=
 *          2*N and >= VX_BRICK_GROUP.  After a fault each row from counts->rows on gets
 *          its own number, so that later kernels stay inside their memory.  small and
 *          small_many are meant for N <= VX_BRICK_SMALL and right for any N.
 * Order    the reference numbers bricks in the order of their first voxels; a device in
 *          any order, another one in each run.  Compare through `rows`.
 * Oracle   03_brick_index_ref.c, tests/oracle.
 * Source   Museth, VDB (ACM TOG 2013) for masks and counting; Knuth, TAOCP 3, 6.4.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BRICK_INDEX_H
#define VX_KERNELS_BRICK_INDEX_H

#include <stdint.h>

#include "kernels/both.h"

/* Every key has this bit, so that key 0 is a free slot. */
#define VX_BRICK_THERE 0x8000000000000000ull
/* The lowest bit of each axis of a key: which brick of its group of 2^3. */
#define VX_BRICK_LOCAL 0x0000000100010001ull
/* Slots of one group: 8 times 16 bytes, a cache line.  A brick and its 26 neighbours lie
 * in 8 groups, where these have room. */
#define VX_BRICK_GROUP 8
#define VX_BRICK_NONE  (~0ull)
/* Threads of a block.  One atomic per 512 voxels keeps the contention on the counters
 * low. */
#define VX_BRICK_INDEX_THREADS 512
/* One block indexes a set of up to this many voxels: three launches would take longer. */
#define VX_BRICK_SMALL 2048

struct __attribute__((aligned(16))) vx_brick_slot {
    uint64_t key;  /* 0 = free */
    uint64_t mask; /* bit b: the voxel is there */
};

/* Lies in front of the slots and is zeroed with them. */
struct __attribute__((aligned(64))) vx_brick_counts {
    uint32_t fault[2]; /* [0] a coordinate out of range, [1] a duplicate */
    uint32_t bricks;   /* in `list` */
    uint32_t rows;     /* given to bricks; N unless there is a fault */
    uint64_t tally;    /* for 03_brick_map; zero between launches */
    /* For 26_set_occupancy, which needs zeros; other kernels leave them as they are. */
    uint64_t bad; /* ~key of the first voxel of `from` with a logit that is no number */
    uint32_t bad_child; /* and its first such child */
    uint32_t live;      /* live children, those beyond the set's room too */
};

struct vx_brick_index_args {
    int64_t n;
    int32_t columns;             /* 3 or 4 */
    uint32_t blocks;             /* of the launch that goes brick by brick */
    int32_t shape[3];            /* 0 0 0: none */
    uint64_t slots_count;        /* power of two, >= 2 N */
    uint64_t seed;               /* of the hash: vx_brick_way */
    const int32_t *coords;       /* (N, columns) */
    struct vx_brick_slot *slots; /* (slots_count) */
    struct vx_brick_counts *counts;
    int32_t *base;    /* (slots_count) first row of a brick; set only where one is */
    uint32_t *list;   /* (N) slots of the bricks, in order of creation */
    uint64_t *places; /* (N) 64 * slot + bit, or VX_BRICK_NONE */
    int32_t *rows;    /* (N) out: the voxel of each row */
    uint32_t *fault;  /* (2) out of number, small: a copy of counts->fault; or NULL */
};

/* Independent sets in one launch. */
struct vx_brick_small_many_args {
    int64_t count;
    const struct vx_brick_index_args *sets; /* (count) in device memory */
};

void vx_brick_insert_ref(const struct vx_brick_index_args *args);
void vx_brick_number_ref(const struct vx_brick_index_args *args);
void vx_brick_rank_ref(const struct vx_brick_index_args *args);
void vx_brick_small_ref(const struct vx_brick_index_args *args);
void vx_brick_small_many_ref(const struct vx_brick_small_many_args *args);

/* The key of a brick from voxel coordinates, 0 when they are out of range. */
VX_BOTH uint64_t vx_brick_key(int32_t sample, int32_t x, int32_t y, int32_t z)
{
    uint32_t s = (uint32_t)sample;
    uint32_t ux = (uint32_t)x + (1u << 17), uy = (uint32_t)y + (1u << 17);
    uint32_t uz = (uint32_t)z + (1u << 17);
    if (s >> 9 || (ux | uy | uz) >> 18) return 0;
    return VX_BRICK_THERE | (uint64_t)s << 48 | (uint64_t)(ux >> 2) << 32 |
           (uint64_t)(uy >> 2 << 16 | uz >> 2);
}

VX_BOTH uint32_t vx_brick_bit(int32_t x, int32_t y, int32_t z)
{
    return ((uint32_t)x & 3u) << 4 | ((uint32_t)y & 3u) << 2 | ((uint32_t)z & 3u);
}

/* The key of the brick x, y, z bricks further, 0 beyond the coordinate range. */
VX_BOTH uint64_t vx_brick_beside(uint64_t key, int32_t x, int32_t y, int32_t z)
{
    uint32_t ux = (uint32_t)(key >> 32 & 0xffffu) + (uint32_t)x;
    uint32_t uy = (uint32_t)(key >> 16 & 0xffffu) + (uint32_t)y;
    uint32_t uz = (uint32_t)(key & 0xffffu) + (uint32_t)z;
    if ((ux | uy | uz) >> 16) return 0;
    return (key >> 48 << 48) | (uint64_t)ux << 32 | (uint64_t)(uy << 16 | uz);
}

/* Where the search for a key goes: two slots, a sector of memory, after two others. */
struct vx_brick_way {
    uint32_t start; /* the slot where it begins */
    uint32_t step;  /* from two slots to the next two */
};

/* Bricks of one group begin in one line of slots, which may have the bricks of several groups.  A
 * brick whose two slots are taken goes elsewhere.  If it filled the line, and then the next one,
 * full lines would make each other full: a wave of scattered voxels waited for eight pairs.  The
 * step is odd in pairs of slots, so that the way meets each slot once, whatever is full.
 *
 * The seed is a secret of the process and is mixed in twice, because the mix alone can be
 * inverted: without a seed, a client could choose coordinates that all meet in one group
 * and cost N/2 probes each. */
VX_BOTH struct vx_brick_way vx_brick_way(uint64_t key, uint64_t slots_count,
                                         uint64_t seed)
{
    uint64_t group = (key & ~VX_BRICK_LOCAL) ^ seed;
    group = (group ^ group >> 30) * 0xbf58476d1ce4e5b9ull;
    group ^= seed << 32 | seed >> 32;
    group = (group ^ group >> 27) * 0x94d049bb133111ebull;
    group ^= group >> 31;
    uint32_t local = (uint32_t)((key >> 30 & 4u) | (key >> 15 & 2u) | (key & 1u));
    struct vx_brick_way way;
    way.start = (uint32_t)(group * VX_BRICK_GROUP & (slots_count - 1)) | local;
    way.step = (uint32_t)(group >> 32) << 1 | 2u;
    return way;
}

/* The next slot to probe: the other one of two, then the first of the next two. */
VX_BOTH uint32_t vx_brick_next(uint32_t slot, struct vx_brick_way way,
                               uint64_t slots_count)
{
    if (!((slot ^ way.start) & 1u)) return slot ^ 1u;
    return ((slot ^ 1u) + way.step) & (uint32_t)(slots_count - 1);
}

/* Returns the slot of a brick and its mask; for an unknown brick, mask 0 and the free
 * slot where the search ended.  Two slots are loaded together. */
VX_BOTH uint32_t vx_brick_find(const struct vx_brick_slot *slots, uint64_t slots_count,
                               uint64_t seed, uint64_t key, uint64_t *mask)
{
    *mask = 0;
    if (!key) return 0;
    const struct vx_brick_way way = vx_brick_way(key, slots_count, seed);
    for (uint32_t at = way.start;; at = vx_brick_next(at ^ 1u, way, slots_count)) {
        struct vx_brick_slot slot = slots[at], beside = slots[at ^ 1u];
        int here = slot.key == key || !slot.key;
        if (!here) slot = beside;
        if (slot.key == key) *mask = slot.mask;
        if (slot.key == key || !slot.key) return here ? at : at ^ 1u;
    }
}

/* The key of a voxel's brick; 0: the voxel is out of range. */
VX_BOTH uint64_t vx_brick_of(const struct vx_brick_index_args *args, int32_t sample,
                             int32_t x, int32_t y, int32_t z)
{
    const int32_t *shape = args->shape;
    int outside = (uint32_t)x >= (uint32_t)shape[0] ||
                  (uint32_t)y >= (uint32_t)shape[1] || (uint32_t)z >= (uint32_t)shape[2];
    return shape[0] && outside ? 0 : vx_brick_key(sample, x, y, z);
}

#endif
