/* Dense outputs of many samples on the fake GPU: a few are made at a time, so that neither
 * their number nor the tensor's size needs memory of the device; one sample must fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define HEAD      "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":8}},\"layers\":["
#define UNTOUCHED 0xaa

static const struct {
    const char *shape;
    i32 at[3], samples;
    size_t device_bytes; /* less than the tensor */
} parts[] = {
    {"[8,16,16]", {8, 16, 16}, 40, VX_RIG_DEVICE_BYTES}, /* 14 at a time */
    {"[16,32,128]", {16, 32, 128}, 12, 8 << 20},         /* each is more than a part */
    {"[1,1,1]", {1, 1, 1}, VX_SAMPLE_MAX + 1, VX_RIG_DEVICE_BYTES},
};

/* One voxel in most samples, somewhere else in each: as on the CPU. */
START_TEST(samples_a_few_at_a_time)
{
    const i32 *shape = parts[_i].at, samples = parts[_i].samples;
    const size_t bytes =
        (size_t)samples * 8 * (size_t)(shape[0] * shape[1] * shape[2]) * sizeof(f32);
    char json[1024];
    snprintf(json, sizeof json,
             HEAD "{\"name\":\"z\",\"op\":\"to_dense\",\"input\":\"feats\",\"shape\":"
                  "%s}],\"outputs\":[{\"layer\":\"z\"}],\"limits\":{\"voxels_max\":600}}",
             parts[_i].shape);
    vx_gpu_rig_reopen(parts[_i].device_bytes, NULL);
    vx_gpu_rig_write("fp32", json, 3);
    struct vx_model *models[] = {vx_rig_load(vx_rig_root), vx_gpu_rig_load(vx_rig_root)};
    struct vx_engine *engines[] = {vx_rig_engine, vx_gpu_rig_engine};
    i32 *coords = vx_alloc((size_t)samples * 4 * sizeof *coords), n = 0;
    f32 *feats = vx_alloc((size_t)samples * 8 * sizeof *feats);
    u8 *out[2];
    for (i32 b = samples - 1; b >= 0; b--) {
        if (b % 5 == 3 && b != samples - 1) continue;
        for (i32 c = 0; c < 8; c++) feats[8 * n + c] = (f32)(1 + b * 8 + c);
        const i32 at[4] = {b, b * 3 % shape[0], b * 7 % shape[1], b * 11 % shape[2]};
        memcpy(coords + 4 * n++, at, sizeof at);
    }
    for (i32 device = 0; device < 2; device++) {
        struct vx_item item = {.coords = coords,
                               .coords_columns = 4,
                               .voxels = n,
                               .feats = feats,
                               .feats_dtype = VX_DTYPE_F32,
                               .asks = 1};
        struct vx_batch batch = {.items = &item, .items_count = 1};
        struct vx_asked asked;
        out[device] = vx_alloc(bytes);
        memset(out[device], UNTOUCHED, bytes);
        vx_engine_submit(engines[device], models[device], &batch);
        while (vx_engine_under_way(engines[device])) {
            while (vx_engine_asked(engines[device], &asked)) {
                ck_assert_int_eq(item.rows[0], samples);
                item.outputs[0] = out[device];
                vx_engine_place(engines[device], &batch, 0);
            }
            (void)vx_engine_collect(engines[device], true);
        }
        ck_assert_msg(!item.status.fault, "%s", item.why.text);
    }
    ck_assert(!memcmp(out[0], out[1], bytes));
    for (i32 device = 0; device < 2; device++) {
        vx_free(out[device]);
        vx_engine_unload(engines[device], &models[device]);
    }
    vx_free(coords);
    vx_free(feats);
}
END_TEST

/* A sample must fit: it is part of what the smallest request needs. */
START_TEST(a_tensor_that_does_not_fit_is_refused)
{
    vx_gpu_rig_reopen(4 << 20, NULL);
    vx_gpu_rig_write("fp32",
                     HEAD "{\"name\":\"z\",\"op\":\"to_dense\",\"input\":\"feats\","
                          "\"shape\":[16,64,128]}],\"outputs\":[{\"layer\":\"z\"}]}",
                     3);
    struct vx_rig_load load = vx_gpu_rig_load_any(vx_rig_root);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(load.why.text, "the smallest request is 1 voxels") != NULL, "%s",
                  load.why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_dense_parts");
    TCase *tcase = tcase_create("gpu_dense_parts");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, samples_a_few_at_a_time, 0, VX_COUNT(parts));
    tcase_add_test(tcase, a_tensor_that_does_not_fit_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
