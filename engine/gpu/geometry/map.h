/* map - builds neighbour maps from coordinates on the device; the host does not wait.
 *
 * Rows on the device are the voxels in brick order: the voxels of one 4^3 brick are
 * adjacent, so that neighbours are near in memory.  `rows` is the row of the request for
 * each of them; only the conversion of features in and out uses it.  Coordinates that are
 * out of range or duplicate set a flag on the device, which is copied back with the
 * outputs; the host then finds the bad rows (engine/cpu/geometry/keys.h).
 *
 *   VX_TRY(vx_gpu_index_build(&queue, &coords, &why, &index));
 *   vx_gpu_map_place(n, &key, memory, &map);
 *   VX_TRY(vx_gpu_map_build(&queue, &index, &key, &map, &why));
 *
 * Owner    the caller owns device memory; index and map point into it.
 * Thread   device; build only puts launches on the stream.
 * Limits   1 <= n <= VX_VOXELS_MAX; V <= VX_KERNEL_OFFSETS_MAX.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MAP_H
#define VX_ENGINE_GPU_MAP_H

#include "engine/gpu/jit/kernel_set.h"
#include "engine/map_key.h"
#include "kernels/06_conv_masked.h"

/* Device memory is divided in multiples of this. */
#define VX_GPU_LINE_BYTES 256

/* The sorted voxels on the device, and the table to find them. */
struct vx_gpu_index {
    i64 n;
    i32 *rows;    /* (N) row of the request of each device row: a permutation */
    u32 *fault;   /* (2) zero = good; [0] a coordinate out of range, [1] a duplicate */
    void *bricks; /* what map_build needs; see map.c */
};

struct vx_gpu_map {
    i32 v, words, nbr_stride, groups;
    i32 *nbr;   /* (N, nbr_stride), -1 empty, row-major */
    u32 *masks; /* (N, words): bit v%32 of word v/32 = nbr[v] is there */
    i32 *order; /* (groups, N), or NULL */
    /* (groups, vx_mask_blocks(N), words): the joined masks of every 32 rows in the order
     * of `order`, with only the offsets of the group. */
    u32 *block_masks;
    /* Tiles of 128 and of 256 places, dealt by their work to the blocks of a convolution, or NULL
     * (order_tiles, kernels/05_mask_order.h). */
    i32 *tiles[2];
    i32 *neighbours; /* (V, N): nbr in the order of `order`, or NULL */
    u64 *pairs;      /* (1) entries of nbr that are not -1 */
};

/* The input of an index and the device memory that it uses; every address is a multiple
 * of VX_GPU_LINE_BYTES. */
struct vx_gpu_coords {
    const i32 *coords; /* (N, columns), device */
    i32 columns;       /* 3 or 4 */
    i64 n;
    void *memory; /* vx_gpu_index_bytes, scratch included */
    i32 *rows;    /* (N) out, device: separate, as it may be kept longer than the rest */
    i32 shape[3]; /* voxels lie in 0 .. shape - 1; zeros: anywhere in range */
};

size_t vx_gpu_index_bytes(i64 n);
VX_MUST_USE vx_status vx_gpu_index_build(const struct vx_gpu_queue *queue,
                                         const struct vx_gpu_coords *coords,
                                         struct vx_why *why, struct vx_gpu_index *index);
/* Device memory of a map of n rows: nbr, masks and pairs.  place sets their pointers in
 * *map; order.h places and writes the rest. */
size_t vx_gpu_map_bytes(i64 n, const struct vx_map_key *key);
void vx_gpu_map_place(i64 n, const struct vx_map_key *key, void *memory,
                      struct vx_gpu_map *map);
VX_MUST_USE vx_status vx_gpu_map_build(const struct vx_gpu_queue *queue,
                                       const struct vx_gpu_index *index,
                                       const struct vx_map_key *key,
                                       const struct vx_gpu_map *map, struct vx_why *why);
/* The kernels that the builds launch: for vx_kernel_set_ready. */
i32 vx_gpu_map_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
