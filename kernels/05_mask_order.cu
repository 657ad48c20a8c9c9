/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"
#include "kernels/waves.cuh"

#define BIN_PAIRS   (VX_ORDER_BINS / 2)
#define WAVES       (VX_ORDER_THREADS / VX_WAVE)
#define SMALL_WAVES (VX_ORDER_SMALL_THREADS / VX_WAVE)
/* Rows of one thread. */
#define ITEMS       (VX_ORDER_TILE / VX_ORDER_THREADS)
#define SMALL_ITEMS (VX_ORDER_SMALL_ROWS / VX_ORDER_SMALL_THREADS)

/* A thread of the large sort adds up the counters of two digits, the halves of a word. */
#if VX_ORDER_THREADS != BIN_PAIRS
#error "VX_ORDER_THREADS must be VX_ORDER_BINS / 2: a thread for every two digits"
#endif

/* --- keys --- */

VX_DEVICE uint32_t ones(int32_t count)
{
    return count < 32 ? (1u << count) - 1 : ~0u;
}

/* 1 to 32 bits of a mask, from bit `low`. */
VX_DEVICE uint32_t mask_bits(const uint32_t *mask, int32_t low, int32_t count)
{
    int32_t shift = low % 32;
    uint32_t bits = mask[low / 32] >> shift;
    if (shift + count > 32) bits |= mask[low / 32 + 1] << (32 - shift);
    return bits & ones(count);
}

/* The bits [low, low + count) of the rank of a mask. */
VX_DEVICE uint32_t rank_bits(const struct vx_mask_order_args *args, const uint32_t *mask,
                             int32_t low, int32_t count, int32_t group)
{
    int32_t begin = group * args->bits + low;
    int32_t end = (group + 1) * args->bits;
    uint32_t key = mask_bits(mask, begin, count);
    if (!args->gray) return key;
    for (int32_t step = 1; step < 32; step *= 2) key ^= key >> step;
    /* In the Gray code an odd number of bits above inverts every bit below. */
    int32_t above = 0;
    for (int32_t at = begin + count; at < end; at += 32)
        above += vx_count_bits(mask_bits(mask, at, end - at < 32 ? end - at : 32));
    return above % 2 ? key ^ ones(count) : key;
}

/* How often lower lanes, and earlier rounds of this wave, have had the same digit.  Adds
 * this round to the wave's counters. */
VX_DEVICE uint32_t rank_in_wave(uint16_t *counts, uint32_t digit, int32_t valid)
{
    vx_lanes peers = vx_lanes_said(valid);
    VX_UNROLL
    for (int32_t bit = 0; bit < VX_ORDER_DIGIT; bit++) {
        int32_t set = (int32_t)(digit >> bit & 1u);
        vx_lanes said = vx_lanes_said(set);
        peers &= set ? said : ~said;
    }
    vx_lanes below = peers & vx_lanes_below();
    uint32_t before = counts[digit];
    vx_wave_barrier();
    if (valid && below == 0) counts[digit] = (uint16_t)(before + vx_lanes_count(peers));
    vx_wave_barrier();
    return before + vx_lanes_count(below);
}

/* Replaces each wave's counters of two digits, the halves of a word, by the sums over the
 * waves before it.  Returns the sums over all waves, again as halves. */
VX_DEVICE uint32_t sum_over_waves(uint32_t *counts, int32_t waves)
{
    uint32_t sum = 0;
    for (int32_t wave = 0; wave < waves; wave += 4) {
        uint32_t held[4];
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) held[k] = counts[(wave + k) * BIN_PAIRS];
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) {
            counts[(wave + k) * BIN_PAIRS] = sum;
            sum += held[k];
        }
    }
    return sum;
}

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

VX_KERNEL(VX_ORDER_THREADS, 4) order_blocks(struct vx_mask_order_args args)
{
    int32_t group = (int32_t)vx_block_y();
    int64_t place = (int64_t)vx_block_x() * VX_ORDER_THREADS + vx_thread();
    int64_t at = group * args.n + place;
    if (!args.keys_in) {
        int64_t row = place;
        if (args.rows_in && place < args.n) row = args.rows_in[at];
        block_of_row(&args, group, place, row);
        return;
    }
    /* The sorted keys are read in order; masks would have to be gathered. */
    uint32_t key = place < args.n ? args.keys_in[at] : 0;
    uint32_t bits = args.gray ? key ^ key >> 1 : key;
    int32_t low = group * args.bits / 32;
    int32_t shift = group * args.bits % 32;
    for (int32_t word = 0; word < args.words; word++) {
        uint32_t found = 0;
        if (word == low) found = bits << shift;
        if (word == low + 1 && shift > 0) found = bits >> (32 - shift);
        block_word(&args, group, place, word, found);
    }
}

/* --- the small sort: one block, one launch --- */

struct small_memory {
    uint32_t begins[VX_ORDER_BINS];
    uint32_t sums[SMALL_WAVES];
};

struct small_pass {
    int32_t low; /* first bit of the rank that the key has */
    /* > 0: the key is made from the mask, with so many bits; 0: it is in the element. */
    int32_t bits;
    int32_t rounds; /* rows of one thread */
};

/* The row of an element, with the digits of its key that later passes sort by above it;
 * *digit is the digit of this pass. */
VX_DEVICE uint32_t small_element(const struct vx_mask_order_args *args,
                                 const struct small_pass *pass, uint32_t element,
                                 uint32_t *digit)
{
    uint32_t row = element % VX_ORDER_SMALL_ROWS;
    uint32_t key = element >> VX_ORDER_SMALL_BITS;
    if (pass->bits > 0)
        key = rank_bits(args, args->masks + row * (uint32_t)args->words, pass->low,
                        pass->bits, (int32_t)vx_block_y());
    *digit = key % VX_ORDER_BINS;
    return row | key >> VX_ORDER_DIGIT << VX_ORDER_SMALL_BITS;
}

VX_DEVICE void small_sort_digit(const struct vx_mask_order_args *args,
                                const struct small_pass *pass, uint32_t *elements,
                                struct small_memory *memory)
{
    uint32_t *counts = elements + VX_ORDER_SMALL_ROWS; /* (waves, pairs of digits) */
    uint16_t *own = (uint16_t *)(counts + vx_wave() * BIN_PAIRS);
    uint32_t n = (uint32_t)args->n;
    uint32_t first = vx_wave() * (uint32_t)pass->rounds * VX_WAVE + vx_lane();
    uint32_t held[SMALL_ITEMS], marks[SMALL_ITEMS]; /* marks: digit, and rank above it */
    for (uint32_t at = vx_thread(); at < SMALL_WAVES * BIN_PAIRS;
         at += VX_ORDER_SMALL_THREADS)
        counts[at] = 0;
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < SMALL_ITEMS; k++) {
        if (k < pass->rounds) {
            uint32_t place = first + (uint32_t)k * VX_WAVE;
            uint32_t digit = 0;
            held[k] = 0;
            if (place < n) held[k] = small_element(args, pass, elements[place], &digit);
            uint32_t rank = rank_in_wave(own, digit, place < n);
            marks[k] = digit | rank << VX_ORDER_DIGIT;
        }
    }
    vx_barrier();
    uint32_t pair = 0, all;
    if (vx_thread() < BIN_PAIRS) pair = sum_over_waves(counts + vx_thread(), SMALL_WAVES);
    uint32_t before = vx_block_sum_before((pair & 0xffffu) + (pair >> 16), memory->sums,
                                          SMALL_WAVES, &all);
    if (vx_thread() < BIN_PAIRS) {
        memory->begins[2 * vx_thread()] = before;
        memory->begins[2 * vx_thread() + 1] = before + (pair & 0xffffu);
    }
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < SMALL_ITEMS; k++) {
        if (k < pass->rounds && first + (uint32_t)k * VX_WAVE < n) {
            uint32_t digit = marks[k] % VX_ORDER_BINS;
            uint32_t rank = marks[k] >> VX_ORDER_DIGIT;
            elements[memory->begins[digit] + own[digit] + rank] = held[k];
        }
    }
    vx_barrier();
}

VX_KERNEL(VX_ORDER_SMALL_THREADS, 1) order_small(struct vx_mask_order_args args)
{
    extern VX_SHARED uint32_t elements[];
    VX_SHARED struct small_memory memory;
    uint32_t n = (uint32_t)args.n;
    int32_t group = (int32_t)vx_block_y();
    struct small_pass pass = {0, 0, 0};
    pass.rounds = (int32_t)((n + VX_ORDER_SMALL_THREADS - 1) / VX_ORDER_SMALL_THREADS);
    for (uint32_t row = vx_thread(); row < n; row += VX_ORDER_SMALL_THREADS)
        elements[row] = row;
    vx_barrier();
    for (int32_t low = 0; low < args.bits; low += VX_ORDER_DIGIT) {
        pass.bits = 0;
        if (low % VX_ORDER_CHUNK == 0) {
            pass.low = low;
            pass.bits = args.bits - low;
            if (pass.bits > VX_ORDER_CHUNK) pass.bits = VX_ORDER_CHUNK;
        }
        small_sort_digit(&args, &pass, elements, &memory);
    }
    uint32_t places = (n + VX_WAVE - 1) / VX_WAVE * VX_WAVE;
    for (uint32_t place = vx_thread(); place < places; place += VX_ORDER_SMALL_THREADS) {
        uint32_t row = 0;
        if (place < n) {
            row = elements[place] % VX_ORDER_SMALL_ROWS;
            args.rows_out[group * args.n + place] = (int32_t)row;
        }
        block_of_row(&args, group, place, row);
    }
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

VX_KERNEL(VX_ORDER_THREADS, 4) order_count(struct vx_mask_order_args args)
{
    VX_SHARED uint32_t counts[VX_ORDER_BINS];
    struct order_tile tile = tile_of_block(&args);
    uint32_t bins = 1u << args.digit_bits;
    for (uint32_t bin = vx_thread(); bin < bins; bin += VX_ORDER_THREADS) counts[bin] = 0;
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        int64_t place = tile.begin + k * VX_ORDER_THREADS + vx_thread();
        if (place < tile.end)
            vx_atomic_add(&counts[digit_of(&args, key_at(&args, tile.group, place))], 1);
    }
    vx_barrier();
    for (uint32_t bin = vx_thread(); bin < bins; bin += VX_ORDER_THREADS)
        args.counts[((int64_t)vx_block_y() * bins + bin) * args.tiles + vx_block_x()] =
            counts[bin];
}

/* Counters of one thread in a round.  A round has 2048 counters, the tiles of 4 million
 * rows. */
#define SCAN_ITEMS 8

VX_KERNEL(VX_ORDER_THREADS, 4) count_scan(struct vx_count_scan_args args)
{
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

VX_KERNEL(VX_ORDER_THREADS, 4) order_scatter(struct vx_mask_order_args args)
{
    VX_SHARED struct scatter_memory memory;
    struct order_tile tile = tile_of_block(&args);
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
            keys[k] = key_at(&args, tile.group, tile.begin + at);
            rows[k] = (int32_t)row_at(&args, tile.group, tile.begin + at);
        }
    }
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++)
        ranks[k] = rank_in_wave(own, digit_of(&args, keys[k]),
                                first + (uint32_t)k * VX_WAVE < count);
    vx_barrier();
    scatter_place_digits(&args, &memory);
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        if (first + (uint32_t)k * VX_WAVE < count) {
            uint32_t digit = digit_of(&args, keys[k]);
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
                tile.group * args.n + (uint32_t)(memory.moves[digit_of(&args, key)] + at);
            args.rows_out[to] = memory.rows[at];
            if (args.keys_out) args.keys_out[to] = key;
        }
    }
}
