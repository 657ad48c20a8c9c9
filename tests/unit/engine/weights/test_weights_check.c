/* A checkpoint beside its network: which weights have one reading, what a layer leaves out, and
 * what only a person can judge.
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

/* A network of these layers, the last called "y", or "z" behind it. */
static const struct vx_network *network_of(const char *layers)
{
    char text[2048];
    const struct vx_network *network;
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"coords\":{\"spatial_shape\":64},\"feats\":"
             "{\"channels\":4}},\"layers\":[%s],\"outputs\":[{\"layer\":\"%s\"}]}",
             layers, strstr(layers, "\"name\":\"z\"") ? "z" : "y");
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

static const struct vx_layer *layer_y(const struct vx_network *network)
{
    const struct vx_layer *layer = network->layers;
    while (strcmp(layer->name, "y") != 0) layer++;
    return layer;
}

#define CONV(keys_)                                                                      \
    "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"bias\":false," keys_ "}"
#define LINEAR(keys_)                                                                    \
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"bias\":false," keys_ "}"

/* Layers on their way from the request's voxels and back, because outputs lie on those. */
#define ON "{\"name\":\"on\",\"op\":\"relu\",\"input\":\"feats\"},"
#define BACK(s)                                                                          \
    ",{\"name\":\"z\",\"op\":\"upsample\",\"input\":\"y\",\"onto\":\"on\",\"stride\":" s \
    "}"
#define Y(keys_) "{\"name\":\"y\",\"bias\":false,\"channels\":6," keys_ "}"
#define DOWN(s, keys_)                                                                   \
    ON Y("\"op\":\"sparse_conv\",\"input\":\"feats\",\"stride\":" s "," keys_) BACK(s)
#define POOL(s, keys_)                                                                   \
    "{\"name\":\"p\",\"op\":\"max_pool\",\"input\":\"feats\",\"rule\":\"floor\","        \
    "\"stride\":" s "," keys_ "},"
#define INVERSE(s, pool, keys_)                                                          \
    POOL(s, pool) Y("\"op\":\"inverse_conv\",\"input\":\"p\",\"of\":\"p\"," keys_)
#define UP(keys_)         Y("\"op\":\"transposed_conv\",\"input\":\"p\",\"stride\":2," keys_)
#define ONTO(keys_)       ON POOL("2", "\"kernel\":2") UP("\"onto\":\"on\"," keys_)
#define GENERATIVE(keys_) ON POOL("2", "\"kernel\":2") UP(keys_) BACK("1")
#define DEPTHWISE                                                                        \
    "{\"name\":\"y\",\"op\":\"inverse_conv\",\"input\":\"p\",\"of\":\"p\",\"channels\":" \
    "4,"                                                                                 \
    "\"groups\":4,"
#define FLOOR         "\"rule\":\"floor\","
#define RULE          "\"rule\":\"spconv\","
#define K(k)          "\"kernel\":" k ","
#define LAYOUT(word_) "\"layout\":\"" word_ "\""

/* What a library cannot have written: how the sentence goes on behind the layout. */
static const struct {
    const char *layers, *expected;
} refused[] = {
    {CONV("\"channels\":6,\"kernel\":3,\"groups\":2," LAYOUT("spconv")),
     "this library has no groups: set the letters \"oxyzi\" or \"vio\" if"},
    {CONV("\"channels\":4,\"kernel\":3,\"groups\":4," LAYOUT("torchsparse")),
     "this library has no groups"},
    {CONV("\"channels\":4,\"kernel\":3,\"groups\":4," LAYOUT("flexgemm")),
     "this library has no groups"},
    {CONV("\"channels\":4,\"kernel\":3,\"groups\":2," LAYOUT("minkowski")),
     "MinkowskiEngine has groups only in MinkowskiChannelwiseConvolution, one a channel, "
     "never transposed"},
    {CONV("\"channels\":8,\"kernel\":3,\"groups\":4," LAYOUT("minkowski")),
     "MinkowskiEngine has groups only"},
    {POOL("2", "\"kernel\":2") DEPTHWISE LAYOUT("minkowski") "}",
     "MinkowskiEngine has groups only"},
    {DOWN("2", FLOOR K("3") LAYOUT("spconv")),
     "spconv and FlexGEMM make the voxels of this layer by another rule: set \"rule\": "
     "\"spconv\", or op \"subm_conv\""},
    {DOWN("2", FLOOR K("1") LAYOUT("spconv")), "spconv and FlexGEMM make"},
    {DOWN("1", FLOOR K("3") LAYOUT("spconv")), "spconv and FlexGEMM make"},
    {DOWN("3", FLOOR K("3") LAYOUT("spconv")), "spconv and FlexGEMM make"},
    {DOWN("2", FLOOR K("2") "\"dilation\":2," LAYOUT("spconv")), "spconv and FlexGEMM"},
    {DOWN("2", FLOOR K("4") LAYOUT("flexgemm")), "spconv and FlexGEMM make"},
    {DOWN("1", RULE K("1") "\"padding\":1," LAYOUT("spconv")),
     "spconv has no padding for one offset and stride 1: set \"padding\": 0"},
    {INVERSE("2", "\"kernel\":1", LAYOUT("spconv")),
     "spconv's inverse convolution of one offset changes no voxels: write op"},
    {ONTO(K("3") LAYOUT("spconv")),
     "spconv's SparseConvTranspose3d is served for even kernels and dilation 1; "
     "SparseInverseConv3d is op \"inverse_conv\""},
    {GENERATIVE(K("[2,3,2]") LAYOUT("spconv")), "spconv's SparseConvTranspose3d"},
    {GENERATIVE(K("2") "\"dilation\":2," LAYOUT("spconv")),
     "spconv's SparseConvTranspose3d"},
    {INVERSE("2", "\"kernel\":2", LAYOUT("flexgemm")),
     "FlexGEMM has no inverse and no transposed convolution: set \"oxyzi\" if"},
    {ONTO(K("2") LAYOUT("flexgemm")), "FlexGEMM has no inverse"},
    {DOWN("2", RULE K("2") LAYOUT("minkowski")),
     "MinkowskiEngine and WarpConvNet make voxels by floor: set \"rule\": \"floor\""},
    {DOWN("2", RULE K("2") LAYOUT("warpconvnet")), "MinkowskiEngine and WarpConvNet"},
    {INVERSE("3", "\"kernel\":3", LAYOUT("minkowski")),
     "MinkowskiEngine and WarpConvNet centre odd kernels: write op "},
    {INVERSE("3", "\"kernel\":3", LAYOUT("warpconvnet")), "MinkowskiEngine and Warp"},
    {DOWN("2", FLOOR K("3") LAYOUT("torchsparse")),
     "TorchSparse makes the voxels of this kernel and stride by spconv's rule: set "},
    {DOWN("2", FLOOR K("1") LAYOUT("torchsparse")), "TorchSparse makes the voxels"},
    {DOWN("4", FLOOR K("4") LAYOUT("torchsparse")),
     "TorchSparse 1.4's even kernels above 2 are not served; for 2.1 set"},
    {GENERATIVE(K("2") LAYOUT("torchsparse")),
     "TorchSparse's generative convolution is not served"},
    {ONTO(K("3") LAYOUT("torchsparse")),
     "TorchSparse's transposed convolution undoes a strided one: write op "},
};

START_TEST(what_a_library_cannot_have_written_is_refused)
{
    const struct vx_network *network = network_of(refused[_i].layers);
    const struct vx_test_tensor tensor = {"y.weight", "F32", {1}, 1, NULL};
    struct vx_safetensors *file = file_of(&tensor, 1);
    char text[2 * VX_WHY_BYTES];
    ck_assert_int_eq(vx_status_code(vx_weights_check(network, file, &why)),
                     VX_CODE_INVALID_ARGUMENT);
    snprintf(text, sizeof text,
             "m/1/w: tensor \"y.weight\" of layer \"y\": layout \"%s\": %s",
             vx_layout_name(layer_y(network)->layout), refused[_i].expected);
    ck_assert_msg(!strncmp(why.text, text, strlen(text)), "%s", why.text);
    vx_safetensors_close(&file);
}
END_TEST

/* Tensors of zeros. */
#define TENSOR(name_, ...)                                                               \
    {                                                                                    \
        name_, "F32", {__VA_ARGS__}, VX_COUNT(((i64[]){__VA_ARGS__})), NULL              \
    }
#define SHAPE(...)      TENSOR("y.weight", __VA_ARGS__)
#define OFFSETS_OUTSIDE "\"torchsparse\", \"minkowski\", \"warpconvnet\""
#define READINGS        "allows several layouts: set \"layout\" to the one that wrote it: "
#define CONV3D          "; of PyTorch's Conv3d, permute it to [Co, K, K, K, Ci] and set \"oxyzi\""
static const struct {
    const char *layer;
    struct vx_test_tensor tensor;
    const char *expected; /* the layout that is taken, or the end of the sentence */
    bool good;
} readings[] = {
    /* one reading each */
    {CONV("\"channels\":6,\"kernel\":3"), SHAPE(6, 3, 3, 3, 4), "spconv", true},
    {CONV("\"channels\":4,\"kernel\":3"), SHAPE(4, 3, 3, 3, 4), "spconv", true},
    {CONV("\"channels\":6,\"kernel\":3"), SHAPE(3, 3, 3, 4, 6), "xyzio", true},
    {CONV("\"channels\":6,\"kernel\":[1,5,1]"), SHAPE(5, 4, 6), "torchsparse", true},
    {CONV("\"channels\":6,\"kernel\":1"), SHAPE(4, 6), "torchsparse", true},
    {CONV("\"channels\":4,\"kernel\":1"), SHAPE(1, 4, 4), "torchsparse", true},
    {CONV("\"channels\":1,\"kernel\":1"), SHAPE(1, 1, 1, 1, 4), "spconv", true},
    /* several: refused, with the layouts to choose from */
    {CONV("\"channels\":6,\"kernel\":3"), SHAPE(27, 4, 6),
     "its shape [27, 4, 6] " READINGS OFFSETS_OUTSIDE, false},
    {CONV("\"channels\":6,\"kernel\":[3,1,3]"), SHAPE(9, 4, 6),
     "its shape [9, 4, 6] " READINGS OFFSETS_OUTSIDE, false},
    {CONV("\"channels\":6,\"kernel\":1"), SHAPE(6, 1, 1, 1, 4),
     "its shape [6, 1, 1, 1, 4] " READINGS "\"spconv\", \"flexgemm\"", false},
    {CONV("\"channels\":4,\"kernel\":1"), SHAPE(4, 1, 1, 1, 4),
     "its shape [4, 1, 1, 1, 4] " READINGS "\"spconv\", \"flexgemm\"", false},
    {CONV("\"channels\":4,\"kernel\":1"), SHAPE(4, 4),
     "its shape [4, 4] " READINGS
     "\"torchsparse\", \"minkowski\"; or op \"linear\" for [Co, Ci]",
     false},
    {DOWN("2", RULE "\"kernel\":4"), SHAPE(6, 4, 4, 4, 4),
     "its shape [6, 4, 4, 4, 4] " READINGS "\"spconv\", \"flexgemm\"" CONV3D, false},
    {CONV("\"channels\":4,\"kernel\":3"), SHAPE(3, 3, 3, 4, 4),
     "its shape [3, 3, 3, 4, 4] " READINGS "\"xyzio\", \"xyzoi\"", false},
    /* none */
    {CONV("\"channels\":6,\"kernel\":3"), SHAPE(6, 4, 3, 3, 3),
     "expected shape [6, 3, 3, 3, 4] (spconv, flexgemm) or [27, 4, 6] (torchsparse, "
     "minkowski, warpconvnet), got [6, 4, 3, 3, 3]",
     false},
    {CONV("\"channels\":6,\"kernel\":3,\"layout\":\"spconv\""), SHAPE(27, 4, 6),
     "expected shape [6, 3, 3, 3, 4] (layout \"spconv\"), got [27, 4, 6], which is "
     "written by \"torchsparse\", \"minkowski\", \"warpconvnet\"",
     false},
    {CONV("\"channels\":6,\"kernel\":1,\"layout\":\"warpconvnet\""), SHAPE(4, 6),
     "expected shape [1, 4, 6] (layout \"warpconvnet\"), got [4, 6], which is written by "
     "\"torchsparse\", \"minkowski\"",
     false},
    /* levels, groups and what is refused for some libraries */
    {CONV("\"channels\":6,\"kernel\":[1,5,1],\"dilation\":2"), SHAPE(5, 4, 6),
     "minkowski", true},
    {DOWN("2", FLOOR "\"kernel\":2"), SHAPE(8, 4, 6),
     "its shape [8, 4, 6] " READINGS OFFSETS_OUTSIDE, false},
    {DOWN("2", RULE "\"kernel\":3"), SHAPE(27, 4, 6),
     "its shape [27, 4, 6] " READINGS "\"torchsparse\", \"vio\"", false},
    {DOWN("2", RULE "\"kernel\":2"), SHAPE(8, 4, 6), "torchsparse", true},
    {DOWN("2", RULE "\"kernel\":1"), SHAPE(6, 1, 1, 1, 4), "spconv", true},
    {DOWN("1", RULE "\"kernel\":1"), SHAPE(6, 1, 1, 1, 4),
     "its shape [6, 1, 1, 1, 4] " READINGS "\"spconv\", \"flexgemm\"", false},
    {INVERSE("2", "\"kernel\":1", "\"groups\":1"), SHAPE(6, 1, 1, 1, 4),
     "no library writes the shape [6, 1, 1, 1, 4] for this layer: set \"layout\": "
     "\"oxyzi\" if the letters are right",
     false},
    {CONV("\"channels\":6,\"kernel\":3,\"groups\":2"), SHAPE(6, 3, 3, 3, 2),
     "no library writes the shape [6, 3, 3, 3, 2] for this layer: set \"layout\": "
     "\"oxyzi\" if the letters are right",
     false},
    {CONV("\"channels\":6,\"kernel\":3,\"groups\":2"), SHAPE(27, 2, 2, 3), "warpconvnet",
     true},
    {CONV("\"channels\":4,\"kernel\":3,\"groups\":4"), SHAPE(27, 4),
     "its shape [27, 4] " READINGS "\"minkowski\", \"warpconvnet\"", false},
    {CONV("\"channels\":4,\"kernel\":[1,3,1],\"groups\":4"), SHAPE(3, 4), "minkowski",
     true},
    {CONV("\"channels\":6,\"kernel\":3,\"groups\":2"), SHAPE(27, 4, 6),
     "expected shape [27, 2, 2, 3] (warpconvnet), got [27, 4, 6]", false},
    {DOWN("2", RULE "\"kernel\":2"), SHAPE(8, 6, 4),
     "expected shape [6, 2, 2, 2, 4] (spconv, flexgemm) or [8, 4, 6] (torchsparse), got "
     "[8, 6, 4]",
     false},
    {INVERSE("2", "\"kernel\":3,\"dilation\":2", LAYOUT("minkowski")), SHAPE(27, 4, 6),
     "minkowski", true},
    {DOWN("2", FLOOR K("2") LAYOUT("minkowski")), SHAPE(6, 2, 2, 2, 4),
     "expected shape [8, 4, 6] (layout \"minkowski\"), got [6, 2, 2, 2, 4], which is "
     "written by \"spconv\", \"flexgemm\"",
     false},
    /* a matrix of the wrong kind under a linear layer */
    {LINEAR("\"channels\":4,\"tensors\":{\"weight\":\"y.kernel\"}"),
     {"y.kernel", "F32", {4, 4}, 2, 0},
     "[4, 4] is [Co, Ci] for linear, but a \"kernel\" of TorchSparse or MinkowskiEngine "
     "is [Ci, Co]: use op \"subm_conv\", \"kernel\": 1, \"layout\": \"minkowski\"",
     false},
    {LINEAR("\"channels\":4"), SHAPE(4, 4), "not set", true},
};

START_TEST(a_shape_has_one_reading_or_is_refused)
{
    const struct vx_network *network = network_of(readings[_i].layer);
    struct vx_safetensors *file = file_of(&readings[_i].tensor, 1);
    vx_status status = vx_weights_check(network, file, &why);
    if (readings[_i].good) {
        ck_assert_msg(!status.fault, "%s", why.text);
        ck_assert_str_eq(vx_layout_name(layer_y(network)->layout), readings[_i].expected);
    } else {
        char text[2 * VX_WHY_BYTES];
        snprintf(text, sizeof text, "m/1/w: tensor \"%s\" of layer \"y\": %s",
                 readings[_i].tensor.name, readings[_i].expected);
        ck_assert_str_eq(why.text, text);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    }
    vx_safetensors_close(&file);
}
END_TEST

#define BIASED(layout_)                                                                  \
    "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":6,"           \
    "\"kernel\":3," LAYOUT(layout_) "}"
#define NORM(op_) "{\"name\":\"y\",\"op\":\"" op_ "\",\"input\":\"feats\"}"
static const struct {
    const char *layer;
    struct vx_test_tensor tensors[2];
    const char *expected; /* NULL = good */
} biases[] = {
    {BIASED("minkowski"), {SHAPE(27, 4, 6), TENSOR("y.bias", 1, 6)}, NULL},
    {BIASED("minkowski"), {SHAPE(27, 4, 6), TENSOR("y.bias", 6)}, NULL},
    {BIASED("torchsparse"), {SHAPE(27, 4, 6), TENSOR("y.bias", 6)}, NULL},
    {BIASED("torchsparse"),
     {SHAPE(27, 4, 6), TENSOR("y.bias", 1, 6)},
     "expected shape [6], got [1, 6], as MinkowskiEngine writes it: set \"layout\": "
     "\"minkowski\""},
    {BIASED("minkowski"),
     {SHAPE(27, 4, 6), TENSOR("y.bias", 6, 1)},
     "expected shape [6], got [6, 1]"},
    {NORM("instance_norm"), {SHAPE(1, 4), TENSOR("y.bias", 1, 4)}, NULL},
    {NORM("layer_norm"), {SHAPE(1, 4), TENSOR("y.bias", 4)}, "expected shape [4], got"},
};

START_TEST(minkowski_writes_its_vectors_as_rows)
{
    const struct vx_network *network = network_of(biases[_i].layer);
    struct vx_safetensors *file = file_of(biases[_i].tensors, 2);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_int_eq(!status.fault, !biases[_i].expected);
    if (biases[_i].expected)
        ck_assert_msg(strstr(why.text, biases[_i].expected) != NULL, "%s", why.text);
    vx_safetensors_close(&file);
}
END_TEST

START_TEST(torchsparse_does_not_dilate)
{
    static const char *const dilations[] = {"[2,2,1]", "[1,1,2]"}; /* [0]: no effect */
    for (size_t i = 0; i < VX_COUNT(dilations); i++) {
        char text[512];
        const struct vx_network *network;
        snprintf(
            text, sizeof text,
            "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[" CONV(
                "\"channels\":4,\"kernel\":[1,1,3],\"dilation\":%s," LAYOUT(
                    "torchsparse")) "],\"outputs\":[{\"layer\":\"y\"}]}",
            dilations[i]);
        struct vx_network_text source = {text, strlen(text), "m/network.json"};
        vx_status status = vx_network_parse(&source, &arena, &why, &network);
        ck_assert_int_eq(!status.fault, i == 0);
        ck_assert(!i || strstr(why.text, "computes every dilation as 1"));
    }
}
END_TEST

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
    {"{\"name\":\"y\",\"op\":\"group_norm\",\"input\":\"feats\",\"groups\":2,\"affine\":"
     "false}",
     "y.bias", "sets \"affine\": false, but the file has \"y.bias\""},
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
        "\"kernel\":3,\"bias\":false},"
        "{\"name\":\"n\",\"op\":\"batch_norm\",\"input\":\"c\"},"
        "{\"name\":\"m\",\"op\":\"batch_norm\",\"input\":\"n\",\"eps\":1e-2,\"affine\":"
        "false,\"tensors\":{\"running_mean\":\"n.running_mean\"}},"
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
        "NaN or infinity in m.running_var; rows of answers may be NaN, infinite or "
        "wrong\nrunning_mean is 0 and running_var 1 throughout in n; its statistics were "
        "never gathered\n"
        "a weight is 0 throughout in c; its result does not depend on its input\n"
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
    static const f32 weight[16] = {[7] = 1};
    tensors[0] = (struct vx_test_tensor){"y.weight", "F32", {4, 4}, 2, weight};
    for (int i = 1; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "t%02d", i);
        tensors[i] = (struct vx_test_tensor){names[i], "F32", {1}, 1, NULL};
    }
    struct vx_safetensors *file = file_of(tensors, 12);
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    ck_assert_str_eq(text, "no layer reads t01, t02, t03, t04, t05, t06, t07, t08 and 3 "
                           "more; if training used it, network.json lacks a layer\n");
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
    tcase_add_loop_test(tcase, what_a_library_cannot_have_written_is_refused, 0,
                        VX_COUNT(refused));
    tcase_add_loop_test(tcase, a_shape_has_one_reading_or_is_refused, 0,
                        VX_COUNT(readings));
    tcase_add_loop_test(tcase, minkowski_writes_its_vectors_as_rows, 0, VX_COUNT(biases));
    tcase_add_test(tcase, torchsparse_does_not_dilate);
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
