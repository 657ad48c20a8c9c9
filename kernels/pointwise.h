/* pointwise - how kernels that only pass over rows divide them among blocks.
 *
 * The text and the host's grid use the same numbers.  A block takes VX_POINTWISE_CHANNELS
 * channels of any type: for each thread two loads of 16 bytes with 2-byte channels, four
 * with 4-byte ones.  That is enough in flight to keep the memory busy when every
 * processor is full of threads.
 *
 * Owner    -
 * Thread   any; device code.
 * Limits   N * Cp < 2^43, so that blocks fit one axis of a grid.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_POINTWISE_H
#define VX_KERNELS_POINTWISE_H

#include <stdint.h>

#define VX_POINTWISE_THREADS  256
#define VX_POINTWISE_CHANNELS 4096

/* Rows of one block, for kernels that need whole rows: as many as its threads pass over
 * in two rounds (2-byte channels) or four (4-byte channels). */
#define VX_POINTWISE_ROWS(cp_)                                                           \
    ((cp_) <= VX_POINTWISE_CHANNELS / 4   ? VX_POINTWISE_CHANNELS / 4 / (cp_)*4          \
     : (cp_) <= VX_POINTWISE_CHANNELS / 2 ? 2                                            \
                                          : 1)

/* Layer norm: up to this many channels a row belongs to a warp, beyond it to a block. */
#define VX_LAYER_NORM_WARP_CHANNELS 1024
/* Up to this many channels a lane has two rows: with one, too few loads are in flight. */
#define VX_LAYER_NORM_PAIR_CHANNELS 256
#define VX_LAYER_NORM_UNIT          8 /* channels of one lane at a time */
/* Lanes of one row: the power of two that holds its units, at most 32. */
#define VX_LAYER_NORM_LANES(cp_)                                                         \
    ((cp_) <= 16 ? 2 : (cp_) <= 32 ? 4 : (cp_) <= 64 ? 8 : (cp_) <= 128 ? 16 : 32)

#endif
