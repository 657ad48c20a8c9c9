/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/order_sort.h"

/* The fewest rows with lists of tiles: 64 of the larger ones. */
#define TILES_ROWS_MIN 16384
_Static_assert(TILES_ROWS_MIN > VX_ORDER_SMALL_ROWS, "small sorts make no lists");
/* The fewest rows with neighbours: one block that sorts alone would take long to write them. */
#define NEIGHBOURS_ROWS_MIN (VX_ORDER_SMALL_ROWS + 1)
/* Orders that are built together; more are built one by one. */
#define ORDERS_MAX 32

size_t vx_gpu_order_scratch_bytes(const struct vx_gpu_order_want *want)
{
    return vx_gpu_order_layout_make(want).bytes;
}

static vx_status order_sort_large(const struct vx_gpu_queue *queue,
                                  struct vx_gpu_order_sort *sort, struct vx_why *why)
{
    while (vx_gpu_order_sort_next(sort)) {
        if (sort->pass.makes_key) {
            VX_TRY(vx_gpu_map_launch(queue, "order_clear", &sort->digits, why));
            VX_TRY(vx_gpu_map_launch(queue, "order_digits", &sort->digits, why));
        }
        VX_TRY(vx_gpu_map_launch(queue, "order_sweep", &sort->args, why));
    }
    return vx_gpu_map_launch(queue, "order_blocks", &sort->args, why);
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
        .words = vx_mask_words(want->v),
        .bits = want->v / want->groups,
        .run = vx_gpu_order_run(want),
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
    if (!want->sorted) return vx_gpu_map_launch(queue, "order_blocks", &args, why);
    if (order_is_small(queue->set, want))
        return vx_gpu_map_launch(queue, "order_small", &args, why);
    const struct vx_gpu_order_layout layout = vx_gpu_order_layout_make(want);
    struct vx_gpu_order_sort sort;
    vx_gpu_order_sort_begin(&sort, &layout, scratch, &args);
    VX_TRY(order_sort_large(queue, &sort, why));
    if (!map->tiles[0]) return VX_OK;
    const struct vx_order_tiles_args tiles = {
        .count = 1, .blocks = want->blocks, .one = tiles_sort(want, map)};
    return vx_gpu_map_launch(queue, "order_tiles", &tiles, why);
}

/* --- several orders --- */

/* No sort has more passes: a rank has at most one bit for each offset, VX_ORDER_CHUNK bits take
 * three passes, and 32 bits at once take four. */
#define ORDER_PASSES_MAX ((VX_KERNEL_OFFSETS_MAX / VX_ORDER_CHUNK + 1) * 3)

/* The launches of several sorts: one step for each pass, and a last one for the masks of
 * blocks.  digits: of the sorts that begin a key with the pass. */
struct order_step {
    struct vx_order_digits_many_args digits;
    struct vx_mask_order_many_args passes;
};
struct order_steps {
    struct order_step steps[ORDER_PASSES_MAX + 1];
    i32 count;
};

/* The arguments of all launches, on the host, and where they will lie on the device. */
struct order_upload {
    struct vx_mask_order_args *sorts;
    struct vx_order_digits_args *digits;
    const struct vx_mask_order_args *sorts_device;
    const struct vx_order_digits_args *digits_device;
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

static void digits_add(struct vx_order_digits_many_args *step,
                       struct vx_order_digits_args *digits,
                       const struct vx_order_digits_args *args)
{
    digits[step->count++] = *args;
    if (args->sort.tiles > step->tiles) step->tiles = args->sort.tiles;
    if (args->sort.groups > step->groups) step->groups = args->sort.groups;
}

/* Writes the arguments of all passes of all sorts, step by step. */
static void steps_write(struct vx_gpu_order_sort *all, i32 count, struct order_upload to,
                        struct order_steps *steps)
{
    bool more = true;
    for (steps->count = 0; more; steps->count++) {
        struct order_step *step = &steps->steps[steps->count];
        VX_ASSERT(steps->count <= ORDER_PASSES_MAX);
        *step = (struct order_step){.digits = {.sorts = to.digits_device},
                                    .passes = {.sorts = to.sorts_device}};
        for (i32 s = 0; s < count; s++)
            if (all[s].done < all[s].layout.passes && vx_gpu_order_sort_next(&all[s])) {
                step_add(&step->passes, to.sorts, &all[s].args);
                if (all[s].pass.makes_key)
                    digits_add(&step->digits, to.digits, &all[s].digits);
            }
        more = step->passes.count > 0;
        for (i32 s = 0; !more && s < count; s++) {
            VX_ASSERT(!vx_gpu_order_sort_next(&all[s]));
            step_add(&step->passes, to.sorts, &all[s].args);
        }
        to.sorts += step->passes.count;
        to.sorts_device += step->passes.count;
        to.digits += step->digits.count;
        to.digits_device += step->digits.count;
    }
}

static vx_status steps_launch(const struct vx_gpu_queue *queue,
                              const struct order_steps *steps, struct vx_why *why)
{
    const i32 last = steps->count - 1;
    for (i32 s = 0; s < last; s++) {
        const struct order_step *step = &steps->steps[s];
        if (step->digits.count) {
            VX_TRY(vx_gpu_map_launch(queue, "order_clear_many", &step->digits, why));
            VX_TRY(vx_gpu_map_launch(queue, "order_digits_many", &step->digits, why));
        }
        VX_TRY(vx_gpu_map_launch(queue, "order_sweep_many", &step->passes, why));
    }
    return vx_gpu_map_launch(queue, "order_blocks_many", &steps->steps[last].passes, why);
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
    return vx_gpu_map_launch(queue, "order_small_many", &all, why);
}

/* The lists of tiles of those that have them. */
static vx_status orders_tiles(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
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
    return vx_gpu_map_launch(queue, "order_tiles", &all, why);
}

/* How many passes all sorts have, a last step included, and how many keys. */
struct order_sizes {
    size_t passes, keys;
};

static struct order_sizes orders_sizes(const struct vx_gpu_order_job *jobs, i32 count)
{
    struct order_sizes sizes = {0};
    for (i32 i = 0; i < count; i++) {
        const struct vx_gpu_order_layout layout = vx_gpu_order_layout_make(&jobs[i].want);
        sizes.passes += (size_t)layout.passes + 1;
        sizes.keys += (size_t)layout.keys_made;
    }
    return sizes;
}

static vx_status orders_large(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    const struct order_sizes sizes = orders_sizes(jobs, count);
    struct vx_gpu_order_sort all[ORDERS_MAX];
    struct order_steps steps;
    struct order_upload writes;
    size_t at, digits_at;
    for (i32 i = 0; i < count; i++) {
        const struct vx_gpu_order_layout layout = vx_gpu_order_layout_make(&jobs[i].want);
        const struct vx_mask_order_args args = order_args(&jobs[i].want, jobs[i].map);
        vx_gpu_order_sort_begin(&all[i], &layout, jobs[i].scratch, &args);
    }
    writes.sorts = vx_gpu_upload_take(upload, sizes.passes * sizeof *writes.sorts, &at);
    writes.digits =
        vx_gpu_upload_take(upload, sizes.keys * sizeof *writes.digits, &digits_at);
    writes.sorts_device = (const void *)(upload->device + at);
    writes.digits_device = (const void *)(upload->device + digits_at);
    steps_write(all, count, writes, &steps);
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    VX_TRY(steps_launch(queue, &steps, why));
    return orders_tiles(queue, upload, jobs, count, why);
}

vx_status vx_gpu_orders_build(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_order_job *jobs, i32 count,
                              struct vx_why *why)
{
    for (i32 i = 0; i < count; i++) VX_ASSERT(jobs[i].want.sorted);
    const struct order_sizes sizes = orders_sizes(jobs, count);
    const size_t bytes = sizes.passes * sizeof(struct vx_mask_order_args) +
                         sizes.keys * sizeof(struct vx_order_digits_args) +
                         (size_t)count * sizeof(struct vx_order_tiles_sort);
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
        "order_small",      "order_clear",       "order_digits",     "order_sweep",
        "order_blocks",     "order_small_many",  "order_clear_many", "order_digits_many",
        "order_sweep_many", "order_blocks_many", "order_tiles"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
