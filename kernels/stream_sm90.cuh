/* stream_sm90 - what both sides of a stream of tiles know: the ring, the tiles, their offsets.
 *
 * Private to tile_stream_sm90.cuh.
 *
 * Owner    -
 * Thread   device code.
 * Limits   as tile_stream_sm90.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_STREAM_SM90_CUH
#define VX_KERNELS_STREAM_SM90_CUH

#include "kernels/06_conv_masked.h"
#include "kernels/device.h"
#include "kernels/matrix.cuh"
#include "kernels/mbarrier_sm90.cuh"

#define THREADS 384
#define GROUPS  (VX_TILE_N / 64)  /* of 64 rows in a tile */
#define MINE    (VX_TILE_N / 128) /* of them that a warpgroup multiplies */
#define SUMS    (VX_TILE_CO / 2)  /* of a thread, for each group of 64 rows */

#define LINE        128 /* bytes of a row in a stage: 64 channels */
#define A_BYTES     (VX_TILE_N * LINE)
#define B_BYTES     (VX_TILE_CO * LINE)
#define STAGE_BYTES (A_BYTES + B_BYTES)

/* The tiles, those with the most offsets first; NULL = as they are. */
#define TILES_LIST (args->tiles[VX_TILE_N == 256])

static_assert(VX_TILE_CI == 64 && VX_STAGES >= 3, "a line of 128 bytes; a ring");
static_assert(MINE * SUMS <= 128, "the sums fit in registers");

/* Where the ring lies in shared memory, and a thread's place in it. */
struct ring {
    uint32_t stages, full, empty;
    uint32_t at;     /* the next stage */
    uint32_t parity; /* of the phase that is waited for */
};

VX_DEVICE void ring_step(struct ring *ring)
{
    if (++ring->at == VX_STAGES) ring->at = 0, ring->parity ^= 1u;
}

/* --- tiles --- */

struct stream {
    const struct vx_conv_device_args *args;
    uint32_t columns, tiles; /* of a group of offsets */
    uint32_t count;          /* tiles of all groups and columns */
    int32_t per_group;       /* offsets */
    int64_t blocks;          /* of 32 rows */
};

VX_DEVICE struct stream stream_of(const struct vx_conv_device_args *args)
{
    struct stream stream;
    stream.args = args;
    stream.columns = (uint32_t)((args->co + VX_TILE_CO - 1) / VX_TILE_CO);
    stream.tiles = (uint32_t)((args->n + VX_TILE_N - 1) / VX_TILE_N);
    stream.count = stream.columns * stream.tiles * (uint32_t)args->groups;
    stream.per_group = args->v / args->groups;
    stream.blocks = vx_mask_blocks(args->n);
    return stream;
}

struct stream_tile {
    int64_t first_row; /* in the order */
    int32_t first_column;
    int32_t group;
};

/* The block's tile in a round: there and back, so that who had the most work of one round
 * has the least of the next, where a list is sorted by work.  Beyond the last: none. */
VX_DEVICE uint32_t index_at(const struct vx_conv_device_args *args, uint32_t round)
{
    uint32_t blocks = (uint32_t)args->blocks;
    return round * blocks + (round & 1u ? blocks - 1 - vx_block_x() : vx_block_x());
}

VX_DEVICE struct stream_tile tile_at(const struct stream *stream, uint32_t index)
{
    const struct vx_conv_device_args *args = stream->args;
    struct stream_tile tile;
    tile.first_column = (int32_t)(index % stream->columns) * VX_TILE_CO;
    index /= stream->columns;
    if (TILES_LIST) index = (uint32_t)TILES_LIST[index];
    tile.first_row = (int64_t)(index % stream->tiles) * VX_TILE_N;
    tile.group = (int32_t)(index / stream->tiles);
    return tile;
}

/* The words of a mask in which a group has offsets. */
VX_DEVICE int32_t word_first(const struct stream *stream, const struct stream_tile *tile)
{
    return tile->group * stream->per_group / 32;
}
VX_DEVICE int32_t word_last(const struct stream *stream, const struct stream_tile *tile)
{
    return ((tile->group + 1) * stream->per_group - 1) / 32;
}

/* The offsets of one word that some row of 64 has. */
VX_DEVICE uint32_t rows_word(const struct stream *stream, const struct stream_tile *tile,
                             int32_t rows64, int32_t word)
{
    const struct vx_conv_device_args *args = stream->args;
    int64_t block = tile->first_row / VX_MASK_BLOCK + 2 * rows64;
    if (!args->block_masks) {
        int32_t low = tile->group * stream->per_group - 32 * word;
        int32_t high = low + stream->per_group;
        uint32_t bits = ~0u;
        if (high < 32) bits = (1u << high) - 1;
        return low > 0 ? bits & ~0u << low : bits;
    }
    uint32_t bits = 0;
    const uint32_t *masks =
        args->block_masks +
        ((int64_t)tile->group * stream->blocks + block) * args->words + word;
    if (block < stream->blocks) bits = masks[0];
    if (block + 1 < stream->blocks) bits |= masks[args->words];
    return bits;
}

/* The row at a place of the order; -1 beyond the last. */
VX_DEVICE int32_t row_at(const struct vx_conv_device_args *args,
                         const struct stream_tile *tile, int64_t place)
{
    if (place >= args->n) return -1;
    if (!args->order) return (int32_t)place;
    return args->order[(int64_t)tile->group * args->n + place];
}

#endif
