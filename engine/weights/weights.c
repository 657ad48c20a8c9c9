/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/weights.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/weights/layout.h"
#include "kernels/e4m3.h"

#include <math.h>
#include <string.h>

#define WEIGHTS_MAGIC 0x76785754u /* "vxWT" */
#define LINE_FLOATS   16          /* 64 bytes: a cache line and the widest vector */

struct vx_weights {
    u32 magic;
    i32 nodes_count;
    f32 *block;
    struct vx_node_weights *nodes;
};

/* State while weights are laid out. */
struct builder {
    const struct vx_safetensors *file;
    struct vx_why *why;
    f32 *at;      /* the next free line of the block */
    f32 *scratch; /* one tensor in the file's layout */
};

/* Floats of a node's weight and bias, each rounded up to a cache line; 0 = has none. */
static void node_floats(const struct vx_node *node, size_t *weight, size_t *bias)
{
    const struct vx_layer *layer = node->layer;
    bool kernel = vx_op_is_conv(layer->op), conv = kernel || layer->op == VX_OP_LINEAR;
    bool batch = layer->op == VX_OP_BATCH_NORM, norm = vx_op_is_norm(layer->op);
    size_t co = (size_t)layer->channels;
    size_t ci = (size_t)(layer->channels_in / (kernel ? layer->groups : 1));
    size_t v = kernel ? (size_t)layer->v : 1;
    *weight = conv ? v * ci * co : batch || (norm && layer->affine) ? co : 0;
    *bias = conv ? (layer->bias || node->norm ? co : 0) : *weight;
    *weight = vx_round_up(*weight, LINE_FLOATS);
    *bias = vx_round_up(*bias, LINE_FLOATS);
}

i64 vx_weights_bytes(const struct vx_graph *graph)
{
    size_t sum = 0, weight, bias;
    for (i32 i = 0; i < graph->nodes_count; i++) {
        node_floats(&graph->nodes[i], &weight, &bias);
        sum += weight + bias;
    }
    return (i64)(sum * sizeof(f32));
}

/* Floats of scratch: the largest tensor that is read into it. */
static size_t scratch_floats(const struct vx_graph *graph)
{
    /* norm_read reads the four tensors of a norm at once. */
    size_t most = 4 * (size_t)VX_CHANNELS_MAX, weight, bias;
    for (i32 i = 0; i < graph->nodes_count; i++) {
        node_floats(&graph->nodes[i], &weight, &bias);
        if (weight > most) most = weight;
    }
    return most;
}

static f32 *builder_take(struct builder *builder, size_t floats)
{
    f32 *piece = builder->at;
    builder->at += floats;
    return floats ? piece : NULL;
}

static vx_status builder_read(const struct builder *builder, const struct vx_layer *layer,
                              enum vx_tensor_role role, f32 *out)
{
    const struct vx_tensor *tensor =
        vx_safetensors_find(builder->file, layer->tensors[role]);
    VX_ASSERT(tensor);
    return vx_safetensors_read_f32(builder->file, tensor, builder->why, out);
}

/* A batch norm as y = x * scale + shift, computed in double.  Overwrites scratch. */
static vx_status norm_read(const struct builder *builder, const struct vx_layer *norm,
                           f64 *scale, f64 *shift)
{
    size_t c = (size_t)norm->channels;
    f32 *gamma = builder->scratch, *beta = gamma + c, *mean = beta + c, *var = mean + c;
    for (size_t i = 0; i < c; i++) gamma[i] = 1.0f, beta[i] = 0.0f;
    if (norm->affine) {
        VX_TRY(builder_read(builder, norm, VX_TENSOR_WEIGHT, gamma));
        VX_TRY(builder_read(builder, norm, VX_TENSOR_BIAS, beta));
    }
    VX_TRY(builder_read(builder, norm, VX_TENSOR_RUNNING_MEAN, mean));
    VX_TRY(builder_read(builder, norm, VX_TENSOR_RUNNING_VAR, var));
    for (size_t i = 0; i < c; i++) {
        f64 spread = (f64)var[i] + norm->eps;
        VX_ENSURE_WHY(
            spread > 0, builder->why, INVALID_ARGUMENT,
            "a batch norm's variance is not positive",
            "%s: tensor \"%.*s\" of layer \"%.*s\": expected a variance above %g, got "
            "%g at channel %zu",
            vx_safetensors_label(builder->file), VX_NAME_SHOWN,
            norm->tensors[VX_TENSOR_RUNNING_VAR], VX_NAME_SHOWN / 2, norm->name,
            -norm->eps, (f64)var[i], i);
        scale[i] = gamma[i] / sqrt(spread);
        shift[i] = beta[i] - mean[i] * scale[i];
    }
    return VX_OK;
}

/* One offset of a group: rows of input channels, columns of output channels. */
struct matrix {
    const f32 *from; /* in the file */
    f32 *to;
    const f64 *scale;            /* of a column */
    size_t rows, columns, pitch; /* pitch: from row to row of `to` */
};

static void matrix_lay_out(const struct matrix *m, struct vx_strides strides)
{
    /* Tiles of edge x edge stay in the first-level cache in either order of reading. */
    const size_t edge = 32;
    for (size_t ci0 = 0; ci0 < m->rows; ci0 += edge)
        for (size_t co0 = 0; co0 < m->columns; co0 += edge)
            for (size_t ci = ci0; ci < m->rows && ci < ci0 + edge; ci++)
                for (size_t co = co0; co < m->columns && co < co0 + edge; co++) {
                    f32 value = m->from[ci * strides.ci + co * strides.co];
                    /* Without a norm the factor is 1 and the product is exact. */
                    m->to[ci * m->pitch + co] = (f32)((f64)value * m->scale[co]);
                }
}

/* The block of a space_to_channel's row that has the voxel at offset v of its kernel: in a row
 * x is fastest, among offsets z is. */
static i32 gather_block(const struct vx_layer *gather, i32 v)
{
    const i32 *kernel = gather->kernel;
    i32 z = v % kernel[2], y = v / kernel[2] % kernel[1], x = v / kernel[2] / kernel[1];
    return x + kernel[0] * (y + kernel[1] * z);
}

/* out (V, Ci / groups, Co) = `in`, in the file's layout, times scale[co]. */
static void lay_out(const struct vx_node *node, const f32 *in, const f64 *scale, f32 *out)
{
    const struct vx_layer *layer = node->layer, *gather = node->gather;
    bool kernel = vx_op_is_conv(layer->op); /* a linear weight is [Co, Ci] */
    size_t groups = kernel ? (size_t)layer->groups : 1;
    size_t rows = (size_t)vx_node_channels_in(node) / groups;
    size_t columns = (size_t)layer->channels / groups, pitch = (size_t)layer->channels;
    i32 offsets = gather ? gather->v : kernel ? layer->v : 1;
    struct vx_strides strides =
        kernel ? vx_layout_strides(layer)
               : (struct vx_strides){.ci = 1, .co = (size_t)layer->channels_in};
    for (i32 v = 0; v < offsets; v++, out += rows * pitch) {
        const f32 *from = in;
        if (gather)
            from += (size_t)gather_block(gather, v) * rows * strides.ci;
        else if (kernel)
            from += (size_t)vx_layout_offset(layer, v) * strides.v;
        for (size_t group = 0; group < groups; group++) {
            size_t co = group * columns;
            matrix_lay_out(
                &(struct matrix){.from = from + co * strides.co + group * strides.group,
                                 .to = out + co,
                                 .scale = scale + co,
                                 .rows = rows,
                                 .columns = columns,
                                 .pitch = pitch},
                strides);
        }
    }
}

/* Rounds a column of a weight (rows, Co) to e4m3 times the smallest scale that cuts nothing
 * off, so that the columns of every device are the same. */
static vx_status round_column(const struct builder *builder, const struct vx_layer *layer,
                              f32 *column, size_t rows)
{
    const size_t pitch = (size_t)layer->channels;
    f32 most = 0;
    for (size_t r = 0; r < rows; r++) {
        const f32 size = fabsf(column[r * pitch]);
        VX_ENSURE_WHY(isfinite(size), builder->why, INVALID_ARGUMENT,
                      "a weight in FP8 is not finite",
                      "%s: tensor \"%.*s\" of layer \"%.*s\": expected finite weights "
                      "for \"fp8_scale\", with the norm folded in, got %g",
                      vx_safetensors_label(builder->file), VX_NAME_SHOWN,
                      layer->tensors[VX_TENSOR_WEIGHT], VX_NAME_SHOWN / 2, layer->name,
                      (f64)column[r * pitch]);
        if (size > most) most = size;
    }
    const f32 scale = vx_e4m3_scale(most);
    for (size_t r = 0; r < rows; r++)
        column[r * pitch] = vx_e4m3_round(column[r * pitch] / scale) * scale;
    return VX_OK;
}

static vx_status round_fp8(const struct builder *builder, const struct vx_layer *layer,
                           f32 *weight)
{
    const size_t rows = (size_t)layer->v * (size_t)layer->channels_in;
    for (i32 co = 0; co < layer->channels; co++)
        VX_TRY(round_column(builder, layer, weight + co, rows));
    return VX_OK;
}

/* `scale` and `shift`: scratch arrays of Co. */
static vx_status build_conv(struct builder *builder, const struct vx_node *node,
                            f64 *scale, f64 *shift, struct vx_node_weights *made)
{
    const struct vx_layer *layer = node->layer;
    size_t weight_floats, bias_floats, co = (size_t)layer->channels;
    for (size_t i = 0; i < co; i++) scale[i] = 1.0, shift[i] = 0.0;
    if (node->norm) VX_TRY(norm_read(builder, node->norm, scale, shift));
    node_floats(node, &weight_floats, &bias_floats);
    f32 *weight = builder_take(builder, weight_floats),
        *bias = builder_take(builder, bias_floats);
    VX_TRY(builder_read(builder, layer, VX_TENSOR_WEIGHT, builder->scratch));
    lay_out(node, builder->scratch, scale, weight);
    if (layer->fp8_scale > 0) VX_TRY(round_fp8(builder, layer, weight));
    memset(builder->scratch, 0, co * sizeof(f32));
    if (layer->bias)
        VX_TRY(builder_read(builder, layer, VX_TENSOR_BIAS, builder->scratch));
    for (size_t i = 0; bias && i < co; i++)
        bias[i] = (f32)((f64)builder->scratch[i] * scale[i] + shift[i]);
    *made = (struct vx_node_weights){weight, bias};
    return VX_OK;
}

static vx_status build_norm(struct builder *builder, const struct vx_node *node,
                            f64 *scale, f64 *shift, struct vx_node_weights *made)
{
    const struct vx_layer *layer = node->layer;
    size_t weight_floats, bias_floats, c = (size_t)layer->channels;
    node_floats(node, &weight_floats, &bias_floats);
    f32 *weight = builder_take(builder, weight_floats),
        *bias = builder_take(builder, bias_floats);
    *made = (struct vx_node_weights){weight, bias};
    if (!weight) return VX_OK;
    if (layer->op != VX_OP_BATCH_NORM) {
        VX_TRY(builder_read(builder, layer, VX_TENSOR_WEIGHT, weight));
        return builder_read(builder, layer, VX_TENSOR_BIAS, bias);
    }
    VX_TRY(norm_read(builder, layer, scale, shift));
    for (size_t i = 0; i < c; i++) weight[i] = (f32)scale[i], bias[i] = (f32)shift[i];
    return VX_OK;
}

static vx_status build_nodes(struct builder *builder, const struct vx_graph *graph,
                             const struct vx_progress *progress,
                             struct vx_weights *weights)
{
    f64 *scale = vx_alloc(2 * VX_CHANNELS_MAX * sizeof *scale);
    VX_ENSURE(scale, RESOURCE_EXHAUSTED, "no memory to lay out weights");
    vx_status status = VX_OK;
    for (i32 i = 0; i < graph->nodes_count && !status.fault; i++) {
        const struct vx_node *node = &graph->nodes[i];
        bool conv = vx_op_is_conv(node->layer->op) || node->layer->op == VX_OP_LINEAR;
        status = (conv ? build_conv : build_norm)(
            builder, node, scale, scale + VX_CHANNELS_MAX, &weights->nodes[i]);
        if (progress && progress->report)
            progress->report(progress->context, i + 1, graph->nodes_count);
    }
    vx_free(scale);
    return status;
}

static vx_status weights_make(const struct vx_graph *graph, struct vx_why *why,
                              struct vx_weights **weights)
{
    size_t bytes = (size_t)vx_weights_bytes(graph);
    struct vx_weights *made = *weights = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for weights");
    made->magic = WEIGHTS_MAGIC;
    made->nodes_count = graph->nodes_count;
    made->nodes = vx_alloc_zero((size_t)graph->nodes_count * sizeof *made->nodes);
    made->block = vx_alloc_aligned(bytes);
    VX_ENSURE_WHY(
        made->nodes && made->block, why, RESOURCE_EXHAUSTED, "no memory for weights",
        "%s: its weights need %zu bytes of host memory, which are not available",
        graph->network->label, bytes);
    return VX_OK;
}

vx_status vx_weights_open(const struct vx_graph *graph, const struct vx_safetensors *file,
                          const struct vx_progress *progress, struct vx_why *why,
                          struct vx_weights **weights)
{
    struct builder builder = {.file = file, .why = why};
    vx_status status;
    VX_TRY_OR(status, out, weights_make(graph, why, weights));
    builder.at = (*weights)->block;
    builder.scratch = vx_alloc(scratch_floats(graph) * sizeof(f32));
    if (!builder.scratch) {
        status = vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED);
        goto out;
    }
    /* Nothing reads the padding, but in a debugger it should not look like numbers. */
    memset(builder.at, 0, (size_t)vx_weights_bytes(graph));
    VX_TRY_OR(status, out, build_nodes(&builder, graph, progress, *weights));
out:
    vx_free(builder.scratch);
    if (status.fault) vx_weights_close(weights);
    return status;
}

void vx_weights_close(struct vx_weights **weights)
{
    struct vx_weights *it = *weights;
    *weights = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == WEIGHTS_MAGIC);
    it->magic = 0;
    vx_free(it->block);
    vx_free(it->nodes);
    vx_free(it);
}

const struct vx_node_weights *vx_weights_get(const struct vx_weights *weights, i32 node)
{
    VX_ASSERT(weights->magic == WEIGHTS_MAGIC);
    VX_ASSERT(node >= 0);
    VX_ASSERT(node < weights->nodes_count);
    return &weights->nodes[node];
}
