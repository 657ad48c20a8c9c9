/* pointwise - how kernels that only pass over rows share the rows among blocks: one law
 * for the text and for the host's grid.
 *
 * A block takes VX_POINTWISE_CHANNELS channels, whatever their type: with two bytes to a
 * channel that is two loads of 16 bytes for each of its threads, with four bytes four,
 * enough in flight to fill the memory's queue when every processor is full of threads.
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

/* Whole rows of one block, for kernels that must know where a row begins: as many as its
 * threads pass over in two rounds (two bytes to a channel) or four (four bytes). */
#define VX_POINTWISE_ROWS(cp_)                                                           \
    ((cp_) <= VX_POINTWISE_CHANNELS / 4   ? VX_POINTWISE_CHANNELS / 4 / (cp_)*4          \
     : (cp_) <= VX_POINTWISE_CHANNELS / 2 ? 2                                            \
                                          : 1)

/* A warp holds a row of layer norm up to here; beyond, a block. */
#define VX_LAYER_NORM_WARP_CHANNELS 1024
/* Rows of up to this many channels go two to a lane: else it had too little in flight. */
#define VX_LAYER_NORM_PAIR_CHANNELS 256
#define VX_LAYER_NORM_UNIT          8 /* channels of one lane at a time */
/* Lanes of one row: the power of two that holds its units, at most 32. */
#define VX_LAYER_NORM_LANES(cp_)                                                         \
    ((cp_) <= 16 ? 2 : (cp_) <= 32 ? 4 : (cp_) <= 64 ? 8 : (cp_) <= 128 ? 16 : 32)

#endif
