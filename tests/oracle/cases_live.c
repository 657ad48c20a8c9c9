/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"
#include "kernels/34_live_order.h"
#include "tests/oracle/cases.h"

#include <math.h>
#include <string.h>

void vx_live_count_ref(const void *args, enum vx_number type);
void vx_live_write_ref(const void *args, enum vx_number type);
void vx_count_scan_ref(const void *args, enum vx_number type);

/* Which children are live: any half, none, all, all of child 0 alone. */
enum style { RANDOM, NONE, ALL, FIRST, STYLES };

/* Parts of a tile, whole ones, several; a list that ends at and beside the end of a tile. */
static const struct shape {
    i64 n;
    i32 panels, v, groups;
    bool order, masks;
} shapes[] = {
    {1, 8, 27, 1, true, true},      {31, 8, 27, 9, true, true},
    {33, 1, 1, 1, false, false},    {257, 8, 27, 3, true, true},
    {2048, 8, 1, 1, false, false},  {2049, 5, 27, 1, true, true},
    {3000, 8, 343, 49, true, true}, {6000, 4, 125, 5, false, true},
    {20011, 8, 27, 9, true, true},  {70003, 8, 27, 1, true, true},
};

static void *logits_make(struct vx_rig *rig, enum vx_number type,
                         const struct vx_live_order_args *args, enum style style)
{
    const size_t bytes = (size_t)(args->n * args->cp) * (size_t)vx_number_bytes(type);
    u8 *logits = vx_rig_take(rig, bytes);
    memcpy(logits, vx_rig_reals(rig, type, args->n * args->cp, 1), bytes);
    for (i64 row = 0; row < args->n; row++)
        for (i32 c = 0; c < args->cp; c++) {
            const i64 at = row * args->cp + c;
            const bool live = style == ALL || (style == FIRST && !c);
            if (style != RANDOM) vx_number_ref_write(logits, type, at, live ? 0.25 : -1);
            if (style == RANDOM && !vx_rig_below(rig, 30))
                vx_number_ref_write(
                    logits, type, at,
                    (const f64[]){NAN, INFINITY, -INFINITY, 0, -0.0}[at % 5]);
        }
    return logits;
}

/* Any permutation of every group's rows. */
static i32 *order_make(struct vx_rig *rig, const struct vx_live_order_args *args)
{
    i32 *rows = vx_rig_take(rig, (size_t)(args->groups * args->n) * 4);
    for (i32 group = 0; group < args->groups; group++)
        for (i64 i = 0; i < args->n; i++) {
            i64 other = vx_rig_below(rig, i + 1);
            rows[group * args->n + i] = rows[group * args->n + other];
            rows[group * args->n + other] = (i32)i;
        }
    return rows;
}

static u32 *masks_make(struct vx_rig *rig, const struct vx_live_order_args *args)
{
    u32 *masks = vx_rig_take(rig, (size_t)(args->n * args->words) * 4);
    for (i64 i = 0; i < args->n * args->words; i++) masks[i] = (u32)vx_rig_random(rig);
    return masks;
}

struct live_case {
    const struct shape *shape;
    enum style style;
};

/* What all three launches begin with. */
static void trial_begin(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct live_case *it, struct vx_live_order_args *args,
                        struct vx_trial *trial)
{
    static const char *const styles[STYLES] = {"half", "none", "all", "first"};
    const enum vx_number type = kernel->type;
    const struct shape *shape = it->shape;
    const enum style style = it->style;
    *args =
        (struct vx_live_order_args){.n = shape->n,
                                    .tiles = (shape->n + VX_LIVE_TILE - 1) / VX_LIVE_TILE,
                                    .panels = shape->panels,
                                    .v = shape->v,
                                    .groups = shape->groups,
                                    .words = vx_mask_words(shape->v),
                                    .cp = shape->n % 2 ? 16 : 32};
    vx_trial_init(trial, kernel, args);
    vx_trial_label(trial, "N=%lld C=%d V=%d groups %d, %s live", (long long)shape->n,
                   shape->panels, shape->v, shape->groups, styles[style]);
    vx_trial_in(trial, &args->logits, logits_make(rig, type, args, style),
                (size_t)(args->n * args->cp) * (size_t)vx_number_bytes(type));
    if (shape->order)
        vx_trial_in(trial, &args->order, order_make(rig, args),
                    (size_t)(args->groups * args->n) * 4);
    if (shape->masks)
        vx_trial_in(trial, &args->masks, masks_make(rig, args),
                    (size_t)(args->n * args->words) * 4);
}

static i64 lists_of(const struct vx_live_order_args *args)
{
    return (i64)args->panels * args->groups;
}

static void count_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct live_case *it)
{
    struct vx_live_order_args args;
    struct vx_trial trial;
    trial_begin(rig, kernel, it, &args, &trial);
    vx_trial_out(rig, &trial, &args.counts, (size_t)(lists_of(&args) * args.tiles) * 4);
    vx_trial_run(rig, &trial);
}

static void write_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct live_case *it)
{
    struct vx_live_order_args args;
    struct vx_trial trial;
    trial_begin(rig, kernel, it, &args, &trial);
    const size_t counts = (size_t)(lists_of(&args) * args.tiles) * 4;
    u32 *totals = vx_rig_take(rig, (size_t)lists_of(&args) * 4);
    args.counts = vx_rig_take(rig, counts);
    vx_live_count_ref(&args, kernel->type);
    const struct vx_count_scan_args scan = {lists_of(&args), args.tiles, args.counts,
                                            totals};
    vx_count_scan_ref(&scan, 0);
    vx_trial_in(&trial, &args.counts, args.counts, counts);
    vx_trial_in(&trial, &args.totals, totals, (size_t)lists_of(&args) * 4);
    vx_trial_out(rig, &trial, &args.lists, (size_t)(lists_of(&args) * args.n) * 4);
    if (args.masks)
        vx_trial_out(rig, &trial, &args.live_masks,
                     (size_t)(args.panels * args.n * args.words) * 4);
    vx_trial_run(rig, &trial);
}

static void blocks_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct live_case *it)
{
    struct vx_live_order_args args;
    struct vx_trial trial;
    trial_begin(rig, kernel, it, &args, &trial);
    const size_t lists = (size_t)(lists_of(&args) * args.n) * 4;
    args.lists = vx_rig_take(rig, lists);
    vx_live_write_ref(&args, kernel->type);
    vx_trial_in(&trial, &args.lists, args.lists, lists);
    vx_trial_out(rig, &trial, &args.block_masks,
                 (size_t)(lists_of(&args) * vx_mask_blocks(args.n) * args.words) * 4);
    vx_trial_run(rig, &trial);
}

void vx_cases_live(struct vx_rig *rig)
{
    const size_t count = rig->size == VX_RIG_SMALL  ? 4
                         : rig->size == VX_RIG_FAKE ? VX_COUNT(shapes) - 2
                                                    : VX_COUNT(shapes);
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t s = 0; s < count; s++)
        for (i32 style = 0; style < STYLES; style++) {
            const struct live_case it = {&shapes[s], (enum style)style};
            while ((kernel = vx_rig_next(rig, "live_count", kernel)))
                count_case(rig, kernel, &it);
            while ((kernel = vx_rig_next(rig, "live_write", kernel)))
                write_case(rig, kernel, &it);
            while ((kernel = vx_rig_next(rig, "live_blocks", kernel)))
                blocks_case(rig, kernel, &it);
            vx_rig_reset(rig);
        }
}
