/* tile_stream_sm90 - tiles as one stream: some warps fetch, others multiply, and neither waits at the
 * end of a tile.
 *
 * The blocks stay, and each has its tiles.  The first warpgroup, or two in turn, walks
 * over (tile, present offset, line of channels) and fills a ring of stages: rows by cp.async, 16
 * bytes a lane, zeros where a neighbour is missing; the weights, which lie tiled in memory
 * (29_weight_tile.h), by one bulk copy that is sent before the rows.  Two warpgroups take
 * the same walk, multiply by wgmma what arrives, and store their sums while the ring fills
 * for the next tile.  A group of 64 rows that lacks an offset is neither
 * fetched nor multiplied: its zeros would change nothing.
 *
 * A stage is full when 128 threads' copies and the weights are there, and empty when each
 * of the eight warps has said so: one arrival for a warpgroup would let its warps fall a
 * phase behind where they multiply nothing.  (Of a tile of 64 rows: 32 threads, four warps.)
 *
 * Tiles of 64 rows are for layers of few rows, in which each block has one tile or two and what
 * counts is how long the way of a tile is.  One warpgroup multiplies, all others fetch, and each
 * stage is multiplied, three at once: by one at a time an offset of 64 channels took 255 cycles, some
 * 50 of them because of the products.  Microseconds, H200, chains of eight layers in a graph, tiles of
 * 128x64 and the best of 64 rows: shells of 704 voxels 64 channels 12.6, 5.0; 128: 18.8, 8.4; 256:
 * 32.6, 16.1; of 144 voxels 1024: 123, 58; of 6,752 voxels 64: 11.9, 6.3.  Dropped: the same for
 * tiles of 128 and 256 rows, by runs of offsets that the same rows have: 2.5 % slower.
 *
 * Numbers of 8 bits (e4m3.h) take the same way: a line of 128 bytes has 128 channels of them, an
 * instruction multiplies 32, and each sum is multiplied by its column's scale at the end.
 *
 * Layers of up to 32 channels have tiles of short rows: 64 bytes of a row in a stage, or 32, which
 * the instruction swizzles in patterns of their own.  The weights' lines stay as they are, with zeros
 * behind their channels that nobody multiplies, so that a layer's tiled weights suit every tile.  A
 * stage takes less of the ring, and 4 or 2 lanes copy a row.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   sm_90a; F16, BF16, E4M3; VX_WARPS_N 12 or 16; VX_TILE_N 128 or 256, VX_TILE_CO 32, 64,
 *          96, 128, 160, 192 or 256, together at most 32768 sums; or VX_TILE_N 64, VX_TILE_CO 32,
 *          64 or 128, VX_WARPS_N 12, 16 or 20; VX_TILE_CI 64, or at least ci: 32 or 16; of E4M3 128,
 *          whose ci is a multiple of 32.
 * Fails    never.
 * Source   CUTLASS's warp specialisation; the tiled weights, the ring over tiles and the
 *          skip at 64 rows are ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_STREAM_SM90_CUH
#define VX_KERNELS_TILE_STREAM_SM90_CUH

#define WGMMA_COLUMNS_LAST "0" /* the right operand lies with the sum along its rows */

#include "kernels/stream_fetch_sm90.cuh"
#include "kernels/stream_store_sm90.cuh"
#include "kernels/wgmma_sm90.cuh"

/* Registers of a thread.  All together they are what the launch was given, 168 for each of 384
 * threads, 128 of 512: a sum above it would wait for ever. */
#if TEAMS == 1
#define FETCH_REGISTERS    "104"
#define MULTIPLY_REGISTERS "200"
#elif MINE * SUMS <= 64
#define FETCH_REGISTERS    "120"
#define MULTIPLY_REGISTERS "136"
#else
#define FETCH_REGISTERS    "96"
#define MULTIPLY_REGISTERS "160"
#endif

/* --- the warpgroups that multiply --- */

#define PASTED(a_, b_) a_##b_
#define PASTE(a_, b_)  PASTED(a_, b_) /* b_ is a macro */

/* What is loaded of a tile while the one before it is computed. */
struct tile_next {
    struct stream_tile tile;
    uint32_t entry, later_entry; /* of the list, of the tile behind it */
    uint32_t words;
    int32_t rows[MINE];
};

VX_DEVICE void masks_join(uint32_t words, uint32_t group, struct tile_about *about)
{
    about->all = 0;
#pragma unroll
    for (uint32_t g = 0; g < GROUPS; g++) about->all |= words_join(words, g);
#pragma unroll
    for (uint32_t m = 0; m < MINE; m++)
        about->own[m] = words_join(words, group * MINE + m);
}

VX_DEVICE void next_load(const struct stream *stream, uint32_t index, uint32_t group,
                         struct tile_next *next)
{
    const struct vx_conv_device_args *args = stream->args;
    uint32_t entry = entry_at(stream, index, next->later_entry);
    next->entry = entry;
    if (!tiles_left(stream, entry)) return;
    next->tile = tile_at(stream, index, entry);
    next->words = words_load(stream, &next->tile, word_first(stream, &next->tile));
#pragma unroll
    for (int m = 0; m < MINE; m++)
        next->rows[m] = row_at(args, &next->tile,
                               next->tile.first_row + (group * MINE + (uint32_t)m) * 64 +
                                   vx_thread() / 32 % 4 * 16 + vx_lane() % 16);
    entry_load(stream, index + (uint32_t)args->blocks, &next->later_entry);
}

/* Says that this warp no longer reads the stage of a barrier. */
VX_DEVICE void stage_release(uint32_t full)
{
    vx_wave_barrier();
    if (vx_lane() == 0) vx_mbarrier_arrive(ring_empty(full));
}

VX_DEVICE void products_end(struct multiply *it)
{
    vx_wgmma_wait(0);
    if (it->held) stage_release(it->held);
    it->held = 0;
}

VX_DEVICE void columns_multiply(float *sums, uint64_t left, uint64_t right)
{
    PASTE(vx_wgmma_, VX_TILE_CO)(sums, left, right);
}

/* The products of one stage, a line of channels: `which` and `steps` are constants. */
VX_DEVICE void stage_multiply(struct multiply *it, uint32_t stage, const int which,
                              const int steps)
{
    const uint64_t right = vx_wgmma_describe(stage + A_BYTES, LINE, 16);
#pragma unroll
    for (int m = 0; m < MINE; m++) {
        if (!(which >> m & 1)) continue;
        const uint64_t left = vx_wgmma_describe(
            stage + (it->group * MINE + (uint32_t)m) * 64 * ROW, ROW, 16);
#pragma unroll
        for (int s = 0; s < steps; s++)
            columns_multiply(it->sums[m], left + 2 * s, right + 2 * s);
    }
}

#if GROUPS > 1

/* The same, committed here.  A commit behind a branch is one that the compiler cannot join to the
 * product before it: it adds a group of its own with an empty product, and a wait for all groups but
 * the last is then a wait for all products. */
VX_DEVICE void line_multiply(struct multiply *it, uint32_t stage, const int which,
                             const int steps)
{
    vx_wgmma_begin();
    stage_multiply(it, stage, which, steps);
    vx_wgmma_commit();
}

/* The products of one offset.  `which` is a constant: bit m: the m-th 64 rows have it. */
VX_DEVICE void offset_multiply(const struct vx_conv_device_args *args,
                               struct multiply *it, struct ring *ring, const int which)
{
    for (int32_t channel = 0; channel < args->ci; channel += LINE_CHANNELS) {
        const int32_t steps = (args->ci - channel) / STEP_CHANNELS;
        vx_mbarrier_wait(ring->full, ring->parity);
        vx_fence_async(); /* the rows came by cp.async */
        if (ROW_STEPS >= 4 && steps >= 4)
            line_multiply(it, ring->stage, which, 4);
        else if (ROW_STEPS >= 4 && steps == 3)
            line_multiply(it, ring->stage, which, 3);
        else if (ROW_STEPS >= 2 && steps == 2)
            line_multiply(it, ring->stage, which, 2);
        else
            line_multiply(it, ring->stage, which, 1);
        if (it->held) {
            vx_wgmma_wait(1);
            stage_release(it->held);
        }
        it->held = ring->full;
        ring_step(ring);
    }
}

/* Nothing of this warpgroup's: the stages are passed on. */
VX_DEVICE void offset_pass(const struct vx_conv_device_args *args, struct multiply *it,
                           struct ring *ring)
{
    products_end(it);
    for (int32_t channel = 0; channel < args->ci; channel += LINE_CHANNELS) {
        vx_mbarrier_wait(ring->full, ring->parity);
        stage_release(ring->full);
        ring_step(ring);
    }
}

/* The offsets of one word. */
VX_DEVICE void word_multiply(const struct vx_conv_device_args *args,
                             const struct tile_about *about, struct multiply *it,
                             struct ring *ring)
{
    /* They come from shuffles, which tell the compiler that all lanes branch alike. */
    for (uint32_t all = about->all; all; all &= all - 1) {
        int bit = vx_lowest_bit(all);
        uint32_t which = about->own[0] >> bit & 1u;
        if (MINE == 2) which |= (about->own[MINE - 1] >> bit & 1u) << 1;
        which = vx_shuffle(which, 0);
        if (!which)
            offset_pass(args, it, ring);
        else if (MINE == 1 || which == 1)
            offset_multiply(args, it, ring, 1);
        else if (which == 2)
            offset_multiply(args, it, ring, 2);
        else
            offset_multiply(args, it, ring, 3);
    }
}

#else /* a small tile: one warpgroup takes every stage */

/* So little work for a stage that the way to it costs more: so many are multiplied at once. */
#define BATCH 3
static_assert(2 * BATCH < VX_STAGES, "others are filled meanwhile");

/* That the stages of a batch are full, whose products may still run; 0 none. */
struct batch {
    uint32_t full[BATCH];
};

VX_DEVICE void batch_release(const struct batch *batch)
{
#pragma unroll
    for (int b = 0; b < BATCH; b++)
        if (batch->full[b]) stage_release(batch->full[b]);
}

/* The products of the next `many` stages, a constant; what is held before them is released.  Behind
 * the last channels lie zeros, which are multiplied, too. */
VX_DEVICE void batch_multiply(struct multiply *it, struct ring *ring, const int many,
                              struct batch *held)
{
    uint32_t stages[BATCH], full[BATCH];
#pragma unroll
    for (int b = 0; b < many; b++) {
        stages[b] = ring->stage;
        full[b] = ring->full;
        vx_mbarrier_wait(ring->full, ring->parity);
        ring_step(ring);
    }
    vx_fence_async(); /* the rows came by cp.async */
    vx_wgmma_begin();
#pragma unroll
    for (int b = 0; b < many; b++) stage_multiply(it, stages[b], 1, ROW_STEPS);
    vx_wgmma_commit();
    if (held->full[0]) {
        vx_wgmma_wait(1);
        batch_release(held);
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++) held->full[b] = b < many ? full[b] : 0;
}

/* The offsets of one word. */
VX_DEVICE void word_multiply(const struct vx_conv_device_args *args,
                             const struct tile_about *about, struct multiply *it,
                             struct ring *ring)
{
    struct batch held = {};
    uint32_t stages = (uint32_t)vx_count_bits(about->all) * lines_of(args);
    for (; stages >= BATCH; stages -= BATCH) batch_multiply(it, ring, BATCH, &held);
    for (; stages; stages--) batch_multiply(it, ring, 1, &held);
    vx_wgmma_wait(0);
    batch_release(&held);
}

#endif

/* Waits for the products, and tells the compiler that they have changed the sums. */
VX_DEVICE void sums_there(struct multiply *it)
{
    products_end(it);
#pragma unroll
    for (int m = 0; m < MINE; m++)
#pragma unroll
        for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(it->sums[m][i])::"memory");
}

VX_DEVICE void stream_multiply(const struct vx_conv_device_args *args, struct ring *ring)
{
    struct stream stream = stream_of(args);
    struct multiply it;
    struct tile_about about = {0};
    struct tile_next next = {0};
    it.group = vx_shuffle(vx_thread() / 128, 0) - FETCHERS;
    it.held = 0;
    ring->parity = 0;
    uint32_t index = vx_block_x();
    entry_load(&stream, index, &next.later_entry);
    next_load(&stream, index, it.group, &next);
    vx_launch_before();
    while (tiles_left(&stream, next.entry)) {
        const struct stream_tile tile = next.tile;
        uint32_t any = 0;
        masks_join(next.words, it.group, &about);
#pragma unroll
        for (int m = 0; m < MINE; m++) about.rows[m] = next.rows[m];
        index += (uint32_t)args->blocks;
        next_load(&stream, index, it.group, &next);
#pragma unroll
        for (int m = 0; m < MINE; m++)
#pragma unroll
            for (int i = 0; i < SUMS; i++) it.sums[m][i] = 0.0f;
        for (int32_t word = word_first(&stream, &tile);; word++) {
            any |= about.all;
            word_multiply(args, &about, &it, ring);
            if (word == word_last(&stream, &tile)) break;
            masks_join(words_load(&stream, &tile, word + 1), it.group, &about);
        }
        sums_there(&it);
        /* No row of the tile has an offset of the group: conv_reduce reads none. */
        if (args->partial && args->block_masks && !any) continue;
        tile_store(args, &tile, &about, &it);
    }
}

/* --- both --- */

static_assert(16 * VX_STAGES <= VX_STREAM_MORE_BYTES, "room for barriers");

VX_DEVICE void stream_run(const struct vx_conv_device_args *args, char *shared)
{
    struct ring ring;
    ring.stage = vx_shared_address(shared);
    ring.full = ring.stage + STAGE_BYTES * VX_STAGES;
    ring.at = 0;
    if (vx_thread() == 0) {
        for (uint32_t s = 0; s < VX_STAGES; s++) {
            vx_mbarrier_open(ring.full + 8 * s, 32 * TEAM + 1);
            vx_mbarrier_open(ring_empty(ring.full) + 8 * s, 4 * MULTIPLIERS);
        }
        vx_mbarrier_opened();
    }
    vx_barrier();
    vx_launch_next();
    if (vx_shuffle(vx_thread() / 128, 0) < FETCHERS) {
        if (GROUPS > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 " FETCH_REGISTERS ";");
        stream_fetch(args, &ring);
    } else {
        if (GROUPS > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 " MULTIPLY_REGISTERS ";");
        stream_multiply(args, &ring);
    }
}

#endif
