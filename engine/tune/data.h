/* data - random tensors for measuring, the same on every machine.
 *
 * The host knows their values without copying them back.  A tensor repeats one block of
 * VX_DATA_BLOCK elements.  The length is prime, so that rows of any width begin at
 * different places of the block and no two of the first million are alike.  The values
 * are uniform in [-scale, scale), rounded to the type, so that a device and the host read
 * exactly the same numbers.  Of type E4M3 they are numbers of 8 bits times e4m3_scale, stored
 * as F16.
 *
 *   VX_TRY(vx_data_open(VX_NUMBER_F16, seed, 1.0f, &data));
 *   VX_TRY(vx_data_send(data, &target, n * ci, &why));
 *   f64 x = vx_data_at(data, row * ci + channel);
 *
 * Owner    the caller; the data must live until the stream has passed the send.
 * Thread   open, at: any; send: device.
 * Limits   -
 * Fails    RESOURCE_EXHAUSTED for host memory; as gpu.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_DATA_H
#define VX_ENGINE_TUNE_DATA_H

#include "engine/gpu/driver/gpu.h"

/* The largest prime below 2^20: 4 MB on the host, made in a few milliseconds. */
#define VX_DATA_BLOCK 1048573

struct vx_data {
    f32 *values; /* VX_DATA_BLOCK, rounded to the type */
    void *typed; /* the same in the type, as the device has them */
    enum vx_number type;
    f32 e4m3_scale; /* of type E4M3 */
    i32 bytes;      /* of an element of `typed` */
};

struct vx_data_target {
    struct vx_gpu *gpu;
    struct vx_gpu_stream *stream;
    void *memory; /* device */
};

VX_MUST_USE vx_status vx_data_open(enum vx_number type, u64 seed, f32 scale,
                                   struct vx_data **data);
/* Of type E4M3: stores the numbers of 8 bits instead, as a convolution has its weights. */
void vx_data_to_bytes(struct vx_data *data);
void vx_data_close(struct vx_data **data);
/* Copies the first `count` elements of the tensor to device memory. */
VX_MUST_USE vx_status vx_data_send(const struct vx_data *data,
                                   const struct vx_data_target *target, i64 count,
                                   struct vx_why *why);
static inline f32 vx_data_at(const struct vx_data *data, i64 element)
{
    return data->values[element % VX_DATA_BLOCK];
}

/* The next number of SplitMix64: a seed gives the same numbers on every machine. */
u64 vx_data_next(u64 *state);

#endif
