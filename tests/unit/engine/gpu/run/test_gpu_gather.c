/* A linear layer behind space_to_channel on the fake GPU: no row is put side by side, and the
 * answers are those of the CPU, which does so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "kernels/16_row_gather.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOXELS  150
#define CLASSES 5

/* Up to 16 channels, into blocks, a product, and back to the request's voxels. */
static const char *const product[] = {
    "\"op\":\"linear\",\"channels\":20",
    "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"vio\",\"channels\":33",
};
static const char *const strides[] = {"2", "[1,2,3]", "[3,1,2]"};
static const char network[] = VX_RIG_HEAD
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":16},"
    "{\"name\":\"b\",\"op\":\"space_to_channel\",\"input\":\"a\",\"stride\":%s},"
    "{\"name\":\"l\",\"input\":\"b\",%s},"
    "{\"name\":\"n\",\"op\":\"batch_norm\",\"input\":\"l\"},"
    "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"n\"},"
    "{\"name\":\"u\",\"op\":\"upsample\",\"input\":\"r\",\"stride\":%s,"
    "\"onto\":\"a\"},"
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"u\",\"channels\":5}],"
    "\"outputs\":[{\"layer\":\"y\"}]}";

static i32 gathers; /* launches of row_gather that put rows side by side */

static void see_gather(const void *given, enum vx_number type)
{
    const struct vx_row_gather_device_args *args = given;
    gathers += args->v > 1;
    vx_kernel_find("row_gather")->ref(given, type);
}

static const struct vx_kernel_spec *find(const char *name)
{
    static struct vx_kernel_spec gather;
    if (strcmp(name, "row_gather") != 0) return vx_kernel_find(name);
    gather = *vx_kernel_find(name);
    gather.ref = see_gather;
    return &gather;
}

START_TEST(rows_stay_where_they_are)
{
    char text[2048];
    const char *stride = strides[_i / 2];
    struct vx_rig_request *mine = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    struct vx_rig_request *theirs = vx_rig_request(5, VOXELS, 4, VX_DTYPE_F32);
    snprintf(text, sizeof text, network, stride, product[_i % 2], stride);
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    vx_gpu_rig_write("fp32", text, 3);
    struct vx_model *gpu = vx_gpu_rig_load(vx_rig_root), *cpu = vx_rig_load(vx_rig_root);
    gathers = 0;
    vx_gpu_rig_run(gpu, &mine->item);
    ck_assert_msg(!mine->item.status.fault, "%s", mine->item.why.text);
    ck_assert_int_eq(gathers, 0);
    vx_rig_run(cpu, &theirs->item);
    ck_assert_msg(!theirs->item.status.fault, "%s", theirs->item.why.text);
    bool any = false;
    for (i32 e = 0; e < VOXELS * CLASSES; e++) {
        const f32 want = theirs->outputs[0][e];
        ck_assert_float_eq_tol(mine->outputs[0][e], want, 1e-4f * (1 + fabsf(want)));
        any = any || want != 0;
    }
    ck_assert(any);
    vx_engine_unload(vx_gpu_rig_engine, &gpu);
    vx_engine_unload(vx_rig_engine, &cpu);
    vx_free(mine);
    vx_free(theirs);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_gather");
    TCase *tcase = tcase_create("gpu_gather");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, rows_stay_where_they_are, 0,
                        (int)(VX_COUNT(strides) * VX_COUNT(product)));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
