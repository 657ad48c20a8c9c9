/* level_truth - sets that are made from sets, and maps between them, by their definitions
 * (engine/set_key.h, engine/map_key.h): sorted lists of voxels, no bricks and no tables.
 *
 *   level_truth_derive(&sets[key.from], &key, &sets[1]);
 *   const char *wrong = level_truth_rows(&sets[1], keys_of_rows, row_at);
 *   wrong = level_truth_map(&(struct level_truth_map){...}, text);
 *
 * Owner    the caller owns all memory.
 * Thread   any; pure.
 * Limits   as the keys.
 * Fails    a check returns what is wrong, NULL if nothing is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_LEVEL_TRUTH_H
#define VX_TESTS_SUPPORT_LEVEL_TRUTH_H

#include "engine/map_key.h"
#include "engine/set_key.h"

/* Voxels packed as in kernels/01_coord_hash.h, rising, each once. */
struct level_set {
    i64 n;
    u64 *keys;
};
/* The set of n voxels (sample, x, y, z) or (x, y, z); to->keys has room for n. */
void level_truth_set(const i32 *coords, i32 columns, i64 n, struct level_set *to);
/* The voxels that one voxel of `from` makes, at most. */
i64 level_truth_each(const struct vx_set_key *key);
/* to->keys has room for from->n * level_truth_each(key). */
void level_truth_derive(const struct level_set *from, const struct vx_set_key *key,
                        struct level_set *to);
/* Where a voxel is in the list, or -1. */
i64 level_truth_find(const struct level_set *set, u64 voxel);

/* keys[r] is the voxel of row r, and each voxel of the set has one row; row_at[i] becomes
 * the row of the i-th voxel of the list. */
const char *level_truth_rows(const struct level_set *set, const u64 *keys, i32 *row_at);

struct level_truth_map {
    const struct vx_map_key *key;
    const struct level_set *from;
    const i32 *from_row_at; /* (from->n), as level_truth_rows has set it */
    i64 rows;
    const u64 *keys; /* (rows) voxels of the rows of `to` */
    i32 nbr_stride, words;
    const i32 *nbr;   /* (rows, nbr_stride) */
    const u32 *masks; /* (rows, words), or NULL */
    const u64 *pairs; /* (1), or NULL */
};
#define LEVEL_TRUTH_TEXT 160
const char *level_truth_map(const struct level_truth_map *map,
                            char text[LEVEL_TRUTH_TEXT]);

#endif
