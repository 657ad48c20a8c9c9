/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle_sets.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <stdlib.h>
#include <string.h>

#define EMPTY UINT64_MAX

static void *take(size_t count, size_t size)
{
    void *memory = vx_alloc_zero(count * size + 1);
    VX_ASSERT(memory);
    return memory;
}

static i64 floor_div(i64 a, i64 b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Coordinates as one number, in the order of (sample, x, y, z).  False: beyond the range
 * of coordinates, where no voxel exists. */
static bool pack(i32 sample, const i64 at[3], u64 *key)
{
    *key = (u64)sample;
    for (int axis = 0; axis < 3; axis++) {
        if (at[axis] < VX_AXIS_MIN || at[axis] > VX_AXIS_MAX) return false;
        *key = *key << VX_AXIS_BITS | (u64)(at[axis] - VX_AXIS_MIN);
    }
    return true;
}

static void unpack(u64 key, i32 voxel[4])
{
    for (int axis = 2; axis >= 0; axis--, key >>= VX_AXIS_BITS)
        voxel[axis + 1] = (i32)(key & ((1 << VX_AXIS_BITS) - 1)) + VX_AXIS_MIN;
    voxel[0] = (i32)key;
}

/* The slot with the key, or the empty one where it would be. */
static size_t slot_of(const struct vx_oracle_set *set, u64 key)
{
    u64 mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(mixed ^ mixed >> 29) & (set->slots - 1);
    while (set->keys[slot] != EMPTY && set->keys[slot] != key)
        slot = (slot + 1) & (set->slots - 1);
    return slot;
}

static void hash_init(struct vx_oracle_set *set, i64 rows_max)
{
    for (set->slots = 16; set->slots < 2 * (size_t)rows_max;) set->slots *= 2;
    set->keys = take(set->slots, sizeof *set->keys);
    set->row_of = take(set->slots, sizeof *set->row_of);
    memset(set->keys, 0xff, set->slots * sizeof *set->keys);
}

static void hash_grow(struct vx_oracle_set *set)
{
    struct vx_oracle_set old = *set;
    hash_init(set, 2 * (i64)old.slots);
    for (size_t i = 0; i < old.slots; i++)
        if (old.keys[i] != EMPTY) set->keys[slot_of(set, old.keys[i])] = old.keys[i];
    vx_free(old.keys);
    vx_free(old.row_of);
}

static void hash_add(struct vx_oracle_set *set, u64 key)
{
    size_t slot = slot_of(set, key);
    if (set->keys[slot] == key) return;
    set->keys[slot] = key;
    if (2 * (size_t)++set->rows > set->slots) hash_grow(set);
}

static i32 find(const struct vx_oracle_set *set, i32 sample, const i64 at[3])
{
    u64 key;
    if (!pack(sample, at, &key)) return -1;
    size_t slot = slot_of(set, key);
    return set->keys[slot] == key ? set->row_of[slot] : -1;
}

void vx_oracle_set_request(const i32 *coords, i32 columns, i64 n, const i32 shape[3],
                           struct vx_oracle_set *set)
{
    *set = (struct vx_oracle_set){.rows = n, .voxels = take((size_t)n, sizeof(i32[4]))};
    memcpy(set->shape, shape, sizeof set->shape);
    hash_init(set, n);
    for (i64 row = 0; row < n; row++, coords += columns) {
        i32 *voxel = set->voxels[row];
        memcpy(voxel + 4 - columns, coords, (size_t)columns * sizeof *coords);
        i64 at[3] = {voxel[1], voxel[2], voxel[3]};
        u64 key;
        VX_ASSERT(voxel[0] >= 0);
        VX_ASSERT(voxel[0] <= VX_SAMPLE_MAX);
        VX_ASSERT(pack(voxel[0], at, &key));
        size_t slot = slot_of(set, key);
        VX_ASSERT(set->keys[slot] == EMPTY); /* each voxel once */
        set->keys[slot] = key;
        set->row_of[slot] = (i32)row;
    }
}

static int by_key(const void *a, const void *b)
{
    u64 left = *(const u64 *)a, right = *(const u64 *)b;
    return (left > right) - (left < right);
}

/* Gives the keys in the hash their rows, in ascending order. */
static void set_sort(struct vx_oracle_set *set)
{
    u64 *sorted = take((size_t)set->rows, sizeof *sorted);
    size_t count = 0;
    for (size_t i = 0; i < set->slots; i++)
        if (set->keys[i] != EMPTY) sorted[count++] = set->keys[i];
    VX_ASSERT((i64)count == set->rows);
    qsort(sorted, count, sizeof *sorted, by_key);
    set->voxels = take(count, sizeof(i32[4]));
    for (size_t i = 0; i < count; i++) {
        unpack(sorted[i], set->voxels[i]);
        set->row_of[slot_of(set, sorted[i])] = (i32)i;
    }
    vx_free(sorted);
}

/* Offset k of a window along one axis. */
struct offset {
    i64 stride, padding;
    i64 reach;  /* from the window's first voxel */
    i64 middle; /* what reach is in the middle of the window */
};

static struct offset offset_make(const struct vx_oracle_window *window, int axis, i32 k)
{
    i64 dilation = window->dilation[axis];
    return (struct offset){.stride = window->stride[axis],
                           .padding = window->padding[axis],
                           .reach = k * dilation,
                           .middle = (window->kernel[axis] - 1) / 2 * dilation};
}

/* One axis of the voxel that voxel p makes; false: none. */
static bool made(enum vx_set_rule rule, struct offset k, i64 p, i32 shape, i64 *at)
{
    switch (rule) {
    case VX_SET_FLOOR: *at = floor_div(p, k.stride); return true;
    case VX_SET_EXPAND: *at = p * k.stride - k.padding + k.reach; return true;
    case VX_SET_SAMPLES: *at = 0; return true;
    default: break;
    }
    VX_ASSERT(rule == VX_SET_SPCONV);
    i64 sum = p + k.padding - k.reach;
    *at = floor_div(sum, k.stride);
    return *at * k.stride == sum && *at >= 0 && *at < shape;
}

static void shape_make(enum vx_set_rule rule, const struct vx_oracle_window *window,
                       const struct vx_oracle_set *from, struct vx_oracle_set *set)
{
    for (int axis = 0; axis < 3; axis++) {
        i64 d = from->shape[axis], s = window->stride[axis];
        i64 reach = (i64)window->dilation[axis] * (window->kernel[axis] - 1);
        if (rule == VX_SET_EXPAND) d = 0;
        if (rule == VX_SET_SAMPLES) d = 1;
        if (rule == VX_SET_FLOOR) d = floor_div(d + s - 1, s);
        if (rule == VX_SET_SPCONV) {
            VX_ASSERT(d > 0);
            d = floor_div(d + 2 * (i64)window->padding[axis] - reach - 1, s) + 1;
            VX_ASSERT(d > 0);
        }
        set->shape[axis] = (i32)d;
    }
}

void vx_oracle_set_make(enum vx_set_rule rule, const struct vx_oracle_window *window,
                        const struct vx_oracle_set *from, struct vx_oracle_set *set)
{
    i32 one[3] = {1, 1, 1}, k[3];
    bool each = rule == VX_SET_FLOOR || rule == VX_SET_SAMPLES;
    const i32 *kernel = each ? one : window->kernel;
    *set = (struct vx_oracle_set){0};
    shape_make(rule, window, from, set);
    hash_init(set, from->rows);
    for (i64 row = 0; row < from->rows; row++)
        for (k[0] = 0; k[0] < kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < kernel[1]; k[1]++)
                for (k[2] = 0; k[2] < kernel[2]; k[2]++) {
                    const i32 *p = from->voxels[row];
                    i64 at[3];
                    u64 key;
                    bool there = true;
                    for (int axis = 0; axis < 3 && there; axis++)
                        there = made(rule, offset_make(window, axis, k[axis]),
                                     p[axis + 1], set->shape[axis], &at[axis]);
                    if (there && pack(p[0], at, &key)) hash_add(set, key);
                }
    set_sort(set);
}

void vx_oracle_set_pick(const i32 stride[3], const bool *picked,
                        const struct vx_oracle_set *from, struct vx_oracle_set *set)
{
    i32 children = stride[0] * stride[1] * stride[2];
    *set = (struct vx_oracle_set){0};
    hash_init(set, from->rows);
    for (i64 row = 0; row < from->rows; row++)
        for (i32 c = 0; c < children; c++) {
            const i32 *p = from->voxels[row];
            const i64 at[3] = {(i64)p[1] * stride[0] + c % stride[0],
                               (i64)p[2] * stride[1] + c / stride[0] % stride[1],
                               (i64)p[3] * stride[2] + c / (stride[0] * stride[1])};
            u64 key;
            if (picked[row * children + c] && pack(p[0], at, &key)) hash_add(set, key);
        }
    set_sort(set);
}

void vx_oracle_set_fini(struct vx_oracle_set *set)
{
    vx_free(set->voxels);
    vx_free(set->keys);
    vx_free(set->row_of);
    *set = (struct vx_oracle_set){0};
}

bool vx_oracle_set_equal(const struct vx_oracle_set *a, const struct vx_oracle_set *b)
{
    return a->rows == b->rows &&
           !memcmp(a->voxels, b->voxels, (size_t)a->rows * sizeof *a->voxels);
}

/* One axis of the voxel that voxel `out` reads; false: none. */
static bool reads(enum vx_map_kind kind, struct offset k, i64 out, i64 *at)
{
    i64 up = out + k.padding - k.reach;
    switch (kind) {
    case VX_MAP_SUBM: *at = out + k.reach - k.middle; return true;
    case VX_MAP_DOWN: *at = out * k.stride - k.padding + k.reach; return true;
    case VX_MAP_UP: *at = floor_div(up, k.stride); return *at * k.stride == up;
    case VX_MAP_SAMPLE: *at = 0; return true;
    case VX_MAP_CORNER: *at = floor_div(out, k.stride) + k.reach; return true;
    default: *at = floor_div(out, k.stride); return true; /* PARENT, CHILD */
    }
}

i32 *vx_oracle_map(enum vx_map_kind kind, const struct vx_oracle_window *window,
                   const struct vx_oracle_set *from, const struct vx_oracle_set *to)
{
    bool one = kind == VX_MAP_PARENT || kind == VX_MAP_CHILD || kind == VX_MAP_SAMPLE;
    i32 ones[3] = {1, 1, 1}, k[3];
    const i32 *kernel = one ? ones : window->kernel;
    size_t v = (size_t)kernel[0] * (size_t)kernel[1] * (size_t)kernel[2];
    i32 *map = take((size_t)to->rows * v, sizeof *map), *entry = map;
    for (i64 row = 0; row < to->rows; row++)
        for (k[0] = 0; k[0] < kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < kernel[1]; k[1]++)
                for (k[2] = 0; k[2] < kernel[2]; k[2]++) {
                    const i32 *out = to->voxels[row];
                    i64 at[3];
                    bool there = true;
                    for (int axis = 0; axis < 3 && there; axis++)
                        there = reads(kind, offset_make(window, axis, k[axis]),
                                      out[axis + 1], &at[axis]);
                    *entry++ = there ? find(from, out[0], at) : -1;
                }
    return map;
}

i32 vx_oracle_child(const i32 voxel[4], const i32 stride[3])
{
    i64 in[3];
    for (int axis = 0; axis < 3; axis++)
        in[axis] = voxel[axis + 1] -
                   floor_div(voxel[axis + 1], stride[axis]) * (i64)stride[axis];
    return (i32)(in[0] + stride[0] * (in[1] + stride[1] * in[2]));
}
