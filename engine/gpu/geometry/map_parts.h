/* map_parts - the parts of map.h, for pieces.c, which puts many builds into one launch.
 *
 * Thread   device; all but index_launch is pure.
 * Limits   as map.h.
 * Fails    index_launch as vx_kernel_launch; the rest never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MAP_PARTS_H
#define VX_ENGINE_GPU_MAP_PARTS_H

#include "engine/gpu/geometry/map.h"
#include "kernels/03_brick_map.h"

/* A kernel of kernels/ with one of its tiles. */
struct vx_jit_wanted vx_gpu_map_wanted(const char *name, i32 tile);
/* Adds every tile of each kernel; returns how many were added. */
i32 vx_gpu_map_named(const char *const *names, size_t names_count,
                     struct vx_jit_wanted *wanted, i32 room);
/* Launches the first tile of a kernel without types. */
VX_MUST_USE vx_status vx_gpu_map_launch(const struct vx_gpu_queue *queue,
                                        const char *name, const void *args,
                                        struct vx_why *why);
void vx_gpu_index_args(struct vx_kernel_set *set, const struct vx_gpu_coords *coords,
                       struct vx_brick_index_args *args);
VX_MUST_USE vx_status vx_gpu_index_launch(const struct vx_gpu_queue *queue,
                                          const struct vx_brick_index_args *args,
                                          struct vx_why *why);
/* The kernel that builds a map, for one piece or for many: the one with the
 * smallest table that has all offsets, or the one with look-ups if an offset leaves
 * the adjacent bricks. */
struct vx_jit_wanted vx_gpu_map_kernel(const struct vx_map_key *key, bool many);
void vx_gpu_map_args(struct vx_kernel_set *set, const struct vx_gpu_index *index,
                     const struct vx_map_key *key, const struct vx_gpu_map *map,
                     struct vx_brick_map_args *args);

#endif
