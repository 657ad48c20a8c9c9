/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

#include "engine/base/process/check.h"

#include <string.h>

/* Channels of a voxel with all its children. */
#define BLOCK_CHANNELS_MAX 64
#define RATIO_MAX          4096

static const struct vx_grammar_window plain_window = {
    {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};

static i32 product(const i32 axes[3])
{
    return axes[0] * axes[1] * axes[2];
}

static bool all_are(const i32 axes[3], i32 value)
{
    return axes[0] == value && axes[1] == value && axes[2] == value;
}

/* The rows that one row of `from` can make. */
static i64 rows_each(enum vx_set_rule rule, const struct vx_grammar_window *window)
{
    i64 rows = 1;
    for (int axis = 0; axis < 3; axis++) {
        i32 k = window->kernel[axis], s = window->stride[axis];
        if (rule == VX_SET_EXPAND || rule == VX_SET_LIVE) rows *= k;
        if (rule == VX_SET_SPCONV)
            rows *= ((k - 1) * window->dilation[axis] + 1 + s - 1) / s;
    }
    return rows;
}

static bool fits(const struct vx_grammar *g, enum vx_set_rule rule, i32 from,
                 const struct vx_grammar_window *window)
{
    return g->sets[from].rows_max * rows_each(rule, window) <= VX_RANDOM_ROWS_MAX;
}

static void set_fill(struct vx_grammar_set *set, const struct vx_grammar_set *from)
{
    const struct vx_grammar_window *w = &set->window;
    set->rows_max = from->rows_max * rows_each(set->rule, w);
    for (int axis = 0; axis < 3; axis++) {
        i32 d = from->shape[axis], s = w->stride[axis];
        i32 reach = (w->kernel[axis] - 1) * w->dilation[axis];
        if (set->rule == VX_SET_FLOOR) set->shape[axis] = (d + s - 1) / s;
        if (set->rule == VX_SET_SPCONV)
            set->shape[axis] = (d + 2 * w->padding[axis] - reach - 1) / s + 1;
        bool finer = set->rule == VX_SET_EXPAND || set->rule == VX_SET_LIVE;
        if (set->rule == VX_SET_KEEP) set->shape[axis] = d;
        i32 down = from->down[axis] * (finer ? 1 : s);
        i32 up = from->up[axis] * (finer ? s : 1);
        for (i32 f = 4; f > 1; f--)
            while (down % f == 0 && up % f == 0) down /= f, up /= f;
        set->down[axis] = down;
        set->up[axis] = up;
        if (set->rule != VX_SET_SAMPLES) continue;
        set->shape[axis] = set->up[axis] = 1;
        set->down[axis] = 0;
    }
}

i32 vx_grammar_set_find(struct vx_grammar *g, const struct vx_grammar_set *set)
{
    for (i32 i = 1; i < g->sets_count; i++)
        if (g->sets[i].rule == set->rule && g->sets[i].from == set->from &&
            g->sets[i].by == set->by && g->sets[i].top == set->top &&
            !memcmp(&g->sets[i].window, &set->window, sizeof set->window))
            return i;
    VX_ASSERT(g->sets_count < VX_GRAMMAR_SETS);
    g->sets[g->sets_count] = *set;
    set_fill(&g->sets[g->sets_count], &g->sets[set->from]);
    return g->sets_count++;
}

i32 vx_grammar_set_make(struct vx_grammar *g, enum vx_set_rule rule, i32 from,
                        const struct vx_grammar_window *window)
{
    struct vx_grammar_set set = {.rule = rule, .from = from, .window = *window};
    bool itself = all_are(window->kernel, 1) && all_are(window->padding, 0);
    if (rule == VX_SET_SAMPLES) itself = false;
    if (all_are(window->stride, 1) && (rule == VX_SET_FLOOR || itself)) return from;
    while (rule == VX_SET_SAMPLES && g->sets[set.from].rule == VX_SET_FLOOR)
        set.from = g->sets[set.from].from; /* it loses no sample */
    if (rule == VX_SET_FLOOR) {
        set.window = plain_window;
        memcpy(set.window.stride, window->stride, sizeof window->stride);
    }
    while (rule == VX_SET_FLOOR && g->sets[set.from].rule == VX_SET_FLOOR) {
        const struct vx_grammar_set *step = &g->sets[set.from]; /* two steps are one */
        for (int axis = 0; axis < 3; axis++)
            set.window.stride[axis] *= step->window.stride[axis];
        set.from = step->from;
    }
    for (int axis = 0; axis < 3; axis++)
        if (set.window.kernel[axis] == 1) set.window.dilation[axis] = 1;
    return vx_grammar_set_find(g, &set);
}

static void centre(struct vx_grammar_window *window)
{
    for (int axis = 0; axis < 3; axis++) {
        i32 k = window->kernel[axis];
        window->padding[axis] = k % 2 ? k / 2 * window->dilation[axis] : 0;
    }
}

static void pick_stride(struct vx_grammar *g, i32 x, i32 stride[3])
{
    static const i32 strides[] = {1, 2, 2, 2, 2, 2, 3, 4};
    const struct vx_grammar_set *set = &g->sets[vx_grammar_at(g, x)->set];
    i32 common = strides[1 + vx_grammar_below(g, 7)];
    bool equal = vx_grammar_chance(g, 60);
    for (int axis = 0; axis < 3; axis++) {
        stride[axis] = equal ? common : strides[vx_grammar_below(g, 8)];
        if (g->network->flat[axis]) stride[axis] = 1;
        if (set->down[axis] > RATIO_MAX) stride[axis] = 1;
    }
    for (int axis = 0; all_are(stride, 1) && axis < 3; axis++)
        if (!g->network->flat[axis]) stride[axis] = 2;
}

/* Kernel, dilation and, for spconv, padding around a stride that is given. */
static void pick_window(struct vx_grammar *g, i32 x, enum vx_set_rule rule,
                        struct vx_grammar_window *window)
{
    const struct vx_grammar_set *from = &g->sets[vx_grammar_at(g, x)->set];
    bool blocks = vx_grammar_chance(g, 45);
    for (i32 axis = 0; axis < 3; axis++) {
        i32 s = window->stride[axis];
        window->kernel[axis] = blocks ? s : vx_grammar_kernel(g, x, axis, false);
        window->dilation[axis] = 1;
        if (!blocks && vx_grammar_chance(g, 12)) window->dilation[axis] = 2;
    }
    if (!blocks) vx_grammar_shrink(g, x, window->kernel);
    centre(window);
    if (rule != VX_SET_SPCONV) return;
    if (blocks) memset(window->padding, 0, sizeof window->padding);
    if (!fits(g, rule, vx_grammar_at(g, x)->set, window)) {
        memcpy(window->kernel, window->stride, sizeof window->kernel);
        for (int axis = 0; axis < 3; axis++) window->dilation[axis] = 1;
    }
    for (int axis = 0; axis < 3; axis++) {
        i32 *padding = &window->padding[axis];
        const i32 reach = (window->kernel[axis] - 1) * window->dilation[axis];
        if (vx_grammar_chance(g, 20)) *padding = vx_grammar_below(g, 4);
        while (from->shape[axis] + 2 * *padding <= reach) ++*padding;
        while ((from->shape[axis] + 2 * *padding - reach - 1) / window->stride[axis] >
               VX_AXIS_MAX)
            --*padding; /* its shape would exceed the range of coordinates */
    }
}

static i32 pool(struct vx_grammar *g, i32 x, enum vx_set_rule rule,
                const struct vx_grammar_window *window)
{
    static const char *const ops[] = {"max_pool", "avg_pool", "sum_pool"};
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    struct vx_grammar_window block = *window;
    if (rule == VX_SET_FLOOR &&
        !memcmp(block.kernel, block.stride, sizeof block.kernel)) {
        memcpy(block.dilation, plain_window.dilation, sizeof block.dilation);
        memcpy(block.padding, plain_window.padding, sizeof block.padding);
        window = &block; /* its voxels, without dilation */
    }
    i32 set = vx_grammar_set_make(g, rule, input.set, window);
    vx_grammar_begin(g, ops[vx_grammar_below(g, 3)], &x, 1);
    vx_grammar_say_axes(g, "kernel", window->kernel);
    vx_grammar_say_axes(g, "stride", window->stride);
    if (!all_are(window->dilation, 1))
        vx_grammar_say_axes(g, "dilation", window->dilation);
    vx_grammar_say(g, ",\"rule\":\"%s\"", rule == VX_SET_FLOOR ? "floor" : "spconv");
    if (rule == VX_SET_SPCONV) vx_grammar_say_axes(g, "padding", window->padding);
    i32 made = vx_grammar_end(g, set, input.channels, input.positive);
    g->layers[made].window = *window;
    return made;
}

static i32 sparse_conv(struct vx_grammar *g, i32 x, enum vx_set_rule rule,
                       const struct vx_grammar_window *window)
{
    const struct vx_grammar_conv conv = {
        .op = "sparse_conv",
        .input = x,
        .set = vx_grammar_set_make(g, rule, vx_grammar_at(g, x)->set, window),
        .window = window,
        .rule = rule == VX_SET_FLOOR ? "floor" : "spconv",
        .of = -1,
        .onto = -1,
        .strided = true};
    return vx_grammar_conv(g, &conv);
}

/* DOWNSAMPLE or SPACE_TO_CHANNEL. */
static i32 block_down(struct vx_grammar *g, i32 x, const i32 stride[3])
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    struct vx_grammar_window window = plain_window;
    bool wide = input.channels * product(stride) > BLOCK_CHANNELS_MAX;
    bool mean = wide || vx_grammar_chance(g, 45);
    memcpy(window.stride, stride, sizeof window.stride);
    memcpy(window.kernel, stride, sizeof window.kernel);
    i32 set = vx_grammar_set_make(g, VX_SET_FLOOR, input.set, &window);
    vx_grammar_begin(g, mean ? "downsample" : "space_to_channel", &x, 1);
    vx_grammar_say_axes(g, "stride", stride);
    i32 made = vx_grammar_end(g, set, input.channels * (mean ? 1 : product(stride)),
                              input.positive);
    g->layers[made].window = window;
    return made;
}

i32 vx_grammar_down(struct vx_grammar *g, i32 x)
{
    struct vx_grammar_window window = plain_window;
    const i32 end = g->sets[vx_grammar_at(g, x)->set].shape[0];
    bool spconv = end && vx_grammar_chance(g, 65);
    enum vx_set_rule rule = spconv ? VX_SET_SPCONV : VX_SET_FLOOR;
    pick_stride(g, x, window.stride);
    if (!spconv && vx_grammar_chance(g, 30)) return block_down(g, x, window.stride);
    if (spconv && vx_grammar_chance(g, 12)) /* a set that only grows */
        memcpy(window.stride, plain_window.stride, sizeof window.stride);
    pick_window(g, x, rule, &window);
    bool itself = all_are(window.kernel, 1) && all_are(window.padding, 0);
    if (itself && all_are(window.stride, 1)) /* the next voxels, within the range */
        *(end + 2 > VX_AXIS_MAX ? &window.kernel[0] : &window.padding[0]) += 1;
    if (vx_grammar_chance(g, 40)) return pool(g, x, rule, &window);
    return sparse_conv(g, x, rule, &window);
}

i32 vx_grammar_down_by(struct vx_grammar *g, i32 y, const i32 stride[3])
{
    struct vx_grammar_window window = plain_window;
    memcpy(window.stride, stride, sizeof window.stride);
    if (all_are(stride, 1) && vx_grammar_chance(g, 80)) return y;
    if (vx_grammar_chance(g, 40)) return block_down(g, y, stride);
    pick_window(g, y, VX_SET_FLOOR, &window);
    if (vx_grammar_chance(g, 50)) return pool(g, y, VX_SET_FLOOR, &window);
    return sparse_conv(g, y, VX_SET_FLOOR, &window);
}

i32 vx_grammar_beside(struct vx_grammar *g, i32 down)
{
    const struct vx_grammar_layer *first = &g->layers[down];
    const struct vx_grammar_set *set = &g->sets[first->set];
    i32 x = vx_grammar_on(g, vx_grammar_at(g, first->input)->set);
    if (x < 0) x = first->input;
    struct vx_grammar_window window = first->window;
    if (first->set == vx_grammar_at(g, x)->set) return -1;
    if (set->rule == VX_SET_FLOOR && vx_grammar_chance(g, 30))
        return block_down(g, x, window.stride);
    if (set->rule == VX_SET_FLOOR) pick_window(g, x, VX_SET_FLOOR, &window);
    if (vx_grammar_chance(g, 50)) return pool(g, x, set->rule, &window);
    return sparse_conv(g, x, set->rule, &window);
}

/* A second layer on the set of predicted children, and both together. */
static i32 twice(struct vx_grammar *g, i32 y, i32 made, const struct vx_grammar_set *set)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, y);
    vx_grammar_begin(g, "upsample", &y, 1);
    vx_grammar_say_axes(g, "stride", set->window.stride);
    vx_grammar_say(g, ",\"occupancy\":\"l%d\"", set->by);
    i32 other =
        vx_grammar_end(g, vx_grammar_at(g, made)->set, input.channels, input.positive);
    return vx_grammar_join(g, made, other);
}

/* Channels of a child that a GPU computes apart (engine/network/fuse.h), and the most children
 * that a network of this size has time for. */
#define LIVE_CHANNELS 16
#define LIVE_CHILDREN 4

/* UPSAMPLE or CHANNEL_TO_SPACE, onto a layer or, with -1, to a new set. */
static i32 finer(struct vx_grammar *g, i32 y, i32 onto, const i32 stride[3])
{
    static const char *const ops[] = {"upsample", "channel_to_space"};
    i32 children = product(stride), op = vx_grammar_below(g, 2);
    struct vx_grammar_window window = plain_window;
    memcpy(window.stride, stride, sizeof window.stride);
    memcpy(window.kernel, stride, sizeof window.kernel);
    if (op && children > BLOCK_CHANNELS_MAX) op = 0;
    if (op && vx_grammar_at(g, y)->channels % children) {
        i32 most = BLOCK_CHANNELS_MAX / children;
        y = vx_grammar_linear(g, y,
                              children * (1 + vx_grammar_below(g, most < 8 ? most : 8)));
    }
    bool live = onto < 0 && g->network->predicts && children <= BLOCK_CHANNELS_MAX &&
                vx_grammar_chance(g, 60);
    if (op && live && children <= LIVE_CHILDREN && vx_grammar_chance(g, 50))
        y = vx_grammar_linear(g, y, children * LIVE_CHANNELS);
    const struct vx_grammar_layer input = *vx_grammar_at(g, y);
    struct vx_grammar_set made = {
        .rule = VX_SET_LIVE, .from = input.set, .window = window};
    if (live) made.by = vx_grammar_logits(g, y, children);
    i32 set = onto >= 0 ? g->layers[onto].set
              : live    ? vx_grammar_set_find(g, &made)
                        : vx_grammar_set_make(g, VX_SET_EXPAND, input.set, &window);
    vx_grammar_begin(g, ops[op], &y, 1);
    vx_grammar_say_axes(g, "stride", stride);
    if (onto >= 0) vx_grammar_say(g, ",\"onto\":\"l%d\"", onto);
    if (live) vx_grammar_say(g, ",\"occupancy\":\"l%d\"", made.by);
    i32 z = vx_grammar_end(g, set, input.channels / (op ? children : 1), input.positive);
    return live && vx_grammar_chance(g, 30) ? twice(g, y, z, &made) : z;
}

static i32 transposed(struct vx_grammar *g, i32 y, i32 onto,
                      const struct vx_grammar_window *window)
{
    i32 from = vx_grammar_at(g, y)->set;
    const struct vx_grammar_conv conv = {
        .op = "transposed_conv",
        .input = y,
        .set = onto >= 0 ? g->layers[onto].set
                         : vx_grammar_set_make(g, VX_SET_EXPAND, from, window),
        .window = window,
        .of = -1,
        .onto = onto,
        .strided = true};
    return vx_grammar_conv(g, &conv);
}

static void transposed_window(struct vx_grammar *g, i32 y, const i32 stride[3],
                              struct vx_grammar_window *window)
{
    bool blocks = vx_grammar_chance(g, 40);
    *window = plain_window;
    for (i32 axis = 0; axis < 3; axis++) {
        window->stride[axis] = stride[axis];
        window->kernel[axis] =
            blocks ? stride[axis] : vx_grammar_kernel(g, y, axis, false);
        if (!blocks && vx_grammar_chance(g, 10)) window->dilation[axis] = 2;
    }
    vx_grammar_shrink(g, y, window->kernel);
    centre(window);
}

i32 vx_grammar_onto(struct vx_grammar *g, i32 y, i32 set, const i32 stride[3])
{
    i32 onto = vx_grammar_on(g, set);
    struct vx_grammar_window window;
    if (onto < 0) return -1;
    if (vx_grammar_chance(g, 60)) return finer(g, y, onto, stride);
    transposed_window(g, y, stride, &window);
    return transposed(g, y, onto, &window);
}

i32 vx_grammar_expand(struct vx_grammar *g, i32 x, const i32 stride[3])
{
    struct vx_grammar_window window;
    i32 from = vx_grammar_at(g, x)->set;
    transposed_window(g, x, stride, &window);
    bool itself = all_are(stride, 1) && all_are(window.kernel, 1);
    if (!itself && fits(g, VX_SET_EXPAND, from, &window) && vx_grammar_chance(g, 50))
        return transposed(g, x, -1, &window);
    memcpy(window.kernel, stride, sizeof window.kernel);
    bool roomy = fits(g, VX_SET_EXPAND, from, &window);
    return roomy && !all_are(stride, 1) ? finer(g, x, -1, stride) : -1;
}

/* To a new, finer set, and from there onto the one that is wanted. */
static i32 up_generative(struct vx_grammar *g, i32 y, i32 set, const i32 stride[3])
{
    if (vx_grammar_on(g, set) < 0) return -1;
    i32 made = vx_grammar_expand(g, y, stride);
    if (made < 0) return -1;
    if (vx_grammar_chance(g, 50)) made = vx_grammar_same(g, made);
    return vx_grammar_onto(g, made, set, plain_window.stride);
}

i32 vx_grammar_up(struct vx_grammar *g, i32 y, i32 down)
{
    const struct vx_grammar_layer *first = &g->layers[down];
    const struct vx_grammar_window window = first->window;
    i32 set = vx_grammar_at(g, first->input)->set, made = -1;
    bool one_parent = !memcmp(window.kernel, window.stride, sizeof window.kernel) &&
                      all_are(window.padding, 0) && all_are(window.dilation, 1);
    if (vx_grammar_chance(g, 45)) made = vx_grammar_onto(g, y, set, window.stride);
    if (made < 0 && vx_grammar_chance(g, 20))
        made = up_generative(g, y, set, window.stride);
    if (made >= 0) return made;
    if (one_parent && vx_grammar_chance(g, 50)) {
        const struct vx_grammar_layer input = *vx_grammar_at(g, y);
        vx_grammar_begin(g, "unpool", &y, 1);
        vx_grammar_say(g, ",\"of\":\"l%d\"", down);
        return vx_grammar_end(g, set, input.channels, input.positive);
    }
    const struct vx_grammar_conv conv = {.op = "inverse_conv",
                                         .input = y,
                                         .set = set,
                                         .window = &window,
                                         .of = down,
                                         .onto = -1};
    return vx_grammar_conv(g, &conv);
}

i32 vx_grammar_stay(struct vx_grammar *g, i32 x)
{
    struct vx_grammar_window window = plain_window;
    i32 made = -1, set = vx_grammar_at(g, x)->set;
    if (vx_grammar_chance(g, 30)) made = vx_grammar_onto(g, x, set, plain_window.stride);
    if (made >= 0) return made;
    pick_window(g, x, VX_SET_FLOOR, &window);
    if (vx_grammar_chance(g, 50)) return pool(g, x, VX_SET_FLOOR, &window);
    return sparse_conv(g, x, VX_SET_FLOOR, &window);
}

i32 vx_grammar_squeeze(struct vx_grammar *g, i32 x)
{
    static const char *const modes[] = {"max", "avg", "sum"};
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    if (g->sets[input.set].rule == VX_SET_SAMPLES) return vx_grammar_stay(g, x);
    i32 set = vx_grammar_set_make(g, VX_SET_SAMPLES, input.set, &plain_window);
    vx_grammar_begin(g, "global_pool", &x, 1);
    vx_grammar_say(g, ",\"mode\":\"%s\"", modes[vx_grammar_below(g, 3)]);
    i32 pool = vx_grammar_end(g, set, input.channels, input.positive), y = pool;
    for (i32 i = vx_grammar_below(g, 3); i > 0; i--) y = vx_grammar_same(g, y);
    const struct vx_grammar_layer squeezed = *vx_grammar_at(g, y);
    vx_grammar_begin(g, "unpool", &y, 1);
    vx_grammar_say(g, ",\"of\":\"l%d\"", pool);
    y = vx_grammar_end(g, input.set, squeezed.channels, squeezed.positive);
    return vx_grammar_excite(g, x, y);
}
