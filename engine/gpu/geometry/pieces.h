/* pieces - builds, compares and joins the geometries of a round on the device.
 *
 * A piece is the geometry of one request, in rows 0 .. n-1, as the geometry store keeps
 * it.  A round of one request computes on its piece.  A round of several computes on the
 * join: on each set the rows of all pieces one after the other, with the row numbers of
 * each piece raised by its first row.  So a round whose pieces are all in the store builds nothing.
 * Rows are sorted (order.h) after the join, for the whole round.
 *
 *   VX_TRY(vx_gpu_pieces_build(&queue, &upload, &build, &why));             (new pieces)
 *   VX_TRY(vx_gpu_pieces_compare(&queue, &upload, compared, count, &why));  (stored ones)
 *   VX_TRY(vx_gpu_pieces_join(&queue, &upload, &join, &why));
 *   VX_TRY(vx_gpu_pieces_results(&queue, &upload, &results, &why));
 *   (copy the results out; wait)
 *
 * Pieces of up to VX_BRICK_SMALL voxels are built together, by launches in which each
 * piece has a block or a row of blocks.  Larger pieces are built one by one, because a
 * launch then costs little in comparison.
 *
 * Owner    the caller owns all memory, host and device; nothing is kept.
 * Thread   device; all of it only puts copies and launches on the stream.
 * Limits   1 <= n of a piece; sums of n <= VX_VOXELS_MAX; VX_BATCH_ITEMS_MAX pieces;
 *          the room of `upload`: VX_GPU_UPLOAD_BYTES is enough for one round.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_PIECES_H
#define VX_ENGINE_GPU_PIECES_H

#include "engine/base/limits.h"
#include "engine/gpu/geometry/upload.h"

/* The canonical order of the rows of a set (ranks.h), and their voxels, on the device.
 * NULL: not needed. */
struct vx_gpu_ordered {
    i32 *rank;   /* (rows) the place of a row */
    i32 *coords; /* (rows, 4) of the voxels; of a piece alone */
    i32 *order;  /* (rows) the row at a place */
    u64 *sorted; /* (rows) the keys of the voxels */
    u64 *keys;   /* (rows) the key of each row's voxel */
};

struct vx_gpu_piece {
    i64 n;
    i32 columns;       /* of coords: 3 or 4 */
    i32 shape[3];      /* as in vx_gpu_coords */
    const i32 *coords; /* (n, columns) device */
    i32 *rows;         /* (n) device: row of the request of each row of the piece */
    /* (2) device memory of the caller: build writes it as vx_gpu_index.fault.  For
     * results NULL is allowed: no fault. */
    u32 *fault;
    /* One per key: nbr, masks, pairs; order and block_masks are NULL. */
    struct vx_gpu_map *maps;
    const i64 *set_rows;  /* rows of each set of the network; NULL: only set 0, of n */
    const i64 *laid_rows; /* what the memory of maps is laid out for; NULL: set_rows */
    struct vx_gpu_ordered *ordered; /* one for each of the plan's ordered sets */
};

struct vx_gpu_build {
    struct vx_gpu_piece *pieces;
    i32 pieces_count;
    const struct vx_map_key *keys;
    i32 keys_count;
    /* Free when the stream has passed the build, unless there are indices. */
    void *scratch;
    /* (pieces_count) out, or NULL: indices that stay, for levels.h; no maps then. */
    struct vx_gpu_index *indices;
};
/* Bytes of the scratch; `stay`: with indices that stay. */
size_t vx_gpu_build_bytes(const struct vx_gpu_piece *pieces, i32 count, bool stay);
VX_MUST_USE vx_status vx_gpu_pieces_build(const struct vx_gpu_queue *queue,
                                          struct vx_gpu_upload *upload,
                                          const struct vx_gpu_build *build,
                                          struct vx_why *why);

/* Writes 1 to *differs if a and b differ, else 0. */
struct vx_gpu_compared {
    const i32 *a, *b; /* (count) device */
    i64 count;        /* of i32: n * columns */
    u32 *differs;     /* device */
};
VX_MUST_USE vx_status vx_gpu_pieces_compare(const struct vx_gpu_queue *queue,
                                            struct vx_gpu_upload *upload,
                                            const struct vx_gpu_compared *compared,
                                            i32 count, struct vx_why *why);

/* What a join leaves out, because another one has joined it or will. */
struct vx_gpu_join_skip {
    bool rows;
    bool maps[VX_LAYERS_MAX];
    bool ordered[VX_SETS_MAX];
};
struct vx_gpu_join {
    const struct vx_gpu_join_skip *skip; /* NULL: nothing */
    const struct vx_gpu_piece *pieces;
    i32 pieces_count;
    const struct vx_map_key *keys;
    i32 keys_count;
    i32 *rows; /* (N) device out: first row of the piece + row in the piece */
    /* The same for ranks and orders, and keys as they are: (ordered_count) sets, and where
     * they go. */
    const i32 *ordered_sets;
    const struct vx_gpu_ordered *ordered;
    i32 ordered_count;
    /* One per key, of N rows, placed by the caller.  nbr and masks are written; pairs
     * stay with the pieces. */
    struct vx_gpu_map *maps;
};
VX_MUST_USE vx_status vx_gpu_pieces_join(const struct vx_gpu_queue *queue,
                                         struct vx_gpu_upload *upload,
                                         const struct vx_gpu_join *join,
                                         struct vx_why *why);

/* What the host reads of each piece, gathered so that one copy is enough. */
struct vx_gpu_piece_result {
    u32 fault[2];
    u32 differs;
    u32 unused;
    u64 pairs; /* of all maps that count them */
};
struct vx_gpu_results {
    const struct vx_gpu_piece *pieces;
    i32 pieces_count;
    i32 maps_count;      /* of each piece, whose pairs are wanted */
    u32 *const *differs; /* one per piece: where compare wrote; NULL = not compared */
    struct vx_gpu_piece_result *results; /* (pieces_count) device out */
    u64 *each; /* (pieces_count, maps_count) device out: the pairs of each map; or NULL */
};
VX_MUST_USE vx_status vx_gpu_pieces_results(const struct vx_gpu_queue *queue,
                                            struct vx_gpu_upload *upload,
                                            const struct vx_gpu_results *results,
                                            struct vx_why *why);

/* The kernels that these launch: for vx_kernel_set_ready. */
i32 vx_gpu_pieces_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
