/* mask - which kernel offsets a row has, a bit each, and the sizes that follow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MASK_H
#define VX_KERNELS_MASK_H

#include <stdint.h>

#include "kernels/both.h"

/* Rows whose masks are united in one block mask: the rows of the smallest tile. */
#define VX_MASK_BLOCK 32

/* Words of one mask, entries of one row of nbr, block masks of N rows. */
VX_BOTH int32_t vx_mask_words(int32_t v)
{
    return (v + 31) / 32;
}
VX_BOTH int32_t vx_nbr_stride(int32_t v)
{
    return (v + 3) / 4 * 4;
}
VX_BOTH int64_t vx_mask_blocks(int64_t n)
{
    return (n + VX_MASK_BLOCK - 1) / VX_MASK_BLOCK;
}

#endif
