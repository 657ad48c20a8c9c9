/* tiles_deal - who takes which tile: tiles, those with the most work first, are dealt to the blocks
 * of a convolution that streams.
 *
 * The blocks take tiles in rounds, there and back, so that who had the most work of one round has
 * the least of the next.  Where the list begins steeply, a block whose first tile alone is more
 * work than the others have had passes the round.  Without that an H200 was idle 44 % of a layer
 * of 110,062 scattered voxels, 256 channels: 26 of its 860 tiles have 3 to 14 offsets, the others
 * one, and each block had as many tiles.
 *
 * What a tile costs is told by its offsets and TILE_END.  Simulated for nine clouds, tiles of 128
 * and 256 rows, and one to three of them beside each other, the longest block has 2 % more than
 * with a greedy choice, 23 % at most, if the end of a tile costs one to four offsets; where nobody
 * passes, up to 75 %.  Dropped: each block of the convolution deals for itself, which takes it 1
 * to 4 us more than that gains where nothing is to be passed.
 *
 * Private to 05_mask_order.cu.
 *
 * Owner    -
 * Thread   device code; deal_make by one wave, deal_place by any thread behind a barrier.
 * Limits   at most VX_ORDER_DEAL_ROUNDS rounds that somebody passes.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILES_DEAL_CUH
#define VX_KERNELS_TILES_DEAL_CUH

#include "kernels/05_mask_order.h"
#include "kernels/device.h"

/* In shared memory. */
struct deal {
    uint32_t count, blocks; /* tiles, and who gets them */
    uint32_t rounds;        /* the first one, and those that some block passes */
    /* Of each, and of the one behind them: its first tile, and how many blocks pass it, which are
     * the first ones, and fewer every round. */
    uint32_t firsts[VX_ORDER_DEAL_ROUNDS + 1], passed[VX_ORDER_DEAL_ROUNDS + 1];
};

/* more: in lane c, how many tiles have c offsets or more. */
VX_DEVICE uint32_t deal_work(uint32_t more, uint32_t tile)
{
    return (uint32_t)vx_count_bits((uint32_t)vx_ballot(more > tile) & ~1u) +
           VX_ORDER_TILE_END;
}

VX_DEVICE void deal_make(struct deal *deal, uint32_t more)
{
    const uint32_t blocks = deal->blocks;
    uint32_t first = 0, passed = 0, round = 0;
    /* The most that a block which has passed no round may have had: the least of the first round,
     * and the most of each behind it. */
    uint32_t level = deal_work(more, blocks - 1);
    for (;;) {
        if (vx_lane() == 0) {
            deal->firsts[round] = first;
            deal->passed[round] = passed;
        }
        if (round > 0 && !passed) break;
        first += blocks - passed;
        level += deal_work(more, first);
        const uint32_t many = level + 1 - VX_ORDER_TILE_END;
        passed = many < VX_ORDER_DEAL_OFFSETS ? vx_shuffle(more, many) : 0;
        if (passed >= blocks) passed = blocks - 1;
        if (first >= deal->count) passed = 0;
        round++;
    }
    if (vx_lane() == 0) deal->rounds = round;
}

/* How many turns the block with the most of them has: the last one, which passes no round. */
VX_DEVICE uint32_t deal_turns(const struct deal *deal)
{
    const uint32_t even = deal->firsts[deal->rounds];
    if (deal->count <= even) return deal->rounds;
    return deal->rounds + (deal->count - even + deal->blocks - 1) / deal->blocks;
}

/* Where a tile stands in the list: turn * blocks + block. */
VX_DEVICE uint32_t deal_place(const struct deal *deal, uint32_t tile)
{
    const uint32_t even = deal->firsts[deal->rounds], blocks = deal->blocks;
    uint32_t round = 0, at = tile, passed = 0;
    if (tile >= even) {
        round = deal->rounds + (tile - even) / blocks;
        at = (tile - even) % blocks;
    } else {
        while (deal->firsts[round + 1] <= tile) round++;
        at = tile - deal->firsts[round];
        passed = deal->passed[round];
    }
    /* The last round is from the back, too: its first blocks had the most of the first one. */
    const int last = tile - at + blocks - passed >= deal->count;
    const int back = round & 1u || (last && round);
    const uint32_t block = back ? blocks - 1 - at : passed + at;
    uint32_t turn = round;
    for (uint32_t r = 1; r <= round && r < deal->rounds; r++)
        turn -= deal->passed[r] > block;
    return turn * blocks + block;
}

#endif
