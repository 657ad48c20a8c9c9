/* network.json with points: voxelize and devoxelize, the sets and maps that they have, and the
 * sentence for every wrong one.
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

/* The layers are in line 2, the outputs in line 3. */
static const struct vx_network *parse_text(const char *layers, const char *outputs,
                                           struct vx_why *why)
{
    size_t bytes = strlen(layers) + 256;
    char *text = vx_alloc(bytes);
    snprintf(text, bytes,
             "{\"format\":1,\"inputs\":{\"coords\":{\"spatial_shape\":[10,20,8]},"
             "\"feats\":{\"channels\":4}},\n\"layers\":[%s],\n\"outputs\":[%s]}",
             layers, outputs);
    const struct vx_network_text source = {text, strlen(text), LABEL};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    vx_free(text);
    return network;
}

static const struct vx_network *parse_good(const char *layers, const char *outputs)
{
    struct vx_why why = {{0}};
    const struct vx_network *network = parse_text(layers, outputs, &why);
    ck_assert_msg(network != NULL, "%s", why.text);
    return network;
}

#define LAYER(name_, op_, input_, keys_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"" keys_ "}"
#define AND       ","
#define ONTO(l_)  ",\"onto\":\"" l_ "\""
#define TRILINEAR ",\"mode\":\"trilinear\""
#define NEAREST   ",\"mode\":\"nearest\""
#define OUT(l_)   "{\"layer\":\"" l_ "\"}"
#define DOWN(name_, input_, stride_)                                                     \
    LAYER(name_, "downsample", input_, ",\"stride\":" stride_)
#define CELLS(name_, input_, stride_)                                                    \
    LAYER(name_, "voxelize", input_, ",\"stride\":" stride_)
#define STEM LAYER("s", "relu", "feats", "")

static void expect_map(const struct vx_network *network, i32 layer,
                       const struct vx_map_key *expected)
{
    struct vx_map_key key;
    ck_assert(vx_layer_map(network, &network->layers[layer], &key));
    ck_assert_mem_eq(&key, expected, sizeof key);
}

/* The set of a voxelize is that of any layers whose rule is floor, in one step or in two. */
START_TEST(the_cells_are_a_set_of_floor)
{
    const struct vx_network *network =
        parse_good(DOWN("a", "feats", "2") AND DOWN("b", "a", "[8,8,4]")
                       AND CELLS("v", "feats", "[16,16,8]") AND CELLS("w", "a", "4096")
                           AND CELLS("i", "b", "1"),
                   OUT("b") AND OUT("v") AND OUT("w") AND OUT("i"));
    const struct vx_layer *layers = network->layers;
    struct vx_map_key order;
    ck_assert_int_eq(network->sets_count, 4);
    ck_assert_int_eq(layers[2].set, layers[1].set);
    ck_assert_int_eq(layers[2].channels, 4);
    ck_assert_int_eq(layers[4].set, layers[1].set);
    ck_assert_int_eq(network->sets[3].down[2], 8192);
    ck_assert_int_eq(network->sets[2].shape[0], 1);
    ck_assert_int_eq(network->sets[2].shape[1], 2);
    /* The map is from points to voxels, as PARENT is; so is that of stride 1. */
    expect_map(network, 2,
               &(struct vx_map_key){
                   {1, 1, 1}, {1, 1, 1}, {16, 16, 8}, {0}, VX_MAP_PARENT, 2, 0});
    expect_map(network, 3,
               &(struct vx_map_key){
                   {1, 1, 1}, {1, 1, 1}, {4096, 4096, 4096}, {0}, VX_MAP_PARENT, 3, 1});
    expect_map(
        network, 4,
        &(struct vx_map_key){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, VX_MAP_PARENT, 2, 2});
    ck_assert(!vx_layer_order(network, &layers[1], &order));
    ck_assert(vx_layer_order(network, &layers[2], &order));
    const struct vx_map_key expected = {
        {1, 1, 1}, {1, 1, 1}, {16, 16, 8}, {0}, VX_MAP_ORDER, 0, 0};
    ck_assert_mem_eq(&order, &expected, sizeof order);
    ck_assert_int_eq(vx_map_offsets(&order), 1);
}
END_TEST

/* With `onto` the stride is what leads from one set to the other, also from a finer set. */
START_TEST(the_stride_follows_from_the_sets)
{
    const struct vx_network *network = parse_good(
        LAYER("c", "sparse_conv", "feats",
              ",\"channels\":5,\"kernel\":3,\"stride\":[2,1,4],\"padding\":1,"
              "\"rule\":\"spconv\"") AND LAYER("v", "voxelize", "feats", ONTO("c"))
            AND LAYER("u", "upsample", "feats", ",\"stride\":3")
                AND LAYER("w", "voxelize", "u", ONTO("c"))
                    AND LAYER("x", "voxelize", "u", ONTO("feats"))
                        AND LAYER("t", "devoxelize", "w", TRILINEAR)
                            AND LAYER("n", "devoxelize", "v", NEAREST ONTO("u")),
        OUT("t") AND OUT("n") AND OUT("x"));
    const struct vx_layer *layers = network->layers;
    ck_assert_int_eq(network->sets_count, 3);
    ck_assert_int_eq(layers[1].set, 1);
    ck_assert_int_eq(layers[3].set, 1);
    ck_assert_int_eq(layers[4].set, 0);
    ck_assert_int_eq(layers[5].set, 0);
    ck_assert(layers[5].trilinear);
    ck_assert_int_eq(layers[6].set, 2);
    ck_assert(!layers[6].trilinear);
    expect_map(
        network, 1,
        &(struct vx_map_key){{1, 1, 1}, {1, 1, 1}, {2, 1, 4}, {0}, VX_MAP_PARENT, 1, 0});
    expect_map(
        network, 3,
        &(struct vx_map_key){{1, 1, 1}, {1, 1, 1}, {6, 3, 12}, {0}, VX_MAP_PARENT, 1, 2});
    expect_map(
        network, 5,
        &(struct vx_map_key){{2, 2, 2}, {1, 1, 1}, {2, 1, 4}, {0}, VX_MAP_CORNER, 1, 0});
    expect_map(
        network, 6,
        &(struct vx_map_key){{1, 1, 1}, {1, 1, 1}, {6, 3, 12}, {0}, VX_MAP_PARENT, 1, 2});
}
END_TEST

static const struct {
    const char *layers, *why; /* behind the label; the output is layer y */
} bad[] = {
    {LAYER("y", "voxelize", "feats", ""),
     "layer \"y\": line 2: expected either \"stride\" or \"onto\", got neither"},
    {STEM AND LAYER("y", "voxelize", "feats", ",\"stride\":2" ONTO("s")),
     "layer \"y\": line 2: expected either \"stride\" or \"onto\", got both"},
    {CELLS("y", "feats", "4097"), NULL},
    {CELLS("y", "feats", "[1,0,1]"), NULL},
    {CELLS("a", "feats", "4096") AND CELLS("y", "a", "32"),
     "layer \"y\": line 2: the stride of its set against the request: expected at most "
     "65536 along an axis"},
    {LAYER("y", "voxelize", "feats", ",\"stride\":2" NEAREST),
     "layer \"y\": line 2: the key \"mode\" does not belong to voxelize"},
    {LAYER("y", "voxelize", "feats", ONTO("s")),
     "layer \"y\": line 2: \"onto\": unknown layer \"s\"; known: feats"},
    {DOWN("a", "feats", "2") AND LAYER("y", "voxelize", "a", ONTO("feats")),
     "layer \"y\": line 2: voxelize: along column 1 the stride of the voxels, set 0 (the "
     "request's), is no multiple, 1 to 4096, of the stride of the points, set 1 (stride "
     "2x2x2, made by layer \"a\")"},
    {DOWN("a", "feats", "2") AND DOWN("b", "feats", "[2,2,3]")
         AND LAYER("y", "voxelize", "a", ONTO("b")),
     "layer \"y\": line 2: voxelize: along column 3 the stride of the voxels, set 2 "
     "(stride "
     "2x2x3, made by layer \"b\"), is no multiple, 1 to 4096, of the stride of the "
     "points, set 1 (stride 2x2x2, made by layer \"a\")"},
    {CELLS("a", "feats", "4096") AND CELLS("b", "a", "2")
         AND LAYER("y", "devoxelize", "b", NEAREST),
     "layer \"y\": line 2: devoxelize: along column 1 the stride of the voxels, set 2 "
     "(stride 8192x8192x8192, made by layer \"b\"), is no multiple, 1 to 4096, of the "
     "stride of the points, set 0 (the request's)"},
    {LAYER("u", "upsample", "feats", ",\"stride\":2")
         AND LAYER("y", "devoxelize", "u", TRILINEAR),
     "layer \"y\": line 2: devoxelize: along column 1 the stride of the voxels, set 1 "
     "(stride 1/2x1/2x1/2, made by layer \"u\"), is no multiple, 1 to 4096, of the "
     "stride of the points, set 0 (the request's)"},
    {LAYER("y", "devoxelize", "feats", ""),
     "layer \"y\": line 2: the key \"mode\" is missing: expected \"trilinear\" or "
     "\"nearest\""},
    {LAYER("y", "devoxelize", "feats", ",\"mode\":\"linear\""),
     "layer \"y\": line 2: \"mode\": expected \"trilinear\" or \"nearest\", got "
     "\"linear\""},
    {LAYER("y", "devoxelize", "feats", TRILINEAR ",\"stride\":2"),
     "layer \"y\": line 2: the key \"stride\" does not belong to devoxelize"},
    {LAYER("p", "global_pool", "feats", ",\"mode\":\"avg\"")
         AND LAYER("y", "devoxelize", "p", NEAREST),
     "layer \"y\": line 2: set 1 (stride 0x0x0, made by layer \"p\") has one voxel for "
     "each sample, and no set follows from it: expected a layer that stays on it, or "
     "unpool"},
    {LAYER("p", "global_pool", "feats", ",\"mode\":\"avg\"") AND CELLS("y", "p", "2"),
     "layer \"y\": line 2: set 1 (stride 0x0x0, made by layer \"p\") has one voxel for "
     "each sample, and no set follows from it: expected a layer that stays on it, or "
     "unpool"},
    {LAYER("p", "global_pool", "feats", ",\"mode\":\"avg\"")
         AND LAYER("y", "voxelize", "feats", ONTO("p")),
     "layer \"y\": line 2: voxelize: along column 1 the stride of the voxels, set 1 "
     "(stride 0x0x0, made by layer \"p\"), is no multiple, 1 to 4096, of the stride of "
     "the points, set 0 (the request's)"},
    {LAYER("p", "global_pool", "feats", ",\"mode\":\"avg\"")
         AND LAYER("y", "voxelize", "p", ONTO("p")),
     "layer \"y\": line 2: voxelize: along column 1 the stride of the voxels, set 1 "
     "(stride 0x0x0, made by layer \"p\"), is no multiple, 1 to 4096, of the stride of "
     "the points, set 1 (stride 0x0x0, made by layer \"p\")"},
    {CELLS("a", "feats", "2")
         AND LAYER("y", "inverse_conv", "a", ",\"channels\":4,\"of\":\"a\""),
     "layer \"y\": line 2: \"of\": expected a strided convolution or a pool, and \"a\" "
     "is voxelize"},
};

START_TEST(wrong_ones_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    char expected[VX_WHY_BYTES];
    ck_assert_ptr_null(parse_text(bad[_i].layers, OUT("y"), &why));
    if (!bad[_i].why) return; /* json.c's sentence */
    snprintf(expected, sizeof expected, LABEL ": %s", bad[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

/* A chain of layers, of which the last `cells` are voxelize. */
static char *chain_make(i32 count, i32 cells)
{
    size_t room = (size_t)count * 80 + 1, used = 0;
    char *text = vx_alloc(room);
    for (i32 i = 0; i < count; i++) {
        char input[16] = "feats";
        bool cell = i >= count - cells;
        if (i) snprintf(input, sizeof input, "l%d", (int)i - 1);
        used += (size_t)snprintf(text + used, room - used,
                                 "%s{\"name\":\"l%d\",\"op\":\"%s\",\"input\":\"%s\"%s}",
                                 i ? "," : "", (int)i, cell ? "voxelize" : "relu", input,
                                 cell ? ",\"stride\":1" : "");
    }
    return text;
}

START_TEST(a_voxelize_counts_as_two_layers)
{
    struct vx_why why = {{0}};
    char *most = chain_make(VX_LAYERS_MAX - 3, 3),
         *more = chain_make(VX_LAYERS_MAX - 3, 4);
    parse_good(most, OUT("l1020"));
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    ck_assert_ptr_null(parse_text(more, OUT("l1020"), &why));
    ck_assert_str_eq(why.text,
                     LABEL ": line 2: layer \"l1020\": expected at most 1024 layers, "
                           "where a voxelize counts twice");
    vx_free(most);
    vx_free(more);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_points");
    TCase *tcase = tcase_create("network_points");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, the_cells_are_a_set_of_floor);
    tcase_add_test(tcase, the_stride_follows_from_the_sets);
    tcase_add_loop_test(tcase, wrong_ones_are_refused_with_a_sentence, 0, VX_COUNT(bad));
    tcase_add_test(tcase, a_voxelize_counts_as_two_layers);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
