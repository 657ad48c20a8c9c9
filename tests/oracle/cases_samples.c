/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/18_group_norm.h"
#include "kernels/23_key_order.h"
#include "kernels/30_sample_pool.h"
#include "tests/oracle/cases.h"

#include <math.h>

void vx_key_starts_ref(const void *args, enum vx_number type);

/* Values, and their means, are SCALE at most; weights, biases and scales 2. */
#define SCALE 4.0
/* Four roundings on the way to a number of size 2*SCALE * 2 * 2 + 2, and four of its curve. */
#define APPLY (8 * 34 * 0x1p-24)

/* Members one after the other, each with some samples, of which every `gap`th exists. */
struct shape {
    i64 n;
    i32 members, samples, gap;
};

/* Keys as they lie, and the rows in the order of keys. */
struct round {
    struct vx_key_order_args order;
    u64 *keys;
    i32 *rows;
};

static void label(struct vx_trial *trial, const struct shape *shape)
{
    vx_trial_label(trial, "N=%lld, %d members of %d samples, gap %d", (long long)shape->n,
                   shape->members, shape->samples, shape->gap);
}

/* The i-th of a member's voxels in the order of keys. */
static u64 key_of(struct vx_rig *rig, const struct shape *shape, i64 i, i64 count)
{
    i32 place = (i32)(i * 3 + vx_rig_below(rig, 3));
    i32 sample = (i32)(i * shape->samples / count) * shape->gap;
    return vx_key_pack(sample, place / 4096 - 4, place / 64 % 64 - 32, place % 64 - 32);
}

static void member_make(struct vx_rig *rig, const struct shape *shape,
                        struct round *round, i32 member)
{
    const i32 first = round->order.edges[member];
    const i64 count = round->order.edges[member + 1] - first;
    for (i64 i = 0; i < count; i++) {
        i64 other = vx_rig_below(rig, i + 1);
        round->rows[first + i] = round->rows[first + other];
        round->rows[first + other] = first + (i32)i;
    }
    for (i64 i = 0; i < count; i++)
        round->keys[round->rows[first + i]] = key_of(rig, shape, i, count);
}

/* Members have about as many rows each; every fourth has none, but for the first. */
static struct round round_make(struct vx_rig *rig, const struct shape *shape)
{
    struct round round = {.order = {.n = shape->n, .members = shape->members},
                          .keys = vx_rig_take(rig, (size_t)shape->n * sizeof(u64)),
                          .rows = vx_rig_take(rig, (size_t)shape->n * sizeof(i32))};
    for (i32 m = 1; m <= shape->members; m++) {
        bool empty = m % 4 == 2 && m < shape->members;
        round.order.edges[m] =
            empty ? round.order.edges[m - 1] : (i32)(shape->n * m / shape->members);
    }
    for (i32 m = 0; m < shape->members; m++) member_make(rig, shape, &round, m);
    return round;
}

/* --- 23 --- */

static void small_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape)
{
    struct round round = round_make(rig, shape);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &round.order);
    label(&trial, shape);
    vx_trial_in(&trial, &round.order.keys, round.keys, (size_t)shape->n * sizeof(u64));
    vx_trial_out(rig, &trial, &round.order.rows_out, (size_t)shape->n * sizeof(i32));
    vx_trial_run(rig, &trial);
}

static void members_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                         const struct shape *shape)
{
    struct round round = round_make(rig, shape);
    struct vx_trial trial;
    for (i64 i = 0; i < shape->n; i++) { /* members mixed */
        i64 other = vx_rig_below(rig, i + 1);
        i32 row = round.rows[i];
        round.rows[i] = round.rows[other];
        round.rows[other] = row;
    }
    vx_trial_init(&trial, kernel, &round.order);
    label(&trial, shape);
    vx_trial_in(&trial, &round.order.rows, round.rows, (size_t)shape->n * sizeof(i32));
    vx_trial_out(rig, &trial, &round.order.numbers, (size_t)shape->n * sizeof(u32));
    vx_trial_run(rig, &trial);
}

/* Keys through their order, and keys that are in order. */
static void starts_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape)
{
    const size_t keys_bytes = (size_t)shape->n * sizeof(u64);
    for (i32 sorted = 0; sorted < 2; sorted++) {
        struct round round = round_make(rig, shape);
        u64 *keys = vx_rig_take(rig, keys_bytes);
        struct vx_trial trial;
        for (i64 i = 0; i < shape->n; i++)
            keys[i] = round.keys[sorted ? round.rows[i] : i];
        vx_trial_init(&trial, kernel, &round.order);
        label(&trial, shape);
        vx_trial_in(&trial, &round.order.keys, keys, keys_bytes);
        if (!sorted)
            vx_trial_in(&trial, &round.order.rows, round.rows,
                        (size_t)shape->n * sizeof(i32));
        vx_trial_out(rig, &trial, &round.order.starts,
                     (size_t)(shape->n + 1) * sizeof(i32));
        vx_trial_out(rig, &trial, &round.order.count, sizeof(i32));
        vx_trial_run(rig, &trial);
    }
}

static void order_cases(struct vx_rig *rig)
{
    static const struct shape shapes[] = {
        {0, 1, 1, 1},       {1, 1, 1, 1},       {33, 3, 2, 7},      {1000, 5, 40, 3},
        {300, 64, 3, 255},  {2600, 2, 512, 1},  {257, 1, 1, 511},   {8192, 1, 2, 100},
        {8193, 1, 1, 1},    {20000, 64, 9, 50}, {100000, 13, 1, 1}, {40000, 64, 512, 1},
        {60000, 9, 100, 5},
    };
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                    const struct shape *shape);
    } kernels[] = {{"key_small", small_case},
                   {"key_members", members_case},
                   {"key_starts", starts_case}};
    const size_t count = rig->size == VX_RIG_FULL   ? VX_COUNT(shapes)
                         : rig->size == VX_RIG_FAKE ? 9
                                                    : 5;
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t s = 0; s < count; s++) {
                kernels[k].run(rig, kernel, &shapes[s]);
                vx_rig_reset(rig);
            }
}

/* --- 18 --- */

struct norm {
    struct vx_group_norm_device_args args;
    struct vx_trial trial;
    i32 samples;
};

static f64 *doubles_make(struct vx_rig *rig, i64 count, f64 scale, bool positive)
{
    const f32 *reals = vx_rig_reals(rig, VX_NUMBER_F32, count, scale);
    f64 *made = vx_rig_take(rig, (size_t)count * sizeof *made);
    for (i64 e = 0; e < count; e++)
        made[e] = positive ? fabs((f64)reals[e]) : (f64)reals[e];
    return made;
}

static void doubles_in(struct vx_trial *trial, const void *pointer, const f64 *data,
                       i64 count)
{
    vx_trial_in(trial, pointer, data, (size_t)count * sizeof(f64));
}

static void norm_begin(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, const i32 *channels, struct norm *norm)
{
    struct round round = round_make(rig, shape);
    i32 *starts = vx_rig_take(rig, (size_t)(shape->n + 1) * sizeof *starts);
    i32 *count = vx_rig_take(rig, sizeof *count);
    round.order.keys = round.keys;
    round.order.rows = round.rows;
    round.order.starts = starts;
    round.order.count = count;
    vx_key_starts_ref(&round.order, 0);
    norm->args = (struct vx_group_norm_device_args){.n = shape->n,
                                                    .samples_max =
                                                        *count + 1 + (i32)(shape->n % 3),
                                                    .c = channels[0],
                                                    .cp = vx_channels_padded(channels[0]),
                                                    .groups = channels[1],
                                                    .eps = 1e-5f};
    vx_trial_init(&norm->trial, kernel, &norm->args);
    vx_trial_label(&norm->trial, "N=%lld, %d samples, C=%d, %d groups",
                   (long long)shape->n, *count, channels[0], channels[1]);
    vx_trial_in(&norm->trial, &norm->args.starts, starts,
                (size_t)(*count + 1) * sizeof *starts);
    vx_trial_in(&norm->trial, &norm->args.count, count, sizeof *count);
    vx_trial_in(&norm->trial, &norm->args.rows, round.rows,
                (size_t)shape->n * sizeof(i32));
    norm->samples = *count;
}

/* Elements of `in`. */
static i64 rows_count(const struct norm *norm)
{
    const struct vx_group_norm_device_args *args = &norm->args;
    return args->n * (args->in_stride ? args->in_stride : args->cp);
}

static size_t rows_bytes(const struct norm *norm)
{
    return (size_t)rows_count(norm) * (size_t)vx_number_bytes(norm->trial.kernel.type);
}

static void *rows_make(struct vx_rig *rig, const struct norm *norm)
{
    return vx_rig_reals(rig, norm->trial.kernel.type, rows_count(norm), SCALE);
}

static void near_check(struct vx_rig *rig, const struct vx_field *field, i64 at,
                       f64 bound)
{
    const f64 truth = ((const f64 *)field->host)[at], got = ((f64 *)field->back)[at];
    if (!(fabs(got - truth) <= bound))
        vx_rig_fail(rig, "group norm: expected %.17g within %.3g at %lld, got %.17g",
                    truth, bound, (long long)at, got);
}

/* T numbers of size 8, squared, are added up with T roundings. */
static void sums_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                      const struct shape *shape, const i32 *channels, i32 turn)
{
    struct norm norm;
    norm_begin(rig, kernel, shape, channels, &norm);
    struct vx_group_norm_device_args *args = &norm.args;
    const i64 slots = vx_sample_slots(args->n, args->samples_max);
    const i64 width = args->c / args->groups;
    const f64 terms = (f64)(VX_SAMPLE_CHUNK * width);
    if (turn % 3 == 1) args->in_stride = args->cp + 32;
    vx_trial_in(&norm.trial, &args->in, rows_make(rig, &norm), rows_bytes(&norm));
    args->squares = turn % 2;
    if (args->squares)
        doubles_in(&norm.trial, &args->mean,
                   doubles_make(rig, (i64)norm.samples * args->groups, SCALE, false),
                   (i64)norm.samples * args->groups);
    struct vx_field *field = vx_trial_out(rig, &norm.trial, &args->partial,
                                          (size_t)(slots * args->c) * sizeof(f64));
    field->kind = VX_FIELD_MINE;
    vx_trial_run(rig, &norm.trial);
    const struct vx_sample_rows rows = vx_group_norm_rows(args);
    for (i64 slot = 0; slot < slots && args->n > 0; slot++) {
        struct vx_sample_part chunk = vx_sample_chunk(&rows, slot);
        for (i64 g = 0; chunk.begin < chunk.end && g < args->groups; g++)
            near_check(rig, field, slot * args->c + g * width,
                       64 * terms * terms * 0x1p-53);
    }
}

static void means_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, const i32 *channels, i32 turn)
{
    struct norm norm;
    norm_begin(rig, kernel, shape, channels, &norm);
    struct vx_group_norm_device_args *args = &norm.args;
    const i64 slots = vx_sample_slots(args->n, args->samples_max);
    const i64 count = (i64)norm.samples * args->groups;
    args->squares = turn % 2;
    doubles_in(&norm.trial, &args->partial,
               doubles_make(rig, slots * args->c, 256 * SCALE, args->squares),
               slots * args->c);
    struct vx_field *field =
        vx_trial_out(rig, &norm.trial, args->squares ? &args->scale : &args->mean,
                     (size_t)count * sizeof(f64));
    field->kind = VX_FIELD_MINE;
    vx_trial_run(rig, &norm.trial);
    /* At most 1000 chunks of size 4 each, or 1 / sqrt eps = 316, with as many roundings. */
    for (i64 at = 0; at < count; at++) near_check(rig, field, at, 4000 * 1000 * 0x1p-53);
}

static void apply_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, const i32 *channels, i32 turn)
{
    struct norm norm;
    norm_begin(rig, kernel, shape, channels, &norm);
    struct vx_group_norm_device_args *args = &norm.args;
    const i64 count = (i64)norm.samples * args->groups;
    const size_t floats = (size_t)args->c * sizeof(f32);
    args->activation = turn % 5;
    doubles_in(&norm.trial, &args->mean, doubles_make(rig, count, SCALE, false), count);
    doubles_in(&norm.trial, &args->scale, doubles_make(rig, count, 2, true), count);
    if (turn % 2)
        vx_trial_in(&norm.trial, &args->weight,
                    vx_rig_reals(rig, VX_NUMBER_F32, args->c, 2), floats);
    if (turn % 3)
        vx_trial_in(&norm.trial, &args->bias,
                    vx_rig_reals(rig, VX_NUMBER_F32, args->c, 2), floats);
    struct vx_field *field;
    if (turn % 3 == 1) { /* from rows that are parts of others */
        field = vx_trial_out(rig, &norm.trial, &args->out, rows_bytes(&norm));
        args->in_stride = args->cp + 16;
        vx_trial_in(&norm.trial, &args->in, rows_make(rig, &norm), rows_bytes(&norm));
    } else {
        field = vx_trial_both(&norm.trial, &args->out, rows_make(rig, &norm),
                              rows_bytes(&norm));
        vx_trial_same(&norm.trial, &args->in, field);
    }
    field->kind = VX_FIELD_REAL;
    field->type = kernel->type;
    field->absolute = APPLY;
    vx_trial_run(rig, &norm.trial);
}

static void norm_cases(struct vx_rig *rig)
{
    static const struct shape shapes[] = {
        {33, 3, 2, 7},    {1, 1, 1, 1},     {1000, 1, 1, 1},   {600, 2, 40, 3},
        {0, 1, 1, 1},     {257, 1, 1, 511}, {10007, 5, 2, 1},  {512, 1, 2, 100},
        {3000, 64, 9, 5}, {90000, 1, 1, 1}, {40000, 64, 3, 1},
    };
    static const i32 channels[][2] = {{16, 4},  {1, 1},     {20, 20}, {64, 32},
                                      {96, 3},  {300, 100}, {48, 1},  {256, 256},
                                      {512, 1}, {1040, 13}, {2100, 7}};
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                    const struct shape *shape, const i32 *channels, i32 turn);
    } kernels[] = {{"group_sums", sums_case},
                   {"group_means", means_case},
                   {"group_apply", apply_case}};
    const i64 most = rig->size == VX_RIG_FULL   ? 3000000
                     : rig->size == VX_RIG_FAKE ? 40000
                                                : 20000;
    const struct vx_jit_wanted *kernel = NULL;
    i32 turn = 0;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t s = 0; s < VX_COUNT(shapes); s++)
                for (size_t c = 0; c < VX_COUNT(channels); c++) {
                    if (shapes[s].n * channels[c][0] > most) continue;
                    if (rig->size == VX_RIG_SMALL && (s + c) % 3) continue;
                    kernels[k].run(rig, kernel, &shapes[s], channels[c], turn++);
                    vx_rig_reset(rig);
                }
}

/* --- 27 --- */

struct pool {
    struct vx_sample_pool_args args;
    struct vx_trial trial;
    i32 samples;
    i32 turn; /* of three modes, and five activations */
};

static void pool_begin(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 channels, struct pool *pool)
{
    struct round round = round_make(rig, shape);
    i32 *starts = vx_rig_take(rig, (size_t)(shape->n + 1) * sizeof *starts);
    i32 *count = vx_rig_take(rig, sizeof *count);
    round.order.keys = round.keys;
    round.order.rows = round.rows;
    round.order.starts = starts;
    round.order.count = count;
    vx_key_starts_ref(&round.order, 0);
    pool->args =
        (struct vx_sample_pool_args){.n = shape->n,
                                     .samples_max = *count + 1 + (i32)(shape->n % 3),
                                     .c = channels,
                                     .cp = vx_channels_padded(channels),
                                     .mode = pool->turn % 3,
                                     .activation = pool->turn / 3 % 5};
    vx_trial_init(&pool->trial, kernel, &pool->args);
    vx_trial_label(&pool->trial, "N=%lld, %d samples, C=%d, mode %d", (long long)shape->n,
                   *count, channels, pool->turn % 3);
    vx_trial_in(&pool->trial, &pool->args.starts, starts,
                (size_t)(*count + 1) * sizeof *starts);
    vx_trial_in(&pool->trial, &pool->args.count, count, sizeof *count);
    vx_trial_in(&pool->trial, &pool->args.rows, round.rows,
                (size_t)shape->n * sizeof(i32));
    pool->samples = *count;
}

/* Sums of up to 256 numbers of size SCALE in f64, in two orders; the largest is exact. */
static void pool_chunks_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                             const struct shape *shape, i32 channels, i32 turn)
{
    struct pool pool = {.turn = turn};
    pool_begin(rig, kernel, shape, channels, &pool);
    struct vx_sample_pool_args *args = &pool.args;
    const i64 slots = vx_sample_slots(args->n, args->samples_max);
    if (turn % 4 == 1) args->in_stride = args->cp + 16;
    const i64 count = args->n * (args->in_stride ? args->in_stride : args->cp);
    vx_trial_in(&pool.trial, &args->in, vx_rig_reals(rig, kernel->type, count, SCALE),
                (size_t)(count * vx_number_bytes(kernel->type)));
    struct vx_field *field = vx_trial_out(rig, &pool.trial, &args->partial,
                                          (size_t)(slots * args->c) * sizeof(f64));
    field->kind = VX_FIELD_MINE;
    vx_trial_run(rig, &pool.trial);
    const struct vx_sample_rows rows = vx_sample_pool_rows(args);
    for (i64 slot = 0; slot < slots && args->n > 0; slot++) {
        struct vx_sample_part chunk = vx_sample_chunk(&rows, slot);
        for (i64 c = 0; chunk.begin < chunk.end && c < args->c; c++)
            near_check(rig, field, slot * args->c + c,
                       VX_SAMPLE_CHUNK * VX_SAMPLE_CHUNK * SCALE * 0x1p-53);
    }
}

/* At most 400 chunks of numbers of size SCALE, a rounding to f32 and four of its curve. */
static void pool_join_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                           const struct shape *shape, i32 channels, i32 turn)
{
    struct pool pool = {.turn = turn};
    pool_begin(rig, kernel, shape, channels, &pool);
    struct vx_sample_pool_args *args = &pool.args;
    const i64 slots = vx_sample_slots(args->n, args->samples_max);
    i32 *places = vx_rig_take(rig, (size_t)pool.samples * sizeof *places);
    for (i32 i = 0; i < pool.samples; i++) places[i] = pool.samples - 1 - i;
    vx_trial_in(&pool.trial, &args->places, places,
                (size_t)pool.samples * sizeof *places);
    doubles_in(&pool.trial, &args->partial,
               doubles_make(rig, slots * args->c, SCALE, false), slots * args->c);
    const size_t bytes =
        (size_t)pool.samples * (size_t)args->cp * (size_t)vx_number_bytes(kernel->type);
    struct vx_field *field = vx_trial_out(rig, &pool.trial, &args->out, bytes);
    field->kind = VX_FIELD_REAL;
    field->type = kernel->type;
    field->absolute = 8 * 400 * SCALE * 0x1p-24;
    vx_trial_run(rig, &pool.trial);
}

static void pool_cases(struct vx_rig *rig)
{
    static const struct shape shapes[] = {
        {33, 3, 2, 7},    {1, 1, 1, 1},     {1000, 1, 1, 1},   {600, 2, 40, 3},
        {0, 1, 1, 1},     {257, 1, 1, 511}, {10007, 5, 2, 1},  {512, 1, 2, 100},
        {3000, 64, 9, 5}, {90000, 1, 1, 1}, {40000, 64, 3, 1},
    };
    static const i32 channels[] = {16, 1, 20, 64, 96, 300, 48, 256, 1040};
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                    const struct shape *shape, i32 channels, i32 turn);
    } kernels[] = {{"sample_chunks", pool_chunks_case}, {"sample_pool", pool_join_case}};
    const i64 most = rig->size == VX_RIG_FULL   ? 3000000
                     : rig->size == VX_RIG_FAKE ? 40000
                                                : 20000;
    const struct vx_jit_wanted *kernel = NULL;
    i32 turn = 0;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t s = 0; s < VX_COUNT(shapes); s++)
                for (size_t c = 0; c < VX_COUNT(channels); c++) {
                    if (shapes[s].n * channels[c] > most) continue;
                    if (rig->size == VX_RIG_SMALL && (s + c) % 3) continue;
                    kernels[k].run(rig, kernel, &shapes[s], channels[c], turn++);
                    vx_rig_reset(rig);
                }
}

void vx_cases_samples(struct vx_rig *rig)
{
    order_cases(rig);
    norm_cases(rig);
    pool_cases(rig);
}
