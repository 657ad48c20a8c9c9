/* Which layers may begin before the one in front of them has ended.  The fake device stops the
 * test where a launch may, and the one before it does not let it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_rig.h"
#include "tests/support/unet.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define VOXELS 300
#define END                                                                              \
    "{\"name\":\"end\",\"op\":\"affine\",\"input\":\"z\",\"scale\":2}],\"outputs\":[{"   \
    "\"layer\":\"end\"}]}"
#define CONV(name_, input_, channels_)                                                   \
    VX_RIG_CONV(name_, input_, channels_, ",\"kernel\":3,\"layout\":\"spconv\"")

#define CONCAT(name_, a_, b_)                                                            \
    "{\"name\":\"" name_ "\",\"op\":\"concat\",\"inputs\":[\"" a_ "\",\"" b_ "\"]},"

#define HEAD VX_RIG_HEAD VX_RIG_LINEAR("w", "feats", "16")

static const struct {
    const char *text;
    i64 early;
} rows[] = {
    /* The first layer, "w", comes after the maps. */
    {HEAD CONV("a", "w", "16") CONV("b", "a", "32") CONV("z", "b", "16") END, 3},
    /* Its activation and its norm are part of a convolution, a linear layer is like one. */
    {HEAD CONV("a", "w", "16") VX_RIG_OP("batch_norm", "n", "a") VX_RIG_OP(
         "relu", "r", "n") VX_RIG_LINEAR("l", "r", "32") CONV("z", "l", "16") END,
     3},
    /* Behind a norm of rows nothing begins early. */
    {HEAD CONV("a", "w", "16") VX_RIG_OP("layer_norm", "n", "a") CONV("b", "n", "16")
         CONV("z", "b", "16") END,
     2},
    /* A concat whose inputs lie in place launches nothing. */
    {HEAD CONV("a", "w", "16") CONV("b", "a", "16") CONCAT("s", "b", "a")
         CONV("z", "s", "16") END,
     3},
    /* One that copies an input does. */
    {HEAD CONV("a", "w", "16") CONV("b", "a", "16") CONCAT("s", "b", "feats")
         CONV("z", "s", "16") END,
     2},
    /* "b" is summed by columns: two launches, of which neither begins early, and the second
     * one lets none. */
    {HEAD CONV("a", "w", "1024") CONV("b", "a", "16") CONV("c", "b", "16")
         CONV("z", "c", "16") END,
     2},
    /* Of few channels "a" is not as the others (model_narrow.h): "b" waits for it. */
    {VX_RIG_HEAD CONV("a", "feats", "16") CONV("b", "a", "32") CONV("z", "b", "16") END,
     1},
};

static i64 early_of(const char *text, i64 n)
{
    struct vx_rig_request *request = vx_rig_request(3, n, 4, VX_DTYPE_F32);
    vx_gpu_rig_write("fp16", text, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    const i64 before = vx_fake_launches_early();
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(request);
    return vx_fake_launches_early() - before;
}

START_TEST(convolutions_behind_convolutions_begin_early)
{
    ck_assert_int_eq(early_of(rows[_i].text, VOXELS), rows[_i].early);
    ck_assert_int_eq(early_of(rows[_i].text, 1), rows[_i].early);
}
END_TEST

/* Of all levels: maps and orders are made before the first layer. */
START_TEST(those_of_a_unet_do)
{
    static char text[VX_UNET_BYTES];
    const struct vx_unet unet = {.feats = 3,
                                 .stem = 16,
                                 .classes = 5,
                                 .levels = 2,
                                 .blocks = 1,
                                 .down = {32, 32},
                                 .up = {32, 16}};
    vx_unet_write(&unet, text);
    ck_assert_int_gt(early_of(text, VOXELS), 6);
}
END_TEST

/* Of every fourth place along an axis no coarse voxel is near: tiles of "c" without an offset
 * begin early, too, and must not read "a", nor write over what "b" reads, before they are there.
 * On a device (VX_RIG_CUDA) the second and later runs would differ now and then. */
#define SPARSE(name_, op_, input_, more_)                                                \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_                     \
    "\",\"channels\":32,\"layout\":\"oxyzi\"" more_ "},"
static const char apart[] = VX_RIG_HEAD CONV("a", "feats", "32")
    SPARSE("b", "sparse_conv", "a", ",\"kernel\":3,\"stride\":4,\"rule\":\"floor\"")
        SPARSE("c", "inverse_conv", "b",
               ",\"of\":\"b\"") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"c\",\"a\"]}"
                                "," VX_RIG_LINEAR("z", "s", "3") END;

START_TEST(rows_without_a_neighbour_wait)
{
    struct vx_rig_request *one = vx_rig_request(3, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *other = vx_rig_request(3, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *truth = vx_rig_request(3, VOXELS, 4, VX_DTYPE_F32);
    vx_gpu_rig_write("fp32", apart, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_model *cpu = vx_rig_load(vx_rig_root);
    vx_rig_run(cpu, &truth->item);
    ck_assert_msg(!truth->item.status.fault, "%s", truth->item.why.text);
    vx_gpu_rig_run(model, &one->item);
    for (i32 e = 0; e < VOXELS * 3; e++)
        ck_assert_float_eq_tol(one->outputs[0][e], truth->outputs[0][e], 1e-3F);
    for (i32 i = 0; i < 20; i++) {
        vx_gpu_rig_run(model, &other->item);
        ck_assert(!memcmp(one->outputs[0], other->outputs[0], VOXELS * 3 * sizeof(f32)));
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_unload(vx_rig_engine, &cpu);
    vx_free(one);
    vx_free(other);
    vx_free(truth);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_early");
    TCase *tcase = tcase_create("gpu_early");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, convolutions_behind_convolutions_begin_early, 0,
                        VX_COUNT(rows));
    tcase_add_test(tcase, those_of_a_unet_do);
    tcase_add_test(tcase, rows_without_a_neighbour_wait);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
