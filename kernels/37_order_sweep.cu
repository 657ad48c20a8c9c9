/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/37_order_sweep.h"
#include "kernels/coherent.cuh"
#include "kernels/order.cuh"
#include "kernels/turn.cuh"

#define WAVES (VX_ORDER_THREADS / VX_WAVE)
/* Rows of one thread. */
#define ITEMS (VX_ORDER_TILE / VX_ORDER_THREADS)

/* A thread has the counters of two digits, the halves of a word. */
#if VX_ORDER_THREADS != BIN_PAIRS
#error "VX_ORDER_THREADS must be VX_ORDER_BINS / 2: a thread for every two digits"
#endif

/* Rows of the tile that begins there. */
VX_DEVICE uint32_t tile_count(const struct vx_mask_order_args *args, int64_t begin)
{
    return args->n - begin < VX_ORDER_TILE ? (uint32_t)(args->n - begin) : VX_ORDER_TILE;
}

/* The part of the rank of a row of 3^3 that is the key. */
VX_DEVICE uint32_t cube_key(const struct vx_mask_order_args *args, uint32_t mask)
{
    uint32_t word = vx_order_signature(&mask, VX_ORDER_CUBE, args->run, args->n);
    return (args->gray ? gray_place(word) : word) >> args->key_low & ones(args->key_bits);
}

/* --- how often each digit is there --- */

/* A block to each group, for all digits. */
VX_DEVICE void digits_clear(const struct vx_order_digits_args *args)
{
    for (int32_t d = 0; d < args->digits; d++) {
        int64_t at = ((int64_t)d * args->sort.groups + vx_block_y()) * VX_ORDER_BINS;
        for (uint32_t bin = vx_thread(); bin < VX_ORDER_BINS; bin += VX_ORDER_THREADS)
            args->sort.totals[at + bin] = 0;
    }
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_clear(struct vx_order_digits_args args)
{
    vx_turn();
    digits_clear(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_clear_many(struct vx_order_digits_many_args many)
{
    vx_turn();
    struct vx_order_digits_args args = many.sorts[vx_block_z()];
    if (vx_block_y() < (uint32_t)args.sort.groups) digits_clear(&args);
}

/* The words of a digit that belong to this block's tile: the first tile of a span has the span's,
 * the first tile of all whose turn it is. */
VX_DEVICE void state_clear(const struct vx_order_digits_args *args, int32_t digit)
{
    const struct vx_sweep_layout at = vx_sweep_layout_of(args->sort.tiles);
    const int64_t tile = vx_block_x(), span = tile / VX_SWEEP_SPAN;
    uint32_t *state = args->sort.counts +
                      ((int64_t)digit * args->sort.groups + vx_block_y()) * at.words;
    state[at.counts + tile * BIN_PAIRS + vx_thread()] = 0;
    if (tile == 0 && vx_thread() == 0) *state = 0;
    if (tile % VX_SWEEP_SPAN) return;
    for (uint32_t bin = vx_thread(); bin < VX_ORDER_BINS; bin += VX_ORDER_THREADS) {
        state[at.sums + span * VX_ORDER_BINS + bin] = 0;
        state[at.through + span * VX_ORDER_BINS + bin] = 0;
    }
}

/* The keys of this thread's rows, 0 where there is none. */
VX_DEVICE void tile_keys(const struct vx_mask_order_args *args, uint32_t keys[ITEMS])
{
    const int32_t group = (int32_t)vx_block_y();
    const int64_t begin = (int64_t)vx_block_x() * VX_ORDER_TILE;
    const uint32_t count = tile_count(args, begin);
    /* The masks of 3^3 are words, as keys are: all are loaded before the first is used. */
    const int32_t cube = args->run && args->bits == VX_ORDER_CUBE && !args->rows_in;
    const uint32_t *words = args->keys_in ? args->keys_in + group * args->n : args->masks;
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        const uint32_t at = k * VX_ORDER_THREADS + vx_thread();
        keys[k] = at < count && (args->keys_in || cube) ? words[begin + at] : 0;
    }
    if (args->keys_in) return;
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        const uint32_t at = k * VX_ORDER_THREADS + vx_thread();
        if (at >= count) continue;
        int64_t row = begin + at;
        if (args->rows_in) row = args->rows_in[group * args->n + row];
        keys[k] = cube ? cube_key(args, keys[k])
                       : rank_bits(args, args->masks + row * args->words, args->key_low,
                                   args->key_bits, group);
    }
}

VX_DEVICE void tile_digits(const struct vx_order_digits_args *args)
{
    VX_SHARED uint32_t counts[VX_SWEEP_DIGITS * VX_ORDER_BINS];
    const struct vx_mask_order_args *sort = &args->sort;
    const int64_t begin = (int64_t)vx_block_x() * VX_ORDER_TILE;
    const int64_t base = vx_block_y() * sort->n + begin;
    const uint32_t count = tile_count(sort, begin);
    uint32_t keys[ITEMS];
    for (uint32_t e = vx_thread(); e < VX_SWEEP_DIGITS * VX_ORDER_BINS;
         e += VX_ORDER_THREADS)
        counts[e] = 0;
    for (int32_t d = 0; d < args->digits; d++) state_clear(args, d);
    tile_keys(sort, keys);
    vx_barrier();
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        const uint32_t at = k * VX_ORDER_THREADS + vx_thread();
        if (at >= count) continue;
        if (sort->keys_out) sort->keys_out[base + at] = keys[k];
        VX_UNROLL
        for (int32_t d = 0; d < VX_SWEEP_DIGITS; d++)
            if (d < args->digits)
                vx_atomic_add(&counts[d * VX_ORDER_BINS +
                                      (keys[k] >> args->shifts[d] & ones(args->bits[d]))],
                              1);
    }
    vx_barrier();
    for (int32_t d = 0; d < args->digits; d++) {
        uint32_t *totals =
            sort->totals + ((int64_t)d * sort->groups + vx_block_y()) * VX_ORDER_BINS;
        for (uint32_t bin = vx_thread(); bin < VX_ORDER_BINS; bin += VX_ORDER_THREADS) {
            const uint32_t found = counts[d * VX_ORDER_BINS + bin];
            if (found) vx_atomic_add(&totals[bin], found);
        }
    }
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_digits(struct vx_order_digits_args args)
{
    vx_turn();
    tile_digits(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_digits_many(struct vx_order_digits_many_args many)
{
    vx_turn();
    struct vx_order_digits_args args = many.sorts[vx_block_z()];
    if (vx_block_y() < (uint32_t)args.sort.groups &&
        (int64_t)vx_block_x() < args.sort.tiles)
        tile_digits(&args);
}

/* --- a pass --- */

struct sweep_memory {
    uint32_t waves[WAVES * BIN_PAIRS]; /* 16 bits each: (waves, digits) */
    uint32_t keys[VX_ORDER_TILE];
    int32_t rows[VX_ORDER_TILE];
    uint32_t counts[VX_ORDER_BINS];
    uint32_t begins[VX_ORDER_BINS]; /* where a digit begins in the sorted tile */
    uint32_t moves[VX_ORDER_BINS];  /* from there to its place in the group */
    uint32_t sums[WAVES], totals_sums[WAVES];
    uint32_t tile;
};

/* The tile that a block has taken, and this pass's words. */
struct sweep {
    int64_t tile, tiles, span;
    /* The tiles', the spans', and what is before the spans' ends, of this thread's digits. */
    uint32_t *counts, *sums, *through;
    int32_t said; /* 1: this thread's digits exist */
};

VX_DEVICE struct sweep sweep_take(const struct vx_mask_order_args *args, uint32_t *taken)
{
    const struct vx_sweep_layout at = vx_sweep_layout_of(args->tiles);
    uint32_t *state = args->counts + vx_block_y() * at.words;
    struct sweep sweep;
    if (vx_thread() == 0) *taken = vx_atomic_add(state, 1);
    vx_barrier();
    sweep.tile = *taken;
    sweep.tiles = args->tiles;
    sweep.span = sweep.tile / VX_SWEEP_SPAN;
    sweep.counts = state + at.counts + vx_thread();
    sweep.sums = state + at.sums + 2 * vx_thread();
    sweep.through = state + at.through + 2 * vx_thread();
    sweep.said = 2 * vx_thread() < 1u << args->digit_bits;
    return sweep;
}

/* True if tiles behind this one's span ask for the span. */
VX_DEVICE int32_t span_is_asked(const struct sweep *sweep)
{
    return (sweep->span + 1) * VX_SWEEP_SPAN < sweep->tiles;
}

/* Says how many rows of two digits this tile has. */
VX_DEVICE void sweep_say(const struct sweep *sweep, const uint32_t *counts)
{
    const uint32_t low = counts[2 * vx_thread()], high = counts[2 * vx_thread() + 1];
    if (!sweep->said) return;
    vx_store_now(sweep->counts + sweep->tile * BIN_PAIRS,
                 low | high << 16 | VX_SWEEP_SAID);
    if (!span_is_asked(sweep)) return;
    uint32_t *sums = sweep->sums + sweep->span * VX_ORDER_BINS;
    vx_atomic_add(sums, low + VX_SWEEP_TILE);
    vx_atomic_add(sums + 1, high + VX_SWEEP_TILE);
}

/* Of two words side by side: both say what is before the end of their span. */
VX_DEVICE int32_t both_said(uint64_t words)
{
    return (words >> 32 & words & VX_SWEEP_SAID) != 0;
}

/* All tiles of the span have added to both. */
VX_DEVICE int32_t both_full(uint64_t words)
{
    return (words >> 32 & words & VX_SWEEP_SPAN * VX_SWEEP_TILE) != 0;
}

VX_DEVICE void both_add(uint64_t words, uint32_t kept, uint32_t before[2])
{
    before[0] += (uint32_t)words & kept;
    before[1] += (uint32_t)(words >> 32) & kept;
}

/* Spans that are asked at once, and the last of them what is before its end. */
#define SPANS_ASKED 4

/* What this thread has loaded of others' words. */
struct heard {
    uint32_t tiles[VX_SWEEP_SPAN - 1];   /* those of its span before this one */
    uint64_t through, sums[SPANS_ASKED]; /* spans, from the last one back */
};

VX_DEVICE void spans_ask(const struct sweep *sweep, int64_t last, struct heard *heard)
{
    heard->through = last < 0 ? 0 : vx_load_now64(sweep->through + last * VX_ORDER_BINS);
    VX_UNROLL
    for (int32_t k = 0; k < SPANS_ASKED; k++)
        heard->sums[k] =
            last < k ? 0 : vx_load_now64(sweep->sums + (last - k) * VX_ORDER_BINS);
}

/* Adds the rows of two digits in spans from the last one back, and returns the next one, -1: none. */
VX_DEVICE int64_t spans_add(const struct sweep *sweep, int64_t last,
                            const struct heard *heard, uint32_t before[2])
{
    if (both_said(heard->through)) {
        both_add(heard->through, ~VX_SWEEP_SAID, before);
        return -1;
    }
    VX_UNROLL
    for (int32_t k = 0; k < SPANS_ASKED; k++) {
        uint64_t sums = heard->sums[k];
        if (last < k) return -1;
        while (!both_full(sums))
            sums = vx_load_now64(sweep->sums + (last - k) * VX_ORDER_BINS);
        both_add(sums, VX_SWEEP_TILE - 1, before);
    }
    return last - SPANS_ASKED;
}

/* Adds the rows of two digits in all tiles before this one. */
VX_DEVICE void sweep_hear(const struct sweep *sweep, uint32_t before[2])
{
    const int32_t count = (int32_t)(sweep->tile % VX_SWEEP_SPAN);
    const uint32_t *words = sweep->counts + sweep->span * VX_SWEEP_SPAN * BIN_PAIRS;
    int64_t last = sweep->span - 1;
    struct heard heard;
    VX_UNROLL
    for (int32_t k = 0; k < VX_SWEEP_SPAN - 1; k++)
        heard.tiles[k] = k < count ? vx_load_now(words + k * BIN_PAIRS) : VX_SWEEP_SAID;
    spans_ask(sweep, last, &heard);
    VX_UNROLL
    for (int32_t k = 0; k < VX_SWEEP_SPAN - 1; k++) {
        uint32_t word = heard.tiles[k];
        while (!(word & VX_SWEEP_SAID)) word = vx_load_now(words + k * BIN_PAIRS);
        before[0] += word & 0xffffu;
        before[1] += (word & ~VX_SWEEP_SAID) >> 16;
    }
    while (last >= 0) {
        last = spans_add(sweep, last, &heard, before);
        spans_ask(sweep, last, &heard);
    }
}

/* Fills `begins` and `moves`; thread t does the digits 2t and 2t + 1. */
VX_DEVICE void sweep_place_digits(const struct vx_mask_order_args *args,
                                  const struct sweep *sweep, struct sweep_memory *memory)
{
    uint32_t totals[2] = {0, 0}, before[2] = {0, 0}, all;
    const uint32_t low = memory->counts[2 * vx_thread()],
                   high = memory->counts[2 * vx_thread() + 1];
    if (sweep->said) {
        const uint32_t *at = args->totals + vx_block_y() * VX_ORDER_BINS;
        totals[0] = at[2 * vx_thread()];
        totals[1] = at[2 * vx_thread() + 1];
        sweep_hear(sweep, before);
        if (sweep->tile % VX_SWEEP_SPAN == VX_SWEEP_SPAN - 1 && span_is_asked(sweep)) {
            uint32_t *through = sweep->through + sweep->span * VX_ORDER_BINS;
            vx_store_now(through, (before[0] + low) | VX_SWEEP_SAID);
            vx_store_now(through + 1, (before[1] + high) | VX_SWEEP_SAID);
        }
    }
    (void)sum_over_waves(memory->waves + vx_thread(), WAVES);
    const uint32_t begin = vx_block_sum_before(low + high, memory->sums, WAVES, &all);
    const uint32_t start =
        vx_block_sum_before(totals[0] + totals[1], memory->totals_sums, WAVES, &all);
    memory->begins[2 * vx_thread()] = begin;
    memory->begins[2 * vx_thread() + 1] = begin + low;
    memory->moves[2 * vx_thread()] = start + before[0] - begin;
    memory->moves[2 * vx_thread() + 1] = start + totals[0] + before[1] - begin - low;
}

VX_DEVICE uint32_t digit_of(const struct vx_mask_order_args *args, uint32_t key)
{
    return key >> args->shift & ones(args->digit_bits);
}

VX_DEVICE void tile_sweep(const struct vx_mask_order_args *args)
{
    VX_SHARED struct sweep_memory memory;
    const struct sweep sweep = sweep_take(args, &memory.tile);
    const int64_t base = vx_block_y() * args->n, begin = sweep.tile * VX_ORDER_TILE;
    const uint32_t count = tile_count(args, begin);
    const uint32_t first = vx_wave() * ITEMS * VX_WAVE + vx_lane();
    const uint32_t *keys_in = args->keys_in + base + begin;
    const int32_t *rows_in = args->rows_in ? args->rows_in + base + begin : 0;
    uint16_t *own = (uint16_t *)(memory.waves + vx_wave() * BIN_PAIRS);
    uint32_t keys[ITEMS], ranks[ITEMS];
    int32_t rows[ITEMS];
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        const uint32_t at = first + k * VX_WAVE;
        keys[k] = at < count ? keys_in[at] : 0;
        rows[k] = (int32_t)(begin + at);
        if (rows_in && at < count) rows[k] = rows_in[at];
    }
    VX_UNROLL
    for (uint32_t wave = 0; wave < WAVES; wave++)
        memory.waves[wave * BIN_PAIRS + vx_thread()] = 0;
    memory.counts[2 * vx_thread()] = 0;
    memory.counts[2 * vx_thread() + 1] = 0;
    vx_barrier();
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++)
        if (first + k * VX_WAVE < count)
            vx_atomic_add(&memory.counts[digit_of(args, keys[k])], 1);
    vx_barrier();
    sweep_say(&sweep, memory.counts);
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++)
        ranks[k] =
            rank_in_wave(own, digit_of(args, keys[k]), first + k * VX_WAVE < count);
    vx_barrier();
    sweep_place_digits(args, &sweep, &memory);
    vx_barrier();
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        if (first + k * VX_WAVE < count) {
            const uint32_t digit = digit_of(args, keys[k]);
            const uint32_t to = memory.begins[digit] + own[digit] + ranks[k];
            memory.keys[to] = keys[k];
            memory.rows[to] = rows[k];
        }
    }
    vx_barrier();
    int32_t *rows_out = args->rows_out + base;
    uint32_t *keys_out = args->keys_out ? args->keys_out + base : 0;
    VX_UNROLL
    for (uint32_t k = 0; k < ITEMS; k++) {
        const uint32_t at = k * VX_ORDER_THREADS + vx_thread();
        if (at < count) {
            const uint32_t key = memory.keys[at];
            const uint32_t to = memory.moves[digit_of(args, key)] + at;
            rows_out[to] = memory.rows[at];
            if (keys_out) keys_out[to] = key;
        }
    }
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_sweep(struct vx_mask_order_args args)
{
    vx_turn();
    tile_sweep(&args);
}

VX_KERNEL(VX_ORDER_THREADS, 4) order_sweep_many(struct vx_mask_order_many_args many)
{
    vx_turn();
    struct vx_mask_order_args args = many.sorts[vx_block_z()];
    if (vx_block_y() < (uint32_t)args.groups && (int64_t)vx_block_x() < args.tiles)
        tile_sweep(&args);
}
