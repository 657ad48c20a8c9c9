/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/29_weight_tile.h"

#include "kernels/kernel.h"

#include <string.h>

void vx_weight_tile_ref(const void *args, enum vx_number type);

void vx_weight_tile_ref(const void *args_given, enum vx_number type)
{
    const struct vx_weight_tile_args *args = args_given;
    const int32_t bytes = args->number_bytes, line = VX_WEIGHT_TILE_LINE / bytes;
    const int32_t blocks = vx_weight_tile_blocks(args->ci, bytes);
    const unsigned char *from = args->in;
    unsigned char *to = args->out;
    (void)type;
    for (int64_t v = 0; v < args->v; v++)
        for (int32_t k = 0; k < blocks; k++)
            for (int32_t column = 0; column < args->co; column++)
                for (int32_t at = 0; at < line; at++, to += bytes) {
                    const int32_t part = line / 8;
                    const int32_t chunk = at / part ^ column % 8;
                    const int32_t channel = k * line + chunk * part + at % part;
                    const int64_t place = (v * args->ci + channel) * args->co + column;
                    if (channel < args->ci)
                        memcpy(to, from + place * bytes, (size_t)bytes);
                    else
                        memset(to, 0, (size_t)bytes);
                }
}
