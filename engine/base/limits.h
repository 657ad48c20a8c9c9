/* limits - every internal maximum, with its reason.  Wire limits are in proto/limits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_LIMITS_H
#define VX_ENGINE_BASE_LIMITS_H

/* A name of a model, layer, tensor or input, with its NUL: longer than any PyTorch
 * state-dict key of the networks we know (97), short enough to ride in fixed-size
 * messages. */
#define VX_NAME_BYTES 128

/* Outputs of one model: the networks we know have at most 4 heads; a signature must fit
 * in one channel message. */
#define VX_OUTPUTS_MAX 8

/* Requests in one device batch: a RUN message of this many items fits one channel
 * message. */
#define VX_BATCH_ITEMS_MAX 64

/* Priority levels of one model that have a queue policy of their own: nobody we know uses
 * more than three. */
#define VX_PRIORITY_LEVELS_MAX 8

/* Layers of one network: TRELLIS.2's decoder, the deepest we know, has 420 after
 * expansion. */
#define VX_LAYERS_MAX 1024

/* Inputs of one layer (concat): the widest skip join we know has 4. */
#define VX_LAYER_INPUTS_MAX 8

/* Channels of one layer: TRELLIS.2 C2S convolutions have 8 * 1024. */
#define VX_CHANNELS_MAX 16384

/* Kernel offsets of one convolution: 7^3, what the issue tracker of the field asks for at
 * most. */
#define VX_KERNEL_OFFSETS_MAX 343

/* One axis of a kernel: flat kernels such as 343x1x1 are legal while V is. */
#define VX_KERNEL_AXIS_MAX 343

/* Dilation: beyond the coordinate range of one request no offset can be reached. */
#define VX_DILATION_MAX 1024

/* Coordinates are packed as 9-bit sample, 18-bit signed x, y, z: 63 bits, so that a
 * packed key is never negative and ~0 is free to mean "empty". */
#define VX_SAMPLE_BITS 9
#define VX_AXIS_BITS   18
#define VX_SAMPLE_MAX  ((1 << VX_SAMPLE_BITS) - 1)
#define VX_AXIS_MIN    (-(1 << (VX_AXIS_BITS - 1)))
#define VX_AXIS_MAX    ((1 << (VX_AXIS_BITS - 1)) - 1)

/* Voxels of one request: row indices are i32 in neighbour maps. */
#define VX_VOXELS_MAX ((1 << 30))

/* Threads of the CPU device: more cores than that share no last-level cache worth
 * sharing. */
#define VX_CPU_THREADS_MAX 256

#endif
