/* levels - the sets of a request that are made from its voxels, and maps between sets, on
 * the device.
 *
 * All sets of a request are built by launches alone: each reads on the device how many
 * bricks the one before has.  The host reads the counts of all sets of all requests of a
 * round with one copy, places the maps, and launches those.  Rows of every set are in the
 * order of its bricks, set 0's as in map.h.  An index is needed until the last map that
 * looks up its set is built.
 *
 *   vx_gpu_levels_place(set, &levels, indices, memory);
 *   VX_TRY(vx_gpu_levels_build(&queue, &upload, &levels, &why));
 *   (copy levels.counts, vx_gpu_levels_counts_bytes, out; wait)
 *   VX_TRY(vx_gpu_levels_rows(&levels, request, counts, &why, rows));
 *   vx_gpu_level_map_place(rows[key.to], &key, memory, &map);
 *   VX_TRY(vx_gpu_level_maps_build(&queue, &upload, &maps, &why));
 *   VX_TRY(vx_gpu_level_keys_build(&queue, &upload, keys, count, &why));
 *
 * A set by logits (engine/set_key.h) is made by occupancy.h, in a later stage: the indices
 * of all sets then stay until the last stage.
 *
 * What has up to VX_BRICK_SMALL rows is built together, as in pieces.h: all sets of all
 * such requests by one launch, a map of all of them by another.
 *
 * Owner    the caller owns all memory, host and device; nothing is kept.
 * Thread   device; build only puts copies and launches on the stream.
 * Limits   1 <= rows_max <= VX_VOXELS_MAX; VX_BATCH_ITEMS_MAX requests, VX_SETS_MAX sets;
 *          keys as engine/set_key.h and map_key.h; CHILD: rows times voxels of a block
 *          below 2^31.  Without room in `upload` all is built one by one.
 * Fails    as vx_kernel_launch.  rows: RESOURCE_EXHAUSTED if a set has more than rows_max
 *          rows; its index then lacks voxels, and no map may be built from it or for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LEVELS_H
#define VX_ENGINE_GPU_LEVELS_H

#include "engine/gpu/geometry/pieces.h"
#include "engine/set_key.h"
#include "kernels/21_set_derive.h"

/* --- sets --- */

/* The logits of a set by logits: rows of the set that it is made from, of all requests one
 * after the other. */
struct vx_gpu_logits {
    const void *rows; /* (rows, cp) device */
    i32 cp;
};
/* The sets of one stage (engine/network/sets.h) are built together.  Those of a later stage
 * than 0 are built when the host knows the rows of those before. */
struct vx_gpu_levels_stage {
    const i32 *of; /* (sets_count) the stage of each set; NULL: all are of stage 0 */
    i32 now;       /* the one that build and rows are about */
    /* Stages after 0 alone: */
    bool left[VX_BATCH_ITEMS_MAX]; /* requests whose sets stay empty */
    const i64 *rows;               /* (requests_count, sets_count) of earlier stages */
    const struct vx_gpu_logits *logits; /* (sets_count) of sets by logits */
    enum vx_number type;                /* of the logits */
    void *scratch;                      /* vx_gpu_top_bytes, for KEEP with top */
};

struct vx_gpu_levels {
    const struct vx_set_key *keys; /* (sets_count) of every request; keys[0]: not used */
    i32 sets_count, requests_count;
    struct vx_gpu_levels_stage stage;
    /* (requests_count, sets_count): in place of SPCONV's shapes of keys; NULL: those. */
    const i32 (*shapes)[3];
    /* (requests_count, sets_count): the most rows of each set, exactly the rows of set 0. */
    const i64 *rows_max;
    /* (requests_count, sets_count) out of place: set 0 lies in the request's index. */
    struct vx_brick_set *sets;
    /* Device, out of place: (requests_count, sets_count - 1), from set 1 on. */
    struct vx_brick_counts *counts;
};

/* Device memory of the indices of all sets but set 0. */
size_t vx_gpu_levels_bytes(const struct vx_gpu_levels *levels);
/* indices: (requests_count), as vx_gpu_index_build leaves them. */
void vx_gpu_levels_place(struct vx_kernel_set *set, struct vx_gpu_levels *levels,
                         const struct vx_gpu_index *indices, void *memory);
VX_MUST_USE vx_status vx_gpu_levels_build(const struct vx_gpu_queue *queue,
                                          struct vx_gpu_upload *upload,
                                          const struct vx_gpu_levels *levels,
                                          struct vx_why *why);
size_t vx_gpu_levels_counts_bytes(const struct vx_gpu_levels *levels);
/* What a set of a request has, from the host's copy of all counts, which may lie at any
 * address.  set >= 1. */
struct vx_brick_counts vx_gpu_levels_count(const struct vx_gpu_levels *levels,
                                           i32 request, i32 set, const void *counts);
/* Sets the rows of a request's sets of this stage from the same; other rows stay. */
VX_MUST_USE vx_status vx_gpu_levels_rows(const struct vx_gpu_levels *levels, i32 request,
                                         const void *counts, struct vx_why *why,
                                         i64 *rows);

/* --- maps --- */

/* Device memory of a map of set key->to with so many rows, 0 too.  PARENT and CHILD have
 * nbr (N, 4) alone, the last three -1: words is 0, masks and pairs are NULL. */
size_t vx_gpu_level_map_bytes(i64 rows, const struct vx_map_key *key);
void vx_gpu_level_map_place(i64 rows, const struct vx_map_key *key, void *memory,
                            struct vx_gpu_map *map);

/* The map of one request. */
struct vx_gpu_level_map {
    const struct vx_brick_set *from, *to; /* SUBM: the same */
    i64 from_rows, rows;                  /* as counted; 0 rows: nothing is written */
    const struct vx_gpu_map *map;         /* placed */
};
/* The maps of one key for many requests. */
struct vx_gpu_level_maps {
    const struct vx_map_key *key;
    const struct vx_gpu_level_map *maps; /* (count) */
    i32 count;
};
VX_MUST_USE vx_status vx_gpu_level_maps_build(const struct vx_gpu_queue *queue,
                                              struct vx_gpu_upload *upload,
                                              const struct vx_gpu_level_maps *maps,
                                              struct vx_why *why);
/* The maps of several keys for one request: those that have a kernel in common by one launch,
 * as each of them leaves most of the device idle; the launches on the queues in turn. */
struct vx_gpu_queues {
    struct vx_gpu_queue of[2];
    i32 count;
};
VX_MUST_USE vx_status vx_gpu_level_maps_build_keys(const struct vx_gpu_queues *queues,
                                                   struct vx_gpu_upload *upload,
                                                   const struct vx_gpu_level_maps *maps,
                                                   i32 count, struct vx_why *why);

/* Writes the voxel of each row, packed (kernels/01_coord_hash.h): sorted, they are an
 * output's order. */
struct vx_gpu_level_keys {
    const struct vx_brick_set *set;
    i64 rows;
    u64 *keys; /* (rows) device out */
};
VX_MUST_USE vx_status vx_gpu_level_keys_build(const struct vx_gpu_queue *queue,
                                              struct vx_gpu_upload *upload,
                                              const struct vx_gpu_level_keys *keys,
                                              i32 count, struct vx_why *why);

/* The kernels that these launch, for vx_kernel_set_ready: besides those of
 * vx_gpu_pieces_kernels, which make the map SUBM of any set. */
i32 vx_gpu_levels_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
