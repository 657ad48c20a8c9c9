/* The engine from end to end on the CPU device: golden vectors that PyTorch wrote, networks against
 * the double-precision oracle, bits that do not depend on the other requests of a batch.
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

#define GOLDEN "tests/golden/every_op"

static u8 *read_whole(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s: run this from the repository root", path);
    u8 *bytes = vx_alloc(1 << 20);
    *count = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* Worst cases multiply from layer to layer, so the bound on one element says little in a deep
 * network; the bound on all of them together is sharp.  Summing K terms of random sign rounds
 * partial sums of sqrt(k) terms, which leaves sqrt(K / 2) u relative to the result.  Errors of
 * layers are independent but taken here as if they added; a factor of 4 is for norms over
 * channels with little spread, which magnify. */
static f64 rms_bound_of(const struct vx_network *network)
{
    f64 sum = 0;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        f64 terms = layer->op == VX_OP_SUBM_CONV ? layer->v : 1;
        if (layer->op == VX_OP_SUBM_CONV || layer->op == VX_OP_LINEAR)
            terms *= layer->channels_in;
        sum += sqrt(terms / 2);
    }
    return 4 * sum * 0x1p-24;
}

/* PyTorch's answer in float64, and ours within the bound that the oracle derives; the oracle
 * itself must be PyTorch's answer to twelve digits. */
START_TEST(golden_vectors)
{
    size_t bytes;
    u8 *golden = read_whole(GOLDEN "/golden.bin", &bytes), *at = golden + 8;
    i64 n;
    i32 columns, channels, outputs_count;
    ck_assert(!memcmp(golden, "vxGO\1\0\0", 8));
    memcpy(&n, at, 8);
    memcpy(&columns, at + 8, 4);
    memcpy(&channels, at + 12, 4);
    const i32 *coords = (const i32 *)(void *)(at + 16);
    const f32 *feats = (const f32 *)(const void *)(coords + n * columns);
    at = (u8 *)(uintptr_t)(feats + n * channels);
    memcpy(&outputs_count, at, 4);
    at += 4;

    struct vx_model *model = vx_rig_load(GOLDEN);
    const struct vx_signature *signature = vx_model_signature(model);
    ck_assert_int_eq(signature->outputs_count, outputs_count);
    ck_assert_int_eq(signature->feats_channels, channels);
    struct vx_item item = {.coords = coords,
                           .coords_columns = columns,
                           .voxels = n,
                           .feats = feats,
                           .feats_dtype = VX_DTYPE_F32};
    for (i32 i = 0; i < outputs_count; i++)
        item.outputs[i] =
            vx_alloc((size_t)(n * signature->outputs[i].channels) * sizeof(f32));
    vx_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);

    struct vx_rig_files files = vx_rig_files_open(GOLDEN);
    const struct vx_network_oracle_input input = {
        files.network, files.weights, coords, columns, n, feats};
    struct vx_network_oracle oracle;
    vx_network_oracle_open(&input, &oracle);
    for (i32 i = 0; i < outputs_count; i++) {
        i32 layer = files.network->outputs[i].layer, c;
        f64 off_squares = 0, squares = 0;
        memcpy(&c, at, 4);
        at += 4;
        ck_assert_int_eq(c, signature->outputs[i].channels);
        for (i64 j = 0; j < n * c; j++, at += 8) {
            f64 truth, bound = oracle.bounds[layer][j];
            memcpy(&truth, at, 8);
            ck_assert(fabs(oracle.values[layer][j] - truth) <= 1e-12 * (1 + fabs(truth)));
            f64 off = fabs(((f32 *)item.outputs[i])[j] - truth);
            ck_assert_msg(off <= bound, "%s[%d]: off by %g, bound %g",
                          signature->outputs[i].name, (int)j, off, bound);
            off_squares += off * off;
            squares += truth * truth;
        }
        f64 rms = sqrt(off_squares / squares), rms_bound = rms_bound_of(files.network);
        ck_assert_msg(rms <= rms_bound, "%s: rms error %g, bound %g",
                      signature->outputs[i].name, rms, rms_bound);
        vx_free(item.outputs[i]);
    }
    ck_assert_ptr_eq(at, golden + bytes);
    vx_network_oracle_close(&oracle);
    vx_rig_files_close(&files);
    vx_engine_unload(vx_rig_engine, &model);
    ck_assert_ptr_null(model);
    vx_free(golden);
}
END_TEST

static const struct {
    i64 n;
    i32 columns;
    enum vx_dtype dtype;
} sizes[] = {
    {1, 4, VX_DTYPE_F32},   {2, 3, VX_DTYPE_F16},  {16, 4, VX_DTYPE_BF16},
    {17, 3, VX_DTYPE_F32},  {65, 4, VX_DTYPE_F16}, {200, 3, VX_DTYPE_BF16},
    {400, 4, VX_DTYPE_F32},
};

START_TEST(networks_agree_with_the_oracle)
{
    vx_rig_write_model(vx_rig_root, vx_rig_networks[_i], 100 + (u64)_i);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    for (size_t i = 0; i < VX_COUNT(sizes); i++) {
        struct vx_rig_request *request =
            vx_rig_request(i, sizes[i].n, sizes[i].columns, sizes[i].dtype);
        vx_rig_run(model, &request->item);
        ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
        vx_rig_compare(request, &files);
        ck_assert_int_ge(request->item.pairs,
                         sizes[i].n); /* every voxel is its own neighbour */
        ck_assert(request->item.compute_ns > 0);
        ck_assert(request->item.geometry_ns > 0);
        vx_free(request);
    }
    vx_rig_files_close(&files);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* Bits do not depend on the other requests of a batch, on the cache, or on which outputs are
 * wanted. */
START_TEST(bits_are_the_same_alone_or_together)
{
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 7);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *alone[4], *together[4];
    struct vx_item items[4];
    for (u64 i = 0; i < 4; i++) {
        alone[i] = vx_rig_request(i, (i64)(30 + 90 * i), 4, VX_DTYPE_F32);
        together[i] = vx_rig_request(i, (i64)(30 + 90 * i), 4, VX_DTYPE_F32);
        vx_rig_run(model, &alone[i]->item);
        ck_assert(!alone[i]->item.status.fault);
        ck_assert(!alone[i]->item.geometry_hit);
        items[i] = together[i]->item;
        if (i % 2) items[i].outputs[0] = items[i].outputs[2] = NULL;
    }
    struct vx_batch batch = {.items = items, .items_count = 4};
    vx_engine_run(vx_rig_engine, model, &batch);
    for (u64 i = 0; i < 4; i++) {
        ck_assert(!items[i].status.fault);
        ck_assert(items[i].geometry_hit);
        ck_assert_int_eq(items[i].pairs, alone[i]->item.pairs);
        for (size_t j = 0; j < 4; j++) {
            bool wanted = items[i].outputs[j] != NULL;
            static const f32 nothing[VX_RIG_N_MAX * 24];
            ck_assert(!memcmp(together[i]->outputs[j],
                              wanted ? alone[i]->outputs[j] : nothing, sizeof nothing));
        }
        vx_free(alone[i]);
        vx_free(together[i]);
    }
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_rig_engine, &stats);
    ck_assert_int_gt(stats.cache_hits, 0);
    ck_assert_int_gt(stats.cache_misses, 0);
    ck_assert_int_eq(stats.device_bytes, VX_RIG_DEVICE_BYTES);
    ck_assert_int_gt(stats.device_bytes_used_max, 0);
    ck_assert(!strncmp(stats.device_name, "cpu: ", 5));
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

START_TEST(an_empty_cloud_has_an_empty_answer)
{
    vx_rig_write_model(vx_rig_root, vx_rig_networks[2], 7);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_item item = {.coords_columns = 4, .feats_dtype = VX_DTYPE_F16};
    vx_rig_run(model, &item);
    ck_assert(!item.status.fault);
    ck_assert_int_eq(item.pairs, 0);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* Of a wide stride, and without a kernel of what has none. */
START_TEST(a_description_keeps_its_columns)
{
    static char text[16 << 10];
    struct vx_signature signature;
    struct vx_why why = {{0}};
    const struct vx_model_source source = {.directory = vx_rig_root, .version = 1};
    vx_rig_write_model(
        vx_rig_root,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":1}},\"layers\":["
        "{\"name\":\"a\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":7},"
        "{\"name\":\"b\",\"op\":\"upsample\",\"input\":\"a\",\"stride\":7},"
        "{\"name\":\"g\",\"op\":\"global_pool\",\"input\":\"b\",\"mode\":\"avg\"},"
        "{\"name\":\"y\",\"op\":\"unpool\",\"input\":\"g\",\"of\":\"g\"}],"
        "\"outputs\":[{\"layer\":\"y\"}],\"limits\":{\"sets\":{\"a\":9,\"b\":9}}}",
        3);
    vx_status status = vx_model_describe(&source, &why, &signature, text, sizeof text);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_msg(!strstr(text, "1 -> 1         1x1x1"), "%s", text); /* of unpool */
    const char *head = strstr(text, "  set made by"), *row = head;
    ck_assert_ptr_nonnull(head);
    size_t end = (size_t)(strstr(head, "layers") - head) + strlen("layers");
    for (int set = 0; set < 4;
         set++) { /* the number of layers ends where its head does */
        row = strchr(row, '\n') + 1;
        ck_assert_msg(row[end - 1] >= '0' && row[end - 1] <= '9' && row[end] == ' ', "%s",
                      head);
    }
}
END_TEST

START_TEST(a_model_is_described)
{
    char text[8192], cut[16];
    struct vx_signature signature;
    struct vx_why why = {{0}};
    const struct vx_model_source source = {.directory = GOLDEN, .version = 1};
    vx_status status = vx_model_describe(&source, &why, &signature, text, sizeof text);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_int_eq(signature.outputs_count, 4);
    ck_assert_str_eq(signature.outputs[0].name, "mask");
    ck_assert_int_eq(signature.outputs[2].channels, 17);
    ck_assert_int_eq(signature.layers_count, 15);
    ck_assert_int_eq(signature.voxels_max, 10000);
    ck_assert_int_gt(signature.weights_bytes, 16000);
    static const char *const parts[] = {
        "every_op/network.json: every op once",
        "FP32, FP16 or BF16 (N, 3)",
        ("column 0 the sample, 0 to 511; columns 1 to 3 "
         "the voxel, -131072 to 131071,"),
        "with the axes in the same order as in training; or (N, 3): all of sample 0",
        "channels       kernel              layout        parameters\n",
        "3x3x3               spconv               656\n",
        "5x1x3 dilated 1x2x2 vio ",
        "eps 0.001 ",
        "notes\n  \"eps\" is not set for join_bn, plain_ln;",
        "batch_norm 8 -> 8",
        "part of stem\n",
        "5x1x3 dilated 1x2x2",
        "concat     17 -> 17",
        "15 layers in 12 launches",
        "mask                     FP32 (N, 4)"};
    for (size_t i = 0; i < VX_COUNT(parts); i++)
        ck_assert_msg(strstr(text, parts[i]) != NULL, "%s is not in:\n%s", parts[i],
                      text);
    ck_assert(!vx_model_describe(&source, &why, &signature, cut, sizeof cut).fault);
    ck_assert(!strncmp(cut, text, sizeof cut - 1));
    ck_assert_int_eq((int)strlen(cut), (int)sizeof cut - 1);
    const struct vx_model_source none = {.directory = vx_rig_root, .version = 1};
    ck_assert_int_eq(
        vx_status_code(vx_model_describe(&none, &why, &signature, text, sizeof text)),
        VX_CODE_NOT_FOUND);
    ck_assert_str_eq(text, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("engine");
    tcase_add_checked_fixture(tcase, vx_rig_set_up, vx_rig_tear_down);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, golden_vectors);
    tcase_add_loop_test(tcase, networks_agree_with_the_oracle, 0, VX_RIG_NETWORKS);
    tcase_add_test(tcase, bits_are_the_same_alone_or_together);
    tcase_add_test(tcase, an_empty_cloud_has_an_empty_answer);
    tcase_add_test(tcase, a_model_is_described);
    tcase_add_test(tcase, a_description_keeps_its_columns);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
