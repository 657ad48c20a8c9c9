/* Networks on the fake GPU: answers against the oracle and the CPU, bits that do not depend on the
 * order of rows or on where a request lies in memory, which kernels a model needs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/backend_gpu.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NETWORKS (VX_RIG_NETWORKS + 1)

static const char *network(int index)
{
    return index < VX_RIG_NETWORKS ? vx_rig_networks[index] : vx_gpu_rig_odd;
}

static const struct {
    i64 n;
    i32 columns;
    enum vx_dtype dtype;
} sizes[] = {
    {1, 4, VX_DTYPE_F32},    {2, 3, VX_DTYPE_F16},   {31, 4, VX_DTYPE_BF16},
    {32, 3, VX_DTYPE_F32},   {33, 4, VX_DTYPE_F16},  {129, 4, VX_DTYPE_F32},
    {200, 3, VX_DTYPE_BF16}, {400, 4, VX_DTYPE_F32},
};

static const struct {
    const char *word;
    enum vx_number type;
} precisions[] = {{"fp32", VX_NUMBER_F32},
                  {"tf32", VX_NUMBER_TF32},
                  {"fp16", VX_NUMBER_F16},
                  {"bf16", VX_NUMBER_BF16}};

START_TEST(networks_agree_with_the_oracle)
{
    enum vx_number type = precisions[_i / NETWORKS].type;
    vx_gpu_rig_write(precisions[_i / NETWORKS].word, network(_i % NETWORKS),
                     100 + (u64)_i);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    ck_assert_int_eq(model->number, type);
    for (size_t i = 0; i < VX_COUNT(sizes); i++) {
        struct vx_rig_request *request =
            vx_rig_request(i, sizes[i].n, sizes[i].columns, sizes[i].dtype);
        vx_gpu_rig_run(model, &request->item);
        ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
        vx_gpu_rig_compare(request, &files, type);
        ck_assert_int_ge(request->item.pairs, sizes[i].n);
        vx_free(request);
    }
    vx_rig_files_close(&files);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    ck_assert_ptr_null(model);
}
END_TEST

static bool is_split(const struct vx_conv_choice *choice)
{
    return choice->algorithm == VX_CONV_IMPLICIT_SPLIT ||
           choice->algorithm == VX_CONV_MASKED_SPLIT;
}

/* Partial sums by planes and by columns; a few rows are enough to use them. */
START_TEST(wide_layers_are_split)
{
    vx_gpu_rig_write(precisions[_i].word, vx_gpu_rig_wide, 5);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    const struct vx_conv_choice *b =
        vx_gpu_choice_get(model->gpu->choices, 1, 40, VX_DENSITY_SURFACE);
    const struct vx_conv_choice *d =
        vx_gpu_choice_get(model->gpu->choices, 3, 40, VX_DENSITY_SURFACE);
    /* 512 channels of 16 bits are a chain. */
    ck_assert_int_eq(is_split(b), vx_number_bytes(precisions[_i].type) == 4);
    ck_assert(is_split(d));
    struct vx_rig_request *request = vx_rig_request(1, 40, 4, VX_DTYPE_F32);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_gpu_rig_compare(request, &files, precisions[_i].type);
    vx_free(request);
    vx_rig_files_close(&files);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* The CPU engine's result, in the fields that users see. */
START_TEST(the_cpu_says_the_same)
{
    vx_gpu_rig_write("fp32", network(_i), 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root),
                    *cpu = vx_rig_load(vx_rig_root);
    const struct vx_signature *a = vx_model_signature(model);
    const struct vx_signature *b = vx_model_signature(cpu);
    struct vx_rig_request *mine = vx_rig_request(3, 300, 4, VX_DTYPE_F32);
    struct vx_rig_request *theirs = vx_rig_request(3, 300, 4, VX_DTYPE_F32);
    ck_assert_int_eq(a->outputs_count, b->outputs_count);
    ck_assert_int_eq(a->layers_count, b->layers_count);
    ck_assert(!memcmp(a->outputs, b->outputs, sizeof a->outputs));
    ck_assert_int_gt(a->weights_bytes, 0);
    vx_gpu_rig_run(model, &mine->item);
    vx_rig_run(cpu, &theirs->item);
    ck_assert_int_eq(mine->item.pairs, theirs->item.pairs);
    vx_free(mine);
    vx_free(theirs);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

START_TEST(golden_network_runs)
{
    struct vx_model *model = vx_gpu_rig_load("tests/golden/every_op");
    struct vx_rig_files files = vx_rig_files_open("tests/golden/every_op");
    struct vx_rig_request *request = vx_rig_request(9, 350, 4, VX_DTYPE_F32);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_gpu_rig_compare(request, &files, model->number);
    vx_free(request);
    vx_rig_files_close(&files);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

static void rows_move(void *to, const void *from, i64 n, size_t bytes)
{
    for (i64 i = 0; i < n; i++)
        memcpy((u8 *)to + (size_t)(n - 1 - i) * bytes,
               (const u8 *)from + (size_t)i * bytes, bytes);
}

/* The same voxels again, with other requests, and in the opposite order: the same bits. */
START_TEST(bits_are_the_rows_own)
{
    enum { N = 333 };
    vx_gpu_rig_write(precisions[_i].word, vx_gpu_rig_odd, 5);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    const struct vx_signature *signature = vx_model_signature(model);
    struct vx_rig_request *alone = vx_rig_request(1, N, 4, VX_DTYPE_F32);
    struct vx_rig_request *again = vx_rig_request(1, N, 4, VX_DTYPE_F32);
    struct vx_rig_request *turned = vx_rig_request(1, N, 4, VX_DTYPE_F32);
    struct vx_rig_request *other = vx_rig_request(2, 100, 3, VX_DTYPE_F16);
    rows_move(turned->coords, alone->coords, N, 4 * sizeof(i32));
    rows_move(turned->feats, alone->feats, N, VX_RIG_CHANNELS * sizeof(f32));
    vx_gpu_rig_run(model, &alone->item);
    struct vx_item items[3] = {other->item, again->item, turned->item};
    items[1].outputs[0] = NULL; /* not wanted */
    struct vx_batch batch = {.items = items, .items_count = 3};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
    for (int i = 0; i < 3; i++) ck_assert(!items[i].status.fault);
    for (i32 i = 0; i < signature->outputs_count; i++) {
        static f32 back[N * 24];
        size_t row = vx_dtype_bytes(signature->outputs[i].dtype) *
                     (size_t)signature->outputs[i].channels;
        rows_move(back, turned->outputs[i], N, row);
        ck_assert(!memcmp(back, alone->outputs[i], N * row));
        ck_assert(!i == !!memcmp(again->outputs[i], alone->outputs[i], N * row));
    }
    vx_free(alone);
    vx_free(again);
    vx_free(turned);
    vx_free(other);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

START_TEST(an_empty_cloud_has_an_empty_answer)
{
    vx_gpu_rig_write("auto", vx_gpu_rig_odd, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_item item = {.coords_columns = 4, .feats_dtype = VX_DTYPE_F16};
    i64 launches = vx_fake_launches();
    vx_gpu_rig_run(model, &item);
    ck_assert(!item.status.fault);
    ck_assert_int_eq(item.pairs, 0);
    ck_assert_int_eq(vx_fake_launches(), launches);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* auto: the type that the weights of convolutions and linear layers have. */
START_TEST(precision_follows_the_weights)
{
    static const struct {
        const char *word, *a, *b;
        enum vx_number number;
    } rows[] = {
        {"auto", "F16", "F16", VX_NUMBER_F16},   {"auto", "BF16", "BF16", VX_NUMBER_BF16},
        {"auto", "F32", "F32", VX_NUMBER_TF32},  {"auto", "F16", "F32", VX_NUMBER_TF32},
        {"auto", "BF16", "F16", VX_NUMBER_TF32}, {"fp32", "F16", "F16", VX_NUMBER_F32},
        {"bf16", "F32", "F32", VX_NUMBER_BF16},
    };
    char text[1024];
    snprintf(text, sizeof text,
             VX_RIG_HEAD VX_RIG_CONV("a", "feats", "2",
                                     ",\"kernel\":3,\"layout\":\"spconv\",\"bias\":false")
                 VX_RIG_LINEAR("b", "a", "2") "{\"name\":\"r\",\"op\":\"relu\",\"input\":"
                                              "\"b\"}],\"outputs\":[{\"layer\":\"r\"}],"
                                              "\"precision\":\"%s\"}",
             rows[_i].word);
    const struct vx_test_tensor tensors[] = {
        {"a.weight", rows[_i].a, {2, 3, 3, 3, 3}, 5, NULL},
        {"b.weight", rows[_i].b, {2, 2}, 2, NULL},
        {"b.bias", "F32", {2}, 1, NULL},
    };
    vx_test_write_model(vx_rig_root, 1, text, tensors, VX_COUNT(tensors));
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root),
                    *cpu = vx_rig_load(vx_rig_root);
    ck_assert_int_eq(model->number, rows[_i].number);
    ck_assert_int_eq(cpu->number, VX_NUMBER_F32);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

/* One layer on the largest cloud that is expected, in less than 2.5 GB: C 64, FP16. */
START_TEST(a_large_layer_fits)
{
    const i64 n = 4100000;
    char text[1024];
    static f32 zeros[64 * 64 * 27];
    snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":64}},\"layers\":[{\"name\":"
        "\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":64,\"kernel\":3,"
        "\"bias\":false}],\"outputs\":[{\"layer\":\"y\"}],\"precision\":\"fp16\"}");
    const struct vx_test_tensor tensor = {"y.weight", "F16", {64, 3, 3, 3, 64}, 5, zeros};
    vx_test_write_model(vx_rig_root, 1, text, &tensor, 1);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_gpu_choices *choices;
    const struct vx_pick pick = {.caps = vx_arch_caps("sm_90a")};
    const struct vx_gpu_choices_want want = {model->plan, VX_NUMBER_F16, n, &pick};
    ck_assert(!vx_gpu_choices_open(&want, &choices).fault);
    static struct vx_gpu_places places;
    vx_gpu_places_make(choices, &(struct vx_gpu_sizes){&n, 1, false, NULL}, &places);
    ck_assert_msg(places.bytes < (size_t)2500 * 1000 * 1000, "%zu bytes", places.bytes);
    ck_assert_int_eq((i64)(places.shared % VX_GPU_LINE_BYTES), 0);
    ck_assert(places.coords[0] == places.shared);
    ck_assert(places.coords[0] < places.scratch);
    ck_assert(places.scratch < places.pieces[0]);
    ck_assert(places.shared + vx_plan_bytes(model->plan, &n) <= places.pieces[0]);
    ck_assert(places.pieces[0] < places.workspace);
    /* Of several pieces the join comes on top. */
    const i64 halves[2] = {n / 2, n - n / 2};
    size_t alone = places.bytes;
    vx_gpu_places_make(choices, &(struct vx_gpu_sizes){halves, 2, false, NULL}, &places);
    ck_assert_int_eq(places.rows[0], n);
    ck_assert(places.bytes > alone);
    ck_assert(places.joined_rows < places.joined[0]);
    ck_assert(places.joined[0] < places.pieces[0]);
    ck_assert(places.pieces[0] < places.pieces[1]);
    ck_assert(places.pieces[1] < places.workspace);
    ck_assert(vx_gpu_places_need(choices, n, &places) < (size_t)2500 * 1000 * 1000);
    ck_assert(vx_gpu_places_need(choices, n + 1, &places) == SIZE_MAX);
    vx_gpu_choices_close(&choices);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* What `voxeld compile` builds for an architecture that this machine lacks: the same
 * kernels for a network each time, and every one that a request launches. */
START_TEST(a_model_says_its_kernels)
{
    vx_gpu_rig_write("bf16", vx_gpu_rig_odd, 7);
    static struct vx_gpu_wanted wanted;
    const struct vx_pick pick = {.caps = vx_arch_caps("sm_80")};
    const struct vx_model_source source = {.directory = vx_rig_root, .version = 1};
    struct vx_why why = {{0}};
    vx_status status = vx_gpu_model_kernels(&source, &pick, &why, &wanted);
    ck_assert_msg(!status.fault, "%s", why.text);
    i32 count = wanted.count;
    ck_assert_int_gt(count, 10);
    ck_assert(!vx_gpu_model_kernels(&source, &pick, &why, &wanted).fault);
    ck_assert_int_eq(wanted.count, count);
    static const char *const names[] = {"rows_in", "rows_out", "concat", "layer_norm"};
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        bool found = false;
        for (i32 j = 0; j < count; j++)
            found |= !strcmp(wanted.list[j].spec->name, names[i]) &&
                     wanted.list[j].type == VX_NUMBER_BF16;
        ck_assert_msg(found, "%s is not wanted", names[i]);
    }
}
END_TEST

START_TEST(a_device_says_what_it_is)
{
    struct vx_engine_stats stats;
    struct vx_why why = {{0}};
    vx_gpu_rig_write("fp16", vx_gpu_rig_odd, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    struct vx_rig_request *request = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    vx_gpu_rig_run(model, &request->item);
    ck_assert_int_ge(request->item.geometry_ns, 0);
    ck_assert_int_ge(request->item.compute_ns, 0);
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert(!strncmp(stats.device_name, "fake: ", 6));
    ck_assert_int_eq(stats.device_bytes, VX_RIG_DEVICE_BYTES);
    ck_assert_int_gt(stats.device_bytes_used_max, 0);
    ck_assert_int_le(stats.device_bytes_used_max, stats.device_bytes);
    ck_assert(!vx_engine_lost(vx_gpu_rig_engine, &why));
    vx_free(request);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Every algorithm gives the answer; only the sums' order may differ. */
START_TEST(a_pinned_algorithm_answers)
{
    const struct vx_gpu_settings settings = {.algorithm = (enum vx_conv_algorithm)_i};
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    vx_gpu_rig_write("fp32", vx_gpu_rig_odd, 7);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    for (size_t i = 0; i < VX_COUNT(sizes); i += 3) {
        struct vx_rig_request *request =
            vx_rig_request(i, sizes[i].n, sizes[i].columns, sizes[i].dtype);
        vx_gpu_rig_run(model, &request->item);
        ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
        vx_gpu_rig_compare(request, &files, VX_NUMBER_F32);
        vx_free(request);
    }
    vx_rig_files_close(&files);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Tiles are measured at the warm-up sizes and kept for the next start, and the answers
 * have the same bits as before. */
START_TEST(tuning_changes_no_bits)
{
    char path[VX_TEST_PATH_BYTES + 16], json[4096];
    snprintf(json, sizeof json, "%.*s,\"warmup\":[40,300]}",
             (int)strlen(vx_rig_networks[1]) - 1, vx_rig_networks[1]);
    vx_gpu_rig_write("fp16", json, 7);
    struct vx_rig_request *before = vx_rig_request(1, 300, 4, VX_DTYPE_F32);
    struct vx_rig_request *after = vx_rig_request(1, 300, 4, VX_DTYPE_F32);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_why why = {{0}};
    ck_assert(!vx_gpu_tune_more(&model->gpu->tune));
    vx_gpu_rig_run(model, &before->item);
    vx_engine_unload(vx_gpu_rig_engine, &model);

    snprintf(path, sizeof path, "%s/fake.tune", vx_rig_root);
    const struct vx_gpu_settings settings = {.tune_table = path, .tune = VX_TUNE_AUTO};
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    model = vx_gpu_rig_load(vx_rig_root);
    ck_assert_int_gt(model->gpu->tune.count, 2);
    vx_alloc_freeze();
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert(vx_alloc_thaw()); /* as frozen as before */
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_gpu_tune_more(&model->gpu->tune));
    vx_gpu_rig_run(model, &after->item);
    ck_assert_msg(!after->item.status.fault, "%s", after->item.why.text);
    ck_assert(!memcmp(before->outputs, after->outputs, sizeof before->outputs));
    vx_engine_unload(vx_gpu_rig_engine, &model);

    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    model = vx_gpu_rig_load(vx_rig_root);
    ck_assert(!vx_gpu_tune_more(&model->gpu->tune)); /* the file has every row */
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(before);
    vx_free(after);
}
END_TEST

/* A set of samples has fewer sizes than the request's, and keeps its choices to them. */
START_TEST(tuning_knows_how_many_samples_there_are)
{
    char path[VX_TEST_PATH_BYTES + 16];
    const struct vx_gpu_settings settings = {.tune_table = path, .tune = VX_TUNE_AUTO};
    struct vx_why why = {{0}};
    vx_gpu_rig_write(
        "fp16",
        VX_RIG_HEAD
        "{\"name\":\"p\",\"op\":\"global_pool\",\"mode\":\"max\","
        "\"input\":\"feats\"}," VX_RIG_LINEAR(
            "y", "p", "5") "{\"name\":\"z\",\"op\":\"relu\",\"input\":\"y\"}],"
                           "\"outputs\":[{\"layer\":\"z\"}],"
                           "\"limits\":{\"voxels_max\":70000},\"warmup\":[12000]}",
        7);
    snprintf(path, sizeof path, "%s/fake.tune", vx_rig_root);
    vx_gpu_rig_reopen((size_t)256 << 20, &settings);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    ck_assert_int_eq(model->gpu->tune.count, 1);
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_exec");
    TCase *tcase = tcase_create("gpu_exec");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, networks_agree_with_the_oracle, 0,
                        NETWORKS * (int)VX_COUNT(precisions));
    tcase_add_loop_test(tcase, wide_layers_are_split, 0, VX_COUNT(precisions));
    tcase_add_test(tcase, tuning_changes_no_bits);
    tcase_add_test(tcase, tuning_knows_how_many_samples_there_are);
    tcase_add_loop_test(tcase, the_cpu_says_the_same, 0, NETWORKS);
    tcase_add_test(tcase, golden_network_runs);
    tcase_add_loop_test(tcase, bits_are_the_rows_own, 0, VX_COUNT(precisions));
    tcase_add_test(tcase, an_empty_cloud_has_an_empty_answer);
    tcase_add_loop_test(tcase, precision_follows_the_weights, 0, 7);
    tcase_add_test(tcase, a_large_layer_fits);
    tcase_add_test(tcase, a_model_says_its_kernels);
    tcase_add_test(tcase, a_device_says_what_it_is);
    tcase_add_loop_test(tcase, a_pinned_algorithm_answers, VX_CONV_AUTO,
                        VX_CONV_ALGORITHMS_COUNT);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
