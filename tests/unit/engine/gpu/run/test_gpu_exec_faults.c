/* Networks on the fake GPU when a request, the memory, the driver or the device is wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    i64 row, same; /* `row` becomes a copy of `same`, or gets the coordinates */
    i32 coords[4];
} bad_rows[] = {
    {20, 3, {0}},
    {99, 0, {0}},
    {20, -1, {0, VX_AXIS_MAX + 1, 0, 0}},
    {20, -1, {0, 0, VX_AXIS_MIN - 1, 0}},
    {20, -1, {0, 0, 0, INT32_MIN}},
    {20, -1, {-1, 0, 0, 0}},
    {0, -1, {VX_SAMPLE_MAX + 1, 0, 0, 0}},
};

/* One bad request among good ones: it fails alone, with the same sentence as on the CPU. */
START_TEST(a_bad_request_fails_alone)
{
    vx_gpu_rig_write("fp32", vx_rig_networks[1], 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root),
                    *cpu = vx_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    struct vx_rig_request *good = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_rig_request *bad = vx_rig_request(2, 100, 4, VX_DTYPE_F32);
    i32 *row = bad->coords + bad_rows[_i].row * 4;
    const i32 *from = bad_rows[_i].coords;
    if (bad_rows[_i].same >= 0) from = bad->coords + bad_rows[_i].same * 4;
    memcpy(row, from, 4 * sizeof *row);
    struct vx_item items[3] = {good->item, bad->item, good->item}, theirs = bad->item;
    struct vx_batch batch = {.items = items, .items_count = 3};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
    vx_rig_run(cpu, &theirs);
    ck_assert(!items[0].status.fault);
    ck_assert(!items[2].status.fault);
    ck_assert_int_eq(vx_status_code(items[1].status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(items[1].why.text, theirs.why.text);
    good->item = items[2];
    vx_gpu_rig_compare(good, &files, VX_NUMBER_F32);
    vx_rig_files_close(&files);
    vx_free(good);
    vx_free(bad);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

/* NaN and infinity spread as the arithmetic defines, and no further. */
START_TEST(what_is_not_a_number_passes_through)
{
    static const char *const json =
        VX_RIG_HEAD VX_RIG_CONV("c", "feats", "4", ",\"kernel\":3,\"layout\":\"spconv\"")
            VX_RIG_OP("relu", "r", "c") VX_RIG_LINEAR(
                "y", "r", "4") "{\"name\":\"z\",\"op\":\"gelu\",\"input\":\"y\"}],"
                               "\"outputs\":[{\"layer\":\"z\"}]}";
    static const char *const words[] = {"fp32", "fp16", "bf16"};
    vx_gpu_rig_write(words[_i], json, 3);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(5, 60, 3, VX_DTYPE_F32);
    struct vx_rig_request *clean = vx_rig_request(5, 60, 3, VX_DTYPE_F32);
    request->feats[7 * VX_RIG_CHANNELS + 1] = NAN;
    vx_gpu_rig_run(model, &request->item);
    vx_gpu_rig_run(model, &clean->item);
    ck_assert(!request->item.status.fault);
    for (i64 row = 0; row < 60; row++) {
        const i32 *a = request->coords + row * 3, *b = request->coords + 7 * 3;
        bool near =
            abs(a[0] - b[0]) <= 1 && abs(a[1] - b[1]) <= 1 && abs(a[2] - b[2]) <= 1;
        for (i64 c = 0; c < 4; c++) {
            f32 value = request->outputs[0][row * 4 + c];
            ck_assert_msg(near == !!isnan(value), "row %d", (int)row);
            if (!near) ck_assert(value == clean->outputs[0][row * 4 + c]);
        }
    }
    vx_free(request);
    vx_free(clean);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_the_numbers)
{
    char text[1024], said[64];
    snprintf(
        text, sizeof text, "%s",
        VX_RIG_HEAD VX_RIG_CONV("a", "feats", "64", ",\"kernel\":3,\"layout\":\"spconv\"")
            VX_RIG_LINEAR("y", "a", "1") "{\"name\":\"z\",\"op\":\"relu\",\"input\":"
                                         "\"y\"}],\"outputs\":[{\"layer\":\"z\"}]}");
    vx_gpu_rig_reopen(4 << 20, NULL);
    vx_gpu_rig_write("fp16", text, 1);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    /* The file sets no limit, so the limit is what fits. */
    i64 fits = vx_model_signature(model)->voxels_max, n = fits + 1;
    ck_assert_int_gt(fits, 1000);
    ck_assert_int_lt(fits, 100000);
    i32 *coords = vx_alloc_zero((size_t)n * 12);
    f32 *feats = vx_alloc_zero((size_t)n * 12), *out = vx_alloc((size_t)n * 4);
    for (i32 i = 0; i < n; i++) coords[i * 3] = i;
    struct vx_item item = {.coords = coords,
                           .coords_columns = 3,
                           .voxels = n,
                           .feats = feats,
                           .feats_dtype = VX_DTYPE_F32,
                           .outputs = {out}};
    vx_gpu_rig_run(model, &item); /* uploads the weights */
    i64 launches = vx_fake_launches();
    vx_gpu_rig_run(model, &item);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_RESOURCE_EXHAUSTED);
    snprintf(said, sizeof said, "at most %lld voxels fit", (long long)fits);
    ck_assert_msg(strstr(item.why.text, said) != NULL, "%s", item.why.text);
    ck_assert_msg(strstr(item.why.text, "4194304 are available") != NULL, "%s",
                  item.why.text);
    ck_assert_int_eq(vx_fake_launches(), launches);
    item.voxels = fits;
    vx_gpu_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_int_eq(item.pairs, 3 * fits - 2); /* a line */
    vx_free(coords);
    vx_free(feats);
    vx_free(out);
    vx_engine_unload(vx_gpu_rig_engine, &model);

    snprintf(said, sizeof said, ",\"limits\":{\"voxels_max\":1000000}}");
    snprintf(text + strlen(text) - 1, sizeof text - strlen(text), "%s", said);
    vx_gpu_rig_write("fp16", text, 1);
    struct vx_rig_load load = vx_gpu_rig_load_any(vx_rig_root);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(load.why.text, "limits.voxels_max is 1000000 voxels") != NULL,
                  "%s", load.why.text);
}
END_TEST

/* Weights lie outside the memory for requests. Too many are refused before they are copied, because
 * of their size or of what others have taken since, and the device goes on serving. */
START_TEST(weights_that_do_not_fit_are_refused)
{
    static const char *const json = VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "1024")
        VX_RIG_LINEAR("y", "a",
                      "1024") "{\"name\":\"z\",\"op\":\"relu\",\"input\":\"y\"}],"
                              "\"outputs\":[{\"layer\":\"z\"}]}";
    struct vx_why why = {{0}};
    vx_engine_close(&vx_gpu_rig_engine);
    vx_fake_set(&(struct vx_fake_settings){.memory_bytes = 14 << 20});
    vx_gpu_rig_cache_bytes = 256 << 10;
    vx_gpu_rig_reopen(8 << 20, NULL);
    /* 4 MiB and more, half of them tiled, of 5 that are free */
    vx_gpu_rig_write("fp16", json, 1);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_model *second = vx_gpu_rig_load(vx_rig_root);
    ck_assert(!vx_engine_warm(vx_gpu_rig_engine, model, &why).fault);
    ck_assert_int_eq(vx_status_code(vx_engine_warm(vx_gpu_rig_engine, second, &why)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(why.text, "bytes of device memory, of which") != NULL, "%s",
                  why.text);
    vx_engine_unload(vx_gpu_rig_engine, &second);
    struct vx_rig_load third = vx_gpu_rig_load_any(vx_rig_root);
    ck_assert_int_eq(vx_status_code(third.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(third.why.text, "bytes of device memory, of which") != NULL,
                  "%s", third.why.text);
    vx_gpu_rig_write("fp16", vx_rig_networks[0], 1);
    second = vx_gpu_rig_load(vx_rig_root);
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, second, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_engine_unload(vx_gpu_rig_engine, &second);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Memory for requests that the device does not have is refused at open, with the numbers. */
START_TEST(a_block_that_does_not_fit_is_refused)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_FAKE,
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 32 << 20};
    struct vx_engine *none;
    struct vx_why why = {{0}};
    vx_engine_close(&vx_gpu_rig_engine);
    vx_fake_set(&(struct vx_fake_settings){.memory_bytes = 9 << 20});
    ck_assert_int_eq(vx_status_code(vx_engine_open(&options, &why, &none)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(why.text, "device_bytes: 67108864 bytes are more than") != NULL,
                  "%s", why.text);
    ck_assert_ptr_null(none);
}
END_TEST

/* Weights that a precision cannot hold: an infinite or NaN weight would make the bits of a
 * row depend on its tile. */
START_TEST(a_weight_that_is_no_number_of_the_precision_is_refused)
{
    static const struct {
        const char *precision;
        f32 weight;
        const char *said;
    } rows[] = {
        {"fp16", 70000, "the weight 70000 is out of range for FP16 (at most 65504)"},
        {"fp16", INFINITY, "the weight inf is out of range for FP16"},
        {"bf16", 3.4e38f, "the weight 3.4e+38 is out of range for BF16"},
        {"tf32", NAN, "the weight nan is out of range for FP32"},
        {"fp32", -INFINITY, "the weight -inf is out of range for FP32"},
    };
    const f32 values[6] = {1, 2, 3, rows[_i].weight, 5, 6};
    char json[1024];
    snprintf(json, sizeof json,
             VX_RIG_HEAD
             "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":2,"
             "\"bias\":false}],\"outputs\":[{\"layer\":\"y\"}],\"precision\":\"%s\"}",
             rows[_i].precision);
    const struct vx_test_tensor tensor = {"y.weight", "F32", {2, 3}, 2, values};
    vx_test_write_model(vx_rig_root, 1, json, &tensor, 1);
    struct vx_rig_load load = vx_gpu_rig_load_any(vx_rig_root);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(load.why.text, "layer \"y\": ") &&
                      strstr(load.why.text, rows[_i].said),
                  "%s", load.why.text);
}
END_TEST

/* In the columns that pad two channels to sixteen, an infinity is multiplied by weights of zero. */
START_TEST(an_infinity_stays_one_beside_padding)
{
    static const char *const json = VX_RIG_HEAD
        "{\"name\":\"x\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":2,"
        "\"bias\":false},{\"name\":\"y\",\"op\":\"linear\",\"input\":\"x\","
        "\"channels\":1,\"bias\":false}],\"outputs\":[{\"layer\":\"y\"}],"
        "\"precision\":\"fp16\"}";
    const f32 ones[6] = {1, 1, 1, 1, 1, 1};
    const struct vx_test_tensor tensors[] = {{"x.weight", "F32", {2, 3}, 2, ones},
                                             {"y.weight", "F32", {1, 2}, 2, ones}};
    vx_test_write_model(vx_rig_root, 1, json, tensors, 2);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(1, 2, 4, VX_DTYPE_F32);
    for (i32 i = 0; i < 6; i++) request->feats[i] = i < 3 ? INFINITY : 1;
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    ck_assert_float_eq(request->outputs[0][0], INFINITY);
    ck_assert_float_eq(request->outputs[0][1], 6);
    vx_free(request);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* A batch runs in as many rounds as it needs: memory bounds each request, not their sum. */
START_TEST(a_batch_may_hold_more_than_one_request_may)
{
    static const char *const json = VX_RIG_HEAD
        "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":2,"
        "\"bias\":false}],\"outputs\":[{\"layer\":\"y\"}],\"limits\":{\"voxels_max\":"
        "200},\"batching\":{\"voxels_max\":100000},\"warmup\":[]}";
    const f32 ones[6] = {1, 1, 1, 1, 1, 1};
    const struct vx_test_tensor tensor = {"y.weight", "F32", {2, 3}, 2, ones};
    vx_test_write_model(vx_rig_root, 1, json, &tensor, 1);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, 200);
    ck_assert_int_eq(vx_model_signature(model)->batching.voxels_max, 100000);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* The device is lost at each launch of a request in turn: that item and all that follow
 * are UNAVAILABLE with the first error's sentence, and the worker is notified. */
START_TEST(a_lost_device_says_so)
{
    vx_gpu_rig_write("fp32", vx_rig_networks[1], 7);
    struct vx_rig_request *request = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_why why = {{0}};
    i64 launches = 1;
    for (i64 nth = 1; nth <= launches; nth++) {
        vx_engine_close(&vx_gpu_rig_engine);
        vx_fake_set(&(struct vx_fake_settings){0});
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
        struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
        ck_assert(!vx_engine_warm(vx_gpu_rig_engine, model, &why).fault);
        if (nth == 1) {
            i64 before = vx_fake_launches();
            vx_gpu_rig_run(model, &request->item);
            launches = vx_fake_launches() - before;
            ck_assert_int_gt(launches, 5);
        }
        vx_fake_set(&(struct vx_fake_settings){.lose_launch = nth});
        struct vx_item items[3] = {request->item, request->item, request->item};
        struct vx_batch batch = {.items = items, .items_count = 3};
        vx_engine_run(vx_gpu_rig_engine, model, &batch);
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(vx_status_code(items[i].status), VX_CODE_UNAVAILABLE);
            ck_assert_int_gt((int)strlen(items[i].why.text), 0);
        }
        ck_assert_str_eq(items[1].why.text, items[2].why.text);
        ck_assert(vx_engine_lost(vx_gpu_rig_engine, &why));
        ck_assert_str_eq(why.text, items[2].why.text);
        vx_engine_unload(vx_gpu_rig_engine, &model);
    }
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_free(request);
}
END_TEST

/* Every call of the driver fails once, in turn: one batch fails, and the next is right,
 * also when it uses the geometry that the first was building. */
START_TEST(a_failing_call_fails_one_batch)
{
    vx_gpu_rig_write("fp32", vx_rig_networks[1], 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_rig_request *after = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    request->item.coords_ref.high = (u64)_i;
    vx_gpu_rig_run(model, &request->item);
    i64 before = vx_fake_calls();
    request->item.coords_ref.low = (u64)_i * 1000;
    vx_gpu_rig_run(model, &request->item);
    i64 calls = vx_fake_calls() - before;
    ck_assert_int_gt(calls, 10);
    i32 failed = 0;
    for (i64 nth = 1; nth <= calls; nth++) {
        vx_fake_set(&(struct vx_fake_settings){.fail_call = nth, .fail_code = 2});
        request->item.coords_ref.low = after->item.coords_ref.low = (u64)(_i * nth);
        after->item.coords_ref.high = (u64)_i;
        vx_gpu_rig_run(model, &request->item);
        if (request->item.status.fault) {
            failed++;
            ck_assert_int_gt((int)strlen(request->item.why.text), 0);
            ck_assert(!request->item.geometry_kept);
        }
        memset(after->outputs, 0, sizeof after->outputs);
        vx_gpu_rig_run(model, &after->item);
        ck_assert_msg(!after->item.status.fault, "call %d: %s", (int)nth,
                      after->item.why.text);
        ck_assert(after->item.geometry_kept == !!_i);
        vx_gpu_rig_compare(after, &files, VX_NUMBER_F32);
    }
    ck_assert_int_eq(failed, (int)calls);
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_rig_files_close(&files);
    vx_free(request);
    vx_free(after);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* The same while a model is warmed: the warm-up fails or succeeds, and a second try succeeds. */
START_TEST(a_failing_call_fails_one_warm_up)
{
    vx_gpu_rig_write("fp16", vx_rig_networks[0], 7);
    struct vx_why why = {{0}};
    bool failed = true;
    i64 nth = 0;
    while (failed) {
        struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
        size_t before = vx_fake_memory_used();
        vx_fake_set(&(struct vx_fake_settings){.fail_call = ++nth, .fail_code = 2});
        failed = vx_engine_warm(vx_gpu_rig_engine, model, &why).fault != NULL;
        ck_assert(failed == (vx_fake_calls() >= nth));
        vx_fake_set(&(struct vx_fake_settings){0});
        vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
        ck_assert_msg(!status.fault, "call %d: %s", (int)nth, why.text);
        vx_engine_unload(vx_gpu_rig_engine, &model);
        ck_assert_uint_le(vx_fake_memory_used(), before);
    }
    ck_assert_int_gt(nth, 10);
}
END_TEST

/* A limit in the file is never exceeded, however much memory there is. */
START_TEST(a_limit_is_a_limit)
{
    char json[4096];
    snprintf(json, sizeof json, "%.*s,\"limits\":{\"voxels_max\":50}}",
             (int)strlen(vx_rig_networks[0]) - 1, vx_rig_networks[0]);
    vx_gpu_rig_write("fp16", json, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(1, 51, 4, VX_DTYPE_F32);
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, 50);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_int_eq(vx_status_code(request->item.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(request->item.why.text, "expected at most 50 voxels, got 51");
    request->item.voxels = 50;
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_free(request);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* As in a worker: the device thread is frozen, warms one model and serves while another
 * loads. */
START_TEST(models_load_while_others_run)
{
    char other[VX_TEST_PATH_BYTES + 8];
    vx_gpu_rig_write("fp32", vx_rig_networks[2], 7);
    snprintf(other, sizeof other, "%s/other", vx_rig_root);
    vx_rig_write_model(other, vx_rig_networks[1], 8);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    struct vx_why why = {{0}};
    struct vx_rig_load load = {.source = {.directory = other, .version = 1}};
    struct vx_engine *cpu = vx_rig_engine;
    pthread_t thread;
    vx_rig_engine = vx_gpu_rig_engine;
    ck_assert(!vx_thread_open(&thread, VX_ROLE_MAIN, vx_rig_load_run, &load).fault);
    vx_alloc_freeze();
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (int i = 0; i < 20; i++) {
        vx_gpu_rig_run(model, &request->item);
        ck_assert(!request->item.status.fault);
    }
    vx_alloc_thaw();
    ck_assert(!pthread_join(thread, NULL));
    vx_rig_engine = cpu;
    ck_assert_msg(!load.status.fault, "%s", load.why.text);
    vx_gpu_rig_compare(request, &files, VX_NUMBER_F32);
    vx_alloc_freeze();
    ck_assert(!vx_engine_warm(vx_gpu_rig_engine, load.model, &why).fault);
    vx_engine_unload(vx_gpu_rig_engine, &load.model);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_alloc_thaw();
    vx_rig_files_close(&files);
    vx_free(request);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_exec_faults");
    TCase *tcase = tcase_create("gpu_exec_faults");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_bad_request_fails_alone, 0, VX_COUNT(bad_rows));
    tcase_add_loop_test(tcase, what_is_not_a_number_passes_through, 0, 3);
    tcase_add_test(tcase, what_does_not_fit_is_refused_with_the_numbers);
    tcase_add_test(tcase, weights_that_do_not_fit_are_refused);
    tcase_add_test(tcase, a_block_that_does_not_fit_is_refused);
    tcase_add_loop_test(tcase, a_weight_that_is_no_number_of_the_precision_is_refused, 0,
                        5);
    tcase_add_test(tcase, an_infinity_stays_one_beside_padding);
    tcase_add_test(tcase, a_batch_may_hold_more_than_one_request_may);
    tcase_add_test(tcase, a_lost_device_says_so);
    tcase_add_loop_test(tcase, a_failing_call_fails_one_batch, 0, 2);
    tcase_add_test(tcase, a_failing_call_fails_one_warm_up);
    tcase_add_test(tcase, a_limit_is_a_limit);
    tcase_add_test(tcase, models_load_while_others_run);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
