/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/layout.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"

#include <stdio.h>
#include <string.h>

/* The words of all layouts, with quotes and commas. */
#define WORDS_BYTES 128

enum axes {
    AXES_OXYZI, /* [Co, Kx, Ky, Kz, Ci] */
    AXES_VIO,   /* [V, Ci, Co]; for V = 1 also [Ci, Co] */
    AXES_XYZIO, /* [Kx, Ky, Kz, Ci, Co] */
    AXES_XYZOI, /* [Kx, Ky, Kz, Co, Ci] */
};

static const struct row {
    enum axes axes;
    bool x_fastest;
    bool letters; /* another row names the same layout by its library */
} rows[VX_LAYOUTS_COUNT] = {
    {AXES_OXYZI, false, true},
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) {axes_, x_fastest_, letters_},
#include "engine/network/layouts.def"
#undef VX_ROW
};

struct shape {
    i64 sizes[VX_TENSOR_RANK_MAX];
    i32 rank;
};

static struct shape layout_shape(const struct vx_layer *layer, enum vx_layout layout)
{
    i64 ci = layer->channels_in, co = layer->channels;
    const i32 *k = layer->kernel;
    switch (rows[layout].axes) {
    case AXES_OXYZI: return (struct shape){{co, k[0], k[1], k[2], ci}, 5};
    case AXES_XYZIO: return (struct shape){{k[0], k[1], k[2], ci, co}, 5};
    case AXES_XYZOI: return (struct shape){{k[0], k[1], k[2], co, ci}, 5};
    case AXES_VIO: break;
    }
    return (struct shape){{layer->v, ci, co}, 3};
}

static bool shape_same(const struct vx_tensor *tensor, const i64 *sizes, i32 rank)
{
    return tensor->rank == rank &&
           !memcmp(tensor->shape, sizes, (size_t)rank * sizeof *sizes);
}

static bool weight_fits(const struct vx_layer *layer, enum vx_layout layout,
                        const struct vx_tensor *tensor)
{
    struct shape shape = layout_shape(layer, layout);
    if (shape_same(tensor, shape.sizes, shape.rank)) return true;
    /* TorchSparse and MinkowskiEngine write a kernel of one offset as a matrix. */
    return rows[layout].axes == AXES_VIO && layout != VX_LAYOUT_WARPCONVNET &&
           layer->v == 1 && shape_same(tensor, shape.sizes + 1, shape.rank - 1);
}

bool vx_layout_fits_vector(const struct vx_layer *layer, const struct vx_tensor *tensor)
{
    i64 row[] = {1, layer->channels};
    return shape_same(tensor, row + 1, 1) ||
           (layer->layout == VX_LAYOUT_MINKOWSKI && shape_same(tensor, row, 2));
}

static struct vx_strides strides_of(const struct vx_layer *layer, enum vx_layout layout)
{
    size_t v = (size_t)layer->v, ci = (size_t)layer->channels_in;
    size_t co = (size_t)layer->channels;
    /* spconv uses the weight of a kernel of one offset as a [Ci, Co] matrix, although its
     * shape is [Co, 1, 1, 1, Ci]; such a weight was trained that way. */
    bool matrix = layout == VX_LAYOUT_SPCONV && v == 1;
    switch (matrix ? AXES_VIO : rows[layout].axes) {
    case AXES_OXYZI: return (struct vx_strides){.v = ci, .ci = 1, .co = v * ci};
    case AXES_XYZOI: return (struct vx_strides){.v = ci * co, .ci = 1, .co = ci};
    case AXES_XYZIO:
    case AXES_VIO: break;
    }
    return (struct vx_strides){.v = ci * co, .ci = co, .co = 1};
}

struct vx_strides vx_layout_strides(const struct vx_layer *layer)
{
    VX_ASSERT(layer->layout != VX_LAYOUT_UNSAID);
    return strides_of(layer, layer->layout);
}

i32 vx_layout_offset(const struct vx_layer *layer, i32 v)
{
    const i32 *k = layer->kernel;
    if (!rows[layer->layout].x_fastest) return v;
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
    if (wide > 1 && rows[a].x_fastest != rows[b].x_fastest) return false;
    if (layer->v > 1 && left.v != right.v) return false;
    if (layer->channels_in > 1 && left.ci != right.ci) return false;
    return layer->channels == 1 || left.co == right.co;
}

/* Lists the libraries that write this shape: "spconv", "flexgemm"; returns how many. */
static i32 fitting_words(const struct vx_layer *layer, const struct vx_tensor *weight,
                         char out[WORDS_BYTES])
{
    i32 count = 0;
    size_t used = 0;
    out[0] = '\0';
    for (enum vx_layout at = 1; at < VX_LAYOUTS_COUNT && used < WORDS_BYTES; at++) {
        if (rows[at].letters || !weight_fits(layer, at, weight)) continue;
        used += (size_t)snprintf(out + used, WORDS_BYTES - used, "%s\"%s\"",
                                 count++ ? ", " : "", vx_layout_name(at));
    }
    return count;
}

static vx_status settle_unsaid(struct vx_layer *layer, const struct vx_tensor *weight,
                               struct vx_why *why)
{
    char words[WORDS_BYTES], got[VX_SHAPE_TEXT_BYTES];
    i32 count = fitting_words(layer, weight, words);
    const i32 *k = layer->kernel;
    vx_shape_text(weight->shape, weight->rank, got);
    VX_ENSURE_WHY(count, why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                  "expected shape [%d, %d, %d, %d, %d] (spconv, flexgemm) or "
                  "[%d, %d, %d] (torchsparse, minkowski, warpconvnet), got %s",
                  layer->channels, k[0], k[1], k[2], layer->channels_in, layer->v,
                  layer->channels_in, layer->channels, got);
    enum vx_layout first = VX_LAYOUT_UNSAID;
    bool one = true;
    for (enum vx_layout at = 1; at < VX_LAYOUTS_COUNT; at++) {
        if (!weight_fits(layer, at, weight)) continue;
        if (!first) first = at;
        one = one && same_reading(layer, first, at);
    }
    /* A square matrix may also be the weight of PyTorch's Linear, which is [Co, Ci]. */
    bool linear =
        weight->rank == 2 && layer->channels > 1 && layer->channels == layer->channels_in;
    VX_ENSURE_WHY(one && !linear, why, INVALID_ARGUMENT,
                  "the shape of a weight allows several layouts, and none is set",
                  "its shape %s allows several layouts: set \"layout\" to the one that "
                  "wrote it: %s%s",
                  got, words, linear ? "; or op \"linear\" for [Co, Ci]" : "");
    layer->layout = first;
    return VX_OK;
}

vx_status vx_layout_settle(struct vx_layer *layer, const struct vx_tensor *weight,
                           struct vx_why *why)
{
    char want[VX_SHAPE_TEXT_BYTES], got[VX_SHAPE_TEXT_BYTES], words[WORDS_BYTES];
    VX_ASSERT(layer->op == VX_OP_SUBM_CONV);
    if (!layer->layout) return settle_unsaid(layer, weight, why);
    if (weight_fits(layer, layer->layout, weight)) return VX_OK;
    struct shape shape = layout_shape(layer, layer->layout);
    i32 count = fitting_words(layer, weight, words);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a tensor's shape does not fit its layer",
                "expected shape %s (layout \"%s\"), got %s%s%s",
                vx_shape_text(shape.sizes, shape.rank, want),
                vx_layout_name(layer->layout),
                vx_shape_text(weight->shape, weight->rank, got),
                count ? ", which is written by " : "", words);
}
