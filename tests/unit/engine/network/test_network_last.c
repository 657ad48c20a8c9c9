/* network.json with global pools, and with the ops whose results only outputs read: what is
 * read, and the sentence for every wrong one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL "m/network.json"

static u8 *block;
static struct vx_arena arena;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

#define SHAPED   "{\"name\":\"xyz\",\"spatial_shape\":[10,20,8]}"
#define UNSHAPED "\"xyz\""

/* The layers are in line 2, the outputs in line 3. */
static const struct vx_network *parse(const char *coords, const char *layers,
                                      const char *outputs, struct vx_why *why)
{
    static char text[8192];
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"coords\":%s,\"feats\":{\"channels\":4}},\n"
             "\"layers\":[%s],\n\"outputs\":[%s]}",
             coords, layers, outputs);
    const struct vx_network_text source = {text, strlen(text), LABEL};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    return network;
}

static const struct vx_network *parse_good(const char *coords, const char *layers,
                                           const char *outputs)
{
    struct vx_why why = {{0}};
    const struct vx_network *network = parse(coords, layers, outputs, &why);
    ck_assert_msg(network != NULL, "%s", why.text);
    return network;
}

#define LAYER(name_, op_, input_, keys_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"" keys_ "}"
#define MODE(mode_) ",\"mode\":\"" mode_ "\""
#define OUT(layer_) "{\"layer\":\"" layer_ "\"}"
#define POOL        LAYER("p", "global_pool", "feats", MODE("avg"))
#define DOWN        LAYER("d", "downsample", "feats", ",\"stride\":2")

START_TEST(a_global_pool_has_a_voxel_for_each_sample)
{
    char text[VX_SET_STRIDE_BYTES];
    i64 rows[VX_SETS_MAX];
    const struct vx_network *network = parse_good(
        UNSHAPED,
        POOL "," LAYER("q", "global_pool", "feats", MODE("max")) "," DOWN "," LAYER(
            "r", "global_pool", "d",
            MODE("sum")) "," LAYER("l", "linear", "r",
                                   ",\"channels\":7") "," LAYER("u", "unpool", "q",
                                                                ",\"of\":\"p\""),
        OUT("l") "," OUT("u"));
    const struct vx_layer *layers = network->layers;
    ck_assert_int_eq(layers[0].mode, VX_POOL_AVG);
    ck_assert_int_eq(layers[1].mode, VX_POOL_MAX);
    ck_assert_int_eq(layers[3].mode, VX_POOL_SUM);
    /* floor loses no sample: the pool of a coarse set has the same voxels. */
    ck_assert_int_eq(network->sets_count, 3);
    ck_assert_int_eq(layers[0].set, 1);
    ck_assert_int_eq(layers[3].set, 1);
    ck_assert_int_eq(layers[4].set, 1);
    ck_assert_int_eq(layers[5].set, 0);
    ck_assert_str_eq(vx_set_stride_text(&network->sets[1], text), "0x0x0");
    for (int axis = 0; axis < 3; axis++)
        ck_assert_int_eq(network->sets[1].shape[axis], 1);
    vx_sets_rows_max(network->sets, network->sets_count, 100000, rows);
    ck_assert_int_eq(rows[1], VX_SAMPLE_MAX + 1);
    vx_sets_rows_max(network->sets, network->sets_count, 3, rows);
    ck_assert_int_eq(rows[1], 3);
    struct vx_map_key key;
    ck_assert(!vx_layer_map(network, &layers[0], &key));
    ck_assert(vx_layer_map(network, &layers[5], &key));
    ck_assert_int_eq(key.kind, VX_MAP_SAMPLE);
    ck_assert_int_eq(vx_map_offsets(&key), 1);
    ck_assert_int_eq(key.from, 1);
    ck_assert_int_eq(key.to, 0);
}
END_TEST

/* spconv may drop voxels, and with them samples. */
START_TEST(samples_of_a_set_that_may_lose_some_are_its_own)
{
    const struct vx_network *network = parse_good(
        SHAPED,
        POOL "," LAYER(
            "d", "sum_pool", "feats",
            ",\"kernel\":1,\"stride\":2,\"rule\":\"spconv\"") "," LAYER("q",
                                                                        "global"
                                                                        "_pool",
                                                                        "d", MODE("max")),
        OUT("p") "," OUT("q"));
    ck_assert_int_ne(network->layers[0].set, network->layers[2].set);
}
END_TEST

START_TEST(what_only_outputs_read)
{
    i32 dims[VX_OUTPUT_DIMS_MAX];
    const struct vx_network *network = parse_good(
        SHAPED,
        DOWN "," LAYER("a", "argmax", "feats", "") "," LAYER(
            "b", "to_dense", "d",
            "") "," LAYER("c", "to_dense", "feats",
                          ",\"shape\":[10,20,30],\"fold\":true") "," LAYER("e", "argmax",
                                                                           "d", ""),
        OUT("a") "," OUT("b") ",{\"layer\":\"c\",\"datatype\":\"FP16\"},{\"layer\":\"e\","
                              "\"datatype\":\"INT32\",\"coords\":\"at\"}");
    const struct vx_layer *layers = network->layers;
    const struct vx_network_output *outputs = network->outputs;
    ck_assert_int_eq(layers[1].channels, 1);
    ck_assert_int_eq(outputs[0].dtype, VX_DTYPE_I32);
    ck_assert_int_eq(outputs[0].coords, -1);
    /* 5 x 10 x 4: the shape of the set. */
    ck_assert_int_eq(vx_layer_dense_dims(&layers[2], dims), 4);
    const i32 own[] = {4, 5, 10, 4};
    ck_assert_mem_eq(dims, own, sizeof own);
    ck_assert_int_eq(outputs[1].coords, -1);
    ck_assert_int_eq(vx_layer_dense_dims(&layers[3], dims), 3);
    const i32 folded[] = {40, 20, 30};
    ck_assert_mem_eq(dims, folded, sizeof folded);
    ck_assert_int_eq(outputs[2].dtype, VX_DTYPE_F16);
    ck_assert_int_eq(outputs[3].dtype, VX_DTYPE_I32);
    ck_assert_int_eq(outputs[3].coords, 0);
    ck_assert_int_eq(network->coords_count, 1);
}
END_TEST

#define UP                                                                               \
    LAYER("u", "transposed_conv", "d",                                                   \
          ",\"channels\":4,\"kernel\":2,\"stride\":2,\"bias\":false")
#define CONCAT(a_, b_)                                                                   \
    "{\"name\":\"y\",\"op\":\"concat\",\"inputs\":[\"" a_ "\",\"" b_ "\"]}"

static const struct {
    const char *coords, *layers, *outputs, *why; /* behind the label */
} bad[] = {
    {UNSHAPED, LAYER("y", "global_pool", "feats", ""), OUT("y"),
     "layer \"y\": line 2: the key \"mode\" is missing: expected \"max\", \"avg\" or "
     "\"sum\""},
    {UNSHAPED, LAYER("y", "max_pool", "feats", ",\"kernel\":2,\"stride\":2"), OUT("y"),
     "layer \"y\": line 2: the key \"rule\" is missing: expected \"spconv\" or "
     "\"floor\""},
    /* Without "onto" a transposed convolution makes all children; one of the two inputs may have
     * been meant as its target, if it stands above. */
    {UNSHAPED, DOWN "," UP "," CONCAT("u", "feats"), OUT("y"),
     "layer \"y\": line 2: expected inputs on one set of voxels, got set 2 (stride "
     "1x1x1, "
     "made by layer \"u\") and set 0 (the request's); set \"onto\": \"feats\" in layer "
     "\"u\""},
    {UNSHAPED, LAYER("s", "relu", "feats", "") "," DOWN "," UP "," CONCAT("s", "u"),
     OUT("y"),
     "layer \"y\": line 2: expected inputs on one set of voxels, got set 0 (the "
     "request's) "
     "and set 2 (stride 1x1x1, made by layer \"u\"); set \"onto\": \"s\" in layer \"u\""},
    {UNSHAPED, DOWN "," UP "," LAYER("s", "relu", "feats", "") "," CONCAT("s", "u"),
     OUT("y"),
     "layer \"y\": line 2: expected inputs on one set of voxels, got set 0 (the "
     "request's) "
     "and set 2 (stride 1x1x1, made by layer \"u\")"},
    {UNSHAPED, DOWN "," UP "," CONCAT("u", "d"), OUT("y"),
     "layer \"y\": line 2: expected inputs on one set of voxels, got set 2 (stride "
     "1x1x1, "
     "made by layer \"u\") and set 1 (stride 2x2x2, made by layer \"d\")"},
    {UNSHAPED, LAYER("y", "global_pool", "feats", MODE("mean")), OUT("y"),
     "layer \"y\": line 2: \"mode\": expected \"max\", \"avg\" or \"sum\", got \"mean\""},
    {UNSHAPED, LAYER("y", "relu", "feats", MODE("max")), OUT("y"),
     "layer \"y\": line 2: the key \"mode\" does not belong to relu"},
    {UNSHAPED, POOL "," LAYER("y", "downsample", "p", ",\"stride\":2"), OUT("y"),
     "layer \"y\": line 2: set 1 (stride 0x0x0, made by layer \"p\") has one voxel for "
     "each sample, and no set follows from it: expected a layer that stays on it, or "
     "unpool"},
    {UNSHAPED, POOL "," LAYER("y", "global_pool", "p", MODE("max")), OUT("y"),
     "layer \"y\": line 2: set 1 (stride 0x0x0, made by layer \"p\") has one voxel for "
     "each sample, and no set follows from it: expected a layer that stays on it, or "
     "unpool"},
    {UNSHAPED,
     LAYER("r", "relu", "feats", "") "," POOL "," LAYER("y", "upsample", "p",
                                                        ",\"stride\":2,\"onto\":\"r\""),
     OUT("y"),
     "layer \"y\": line 2: set 1 (stride 0x0x0, made by layer \"p\") has one voxel for "
     "each sample, and no set follows from it: expected a layer that stays on it, or "
     "unpool"},
    {UNSHAPED, POOL "," LAYER("y", "inverse_conv", "p", ",\"channels\":4,\"of\":\"p\""),
     OUT("y"),
     "layer \"y\": line 2: \"of\": expected a strided convolution or a pool, and \"p\" "
     "is "
     "global_pool"},
    {UNSHAPED, POOL ",{\"name\":\"y\",\"op\":\"mul\",\"inputs\":[\"p\",\"feats\"]}",
     OUT("y"),
     "layer \"y\": line 2: expected inputs on one set of voxels, got set 1 (stride "
     "0x0x0, "
     "made by layer \"p\") and set 0 (the request's)"},
    {UNSHAPED, LAYER("a", "argmax", "feats", "") "," LAYER("y", "relu", "a", ""),
     OUT("y"),
     "layer \"y\": line 2: \"a\" is argmax, which only an output reads; expected a layer "
     "with features"},
    {SHAPED,
     LAYER("a", "to_dense", "feats",
           "") "," DOWN "," LAYER("y", "upsample", "d", ",\"stride\":2,\"onto\":\"a\""),
     OUT("y"),
     "layer \"y\": line 2: \"a\" is to_dense, which only an output reads; expected a "
     "layer "
     "with features"},
    {UNSHAPED, LAYER("y", "argmax", "feats", ""),
     "{\"layer\":\"y\",\"datatype\":\"FP32\"}",
     "line 3: \"datatype\": expected \"INT32\" for an argmax, got \"FP32\""},
    {UNSHAPED, LAYER("y", "relu", "feats", ""),
     "{\"layer\":\"y\",\"datatype\":\"INT32\"}",
     "line 3: \"datatype\": expected \"FP32\", \"FP16\" or \"BF16\", got \"INT32\""},
    {UNSHAPED, LAYER("y", "to_dense", "feats", ""), OUT("y"),
     "layer \"y\": line 2: the key \"shape\" is missing, and the voxels of the input "
     "have "
     "no spatial shape: set \"shape\": [X, Y, Z]"},
    {UNSHAPED, LAYER("y", "to_dense", "feats", ",\"shape\":[4,0,4]"), OUT("y"), NULL},
    {UNSHAPED, LAYER("y", "to_dense", "feats", ",\"shape\":[4,4]"), OUT("y"),
     "layer \"y\": line 2: \"shape\": expected one integer, or three for columns 1 to 3 "
     "of coords, got 2"},
    {UNSHAPED, LAYER("y", "to_dense", "feats", ",\"shape\":[4096,4096,41]"), OUT("y"),
     "layer \"y\": line 2: \"shape\": expected at most 268435456 numbers for each "
     "sample, "
     "got 4 channels of 4096x4096x41 voxels"},
    {SHAPED, LAYER("y", "to_dense", "feats", ",\"fold\":1"), OUT("y"), NULL},
    {SHAPED, DOWN "," LAYER("y", "to_dense", "d", ""),
     "{\"layer\":\"y\",\"coords\":\"at\"}",
     "line 3: \"coords\": \"y\" is a dense tensor: expected no name for coordinates"},
};

/* limits.samples: with a to_dense, 1 to 512; where it is not set as many as 2^31 - 1 bytes hold. */
START_TEST(a_limit_of_samples)
{
#define DENSE          LAYER("y", "to_dense", "feats", "")
#define LIMIT(samples) OUT("y") "],\"limits\":{\"samples\":" samples "},\"warmup\":[1"
    struct vx_why why = {{0}};
    ck_assert_int_eq(parse_good(SHAPED, DENSE, OUT("y"))->samples_max, 512);
#define LARGE LAYER("y", "to_dense", "feats", ",\"shape\":[4096,4096,1]") /* 2^28 bytes */
    ck_assert_int_eq(parse_good(SHAPED, LARGE, OUT("y"))->samples_max, 7);
    ck_assert_int_eq(parse_good(SHAPED, LARGE, LIMIT("512"))->samples_max, 512);
    ck_assert_int_eq(parse_good(SHAPED, DENSE, LIMIT("1"))->samples_max, 1);
    ck_assert_int_eq(parse_good(SHAPED, DENSE, LIMIT("512"))->samples_max, 512);
    ck_assert_ptr_null(parse(SHAPED, DENSE, LIMIT("0"), &why));
    ck_assert_ptr_nonnull(
        strstr(why.text, "\"samples\": expected an integer from 1 to 5"));
    ck_assert_ptr_null(parse(SHAPED, DENSE, LIMIT("513"), &why));
    ck_assert_ptr_nonnull(strstr(why.text, "from 1 to 512, got 513"));
    ck_assert_ptr_null(parse(SHAPED, LAYER("y", "relu", "feats", ""), LIMIT("4"), &why));
    ck_assert_str_eq(why.text, LABEL ": line 3: \"samples\": expected a network with a "
                                     "to_dense, whose size it limits");
}
END_TEST

START_TEST(wrong_ones_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    char expected[VX_WHY_BYTES];
    ck_assert_ptr_null(parse(bad[_i].coords, bad[_i].layers, bad[_i].outputs, &why));
    if (!bad[_i].why) return; /* json.c's sentence */
    snprintf(expected, sizeof expected, LABEL ": %s", bad[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_last");
    TCase *tcase = tcase_create("network_last");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_global_pool_has_a_voxel_for_each_sample);
    tcase_add_test(tcase, samples_of_a_set_that_may_lose_some_are_its_own);
    tcase_add_test(tcase, what_only_outputs_read);
    tcase_add_test(tcase, a_limit_of_samples);
    tcase_add_loop_test(tcase, wrong_ones_are_refused_with_a_sentence, 0, VX_COUNT(bad));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
