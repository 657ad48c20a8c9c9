/* limits - every internal maximum, with its reason.
 *
 * Limits of the wire protocol are in proto/limits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_LIMITS_H
#define VX_ENGINE_BASE_LIMITS_H

/* Name of a model, layer, tensor or input, with its NUL: longer than any PyTorch
 * state-dict key of the networks we know (97), short enough for fixed-size messages. */
#define VX_NAME_BYTES 128

/* Outputs that network.json names: the networks we know have at most 4 heads. */
#define VX_NETWORK_OUTPUTS_MAX 8

/* Outputs of one model: those, and the coordinates of each on a set of its own.  A
 * signature must fit in one message of the IPC channel. */
#define VX_OUTPUTS_MAX (2 * VX_NETWORK_OUTPUTS_MAX)

/* Requests in one batch: one message of the IPC channel holds a RUN with that many. */
#define VX_BATCH_ITEMS_MAX 64

/* Priority levels of one model: the models we know use at most three. */
#define VX_PRIORITY_LEVELS_MAX 8

/* Layers of one network: TRELLIS.2's decoder, the deepest we know, has 420. */
#define VX_LAYERS_MAX 1024

/* Inputs of one layer (concat): the widest skip join we know has 4. */
#define VX_LAYER_INPUTS_MAX 8

/* Channels of one layer: TRELLIS.2 C2S convolutions have 8 * 1024. */
#define VX_CHANNELS_MAX 16384

/* Kernel offsets of one convolution: 7^3, the largest kernel that users of sparse
 * convolution libraries ask for. */
#define VX_KERNEL_OFFSETS_MAX 343

/* One axis of a kernel: a flat kernel such as 343x1x1 is legal when its V is. */
#define VX_KERNEL_AXIS_MAX 343

/* Dilation: the reach of the longest kernel axis, 171 * 1024, stays within the 2^18
 * coordinates of an axis. */
#define VX_DILATION_MAX 1024

/* Sets of one network: VoxelNeXt, which has the most of those we know, has 7. */
#define VX_SETS_MAX 32
/* Which algorithm each layer of a request took, as a text with its NUL: the names of some
 * hundred layers.  What has no room is left out, and the text says so. */
#define VX_TAKEN_BYTES 4096
/* Different such texts of one batch: it runs in one round, or in a few that differ in
 * size. */
#define VX_TAKEN_MAX 4

/* Stride of one layer along an axis: the largest we know is 8.  Of a set, against the
 * voxels of the request: both ends of an axis then still differ. */
#define VX_STRIDE_MAX     64
#define VX_SET_STRIDE_MAX (1 << 16)

/* Points to voxels and back: points may lie on a grid much finer than voxels; SPVCNN's
 * coarsest voxels are 16 of its points wide. */
#define VX_POINT_STRIDE_MAX 4096

/* The stride of a set as text, "1/2x1/2x1/2", with its NUL: 36 for the longest. */
#define VX_SET_STRIDE_BYTES 64

/* Numbers of a dense tensor for one sample: 1 GiB of FP32, eight times the largest view of a
 * detector that we know, 512 channels of 180 x 180 at full resolution. */
#define VX_DENSE_NUMBERS_MAX (1 << 28)

/* Dimensions of an output behind the first: channels, or channels x y z. */
#define VX_OUTPUT_DIMS_MAX 4

/* Padding of one layer along an axis: the reach of its kernel. */
#define VX_PADDING_MAX (VX_KERNEL_AXIS_MAX * VX_DILATION_MAX)

/* A coordinate is packed into 63 bits: sample 9 bits, x, y, z 18 bits each, signed.  So a
 * packed key is never negative, and ~0 can stand for "empty". */
#define VX_SAMPLE_BITS 9
#define VX_AXIS_BITS   18
#define VX_SAMPLE_MAX  ((1 << VX_SAMPLE_BITS) - 1)
#define VX_AXIS_MIN    (-(1 << (VX_AXIS_BITS - 1)))
#define VX_AXIS_MAX    ((1 << (VX_AXIS_BITS - 1)) - 1)

/* Voxels of one request: row indices are i32 in neighbour maps. */
#define VX_VOXELS_MAX ((1 << 30))

/* Threads of the CPU device: more cores than this share no useful last-level cache. */
#define VX_CPU_THREADS_MAX 256

/* Batches that may be submitted and not yet collected: while a GPU computes one, it
 * copies the tensors of the other. */
#define VX_ENGINE_BATCHES_MAX 2

#endif
