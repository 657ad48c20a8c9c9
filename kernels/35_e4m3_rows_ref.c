/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_e4m3_rows.h"
#include "kernels/e4m3.h"
#include "kernels/number.h"

void vx_e4m3_rows_ref(const void *args, enum vx_number type);

void vx_e4m3_rows_ref(const void *args_given, enum vx_number type)
{
    const struct vx_e4m3_rows_args *args = args_given;
    const int64_t stride = args->in_stride ? args->in_stride : args->cp;
    uint8_t *bytes = args->out;
    for (int64_t row = 0; row < args->n; row++)
        for (int32_t c = 0; c < args->cp; c++) {
            const int64_t to = row * args->cp + c;
            const double x = vx_number_ref_read(args->in, type, row * stride + c);
            const uint8_t byte = vx_e4m3_of((float)(x / (double)args->scale));
            if (args->bytes)
                bytes[to] = byte;
            else
                vx_number_ref_write(args->out, type, to,
                                    (double)vx_e4m3_in(vx_e4m3_value(byte) * args->scale,
                                                       type == VX_NUMBER_F16
                                                           ? VX_E4M3_F16_MOST
                                                           : VX_E4M3_ANY_MOST));
        }
}
