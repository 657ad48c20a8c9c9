/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/23_key_order.h"
#include "kernels/order.cuh"
#include "kernels/turn.cuh"

#define STARTS_WAVES (VX_KEY_STARTS_THREADS / VX_WAVE)

/* A block to each member.  Its keys are masks of two words. */
VX_KERNEL(VX_ORDER_SMALL_THREADS, 1) key_small(struct vx_key_order_args args)
{
    vx_turn();
    extern VX_SHARED uint32_t elements[];
    VX_SHARED struct small_memory memory;
    int32_t first = vx_key_edge(&args, (int32_t)vx_block_x());
    int32_t n = vx_key_edge(&args, (int32_t)vx_block_x() + 1) - first;
    struct vx_mask_order_args one = {0};
    if (n > VX_ORDER_SMALL_ROWS) return; /* all threads of the block */
    one.n = n;
    one.words = 2;
    one.bits = VX_KEY_BITS;
    one.groups = 1;
    one.masks = (const uint32_t *)(args.keys + first);
    small_sort(&one, elements, &memory);
    for (int32_t at = (int32_t)vx_thread(); at < n; at += VX_ORDER_SMALL_THREADS)
        args.rows_out[first + at] = first + (int32_t)(elements[at] % VX_ORDER_SMALL_ROWS);
}

/* The last of `count` numbers, which never fall, that is not above `value`; the first is not. */
VX_DEVICE int32_t last_not_above(const int32_t *numbers, int32_t count, int32_t value)
{
    int32_t low = 0, high = count; /* numbers[low] <= value < numbers[high] */
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (numbers[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

VX_KERNEL(VX_KEY_THREADS, 4) key_members(struct vx_key_order_args args)
{
    vx_turn();
    VX_SHARED int32_t edges[VX_KEY_MEMBERS_MAX];
    int64_t place = (int64_t)vx_block_x() * VX_KEY_THREADS + vx_thread();
    if ((int32_t)vx_thread() < args.members) edges[vx_thread()] = args.edges[vx_thread()];
    vx_barrier();
    if (place < args.n)
        args.numbers[place] =
            (uint32_t)last_not_above(edges, args.members, args.rows[place]);
}

VX_DEVICE int32_t sample_at(const struct vx_key_order_args *args, int32_t place)
{
    return vx_key_sample(args->keys[args->rows ? args->rows[place] : place]);
}

struct starts_memory {
    int32_t firsts[VX_KEY_MEMBERS_MAX +
                   1]; /* a member's first candidate; how many there are */
    int32_t edges[VX_KEY_MEMBERS_MAX + 1];
    uint32_t sums[STARTS_WAVES];
};

/* A candidate is a sample that a member might have: none is above that of its last row. */
VX_DEVICE void starts_begin(const struct vx_key_order_args *args,
                            struct starts_memory *memory)
{
    int32_t member = (int32_t)vx_thread();
    if (member <= args->members) memory->edges[member] = vx_key_edge(args, member);
    vx_barrier();
    if (member < args->members) {
        int32_t end = memory->edges[member + 1];
        memory->firsts[member] =
            end > memory->edges[member] ? sample_at(args, end - 1) + 1 : 0;
    }
    vx_barrier();
    if (member == 0) {
        int32_t before = 0;
        for (int32_t m = 0; m < args->members; m++) {
            int32_t candidates = memory->firsts[m];
            memory->firsts[m] = before;
            before += candidates;
        }
        memory->firsts[args->members] = before;
    }
    vx_barrier();
}

/* Where a candidate begins; -1: the member has no such sample. */
VX_DEVICE int32_t starts_find(const struct vx_key_order_args *args,
                              const struct starts_memory *memory, int32_t candidate)
{
    int32_t member = last_not_above(memory->firsts, args->members, candidate);
    int32_t sample = candidate - memory->firsts[member];
    int32_t low = memory->edges[member], end = memory->edges[member + 1], high = end;
    while (low < high) { /* the first place whose sample is not below */
        int32_t middle = low + (high - low) / 2;
        if (sample_at(args, middle) < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && sample_at(args, low) == sample ? low : -1;
}

VX_KERNEL(VX_KEY_STARTS_THREADS, 1) key_starts(struct vx_key_order_args args)
{
    vx_turn();
    VX_SHARED struct starts_memory memory;
    uint32_t found = 0;
    starts_begin(&args, &memory);
    int32_t candidates = memory.firsts[args.members];
    for (int32_t round = 0; round < candidates; round += VX_KEY_STARTS_THREADS) {
        int32_t candidate = round + (int32_t)vx_thread(), place = -1;
        uint32_t all;
        if (candidate < candidates) place = starts_find(&args, &memory, candidate);
        uint32_t before =
            vx_block_sum_before(place >= 0, memory.sums, STARTS_WAVES, &all);
        if (place >= 0) args.starts[found + before] = place;
        found += all;
        vx_barrier(); /* before the next sum overwrites them */
    }
    if (vx_thread() == 0) {
        args.starts[found] = (int32_t)args.n;
        *args.count = (int32_t)found;
    }
}
