/* network.json of several levels: the set of every layer, and the sentence for every kind
 * of network whose sets do not meet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL      "m/network.json"
#define TEXT_BYTES (32 << 10)

static u8 *block;
static struct vx_arena arena;
static char text[TEXT_BYTES];
static size_t used;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    used = 0;
}

static void tear_down(void)
{
    vx_free(block);
}

VX_PRINTF(1, 2) static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    used += (size_t)vsnprintf(text + used, TEXT_BYTES - used, format, list);
    va_end(list);
    ck_assert_uint_lt(used, TEXT_BYTES);
}

static const struct vx_network *parse(struct vx_why *why)
{
    const struct vx_network_text source = {text, strlen(text), LABEL};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    return network;
}

/* `layers`, one a line from line 2 on, on a request in a space of 10 x 20 x 7 voxels. */
#define SHAPED   "\"coords\":{\"name\":\"xyz\",\"spatial_shape\":[10,20,7]},"
#define UNSHAPED "\"coords\":\"xyz\","

#define LAYERS_MAX 12
/* `layers` ends with NULL. */
static void say_network(const char *coords, const char *const layers[LAYERS_MAX])
{
    say("{\"format\":1,\"inputs\":{%s\"feats\":{\"channels\":4}},\"layers\":[", coords);
    for (int i = 0; layers[i]; i++) say("%s\n%s", i ? "," : "", layers[i]);
    say("],\"outputs\":[{\"layer\":\"y\"}]}");
}

static const struct vx_network *parse_good(const char *coords,
                                           const char *const layers[LAYERS_MAX])
{
    struct vx_why why = {{0}};
    say_network(coords, layers);
    const struct vx_network *network = parse(&why);
    ck_assert_msg(network != NULL, "%s", why.text);
    return network;
}

#define LAYER(name_, op_, input_, keys_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"" keys_ "}"
#define PAIR(name_, op_, a_, b_)                                                         \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]}"
#define CONV   ",\"channels\":4"
#define WINDOW ",\"kernel\":2,\"stride\":2,\"rule\":\"floor\""

static const struct vx_layer *layer_get(const struct vx_network *network,
                                        const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return &network->layers[i];
    ck_abort_msg("no layer %s", name);
}

static void check_axes(const i32 axes[3], i32 x, i32 y, i32 z)
{
    ck_assert_int_eq(axes[0], x);
    ck_assert_int_eq(axes[1], y);
    ck_assert_int_eq(axes[2], z);
}

static void check_set(const struct vx_network *network, const char *layer, i32 set,
                      const char *stride)
{
    char out[VX_SET_STRIDE_BYTES];
    ck_assert_msg(layer_get(network, layer)->set == set, "%s lies on set %d", layer,
                  (int)layer_get(network, layer)->set);
    ck_assert_str_eq(vx_set_stride_text(&network->sets[set], out), stride);
}

START_TEST(levels_down_and_up)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("a", "subm_conv", "feats", CONV ",\"kernel\":3"),
        LAYER("d1", "sparse_conv", "a",
              CONV ",\"kernel\":3,\"stride\":2,\"rule\":\"floor\""),
        LAYER("p1", "avg_pool", "feats", WINDOW),
        PAIR("s1", "add", "d1", "p1"),
        LAYER("d2", "downsample", "s1", ",\"stride\":[3,1,2]"),
        LAYER("u1", "upsample", "d2", ",\"stride\":[3,1,2],\"onto\":\"s1\""),
        LAYER("e", "upsample", "u1", ",\"stride\":4"),
        LAYER("d3", "max_pool", "e", ",\"kernel\":1,\"stride\":2,\"rule\":\"floor\""),
        LAYER("t", "transposed_conv", "d3",
              CONV ",\"kernel\":3,\"stride\":1,\"onto\":\"a\""),
        LAYER("i", "inverse_conv", "u1", CONV ",\"of\":\"d1\""),
        PAIR("y", "concat", "t", "i"),
    };
    const struct vx_network *network = parse_good(UNSHAPED, layers);
    ck_assert_int_eq(network->sets_count, 5);
    check_set(network, "a", 0, "1x1x1");
    check_set(network, "d1", 1, "2x2x2");
    check_set(network, "p1", 1, "2x2x2");
    check_set(network, "s1", 1, "2x2x2");
    check_set(network, "d2", 2, "6x2x4");
    check_set(network, "u1", 1, "2x2x2");
    check_set(network, "e", 3, "1/2x1/2x1/2");
    check_set(network, "d3", 4, "1x1x1");
    check_set(network, "t", 0, "1x1x1");
    check_set(network, "i", 0, "1x1x1");
    check_axes(layer_get(network, "i")->kernel, 3, 3, 3);
    check_axes(layer_get(network, "i")->stride, 2, 2, 2);
    check_axes(layer_get(network, "i")->padding, 1, 1, 1);
    ck_assert_int_eq(layer_get(network, "i")->v, 27);
    ck_assert_int_eq(layer_get(network, "y")->channels, 8);
    ck_assert_int_eq(layer_get(network, "u1")->onto, 3);
    ck_assert_int_eq(network->sets[1].layer, 1);
}
END_TEST

/* The padding of rule "floor" follows, that of "spconv" is said. */
START_TEST(paddings_and_shapes)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("f", "sum_pool", "feats",
              ",\"kernel\":[3,2,5],\"dilation\":[2,2,1],\"stride\":[2,3,1],"
              "\"rule\":\"floor\""),
        LAYER("p", "sparse_conv", "feats",
              CONV ",\"kernel\":[3,2,1],\"stride\":[2,2,1],\"rule\":\"spconv\","
                   "\"padding\":[1,0,2]"),
        LAYER("q", "max_pool", "p",
              ",\"kernel\":3,\"dilation\":[1,2,1],\"stride\":2,\"rule\":"
              "\"spconv\""),
        LAYER("iq", "inverse_conv", "q", CONV ",\"of\":\"q\""),
        LAYER("ip", "inverse_conv", "iq", CONV ",\"of\":\"p\""),
        LAYER("if", "inverse_conv", "f", CONV ",\"of\":\"f\""),
        PAIR("y", "mul", "ip", "if"),
    };
    const struct vx_network *network = parse_good(SHAPED, layers);
    ck_assert_int_eq(network->sets_count, 4);
    check_axes(network->sets[0].shape, 10, 20, 7);
    check_axes(layer_get(network, "f")->padding, 2, 0, 2);
    check_axes(network->sets[1].shape, 5, 7, 7); /* rounded up */
    check_axes(layer_get(network, "p")->padding, 1, 0, 2);
    check_axes(network->sets[2].shape, 5, 10, 11);
    check_axes(layer_get(network, "q")->padding, 0, 0, 0);
    check_axes(network->sets[3].shape, 2, 3, 5);
    check_axes(layer_get(network, "iq")->dilation, 1, 2, 1);
    check_set(network, "iq", 2, "2x2x1");
}
END_TEST

/* Layers that leave each voxel where it is make no set. */
START_TEST(windows_that_keep_their_set)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("a", "sparse_conv", "feats",
              CONV ",\"kernel\":[3,2,1],\"stride\":1,\"rule\":\"floor\""),
        LAYER("b", "avg_pool", "a", ",\"kernel\":1,\"stride\":1,\"rule\":\"spconv\""),
        LAYER("c", "downsample", "b", ",\"stride\":1"),
        LAYER("d", "upsample", "c", ",\"stride\":1"),
        LAYER("e", "transposed_conv", "d", CONV ",\"kernel\":1,\"stride\":1"),
        LAYER("f", "sum_pool", "e",
              ",\"kernel\":[3,1,1],\"stride\":1,\"rule\":\"spconv\","
              "\"padding\":[1,0,0]"),
        LAYER("g", "transposed_conv", "f", CONV ",\"kernel\":3,\"stride\":1"),
        LAYER("y", "upsample", "g", ",\"stride\":1,\"onto\":\"a\""),
    };
    const struct vx_network *network = parse_good(SHAPED, layers);
    ck_assert_int_eq(network->sets_count, 3);
    check_set(network, "e", 0, "1x1x1");
    check_set(network, "f", 1, "1x1x1");
    check_set(network, "g", 2, "1x1x1");
    check_set(network, "y", 0, "1x1x1");
    check_axes(network->sets[1].shape, 10, 20, 7);
    check_axes(network->sets[2].shape, 0, 0, 0);
}
END_TEST

/* floor(floor(p / a) / b) is floor(p / (a * b)): branches of different steps meet. */
START_TEST(two_steps_of_floor_are_one)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("r", "relu", "feats", ""),
        LAYER("a", "downsample", "feats", ",\"stride\":[2,1,3]"),
        LAYER("b", "avg_pool", "a", ",\"kernel\":3,\"stride\":2,\"rule\":\"floor\""),
        LAYER("c", "max_pool", "feats",
              ",\"kernel\":1,\"stride\":[4,2,6],\"rule\":\"floor\""),
        PAIR("d", "add", "b", "c"),
        LAYER("e", "downsample", "d", ",\"stride\":2"),
        LAYER("f", "downsample", "a", ",\"stride\":4"),
        PAIR("g", "add", "e", "f"),
        LAYER("h", "upsample", "g", ",\"stride\":2,\"onto\":\"d\""),
        LAYER("y", "upsample", "h", ",\"stride\":[4,2,6],\"onto\":\"r\""),
    };
    const struct vx_network *network = parse_good(UNSHAPED, layers);
    ck_assert_int_eq(network->sets_count, 4);
    check_set(network, "b", 2, "4x2x6");
    check_set(network, "c", 2, "4x2x6");
    check_set(network, "f", 3, "8x4x12");
}
END_TEST

/* With "floor" a pool whose kernel is its stride has the voxels of a block. */
START_TEST(a_pool_of_blocks)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("p", "max_pool", "feats",
              ",\"kernel\":[3,2,5],\"stride\":[3,2,5],\"rule\":\"floor\""),
        LAYER("q", "sparse_conv", "feats",
              CONV ",\"kernel\":3,\"stride\":3,\"rule\":\"floor\""),
        LAYER("u", "unpool", "p", ",\"of\":\"p\""),
        LAYER("i", "inverse_conv", "q", CONV ",\"of\":\"q\""),
        PAIR("y", "add", "u", "i"),
    };
    const struct vx_network *network = parse_good(UNSHAPED, layers);
    check_axes(layer_get(network, "p")->padding, 0, 0, 0);
    check_axes(layer_get(network, "q")->padding, 1, 1, 1);
}
END_TEST

START_TEST(the_most_rows_of_a_set)
{
    static const i64 expected[] = {100, 100, 100 * 2 * 1 * 3, 600 * 8, 600};
    static const char *const layers[LAYERS_MAX] = {
        LAYER("r", "relu", "feats", ""),
        LAYER("f", "downsample", "r", ",\"stride\":5"),
        LAYER("p", "max_pool", "r",
              ",\"kernel\":[3,1,3],\"stride\":[2,1,1],\"rule\":\"spconv\","
              "\"padding\":1"),
        LAYER("e", "upsample", "p", ",\"stride\":2"),
        LAYER("c", "downsample", "e", ",\"stride\":[8,2,2]"),
        LAYER("u", "upsample", "c", ",\"stride\":[8,1,1],\"onto\":\"r\""),
        LAYER("v", "upsample", "f", ",\"stride\":5,\"onto\":\"r\""),
        PAIR("y", "add", "u", "v"),
    };
    const struct vx_network *network = parse_good(SHAPED, layers);
    i64 rows[VX_SETS_MAX];
    ck_assert_int_eq(network->sets_count, 5);
    vx_sets_rows_max(network->sets, network->sets_count, 100, rows);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(rows[i], expected[i]);
    ck_assert_int_ge(rows[4], expected[4]); /* two voxels of p may have one parent */
    ck_assert_int_le(rows[4], rows[3]);
    vx_sets_rows_max(network->sets, network->sets_count, 0, rows);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(rows[i], 0);
    vx_sets_rows_max(network->sets, network->sets_count, VX_VOXELS_MAX, rows);
    ck_assert_int_eq(rows[3], VX_VOXELS_MAX);
}
END_TEST

/* limits.sets bounds a set and all that are made from it. */
START_TEST(chains_and_limits)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("r", "relu", "feats", ""),
        LAYER("p", "max_pool", "r",
              ",\"kernel\":3,\"stride\":2,\"rule\":\"spconv\",\"padding\":1"),
        LAYER("f", "downsample", "p", ",\"stride\":2"),
        LAYER("y", "upsample", "f", ",\"stride\":4,\"onto\":\"r\""),
    };
    i64 rows[VX_SETS_MAX];
    const struct vx_network *network = parse_good(SHAPED, layers);
    vx_sets_rows_max(network->sets, network->sets_count, 100, rows);
    for (int i = 1; i < 3; i++) ck_assert_int_eq(rows[i], 800);
    used--; /* the last brace */
    say(",\"limits\":{\"sets\":{\"p\":300}}}");
    network = parse(NULL);
    vx_sets_rows_max(network->sets, network->sets_count, 100, rows);
    for (int i = 1; i < 3; i++) ck_assert_int_eq(rows[i], 300);
}
END_TEST

#define R LAYER("r", "relu", "feats", "")
#define D LAYER("d", "max_pool", "r", WINDOW)

/* What is wrong is "y", mostly; the layers begin on line 2. */
static const struct {
    const char *coords, *layers[LAYERS_MAX];
    const char *why; /* behind the label */
} bad[] = {
    {UNSHAPED,
     {R, D, PAIR("y", "add", "r", "d")},
     "layer \"y\": line 4: expected inputs on one set of voxels, got set 0 (the "
     "request's) and set 1 (stride 2x2x2, made by layer \"d\")"},
    {UNSHAPED,
     {R, D, PAIR("y", "concat", "d", "feats")},
     "layer \"y\": line 4: expected inputs on one set of voxels, got set 1 (stride "
     "2x2x2, made by layer \"d\") and set 0 (the request's)"},
    {UNSHAPED,
     {R, D, LAYER("y", "inverse_conv", "d", CONV ",\"of\":\"r\"")},
     "layer \"y\": line 4: \"of\": expected a strided convolution or a pool, and "
     "\"r\" is relu"},
    {UNSHAPED,
     {R, D, LAYER("e", "upsample", "d", ",\"stride\":2"),
      LAYER("y", "inverse_conv", "e", CONV ",\"of\":\"e\"")},
     "layer \"y\": line 5: \"of\": expected a strided convolution or a pool, and "
     "\"e\" is upsample"},
    {UNSHAPED,
     {R, LAYER("d", "max_pool", "r", ",\"kernel\":3,\"stride\":1,\"rule\":\"floor\""),
      LAYER("y", "inverse_conv", "d", CONV ",\"of\":\"d\"")},
     "layer \"y\": line 4: \"of\": expected a layer that changes the set of voxels, "
     "and \"d\" has stride 1"},
    {UNSHAPED,
     {R, D, LAYER("y", "unpool", "r", ",\"of\":\"d\"")},
     "layer \"y\": line 4: expected an input on the set of \"d\", set 1 (stride "
     "2x2x2, made by layer \"d\"), got set 0 (the request's)"},
    {UNSHAPED,
     {R,
      LAYER("d", "max_pool", "r", ",\"kernel\":[2,4,2],\"stride\":2,\"rule\":\"floor\""),
      LAYER("y", "unpool", "d", ",\"of\":\"d\"")},
     "layer \"y\": line 4: \"of\": unpool needs a layer whose kernel is as wide as "
     "its stride, without padding or dilation, and \"d\" has kernel 4, stride 2, "
     "padding 0, dilation 1 along column 2 of coords"},
    {UNSHAPED,
     {R, D, LAYER("y", "unpool", "d", ",\"of\":\"rd\"")},
     "layer \"y\": line 4: \"of\": unknown layer \"rd\"; the nearest is \"d\""},
    {UNSHAPED,
     {R, LAYER("y", "unpool", "r", ",\"of\":\"rr\"")},
     "layer \"y\": line 3: \"of\": unknown layer \"rr\"; no layer above it is strided"},
    {UNSHAPED,
     {R, D, LAYER("y", "unpool", "d", ",\"of\":\"y\"")},
     "layer \"y\": line 4: \"of\": \"y\" is the layer itself; expected a layer "
     "above this one"},
    {UNSHAPED,
     {R, D, LAYER("y", "unpool", "d", ",\"of\":\"z\""), LAYER("z", "relu", "y", "")},
     "layer \"y\": line 4: \"of\": \"z\" is a later layer; expected a layer above "
     "this one"},
    {UNSHAPED,
     {R, D, LAYER("y", "unpool", "d", "")},
     "layer \"y\": line 4: the key \"of\" is missing"},
    {UNSHAPED,
     {R, D, LAYER("y", "inverse_conv", "d", CONV ",\"of\":\"d\",\"kernel\":2")},
     "layer \"y\": line 4: the key \"kernel\" does not belong to inverse_conv; it "
     "follows from the layer that \"of\" names"},
    {UNSHAPED,
     {R, D, LAYER("y", "upsample", "d", ",\"stride\":[2,3,2],\"onto\":\"r\"")},
     "layer \"y\": line 4: \"onto\": stride 2x3x2 does not lead from set 1 (stride "
     "2x2x2, made by layer \"d\") to set 0 (the request's)"},
    {UNSHAPED,
     {R, D,
      LAYER("y", "transposed_conv", "d",
            CONV ",\"kernel\":2,\"stride\":2,\"onto\":\"d\"")},
     "layer \"y\": line 4: \"onto\": stride 2x2x2 does not lead from set 1 (stride "
     "2x2x2, made by layer \"d\") to set 1 (stride 2x2x2, made by layer \"d\")"},
    {UNSHAPED,
     {LAYER("y", "max_pool", "feats", WINDOW ",\"dilation\":[1,1,2]")},
     "layer \"y\": line 2: \"dilation\": with the rule \"floor\" a pool whose kernel is "
     "its stride has the voxels of a block; expected 1, got 1x1x2"},
    {UNSHAPED,
     {R, D, LAYER("y", "upsample", "d", ",\"onto\":\"r\"")},
     "layer \"y\": line 4: the key \"stride\" is missing"},
    {UNSHAPED,
     {LAYER("y", "subm_conv", "feats", CONV ",\"kernel\":[3,2,3]")},
     "layer \"y\": line 2: \"kernel\": expected odd sizes, got 3x2x3; sparse_conv with "
     "\"stride\": 1 and \"rule\": \"floor\" takes even ones"},
    {UNSHAPED,
     {LAYER("y", "max_pool", "feats", ",\"kernel\":2,\"stride\":0,\"rule\":\"floor\"")},
     "layer \"y\": line 2: \"stride\": expected integers from 1 to 64, got 0"},
    {UNSHAPED,
     {LAYER("y", "upsample", "feats", ",\"stride\":[1,65,1]")},
     "layer \"y\": line 2: \"stride\": expected integers from 1 to 64, got 65"},
    {UNSHAPED,
     {LAYER("y", "sparse_conv", "feats", CONV ",\"kernel\":2,\"rule\":\"floor\"")},
     "layer \"y\": line 2: the key \"stride\" is missing"},
    {UNSHAPED,
     {LAYER("y", "max_pool", "feats",
            ",\"kernel\":2,\"stride\":2,\"rule\":\"minkowski\"")},
     "layer \"y\": line 2: \"rule\": expected \"spconv\" or \"floor\", got "
     "\"minkowski\""},
    {UNSHAPED,
     {LAYER("y", "max_pool", "feats", WINDOW ",\"padding\":1")},
     "layer \"y\": line 2: \"padding\": with the rule \"floor\" it follows from the "
     "kernel; leave it out"},
    {UNSHAPED,
     {LAYER("y", "max_pool", "feats", ",\"kernel\":2,\"stride\":2,\"rule\":\"spconv\"")},
     "layer \"y\": line 2: the rule \"spconv\" needs the spatial shape of set 0 "
     "(the request's): set \"inputs\": {\"coords\": {\"spatial_shape\": [X, Y, Z]}}"},
    {SHAPED,
     {LAYER("y", "max_pool", "feats",
            ",\"kernel\":[1,1,5],\"dilation\":2,\"stride\":2,\"rule\":\"spconv\"")},
     "layer \"y\": line 2: along column 3 of coords the spatial shape has 7 voxels, "
     "7 with the padding of both sides, and the kernel reaches over 9"},
    {"\"coords\":{\"spatial_shape\":[8,131072,8]},",
     {LAYER("y", "sparse_conv", "feats",
            CONV ",\"kernel\":3,\"stride\":1,\"rule\":\"spconv\",\"padding\":2")},
     "layer \"y\": line 2: along column 2 of coords its set has 131074 voxels; expected "
     "at most 131072, the range of coordinates: set a smaller \"padding\" or "
     "\"spatial_shape\""},
    {UNSHAPED,
     {LAYER("a", "downsample", "feats", ",\"stride\":[1,1,64]"),
      LAYER("b", "downsample", "a", ",\"stride\":[1,1,64]"),
      LAYER("y", "downsample", "b", ",\"stride\":[1,1,32]")},
     "layer \"y\": line 4: the stride of its set against the request: expected at "
     "most 65536 along an axis"},
    {UNSHAPED,
     {LAYER("y", "subm_conv", "feats", CONV ",\"kernel\":3,\"groups\":3")},
     "layer \"y\": line 2: expected the channels of the input to be a multiple of "
     "3, the groups, got 4"},
    {UNSHAPED,
     {LAYER("y", "subm_conv", "feats", ",\"channels\":6,\"kernel\":3,\"groups\":4")},
     "layer \"y\": line 2: expected \"channels\" to be a multiple of 4, the groups, "
     "got 6"},
    {UNSHAPED,
     {LAYER("y", "channel_to_space", "feats", ",\"stride\":2")},
     "layer \"y\": line 2: expected the channels of the input to be a multiple of "
     "8, the children of a voxel, got 4"},
    {UNSHAPED,
     {LAYER("y", "group_norm", "feats", "")},
     "layer \"y\": line 2: the key \"groups\" is missing"},
    {UNSHAPED,
     {PAIR("y", "mul", "feats", "y")},
     "layer \"y\": line 2: input \"y\" is the layer itself; a layer may only use "
     "layers above it"},
    {"\"coords\":{\"shape\":4},",
     {LAYER("y", "relu", "feats", "")},
     "line 1: unknown key \"shape\"; known: name, spatial_shape, axes"},
    {"\"coords\":{\"spatial_shape\":[1,131073,1]},",
     {LAYER("y", "relu", "feats", "")},
     "line 1: \"spatial_shape\": expected integers from 1 to 131072, got 131073"},
};

START_TEST(networks_that_cannot_be_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    say_network(bad[_i].coords, bad[_i].layers);
    ck_assert_ptr_null(parse(&why));
    snprintf(expected, sizeof expected, LABEL ": %s", bad[_i].why);
    expected[VX_WHY_BYTES - 1] = 0;
    ck_assert_str_eq(why.text, expected);
}
END_TEST

/* A set that no window can bound has no shape, and none of the request's would help. */
START_TEST(all_children_have_no_spatial_shape)
{
    static const char *const layers[LAYERS_MAX] = {
        LAYER("e", "upsample", "feats", ",\"stride\":2"),
        LAYER("y", "max_pool", "e", ",\"kernel\":2,\"stride\":2,\"rule\":\"spconv\""),
    };
    struct vx_why why = {{0}};
    say_network(_i ? SHAPED : UNSHAPED, layers);
    ck_assert_ptr_null(parse(&why));
    ck_assert_msg(strstr(why.text, "needs the spatial shape of set 1 (stride "
                                   "1/2x1/2x1/2, made by layer \"e\"), which has none: "
                                   "it is lost where a layer makes finer voxels") != NULL,
                  "%s", why.text);
    ck_assert_msg(strstr(why.text, "set \"inputs\"") == NULL, "%s", why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_sets");
    TCase *tcase = tcase_create("network_sets");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, levels_down_and_up);
    tcase_add_test(tcase, paddings_and_shapes);
    tcase_add_test(tcase, windows_that_keep_their_set);
    tcase_add_test(tcase, two_steps_of_floor_are_one);
    tcase_add_test(tcase, a_pool_of_blocks);
    tcase_add_test(tcase, the_most_rows_of_a_set);
    tcase_add_test(tcase, chains_and_limits);
    tcase_add_loop_test(tcase, networks_that_cannot_be_are_refused_with_a_sentence, 0,
                        VX_COUNT(bad));
    tcase_add_loop_test(tcase, all_children_have_no_spatial_shape, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
