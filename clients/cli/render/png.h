/* png - writes 8-bit RGB pixels as a PNG file.
 *
 *   if (png_write("out.png", pixels, 1600, 1000, &error)) ...
 *
 * Owner    borrows the pixels: [height, width, 3], rows from the top.
 * Thread   any.
 * Limits   libpng's: 2^31-1 pixels a side, 1,000,000 by its default.
 * Fails    DATA_LOSS if the file cannot be written; the old file then stays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_PNG_H
#define VOXEL_CLIENTS_CLI_PNG_H

#include "clients/c/voxel.h"

enum voxel_code png_write(const char *path, const uint8_t *pixels, int32_t width,
                          int32_t height, struct voxel_error *error);

#endif
