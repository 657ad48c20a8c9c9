/* sample_rows - the rows of each sample, and the chunks into which they are cut.
 *
 * What 18_group_norm and 30_sample_pool share: starts (S+1) and count (1), as 23_key_order
 * makes them, and rows (N): sample s has the rows rows[starts[s]] .. rows[starts[s+1] - 1].
 * Chunk j of sample s has slot starts[s] / VX_SAMPLE_CHUNK + s + j, so that chunks of
 * consecutive samples have different slots: rounding down loses less than the one that
 * each sample adds.
 *
 * Owner    -
 * Thread   any.
 * Limits   no sample without rows, at most samples_max of them.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SAMPLE_ROWS_H
#define VX_KERNELS_SAMPLE_ROWS_H

#include "kernels/both.h"

#include <stdint.h>

/* Rows of a chunk.  Of 2 bytes and 64 channels a block reads 32 KB; what it leaves is a
 * 64th of that. */
#define VX_SAMPLE_CHUNK 256

struct vx_sample_rows {
    int64_t n; /* rows of all samples */
    int32_t samples_max;
    const int32_t *starts, *count, *rows;
};

VX_BOTH int64_t vx_sample_slots(int64_t n, int32_t samples_max)
{
    return n / VX_SAMPLE_CHUNK + samples_max;
}

/* Some rows of one sample. */
struct vx_sample_part {
    int32_t sample;
    int64_t begin, end; /* places in rows */
    int64_t slot;       /* of its first chunk */
};

VX_BOTH struct vx_sample_part vx_sample_part(const struct vx_sample_rows *rows,
                                             int32_t sample)
{
    struct vx_sample_part part;
    int64_t end = rows->starts[sample + 1];
    part.sample = sample;
    part.begin = rows->starts[sample];
    part.end = end < rows->n ? end : rows->n;
    part.slot = part.begin / VX_SAMPLE_CHUNK + sample;
    return part;
}

/* The chunk of a slot; begin >= end: there is none. */
VX_BOTH struct vx_sample_part vx_sample_chunk(const struct vx_sample_rows *rows,
                                              int64_t slot)
{
    struct vx_sample_part part = {0, 0, 0, 0};
    int32_t low = 0, high = *rows->count; /* of low the first slot is not above */
    if (high == 0) return part;
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (rows->starts[middle] / VX_SAMPLE_CHUNK + (int64_t)middle <= slot)
            low = middle;
        else
            high = middle;
    }
    part = vx_sample_part(rows, low);
    part.begin += (slot - part.slot) * VX_SAMPLE_CHUNK;
    part.slot = slot;
    if (part.end > part.begin + VX_SAMPLE_CHUNK) part.end = part.begin + VX_SAMPLE_CHUNK;
    return part;
}

#endif
