/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/png.h"

#include "clients/c/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

enum voxel_code png_write(const char *path, const uint8_t *pixels, int32_t width,
                          int32_t height, struct voxel_error *error)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return voxel_error_set(error, VOXEL_DATA_LOSS, "%s: %s", path, strerror(errno));
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    bool good = png_image_write_to_stdio(&image, file, 0, pixels, width * 3, NULL);
    if (fclose(file) != 0) good = false;
    if (good) return VOXEL_OK;
    remove(path);
    return voxel_error_set(error, VOXEL_DATA_LOSS, "%s: cannot be written (%s)", path,
                           image.message[0] ? image.message : "is the disk full?");
}
