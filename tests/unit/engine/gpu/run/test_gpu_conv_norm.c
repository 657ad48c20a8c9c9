/* Layer norms behind convolutions and linear layers on the fake GPU: which of them the kernel of
 * the layer computes, too, and that the answers have the bits of the same network whose norms
 * are launches of their own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/backend_gpu.h"
#include "kernels/35_conv_norm.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOXELS 300

#define CONV(name_, input_, channels_)                                                   \
    VX_RIG_CONV(name_, input_, channels_, ",\"kernel\":3")
#define NORM(name_, input_) VX_RIG_OP("layer_norm", name_, input_)
#define TWO(op_, name_, a_, b_)                                                          \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]},"
/* The end of a network: layers that no norm begins an MLP with. */
#define END(name_)                                                                       \
    VX_RIG_OP("tanh", "t", name_)                                                        \
    "{\"name\":\"end\",\"op\":\"linear\",\"input\":\"t\",\"channels\":5}],"              \
    "\"outputs\":[{\"layer\":\"end\"}"
/* Changes no number, and keeps a norm from knowing what is behind it. */
#define APART(name_, input_) VX_RIG_OP("affine", name_, input_)

static struct {
    i32 convs, norms, fused; /* launches */
    bool activated, residual, mapped;
} seen;

static void see_conv(const void *given, enum vx_number type)
{
    seen.convs++;
    vx_kernel_find("conv_masked")->ref(given, type);
}

static void see_norm(const void *given, enum vx_number type)
{
    seen.norms++;
    vx_kernel_find("layer_norm")->ref(given, type);
}

static void see_fused(const void *given, enum vx_number type)
{
    const struct vx_conv_norm_args *args = given;
    seen.fused++;
    seen.activated = seen.activated || args->norm.activation != VX_ACTIVATION_NONE;
    seen.residual = seen.residual || args->conv.residual;
    seen.mapped = seen.mapped || args->conv.nbr;
    vx_kernel_find("conv_norm")->ref(given, type);
}

static const struct vx_kernel_spec *find(const char *name)
{
    static const struct {
        const char *name;
        void (*ref)(const void *args, enum vx_number type);
    } mine[] = {
        {"conv_masked", see_conv}, {"layer_norm", see_norm}, {"conv_norm", see_fused}};
    static struct vx_kernel_spec specs[VX_COUNT(mine)];
    for (size_t i = 0; i < VX_COUNT(mine); i++) {
        if (strcmp(mine[i].name, name) != 0) continue;
        specs[i] = *vx_kernel_find(name);
        specs[i].ref = mine[i].ref;
        return &specs[i];
    }
    return vx_kernel_find(name);
}

static void run(const char *precision, const char *json, struct vx_rig_request *request)
{
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    vx_gpu_rig_write(precision, json, 31);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    for (i32 o = 1; o < VX_OUTPUTS_MAX; o++) request->item.outputs[o] = NULL;
    memset(&seen, 0, sizeof seen);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}

/* --- which --- */

static const struct {
    const char *what, *precision, *json;
    i32 fused, norms; /* launches of the two kernels */
} rows[] = {
    {"a convolution", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") NORM("n", "a") END("n") "]}", 1, 0},
    {"bf16", "bf16", VX_RIG_HEAD CONV("a", "feats", "32") NORM("n", "a") END("n") "]}", 1,
     0},
    {"fp32", "fp32", VX_RIG_HEAD CONV("a", "feats", "16") NORM("n", "a") END("n") "]}", 1,
     0},
    {"tf32", "tf32", VX_RIG_HEAD CONV("a", "feats", "16") NORM("n", "a") END("n") "]}", 1,
     0},
    {"a linear layer", "fp16",
     VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "40") NORM("n", "a") END("n") "]}", 1, 0},
    {"a batch norm is part of its weights", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") VX_RIG_OP("batch_norm", "b", "a") NORM("n", "b")
         END("n") "]}",
     1, 0},
    {"an activation in between", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") VX_RIG_OP("relu", "r", "a") NORM("n", "r")
         END("n") "]}",
     0, 1},
    {"it is read by another layer", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") NORM("n", "a") TWO("mul", "m", "a", "n")
         END("m") "]}",
     0, 1},
    {"it is an output", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "16") NORM("n", "a") END("n") ",{\"layer\":\"a\"}]}",
     0, 1},
    {"the norm is an output", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "16") NORM("n", "a") END("n") ",{\"layer\":\"n\"}]}",
     1, 0},
    {"the norm is part of a concat", "fp16",
     VX_RIG_HEAD CONV("b", "feats", "16") CONV("a", "b", "16") NORM("n", "a")
         TWO("concat", "c", "b", "n") END("c") "]}",
     1, 0},
    {"too wide", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "272") NORM("n", "a") END("n") "]}", 0, 1},
    {"sums of several groups", "fp16",
     VX_RIG_HEAD VX_RIG_LINEAR("w", "feats", "512") CONV("a", "w", "16") NORM("n", "a")
         END("n") "]}",
     0, 1},
    {"it begins an MLP", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") NORM("n", "a") VX_RIG_LINEAR("u", "n", "64")
         VX_RIG_OP("gelu", "g", "u") VX_RIG_LINEAR("d", "g", "32") END("d") "]}",
     0, 1},
    {"one linear layer is none", "fp16",
     VX_RIG_HEAD CONV("a", "feats", "32") NORM("n", "a") VX_RIG_LINEAR("u", "n", "64")
         END("u") "]}",
     1, 0},
    {"of features", "fp16", VX_RIG_HEAD NORM("n", "feats") END("n") "]}", 0, 1},
};

START_TEST(norms_are_found)
{
    struct vx_rig_request *request = vx_rig_request(7, VOXELS, 4, VX_DTYPE_F32);
    run(rows[_i].precision, rows[_i].json, request);
    ck_assert_msg(seen.fused == rows[_i].fused && seen.norms == rows[_i].norms,
                  "%s: %d fused and %d norms, not %d and %d", rows[_i].what, seen.fused,
                  seen.norms, rows[_i].fused, rows[_i].norms);
    vx_free(request);
}
END_TEST

/* --- the same bits --- */

/* A block as TRELLIS has them, with a norm at its end: two convolutions, and what stands between
 * the first, or the sum of the second with its residual, and the norm. */
#define BLOCK(first_, second_, apart_a_, a_, apart_r_, r_)                               \
    VX_RIG_HEAD VX_RIG_LINEAR("s", "feats", second_) CONV("a", "s", first_)              \
        apart_a_ NORM("n", a_) VX_RIG_OP("silu", "g", "n") CONV("b", "g", second_)       \
            TWO("add", "r", "b", "s") apart_r_ "{\"name\":\"m\",\"op\":\"layer_norm\","  \
                                               "\"input\":\"" r_                         \
                                               "\",\"affine\":false}," END("m") "]}"
#define FUSED(first_, second_) BLOCK(first_, second_, "", "a", "", "r")
#define BESIDE(first_, second_)                                                          \
    BLOCK(first_, second_, APART("pa", "a"), "pa", APART("pr", "r"), "pr")

START_TEST(fused_norms_have_the_same_bits)
{
    /* Of 32 bits a tile of 16 columns is the best for so few rows. */
    static const struct {
        const char *word;
        enum vx_number type;
        const char *fused, *beside;
    } precisions[] = {{"fp16", VX_NUMBER_F16, FUSED("48", "20"), BESIDE("48", "20")},
                      {"bf16", VX_NUMBER_BF16, FUSED("48", "20"), BESIDE("48", "20")},
                      {"fp32", VX_NUMBER_F32, FUSED("13", "16"), BESIDE("13", "16")},
                      {"tf32", VX_NUMBER_TF32, FUSED("13", "16"), BESIDE("13", "16")}};
    struct vx_rig_request *fused = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *apart = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    run(precisions[_i].word, precisions[_i].beside, apart);
    const i32 convs = seen.convs;
    ck_assert_int_eq(seen.norms, 2);
    ck_assert_int_eq(seen.fused, 0);
    run(precisions[_i].word, precisions[_i].fused, fused);
    ck_assert_int_eq(seen.norms, 0);
    ck_assert_int_eq(seen.fused, 2);
    ck_assert_int_eq(seen.convs, convs - 2);
    ck_assert(seen.activated && seen.residual && seen.mapped);
    const size_t bytes = (size_t)VOXELS * 5 * sizeof(f32);
    ck_assert_mem_eq(fused->outputs[0], apart->outputs[0], bytes);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    vx_gpu_rig_compare(fused, &files, precisions[_i].type);
    vx_rig_files_close(&files);
    vx_free(fused);
    vx_free(apart);
}
END_TEST

/* --- tuning --- */

static void run_tile(struct vx_model *model, i32 launch,
                     const struct vx_conv_choice *choice, struct vx_rig_request *request)
{
    for (int bits = 1; bits <= vx_bit_length(VOXELS); bits++)
        vx_gpu_choice_set(model->gpu->choices, launch, bits, choice);
    memset(&seen, 0, sizeof seen);
    memset(request->outputs[0], 0, sizeof request->outputs[0]);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    ck_assert_int_eq(seen.norms + seen.fused, 2);
}

/* Whatever tile tuning finds to be the fastest is ready with the norm; some tiles have too few
 * columns for it; the bits are the same. */
START_TEST(any_measured_tile_may_be_chosen)
{
    static const char block[] = FUSED("48", "20");
    char text[sizeof block + 32], path[VX_TEST_PATH_BYTES + 16];
    struct vx_rig_request *before = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *after = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    struct vx_why why = {{0}};
    i32 norms = 0, others = 0; /* tiles */
    snprintf(text, sizeof text, "%.*s,\"warmup\":[300]}", (int)strlen(block) - 1, block);
    run("fp16", block, before);
    snprintf(path, sizeof path, "%s/fake.tune", vx_rig_root);
    const struct vx_gpu_settings settings = {.tune_table = path, .tune = VX_TUNE_AUTO};
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    vx_gpu_rig_write("fp16", text, 31);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    for (i32 o = 1; o < VX_OUTPUTS_MAX; o++) after->item.outputs[o] = NULL;
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (i32 i = 0; i < model->gpu->tune.count; i++) {
        const struct vx_gpu_tune_item *item = &model->gpu->tune.items[i];
        static struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX];
        const struct vx_caps *caps = vx_arch_caps("fake");
        if (item->problem.co != 48) continue;
        ck_assert(item->want.norms);
        i32 count = vx_measure_candidates(&item->want, &item->problem, caps, choices);
        for (i32 k = 0; k < count; k++) {
            run_tile(model, 1, &choices[k], after);
            ck_assert_mem_eq(after->outputs[0], before->outputs[0],
                             (size_t)VOXELS * 5 * sizeof(f32));
            norms += vx_conv_norms(&item->problem, &choices[k]);
            others += !vx_conv_norms(&item->problem, &choices[k]);
        }
    }
    ck_assert_int_gt(norms, 0);
    ck_assert_int_gt(others, 0);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(before);
    vx_free(after);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_conv_norm");
    TCase *tcase = tcase_create("norms");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, norms_are_found, 0, (int)VX_COUNT(rows));
    tcase_add_loop_test(tcase, fused_norms_have_the_same_bits, 0, 4);
    tcase_add_test(tcase, any_measured_tile_may_be_chosen);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
