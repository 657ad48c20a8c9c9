/* 05_mask_order - rows sorted by mask, the union of the masks of every 32 rows, and their
 * neighbours in that order.
 *
 * Math     order[g]         = the rows sorted by rank(mask(i) & group g), equal ranks in
 *                             rising i
 *          rank             = the bits of the group as a number, or their place in the
 *                             Gray code: bit k = xor of the bits from k up; with a run the
 *                             same of vx_order_signature
 *          block_masks[g,b] = union over the rows order[g, 32b .. 32b+31] of
 *                             mask & group g
 *          neighbours[v,p]  = nbr[order[0,p], v]
 * Shapes   masks (N,W)  order (G,N)  block_masks (G,B,W), B = N/32 rounded up
 *          nbr (N,S), S = V rounded up to 4  neighbours (V,N)
 *          keys, rows (G,N)
 * Types    u32 masks and keys, i32 rows.
 * Idea     A stable radix sort from the lowest digit up, once for each group of offsets.
 *          Digits have up to 9 bits: the 27 offsets of 3^3 take three passes, one plane
 *          of them a single one.  A key is made from the mask before the first pass that
 *          needs it and carried through the passes that use it up; it has 27 bits of
 *          the rank, or in the large sort all of up to 32.  A set of at most
 *          VX_ORDER_SMALL_ROWS rows is sorted by one block in shared memory, where one
 *          word has a row and the bits of its key that are still to be sorted by, 18 at
 *          most.
 *          A signature says first what many offsets have together: whether a row has any
 *          neighbour of a set of them, or in a run.  Sorted by it the rows of a tile have fewer
 *          offsets together.  Offsets that tiles of 64 and of 256 rows have, sorted by the mask,
 *          by planes and offsets (32 bits), and by the sets (18 bits, 27 from the torus on), and
 *          neighbours of a row:
 *            3^3   125,562 voxels of LiDAR      12.3 14.3   10.4 11.5   10.1 11.3    6.3
 *                  the same, half as fine       16.1 18.4   13.6 14.7   13.5 14.7    9.0
 *                  walls of a room              11.9 12.9   11.2 11.5   11.2 11.5   10.6
 *                  a tree                       18.9 20.5   17.2 18.5   16.9 18.4    9.8
 *                  5 % of voxels at random       4.4  6.3    3.8  5.0    3.9  4.9    2.3
 *                  a torus of 145,168           14.1 16.5   14.0 16.2   14.1 15.8   12.4
 *                  a shell of 255,104 voxels    14.0 15.9   13.9 15.7   14.1 15.5   12.9
 *            5^3   the LiDAR                    83.6 92.8   68.3 77.4               17.5
 *          3^3 takes two passes, or three or four of many rows; 5^3 three instead of fourteen.
 * Steps    small: order_small does everything.
 *          large: order_clear and order_digits for each key, order_sweep for each of its
 *          digits (37_order_sweep), and after the last one order_blocks, which writes the
 *          neighbours, too: who reads one offset of many rows then reads lines, where a row's
 *          line of nbr costs a sector of 32 bytes for each offset.
 *          order_small_many and order_blocks_many do a step of many sorts: sort z is a layer
 *          of blocks.
 *          count_scan: what 08_pair_list and 34_live_order count, summed over tiles.
 *          order_tiles, for many sorts: the tiles of 128 and of 256 places, dealt to blocks
 *          by how many offsets they have (tiles_deal.cuh).
 * Tiles    VX_ORDER_THREADS rows of order_blocks.
 * Cost     as 37_order_sweep, and neighbours 8*V bytes per row.
 * Limits   V <= 343; N <= 2^30.  Many sorts: count < 2^16.
 * Order    exact: a stable sort has one answer; but tiles with equally many offsets stand
 *          in any order.
 * Oracle   05_mask_order_ref.c.
 * Source   Knuth, TAOCP 3, 5.2.5; mask sort: spconv 2.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MASK_ORDER_H
#define VX_KERNELS_MASK_ORDER_H

#include <stdint.h>

#include "kernels/both.h"
#include "kernels/mask.h"

/* Bits of one digit.  With 9, 27 bits take three passes.  A wave's counters have 16 bits,
 * two to a word, so that 512 of them take 256 words. */
#define VX_ORDER_DIGIT 9
#define VX_ORDER_BINS  (1 << VX_ORDER_DIGIT)
/* Rows of one block of the large sort: 256 threads with 4 rows each fill an H200 from
 * 135,000 rows on.  With twice the rows a map of 15,000 to 260,000 voxels took 10 to 25 %
 * longer, one of 1,000,000 to 4,000,000 3 to 4 % less; with half of them up to 12 % less, and
 * 9 to 10 % more (H200). */
#define VX_ORDER_THREADS 256
#define VX_ORDER_TILE    1024
/* Rows that one block sorts in shared memory: 8 for each thread.  A row has 13 bits, so
 * that two more digits fit beside it in a word. */
#define VX_ORDER_SMALL_THREADS 1024
#define VX_ORDER_SMALL_BITS    13
#define VX_ORDER_SMALL_ROWS    (1 << VX_ORDER_SMALL_BITS)
/* Bits of the rank in one key: three digits.  In the large sort a rank of up to 32 bits
 * is one key. */
#define VX_ORDER_CHUNK (3 * VX_ORDER_DIGIT)

/* The arguments of all order_ kernels but order_tiles.  A name behind ';' is a kernel that writes
 * the field; of a pass `tiles`, `counts` and `totals` are as 37_order_sweep.h says. */
struct vx_mask_order_args {
    int64_t n;
    int64_t tiles; /* N / VX_ORDER_TILE rounded up */
    int32_t words; /* 32-bit words of one mask */
    int32_t bits;  /* offsets of one group: V / groups */
    int32_t run;   /* > 0: rows are sorted by the signature with this run; groups is 1 */
    int32_t groups;
    int32_t gray;              /* 0 or 1 */
    int32_t key_low, key_bits; /* the bits of the rank that the key has: 1..32 */
    int32_t shift, digit_bits; /* the digit inside the key: 1..VX_ORDER_DIGIT bits */
    const uint32_t *masks;     /* (N, words) */
    const uint32_t *keys_in;   /* (groups, N); NULL = made from masks */
    const int32_t *rows_in;    /* (groups, N); NULL = rows as they are */
    uint32_t *keys_out;        /* (groups, N) or NULL; digits, sweep */
    int32_t *rows_out;         /* (groups, N); small, sweep */
    uint32_t *counts;          /* sweep: the state of its pass */
    uint32_t *totals;          /* (groups, VX_ORDER_BINS) of its digit */
    uint32_t *block_masks;     /* (groups, blocks of 32, words); small, blocks */
    int32_t nbr_stride;
    const int32_t *nbr;  /* (N, nbr_stride); read for neighbours alone */
    int32_t *neighbours; /* (V, N) or NULL; groups is 1; blocks */
};

/* Offsets of 3^3, v = 9*x + 3*y + z: the only kernel of so many that has a run. */
#define VX_ORDER_CUBE 27

/* What the rank of a row of 3^3 is made of: whether the row has any offset of a set, one bit
 * for each, the highest first.  Bit v of a set is offset v.  kernels/README.md says how they
 * were found.  Few rows are told apart by fewer sets, in two digits; for very many, planes and
 * single offsets are better by 1 to 2 %. */
#define VX_ORDER_SETS      27
#define VX_ORDER_SETS_FEW  18
#define VX_ORDER_SETS_MANY 32
#define VX_ORDER_ROWS_FEW  (1 << 17) /* and fewer */
#define VX_ORDER_ROWS_MANY (1 << 19) /* more than these */

/* Bits of the rank of n rows with so many offsets. */
VX_BOTH int32_t vx_order_rank_bits(int32_t bits, int32_t run, int64_t n)
{
    if (!run) return bits;
    if (bits != VX_ORDER_CUBE) return (bits + run - 1) / run;
    if (n > VX_ORDER_ROWS_MANY) return VX_ORDER_SETS_MANY;
    return n > VX_ORDER_ROWS_FEW ? VX_ORDER_SETS : VX_ORDER_SETS_FEW;
}

/* Of 3^3 whether a row has any offset in the planes z, y and x = 0 and 2, above all offsets but
 * the middle one, which a voxel of a submanifold map always has. */
VX_BOTH uint32_t vx_order_planes(uint32_t m)
{
    return (m & 0x1fffu) | (m >> 14 & 0x1fffu) << 13 |
           (uint32_t)((m & 0x1249249u) != 0) << 26 |
           (uint32_t)((m & 0x4924924u) != 0) << 27 |
           (uint32_t)((m & 0x01c0e07u) != 0) << 28 |
           (uint32_t)((m & 0x70381c0u) != 0) << 29 |
           (uint32_t)((m & 0x00001ffu) != 0) << 30 |
           (uint32_t)((m & 0x7fc0000u) != 0) << 31;
}

VX_BOTH uint32_t vx_order_next(uint32_t word, uint32_t found)
{
    return word << 1 | (uint32_t)(found != 0);
}

/* The sets that a row of n has, or the first of them.  They are in instructions: an array is one
 * in memory where the compiler does not unroll its loop. */
VX_BOTH uint32_t vx_order_sets(uint32_t m, int64_t n)
{
    uint32_t word = 0;
    word = vx_order_next(word, m & 0x01c0e07u);
    word = vx_order_next(word, m & 0x4924924u);
    word = vx_order_next(word, m & 0x1249249u);
    word = vx_order_next(word, m & 0x70381c0u);
    word = vx_order_next(word, m & 0x7fc0000u);
    word = vx_order_next(word, m & 0x0000007u);
    word = vx_order_next(word, m & 0x0000048u);
    word = vx_order_next(word, m & 0x0000030u);
    word = vx_order_next(word, m & 0x0000080u);
    word = vx_order_next(word, m & 0x2010080u);
    word = vx_order_next(word, m & 0x0201000u);
    word = vx_order_next(word, m & 0x0020200u);
    word = vx_order_next(word, m & 0x0000400u);
    word = vx_order_next(word, m & 0x0400000u);
    word = vx_order_next(word, m & 0x0000100u);
    word = vx_order_next(word, m & 0x0004000u);
    word = vx_order_next(word, m & 0x0080000u);
    word = vx_order_next(word, m & 0x0008800u);
    word = vx_order_next(word, m & 0x2000002u);
    word = vx_order_next(word, m & 0x0800008u);
    word = vx_order_next(word, m & 0x0001000u);
    word = vx_order_next(word, m & 0x0100040u);
    word = vx_order_next(word, m & 0x0000012u);
    word = vx_order_next(word, m & 0x0200020u);
    word = vx_order_next(word, m & 0x0040000u);
    word = vx_order_next(word, m & 0x1000004u);
    word = vx_order_next(word, m & 0x0010000u);
    return n > VX_ORDER_ROWS_FEW ? word : word >> (VX_ORDER_SETS - VX_ORDER_SETS_FEW);
}

/* What n rows are sorted by instead of their masks; of a larger kernel than 3^3 whether a row
 * has any offset of each run. */
VX_BOTH uint32_t vx_order_signature(const uint32_t *mask, int32_t bits, int32_t run,
                                    int64_t n)
{
    uint32_t word = 0;
    if (bits == VX_ORDER_CUBE)
        return n > VX_ORDER_ROWS_MANY ? vx_order_planes(mask[0])
                                      : vx_order_sets(mask[0], n);
    for (int32_t v = 0; v < bits; v++) word |= (mask[v / 32] >> v % 32 & 1u) << v / run;
    return word;
}

/* Independent sorts in one launch: block (x, y, z) is block (x, y) of sort z, and ends at
 * once when that sort has fewer blocks.  order_scan_many scans the counts of each. */
struct vx_mask_order_many_args {
    int64_t count;
    const struct vx_mask_order_args *sorts; /* (count) in device memory */
    int64_t n;                              /* the most of any sort, as the two below */
    int64_t tiles;
    int32_t groups;
};

/* The least rows of a tile in a list, and how many heights there are, each twice the last. */
#define VX_ORDER_TILES_ROWS    128
#define VX_ORDER_TILES_KINDS   2
#define VX_ORDER_TILES_THREADS 1024
/* Offsets of the largest kernel, and one. */
#define VX_ORDER_TILES_BINS 344

/* The end of a tile costs a block as much as so many of its offsets. */
#define VX_ORDER_TILE_END 2
/* More offsets than one less count as that many. */
#define VX_ORDER_DEAL_OFFSETS 32
/* The first round of a deal, and those that some block passes: in each of those the work that a
 * block has had grows by VX_ORDER_TILE_END at least, and with VX_ORDER_DEAL_OFFSETS nobody passes. */
#define VX_ORDER_DEAL_ROUNDS (VX_ORDER_DEAL_OFFSETS / VX_ORDER_TILE_END)

/* A list is (turns + 1, blocks), for the turns of the block with the most of them: group * tiles +
 * tile; behind the last of each block NONE, and in the last row END. */
#define VX_ORDER_TILES_NONE (-1)
#define VX_ORDER_TILES_END  (-2)

struct vx_order_tiles_sort {
    int64_t n;
    int32_t words, groups;
    const uint32_t *block_masks;          /* (groups, blocks of 32, words) */
    int32_t *tiles[VX_ORDER_TILES_KINDS]; /* out, for each height: a list */
};
struct vx_order_tiles_args {
    int64_t count;
    int32_t blocks;                          /* among which the tiles are dealt */
    const struct vx_order_tiles_sort *sorts; /* (count) in device memory; NULL: `one` */
    struct vx_order_tiles_sort one;
};

/* Tiles of a height in all groups. */
VX_BOTH int64_t vx_order_tiles_count(int64_t n, int32_t groups, int32_t kind)
{
    int64_t rows = (int64_t)VX_ORDER_TILES_ROWS << kind;
    return (n + rows - 1) / rows * groups;
}

/* Numbers of the longest list of so many tiles. */
VX_BOTH int64_t vx_order_tiles_numbers(int64_t tiles, int32_t blocks)
{
    const int64_t turns = VX_ORDER_DEAL_ROUNDS - 1 + (tiles + blocks - 1) / blocks;
    return (turns + 1) * blocks;
}

/* counts (rows, tiles): each count becomes the sum of the counts before it in its row. */
struct vx_count_scan_args {
    int64_t rows, tiles;
    uint32_t *counts;
    uint32_t *totals; /* (rows) out: the sum of the row */
};

#endif
