/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/oracle/clouds.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/tune/shapes.h"

#include <string.h>

/* Farther than the reach of any offset that is tested. */
#define APART 64
#define SIDE  32 /* isolated voxels along an axis */

static i32 side_of(i64 n)
{
    i32 side = 1;
    while ((i64)side * side * side < n) side++;
    return side;
}

static void set(i32 *row, i32 sample, i64 x, i64 y, i64 z)
{
    row[0] = sample, row[1] = (i32)x, row[2] = (i32)y, row[3] = (i32)z;
}

static void fill_shell(i64 n, i32 *coords, bool around_origin)
{
    i32 res = vx_shape_res_of(n);
    vx_shape_shell(res, n, coords);
    for (i64 i = 0; around_origin && i < n; i++)
        for (int axis = 1; axis < 4; axis++) coords[4 * i + axis] -= res / 2;
}

/* Six numbers of an axis: the three lowest and the three highest of the range. */
static i32 limit_of(i64 index)
{
    return index < 3 ? VX_AXIS_MIN + (i32)index : VX_AXIS_MAX - 5 + (i32)index;
}

static void fill_limit(i64 n, i32 *coords)
{
    for (i64 i = 0; i < n; i++) {
        i64 at = i % 216, sample = i / 216;
        sample = sample % 2 ? VX_SAMPLE_MAX - sample / 2 : sample / 2;
        set(coords + 4 * i, (i32)sample, limit_of(at / 36), limit_of(at / 6 % 6),
            limit_of(at % 6));
    }
}

/* Takes two of so many cells in raster order, but all of the remaining cells once they are
 * needed. */
static void fill_box(struct vx_rig *rig, i64 n, i32 *coords, i32 samples, i32 of)
{
    i32 side = side_of((n / samples + 1) * ((of + 1) / 2));
    const i64 cells = (i64)side * side * side;
    i64 at = 0;
    for (i64 cell = 0; cell < cells * samples && at < n; cell++) {
        i64 in = cell % cells, left = cells * samples - cell;
        if (left > n - at && vx_rig_below(rig, of) > 1) continue;
        set(coords + 4 * at++, (i32)(cell / cells), in / side / side - side / 2,
            in / side % side - 3, in % side);
    }
    VX_ASSERT(at == n);
}

static void shuffle(struct vx_rig *rig, i64 n, i32 *coords)
{
    for (i64 i = n - 1; i > 0; i--) {
        i32 swap[4];
        i32 *a = coords + 4 * i, *b = coords + 4 * vx_rig_below(rig, i + 1);
        memcpy(swap, a, sizeof swap);
        memmove(a, b, sizeof swap);
        memcpy(b, swap, sizeof swap);
    }
}

void vx_cloud_make(struct vx_rig *rig, enum vx_cloud_kind kind, i64 n,
                   struct vx_cloud *cloud)
{
    static const char *const names[] = {"surface",  "block", "isolated", "line",
                                        "negative", "limit", "samples",  "random",
                                        "noise",    "",      "scattered"};
    i32 *coords = vx_rig_take(rig, (size_t)n * 4 * sizeof *coords);
    const i32 side = side_of(n);
    *cloud = (struct vx_cloud){names[kind], n, 4, coords};
    for (i64 i = 0; i < n; i++) {
        i32 *row = coords + 4 * i;
        if (kind == VX_CLOUD_BLOCK)
            set(row, 2, i / side / side, i / side % side, i % side);
        if (kind == VX_CLOUD_ISOLATED || kind == VX_CLOUD_SCATTERED)
            set(row, kind == VX_CLOUD_SCATTERED, APART * (i / SIDE / SIDE),
                APART * (i / SIDE % SIDE), APART * (i % SIDE));
        if (kind == VX_CLOUD_LINE)
            set(row, 0, i % 2 - 1, APART * (i / 2 / 256), APART * (i / 2 % 256));
    }
    if (kind == VX_CLOUD_SURFACE) fill_shell(n, coords, false);
    if (kind == VX_CLOUD_SCATTERED) fill_shell(n / 32, coords, false);
    if (kind == VX_CLOUD_NEGATIVE) fill_shell(n, coords, true);
    if (kind == VX_CLOUD_LIMIT) fill_limit(n, coords);
    if (kind == VX_CLOUD_SAMPLES) fill_box(rig, n, coords, n < 7 ? 1 : 7, 5);
    if (kind == VX_CLOUD_RANDOM) fill_box(rig, n, coords, 1, 5);
    if (kind == VX_CLOUD_NOISE) fill_box(rig, n, coords, 1, 120);
    shuffle(rig, n, coords);
}

void vx_cloud_narrow(struct vx_rig *rig, struct vx_cloud *cloud)
{
    i32 *narrow = vx_rig_take(rig, (size_t)cloud->n * 3 * sizeof *narrow);
    for (i64 i = 0; i < cloud->n; i++)
        memcpy(narrow + 3 * i, cloud->coords + 4 * i + 1, 3 * sizeof *narrow);
    cloud->coords = narrow;
    cloud->columns = 3;
}
