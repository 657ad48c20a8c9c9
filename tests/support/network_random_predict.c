/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

/* A norm of one kind or the other puts the mean of the logits at 0. */
i32 vx_grammar_logits(struct vx_grammar *g, i32 x, i32 count)
{
    bool children = count > 1;
    i32 y = vx_grammar_linear(g, x, count), set = vx_grammar_at(g, y)->set;
    vx_grammar_begin(g, children ? "layer_norm" : "instance_norm", &y, 1);
    vx_grammar_say(g, ",\"affine\":false");
    y = vx_grammar_end(g, set, count, false);
    if (children && vx_grammar_chance(g, 60)) return y;
    /* One voxel has no deviation from its mean: the shift decides. */
    static const f64 shifts[] = {0.21, 0.21, 0.21, -0.17, 1.3, 9, -9};
    f64 shift = shifts[vx_grammar_below(g, (i32)VX_COUNT(shifts))];
    vx_grammar_begin(g, "affine", &y, 1);
    vx_grammar_say(g, ",\"shift\":%g", shift);
    return vx_grammar_end(g, set, count, false);
}

i32 vx_grammar_prune(struct vx_grammar *g, i32 x)
{
    static const i32 tops[] = {1, 2, 5, 30};
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    struct vx_grammar_set set = {.rule = VX_SET_KEEP,
                                 .from = input.set,
                                 .window = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}}};
    if (vx_grammar_chance(g, 40)) set.top = tops[vx_grammar_below(g, 4)];
    set.by = vx_grammar_logits(g, x, 1);
    vx_grammar_begin(g, "prune", &x, 1);
    vx_grammar_say(g, ",\"keep\":\"l%d\"", set.by);
    if (set.top) vx_grammar_say(g, ",\"top\":%d", set.top);
    return vx_grammar_end(g, vx_grammar_set_find(g, &set), input.channels,
                          input.positive);
}
