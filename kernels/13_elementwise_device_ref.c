/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/13_elementwise.h"
#include "kernels/pointwise_spec.h"

void vx_add_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_add_device_args *args = pointer;
    for (int64_t e = 0; e < args->n * args->cp; e++) {
        double sum =
            vx_number_ref_read(args->a, type, e) + vx_number_ref_read(args->b, type, e);
        vx_number_ref_write(
            args->out, type, e,
            vx_activation_ref_one((enum vx_activation)args->activation, sum));
    }
}

void vx_mul_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_add_device_args *args = pointer;
    for (int64_t e = 0; e < args->n * args->cp; e++) {
        double product =
            vx_number_ref_read(args->a, type, e) * vx_number_ref_read(args->b, type, e);
        vx_number_ref_write(
            args->out, type, e,
            vx_activation_ref_one((enum vx_activation)args->activation, product));
    }
}

void vx_affine_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_affine_device_args *args = pointer;
    for (int64_t e = 0; e < args->n * args->cp; e++) {
        double y = vx_number_ref_read(args->in, type, e) * (double)args->scale +
                   (double)args->shift;
        y = vx_activation_ref_one((enum vx_activation)args->activation, y);
        vx_number_ref_write(args->out, type, e, e % args->cp < args->c ? y : 0.0);
    }
}

void vx_concat_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_concat_device_args *args = pointer;
    for (int64_t i = 0; i < args->n; i++) {
        int64_t to = i * args->cp;
        for (int32_t k = 0; k < args->inputs_count; k++) {
            const struct vx_concat_device_input *input = &args->inputs[k];
            if (!input->data) to += input->c;
            for (int32_t c = 0; c < input->c && input->data; c++)
                vx_number_ref_write(
                    args->out, type, to++,
                    vx_number_ref_read(input->data, type, i * input->cp + c));
        }
        while (to < (i + 1) * args->cp) vx_number_ref_write(args->out, type, to++, 0.0);
    }
}
