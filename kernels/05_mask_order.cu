/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"
#include "kernels/order.cuh"
#include "kernels/tiles_deal.cuh"
#include "kernels/turn.cuh"

#define WAVES (VX_ORDER_THREADS / VX_WAVE)
/* Rows of one thread. */
#define ITEMS (VX_ORDER_TILE / VX_ORDER_THREADS)

/* A thread of the large sort adds up the counters of two digits, the halves of a word. */
#if VX_ORDER_THREADS != BIN_PAIRS
#error "VX_ORDER_THREADS must be VX_ORDER_BINS / 2: a thread for every two digits"
#endif

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

/* --- the large sort --- */

/* The tile of this block: places begin .. end - 1 of a group. */
struct order_tile {
    int32_t group;
    int64_t begin, end;
};

VX_DEVICE struct order_tile tile_of_block(const struct vx_mask_order_args *args)
{
    struct order_tile tile;
    tile.group = (int32_t)vx_block_y();
    tile.begin = (int64_t)vx_block_x() * VX_ORDER_TILE;
    tile.end = tile.begin + VX_ORDER_TILE;
    if (tile.end > args->n) tile.end = args->n;
    return tile;
}

VX_DEVICE uint32_t digit_of(const struct vx_mask_order_args *args, uint32_t key)
{
    return key >> args->shift & ones(args->digit_bits);
}

VX_DEVICE int64_t row_at(const struct vx_mask_order_args *args, int32_t group,
                         int64_t place)
{
    return args->rows_in ? args->rows_in[group * args->n + place] : place;
}

VX_DEVICE uint32_t key_at(const struct vx_mask_order_args *args, int32_t group,
                          int64_t place)
{
    if (args->keys_in) return args->keys_in[group * args->n + place];
    const uint32_t *mask = args->masks + row_at(args, group, place) * args->words;
    return rank_bits(args, mask, args->key_low, args->key_bits, group);
}

/* True if the sort has this block.  All threads of a block say the same. */
VX_DEVICE int32_t tile_is_there(const struct vx_mask_order_args *args)
{
    return vx_block_y() < (uint32_t)args->groups && (int64_t)vx_block_x() < args->tiles;
}

VX_DEVICE void tile_count(const struct vx_mask_order_args *args)
{
    VX_SHARED uint32_t counts[VX_ORDER_BINS];
    struct order_tile tile = tile_of_block(args);
    uint32_t bins = 1u << args->digit_bits;
    for (uint32_t bin = vx_thread(); bin < bins; bin += VX_ORDER_THREADS) counts[bin] = 0;
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        int64_t place = tile.begin + k * VX_ORDER_THREADS + vx_thread();
        if (place < tile.end)
            vx_atomic_add(&counts[digit_of(args, key_at(args, tile.group, place))], 1);
    }
    vx_barrier();
    for (uint32_t bin = vx_thread(); bin < bins; bin += VX_ORDER_THREADS)
        args->counts[((int64_t)vx_block_y() * bins + bin) * args->tiles + vx_block_x()] =
            counts[bin];
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_count(struct vx_mask_order_args args)
{
    vx_turn();
    tile_count(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_count_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    struct vx_mask_order_args args = many.sorts[vx_block_z()];
    if (tile_is_there(&args)) tile_count(&args);
}

/* Counters of one thread in a round.  A round has 2048 counters, the tiles of 4 million
 * rows. */
#define SCAN_ITEMS 8

/* One row of the counts, that of the block's x. */
VX_DEVICE void row_scan(const struct vx_count_scan_args *args)
{
    VX_SHARED uint32_t sums[WAVES];
    uint32_t *counts = args->counts + (int64_t)vx_block_x() * args->tiles;
    uint32_t carried = 0;
    for (int64_t round = 0; round < args->tiles; round += VX_ORDER_THREADS * SCAN_ITEMS) {
        int64_t first = round + (int64_t)vx_thread() * SCAN_ITEMS;
        uint32_t held[SCAN_ITEMS], sum = 0, all;
        VX_UNROLL
        for (int32_t k = 0; k < SCAN_ITEMS; k++) {
            held[k] = first + k < args->tiles ? counts[first + k] : 0;
            sum += held[k];
        }
        uint32_t before = carried + vx_block_sum_before(sum, sums, WAVES, &all);
        VX_UNROLL
        for (int32_t k = 0; k < SCAN_ITEMS; k++) {
            if (first + k < args->tiles) counts[first + k] = before;
            before += held[k];
        }
        carried += all;
        vx_barrier();
    }
    if (vx_thread() == 0) args->totals[vx_block_x()] = carried;
}

VX_KERNEL(VX_ORDER_THREADS, 4) count_scan(struct vx_count_scan_args args)
{
    vx_turn();
    row_scan(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_scan_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    const struct vx_mask_order_args *sort = many.sorts + vx_block_z();
    struct vx_count_scan_args args;
    args.rows = (int64_t)sort->groups << sort->digit_bits;
    args.tiles = sort->tiles;
    args.counts = sort->counts;
    args.totals = sort->totals;
    if ((int64_t)vx_block_x() < args.rows) row_scan(&args);
}

struct scatter_memory {
    uint32_t counts[WAVES * BIN_PAIRS]; /* 16 bits each: (waves, digits) */
    uint32_t keys[VX_ORDER_TILE];
    int32_t rows[VX_ORDER_TILE];
    uint32_t begins[VX_ORDER_BINS]; /* where a digit begins in the sorted tile */
    uint32_t moves[VX_ORDER_BINS];  /* from there to its place in the group */
    uint32_t sums[WAVES], totals_sums[WAVES];
};

/* Fills `begins` and `moves`; thread t does the digits 2t and 2t + 1. */
VX_DEVICE void scatter_place_digits(const struct vx_mask_order_args *args,
                                    struct scatter_memory *memory)
{
    uint32_t bins = 1u << args->digit_bits;
    uint32_t totals[2] = {0, 0}, counts[2] = {0, 0}, all;
    VX_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t bin = 2 * vx_thread() + k;
        int64_t at = (int64_t)vx_block_y() * bins + bin;
        if (bin < bins) {
            totals[k] = args->totals[at];
            counts[k] = args->counts[at * args->tiles + vx_block_x()];
        }
    }
    uint32_t pair = sum_over_waves(memory->counts + vx_thread(), WAVES);
    uint32_t low = pair & 0xffffu;
    uint32_t begin = vx_block_sum_before(low + (pair >> 16), memory->sums, WAVES, &all);
    uint32_t start =
        vx_block_sum_before(totals[0] + totals[1], memory->totals_sums, WAVES, &all);
    memory->begins[2 * vx_thread()] = begin;
    memory->begins[2 * vx_thread() + 1] = begin + low;
    memory->moves[2 * vx_thread()] = start + counts[0] - begin;
    memory->moves[2 * vx_thread() + 1] = start + totals[0] + counts[1] - begin - low;
}

VX_DEVICE void tile_scatter(const struct vx_mask_order_args *args)
{
    VX_SHARED struct scatter_memory memory;
    struct order_tile tile = tile_of_block(args);
    if (tile.begin >= tile.end) return; /* all threads of the block */
    uint16_t *own = (uint16_t *)(memory.counts + vx_wave() * BIN_PAIRS);
    uint32_t count = (uint32_t)(tile.end - tile.begin);
    uint32_t first = vx_wave() * ITEMS * VX_WAVE + vx_lane();
    uint32_t keys[ITEMS], ranks[ITEMS];
    int32_t rows[ITEMS];
    for (uint32_t at = vx_thread(); at < WAVES * BIN_PAIRS; at += VX_ORDER_THREADS)
        memory.counts[at] = 0;
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        uint32_t at = first + (uint32_t)k * VX_WAVE;
        keys[k] = 0;
        rows[k] = 0;
        if (at < count) {
            keys[k] = key_at(args, tile.group, tile.begin + at);
            rows[k] = (int32_t)row_at(args, tile.group, tile.begin + at);
        }
    }
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++)
        ranks[k] = rank_in_wave(own, digit_of(args, keys[k]),
                                first + (uint32_t)k * VX_WAVE < count);
    vx_barrier();
    scatter_place_digits(args, &memory);
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        if (first + (uint32_t)k * VX_WAVE < count) {
            uint32_t digit = digit_of(args, keys[k]);
            uint32_t to = memory.begins[digit] + own[digit] + ranks[k];
            memory.keys[to] = keys[k];
            memory.rows[to] = rows[k];
        }
    }
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        uint32_t at = (uint32_t)k * VX_ORDER_THREADS + vx_thread();
        if (at < count) {
            uint32_t key = memory.keys[at];
            int64_t to =
                tile.group * args->n + (uint32_t)(memory.moves[digit_of(args, key)] + at);
            args->rows_out[to] = memory.rows[at];
            if (args->keys_out) args->keys_out[to] = key;
        }
    }
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_scatter(struct vx_mask_order_args args)
{
    vx_turn();
    tile_scatter(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_scatter_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    struct vx_mask_order_args args = many.sorts[vx_block_z()];
    if (tile_is_there(&args)) tile_scatter(&args);
}

/* --- tiles by work --- */

/* How many offsets the rows of a tile have, and of which group it is. */
VX_DEVICE int32_t tile_offsets(const struct vx_order_tiles_sort *sort, int32_t kind,
                               int64_t index)
{
    int64_t blocks = vx_mask_blocks(sort->n),
            each = VX_ORDER_TILES_ROWS / VX_MASK_BLOCK << kind;
    int64_t tiles = vx_order_tiles_count(sort->n, 1, kind);
    int64_t first = index % tiles * each, end = first + each;
    const uint32_t *masks = sort->block_masks + index / tiles * blocks * sort->words;
    int32_t count = 0;
    if (end > blocks) end = blocks;
    for (int32_t word = 0; word < sort->words; word++) {
        uint32_t bits = 0;
        for (int64_t block = first; block < end; block++)
            bits |= masks[block * sort->words + word];
        count += vx_count_bits(bits);
    }
    return count;
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
    for (int64_t at = vx_thread(); at < count; at += VX_ORDER_TILES_THREADS)
        vx_atomic_add(&counts[tile_offsets(&sort, kind, at)], 1);
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
    for (int64_t at = vx_thread(); at < count; at += VX_ORDER_TILES_THREADS) {
        uint32_t place = vx_atomic_add(&begins[tile_offsets(&sort, kind, at)], 1);
        tiles[deal_place(&deal, place)] = (int32_t)at;
    }
}
