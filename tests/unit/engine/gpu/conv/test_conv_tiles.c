/* Which streams a layer of few channels may take: those whose rows have room for its channels, and
 * of 16 columns those of 32.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/conv/conv.h"
#include "engine/gpu/jit/jit.h"
#include "kernels/06_conv_masked.h"

#include <check.h>
#include <stdlib.h>

/* Values of a tile. */
enum { COLUMNS = 1, CHANNELS = 2, MULTIPLY = 6 };

/* Which streams fit: the channels of a stage, and the columns of those of one or two words, each a
 * bit of its own. */
static const struct {
    i32 ci, co;
    enum vx_number type;
    u32 channels, columns;
} cases[] = {
    {16, 16, VX_NUMBER_F16, 16 | 32 | 64, 32},
    {16, 32, VX_NUMBER_F16, 16 | 32 | 64, 32},
    {32, 32, VX_NUMBER_F16, 32 | 64, 32},
    {32, 16, VX_NUMBER_BF16, 32 | 64, 32},
    {32, 48, VX_NUMBER_F16, 32 | 64, 32 | 64},
    {48, 32, VX_NUMBER_F16, 64, 32},
    {64, 64, VX_NUMBER_F16, 64, 32 | 64},
    {80, 16, VX_NUMBER_BF16, 64, 32},
    /* Numbers of 8 bits have long rows alone. */
    {32, 64, VX_NUMBER_E4M3, 128, 32 | 64},
    /* And other types no streams. */
    {32, 32, VX_NUMBER_TF32, 0, 0},
};

START_TEST(streams_that_fit)
{
    const struct vx_caps *caps = vx_arch_caps("sm_90a");
    const struct vx_kernel_spec *spec = vx_conv_spec(VX_CONV_MASKED);
    const struct vx_conv_problem problem = {.n = 100000,
                                            .v = 27,
                                            .kernel = {3, 3, 3},
                                            .ci = cases[_i].ci,
                                            .co = cases[_i].co,
                                            .type = cases[_i].type};
    u32 channels = 0, columns = 0;
    for (i32 tile = 0; tile < spec->tiles_count; tile++) {
        const struct vx_conv_choice choice = {.algorithm = VX_CONV_MASKED, .tile = tile};
        const i32 *values = spec->tiles[tile].values;
        if (values[MULTIPLY] != VX_MULTIPLY_STREAM) continue;
        if (!vx_conv_fits(&problem, &choice, caps)) continue;
        channels |= (u32)values[CHANNELS];
        if (values[COLUMNS] <= 64) columns |= (u32)values[COLUMNS];
    }
    ck_assert_uint_eq(channels, cases[_i].channels);
    ck_assert_uint_eq(columns, cases[_i].columns);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conv_tiles");
    TCase *tcase = tcase_create("streams");
    tcase_add_loop_test(tcase, streams_that_fit, 0, sizeof cases / sizeof cases[0]);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
