/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

#include "engine/base/process/check.h"

#include <math.h>
#include <string.h>

#define CHANNELS_MAX 24
/* The most products of one convolution, if all voxels were neighbours. */
#define PRODUCTS_MAX 1500000

static i32 set_of(const struct vx_grammar *g, i32 value)
{
    return vx_grammar_at(g, value)->set;
}

static i64 rows_of(const struct vx_grammar *g, i32 value)
{
    return g->sets[set_of(g, value)].rows_max;
}

i32 vx_grammar_on(struct vx_grammar *g, i32 set)
{
    i32 found = -1, seen = 0;
    for (i32 i = 0; i < g->layers_count; i++)
        if (g->layers[i].set == set && !vx_grammar_below(g, ++seen)) found = i;
    return found;
}

/* A value on the set of x, with its channels if `alike`; x when there is no other. */
static i32 other(struct vx_grammar *g, i32 x, bool alike)
{
    i32 found = x, seen = 0;
    for (i32 i = VX_GRAMMAR_FEATS; i < g->layers_count; i++) {
        if (i == x || set_of(g, i) != set_of(g, x)) continue;
        if (alike && vx_grammar_at(g, i)->channels != vx_grammar_at(g, x)->channels)
            continue;
        if (!vx_grammar_below(g, ++seen)) found = i;
    }
    return found;
}

i32 vx_grammar_kernel(struct vx_grammar *g, i32 value, i32 axis, bool odd)
{
    static const i32 odds[] = {1, 3, 3, 3, 3, 5}, any[] = {1, 2, 2, 3, 3, 4};
    (void)value;
    if (g->network->flat[axis] && vx_grammar_chance(g, 80)) return 1;
    return odd ? odds[vx_grammar_below(g, 6)] : any[vx_grammar_below(g, 6)];
}

void vx_grammar_shrink(struct vx_grammar *g, i32 value, i32 kernel[3])
{
    i64 ci = vx_grammar_at(g, value)->channels;
    for (int axis = 0; axis < 3; axis++)
        if (rows_of(g, value) * ci * kernel[0] * kernel[1] * kernel[2] > PRODUCTS_MAX)
            kernel[axis] = kernel[axis] > 1 && kernel[axis] % 2 == 0 ? 2 : 1;
}

static i32 divisor(struct vx_grammar *g, i32 a, i32 b)
{
    i32 found = 1, seen = 1;
    for (i32 i = 2; i <= a; i++)
        if (a % i == 0 && b % i == 0 && !vx_grammar_below(g, ++seen)) found = i;
    return found;
}

/* Output channels and groups that are not too much work. */
static i32 channels_pick(struct vx_grammar *g, i64 work, i32 ci, i32 *groups)
{
    static const i32 usual[] = {1, 2, 3, 4, 4, 5, 6, 8, 8, 8, 12, 16, 17};
    i32 co = usual[vx_grammar_below(g, 13)];
    *groups = 1;
    if (vx_grammar_chance(g, 12)) { /* depthwise */
        *groups = ci;
        return ci * (ci <= CHANNELS_MAX / 2 && vx_grammar_chance(g, 30) ? 2 : 1);
    }
    while (co > 1 && work * co > PRODUCTS_MAX) co /= 2;
    if (vx_grammar_chance(g, 30)) *groups = divisor(g, ci, co);
    return co;
}

/* weight and bias of a layer that sums v * ci products. */
static void say_weights(struct vx_grammar *g, i32 v, const i32 kernel[3], i32 ci, i32 co)
{
    bool positive = g->network->positive, vio = vx_grammar_chance(g, 50);
    f32 size = positive ? 1.5f / (sqrtf((f32)v) * (f32)ci) : 1.5f / sqrtf((f32)(v * ci));
    struct vx_grammar_tensor weight = {
        .role = "weight", .low = positive ? size / 5 : -size, .high = size};
    if (kernel) vx_grammar_say(g, ",\"layout\":\"%s\"", vio ? "vio" : "oxyzi");
    const i64 vio_shape[5] = {v, ci, co}, linear_shape[5] = {co, ci};
    memcpy(weight.shape, kernel ? vio_shape : linear_shape, sizeof weight.shape);
    weight.rank = kernel ? 3 : 2;
    if (kernel && !vio) {
        const i64 oxyzi_shape[5] = {co, kernel[0], kernel[1], kernel[2], ci};
        memcpy(weight.shape, oxyzi_shape, sizeof weight.shape);
        weight.rank = 5;
    }
    vx_grammar_tensor(g, &weight);
    if (vx_grammar_chance(g, 25)) {
        vx_grammar_say(g, ",\"bias\":false");
        return;
    }
    const struct vx_grammar_tensor bias = {"bias", {co}, 1, positive ? 0 : -0.5f, 0.5f};
    vx_grammar_tensor(g, &bias);
}

i32 vx_grammar_conv(struct vx_grammar *g, const struct vx_grammar_conv *conv)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, conv->input);
    const struct vx_grammar_window *window = conv->window;
    const i32 *k = window->kernel, *d = window->dilation;
    i32 v = k[0] * k[1] * k[2], ci = input.channels, groups;
    i32 co = channels_pick(g, g->sets[conv->set].rows_max * v * ci, ci, &groups);
    bool dilated = d[0] > 1 || d[1] > 1 || d[2] > 1;
    vx_grammar_begin(g, conv->op, &conv->input, 1);
    vx_grammar_say(g, ",\"channels\":%d", co);
    if (conv->of < 0) {
        vx_grammar_say_axes(g, "kernel", k);
        if (dilated) vx_grammar_say_axes(g, "dilation", d);
    } else {
        vx_grammar_say(g, ",\"of\":\"l%d\"", conv->of);
    }
    if (conv->strided) vx_grammar_say_axes(g, "stride", window->stride);
    if (conv->onto >= 0) vx_grammar_say(g, ",\"onto\":\"l%d\"", conv->onto);
    if (conv->rule) vx_grammar_say(g, ",\"rule\":\"%s\"", conv->rule);
    if (conv->rule && !strcmp(conv->rule, "spconv"))
        vx_grammar_say_axes(g, "padding", window->padding);
    if (groups > 1 || vx_grammar_chance(g, 10))
        vx_grammar_say(g, ",\"groups\":%d", groups);
    say_weights(g, v, k, ci / groups, co);
    i32 made = vx_grammar_end(g, conv->set, co, g->network->positive && input.positive);
    g->layers[made].window = *window;
    return made;
}

i32 vx_grammar_linear(struct vx_grammar *g, i32 x, i32 channels)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    vx_grammar_begin(g, "linear", &x, 1);
    vx_grammar_say(g, ",\"channels\":%d", channels);
    say_weights(g, 1, NULL, input.channels, channels);
    return vx_grammar_end(g, input.set, channels, g->network->positive && input.positive);
}

static i32 subm(struct vx_grammar *g, i32 x)
{
    struct vx_grammar_window window = {{0}, {1, 1, 1}, {1, 1, 1}, {0}};
    for (i32 axis = 0; axis < 3; axis++) {
        window.kernel[axis] = vx_grammar_kernel(g, x, axis, true);
        if (vx_grammar_chance(g, 15)) window.dilation[axis] = 1 + vx_grammar_below(g, 3);
    }
    vx_grammar_shrink(g, x, window.kernel);
    const struct vx_grammar_conv conv = {.op = "subm_conv",
                                         .input = x,
                                         .set = set_of(g, x),
                                         .window = &window,
                                         .of = -1,
                                         .onto = -1};
    return vx_grammar_conv(g, &conv);
}

/* One of the curves, and affine; `restores`: those without negative results. */
static i32 activation(struct vx_grammar *g, i32 x, bool restores)
{
    static const char *const ops[] = {"relu", "sigmoid",    "softplus", "softmax", "tanh",
                                      "silu", "leaky_relu", "gelu",     "affine"};
    enum { RESTORING = 4, LEAKY = 6, AFFINE = 8 };
    static const f32 slopes[] = {0.01f, 0.2f, -0.5f, 1.5f};
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    bool positive = g->network->positive;
    i32 op = vx_grammar_below(g, restores ? RESTORING : (i32)VX_COUNT(ops));
    vx_grammar_begin(g, ops[op], &x, 1);
    if (op == LEAKY && vx_grammar_chance(g, 70))
        vx_grammar_say(g, ",\"slope\":%g", (f64)slopes[vx_grammar_below(g, 4)]);
    if (op == AFFINE) {
        f64 scale =
            0.1 * (positive ? 5 + vx_grammar_below(g, 10) : vx_grammar_below(g, 31) - 15);
        f64 shift = 0.1 * (vx_grammar_below(g, 11) - (positive ? 0 : 5));
        if (vx_grammar_chance(g, 80)) vx_grammar_say(g, ",\"scale\":%g", scale);
        if (vx_grammar_chance(g, 80)) vx_grammar_say(g, ",\"shift\":%g", shift);
    }
    bool stays = positive && input.positive;
    return vx_grammar_end(g, input.set, input.channels, op < RESTORING || stays);
}

static void say_eps(struct vx_grammar *g)
{
    if (vx_grammar_chance(g, 70))
        vx_grammar_say(g, ",\"eps\":%g", vx_grammar_chance(g, 50) ? 1e-3 : 0.1);
}

static i32 batch_norm(struct vx_grammar *g, i32 x)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    bool positive = g->network->positive;
    i64 c = input.channels;
    const struct vx_grammar_tensor tensors[] = {
        {"running_mean", {c}, 1, -1, positive ? 0 : 1},
        {"running_var", {c}, 1, 0.25f, 1.5f},
        {"weight", {c}, 1, positive ? 0.5f : -1.5f, 1.5f},
        {"bias", {c}, 1, positive ? 0 : -0.5f, 0.5f},
    };
    bool plain = vx_grammar_chance(g, 20);
    vx_grammar_begin(g, "batch_norm", &x, 1);
    say_eps(g);
    if (plain) vx_grammar_say(g, ",\"affine\":false");
    for (int i = 0; i < (plain ? 2 : 4); i++) vx_grammar_tensor(g, &tensors[i]);
    return vx_grammar_end(g, input.set, input.channels, positive && input.positive);
}

/* A norm over numbers of the request itself. */
static i32 norm(struct vx_grammar *g, i32 x)
{
    static const char *const ops[] = {"layer_norm", "group_norm", "instance_norm"};
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    i32 op = vx_grammar_below(g, 3);
    i64 c = input.channels;
    bool plain = vx_grammar_chance(g, 30);
    vx_grammar_begin(g, ops[op], &x, 1);
    if (op == 1) vx_grammar_say(g, ",\"groups\":%d", divisor(g, (i32)c, (i32)c));
    say_eps(g);
    if (plain) vx_grammar_say(g, ",\"affine\":false");
    const struct vx_grammar_tensor tensors[] = {{"weight", {c}, 1, -1.5f, 1.5f},
                                                {"bias", {c}, 1, -0.5f, 1}};
    for (int i = 0; i < (plain ? 0 : 2); i++) vx_grammar_tensor(g, &tensors[i]);
    return vx_grammar_end(g, input.set, input.channels, false);
}

static i32 concat(struct vx_grammar *g, i32 x)
{
    i32 inputs[4] = {x}, count = 1, channels = vx_grammar_at(g, x)->channels;
    bool positive = vx_grammar_at(g, x)->positive;
    for (i32 i = 0, most = 1 + vx_grammar_below(g, 3); i < most; i++) {
        i32 more = other(g, x, false);
        const struct vx_grammar_layer *layer = vx_grammar_at(g, more);
        if (channels + layer->channels > CHANNELS_MAX) continue;
        inputs[count++] = more;
        channels += layer->channels;
        positive = positive && layer->positive;
    }
    if (count == 1) return activation(g, x, false);
    i32 first = vx_grammar_below(g, count); /* in any order */
    inputs[0] = inputs[first];
    inputs[first] = x;
    vx_grammar_begin(g, "concat", inputs, count);
    return vx_grammar_end(g, set_of(g, x), channels, positive);
}

static i32 pair(struct vx_grammar *g, const char *op, i32 a, i32 b)
{
    i32 inputs[2] = {a, b};
    const struct vx_grammar_layer left = *vx_grammar_at(g, a);
    bool positive = left.positive && vx_grammar_at(g, b)->positive;
    vx_grammar_begin(g, op, inputs, 2);
    return vx_grammar_end(g, left.set, left.channels, positive);
}

/* x, times numbers between -1 and 1, so that products of products stay small. */
static i32 gate(struct vx_grammar *g, i32 x, i32 from)
{
    static const char *const ops[] = {"sigmoid", "tanh", "softmax"};
    i32 op = vx_grammar_below(g, 3);
    const struct vx_grammar_layer input = *vx_grammar_at(g, from);
    vx_grammar_begin(g, ops[op], &from, 1);
    i32 factor = vx_grammar_end(g, input.set, input.channels, op != 1 || input.positive);
    return vx_grammar_chance(g, 50) ? pair(g, "mul", x, factor)
                                    : pair(g, "mul", factor, x);
}

i32 vx_grammar_join(struct vx_grammar *g, i32 a, i32 b)
{
    i32 ca = vx_grammar_at(g, a)->channels, cb = vx_grammar_at(g, b)->channels;
    i32 inputs[2] = {a, b};
    bool positive = vx_grammar_at(g, a)->positive && vx_grammar_at(g, b)->positive;
    if (ca + cb <= CHANNELS_MAX && vx_grammar_chance(g, 50)) {
        vx_grammar_begin(g, "concat", inputs, 2);
        return vx_grammar_end(g, set_of(g, a), ca + cb, positive);
    }
    if (ca != cb) a = vx_grammar_linear(g, a, cb);
    return pair(g, "add", a, b);
}

i32 vx_grammar_excite(struct vx_grammar *g, i32 x, i32 y)
{
    if (vx_grammar_chance(g, 30)) return vx_grammar_join(g, x, y);
    if (vx_grammar_at(g, y)->channels != vx_grammar_at(g, x)->channels)
        y = vx_grammar_linear(g, y, vx_grammar_at(g, x)->channels);
    return gate(g, x, y);
}

i32 vx_grammar_same(struct vx_grammar *g, i32 x)
{
    const struct vx_grammar_layer *layer = vx_grammar_at(g, x);
    if (g->network->positive && !layer->positive && vx_grammar_chance(g, 85))
        return activation(g, x, true);
    i32 pick = vx_grammar_below(g, 100);
    if (pick < 26) return subm(g, x);
    if (pick < 34) return vx_grammar_linear(g, x, 1 + vx_grammar_below(g, 12));
    if (pick < 42) return batch_norm(g, x);
    if (pick < 54) return norm(g, x);
    if (pick < 74) return activation(g, x, false);
    if (pick < 81) return pair(g, "add", x, other(g, x, true));
    if (pick < 87) return gate(g, x, other(g, x, true));
    if (pick < 93) return concat(g, x);
    if (pick < 96) return vx_grammar_squeeze(g, x);
    return vx_grammar_stay(g, x);
}
