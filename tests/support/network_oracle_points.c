/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle_parts.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>

/* Rules of the bound, beside those of network_oracle.c:
 *   voxelize     as avg_pool
 *   devoxelize   a weight is the product of three quotients, 5 u; their sum loses 9 u more,
 *                and the quotient of both 1: 20 u.  A product and the sum of 8 are 9 u. */
#define U              VX_ORACLE_U
#define TINY           VX_ORACLE_TINY
#define CORNERS        8
#define CORNER_ERRORS  32
#define CORNERS_BESIDE 1e-8 /* added to the sum of weights, as in TorchSparse */

static i32 stride_of(const struct vx_set *points, const struct vx_set *voxels, int axis)
{
    i32 steps = voxels->down[axis] * points->up[axis];
    i32 step = voxels->up[axis] * points->down[axis];
    VX_ASSERT(steps % step == 0);
    return steps / step;
}

bool vx_oracle_points_window(const struct vx_network *network,
                             const struct vx_layer *layer,
                             struct vx_oracle_window *window)
{
    const bool down = layer->op == VX_OP_VOXELIZE;
    const i32 input = vx_network_set(network, layer->inputs[0]);
    if (!down && layer->op != VX_OP_DEVOXELIZE) return false;
    for (int axis = 0; axis < 3; axis++) {
        window->kernel[axis] = layer->trilinear ? 2 : 1;
        window->dilation[axis] = 1;
        window->padding[axis] = 0;
        window->stride[axis] = layer->stride[axis];
        if (layer->onto != VX_LAYER_NONE)
            window->stride[axis] =
                stride_of(&network->sets[down ? input : layer->set],
                          &network->sets[down ? layer->set : input], axis);
    }
    return true;
}

/* The mean of one channel of a voxel, over all points whose voxel it is. */
static void mean_cell(const struct vx_oracle_step *step, const i32 *voxels, i64 cell)
{
    i32 c = step->layer->channels, count = 0;
    f64 sum = 0, size = 0, error = 0;
    for (i64 point = 0; point < step->from->rows; point++) {
        if (voxels[point] != cell / c) continue;
        sum += step->x[0][point * c + cell % c];
        size += fabs(step->x[0][point * c + cell % c]);
        error += step->e[0][point * c + cell % c];
        count++;
    }
    if (!count) return;
    step->y[cell] = sum / count;
    step->bound[cell] = (error + (count + 2) * (U * size + TINY)) / count;
}

/* How much of corner k a point has: 1 - its distance from it, along each axis. */
static f64 weight_of(const struct vx_oracle_step *step, const i32 voxel[4], i32 k)
{
    f64 weight = 1;
    for (int axis = 0; axis < 3; axis++) {
        f64 q = voxel[axis + 1] / (f64)step->window.stride[axis];
        weight *= 1 - fabs(q - (floor(q) + (k >> (2 - axis) & 1)));
    }
    return weight;
}

static void blend_row(const struct vx_oracle_step *step, const i32 *corners, i64 point)
{
    i32 c = step->layer->channels;
    f64 weights[CORNERS], sum = CORNERS_BESIDE;
    for (i32 k = 0; k < CORNERS; k++) {
        weights[k] = corners[k] < 0 ? 0 : weight_of(step, step->to->voxels[point], k);
        sum += weights[k];
    }
    for (i32 i = 0; i < c; i++) {
        f64 *y = &step->y[point * c + i], *bound = &step->bound[point * c + i], size = 0;
        for (i32 k = 0; k < CORNERS; k++) {
            if (weights[k] <= 0) continue;
            *y += weights[k] / sum * step->x[0][corners[k] * (i64)c + i];
            *bound += weights[k] / sum * step->e[0][corners[k] * (i64)c + i];
            size += weights[k] / sum * fabs(step->x[0][corners[k] * (i64)c + i]);
        }
        *bound += CORNER_ERRORS * (U * size + TINY);
    }
}

bool vx_oracle_points(const struct vx_oracle_step *step)
{
    const i32 c = step->layer->channels;
    const bool down = step->layer->op == VX_OP_VOXELIZE;
    const bool trilinear = step->layer->trilinear;
    if (!down && step->layer->op != VX_OP_DEVOXELIZE) return false;
    const enum vx_map_kind kind = trilinear ? VX_MAP_CORNER : VX_MAP_PARENT;
    i32 *map = vx_oracle_map(kind, &step->window, down ? step->to : step->from,
                             down ? step->from : step->to);
    for (i64 cell = 0; down && cell < step->to->rows * c; cell++)
        mean_cell(step, map, cell);
    for (i64 point = 0; trilinear && point < step->to->rows; point++)
        blend_row(step, map + point * CORNERS, point);
    for (i64 cell = 0; !down && !trilinear && cell < step->to->rows * c; cell++) {
        if (map[cell / c] < 0) continue;
        step->y[cell] = step->x[0][map[cell / c] * (i64)c + cell % c];
        step->bound[cell] = step->e[0][map[cell / c] * (i64)c + cell % c];
    }
    vx_free(map);
    return true;
}
