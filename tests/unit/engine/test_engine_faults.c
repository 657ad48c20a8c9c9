/* The engine when a request, a model file or a setting is wrong, and while models come and go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One bad request among good ones: it fails alone, with a sentence, and leaves nothing behind. */
static const struct {
    i64 row;
    i32 coords[4];
    const char *word; /* a part of its sentence */
} bad_rows[] = {
    {20, {0, 0, 0, 0}, "3"}, /* the same as row 3, put there by the test */
    {20, {0, VX_AXIS_MAX + 1, 0, 0}, "131072"},
    {20, {0, 0, VX_AXIS_MIN - 1, 0}, "-131073"},
    {20, {0, 0, 0, INT32_MIN}, "-2147483648"},
    {20, {-1, 0, 0, 0}, "-1"},
    {20, {VX_SAMPLE_MAX + 1, 0, 0, 0}, "512"},
};

START_TEST(a_bad_request_fails_alone)
{
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 7);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    struct vx_rig_request *good = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_rig_request *bad = vx_rig_request(2, 100, 4, VX_DTYPE_F32);
    memcpy(bad->coords + bad_rows[_i].row * 4, bad_rows[_i].coords,
           sizeof bad_rows[_i].coords);
    if (_i == 0) memcpy(bad->coords + 20 * 4, bad->coords + 3 * 4, 4 * sizeof(i32));
    struct vx_item items[3] = {good->item, bad->item, good->item};
    struct vx_batch batch = {.items = items, .items_count = 3};
    vx_engine_run(vx_rig_engine, model, &batch);
    ck_assert(!items[0].status.fault);
    ck_assert(!items[2].status.fault);
    ck_assert(items[2].geometry_hit);
    ck_assert_int_eq(vx_status_code(items[1].status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(items[1].why.text, "20") != NULL, "%s", items[1].why.text);
    ck_assert_msg(strstr(items[1].why.text, bad_rows[_i].word) != NULL, "%s",
                  items[1].why.text);
    good->item = items[2];
    vx_rig_compare(good, &files);
    vx_rig_files_close(&files);
    vx_free(good);
    vx_free(bad);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* NaN and infinity spread as the arithmetic defines, and no further. */
START_TEST(what_is_not_a_number_passes_through)
{
    static const char *const json =
        VX_RIG_HEAD VX_RIG_CONV("c", "feats", "4", ",\"kernel\":3,\"layout\":\"spconv\"")
            VX_RIG_OP("relu", "r", "c") VX_RIG_LINEAR(
                "y", "r", "4") "{\"name\":\"z\",\"op\":\"gelu\",\"input\":\"y\"}],"
                               "\"outputs\":[{\"layer\":\"z\"},{\"name\":\"half\","
                               "\"layer\":\"z\",\"datatype\":\"FP16\"}]}";
    vx_rig_write_model(vx_rig_root, json, 3);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(5, 60, 3, VX_DTYPE_F32);
    struct vx_rig_request *clean = vx_rig_request(5, 60, 3, VX_DTYPE_F32);
    request->feats[7 * VX_RIG_CHANNELS + 1] = NAN;
    vx_rig_run(model, &request->item);
    vx_rig_run(model, &clean->item);
    ck_assert(!request->item.status.fault);
    i32 reached = 0;
    for (i64 row = 0; row < 60; row++) {
        const i32 *a = request->coords + row * 3, *b = request->coords + 7 * 3;
        bool near =
            abs(a[0] - b[0]) <= 1 && abs(a[1] - b[1]) <= 1 && abs(a[2] - b[2]) <= 1;
        reached += near;
        for (i64 c = 0; c < 4; c++) {
            const u16 *halves = (const u16 *)(const void *)request->outputs[1];
            f32 value = request->outputs[0][row * 4 + c];
            ck_assert_msg(near == !!isnan(value), "row %d", (int)row);
            ck_assert(near == ((halves[row * 4 + c] & 0x7fff) > 0x7c00));
            if (!near) ck_assert(value == clean->outputs[0][row * 4 + c]);
        }
    }
    ck_assert_int_ge(reached, 1);
    vx_free(request);
    vx_free(clean);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_the_numbers)
{
    /* 2 x 1024 channels alive at once: 8 KiB a voxel, so 64 MiB hold 8192. */
    static const char *const json = VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "1024")
        VX_RIG_LINEAR("y", "a",
                      "1024") "{\"name\":\"z\",\"op\":\"relu\","
                              "\"input\":\"y\"}],\"outputs\":[{\"layer\":\"z\"}]%s}";
    char text[1024];
    snprintf(text, sizeof text, json, "");
    vx_rig_write_model(vx_rig_root, text, 1);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    /* The file sets no limit, so the limit is what fits. */
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, 8192);
    ck_assert_int_eq(vx_model_signature(model)->batching.voxels_max, 8192);
    i64 n = 8193;
    i32 *coords = vx_alloc_zero((size_t)n * 12);
    f32 *feats = vx_alloc_zero((size_t)n * 12);
    for (i32 i = 0; i < n; i++) coords[i * 3] = i;
    struct vx_item item = {.coords = coords,
                           .coords_columns = 3,
                           .voxels = n,
                           .feats = feats,
                           .feats_dtype = VX_DTYPE_F32};
    vx_rig_run(model, &item);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(item.why.text,
                     "8193 voxels need 67239936 bytes of device memory (2048 "
                     "channels each), 67108864 are available: at most 8192 voxels fit");
    item.voxels = 8192;
    vx_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    vx_engine_unload(vx_rig_engine, &model);
    vx_free(coords);
    vx_free(feats);

    snprintf(text, sizeof text, json, ",\"limits\":{\"voxels_max\":10000}");
    vx_rig_write_model(vx_rig_root, text, 1);
    struct vx_rig_load load = vx_rig_load_any(vx_rig_root, 1);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(load.model);
    ck_assert_msg(strstr(load.why.text,
                         "limits.voxels_max is 10000 voxels, which need 81920000 "
                         "bytes of device memory (2048 channels each); device_bytes "
                         "is 67108864: at most 8192 voxels fit") != NULL,
                  "%s", load.why.text);
}
END_TEST

START_TEST(loading_says_what_is_wrong)
{
    char path[VX_TEST_PATH_BYTES + 64];
    struct vx_rig_load load = vx_rig_load_any(vx_rig_root, 1);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_NOT_FOUND);
    ck_assert_msg(strstr(load.why.text, "network.json: cannot be opened") != NULL, "%s",
                  load.why.text);
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 1);
    load = vx_rig_load_any(vx_rig_root, 2);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_NOT_FOUND);
    ck_assert_msg(strstr(load.why.text, "/2/weights.safetensors: cannot be opened") !=
                      NULL,
                  "%s", load.why.text);
    load = vx_rig_load_any(vx_rig_root, 0);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s//", vx_rig_root);
    load = vx_rig_load_any(path, 1);
    ck_assert_msg(!load.status.fault, "%s", load.why.text);
    ck_assert_int_gt(load.progress_total, 0);
    ck_assert_int_eq(load.progress_calls, load.progress_total);
    vx_engine_unload(vx_rig_engine, &load.model);
    snprintf(path, sizeof path, "%s/1/weights.safetensors", vx_rig_root);
    vx_test_write_file(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    load = vx_rig_load_any(vx_rig_root, 1);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_DATA_LOSS);
    ck_assert_msg(strstr(load.why.text, "longer than the file's 10 bytes") != NULL, "%s",
                  load.why.text);
    const struct vx_test_tensor tensors[] = {
        {"a.weight", "F32", {10, 3, 3, 3, 3}, 5, NULL}};
    vx_test_write_safetensors(path, tensors, 1);
    load = vx_rig_load_any(vx_rig_root, 1);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(load.why.text,
                         "tensor \"an.weight\" of layer \"an\": the tensor is missing") !=
                      NULL,
                  "%s", load.why.text);
}
END_TEST

/* As in a worker: the device thread is frozen, warms one model and serves while another loads. */
START_TEST(models_load_while_others_run)
{
    char other[VX_TEST_PATH_BYTES + 8];
    vx_rig_write_model(vx_rig_root, vx_rig_networks[2], 7);
    snprintf(other, sizeof other, "%s/other", vx_rig_root);
    vx_rig_write_model(other, vx_rig_networks[1], 8);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    struct vx_why why = {{0}};
    struct vx_rig_load load = {.source = {.directory = other, .version = 1}};
    pthread_t thread;
    ck_assert(!vx_thread_open(&thread, VX_ROLE_MAIN, vx_rig_load_run, &load).fault);
    vx_alloc_freeze();
    ck_assert(!vx_engine_warm(vx_rig_engine, model, &why).fault);
    for (int i = 0; i < 20; i++) {
        vx_rig_run(model, &request->item);
        ck_assert(!request->item.status.fault);
        ck_assert(request->item.geometry_hit == (i > 0));
    }
    vx_alloc_thaw();
    ck_assert(!pthread_join(thread, NULL));
    ck_assert_msg(!load.status.fault, "%s", load.why.text);
    vx_rig_compare(request, &files);
    vx_alloc_freeze();
    vx_engine_unload(vx_rig_engine, &load.model);
    vx_engine_unload(vx_rig_engine, &model);
    vx_alloc_thaw();
    vx_rig_files_close(&files);
    vx_free(request);
}
END_TEST

/* A geometry cache that holds the set of 400 voxels (4.8 KB) and not their map (43 KB): the
 * model's limit is lower, a larger request is refused, nothing stays held, and requests that
 * fit are answered before and after. */
START_TEST(a_map_that_does_not_fit_is_said)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = VX_RIG_DEVICE_BYTES,
                                              .cache_bytes = 48 << 10};
    struct vx_engine_stats stats;
    struct vx_why why = {{0}};
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    vx_rig_write_model(vx_rig_root,
                       VX_RIG_HEAD
                       "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":"
                       "\"feats\",\"channels\":5,\"kernel\":3,\"layout\":\"spconv\"}],"
                       "\"outputs\":[{\"layer\":\"y\"}]}",
                       3);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *small = vx_rig_request(1, 40, 4, VX_DTYPE_F32);
    struct vx_rig_request *large = vx_rig_request(2, 400, 4, VX_DTYPE_F32);
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, 379);
    ck_assert(!vx_engine_warm(vx_rig_engine, model, &why).fault);
    for (int again = 0; again < 3; again++) {
        vx_rig_run(model, &small->item);
        ck_assert_msg(!small->item.status.fault, "%s", small->item.why.text);
        vx_rig_run(model, &large->item);
        ck_assert_int_eq(vx_status_code(large->item.status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_msg(strstr(large->item.why.text, "in the geometry cache") != NULL, "%s",
                      large->item.why.text);
    }
    /* The maximum in use is that of the largest request, whatever came last. */
    vx_engine_stats_get(vx_rig_engine, &stats);
    const i64 most = stats.device_bytes_used_max;
    vx_rig_run(model, &small->item);
    vx_engine_stats_get(vx_rig_engine, &stats);
    ck_assert_int_gt(most, 0);
    ck_assert_int_eq(stats.device_bytes_used_max, most);
    vx_engine_unload(vx_rig_engine, &model);
    vx_free(small);
    vx_free(large);
}
END_TEST

START_TEST(options_are_checked)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 4096,
                                              .cache_bytes = 32 << 20};
    struct vx_engine *small;
    struct vx_why why = {{0}};
    ck_assert_int_eq(vx_status_code(vx_engine_open(&options, &why, &small)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, "device_bytes: expected at least 1048576, got 4096");
    ck_assert_ptr_null(small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_faults");
    TCase *tcase = tcase_create("engine_faults");
    tcase_add_checked_fixture(tcase, vx_rig_set_up, vx_rig_tear_down);
    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, a_bad_request_fails_alone, 0, VX_COUNT(bad_rows));
    tcase_add_test(tcase, what_is_not_a_number_passes_through);
    tcase_add_test(tcase, what_does_not_fit_is_refused_with_the_numbers);
    tcase_add_test(tcase, loading_says_what_is_wrong);
    tcase_add_test(tcase, models_load_while_others_run);
    tcase_add_test(tcase, a_map_that_does_not_fit_is_said);
    tcase_add_test(tcase, options_are_checked);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
