/* key_sort - sorts the rows of all members of a round by 64-bit words, on the device.
 *
 *   struct vx_gpu_key_sort sort = {.queue = &queue, .scratch = memory, .why = &why};
 *   sort.key.members, sort.key.edges, sort.key.n = ...
 *   vx_gpu_key_sort_begin(&sort);
 *   (write sort.keys)
 *   VX_TRY(vx_gpu_key_sort_all(&sort));          sort.rows: by member, then by key
 *
 * or, with another order beneath the members:
 *
 *   VX_TRY(vx_gpu_key_sort_by(&sort, sort.keys, VX_KEY_BITS));
 *   VX_TRY(vx_gpu_key_sort_by(&sort, words, bits));     stable: equal words stay by key
 *   VX_TRY(vx_gpu_key_sort_members(&sort));
 *
 * Owner    the caller owns all memory, which is in use until the stream has passed the last
 *          reader of `rows`.
 * Thread   device; all of it only puts launches on the stream.
 * Limits   VX_KEY_MEMBERS_MAX members, 1 <= n <= VX_VOXELS_MAX.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_KEY_SORT_H
#define VX_ENGINE_GPU_KEY_SORT_H

#include "engine/gpu/geometry/map.h"
#include "kernels/23_key_order.h"

/* Offsets in the scratch. */
struct vx_gpu_key_layout {
    size_t keys;              /* (N) u64 */
    size_t rows[2], words[2]; /* (N) */
    size_t numbers, state, totals;
    i64 tiles;
    size_t bytes;
};

struct vx_gpu_key_sort {
    const struct vx_gpu_queue *queue;
    u8 *scratch;
    struct vx_why *why;
    struct vx_key_order_args key; /* n, members, edges: the caller's */
    u64 *keys;                    /* (n) in the scratch, after begin */
    const i32 *rows;              /* (n) the order so far; NULL = as they are */
    /* Private. */
    struct vx_gpu_key_layout layout;
    i32 turn; /* the buffer that the next pass writes */
};

/* Bytes of the scratch for so many rows. */
size_t vx_gpu_key_sort_bytes(i64 rows);
void vx_gpu_key_sort_begin(struct vx_gpu_key_sort *sort);
VX_MUST_USE vx_status vx_gpu_key_sort_all(struct vx_gpu_key_sort *sort);
VX_MUST_USE vx_status vx_gpu_key_sort_by(struct vx_gpu_key_sort *sort, const u64 *words,
                                         i32 bits);
VX_MUST_USE vx_status vx_gpu_key_sort_members(struct vx_gpu_key_sort *sort);

#endif
