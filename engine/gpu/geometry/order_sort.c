/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order_sort.h"

#include "engine/base/process/check.h"

static i64 divided_up(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

/* Moves to the next pass, or from a zeroed pass to the first one; false = no more. */
static bool order_pass_next(i32 bits, struct vx_gpu_order_pass *pass)
{
    pass->shift += pass->digit_bits;
    pass->makes_key = pass->shift == pass->key_bits;
    if (pass->makes_key) {
        i32 piece = bits <= 32 ? bits : VX_ORDER_CHUNK;
        pass->key_low += pass->key_bits;
        if (pass->key_low >= bits) return false;
        if (piece > bits - pass->key_low) piece = bits - pass->key_low;
        pass->key_bits = piece;
        pass->shift = 0;
    }
    i32 digits = (i32)divided_up(pass->key_bits, VX_ORDER_DIGIT);
    i32 even = (i32)divided_up(pass->key_bits, digits);
    i32 left = pass->key_bits - pass->shift;
    pass->digit_bits = even < left ? even : left;
    pass->last_of_key = pass->shift + pass->digit_bits == pass->key_bits;
    return true;
}

/* Fewer runs than these tell too little of a row.  Measured are 3^3 and 5^3, with 25. */
#define RUNS_MIN 16

i32 vx_gpu_order_run(const struct vx_gpu_order_want *want)
{
    const i32 *kernel = want->kernel, least = (i32)divided_up(want->v, VX_ORDER_CHUNK);
    if (want->groups > 1 || want->v != kernel[0] * kernel[1] * kernel[2]) return 0;
    if (kernel[0] == 3 && kernel[1] == 3 && kernel[2] == 3) return 3;
    if (want->v <= 32) return 0;
    if (kernel[2] < least || divided_up(want->v, kernel[2]) < RUNS_MIN) return least;
    return kernel[2];
}

static size_t layout_take(struct vx_gpu_order_layout *layout, i64 words)
{
    size_t at = layout->bytes;
    layout->bytes += (size_t)divided_up(words * 4, VX_GPU_LINE_BYTES) * VX_GPU_LINE_BYTES;
    return at;
}

struct vx_gpu_order_layout vx_gpu_order_layout_make(const struct vx_gpu_order_want *want)
{
    const i32 run = vx_gpu_order_run(want);
    struct vx_gpu_order_layout layout = {
        .tiles = divided_up(want->n, VX_ORDER_TILE),
        .bits = vx_order_rank_bits(want->v / want->groups, run, want->n)};
    struct vx_gpu_order_pass pass = {0};
    i32 digits = 0, digits_max = 0; /* of one key */
    while (order_pass_next(layout.bits, &pass)) {
        layout.passes++;
        layout.keys_made += pass.makes_key;
        digits = pass.makes_key ? 1 : digits + 1;
        if (digits_max < digits) digits_max = digits;
    }
    VX_ASSERT(digits_max <= VX_SWEEP_DIGITS);
    layout.keys_last = layout.bits <= 32 && layout.passes > 1 && !run;
    const i64 each = (i64)want->groups * digits_max;
    layout.state = layout_take(&layout, each * vx_sweep_layout_of(layout.tiles).words);
    layout.totals = layout_take(&layout, each * VX_ORDER_BINS);
    layout.keys[0] = layout_take(&layout, want->groups * want->n);
    layout.keys[1] = layout_take(&layout, want->groups * want->n);
    layout.rows = layout_take(&layout, want->groups * want->n);
    return layout;
}

static void *scratch_at(void *scratch, size_t offset)
{
    return (unsigned char *)scratch + offset;
}

void vx_gpu_order_sort_begin(struct vx_gpu_order_sort *sort,
                             const struct vx_gpu_order_layout *layout, void *scratch,
                             const struct vx_mask_order_args *args)
{
    *sort = (struct vx_gpu_order_sort){
        .layout = *layout,
        .state = scratch_at(scratch, layout->state),
        .totals = scratch_at(scratch, layout->totals),
        .keys = {scratch_at(scratch, layout->keys[0]),
                 scratch_at(scratch, layout->keys[1])},
        .rows = {args->rows_out, scratch_at(scratch, layout->rows)},
        .args = *args,
    };
    sort->args.tiles = layout->tiles;
}

/* The digits of the key whose first pass is next, and which is written to `keys`. */
static void order_sort_digits(struct vx_gpu_order_sort *sort, u32 *keys)
{
    struct vx_gpu_order_pass pass = sort->pass;
    sort->digits = (struct vx_order_digits_args){.sort = sort->args};
    sort->digits.sort.keys_in = NULL;
    sort->digits.sort.keys_out = keys;
    sort->digits.sort.counts = sort->state;
    sort->digits.sort.totals = sort->totals;
    do {
        const i32 d = sort->digits.digits++;
        sort->digits.shifts[d] = pass.shift;
        sort->digits.bits[d] = pass.digit_bits;
    } while (order_pass_next(sort->layout.bits, &pass) && !pass.makes_key);
}

bool vx_gpu_order_sort_next(struct vx_gpu_order_sort *sort)
{
    struct vx_mask_order_args *args = &sort->args;
    const struct vx_gpu_order_pass *pass = &sort->pass;
    if (!order_pass_next(sort->layout.bits, &sort->pass)) {
        args->rows_in = sort->rows[0];
        args->keys_in = sort->layout.keys_last ? sort->keys[0] : NULL;
        return false;
    }
    const i32 left = sort->layout.passes - 1 - sort->done;
    const bool keeps = !pass->last_of_key || (left == 0 && sort->layout.keys_last);
    const i64 words = vx_sweep_layout_of(sort->layout.tiles).words;
    u32 *keys = sort->keys[(left + 1) % 2];
    args->key_low = pass->key_low;
    args->key_bits = pass->key_bits;
    args->shift = pass->shift;
    args->digit_bits = pass->digit_bits;
    args->rows_in = sort->done == 0 ? NULL : sort->rows[(left + 1) % 2];
    args->rows_out = sort->rows[left % 2];
    args->keys_in = keys;
    args->keys_out = keeps ? sort->keys[left % 2] : NULL;
    args->counts = pass->makes_key ? sort->state : args->counts + args->groups * words;
    args->totals =
        pass->makes_key ? sort->totals : args->totals + args->groups * VX_ORDER_BINS;
    if (pass->makes_key) order_sort_digits(sort, keys);
    sort->done++;
    return true;
}
