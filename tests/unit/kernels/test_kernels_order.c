/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/05_mask_order.h"
#include "kernels/08_pair_list.h"
#include "kernels/37_order_sweep.h"
#include "kernels/kernel.h"
#include "tests/support/trials.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The references of the sort and of lists of pairs against their definition: ranks as rows of
 * bits, compared from the top, with the row's number last. */

#define BITS_MAX 343

struct shape {
    i64 n;
    i32 v, groups;
    bool gray;
    i32 run; /* of the signature, 0 = by the masks */
};

/* The rank of a row: the key of the sort. */
struct rank {
    u8 bits[BITS_MAX + 1]; /* the highest first */
    i32 row;
};

static u32 random_mask(struct voxels_random *random, i32 kind)
{
    u32 any = (u32)voxels_next(random);
    if (kind == 0) return any;
    if (kind == 1) return any & (u32)voxels_next(random) & (u32)voxels_next(random);
    return kind == 2 ? 0xffffffffu : 1u << any % 32;
}

/* Many rows are alike, so that only the order of rows can tell them apart; bits behind V are 0. */
static u32 *masks_make(const struct shape *shape, i32 words)
{
    struct voxels_random random = {(u64)shape->v * 31 + (u64)shape->n};
    u32 *masks = vx_alloc_zero((size_t)(shape->n * words + 1) * sizeof *masks);
    for (i64 i = 0; i < shape->n; i++) {
        i32 kind = voxels_between(&random, 0, 4);
        i64 like = kind == 4 && i ? voxels_between(&random, 0, (i32)i - 1) : i;
        for (i32 w = 0; w < words; w++) {
            u32 mask = like < i ? masks[like * words + w] : random_mask(&random, kind);
            i32 left = shape->v - w * 32;
            masks[i * words + w] = left < 32 ? mask & ((1u << left) - 1) : mask;
        }
    }
    return masks;
}

static bool mask_has(const u32 *masks, i32 words, i64 row, i32 v)
{
    return masks[row * words + v / 32] >> (v % 32) & 1u;
}

static int rank_compare(const void *one, const void *other)
{
    const struct rank *a = one, *b = other;
    int bits = memcmp(a->bits, b->bits, sizeof a->bits);
    if (bits) return bits;
    return (a->row > b->row) - (a->row < b->row);
}

/* Of 3^3: the sets of offsets of which a rank says whether a row has any, the highest bit first;
 * 'a' is offset 0, and '{' is offset 26. */
static const char *const cube_sets[27] = {
    "abcjklstu", "cfilorux{", "adgjmpsvy", "ghipqryz{", "stuvwxyz{", "abc", "dg",
    "ef",        "h",         "hqz",       "mv",        "jr",        "k",   "w",
    "i",         "o",         "t",         "lp",        "bz",        "dx",  "m",
    "gu",        "be",        "fv",        "s",         "cy",        "q"};
/* Of many rows: planes, then single offsets. */
static const char *const cube_planes[32] = {
    "stuvwxyz{", "abcdefghi", "ghipqryz{", "abcjklstu", "cfilorux{", "adgjmpsvy", "{",
    "z",         "y",         "x",         "w",         "v",         "u",         "t",
    "s",         "r",         "q",         "p",         "o",         "m",         "l",
    "k",         "j",         "i",         "h",         "g",         "f",         "e",
    "d",         "c",         "b",         "a"};

static i32 ranked_bits(const struct vx_mask_order_args *args)
{
    if (args->run && args->bits == 27)
        return args->n <= 131072 ? 18 : args->n <= 524288 ? 27 : 32;
    return args->run ? (args->bits + args->run - 1) / args->run : args->bits;
}

/* Bit k of what a row is ranked by: of 3^3 a set, else whether it has any of the k-th run. */
static bool ranked_has(const struct vx_mask_order_args *args, i32 group, i64 row, i32 k)
{
    const u32 *masks = args->masks;
    bool any = false;
    if (!args->run) return mask_has(masks, args->words, row, group * args->bits + k);
    if (args->bits == 27) {
        const i32 at = ranked_bits(args) - 1 - k;
        const char *set = args->n > 524288 ? cube_planes[at] : cube_sets[at];
        for (; *set; set++) any |= mask_has(masks, args->words, row, *set - 'a');
        return any;
    }
    for (i32 v = k * args->run; v < (k + 1) * args->run && v < args->bits; v++)
        any |= mask_has(masks, args->words, row, v);
    return any;
}

/* Bit k of the Gray rank: whether an odd number of the bits from k up are set. */
static struct rank *ranks_make(const struct shape *shape,
                               const struct vx_mask_order_args *args, i32 group)
{
    struct rank *ranks = vx_alloc_zero((size_t)(shape->n + 1) * sizeof *ranks);
    for (i64 i = 0; i < shape->n; i++) {
        ranks[i].row = (i32)i;
        for (i32 k = 0; k < ranked_bits(args); k++) {
            i32 ones = 0;
            for (i32 above = k; above < ranked_bits(args); above++)
                if (above == k || shape->gray) ones += ranked_has(args, group, i, above);
            ranks[i].bits[ranked_bits(args) - 1 - k] = ones % 2 ? 1 : 0;
        }
    }
    return ranks;
}

static struct vx_mask_order_args args_make(const struct shape *shape)
{
    struct vx_mask_order_args args = {.n = shape->n,
                                      .words = (shape->v + 31) / 32,
                                      .bits = shape->v / shape->groups,
                                      .run = shape->run,
                                      .groups = shape->groups,
                                      .gray = shape->gray};
    args.tiles = (shape->n + VX_ORDER_TILE - 1) / VX_ORDER_TILE;
    args.masks = masks_make(shape, args.words);
    return args;
}

static size_t rows_bytes(const struct vx_mask_order_args *args)
{
    return (size_t)(args->groups * args->n + 1) * 4;
}

static size_t blocks_count(const struct vx_mask_order_args *args)
{
    return (size_t)(args->groups * ((args->n + 31) / 32) * args->words);
}

/* rows_out of all groups, by definition. */
static void check_order(const struct shape *shape, const struct vx_mask_order_args *args)
{
    for (i32 group = 0; group < args->groups; group++) {
        struct rank *ranks = ranks_make(shape, args, group);
        qsort(ranks, (size_t)shape->n, sizeof *ranks, rank_compare);
        for (i64 i = 0; i < shape->n; i++)
            if (args->rows_out[group * args->n + i] != ranks[i].row)
                ck_abort_msg("group %d place %d: expected row %d, got %d", group, (int)i,
                             ranks[i].row, args->rows_out[group * args->n + i]);
        vx_free(ranks);
    }
}

/* Of every 32 rows in the order of `order` (NULL: as they are) which offsets of the group any has;
 * the words behind the last block are left alone. */
static void check_blocks(const struct shape *shape, const struct vx_mask_order_args *args,
                         const i32 *order)
{
    const i64 blocks = (args->n + 31) / 32;
    for (i32 group = 0; group < args->groups; group++)
        for (i64 block = 0; block < blocks; block++)
            for (i32 v = 0; v < args->words * 32; v++) {
                bool there = false;
                for (i64 i = 32 * block; i < 32 * block + 32 && i < args->n; i++)
                    there |= v < shape->v && v / args->bits == group &&
                             mask_has(args->masks, args->words,
                                      order ? order[group * args->n + i] : i, v);
                i64 at = (group * blocks + block) * args->words + v / 32;
                if ((args->block_masks[at] >> v % 32 & 1u) != there)
                    ck_abort_msg("group %d block %d offset %d: expected %d", group,
                                 (int)block, v, there);
            }
    ck_assert_uint_eq(args->block_masks[blocks_count(args)], 0x55555555);
}

static u32 *poisoned(size_t words)
{
    u32 *made = vx_alloc((words + 1) * 4);
    memset(made, 0x55, (words + 1) * 4);
    return made;
}

static void run(const char *name, const void *args)
{
    const struct vx_kernel_spec *spec = vx_kernel_find(name);
    ck_assert_ptr_nonnull(spec);
    spec->ref(args, VX_NUMBER_F32);
}

static const struct shape small_shapes[] = {
    {0, 27, 1, true, 0},     {1, 27, 3, false, 0},   {33, 1, 1, true, 0},
    {32, 27, 1, true, 0},    {100, 27, 1, false, 0}, {257, 27, 9, true, 0},
    {96, 125, 1, true, 0},   {64, 125, 25, true, 0}, {150, 343, 1, true, 0},
    {150, 343, 7, false, 0}, {70, 343, 49, true, 0}, {40, 32, 1, true, 0},
    {65, 33, 1, true, 0},    {300, 9, 1, true, 0},   {300, 64, 2, true, 0},
    {257, 27, 1, true, 3},   {120, 27, 1, false, 3}, {150, 125, 1, true, 5},
    {90, 343, 1, true, 13},
};

START_TEST(test_small)
{
    const struct shape *shape = &small_shapes[_i];
    struct vx_mask_order_args args = args_make(shape);
    args.rows_out = vx_alloc(rows_bytes(&args));
    args.block_masks = poisoned(blocks_count(&args));
    run("order_small", &args);
    check_order(shape, &args);
    check_blocks(shape, &args, args.rows_out);
    /* Rows as they are: no order. */
    u32 *plain = args.block_masks;
    memset(plain, 0x55, blocks_count(&args) * 4);
    run("order_blocks", &args);
    check_blocks(shape, &args, NULL);
    vx_free(plain);
    vx_free(args.rows_out);
    vx_free((void *)args.masks);
}
END_TEST

/* By hand: masks of three bits.  The Gray code counts 000 001 011 010 110 111 101 100. */
START_TEST(test_gray_by_hand)
{
    static const u32 masks[] = {4, 5, 7, 6, 2, 3, 1, 0, 2};
    static const i32 gray[] = {7, 6, 5, 4, 8, 3, 2, 1, 0};
    static const i32 plain[] = {7, 6, 4, 8, 5, 0, 1, 3, 2};
    i32 rows[9];
    u32 blocks[1];
    struct vx_mask_order_args args = {.n = 9,
                                      .tiles = 1,
                                      .words = 1,
                                      .bits = 3,
                                      .groups = 1,
                                      .gray = true,
                                      .masks = masks,
                                      .rows_out = rows,
                                      .block_masks = blocks};
    run("order_small", &args);
    ck_assert(!memcmp(rows, gray, sizeof rows));
    args.gray = false;
    run("order_small", &args);
    ck_assert(!memcmp(rows, plain, sizeof rows));
    ck_assert_uint_eq(blocks[0], 7);
}
END_TEST

/* The more rows the more sets. */
START_TEST(test_sets_of_a_cube)
{
    static const i64 rows[] = {1, 131072, 131073, 524288, 524289, INT64_C(1) << 30};
    struct voxels_random random = {9};
    for (i32 i = 0; i < 1000; i++) {
        u32 mask = 1u << i % 27 | (i < 27 ? 0 : random_mask(&random, i % 4) & 0x7ffffffu);
        const struct vx_mask_order_args args = {
            .n = rows[i % 6], .words = 1, .bits = 27, .run = 3, .masks = &mask};
        u32 left = vx_order_signature(&mask, 27, 3, args.n);
        ck_assert_int_eq(vx_order_rank_bits(27, 3, args.n), ranked_bits(&args));
        for (i32 k = 0; k < ranked_bits(&args); k++)
            left ^= (u32)ranked_has(&args, 0, 0, k) << k;
        ck_assert_uint_eq(left, 0);
    }
}
END_TEST

/* --- the large sort, pass by pass --- */

/* The part of the rank of the row at a place that is the key. */
static u32 key_of(const struct vx_mask_order_args *args, const struct rank *ranks,
                  i32 group, i64 place)
{
    const i64 row = args->rows_in ? args->rows_in[group * args->n + place] : place;
    u32 key = 0;
    for (i32 bit = args->key_bits - 1; bit >= 0; bit--)
        key = key * 2 + ranks[row].bits[ranked_bits(args) - 1 - args->key_low - bit];
    return key;
}

/* Keys in the order of the places, and how many rows have each digit. */
static void check_digits(const struct shape *shape,
                         const struct vx_order_digits_args *args)
{
    const struct vx_mask_order_args *sort = &args->sort;
    for (i32 group = 0; group < sort->groups; group++) {
        u32 expected[VX_SWEEP_DIGITS][VX_ORDER_BINS] = {0};
        struct rank *ranks = ranks_make(shape, sort, group);
        for (i64 place = 0; place < sort->n; place++) {
            const u32 key = key_of(sort, ranks, group, place);
            ck_assert_uint_eq(sort->keys_out[group * sort->n + place], key);
            for (i32 d = 0; d < args->digits; d++)
                expected[d][key >> args->shifts[d] & ((1u << args->bits[d]) - 1)]++;
        }
        for (i32 d = 0; d < args->digits; d++)
            ck_assert_mem_eq(sort->totals + (d * sort->groups + group) * VX_ORDER_BINS,
                             expected[d], sizeof expected[d]);
        vx_free(ranks);
    }
}

struct buffers {
    u32 *keys[2];
    i32 *rows[2];
};

/* The passes of a key: its digits are counted, then it is swept by one after the other.  *index:
 * passes so far. */
static void key_passes(const struct shape *shape, struct vx_mask_order_args *args,
                       i32 digit_bits, const struct buffers *buffers, i32 *index)
{
    const i64 words = args->groups * vx_sweep_layout_of(args->tiles).words;
    struct vx_order_digits_args digits = {.sort = *args};
    digits.sort.rows_in = *index ? buffers->rows[(*index + 1) % 2] : NULL;
    digits.sort.keys_in = NULL;
    digits.sort.keys_out = buffers->keys[(*index + 1) % 2];
    for (i32 shift = 0; shift < args->key_bits; shift += digit_bits) {
        const i32 left = args->key_bits - shift;
        digits.shifts[digits.digits] = shift;
        digits.bits[digits.digits++] = left < digit_bits ? left : digit_bits;
    }
    digits.sort.counts = poisoned((size_t)(digits.digits * words));
    digits.sort.totals =
        poisoned((size_t)digits.digits * (size_t)args->groups * VX_ORDER_BINS);
    run("order_clear", &digits);
    run("order_digits", &digits);
    check_digits(shape, &digits);
    for (i32 d = 0; d < digits.digits; d++, ++*index) {
        args->shift = digits.shifts[d];
        args->digit_bits = digits.bits[d];
        args->rows_in = *index ? buffers->rows[(*index + 1) % 2] : NULL;
        args->rows_out = buffers->rows[*index % 2];
        args->keys_in = buffers->keys[(*index + 1) % 2];
        args->keys_out = buffers->keys[*index % 2];
        args->counts = digits.sort.counts + d * words;
        args->totals = digits.sort.totals + d * args->groups * VX_ORDER_BINS;
        run("order_sweep", args);
    }
    vx_free(digits.sort.counts);
    vx_free(digits.sort.totals);
}

static const struct {
    struct shape shape;
    i32 key_bits, digit_bits;
} large_shapes[] = {
    {{5000, 27, 1, true, 0}, 27, 9},   {{4097, 27, 3, false, 0}, 9, 9},
    {{2049, 27, 9, true, 0}, 3, 3},    {{300, 125, 1, true, 0}, 27, 9},
    {{200, 343, 1, false, 0}, 27, 9},  {{2500, 32, 1, true, 0}, 32, 8},
    {{1, 27, 1, true, 0}, 27, 9},      {{130, 70, 2, true, 0}, 28, 7},
    {{5000, 27, 1, true, 3}, 18, 9},   {{300, 125, 1, true, 5}, 25, 9},
    {{200, 343, 1, false, 13}, 27, 9}, {{131072, 27, 1, true, 3}, 18, 9},
    {{131073, 27, 1, true, 3}, 27, 9},
};

START_TEST(test_large)
{
    const struct shape *shape = &large_shapes[_i].shape;
    struct vx_mask_order_args args = args_make(shape);
    const size_t bytes = rows_bytes(&args);
    const struct buffers buffers = {{vx_alloc(bytes), vx_alloc(bytes)},
                                    {vx_alloc(bytes), vx_alloc(bytes)}};
    const i32 key_bits = large_shapes[_i].key_bits,
              digit_bits = large_shapes[_i].digit_bits;
    i32 index = 0;
    const i32 bits = ranked_bits(&args);
    for (args.key_low = 0; args.key_low < bits; args.key_low += key_bits) {
        const i32 left = bits - args.key_low;
        args.key_bits = left < key_bits ? left : key_bits;
        key_passes(shape, &args, digit_bits, &buffers, &index);
    }
    check_order(shape, &args);
    /* Block masks from the rows, and from the last keys where a key holds all bits. */
    args.rows_in = args.rows_out;
    args.block_masks = poisoned(blocks_count(&args));
    args.keys_in = NULL;
    run("order_blocks", &args);
    check_blocks(shape, &args, args.rows_out);
    if (args.bits <= key_bits && !args.run) {
        args.keys_in = args.keys_out;
        memset(args.block_masks, 0x55, blocks_count(&args) * 4);
        run("order_blocks", &args);
        check_blocks(shape, &args, args.rows_out);
    }
    for (int b = 0; b < 2; b++) {
        vx_free(buffers.keys[b]);
        vx_free(buffers.rows[b]);
    }
    vx_free(args.block_masks);
    vx_free((void *)args.masks);
}
END_TEST

START_TEST(test_scan_by_hand)
{
    u32 counts[] = {3, 0, 5, 7, 7, 7}, totals[2] = {99, 99};
    static const u32 before[] = {0, 3, 3, 0, 7, 14};
    run("count_scan", &(struct vx_count_scan_args){2, 3, counts, totals});
    ck_assert(!memcmp(counts, before, sizeof counts));
    ck_assert_uint_eq(totals[0], 8);
    ck_assert_uint_eq(totals[1], 21);
}
END_TEST

/* --- pairs --- */

START_TEST(test_pairs)
{
    static const i32 shapes[][2] = {{1, 27}, {256, 1},   {257, 27}, {600, 125},
                                    {0, 27}, {300, 343}, {513, 4}};
    struct voxels_random random = {77};
    const i32 n = shapes[_i][0], v_count = shapes[_i][1], stride = (v_count + 3) / 4 * 4;
    const i64 tiles = (n + VX_PAIRS_TILE - 1) / VX_PAIRS_TILE;
    const size_t entries = (size_t)n * (size_t)stride;
    i32 *nbr = vx_alloc((entries + 1) * 4);
    for (size_t e = 0; e < entries; e++)
        nbr[e] = (i32)e % stride < v_count && voxels_between(&random, 0, 2)
                     ? voxels_between(&random, 0, n - 1)
                     : -1;
    struct vx_pair_list_args args = {.n = n,
                                     .tiles = tiles,
                                     .v = v_count,
                                     .nbr_stride = stride,
                                     .nbr = nbr,
                                     .counts = poisoned((size_t)(v_count * tiles)),
                                     .starts = (i32 *)poisoned((size_t)v_count + 1),
                                     .in_rows = (i32 *)poisoned(entries),
                                     .places = (i32 *)poisoned(entries)};
    u32 *totals = poisoned((size_t)v_count);
    run("pairs_count", &args);
    run("count_scan", &(struct vx_count_scan_args){v_count, tiles, args.counts, totals});
    args.totals = totals;
    run("pairs_write", &args);
    i32 pair = 0;
    for (i32 v = 0; v < v_count; v++) {
        ck_assert_int_eq(args.starts[v], pair);
        for (i32 i = 0; i < n; i++) {
            i32 there = nbr[i * stride + v];
            ck_assert_int_eq(args.places[i * stride + v], there < 0 ? -1 : pair);
            if (there >= 0) ck_assert_int_eq(args.in_rows[pair++], there);
        }
    }
    ck_assert_int_eq(args.starts[v_count], pair);
    ck_assert_int_eq(args.in_rows[pair], 0x55555555); /* no pair more */
    for (i32 i = 0; i < n; i++)
        for (i32 v = v_count; v < stride; v++)
            ck_assert_int_eq(args.places[i * stride + v], -1);
    vx_free(nbr);
    vx_free(totals);
    vx_free(args.counts);
    vx_free(args.starts);
    vx_free(args.in_rows);
    vx_free(args.places);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_order");
    TCase *cases = tcase_create("kernels_order");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_small, 0, VX_COUNT(small_shapes));
    tcase_add_test(cases, test_gray_by_hand);
    tcase_add_test(cases, test_sets_of_a_cube);
    /* The last two have 131,072 rows: not under a sanitizer. */
    tcase_add_loop_test(cases, test_large, 0,
                        (int)VX_COUNT(large_shapes) - VX_TRIALS(0, 2));
    tcase_add_test(cases, test_scan_by_hand);
    tcase_add_loop_test(cases, test_pairs, 0, 7);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
