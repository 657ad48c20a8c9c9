/* Rows that have each child: the references, against values worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernels/34_live_order.h"
#include "kernels/kernel.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N      6
#define CP     16
#define PANELS 2
#define GROUPS 2
#define V      4

/* Rows 0 2 4 5 have child 0, rows 1 2 5 child 1; 0 and -1 are not live, nor is -0. */
static const float logits[N][CP] = {{1, -1, 9},  {0, 0.5f}, {2, 3},
                                    {-2, -0.0f}, {4, 0},    {5, 6}};
/* Offsets 0 and 1 are group 0. */
static const uint32_t masks[N] = {0x1, 0x2, 0x4, 0xf, 0x8, 0x5};
static const int32_t order[GROUPS][N] = {{5, 4, 3, 2, 1, 0}, {2, 0, 4, 1, 5, 3}};

static struct vx_live_order_args args_make(void)
{
    return (struct vx_live_order_args){.n = N,
                                       .tiles = 1,
                                       .panels = PANELS,
                                       .v = V,
                                       .groups = GROUPS,
                                       .words = 1,
                                       .cp = CP,
                                       .logits = logits,
                                       .order = order[0],
                                       .masks = masks};
}

static void launch(const char *name, const struct vx_live_order_args *args)
{
    const struct vx_kernel_spec *spec = vx_kernel_find(name);
    ck_assert_ptr_nonnull(spec);
    spec->ref(args, VX_NUMBER_F32);
}

START_TEST(rows_are_counted)
{
    struct vx_live_order_args args = args_make();
    uint32_t counts[PANELS * GROUPS] = {9, 9, 9, 9};
    const uint32_t expected[] = {4, 4, 3, 3};
    args.counts = counts;
    launch("live_count", &args);
    ck_assert_mem_eq(counts, expected, sizeof expected);
}
END_TEST

START_TEST(lists_keep_the_order)
{
    struct vx_live_order_args args = args_make();
    int32_t lists[PANELS * GROUPS][N];
    uint32_t live_masks[PANELS][N];
    const int32_t expected[][N] = {{5, 4, 2, 0, -1, -1},
                                   {2, 0, 4, 5, -1, -1},
                                   {5, 2, 1, -1, -1, -1},
                                   {2, 1, 5, -1, -1, -1}};
    const uint32_t expected_masks[][N] = {{0x1, 0, 0x4, 0, 0x8, 0x5},
                                          {0, 0x2, 0x4, 0, 0, 0x5}};
    args.lists = lists[0];
    args.live_masks = live_masks[0];
    launch("live_write", &args);
    ck_assert_mem_eq(lists, expected, sizeof expected);
    ck_assert_mem_eq(live_masks, expected_masks, sizeof expected_masks);
    args.order = NULL; /* rows as they are */
    launch("live_write", &args);
    const int32_t rising[] = {0, 2, 4, 5, -1, -1};
    ck_assert_mem_eq(lists[1], rising, sizeof rising);
}
END_TEST

START_TEST(blocks_have_the_offsets_of_their_rows)
{
    enum { ROWS = 70, BLOCKS = 3 };
    struct vx_live_order_args args = args_make();
    int32_t lists[PANELS * GROUPS * ROWS];
    uint32_t many[ROWS] = {0}, block_masks[PANELS * GROUPS * BLOCKS];
    memset(lists, 0xff, sizeof lists);
    many[7] = 0x1;
    many[8] = 0x6;
    many[9] = 0xa;
    lists[0] = 7;             /* panel 0, group 0, block 0 */
    lists[31] = 9;            /* its last place */
    lists[32] = 8;            /* block 1 */
    lists[3 * ROWS + 64] = 8; /* panel 1, group 1, block 2 */
    const uint32_t expected[] = {0x3, 0x2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4};
    args.n = ROWS;
    args.masks = many;
    args.lists = lists;
    args.block_masks = block_masks;
    launch("live_blocks", &args);
    ck_assert_mem_eq(block_masks, expected, sizeof expected);
    /* Without masks a row has every offset of the group. */
    const uint32_t full[] = {0x3, 0x3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc};
    args.masks = NULL;
    launch("live_blocks", &args);
    ck_assert_mem_eq(block_masks, full, sizeof full);
}
END_TEST

START_TEST(groups_have_their_bits)
{
    ck_assert_uint_eq(vx_live_group_word(27, 1, 0, 0), 0x7ffffff);
    ck_assert_uint_eq(vx_live_group_word(27, 3, 1, 0), 0x3fe00);
    ck_assert_uint_eq(vx_live_group_word(32, 1, 0, 0), 0xffffffff);
    ck_assert_uint_eq(vx_live_group_word(125, 5, 1, 0), 0xfe000000);
    ck_assert_uint_eq(vx_live_group_word(125, 5, 1, 1), 0x3ffff);
    ck_assert_uint_eq(vx_live_group_word(125, 5, 1, 2), 0);
    ck_assert_uint_eq(vx_live_group_word(1, 1, 0, 0), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_live");
    TCase *tcase = tcase_create("kernels_live");
    tcase_add_test(tcase, rows_are_counted);
    tcase_add_test(tcase, lists_keep_the_order);
    tcase_add_test(tcase, blocks_have_the_offsets_of_their_rows);
    tcase_add_test(tcase, groups_have_their_bits);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
