/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/oracle.h"
#include "kernels/34_live_order.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <math.h>
#include <string.h>

/* Convolutions in an order that leaves rows out: -1 stands where a row would.
 *
 * Only engine/gpu/model/model_live.c makes such orders, by kernel 34: for each child of
 * channel_to_space the rows that have it, in the order that was there, and -1 behind them up
 * to N; masks and block masks are those of the rows that are in.  It runs them as MASKED, also
 * what is IMPLICIT otherwise, with and without a map, and as MASKED_SPLIT; without residuals,
 * lists of tiles and neighbours.  The kernel looks at each place by itself, so that -1 may
 * stand anywhere: in HOLES it stands where the row was.
 *
 * A row that is in has the bits that it has when none is left out.  One that is left out is
 * not written; after a split neither are its partial sums, and conv_reduce, which knows no
 * order, writes what a row without neighbours has. */

void vx_live_write_ref(const void *args, enum vx_number type);
void vx_live_blocks_ref(const void *args, enum vx_number type);

#define POISON 0x7fff7fffu /* a NaN in every type */
#define LINE   256
/* The error of a curve (cases_pointwise.c). */
#define CURVE 0x1p-19

/* Which rows are in: about half, none, all, one, so many that they end where a tile does, and
 * half with -1 in the places of the others. */
enum list { HALF, NONE, ALL, ONE, TILES, HOLES, LISTS };
static const char *const list_names[LISTS] = {"half", "none",      "all",
                                              "one",  "of a tile", "half, holes"};

struct layer {
    enum vx_cloud_kind kind;
    i64 n;
    i32 kernel[3];
    i32 ci, co;
};

/* Offsets in the rig's memory on the device. */
struct layout {
    size_t out, workspace; /* with poison on both sides */
    size_t workspace_end;
    size_t lists, masks, block_masks, bytes;
};

struct trial {
    struct vx_rig *rig;
    struct vx_harness *stand;
    struct vx_conv_problem problem;   /* with the stride of out */
    enum vx_conv_algorithm algorithm; /* of the launches that leave rows out */
    i32 variant;                      /* which bias, activation, gap */
    struct vx_live_order_args live;   /* host */
    struct layout layout;
    u8 *device;
    u8 *whole, *back; /* what lies ahead of the lists, after a launch */
    f64 round;        /* of an element to the type */
    const char *list; /* of this launch */
};

static enum vx_activation activation_of(const struct trial *it)
{
    return (enum vx_activation)(it->variant % 5);
}

static size_t row_bytes(const struct trial *it)
{
    return (size_t)it->problem.strides.out * (size_t)vx_number_bytes(it->problem.type);
}

static i32 groups_of(const struct trial *it)
{
    return vx_conv_groups(&it->problem, it->algorithm);
}

static i64 masks_words(const struct trial *it)
{
    return it->problem.n * vx_mask_words(it->problem.v);
}

static i64 blocks_words(const struct trial *it)
{
    return groups_of(it) * vx_mask_blocks(it->problem.n) * vx_mask_words(it->problem.v);
}

static size_t take(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at += vx_round_up(bytes, LINE);
    return begin;
}

/* Before the rows of out, and before the partial sums, is room for a row -1. */
static void layout_make(struct trial *it)
{
    const i64 n = it->problem.n;
    const struct vx_conv_choice choice = {it->algorithm, it->stand->choice.tile};
    const size_t partial = (size_t)it->problem.co * sizeof(f32);
    struct layout *layout = &it->layout;
    size_t at = 0;
    (void)take(&at, row_bytes(it));
    layout->out = take(&at, row_bytes(it) * (size_t)n);
    (void)take(&at, row_bytes(it) + partial);
    layout->workspace = take(&at, vx_conv_workspace(&it->problem, &choice));
    layout->workspace_end = at;
    (void)take(&at, partial);
    layout->lists = take(&at, (size_t)(LISTS * groups_of(it) * n) * sizeof(i32));
    layout->masks = take(&at, (size_t)(LISTS * masks_words(it)) * sizeof(u32));
    layout->block_masks = take(&at, (size_t)(LISTS * blocks_words(it)) * sizeof(u32));
    layout->bytes = at;
}

/* --- the lists --- */

static void *copied(const struct trial *it, const void *device, size_t bytes)
{
    struct vx_why why = {""};
    void *host = vx_rig_take(it->rig, bytes);
    vx_rig_need(it->rig,
                vx_gpu_copy_out(it->stand->gpu, it->stand->queue.stream,
                                &(struct vx_gpu_copy){host, device, bytes}, &why),
                &why);
    vx_rig_need(it->rig,
                vx_gpu_stream_wait(it->stand->gpu, it->stand->queue.stream, &why), &why);
    return host;
}

static void sent(const struct trial *it, size_t to, const void *host, size_t bytes)
{
    struct vx_why why = {""};
    vx_rig_need(it->rig,
                vx_gpu_copy_in(it->stand->gpu, it->stand->queue.stream,
                               &(struct vx_gpu_copy){it->device + to, host, bytes}, &why),
                &why);
}

/* Rows that end where a tile of the device does. */
static i64 tiles_rows(i64 n)
{
    const i64 tile = n >= 1024 ? 256 : VX_MASK_BLOCK, rows = (n / 2 / tile + 1) * tile;
    return rows < n ? rows : n;
}

/* Whether the row at a place of the first group's order is in. */
static bool is_in(const struct trial *it, enum list list, i64 place, bool chance)
{
    switch (list) {
    case NONE: return false;
    case ALL: return true;
    case ONE: return place == it->problem.n / 3;
    case TILES: return place < tiles_rows(it->problem.n);
    default: return chance;
    }
}

static f32 *logits_make(const struct trial *it)
{
    const i64 n = it->problem.n;
    f32 *logits = vx_rig_take(it->rig, (size_t)(n * LISTS) * sizeof *logits);
    for (i64 place = 0; place < n; place++) {
        const i64 row = it->live.order ? it->live.order[place] : place;
        const bool chance = vx_rig_random(it->rig) & 1;
        for (i32 list = 0; list < LISTS; list++)
            logits[row * LISTS + list] =
                is_in(it, (enum list)list, place, chance) ? 1 : -1;
    }
    return logits;
}

static bool row_is_in(const struct trial *it, i32 list, i64 row)
{
    return ((const f32 *)it->live.logits)[row * LISTS + list] > 0;
}

/* HOLES: every row in its place. */
static void holes_make(const struct trial *it)
{
    const i64 places = groups_of(it) * it->problem.n;
    i32 *list = it->live.lists + HOLES * places;
    for (i64 at = 0; at < places; at++) {
        const i32 row = it->live.order ? it->live.order[at] : (i32)(at % it->problem.n);
        list[at] = row_is_in(it, HOLES, row) ? row : -1;
    }
}

/* From the order and the masks that the device built, as kernel 34 would (cases_live.c). */
static void lists_make(struct trial *it)
{
    const struct vx_gpu_map *map = it->problem.v > 1 ? &it->stand->map : NULL;
    const i64 places = groups_of(it) * it->problem.n;
    const size_t masks = (size_t)(LISTS * masks_words(it)) * sizeof(u32);
    it->live = (struct vx_live_order_args){.n = it->problem.n,
                                           .panels = LISTS,
                                           .v = it->problem.v,
                                           .groups = groups_of(it),
                                           .words = vx_mask_words(it->problem.v),
                                           .cp = LISTS};
    if (map)
        it->live.masks = copied(it, map->masks, (size_t)masks_words(it) * sizeof(u32));
    if (map) it->live.live_masks = vx_rig_take(it->rig, masks);
    if (map && map->order)
        it->live.order = copied(it, map->order, (size_t)places * sizeof(i32));
    it->live.lists = vx_rig_take(it->rig, (size_t)(LISTS * places) * sizeof(i32));
    it->live.block_masks =
        vx_rig_take(it->rig, (size_t)(LISTS * blocks_words(it)) * sizeof(u32));
    it->live.logits = logits_make(it);
    vx_live_write_ref(&it->live, VX_NUMBER_F32);
    holes_make(it);
    vx_live_blocks_ref(&it->live, VX_NUMBER_F32);
}

/* The map of a list, as model_live.c makes it. */
static struct vx_gpu_map list_map(const struct trial *it, i32 list)
{
    const struct layout *layout = &it->layout;
    struct vx_gpu_map map = {.v = it->problem.v,
                             .words = it->live.words,
                             .nbr_stride = vx_nbr_stride(it->problem.v),
                             .groups = it->live.groups};
    map.order = (i32 *)(void *)(it->device + layout->lists) +
                list * groups_of(it) * it->problem.n;
    map.block_masks =
        (u32 *)(void *)(it->device + layout->block_masks) + list * blocks_words(it);
    if (it->problem.v == 1) return map;
    map.nbr = it->stand->map.nbr;
    map.masks = (u32 *)(void *)(it->device + layout->masks) + list * masks_words(it);
    return map;
}

/* --- launches --- */

/* map NULL: V is 1, and no row is left out. */
static void launch(const struct trial *it, enum vx_conv_algorithm algorithm,
                   const struct vx_gpu_map *map, u8 *back)
{
    struct vx_harness *stand = it->stand;
    const struct layout *layout = &it->layout;
    const struct vx_conv_choice choice = {algorithm, stand->choice.tile};
    const struct vx_conv_operands operands = {
        .map = map,
        .in = stand->in,
        .weight = stand->weight,
        .tiled = stand->tiled,
        .scale = stand->column_scale,
        .bias = it->variant & 1 ? stand->bias : NULL,
        .out = it->device + layout->out,
        .activation = activation_of(it),
        .workspace = it->device + layout->workspace};
    struct vx_why why = {""};
    it->rig->trials++;
    vx_rig_need(it->rig,
                vx_gpu_fill(stand->gpu, stand->queue.stream,
                            &(struct vx_gpu_words){it->device, POISON, layout->lists},
                            &why),
                &why);
    vx_rig_need(it->rig,
                vx_conv_launch(&stand->queue, &it->problem, &choice, &operands, &why),
                &why);
    vx_rig_need(it->rig,
                vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                                &(struct vx_gpu_copy){back, it->device, layout->lists},
                                &why),
                &why);
    vx_rig_need(it->rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
}

/* --- comparison --- */

static void fail(const struct trial *it, const char *what, i64 row)
{
    const struct vx_conv_problem *problem = &it->problem;
    const struct vx_tile *tile =
        &vx_conv_spec(it->algorithm)->tiles[it->stand->choice.tile];
    vx_rig_fail(it->rig,
                "left out, %s as %s [%d,%d,%d,%d] type %d, N=%lld V=%d %dx%d variant %d, "
                "rows that are in: %s: %s at row %lld",
                vx_conv_name(it->stand->choice.algorithm), vx_conv_name(it->algorithm),
                tile->values[0], tile->values[1], tile->values[2], tile->values[3],
                (int)problem->type, (long long)problem->n, problem->v, problem->ci,
                problem->co, it->variant, it->list, what, (long long)row);
}

static bool is_poison(const u8 *memory, size_t bytes)
{
    const u32 poison = POISON;
    for (size_t at = 0; at < bytes; at += sizeof poison)
        if (memcmp(memory + at, &poison, sizeof poison) != 0) return false;
    return true;
}

/* What conv_reduce makes of no partial sum. */
static bool is_empty(const struct trial *it, const u8 *row)
{
    const bool biased = it->variant & 1;
    for (i32 o = 0; o < it->problem.co; o++) {
        const f64 sum = biased ? (f64)it->stand->in_data->values[o] : 0;
        const f64 truth = vx_activation_ref_one(activation_of(it), sum);
        const f64 got = vx_number_ref_read(row, it->problem.type, o);
        if (!(fabs(got - truth) <= it->round * fabs(truth) + CURVE)) return false;
    }
    return true;
}

static bool partial_is_poison(const struct trial *it, i64 row)
{
    const size_t bytes = (size_t)it->problem.co * sizeof(f32);
    for (i32 group = 0; group < groups_of(it); group++)
        if (!is_poison(it->back + it->layout.workspace +
                           (size_t)(group * it->problem.n + row) * bytes,
                       bytes))
            return false;
    return true;
}

static const char *row_fault(const struct trial *it, i32 list, i64 row)
{
    const size_t step = row_bytes(it), at = it->layout.out + (size_t)row * step;
    const size_t bytes =
        (size_t)it->problem.co * (size_t)vx_number_bytes(it->problem.type);
    const bool split = it->algorithm == VX_CONV_MASKED_SPLIT;
    const u8 *got = it->back + at;
    if (!is_poison(got + bytes, step - bytes)) return "wrote behind its columns";
    if (row_is_in(it, list, row))
        return memcmp(got, it->whole + at, bytes) ? "other bits than without holes"
                                                  : NULL;
    if (!split) return is_poison(got, bytes) ? NULL : "wrote a row that is left out";
    if (!partial_is_poison(it, row)) return "summed a row that is left out";
    return is_empty(it, got) ? NULL : "a row that is left out has more than its bias";
}

/* Before the output, between it and the partial sums, and behind these. */
static bool edges_are_poison(const struct trial *it)
{
    const struct layout *layout = &it->layout;
    const bool split = it->algorithm == VX_CONV_MASKED_SPLIT;
    const size_t n = (size_t)it->problem.n;
    const size_t out_end = layout->out + row_bytes(it) * n;
    const size_t sums = (size_t)groups_of(it) * n * (size_t)it->problem.co * sizeof(f32);
    size_t sums_end = layout->workspace + (split ? sums : 0);
    /* Behind the sums lie the rows that were rounded. */
    if (it->problem.in_scale > 0) sums_end = layout->workspace_end;
    return is_poison(it->back, layout->out) &&
           is_poison(it->back + out_end, layout->workspace - out_end) &&
           is_poison(it->back + sums_end, layout->lists - sums_end);
}

static void compare(const struct trial *it, i32 list)
{
    if (!edges_are_poison(it)) {
        fail(it, "wrote outside its output", -1);
        return;
    }
    for (i64 row = 0; row < it->problem.n; row++) {
        const char *fault = row_fault(it, list, row);
        if (!fault) continue;
        fail(it, fault, row);
        return;
    }
}

/* Whether every row was written: else equal bits would mean nothing. */
static bool whole_is_there(const struct trial *it)
{
    const u8 *rows = it->whole + it->layout.out;
    const size_t bytes =
        (size_t)it->problem.co * (size_t)vx_number_bytes(it->problem.type);
    for (i64 row = 0; row < it->problem.n; row++)
        if (is_poison(rows + (size_t)row * row_bytes(it), bytes)) return false;
    return true;
}

/* --- cases --- */

static void lists_run(struct trial *it)
{
    struct vx_harness *stand = it->stand;
    const i64 places = groups_of(it) * it->problem.n;
    it->list = "all, no list";
    layout_make(it);
    it->device = vx_rig_device(it->rig, it->layout.bytes);
    it->whole = vx_rig_take(it->rig, it->layout.lists);
    it->back = vx_rig_take(it->rig, it->layout.lists);
    lists_make(it);
    sent(it, it->layout.lists, it->live.lists, (size_t)(LISTS * places) * sizeof(i32));
    sent(it, it->layout.block_masks, it->live.block_masks,
         (size_t)(LISTS * blocks_words(it)) * sizeof(u32));
    if (it->live.live_masks)
        sent(it, it->layout.masks, it->live.live_masks,
             (size_t)(LISTS * masks_words(it)) * sizeof(u32));
    launch(it, stand->choice.algorithm, it->problem.v > 1 ? &stand->map : NULL,
           it->whole);
    if (!whole_is_there(it)) {
        fail(it, "left rows out by itself", -1);
        return;
    }
    for (i32 list = 0; list < LISTS; list++) {
        const struct vx_gpu_map map = list_map(it, list);
        it->list = list_names[list];
        launch(it, it->algorithm, &map, it->back);
        compare(it, list);
    }
}

/* What an algorithm is when rows are left out; AUTO: it is not used. */
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

/* On the fake all tiles are one reference: two of them, and one that streams. */
static bool tile_wanted(const struct trial *it, const struct vx_conv_choice *choice,
                        i32 *ran, bool *streamed)
{
    if (!vx_conv_fits(&it->problem, choice, it->rig->caps)) return false;
    if (it->rig->size == VX_RIG_FULL) return true;
    if (vx_conv_tiled(choice)) {
        const bool first = !*streamed;
        *streamed = true;
        return first;
    }
    return (*ran)++ < 2;
}

static void layer_run(struct trial *it, const struct layer *layer, enum vx_number type)
{
    const i32 *size = layer->kernel;
    const i32 gap = it->variant % 3 == 1 ? 32 : 0;
    const struct vx_conv_problem plain = {.n = layer->n,
                                          .kernel = {size[0], size[1], size[2]},
                                          .v = size[0] * size[1] * size[2],
                                          .ci = layer->ci,
                                          .co = layer->co,
                                          .type = type};
    struct vx_cloud cloud;
    struct vx_why why = {""};
    vx_cloud_make(it->rig, layer->kind, layer->n, &cloud);
    const struct vx_harness_geometry geometry = {cloud.coords, {1, 1, 1}};
    vx_rig_need(it->rig, vx_harness_load(it->stand, &plain, &geometry, &why), &why);
    it->problem = plain;
    it->problem.in_scale = it->stand->problem.in_scale;
    it->problem.strides.out = plain.co + gap;
    it->round = vx_oracle_bounds(type, plain.v, plain.ci).round;
    for (i32 a = VX_CONV_AUTO + 1; a < VX_CONV_ALGORITHMS_COUNT; a++) {
        struct vx_conv_choice choice = {.algorithm = (enum vx_conv_algorithm)a};
        i32 ran = 0;
        bool streamed = false;
        it->algorithm = listed(choice.algorithm);
        if (it->algorithm == VX_CONV_AUTO) continue;
        for (; choice.tile < vx_conv_spec(choice.algorithm)->tiles_count; choice.tile++) {
            if (!tile_wanted(it, &choice, &ran, &streamed)) continue;
            vx_rig_need(it->rig, vx_harness_use(it->stand, &choice, &why), &why);
            lists_run(it);
            vx_rig_reset(it->rig);
        }
    }
}

void vx_cases_left_out(struct vx_rig *rig)
{
    static const struct layer layers[] = {
        {VX_CLOUD_BLOCK, 33, {3, 1, 1}, 64, 144}, /* suits every tile */
        {VX_CLOUD_RANDOM, 33, {1, 1, 1}, 64, 32},
        {VX_CLOUD_SURFACE, 300, {3, 3, 3}, 16, 32},
        /* On a device: whole tiles of rows that are left out. */
        {VX_CLOUD_SURFACE, 4099, {3, 3, 3}, 64, 128},
        {VX_CLOUD_RANDOM, 3000, {1, 1, 1}, 64, 144},
        {VX_CLOUD_NEGATIVE, 1500, {5, 5, 5}, 32, 48},
        {VX_CLOUD_BLOCK, 1100, {3, 3, 3}, 256, 256},
        {VX_CLOUD_SAMPLES, 1025, {7, 7, 7}, 16, 64},
    };
    static const enum vx_number types[] = {VX_NUMBER_F16, VX_NUMBER_BF16, VX_NUMBER_TF32,
                                           VX_NUMBER_F32, VX_NUMBER_E4M3};
    const size_t count = rig->size == VX_RIG_FULL ? VX_COUNT(layers) : 3;
    struct trial it = {.rig = rig};
    struct vx_why why = {""};
    if (!vx_rig_wants(rig, "conv_masked")) return;
    vx_rig_need(rig, vx_harness_open(rig->bench.set, rig->bench.stream, &why, &it.stand),
                &why);
    for (size_t at = 0; at < count; at++)
        for (size_t type = 0; type < VX_COUNT(types); type++) {
            it.variant =
                (i32)(7 * at + type) + 1; /* other ones for a type in each layer */
            layer_run(&it, &layers[at], types[type]);
        }
    vx_harness_close(&it.stand);
}
