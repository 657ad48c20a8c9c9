/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/sets.h"

#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

/* Two steps of FLOOR are one of the product of their strides.  FLOOR loses no sample. */
static struct vx_set_key key_in_one(const struct vx_set *sets,
                                    const struct vx_set_key *key)
{
    struct vx_set_key one = *key;
    while (one.rule == VX_SET_SAMPLES && sets[one.from].key.rule == VX_SET_FLOOR)
        one.from = sets[one.from].key.from;
    while (one.rule == VX_SET_FLOOR && sets[one.from].key.rule == VX_SET_FLOOR) {
        const struct vx_set_key *from = &sets[one.from].key;
        for (int axis = 0; axis < 3; axis++) one.stride[axis] *= from->stride[axis];
        one.from = from->from;
    }
    return one;
}

i32 vx_sets_find(const struct vx_set *sets, i32 count, const struct vx_set_key *key)
{
    const struct vx_set_key wanted = key_in_one(sets, key);
    for (i32 i = 0; i < count; i++) {
        const struct vx_set_key one = key_in_one(sets, &sets[i].key);
        if (!memcmp(&one, &wanted, sizeof one)) return i;
    }
    return -1;
}

static i32 common_divisor(i32 a, i32 b)
{
    while (b) {
        i32 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Rules by which one voxel becomes finer ones. */
static bool makes_children(const struct vx_set_key *key)
{
    return key->rule == VX_SET_EXPAND || key->rule == VX_SET_LIVE;
}

static void set_stride(struct vx_set *set, const struct vx_set *from)
{
    const struct vx_set_key *key = &set->key;
    for (int axis = 0; axis < 3; axis++) {
        bool finer = makes_children(key);
        i32 down = from->down[axis] * (finer ? 1 : key->stride[axis]);
        i32 up = from->up[axis] * (finer ? key->stride[axis] : 1);
        i32 common = common_divisor(down, up);
        set->down[axis] = down / common;
        set->up[axis] = up / common;
        if (key->rule == VX_SET_SAMPLES) set->down[axis] = 0, set->up[axis] = 1;
    }
}

static i64 divide_up(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

i32 vx_set_size(const struct vx_set_key *key, int axis, i32 from)
{
    const i32 stride = key->stride[axis];
    if (key->rule == VX_SET_FLOOR) return (i32)divide_up(from, stride);
    if (makes_children(key)) return 0;
    if (key->rule == VX_SET_SAMPLES) return 1;
    if (key->rule != VX_SET_SPCONV) return from;
    const i64 reach = (i64)key->dilation[axis] * (key->kernel[axis] - 1);
    const i64 left = from + 2 * (i64)key->padding[axis] - reach - 1;
    return left < 0 ? -1 : (i32)(left / stride) + 1;
}

static void set_shape(struct vx_set *set, const struct vx_set *from)
{
    for (int axis = 0; axis < 3; axis++)
        set->shape[axis] = set->key.rule == VX_SET_SPCONV
                               ? set->key.shape[axis]
                               : vx_set_size(&set->key, axis, from->shape[axis]);
}

/* A voxel of a chain of windows depends on a window of voxels of its base: of `reach`,
 * every `pace`.  FLOOR is a window of the stride. */
static void set_reach(struct vx_set *set, const struct vx_set *from, i32 from_index)
{
    const struct vx_set_key *key = &set->key;
    set->base = from->base;
    for (int axis = 0; axis < 3; axis++) {
        i32 last = (key->kernel[axis] - 1) * key->dilation[axis];
        if (key->rule == VX_SET_FLOOR) last = key->stride[axis] - 1;
        set->reach[axis] = from->reach[axis] + last * from->pace[axis];
        set->pace[axis] = from->pace[axis] * key->stride[axis];
    }
    if (!makes_children(key)) return;
    set->base = from_index;
    for (int axis = 0; axis < 3; axis++) {
        set->reach[axis] = (key->kernel[axis] - 1) * key->dilation[axis] + 1;
        set->pace[axis] = 1;
    }
}

void vx_set_init(struct vx_set *set, const struct vx_set *sets,
                 const struct vx_set_key *key, i32 layer)
{
    *set = (struct vx_set){.key = *key, .layer = layer};
    if (key->rule == VX_SET_REQUEST) {
        for (int axis = 0; axis < 3; axis++)
            set->down[axis] = set->up[axis] = 1, set->reach[axis] = set->pace[axis] = 1;
        return;
    }
    VX_ASSERT(key->from >= 0);
    const struct vx_set *from = &sets[key->from];
    set_stride(set, from);
    set_shape(set, from);
    set_reach(set, from, key->from);
    set->stage = from->stage;
}

/* a * b, at most VX_VOXELS_MAX; both are at least 1, or a is 0. */
static i64 rows_times(i64 a, i64 b)
{
    return a > VX_VOXELS_MAX / b ? VX_VOXELS_MAX : a * b;
}

/* The most rows that follow from one row of the set that it is made from. */
static i64 rows_each(const struct vx_set_key *key)
{
    i64 rows = 1;
    for (int axis = 0; axis < 3; axis++) {
        i32 wide = (key->kernel[axis] - 1) * key->dilation[axis] + 1;
        if (makes_children(key)) rows *= key->kernel[axis];
        if (key->rule == VX_SET_SPCONV) rows *= divide_up(wide, key->stride[axis]);
    }
    return rows;
}

i64 vx_set_candidates_max(const struct vx_set *set, i64 rows)
{
    bool samples = set->key.rule == VX_SET_SAMPLES;
    if (samples && rows > VX_SAMPLE_MAX + 1) return VX_SAMPLE_MAX + 1;
    return rows_times(rows, rows_each(&set->key));
}

void vx_sets_rows_max(const struct vx_set *sets, i32 count, i64 n, i64 rows[VX_SETS_MAX])
{
    VX_ASSERT(n >= 0);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    rows[0] = n;
    for (i32 i = 1; i < count; i++) {
        const struct vx_set *set = &sets[i];
        i64 local = vx_set_candidates_max(set, rows[set->key.from]);
        rows[i] = rows[set->base];
        for (int axis = 0; axis < 3; axis++)
            rows[i] = rows_times(rows[i], divide_up(set->reach[axis], set->pace[axis]));
        if (local < rows[i]) rows[i] = local;
        if (set->rows_max && set->rows_max < rows[i]) rows[i] = set->rows_max;
    }
}

bool vx_set_is_unbounded(const struct vx_set *set)
{
    bool children = set->key.rule == VX_SET_EXPAND || set->key.rule == VX_SET_LIVE;
    return children && !set->rows_max;
}

const char *vx_set_stride_text(const struct vx_set *set, char out[VX_SET_STRIDE_BYTES])
{
    size_t used = 0;
    for (int axis = 0; axis < 3; axis++) {
        const char *between = axis ? "x" : "";
        used += (size_t)snprintf(out + used, VX_SET_STRIDE_BYTES - used, "%s%d", between,
                                 set->down[axis]);
        if (set->up[axis] > 1)
            used += (size_t)snprintf(out + used, VX_SET_STRIDE_BYTES - used, "/%d",
                                     set->up[axis]);
    }
    return out;
}
