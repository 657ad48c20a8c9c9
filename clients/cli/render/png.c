/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/png.h"

#include "clients/c/error.h"
#include "clients/cli/out.h"

#include <png.h>

enum voxel_code png_write(const char *path, const uint8_t *pixels, int32_t width,
                          int32_t height, struct voxel_error *error)
{
    struct out out;
    enum voxel_code code = out_open(&out, path, error);
    if (code) return code;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    if (png_image_write_to_stdio(&image, out.file, 0, pixels, width * 3, NULL))
        return out_close(&out, error);
    out_drop(&out);
    return voxel_error_set(error, VOXEL_DATA_LOSS, "%s: cannot be written (%s)", path,
                           image.message[0] ? image.message : "is the disk full?");
}
