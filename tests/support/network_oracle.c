/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>
#include <string.h>

/* Rules of the bound, first order in u, with 2 % for the higher orders:
 *   sum of T products    T u sum |w x|, any order, with or without fused multiply-add; 4 u
 *                        more for weights and bias rounded once when a norm was folded in
 *   inputs in error      sum |w| e
 *   batch norm           |scale| (e + what the sum before it may lose more) + 4 u of its terms
 *   layer norm           see oracle_layer_norm
 *   curves               slope <= 1.2, the function itself good to (|x| + 16) u of its value,
 *                        and 4 |x| u where 1 + erf(x) cancels */
#define U     0x1p-24
#define SLACK 1.02
#define SLOPE 1.2

/* One layer's place in the work. */
struct step {
    const struct vx_network_oracle_input *input;
    const struct vx_layer *layer;
    const f64 *x[VX_LAYER_INPUTS_MAX], *e[VX_LAYER_INPUTS_MAX]; /* values, bounds */
    i32 channels[VX_LAYER_INPUTS_MAX];
    f64 *y, *bound;
    f32 *tensors[VX_TENSORS_PER_LAYER];
};

static void *take(size_t count, size_t size)
{
    void *memory = vx_alloc_zero(count * size);
    VX_ASSERT(memory);
    return memory;
}

static f32 *tensor_read(const struct step *step, enum vx_tensor_role role)
{
    if (!step->layer->tensors[role]) return NULL;
    const struct vx_tensor *tensor =
        vx_safetensors_find(step->input->file, step->layer->tensors[role]);
    VX_ASSERT(tensor);
    f32 *values = take((size_t)tensor->count, sizeof *values);
    vx_status status = vx_safetensors_read_f32(step->input->file, tensor, NULL, values);
    VX_ASSERT(!status.fault);
    return values;
}

/* The row whose coordinates are those of `row` plus the offset, or -1. */
static i64 neighbour(const struct vx_network_oracle_input *input, i64 row,
                     const i32 offset[3])
{
    const i32 *from = input->coords + row * input->columns;
    i32 samples = input->columns - 3;
    for (i64 i = 0; i < input->n; i++) {
        const i32 *to = input->coords + i * input->columns;
        bool same = !samples || to[0] == from[0];
        for (i32 axis = 0; axis < 3; axis++)
            same = same && to[samples + axis] == from[samples + axis] + offset[axis];
        if (same) return i;
    }
    return -1;
}

static size_t weight_index(const struct vx_layer *layer, i32 v, i32 ci, i32 co)
{
    size_t ci_count = (size_t)layer->channels_in, co_count = (size_t)layer->channels;
    size_t v_count = layer->op == VX_OP_SUBM_CONV ? (size_t)layer->v : 1;
    bool vio = layer->op == VX_OP_SUBM_CONV && layer->layout == VX_LAYOUT_VIO;
    if (vio) return ((size_t)v * ci_count + (size_t)ci) * co_count + (size_t)co;
    return ((size_t)co * v_count + (size_t)v) * ci_count + (size_t)ci;
}

/* Adds one neighbour's products to a row; magnitudes sums |w x|. */
static void oracle_tap(const struct step *step, i64 row, i64 from, i32 v, f64 *magnitudes)
{
    const struct vx_layer *layer = step->layer;
    i32 co_count = layer->channels, ci_count = layer->channels_in;
    for (i32 co = 0; co < co_count; co++)
        for (i32 ci = 0; ci < ci_count; ci++) {
            f64 w = step->tensors[VX_TENSOR_WEIGHT][weight_index(layer, v, ci, co)];
            f64 x = step->x[0][from * ci_count + ci],
                e = step->e[0][from * ci_count + ci];
            step->y[row * co_count + co] += w * x;
            step->bound[row * co_count + co] += fabs(w) * e;
            magnitudes[co] += fabs(w * x);
        }
}

static void oracle_conv(const struct step *step)
{
    const struct vx_layer *layer = step->layer;
    bool conv = layer->op == VX_OP_SUBM_CONV;
    i32 one[3] = {1, 1, 1}, c = layer->channels;
    const i32 *k = conv ? layer->kernel : one, *d = conv ? layer->dilation : one;
    f64 *magnitudes = take((size_t)c, sizeof *magnitudes);
    for (i64 row = 0; row < step->input->n; row++) {
        i32 v = 0, taps = 0;
        memset(magnitudes, 0, (size_t)c * sizeof *magnitudes);
        for (i32 x = 0; x < k[0]; x++)
            for (i32 y = 0; y < k[1]; y++)
                for (i32 z = 0; z < k[2]; z++, v++) {
                    i32 offset[3] = {(x - k[0] / 2) * d[0], (y - k[1] / 2) * d[1],
                                     (z - k[2] / 2) * d[2]};
                    i64 from = neighbour(step->input, row, offset);
                    if (from >= 0) oracle_tap(step, row, from, v, magnitudes);
                    taps += from >= 0;
                }
        for (i32 co = 0; co < c; co++) {
            f64 b = layer->bias ? step->tensors[VX_TENSOR_BIAS][co] : 0;
            f64 terms = (f64)taps * layer->channels_in + 1 + 4;
            step->y[row * c + co] += b;
            step->bound[row * c + co] += terms * U * (magnitudes[co] + fabs(b));
        }
    }
    vx_free(magnitudes);
}

static void oracle_batch_norm(const struct step *step)
{
    const struct vx_layer *layer = step->layer;
    i32 c = layer->channels;
    for (i64 i = 0; i < step->input->n * c; i++) {
        i64 j = i % c;
        f64 gamma = layer->affine ? step->tensors[VX_TENSOR_WEIGHT][j] : 1;
        f64 beta = layer->affine ? step->tensors[VX_TENSOR_BIAS][j] : 0;
        f64 mean = step->tensors[VX_TENSOR_RUNNING_MEAN][j];
        f64 scale = gamma / sqrt(step->tensors[VX_TENSOR_RUNNING_VAR][j] + layer->eps);
        f64 x = step->x[0][i];
        step->y[i] = (x - mean) * scale + beta;
        step->bound[i] = fabs(scale) * step->e[0][i] +
                         4 * U * (fabs(x * scale) + fabs(mean * scale) + fabs(beta));
    }
}

/* y = (x - m) / s w + b.  With d = error of x - m (own, mean's, and C + 2 roundings of the mean's
 * sum), s is off by at most rms(d) + (C + 4) u s, and y w by |w| (d / s + |z| ds / s), z = y. */
static void oracle_layer_norm(const struct step *step)
{
    const struct vx_layer *layer = step->layer;
    i32 c = layer->channels;
    for (i64 row = 0; row < step->input->n; row++) {
        const f64 *x = step->x[0] + row * c, *e = step->e[0] + row * c;
        f64 mean = 0, mean_size = 0, mean_error = 0, spread = 0, rms = 0;
        for (i32 i = 0; i < c; i++) {
            mean += x[i] / c;
            mean_size += fabs(x[i]) / c;
            mean_error += e[i] / c;
        }
        mean_error += (c + 2) * U * mean_size;
        for (i32 i = 0; i < c; i++) {
            f64 d = e[i] + mean_error + 2 * U * fabs(x[i] - mean);
            spread += (x[i] - mean) * (x[i] - mean) / c;
            rms += d * d / c;
        }
        f64 s = sqrt(spread + layer->eps), ds = sqrt(rms) / s + (c + 4) * U;
        for (i32 i = 0; i < c; i++) {
            f64 w = layer->affine ? step->tensors[VX_TENSOR_WEIGHT][i] : 1;
            f64 b = layer->affine ? step->tensors[VX_TENSOR_BIAS][i] : 0;
            f64 z = (x[i] - mean) / s;
            f64 d = e[i] + mean_error + 2 * U * fabs(x[i] - mean);
            step->y[row * c + i] = z * w + b;
            step->bound[row * c + i] =
                fabs(w) * (d / s + fabs(z) * ds) + 4 * U * (fabs(z * w) + fabs(b));
        }
    }
}

static f64 curve(enum vx_op op, f64 x)
{
    switch (op) {
    case VX_OP_RELU: return x > 0 || isnan(x) ? x : 0;
    case VX_OP_SILU: return x / (1 + exp(-x));
    case VX_OP_GELU: return x * 0.5 * (1 + erf(x / sqrt(2.0)));
    default: VX_ASSERT(op == VX_OP_SIGMOID); return 1 / (1 + exp(-x));
    }
}

static void oracle_curve(const struct step *step)
{
    for (i64 i = 0; i < step->input->n * step->layer->channels; i++) {
        f64 x = step->x[0][i], y = curve(step->layer->op, x);
        step->y[i] = y;
        step->bound[i] = step->e[0][i];
        if (step->layer->op != VX_OP_RELU)
            step->bound[i] =
                SLOPE * step->e[0][i] + U * ((fabs(x) + 16) * fabs(y) + 4 * fabs(x));
    }
}

static void oracle_add(const struct step *step)
{
    for (i64 i = 0; i < step->input->n * step->layer->channels; i++) {
        step->y[i] = step->x[0][i] + step->x[1][i];
        step->bound[i] = step->e[0][i] + step->e[1][i] + U * fabs(step->y[i]);
    }
}

static void oracle_concat(const struct step *step)
{
    f64 *y = step->y, *bound = step->bound;
    for (i64 row = 0; row < step->input->n; row++)
        for (i32 i = 0; i < step->layer->inputs_count; i++)
            for (i32 c = 0; c < step->channels[i]; c++) {
                *y++ = step->x[i][row * step->channels[i] + c];
                *bound++ = step->e[i][row * step->channels[i] + c];
            }
}

static void oracle_layer(struct step *step)
{
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        step->tensors[role] = tensor_read(step, (enum vx_tensor_role)role);
    switch (step->layer->op) {
    case VX_OP_SUBM_CONV:
    case VX_OP_LINEAR: oracle_conv(step); break;
    case VX_OP_BATCH_NORM: oracle_batch_norm(step); break;
    case VX_OP_LAYER_NORM: oracle_layer_norm(step); break;
    case VX_OP_ADD: oracle_add(step); break;
    case VX_OP_CONCAT: oracle_concat(step); break;
    default: oracle_curve(step); break;
    }
    for (i64 i = 0; i < step->input->n * step->layer->channels; i++)
        step->bound[i] *= SLACK;
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
    for (i32 i = 0; i < network->layers_count; i++) {
        struct step step = {.input = input, .layer = &network->layers[i]};
        size_t count = (size_t)input->n * (size_t)step.layer->channels;
        for (i32 j = 0; j < step.layer->inputs_count; j++) {
            i32 from = step.layer->inputs[j];
            step.channels[j] = vx_network_channels(network, from);
            step.x[j] = from == VX_LAYER_FEATS ? feats : oracle->values[from];
            step.e[j] = from == VX_LAYER_FEATS ? exact : oracle->bounds[from];
        }
        step.y = oracle->values[i] = take(count, sizeof(f64));
        step.bound = oracle->bounds[i] = take(count, sizeof(f64));
        oracle_layer(&step);
    }
    vx_free(feats);
    vx_free(exact);
}

void vx_network_oracle_close(struct vx_network_oracle *oracle)
{
    for (i32 i = 0; i < oracle->input->network->layers_count; i++) {
        vx_free(oracle->values[i]);
        vx_free(oracle->bounds[i]);
    }
}

f64 vx_network_oracle_output_bound(enum vx_dtype dtype, f64 value, f64 bound)
{
    /* Half a unit of the last place, and half the smallest subnormal. */
    f64 size = fabs(value) + bound;
    if (dtype == VX_DTYPE_F16) return bound + 0x1p-11 * size + 0x1p-25;
    if (dtype == VX_DTYPE_BF16) return bound + 0x1p-8 * size + 0x1p-133;
    return bound;
}
