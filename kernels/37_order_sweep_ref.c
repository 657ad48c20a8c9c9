/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/37_order_sweep.h"

#include "kernels/kernel.h"

void vx_order_clear_ref(const void *args, enum vx_number type);
void vx_order_digits_ref(const void *args, enum vx_number type);
void vx_order_sweep_ref(const void *args, enum vx_number type);
void vx_order_clear_many_ref(const void *args, enum vx_number type);
void vx_order_digits_many_ref(const void *args, enum vx_number type);
void vx_order_sweep_many_ref(const void *args, enum vx_number type);

static uint32_t mask_bit(const uint32_t *mask, int32_t bit)
{
    return mask[bit / 32] >> bit % 32 & 1u;
}

/* The row that a pass before this one left at a place.  The oracle breaks those passes to see
 * whether anybody notices, and then a row may be anything: row 0 keeps us in memory. */
static int64_t row_at(const struct vx_mask_order_args *args, int32_t group, int64_t place)
{
    const int64_t row = args->rows_in ? args->rows_in[group * args->n + place] : place;
    return row >= 0 && row < args->n ? row : 0;
}

/* The bits [key_low, key_low + key_bits) of the rank of the row at a place. */
static uint32_t key_at(const struct vx_mask_order_args *args, int32_t group,
                       int64_t place)
{
    const int64_t at = group * args->n + place;
    if (args->keys_in) return args->keys_in[at];
    const uint32_t *words = args->masks + row_at(args, group, place) * args->words;
    uint32_t signature = 0, key = 0, odd = 0;
    int32_t begin = group * args->bits;
    if (args->run) {
        signature = vx_order_signature(words, args->bits, args->run, args->n);
        words = &signature;
        begin = 0;
    }
    for (int32_t bit = vx_order_rank_bits(args->bits, args->run, args->n) - 1;
         bit >= args->key_low; bit--) {
        const uint32_t here = mask_bit(words, begin + bit);
        odd = args->gray ? odd ^ here : here;
        if (bit < args->key_low + args->key_bits) key = key << 1 | odd;
    }
    return key;
}

static uint32_t digit_of(uint32_t key, int32_t shift, int32_t bits)
{
    return key >> shift & ((UINT32_C(1) << bits) - 1);
}

static uint32_t *totals_of(const struct vx_order_digits_args *args, int32_t digit,
                           int32_t group)
{
    return args->sort.totals +
           ((int64_t)digit * args->sort.groups + group) * VX_ORDER_BINS;
}

void vx_order_clear_ref(const void *args_given, enum vx_number type)
{
    const struct vx_order_digits_args *args = args_given;
    (void)type;
    if (args->sort.n == 0) return;
    for (int32_t d = 0; d < args->digits; d++)
        for (int32_t group = 0; group < args->sort.groups; group++)
            for (int32_t bin = 0; bin < VX_ORDER_BINS; bin++)
                totals_of(args, d, group)[bin] = 0;
}

/* All words of a pass but those beside the first one, which nobody reads. */
static void state_clear(uint32_t *state, int64_t tiles)
{
    const struct vx_sweep_layout at = vx_sweep_layout_of(tiles);
    state[0] = 0;
    for (int64_t word = at.counts; word < at.words; word++) state[word] = 0;
}

void vx_order_digits_ref(const void *args_given, enum vx_number type)
{
    const struct vx_order_digits_args *args = args_given;
    const struct vx_mask_order_args *sort = &args->sort;
    const int64_t words = vx_sweep_layout_of(sort->tiles).words;
    (void)type;
    if (sort->n == 0) return;
    for (int32_t each = 0; each < args->digits * sort->groups; each++)
        state_clear(sort->counts + each * words, sort->tiles);
    for (int32_t group = 0; group < sort->groups; group++)
        for (int64_t place = 0; place < sort->n; place++) {
            const uint32_t key = key_at(sort, group, place);
            if (sort->keys_out) sort->keys_out[group * sort->n + place] = key;
            for (int32_t d = 0; d < args->digits; d++)
                totals_of(args, d,
                          group)[digit_of(key, args->shifts[d], args->bits[d])]++;
        }
}

/* The words of one group as a pass leaves them. */
static void state_leave(const struct vx_mask_order_args *args, int32_t group)
{
    const struct vx_sweep_layout at = vx_sweep_layout_of(args->tiles);
    const int64_t rows = VX_ORDER_TILE;
    const int32_t bins = 1 << args->digit_bits;
    uint32_t *state = args->counts + group * at.words;
    uint32_t before[VX_ORDER_BINS] = {0};
    state[0] += (uint32_t)args->tiles;
    for (int64_t tile = 0; tile < args->tiles; tile++) {
        const int64_t span = tile / VX_SWEEP_SPAN;
        const bool asked = (span + 1) * VX_SWEEP_SPAN < args->tiles;
        uint32_t counts[VX_ORDER_BINS] = {0};
        for (int64_t place = tile * rows; place < (tile + 1) * rows && place < args->n;
             place++)
            counts[digit_of(key_at(args, group, place), args->shift, args->digit_bits)]++;
        for (int32_t bin = 0; bin < bins; bin++) {
            uint32_t *sum = state + at.sums + span * VX_ORDER_BINS + bin;
            before[bin] += counts[bin];
            if (asked) *sum += counts[bin] + VX_SWEEP_TILE;
            if (asked && tile % VX_SWEEP_SPAN == VX_SWEEP_SPAN - 1)
                state[at.through + span * VX_ORDER_BINS + bin] =
                    before[bin] | VX_SWEEP_SAID;
        }
        /* Digits go in pairs, where there is but one with a neighbour that no row has. */
        for (int32_t pair = 0; 2 * pair < bins; pair++)
            state[at.counts + tile * (VX_ORDER_BINS / 2) + pair] =
                counts[2 * pair] | counts[2 * pair + 1] << 16 | VX_SWEEP_SAID;
    }
}

void vx_order_sweep_ref(const void *args_given, enum vx_number type)
{
    const struct vx_mask_order_args *args = args_given;
    (void)type;
    for (int32_t group = 0; group < args->groups; group++) {
        const uint32_t *totals = args->totals + (int64_t)group * VX_ORDER_BINS;
        int64_t next[VX_ORDER_BINS] = {0};
        for (int32_t bin = 1; bin < 1 << args->digit_bits; bin++)
            next[bin] = next[bin - 1] + totals[bin - 1];
        for (int64_t place = 0; place < args->n; place++) {
            const uint32_t key = key_at(args, group, place);
            const int64_t at = next[digit_of(key, args->shift, args->digit_bits)]++;
            /* As with rows: totals may be broken. */
            const int64_t to = group * args->n + (at < args->n ? at : 0);
            args->rows_out[to] = (int32_t)row_at(args, group, place);
            if (args->keys_out) args->keys_out[to] = key;
        }
        state_leave(args, group);
    }
}

/* --- many sorts --- */

static void each_digits(const void *args_given, void (*ref)(const void *, enum vx_number),
                        enum vx_number type)
{
    const struct vx_order_digits_many_args *args = args_given;
    for (int64_t sort = 0; sort < args->count; sort++) ref(&args->sorts[sort], type);
}

void vx_order_clear_many_ref(const void *args, enum vx_number type)
{
    each_digits(args, vx_order_clear_ref, type);
}

void vx_order_digits_many_ref(const void *args, enum vx_number type)
{
    each_digits(args, vx_order_digits_ref, type);
}

void vx_order_sweep_many_ref(const void *args_given, enum vx_number type)
{
    const struct vx_mask_order_many_args *args = args_given;
    for (int64_t sort = 0; sort < args->count; sort++)
        vx_order_sweep_ref(&args->sorts[sort], type);
}
