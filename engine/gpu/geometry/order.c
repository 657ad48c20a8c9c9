/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/05_mask_order.h"

/* The fewest rows with lists of tiles: 64 of the larger ones. */
#define TILES_ROWS_MIN 16384
_Static_assert(TILES_ROWS_MIN > VX_ORDER_SMALL_ROWS, "small sorts make no lists");
/* The fewest rows with neighbours: one block that sorts alone would take long to write them. */
#define NEIGHBOURS_ROWS_MIN (VX_ORDER_SMALL_ROWS + 1)
/* Orders that are built together; more are built one by one. */
#define ORDERS_MAX 32

static i64 divided_up(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

/* One pass of the radix sort.  A row's rank is sorted in parts that fit a key of 32 bits,
 * a part in digits of about equal size, from the lowest up. */
struct order_pass {
    i32 key_low, key_bits;
    i32 shift, digit_bits;
    bool makes_key; /* the first pass of a key computes it from the masks */
    bool last_of_key;
};

/* Moves to the next pass, or from a zeroed pass to the first one; false = no more. */
static bool order_pass_next(i32 bits, struct order_pass *pass)
{
    pass->shift += pass->digit_bits;
    pass->makes_key = pass->shift == pass->key_bits;
    if (pass->makes_key) {
        i32 piece = bits <= 32 ? bits : VX_ORDER_CHUNK;
        pass->key_low += pass->key_bits;
        if (pass->key_low >= bits) return false;
        if (piece > bits - pass->key_low) piece = bits - pass->key_low;
        pass->key_bits = piece;
        pass->shift = 0;
    }
    i32 digits = (i32)divided_up(pass->key_bits, VX_ORDER_DIGIT);
    i32 even = (i32)divided_up(pass->key_bits, digits);
    i32 left = pass->key_bits - pass->shift;
    pass->digit_bits = even < left ? even : left;
    pass->last_of_key = pass->shift + pass->digit_bits == pass->key_bits;
    return true;
}

/* Fewer runs than these tell too little of a row.  Measured are 3^3 and 5^3, with 25. */
#define RUNS_MIN 16

/* The run of the signature that rows are sorted by; 0 = by their masks: rows of a group of
 * offsets, offsets that do not lie as a kernel's, and masks that fit in a key whole.  A run
 * is a line of the kernel where that makes enough runs, but not too many for a key. */
static i32 order_run(const struct vx_gpu_order_want *want)
{
    const i32 *kernel = want->kernel, least = (i32)divided_up(want->v, VX_ORDER_CHUNK);
    if (want->groups > 1 || want->v != kernel[0] * kernel[1] * kernel[2]) return 0;
    if (kernel[0] == 3 && kernel[1] == 3 && kernel[2] == 3) return 3;
    if (want->v <= 32) return 0;
    if (kernel[2] < least || divided_up(want->v, kernel[2]) < RUNS_MIN) return least;
    return kernel[2];
}

/* The sizes of the large sort, and its offsets in scratch memory. */
struct order_layout {
    i64 tiles;
    i32 bits;
    i32 passes;
    bool keys_last; /* the last pass keeps its keys: block masks are made from them */
    size_t counts, totals, keys[2], rows, bytes;
};

static size_t layout_take(struct order_layout *layout, i64 words)
{
    size_t at = layout->bytes;
    layout->bytes += (size_t)divided_up(words * 4, VX_GPU_LINE_BYTES) * VX_GPU_LINE_BYTES;
    return at;
}

static struct order_layout order_layout_make(const struct vx_gpu_order_want *want)
{
    const i32 run = order_run(want);
    struct order_layout layout = {
        .bits = vx_order_rank_bits(want->v / want->groups, run, want->n)};
    struct order_pass pass = {0};
    i32 digit_max = 0;
    while (order_pass_next(layout.bits, &pass)) {
        layout.passes++;
        if (digit_max < pass.digit_bits) digit_max = pass.digit_bits;
    }
    layout.tiles = divided_up(want->n, VX_ORDER_TILE);
    layout.keys_last = layout.bits <= 32 && layout.passes > 1 && !run;
    i64 rows = (i64)want->groups << digit_max;
    layout.counts = layout_take(&layout, rows * layout.tiles);
    layout.totals = layout_take(&layout, rows);
    if (layout.passes == 1) return layout;
    layout.keys[0] = layout_take(&layout, want->groups * want->n);
    layout.keys[1] = layout_take(&layout, want->groups * want->n);
    layout.rows = layout_take(&layout, want->groups * want->n);
    return layout;
}

size_t vx_gpu_order_scratch_bytes(const struct vx_gpu_order_want *want)
{
    return order_layout_make(want).bytes;
}

/* Where launches go. */
struct order_stream {
    struct vx_kernel_set *set;
    struct vx_gpu_stream *stream;
    struct vx_why *why;
};

static vx_status order_launch(const struct order_stream *to, const char *name,
                              const void *args)
{
    struct vx_jit_wanted kernel = {.spec = vx_kernel_find(name)};
    VX_ASSERT(kernel.spec);
    return vx_kernel_launch(to->set, to->stream, &kernel, args, to->why);
}

static vx_status scan_launch(const struct order_stream *to, i64 rows, i64 tiles,
                             u32 *counts, u32 *totals)
{
    struct vx_count_scan_args args = {
        .rows = rows, .tiles = tiles, .counts = counts, .totals = totals};
    return order_launch(to, "count_scan", &args);
}

static void *scratch_at(void *scratch, size_t offset)
{
    return (unsigned char *)scratch + offset;
}

/* A large sort between two of its passes. */
struct order_sort {
    struct order_layout layout;
    struct order_pass pass;
    i32 done; /* passes */
    u32 *keys[2];
    i32 *rows[2];
    struct vx_mask_order_args args;
};

static void order_sort_begin(struct order_sort *sort, const struct order_layout *layout,
                             void *scratch, const struct vx_mask_order_args *args)
{
    *sort = (struct order_sort){
        .layout = *layout,
        .keys = {scratch_at(scratch, layout->keys[0]),
                 scratch_at(scratch, layout->keys[1])},
        .rows = {args->rows_out, scratch_at(scratch, layout->rows)},
        .args = *args,
    };
    sort->args.counts = scratch_at(scratch, layout->counts);
    sort->args.totals = scratch_at(scratch, layout->totals);
}

/* Sets the arguments of the next pass; false: there is none, and they are those of
 * order_blocks.  Rows alternate between scratch memory and the output, so that the last
 * pass writes the output; keys alternate between two buffers in scratch memory. */
static bool order_sort_next(struct order_sort *sort)
{
    struct vx_mask_order_args *args = &sort->args;
    const struct order_pass *pass = &sort->pass;
    if (!order_pass_next(sort->layout.bits, &sort->pass)) {
        args->rows_in = sort->rows[0];
        args->keys_in = sort->layout.keys_last ? sort->keys[0] : NULL;
        return false;
    }
    const i32 left = sort->layout.passes - 1 - sort->done;
    const bool keeps = !pass->last_of_key || (left == 0 && sort->layout.keys_last);
    args->key_low = pass->key_low;
    args->key_bits = pass->key_bits;
    args->shift = pass->shift;
    args->digit_bits = pass->digit_bits;
    args->rows_in = sort->done == 0 ? NULL : sort->rows[(left + 1) % 2];
    args->rows_out = sort->rows[left % 2];
    args->keys_in = pass->makes_key ? NULL : sort->keys[(left + 1) % 2];
    args->keys_out = keeps ? sort->keys[left % 2] : NULL;
    sort->done++;
    return true;
}

static vx_status order_sort_large(const struct order_stream *to, struct order_sort *sort)
{
    const struct vx_mask_order_args *args = &sort->args;
    while (order_sort_next(sort)) {
        VX_TRY(order_launch(to, "order_count", args));
        VX_TRY(scan_launch(to, (i64)args->groups << args->digit_bits, args->tiles,
                           args->counts, args->totals));
        VX_TRY(order_launch(to, "order_scatter", args));
    }
    return order_launch(to, "order_blocks", args);
}

/* True if one block can sort all rows in its shared memory. */
static bool order_is_small(struct vx_kernel_set *set,
                           const struct vx_gpu_order_want *want)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("order_small");
    const struct vx_caps *caps = vx_gpu_caps(vx_kernel_set_gpu(set));
    return want->n <= VX_ORDER_SMALL_ROWS && spec->fits(NULL, 0, caps);
}

static void order_want_check(const struct vx_gpu_order_want *want)
{
    VX_ASSERT(want->n >= 1);
    VX_ASSERT(want->n <= VX_VOXELS_MAX);
    VX_ASSERT(want->v >= 1);
    VX_ASSERT(want->v <= VX_KERNEL_OFFSETS_MAX);
}

static size_t order_rows_bytes(const struct vx_gpu_order_want *want)
{
    if (!want->sorted) return 0;
    size_t bytes = (size_t)want->groups * (size_t)want->n * sizeof(i32);
    return vx_round_up(bytes, VX_GPU_LINE_BYTES);
}

static size_t order_masks_bytes(const struct vx_gpu_order_want *want)
{
    size_t blocks = (size_t)want->groups * (size_t)vx_mask_blocks(want->n);
    size_t masks = blocks * (size_t)vx_mask_words(want->v) * sizeof(u32);
    return vx_round_up(masks, VX_GPU_LINE_BYTES);
}

/* Of a list of tiles.  Where there are few rows no list is worth its launch. */
static size_t order_tiles_bytes(const struct vx_gpu_order_want *want, i32 kind)
{
    if (!want->sorted || !want->blocks || want->n < TILES_ROWS_MIN) return 0;
    i64 tiles = vx_order_tiles_count(want->n, want->groups, kind);
    return vx_round_up((size_t)vx_order_tiles_numbers(tiles, want->blocks) * sizeof(i32),
                       VX_GPU_LINE_BYTES);
}

static size_t order_neighbours_bytes(const struct vx_gpu_order_want *want)
{
    if (!want->sorted || !want->neighbours || want->groups > 1) return 0;
    if (want->n < NEIGHBOURS_ROWS_MIN) return 0;
    return vx_round_up((size_t)want->v * (size_t)want->n * sizeof(i32),
                       VX_GPU_LINE_BYTES);
}

size_t vx_gpu_order_bytes(const struct vx_gpu_order_want *want)
{
    return order_rows_bytes(want) + order_masks_bytes(want) + order_tiles_bytes(want, 0) +
           order_tiles_bytes(want, 1) + order_neighbours_bytes(want);
}

void vx_gpu_order_place(const struct vx_gpu_order_want *want, void *memory,
                        struct vx_gpu_map *map)
{
    map->groups = want->groups;
    map->order = want->sorted ? memory : NULL;
    map->block_masks = (void *)((u8 *)memory + order_rows_bytes(want));
    u8 *at = (u8 *)map->block_masks + order_masks_bytes(want);
    for (i32 kind = 0; kind < VX_ORDER_TILES_KINDS; kind++) {
        size_t bytes = order_tiles_bytes(want, kind);
        map->tiles[kind] = bytes ? (void *)at : NULL;
        at += bytes;
    }
    map->neighbours = order_neighbours_bytes(want) ? (void *)at : NULL;
}

static struct vx_order_tiles_sort tiles_sort(const struct vx_gpu_order_want *want,
                                             const struct vx_gpu_map *map)
{
    return (struct vx_order_tiles_sort){.n = want->n,
                                        .words = vx_mask_words(want->v),
                                        .groups = want->groups,
                                        .block_masks = map->block_masks,
                                        .tiles = {map->tiles[0], map->tiles[1]}};
}

static struct vx_mask_order_args order_args(const struct vx_gpu_order_want *want,
                                            const struct vx_gpu_map *map)
{
    order_want_check(want);
    VX_ASSERT(want->groups >= 1);
    VX_ASSERT(want->v % want->groups == 0);
    return (struct vx_mask_order_args){
        .n = want->n,
        .tiles = divided_up(want->n, VX_ORDER_TILE),
        .words = vx_mask_words(want->v),
        .bits = want->v / want->groups,
        .run = order_run(want),
        .groups = want->groups,
        .gray = want->gray,
        .masks = map->masks,
        .rows_out = map->order,
        .block_masks = map->block_masks,
        .nbr_stride = map->nbr_stride,
        .nbr = map->nbr,
        .neighbours = map->neighbours,
    };
}

vx_status vx_gpu_order_build(const struct vx_gpu_queue *queue,
                             const struct vx_gpu_order_want *want,
                             const struct vx_gpu_map *map, void *scratch,
                             struct vx_why *why)
{
    const struct vx_mask_order_args args = order_args(want, map);
    const struct order_stream to = {queue->set, queue->stream, why};
    if (!want->sorted) return order_launch(&to, "order_blocks", &args);
    if (order_is_small(queue->set, want)) return order_launch(&to, "order_small", &args);
    const struct order_layout layout = order_layout_make(want);
    struct order_sort sort;
    order_sort_begin(&sort, &layout, scratch, &args);
    VX_TRY(order_sort_large(&to, &sort));
    if (!map->tiles[0]) return VX_OK;
    const struct vx_order_tiles_args tiles = {
        .count = 1, .blocks = want->blocks, .one = tiles_sort(want, map)};
    return order_launch(&to, "order_tiles", &tiles);
}

/* --- several orders --- */

/* No sort has more passes: a rank has at most one bit for each offset, VX_ORDER_CHUNK bits take
 * three passes, and 32 bits at once take four. */
#define ORDER_PASSES_MAX ((VX_KERNEL_OFFSETS_MAX / VX_ORDER_CHUNK + 1) * 3)

/* The launches of several sorts: one step for each pass, and a last one for the masks of
 * blocks. */
struct order_steps {
    struct vx_mask_order_many_args steps[ORDER_PASSES_MAX + 1];
    i32 count;
};

static void step_add(struct vx_mask_order_many_args *step,
                     struct vx_mask_order_args *sorts,
                     const struct vx_mask_order_args *args)
{
    sorts[step->count++] = *args;
    if (args->n > step->n) step->n = args->n;
    if (args->tiles > step->tiles) step->tiles = args->tiles;
    if (args->groups > step->groups) step->groups = args->groups;
}

/* Writes the arguments of all passes of all sorts, step by step.  device: where `sorts`
 * will lie. */
static void steps_write(struct order_sort *all, i32 count,
                        struct vx_mask_order_args *sorts,
                        const struct vx_mask_order_args *device,
                        struct order_steps *steps)
{
    bool more = true;
    for (steps->count = 0; more; steps->count++) {
        struct vx_mask_order_many_args *step = &steps->steps[steps->count];
        VX_ASSERT(steps->count <= ORDER_PASSES_MAX);
        *step = (struct vx_mask_order_many_args){.sorts = device};
        for (i32 s = 0; s < count; s++)
            if (all[s].done < all[s].layout.passes && order_sort_next(&all[s]))
                step_add(step, sorts, &all[s].args);
        more = step->count > 0;
        for (i32 s = 0; !more && s < count; s++) {
            VX_ASSERT(!order_sort_next(&all[s]));
            step_add(step, sorts, &all[s].args);
        }
        sorts += step->count;
        device += step->count;
    }
}

static vx_status steps_launch(const struct order_stream *to,
                              const struct order_steps *steps)
{
    const i32 last = steps->count - 1;
    for (i32 s = 0; s < last; s++) {
        VX_TRY(order_launch(to, "order_count_many", &steps->steps[s]));
        VX_TRY(order_launch(to, "order_scan_many", &steps->steps[s]));
        VX_TRY(order_launch(to, "order_scatter_many", &steps->steps[s]));
    }
    return order_launch(to, "order_blocks_many", &steps->steps[last]);
}

/* True if each is small: then they are sorted by one launch. */
static bool orders_are_small(struct vx_kernel_set *set,
                             const struct vx_gpu_order_job *jobs, i32 count)
{
    for (i32 i = 0; i < count; i++)
        if (!order_is_small(set, &jobs[i].want)) return false;
    return true;
}

static vx_status orders_small(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    const struct order_stream to = {queue->set, queue->stream, why};
    struct vx_mask_order_many_args all = {.count = 0};
    size_t at;
    struct vx_mask_order_args *sorts =
        vx_gpu_upload_take(upload, (size_t)count * sizeof *sorts, &at);
    for (i32 i = 0; i < count; i++) {
        const struct vx_mask_order_args args = order_args(&jobs[i].want, jobs[i].map);
        step_add(&all, sorts, &args);
    }
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    all.sorts = (const void *)(upload->device + at);
    return order_launch(&to, "order_small_many", &all);
}

/* The lists of tiles of those that have them. */
static vx_status orders_tiles(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    const struct order_stream to = {queue->set, queue->stream, why};
    struct vx_order_tiles_args all = {.count = 0};
    size_t at;
    struct vx_order_tiles_sort *sorts =
        vx_gpu_upload_take(upload, (size_t)count * sizeof *sorts, &at);
    for (i32 i = 0; i < count; i++) {
        if (!jobs[i].map->tiles[0]) continue;
        sorts[all.count++] = tiles_sort(&jobs[i].want, jobs[i].map);
        all.blocks = jobs[i].want.blocks; /* of one device */
    }
    if (!all.count) return VX_OK;
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    all.sorts = (const void *)(upload->device + at);
    return order_launch(&to, "order_tiles", &all);
}

static vx_status orders_large(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    const struct order_stream to = {queue->set, queue->stream, why};
    struct order_sort all[ORDERS_MAX];
    struct order_steps steps;
    size_t at, passes = 0;
    for (i32 i = 0; i < count; i++) {
        const struct order_layout layout = order_layout_make(&jobs[i].want);
        const struct vx_mask_order_args args = order_args(&jobs[i].want, jobs[i].map);
        order_sort_begin(&all[i], &layout, jobs[i].scratch, &args);
        passes += (size_t)layout.passes + 1;
    }
    struct vx_mask_order_args *sorts =
        vx_gpu_upload_take(upload, passes * sizeof *sorts, &at);
    steps_write(all, count, sorts, (const void *)(upload->device + at), &steps);
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    VX_TRY(steps_launch(&to, &steps));
    return orders_tiles(queue, upload, jobs, count, why);
}

vx_status vx_gpu_orders_build(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    size_t bytes = 0;
    for (i32 i = 0; i < count; i++) {
        VX_ASSERT(jobs[i].want.sorted);
        bytes += ((size_t)order_layout_make(&jobs[i].want).passes + 1) *
                     sizeof(struct vx_mask_order_args) +
                 sizeof(struct vx_order_tiles_sort);
    }
    if (count > 1 && count <= ORDERS_MAX && vx_gpu_upload_fits(upload, bytes))
        return (orders_are_small(queue->set, jobs, count) ? orders_small : orders_large)(
            queue, upload, jobs, count, why);
    for (i32 i = 0; i < count; i++)
        VX_TRY(
            vx_gpu_order_build(queue, &jobs[i].want, jobs[i].map, jobs[i].scratch, why));
    return VX_OK;
}

i32 vx_gpu_order_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {
        "order_small",        "order_count",       "count_scan",       "order_scatter",
        "order_blocks",       "order_small_many",  "order_count_many", "order_scan_many",
        "order_scatter_many", "order_blocks_many", "order_tiles"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
