/* order - sorts rows by their masks, joins the masks of every 32 rows, and lists pairs.
 *
 * Rows are sorted once per group of offsets, by the part of the mask that belongs to it.
 *
 * Owner    the caller owns device memory.
 * Thread   device; build only puts launches on the stream.
 * Limits   1 <= n <= VX_VOXELS_MAX; V <= VX_KERNEL_OFFSETS_MAX.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ORDER_H
#define VX_ENGINE_GPU_ORDER_H

#include "engine/gpu/geometry/upload.h"

struct vx_gpu_order_want {
    i64 n;
    i32 v;
    i32 groups;    /* divides v; group g holds the offsets [g*v/groups, (g+1)*v/groups) */
    i32 kernel[3]; /* of the map: how its offsets lie */
    /* By their masks.  False: rows stay in brick order, only block masks are made. */
    bool sorted;
    bool gray; /* by the rank of the mask in the Gray code, else by it as a number */
    i32 blocks; /* to which lists deal the tiles, for convolutions that stream; 0: no lists */
    bool neighbours; /* the map in this order, too, for the same; if sorted */
};
/* Device memory of order, block masks, lists of tiles and neighbours.  place sets groups and the
 * pointers in *map; order is NULL if the rows are not sorted. */
size_t vx_gpu_order_bytes(const struct vx_gpu_order_want *want);
void vx_gpu_order_place(const struct vx_gpu_order_want *want, void *memory,
                        struct vx_gpu_map *map);
size_t vx_gpu_order_scratch_bytes(const struct vx_gpu_order_want *want);
/* Reads the map's masks; writes what place has placed.  The scratch memory is free when
 * the stream has passed the build. */
VX_MUST_USE vx_status vx_gpu_order_build(const struct vx_gpu_queue *queue,
                                         const struct vx_gpu_order_want *want,
                                         const struct vx_gpu_map *map, void *scratch,
                                         struct vx_why *why);

/* Several orders at once: their passes share launches, which for a few maps of a hundred
 * thousand rows takes hardly longer than one.  Without room in `upload` they are built one
 * after the other. */
struct vx_gpu_order_job {
    struct vx_gpu_order_want want; /* sorted */
    const struct vx_gpu_map *map;
    void *scratch; /* of its own */
};
VX_MUST_USE vx_status vx_gpu_orders_build(const struct vx_gpu_queue *queue,
                                          struct vx_gpu_upload *upload,
                                          const struct vx_gpu_order_job *jobs, i32 count,
                                          struct vx_why *why);

/* Pairs (row, neighbour) listed offset by offset, rows rising inside an offset. */
struct vx_gpu_pairs {
    const i32 *nbr; /* (N, nbr_stride) in, device */
    void *scratch;  /* vx_gpu_pairs_scratch_bytes */
    i32 *starts;    /* (V+1) out: where each offset's list begins; [V] = all pairs */
    i32 *in_rows;   /* (N*V at most) out: the neighbour's row */
    i32 *places;    /* (N, nbr_stride) out: index of the pair (row, offset), -1 none */
};
size_t vx_gpu_pairs_scratch_bytes(i64 n, i32 v);
/* Uses only n and v of `want`. */
VX_MUST_USE vx_status vx_gpu_pairs_build(struct vx_kernel_set *set,
                                         struct vx_gpu_stream *stream,
                                         const struct vx_gpu_order_want *want,
                                         const struct vx_gpu_pairs *pairs,
                                         struct vx_why *why);

/* The kernels that order_build and orders_build launch, and those of pairs_build: for
 * vx_kernel_set_ready. */
i32 vx_gpu_order_kernels(struct vx_jit_wanted *wanted, i32 room);
i32 vx_gpu_pairs_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
