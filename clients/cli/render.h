/* render - a picture of a voxel cloud and what a network said about it, as a PNG.
 *
 * Every voxel is a cube.  Its visible faces are rasterised with a z-buffer; each pixel is
 * then shaded once: light from a sun with soft shadows, sky light dimmed by what stands
 * around (ambient occlusion), on a floor in front of a plain backdrop.  Two by two
 * samples per pixel.
 *
 *   struct render_scene scene = {.cloud = &cloud, .output = normals};
 *   struct render_view view = RENDER_VIEW;
 *   if (render_png("out.png", &scene, &view, &error)) ...
 *
 * An output of three channels whose rows have length one is taken for normals: the axes
 * have a colour each, mixed by |nx|, |ny|, |nz|, and the light follows the normal.  Other
 * outputs of three or more channels are coloured by their three principal components, of
 * one or two channels by a colour map of the first.
 *
 * Owner    borrows all.
 * Thread   one call at a time per scene; it starts a few threads of its own and joins
 *          them.
 * Limits   RENDER_PIXELS_MAX along each side; coordinates span at most RENDER_SPAN_MAX
 *          voxels.
 * Fails    INVALID_ARGUMENT for a sample without voxels, sizes, or an output without a row per
 *          voxel; DATA_LOSS when the file cannot be written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_RENDER_H
#define VOXEL_CLIENTS_CLI_RENDER_H

#include "clients/cli/cloud.h"

#define RENDER_PIXELS_MAX 4096
#define RENDER_PIXELS_MIN 16
/* Brick coordinates are packed in 21 bits each, and a brick is 8 voxels wide. */
#define RENDER_SPAN_MAX (1 << 23)

struct render_scene {
    const struct cloud *cloud;
    const struct voxel_tensor *output; /* NULL = plain clay */
    int32_t sample; /* whose voxels are drawn: one, never over others */
};

struct render_view {
    int32_t width, height;
    double azimuth;   /* degrees around the up axis, from +x towards +y */
    double elevation; /* degrees above the horizon, -89..89 */
    char up;          /* 'x', 'y' or 'z' */
    bool isometric;   /* parallel projection instead of perspective */
};
#define RENDER_VIEW ((struct render_view){1600, 1000, -55, 32, 'z', false})

/* Whether the ending is .png, asked before the work begins. */
enum voxel_code render_check_path(const char *path, struct voxel_error *error);
enum voxel_code render_png(const char *path, const struct render_scene *scene,
                           const struct render_view *view, struct voxel_error *error);

#endif
