/* Dense tensors on a device: the references, against values worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernels/28_to_dense_device.h"
#include "kernels/pointwise_spec.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(of_) (sizeof(of_) / sizeof *(of_))

/* The smallest of several keys outside, whatever their order; none; the most samples. */
START_TEST(what_lies_outside_is_found)
{
    const uint64_t some[] = {vx_key_pack(1, 0, 0, 0), vx_key_pack(0, 1, 3, 1),
                             vx_key_pack(0, 1, 2, 2), vx_key_pack(0, 1, -1, 2),
                             vx_key_pack(0, 2, 0, 0)};
    const int32_t coords[] = {3, -5, 0, 9, 7, 0, 0, 0, 0, 511, 600, 700};
    const struct vx_dense_job jobs[] = {
        {.n = 5, .keys = some, .shape = {2, 3, 2}}, /* all but the first */
        {.n = 1, .keys = some, .shape = {1, 1, 1}}, /* none */
        {.n = 2, .keys = some, .shape = {2, 3, 2}}, /* y */
        {.n = 5, .keys = some, .shape = {3, 4, 3}}, /* below 0 */
        {.n = 3, .coords = coords},
        {.n = 0}};
    struct vx_dense_found found[COUNT(jobs)];
    for (size_t j = 0; j < COUNT(jobs); j++) found[j] = vx_dense_nothing();
    found[5].samples = 1;
    vx_dense_check_ref(&(struct vx_dense_check_args){COUNT(jobs), 1, jobs, found}, 0);
    ck_assert_uint_eq(found[0].key, some[3]);
    ck_assert_uint_eq(found[1].key, VX_KEY_EMPTY);
    ck_assert_uint_eq(found[2].key, some[1]);
    ck_assert_uint_eq(found[3].key, some[3]);
    ck_assert_uint_eq(found[4].key, VX_KEY_EMPTY);
    ck_assert_int_eq(found[4].samples, 8);
    ck_assert_int_eq(found[5].samples, 1);
    ck_assert_int_eq(found[0].samples, 0);
}
END_TEST

/* Samples 4 and 5 of shape 1x2x3: rows of other samples and outside of it are left out. */
START_TEST(cells_have_rows)
{
    const uint64_t keys[] = {vx_key_pack(5, 0, 1, 2), vx_key_pack(3, 0, 0, 0),
                             vx_key_pack(4, 0, 0, 1), vx_key_pack(6, 0, 0, 0),
                             vx_key_pack(4, 0, 1, 3), vx_key_pack(4, 0, -1, 2),
                             vx_key_pack(5, 0, 0, 0)};
    const int32_t expected[] = {-1, 2, -1, -1, -1, -1, 6, -1, -1, -1, -1, 0};
    int32_t cells[COUNT(expected)];
    memset(cells, 0xff, sizeof cells);
    vx_dense_cells_ref(
        &(struct vx_dense_cells_args){COUNT(keys), keys, 4, 2, {1, 2, 3}, cells}, 0);
    ck_assert_mem_eq(cells, expected, sizeof expected);
}
END_TEST

/* Two samples of two channels, 1x2x2: rows of three numbers, of which one is padding. */
START_TEST(numbers_go_to_their_places)
{
    const int32_t cells[] = {1, -1, -1, 0, -1, -1, 2, -1};
    const float in[] = {1, 2, 90, 3, 4, 91, 5, 6.00390625f, 92};
    const float expected[] = {3, 0, 0, 1, 4, 0, 0, 2, 0, 0, 5, 0, 0, 0, 6.00390625f, 0};
    const uint16_t halves[] = {0x4200, 0, 0,      0x3c00, 0x4400, 0, 0,      0x4000,
                               0,      0, 0x4500, 0,      0,      0, 0x4601, 0};
    float out[COUNT(expected)];
    uint16_t out_16[COUNT(expected)];
    struct vx_to_dense_device_args args = {.samples = 2,
                                           .c = 2,
                                           .cp = 3,
                                           .shape = {1, 2, 2},
                                           .number = VX_NUMBER_F32,
                                           .cells = cells,
                                           .in = in,
                                           .out = out};
    memset(out, 0xff, sizeof out);
    memset(out_16, 0xff, sizeof out_16);
    vx_to_dense_device_ref(&args, VX_NUMBER_TF32);
    ck_assert_mem_eq(out, expected, sizeof expected);
    args.number = VX_NUMBER_F16;
    args.out = out_16;
    vx_to_dense_device_ref(&args, VX_NUMBER_F32);
    ck_assert_mem_eq(out_16, halves, sizeof halves);
    args.number = VX_NUMBER_BF16; /* 6 + 2^-8 is nearer to 6 */
    vx_to_dense_device_ref(&args, VX_NUMBER_F32);
    ck_assert_uint_eq(out_16[14], 0x40c0);
    ck_assert_uint_eq(out_16[3], 0x3f80);
}
END_TEST

/* What the host launches: a tile more where one voxel more begins it, and channels. */
START_TEST(grids_cover_all)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("to_dense");
    struct vx_to_dense_device_args args = {
        .samples = 3, .c = VX_DENSE_CHANNELS, .shape = {1, 1, VX_DENSE_CELLS}};
    struct vx_grid grid = spec->grid(spec->tiles, &args);
    ck_assert(grid.x == 3 && grid.y == 1 && grid.z == 1);
    args.c++;
    args.shape[1] = 2;
    args.shape[2]++;
    grid = spec->grid(spec->tiles, &args);
    ck_assert(grid.x == 9 && grid.y == 2 && grid.z == 1);
    spec = vx_kernel_find("dense_cells");
    grid = spec->grid(spec->tiles, &(struct vx_dense_cells_args){.n = 0});
    ck_assert_uint_eq(grid.x, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_dense");
    TCase *tcase = tcase_create("kernels_dense");
    tcase_add_test(tcase, what_lies_outside_is_found);
    tcase_add_test(tcase, cells_have_rows);
    tcase_add_test(tcase, numbers_go_to_their_places);
    tcase_add_test(tcase, grids_cover_all);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
