/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/memory.h"

#include <math.h>

/* A voxel this high above the floor, or higher, does not darken it. */
#define REACH_VOXELS 14
/* About how many cells the longer side has; the map is blurred, so more change
 * nothing. */
#define CELLS 700
/* The margin around the scene, and the blur's reach to each side, in cells. */
#define MARGIN 24
#define BLUR   5

/* One pass of a box blur over a line of `count` cells; three are close to a Gaussian. */
static void blur_line(float *line, float *scratch, int32_t count, int32_t stride)
{
    float sum = 0;
    for (int32_t i = 0; i < count; i++) scratch[i] = line[(int64_t)i * stride];
    for (int32_t i = 0; i < BLUR && i < count; i++) sum += scratch[i];
    for (int32_t i = 0; i < count; i++) {
        if (i + BLUR < count) sum += scratch[i + BLUR];
        if (i - BLUR - 1 >= 0) sum -= scratch[i - BLUR - 1];
        line[(int64_t)i * stride] = sum / (2 * BLUR + 1);
    }
}

bool floor_init(struct floor_map *map, const struct voxels *voxels)
{
    int32_t longer =
        voxels->size[0] > voxels->size[1] ? voxels->size[0] : voxels->size[1];
    map->cell = longer / CELLS + 1;
    map->x0 = map->y0 = -MARGIN * map->cell;
    map->width = voxels->size[0] / map->cell + 2 * MARGIN + 1;
    map->height = voxels->size[1] / map->cell + 2 * MARGIN + 1;
    size_t cells = (size_t)map->width * (size_t)map->height;
    int32_t longest = map->width > map->height ? map->width : map->height;
    map->open = voxel_memory_take(cells, sizeof *map->open);
    float *scratch = voxel_memory_take((size_t)longest, sizeof *scratch);
    if (!map->open || !scratch) {
        voxel_memory_give(scratch);
        return false;
    }
    for (int64_t i = 0; i < voxels->count; i++) {
        const int32_t *at = &voxels->at[3 * i];
        if (at[2] >= REACH_VOXELS) continue;
        int64_t x = (at[0] - map->x0) / map->cell;
        int64_t y = (at[1] - map->y0) / map->cell;
        float near = 1.0f - (float)at[2] / REACH_VOXELS;
        float *cell = &map->open[y * map->width + x];
        if (near > *cell) *cell = near;
    }
    for (int pass = 0; pass < 3; pass++) {
        for (int32_t y = 0; y < map->height; y++)
            blur_line(map->open + (int64_t)y * map->width, scratch, map->width, 1);
        for (int32_t x = 0; x < map->width; x++)
            blur_line(map->open + x, scratch, map->height, map->width);
    }
    for (size_t i = 0; i < cells; i++) map->open[i] = 1.0f - 0.75f * map->open[i];
    voxel_memory_give(scratch);
    return true;
}

void floor_fini(struct floor_map *map)
{
    voxel_memory_give(map->open);
    map->open = NULL;
}

float floor_open(const struct floor_map *map, float x, float y)
{
    float fx = (x - (float)map->x0) / (float)map->cell - 0.5f;
    float fy = (y - (float)map->y0) / (float)map->cell - 0.5f;
    if (!(fx >= 0 && fy >= 0)) return 1.0f;
    if (!(fx < (float)(map->width - 1) && fy < (float)(map->height - 1))) return 1.0f;
    int64_t x0 = (int64_t)fx;
    int64_t y0 = (int64_t)fy;
    float tx = fx - (float)x0;
    float ty = fy - (float)y0;
    const float *cell = &map->open[y0 * map->width + x0];
    float low = cell[0] * (1 - tx) + cell[1] * tx;
    float high = cell[map->width] * (1 - tx) + cell[map->width + 1] * tx;
    return low * (1 - ty) + high * ty;
}
