/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/04_conv_gather.h"
#include "kernels/kernel.h"

#include <string.h>

void vx_conv_gather_ref(const void *args, enum vx_number type);

void vx_conv_gather_ref(const void *args, enum vx_number type)
{
    const struct vx_conv_gather_args *a = args;
    size_t bytes = (size_t)a->ci * (size_t)vx_number_bytes(type);
    size_t stride = (size_t)a->in_stride * (size_t)vx_number_bytes(type);
    char *to = a->panel;
    for (int64_t r = 0; r < a->rows; r++)
        for (int32_t v = 0; v < a->v; v++, to += bytes) {
            int64_t from = a->nbr[(a->first + r) * a->nbr_stride + v];
            if (from < 0)
                memset(to, 0, bytes);
            else
                memcpy(to, (const char *)a->in + (size_t)from * stride, bytes);
        }
}
