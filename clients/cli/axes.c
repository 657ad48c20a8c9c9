/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/axes.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <stdio.h>
#include <string.h>

#define AXES_FILE "xyz" /* of a .ply, and of pictures */

/* Where each new column comes from. */
struct turn {
    int from[3];
};

static struct turn turn_make(const char *from, const char *to)
{
    struct turn turn;
    for (int k = 0; k < 3; k++) turn.from[k] = (int)(strchr(from, to[k]) - from);
    return turn;
}

static void turn_coords(const struct turn *turn, const int32_t *coords, int64_t count,
                        int32_t *turned)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t at[4] = {coords[4 * i], coords[4 * i + 1], coords[4 * i + 2],
                               coords[4 * i + 3]};
        turned[4 * i] = at[0];
        for (int k = 0; k < 3; k++) turned[4 * i + 1 + k] = at[1 + turn->from[k]];
    }
}

/* "2x1x4" with its parts in another order. */
static void turn_stride(const struct turn *turn, char stride[CLOUD_SIZE_BYTES])
{
    char came[CLOUD_SIZE_BYTES], *parts[3], *save = NULL;
    memcpy(came, stride, sizeof came);
    parts[0] = strtok_r(came, "x", &save);
    for (int k = 1; k < 3; k++) parts[k] = strtok_r(NULL, "x", &save);
    if (!parts[0] || !parts[1] || !parts[2]) return; /* "": there is none */
    snprintf(stride, CLOUD_SIZE_BYTES, "%s", parts[turn->from[0]]);
    for (int k = 1; k < 3; k++) {
        const size_t used = strlen(stride);
        snprintf(stride + used, CLOUD_SIZE_BYTES - used, "x%s", parts[turn->from[k]]);
    }
}

/* All but the coords. */
static void turn_rest(const struct turn *turn, const char *axes, struct cloud *cloud)
{
    const double size[3] = {cloud->size[0], cloud->size[1], cloud->size[2]};
    for (int k = 0; k < 3; k++) cloud->size[k] = size[turn->from[k]];
    turn_stride(turn, cloud->stride);
    snprintf(cloud->axes, sizeof cloud->axes, "%s", axes);
}

void cloud_place(struct cloud *cloud, const char *axes)
{
    const struct turn turn = turn_make(cloud->named ? cloud->axes : axes, axes);
    turn_coords(&turn, cloud->coords, cloud->count, cloud->coords);
    turn_rest(&turn, axes, cloud);
}

enum voxel_code cloud_see(const struct cloud *cloud, struct cloud *seen,
                          struct voxel_error *error)
{
    *seen = *cloud;
    if (strcmp(cloud->axes, AXES_FILE) == 0) return VOXEL_OK;
    const struct turn turn = turn_make(cloud->axes, AXES_FILE);
    seen->coords = voxel_memory_take((size_t)cloud->count, 4 * sizeof *seen->coords);
    if (!seen->coords && cloud->count)
        return voxel_error_memory(error, "voxels", (size_t)cloud->count * 16);
    turn_coords(&turn, cloud->coords, cloud->count, seen->coords);
    turn_rest(&turn, AXES_FILE, seen);
    return VOXEL_OK;
}

void cloud_unsee(const struct cloud *cloud, struct cloud *seen)
{
    if (seen->coords != cloud->coords) voxel_memory_give(seen->coords);
}
