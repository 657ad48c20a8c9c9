/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/01_coord_hash.h"
#include "kernels/02_neighbor_map.h"
#include "kernels/03_brick_index.h"
#include "kernels/04_conv_explicit.h"
#include "kernels/11_linear.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/15_geometry_join.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The references are the oracles of everything else; here they are compared with all pairs,
 * with values worked out by hand, and with each other. */

#define ROWS_MAX 600
#define SLOTS    2048

static struct vx_coord_hash_args hash_of(const i32 *coords, i64 n, i32 columns)
{
    static u64 keys[ROWS_MAX], slots_key[SLOTS];
    static i32 slots_row[SLOTS];
    struct vx_coord_hash_args args = {.n = n,
                                      .columns = columns,
                                      .coords = coords,
                                      .slots_count = SLOTS,
                                      .keys = keys,
                                      .slots_key = slots_key,
                                      .slots_row = slots_row};
    vx_coord_hash_ref(&args);
    return args;
}

START_TEST(test_keys)
{
    static const i32 rows[][4] = {{0, 0, 0, 0},
                                  {511, 131071, 131071, 131071},
                                  {0, -131072, -131072, -131072},
                                  {3, -1, 2, -3}};
    const i32 *row = rows[_i];
    u64 key = vx_key_pack(row[0], row[1], row[2], row[3]);
    ck_assert_int_eq(vx_key_sample(key), row[0]);
    for (int axis = 0; axis < 3; axis++)
        ck_assert_int_eq(vx_key_axis(key, axis), row[axis + 1]);
    ck_assert_uint_eq(key >> 63, 0);
    /* Keys sort by sample, x, y, z. */
    if (row[3] < 131071)
        ck_assert(vx_key_pack(row[0], row[1], row[2], row[3] + 1) == key + 1);
    if (row[0] < 511) ck_assert(vx_key_pack(row[0] + 1, -131072, -131072, -131072) > key);
}
END_TEST

START_TEST(test_hash)
{
    static i32 coords[ROWS_MAX * 4];
    struct voxels_random random = {5};
    voxels_scan(&random, ROWS_MAX, coords);
    struct vx_coord_hash_args hash = hash_of(coords, ROWS_MAX, 4);
    ck_assert_int_eq(hash.bad_row, -1);
    ck_assert_int_eq(hash.second, -1);
    for (i32 i = 0; i < ROWS_MAX; i++)
        ck_assert_int_eq(
            vx_coord_hash_find(hash.slots_key, hash.slots_row, SLOTS, hash.keys[i]), i);
    ck_assert_int_eq(vx_coord_hash_find(hash.slots_key, hash.slots_row, SLOTS,
                                        vx_key_pack(9, 1, 2, 3)),
                     -1);
    memcpy(coords + 400 * 4, coords + 7 * 4, 16);
    memcpy(coords + 300 * 4, coords + 299 * 4, 16);
    hash = hash_of(coords, ROWS_MAX, 4);
    ck_assert_int_eq(hash.first, 299);
    ck_assert_int_eq(hash.second, 300);
    coords[17 * 4 + 2] = 131072;
    coords[17 * 4 + 3] = -131073;
    coords[20 * 4] = -1;
    hash = hash_of(coords, ROWS_MAX, 4);
    ck_assert_int_eq(hash.bad_row, 17);
    ck_assert_int_eq(hash.bad_column, 2);
}
END_TEST

START_TEST(test_map_against_all_pairs)
{
    static const i32 cases[][6] = {{3, 3, 3, 1, 1, 1}, {1, 1, 1, 1, 1, 1},
                                   {3, 1, 1, 1, 1, 1}, {7, 7, 7, 1, 1, 1},
                                   {3, 3, 3, 3, 2, 1}, {1, 5, 3, 1, 1, 4}};
    static i32 coords[ROWS_MAX * 4];
    i64 n = 192;
    struct voxels_random random = {6};
    if (_i % 2)
        voxels_scan(&random, n = 300, coords);
    else
        voxels_shell(8, coords);
    for (i64 i = 0; i < n; i++) coords[i * 4] = (i32)(i * 2 / n); /* two samples */
    if (_i % 2 == 0) /* at the end of the range, so that nothing may wrap */
        for (i64 i = 0; i < n; i++) coords[i * 4 + 3] += 131071 - 7;
    struct vx_coord_hash_args hash = hash_of(coords, n, 4);
    struct vx_neighbor_map_args args = {.keys = hash.keys,
                                        .slots_key = hash.slots_key,
                                        .slots_row = hash.slots_row,
                                        .slots_count = SLOTS,
                                        .n = n};
    memcpy(args.kernel, cases[_i], sizeof args.kernel);
    memcpy(args.dilation, cases[_i] + 3, sizeof args.dilation);
    i32 v_count = args.kernel[0] * args.kernel[1] * args.kernel[2];
    args.nbr = vx_alloc((size_t)(v_count * n) * sizeof *args.nbr);
    vx_neighbor_map_ref(&args);
    i64 found = 0;
    for (i32 v = 0; v < v_count; v++) {
        i32 k[3] = {v / (args.kernel[1] * args.kernel[2]),
                    v / args.kernel[2] % args.kernel[1], v % args.kernel[2]};
        for (i64 i = 0; i < n; i++) {
            i32 expected = -1;
            for (i64 j = 0; j < n; j++) {
                bool same = coords[i * 4] == coords[j * 4];
                for (int axis = 0; axis < 3; axis++)
                    same &= coords[j * 4 + axis + 1] - coords[i * 4 + axis + 1] ==
                            (k[axis] - args.kernel[axis] / 2) * args.dilation[axis];
                if (same) expected = (i32)j;
            }
            found += expected >= 0;
            if (args.nbr[v * n + i] != expected)
                ck_abort_msg("offset %d row %d: expected %d, got %d", v, (int)i, expected,
                             args.nbr[v * n + i]);
        }
    }
    ck_assert_int_ge(found, n); /* every voxel is its own neighbour */
    vx_free(args.nbr);
}
END_TEST

/* Bricks that all begin in one group of slots under one seed, chosen as an attacker who knows
 * the seed would choose them, are spread by another seed. */
START_TEST(test_brick_places_need_the_seed)
{
    enum { SLOTS_COUNT = 1 << 14, WANTED = 200 };
    static const u64 known = 0x1234567890abcdefull, secret = 0x0fedcba987654321ull;
    static i32 met[SLOTS_COUNT / VX_BRICK_GROUP];
    i32 found = 0, most = 0;
    for (i32 x = 0; found < WANTED; x++)
        for (i32 y = 0; y < 1024 && found < WANTED; y++) {
            u64 key = vx_brick_key(0, 8 * x, 8 * y, 0);
            ck_assert_uint_ne(key, 0);
            if (vx_brick_way(key, SLOTS_COUNT, known).start / VX_BRICK_GROUP != 77)
                continue;
            i32 *here =
                &met[vx_brick_way(key, SLOTS_COUNT, secret).start / VX_BRICK_GROUP];
            if (++*here > most) most = *here;
            found++;
        }
    /* 200 bricks in 2,048 groups at random: four in one group happen once in about 10^4 tries, six
     * practically never. */
    ck_assert_int_le(most, 5);
}
END_TEST

START_TEST(test_activations_by_hand)
{
    static const struct {
        enum vx_activation activation;
        f64 x, y;
    } cases[] = {
        {VX_ACTIVATION_NONE, -3.5, -3.5},
        {VX_ACTIVATION_RELU, -1, 0},
        {VX_ACTIVATION_RELU, 2, 2},
        {VX_ACTIVATION_SIGMOID, 0, 0.5},
        {VX_ACTIVATION_SIGMOID, 1, 0.731058578630004879},
        {VX_ACTIVATION_SIGMOID, -40, 4.24835425529158854e-18},
        {VX_ACTIVATION_SILU, 1, 0.731058578630004879},
        {VX_ACTIVATION_SILU, -2, -0.238405844044234985},
        {VX_ACTIVATION_GELU, 1, 0.841344746068542949},
        {VX_ACTIVATION_GELU, -1, -0.158655253931457051},
        {VX_ACTIVATION_GELU, -6, -5.91952587022618884e-9},
        {VX_ACTIVATION_GELU, 0, 0},
    };
    f64 y = vx_activation_ref_one(cases[_i].activation, cases[_i].x);
    ck_assert_double_eq_tol(y, cases[_i].y, 1e-12 * fabs(cases[_i].y) + 1e-300);
}
END_TEST

START_TEST(test_conv_by_hand)
{
    /* Two rows, three offsets along one axis: row 1 stands after row 0. */
    static const i32 nbr[] = {-1, 0, 0, 1, 1, -1};
    static const f32 in[] = {1, 2, 3, 4}; /* (2, 2) */
    static const f32 weight[] = {1, 0, 0, 1, 10, 0, 0, 10, 100, 0, 0, 100};
    static const f32 bias[] = {0.5f, -1000};
    f32 out[4];
    struct vx_conv_args args = {
        2, 3, 2, 2, 0, nbr, in, weight, bias, VX_ACTIVATION_NONE, out, 0, 0};
    vx_conv_explicit_ref(&args);
    /* row 0: itself 10 x and row 1 100 x; row 1: row 0 1 x and itself 10 x */
    static const f32 expected[] = {310.5f, -580, 31.5f, -958};
    ck_assert_mem_eq(out, expected, sizeof out);
    args.bias = NULL;
    args.activation = VX_ACTIVATION_RELU;
    vx_conv_explicit_ref(&args);
    static const f32 without[] = {310, 420, 31, 42};
    ck_assert_mem_eq(out, without, sizeof out);
    /* One offset that finds each row itself is a linear layer. */
    static const i32 self[] = {0, 1};
    f32 linear_out[4];
    args = (struct vx_conv_args){
        2, 1, 2, 2, 0, self, in, weight + 2, bias, VX_ACTIVATION_SILU, out, 0, 0};
    vx_conv_explicit_ref(&args);
    const struct vx_linear_args linear = {
        2, 2, 2, in, weight + 2, bias, VX_ACTIVATION_SILU, linear_out, 0, 0};
    vx_linear_ref(&linear);
    ck_assert_mem_eq(out, linear_out, sizeof out);
}
END_TEST

START_TEST(test_norms_by_hand)
{
    static const f32 in[] = {1, 3, -1, 5};
    static const f32 scale[] = {2, -1};
    static const f32 shift[] = {0.5f, 4};
    f32 out[4];
    const struct vx_batch_norm_args batch = {2,   2, in, scale, shift, VX_ACTIVATION_RELU,
                                             out, 0, 0};
    vx_batch_norm_ref(&batch);
    static const f32 batch_expected[] = {2.5f, 1, 0, 0};
    ck_assert_mem_eq(out, batch_expected, sizeof out);
    /* Rows (1, 3) and (-1, 5) have deviations 1 and 3 around 2: both become (-1, 1). */
    const struct vx_layer_norm_args layer = {
        2, 2, 0, in, scale, shift, VX_ACTIVATION_NONE, out, 0, 0};
    vx_layer_norm_ref(&layer);
    static const f32 layer_expected[] = {-1.5f, 3, -1.5f, 3};
    ck_assert_mem_eq(out, layer_expected, sizeof out);
}
END_TEST

START_TEST(test_elementwise_by_hand)
{
    static const f32 a[] = {1, 2, 3, 4};
    static const f32 b[] = {-1, -3, 5, 0.5f};
    f32 out[6];
    const struct vx_pair_args add = {2, 2, a, b, VX_ACTIVATION_RELU, out, 0, 0, 0};
    vx_add_ref(&add);
    static const f32 sums[] = {0, 0, 8, 4.5f};
    ck_assert_mem_eq(out, sums, sizeof sums);
    const struct vx_concat_args concat = {
        .n = 2, .inputs = {{a, 1, 0}, {b, 2, 0}}, .inputs_count = 2, .out = out};
    vx_concat_ref(&concat);
    static const f32 joined[] = {1, -1, -3, 2, 5, 0.5f};
    ck_assert_mem_eq(out, joined, sizeof joined);
}
END_TEST

/* To F32 and back is the same 16 bits for every number; NaN comes back quiet. */
START_TEST(test_convert_round_trip)
{
    enum vx_number type = _i ? VX_NUMBER_BF16 : VX_NUMBER_F16;
    u16 quiet = _i ? 0x0040 : 0x0200;
    u16 infinity = _i ? 0x7f80 : 0x7c00;
    for (u32 e = 0; e < 65536; e++) {
        u16 from = (u16)e;
        u16 back;
        f32 wide;
        vx_convert_ref(&(struct vx_convert_args){1, type, &from, VX_NUMBER_F32, &wide});
        vx_convert_ref(&(struct vx_convert_args){1, VX_NUMBER_F32, &wide, type, &back});
        bool is_nan = (from & 0x7fff) > infinity;
        u16 expected = is_nan ? from | quiet : from;
        if (back != expected || isnan(wide) != is_nan)
            ck_abort_msg("%04x came back as %04x through %g", from, back, (f64)wide);
    }
}
END_TEST

/* Two pieces of 2 and 3 rows: the row numbers of the second are 2 higher in the join; where
 * they name rows of another set, 7 higher. */
START_TEST(test_join_by_hand)
{
    static const i32 rows0[] = {1, 0}, rows1[] = {2, 0, 1};
    static const i32 nbr0[] = {0, 1, -1, -1, -1, 0, 1, -1};
    static const i32 nbr1[] = {-1, 0, 2, -1, 1, -1, 0, -1, 2, 2, -1, -1};
    static const u32 masks0[] = {3, 6}, masks1[] = {6, 5, 3};
    static const i32 rows_whole[] = {1, 0, 4, 2, 3};
    static const i32 nbr_whole[] = {0, 1,  -1, -1, -1, 0,  1, -1, -1, 2,
                                    4, -1, 3,  -1, 2,  -1, 4, 4,  -1, -1};
    static const u32 masks_whole[] = {3, 6, 6, 5, 3};
    const struct vx_join_rows_piece row_pieces[] = {{2, 0, rows0}, {3, 2, rows1}};
    const struct vx_join_map_piece map_pieces[] = {{2, 0, 0, nbr0, masks0},
                                                   {3, 2, 2, nbr1, masks1}};
    const struct vx_join_map_piece other_pieces[] = {{2, 0, 0, nbr0, masks0},
                                                     {3, 2, 7, nbr1, masks1}};
    i32 rows[5], nbr[20];
    u32 masks[5];
    vx_join_rows_ref(
        &(struct vx_join_rows_args){.count = 2, .pieces = row_pieces, .rows = rows});
    ck_assert(!memcmp(rows, rows_whole, sizeof rows));
    vx_join_map_ref(&(struct vx_join_map_args){.count = 2,
                                               .nbr_stride = 4,
                                               .words = 1,
                                               .pieces = map_pieces,
                                               .nbr = nbr,
                                               .masks = masks});
    ck_assert(!memcmp(nbr, nbr_whole, sizeof nbr));
    ck_assert(!memcmp(masks, masks_whole, sizeof masks));
    vx_join_map_ref(&(struct vx_join_map_args){
        .count = 2, .nbr_stride = 4, .pieces = other_pieces, .nbr = nbr});
    for (i32 i = 0; i < 20; i++)
        ck_assert_int_eq(nbr[i], nbr_whole[i] + (i >= 8 && nbr_whole[i] >= 0 ? 5 : 0));
}
END_TEST

START_TEST(test_pieces_told_by_hand)
{
    static const u32 a[] = {7, 8, 9}, b[] = {7, 8, 9}, c[] = {7, 8, 10};
    static const u32 fault[2] = {0, 1};
    static const u64 many = (u64)5 << 40, few = 3;
    const u64 *counts[] = {&few, NULL, &many, NULL, NULL, &few}; /* three maps each */
    u32 differs[2] = {77, 77};
    struct vx_words_pair pairs[] = {{.n = 3, .a = a, .b = b, .differs = &differs[0]},
                                    {.n = 3, .a = a, .b = c, .differs = &differs[1]}};
    const struct vx_piece_places places[] = {{fault, NULL}, {NULL, &differs[1]}};
    struct vx_piece_result results[2];
    vx_words_differ_ref(&(struct vx_words_differ_args){.count = 2, .pairs = pairs});
    ck_assert_uint_eq(differs[0], 0);
    ck_assert_uint_eq(differs[1], 1);
    u64 each[7] = {1, 1, 1, 1, 1, 1, 1};
    vx_piece_results_ref(
        &(struct vx_piece_results_args){2, 3, places, counts, results, each});
    const u64 one_by_one[7] = {few, 0, many, 0, 0, few, 1};
    ck_assert_mem_eq(each, one_by_one, sizeof each);
    ck_assert_uint_eq(results[0].fault[0], 0);
    ck_assert_uint_eq(results[0].fault[1], 1);
    ck_assert_uint_eq(results[0].differs, 0);
    ck_assert_uint_eq(results[0].pairs, many + few);
    ck_assert_uint_eq(results[1].fault[0] | results[1].fault[1], 0);
    ck_assert_uint_eq(results[1].differs, 1);
    ck_assert_uint_eq(results[1].pairs, few);
    vx_piece_results_ref(&(struct vx_piece_results_args){
        .count = 2, .places = places, .results = results});
    ck_assert_uint_eq(results[0].pairs, 0);
}
END_TEST

/* A difference at any place is found, and only inside the words that are compared; the device's
 * own data about its blocks is not checked. */
START_TEST(test_words_differ)
{
    u32 a[9], b[9], differs[2];
    for (u32 i = 0; i < 9; i++) a[i] = b[i] = 1000 * i;
    for (i64 n = 1; n <= 8; n++)
        for (i64 at = 0; at < 9; at++) {
            struct vx_words_pair pairs[2] = {{n, a, b, &differs[0], 0},
                                             {n, a, a, &differs[1], 0}};
            differs[0] = differs[1] = 7;
            b[at] ^= 0x80000000u;
            vx_words_differ_ref(
                &(struct vx_words_differ_args){.count = 2, .pairs = pairs});
            b[at] ^= 0x80000000u;
            ck_assert_uint_eq(differs[0], at < n);
            ck_assert_uint_eq(differs[1], 0);
        }
}
END_TEST

/* Masks of several words, neighbours at the first and the last row, a piece of one row between. */
START_TEST(test_join_of_wide_masks)
{
    enum { V = 125, STRIDE = 128, WORDS = 4, N = 6 };
    static i32 nbr[3][3 * STRIDE], whole_nbr[N * STRIDE + 1], rows[3][3],
        whole_rows[N + 1];
    static u32 masks[3][3 * WORDS], whole_masks[N * WORDS + 1];
    static const i64 sizes[] = {2, 1, 3}, bases[] = {0, 2, 3};
    struct vx_join_map_piece maps[3];
    struct vx_join_rows_piece list[3];
    for (i32 p = 0; p < 3; p++) {
        for (i32 e = 0; e < sizes[p] * STRIDE; e++)
            nbr[p][e] = e % STRIDE < V ? e % ((i32)sizes[p] + 1) - 1 : -1;
        for (i32 e = 0; e < sizes[p] * WORDS; e++) masks[p][e] = (u32)(p * 100 + e);
        for (i32 r = 0; r < sizes[p]; r++) rows[p][r] = (i32)sizes[p] - 1 - r;
        maps[p] =
            (struct vx_join_map_piece){sizes[p], bases[p], bases[p], nbr[p], masks[p]};
        list[p] = (struct vx_join_rows_piece){sizes[p], bases[p], rows[p]};
    }
    whole_nbr[N * STRIDE] = whole_rows[N] = -77;
    whole_masks[N * WORDS] = 77;
    vx_join_rows_ref(
        &(struct vx_join_rows_args){.count = 3, .pieces = list, .rows = whole_rows});
    vx_join_map_ref(&(struct vx_join_map_args){.count = 3,
                                               .nbr_stride = STRIDE,
                                               .words = WORDS,
                                               .pieces = maps,
                                               .nbr = whole_nbr,
                                               .masks = whole_masks});
    for (i32 r = 0; r < N; r++) {
        const i32 p = r < 2 ? 0 : r < 3 ? 1 : 2, own = r - (i32)bases[p];
        ck_assert_int_eq(whole_rows[r], bases[p] + rows[p][own]);
        for (i32 v = 0; v < STRIDE; v++) {
            i32 from = nbr[p][own * STRIDE + v];
            ck_assert_int_eq(whole_nbr[r * STRIDE + v], from < 0 ? -1 : from + bases[p]);
        }
        for (i32 w = 0; w < WORDS; w++)
            ck_assert_uint_eq(whole_masks[r * WORDS + w], masks[p][own * WORDS + w]);
    }
    ck_assert_int_eq(whole_nbr[N * STRIDE], -77);
    ck_assert_int_eq(whole_rows[N], -77);
    ck_assert_uint_eq(whole_masks[N * WORDS], 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *cases = tcase_create("kernels");
    tcase_set_timeout(cases, 30);
    tcase_add_loop_test(cases, test_keys, 0, 4);
    tcase_add_test(cases, test_hash);
    tcase_add_loop_test(cases, test_map_against_all_pairs, 0, 6);
    tcase_add_test(cases, test_brick_places_need_the_seed);
    tcase_add_loop_test(cases, test_activations_by_hand, 0, 12);
    tcase_add_test(cases, test_conv_by_hand);
    tcase_add_test(cases, test_norms_by_hand);
    tcase_add_test(cases, test_elementwise_by_hand);
    tcase_add_loop_test(cases, test_convert_round_trip, 0, 2);
    tcase_add_test(cases, test_join_by_hand);
    tcase_add_test(cases, test_pieces_told_by_hand);
    tcase_add_test(cases, test_words_differ);
    tcase_add_test(cases, test_join_of_wide_masks);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
