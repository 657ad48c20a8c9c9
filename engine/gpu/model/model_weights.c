/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_weights.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/loops.h"
#include "kernels/e4m3.h"

#include <math.h>
#include <string.h>

#define LINE_BYTES 256 /* alignment on the device */
#define NONE       SIZE_MAX

/* From here on an f32 rounds to infinity in FP16: its largest number and half a step. */
#define F16_BEYOND 65520.0f

struct place {
    size_t weight, bias; /* offsets, NONE = has none */
    size_t tiled, scale;
    enum vx_number type; /* what a convolution multiplies */
    i32 v, ci, co;       /* of `tiled`, padded */
};
struct vx_gpu_weights {
    const struct vx_graph *graph;
    u8 *host; /* NULL once the weights are on the device */
    void *device;
    size_t bytes;          /* of all */
    size_t plain_bytes;    /* of what the host has: tiled weights lie behind it */
    struct place places[]; /* by node */
};

/* The shape of a node's weights, and their bytes on the device. */
struct shape {
    const struct vx_layer *layer;
    enum vx_number type; /* what a convolution multiplies */
    i32 v, ci, co;       /* without padding, as in the f32 weights */
    i32 panels;          /* parts of co, one behind the other: (panels, v, rows, co) */
    i32 rows;            /* of one offset: ci, padded unless there are groups */
    size_t weight, bias; /* bytes; 0 = none */
};

static struct shape shape_of(const struct vx_node *node,
                             const struct vx_node_weights *weights, enum vx_number type)
{
    const struct vx_layer *layer = node->layer;
    size_t co = (size_t)vx_channels_padded(layer->channels);
    struct shape shape = {.layer = layer,
                          .type = type,
                          .v = 1,
                          .co = layer->channels,
                          .panels = vx_node_panels(node)};
    if (weights->bias) shape.bias = co * sizeof(f32);
    if (!weights->weight) return shape;
    shape.weight = co * sizeof(f32);
    const bool conv = vx_op_is_conv(layer->op);
    if (!conv && layer->op != VX_OP_LINEAR) return shape;
    shape.v = node->gather ? node->gather->v : conv ? layer->v : 1;
    const bool groups = conv && layer->groups > 1;
    shape.ci = vx_node_channels_in(node) / (groups ? layer->groups : 1);
    shape.rows = groups ? shape.ci : vx_channels_padded(shape.ci);
    shape.weight =
        (size_t)shape.v * (size_t)shape.rows * co * (size_t)vx_number_factor_bytes(type);
    return shape;
}

static size_t place_next(size_t *at, size_t bytes)
{
    size_t place = *at;
    if (!bytes) return NONE;
    *at += vx_round_up(bytes, LINE_BYTES);
    return place;
}

static void places_make(struct vx_gpu_weights *made,
                        const struct vx_gpu_weights_want *want,
                        const struct vx_weights *weights)
{
    for (i32 i = 0; i < made->graph->nodes_count; i++) {
        const struct vx_node *node = &made->graph->nodes[i];
        const enum vx_number type = want->numbers[i];
        struct shape shape = shape_of(node, vx_weights_get(weights, i), type);
        made->places[i].type = type;
        made->places[i].weight = place_next(&made->bytes, shape.weight);
        made->places[i].bias = place_next(&made->bytes, shape.bias);
        made->places[i].tiled = made->places[i].scale = NONE;
        if (type == VX_NUMBER_E4M3)
            made->places[i].scale = place_next(
                &made->bytes, (size_t)vx_channels_padded(shape.co) * sizeof(f32));
        if (!shape.ci || shape.layer->groups > 1) continue;
        made->places[i].v = shape.panels * shape.v;
        made->places[i].ci = shape.rows;
        made->places[i].co = vx_channels_padded(shape.co / shape.panels);
    }
    made->plain_bytes = made->bytes;
}

/* device NULL: for its size alone. */
static struct vx_conv_tiling tiling_of(const struct place *place, u8 *device)
{
    struct vx_conv_tiling tiling = {.v = place->v,
                                    .ci = place->ci,
                                    .co = place->co,
                                    .number_bytes = vx_number_factor_bytes(place->type)};
    if (device) tiling.weight = device + place->weight;
    if (device) tiling.tiled = device + place->tiled;
    return tiling;
}

void vx_gpu_weights_tile(struct vx_gpu_weights *weights)
{
    VX_ASSERT(weights->bytes == weights->plain_bytes);
    for (i32 i = 0; i < weights->graph->nodes_count; i++) {
        struct place *place = &weights->places[i];
        const struct vx_conv_tiling tiling = tiling_of(place, NULL);
        place->tiled = place_next(&weights->bytes, vx_conv_tiled_bytes(&tiling));
    }
}

static void row_convert(const struct vx_loops *loops, enum vx_number type,
                        const f32 *from, void *to, i32 count)
{
    if (type == VX_NUMBER_F16)
        loops->f32_to_f16(from, to, count);
    else if (type == VX_NUMBER_BF16)
        loops->f32_to_bf16(from, to, count);
    else
        memcpy(to, from, (size_t)count * sizeof *from);
}

/* From here on a number rounds to infinity in the type. */
static f32 type_beyond(enum vx_number type)
{
    if (type == VX_NUMBER_F16) return F16_BEYOND;
    return type == VX_NUMBER_BF16 ? 0x1.ffp127f : INFINITY;
}

static const char *type_name(enum vx_number type)
{
    switch (type) {
    case VX_NUMBER_F16: return "FP16";
    case VX_NUMBER_BF16: return "BF16";
    case VX_NUMBER_E4M3: return "FP8";
    default: return "FP32";
    }
}

/* The first weight that is not finite in the type; NULL = all are.  A tile also
 * multiplies the weights by zeros, for rows without a neighbour.  With a weight that is
 * not finite this gives NaN, so that the bits of a row would depend on its tile. */
static const f32 *row_beyond(const f32 *row, i32 count, f32 beyond)
{
    for (i32 i = 0; i < count; i++)
        if (!(fabsf(row[i]) < beyond)) return &row[i];
    return NULL;
}

static vx_status weight_check(const struct vx_gpu_weights *made,
                              const struct shape *shape, const f32 *row,
                              struct vx_why *why)
{
    const enum vx_number type = shape->type;
    const f32 *bad = row_beyond(row, shape->co, type_beyond(type));
    VX_ENSURE_WHY(
        !bad, why, INVALID_ARGUMENT, "a weight is out of range for the precision",
        "%s: layer \"%.64s\": the weight %g is out of range for %s%s",
        made->graph->network->label, shape->layer->name, (f64)*bad, type_name(type),
        type == VX_NUMBER_F16 && isfinite(*bad)
            ? " (at most 65504); set \"precision\" to \"bf16\" or \"tf32\""
            : "");
    return VX_OK;
}

static vx_status weight_fill(const struct vx_gpu_weights *made, const struct shape *shape,
                             const f32 *from, struct vx_why *why, u8 *to)
{
    const enum vx_number type = shape->type;
    const struct vx_loops *loops = vx_loops_pick();
    const i32 part = shape->co / shape->panels;
    size_t row_bytes = (size_t)vx_channels_padded(part) * (size_t)vx_number_bytes(type);
    size_t padding = (size_t)(shape->rows - shape->ci) * row_bytes;
    size_t panel_bytes = (size_t)shape->v * (size_t)shape->rows * row_bytes;
    for (i32 v = 0; v < shape->v; v++, to += padding)
        for (i32 ci = 0; ci < shape->ci; ci++, to += row_bytes, from += shape->co) {
            VX_TRY(weight_check(made, shape, from, why));
            for (i32 p = 0; p < shape->panels; p++)
                row_convert(loops, type, from + p * part, to + (size_t)p * panel_bytes,
                            part);
        }
    return VX_OK;
}

/* The same as numbers of 8 bits, and the scales of the columns. */
static vx_status bytes_fill(const struct vx_gpu_weights *made, const struct shape *shape,
                            const f32 *from, struct vx_why *why,
                            const struct place *place)
{
    u8 *to = made->host + place->weight;
    f32 *scale = (f32 *)(void *)(made->host + place->scale);
    const i64 rows = (i64)shape->v * shape->ci;
    const i32 co = shape->co, padded = vx_channels_padded(co);
    for (i64 row = 0; row < rows; row++) {
        const f32 *at = from + row * co;
        VX_TRY(weight_check(made, shape, at, why));
        for (i32 o = 0; o < co; o++) scale[o] = fmaxf(scale[o], fabsf(at[o]));
    }
    for (i32 o = 0; o < co; o++) scale[o] = vx_e4m3_scale(scale[o]);
    for (i64 row = 0; row < rows; row++) {
        u8 *at = to + (row / shape->ci * shape->rows + row % shape->ci) * padded;
        for (i32 o = 0; o < co; o++) at[o] = vx_e4m3_of(from[row * co + o] / scale[o]);
    }
    for (i32 o = 0; o < co; o++) scale[o] *= shape->layer->fp8_scale;
    return VX_OK;
}

static vx_status node_fill(const struct vx_gpu_weights *made, i32 index,
                           const struct vx_node_weights *weights, struct vx_why *why)
{
    const struct vx_node *node = &made->graph->nodes[index];
    const struct place *place = &made->places[index];
    struct shape shape = shape_of(node, weights, place->type);
    if (weights->bias)
        memcpy(made->host + place->bias, weights->bias, (size_t)shape.co * sizeof(f32));
    if (!weights->weight) return VX_OK;
    u8 *to = made->host + place->weight;
    if (place->type == VX_NUMBER_E4M3)
        return bytes_fill(made, &shape, weights->weight, why, place);
    if (shape.ci) return weight_fill(made, &shape, weights->weight, why, to);
    memcpy(to, weights->weight, (size_t)shape.co * sizeof(f32));
    return VX_OK;
}

vx_status vx_gpu_weights_open(const struct vx_gpu_weights_want *want,
                              const struct vx_weights *weights, struct vx_why *why,
                              struct vx_gpu_weights **made)
{
    const struct vx_plan *plan = want->plan;
    size_t nodes = (size_t)plan->graph->nodes_count;
    struct vx_gpu_weights *it = *made =
        vx_alloc_zero(sizeof *it + nodes * sizeof it->places[0]);
    VX_ENSURE(it, RESOURCE_EXHAUSTED, "no memory for weights");
    it->graph = plan->graph;
    places_make(it, want, weights);
    it->host = vx_alloc_zero(it->bytes);
    vx_status status = VX_OK;
    if (!it->host) {
        vx_why_set(
            why, "%s: its weights need %zu bytes of host memory, which are not available",
            plan->graph->network->label, it->bytes);
        status = vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED);
    }
    for (i32 i = 0; !status.fault && i < plan->graph->nodes_count; i++)
        status = node_fill(it, i, vx_weights_get(weights, i), why);
    if (status.fault) vx_gpu_weights_close(made, NULL);
    return status;
}

static vx_status upload_copy(const struct vx_gpu_weights *weights,
                             const struct vx_gpu_queue *queue, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    u8 *device = weights->device;
    VX_TRY(vx_gpu_copy_in(
        gpu, queue->stream,
        &(struct vx_gpu_copy){device, weights->host, weights->plain_bytes}, why));
    for (i32 i = 0; i < weights->graph->nodes_count; i++) {
        const struct place *place = &weights->places[i];
        const struct vx_conv_tiling tiling = tiling_of(place, device);
        if (place->tiled != NONE) VX_TRY(vx_conv_tile_weights(queue, &tiling, why));
    }
    return vx_gpu_stream_wait(gpu, queue->stream, why);
}

vx_status vx_gpu_weights_upload(struct vx_gpu_weights *weights,
                                const struct vx_gpu_queue *queue, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    VX_ON(DEVICE);
    VX_ASSERT(weights->host);
    size_t have = 0, total = 0;
    if (weights->bytes) {
        vx_status status = vx_gpu_alloc(gpu, weights->bytes, why, &weights->device);
        if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED &&
            !vx_gpu_memory_info(gpu, NULL, &have, &total).fault)
            vx_why_set(why,
                       "%s: its weights need %zu bytes of device memory, of which %zu "
                       "are free beside the activations and other models",
                       weights->graph->network->label, weights->bytes, have);
        if (status.fault) return status;
        status = upload_copy(weights, queue, why);
        if (status.fault) {
            vx_gpu_free(gpu, &weights->device);
            return status;
        }
    }
    vx_free(weights->host);
    weights->host = NULL;
    return VX_OK;
}

void vx_gpu_weights_close(struct vx_gpu_weights **weights, struct vx_gpu *gpu)
{
    struct vx_gpu_weights *it = *weights;
    *weights = NULL;
    if (!it) return;
    if (it->device) vx_gpu_free(gpu, &it->device);
    vx_free(it->host);
    vx_free(it);
}

bool vx_gpu_weights_there(const struct vx_gpu_weights *weights)
{
    return !weights->host;
}

size_t vx_gpu_weights_bytes(const struct vx_gpu_weights *weights)
{
    return weights->bytes;
}

struct vx_gpu_weight vx_gpu_weight_get(const struct vx_gpu_weights *weights, i32 node)
{
    const struct place *place = &weights->places[node];
    const u8 *device = weights->device;
    VX_ASSERT(node >= 0);
    VX_ASSERT(node < weights->graph->nodes_count);
    VX_ASSERT(!weights->host);
    struct vx_gpu_weight weight = {0};
    if (place->weight != NONE) weight.weight = device + place->weight;
    if (place->tiled != NONE) weight.tiled = device + place->tiled;
    if (place->scale != NONE)
        weight.scale = (const f32 *)(const void *)(device + place->scale);
    if (place->bias != NONE)
        weight.bias = (const f32 *)(const void *)(device + place->bias);
    return weight;
}
