/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/order.h"
#include "kernels/05_mask_order.h"
#include "kernels/08_pair_list.h"

_Static_assert(VX_PAIRS_OFFSETS == (VX_KERNEL_OFFSETS_MAX + 3) / 4 * 4 &&
                   VX_CONV_OFFSETS == VX_PAIRS_OFFSETS,
               "shared memory has room for every offset of the largest kernel");

/* Offsets in scratch memory. */
struct layout {
    i64 tiles;
    size_t counts, totals, bytes;
};

static struct layout layout_make(i64 n, i32 v)
{
    struct layout layout = {.tiles = (n + VX_PAIRS_TILE - 1) / VX_PAIRS_TILE};
    layout.totals =
        vx_round_up((size_t)(layout.tiles * v) * sizeof(u32), VX_GPU_LINE_BYTES);
    layout.bytes =
        layout.totals + vx_round_up((size_t)v * sizeof(u32), VX_GPU_LINE_BYTES);
    return layout;
}

size_t vx_gpu_pairs_scratch_bytes(i64 n, i32 v)
{
    return layout_make(n, v).bytes;
}

vx_status vx_gpu_pairs_build(struct vx_kernel_set *set, struct vx_gpu_stream *stream,
                             const struct vx_gpu_order_want *want,
                             const struct vx_gpu_pairs *pairs, struct vx_why *why)
{
    const struct vx_gpu_queue queue = {.set = set, .stream = stream};
    const struct layout layout = layout_make(want->n, want->v);
    u32 *counts = (void *)((u8 *)pairs->scratch + layout.counts);
    u32 *totals = (void *)((u8 *)pairs->scratch + layout.totals);
    const struct vx_pair_list_args args = {
        .n = want->n,
        .tiles = layout.tiles,
        .v = want->v,
        .nbr_stride = vx_nbr_stride(want->v),
        .nbr = pairs->nbr,
        .counts = counts,
        .totals = totals,
        .starts = pairs->starts,
        .in_rows = pairs->in_rows,
        .places = pairs->places,
    };
    const struct vx_count_scan_args scan = {
        .rows = want->v, .tiles = layout.tiles, .counts = counts, .totals = totals};
    VX_ASSERT(want->n >= 1 && want->n <= VX_VOXELS_MAX);
    VX_ASSERT(want->v >= 1 && want->v <= VX_KERNEL_OFFSETS_MAX);
    VX_TRY(vx_gpu_map_launch(&queue, "pairs_count", &args, why));
    VX_TRY(vx_gpu_map_launch(&queue, "count_scan", &scan, why));
    return vx_gpu_map_launch(&queue, "pairs_write", &args, why);
}

i32 vx_gpu_pairs_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {"pairs_count", "count_scan", "pairs_write"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
