/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/08_pair_list.h"
#include "kernels/37_order_sweep.h"
#include "tests/oracle/cases.h"

#include <string.h>

void vx_count_scan_ref(const void *args, enum vx_number type);
void vx_order_digits_ref(const void *args, enum vx_number type);
void vx_pairs_count_ref(const void *args, enum vx_number type);

/* Kinds of masks: all different, a few kinds, all full, the centre alone. */
enum style { RANDOM, FEW, FULL, CENTRE, STYLES };

struct shape {
    i64 n;
    i32 v, groups;
    bool gray;
    enum style style;
};

static u32 *masks_make(struct vx_rig *rig, const struct shape *shape)
{
    const i32 words = vx_mask_words(shape->v);
    u32 *masks = vx_rig_take(rig, (size_t)shape->n * (size_t)words * 4);
    u64 kinds[5];
    for (size_t k = 0; k < VX_COUNT(kinds); k++) kinds[k] = vx_rig_random(rig);
    for (i64 i = 0; i < shape->n; i++) {
        u64 kind = kinds[vx_rig_below(rig, VX_COUNT(kinds))];
        for (i32 v = 0; v < shape->v; v++) {
            bool there = vx_rig_random(rig) & 1;
            if (shape->style == FEW) there = kind >> v % 61 & 1;
            if (shape->style == FULL) there = true;
            if (shape->style == CENTRE) there = v == shape->v / 2;
            if (there) masks[i * words + v / 32] |= 1u << v % 32;
        }
    }
    return masks;
}

static struct vx_mask_order_args args_make(const struct shape *shape)
{
    struct vx_mask_order_args args = {.n = shape->n,
                                      .words = vx_mask_words(shape->v),
                                      .bits = shape->v / shape->groups,
                                      .groups = shape->groups,
                                      .gray = shape->gray};
    args.tiles = (args.n + VX_ORDER_TILE - 1) / VX_ORDER_TILE;
    return args;
}

static void trial_begin(struct vx_rig *rig, struct vx_trial *trial,
                        const struct vx_jit_wanted *kernel, const struct shape *shape,
                        struct vx_mask_order_args *args)
{
    static const char *const styles[STYLES] = {"random", "few", "full", "centre"};
    vx_trial_init(trial, kernel, args);
    vx_trial_label(trial, "N=%lld V=%d groups %d%s %s", (long long)shape->n, shape->v,
                   shape->groups, shape->gray ? " gray" : "", styles[shape->style]);
    vx_trial_in(trial, &args->masks, masks_make(rig, shape),
                (size_t)(args->n * args->words) * 4);
}

static size_t blocks_bytes(const struct vx_mask_order_args *args)
{
    return (size_t)(args->groups * vx_mask_blocks(args->n) * args->words) * 4;
}

/* Any permutation of every group's rows. */
static i32 *rows_make(struct vx_rig *rig, const struct vx_mask_order_args *args)
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

static void small_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape)
{
    struct vx_mask_order_args args = args_make(shape);
    struct vx_trial trial;
    trial_begin(rig, &trial, kernel, shape, &args);
    vx_trial_out(rig, &trial, &args.rows_out, (size_t)(args.groups * args.n) * 4);
    vx_trial_out(rig, &trial, &args.block_masks, blocks_bytes(&args));
    vx_trial_run(rig, &trial);
}

static void blocks_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape)
{
    /* Rows as they are, through an order, and from the keys of a last pass. */
    for (i32 from = 0; from < 3; from++) {
        struct vx_mask_order_args args = args_make(shape);
        const size_t bytes = (size_t)(args.groups * args.n) * 4;
        struct vx_trial trial;
        if (from == 2 && args.bits > 32) continue;
        trial_begin(rig, &trial, kernel, shape, &args);
        if (from) vx_trial_in(&trial, &args.rows_in, rows_make(rig, &args), bytes);
        if (from == 2) {
            u32 *keys = vx_rig_take(rig, bytes);
            for (i64 i = 0; i < args.groups * args.n; i++)
                keys[i] = (u32)(vx_rig_random(rig) >> (64 - args.bits));
            vx_trial_in(&trial, &args.keys_in, keys, bytes);
        }
        vx_trial_out(rig, &trial, &args.block_masks, blocks_bytes(&args));
        vx_trial_run(rig, &trial);
    }
}

/* Where the keys of a pass come from: masks, masks of rows in some order, a pass before. */
enum from { MASKS, ROWS, KEYS, FROMS };

/* The digits of a key, the last of which may be short. */
static struct vx_order_digits_args digits_make(const struct shape *shape)
{
    struct vx_order_digits_args args = {.sort = args_make(shape)};
    struct vx_mask_order_args *sort = &args.sort;
    sort->key_low = sort->bits > 40 ? VX_ORDER_CHUNK : 0;
    sort->key_bits = sort->bits - sort->key_low < 32 ? sort->bits - sort->key_low : 32;
    for (i32 shift = 0; shift < sort->key_bits; shift += VX_ORDER_DIGIT) {
        const i32 left = sort->key_bits - shift, d = args.digits++;
        args.shifts[d] = shift;
        args.bits[d] = left < VX_ORDER_DIGIT ? left : VX_ORDER_DIGIT;
    }
    return args;
}

/* Any keys, or such as all are alike. */
static u32 *keys_make(struct vx_rig *rig, const struct shape *shape,
                      const struct vx_mask_order_args *args)
{
    const i64 count = args->groups * args->n;
    u32 *keys = vx_rig_take(rig, (size_t)count * 4);
    for (i64 i = 0; i < count; i++)
        if (i == 0 || shape->style != FULL)
            keys[i] = (u32)(vx_rig_random(rig) >> (64 - args->key_bits));
        else
            keys[i] = keys[0];
    return keys;
}

static void digits_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape, enum from from)
{
    struct vx_order_digits_args args = digits_make(shape);
    struct vx_mask_order_args *sort = &args.sort;
    const bool clear = !strcmp(kernel->spec->name, "order_clear");
    const size_t bytes = (size_t)(sort->groups * sort->n) * 4;
    const i64 each = (i64)args.digits * sort->groups;
    const size_t totals = (size_t)(each * VX_ORDER_BINS) * 4;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d groups %d style %d from %d", (long long)shape->n,
                   shape->v, shape->groups, (int)shape->style, (int)from);
    struct vx_field *found =
        clear ? vx_trial_out(rig, &trial, &sort->totals, totals)
              : vx_trial_both(&trial, &sort->totals, vx_rig_take(rig, totals), totals);
    /* Without rows nothing is launched. */
    if (!sort->n) found->kind = VX_FIELD_MINE;
    if (!clear) {
        if (from == KEYS)
            vx_trial_in(&trial, &sort->keys_in, keys_make(rig, shape, sort), bytes);
        else
            vx_trial_out(rig, &trial, &sort->keys_out, bytes);
        if (from == ROWS)
            vx_trial_in(&trial, &sort->rows_in, rows_make(rig, sort), bytes);
        vx_trial_in(&trial, &sort->masks, masks_make(rig, shape),
                    (size_t)(sort->n * sort->words) * 4);
        vx_trial_out(rig, &trial, &sort->counts,
                     (size_t)(each * vx_sweep_layout_of(sort->tiles).words) * 4);
    }
    vx_trial_run(rig, &trial);
}

/* A pass by the key's lowest digit, of rows as they are, or by its highest one. */
static void sweep_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, bool first)
{
    struct vx_order_digits_args digits = digits_make(shape);
    struct vx_mask_order_args args = digits.sort;
    const size_t bytes = (size_t)(args.groups * args.n) * 4;
    const i32 digit = first ? 0 : digits.digits - 1;
    const i64 words = args.groups * vx_sweep_layout_of(args.tiles).words;
    struct vx_trial trial;
    args.shift = digits.shifts[digit];
    args.digit_bits = digits.bits[digit];
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d groups %d style %d digit %d", (long long)shape->n,
                   shape->v, shape->groups, (int)shape->style, digit);
    digits.sort.keys_in = keys_make(rig, shape, &args);
    digits.sort.totals =
        vx_rig_take(rig, (size_t)(digits.digits * args.groups * VX_ORDER_BINS) * 4);
    digits.sort.counts = vx_rig_take(rig, (size_t)(digits.digits * words) * 4);
    vx_order_digits_ref(&digits, 0);
    u32 *totals = digits.sort.totals + digit * args.groups * VX_ORDER_BINS;
    vx_trial_in(&trial, &args.keys_in, digits.sort.keys_in, bytes);
    vx_trial_in(&trial, &args.totals, totals, (size_t)(args.groups * VX_ORDER_BINS) * 4);
    vx_trial_both(&trial, &args.counts, digits.sort.counts, (size_t)words * 4);
    vx_trial_out(rig, &trial, &args.rows_out, bytes);
    if (first) vx_trial_out(rig, &trial, &args.keys_out, bytes);
    if (!first) vx_trial_in(&trial, &args.rows_in, rows_make(rig, &args), bytes);
    vx_trial_run(rig, &trial);
}

static void scan_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    static const i64 shapes[][2] = {{0, 5},     {1, 1},    {3, 31},  {512, 1},
                                    {27, 32},   {7, 1000}, {33, 33}, {9, 10007},
                                    {343, 256}, {5, 257}};
    for (size_t s = 0; s < VX_COUNT(shapes); s++) {
        struct vx_count_scan_args args = {.rows = shapes[s][0], .tiles = shapes[s][1]};
        const size_t count = (size_t)(args.rows * args.tiles);
        struct vx_trial trial;
        u32 *counts = vx_rig_take(rig, count * 4);
        for (size_t i = 0; i < count; i++) counts[i] = (u32)vx_rig_below(rig, 2049);
        vx_trial_init(&trial, kernel, &args);
        vx_trial_label(&trial, "rows %lld tiles %lld", (long long)args.rows,
                       (long long)args.tiles);
        vx_trial_both(&trial, &args.counts, counts, count * 4);
        vx_trial_out(rig, &trial, &args.totals, (size_t)args.rows * 4);
        vx_trial_run(rig, &trial);
        vx_rig_reset(rig);
    }
}

static i32 *nbr_make(struct vx_rig *rig, const struct shape *shape, i32 stride)
{
    i32 *nbr = vx_rig_take(rig, (size_t)(shape->n * stride) * 4);
    for (i64 e = 0; e < shape->n * stride; e++) {
        i32 v = (i32)(e % stride);
        bool there = shape->style == FULL || (vx_rig_random(rig) & 1);
        if (shape->style == CENTRE) there = v == shape->v / 2;
        if (shape->style == FEW) there = v % 7 == 3 && e / stride % 300 > 250;
        nbr[e] = there && v < shape->v ? (i32)vx_rig_below(rig, shape->n) : -1;
    }
    return nbr;
}

static void pairs_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape)
{
    struct vx_pair_list_args args = {.n = shape->n,
                                     .tiles =
                                         (shape->n + VX_PAIRS_TILE - 1) / VX_PAIRS_TILE,
                                     .v = shape->v,
                                     .nbr_stride = vx_nbr_stride(shape->v)};
    const size_t bytes = (size_t)(args.n * args.nbr_stride) * 4;
    const size_t counts = (size_t)(args.v * args.tiles) * 4;
    const bool write = !strcmp(kernel->spec->name, "pairs_write");
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld V=%d style %d", (long long)shape->n, shape->v,
                   (int)shape->style);
    vx_trial_in(&trial, &args.nbr, nbr_make(rig, shape, args.nbr_stride), bytes);
    if (!write) {
        vx_trial_out(rig, &trial, &args.counts, counts);
        vx_trial_run(rig, &trial);
        return;
    }
    u32 *totals = vx_rig_take(rig, (size_t)args.v * 4);
    i64 pairs = 0;
    args.counts = vx_rig_take(rig, counts);
    vx_pairs_count_ref(&args, 0);
    const struct vx_count_scan_args scan = {args.v, args.tiles, args.counts, totals};
    vx_count_scan_ref(&scan, 0);
    for (i32 v = 0; v < args.v; v++) pairs += totals[v];
    vx_trial_in(&trial, &args.counts, args.counts, counts);
    vx_trial_in(&trial, &args.totals, totals, (size_t)args.v * 4);
    struct vx_field *starts =
        vx_trial_out(rig, &trial, &args.starts, ((size_t)args.v + 1) * 4);
    /* Without rows nothing is launched, and the starts of the lists are not read. */
    if (!args.n) starts->kind = VX_FIELD_MINE;
    vx_trial_out(rig, &trial, &args.in_rows, (size_t)pairs * 4);
    vx_trial_out(rig, &trial, &args.places, bytes);
    vx_trial_run(rig, &trial);
}

static void kernel_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape)
{
    const char *name = kernel->spec->name;
    if (!strcmp(name, "order_small") && shape->n <= VX_ORDER_SMALL_ROWS)
        small_case(rig, kernel, shape);
    if (!strcmp(name, "order_blocks")) blocks_case(rig, kernel, shape);
    if (!strcmp(name, "order_clear")) digits_case(rig, kernel, shape, MASKS);
    for (i32 from = 0; from < FROMS && !strcmp(name, "order_digits"); from++)
        digits_case(rig, kernel, shape, (enum from)from);
    for (i32 first = 0; first < 2 && !strcmp(name, "order_sweep"); first++)
        sweep_case(rig, kernel, shape, first);
    if (!strncmp(name, "pairs_", 6)) pairs_case(rig, kernel, shape);
    vx_rig_reset(rig);
}

void vx_cases_order(struct vx_rig *rig)
{
    static const char *const names[] = {"order_small", "order_clear",  "order_digits",
                                        "order_sweep", "order_blocks", "pairs_count",
                                        "pairs_write"};
    static const i64 tile = VX_ORDER_TILE;
    const i64 sizes[] = {0,     1,     33,    1000,          31,    32,
                         255,   256,   257,   tile - 1,      tile,  tile + 1,
                         10007, 16384, 16385, 33 * tile + 7, 150001};
    static const struct shape shapes[] = {
        {.v = 27, .groups = 1, .gray = true},   {.v = 27, .groups = 3, .gray = false},
        {.v = 27, .groups = 9, .gray = true},   {.v = 125, .groups = 1, .gray = true},
        {.v = 343, .groups = 1, .gray = false}, {.v = 343, .groups = 7, .gray = true},
        {.v = 1, .groups = 1, .gray = false},   {.v = 32, .groups = 1, .gray = true},
        {.v = 33, .groups = 1, .gray = true},
    };
    const size_t count = rig->size == VX_RIG_FULL   ? 17
                         : rig->size == VX_RIG_FAKE ? 15
                                                    : 4;
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t name = 0; name < VX_COUNT(names); name++)
        while ((kernel = vx_rig_next(rig, names[name], kernel)))
            for (size_t s = 0; s < VX_COUNT(shapes); s++)
                for (size_t size = 0; size < count; size++)
                    for (i32 style = 0; style < STYLES; style++) {
                        struct shape shape = shapes[s];
                        bool turn = (s + size + (size_t)style) % 4 == 0;
                        if (sizes[size] > 100 && !turn) continue;
                        shape.n = sizes[size];
                        shape.style = (enum style)style;
                        kernel_case(rig, kernel, &shape);
                    }
    while ((kernel = vx_rig_next(rig, "count_scan", kernel))) scan_cases(rig, kernel);
}
