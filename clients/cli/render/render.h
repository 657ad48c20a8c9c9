/* render - draws a voxel cloud, coloured by a network's output, as a PNG.
 *
 * Every voxel is a cube.  Its visible faces are rasterised with a z-buffer; then two by
 * two points of each pixel are shaded once: by a sun with soft shadows, and by sky light
 * that things around dim (ambient occlusion).  The cubes stand on a floor before a plain
 * backdrop.
 *
 *   struct render_scene scene = {.cloud = &cloud, .output = normals};
 *   struct render_view view = RENDER_VIEW;
 *   if (render_png("out.png", &scene, &view, &error)) ...
 *
 * If an output has three channels and rows of length one, it is drawn as normals: each
 * axis has a colour, mixed by nx^2, ny^2, nz^2, and the light follows the normal.  Other
 * outputs of three or more channels are coloured by their three principal components,
 * outputs of one or two channels by a colour map of the first.
 *
 * Owner    borrows all.
 * Thread   one call at a time per scene; it starts a few threads of its own and joins
 *          them.
 * Limits   RENDER_PIXELS_MAX along each side; coordinates span at most RENDER_SPAN_MAX
 *          voxels.
 * Fails    INVALID_ARGUMENT for a sample without voxels, a size out of range, or an
 *          output without a row for each voxel; RESOURCE_EXHAUSTED without memory;
 *          DATA_LOSS if the file cannot be written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_RENDER_H
#define VOXEL_CLIENTS_CLI_RENDER_H

#include "clients/cli/cloud.h"

#define RENDER_PIXELS_MAX 4096
#define RENDER_PIXELS_MIN 16
/* A brick coordinate has 21 bits, and a brick here is 8 voxels wide. */
#define RENDER_SPAN_MAX (1 << 23)

struct render_scene {
    const struct cloud *cloud;
    const struct voxel_tensor *output; /* NULL = one plain colour */
    int32_t sample;                    /* only this sample's voxels are drawn */
    /* The ends of the colour map of one or two channels; equal = two spreads around the
     * mean. */
    double low, high;
};

struct render_view {
    int32_t width, height;
    double azimuth;   /* degrees around the up axis, from +x towards +y */
    double elevation; /* degrees above the horizon, -89..89 */
    char up;          /* 'x', 'y' or 'z' */
    bool isometric;   /* parallel projection instead of perspective */
};
#define RENDER_VIEW ((struct render_view){1600, 1000, -55, 32, 'z', false})

/* INVALID_ARGUMENT if the path does not end in .png; for a check before the work. */
enum voxel_code render_check_path(const char *path, struct voxel_error *error);
enum voxel_code render_png(const char *path, const struct render_scene *scene,
                           const struct render_view *view, struct voxel_error *error);

#endif
