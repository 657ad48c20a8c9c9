/* Tiles that are dealt to blocks: lists worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/types.h"
#include "kernels/05_mask_order.h"
#include "kernels/kernel.h"

#include <check.h>
#include <stdlib.h>

/* 300 rows in blocks of 32: tiles of 128 rows have 4, 4 and 2 blocks, tiles of 256 have 8
 * and 2.  Two groups, whose masks have one word.  Two blocks get the tiles: there and back, and
 * what is left from the back. */
START_TEST(test_tiles_by_hand)
{
    static const u32 masks[20] = {1, 1, 1, 1, 3, 4, 0, 8, 7, 16, /* 1, 4 and 4 offsets */
                                  0, 0, 0, 0, 1, 0, 0, 0, 3, 0}; /* 0, 1 and 2 */
    i32 small[64], large[64];
    const struct vx_order_tiles_args args = {.count = 1,
                                             .blocks = 2,
                                             .one = {.n = 300,
                                                     .words = 1,
                                                     .groups = 2,
                                                     .block_masks = masks,
                                                     .tiles = {small, large}}};
    ck_assert_int_eq(vx_order_tiles_count(300, 2, 0), 6);
    ck_assert_int_eq(vx_order_tiles_count(300, 2, 1), 4);
    ck_assert_int_le(vx_order_tiles_numbers(6, 2), 64);
    vx_kernel_find("order_tiles")->ref(&args, VX_NUMBER_F32);
    const i32 expected[] = {1, 2, 0, 5, 3, 4, -2, -2}; /* 4 4, 1 2, 0 1 offsets */
    const i32 expected_large[] = {0, 1, 2, 3, -2, -2}; /* 5 4, 1 2 */
    ck_assert_mem_eq(small, expected, sizeof expected);
    ck_assert_mem_eq(large, expected_large, sizeof expected_large);
}
END_TEST

/* Nine tiles, of which one has nine offsets and the others one each, for three blocks: with the end
 * of a tile as two offsets, 11 to 3.  The block that has the long one gets no other. */
START_TEST(test_tiles_passed)
{
    u32 masks[9 * 4];
    i32 small[64], large[64];
    for (i32 b = 0; b < 9 * 4; b++) masks[b] = b < 4 ? 0x1ff : 1;
    const struct vx_order_tiles_args args = {.count = 1,
                                             .blocks = 3,
                                             .one = {.n = 9 * 128,
                                                     .words = 1,
                                                     .groups = 1,
                                                     .block_masks = masks,
                                                     .tiles = {small, large}}};
    ck_assert_int_le(vx_order_tiles_numbers(9, 3), 64);
    vx_kernel_find("order_tiles")->ref(&args, VX_NUMBER_F32);
    const i32 expected[] = {0, 1, 2, -1, 4, 3, -1, 5, 6, -1, 8, 7, -2, -2, -2};
    /* 11, 3 and 3; who has one of the other two has 6 then, and still takes no second. */
    const i32 expected_large[] = {0, 1, 2, -1, 4, 3, -2, -2, -2};
    ck_assert_mem_eq(small, expected, sizeof expected);
    ck_assert_mem_eq(large, expected_large, sizeof expected_large);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_tiles");
    TCase *cases = tcase_create("kernels_tiles");
    tcase_add_test(cases, test_tiles_by_hand);
    tcase_add_test(cases, test_tiles_passed);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
