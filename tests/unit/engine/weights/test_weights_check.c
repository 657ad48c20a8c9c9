/* A checkpoint beside its network: what a layer leaves out, and what only a person can judge.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/model/notes.h"
#include "engine/weights/weights.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static u8 *block, file_bytes[1 << 20];
static struct vx_arena arena;
static struct vx_why why;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES);
    why = (struct vx_why){{0}};
}

static void tear_down(void)
{
    vx_free(block);
}

/* A network of these layers, the last called "y". */
static const struct vx_network *network_of(const char *layers)
{
    char text[2048];
    const struct vx_network *network;
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[%s],"
             "\"outputs\":[{\"layer\":\"y\"}]}",
             layers);
    struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

static struct vx_safetensors *file_of(const struct vx_test_tensor *tensors, size_t count)
{
    struct vx_safetensors *file;
    size_t bytes =
        vx_test_pack_safetensors(tensors, count, file_bytes, sizeof file_bytes);
    vx_status status = vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    return file;
}

#define LINEAR(keys_)                                                                    \
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"bias\":false," keys_ "}"

static const struct {
    const char *layer;
    const char *beside;   /* a tensor that the file has and the layer leaves out */
    const char *expected; /* NULL = good */
} left_out[] = {
    {LINEAR("\"channels\":4"), "y.bias",
     "layer \"y\" sets \"bias\": false, but the file has \"y.bias\", which no layer "
     "reads: set true, or remove the tensor from the file"},
    {LINEAR("\"channels\":4"), "z.bias", NULL},
    {LINEAR("\"channels\":4,\"tensors\":{\"weight\":\"a.b.weight\"}"), "a.b.bias",
     "the file has \"a.b.bias\""},
    {LINEAR("\"channels\":4,\"tensors\":{\"weight\":\"weight\"}"), "bias",
     "the file has \"bias\""},
    {"{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"feats\",\"affine\":false}",
     "y.weight", "layer \"y\" sets \"affine\": false, but the file has \"y.weight\""},
    {"{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"feats\",\"affine\":false}",
     "y.bias", "the file has \"y.bias\""},
    {"{\"name\":\"y\",\"op\":\"batch_norm\",\"input\":\"feats\",\"affine\":false,"
     "\"tensors\":{\"running_mean\":\"n.running_mean\",\"running_var\":\"n.running_var\"}"
     "}",
     "n.weight", "the file has \"n.weight\""},
};

START_TEST(what_lies_beside_a_layer_is_not_left_out)
{
    const struct vx_network *network = network_of(left_out[_i].layer);
    struct vx_test_tensor tensors[VX_TENSORS_PER_LAYER + 1];
    const struct vx_layer *layer = network->layers;
    size_t count = 0;
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        if (layer->tensors[role])
            tensors[count++] = (struct vx_test_tensor){layer->tensors[role],
                                                       "F32",
                                                       {4, 4},
                                                       layer->op == VX_OP_LINEAR ? 2 : 1,
                                                       NULL};
    tensors[count++] = (struct vx_test_tensor){left_out[_i].beside, "F32", {4}, 1, NULL};
    struct vx_safetensors *file = file_of(tensors, count);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_int_eq(!status.fault, !left_out[_i].expected);
    if (left_out[_i].expected) {
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        ck_assert_msg(strstr(why.text, left_out[_i].expected) != NULL, "%s", why.text);
    }
    vx_safetensors_close(&file);
}
END_TEST

/* A tensor that one layer leaves out and another reads by name is not reported as left out. */
START_TEST(a_tensor_that_another_layer_reads_is_not_left_out)
{
    const struct vx_network *network = network_of(
        "{\"name\":\"x\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":4,\"bias\":"
        "false},{\"name\":\"y\",\"op\":\"linear\",\"input\":\"x\",\"channels\":4,"
        "\"tensors\":{\"bias\":\"x.bias\"}}");
    const struct vx_test_tensor tensors[] = {{"x.weight", "F32", {4, 4}, 2, NULL},
                                             {"y.weight", "F32", {4, 4}, 2, NULL},
                                             {"x.bias", "F32", {4}, 1, NULL}};
    struct vx_safetensors *file = file_of(tensors, 3);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_safetensors_close(&file);
}
END_TEST

START_TEST(notes_say_what_may_be_wrong)
{
    static const f32 ones[4] = {1, 1, 1, 1}, some[4] = {1, 1, INFINITY, 2},
                     bad[4] = {0, NAN, 0, 0}; /* no layer reads it */
    const struct vx_network *network = network_of(
        "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":4,"
        "\"kernel\":"
        "3,\"bias\":false},"
        "{\"name\":\"n\",\"op\":\"batch_norm\",\"input\":\"c\"},"
        "{\"name\":\"m\",\"op\":\"batch_norm\",\"input\":\"n\",\"eps\":1e-2,\"affine\":"
        "false,"
        "\"tensors\":{\"running_mean\":\"n.running_mean\"}},"
        "{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"m\",\"affine\":false}");
    const struct vx_test_tensor tensors[] = {
        {"c.weight", "F32", {4, 3, 3, 3, 4}, 5, NULL},
        {"n.weight", "F32", {4}, 1, ones},
        {"n.bias", "F32", {4}, 1, NULL},
        {"n.running_mean", "F32", {4}, 1, NULL},
        {"n.running_var", "F32", {4}, 1, ones},
        {"n.num_batches_tracked", "I64", {0}, 0, NULL},
        {"m.running_var", "F32", {4}, 1, some},
        {"head.weight", "F32", {4}, 1, bad}};
    char text[2048] = "";
    struct vx_page page = {text, sizeof text, 0};
    struct vx_safetensors *file = file_of(tensors, VX_COUNT(tensors));
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    ck_assert_str_eq(
        text,
        "no layer reads head.weight; if training used it, network.json lacks a layer\n"
        "more than one layer reads n.running_mean; if the layers do not share weights, "
        "a tensor name is wrong\n"
        "NaN or infinity in m.running_var; every answer has rows that are NaN or "
        "infinite\n"
        "running_mean is 0 and running_var 1 throughout in n; its statistics "
        "were "
        "never gathered\n"
        "\"eps\" is not set for n, y; 1e-05, PyTorch's default, is used, because the "
        "weights file does not hold it (OpenPCDet trains with 1e-3, TRELLIS with 1e-6)\n"
        "\"eps\" is 0.01 or more for m; usual values are 1e-8 to 1e-3; check that it is "
        "not the momentum, which is 0.01 or 0.1\n"
        "\"layout\" is not set for c; the shape of the weight allows only one, which "
        "voxeld check shows\n");
    vx_safetensors_close(&file);
}
END_TEST

START_TEST(long_notes_are_counted_and_good_models_have_none)
{
    struct vx_test_tensor tensors[12];
    char names[12][16], text[1024] = "";
    struct vx_page page = {text, sizeof text, 0};
    const struct vx_network *network = network_of(LINEAR("\"channels\":4"));
    tensors[0] = (struct vx_test_tensor){"y.weight", "F32", {4, 4}, 2, NULL};
    for (int i = 1; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "t%02d", i);
        tensors[i] = (struct vx_test_tensor){names[i], "F32", {1}, 1, NULL};
    }
    struct vx_safetensors *file = file_of(tensors, 12);
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    ck_assert_str_eq(text, "no layer reads t01, t02, t03, t04, t05, t06, t07, t08 "
                           "and 3 more; if training used it, network.json lacks a "
                           "layer\n");
    vx_safetensors_close(&file);
    file = file_of(tensors, 1);
    page = (struct vx_page){text, sizeof text, 0};
    text[0] = '\0';
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    ck_assert_str_eq(text, "");
    vx_safetensors_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights_check");
    TCase *tcase = tcase_create("weights_check");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, what_lies_beside_a_layer_is_not_left_out, 0,
                        VX_COUNT(left_out));
    tcase_add_test(tcase, a_tensor_that_another_layer_reads_is_not_left_out);
    tcase_add_test(tcase, notes_say_what_may_be_wrong);
    tcase_add_test(tcase, long_notes_are_counted_and_good_models_have_none);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
