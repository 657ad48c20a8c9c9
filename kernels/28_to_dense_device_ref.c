/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/28_to_dense_device.h"
#include "kernels/pointwise_spec.h"

static void job_check(const struct vx_dense_job *job, struct vx_dense_found *found)
{
    for (int64_t i = 0; job->keys && i < job->n; i++)
        if (vx_dense_place(job->keys[i], job->shape) < 0 && job->keys[i] < found->key)
            found->key = job->keys[i];
    for (int64_t i = 0; job->coords && i < job->n; i++)
        if (job->coords[i * 4] >= found->samples) found->samples = job->coords[i * 4] + 1;
}

void vx_dense_check_ref(const void *pointer, enum vx_number type)
{
    const struct vx_dense_check_args *args = pointer;
    (void)type;
    for (int64_t j = 0; j < args->count; j++) job_check(&args->jobs[j], &args->found[j]);
}

void vx_dense_cells_ref(const void *pointer, enum vx_number type)
{
    const struct vx_dense_cells_args *args = pointer;
    const int64_t plane = vx_dense_plane(args->shape);
    (void)type;
    for (int64_t r = 0; r < args->n; r++) {
        const int64_t sample = vx_key_sample(args->keys[r]) - args->first;
        const int64_t place = vx_dense_place(args->keys[r], args->shape);
        if (place < 0 || sample < 0 || sample >= args->samples) continue;
        args->cells[sample * plane + place] = (int32_t)r;
    }
}

void vx_to_dense_device_ref(const void *pointer, enum vx_number type)
{
    const struct vx_to_dense_device_args *args = pointer;
    const int64_t plane = vx_dense_plane(args->shape);
    for (int64_t b = 0; b < args->samples; b++)
        for (int64_t c = 0; c < args->c; c++)
            for (int64_t at = 0; at < plane; at++) {
                const int64_t row = args->cells[b * plane + at];
                double x = 0.0;
                if (row >= 0) x = vx_number_ref_read(args->in, type, row * args->cp + c);
                vx_number_ref_write(args->out, (enum vx_number)args->number,
                                    (b * args->c + c) * plane + at, x);
            }
}
