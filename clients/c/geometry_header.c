/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/geometry_header.h"

#include "clients/c/region.h"

#include <inttypes.h>
#include <stdio.h>

#define ROWS_READ 64

/* Four bits at a time: 64 bytes of table, and a request has about 1 KB. */
static uint32_t crc32_add(uint32_t crc, const uint8_t *bytes, size_t count)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

static uint32_t crc32_add_number(uint32_t crc, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(number >> 8 * i);
    return crc32_add(crc, bytes, sizeof bytes);
}

static const struct voxel_tensor *coords_of(const struct voxel_request *request)
{
    for (int32_t i = 0; i < request->inputs_count; i++)
        if (request->inputs[i].type == VOXEL_INT32) return &request->inputs[i];
    return request->named_coords;
}

void voxel_geometry_header(const struct voxel_request *request,
                           char text[VOXEL_GEOMETRY_BYTES])
{
    text[0] = '\0';
    const struct voxel_tensor *coords = coords_of(request);
    if (!coords || coords->rank != 2 || coords->shape[0] < 0 || coords->shape[1] < 0)
        return;
    const uint8_t *bytes = voxel_region_tensor(coords);
    uint64_t rows = (uint64_t)coords->shape[0];
    uint64_t row_bytes = (uint64_t)coords->shape[1] * sizeof(int32_t);
    if ((rows && row_bytes != coords->bytes / rows) || (coords->bytes && !bytes)) return;
    uint32_t crc = crc32_add_number(UINT32_MAX, rows);
    crc = crc32_add_number(crc, (uint64_t)coords->shape[1]);
    uint64_t read = rows < ROWS_READ ? rows : ROWS_READ;
    for (uint64_t i = 0; i < read && bytes; i++)
        crc = crc32_add(crc, bytes + i * rows / read * row_bytes, row_bytes);
    snprintf(text, VOXEL_GEOMETRY_BYTES, "%08" PRIx32, ~crc);
}
