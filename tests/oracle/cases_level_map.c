/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/22_level_map.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <string.h>

#define BLOCKS   3
#define MANY_MAX 9

/* A map between a cloud and the set that a rule makes of it; exact, as both sides get the
 * indices that the references built. */
struct shape {
    enum vx_level_kind kind;
    i32 kernel[3], dilation[3], stride[3], padding[3];
    bool far; /* only level_map_far can make it */
};
static const struct shape shapes[] = {
    {VX_LEVEL_DOWN, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, false},
    {VX_LEVEL_UP, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, false},
    {VX_LEVEL_PARENT, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, false},
    {VX_LEVEL_CHILD, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, false},
    {VX_LEVEL_DOWN, {3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, false},
    {VX_LEVEL_UP, {3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, false},
    {VX_LEVEL_DOWN, {5, 5, 5}, {1, 1, 1}, {2, 2, 2}, {2, 2, 2}, false},
    {VX_LEVEL_UP, {5, 3, 5}, {1, 2, 1}, {2, 3, 2}, {2, 2, 2}, false},
    {VX_LEVEL_DOWN, {3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {0, 0, 0}, false},
    {VX_LEVEL_UP, {1, 5, 1}, {1, 1, 1}, {1, 4, 3}, {0, 3, 0}, false},
    {VX_LEVEL_PARENT, {1, 1, 1}, {1, 1, 1}, {3, 1, 16}, {0, 0, 0}, false},
    {VX_LEVEL_CHILD, {1, 1, 1}, {1, 1, 1}, {5, 4, 7}, {0, 0, 0}, false},
    {VX_LEVEL_UP, {4, 4, 4}, {1, 1, 1}, {2, 2, 2}, {1, 0, 3}, false},
    {VX_LEVEL_DOWN, {7, 7, 7}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, false},
    {VX_LEVEL_DOWN, {3, 3, 3}, {9, 1, 40}, {2, 3, 1}, {9, 1, 40}, true},
    {VX_LEVEL_UP, {7, 7, 7}, {13, 1, 1}, {3, 2, 2}, {39, 3, 3}, true},
    {VX_LEVEL_UP, {343, 1, 1}, {1, 1, 1}, {2, 1, 1}, {171, 0, 0}, true},
    {VX_LEVEL_CHILD, {1, 1, 1}, {1, 1, 1}, {64, 64, 64}, {0, 0, 0}, false},
    {VX_LEVEL_DOWN, {1, 1, 3}, {1, 1, 1024}, {64, 1, 2}, {0, 0, 1024}, true},
    {VX_LEVEL_SAMPLE, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, false},
    {VX_LEVEL_CORNER, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, false},
    {VX_LEVEL_CORNER, {2, 2, 2}, {1, 1, 1}, {1, 16, 3}, {0, 0, 0}, false},
    {VX_LEVEL_CORNER, {2, 2, 2}, {1, 1, 1}, {64, 5, 4096}, {0, 0, 0}, true},
    {VX_LEVEL_PARENT, {1, 1, 1}, {1, 1, 1}, {1000, 2, 4096}, {0, 0, 0}, true},
};

/* A map of one entry: it has no masks, and no pairs are counted. */
static bool is_one(i32 kind)
{
    return kind == VX_LEVEL_PARENT || kind == VX_LEVEL_CHILD || kind == VX_LEVEL_SAMPLE;
}

static struct vx_brick_set set_make(struct vx_rig *rig, i64 rows_max)
{
    u64 slots = VX_BRICK_GROUP;
    while (slots < 2 * (u64)rows_max) slots *= 2;
    return (struct vx_brick_set){
        .rows_max = rows_max,
        .slots_count = slots,
        .slots = vx_rig_take(rig, slots * sizeof(struct vx_brick_slot)),
        .counts = vx_rig_take(rig, sizeof(struct vx_brick_counts)),
        .base = vx_rig_take(rig, slots * sizeof(i32)),
        .list = vx_rig_take(rig, (size_t)rows_max * sizeof(u32))};
}

/* The cloud, and what FLOOR of the shape's stride makes of it. */
static void sets_make(struct vx_rig *rig, const struct vx_cloud *cloud,
                      const struct shape *shape, u64 seed, struct vx_brick_set sets[2])
{
    const size_t n = (size_t)cloud->n;
    sets[0] = set_make(rig, cloud->n);
    vx_brick_small_ref(
        &(struct vx_brick_index_args){.n = cloud->n,
                                      .columns = cloud->columns,
                                      .blocks = BLOCKS,
                                      .slots_count = sets[0].slots_count,
                                      .seed = seed,
                                      .coords = cloud->coords,
                                      .slots = sets[0].slots,
                                      .counts = sets[0].counts,
                                      .base = sets[0].base,
                                      .list = sets[0].list,
                                      .places = vx_rig_take(rig, n * sizeof(u64)),
                                      .rows = vx_rig_take(rig, n * sizeof(i32))});
    struct vx_set_derive_args derive = {.rule = VX_DERIVE_FLOOR,
                                        .kernel = {1, 1, 1},
                                        .dilation = {1, 1, 1},
                                        .from = sets[0],
                                        .to = set_make(rig, cloud->n),
                                        .seed = seed};
    memcpy(derive.stride, shape->stride, sizeof derive.stride);
    if (shape->kind == VX_LEVEL_SAMPLE) derive.rule = VX_DERIVE_SAMPLES;
    vx_set_derive_plan(&derive);
    vx_set_derive_many_ref(&(struct vx_set_derive_many_args){1, 1, &derive});
    sets[1] = derive.to;
}

/* turn 1: rows behind those of the set; 2: fewer than it has; 3: bricks whose rows are
 * beyond those of `from`; 4: a fault in `from`. */
static struct vx_level_map_args map_make(struct vx_rig *rig, const struct vx_cloud *cloud,
                                         const struct shape *shape, i32 turn)
{
    const u64 seed = vx_rig_random(rig);
    struct vx_brick_set sets[2];
    sets_make(rig, cloud, shape, seed, sets);
    const bool down = shape->kind == VX_LEVEL_DOWN;
    const i32 v = shape->kernel[0] * shape->kernel[1] * shape->kernel[2];
    struct vx_level_map_args args = {.seed = seed,
                                     .from = sets[!down],
                                     .to = sets[down],
                                     .kind = shape->kind,
                                     .v = v,
                                     .words = (v + 31) / 32,
                                     .nbr_stride = (v + 3) / 4 * 4,
                                     .blocks = 1 + (u32)vx_rig_below(rig, 2 * BLOCKS)};
    args.n = args.to.counts->rows + (turn == 1 ? 500 : 0);
    if (turn == 2) args.n = (args.n + 1) / 2;
    args.from_n = args.from.counts->rows;
    if (turn == 3) args.from_n /= 2;
    if (turn == 4) args.from.counts->fault[0] = 1;
    if (is_one(shape->kind) && turn != 1) args.nbr_stride = 1;
    memcpy(args.kernel, shape->kernel, sizeof args.kernel);
    memcpy(args.dilation, shape->dilation, sizeof args.dilation);
    memcpy(args.stride, shape->stride, sizeof args.stride);
    memcpy(args.padding, shape->padding, sizeof args.padding);
    if (vx_level_map_plan(&args) == shape->far)
        vx_rig_fail(rig, "level_map takes a shape for the wrong kernel: V=%d kind %d", v,
                    (int)shape->kind);
    return args;
}

static void map_fields(struct vx_rig *rig, struct vx_trial *trial,
                       struct vx_level_map_args *args)
{
    const struct vx_brick_set from = args->from, to = args->to;
    const size_t n = (size_t)args->n, slots = to.slots_count;
    const size_t from_slots = from.slots_count;
    vx_trial_in(trial, &args->from.slots, from.slots, from_slots * sizeof *from.slots);
    vx_trial_in(trial, &args->from.base, from.base, from_slots * sizeof *from.base);
    vx_trial_in(trial, &args->from.counts, from.counts, sizeof *from.counts);
    vx_trial_in(trial, &args->to.slots, to.slots, slots * sizeof *to.slots);
    vx_trial_in(trial, &args->to.base, to.base, slots * sizeof *to.base);
    vx_trial_in(trial, &args->to.list, to.list, (size_t)to.rows_max * sizeof *to.list);
    vx_trial_both(trial, &args->to.counts, to.counts, sizeof *to.counts);
    vx_trial_out(rig, trial, &args->nbr, n * (size_t)args->nbr_stride * sizeof(i32));
    if (is_one(args->kind)) return;
    vx_trial_out(rig, trial, &args->masks, n * (size_t)args->words * sizeof(u32));
    vx_trial_out(rig, trial, &args->pairs, sizeof(u64));
    /* Without rows nothing is launched, and the number of pairs is not written. */
    if (!args->n) trial->fields[trial->count - 1].kind = VX_FIELD_MINE;
}

static void map_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                     const struct vx_cloud *cloud, const struct shape *shape, i32 turn)
{
    struct vx_level_map_args args = map_make(rig, cloud, shape, turn);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld kind %d kernel %dx%dx%d stride %d turn %d",
                   cloud->name, (long long)cloud->n, (int)shape->kind, shape->kernel[0],
                   shape->kernel[1], shape->kernel[2], shape->stride[0], turn);
    map_fields(rig, &trial, &args);
    vx_trial_run(rig, &trial);
}

/* Fewer blocks than the launch has for one set, more for another. */
static void map_many_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                          const struct shape *shape, i32 count, i32 turn)
{
    static const i64 sizes[] = {1, 848, 33, 150, 511, 7};
    struct vx_level_map_args sets[MANY_MAX];
    struct vx_level_map_many_args args = {.count = count, .blocks = 1};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d, kind %d", count, turn, (int)shape->kind);
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.sets, sets, (size_t)count * sizeof *sets));
    for (i32 s = 0; s < count; s++) {
        struct vx_cloud cloud;
        vx_cloud_make(rig, (enum vx_cloud_kind)((turn + s) % VX_CLOUD_KINDS),
                      sizes[(turn + s) % 6], &cloud);
        sets[s] = map_make(rig, &cloud, shape, (turn + s) % 7);
        if (sets[s].blocks > args.blocks) args.blocks = sets[s].blocks;
        map_fields(rig, &trial, &sets[s]);
    }
    vx_trial_run(rig, &trial);
}

static void map_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel, bool far)
{
    static const i64 sizes[] = {1, 33, 600, 2049, 10007};
    const size_t count = rig->size == VX_RIG_FULL ? 5 : rig->size == VX_RIG_FAKE ? 3 : 2;
    struct vx_cloud cloud;
    for (size_t e = 0; e < VX_COUNT(shapes); e++) {
        if (shapes[e].far && !far) continue;
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (size_t s = 0; s < count; s++) {
                if (s > 1 && e > 3 && (e + (size_t)kind) % 3) continue;
                vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[s], &cloud);
                map_case(rig, kernel, &cloud, &shapes[e],
                         (i32)((e + (size_t)kind + s) % 7));
                vx_rig_reset(rig);
            }
    }
}

static void map_many_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                           bool far)
{
    static const i32 counts[] = {5, 1, MANY_MAX, 0};
    const size_t sizes = rig->size == VX_RIG_SMALL ? 2 : 4;
    i32 turn = 0;
    for (size_t e = 0; e < VX_COUNT(shapes); e++)
        for (size_t c = 0; c < sizes && (far || !shapes[e].far); c++) {
            map_many_case(rig, kernel, &shapes[e], counts[c], turn++);
            vx_rig_reset(rig);
        }
}

void vx_cases_level_map(struct vx_rig *rig)
{
    const struct vx_jit_wanted *kernel = NULL;
    while ((kernel = vx_rig_next(rig, "level_map", kernel)))
        map_cases(rig, kernel, false);
    while ((kernel = vx_rig_next(rig, "level_map_far", kernel)))
        map_cases(rig, kernel, true);
    while ((kernel = vx_rig_next(rig, "level_map_many", kernel)))
        map_many_cases(rig, kernel, false);
    while ((kernel = vx_rig_next(rig, "level_map_far_many", kernel)))
        map_many_cases(rig, kernel, true);
}
