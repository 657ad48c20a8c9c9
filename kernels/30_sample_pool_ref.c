/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/30_sample_pool.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

/* Rows from place `begin` on of one channel; of none: -infinity or 0. */
static double rows_join(const struct vx_sample_pool_args *args, enum vx_number type,
                        const struct vx_sample_part *part, int64_t c)
{
    const int64_t stride = args->in_stride ? args->in_stride : args->cp;
    double most = -INFINITY, sum = 0.0;
    for (int64_t p = part->begin; p < part->end; p++) {
        double x = vx_number_ref_read(args->in, type, args->rows[p] * stride + c);
        if (x > most || isnan(x)) most = x;
        sum += x;
    }
    return args->mode == VX_POOL_MAX ? most : sum;
}

void vx_sample_chunks_ref(const void *pointer, enum vx_number type)
{
    const struct vx_sample_pool_args *args = pointer;
    const struct vx_sample_rows rows = vx_sample_pool_rows(args);
    int64_t slots = vx_sample_slots(args->n, args->samples_max);
    for (int64_t slot = 0; slot < slots; slot++) {
        struct vx_sample_part chunk = vx_sample_chunk(&rows, slot);
        for (int64_t c = 0; chunk.begin < chunk.end && c < args->c; c++)
            args->partial[slot * args->c + c] = rows_join(args, type, &chunk, c);
    }
}

static double chunks_join(const struct vx_sample_pool_args *args,
                          const struct vx_sample_part *part, int64_t c)
{
    int64_t rows = part->end - part->begin;
    double most = -INFINITY, sum = 0.0;
    for (int64_t chunk = 0; chunk * VX_SAMPLE_CHUNK < rows; chunk++) {
        double x = args->partial[(part->slot + chunk) * args->c + c];
        if (x > most || isnan(x)) most = x;
        sum += x;
    }
    if (args->mode == VX_POOL_MAX) return most;
    return args->mode == VX_POOL_AVG ? sum / (double)rows : sum;
}

void vx_sample_pool_ref(const void *pointer, enum vx_number type)
{
    const struct vx_sample_pool_args *args = pointer;
    const struct vx_sample_rows rows = vx_sample_pool_rows(args);
    for (int32_t sample = 0; sample < *args->count; sample++) {
        struct vx_sample_part part = vx_sample_part(&rows, sample);
        for (int64_t c = 0; c < args->cp; c++) {
            double y = 0.0;
            if (c < args->c)
                y = vx_activation_ref_one((enum vx_activation)args->activation,
                                          chunks_join(args, &part, c));
            vx_number_ref_write(args->out, type,
                                (int64_t)args->places[sample] * args->cp + c, y);
        }
    }
}
