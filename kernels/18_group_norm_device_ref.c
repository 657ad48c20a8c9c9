/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/18_group_norm.h"
#include "kernels/pointwise_spec.h"

#include <math.h>

/* Channels of one group, from the first on. */
static double chunk_sum(const struct vx_group_norm_device_args *args, enum vx_number type,
                        const struct vx_sample_part *chunk, int64_t group)
{
    int64_t width = args->c / args->groups;
    const int64_t stride = args->in_stride ? args->in_stride : args->cp;
    double sum = 0.0;
    for (int64_t p = chunk->begin; p < chunk->end; p++)
        for (int64_t c = group * width; c < group * width + width; c++) {
            double x = vx_number_ref_read(args->in, type, args->rows[p] * stride + c);
            if (args->squares) {
                x -= args->mean[(int64_t)chunk->sample * args->groups + group];
                x *= x;
            }
            sum += x;
        }
    return sum;
}

void vx_group_sums_ref(const void *pointer, enum vx_number type)
{
    const struct vx_group_norm_device_args *args = pointer;
    const struct vx_sample_rows rows = vx_group_norm_rows(args);
    int64_t slots = vx_sample_slots(args->n, args->samples_max);
    for (int64_t slot = 0; slot < slots; slot++) {
        struct vx_sample_part chunk = vx_sample_chunk(&rows, slot);
        for (int64_t group = 0; chunk.begin < chunk.end && group < args->groups; group++)
            args->partial[slot * args->c + group * (args->c / args->groups)] =
                chunk_sum(args, type, &chunk, group);
    }
}

static void group_mean(const struct vx_group_norm_device_args *args, int32_t sample,
                       int64_t group)
{
    const struct vx_sample_rows samples = vx_group_norm_rows(args);
    struct vx_sample_part part = vx_sample_part(&samples, sample);
    int64_t width = args->c / args->groups, rows = part.end - part.begin;
    double *to = args->squares ? args->scale : args->mean;
    double sum = 0.0;
    for (int64_t chunk = 0; chunk * VX_SAMPLE_CHUNK < rows; chunk++)
        sum += args->partial[(part.slot + chunk) * args->c + group * width];
    sum /= (double)(rows * width);
    if (args->squares) sum = 1.0 / sqrt(sum + (double)args->eps);
    to[(int64_t)sample * args->groups + group] = sum;
}

void vx_group_means_ref(const void *pointer, enum vx_number type)
{
    const struct vx_group_norm_device_args *args = pointer;
    (void)type;
    for (int32_t sample = 0; sample < *args->count; sample++)
        for (int64_t group = 0; group < args->groups; group++)
            group_mean(args, sample, group);
}

static void apply_row(const struct vx_group_norm_device_args *args, enum vx_number type,
                      int32_t sample, int64_t row)
{
    const int64_t from = row * (args->in_stride ? args->in_stride : args->cp);
    int64_t width = args->c / args->groups;
    for (int64_t c = 0; c < args->cp; c++) {
        double y = 0.0;
        if (c < args->c) {
            int64_t at = (int64_t)sample * args->groups + c / width;
            y = vx_number_ref_read(args->in, type, from + c) - args->mean[at];
            y *= args->scale[at];
            if (args->weight) y *= (double)args->weight[c];
            if (args->bias) y += (double)args->bias[c];
            y = vx_activation_ref_one((enum vx_activation)args->activation, y);
        }
        vx_number_ref_write(args->out, type, row * args->cp + c, y);
    }
}

void vx_group_apply_ref(const void *pointer, enum vx_number type)
{
    const struct vx_group_norm_device_args *args = pointer;
    const struct vx_sample_rows rows = vx_group_norm_rows(args);
    for (int32_t sample = 0; sample < *args->count; sample++) {
        struct vx_sample_part part = vx_sample_part(&rows, sample);
        for (int64_t p = part.begin; p < part.end; p++)
            apply_row(args, type, sample, args->rows[p]);
    }
}
