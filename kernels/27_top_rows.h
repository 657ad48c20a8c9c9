/* 27_top_rows - the rows of each sample with the largest logits.
 *
 * Math     top_keys  words[row] = sample(keys[row]) << 32 | d, where d rises as logits[row,0]
 *          falls; -0 is 0.  A logit that is not a number has some d.
 *          top_mark  with p a place, and b the last of `starts` that is not above p:
 *                    kept[rows[p]] = 1 if p - b < top, else 0
 * Shapes   logits (N,Cp)  keys, words, rows, kept (N)  starts (S+1)  count (1) = S
 * Types    logits VX_TYPE (f32 for TF32), u64 keys and words, i32 rows and starts, u32 kept.
 * Idea     Rows are sorted by key first, and then, which leaves the order of equal ones, by
 *          words: both by 23_key_order.  The first rows of each sample are then its largest,
 *          and of equal logits those that come first in canonical order.
 * Steps    top_keys; sort (engine/gpu/geometry/top.c); key_starts; top_mark.
 * Tiles    VX_TOP_THREADS rows to a block.
 * Cost     bytes per row 10 to 12 read and 8 written; 4 read, 4 written, and a search over
 *          the samples.
 * Limits   N <= 2^30; top >= 1; S >= 1 if N is not 0.
 * Order    exact.
 * Oracle   27_top_rows_ref.c, tests/oracle.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TOP_ROWS_H
#define VX_KERNELS_TOP_ROWS_H

#include "kernels/01_coord_hash.h"

#include <stdint.h>

#define VX_TOP_THREADS 256
/* The bits of a word: those of a sample and of a logit. */
#define VX_TOP_BITS (VX_KEY_SAMPLE_BITS + 32)

/* Of both kernels. */
struct vx_top_args {
    int64_t n;
    int32_t cp;
    int32_t top;
    const void *logits;    /* (N, cp); top_keys, as the next two */
    const uint64_t *keys;  /* (N) */
    uint64_t *words;       /* (N) out */
    const int32_t *rows;   /* (N); top_mark, as the rest */
    const int32_t *starts; /* (S+1), as key_starts writes them */
    const int32_t *count;  /* (1) S */
    uint32_t *kept;        /* (N) out */
};

/* d of a logit's bits: those of an f32. */
VX_BOTH uint32_t vx_top_falling(uint32_t bits)
{
    if (bits == 0x80000000u) bits = 0;
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

#endif
