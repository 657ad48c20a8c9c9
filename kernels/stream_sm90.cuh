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

#include "kernels/05_mask_order.h"
#include "kernels/06_conv_masked.h"
#include "kernels/device.h"
#include "kernels/matrix.cuh"
#include "kernels/mbarrier_sm90.cuh"

#define GROUPS      (VX_TILE_N / 64)       /* of 64 rows in a tile */
#define MULTIPLIERS (GROUPS == 1 ? 1 : 2)  /* warpgroups that multiply */
#define MINE        (GROUPS / MULTIPLIERS) /* groups of rows that one of them multiplies */
#define SUMS        (VX_TILE_CO / 2)       /* of a thread, for each group of 64 rows */
#define THREADS     (32 * VX_WARPS_N)

#define FETCHERS (VX_WARPS_N / 4 - MULTIPLIERS) /* warpgroups that fetch */

/* Warps of them that fetch an offset together, and how many such teams there are. */
#define TEAM  (GROUPS == 1 ? 1 : 4)
#define TEAMS (4 * FETCHERS / TEAM)

#if VX_E4M3
#define FACTOR_BYTES 1 /* of a number that is multiplied */
#else
#define FACTOR_BYTES 2
#endif
#define LINE           128 /* bytes of a column of weights in a stage */
#define ROW            (VX_TILE_CI * FACTOR_BYTES) /* bytes of a row there: as many, or fewer */
#define LINE_CHANNELS  VX_TILE_CI                  /* of a row that a stage has */
#define CHUNK_CHANNELS (16 / FACTOR_BYTES)         /* of one copy */
#define STEP_CHANNELS  (32 / FACTOR_BYTES)         /* of one instruction */
#define ROW_CHUNKS     (ROW / 16)
#define ROW_STEPS      (ROW / 32)
#define A_BYTES        (VX_TILE_N * ROW)
#define B_BYTES        (VX_TILE_CO * LINE)
#define STAGE_BYTES    (A_BYTES + B_BYTES)

/* The tiles as they are dealt to the blocks (05_mask_order.h); NULL = as they are. */
#define TILES_LIST (GROUPS == 1 ? NULL : args->tiles[GROUPS == 4])

static_assert(ROW == LINE || ROW == LINE / 2 || ROW == LINE / 4,
              "rows that the instruction can swizzle");
static_assert(A_BYTES % 1024 == 0 && VX_STAGES >= 3, "whole patterns; a ring");
static_assert(MINE * SUMS <= 128, "the sums fit in registers");

/* A thread's place in the ring.  Addresses go from stage to stage with it: worked out of a
 * number they would begin, each time, with a question to the hardware where shared memory is. */
struct ring {
    uint32_t stage;  /* the next one */
    uint32_t full;   /* its barrier: its data is there */
    uint32_t at;     /* its number */
    uint32_t parity; /* of the phase that is waited for */
};

/* The barrier that a stage is empty, from that it is full. */
VX_DEVICE uint32_t ring_empty(uint32_t full)
{
    return full + 8 * VX_STAGES;
}

VX_DEVICE void ring_step(struct ring *ring)
{
    ring->stage += STAGE_BYTES;
    ring->full += 8;
    if (++ring->at < VX_STAGES) return;
    ring->stage -= VX_STAGES * STAGE_BYTES;
    ring->full -= 8 * VX_STAGES;
    ring->at = 0;
    ring->parity ^= 1u;
}

/* Passes stages that others fill. */
VX_DEVICE void ring_pass(struct ring *ring, uint32_t stages)
{
    ring->stage += stages * STAGE_BYTES;
    ring->full += 8 * stages;
    ring->at += stages;
    while (ring->at >= VX_STAGES) {
        ring->stage -= VX_STAGES * STAGE_BYTES;
        ring->full -= 8 * VX_STAGES;
        ring->at -= VX_STAGES;
        ring->parity ^= 1u;
    }
}

/* Two numbers in a word, the first in its low half; rounded to nearest, ties to even. */
VX_DEVICE uint32_t vx_pair_of(float low, float high)
{
    uint32_t word;
#if VX_TYPE == VX_TYPE_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
    return word;
}

/* --- tiles --- */

struct stream {
    const struct vx_conv_device_args *args;
    uint32_t columns, tiles; /* of a group of offsets */
    uint32_t count;          /* tiles of all groups */
    int32_t per_group;       /* offsets */
    int64_t blocks;          /* of 32 rows */
};

VX_DEVICE struct stream stream_of(const struct vx_conv_device_args *args)
{
    struct stream stream;
    stream.args = args;
    stream.columns = (uint32_t)((args->co + VX_TILE_CO - 1) / VX_TILE_CO);
    stream.tiles = (uint32_t)((args->n + VX_TILE_N - 1) / VX_TILE_N);
    stream.count = stream.tiles * (uint32_t)args->groups;
    stream.per_group = args->groups == 1 ? args->v : args->v / args->groups;
    stream.blocks = vx_mask_blocks(args->n);
    return stream;
}

struct stream_tile {
    /* In the order; < 0: of none, which is passed as if it had no offset. */
    int64_t first_row;
    int32_t first_column;
    int32_t group;
};

/* Most layers have one group and one column of tiles: here and in tile_at they divide by neither. */
VX_DEVICE uint32_t place_at(const struct stream *stream, uint32_t index)
{
    return stream->columns == 1 ? index : index / stream->columns;
}

/* Loads what the list has at this index, two tiles ahead, so that nobody waits for it.  Where there
 * is no list *loaded stays as it is: with a value for that here, ptxas 13.0 made one register of both,
 * and then forgot to wait for a shuffle on the way to the rows' addresses. */
VX_DEVICE void entry_load(const struct stream *stream, uint32_t index, uint32_t *loaded)
{
    const struct vx_conv_device_args *args = stream->args;
    if (TILES_LIST) *loaded = (uint32_t)TILES_LIST[place_at(stream, index)];
}

/* The tile at this index, as group * tiles + tile.  All lanes loaded the same: by a shuffle the
 * compiler knows it, too. */
VX_DEVICE uint32_t entry_at(const struct stream *stream, uint32_t index, uint32_t loaded)
{
    const struct vx_conv_device_args *args = stream->args;
    const uint32_t place = place_at(stream, index);
    if (TILES_LIST) return vx_shuffle(loaded, 0);
    return place < stream->count ? place : (uint32_t)VX_ORDER_TILES_END;
}

/* Whether the block has this tile or one behind it. */
VX_DEVICE int tiles_left(const struct stream *stream, uint32_t entry)
{
    return (int32_t)entry >= (stream->columns == 1 ? 0 : VX_ORDER_TILES_NONE);
}

VX_DEVICE struct stream_tile tile_at(const struct stream *stream, uint32_t index,
                                     uint32_t entry)
{
    struct stream_tile tile = {(int64_t)(int32_t)entry * VX_TILE_N, 0, 0};
    if (stream->columns > 1)
        tile.first_column = (int32_t)(index % stream->columns) * VX_TILE_CO;
    if (stream->args->groups > 1 && (int32_t)entry >= 0) {
        tile.first_row = (int64_t)(entry % stream->tiles) * VX_TILE_N;
        tile.group = (int32_t)(entry / stream->tiles);
    }
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

/* The offsets of one word that some of 32 rows has: lane l loads those of the l-th 32 rows
 * of the tile.  The lanes are joined where that is used: who joins waits for the load. */
VX_DEVICE uint32_t words_load(const struct stream *stream, const struct stream_tile *tile,
                              int32_t word)
{
    const struct vx_conv_device_args *args = stream->args;
    if (!args->block_masks) {
        int32_t low = tile->group * stream->per_group - 32 * word;
        int32_t high = low + stream->per_group;
        uint32_t bits = ~0u;
        if (high < 32) bits = (1u << high) - 1;
        return low > 0 ? bits & ~0u << low : bits;
    }
    int64_t block = tile->first_row / VX_MASK_BLOCK + vx_lane();
    if (vx_lane() >= 2 * GROUPS || (uint64_t)block >= (uint64_t)stream->blocks) return 0;
    return args
        ->block_masks[((int64_t)tile->group * stream->blocks + block) * args->words +
                      word];
}

/* The offsets that some row of 64 has. */
VX_DEVICE uint32_t words_join(uint32_t words, uint32_t rows64)
{
    return vx_shuffle(words, 2 * rows64) | vx_shuffle(words, 2 * rows64 + 1);
}

/* The row at a place of the order; -1 before the first, and beyond the last. */
VX_DEVICE int32_t row_at(const struct vx_conv_device_args *args,
                         const struct stream_tile *tile, int64_t place)
{
    if ((uint64_t)place >= (uint64_t)args->n) return -1;
    if (!args->order) return (int32_t)place;
    return args->order[(int64_t)tile->group * args->n + place];
}

#endif
