/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/brick_insert.cuh"
#include "kernels/turn.cuh"

#include "kernels/26_set_occupancy.h"

#define VX_WAVES (VX_SET_THREADS / VX_WAVE)

/* A logit of a row. */
VX_DEVICE float logit_at(const struct vx_occupancy_set *set, int64_t row, int32_t child)
{
    return vx_float_of(((const vx_element *)set->logits)[row * set->cp + child]);
}

/* By its bits, because a compiler may be told that there is no NaN. */
VX_DEVICE int is_bad(float logit)
{
    return (vx_bits_of_float(logit) & 0x7fffffffu) > 0x7f800000u;
}

/* Keeps the largest of all; most callers see at once that theirs is not. */
VX_DEVICE void bad_report(struct vx_brick_counts *counts, uint64_t bad)
{
    uint64_t there = *(volatile uint64_t *)&counts->bad;
    while (bad > there) {
        uint64_t before = vx_atomic_swap_if64(&counts->bad, there, bad);
        if (before == there) return;
        there = before;
    }
}

/* Whether the voxel of a source brick, or its child, is live. */
VX_DEVICE int is_live(const struct vx_occupancy_set *set, const struct vx_brick_slot *it,
                      uint32_t base, uint32_t bit, int32_t child)
{
    uint64_t below = it->mask & (((uint64_t)1 << bit) - 1);
    int64_t row = (int64_t)base + vx_count_bits64(below);
    if (!(it->mask >> bit & 1u) || row >= set->n) return 0;
    float logit = logit_at(set, row, child);
    if (is_bad(logit))
        bad_report(set->to.counts,
                   ~vx_key_pack(vx_brick_sample(it->key), vx_brick_voxel(it->key, bit, 0),
                                vx_brick_voxel(it->key, bit, 1),
                                vx_brick_voxel(it->key, bit, 2)));
    return set->kept ? set->kept[row] != 0 : logit > 0.0f;
}

/* The mask of a target brick, and its key; every lane of a wave gets both. */
VX_DEVICE uint64_t mask_of(const struct vx_occupancy_set *set, uint64_t task,
                           uint32_t parts, uint64_t *key)
{
    uint32_t slot = set->from.list[task / parts];
    struct vx_brick_slot it = set->from.slots[slot];
    uint32_t base = (uint32_t)set->from.base[slot];
    int32_t part = (int32_t)(task % parts), rest = part, to[3];
    uint64_t mask = 0;
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++) {
        to[axis] = vx_brick_axis(it.key, axis) * set->stride[axis];
        to[axis] += rest % set->stride[axis];
        rest /= set->stride[axis];
    }
    *key = vx_brick_at(it.key, to);
    VX_UNROLL
    for (uint32_t first = 0; first < 64; first += VX_WAVE) {
        uint32_t source;
        int32_t child = vx_occupancy_child(set->stride, part, first + vx_lane(), &source);
        mask |= vx_ballot(is_live(set, &it, base, source, child)) << first;
    }
    return *key ? mask : 0;
}

VX_KERNEL(VX_SET_THREADS, 2) set_occupancy(const struct vx_set_occupancy_args args)
{
    vx_turn();
    struct vx_occupancy_set set = args.sets[vx_block_y()];
    if (vx_block_x() >= set.blocks) return;
    uint32_t parts = (uint32_t)(set.stride[0] * set.stride[1] * set.stride[2]);
    uint64_t tasks = (uint64_t)set.from.counts->bricks * parts;
    uint64_t first = (uint64_t)(vx_block_x() * VX_WAVES + vx_wave()) * VX_OCCUPANCY_TASKS;
    uint64_t step = (uint64_t)set.blocks * VX_WAVES * VX_OCCUPANCY_TASKS;
    for (; first < tasks; first += step) {
        uint64_t key = 0, mask = 0;
        for (uint32_t t = 0; t < VX_OCCUPANCY_TASKS && first + t < tasks; t++) {
            uint64_t of_key, of_mask = mask_of(&set, first + t, parts, &of_key);
            if (vx_lane() != t || !of_mask) continue;
            key = of_key;
            mask = of_mask;
        }
        vx_brick_insert(&set.to, args.seed, key, mask);
        (void)vx_wave_take(&set.to.counts->live, (uint32_t)vx_count_bits64(mask));
    }
}

/* A thread takes a set. */
VX_KERNEL(VX_SET_THREADS, 1) occupancy_fault(const struct vx_set_occupancy_args args)
{
    vx_turn();
    int64_t index = (int64_t)vx_block_x() * VX_SET_THREADS + vx_thread();
    if (index >= args.count) return;
    struct vx_occupancy_set set = args.sets[index];
    uint64_t key = ~set.to.counts->bad, mask;
    int32_t parts = set.stride[0] * set.stride[1] * set.stride[2];
    if (!set.to.counts->bad) return;
    int32_t x = vx_key_axis(key, 0), y = vx_key_axis(key, 1), z = vx_key_axis(key, 2);
    uint32_t slot = vx_brick_find(set.from.slots, set.from.slots_count, args.seed,
                                  vx_brick_key(vx_key_sample(key), x, y, z), &mask);
    mask &= ((uint64_t)1 << vx_brick_bit(x, y, z)) - 1;
    int64_t row = (int64_t)(uint32_t)set.from.base[slot] + vx_count_bits64(mask);
    int32_t child = 0;
    while (child < parts - 1 && !is_bad(logit_at(&set, row, child))) child++;
    set.to.counts->bad_child = (uint32_t)child;
}
