/* The cost model: what it predicts from past batches, and that no input makes the
 * prediction absurd.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/cost.h"

#include <check.h>
#include <stdlib.h>

static u64 random_state = 88172645463325252u;

static f64 random_to(f64 most)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (f64)(random_state >> 11) / 9007199254740992.0 * most;
}

static void learn(struct vx_cost *cost, i64 ns, f64 pairs)
{
    vx_cost_learn(cost, &(struct vx_cost_seen){.ns = ns, .pairs = pairs});
}

static bool is_near(i64 got, f64 expected, f64 part)
{
    return (f64)got >= expected * (1 - part) && (f64)got <= expected * (1 + part);
}

START_TEST(nothing_is_predicted_before_three_batches)
{
    struct vx_cost cost = {0};
    ck_assert_int_eq(vx_cost_predict_ns(&cost, 10, 10), 0);
    for (int k = 1; k <= VX_COST_SEEN_MIN; k++) {
        learn(&cost, 1000, 10);
        ck_assert_int_eq(vx_cost_is_known(&cost), k == VX_COST_SEEN_MIN);
        ck_assert_int_eq(vx_cost_predict_ns(&cost, 10, 0) > 0, k == VX_COST_SEEN_MIN);
        ck_assert_int_eq(vx_cost_more_ns(&cost, 10) > 0, k == VX_COST_SEEN_MIN);
    }
    ck_assert(is_near(vx_cost_predict_ns(&cost, 10, 0), 1000, 0.01));
}
END_TEST

/* fixed, per pair, smallest and largest batch, noise as a fraction */
static const struct {
    f64 fixed, slope, least, most, noise;
} lines[] = {
    {200e3, 10, 1000, 50000, 0},     {200e3, 10, 1000, 50000, 0.1},
    {0, 3, 100, 1e6, 0.05},          {500e3, 0.001, 1e4, 1e6, 0},
    {50e3, 0.5, 2e6, 4e7, 0.05},     {1e6, 1e4, 1, 64, 0},
    {30e3, 1.5, 20000, 24000, 0.01},
};

START_TEST(a_line_is_found)
{
    struct vx_cost cost = {0};
    f64 range = lines[_i].most - lines[_i].least;
    for (int k = 0; k < 200; k++) {
        f64 pairs = lines[_i].least + random_to(range);
        f64 ns = lines[_i].fixed + lines[_i].slope * pairs;
        ns *= 1 - lines[_i].noise + random_to(2 * lines[_i].noise);
        learn(&cost, (i64)ns, pairs);
    }
    f64 largest = lines[_i].fixed + lines[_i].slope * lines[_i].most;
    for (int k = 0; k <= 4; k++) {
        f64 pairs = lines[_i].least + range * k / 4;
        f64 expected = lines[_i].fixed + lines[_i].slope * pairs;
        i64 got = vx_cost_predict_ns(&cost, pairs, 0);
        /* Noise is a fraction of each batch, so that it is largest at the large end;
         * twenty batches that count leave less than half of it. */
        f64 wrong = 0.02 * expected + lines[_i].noise / 2 * (expected + largest);
        ck_assert_msg((f64)got >= expected - wrong && (f64)got <= expected + wrong,
                      "line %d at %g pairs: got %lld, expected %g", _i, pairs,
                      (long long)got, expected);
    }
}
END_TEST

/* Batches whose cost per pair grows with their size would give a negative time at no
 * pairs: then the line goes through the origin and the mean of the batches. */
START_TEST(a_line_does_not_begin_below_nothing)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 200; k++) learn(&cost, 1000 * (k % 5) + 500, 100 * (k % 5) + 100);
    ck_assert(cost.fixed_ns == 0);
    f64 mean_x = cost.x / cost.weight, mean_y = cost.y / cost.weight;
    ck_assert(is_near(vx_cost_predict_ns(&cost, mean_x, 0), mean_y, 0.001));
    ck_assert(is_near(vx_cost_predict_ns(&cost, mean_x / 2, 0), mean_y / 2, 0.001));
    ck_assert(is_near(vx_cost_more_ns(&cost, mean_x), mean_y, 0.001));
    /* Nor does a larger batch ever cost less in total. */
    cost = (struct vx_cost){0};
    for (int k = 0; k < 200; k++)
        learn(&cost, 9000 - 1000 * (k % 5), 100 * (k % 5) + 100);
    ck_assert(cost.slope_ns == 0);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1e6, 0), 7000, 0.05));
}
END_TEST

/* The first batch includes warm-up: it counts as seen, and is used for nothing else. */
START_TEST(the_first_batch_is_not_learned)
{
    struct vx_cost cost = {0};
    learn(&cost, 300000, 1000);
    ck_assert_int_eq(cost.seen, 1);
    ck_assert(cost.weight == 0);
    for (int k = 0; k < 2; k++) learn(&cost, 100000, 1000);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1000, 0), 1e5, 0.001));
}
END_TEST

START_TEST(a_first_outlier_does_not_count_for_long)
{
    struct vx_cost cost = {0};
    /* A batch that compiled for 3 s, at any position among the first few. */
    for (int k = 0; k < 40; k++)
        learn(&cost, k == _i ? 3000000000 : 1000000 + 100 * k, 1000 + 100 * k);
    i64 got = vx_cost_predict_ns(&cost, 3000, 0);
    ck_assert_msg(got > 800000 && got < 1500000, "outlier at %d: got %lld", _i,
                  (long long)got);
    if (_i) return;
    struct vx_cost quick = {0};
    learn(&quick, 3000000000, 1000);
    learn(&quick, 1000000, 1000);
    learn(&quick, 1000000, 1000);
    ck_assert(is_near(vx_cost_predict_ns(&quick, 1000, 0), 1e6, 0.01));
}
END_TEST

START_TEST(a_device_that_changes_is_believed)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 100; k++) learn(&cost, 100000 + 10 * (k % 7), 1000 + k % 7);
    for (int k = 0; k < 100; k++) learn(&cost, 2000000, 1000 + k % 7);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1003, 0), 2e6, 0.05));
    for (int k = 0; k < 100; k++) learn(&cost, 50000, 1000 + k % 7);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1003, 0), 5e4, 0.4));
}
END_TEST

/* After a slow period one fast batch may be chance; two in a row are not. */
START_TEST(a_device_that_is_fast_again_is_believed_at_once)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 100; k++) learn(&cost, 5000000, 1000 + k % 7);
    learn(&cost, 250000, 1000);
    ck_assert_int_gt(vx_cost_predict_ns(&cost, 1000, 0), 4000000);
    learn(&cost, 5000000, 1000);
    learn(&cost, 250000, 1000); /* not in a row */
    ck_assert_int_gt(vx_cost_predict_ns(&cost, 1000, 0), 4000000);
    learn(&cost, 250000, 1000);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1000, 0), 25e4, 0.01));
}
END_TEST

START_TEST(a_slope_survives_batches_of_one_size)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 40; k++)
        learn(&cost, 100000 + 10 * (k % 10) * 1000, k % 10 * 1000);
    for (int k = 0; k < 500; k++) learn(&cost, 100000 + 10 * 5000, 5000);
    ck_assert(is_near(vx_cost_predict_ns(&cost, 1000, 0), 110000, 0.1));
    ck_assert(is_near(vx_cost_predict_ns(&cost, 20000, 0), 300000, 0.1));
}
END_TEST

/* Many voxels with few pairs and few with many take as long: the line is flat, and says
 * nothing about small batches. */
START_TEST(small_batches_are_believed_beside_a_flat_line)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 20; k++) learn(&cost, 1000000, 400 + k);
    for (int k = 0; k < 100; k++)
        learn(&cost, k % 2 ? 170000000 : 145000000, k % 2 ? 300000 : 1400000);
    ck_assert_int_gt(vx_cost_predict_ns(&cost, 300000, 0), 100000000);
    ck_assert_int_lt(vx_cost_predict_ns(&cost, 400, 0), 5000000);
    ck_assert_int_lt(vx_cost_predict_ns(&cost, 4, 0), 5000000);
}
END_TEST

/* A first request of many voxels, after requests of a few: what is behind it waits, and is not
 * refused for minutes that nobody has measured. */
START_TEST(a_line_through_small_batches_is_not_drawn_on)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 20; k++) learn(&cost, 5000000, 300);
    const i64 largest_ns = vx_cost_predict_ns(&cost, 1 << 16, 0);
    ck_assert_int_gt(largest_ns, 100000000);
    ck_assert_int_eq(vx_cost_believe_ns(&cost, 1 << 16, 0), largest_ns);
    ck_assert_int_eq(vx_cost_believe_ns(&cost, 5e7, 0), largest_ns);
    ck_assert_int_gt(vx_cost_predict_ns(&cost, 5e7, 0), 100 * largest_ns);
    /* One of them was measured: the line is believed from there on. */
    learn(&cost, 1000000000, 5e7);
    ck_assert(is_near(vx_cost_believe_ns(&cost, 5e7, 0), 1e9, 0.1));
    ck_assert_int_eq(vx_cost_believe_ns(&cost, 1e12, 0),
                     vx_cost_believe_ns(&cost, 2e8, 0));
}
END_TEST

/* Two batches that took far less than the line says begin it anew, the second of one pair: its slope
 * is half of that batch's time for each pair.  Beyond the classes that were measured it said minutes. */
START_TEST(a_line_that_begins_anew_does_not_forget_the_largest)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 20; k++) learn(&cost, 2700000, 500000);
    learn(&cost, 100000, 500000);
    learn(&cost, 100000, 1);
    ck_assert_int_le(vx_cost_predict_ns(&cost, 500000, 0), 4 * 2700000);
    ck_assert_int_gt(vx_cost_predict_ns(&cost, 2000000, 0), 4 * 2700000);
    ck_assert_int_le(vx_cost_predict_ns(&cost, 2000000, 0), 8 * 4 * 2700000);
    ck_assert_int_le(vx_cost_believe_ns(&cost, 1e12, 0), 8 * 4 * 2700000);
}
END_TEST

START_TEST(classes_have_four_times_the_pairs)
{
    ck_assert_int_eq(vx_cost_class(0), 0);
    ck_assert_int_eq(vx_cost_class(3), 0);
    ck_assert_int_eq(vx_cost_class(4), 1);
    ck_assert_int_eq(vx_cost_class(1023), 4);
    ck_assert_int_eq(vx_cost_class(1024), 5);
    ck_assert_int_eq(vx_cost_class(1e300), VX_COST_CLASSES - 1);
}
END_TEST

START_TEST(no_prediction_is_negative_or_wild)
{
    struct vx_cost cost = {0};
    for (int k = 0; k < 3000; k++) {
        i64 ns = (i64)random_to(k % 3 ? 1e6 : 1e12);
        learn(&cost, k % 11 ? ns : -ns, k % 7 ? random_to(1e9) : 0);
        i64 small = vx_cost_predict_ns(&cost, 0, 0),
            large = vx_cost_predict_ns(&cost, 1e9, 1000000);
        ck_assert_int_ge(small, k + 1 >= VX_COST_SEEN_MIN);
        ck_assert_int_ge(large, small);
        ck_assert_int_ge(vx_cost_more_ns(&cost, 1e9), 0);
    }
    ck_assert_int_le(vx_cost_predict_ns(&cost, 1e300, 0), INT64_C(10000000000000000));
}
END_TEST

START_TEST(building_is_a_line_of_its_own)
{
    struct vx_cost cost = {0};
    ck_assert_int_eq(vx_cost_build_ns(&cost, 100, 77), 77);
    ck_assert_int_eq(vx_cost_build_ns(&cost, 0, 77), 0);
    for (int k = 0; k < 20; k++)
        vx_cost_learn(&cost,
                      &(struct vx_cost_seen){.ns = 5000,
                                             .pairs = 100,
                                             .build_ns = k ? 50 * (100 + k) : 1000000,
                                             .build_voxels = 100 + k});
    ck_assert(is_near(vx_cost_build_ns(&cost, 1000, 77), 50000, 0.01));
    ck_assert(is_near(vx_cost_predict_ns(&cost, 100, 1000), 55000, 0.01));
    ck_assert(is_near(vx_cost_predict_ns(&cost, 100, 0), 5000, 0.01));
    /* One stall does not change the cost of building. */
    vx_cost_learn(&cost, &(struct vx_cost_seen){.ns = 5000,
                                                .pairs = 100,
                                                .build_ns = 1000000000,
                                                .build_voxels = 100});
    ck_assert_int_lt(vx_cost_build_ns(&cost, 1000, 77), 75000);
}
END_TEST

START_TEST(pairs_are_estimated_by_what_was_seen)
{
    struct vx_cost_ratio ratio = {0};
    ck_assert(vx_cost_ratio_expect(&ratio, 50) == 50);
    vx_cost_ratio_learn(&ratio, 0, 100);
    vx_cost_ratio_learn(&ratio, 100, 0);
    ck_assert(vx_cost_ratio_expect(&ratio, 50) == 50);
    for (int k = 1; k < 50; k++) vx_cost_ratio_learn(&ratio, 900 * k, 100 * k);
    ck_assert(is_near((i64)vx_cost_ratio_expect(&ratio, 1000), 9000, 0.001));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *table = tcase_create("table");
    tcase_add_test(table, nothing_is_predicted_before_three_batches);
    tcase_add_loop_test(table, a_line_is_found, 0, (int)VX_COUNT(lines));
    tcase_add_test(table, a_line_does_not_begin_below_nothing);
    tcase_add_test(table, the_first_batch_is_not_learned);
    tcase_add_loop_test(table, a_first_outlier_does_not_count_for_long, 0, 5);
    tcase_add_test(table, a_device_that_changes_is_believed);
    tcase_add_test(table, a_device_that_is_fast_again_is_believed_at_once);
    tcase_add_test(table, a_slope_survives_batches_of_one_size);
    tcase_add_test(table, small_batches_are_believed_beside_a_flat_line);
    tcase_add_test(table, a_line_through_small_batches_is_not_drawn_on);
    tcase_add_test(table, a_line_that_begins_anew_does_not_forget_the_largest);
    tcase_add_test(table, classes_have_four_times_the_pairs);
    tcase_add_test(table, no_prediction_is_negative_or_wild);
    tcase_add_test(table, building_is_a_line_of_its_own);
    tcase_add_test(table, pairs_are_estimated_by_what_was_seen);
    suite_add_tcase(suite, table);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
