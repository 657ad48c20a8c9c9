/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/key_sort.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/37_order_sweep.h"

_Static_assert(VX_KEY_MEMBERS_MAX >= VX_BATCH_ITEMS_MAX, "all items of a round");

static size_t take(struct vx_gpu_key_layout *layout, i64 count, size_t each)
{
    size_t at = layout->bytes;
    layout->bytes += vx_round_up((size_t)count * each, VX_GPU_LINE_BYTES);
    return at;
}

static struct vx_gpu_key_layout layout_make(i64 n)
{
    struct vx_gpu_key_layout layout = {.tiles = (n + VX_ORDER_TILE - 1) / VX_ORDER_TILE};
    layout.keys = take(&layout, n, sizeof(u64));
    for (int i = 0; i < 2; i++) {
        layout.rows[i] = take(&layout, n, sizeof(i32));
        layout.words[i] = take(&layout, n, sizeof(u32));
    }
    layout.numbers = take(&layout, n, sizeof(u32));
    layout.state = take(&layout, VX_SWEEP_DIGITS * vx_sweep_layout_of(layout.tiles).words,
                        sizeof(u32));
    layout.totals = take(&layout, VX_SWEEP_DIGITS * VX_ORDER_BINS, sizeof(u32));
    return layout;
}

size_t vx_gpu_key_sort_bytes(i64 rows)
{
    return layout_make(rows).bytes;
}

static void *at(const struct vx_gpu_key_sort *sort, size_t offset)
{
    return sort->scratch + offset;
}

void vx_gpu_key_sort_begin(struct vx_gpu_key_sort *sort)
{
    VX_ASSERT(sort->key.n >= 1);
    VX_ASSERT(sort->key.n <= VX_VOXELS_MAX);
    sort->layout = layout_make(sort->key.n);
    sort->keys = at(sort, sort->layout.keys);
    sort->key.keys = sort->keys;
    sort->rows = NULL;
    sort->turn = 0;
}

/* A pass by one digit of keys that are there. */
static vx_status pass(struct vx_gpu_key_sort *sort, const struct vx_key_pass *it,
                      i32 digit, const u32 *keys_in)
{
    const i64 words = vx_sweep_layout_of(sort->layout.tiles).words;
    u32 *state = at(sort, sort->layout.state), *totals = at(sort, sort->layout.totals);
    const struct vx_mask_order_args args = {
        .n = sort->key.n,
        .tiles = sort->layout.tiles,
        .groups = 1,
        .shift = it->shift,
        .digit_bits = it->digit_bits,
        .keys_in = keys_in,
        .rows_in = sort->rows,
        .keys_out = at(sort, sort->layout.words[sort->turn]),
        .rows_out = at(sort, sort->layout.rows[sort->turn]),
        .counts = state + digit * words,
        .totals = totals + digit * VX_ORDER_BINS};
    VX_TRY(vx_gpu_map_launch(sort->queue, "order_sweep", &args, sort->why));
    sort->rows = args.rows_out;
    sort->turn = !sort->turn;
    return VX_OK;
}

/* The passes of one key.  Its keys are made from words, unless it has some. */
static vx_status passes_of_key(struct vx_gpu_key_sort *sort, const u64 *words,
                               const u32 *keys, const struct vx_key_pass *passes,
                               i32 count)
{
    u32 *made = keys ? NULL : at(sort, sort->layout.words[!sort->turn]);
    struct vx_order_digits_args args = {
        .sort = {.n = sort->key.n,
                 .tiles = sort->layout.tiles,
                 .words = 2,
                 .bits = VX_KEY_BITS,
                 .groups = 1,
                 .key_low = passes->key_low,
                 .key_bits = passes->key_bits,
                 .masks = (const u32 *)(const void *)words,
                 .keys_in = keys,
                 .rows_in = sort->rows,
                 .keys_out = made,
                 .counts = at(sort, sort->layout.state),
                 .totals = at(sort, sort->layout.totals)},
        .digits = count};
    VX_ASSERT(count <= VX_SWEEP_DIGITS);
    for (i32 d = 0; d < count; d++) {
        args.shifts[d] = passes[d].shift;
        args.bits[d] = passes[d].digit_bits;
    }
    VX_TRY(vx_gpu_map_launch(sort->queue, "order_clear", &args, sort->why));
    VX_TRY(vx_gpu_map_launch(sort->queue, "order_digits", &args, sort->why));
    if (!keys) keys = made;
    for (i32 d = 0; d < count; d++) {
        VX_TRY(pass(sort, &passes[d], d, keys));
        keys = at(sort, sort->layout.words[!sort->turn]);
    }
    return VX_OK;
}

vx_status vx_gpu_key_sort_by(struct vx_gpu_key_sort *sort, const u64 *words, i32 bits)
{
    struct vx_key_pass passes[VX_KEY_PASSES_MAX];
    const i32 count = vx_key_passes(~(u64)0 >> (64 - bits), passes);
    for (i32 first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !passes[end].fresh;) end++;
        VX_TRY(passes_of_key(sort, words, NULL, passes + first, end - first));
    }
    return VX_OK;
}

/* By the members' numbers, as the last digit. */
vx_status vx_gpu_key_sort_members(struct vx_gpu_key_sort *sort)
{
    struct vx_key_order_args args = sort->key;
    const struct vx_key_pass last = {
        .key_bits = 32, .digit_bits = vx_bit_length((u64)(args.members - 1))};
    if (args.members == 1) return VX_OK;
    args.rows = sort->rows;
    args.numbers = at(sort, sort->layout.numbers);
    VX_TRY(vx_gpu_map_launch(sort->queue, "key_members", &args, sort->why));
    return passes_of_key(sort, NULL, args.numbers, &last, 1);
}

/* True if a block can sort each member. */
static bool is_small(const struct vx_gpu_key_sort *sort)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("key_small");
    for (i32 m = 0; m < sort->key.members; m++)
        if (sort->key.edges[m + 1] - sort->key.edges[m] > VX_ORDER_SMALL_ROWS)
            return false;
    return spec->fits(NULL, 0, vx_gpu_caps(vx_kernel_set_gpu(sort->queue->set)));
}

vx_status vx_gpu_key_sort_all(struct vx_gpu_key_sort *sort)
{
    if (!is_small(sort)) {
        VX_TRY(vx_gpu_key_sort_by(sort, sort->keys, VX_KEY_BITS));
        return vx_gpu_key_sort_members(sort);
    }
    sort->key.rows_out = at(sort, sort->layout.rows[0]);
    sort->rows = sort->key.rows_out;
    return vx_gpu_map_launch(sort->queue, "key_small", &sort->key, sort->why);
}
