/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_live.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/occupancy.h"
#include "engine/gpu/model/model_parts.h"
#include "engine/gpu/model/sizes.h"
#include "kernels/05_mask_order.h"
#include "kernels/34_live_order.h"

_Static_assert(VX_FUSE_LIVE_MAX <= VX_LIVE_PANELS, "a list for each child");

/* Rows and columns of a tile of usual size. */
#define TILE 128

/* The algorithm that computes the same sums of rows in an order with block masks;
 * VX_CONV_AUTO: there is none. */
static enum vx_conv_algorithm listed(enum vx_conv_algorithm algorithm)
{
    switch (algorithm) {
    case VX_CONV_IMPLICIT:
    case VX_CONV_MASKED: return VX_CONV_MASKED;
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT: return VX_CONV_MASKED_SPLIT;
    default: return VX_CONV_AUTO;
    }
}

/* Offsets in the workspace. */
struct layout {
    size_t lists, masks, block_masks, counts, totals, bytes;
};

static size_t take(struct layout *layout, size_t words)
{
    size_t at = layout->bytes;
    layout->bytes = vx_add_line(at, words * sizeof(u32));
    return at;
}

static struct layout layout_of(const struct vx_conv_problem *problem,
                               const struct vx_conv_choice *choice, i32 panels)
{
    struct layout layout = {.bytes = vx_add_line(vx_conv_workspace(problem, choice), 0)};
    const size_t n = (size_t)problem->n, words = (size_t)vx_mask_words(problem->v);
    const size_t lists =
        (size_t)panels * (size_t)vx_conv_groups(problem, choice->algorithm);
    if (panels == 1 || listed(choice->algorithm) == VX_CONV_AUTO) return layout;
    layout.lists = take(&layout, lists * n);
    layout.masks = take(&layout, (size_t)panels * n * words);
    layout.block_masks =
        take(&layout, lists * (size_t)vx_mask_blocks(problem->n) * words);
    layout.counts = take(&layout, lists * ((n + VX_LIVE_TILE - 1) / VX_LIVE_TILE));
    layout.totals = take(&layout, lists);
    return layout;
}

size_t vx_gpu_conv_bytes(const struct vx_gpu_choices *choices, i32 launch,
                         const struct vx_conv_problem *problem,
                         const struct vx_conv_choice *choice)
{
    return layout_of(problem, choice,
                     vx_node_panels(choices->plan->launches[launch].node))
        .bytes;
}

i32 vx_gpu_live_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const typed[] = {"live_count", "live_write", "live_blocks"};
    i32 count = 0;
    VX_ASSERT(room > (i32)VX_COUNT(typed));
    for (size_t i = 0; i < VX_COUNT(typed); i++)
        wanted[count++] = vx_gpu_typed_wanted(typed[i], type);
    wanted[count++] = vx_gpu_map_wanted("count_scan", 0);
    return count;
}

/* A child whose tiles the device computes all at once takes as long with half of them. */
static bool lists_pay(const struct vx_conv_problem *problem, i32 groups, i32 processors)
{
    const i64 rows = (problem->n + TILE - 1) / TILE;
    const i64 columns = (problem->co + TILE - 1) / TILE;
    return rows * columns * groups > processors;
}

/* A launch of all children. */
struct live {
    const struct vx_gpu_forward *forward;
    const struct vx_conv_problem *problem;
    const struct vx_conv_operands *whole;
    struct vx_conv_choice choice;
    i32 index, panels;
    struct vx_live_order_args args;
    struct vx_why *why;
};

static vx_status launch(const struct live *live, const char *name)
{
    const struct vx_gpu_queue *queue = &live->forward->queue;
    const struct vx_jit_wanted kernel =
        vx_gpu_typed_wanted(name, live->forward->choices->type);
    return vx_kernel_launch(queue->set, queue->stream, &kernel, &live->args, live->why);
}

static void lists_args(struct live *live)
{
    const struct vx_conv_problem *problem = live->problem;
    const struct vx_gpu_map *map = live->whole->map;
    const struct vx_launch *at = &live->forward->choices->plan->launches[live->index];
    const i32 logits = at->inputs[at->node->inputs_count - 1];
    const struct layout layout = layout_of(problem, &live->choice, live->panels);
    u8 *work = live->whole->workspace;
    live->args = (struct vx_live_order_args){
        .n = problem->n,
        .tiles = (problem->n + VX_LIVE_TILE - 1) / VX_LIVE_TILE,
        .panels = live->panels,
        .v = problem->v,
        .groups = vx_conv_groups(problem, live->choice.algorithm),
        .words = vx_mask_words(problem->v),
        .cp = vx_gpu_stride(live->forward, logits),
        .logits = vx_gpu_tensor(live->forward, logits),
        .order = map && vx_conv_sorted(live->choice.algorithm) ? map->order : NULL,
        .masks = map ? map->masks : NULL,
        .counts = (void *)(work + layout.counts),
        .totals = (void *)(work + layout.totals),
        .lists = (void *)(work + layout.lists),
        .live_masks = map ? (void *)(work + layout.masks) : NULL,
        .block_masks = (void *)(work + layout.block_masks)};
}

static vx_status lists_build(struct live *live)
{
    const struct vx_count_scan_args scan = {.rows = (i64)live->panels * live->args.groups,
                                            .tiles = live->args.tiles,
                                            .counts = live->args.counts,
                                            .totals =
                                                (u32 *)(uintptr_t)live->args.totals};
    VX_TRY(launch(live, "live_count"));
    VX_TRY(vx_gpu_map_launch(&live->forward->queue, "count_scan", &scan, live->why));
    VX_TRY(launch(live, "live_write"));
    return launch(live, "live_blocks");
}

/* The map of a child's rows. */
static struct vx_gpu_map panel_map(const struct live *live, i32 panel)
{
    const struct vx_live_order_args *args = &live->args;
    const struct vx_gpu_map *map = live->whole->map;
    const i64 masks = vx_mask_blocks(args->n) * args->words;
    struct vx_gpu_map mine = {.v = args->v,
                              .words = args->words,
                              .nbr_stride = vx_nbr_stride(args->v),
                              .groups = args->groups};
    if (map) mine.nbr = map->nbr;
    if (map) mine.masks = args->live_masks + panel * args->n * args->words;
    mine.order = args->lists + panel * args->groups * args->n;
    mine.block_masks = args->block_masks + panel * args->groups * masks;
    return mine;
}

static vx_status panel_launch(const struct live *live, i32 panel,
                              const struct vx_gpu_map *map)
{
    const struct vx_conv_problem *problem = live->problem;
    const size_t element = (size_t)vx_number_bytes(problem->type);
    const size_t weight =
        (size_t)problem->v * (size_t)problem->ci * (size_t)problem->co * element;
    const size_t tiled = vx_conv_tiled_bytes(
        &(struct vx_conv_tiling){.v = problem->v,
                                 .ci = problem->ci,
                                 .co = problem->co,
                                 .number_bytes = vx_number_factor_bytes(problem->type)});
    struct vx_conv_operands mine = *live->whole;
    const size_t at = (size_t)panel, column = at * (size_t)problem->co;
    mine.map = map;
    mine.weight = (const u8 *)mine.weight + at * weight;
    if (mine.tiled) mine.tiled = (const u8 *)mine.tiled + at * tiled;
    if (mine.bias) mine.bias += column;
    mine.out = (u8 *)mine.out + column * element;
    mine.channels = 0; /* a child's channels are not padded */
    return vx_conv_launch(&live->forward->queue, problem, &live->choice, &mine,
                          live->why);
}

vx_status vx_gpu_live_launch(const struct vx_gpu_forward *forward, i32 index,
                             const struct vx_conv_problem *problem,
                             const struct vx_conv_operands *operands, struct vx_why *why)
{
    struct live live = {.forward = forward,
                        .problem = problem,
                        .whole = operands,
                        .choice =
                            *vx_gpu_choice_of(forward->choices, forward->places, index),
                        .index = index,
                        .why = why};
    const i32 processors = vx_gpu_caps(vx_kernel_set_gpu(forward->queue.set))->processors;
    const i32 groups = vx_conv_groups(problem, live.choice.algorithm);
    const enum vx_conv_algorithm algorithm = listed(live.choice.algorithm);
    const bool lists =
        algorithm != VX_CONV_AUTO && lists_pay(problem, groups, processors);
    live.panels = vx_node_panels(forward->choices->plan->launches[index].node);
    VX_ASSERT(live.panels <= VX_LIVE_PANELS);
    VX_ASSERT(!operands->residual);
    VX_ASSERT(problem->co % VX_CHANNELS_UNIT == 0);
    if (lists) lists_args(&live);
    if (lists) VX_TRY(lists_build(&live));
    if (lists) live.choice.algorithm = algorithm;
    for (i32 panel = 0; panel < live.panels; panel++) {
        struct vx_gpu_map map;
        if (lists) map = panel_map(&live, panel);
        VX_TRY(panel_launch(&live, panel, lists ? &map : operands->map));
    }
    return VX_OK;
}
