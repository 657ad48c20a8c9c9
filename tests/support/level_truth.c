/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/level_truth.h"

#include "engine/base/limits.h"
#include "kernels/01_coord_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_key(const void *left, const void *right)
{
    const u64 a = *(const u64 *)left, b = *(const u64 *)right;
    return (a > b) - (a < b);
}

static void sort_unique(struct level_set *set)
{
    i64 kept = 0;
    qsort(set->keys, (size_t)set->n, sizeof *set->keys, by_key);
    for (i64 i = 0; i < set->n; i++)
        if (!i || set->keys[i] != set->keys[i - 1]) set->keys[kept++] = set->keys[i];
    set->n = kept;
}

/* The voxel at `at`, if it exists. */
static bool pack(i32 sample, const i64 at[3], u64 *voxel)
{
    for (int axis = 0; axis < 3; axis++)
        if (at[axis] < VX_AXIS_MIN || at[axis] > VX_AXIS_MAX) return false;
    *voxel = vx_key_pack(sample, (i32)at[0], (i32)at[1], (i32)at[2]);
    return true;
}

static i64 floor_of(i64 a, i64 b)
{
    return (a - ((a % b + b) % b)) / b;
}

void level_truth_set(const i32 *coords, i32 columns, i64 n, struct level_set *to)
{
    to->n = n;
    for (i64 i = 0; i < n; i++) {
        const i32 *at = coords + i * columns;
        i32 sample = columns == 4 ? *at++ : 0;
        to->keys[i] = vx_key_pack(sample, at[0], at[1], at[2]);
    }
    sort_unique(to);
}

i64 level_truth_each(const struct vx_set_key *key)
{
    return (i64)key->kernel[0] * key->kernel[1] * key->kernel[2];
}

/* The coordinate that p makes at offset k. */
static bool makes(const struct vx_set_key *key, int axis, i64 p, i64 k, i64 *q)
{
    const i64 stride = key->stride[axis], padding = key->padding[axis];
    const i64 far = k * key->dilation[axis];
    *q = 0;
    if (key->rule == VX_SET_SAMPLES) return true;
    *q = floor_of(p, stride);
    if (key->rule == VX_SET_FLOOR) return true;
    *q = p * stride - padding + far;
    if (key->rule == VX_SET_EXPAND) return true;
    *q = floor_of(p + padding - far, stride);
    return *q * stride == p + padding - far && *q >= 0 && *q < key->shape[axis];
}

void level_truth_derive(const struct level_set *from, const struct vx_set_key *key,
                        struct level_set *to)
{
    const i64 each = level_truth_each(key);
    to->n = 0;
    for (i64 i = 0; i < from->n; i++)
        for (i64 v = 0; v < each; v++) {
            const i64 k[3] = {v / key->kernel[2] / key->kernel[1],
                              v / key->kernel[2] % key->kernel[1], v % key->kernel[2]};
            i64 q[3];
            bool made = true;
            for (int axis = 0; axis < 3; axis++)
                made &=
                    makes(key, axis, vx_key_axis(from->keys[i], axis), k[axis], &q[axis]);
            if (made && pack(vx_key_sample(from->keys[i]), q, &to->keys[to->n])) to->n++;
        }
    sort_unique(to);
}

i64 level_truth_find(const struct level_set *set, u64 voxel)
{
    const u64 *found =
        bsearch(&voxel, set->keys, (size_t)set->n, sizeof *set->keys, by_key);
    return found ? found - set->keys : -1;
}

const char *level_truth_rows(const struct level_set *set, const u64 *keys, i32 *row_at)
{
    memset(row_at, 0xff, (size_t)set->n * sizeof *row_at);
    for (i64 r = 0; r < set->n; r++) {
        i64 at = level_truth_find(set, keys[r]);
        if (at < 0) return "a row of a voxel that the set does not have";
        if (row_at[at] >= 0) return "two rows of one voxel";
        row_at[at] = (i32)r;
    }
    return NULL;
}

/* --- maps --- */

/* The coordinate that `out` reads at offset k.  UP is said as the transpose of DOWN: the
 * coordinate from which DOWN would read `out`. */
static bool reads(const struct vx_map_key *key, int axis, i64 out, i64 k, i64 *at)
{
    const i64 stride = key->stride[axis], padding = key->padding[axis];
    const i64 far = k * key->dilation[axis];
    switch (key->kind) {
    case VX_MAP_SUBM:
        *at = out + far - (key->kernel[axis] - 1) / 2 * key->dilation[axis];
        return true;
    case VX_MAP_DOWN: *at = out * stride - padding + far; return true;
    case VX_MAP_UP:
        *at = floor_of(out + padding - far, stride);
        return *at * stride - padding + far == out;
    case VX_MAP_SAMPLE: *at = 0; return true;
    case VX_MAP_CORNER: *at = floor_of(out, stride) + k; return true;
    default: *at = floor_of(out, stride); return true;
    }
}

/* The entry of a row at offset v. */
static i64 expected(const struct level_truth_map *map, u64 voxel, i32 v)
{
    const struct vx_map_key *key = map->key;
    const i32 *kernel = key->kernel, *s = key->stride;
    const i64 k[3] = {v / kernel[2] / kernel[1], v / kernel[2] % kernel[1],
                      v % kernel[2]};
    i64 at[3], in[3];
    u64 read;
    for (int axis = 0; axis < 3; axis++) {
        i64 out = vx_key_axis(voxel, axis);
        if (!reads(key, axis, out, k[axis], &at[axis])) return -1;
        in[axis] = out - at[axis] * s[axis];
    }
    if (!pack(vx_key_sample(voxel), at, &read)) return -1;
    i64 found = level_truth_find(map->from, read);
    if (found < 0) return -1;
    i64 row = map->from_row_at[found];
    if (key->kind != VX_MAP_CHILD) return row;
    return row * s[0] * s[1] * s[2] + in[0] + s[0] * (in[1] + s[1] * in[2]);
}

const char *level_truth_map(const struct level_truth_map *map,
                            char text[LEVEL_TRUTH_TEXT])
{
    const i32 v_count = vx_map_offsets(map->key);
    u64 pairs = 0;
    for (i64 r = 0; r < map->rows; r++)
        for (i32 v = 0; v < map->words * 32 || v < map->nbr_stride; v++) {
            i64 entry = v < v_count ? expected(map, map->keys[r], v) : -1;
            pairs += entry >= 0;
            if (v < map->nbr_stride && map->nbr[r * map->nbr_stride + v] != entry) {
                snprintf(text, LEVEL_TRUTH_TEXT,
                         "expected %lld at row %lld offset %d, got %d", (long long)entry,
                         (long long)r, v, map->nbr[r * map->nbr_stride + v]);
                return text;
            }
            if (v >= map->words * 32) continue;
            if ((map->masks[r * map->words + v / 32] >> v % 32 & 1u) != (entry >= 0)) {
                snprintf(text, LEVEL_TRUTH_TEXT, "a wrong mask at row %lld offset %d",
                         (long long)r, v);
                return text;
            }
        }
    if (!map->pairs || !map->rows || *map->pairs == pairs) return NULL;
    snprintf(text, LEVEL_TRUTH_TEXT, "expected %llu pairs, got %llu",
             (unsigned long long)pairs, (unsigned long long)*map->pairs);
    return text;
}
