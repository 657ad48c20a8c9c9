/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
#include "kernels/turn.cuh"

#include "kernels/03_brick_index.h"

#define VX_WAVES (VX_BRICK_INDEX_THREADS / VX_WAVE)

/* Takes `count` numbers of a counter for this thread; one atomic serves the whole block.
 * Returns the first of this thread's numbers. */
VX_DEVICE uint32_t take(uint32_t *counter, uint32_t count)
{
    VX_SHARED uint32_t sums[VX_WAVES];
    VX_SHARED uint32_t first;
    uint32_t lane = vx_lane(), sum = count;
    for (uint32_t step = 1; step < VX_WAVE; step *= 2) {
        uint32_t other = vx_shuffle(sum, (lane - step) % VX_WAVE);
        sum += lane >= step ? other : 0;
    }
    if (lane == VX_WAVE - 1) sums[vx_wave()] = sum;
    vx_barrier();
    uint32_t before = 0, all = 0;
    for (uint32_t wave = 0; wave < VX_WAVES; wave++) {
        before += wave < vx_wave() ? sums[wave] : 0;
        all += sums[wave];
    }
    if (vx_thread() == 0) first = all ? vx_atomic_add(counter, all) : 0;
    vx_barrier();
    uint32_t taken = first + before + sum - count;
    vx_barrier(); /* before the next call overwrites `first` and `sums` */
    return taken;
}

/* The first slot from `at` on that has the key, or was free when it was read; *found: what it had.
 * Two slots are loaded together. */
VX_DEVICE uint32_t look_on(const struct vx_brick_index_args *args, uint64_t key,
                           struct vx_brick_way way, uint32_t at, uint64_t *found)
{
    for (;;) {
        const uint64_t here = args->slots[at].key, beside = args->slots[at ^ 1u].key;
        const int first = !((at ^ way.start) & 1u); /* else `beside` was seen before */
        *found = here;
        if (here == key || !here) return at;
        *found = beside;
        if (first && (beside == key || !beside)) return at ^ 1u;
        at = vx_brick_next(first ? at ^ 1u : at, way, args->slots_count);
    }
}

/* Finds each lane's brick or creates it; *made becomes 1 if this lane created it.  Key 0: the lane
 * has none.  Every lane of the wave calls it, and they stay together: the answer to an atomic takes
 * thousands of cycles, and lanes that went one by one would wait for each other's.
 *
 * A slot that reads as free may be taken by now: the swap decides.  A taken slot keeps its key. */
VX_DEVICE uint32_t slot_of(const struct vx_brick_index_args *args, uint64_t key,
                           uint32_t *made)
{
    const struct vx_brick_way way = vx_brick_way(key, args->slots_count, args->seed);
    uint32_t slot = way.start;
    int searching = key != 0;
    while (vx_ballot(searching)) {
        uint64_t found = key;
        if (searching) slot = look_on(args, key, way, slot, &found);
        vx_wave_barrier();
        if (!found && searching) {
            found = vx_atomic_swap_if64(&args->slots[slot].key, 0, key);
            *made = !found;
        }
        vx_wave_barrier();
        searching &= found && found != key;
        if (searching) slot = vx_brick_next(slot, way, args->slots_count);
    }
    return slot;
}

/* Inserts voxels first .. first + VX_BRICK_INDEX_THREADS - 1.  Every thread of the block must call
 * it. */
VX_DEVICE void insert(const struct vx_brick_index_args *args, int64_t first)
{
    int64_t i = first + vx_thread();
    uint64_t key = 0, place = VX_BRICK_NONE, before = 0;
    uint32_t bit = 0, made = 0;
    if (i < args->n) {
        const int32_t *at = args->coords + i * args->columns;
        int32_t sample = args->columns == 4 ? *at++ : 0;
        int32_t x = at[0], y = at[1], z = at[2];
        key = vx_brick_of(args, sample, x, y, z);
        bit = vx_brick_bit(x, y, z);
        if (!key) args->counts->fault[0] = 1;
    }
    const uint32_t slot = slot_of(args, key, &made);
    if (key) {
        before = vx_atomic_or64(&args->slots[slot].mask, (uint64_t)1 << bit);
        place = (uint64_t)slot << 6 | bit;
    }
    if (i < args->n) args->places[i] = place;
    uint32_t brick = take(&args->counts->bricks, made);
    if (made) args->list[brick] = slot;
    if (before >> bit & 1u)
        args->counts->fault[1] = 1; /* here, so that nothing waited for it */
}

/* Gives each listed brick its rows.  The blocks take VX_BRICK_INDEX_THREADS bricks at a time, in
 * turn. */
VX_DEVICE void number(const struct vx_brick_index_args *args, uint32_t block,
                      uint32_t blocks)
{
    uint32_t count = args->counts->bricks;
    if (args->fault && block == 0 && vx_thread() < 2)
        args->fault[vx_thread()] = args->counts->fault[vx_thread()];
    for (uint32_t first = block * VX_BRICK_INDEX_THREADS; first < count;
         first += blocks * VX_BRICK_INDEX_THREADS) {
        uint32_t brick = first + vx_thread();
        uint32_t slot = brick < count ? args->list[brick] : 0;
        uint64_t mask = brick < count ? args->slots[slot].mask : 0;
        uint32_t base = take(&args->counts->rows, (uint32_t)vx_count_bits64(mask));
        if (brick < count) args->base[slot] = (int32_t)base;
    }
}

VX_DEVICE void rank(const struct vx_brick_index_args *args, int64_t i)
{
    if (i >= args->n) return;
    if (i >= args->counts->rows) args->rows[i] = (int32_t)i;
    uint64_t place = args->places[i];
    if (place == VX_BRICK_NONE) return;
    uint64_t slot = place >> 6;
    uint64_t below = args->slots[slot].mask & (((uint64_t)1 << (place & 63u)) - 1);
    args->rows[args->base[slot] + vx_count_bits64(below)] = (int32_t)i;
}

VX_KERNEL(VX_BRICK_INDEX_THREADS, 2) brick_insert(const struct vx_brick_index_args args)
{
    vx_turn();
    insert(&args, (int64_t)vx_block_x() * VX_BRICK_INDEX_THREADS);
}

VX_KERNEL(VX_BRICK_INDEX_THREADS, 2) brick_number(const struct vx_brick_index_args args)
{
    vx_turn();
    number(&args, vx_block_x(), args.blocks);
}

VX_KERNEL(VX_BRICK_INDEX_THREADS, 2) brick_rank(const struct vx_brick_index_args args)
{
    vx_turn();
    rank(&args, (int64_t)vx_block_x() * VX_BRICK_INDEX_THREADS + vx_thread());
}

/* One block does all three steps, after it has zeroed the counts and the slots. */
VX_DEVICE void small(const struct vx_brick_index_args *args)
{
    if (vx_thread() == 0) {
        args->counts->fault[0] = args->counts->fault[1] = 0;
        args->counts->bricks = args->counts->rows = 0;
        args->counts->tally = 0;
    }
    struct vx_brick_slot none = {0, 0};
    for (uint64_t slot = vx_thread(); slot < args->slots_count;
         slot += VX_BRICK_INDEX_THREADS)
        args->slots[slot] = none;
    vx_barrier();
    for (int64_t first = 0; first < args->n; first += VX_BRICK_INDEX_THREADS)
        insert(args, first);
    vx_barrier();
    number(args, 0, 1);
    vx_barrier();
    for (int64_t i = vx_thread(); i < args->n; i += VX_BRICK_INDEX_THREADS) rank(args, i);
}

VX_KERNEL(VX_BRICK_INDEX_THREADS, 1) brick_small(const struct vx_brick_index_args args)
{
    vx_turn();
    small(&args);
}

/* The arguments are copied into registers: where they lie, any store might change them,
 * and the compiler would load them again. */
VX_KERNEL(VX_BRICK_INDEX_THREADS, 1)
brick_small_many(const struct vx_brick_small_many_args many)
{
    vx_turn();
    struct vx_brick_index_args args = many.sets[vx_block_x()];
    small(&args);
}
