/* Products before channel_to_space on the fake GPU: with lists of live rows and without
 * they have the bits of the same network whose products compute all children; rows without a
 * child are not computed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "kernels/06_conv_masked.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOXELS 390
/* So many that they compute all tiles at once: then there are no lists. */
#define MANY_PROCESSORS 4000

/* A block that goes up as TRELLIS.2's does, and back to the request's voxels; of `product`
 * the product and what stands between it and its children. */
#define NETWORK                                                                          \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":3}},\"layers\":["                 \
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":%d},"            \
    "%s"                                                                                 \
    "{\"name\":\"l\",\"op\":\"linear\",\"input\":\"a\",\"channels\":%d},"                \
    "{\"name\":\"c\",\"op\":\"channel_to_space\",\"input\":\"%s\",\"occupancy\":\"l\","  \
    "\"stride\":%s},"                                                                    \
    "{\"name\":\"n\",\"op\":\"layer_norm\",\"input\":\"c\",\"affine\":false},"           \
    "{\"name\":\"d\",\"op\":\"downsample\",\"input\":\"n\",\"stride\":%s},"              \
    "{\"name\":\"b\",\"op\":\"upsample\",\"input\":\"d\",\"onto\":\"l\",\"stride\":1}]," \
    "\"outputs\":[{\"layer\":\"b\"}]}"
#define CONV                                                                             \
    "{\"name\":\"p\",\"op\":\"subm_conv\",\"input\":\"a\",\"channels\":%d,\"kernel\":3," \
    "\"layout\":\"vio\"},"
#define LINEAR "{\"name\":\"p\",\"op\":\"linear\",\"input\":\"a\",\"channels\":%d},"
/* Changes no number, and keeps the product from knowing its reader. */
#define APART "{\"name\":\"q\",\"op\":\"affine\",\"input\":\"p\"},"

static const struct {
    const char *product, *stride;
    i32 channels, children, child_channels;
    const char *precision;
} cases[] = {
    {CONV, "2", 16, 8, 16, "fp32"},
    {CONV, "2", 16, 8, 32, "fp16"},
    {CONV, "[1,2,2]", 32, 4, 16, "bf16"},
    {CONV, "[2,1,1]", 16, 2, 48, "tf32"},
    {LINEAR, "2", 16, 8, 16, "fp16"},
    {LINEAR, "[2,2,1]", 16, 4, 32, "fp32"},
    /* sums split by planes of offsets, and by columns */
    {CONV, "[1,1,2]", 512, 2, 16, "tf32"},
    {CONV, "[1,1,2]", 1024, 2, 16, "bf16"},
};

/* What convolutions were launched with. */
static struct {
    i32 lists, launches;
    i64 places, rows; /* of the lists, and rows that they have */
} seen;

static void see_conv(const void *given, enum vx_number type)
{
    const struct vx_conv_device_args *args = given;
    bool ends = false;
    i64 rows = 0;
    for (i64 at = 0; args->order && at < args->n; at++) {
        rows += args->order[at] >= 0;
        ends = ends || args->order[at] < 0;
    }
    seen.launches++;
    seen.lists += ends;
    if (ends) seen.rows += rows, seen.places += args->n;
    vx_kernel_find("conv_masked")->ref(given, type);
}

static const struct vx_kernel_spec *find(const char *name)
{
    static struct vx_kernel_spec conv;
    if (strcmp(name, "conv_masked") != 0) return vx_kernel_find(name);
    conv = *vx_kernel_find(name);
    conv.ref = see_conv;
    return &conv;
}

static void run(i32 index, bool apart, i32 processors, struct vx_rig_request *request)
{
    const i32 channels = cases[index].children * cases[index].child_channels;
    char product[512], text[2048];
    int used = snprintf(product, sizeof product, cases[index].product, channels);
    if (apart) snprintf(product + used, sizeof product - (size_t)used, "%s", APART);
    snprintf(text, sizeof text, NETWORK, cases[index].channels, product,
             cases[index].children, apart ? "q" : "p", cases[index].stride,
             cases[index].stride);
    vx_fake_set(&(struct vx_fake_settings){.find = find, .processors = processors});
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    vx_gpu_rig_write(cases[index].precision, text, 17);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    for (i32 o = 1; o < VX_OUTPUTS_MAX; o++) request->item.outputs[o] = NULL;
    memset(&seen, 0, sizeof seen);
    memset(request->outputs, 0x5a, sizeof request->outputs);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}

START_TEST(live_children_have_the_same_bits)
{
    struct vx_rig_request *all = vx_rig_request(3, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *live = vx_rig_request(3, VOXELS, 4, VX_DTYPE_F32);
    const size_t bytes = (size_t)VOXELS * (size_t)cases[_i].child_channels * sizeof(f32);
    ck_assert_uint_le(bytes, sizeof all->outputs); /* of several outputs, side by side */
    run(_i, true, MANY_PROCESSORS, all);
    const i32 plain = seen.launches;
    ck_assert_int_eq(seen.lists, 0);
    run(_i, false, MANY_PROCESSORS, live);
    ck_assert_int_eq(seen.lists, 0);
    ck_assert_int_eq(seen.launches, plain - 1 + cases[_i].children);
    ck_assert_mem_eq(live->outputs, all->outputs, bytes);
    run(_i, false, 1, live);
    ck_assert_int_eq(seen.lists, cases[_i].children);
    ck_assert_int_eq(seen.launches, plain - 1 + cases[_i].children);
    /* Half of the children are live, with much room for chance. */
    ck_assert_int_gt(seen.rows * 10, seen.places);
    ck_assert_int_lt(seen.rows * 10, seen.places * 9);
    ck_assert_mem_eq(live->outputs, all->outputs, bytes);
    i32 numbers = 0;
    for (i32 e = 0; e < VOXELS * cases[_i].child_channels; e++) {
        const f32 value = ((const f32 *)all->outputs)[e];
        ck_assert(isfinite(value));
        numbers += value != 0;
    }
    ck_assert_int_gt(numbers, VOXELS);
    vx_free(all);
    vx_free(live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_live");
    TCase *tcase = tcase_create("gpu_live");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_add_loop_test(tcase, live_children_have_the_same_bits, 0, VX_COUNT(cases));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
