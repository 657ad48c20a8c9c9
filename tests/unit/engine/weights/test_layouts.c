/* Layouts: where each library keeps the weight of an offset, in convolutions of every kind,
 * computed here as those libraries index their weights.  test_weights_check.c has what is refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/weights/layout.h"
#include "engine/weights/weights.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CI 4

/* The largest weight: 105 offsets, 4 to 6 channels. */
#define VALUES_MAX (105 * 4 * 6)

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

/* A convolution.  Offsets and padding are the library's own: `fine` is the voxel of the
 * finer set, `coarse` that of the coarser one, both in voxels of their own set, and `at` is
 * fine - coarse * stride.  A submanifold convolution has stride 1: the finer voxel is the
 * neighbour. */
struct form {
    i32 k[3], stride[3], padding[3], groups, co;
};
struct entry {
    i32 at[3], ci, co; /* ci within the group */
};
/* The meaning of a library's weight: an entry for each number of the file, in its order.
 * Written from the libraries' sources, with their indexing. */
typedef void (*counter)(const struct form *f, struct entry *out);

static i32 volume(const struct form *f)
{
    return f->k[0] * f->k[1] * f->k[2];
}

static bool is_one(const struct form *f)
{
    return volume(f) == 1 && f->stride[0] * f->stride[1] * f->stride[2] == 1;
}

/* The (Ci / groups, Co) matrix of one offset. */
static struct entry *put_matrix(const i32 at[3], const struct form *f, struct entry *out)
{
    for (i32 i = 0; i < CI / f->groups; i++)
        for (i32 o = 0; o < f->co; o++)
            *out++ = (struct entry){{at[0], at[1], at[2]}, i, o};
    return out;
}

/* spconv 2: [Co, K0, K1, K2, Ci], the last axis of the kernel fastest (layout_rs in
 * indices.py).  From npq_to_nhw: fine = coarse * stride - padding + k, also where pairs are
 * exchanged.  Of one offset and stride 1 a (Ci, Co) matrix (conv1x1 in pytorch/conv.py). */
static void count_spconv(const struct form *f, struct entry *out)
{
    if (is_one(f)) {
        put_matrix((i32[]){0, 0, 0}, f, out);
        return;
    }
    for (i32 o = 0; o < f->co; o++)
        for (i32 a = 0; a < f->k[0]; a++)
            for (i32 b = 0; b < f->k[1]; b++)
                for (i32 c = 0; c < f->k[2]; c++)
                    for (i32 i = 0; i < CI / f->groups; i++)
                        *out++ = (struct entry){
                            {a - f->padding[0], b - f->padding[1], c - f->padding[2]},
                            i,
                            o};
}

/* TorchSparse 1.4 and 2.0: np.arange(-size // 2 + 1, size // 2 + 1) on each axis; of an
 * odd volume z is the outer loop and x the inner one, of an even volume the other way
 * (nn/utils/kernel.py).  Transposed, columns of the map are exchanged. */
static void count_torchsparse(const struct form *f, struct entry *out)
{
    i32 low[3], at[3];
    const i32 odd[] = {2, 1, 0}, even[] = {0, 1, 2};
    const i32 *loop = volume(f) % 2 ? odd : even;
    for (int axis = 0; axis < 3; axis++)
        low[axis] = -(f->k[axis] / 2 + f->k[axis] % 2) + 1;
    for (i32 a = 0; a < f->k[loop[0]]; a++)
        for (i32 b = 0; b < f->k[loop[1]]; b++)
            for (i32 c = 0; c < f->k[loop[2]]; c++) {
                at[loop[0]] = low[loop[0]] + a;
                at[loop[1]] = low[loop[1]] + b;
                at[loop[2]] = low[loop[2]] + c;
                out = put_matrix(at, f, out);
            }
}

/* TorchSparse 2.1, strided, as it is by default (sparsemapping_cuda.cu): offset n of a fine
 * voxel leads to (fine + padding + digit - (size - 1)) / stride, and its weight is
 * number volume - 1 - n; the first digit is x of an odd volume, z of an even one. */
static void count_torchsparse21(const struct form *f, struct entry *out)
{
    i32 v = volume(f), size = CI * f->co / f->groups;
    for (i32 n = 0; n < v; n++) {
        i32 left = n, at[3];
        for (int i = 0; i < 3; i++) {
            int axis = v % 2 ? i : 2 - i;
            i32 digit = left % f->k[axis];
            left /= f->k[axis];
            at[axis] = -(f->padding[axis] + digit - (f->k[axis] - 1));
        }
        put_matrix(at, f, out + (v - 1 - n) * size);
    }
}

/* MinkowskiEngine: [V, Ci, Co]; the index of an offset is split axis by axis, the first
 * axis by the first remainder; odd axes are centred (coordinate_at in kernel_region.hpp).
 * Transposed: from the coarse voxel, with the finer stride. */
static void count_minkowski(const struct form *f, struct entry *out)
{
    for (i32 n = 0; n < volume(f); n++) {
        i32 at[3], left = n;
        for (i32 axis = 0; axis < 3; axis++) {
            at[axis] = left % f->k[axis];
            if (f->k[axis] % 2) at[axis] -= f->k[axis] / 2;
            left /= f->k[axis];
        }
        out = put_matrix(at, f, out);
    }
}

/* WarpConvNet: [V, Ci, Co]; packed_kernel_map_size: z is the first remainder; the centre is
 * size / 2 of an odd size, else 0.  Groups: [V, groups, Ci / groups, Co / groups]. */
static void count_warpconvnet(const struct form *f, struct entry *out)
{
    i32 part = f->co / f->groups;
    for (i32 n = 0; n < volume(f); n++) {
        struct entry e = {
            {n / (f->k[2] * f->k[1]), n / f->k[2] % f->k[1], n % f->k[2]}, 0, 0};
        for (int axis = 0; axis < 3; axis++)
            e.at[axis] -= f->k[axis] % 2 ? f->k[axis] / 2 : 0;
        for (i32 g = 0; g < f->groups; g++)
            for (e.ci = 0; e.ci < CI / f->groups; e.ci++)
                for (i32 o = 0; o < part; o++) e.co = g * part + o, *out++ = e;
    }
}

/* FlexGEMM: [Co, Kw, Kh, Kd, Ci] taken as [Co, V, Ci], also for V = 1; the neighbour v is
 * at coarse * stride - padding + (v / KhKd, v / Kd % Kh, v % Kd) (sparse_neighbor_map.cu,
 * subm_neighbor_map.cu). */
static void count_flexgemm(const struct form *f, struct entry *out)
{
    i32 v = volume(f), plane = f->k[1] * f->k[2], ci = CI / f->groups;
    for (i32 n = 0; n < f->co * v * ci; n++) {
        i32 at = n / ci % v;
        *out++ = (struct entry){{at / plane - f->padding[0],
                                 at / f->k[2] % f->k[1] - f->padding[1],
                                 at % f->k[2] - f->padding[2]},
                                n % ci,
                                n / ci / v};
    }
}

/* By the letters: v = (kx * Ky + ky) * Kz + kz. */
static void count_vio(const struct form *f, struct entry *out)
{
    for (i32 a = 0; a < f->k[0]; a++)
        for (i32 b = 0; b < f->k[1]; b++)
            for (i32 c = 0; c < f->k[2]; c++)
                out = put_matrix(
                    (i32[]){a - f->padding[0], b - f->padding[1], c - f->padding[2]}, f,
                    out);
}

/* spconv 2.0 and 2.1 for more than 32 offsets: [K0, K1, K2, Co, Ci]. */
static void count_xyzoi(const struct form *f, struct entry *out)
{
    i32 ci = CI / f->groups, size = ci * f->co;
    struct entry turned[VALUES_MAX];
    count_vio(f, turned);
    for (i32 n = 0; n < volume(f) * size; n++)
        out[n] = turned[n / size * size + n % ci * f->co + n % size / ci];
}

enum shape { OXYZI, VIO, XYZIO, XYZOI, VC, VGIO };

static struct vx_test_tensor weight_of(enum shape shape, const struct form *f)
{
    i64 ci = CI / f->groups, co = f->co, v = volume(f), g = f->groups;
    i64 x = f->k[0], y = f->k[1], z = f->k[2];
    switch (shape) {
    case OXYZI: return (struct vx_test_tensor){"w", "F32", {co, x, y, z, ci}, 5, 0};
    case XYZIO: return (struct vx_test_tensor){"w", "F32", {x, y, z, ci, co}, 5, 0};
    case XYZOI: return (struct vx_test_tensor){"w", "F32", {x, y, z, co, ci}, 5, 0};
    case VC: return (struct vx_test_tensor){"w", "F32", {v, co}, 2, 0};
    case VGIO: return (struct vx_test_tensor){"w", "F32", {v, g, ci, co / g}, 4, 0};
    case VIO: break;
    }
    return (struct vx_test_tensor){"w", "F32", {v, ci, co}, 3, 0};
}

/* The kinds of convolutions, each on its way from the request's voxels and back, because
 * an output lies on those. */
enum kind { SUBM, DOWN, INVERSE, ONTO, GENERATIVE };

static char text[2048];

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    va_list list;
    size_t used = strlen(text);
    va_start(list, format);
    vsnprintf(text + used, sizeof text - used, format, list);
    va_end(list);
}

static void add_axes(const char *key, const i32 axes[3])
{
    add(",\"%s\":[%d,%d,%d]", key, axes[0], axes[1], axes[2]);
}

static void add_window(const struct form *f, bool floor)
{
    add_axes("kernel", f->k);
    add_axes("stride", f->stride);
    add(",\"rule\":\"%s\"", floor ? "floor" : "spconv");
    if (!floor) add_axes("padding", f->padding);
}

/* The layer "y" of the kind, from "p", a pool with the same window. */
static void add_layer(enum kind kind, const struct form *f, const char *layout,
                      bool floor)
{
    static const char *const ops[] = {"subm_conv", "sparse_conv", "inverse_conv",
                                      "transposed_conv", "transposed_conv"};
    bool pool = kind >= INVERSE;
    if (pool) {
        add("{\"name\":\"p\",\"op\":\"max_pool\",\"input\":\"feats\"");
        add_window(f, floor);
        add("},");
    }
    add("{\"name\":\"y\",\"op\":\"%s\",\"input\":\"%s\",\"layout\":\"%s\",", ops[kind],
        pool ? "p" : "feats", layout);
    add("\"channels\":%d,\"groups\":%d,\"bias\":false,\"tensors\":{\"weight\":\"w\"}",
        f->co, f->groups);
    if (kind == DOWN) add_window(f, floor);
    if (kind == INVERSE) add(",\"of\":\"p\"");
    if (kind == ONTO) add(",\"onto\":\"on\"");
    if (kind == ONTO || kind == GENERATIVE) add_axes("stride", f->stride);
    if (kind == SUBM || kind == ONTO || kind == GENERATIVE) add_axes("kernel", f->k);
    add("}");
}

static const struct vx_network *network_of(enum kind kind, const struct form *f,
                                           const char *layout, bool floor)
{
    const struct vx_network *network;
    bool back = kind == DOWN || kind == GENERATIVE; /* another layer leads back */
    text[0] = '\0';
    add("{\"format\":1,\"inputs\":{\"coords\":{\"spatial_shape\":64},\"feats\":"
        "{\"channels\":%d}},\"layers\":[",
        CI);
    if (back || kind == ONTO)
        add("{\"name\":\"on\",\"op\":\"relu\",\"input\":\"feats\"},");
    add_layer(kind, f, layout, floor);
    if (back) {
        add(",{\"name\":\"z\",\"op\":\"upsample\",\"input\":\"y\",\"onto\":\"on\"");
        add_axes("stride", kind == DOWN ? f->stride : (const i32[]){1, 1, 1});
        add("}");
    }
    add("],\"outputs\":[{\"layer\":\"%s\"}]}", back ? "z" : "y");
    struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s\n%s", why.text, text);
    return network;
}

/* Every number of the file is loaded at the offset and the channels that the library
 * means: with the layer's padding, map_key.h has fine = coarse * stride - padding + k. */
static void check_numbers(const struct vx_network *network, const struct form *f,
                          enum shape shape, counter count)
{
    static f32 values[VALUES_MAX];
    static struct entry entries[VALUES_MAX];
    i32 ci = CI / f->groups, numbers = volume(f) * ci * f->co, y = 0;
    const struct vx_graph *graph;
    struct vx_weights *weights;
    struct vx_safetensors *file;
    while (strcmp(network->layers[y].name, "y") != 0) y++;
    const i32 *padding = network->layers[y].padding;
    for (i32 i = 0; i < numbers; i++) values[i] = (f32)i;
    struct vx_test_tensor tensor = weight_of(shape, f);
    tensor.values = values;
    size_t bytes = vx_test_pack_safetensors(&tensor, 1, file_bytes, sizeof file_bytes);
    ck_assert(!vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, &file).fault);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(
        !vx_fuse_build(network, &(struct vx_fuse_options){0}, &arena, &graph).fault);
    ck_assert(!vx_weights_open(graph, file, NULL, &why, &weights).fault);
    /* Of one convolution, rounded up to a cache line. */
    ck_assert_int_eq(vx_weights_bytes(graph),
                     (i64)(vx_round_up((size_t)numbers, 16) * sizeof(f32)));
    const f32 *got = vx_weights_get(weights, graph->node_of[y])->weight;
    count(f, entries);
    for (i32 i = 0; i < numbers; i++) {
        const struct entry *e = &entries[i];
        i32 v = 0;
        for (int axis = 0; axis < 3; axis++) {
            /* A submanifold convolution is centred and has no padding. */
            i32 low =
                network->layers[y].op == VX_OP_SUBM_CONV ? f->k[axis] / 2 : padding[axis];
            i32 k = e->at[axis] + low;
            ck_assert_msg(k >= 0 && k < f->k[axis], "axis %d reads offset %d", axis, k);
            v = v * f->k[axis] + k;
        }
        ck_assert_msg(got[(v * ci + e->ci) * f->co + e->co] == (f32)i, "number %d", i);
    }
    vx_weights_close(&weights);
    vx_safetensors_close(&file);
}

static const struct {
    const char *layout;
    enum shape shape;
    counter count;
} layouts[] = {{"spconv", OXYZI, count_spconv},
               {"torchsparse", VIO, count_torchsparse},
               {"minkowski", VIO, count_minkowski},
               {"warpconvnet", VIO, count_warpconvnet},
               {"flexgemm", OXYZI, count_flexgemm},
               {"oxyzi", OXYZI, count_flexgemm},
               {"vio", VIO, count_vio},
               {"xyzio", XYZIO, count_vio},
               {"xyzoi", XYZOI, count_xyzoi}};
static const i32 kernels[][3] = {{3, 3, 3}, {5, 3, 1}, {1, 3, 5}, {1, 1, 3},
                                 {3, 1, 1}, {1, 1, 1}, {3, 5, 7}};

START_TEST(weights_lie_where_the_library_put_them)
{
    const i32 *k = kernels[_i % (int)VX_COUNT(kernels)];
    i32 which = _i / (int)VX_COUNT(kernels), of = which % (int)VX_COUNT(layouts);
    struct form form = {.k = {k[0], k[1], k[2]}, .stride = {1, 1, 1}, .groups = 1};
    form.co = which < (int)VX_COUNT(layouts) ? 6 : CI;
    for (int axis = 0; axis < 3; axis++) form.padding[axis] = k[axis] / 2;
    const struct vx_network *network = network_of(SUBM, &form, layouts[of].layout, true);
    check_numbers(network, &form, layouts[of].shape, layouts[of].count);
    ck_assert_str_eq(vx_layout_name(network->layers[0].layout), layouts[of].layout);
}
END_TEST

/* Kernels of strided layers, with the padding that a library with that key was given. */
static const struct {
    i32 k[3], stride[3], padding[3];
} windows[] = {
    {{2, 2, 2}, {2, 2, 2}, {0, 0, 0}}, {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}},
    {{3, 1, 1}, {2, 1, 1}, {0, 0, 0}}, {{3, 3, 2}, {2, 2, 2}, {0, 1, 0}},
    {{1, 1, 1}, {2, 2, 2}, {0, 0, 0}}, {{2, 2, 1}, {2, 2, 1}, {0, 0, 0}},
    {{4, 4, 4}, {2, 2, 2}, {1, 1, 1}}, {{1, 2, 4}, {1, 2, 4}, {0, 0, 0}},
    {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}}, {{2, 3, 4}, {1, 1, 1}, {0, 1, 2}},
};
#define ALL   ((1u << VX_COUNT(windows)) - 1)
#define W(i_) (1u << (i_))
#define STRIDED                                                                          \
    (ALL & ~W(8) & ~W(9)) /* stride 1 makes no coarser set to come back from */
#define BLOCKS    (W(0) | W(5) | W(7) | W(8))
#define TWOS_ONES (W(0) | W(4) | W(5))
static const struct {
    const char *layout;
    enum shape shape;
    counter count;
    enum kind kind;
    bool floor;
    u32 windows; /* the others are refused, or have no such layer */
} levels[] = {
    {"spconv", OXYZI, count_spconv, DOWN, false, ALL},
    {"spconv", OXYZI, count_spconv, DOWN, true, BLOCKS},
    {"spconv", OXYZI, count_spconv, INVERSE, false, STRIDED & ~W(4)},
    {"spconv", OXYZI, count_spconv, ONTO, true, W(0) | W(4) | W(5) | W(7)},
    {"spconv", OXYZI, count_spconv, GENERATIVE, true, W(0) | W(4) | W(5) | W(7)},
    {"flexgemm", OXYZI, count_flexgemm, DOWN, false, ALL},
    {"flexgemm", OXYZI, count_flexgemm, DOWN, true, BLOCKS},
    {"torchsparse", VIO, count_torchsparse, DOWN, true, W(0) | W(5) | W(8)},
    {"torchsparse", VIO, count_torchsparse21, DOWN, false, ALL},
    {"torchsparse", VIO, count_torchsparse, INVERSE, true, W(0) | W(1) | W(2) | W(3)},
    {"torchsparse", VIO, count_torchsparse21, INVERSE, false, STRIDED},
    {"torchsparse", VIO, count_torchsparse, ONTO, true, TWOS_ONES},
    {"minkowski", VIO, count_minkowski, DOWN, true, ALL},
    {"minkowski", VIO, count_minkowski, INVERSE, true, STRIDED},
    {"minkowski", VIO, count_minkowski, ONTO, true, STRIDED},
    {"minkowski", VIO, count_minkowski, GENERATIVE, true, STRIDED},
    {"warpconvnet", VIO, count_warpconvnet, DOWN, true, ALL},
    {"warpconvnet", VIO, count_warpconvnet, INVERSE, true, STRIDED},
    {"warpconvnet", VIO, count_warpconvnet, ONTO, true, STRIDED},
    {"warpconvnet", VIO, count_warpconvnet, GENERATIVE, true, STRIDED},
    {"oxyzi", OXYZI, count_flexgemm, DOWN, false, ALL},
    {"oxyzi", OXYZI, count_flexgemm, INVERSE, false, STRIDED},
    {"vio", VIO, count_vio, DOWN, false, ALL},
    {"vio", VIO, count_vio, INVERSE, false, STRIDED},
    {"xyzio", XYZIO, count_vio, DOWN, false, ALL},
    {"xyzoi", XYZOI, count_xyzoi, INVERSE, false, STRIDED},
};

START_TEST(strided_weights_lie_where_the_library_put_them)
{
    i32 of = _i / (int)VX_COUNT(windows), w = _i % (int)VX_COUNT(windows);
    if (!(levels[of].windows & W(w))) return;
    struct form form = {.groups = 1, .co = 6};
    memcpy(form.k, windows[w].k, sizeof form.k);
    memcpy(form.stride, windows[w].stride, sizeof form.stride);
    memcpy(form.padding, windows[w].padding, sizeof form.padding);
    const struct vx_network *network =
        network_of(levels[of].kind, &form, levels[of].layout, levels[of].floor);
    check_numbers(network, &form, levels[of].shape, levels[of].count);
}
END_TEST

static const struct {
    const char *layout;
    enum shape shape;
    counter count;
    i32 groups, co;
} grouped[] = {
    {"warpconvnet", VGIO, count_warpconvnet, 2, 6},
    {"warpconvnet", VGIO, count_warpconvnet, 2, 4},
    {"warpconvnet", VGIO, count_warpconvnet, 4, 4}, /* [V, C, 1, 1] */
    {"warpconvnet", VC, count_warpconvnet, 4, 4},   /* SparseDepthwiseConv3d */
    {"warpconvnet", VGIO, count_warpconvnet, 4, 8},
    {"minkowski", VC, count_minkowski, 4, 4}, /* MinkowskiChannelwiseConvolution */
    {"vio", VIO, count_vio, 2, 6},            /* and OctreeDWConv's [V, 1, C] */
    {"vio", VIO, count_vio, 4, 4},
    {"oxyzi", OXYZI, count_flexgemm, 2, 6},
    {"xyzio", XYZIO, count_vio, 2, 6},
    {"xyzoi", XYZOI, count_xyzoi, 2, 6},
};

START_TEST(groups_lie_where_the_library_put_them)
{
    for (int kind = SUBM; kind <= DOWN; kind++) {
        struct form form = {{3, 1, 3}, {1, 1, 1}, {1, 0, 1}, 0, 0};
        if (kind == DOWN) form = (struct form){{2, 3, 2}, {2, 2, 2}, {0, 1, 0}, 0, 0};
        form.groups = grouped[_i].groups, form.co = grouped[_i].co;
        const struct vx_network *network =
            network_of((enum kind)kind, &form, grouped[_i].layout, true);
        check_numbers(network, &form, grouped[_i].shape, grouped[_i].count);
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
    tcase_add_loop_test(tcase, strided_weights_lie_where_the_library_put_them, 0,
                        VX_COUNT(levels) * VX_COUNT(windows));
    tcase_add_loop_test(tcase, groups_lie_where_the_library_put_them, 0,
                        VX_COUNT(grouped));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
