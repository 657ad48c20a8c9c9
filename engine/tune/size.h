/* size - classes of N: numbers of rows for which a convolution takes the same tile.
 *
 * Up to 1,023 rows and from 262,144 on a class is all N of one bit length; between, four classes
 * divide each power of two.  There a device has one to ten tiles for each processor, so a fifth more
 * rows may need another round of tiles, and another tile is the fastest.  H200, 3^3, FP16, 256
 * channels, 8,767 voxels of a room, microseconds: with the tile of the whole power of two, which was
 * the fastest for a shell of 15,192 voxels, 71; with that of its class 53; the fastest of all 43.
 *
 *   i32 size = vx_size_class(n);               1 .. VX_SIZES_MAX
 *   i64 middle = vx_size_middle(size);         stands for all of them
 *
 * Owner    -
 * Thread   any; pure.
 * Limits   1 <= n < 2^31.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_SIZE_H
#define VX_ENGINE_TUNE_SIZE_H

#include "engine/base/types.h"

/* Bit lengths of the N whose classes are parts. */
#define VX_SIZE_PARTS_FIRST 11
#define VX_SIZE_PARTS_LAST  18
#define VX_SIZE_PARTS       4
/* Classes up to the last of those parts, and of all N below 2^31. */
#define VX_SIZE_PARTS_END                                                                \
    (VX_SIZE_PARTS_FIRST - 1 +                                                           \
     VX_SIZE_PARTS * (VX_SIZE_PARTS_LAST - VX_SIZE_PARTS_FIRST + 1))
#define VX_SIZES_MAX (VX_SIZE_PARTS_END + 31 - VX_SIZE_PARTS_LAST)

static inline i32 vx_size_class(i64 n)
{
    const i32 bits = vx_bit_length((u64)n);
    if (bits < VX_SIZE_PARTS_FIRST) return bits;
    if (bits > VX_SIZE_PARTS_LAST) return VX_SIZE_PARTS_END + bits - VX_SIZE_PARTS_LAST;
    const i32 part = (i32)(n >> (bits - 3)) % VX_SIZE_PARTS;
    return VX_SIZE_PARTS_FIRST + VX_SIZE_PARTS * (bits - VX_SIZE_PARTS_FIRST) + part;
}

/* The least N of a class; of the one behind the last class, the first N that has none. */
static inline i64 vx_size_first(i32 size)
{
    if (size < VX_SIZE_PARTS_FIRST) return (i64)1 << (size - 1);
    if (size > VX_SIZE_PARTS_END)
        return (i64)1 << (size - VX_SIZE_PARTS_END + VX_SIZE_PARTS_LAST - 1);
    const i32 parts = size - VX_SIZE_PARTS_FIRST;
    return (i64)(VX_SIZE_PARTS + parts % VX_SIZE_PARTS)
           << (VX_SIZE_PARTS_FIRST + parts / VX_SIZE_PARTS - 3);
}

static inline i64 vx_size_last(i32 size)
{
    return vx_size_first(size + 1) - 1;
}

/* The N that stands for all N of a class. */
static inline i64 vx_size_middle(i32 size)
{
    return (vx_size_first(size) + vx_size_first(size + 1)) / 2;
}

/* How many classes away one is that may stand for another: beyond a factor of four in rows another
 * tile is the fastest, because few rows need more blocks and many rows larger tiles. */
#define VX_SIZES_AWAY 8
static inline bool vx_size_is_near(i32 a, i32 b)
{
    const i64 first = vx_size_first(a), second = vx_size_first(b);
    return first <= 4 * second && second <= 4 * first;
}

#endif
