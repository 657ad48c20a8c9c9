/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/shapes.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/tune/data.h"

#define CHUNK 256 /* edge of the cubes that the raster runs inside */

const struct vx_shape vx_shapes_shells[] = {
    {8, 1024, 16}, {16, 1024, 8}, {32, 1024, 4}, {64, 1024, 2},
    {128, 512, 2}, {256, 256, 2}, {512, 128, 2}, {1024, 64, 2},
    {256, 64, 2},  {512, 32, 2},  {128, 128, 2},
};
const i32 vx_shapes_shells_count = (i32)VX_COUNT(vx_shapes_shells);

/* The largest root with root * root <= square; square >= 0. */
static i64 shape_root(i64 square)
{
    i64 root = (i64)__builtin_sqrt((f64)square);
    while (root * root > square) root--;
    while ((root + 1) * (root + 1) <= square) root++;
    return root;
}

/* All lengths are in units of half a voxel.  Centres are then the integers
 *     s = 2z - R + 1
 * and the condition is exact:
 *     (R - 2.5)^2 <= sum of s^2 <= R^2
 * The lower bound is R^2 - 5R + 6.25, which for integers is R^2 - 5R + 7.  A column has
 * every z with low <= s^2 <= high: two runs that mirror each other, or one. */
struct runs {
    i32 begin[2], end[2]; /* half open */
};

/* The least z in 0..res whose s is at least `s`. */
static i32 shape_z(i64 s, i32 res)
{
    i64 twice = s + res - 1;
    i64 z = twice <= 0 ? 0 : (twice + 1) / 2;
    return z > res ? res : (i32)z;
}

static struct runs shape_runs(i32 res, i64 across)
{
    const i64 side = res;
    i64 high = side * side - across;
    i64 low = side * side - 5 * side + 7 - across;
    /* (R - 2.5)^2 grows again for R below 2.5: then all voxels in the sphere count. */
    if (side < 3) low = -across;
    if (high < 0) return (struct runs){{0, 0}, {0, 0}};
    i64 outer = shape_root(high);
    i32 first = shape_z(-outer, res);
    i32 last = shape_z(outer + 1, res);
    if (low <= 0) return (struct runs){{first, last}, {last, last}};
    i64 inner = shape_root(low - 1); /* |s| <= inner is too near */
    i32 leave = shape_z(-inner, res);
    i32 enter = shape_z(inner + 1, res);
    if (leave >= enter) return (struct runs){{first, last}, {last, last}};
    return (struct runs){{first, enter}, {leave, last}};
}

static i64 shape_across(i32 res, i32 x, i32 y)
{
    i64 across_x = 2 * (i64)x - res + 1, across_y = 2 * (i64)y - res + 1;
    return across_x * across_x + across_y * across_y;
}

i64 vx_shape_shell_count(i32 res)
{
    VX_ASSERT(res >= 1);
    VX_ASSERT(res <= VX_SHAPE_RES_MAX);
    i64 count = 0;
    for (i32 x = 0; x < res; x++)
        for (i32 y = 0; y < res; y++) {
            struct runs runs = shape_runs(res, shape_across(res, x, y));
            for (int run = 0; run < 2; run++) count += runs.end[run] - runs.begin[run];
        }
    return count;
}

static i32 shape_most(i32 a, i32 b)
{
    return a > b ? a : b;
}

static i32 shape_least(i32 a, i32 b)
{
    return a < b ? a : b;
}

/* Appends the voxels of one chunk to the `at` voxels that are there; returns how many
 * there are then, n at most. */
static i64 shape_chunk(i32 res, const i32 corner[3], i64 at, i64 n, i32 *coords)
{
    for (i32 x = corner[0]; x < shape_least(corner[0] + CHUNK, res); x++)
        for (i32 y = corner[1]; y < shape_least(corner[1] + CHUNK, res); y++) {
            struct runs runs = shape_runs(res, shape_across(res, x, y));
            for (int run = 0; run < 2; run++) {
                i32 end = shape_least(runs.end[run], corner[2] + CHUNK);
                for (i32 z = shape_most(runs.begin[run], corner[2]); z < end; z++) {
                    if (at == n) return at;
                    i32 *row = coords + 4 * at++;
                    row[0] = 0, row[1] = x, row[2] = y, row[3] = z;
                }
            }
        }
    return at;
}

void vx_shape_shell(i32 res, i64 n, i32 *coords)
{
    VX_ASSERT(res >= 1);
    VX_ASSERT(res <= VX_SHAPE_RES_MAX);
    i64 at = 0;
    for (i32 x = 0; x < res; x += CHUNK)
        for (i32 y = 0; y < res; y += CHUNK)
            for (i32 z = 0; z < res; z += CHUNK)
                at = shape_chunk(res, (const i32[3]){x, y, z}, at, n, coords);
    VX_ASSERT(at == n);
}

i32 vx_shape_res_of(i64 n)
{
    VX_ASSERT(n >= 0);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    /* A shell has close to 1.25 pi R^2 voxels; begin a little below. */
    i32 res = (i32)__builtin_sqrt((f64)n / 3.93) / 2 * 2 - 4;
    res = res < 2 ? 2 : res;
    while (res < VX_SHAPE_RES_MAX && vx_shape_shell_count(res) < n) res += 2;
    VX_ASSERT(vx_shape_shell_count(res) >= n);
    return res;
}

#define NOISE_SEED 3

static i32 noise_edge(i64 n)
{
    i32 edge = 1;
    while ((i64)edge * edge * edge < VX_SHAPE_NOISE_OF * n) edge++;
    return edge;
}

/* Each voxel of the cube is taken with the chance that gives n in the end: as many as are
 * missing of as many as are left. */
void vx_shape_noise(i64 n, i32 *coords)
{
    const i32 edge = noise_edge(n);
    u64 state = NOISE_SEED, left = (u64)edge * (u64)edge * (u64)edge;
    VX_ASSERT(n >= 0);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    i64 at = 0;
    for (u64 voxel = 0; at < n; voxel++, left--) {
        if (vx_data_next(&state) % left >= (u64)(n - at)) continue;
        i32 *row = coords + 4 * at++;
        row[0] = 0;
        row[1] = (i32)(voxel / (u64)edge / (u64)edge);
        row[2] = (i32)(voxel / (u64)edge % (u64)edge);
        row[3] = (i32)(voxel % (u64)edge);
    }
}

/* Digits of a number in 1..max; NULL when there are none or it is out of range. */
static const char *shape_number(const char *text, i32 max, i32 *number)
{
    i64 value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = 10 * value + (*at - '0');
        if (value > max) return NULL;
    }
    if (at == text || value < 1) return NULL;
    *number = (i32)value;
    return at;
}

bool vx_shape_parse(const char *text, struct vx_shape *shape)
{
    struct vx_shape found = {.layers = 1};
    text = shape_number(text, VX_SHAPE_RES_MAX, &found.res);
    if (!text || *text++ != ':') return false;
    text = shape_number(text, VX_CHANNELS_MAX, &found.channels);
    if (!text) return false;
    if (*text == ':') {
        text = shape_number(text + 1, VX_LAYERS_MAX, &found.layers);
        if (!text) return false;
    }
    if (*text) return false;
    *shape = found;
    return true;
}
