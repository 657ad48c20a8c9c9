/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle_parts.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>

/* Rules of the bound, beside those of network_oracle.c:
 *   batch norm      |scale| (e + what the sum before it may lose more) + 4 u of its terms
 *   other norms     see normalize
 *   curves          slope <= 1.2, the function itself good to (|x| + 16) u of its value,
 *                   and 4 |x| u where 1 + erf(x) or 1 + exp(x) cancels
 *   softmax         see softmax_row
 *   add mul affine  u for each rounding, of the constants too */
#define U     VX_ORACLE_U
#define TINY  VX_ORACLE_TINY
#define SLOPE 1.2

/* PyTorch's softplus is the identity beyond this. */
#define SOFTPLUS_LINEAR 20

static i64 cells_of(const struct vx_oracle_step *step)
{
    return step->to->rows * step->layer->channels;
}

static void oracle_batch_norm(const struct vx_oracle_step *step)
{
    const struct vx_layer *layer = step->layer;
    for (i64 i = 0; i < cells_of(step); i++) {
        i64 j = i % layer->channels;
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

/* y = (x - mean) / s w + b over m cells.  With d = error of x - mean (own, the mean's,
 * and m + 2 roundings of the mean's sum), s is the length of the vector of all
 * (x - mean) / sqrt(m) and sqrt(eps): off by at most ds = rms(d) + (m + 4) u s, and never
 * less than sqrt(eps).  So a computed 1 / s is off by at most ds / (s s'), with s' the
 * least that s can be, which holds for errors of any size.  It supposes that x - mean is
 * squared, not x. */
static void normalize(const struct vx_oracle_step *step, const i64 *cells, i64 count)
{
    const struct vx_layer *layer = step->layer;
    const f64 *x = step->x[0], *e = step->e[0];
    f64 mean = 0, mean_size = 0, mean_error = 0, spread = 0, rms = 0, m = (f64)count;
    for (i64 i = 0; i < count; i++) {
        mean += x[cells[i]] / m;
        mean_size += fabs(x[cells[i]]) / m;
        mean_error += e[cells[i]] / m;
    }
    mean_error += (m + 2) * U * mean_size;
    for (i64 i = 0; i < count; i++) {
        f64 off = x[cells[i]] - mean, d = e[cells[i]] + mean_error + 2 * U * fabs(off);
        spread += off * off / m;
        rms += d * d / m;
    }
    f64 s = sqrt(spread + layer->eps), ds = sqrt(rms) + (m + 4) * U * s;
    f64 least = fmax(s - ds, sqrt(layer->eps) * (1 - 8 * U));
    for (i64 i = 0; i < count; i++) {
        i64 cell = cells[i], channel = cell % layer->channels;
        f64 w = layer->affine ? step->tensors[VX_TENSOR_WEIGHT][channel] : 1;
        f64 b = layer->affine ? step->tensors[VX_TENSOR_BIAS][channel] : 0;
        f64 off = x[cell] - mean, d = e[cell] + mean_error + 2 * U * fabs(off);
        step->y[cell] = off / s * w + b;
        step->bound[cell] = fabs(w) * (d + fabs(off) * ds / s) / least +
                            4 * U * (fabs(off / s * w) + fabs(b)) + TINY;
    }
}

static void oracle_layer_norm(const struct vx_oracle_step *step, i64 *cells)
{
    i32 c = step->layer->channels;
    for (i64 row = 0; row < step->to->rows; row++) {
        for (i32 i = 0; i < c; i++) cells[i] = row * c + i;
        normalize(step, cells, c);
    }
}

/* The rows of one sample, with the channels of each group. */
static void group_norm_sample(const struct vx_oracle_step *step, i32 sample, i64 *cells)
{
    i32 c = step->layer->channels;
    i32 groups = step->layer->op == VX_OP_GROUP_NORM ? step->layer->groups : c;
    for (i32 group = 0; group < groups; group++) {
        i64 count = 0;
        for (i64 row = 0; row < step->to->rows; row++) {
            if (step->to->voxels[row][0] != sample) continue;
            for (i32 i = group * (c / groups); i < (group + 1) * (c / groups); i++)
                cells[count++] = row * c + i;
        }
        normalize(step, cells, count);
    }
}

static void oracle_group_norm(const struct vx_oracle_step *step, i64 *cells)
{
    bool done[VX_SAMPLE_MAX + 1] = {false};
    for (i64 row = 0; row < step->to->rows; row++) {
        i32 sample = step->to->voxels[row][0];
        if (!done[sample]) group_norm_sample(step, sample, cells);
        done[sample] = true;
    }
}

bool vx_oracle_norm(const struct vx_oracle_step *step)
{
    enum vx_op op = step->layer->op;
    bool layer = op == VX_OP_LAYER_NORM;
    if (op == VX_OP_BATCH_NORM) oracle_batch_norm(step);
    if (op == VX_OP_BATCH_NORM) return true;
    if (!layer && op != VX_OP_GROUP_NORM && op != VX_OP_INSTANCE_NORM) return false;
    i64 *cells =
        vx_alloc((size_t)(cells_of(step) + step->layer->channels) * sizeof *cells);
    VX_ASSERT(cells);
    if (layer)
        oracle_layer_norm(step, cells);
    else
        oracle_group_norm(step, cells);
    vx_free(cells);
    return true;
}

/* One channel of one sample: as a pool in network_oracle.c, of all its rows. */
static void global_pool_cell(const struct vx_oracle_step *step, i32 sample, i64 cell)
{
    i32 c = step->layer->channels, count = 0;
    f64 sum = 0, size = 0, error = 0, most = 0, most_error = 0;
    for (i64 row = 0; row < step->from->rows; row++) {
        f64 x = step->x[0][row * c + cell % c], e = step->e[0][row * c + cell % c];
        if (step->from->voxels[row][0] != sample) continue;
        if (!count++ || x > most) most = x;
        most_error = fmax(most_error, e);
        sum += x;
        size += fabs(x);
        error += e;
    }
    f64 share = step->layer->mode == VX_POOL_AVG ? 1.0 / count : 1;
    step->y[cell] = sum * share;
    step->bound[cell] = share * (error + (count + 2) * (U * size + TINY));
    if (step->layer->mode != VX_POOL_MAX) return;
    step->y[cell] = most;
    step->bound[cell] = most_error;
}

/* The first of the largest; its neighbours in f32 are vx_network_oracle_is_largest's. */
static void oracle_argmax(const struct vx_oracle_step *step)
{
    i32 c = step->channels[0];
    for (i64 row = 0; row < step->to->rows; row++) {
        const f64 *x = step->x[0] + row * c;
        i32 best = 0;
        for (i32 i = 1; i < c; i++)
            if (x[i] > x[best]) best = i;
        step->y[row] = best;
    }
}

bool vx_oracle_samples(const struct vx_oracle_step *step)
{
    enum vx_op op = step->layer->op;
    if (op == VX_OP_ARGMAX) oracle_argmax(step);
    for (i64 cell = 0; cell < cells_of(step) && op == VX_OP_GLOBAL_POOL; cell++)
        global_pool_cell(step, step->to->voxels[cell / step->layer->channels][0], cell);
    for (i64 cell = 0; cell < cells_of(step) && op == VX_OP_TO_DENSE; cell++) {
        step->y[cell] = step->x[0][cell]; /* where it goes is the output's business */
        step->bound[cell] = step->e[0][cell];
    }
    return op == VX_OP_ARGMAX || op == VX_OP_GLOBAL_POOL || op == VX_OP_TO_DENSE;
}

static f64 curve(enum vx_op op, f64 x)
{
    switch (op) {
    case VX_OP_SILU: return x / (1 + exp(-x));
    case VX_OP_GELU: return x * 0.5 * (1 + erf(x / sqrt(2.0)));
    case VX_OP_SIGMOID: return 1 / (1 + exp(-x));
    case VX_OP_SOFTPLUS: return x > SOFTPLUS_LINEAR ? x : log1p(exp(x));
    default: VX_ASSERT(op == VX_OP_TANH); return tanh(x);
    }
}

static void oracle_curve(const struct vx_oracle_step *step)
{
    for (i64 i = 0; i < cells_of(step); i++) {
        f64 x = step->x[0][i], y = curve(step->layer->op, x);
        step->y[i] = y;
        step->bound[i] =
            SLOPE * step->e[0][i] + U * ((fabs(x) + 16) * fabs(y) + 4 * fabs(x)) + TINY;
    }
}

/* RELU is LEAKY_RELU of slope 0. */
static void oracle_relu(const struct vx_oracle_step *step)
{
    f64 slope = step->layer->op == VX_OP_RELU ? 0 : step->layer->slope;
    for (i64 i = 0; i < cells_of(step); i++) {
        f64 x = step->x[0][i], y = x > 0 || isnan(x) ? x : slope * x;
        step->y[i] = y;
        step->bound[i] = fmax(1, fabs(slope)) * step->e[0][i];
        if (slope != 0) step->bound[i] += 2 * U * fabs(y) + TINY;
    }
}

static void oracle_affine(const struct vx_oracle_step *step)
{
    f64 a = step->layer->scale, b = step->layer->shift;
    for (i64 i = 0; i < cells_of(step); i++) {
        f64 x = step->x[0][i];
        step->y[i] = a * x + b;
        step->bound[i] = fabs(a) * step->e[0][i] + TINY +
                         U * (2 * fabs(a * x) + fabs(b) + fabs(step->y[i]));
    }
}

/* y = exp(x - most) / sum.  An exponent is off by e and by the roundings of x - most, and
 * log y by that and by as much for the sum: the largest e, the roundings weighed by y. */
static void softmax_row(const struct vx_oracle_step *step, i64 row)
{
    i32 c = step->layer->channels;
    const f64 *x = step->x[0] + row * c, *e = step->e[0] + row * c;
    f64 most = x[0], most_error = 0, sum = 0, drift = 0;
    for (i32 i = 0; i < c; i++) {
        most = fmax(most, x[i]);
        most_error = fmax(most_error, e[i]);
    }
    for (i32 i = 0; i < c; i++) sum += exp(x[i] - most);
    for (i32 i = 0; i < c; i++) drift += exp(x[i] - most) / sum * 4 * U * (most - x[i]);
    for (i32 i = 0; i < c; i++) {
        f64 y = exp(x[i] - most) / sum;
        f64 own = e[i] + 4 * U * (most - x[i]);
        step->y[row * c + i] = y;
        step->bound[row * c + i] =
            fmin(1, y * expm1(own + most_error + drift + (c + 12) * U) + TINY);
    }
}

static void oracle_softmax(const struct vx_oracle_step *step)
{
    for (i64 row = 0; row < step->to->rows; row++) softmax_row(step, row);
}

/* ADD and MUL. */
static void oracle_pair(const struct vx_oracle_step *step)
{
    bool add = step->layer->op == VX_OP_ADD;
    for (i64 i = 0; i < cells_of(step); i++) {
        f64 a = step->x[0][i], b = step->x[1][i], ea = step->e[0][i], eb = step->e[1][i];
        step->y[i] = add ? a + b : a * b;
        step->bound[i] = add ? ea + eb : fabs(a) * eb + fabs(b) * ea + ea * eb + TINY;
        step->bound[i] += U * fabs(step->y[i]);
    }
}

static void oracle_concat(const struct vx_oracle_step *step)
{
    f64 *y = step->y, *bound = step->bound;
    for (i64 row = 0; row < step->to->rows; row++)
        for (i32 i = 0; i < step->layer->inputs_count; i++)
            for (i32 c = 0; c < step->channels[i]; c++) {
                *y++ = step->x[i][row * step->channels[i] + c];
                *bound++ = step->e[i][row * step->channels[i] + c];
            }
}

bool vx_oracle_pointwise(const struct vx_oracle_step *step)
{
    switch (step->layer->op) {
    case VX_OP_RELU:
    case VX_OP_LEAKY_RELU: oracle_relu(step); break;
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID:
    case VX_OP_SOFTPLUS:
    case VX_OP_TANH: oracle_curve(step); break;
    case VX_OP_AFFINE: oracle_affine(step); break;
    case VX_OP_SOFTMAX: oracle_softmax(step); break;
    case VX_OP_ADD:
    case VX_OP_MUL: oracle_pair(step); break;
    case VX_OP_CONCAT: oracle_concat(step); break;
    default: return false;
    }
    return true;
}
