/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/layout.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"

#include <stdio.h>
#include <string.h>

/* The words of all layouts, with quotes and commas; the shapes that a layer can have. */
#define WORDS_BYTES  128
#define SHAPES_BYTES 256

/* Shapes in which one layout is written. */
#define SHAPES_MAX 2

enum axes {
    AXES_OXYZI, /* [Co, Kx, Ky, Kz, Ci] */
    AXES_VIO,   /* [V, Ci, Co]; for V = 1 also [Ci, Co] */
    AXES_XYZIO, /* [Kx, Ky, Kz, Ci, Co] */
    AXES_XYZOI, /* [Kx, Ky, Kz, Co, Ci] */
};

/* When x is the fastest axis of the offsets: IF_ODD looks at V. */
enum x_fastest { NEVER, ALWAYS, IF_ODD };

static const struct row {
    enum axes axes;
    enum x_fastest x_fastest;
    bool letters; /* another row names the same layout by its library */
} rows[VX_LAYOUTS_COUNT] = {
    {AXES_OXYZI, NEVER, true},
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) {axes_, x_fastest_, letters_},
#include "engine/network/layouts.def"
#undef VX_ROW
};

struct shape {
    i64 sizes[VX_TENSOR_RANK_MAX];
    i32 rank;
};

static i32 channels_in_group(const struct vx_layer *layer)
{
    return layer->channels_in / layer->groups;
}

static bool is_depthwise(const struct vx_layer *layer)
{
    return layer->groups == layer->channels_in && layer->groups == layer->channels;
}

/* The shapes with offsets outside; the first is the one that sentences name. */
static i32 offset_shapes(const struct vx_layer *layer, enum vx_layout layout,
                         struct shape out[SHAPES_MAX])
{
    i64 v = layer->v, g = layer->groups, ci = channels_in_group(layer);
    i64 co = layer->channels;
    bool warp = layout == VX_LAYOUT_WARPCONVNET;
    bool modules = warp || layout == VX_LAYOUT_MINKOWSKI; /* has one for channels alone */
    i32 count = 0;
    if (g == 1 || !modules) out[count++] = (struct shape){{v, ci, co}, 3};
    /* TorchSparse and MinkowskiEngine write a kernel of one offset as a matrix. */
    if (count && v == 1 && !warp) out[count++] = (struct shape){{ci, co}, 2};
    if (g > 1 && modules && is_depthwise(layer))
        out[count++] = (struct shape){{v, co}, 2};
    if (g > 1 && warp) out[count++] = (struct shape){{v, g, ci, co / g}, 4};
    return count;
}

/* The shapes with an axis of the kernel each; the second is that of a network of two axes,
 * whose libraries write no third one.  The numbers lie in the same order. */
static i32 axes_shapes(const struct vx_layer *layer, enum axes axes,
                       struct shape out[SHAPES_MAX])
{
    i64 ci = channels_in_group(layer), co = layer->channels;
    i64 x = layer->kernel[0], y = layer->kernel[1], z = layer->kernel[2];
    switch (axes) {
    case AXES_OXYZI:
        out[0] = (struct shape){{co, x, y, z, ci}, 5};
        out[1] = (struct shape){{co, x, y, ci}, 4};
        break;
    case AXES_XYZIO:
        out[0] = (struct shape){{x, y, z, ci, co}, 5};
        out[1] = (struct shape){{x, y, ci, co}, 4};
        break;
    default:
        out[0] = (struct shape){{x, y, z, co, ci}, 5};
        out[1] = (struct shape){{x, y, co, ci}, 4};
    }
    return z == 1 ? 2 : 1;
}

static i32 layout_shapes(const struct vx_layer *layer, enum vx_layout layout,
                         struct shape out[SHAPES_MAX])
{
    enum axes axes = rows[layout].axes;
    return axes == AXES_VIO ? offset_shapes(layer, layout, out)
                            : axes_shapes(layer, axes, out);
}

static bool shape_same(const struct vx_tensor *tensor, const i64 *sizes, i32 rank)
{
    return tensor->rank == rank &&
           !memcmp(tensor->shape, sizes, (size_t)rank * sizeof *sizes);
}

static bool shape_fits(const struct vx_layer *layer, enum vx_layout layout,
                       const struct vx_tensor *tensor)
{
    struct shape shapes[SHAPES_MAX];
    i32 count = layout_shapes(layer, layout, shapes);
    for (i32 i = 0; i < count; i++)
        if (shape_same(tensor, shapes[i].sizes, shapes[i].rank)) return true;
    return false;
}

bool vx_layout_fits_vector(const struct vx_layer *layer, const struct vx_tensor *tensor)
{
    i64 row[] = {1, layer->channels};
    bool norm = layer->op == VX_OP_INSTANCE_NORM;
    return shape_same(tensor, row + 1, 1) ||
           ((norm || layer->layout == VX_LAYOUT_MINKOWSKI) && shape_same(tensor, row, 2));
}

static bool axes_are(const i32 axes[3], i32 value)
{
    return axes[0] == value && axes[1] == value && axes[2] == value;
}

static bool is_dilated(const struct vx_layer *layer)
{
    for (int axis = 0; axis < 3; axis++)
        if (layer->kernel[axis] > 1 && layer->dilation[axis] > 1) return true;
    return false;
}

static bool is_floor(const struct vx_layer *layer)
{
    return layer->op == VX_OP_SPARSE_CONV && layer->rule == VX_SET_FLOOR;
}

/* True if spconv's set without padding is that of rule floor, and its kernel covers the same
 * voxels.  At the upper end of a spatial shape they may differ: blocks.h. */
static bool is_block(const struct vx_layer *layer)
{
    for (int axis = 0; axis < 3; axis++) {
        i32 k = layer->kernel[axis];
        if (k != layer->stride[axis] || (k > 1 && k % 2)) return false;
    }
    return !is_dilated(layer);
}

/* The refuse_ functions return why the library cannot have written the weight of this
 * layer, and what to write instead, or NULL.  Sentences are short: why.text also names
 * the file, the tensor and the layer. */

static const char *refuse_spconv(const struct vx_layer *layer)
{
    bool one = layer->v == 1 && axes_are(layer->stride, 1);
    if (is_floor(layer) && !is_block(layer))
        return "spconv and FlexGEMM make the voxels of this layer by another rule: set "
               "\"rule\": \"spconv\", or op \"subm_conv\"";
    if (layer->op == VX_OP_INVERSE_CONV && layer->v == 1)
        return "spconv's inverse convolution of one offset changes no voxels: write op "
               "\"subm_conv\", \"kernel\": 1";
    if (one && !axes_are(layer->padding, 0))
        return "spconv has no padding for one offset and stride 1: set \"padding\": 0";
    if (layer->op != VX_OP_TRANSPOSED_CONV) return NULL;
    for (int axis = 0; axis < 3; axis++)
        if ((layer->kernel[axis] > 1 && layer->kernel[axis] % 2) || is_dilated(layer))
            return "spconv's SparseConvTranspose3d is served for even kernels and "
                   "dilation 1; SparseInverseConv3d is op \"inverse_conv\"";
    return NULL;
}

static const char *refuse_flexgemm(const struct vx_layer *layer)
{
    if (layer->op == VX_OP_INVERSE_CONV || layer->op == VX_OP_TRANSPOSED_CONV)
        return "FlexGEMM has no inverse and no transposed convolution: set \"oxyzi\" if "
               "the letters are right";
    return is_floor(layer) ? refuse_spconv(layer) : NULL;
}

static const char *refuse_torchsparse(const struct vx_layer *layer)
{
    bool transposed = layer->op == VX_OP_TRANSPOSED_CONV;
    if (is_dilated(layer)) return "TorchSparse computes every dilation as 1: set 1";
    if (transposed && layer->onto == VX_LAYER_NONE)
        return "TorchSparse's generative convolution is not served, and its transposed "
               "one is op \"inverse_conv\"";
    for (int axis = 0; axis < 3; axis++) {
        i32 k = layer->kernel[axis], stride = layer->stride[axis];
        if (transposed && k > 2)
            return "TorchSparse's transposed convolution undoes a strided one: write op "
                   "\"inverse_conv\" and \"of\"";
        if (is_floor(layer) && stride > 1 && stride != k)
            return "TorchSparse makes the voxels of this kernel and stride by spconv's "
                   "rule: set \"rule\": \"spconv\" and \"padding\"";
        if (is_floor(layer) && k > 2 && k % 2 == 0)
            return "TorchSparse 1.4's even kernels above 2 are not served; for 2.1 set "
                   "\"rule\": \"spconv\"";
    }
    return NULL;
}

/* MinkowskiEngine and WarpConvNet: the voxels of a strided layer are floor(p / stride), and
 * odd kernels have their middle on the voxel, also on the way back. */
static const char *refuse_floor(const struct vx_layer *layer)
{
    if (layer->op == VX_OP_SPARSE_CONV && layer->rule == VX_SET_SPCONV)
        return "MinkowskiEngine and WarpConvNet make voxels by floor: set \"rule\": "
               "\"floor\"";
    if (layer->op != VX_OP_INVERSE_CONV) return NULL;
    for (int axis = 0; axis < 3; axis++) {
        i32 k = layer->kernel[axis], middle = (k - 1) / 2 * layer->dilation[axis];
        if (layer->padding[axis] != (k % 2 ? middle : 0))
            return "MinkowskiEngine and WarpConvNet centre odd kernels: write op "
                   "\"transposed_conv\" and \"onto\"";
    }
    return NULL;
}

static const char *refuse_minkowski(const struct vx_layer *layer)
{
    bool forth = layer->op == VX_OP_SUBM_CONV || layer->op == VX_OP_SPARSE_CONV;
    if (layer->groups > 1 && !(forth && is_depthwise(layer)))
        return "MinkowskiEngine has groups only in MinkowskiChannelwiseConvolution, one "
               "a channel, never transposed";
    return refuse_floor(layer);
}

static const char *refuse(const struct vx_layer *layer, enum vx_layout layout)
{
    if (layer->groups > 1 &&
        (layout == VX_LAYOUT_SPCONV || layout == VX_LAYOUT_TORCHSPARSE ||
         layout == VX_LAYOUT_FLEXGEMM))
        return "this library has no groups: set the letters \"oxyzi\" or \"vio\" if they "
               "are right";
    switch (layout) {
    case VX_LAYOUT_SPCONV: return refuse_spconv(layer);
    case VX_LAYOUT_FLEXGEMM: return refuse_flexgemm(layer);
    case VX_LAYOUT_TORCHSPARSE: return refuse_torchsparse(layer);
    case VX_LAYOUT_MINKOWSKI: return refuse_minkowski(layer);
    case VX_LAYOUT_WARPCONVNET: return refuse_floor(layer);
    default: return NULL;
    }
}

static struct vx_strides strides_of(const struct vx_layer *layer, enum vx_layout layout)
{
    size_t v = (size_t)layer->v, ci = (size_t)channels_in_group(layer);
    size_t co = (size_t)layer->channels, part = co / (size_t)layer->groups;
    /* spconv uses the weight of a kernel of one offset as a [Ci, Co] matrix, although its
     * shape is [Co, 1, 1, 1, Ci]; such a weight was trained that way.  With a stride it
     * uses the weight as its shape says. */
    bool matrix = layout == VX_LAYOUT_SPCONV && v == 1 && axes_are(layer->stride, 1);
    switch (matrix ? AXES_VIO : rows[layout].axes) {
    case AXES_OXYZI: return (struct vx_strides){.v = ci, .ci = 1, .co = v * ci};
    case AXES_XYZOI: return (struct vx_strides){.v = ci * co, .ci = 1, .co = ci};
    case AXES_XYZIO:
    case AXES_VIO: break;
    }
    if (layout == VX_LAYOUT_WARPCONVNET) /* [V, groups, Ci / groups, Co / groups] */
        return (struct vx_strides){
            .v = ci * co, .ci = part, .co = 1, .group = (ci - 1) * part};
    return (struct vx_strides){.v = ci * co, .ci = co, .co = 1};
}

struct vx_strides vx_layout_strides(const struct vx_layer *layer)
{
    VX_ASSERT(layer->layout != VX_LAYOUT_UNSAID);
    return strides_of(layer, layer->layout);
}

/* TorchSparse takes the parity of all offsets together, whatever the axes' are. */
static bool is_x_fastest(const struct vx_layer *layer, enum vx_layout layout)
{
    enum x_fastest when = rows[layout].x_fastest;
    return when == ALWAYS || (when == IF_ODD && layer->v % 2);
}

i32 vx_layout_offset(const struct vx_layer *layer, i32 v)
{
    const i32 *k = layer->kernel;
    if (!is_x_fastest(layer, layer->layout)) return v;
    i32 z = v % k[2], y = v / k[2] % k[1], x = v / k[2] / k[1];
    return (z * k[1] + y) * k[0] + x;
}

/* Whether both layouts read the same number for every (v, ci, co).  The stride of an axis
 * of size 1 does not matter. */
static bool same_reading(const struct vx_layer *layer, enum vx_layout a, enum vx_layout b)
{
    struct vx_strides left = strides_of(layer, a), right = strides_of(layer, b);
    const i32 *k = layer->kernel;
    i32 wide = (k[0] > 1) + (k[1] > 1) + (k[2] > 1);
    if (wide > 1 && is_x_fastest(layer, a) != is_x_fastest(layer, b)) return false;
    if (layer->v > 1 && left.v != right.v) return false;
    if (channels_in_group(layer) > 1 && left.ci != right.ci) return false;
    if (layer->groups > 1 && left.group != right.group) return false;
    return layer->channels == 1 || left.co == right.co;
}

static bool may_be(const struct vx_layer *layer, enum vx_layout layout,
                   const struct vx_tensor *weight)
{
    return shape_fits(layer, layout, weight) && !refuse(layer, layout);
}

/* True if a library may have written the weight to be read as `letters` says. */
static bool has_library(const struct vx_layer *layer, enum vx_layout letters,
                        const struct vx_tensor *weight)
{
    for (enum vx_layout at = 1; at < VX_LAYOUT_LETTERS; at++)
        if (may_be(layer, at, weight) && same_reading(layer, at, letters)) return true;
    return false;
}

/* Lists what may have written this weight: "spconv", "flexgemm"; returns how many. */
static i32 fitting_words(const struct vx_layer *layer, const struct vx_tensor *weight,
                         char out[WORDS_BYTES])
{
    i32 count = 0;
    size_t used = 0;
    out[0] = '\0';
    for (enum vx_layout at = 1; at < VX_LAYOUTS_COUNT && used < WORDS_BYTES; at++) {
        if (!may_be(layer, at, weight)) continue;
        if (rows[at].letters && has_library(layer, at, weight)) continue;
        used += (size_t)snprintf(out + used, WORDS_BYTES - used, "%s\"%s\"",
                                 count++ ? ", " : "", vx_layout_name(at));
    }
    return count;
}

/* Lists the shapes that libraries write for this layer: "[27, 4, 6] (torchsparse)". */
static const char *library_shapes(const struct vx_layer *layer, char out[SHAPES_BYTES])
{
    char text[VX_SHAPE_TEXT_BYTES];
    struct shape mine[SHAPES_MAX], other[SHAPES_MAX];
    bool done[VX_LAYOUT_LETTERS] = {false};
    size_t used = 0;
    out[0] = '\0';
    for (enum vx_layout a = 1; a < VX_LAYOUT_LETTERS && used < SHAPES_BYTES; a++) {
        if (done[a] || refuse(layer, a)) continue;
        layout_shapes(layer, a, mine);
        used += (size_t)snprintf(
            out + used, SHAPES_BYTES - used, "%s%s (%s", used ? " or " : "",
            vx_shape_text(mine->sizes, mine->rank, text), vx_layout_name(a));
        for (enum vx_layout b = a + 1; b < VX_LAYOUT_LETTERS && used < SHAPES_BYTES;
             b++) {
            if (refuse(layer, b)) continue;
            layout_shapes(layer, b, other);
            if (other->rank != mine->rank ||
                memcmp(other->sizes, mine->sizes, sizeof mine->sizes) != 0)
                continue;
            done[b] = true;
            used += (size_t)snprintf(out + used, SHAPES_BYTES - used, ", %s",
                                     vx_layout_name(b));
        }
        if (used < SHAPES_BYTES)
            used += (size_t)snprintf(out + used, SHAPES_BYTES - used, ")");
    }
    return out;
}

/* PyTorch's own layers have layouts that have no name here.  Where a weight may be one of
 * theirs, returns what to write then, or else "". */
static const char *dense_reading(const struct vx_layer *layer,
                                 const struct vx_tensor *weight)
{
    const i32 *k = layer->kernel;
    i64 co = layer->channels, ci = channels_in_group(layer);
    i64 linear[] = {co, ci}, conv3d[] = {co, ci, k[0], k[1], k[2]};
    bool conv2d = k[2] == 1 && shape_same(weight, conv3d, 4);
    if (layer->groups == 1 && co > 1 && co == ci && shape_same(weight, linear, 2))
        return "; or op \"linear\" for [Co, Ci]";
    if (layer->v > 1 && shape_same(weight, conv3d, 5))
        return "; of PyTorch's Conv3d, permute it to [Co, K, K, K, Ci] and set \"oxyzi\"";
    if (layer->v > 1 && conv2d)
        return "; of PyTorch's Conv2d, permute it to [Co, K, K, Ci] and set \"oxyzi\"";
    return "";
}

static vx_status settle_unsaid(struct vx_layer *layer, const struct vx_tensor *weight,
                               struct vx_why *why)
{
    char words[WORDS_BYTES], shapes[SHAPES_BYTES], got[VX_SHAPE_TEXT_BYTES];
    i32 count = fitting_words(layer, weight, words);
    vx_shape_text(weight->shape, weight->rank, got);
    if (!count && !library_shapes(layer, shapes)[0]) {
        struct shape own[SHAPES_MAX];
        char want[VX_SHAPE_TEXT_BYTES];
        layout_shapes(layer, VX_LAYOUT_OXYZI, own);
        VX_FAIL_WHY(why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                    "no library writes a weight for such a layer: expected shape %s, and "
                    "\"layout\": \"oxyzi\", got %s",
                    vx_shape_text(own->sizes, own->rank, want), got);
    }
    VX_ENSURE_WHY(count, why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                  "expected shape %s, got %s", library_shapes(layer, shapes), got);
    enum vx_layout first = VX_LAYOUT_UNSAID;
    bool one = true;
    for (enum vx_layout at = 1; at < VX_LAYOUTS_COUNT; at++) {
        if (!may_be(layer, at, weight)) continue;
        if (!first) first = at;
        one = one && same_reading(layer, first, at);
    }
    VX_ENSURE_WHY(!one || !rows[first].letters, why, INVALID_ARGUMENT,
                  "no library writes this weight for its layer",
                  "no library writes the shape %s for this layer: set \"layout\": %s if "
                  "the letters are right",
                  got, words);
    const char *dense = dense_reading(layer, weight);
    VX_ENSURE_WHY(one && !dense[0], why, INVALID_ARGUMENT,
                  "the shape of a weight allows several layouts, and none is set",
                  "its shape %s allows several layouts: set \"layout\" to the one that "
                  "wrote it: %s%s",
                  got, words, dense);
    layer->layout = first;
    return VX_OK;
}

vx_status vx_layout_settle(struct vx_layer *layer, const struct vx_tensor *weight,
                           struct vx_why *why)
{
    char want[VX_SHAPE_TEXT_BYTES], got[VX_SHAPE_TEXT_BYTES], words[WORDS_BYTES];
    struct shape shapes[SHAPES_MAX];
    VX_ASSERT(vx_op_is_conv(layer->op));
    if (!layer->layout) return settle_unsaid(layer, weight, why);
    const char *refused = refuse(layer, layer->layout);
    VX_ENSURE_WHY(!refused, why, INVALID_ARGUMENT,
                  "a library cannot have written this weight for its layer",
                  "layout \"%s\": %s", vx_layout_name(layer->layout), refused);
    if (shape_fits(layer, layer->layout, weight)) return VX_OK;
    layout_shapes(layer, layer->layout, shapes);
    i32 count = fitting_words(layer, weight, words);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                "expected shape %s (layout \"%s\"), got %s%s%s",
                vx_shape_text(shapes->sizes, shapes->rank, want),
                vx_layout_name(layer->layout),
                vx_shape_text(weight->shape, weight->rank, got),
                count ? ", which is written by " : "", words);
}
