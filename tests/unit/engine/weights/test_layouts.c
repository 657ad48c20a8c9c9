/* Layouts: where each library keeps the weight of an offset, computed here as those libraries index
 * their weights; which shapes have one reading, and the errors for the others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/weights/layout.h"
#include "engine/weights/weights.h"
#include "tests/support/model_files.h"

#include <check.h>
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

/* The meaning of a library's weight: for each number of the file, in its order, the
 * offset from the output's voxel to the input's along the columns of coords, and the
 * channels.  Written from the libraries' sources, with their indexing. */
struct entry {
    i32 at[3], ci, co;
};
typedef void (*counter)(const i32 k[3], i32 ci, i32 co, struct entry *out);

/* spconv 2: [Co, K0, K1, K2, Ci], the last axis of the kernel fastest (checked against
 * generate_subm_conv_inds_cpu of 2.3.8).  A kernel of one offset is multiplied as a (Ci,
 * Co) matrix, whatever its shape (conv1x1 in pytorch/conv.py). */
static void count_spconv(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    if (k[0] * k[1] * k[2] == 1) {
        for (i32 i = 0; i < ci; i++)
            for (i32 o = 0; o < co; o++) *out++ = (struct entry){{0}, i, o};
        return;
    }
    for (i32 o = 0; o < co; o++)
        for (i32 a = -(k[0] / 2); a <= k[0] / 2; a++)
            for (i32 b = -(k[1] / 2); b <= k[1] / 2; b++)
                for (i32 c = -(k[2] / 2); c <= k[2] / 2; c++)
                    for (i32 i = 0; i < ci; i++) *out++ = (struct entry){{a, b, c}, i, o};
}

/* TorchSparse: [V, Ci, Co]; of an odd volume z is the outer loop and x the inner one
 * (nn/utils/kernel.py, and the CUDA maps alike). */
static void count_torchsparse(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    for (i32 z = -(k[2] / 2); z <= k[2] / 2; z++)
        for (i32 y = -(k[1] / 2); y <= k[1] / 2; y++)
            for (i32 x = -(k[0] / 2); x <= k[0] / 2; x++)
                for (i32 i = 0; i < ci; i++)
                    for (i32 o = 0; o < co; o++) *out++ = (struct entry){{x, y, z}, i, o};
}

/* MinkowskiEngine: [V, Ci, Co]; the index of an offset is split axis by axis, the first
 * axis by the first remainder (coordinate_at in kernel_region.hpp). */
static void count_minkowski(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    for (i32 n = 0; n < k[0] * k[1] * k[2]; n++) {
        struct entry entry = {{0}, 0, 0};
        i32 left = n;
        for (i32 axis = 0; axis < 3; axis++) {
            entry.at[axis] = left % k[axis] - k[axis] / 2;
            left /= k[axis];
        }
        for (entry.ci = 0; entry.ci < ci; entry.ci++)
            for (entry.co = 0; entry.co < co; entry.co++) *out++ = entry;
    }
}

/* WarpConvNet: [V, Ci, Co]; packed_kernel_map_size: z is the first remainder. */
static void count_warpconvnet(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    for (i32 n = 0; n < k[0] * k[1] * k[2]; n++)
        for (i32 i = 0; i < ci; i++)
            for (i32 o = 0; o < co; o++)
                *out++ = (struct entry){{n / (k[2] * k[1]) - k[0] / 2,
                                         n / k[2] % k[1] - k[1] / 2, n % k[2] - k[2] / 2},
                                        i,
                                        o};
}

/* FlexGEMM: [Co, Kw, Kh, Kd, Ci] taken as [Co, V, Ci], also for V = 1; the neighbour v is
 * (v / KhKd, v / Kd % Kh, v % Kd) from the low corner (subm_neighbor_map.cu). */
static void count_flexgemm(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    i32 volume = k[0] * k[1] * k[2], plane = k[1] * k[2];
    for (i32 n = 0; n < co * volume * ci; n++) {
        i32 v = n / ci % volume;
        *out++ = (struct entry){
            {v / plane - k[0] / 2, v / k[2] % k[1] - k[1] / 2, v % k[2] - k[2] / 2},
            n % ci,
            n / ci / volume};
    }
}

/* spconv 1: [K0, K1, K2, Ci, Co]; spconv 2.0 and 2.1 for more than 32 offsets: [..., Co, Ci]. */
static void count_xyz(const i32 k[3], i32 last[2], i32 turned, struct entry *out)
{
    for (i32 a = 0; a < k[0]; a++)
        for (i32 b = 0; b < k[1]; b++)
            for (i32 c = 0; c < k[2]; c++)
                for (i32 i = 0; i < last[0]; i++)
                    for (i32 j = 0; j < last[1]; j++)
                        *out++ =
                            (struct entry){{a - k[0] / 2, b - k[1] / 2, c - k[2] / 2},
                                           turned ? j : i,
                                           turned ? i : j};
}

static void count_xyzio(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    count_xyz(k, (i32[]){ci, co}, 0, out);
}

static void count_xyzoi(const i32 k[3], i32 ci, i32 co, struct entry *out)
{
    count_xyz(k, (i32[]){co, ci}, 1, out);
}

enum shape { OXYZI, VIO, XYZIO, XYZOI };
static const struct {
    const char *layout;
    enum shape shape;
    counter count;
} layouts[] = {
    {"spconv", OXYZI, count_spconv},     {"torchsparse", VIO, count_torchsparse},
    {"minkowski", VIO, count_minkowski}, {"warpconvnet", VIO, count_warpconvnet},
    {"flexgemm", OXYZI, count_flexgemm}, {"oxyzi", OXYZI, count_flexgemm},
    {"vio", VIO, count_warpconvnet},     {"xyzio", XYZIO, count_xyzio},
    {"xyzoi", XYZOI, count_xyzoi}};
static const i32 kernels[][3] = {{3, 3, 3}, {5, 3, 1}, {1, 3, 5}, {1, 1, 3},
                                 {3, 1, 1}, {1, 1, 1}, {3, 5, 7}};

static struct vx_test_tensor weight_of(enum shape shape, const i32 k[3], i32 co)
{
    switch (shape) {
    case OXYZI:
        return (struct vx_test_tensor){
            "y.weight", "F32", {co, k[0], k[1], k[2], 4}, 5, 0};
    case XYZIO:
        return (struct vx_test_tensor){
            "y.weight", "F32", {k[0], k[1], k[2], 4, co}, 5, 0};
    case XYZOI:
        return (struct vx_test_tensor){
            "y.weight", "F32", {k[0], k[1], k[2], co, 4}, 5, 0};
    case VIO: break;
    }
    return (struct vx_test_tensor){"y.weight", "F32", {k[0] * k[1] * k[2], 4, co}, 3, 0};
}

/* Every number of the file is loaded at the offset and the channels that the library means. */
START_TEST(weights_lie_where_the_library_put_them)
{
    static f32 values[105 * 4 * 6];
    static struct entry entries[VX_COUNT(values)];
    const i32 *k = kernels[_i % (int)VX_COUNT(kernels)], ci = 4;
    i32 which = _i / (int)VX_COUNT(kernels), of = which % (int)VX_COUNT(layouts);
    i32 co = which < (int)VX_COUNT(layouts) ? 6 : 4, count = k[0] * k[1] * k[2] * ci * co;
    char layer[512];
    const struct vx_graph *graph;
    struct vx_weights *weights;
    snprintf(layer, sizeof layer,
             "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":%d,"
             "\"kernel\":[%d,%d,%d],\"bias\":false,\"layout\":\"%s\"}",
             co, k[0], k[1], k[2], layouts[of].layout);
    const struct vx_network *network = network_of(layer);
    for (i32 i = 0; i < count; i++) values[i] = (f32)i;
    struct vx_test_tensor tensor = weight_of(layouts[of].shape, k, co);
    tensor.values = values;
    struct vx_safetensors *file = file_of(&tensor, 1);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_str_eq(vx_layout_name(network->layers[0].layout), layouts[of].layout);
    ck_assert(
        !vx_fuse_build(network, &(struct vx_fuse_options){0}, &arena, &graph).fault);
    ck_assert(!vx_weights_open(graph, file, NULL, &why, &weights).fault);
    const f32 *got = vx_weights_get(weights, 0)->weight;
    layouts[of].count(k, ci, co, entries);
    for (i32 i = 0; i < count; i++) {
        const struct entry *e = &entries[i];
        i32 v = ((e->at[0] + k[0] / 2) * k[1] + e->at[1] + k[1] / 2) * k[2] + e->at[2] +
                k[2] / 2;
        ck_assert_msg(got[(v * ci + e->ci) * co + e->co] == (f32)i,
                      "%s %dx%dx%d: number %d", layouts[of].layout, k[0], k[1], k[2], i);
    }
    vx_weights_close(&weights);
    vx_safetensors_close(&file);
}
END_TEST

/* TorchSparse and MinkowskiEngine agree for odd kernels only, so their layouts of even
 * ones would need different names; voxeld serves odd ones. */
START_TEST(even_kernels_are_refused)
{
    static const char *const sizes[] = {"2", "[3,2,3]", "4", "[1,1,2]"};
    for (size_t i = 0; i < VX_COUNT(layouts); i++) {
        char text[512];
        const struct vx_network *network;
        snprintf(text, sizeof text,
                 "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[{"
                 "\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":4,"
                 "\"kernel\":%s,\"layout\":\"%s\"}],\"outputs\":[{\"layer\":\"y\"}]}",
                 sizes[_i], layouts[i].layout);
        struct vx_network_text source = {text, strlen(text), "m/network.json"};
        ck_assert_int_eq(
            vx_status_code(vx_network_parse(&source, &arena, &why, &network)),
            VX_CODE_INVALID_ARGUMENT);
        ck_assert_msg(strstr(why.text, "expected odd sizes") != NULL, "%s", why.text);
    }
}
END_TEST

#define CONV(keys_)                                                                      \
    "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"bias\":false," keys_ "}"
#define LINEAR(keys_)                                                                    \
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"bias\":false," keys_ "}"
#define READINGS "allows several layouts: set \"layout\" to the one that wrote it: "
static const struct {
    const char *layer;
    struct vx_test_tensor tensor;
    const char *expected; /* the layout that is taken, or the end of the sentence */
    bool good;
} readings[] = {
    /* one reading each */
    {CONV("\"channels\":6,\"kernel\":3"),
     {"y.weight", "F32", {6, 3, 3, 3, 4}, 5, 0},
     "spconv",
     true},
    {CONV("\"channels\":4,\"kernel\":3"),
     {"y.weight", "F32", {4, 3, 3, 3, 4}, 5, 0},
     "spconv",
     true},
    {CONV("\"channels\":6,\"kernel\":3"),
     {"y.weight", "F32", {3, 3, 3, 4, 6}, 5, 0},
     "xyzio",
     true},
    {CONV("\"channels\":6,\"kernel\":[1,5,1]"),
     {"y.weight", "F32", {5, 4, 6}, 3, 0},
     "torchsparse",
     true},
    {CONV("\"channels\":6,\"kernel\":1"),
     {"y.weight", "F32", {4, 6}, 2, 0},
     "torchsparse",
     true},
    {CONV("\"channels\":4,\"kernel\":1"),
     {"y.weight", "F32", {1, 4, 4}, 3, 0},
     "torchsparse",
     true},
    {CONV("\"channels\":1,\"kernel\":1"),
     {"y.weight", "F32", {1, 1, 1, 1, 4}, 5, 0},
     "spconv",
     true},
    /* several: refused, with the layouts to choose from */
    {CONV("\"channels\":6,\"kernel\":3"),
     {"y.weight", "F32", {27, 4, 6}, 3, 0},
     "its shape [27, 4, 6] " READINGS "\"torchsparse\", \"minkowski\", \"warpconvnet\"",
     false},
    {CONV("\"channels\":6,\"kernel\":[3,1,3]"),
     {"y.weight", "F32", {9, 4, 6}, 3, 0},
     "its shape [9, 4, 6] " READINGS "\"torchsparse\", \"minkowski\", \"warpconvnet\"",
     false},
    {CONV("\"channels\":6,\"kernel\":1"),
     {"y.weight", "F32", {6, 1, 1, 1, 4}, 5, 0},
     "its shape [6, 1, 1, 1, 4] " READINGS "\"spconv\", \"flexgemm\"",
     false},
    {CONV("\"channels\":4,\"kernel\":1"),
     {"y.weight", "F32", {4, 1, 1, 1, 4}, 5, 0},
     "its shape [4, 1, 1, 1, 4] " READINGS "\"spconv\", \"flexgemm\"",
     false},
    {CONV("\"channels\":4,\"kernel\":1"),
     {"y.weight", "F32", {4, 4}, 2, 0},
     "its shape [4, 4] " READINGS
     "\"torchsparse\", \"minkowski\"; or op \"linear\" for [Co, Ci]",
     false},
    {CONV("\"channels\":4,\"kernel\":3"),
     {"y.weight", "F32", {3, 3, 3, 4, 4}, 5, 0},
     "its shape [3, 3, 3, 4, 4] " READINGS "\"xyzio\", \"xyzoi\"",
     false},
    /* none */
    {CONV("\"channels\":6,\"kernel\":3"),
     {"y.weight", "F32", {6, 4, 3, 3, 3}, 5, 0},
     "expected shape [6, 3, 3, 3, 4] (spconv, flexgemm) or [27, 4, 6] (torchsparse, "
     "minkowski, warpconvnet), got [6, 4, 3, 3, 3]",
     false},
    {CONV("\"channels\":6,\"kernel\":3,\"layout\":\"spconv\""),
     {"y.weight", "F32", {27, 4, 6}, 3, 0},
     "expected shape [6, 3, 3, 3, 4] (layout \"spconv\"), got [27, 4, 6], which is "
     "written by \"torchsparse\", \"minkowski\", \"warpconvnet\"",
     false},
    {CONV("\"channels\":6,\"kernel\":1,\"layout\":\"warpconvnet\""),
     {"y.weight", "F32", {4, 6}, 2, 0},
     "expected shape [1, 4, 6] (layout \"warpconvnet\"), got [4, 6], which is written by "
     "\"torchsparse\", \"minkowski\"",
     false},
    /* a matrix of the wrong kind under a linear layer */
    {LINEAR("\"channels\":4,\"tensors\":{\"weight\":\"y.kernel\"}"),
     {"y.kernel", "F32", {4, 4}, 2, 0},
     "[4, 4] is [Co, Ci] for linear, but a \"kernel\" of TorchSparse or MinkowskiEngine "
     "is [Ci, Co]: use op \"subm_conv\", \"kernel\": 1, \"layout\": \"minkowski\"",
     false},
    {LINEAR("\"channels\":4"), {"y.weight", "F32", {4, 4}, 2, 0}, "not set", true},
};

START_TEST(a_shape_has_one_reading_or_is_refused)
{
    const struct vx_network *network = network_of(readings[_i].layer);
    struct vx_safetensors *file = file_of(&readings[_i].tensor, 1);
    vx_status status = vx_weights_check(network, file, &why);
    if (readings[_i].good) {
        ck_assert_msg(!status.fault, "%s", why.text);
        ck_assert_str_eq(vx_layout_name(network->layers[0].layout),
                         readings[_i].expected);
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

static const struct {
    const char *layout;
    i64 shape[2];
    i32 rank;
    const char *expected; /* NULL = good */
} biases[] = {
    {"minkowski", {1, 6}, 2, NULL},
    {"minkowski", {6}, 1, NULL},
    {"torchsparse", {6}, 1, NULL},
    {"torchsparse",
     {1, 6},
     2,
     "expected shape [6], got [1, 6], as MinkowskiEngine writes it: set \"layout\": "
     "\"minkowski\""},
    {"minkowski", {6, 1}, 2, "expected shape [6], got [6, 1]"},
};

START_TEST(minkowski_writes_its_bias_as_a_row)
{
    char layer[256];
    snprintf(layer, sizeof layer,
             "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":6,"
             "\"kernel\":3,\"layout\":\"%s\"}",
             biases[_i].layout);
    const struct vx_network *network = network_of(layer);
    const struct vx_test_tensor tensors[] = {{"y.weight", "F32", {27, 4, 6}, 3, NULL},
                                             {"y.bias",
                                              "F32",
                                              {biases[_i].shape[0], biases[_i].shape[1]},
                                              biases[_i].rank,
                                              NULL}};
    struct vx_safetensors *file = file_of(tensors, 2);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_int_eq(!status.fault, !biases[_i].expected);
    if (biases[_i].expected)
        ck_assert_msg(strstr(why.text, biases[_i].expected) != NULL, "%s", why.text);
    vx_safetensors_close(&file);
}
END_TEST

START_TEST(torchsparse_does_not_dilate)
{
    static const char text[] =
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[{\"name\":"
        "\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":4,\"kernel\":[1,1,3]"
        ","
        "\"layout\":\"torchsparse\",\"dilation\":[%d,%d,%d]}],\"outputs\":[{\"layer\":"
        "\"y\"}]}";
    static const i32 dilations[][3] = {{1, 1, 2},
                                       {2, 2, 1}}; /* the second dilation has no effect */
    for (size_t i = 0; i < 2; i++) {
        char full[512];
        const i32 *d = dilations[i];
        const struct vx_network *network;
        snprintf(full, sizeof full, text, d[0], d[1], d[2]);
        struct vx_network_text source = {full, strlen(full), "m/network.json"};
        vx_status status = vx_network_parse(&source, &arena, &why, &network);
        ck_assert_int_eq(!status.fault, i == 1);
        if (!i)
            ck_assert_ptr_nonnull(
                strstr(why.text, "TorchSparse 2 computes every dilation as 1"));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layouts");
    TCase *tcase = tcase_create("layouts");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, weights_lie_where_the_library_put_them, 0,
                        2 * VX_COUNT(layouts) * VX_COUNT(kernels));
    tcase_add_loop_test(tcase, even_kernels_are_refused, 0, 4);
    tcase_add_loop_test(tcase, a_shape_has_one_reading_or_is_refused, 0,
                        VX_COUNT(readings));
    tcase_add_loop_test(tcase, minkowski_writes_its_bias_as_a_row, 0, VX_COUNT(biases));
    tcase_add_test(tcase, torchsparse_does_not_dilate);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
