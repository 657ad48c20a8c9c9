/* 15_geometry_join - the geometries of a batch: compared, joined to one, and reported.
 *
 * Math     join_rows      out[base_p + r]   = base_p + rows_p[r]
 *          join_map       nbr[base_p + r,v] = nbr_p[r,v] + raise_p where nbr_p[r,v] >= 0,
 *                                             else -1
 *                         masks[base_p + r] = masks_p[r]
 *          words_differ   differs_p         = 1 if a_p[i] != b_p[i] for any i, else 0
 *          piece_results  results[p]        = the fault and differs of piece p, and the sum of
 *                                             its pairs; each[p, m] = the pairs of map m
 * Shapes   piece p: rows_p (N_p), nbr_p (N_p,S), masks_p (N_p,W), a_p, b_p (N_p words)
 *          whole: out (N), nbr (N,S), masks (N,W), N = sum of N_p; results (pieces)
 * Types    i32 rows, u32 masks and words, u64 pairs.
 * Idea     Samples of a batch have no neighbours in each other, so that the map of the
 *          batch is the maps of its pieces with row numbers raised: a batch whose pieces
 *          are known needs no search.  raise_p is base_p where a map reads the set that it
 *          is for, else the first row of the piece in the set that it reads.  words_differ compares a piece's coordinates with
 *          those of a known geometry.  One launch serves all pieces, however different in
 *          size: each has a share of the launch's blocks, and a block finds its piece by
 *          looking at all shares at once, a lane to each.
 * Steps    1 find the piece
 *          2 load, VX_JOIN_ROUNDS of a thread side by side
 *          3 store
 *          words_differ: the blocks of a pair count themselves and what they found in one
 *          word; the last writes the answer and leaves zero.
 * Tiles    VX_JOIN_CHUNK units to a block at a time; a unit is 16 bytes of a map or of
 *          words, or one row.
 * Cost     bytes: 8*N rows; 8*N*(S+W) map; 8*N_p compared; 60 + 16*maps each result.
 * Limits   S a multiple of 4; nbr, nbr_p at multiples of 16 bytes; N <= 2^30.  words are
 *          compared 16 bytes at a time where a_p and b_p are at multiples of 16, else one
 *          by one.  Shares follow each other from block 0 on; a share has at most one
 *          block for each chunk of its piece.
 * Order    exact.
 * Oracle   15_geometry_join_ref.c, tests/oracle.
 * Source   collation of sparse tensors: Choy et al., MinkowskiEngine, CVPR 2019.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_GEOMETRY_JOIN_H
#define VX_KERNELS_GEOMETRY_JOIN_H

#include <stdint.h>

#include "kernels/both.h"

#define VX_JOIN_THREADS 256
/* Units that one thread loads together: 64 bytes. */
#define VX_JOIN_ROUNDS 4
#define VX_JOIN_CHUNK  (VX_JOIN_THREADS * VX_JOIN_ROUNDS)

/* Blocks first .. first + blocks - 1 of a launch work for one piece. */
struct vx_join_share {
    uint32_t first, blocks;
};

struct vx_join_rows_piece {
    int64_t n, base;
    const int32_t *rows; /* (n) */
};
struct vx_join_rows_args {
    int64_t count; /* pieces */
    uint32_t blocks;
    const struct vx_join_share *shares;      /* (count) */
    const struct vx_join_rows_piece *pieces; /* (count) */
    int32_t *rows;                           /* (N) out */
};

struct vx_join_map_piece {
    int64_t n, base;
    int64_t raise;         /* base + n, and all row numbers raised, are at most 2^31 */
    const int32_t *nbr;    /* (n, nbr_stride) */
    const uint32_t *masks; /* (n, words) */
};
struct vx_join_map_args {
    int64_t count; /* pieces */
    uint32_t blocks;
    int32_t nbr_stride, words;
    const struct vx_join_share *shares;     /* (count) */
    const struct vx_join_map_piece *pieces; /* (count) */
    int32_t *nbr;                           /* (N, nbr_stride) out */
    uint32_t *masks;                        /* (N, words) out */
};

struct vx_words_pair {
    int64_t n;             /* words; >= 1 */
    const uint32_t *a, *b; /* (n) */
    uint32_t *differs;     /* (1) out: 1 or 0; needs no clearing */
    /* Zero between launches.  Low 32 bits: finished blocks; high: those of them that
     * found a difference. */
    uint64_t tally;
};
struct vx_words_differ_args {
    int64_t count; /* pairs */
    uint32_t blocks;
    const struct vx_join_share *shares; /* (count) */
    struct vx_words_pair *pairs;        /* (count) */
};

struct vx_piece_result {
    uint32_t fault[2];
    uint32_t differs;
    uint32_t unused; /* 0 */
    uint64_t pairs;
};
/* Where the parts of a result lie; NULL = 0. */
struct vx_piece_places {
    const uint32_t *fault;   /* (2) */
    const uint32_t *differs; /* (1) */
};
struct vx_piece_results_args {
    int64_t count;
    int64_t maps;                         /* of each piece; >= 0 */
    const struct vx_piece_places *places; /* (count) */
    const uint64_t *const *pairs;         /* (count, maps) the pairs of a map; NULL = 0 */
    struct vx_piece_result *results;      /* (count) out */
    uint64_t *each; /* (count, maps) out: the pairs one by one; NULL = not wanted */
};
/* Threads that add up the pairs of one piece: no more than a wave has lanes. */
#define VX_RESULT_LANES 32

void vx_join_rows_ref(const struct vx_join_rows_args *args);
void vx_join_map_ref(const struct vx_join_map_args *args);
void vx_words_differ_ref(const struct vx_words_differ_args *args);
void vx_piece_results_ref(const struct vx_piece_results_args *args);

/* Units of n rows of `each` words, four words to a unit; chunks of so many units. */
VX_BOTH int64_t vx_join_quads(int64_t n, int32_t each)
{
    return (n * each + 3) / 4;
}
VX_BOTH int64_t vx_join_chunks(int64_t units)
{
    return (units + VX_JOIN_CHUNK - 1) / VX_JOIN_CHUNK;
}

#endif
