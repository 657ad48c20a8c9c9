/* pieces - the geometries of a batch on the device: built together, compared, joined.
 *
 * A piece is one request's active set and its maps, in rows of its own, 0 .. n-1: what the
 * cache keeps.  A batch of one computes on its piece.  A batch of several computes on the
 * join: the pieces' rows one after the other, row numbers raised by where each begins; so
 * a batch whose pieces are all known builds nothing.  Rows are sorted (order.h) after the
 * join, for the batch as a whole.
 *
 *   VX_TRY(vx_gpu_pieces_build(&queue, &upload, &build, &why));     those not known
 *   VX_TRY(vx_gpu_pieces_compare(&queue, &upload, compared, count, &why));  those known
 *   VX_TRY(vx_gpu_pieces_join(&queue, &upload, &join, &why));
 *   VX_TRY(vx_gpu_pieces_results(&queue, &upload, &results, &why));
 *   (copy the results out; wait)
 *
 * Pieces of up to VX_BRICK_SMALL voxels are built by launches that take all of them at
 * once, a block or a row of blocks to each; larger ones one by one, where a launch is
 * little.
 *
 * Owner    the caller owns all memory, host and device; nothing is kept.
 * Thread   device; all of it only puts copies and launches on the stream.
 * Limits   1 <= n of a piece; sums of n <= VX_VOXELS_MAX; VX_BATCH_ITEMS_MAX pieces;
 *          the room of `upload`: VX_GPU_UPLOAD_BYTES is enough for one batch.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_PIECES_H
#define VX_ENGINE_GPU_PIECES_H

#include "engine/gpu/map.h"

/* Descriptions of what a launch works on are too many for its arguments: written to
 * page-locked host memory and copied to device memory of the same size.  Used up from the
 * front; the caller sets `used` to 0 when the stream has passed everything before. */
struct vx_gpu_upload {
    u8 *host;
    u8 *device;
    size_t bytes, used;
};
#define VX_GPU_UPLOAD_BYTES (256 << 10)

struct vx_gpu_piece {
    i64 n;
    i32 columns;       /* of coords: 3 or 4 */
    const i32 *coords; /* (n, columns) device */
    i32 *rows;         /* (n) device: row of the request of each row of the piece */
    u32 *fault;        /* (2) device, the caller's too: build writes what
                               vx_gpu_index.fault says; NULL for results: none */
    struct vx_gpu_map
        *maps; /* one per key: nbr, masks, pairs; order and block_masks NULL */
};

/* Device memory of a piece's map for one key: places its parts into *map. */
size_t vx_gpu_piece_map_bytes(i64 n, const struct vx_map_key *key);
void vx_gpu_piece_map_place(i64 n, const struct vx_map_key *key, void *memory,
                            struct vx_gpu_map *map);

struct vx_gpu_build {
    struct vx_gpu_piece *pieces;
    i32 pieces_count;
    const struct vx_map_key *keys;
    i32 keys_count;
    void *scratch; /* vx_gpu_build_bytes; free when the stream has passed the build */
};
size_t vx_gpu_build_bytes(const struct vx_gpu_piece *pieces, i32 count);
VX_MUST_USE vx_status vx_gpu_pieces_build(const struct vx_gpu_queue *queue,
                                          struct vx_gpu_upload *upload,
                                          const struct vx_gpu_build *build,
                                          struct vx_why *why);

/* Writes 1 to *differs when the two are not the same, else 0. */
struct vx_gpu_compared {
    const i32 *a, *b; /* (count) device */
    i64 count;        /* of i32: n * columns */
    u32 *differs;     /* device */
};
VX_MUST_USE vx_status vx_gpu_pieces_compare(const struct vx_gpu_queue *queue,
                                            struct vx_gpu_upload *upload,
                                            const struct vx_gpu_compared *compared,
                                            i32 count, struct vx_why *why);

struct vx_gpu_join {
    const struct vx_gpu_piece *pieces;
    i32 pieces_count;
    i32 keys_count;
    i32 *rows; /* (N) device out: base of the piece + its row */
    struct vx_gpu_map
        *maps; /* one per key, placed by the caller; N rows; out: nbr, masks;
                                pairs stay with the pieces */
};
VX_MUST_USE vx_status vx_gpu_pieces_join(const struct vx_gpu_queue *queue,
                                         struct vx_gpu_upload *upload,
                                         const struct vx_gpu_join *join,
                                         struct vx_why *why);

/* What the host wants to know of each piece, gathered so that one copy brings it. */
struct vx_gpu_piece_result {
    u32 fault[2];
    u32 differs;
    u32 unused;
    u64 pairs; /* of the first map; 0 without maps */
};
struct vx_gpu_results {
    const struct vx_gpu_piece *pieces;
    i32 pieces_count;
    u32 *const *differs; /* one per piece: where compare wrote; NULL = not compared */
    struct vx_gpu_piece_result *results; /* (pieces_count) device out */
};
VX_MUST_USE vx_status vx_gpu_pieces_results(const struct vx_gpu_queue *queue,
                                            struct vx_gpu_upload *upload,
                                            const struct vx_gpu_results *results,
                                            struct vx_why *why);

/* The kernels that these launch: for vx_kernel_set_ready. */
i32 vx_gpu_pieces_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
