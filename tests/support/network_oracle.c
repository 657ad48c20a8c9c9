/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle_parts.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>
#include <string.h>

/* Rules of the bound, first order in u, with 2 % for the higher orders:
 *   sum of T products    T u sum |w x|, any order, with or without fused multiply-add;
 *                        4 u more for weights and bias that a folded norm rounded once
 *   inputs in error      sum |w| e
 *   pools                the same with w = 1 or 1 / count; 2 u more for the division; the
 *                        largest of numbers is off by at most the largest of their errors
 * The others are in network_oracle_rows.c. */
#define U     VX_ORACLE_U
#define SLACK 1.02

static void *take(size_t count, size_t size)
{
    void *memory = vx_alloc_zero(count * size + 1);
    VX_ASSERT(memory);
    return memory;
}

static f32 *tensor_read(const struct vx_safetensors *file, const char *name)
{
    if (!name) return NULL;
    const struct vx_tensor *tensor = vx_safetensors_find(file, name);
    VX_ASSERT(tensor);
    f32 *values = take((size_t)tensor->count, sizeof *values);
    vx_status status = vx_safetensors_read_f32(file, tensor, NULL, values);
    VX_ASSERT(!status.fault);
    return values;
}

static bool is_window(enum vx_op op)
{
    return op == VX_OP_SPARSE_CONV || op == VX_OP_MAX_POOL || op == VX_OP_AVG_POOL ||
           op == VX_OP_SUM_POOL;
}

static bool is_conv(enum vx_op op)
{
    return op == VX_OP_SUBM_CONV || op == VX_OP_SPARSE_CONV || op == VX_OP_INVERSE_CONV ||
           op == VX_OP_TRANSPOSED_CONV;
}

/* With the rule "floor" a pool whose kernel is its stride has the voxels of a block. */
static bool is_block_pool(const struct vx_layer *layer)
{
    bool pool = is_window(layer->op) && layer->op != VX_OP_SPARSE_CONV;
    return pool && layer->rule == VX_SET_FLOOR &&
           !memcmp(layer->kernel, layer->stride, sizeof layer->kernel);
}

/* False for an op that reads its own row.  Of the parser's numbers only those are used
 * that network.json says: the padding of rule "floor" and of a transposed convolution
 * follows. */
static bool window_of(const struct vx_network *network, const struct vx_layer *layer,
                      struct vx_oracle_window *window)
{
    enum vx_op op = layer->op;
    bool block = op == VX_OP_UPSAMPLE || op == VX_OP_DOWNSAMPLE ||
                 op == VX_OP_SPACE_TO_CHANNEL || op == VX_OP_CHANNEL_TO_SPACE ||
                 is_block_pool(layer);
    *window = (struct vx_oracle_window){{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}};
    if (op == VX_OP_PRUNE) return true;
    if (vx_oracle_points_window(network, layer, window)) return true;
    *window = (struct vx_oracle_window){{0}, {1, 1, 1}, {1, 1, 1}, {0}};
    if (op == VX_OP_UNPOOL && network->layers[layer->of].op == VX_OP_GLOBAL_POOL)
        return true;
    if (op == VX_OP_INVERSE_CONV || op == VX_OP_UNPOOL)
        return window_of(network, &network->layers[layer->of], window);
    if (!block && !is_window(op) && !is_conv(op)) return false;
    for (int axis = 0; axis < 3; axis++) {
        i32 k = block ? layer->stride[axis] : layer->kernel[axis];
        i32 d = block ? 1 : layer->dilation[axis];
        window->kernel[axis] = k;
        window->dilation[axis] = d;
        if (op != VX_OP_SUBM_CONV) window->stride[axis] = layer->stride[axis];
        if (is_window(op) && layer->rule == VX_SET_SPCONV)
            window->padding[axis] = layer->padding[axis];
        else if (!block && k % 2)
            window->padding[axis] = (k - 1) / 2 * d;
    }
    return true;
}

static const struct vx_oracle_set *set_of(const struct vx_network_oracle *oracle,
                                          i32 layer)
{
    return layer == VX_LAYER_FEATS ? &oracle->made[0] : oracle->sets[layer];
}

/* The set of a layer with logits. */
static const struct vx_oracle_set *set_predict(struct vx_network_oracle *oracle,
                                               const struct vx_oracle_step *step)
{
    i32 by = step->layer->by;
    i64 self = step->layer - oracle->input->network->layers;
    const struct vx_oracle_logits logits = {oracle->values[by], oracle->bounds[by]};
    struct vx_oracle_set *set = &oracle->made[self + 1];
    VX_ASSERT(vx_oracle_set_equal(step->from, set_of(oracle, by)));
    vx_oracle_predict(oracle, step, &logits, set);
    return set;
}

/* The set of the layer's result. */
static const struct vx_oracle_set *set_settle(struct vx_network_oracle *oracle,
                                              const struct vx_oracle_step *step)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_layer *layer = step->layer;
    const struct vx_oracle_window *window = &step->window;
    enum vx_set_rule rule = VX_SET_FLOOR;
    bool keeps = true;
    if (layer->by != VX_LAYER_NONE) return set_predict(oracle, step);
    switch (layer->op) {
    case VX_OP_INVERSE_CONV:
    case VX_OP_UNPOOL: return set_of(oracle, network->layers[layer->of].inputs[0]);
    case VX_OP_TRANSPOSED_CONV:
    case VX_OP_UPSAMPLE:
    case VX_OP_CHANNEL_TO_SPACE:
        if (layer->onto != VX_LAYER_NONE) return set_of(oracle, layer->onto);
        rule = VX_SET_EXPAND;
        break;
    case VX_OP_DEVOXELIZE:
    case VX_OP_VOXELIZE:
        if (layer->onto != VX_LAYER_NONE) return set_of(oracle, layer->onto);
        break;
    case VX_OP_DOWNSAMPLE:
    case VX_OP_SPACE_TO_CHANNEL: break;
    case VX_OP_GLOBAL_POOL:
        rule = VX_SET_SAMPLES;
        keeps = false;
        break;
    default:
        if (!is_window(layer->op)) return step->from;
        rule = layer->rule == VX_SET_FLOOR ? VX_SET_FLOOR : VX_SET_SPCONV;
    }
    for (int axis = 0; axis < 3; axis++) {
        keeps = keeps && window->stride[axis] == 1;
        if (rule != VX_SET_FLOOR)
            keeps = keeps && window->kernel[axis] == 1 && !window->padding[axis];
    }
    if (keeps) return step->from; /* each voxel makes itself */
    struct vx_oracle_set *set = &oracle->made[layer - network->layers + 1];
    vx_oracle_set_make(rule, window, step->from, set);
    return set;
}

/* The weights as (v, ci, co), ci within a group. */
static f64 *weights_order(const struct vx_oracle_step *step, i32 v_count)
{
    const struct vx_layer *layer = step->layer;
    size_t co_count = (size_t)layer->channels, index = 0;
    size_t ci_count = (size_t)(layer->channels_in / layer->groups);
    f64 *ordered = take((size_t)v_count * ci_count * co_count, sizeof *ordered);
    for (size_t v = 0; v < (size_t)v_count; v++)
        for (size_t ci = 0; ci < ci_count; ci++)
            for (size_t co = 0; co < co_count; co++, index++) {
                size_t at = (co * (size_t)v_count + v) * ci_count + ci;
                if (is_conv(layer->op) && layer->layout == VX_LAYOUT_VIO) at = index;
                ordered[index] = step->tensors[VX_TENSOR_WEIGHT][at];
            }
    return ordered;
}

/* Adds the products of one neighbour to a row; sizes sums |w x|. */
static void conv_tap(const struct vx_oracle_step *step, const f64 *w, i64 from, i64 row,
                     f64 *sizes)
{
    i32 co_count = step->layer->channels, groups = step->layer->groups;
    i32 ci_part = step->layer->channels_in / groups, co_part = co_count / groups;
    f64 *y = step->y + row * co_count, *bound = step->bound + row * co_count;
    for (i32 group = 0; group < groups; group++)
        for (i32 ci = 0; ci < ci_part; ci++) {
            i64 at = from * step->layer->channels_in + group * ci_part + ci;
            f64 x = step->x[0][at], e = step->e[0][at];
            for (i32 co = group * co_part; co < (group + 1) * co_part; co++) {
                f64 weight = w[ci * co_count + co];
                y[co] += weight * x;
                bound[co] += fabs(weight) * e;
                sizes[co] += fabs(weight * x);
            }
        }
}

/* reads: NULL = every row reads itself. */
static void oracle_conv(const struct vx_oracle_step *step, const i32 *reads, i32 v_count)
{
    const struct vx_layer *layer = step->layer;
    i32 c = layer->channels, ci_part = layer->channels_in / layer->groups;
    f64 *weights = weights_order(step, v_count);
    f64 *sizes = take((size_t)c, sizeof *sizes);
    for (i64 row = 0; row < step->to->rows; row++) {
        i32 taps = 0;
        memset(sizes, 0, (size_t)c * sizeof *sizes);
        for (i32 v = 0; v < v_count; v++) {
            i64 from = reads ? reads[row * v_count + v] : row;
            if (from < 0) continue;
            conv_tap(step, weights + (i64)v * ci_part * c, from, row, sizes);
            taps++;
        }
        f64 terms = (f64)taps * ci_part + 1 + 4;
        for (i32 co = 0; co < c; co++) {
            f64 b = layer->bias ? step->tensors[VX_TENSOR_BIAS][co] : 0;
            step->y[row * c + co] += b;
            step->bound[row * c + co] +=
                terms * (U * (sizes[co] + fabs(b)) + VX_ORACLE_TINY);
        }
    }
    vx_free(sizes);
    vx_free(weights);
}

/* One channel of one row of a pool; no neighbour: 0.  spconv's max begins at 0. */
static void pool_cell(const struct vx_oracle_step *step, const i32 *reads, i32 v_count,
                      i64 cell)
{
    i32 c = step->layer->channels, count = 0;
    f64 sum = 0, size = 0, error = 0, most = 0, most_error = 0;
    for (i32 v = 0; v < v_count; v++) {
        if (reads[v] < 0) continue;
        f64 x = step->x[0][reads[v] * (i64)c + cell % c];
        f64 e = step->e[0][reads[v] * (i64)c + cell % c];
        if (!count++ || x > most) most = x;
        most_error = fmax(most_error, e);
        sum += x;
        size += fabs(x);
        error += e;
    }
    if (!count) return;
    bool average =
        step->layer->op == VX_OP_AVG_POOL || step->layer->op == VX_OP_DOWNSAMPLE;
    f64 share = average ? 1.0 / count : 1;
    step->y[cell] = sum * share;
    step->bound[cell] = share * (error + (count + 2) * (U * size + VX_ORACLE_TINY));
    if (step->layer->op != VX_OP_MAX_POOL) return;
    if (step->layer->rule == VX_SET_SPCONV && most < 0) most = 0;
    step->y[cell] = most;
    step->bound[cell] = most_error;
}

static void oracle_pool(const struct vx_oracle_step *step, const i32 *reads, i32 v_count)
{
    i32 c = step->layer->channels;
    for (i64 cell = 0; cell < step->to->rows * c; cell++)
        pool_cell(step, reads + cell / c * v_count, v_count, cell);
}

static void copy(const struct vx_oracle_step *step, i64 to, i64 from)
{
    step->y[to] = step->x[0][from];
    step->bound[to] = step->e[0][from];
}

/* UNPOOL, UPSAMPLE, PRUNE, CHANNEL_TO_SPACE: what the parent has for this child. */
static void oracle_parent(const struct vx_oracle_step *step, const i32 *reads)
{
    i32 ci = step->layer->channels_in, c = step->layer->channels;
    bool parts = step->layer->op == VX_OP_CHANNEL_TO_SPACE;
    for (i64 row = 0; row < step->to->rows; row++) {
        i32 child = vx_oracle_child(step->to->voxels[row], step->window.stride);
        if (reads[row] < 0) continue;
        for (i32 i = 0; i < c; i++)
            copy(step, row * c + i, reads[row] * (i64)ci + (parts ? child * c : 0) + i);
    }
}

static void oracle_space_to_channel(const struct vx_oracle_step *step, const i32 *reads,
                                    i32 v_count)
{
    const i32 *s = step->window.stride;
    i32 ci = step->layer->channels_in;
    for (i64 row = 0; row < step->to->rows; row++)
        for (i32 v = 0; v < v_count; v++) {
            i32 x = v / (s[1] * s[2]), y = v / s[2] % s[1], z = v % s[2];
            i64 from = reads[row * v_count + v], child = x + s[0] * (y + s[1] * z);
            for (i32 i = 0; i < ci && from >= 0; i++)
                copy(step, (row * v_count + child) * ci + i, from * ci + i);
        }
}

/* An op that reads rows of another set, or of neighbours. */
static void oracle_reads(const struct vx_oracle_step *step)
{
    const struct vx_oracle_window *window = &step->window;
    i32 v_count = window->kernel[0] * window->kernel[1] * window->kernel[2];
    enum vx_map_kind kind = VX_MAP_DOWN;
    enum vx_op op = step->layer->op;
    if (vx_oracle_points(step)) return;
    if (op == VX_OP_SUBM_CONV) kind = VX_MAP_SUBM;
    if (op == VX_OP_INVERSE_CONV || op == VX_OP_TRANSPOSED_CONV) kind = VX_MAP_UP;
    if (op == VX_OP_UNPOOL || op == VX_OP_UPSAMPLE || op == VX_OP_CHANNEL_TO_SPACE ||
        op == VX_OP_PRUNE)
        kind = VX_MAP_PARENT;
    if (op == VX_OP_UNPOOL && !v_count) kind = VX_MAP_SAMPLE;
    i32 *map = vx_oracle_map(kind, window, step->from, step->to);
    if (is_conv(op))
        oracle_conv(step, map, v_count);
    else if (kind == VX_MAP_PARENT || kind == VX_MAP_SAMPLE)
        oracle_parent(step, map);
    else if (op == VX_OP_SPACE_TO_CHANNEL)
        oracle_space_to_channel(step, map, v_count);
    else
        oracle_pool(step, map, v_count);
    vx_free(map);
}

static void oracle_layer(struct vx_network_oracle *oracle, struct vx_oracle_step *step)
{
    const struct vx_network_oracle_input *input = oracle->input;
    i32 index = (i32)(step->layer - input->network->layers);
    bool reads = window_of(input->network, step->layer, &step->window);
    step->to = oracle->sets[index] = set_settle(oracle, step);
    size_t count = (size_t)step->to->rows * (size_t)step->layer->channels;
    step->y = oracle->values[index] = take(count, sizeof *step->y);
    step->bound = oracle->bounds[index] = take(count, sizeof *step->bound);
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        step->tensors[role] = tensor_read(input->file, step->layer->tensors[role]);
    if (reads)
        oracle_reads(step);
    else if (step->layer->op == VX_OP_LINEAR)
        oracle_conv(step, NULL, 1);
    else if (!vx_oracle_norm(step) && !vx_oracle_samples(step))
        VX_ASSERT(vx_oracle_pointwise(step));
    for (size_t i = 0; i < count; i++) step->bound[i] *= SLACK;
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) vx_free(step->tensors[role]);
}

void vx_network_oracle_open(const struct vx_network_oracle_input *input,
                            struct vx_network_oracle *oracle)
{
    const struct vx_network *network = input->network;
    size_t feats_count = (size_t)input->n * (size_t)network->feats_channels;
    f64 *feats = take(feats_count, sizeof *feats),
        *exact = take(feats_count, sizeof *exact);
    for (size_t i = 0; i < feats_count; i++) feats[i] = input->feats[i];
    *oracle = (struct vx_network_oracle){.input = input};
    oracle->made = take((size_t)network->layers_count + 1, sizeof *oracle->made);
    vx_oracle_set_request(input->coords, input->columns, input->n, network->sets[0].shape,
                          &oracle->made[0]);
    for (i32 i = 0; i < network->layers_count; i++) {
        struct vx_oracle_step step = {.layer = &network->layers[i]};
        step.from = set_of(oracle, step.layer->inputs[0]);
        for (i32 j = 0; j < step.layer->inputs_count; j++) {
            i32 from = step.layer->inputs[j];
            step.channels[j] = vx_network_channels(network, from);
            step.x[j] = from == VX_LAYER_FEATS ? feats : oracle->values[from];
            step.e[j] = from == VX_LAYER_FEATS ? exact : oracle->bounds[from];
            VX_ASSERT(vx_oracle_set_equal(step.from, set_of(oracle, from)));
        }
        oracle_layer(oracle, &step);
    }
    vx_free(feats);
    vx_free(exact);
}

void vx_network_oracle_close(struct vx_network_oracle *oracle)
{
    for (i32 i = 0; i < oracle->input->network->layers_count; i++) {
        vx_free(oracle->values[i]);
        vx_free(oracle->bounds[i]);
        vx_oracle_set_fini(&oracle->made[i + 1]);
    }
    vx_oracle_set_fini(&oracle->made[0]);
    vx_free(oracle->made);
}

static i64 map_pairs(const struct vx_map_key *key, const struct vx_oracle_set *from,
                     const struct vx_oracle_set *to)
{
    struct vx_oracle_window window;
    i64 offsets = (i64)key->kernel[0] * key->kernel[1] * key->kernel[2], pairs = 0;
    if (key->kind == VX_MAP_PARENT || key->kind == VX_MAP_CHILD) return to->rows;
    if (key->kind == VX_MAP_ORDER) return 0;
    memcpy(window.kernel, key->kernel, sizeof window.kernel);
    memcpy(window.dilation, key->dilation, sizeof window.dilation);
    memcpy(window.stride, key->stride, sizeof window.stride);
    memcpy(window.padding, key->padding, sizeof window.padding);
    i32 *map = vx_oracle_map(key->kind, &window, from, to);
    for (i64 i = 0; i < to->rows * offsets; i++) pairs += map[i] >= 0;
    vx_free(map);
    return pairs;
}

struct vx_oracle_cost vx_network_oracle_cost(const struct vx_network_oracle *oracle,
                                             const struct vx_map_key *keys, i32 count)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_oracle_set *sets[VX_SETS_MAX] = {&oracle->made[0]};
    struct vx_oracle_cost cost = {0};
    for (i32 i = 0; i < network->layers_count; i++)
        sets[network->layers[i].set] = oracle->sets[i];
    for (i32 s = 0; s < network->sets_count; s++) cost.set_voxels += sets[s]->rows;
    for (i32 k = 0; k < count; k++)
        cost.pairs += map_pairs(&keys[k], sets[keys[k].from], sets[keys[k].to]);
    return cost;
}

f64 vx_network_oracle_output_bound(enum vx_dtype dtype, f64 value, f64 bound)
{
    /* Half a unit of the last place, and half the smallest subnormal. */
    f64 size = fabs(value) + bound;
    if (dtype == VX_DTYPE_F16) return bound + 0x1p-11 * size + 0x1p-25;
    if (dtype == VX_DTYPE_BF16) return bound + 0x1p-8 * size + 0x1p-133;
    return bound;
}
