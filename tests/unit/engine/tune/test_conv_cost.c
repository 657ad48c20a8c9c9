/* The cost model by architecture.  No chip of AMD's is measured, so only what must hold is
 * asked.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/conv/conv.h"
#include "engine/gpu/jit/jit.h"
#include "engine/tune/pick.h"

#include <check.h>
#include <stdlib.h>

static const char *const archs[] = {"sm_80",  "sm_90a",  "gfx90a",
                                    "gfx942", "gfx1100", "gfx1200"};

static struct vx_conv_problem problem_of(enum vx_number type)
{
    return (struct vx_conv_problem){
        .n = 1000000, .kernel = {3, 3, 3}, .v = 27, .ci = 128, .co = 128, .type = type};
}

/* A cost for every tile, at any clock; more processors, and narrower numbers, are never
 * slower. */
START_TEST(test_cost)
{
    const struct vx_caps *caps = vx_arch_caps(archs[_i]);
    const struct vx_conv_problem narrow = problem_of(VX_NUMBER_F16);
    const struct vx_conv_problem wide = problem_of(VX_NUMBER_F32);
    ck_assert_ptr_nonnull(caps);
    struct vx_caps half = *caps, unknown = *caps;
    half.processors /= 2;
    unknown.clock_mhz = 0;
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        const struct vx_kernel_spec *spec = vx_conv_spec((enum vx_conv_algorithm)i);
        for (i32 tile = 0; spec && tile < spec->tiles_count; tile++) {
            const struct vx_conv_choice choice = {(enum vx_conv_algorithm)i, tile};
            const f64 cost = vx_conv_cost(&narrow, &choice, caps);
            ck_assert_double_gt(cost, 1000);
            ck_assert_double_lt(cost, 1e10);
            ck_assert_double_lt(cost, vx_conv_cost(&narrow, &choice, &half));
            ck_assert_double_le(cost, vx_conv_cost(&wide, &choice, caps));
            ck_assert_double_gt(vx_conv_cost(&narrow, &choice, &unknown), cost / 10);
            ck_assert_double_lt(vx_conv_cost(&narrow, &choice, &unknown), cost * 10);
        }
    }
}
END_TEST

/* Every type has a tile, which leaves room in a block's shared memory. */
START_TEST(test_cheapest)
{
    static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                           VX_NUMBER_TF32};
    const struct vx_caps *caps = vx_arch_caps(archs[_i]);
    for (size_t i = 0; i < VX_COUNT(types); i++) {
        const struct vx_conv_problem problem = problem_of(types[i]);
        const struct vx_kernel_spec *spec = vx_conv_spec(VX_CONV_MASKED);
        struct vx_conv_choice choice = {VX_CONV_AUTO, -1};
        ck_assert(vx_pick_cheapest(&problem, VX_CONV_MASKED, caps, &choice));
        ck_assert_int_le(spec->shared(&spec->tiles[choice.tile], types[i]),
                         caps->shared_block);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conv_cost");
    TCase *tests = tcase_create("conv_cost");
    tcase_add_loop_test(tests, test_cost, 0, (int)VX_COUNT(archs));
    tcase_add_loop_test(tests, test_cheapest, 0, (int)VX_COUNT(archs));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
