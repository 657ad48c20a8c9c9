/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/top.h"

#include "engine/gpu/geometry/key_sort.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/occupancy.h"
#include "kernels/27_top_rows.h"

/* Offsets in the scratch, behind those of the sort. */
struct layout {
    size_t kept, words, starts, count, bytes;
};

static size_t take(struct layout *layout, i64 count, size_t each)
{
    size_t at = layout->bytes;
    layout->bytes += vx_round_up((size_t)count * each, VX_GPU_LINE_BYTES);
    return at;
}

static struct layout layout_make(i64 rows)
{
    struct layout layout = {.bytes = vx_gpu_key_sort_bytes(rows)};
    layout.kept = take(&layout, rows, sizeof(u32));
    layout.words = take(&layout, rows, sizeof(u64));
    layout.starts =
        take(&layout, rows + 1, sizeof(i32)); /* a sample has a row at least */
    layout.count = take(&layout, 1, sizeof(i32));
    return layout;
}

size_t vx_gpu_top_bytes(i64 rows)
{
    return layout_make(rows).bytes;
}

static i64 rows_of(const struct vx_gpu_levels *levels, i32 request, i32 set)
{
    const i32 from = levels->keys[set].from;
    return levels->stage.rows[(i64)request * levels->sets_count + from];
}

const u32 *vx_gpu_top_kept(const struct vx_gpu_levels *levels, i32 set)
{
    i64 n = 0;
    for (i32 r = 0; r < levels->requests_count; r++) n += rows_of(levels, r, set);
    return (const u32 *)(const void *)((const u8 *)levels->stage.scratch +
                                       layout_make(n).kept);
}

/* Starts the sort of all rows of the set that `set` is made from, with their keys. */
static vx_status keys_make(struct vx_gpu_key_sort *sort, struct vx_gpu_upload *upload,
                           const struct vx_gpu_levels *levels, i32 set)
{
    struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
    const i32 from = levels->keys[set].from, count = levels->requests_count;
    sort->key.members = count;
    for (i32 r = 0; r < count; r++)
        sort->key.edges[r + 1] = sort->key.edges[r] + (i32)rows_of(levels, r, set);
    sort->key.n = sort->key.edges[count];
    vx_gpu_key_sort_begin(sort);
    for (i32 r = 0; r < count; r++)
        keys[r] = (struct vx_gpu_level_keys){
            &levels->sets[(i64)r * levels->sets_count + from], rows_of(levels, r, set),
            sort->keys + sort->key.edges[r]};
    return vx_gpu_level_keys_build(sort->queue, upload, keys, count, sort->why);
}

static vx_status mark(const struct vx_gpu_key_sort *sort, struct vx_top_args *top,
                      i32 *starts, i32 *count)
{
    struct vx_key_order_args args = sort->key;
    args.rows = top->rows = sort->rows;
    args.starts = starts;
    args.count = count;
    VX_TRY(vx_gpu_map_launch(sort->queue, "key_starts", &args, sort->why));
    top->starts = starts;
    top->count = count;
    return vx_gpu_map_launch(sort->queue, "top_mark", top, sort->why);
}

vx_status vx_gpu_top_build(const struct vx_gpu_queue *queue, struct vx_gpu_upload *upload,
                           const struct vx_gpu_levels *levels, i32 set,
                           struct vx_why *why)
{
    const struct vx_gpu_logits *logits = &levels->stage.logits[set];
    u8 *scratch = levels->stage.scratch;
    struct vx_gpu_key_sort sort = {.queue = queue, .scratch = scratch, .why = why};
    VX_TRY(keys_make(&sort, upload, levels, set));
    const struct layout layout = layout_make(sort.key.n);
    struct vx_top_args top = {.n = sort.key.n,
                              .cp = logits->cp,
                              .top = levels->keys[set].top,
                              .logits = logits->rows,
                              .keys = sort.keys,
                              .words = (void *)(scratch + layout.words),
                              .kept = (void *)(scratch + layout.kept)};
    struct vx_jit_wanted kernel = vx_gpu_typed_wanted("top_keys", levels->stage.type);
    VX_TRY(vx_kernel_launch(queue->set, queue->stream, &kernel, &top, why));
    /* The sample is in the words. */
    VX_TRY(vx_gpu_key_sort_by(&sort, sort.keys, 3 * VX_KEY_AXIS_BITS));
    VX_TRY(vx_gpu_key_sort_by(&sort, top.words, VX_TOP_BITS));
    VX_TRY(vx_gpu_key_sort_members(&sort));
    return mark(&sort, &top, (void *)(scratch + layout.starts),
                (void *)(scratch + layout.count));
}
