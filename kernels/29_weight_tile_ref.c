/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/29_weight_tile.h"

#include "kernels/kernel.h"

void vx_weight_tile_ref(const void *args, enum vx_number type);

void vx_weight_tile_ref(const void *args_given, enum vx_number type)
{
    const struct vx_weight_tile_args *args = args_given;
    const int32_t blocks = vx_weight_tile_blocks(args->ci);
    uint16_t *to = args->out;
    (void)type;
    for (int64_t v = 0; v < args->v; v++)
        for (int32_t k = 0; k < blocks; k++)
            for (int32_t column = 0; column < args->co; column++)
                for (int32_t at = 0; at < VX_WEIGHT_TILE_CHANNELS; at++) {
                    int32_t chunk = at / 8 ^ column % 8;
                    int32_t channel = k * VX_WEIGHT_TILE_CHANNELS + chunk * 8 + at % 8;
                    int64_t from = (v * args->ci + channel) * args->co + column;
                    *to++ = channel < args->ci ? args->in[from] : 0;
                }
}
