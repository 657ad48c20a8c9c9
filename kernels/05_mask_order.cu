/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"
#include "kernels/order.cuh"
#include "kernels/tiles_deal.cuh"
#include "kernels/turn.cuh"

#define WAVES (VX_ORDER_THREADS / VX_WAVE)

/* --- block masks --- */

/* The bits of a group in one word of a mask. */
VX_DEVICE uint32_t group_word(const struct vx_mask_order_args *args, int32_t group,
                              int32_t word)
{
    int32_t low = group * args->bits - 32 * word;
    int32_t high = low + args->bits;
    if (low < 0) low = 0;
    if (high > 32) high = 32;
    return low < high ? ones(high) & ~ones(low) : 0;
}

/* The lanes of 32 places write one word of a block mask; `found` is this lane's part. */
VX_DEVICE void block_word(const struct vx_mask_order_args *args, int32_t group,
                          int64_t place, int32_t word, uint32_t found)
{
    for (uint32_t step = VX_MASK_BLOCK / 2; step > 0; step /= 2)
        found |= vx_shuffle_xor(found, step);
    if (place % VX_MASK_BLOCK == 0 && place < args->n) {
        int64_t block = group * vx_mask_blocks(args->n) + place / VX_MASK_BLOCK;
        args->block_masks[block * args->words + word] = found;
    }
}

/* Every lane of the wave must call it; lanes past the end have `place` >= n. */
VX_DEVICE void block_of_row(const struct vx_mask_order_args *args, int32_t group,
                            int64_t place, int64_t row)
{
    for (int32_t word = 0; word < args->words; word++) {
        uint32_t kept = group_word(args, group, word);
        uint32_t found = 0;
        if (kept && place < args->n) found = args->masks[row * args->words + word] & kept;
        block_word(args, group, place, word, found);
    }
}

/* Four entries of a row; a thread moves those of 3^3 together. */
struct __attribute__((aligned(16))) entries {
    int32_t e[4];
};
#define NEIGHBOURS_HELD 7

VX_DEVICE void place_neighbours(const struct vx_mask_order_args *args, int64_t place,
                                int64_t row)
{
    const struct entries *from =
        (const struct entries *)(args->nbr + row * args->nbr_stride);
    for (int32_t begin = 0; begin < args->bits; begin += 4 * NEIGHBOURS_HELD) {
        /* All are loaded before the first is stored, which the compiler must not do itself. */
        struct entries held[NEIGHBOURS_HELD];
        VX_UNROLL
        for (int32_t k = 0; k < NEIGHBOURS_HELD; k++)
            if (begin + 4 * k < args->bits) held[k] = from[begin / 4 + k];
        VX_UNROLL
        for (int32_t k = 0; k < 4 * NEIGHBOURS_HELD; k++)
            if (begin + k < args->bits)
                args->neighbours[(begin + k) * args->n + place] = held[k / 4].e[k % 4];
    }
}

VX_DEVICE void blocks_join(const struct vx_mask_order_args *args)
{
    int32_t group = (int32_t)vx_block_y();
    int64_t place = (int64_t)vx_block_x() * VX_ORDER_THREADS + vx_thread();
    int64_t at = group * args->n + place, row = place;
    if (args->rows_in && place < args->n && (args->neighbours || !args->keys_in))
        row = args->rows_in[at];
    if (args->neighbours && place < args->n) place_neighbours(args, place, row);
    if (!args->keys_in) {
        block_of_row(args, group, place, row);
        return;
    }
    /* The sorted keys are read in order; masks would have to be gathered. */
    uint32_t key = place < args->n ? args->keys_in[at] : 0;
    uint32_t bits = args->gray ? key ^ key >> 1 : key;
    int32_t low = group * args->bits / 32;
    int32_t shift = group * args->bits % 32;
    for (int32_t word = 0; word < args->words; word++) {
        uint32_t found = 0;
        if (word == low) found = bits << shift;
        if (word == low + 1 && shift > 0) found = bits >> (32 - shift);
        block_word(args, group, place, word, found);
    }
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_blocks(struct vx_mask_order_args args)
{
    vx_turn();
    blocks_join(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_blocks_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    struct vx_mask_order_args args = many.sorts[vx_block_z()];
    if (vx_block_y() < (uint32_t)args.groups &&
        (int64_t)vx_block_x() * VX_ORDER_THREADS < args.n)
        blocks_join(&args);
}

/* --- the small sort: one block, one launch --- */

VX_DEVICE void small_order(const struct vx_mask_order_args *args)
{
    extern VX_SHARED uint32_t elements[];
    VX_SHARED struct small_memory memory;
    uint32_t n = (uint32_t)args->n;
    int32_t group = (int32_t)vx_block_y();
    small_sort(args, elements, &memory);
    uint32_t places = (n + VX_WAVE - 1) / VX_WAVE * VX_WAVE;
    for (uint32_t place = vx_thread(); place < places; place += VX_ORDER_SMALL_THREADS) {
        uint32_t row = 0;
        if (place < n) {
            row = elements[place] % VX_ORDER_SMALL_ROWS;
            args->rows_out[group * args->n + place] = (int32_t)row;
        }
        block_of_row(args, group, place, row);
    }
}

VX_KERNEL(VX_ORDER_SMALL_THREADS, 1) order_small(struct vx_mask_order_args args)
{
    vx_turn();
    small_order(&args);
}

VX_KERNEL(VX_ORDER_SMALL_THREADS, 1)
order_small_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    struct vx_mask_order_args args = many.sorts[vx_block_z()];
    if (vx_block_y() < (uint32_t)args.groups) small_order(&args);
}

/* --- sums of counts --- */

/* Counters of one thread in a round.  A round has 2048 counters, the tiles of 4 million
 * rows. */
#define SCAN_ITEMS 8

/* A block to each row of the counts. */
VX_KERNEL(VX_ORDER_THREADS, 4) count_scan(struct vx_count_scan_args args)
{
    vx_turn();
    VX_SHARED uint32_t sums[WAVES];
    uint32_t *counts = args.counts + (int64_t)vx_block_x() * args.tiles;
    uint32_t carried = 0;
    for (int64_t round = 0; round < args.tiles; round += VX_ORDER_THREADS * SCAN_ITEMS) {
        int64_t first = round + (int64_t)vx_thread() * SCAN_ITEMS;
        uint32_t held[SCAN_ITEMS], sum = 0, all;
        VX_UNROLL
        for (int32_t k = 0; k < SCAN_ITEMS; k++) {
            held[k] = first + k < args.tiles ? counts[first + k] : 0;
            sum += held[k];
        }
        uint32_t before = carried + vx_block_sum_before(sum, sums, WAVES, &all);
        VX_UNROLL
        for (int32_t k = 0; k < SCAN_ITEMS; k++) {
            if (first + k < args.tiles) counts[first + k] = before;
            before += held[k];
        }
        carried += all;
        vx_barrier();
    }
    if (vx_thread() == 0) args.totals[vx_block_x()] = carried;
}

/* --- tiles by work --- */

/* Blocks of masks of a tile: of the lowest, of the highest. */
#define TILE_BLOCKS      (VX_ORDER_TILES_ROWS / VX_MASK_BLOCK)
#define TILE_BLOCKS_MOST (TILE_BLOCKS << (VX_ORDER_TILES_KINDS - 1))
#define BIN_BITS         9
#if VX_ORDER_TILES_BINS > 1 << BIN_BITS
#error "BIN_BITS: bits of a tile's offsets"
#endif

/* The tiles of a height in one group. */
struct tile_list {
    const uint32_t *masks; /* of the group's blocks of rows */
    uint32_t blocks, tiles;
    int32_t words, each; /* blocks of a tile */
};

VX_DEVICE struct tile_list tiles_of(const struct vx_order_tiles_sort *sort, int32_t kind,
                                    int32_t group)
{
    struct tile_list list;
    list.blocks = (uint32_t)vx_mask_blocks(sort->n);
    list.tiles = (uint32_t)vx_order_tiles_count(sort->n, 1, kind);
    list.words = sort->words;
    list.each = TILE_BLOCKS << kind;
    list.masks = sort->block_masks + (int64_t)group * list.blocks * sort->words;
    return list;
}

/* How many offsets the rows of a tile have. */
VX_DEVICE int32_t tile_offsets(const struct tile_list *list, uint32_t tile)
{
    const uint32_t first = tile * (uint32_t)list->each;
    const uint32_t *masks = list->masks + (int64_t)first * list->words;
    int32_t there = list->each, count = 0;
    if (list->blocks - first < (uint32_t)there) there = (int32_t)(list->blocks - first);
    for (int32_t word = 0; word < list->words; word++) {
        /* All are loaded before the first is looked at. */
        uint32_t held[TILE_BLOCKS_MOST], bits = 0;
        VX_UNROLL
        for (int32_t k = 0; k < TILE_BLOCKS_MOST; k++)
            held[k] = k < there ? masks[k * list->words + word] : 0;
        VX_UNROLL
        for (int32_t k = 0; k < TILE_BLOCKS_MOST; k++) bits |= held[k];
        count += vx_count_bits(bits);
    }
    return count;
}

/* Takes one of `bins` for each lane that is there, and returns which one it got of its bin: lanes
 * with the same bin go to shared memory together, because most tiles have one of few bins. */
VX_DEVICE uint32_t bin_take(uint32_t *bins, int32_t bin, int32_t there)
{
    const vx_lanes peers = vx_lanes_alike((uint32_t)bin, BIN_BITS, there);
    const uint32_t below = vx_lanes_count(peers & vx_lanes_below());
    uint32_t first = 0;
    if (there && below == 0) first = vx_atomic_add(&bins[bin], vx_lanes_count(peers));
    return vx_shuffle(first, there ? vx_lanes_lowest(peers) : vx_lane()) + below;
}

VX_KERNEL(VX_ORDER_TILES_THREADS, 1) order_tiles(struct vx_order_tiles_args args)
{
    vx_turn();
    VX_SHARED uint32_t counts[VX_ORDER_TILES_BINS];
    VX_SHARED uint32_t begins[VX_ORDER_TILES_BINS];
    VX_SHARED struct deal deal;
    struct vx_order_tiles_sort sort = args.one;
    int32_t kind = (int32_t)vx_block_y();
    if (args.sorts) sort = args.sorts[vx_block_x()];
    int32_t *tiles = sort.tiles[0];
    VX_UNROLL /* an index that is not known would put the array into memory */
        for (int32_t k = 1; k < VX_ORDER_TILES_KINDS; k++) if (k == kind) tiles =
            sort.tiles[k];
    int64_t count = vx_order_tiles_count(sort.n, sort.groups, kind);
    uint32_t bin = vx_thread();
    if (bin < VX_ORDER_TILES_BINS) counts[bin] = 0;
    vx_barrier();
    for (int32_t group = 0; group < sort.groups; group++) {
        const struct tile_list list = tiles_of(&sort, kind, group);
        const uint32_t rounds = (list.tiles + VX_WAVE - 1) / VX_WAVE * VX_WAVE;
        for (uint32_t at = bin; at < rounds; at += VX_ORDER_TILES_THREADS) {
            const int32_t there = at < list.tiles;
            (void)bin_take(counts, there ? tile_offsets(&list, at) : 0, there);
        }
    }
    vx_barrier();
    if (bin < VX_ORDER_TILES_BINS) {
        uint32_t before = 0;
        const uint32_t most = (uint32_t)sort.words * 32;
        for (uint32_t more = bin + 1; more <= most && more < VX_ORDER_TILES_BINS; more++)
            before += counts[more];
        begins[bin] = before;
    }
    if (bin == 0) {
        deal.count = (uint32_t)count;
        deal.blocks = (uint32_t)args.blocks;
    }
    vx_barrier();
    if (bin < VX_WAVE)
        deal_make(&deal, bin < VX_ORDER_DEAL_OFFSETS ? begins[bin] + counts[bin] : 0);
    vx_barrier();
    const uint32_t end = deal_turns(&deal) * deal.blocks;
    for (uint32_t at = bin; at < end + deal.blocks; at += VX_ORDER_TILES_THREADS)
        tiles[at] = at < end ? VX_ORDER_TILES_NONE : VX_ORDER_TILES_END;
    vx_barrier();
    for (int32_t group = 0; group < sort.groups; group++) {
        const struct tile_list list = tiles_of(&sort, kind, group);
        const uint32_t rounds = (list.tiles + VX_WAVE - 1) / VX_WAVE * VX_WAVE;
        for (uint32_t at = bin; at < rounds; at += VX_ORDER_TILES_THREADS) {
            const int32_t there = at < list.tiles;
            const uint32_t place =
                bin_take(begins, there ? tile_offsets(&list, at) : 0, there);
            if (there)
                tiles[deal_place(&deal, place)] =
                    (int32_t)((uint32_t)group * list.tiles + at);
        }
    }
}
