/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

#include "engine/base/limits.h"

#include <string.h>

/* A stride is as large as voxels of one request only sometimes. */
#define STRIDE_SMALL 5
/* Of a set, so that more strides can follow. */
#define SET_STRIDE_MAX 8192

/* Writes the stride from the points to the voxels; false: none leads there. */
static bool stride_between(const struct vx_grammar_set *points,
                           const struct vx_grammar_set *voxels, i32 stride[3])
{
    for (int axis = 0; axis < 3; axis++) {
        i64 steps = (i64)voxels->down[axis] * points->up[axis];
        i64 step = (i64)voxels->up[axis] * points->down[axis];
        if (!steps || !step || steps % step) return false;
        if (steps / step > VX_POINT_STRIDE_MAX) return false;
        stride[axis] = (i32)(steps / step);
    }
    return true;
}

/* A layer whose set can take the points of a set, or -1. */
static i32 coarser(struct vx_grammar *g, i32 set)
{
    i32 found = -1, count = 0, stride[3];
    for (i32 i = 0; i < g->layers_count; i++) {
        if (g->layers[i].last != VX_GRAMMAR_PLAIN) continue;
        if (!stride_between(&g->sets[set], &g->sets[g->layers[i].set], stride)) continue;
        if (!vx_grammar_below(g, ++count)) found = i;
    }
    return found;
}

static void pick_stride(struct vx_grammar *g, const struct vx_grammar_set *from,
                        i32 stride[3])
{
    static const i32 wide[] = {8, 16, 60, 343, 1000, VX_POINT_STRIDE_MAX};
    i32 common = 1 + vx_grammar_below(g, STRIDE_SMALL);
    bool equal = vx_grammar_chance(g, 50);
    for (int axis = 0; axis < 3; axis++) {
        stride[axis] = equal ? common : 1 + vx_grammar_below(g, STRIDE_SMALL);
        if (vx_grammar_chance(g, 15)) stride[axis] = wide[vx_grammar_below(g, 6)];
        if ((i64)from->down[axis] * stride[axis] > SET_STRIDE_MAX) stride[axis] = 1;
    }
}

i32 vx_grammar_voxelize(struct vx_grammar *g, i32 x)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, x);
    struct vx_grammar_window window = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    i32 onto = vx_grammar_chance(g, 40) ? coarser(g, input.set) : -1, set;
    if (onto < 0) pick_stride(g, &g->sets[input.set], window.stride);
    set = onto < 0 ? vx_grammar_set_make(g, VX_SET_FLOOR, input.set, &window)
                   : g->layers[onto].set;
    vx_grammar_begin(g, "voxelize", &x, 1);
    if (onto < 0)
        vx_grammar_say_axes(g, "stride", window.stride);
    else
        vx_grammar_say(g, ",\"onto\":\"l%d\"", onto);
    return vx_grammar_end(g, set, input.channels, input.positive);
}

i32 vx_grammar_devoxelize(struct vx_grammar *g, i32 y, i32 set)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, y);
    i32 onto = set || vx_grammar_chance(g, 30) ? vx_grammar_on(g, set) : -1, stride[3];
    if (set && onto < 0) return -1;
    if (!stride_between(&g->sets[set], &g->sets[input.set], stride)) return -1;
    vx_grammar_begin(g, "devoxelize", &y, 1);
    if (onto >= 0) vx_grammar_say(g, ",\"onto\":\"l%d\"", onto);
    vx_grammar_say(g, ",\"mode\":\"%s\"",
                   vx_grammar_chance(g, 70) ? "trilinear" : "nearest");
    return vx_grammar_end(g, set, input.channels, input.positive);
}
