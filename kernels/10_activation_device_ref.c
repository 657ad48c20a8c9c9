/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/10_activation.h"
#include "kernels/pointwise_spec.h"

void vx_activation_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_activation_device_args *args = pointer;
    for (int64_t e = 0; e < args->n * args->cp; e++)
        vx_number_ref_write(args->out, type, e,
                            vx_activation_ref_one((enum vx_activation)args->activation,
                                                  vx_number_ref_read(args->in, type, e)));
}
