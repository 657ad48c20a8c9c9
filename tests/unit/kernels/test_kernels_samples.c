/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/types.h"
#include "kernels/18_group_norm.h"
#include "kernels/23_key_order.h"
#include "kernels/30_sample_pool.h"
#include "kernels/kernel.h"
#include "kernels/37_order_sweep.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The device's references of orders by key, and of norms over samples, against their definition: a
 * sort of the C library, sums in long double. */

static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                       VX_NUMBER_TF32};
#define TYPES 4

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

/* --- 23 --- */

/* Rows with the member and the key that they are sorted by. */
struct place {
    i32 member, row;
    u64 key;
};

static int place_compare(const void *one, const void *other)
{
    const struct place *a = one, *b = other;
    if (a->member != b->member) return a->member < b->member ? -1 : 1;
    return (a->key > b->key) - (a->key < b->key);
}

/* Different keys, with random bits where `varying` has them and elsewhere those of `base`. */
static u64 *keys_make(i32 n, u64 varying, u64 base)
{
    struct voxels_random random = {(u64)n + varying};
    u64 *keys = vx_alloc((size_t)(n + 1) * sizeof *keys);
    for (i32 i = 0; i < n; i++) {
        keys[i] = (voxels_next(&random) & varying) | (base & ~varying);
        for (i32 k = 0; k < i; k++)
            if (keys[k] == keys[i])
                k = -1, keys[i] = (keys[i] & ~varying) | (voxels_next(&random) & varying);
    }
    return keys;
}

static void check_order(const struct vx_key_order_args *args, const i32 *rows)
{
    struct place *places = vx_alloc((size_t)(args->n + 1) * sizeof *places);
    for (i32 m = 0; m < args->members; m++)
        for (i32 row = args->edges[m]; row < args->edges[m + 1]; row++)
            places[row] = (struct place){m, row, args->keys[row]};
    qsort(places, (size_t)args->n, sizeof *places, place_compare);
    for (i64 p = 0; p < args->n; p++) ck_assert_int_eq(rows[p], places[p].row);
    vx_free(places);
}

static const struct {
    i32 n, members, edges[5];
    u64 varying;
} orders[] = {
    {2500, 4, {0, 700, 700, 2499, 2500}, ~UINT64_C(0) >> 1},
    {3000, 1, {0, 3000}, UINT64_C(0x40003c000ff00fff)},
    {100, 3, {0, 1, 50, 100}, UINT64_C(0xfffff)},
    {1, 1, {0, 1}, 1},
    {0, 1, {0, 0}, ~UINT64_C(0) >> 1},
};

static struct vx_key_order_args order_make(i32 index)
{
    struct vx_key_order_args args = {.n = orders[index].n,
                                     .members = orders[index].members};
    memcpy(args.edges, orders[index].edges, sizeof orders[index].edges);
    args.keys =
        keys_make(orders[index].n, orders[index].varying, UINT64_C(0x155aa55aa55aa55a));
    return args;
}

START_TEST(test_small)
{
    struct vx_key_order_args args = order_make(_i);
    args.rows_out = vx_alloc((size_t)(args.n + 1) * sizeof(i32));
    args.rows_out[args.n] = -7;
    run("key_small", &args, 0);
    check_order(&args, args.rows_out);
    ck_assert_int_eq(args.rows_out[args.n], -7);
    vx_free(args.rows_out);
    vx_free((void *)args.keys);
}
END_TEST

struct buffers {
    u32 *keys[2];
    i32 *rows[2];
    i32 last; /* the pair that was written last */
};

/* The passes of one key; those of fresh keys are made from the order's. */
static void passes_run(const struct vx_key_order_args *order, struct buffers *buffers,
                       const struct vx_key_pass *passes, i32 count, bool first)
{
    const bool fresh = passes->fresh;
    struct vx_order_digits_args args = {
        .sort = {.n = order->n,
                 .tiles = (order->n + VX_ORDER_TILE - 1) / VX_ORDER_TILE,
                 .words = 2,
                 .bits = VX_KEY_BITS,
                 .groups = 1,
                 .key_low = passes->key_low,
                 .key_bits = passes->key_bits,
                 .masks = (const u32 *)order->keys,
                 .keys_in = fresh ? NULL : buffers->keys[buffers->last],
                 .keys_out = fresh ? buffers->keys[buffers->last] : NULL,
                 .rows_in = first ? NULL : buffers->rows[buffers->last]},
        .digits = count};
    const i64 words = vx_sweep_layout_of(args.sort.tiles).words;
    for (i32 d = 0; d < count; d++) {
        args.shifts[d] = passes[d].shift;
        args.bits[d] = passes[d].digit_bits;
    }
    u32 *state = vx_alloc((size_t)(count * words) * 4);
    u32 *totals = vx_alloc((size_t)count * VX_ORDER_BINS * 4);
    args.sort.counts = state;
    args.sort.totals = totals;
    run("order_clear", &args, 0);
    run("order_digits", &args, 0);
    for (i32 d = 0; d < count; d++, buffers->last = 1 - buffers->last) {
        const i32 last = buffers->last;
        struct vx_mask_order_args sort = args.sort;
        sort.shift = args.shifts[d];
        sort.digit_bits = args.bits[d];
        sort.keys_in = buffers->keys[last];
        sort.rows_in = first && d == 0 ? NULL : buffers->rows[last];
        sort.keys_out = buffers->keys[1 - last];
        sort.rows_out = buffers->rows[1 - last];
        sort.counts = state + d * words;
        sort.totals = totals + d * VX_ORDER_BINS;
        run("order_sweep", &sort, 0);
    }
    vx_free(state);
    vx_free(totals);
}

START_TEST(test_large)
{
    struct vx_key_order_args args = order_make(_i);
    const size_t words = (size_t)(args.n + 1) * 4;
    struct buffers buffers = {
        {vx_alloc(words), vx_alloc(words)}, {vx_alloc(words), vx_alloc(words)}, 0};
    struct vx_key_pass passes[VX_KEY_PASSES_MAX];
    const i32 count = vx_key_passes(orders[_i].varying, passes);
    for (i32 first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !passes[end].fresh;) end++;
        passes_run(&args, &buffers, passes + first, end - first, first == 0);
    }
    args.rows = buffers.rows[buffers.last];
    args.numbers = buffers.keys[buffers.last];
    run("key_members", &args, 0);
    for (i64 p = 0; p < args.n; p++) {
        const i32 row = args.rows[p], member = (i32)args.numbers[p];
        ck_assert(args.edges[member] <= row && row < args.edges[member + 1]);
    }
    passes_run(&args, &buffers, &(struct vx_key_pass){0, 32, 0, 2, 0}, 1, false);
    check_order(&args, buffers.rows[buffers.last]);
    for (int b = 0; b < 2; b++) {
        vx_free(buffers.keys[b]);
        vx_free(buffers.rows[b]);
    }
    vx_free((void *)args.keys);
}
END_TEST

/* Every bit that varies is sorted by once, from the lowest up, in a key of at most 32 bits that
 * passes which are not fresh share. */
START_TEST(test_passes)
{
    static const struct {
        u64 varying;
        i32 count;
    } cases[] = {{~UINT64_C(0) >> 1, 7},
                 {0, 0},
                 {1, 1},
                 {UINT64_C(1) << 62, 1},
                 {0x3ffff, 2},
                 {UINT64_C(0x40003c000ff00fff), 5},
                 {0x1ff0000001, 2},
                 {UINT64_C(0x3fe0000000000001), 2}};
    struct vx_key_pass passes[VX_KEY_PASSES_MAX];
    const i32 count = vx_key_passes(cases[_i].varying, passes);
    i32 end = 0, low = 0;
    u64 sorted = 0;
    ck_assert_int_eq(count, cases[_i].count);
    for (i32 p = 0; p < count; p++) {
        const struct vx_key_pass *pass = &passes[p];
        const i32 at = pass->key_low + pass->shift;
        if (!p) ck_assert(pass->fresh);
        if (pass->fresh) low = pass->key_low;
        ck_assert_int_eq(pass->key_low, low);
        ck_assert(at >= end && pass->digit_bits >= 1 && pass->digit_bits <= 9);
        end = at + pass->digit_bits;
        ck_assert(pass->key_bits <= 32 && end <= low + pass->key_bits);
        ck_assert_int_le(low + pass->key_bits, VX_KEY_BITS);
        sorted |= ((UINT64_C(1) << pass->digit_bits) - 1) << at;
    }
    ck_assert_uint_eq(cases[_i].varying & ~sorted, 0);
}
END_TEST

/* Two members with samples 0 0 5 and 5 7 7, and one between them that is empty. */
START_TEST(test_starts)
{
    static const i32 samples[] = {0, 0, 5, 5, 7, 7}, rows[] = {2, 1, 0, 3, 5, 4};
    static const i32 expected[] = {0, 2, 3, 4, 6, -7};
    u64 keys[6];
    i32 starts[6] = {-7, -7, -7, -7, -7, -7}, count = -7;
    struct vx_key_order_args args = {.n = 6,
                                     .members = 3,
                                     .edges = {0, 3, 3, 6},
                                     .keys = keys,
                                     .rows = _i ? rows : NULL,
                                     .starts = starts,
                                     .count = &count};
    for (i32 p = 0; p < 6; p++)
        keys[_i ? rows[p] : p] = vx_key_pack(samples[p], p, -p, 3);
    run("key_starts", &args, 0);
    ck_assert_mem_eq(starts, expected, sizeof starts);
    ck_assert_int_eq(count, 4);
    args.n = 0;
    memset(args.edges, 0, sizeof args.edges);
    run("key_starts", &args, 0);
    ck_assert_int_eq(starts[0], 0);
    ck_assert_int_eq(count, 0);
}
END_TEST

/* --- 18 --- */

#define ROWS 1200
#define CP   32

struct norm {
    i32 starts[5], count, rows[ROWS];
    f64 values[ROWS * CP];
};

/* Four samples: more than two chunks, one row, exactly a chunk, the rest.  Around a mean that is
 * large beside them, so that squares would lose everything. */
static void norm_make(struct norm *norm, enum vx_number type, void *in)
{
    static const i32 starts[] = {0, 600, 601, 601 + VX_SAMPLE_CHUNK, ROWS};
    struct voxels_random random = {5};
    memcpy(norm->starts, starts, sizeof starts);
    norm->count = 4;
    for (i32 i = 0; i < ROWS; i++) norm->rows[i] = (i * 7 + 3) % ROWS;
    for (i32 e = 0; e < ROWS * CP; e++) {
        f64 x = 100 +
                voxels_between(&random, -16, 16) * (type == VX_NUMBER_BF16 ? 0.5 : 0.125);
        vx_number_ref_write(in, type, e, x);
        norm->values[e] = vx_number_ref_read(in, type, e);
    }
}

/* The sum over a sample and the channels of a group: of numbers, or of the squares of their
 * distances from `center`. */
static long double norm_sum(const struct norm *norm, i32 sample, i32 first, i32 width,
                            const long double *center)
{
    long double sum = 0;
    for (i32 p = norm->starts[sample]; p < norm->starts[sample + 1]; p++)
        for (i32 c = first; c < first + width; c++) {
            long double x = (long double)norm->values[norm->rows[p] * CP + c];
            sum += center ? (x - *center) * (x - *center) : x;
        }
    return sum;
}

static void norm_run(struct vx_group_norm_device_args *args, enum vx_number type)
{
    for (args->squares = 0; args->squares < 2; args->squares++) {
        run("group_sums", args, type);
        run("group_means", args, 0);
    }
    run("group_apply", args, type);
}

/* f32 and TF32 are off by a rounding, the others by one of theirs. */
static f64 norm_bound(enum vx_number type, f64 y)
{
    f64 step = type == VX_NUMBER_F16    ? 0x1p-11
               : type == VX_NUMBER_BF16 ? 0x1p-8
                                        : 0x1p-24;
    return step * fabs(y) + 0x1p-24;
}

static void norm_check(const struct norm *norm,
                       const struct vx_group_norm_device_args *args, enum vx_number type)
{
    const i32 width = args->c / args->groups;
    for (i32 sample = 0; sample < norm->count; sample++)
        for (i32 c = 0; c < args->cp; c++) {
            const i32 first = c / width * width;
            const i32 count = (norm->starts[sample + 1] - norm->starts[sample]) * width;
            long double mean = 0, variance = 1;
            if (c < args->c) {
                mean = norm_sum(norm, sample, first, width, NULL) / count;
                variance = norm_sum(norm, sample, first, width, &mean) / count;
            }
            for (i32 p = norm->starts[sample]; p < norm->starts[sample + 1]; p++) {
                const i64 at = norm->rows[p] * CP + c;
                f64 y = (f64)(((long double)norm->values[at] - mean) /
                              sqrtl(variance + (long double)args->eps));
                if (c < args->c && args->weight)
                    y = y * (f64)args->weight[c] + (f64)args->bias[c];
                if (c >= args->c || y < 0) y = 0;
                ck_assert_double_eq_tol(vx_number_ref_read(args->out, type, at), y,
                                        norm_bound(type, y));
            }
        }
}

START_TEST(test_group_norm)
{
    static const i32 shapes[][2] = {{20, 20}, {20, 5}, {20, 1}, {32, 8}, {1, 1}};
    const enum vx_number type = types[_i % TYPES];
    const i32 *shape = shapes[_i / TYPES];
    struct norm *norm = vx_alloc(sizeof *norm);
    void *in = vx_alloc((size_t)(ROWS * CP) * (size_t)vx_number_bytes(type));
    f32 weight[CP], bias[CP];
    norm_make(norm, type, in);
    for (i32 c = 0; c < CP; c++) weight[c] = (f32)(c % 5 + 1), bias[c] = (f32)(c % 3);
    struct vx_group_norm_device_args args = {.n = ROWS,
                                             .samples_max = 6,
                                             .c = shape[0],
                                             .cp = CP,
                                             .groups = shape[1],
                                             .activation = VX_ACTIVATION_RELU,
                                             .eps = 0.25f,
                                             .starts = norm->starts,
                                             .count = &norm->count,
                                             .rows = norm->rows,
                                             .in = in,
                                             .weight = _i % 3 ? weight : NULL,
                                             .bias = _i % 3 ? bias : NULL,
                                             .out = in};
    const size_t slots = (size_t)vx_sample_slots(args.n, args.samples_max);
    const size_t groups = (size_t)norm->count * (size_t)args.groups;
    args.partial = vx_alloc(slots * (size_t)args.c * sizeof(f64));
    args.mean = vx_alloc(groups * sizeof(f64));
    args.scale = vx_alloc(groups * sizeof(f64));
    norm_run(&args, type);
    norm_check(norm, &args, type);
    vx_free(args.partial);
    vx_free(args.mean);
    vx_free(args.scale);
    vx_free(in);
    vx_free(norm);
}
END_TEST

/* --- 27 --- */

static f64 pool_of(const struct norm *norm, i32 sample, i32 c, enum vx_pool_mode mode)
{
    long double sum = norm_sum(norm, sample, c, 1, NULL);
    i32 count = norm->starts[sample + 1] - norm->starts[sample];
    f64 most = -(f64)INFINITY;
    for (i32 p = norm->starts[sample]; p < norm->starts[sample + 1]; p++)
        most = fmax(most, norm->values[norm->rows[p] * CP + c]);
    if (mode == VX_POOL_MAX) return most;
    return (f64)(mode == VX_POOL_AVG ? sum / count : sum);
}

/* The samples go to rows in another order than their own.  A NaN in a chunk behind the first wins
 * over what is larger, and an average of it is NaN. */
START_TEST(test_sample_pool)
{
    static const i32 places[] = {2, 0, 3, 1};
    const enum vx_number type = types[_i % TYPES];
    const enum vx_pool_mode mode = (enum vx_pool_mode)(_i / TYPES);
    struct norm *norm = vx_alloc(sizeof *norm);
    void *in = vx_alloc((size_t)(ROWS * CP) * (size_t)vx_number_bytes(type));
    f32 out[5 * CP];
    norm_make(norm, type, in);
    vx_number_ref_write(in, type, norm->rows[300] * CP + 7, (f64)NAN);
    for (i32 e = 0; e < 5 * CP; e++) vx_number_ref_write(out, type, e, 99);
    struct vx_sample_pool_args args = {.n = ROWS,
                                       .samples_max = 6,
                                       .c = 20,
                                       .cp = CP,
                                       .mode = (i32)mode,
                                       .activation = VX_ACTIVATION_RELU,
                                       .starts = norm->starts,
                                       .count = &norm->count,
                                       .rows = norm->rows,
                                       .places = places,
                                       .in = in,
                                       .out = out};
    const size_t slots = (size_t)vx_sample_slots(args.n, args.samples_max);
    args.partial = vx_alloc(slots * (size_t)args.c * sizeof(f64));
    run("sample_chunks", &args, type);
    run("sample_pool", &args, type);
    for (i32 sample = 0; sample < 4; sample++)
        for (i32 c = 0; c < CP; c++) {
            f64 got = vx_number_ref_read(out, type, places[sample] * CP + c);
            f64 y = c < args.c ? pool_of(norm, sample, c, mode) : 0;
            if (sample == 0 && c == 7)
                ck_assert(isnan(got));
            else if (type == VX_NUMBER_F16 && y > 65504)
                ck_assert(isinf(got));
            else
                ck_assert_double_eq_tol(got, y, norm_bound(type, y));
        }
    for (i32 c = 0; c < CP; c++)
        ck_assert_double_eq(vx_number_ref_read(out, type, 4 * CP + c), 99);
    vx_free(args.partial);
    vx_free(in);
    vx_free(norm);
}
END_TEST

/* Samples of 1, 255, 256, 257 and 1000 rows one after the other, in many orders: each of their chunks
 * has one slot, no slot has two, and together they are all rows. */
START_TEST(test_chunks)
{
    static const i32 sizes[] = {1, 255, 256, 257, 1000, 511, 2};
    struct voxels_random random = {(u64)_i};
    i32 starts[41] = {0}, count = 40, covered = 0;
    for (i32 s = 0; s < count; s++)
        starts[s + 1] = starts[s] + sizes[voxels_between(&random, 0, 6)];
    const struct vx_group_norm_device_args args = {
        .n = starts[count], .samples_max = count, .starts = starts, .count = &count};
    const i64 slots = vx_sample_slots(args.n, args.samples_max);
    const struct vx_sample_rows rows = vx_group_norm_rows(&args);
    for (i64 slot = 0; slot < slots; slot++) {
        const struct vx_sample_part chunk = vx_sample_chunk(&rows, slot);
        if (chunk.begin >= chunk.end) continue;
        ck_assert_int_eq(chunk.begin, covered);
        ck_assert_int_ge(chunk.begin, starts[chunk.sample]);
        ck_assert_int_le(chunk.end, starts[chunk.sample + 1]);
        ck_assert_int_eq((chunk.begin - starts[chunk.sample]) % VX_SAMPLE_CHUNK, 0);
        ck_assert(chunk.end == starts[chunk.sample + 1] ||
                  chunk.end - chunk.begin == VX_SAMPLE_CHUNK);
        covered = (i32)chunk.end;
    }
    ck_assert_int_eq(covered, starts[count]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_samples");
    TCase *cases = tcase_create("kernels_samples");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_small, 0, VX_COUNT(orders));
    tcase_add_loop_test(cases, test_large, 0, VX_COUNT(orders));
    tcase_add_loop_test(cases, test_passes, 0, 8);
    tcase_add_loop_test(cases, test_starts, 0, 2);
    tcase_add_loop_test(cases, test_group_norm, 0, 5 * TYPES);
    tcase_add_loop_test(cases, test_sample_pool, 0, 3 * TYPES);
    tcase_add_loop_test(cases, test_chunks, 0, 20);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
