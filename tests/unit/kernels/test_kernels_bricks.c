/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "kernels/03_brick_index.h"
#include "kernels/03_brick_map.h"
#include "kernels/05_mask_order.h"
#include "kernels/kernel.h"
#include "tests/support/kernel_cloud.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Bricks, and the maps that are built from them, against their definition (kernel_cloud). */

#define SLOTS 1024
#define SEED  0x123456789abcdef1ull

static struct vx_brick_slot brick_slots[2][SLOTS];
static struct vx_brick_counts brick_counts[2];
static i32 brick_base[2][SLOTS], brick_rows[2][CLOUD_ROWS_MAX];
static u32 brick_list[2][CLOUD_ROWS_MAX], brick_fault[2][2];
static u64 brick_places[2][CLOUD_ROWS_MAX];

static struct vx_brick_index_args bricks_of(const struct cloud *cloud, i32 which)
{
    memset(brick_slots[which], 0x55, sizeof brick_slots[which]);
    memset(&brick_counts[which], 0x55, sizeof brick_counts[which]);
    memset(brick_rows[which], 0x55, sizeof brick_rows[which]);
    memset(brick_fault[which], 0x55, sizeof brick_fault[which]);
    return (struct vx_brick_index_args){.n = cloud->n,
                                        .columns = cloud->columns,
                                        .blocks = 1,
                                        .slots_count = SLOTS,
                                        .seed = SEED,
                                        .coords = cloud->coords,
                                        .slots = brick_slots[which],
                                        .counts = &brick_counts[which],
                                        .base = brick_base[which],
                                        .list = brick_list[which],
                                        .places = brick_places[which],
                                        .rows = brick_rows[which],
                                        .fault = brick_fault[which]};
}

static i64 floor_4(i64 x)
{
    return x >= 0 ? x / 4 : -((3 - x) / 4);
}

/* The first voxel of the brick of voxel i, and the voxel's place in the brick. */
static i64 brick_of(const struct cloud *cloud, i64 i, i64 *bit)
{
    i64 first = 0;
    for (;; first++) {
        bool same = cloud_at(cloud, i, 0) == cloud_at(cloud, first, 0);
        for (i32 axis = 1; axis < 4; axis++)
            same &= floor_4(cloud_at(cloud, i, axis)) ==
                    floor_4(cloud_at(cloud, first, axis));
        if (same) break;
    }
    *bit = 0;
    for (i32 axis = 1; axis < 4; axis++)
        *bit =
            *bit * 4 + cloud_at(cloud, i, axis) - 4 * floor_4(cloud_at(cloud, i, axis));
    return first;
}

/* Bricks in the order of their first voxel, voxels of a brick by their bits. */
static void check_rows(const struct cloud *cloud, const i32 *rows)
{
    for (i64 i = 0; i < cloud->n; i++) {
        i64 bit, other, row = 0, brick = brick_of(cloud, i, &bit);
        for (i64 j = 0; j < cloud->n; j++) {
            i64 of = brick_of(cloud, j, &other);
            row += of < brick || (of == brick && other < bit);
        }
        ck_assert_int_eq(rows[row], i);
    }
}

static void check_brick_map(const struct cloud *cloud,
                            const struct vx_brick_index_args *index,
                            const struct cloud_offsets *of)
{
    cloud_map_begin(of);
    struct vx_brick_map_args args = {.n = cloud->n,
                                     .slots_count = SLOTS,
                                     .seed = index->seed,
                                     .slots = index->slots,
                                     .base = index->base,
                                     .list = index->list,
                                     .counts = index->counts,
                                     .v = cloud_map.v,
                                     .words = cloud_map.words,
                                     .nbr_stride = cloud_map.stride,
                                     .blocks = 1,
                                     .nbr = cloud_map.nbr,
                                     .masks = cloud_map.masks,
                                     .pairs = &cloud_map.pairs};
    memcpy(args.kernel, of->kernel, sizeof args.kernel);
    memcpy(args.dilation, of->dilation, sizeof args.dilation);
    vx_brick_map_many_ref(&(struct vx_brick_map_many_args){1, &args, 1});
    cloud_map_check(cloud, of, index->rows);
}

/* Two sets in one launch: the cloud and the one after it. */
START_TEST(test_bricks)
{
    const struct cloud clouds[2] = {cloud_make(_i), cloud_make((_i + 1) % CLOUDS)};
    const struct vx_brick_index_args sets[2] = {bricks_of(&clouds[0], 0),
                                                bricks_of(&clouds[1], 1)};
    vx_brick_small_many_ref(&(struct vx_brick_small_many_args){2, sets});
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(brick_fault[s][0] | brick_fault[s][1], 0);
        ck_assert_uint_eq(brick_counts[s].rows, (u64)clouds[s].n);
        check_rows(&clouds[s], sets[s].rows);
    }
    for (size_t k = 0; k < CLOUD_OFFSETS; k++)
        if (cloud_worth(_i, (i32)k))
            check_brick_map(&clouds[0], &sets[0], &cloud_offsets[k]);
}
END_TEST

/* Faults: a voxel out of range has no row, duplicates share one row, rows behind the last
 * contain their own number, and the map of such a set is not checked. */
START_TEST(test_faults)
{
    struct cloud cloud = {.columns = 4};
    for (i32 i = 0; i < 6; i++) cloud_add(&cloud, 0, 5 * i, 0, 0);
    if (_i & 1) cloud.coords[1 * 4 + 3] = CLOUD_AXIS_MIN - 1;
    if (_i & 2) memcpy(cloud.coords + 4 * 4, cloud.coords + 2 * 4, 16);
    const i32 there = 6 - (_i & 1) - (_i & 2) / 2;
    const struct vx_brick_index_args index = bricks_of(&cloud, 0);
    vx_brick_small_ref(&index);
    ck_assert_uint_eq(brick_fault[0][0], (u32)_i & 1);
    ck_assert_uint_eq(brick_fault[0][1], (u32)_i >> 1);
    ck_assert_uint_eq(brick_counts[0].rows, (u64)there);
    ck_assert_uint_eq(brick_counts[0].bricks, (u64)there);
    for (i32 r = there; r < 6; r++) ck_assert_int_eq(index.rows[r], r);
    cloud_map_begin(&cloud_offsets[1]);
    const struct vx_brick_map_args args = {.n = 6,
                                           .slots_count = SLOTS,
                                           .seed = SEED,
                                           .slots = index.slots,
                                           .base = index.base,
                                           .list = index.list,
                                           .counts = index.counts,
                                           .kernel = {3, 3, 3},
                                           .dilation = {1, 1, 1},
                                           .v = 27,
                                           .words = 1,
                                           .nbr_stride = 28,
                                           .nbr = cloud_map.nbr,
                                           .masks = cloud_map.masks,
                                           .pairs = &cloud_map.pairs};
    vx_brick_map_ref(&args);
    ck_assert_uint_eq(cloud_map.pairs, (u64)there);
    for (i32 r = 0; r < 6; r++) {
        ck_assert_uint_eq(cloud_map.masks[r], r < there ? 1u << 13 : 0);
        ck_assert_int_eq(cloud_map.nbr[r * 28 + 13], r < there ? r : -1);
    }
}
END_TEST

/* The map in the order of the rows: three rows of two offsets, a stride of 4. */
START_TEST(test_neighbours_by_hand)
{
    static const u32 masks[] = {3, 1, 2};
    static const i32 nbr[] = {10, 11, 0, 0, 20, -1, 0, 0, -1, 31, 0, 0};
    static const i32 order[] = {1, 0, 2}, expected[] = {20, 10, -1, -1, 11, 31};
    i32 neighbours[6];
    u32 blocks[1];
    const struct vx_mask_order_args args = {.n = 3,
                                            .words = 1,
                                            .bits = 2,
                                            .groups = 1,
                                            .masks = masks,
                                            .rows_in = order,
                                            .block_masks = blocks,
                                            .nbr_stride = 4,
                                            .nbr = nbr,
                                            .neighbours = neighbours};
    vx_kernel_find("order_blocks")->ref(&args, VX_NUMBER_F32);
    ck_assert(!memcmp(neighbours, expected, sizeof expected));
    ck_assert_uint_eq(blocks[0], 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_bricks");
    TCase *cases = tcase_create("kernels_bricks");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_bricks, 0, CLOUDS);
    tcase_add_loop_test(cases, test_faults, 0, 4);
    tcase_add_test(cases, test_neighbours_by_hand);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
