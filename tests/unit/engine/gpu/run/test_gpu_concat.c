/* A U-net on the fake GPU whose concats copy nothing: the answers have the bits of the same
 * network whose concats copy everything.  A network whose concats copy some inputs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "kernels/13_elementwise.h"
#include "tests/support/gpu_rig.h"
#include "tests/support/unet.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOXELS  150
#define CONCATS 2

static const struct vx_unet unet = {.feats = 3,
                                    .stem = 16,
                                    .classes = 5,
                                    .levels = CONCATS,
                                    .blocks = 1,
                                    .down = {32, 20},
                                    .up = {32, 16}};

/* Launches of "concat", and what they copy. */
static struct {
    i32 launches, inputs;
} seen;

static void see_concat(const void *given, enum vx_number type)
{
    const struct vx_concat_device_args *args = given;
    seen.launches++;
    for (i32 i = 0; i < args->inputs_count; i++)
        seen.inputs += args->inputs[i].data != NULL;
    vx_kernel_find("concat")->ref(given, type);
}

static const struct vx_kernel_spec *find(const char *name)
{
    static struct vx_kernel_spec concat;
    if (strcmp(name, "concat") != 0) return vx_kernel_find(name);
    concat = *vx_kernel_find(name);
    concat.ref = see_concat;
    return &concat;
}

/* Runs a request twice, the second time with a geometry that is kept; returns the launches of
 * that time. */
static i64 run(const char *precision, bool apart, struct vx_rig_request *request)
{
    static char text[VX_UNET_BYTES];
    struct vx_unet want = unet;
    want.apart = apart;
    vx_unet_write(&want, text);
    vx_gpu_rig_write(precision, text, 11);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    for (i32 o = 1; o < VX_OUTPUTS_MAX; o++) request->item.outputs[o] = NULL;
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    const i64 before = vx_fake_launches();
    memset(&seen, 0, sizeof seen);
    memset(request->outputs[0], 0, sizeof request->outputs[0]);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    return vx_fake_launches() - before;
}

/* "apart" has two launches of softmax beside each concat that are no part of the other. */
START_TEST(a_unet_copies_nothing)
{
    static const char *const precisions[] = {"fp32", "bf16", "tf32"};
    struct vx_rig_request *one = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *other = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    const i64 copied = run(precisions[_i], true, other);
    ck_assert_int_eq(seen.launches, CONCATS);
    ck_assert_int_eq(seen.inputs, 2 * CONCATS);
    const i64 placed = run(precisions[_i], false, one);
    ck_assert_int_eq(seen.launches, 0);
    ck_assert_int_eq(copied - placed, CONCATS + 2 * CONCATS);
    ck_assert(!memcmp(one->outputs[0], other->outputs[0], sizeof one->outputs[0]));
    bool any = false;
    for (i32 e = 0; e < VOXELS * unet.classes; e++) {
        ck_assert(isfinite(one->outputs[0][e]));
        any = any || one->outputs[0][e] != 0;
    }
    ck_assert(any);
    vx_free(one);
    vx_free(other);
}
END_TEST

/* Outputs, a residual and several layers read parts of rows; "s" copies nothing, "u" what is between
 * its first and its last input, "v" what is in "s" already. */
#define TWO(op_, name_, a_, b_)                                                          \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]},"
static const char mixed[] = VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "16") VX_RIG_CONV(
    "b", "a", "20", ",\"kernel\":3") VX_RIG_OP("batch_norm", "bn",
                                               "b") VX_RIG_OP("relu", "br", "bn")
    TWO("concat", "s", "a", "br") VX_RIG_CONV("c", "s", "16", ",\"kernel\":[3,1,1]")
        TWO("add", "r", "c", "a") VX_RIG_OP("layer_norm", "n", "br") VX_RIG_LINEAR(
            "d", "r",
            "13") "{\"name\":\"u\",\"op\":\"concat\",\"inputs\":[\"r\",\"d\",\"feats\","
                  "\"n\"]}," TWO("concat", "v", "br", "a") VX_RIG_LINEAR("y", "u", "3")
                      VX_RIG_LINEAR("z", "v", "5") VX_RIG_LINEAR(
                          "w", "s",
                          "7") "{\"name\":\"end\",\"op\":\"relu\",\"input\":\"feats\"}],"
                               "\"outputs\":[{\"layer\":\"y\"},{\"layer\":\"z\"},{"
                               "\"layer\":\"w\"},"
                               "{\"layer\":\"br\",\"datatype\":\"FP16\"},{\"layer\":"
                               "\"a\"},{\"layer\":\"end\"}]}";

START_TEST(some_inputs_are_copied)
{
    static const struct {
        const char *word;
        enum vx_number type;
    } precisions[] = {{"fp32", VX_NUMBER_F32},
                      {"tf32", VX_NUMBER_TF32},
                      {"fp16", VX_NUMBER_F16},
                      {"bf16", VX_NUMBER_BF16}};
    struct vx_rig_request *request = vx_rig_request(9, VOXELS, 4, VX_DTYPE_F32);
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    vx_gpu_rig_write(precisions[_i].word, mixed, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    memset(&seen, 0, sizeof seen);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    ck_assert_int_eq(seen.launches, 2);
    ck_assert_int_eq(seen.inputs, 2 + 2);
    vx_gpu_rig_compare(request, &files, precisions[_i].type);
    vx_rig_files_close(&files);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(request);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_concat");
    TCase *tcase = tcase_create("gpu_concat");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_unet_copies_nothing, 0, 3);
    tcase_add_loop_test(tcase, some_inputs_are_copied, 0, 4);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
