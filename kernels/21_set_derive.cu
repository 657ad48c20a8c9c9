/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/brick_insert.cuh"
#include "kernels/turn.cuh"

#include "kernels/21_set_derive.h"

#define VX_WAVES (VX_SET_THREADS / VX_WAVE)
/* Before a loop that would be long if it were unrolled. */
#define VX_ROLLED _Pragma("unroll 1")

/* --- FLOOR by 1, 2, 4 ...: a brick becomes part of one brick --- */

/* Bits whose coordinate along an axis is 0. */
VX_DEVICE uint64_t first_of(int32_t axis)
{
    return axis == 0   ? 0xffffull
           : axis == 1 ? 0x000f000f000f000full
                       : 0x1111111111111111ull;
}

/* Divides one coordinate of every voxel of a mask.  to: the lowest result. */
VX_DEVICE uint64_t fold(uint64_t mask, int32_t axis, int32_t stride, int32_t to)
{
    uint32_t unit = 1u << (4 - 2 * axis);
    uint64_t first = first_of(axis);
    if (stride == 1) return mask;
    mask |= mask >> unit; /* at 0: of 0 and 1; at 2: of 2 and 3 */
    if (stride == 2)
        mask = (mask & first) | (mask >> unit & first << unit);
    else
        mask = (mask | mask >> 2 * unit) & first;
    return mask << unit * ((uint32_t)to & 3u);
}

VX_DEVICE uint64_t fold_brick(const struct vx_set_derive_args *args, uint64_t *key,
                              uint64_t mask)
{
    int32_t to[3];
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++) {
        int32_t stride = args->stride[axis];
        to[axis] = vx_brick_axis(*key, axis) * 4 >> vx_lowest_bit((uint32_t)stride);
        mask = fold(mask, axis, stride, to[axis]);
        to[axis] >>= 2;
    }
    *key = vx_brick_at(*key, to);
    return mask;
}

/* --- any rule --- */

/* Bit 4*a+i: coordinate a of the source brick at `from` leads to coordinate i of the
 * target brick *to, the one that `step` names.  A brick that several steps name gets the
 * same voxels more than once. */
VX_DEVICE uint32_t matrix_of(const struct vx_set_derive_args *args, int32_t axis,
                             int32_t from, int32_t step, int32_t *to)
{
    struct vx_set_window window = vx_set_window(args, axis);
    int32_t stride = args->stride[axis], reach = (window.offsets - 1) * window.far;
    int32_t brick = step % args->spans[axis], p = from * 4;
    uint32_t bits = 0;
    step /= args->spans[axis];
    if (args->apart[axis] & VX_APART_OFFSETS) {
        window.padding -= step % window.offsets * window.far;
        step /= window.offsets;
        reach = 0;
    }
    if (args->apart[axis] & VX_APART_VOXELS) p += step;
    *to = (vx_set_lowest(args, axis, p, window.padding, reach) >> 2) + brick;
    /* far: from the first offset to the one that leads from one to the other. */
    int32_t of_from = args->rule == VX_DERIVE_EXPAND ? -stride : 1;
    int32_t of_to = args->rule == VX_DERIVE_EXPAND ? 1 : -stride;
    int32_t first = window.padding + 4 * from * of_from + 4 * *to * of_to;
    VX_ROLLED
    for (int32_t a = 0; a < 4; a++)
        for (int32_t i = 0; i < 4; i++) {
            int32_t far = first + a * of_from + i * of_to;
            int leads = (uint32_t)far <= (uint32_t)reach;
            if (leads && window.far > 1) leads = far % window.far == 0;
            bits |= (leads ? 1u : 0u) << (4 * a + i);
        }
    if (args->rule != VX_DERIVE_SPCONV) return bits;
    int32_t left = args->shape[axis] - 4 * *to;
    if (*to < 0 || left <= 0) return 0;
    return left < 4 ? bits & ((1u << left) - 1) * 0x1111u : bits;
}

/* Applies a matrix to one coordinate of every voxel.  Bits of one product never meet, as
 * a slab has the bits of one coordinate alone. */
VX_DEVICE uint64_t apply(uint64_t mask, int32_t axis, uint32_t matrix)
{
    uint32_t unit = 1u << (4 - 2 * axis);
    uint64_t first = first_of(axis), applied = 0;
    for (uint32_t a = 0; a < 4; a++) {
        uint64_t row = matrix >> 4 * a & 15u;
        row = (row & 1u) | (row >> 1 & 1u) << unit | (row >> 2 & 1u) << 2 * unit |
              (row >> 3) << 3 * unit;
        applied |= (mask >> a * unit & first) * row;
    }
    return applied;
}

/* The part of a source brick's candidates that lie in the target brick of a step; its key
 * replaces the source's. */
VX_DEVICE uint64_t apply_brick(const struct vx_set_derive_args *args, uint64_t *key,
                               uint64_t mask, uint32_t step)
{
    int32_t to[3];
    VX_UNROLL
    for (int32_t axis = 2; axis >= 0; axis--) {
        uint32_t steps = (uint32_t)args->steps[axis];
        int32_t from = vx_brick_axis(*key, axis);
        mask = apply(mask, axis,
                     matrix_of(args, axis, from, (int32_t)(step % steps), &to[axis]));
        step /= steps;
    }
    *key = vx_brick_at(*key, to);
    return mask;
}

/* SAMPLES: a brick becomes the voxel of its sample.  Most bricks of a wave are of one
 * sample, of which one lane tells, so that not every brick writes to the same slot. */
VX_DEVICE void sample_brick(struct vx_brick_slot *it)
{
    uint32_t sample = it->mask ? (uint32_t)vx_brick_sample(it->key) : ~0u;
    uint32_t before = vx_shuffle(sample, vx_lane() ? vx_lane() - 1 : 0);
    it->key = vx_brick_key((int32_t)(sample & 511u), 0, 0, 0);
    it->mask = sample == ~0u || (vx_lane() && before == sample) ? 0 : 1;
}

VX_DEVICE void derive(const struct vx_set_derive_args *args, uint32_t block,
                      uint32_t blocks)
{
    const struct vx_brick_set *from = &args->from;
    uint32_t steps = (uint32_t)(args->steps[0] * args->steps[1] * args->steps[2]);
    uint64_t tasks = (uint64_t)from->counts->bricks * steps;
    uint64_t first = (uint64_t)(block * VX_WAVES + vx_wave()) * VX_WAVE;
    for (; first < tasks; first += (uint64_t)blocks * VX_SET_THREADS) {
        uint64_t task = first + vx_lane();
        struct vx_brick_slot it = {0, 0};
        int samples = args->rule == VX_DERIVE_SAMPLES;
        if (task < tasks) it = from->slots[from->list[task / steps]];
        if (samples)
            sample_brick(&it);
        else if (task < tasks)
            it.mask = args->folds
                          ? fold_brick(args, &it.key, it.mask)
                          : apply_brick(args, &it.key, it.mask, (uint32_t)(task % steps));
        vx_brick_insert(&args->to, args->seed, it.mask ? it.key : 0, it.mask);
    }
}

VX_KERNEL(VX_SET_THREADS, 2) set_derive(const struct vx_set_derive_args args)
{
    vx_turn();
    derive(&args, vx_block_x(), args.blocks);
}

/* --- numbered --- */

VX_DEVICE void number(const struct vx_brick_set *set, uint32_t block, uint32_t blocks)
{
    uint32_t count = set->counts->bricks;
    uint32_t first = (block * VX_WAVES + vx_wave()) * VX_WAVE;
    for (; first < count; first += blocks * VX_SET_THREADS) {
        uint32_t brick = first + vx_lane();
        uint32_t slot = brick < count ? set->list[brick] : 0;
        uint64_t mask = brick < count ? set->slots[slot].mask : 0;
        uint32_t rows = (uint32_t)vx_count_bits64(mask);
        uint32_t base = vx_wave_take(&set->counts->rows, rows);
        if (brick < count) set->base[slot] = (int32_t)base;
        /* Seen before the counter can overflow, because a wave adds little. */
        if ((int64_t)base + rows > set->rows_max) set->counts->fault[0] = 1;
    }
}

VX_KERNEL(VX_SET_THREADS, 2) set_number(const struct vx_set_number_args args)
{
    vx_turn();
    struct vx_brick_set set = args.sets[vx_block_y()];
    number(&set, vx_block_x(), args.blocks);
}

VX_DEVICE void clear(const struct vx_brick_set *set)
{
    struct vx_brick_slot none = {0, 0};
    if (vx_thread() == 0) {
        set->counts->fault[0] = set->counts->fault[1] = 0;
        set->counts->bricks = set->counts->rows = 0;
        set->counts->tally = 0;
    }
    for (uint64_t slot = vx_thread(); slot < set->slots_count; slot += VX_SET_THREADS)
        set->slots[slot] = none;
}

/* The arguments are copied into registers, as in brick_small_many. */
VX_KERNEL(VX_SET_THREADS, 1) set_derive_many(const struct vx_set_derive_many_args many)
{
    vx_turn();
    const struct vx_set_derive_args *chain =
        many.args + (int64_t)vx_block_x() * many.sets;
    for (int32_t s = 0; s < many.sets; s++) {
        struct vx_set_derive_args args = chain[s];
        clear(&args.to);
        vx_barrier();
        derive(&args, 0, 1);
        vx_barrier();
        number(&args.to, 0, 1);
        vx_barrier();
    }
}

/* --- named --- */

/* A wave takes a brick, a lane each of its voxels. */
VX_DEVICE void coords(const struct vx_set_coords_args *args, uint32_t block)
{
    const struct vx_brick_set *set = &args->set;
    uint32_t count = set->counts->bricks;
    for (uint32_t listed = block + vx_wave() * args->blocks; listed < count;
         listed += VX_WAVES * args->blocks) {
        uint32_t slot = set->list[listed];
        struct vx_brick_slot it = set->slots[slot];
        int64_t base = (uint32_t)set->base[slot];
        for (uint32_t bit = vx_lane(); bit < 64; bit += VX_WAVE) {
            uint64_t below = it.mask & (((uint64_t)1 << bit) - 1);
            int64_t row = base + vx_count_bits64(below);
            if (!(it.mask >> bit & 1u) || row >= args->n) continue;
            args->keys[row] = vx_key_pack(
                vx_brick_sample(it.key), vx_brick_voxel(it.key, bit, 0),
                vx_brick_voxel(it.key, bit, 1), vx_brick_voxel(it.key, bit, 2));
        }
    }
    int64_t row = (int64_t)block * VX_SET_THREADS + vx_thread() + set->counts->rows;
    for (; row < args->n; row += (int64_t)args->blocks * VX_SET_THREADS)
        args->keys[row] = VX_KEY_EMPTY;
}

VX_KERNEL(VX_SET_THREADS, 2) set_coords(const struct vx_set_coords_args args)
{
    vx_turn();
    coords(&args, vx_block_x());
}

VX_KERNEL(VX_SET_THREADS, 2) set_coords_many(const struct vx_set_coords_many_args many)
{
    vx_turn();
    struct vx_set_coords_args args = many.sets[vx_block_y()];
    if (vx_block_x() < args.blocks) coords(&args, vx_block_x());
}
