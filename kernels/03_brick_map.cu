/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/brick_map.cuh"
#include "kernels/turn.cuh"

#ifndef VX_WORDS
#define VX_WORDS 1
#endif
/* Blocks per processor: more waves hide more latency.  With five a thread has 48 registers,
 * which do for one word of mask, with four 64, with three 80.  The arguments of many sets are
 * in registers, not in constant memory, and take a block more. */
#define VX_BLOCKS      (VX_WORDS > 4 ? 3 : VX_WORDS > 1 ? 4 : 5)
#define VX_BLOCKS_MANY (VX_WORDS > 1 ? 3 : 4)
#define VX_WAVES       (VX_BRICK_MAP_THREADS / VX_WAVE)
/* Eight lanes with four entries each make one word of mask. */
#define VX_LANES 8
/* A brick, its 26 neighbours, and one brick that is always empty, for entries past V. */
#define VX_NEAR 28
#define VX_OWN  13 /* the brick itself */

/* One half of a brick's mask, and the number of the row before its first voxel. */
struct __attribute__((aligned(8))) near_half {
    uint32_t bits;
    uint32_t before;
};
/* Four entries of the table.  An entry is 64 * brick + 32 * half + the left shift that
 * brings the voxel's bit to the top of its half.  Brick 27 is the empty one. */
struct __attribute__((aligned(8))) quad {
    uint16_t entries[4];
};

/* A brick of the list. */
struct brick {
    uint64_t key, mask;
    int32_t base;
};

VX_DEVICE struct brick brick_of(const struct vx_brick_map_args *args, uint32_t slot)
{
    struct vx_brick_slot it = args->slots[slot];
    struct brick brick = {it.key, it.mask, args->base[slot]};
    return brick;
}

/* A wave's way through the list.  What it needs of the next two bricks is loaded while it
 * works on one: a brick of few voxels takes less time than its loads. */
struct walk {
    uint32_t at, step, count;
    uint32_t slot; /* of the brick behind `next` */
    struct brick next;
};

VX_DEVICE uint32_t walk_slot(const struct vx_brick_map_args *args,
                             const struct walk *walk, uint32_t ahead)
{
    uint32_t listed = walk->at + ahead * walk->step;
    return listed < walk->count ? args->list[listed] : 0;
}

VX_DEVICE void walk_begin(const struct vx_brick_map_args *args, struct walk *walk)
{
    walk->at = vx_block_x() + vx_wave() * args->blocks;
    walk->step = VX_WAVES * args->blocks;
    walk->count = args->counts->bricks;
    if (walk->at < walk->count) walk->next = brick_of(args, walk_slot(args, walk, 0));
    walk->slot = walk_slot(args, walk, 1);
}

/* The brick at walk->at; begins to load the one behind it, which is what slot 0 has when there
 * is none. */
VX_DEVICE struct brick walk_take(const struct vx_brick_map_args *args, struct walk *walk)
{
    struct brick brick = walk->next;
    walk->next = brick_of(args, walk->slot);
    walk->slot = walk_slot(args, walk, 2);
    return brick;
}

/* Ends a map: rows without a brick, and the sum of the pairs. */
VX_DEVICE void map_end(const struct vx_brick_map_args *args, uint64_t pairs,
                       uint64_t *shared)
{
    const struct vx_map_out out = {args->n,   args->blocks, args->nbr_stride, args->words,
                                   args->nbr, args->masks,  args->pairs};
    vx_map_nothing(&out, args->counts);
    vx_tally(&out, args->counts, pairs, shared);
}

/* --- near: every neighbour is in one of 27 bricks --- */

/* What one axis adds to an entry: the neighbour's brick along it, and its place there.
 * at: where the voxel is in its brick; far: how far away the neighbour is. */
VX_DEVICE uint32_t entry_part(int32_t axis, uint32_t at, int32_t far)
{
    const uint32_t bricks[3] = {9 << 6, 3 << 6, 1 << 6};
    const uint32_t to = at + 4 + (uint32_t)far;
    return (to >> 2) * bricks[axis] + ((to & 3u) << (4 - 2 * axis));
}

/* A thread fills one column, an offset, at every eighth place: of them z is the same, y is one
 * of two, and x each of four. */
#define VX_COLUMN_STEP (VX_BRICK_MAP_THREADS / 32)
#if VX_COLUMN_STEP != 8
#error "fill_table takes every eighth place"
#endif

VX_DEVICE void fill_table(const struct vx_brick_map_args *args, struct quad *table)
{
    const uint32_t first = vx_thread() / 32, at = vx_thread() % 32;
    for (int32_t word = 0; word < VX_WORDS; word++) {
        const int32_t v = word * 32 + (int32_t)at;
        int32_t far[3];
        for (int32_t axis = 0; axis < 3; axis++)
            far[axis] = vx_brick_offset(args, v, axis);
        const uint32_t z = entry_part(2, first & 3u, far[2]);
        for (uint32_t step = 0; step < 64 / VX_COLUMN_STEP; step++) {
            const uint32_t place = first + step * VX_COLUMN_STEP;
            const uint32_t entry = entry_part(0, place >> 4, far[0]) +
                                   entry_part(1, place >> 2 & 3u, far[1]) + z;
            struct quad *quad = table + (place * VX_WORDS + word) * VX_LANES + at / 4;
            quad->entries[at % 4] =
                (uint16_t)(v < args->v ? entry ^ 31u : (VX_NEAR - 1) << 6);
        }
    }
}

/* The places of a brick from which a kernel reaches the brick beside it along an axis. */
VX_DEVICE uint64_t axis_reaching(const struct vx_brick_map_args *args, int32_t axis,
                                 int32_t side)
{
    const uint64_t repeats[3] = {1, 0x0001000100010001u, 0x1111111111111111u};
    const int32_t reach = args->kernel[axis] / 2 * args->dilation[axis];
    const int32_t width = 16 >> 2 * axis; /* places from one to the next along the axis */
    if (!side || reach >= 4) return ~(uint64_t)0;
    uint64_t places = ((uint64_t)1 << reach * width) - 1;
    if (side > 0) places <<= (4 - reach) * width;
    return places * repeats[axis];
}

/* The same for the brick that is this lane's among the 27; none for its own. */
VX_DEVICE uint64_t places_reaching(const struct vx_brick_map_args *args)
{
    const int32_t lane = (int32_t)vx_lane();
    if (lane >= VX_NEAR - 1 || lane == VX_OWN) return 0;
    return axis_reaching(args, 0, lane / 9 - 1) &
           axis_reaching(args, 1, lane / 3 % 3 - 1) &
           axis_reaching(args, 2, lane % 3 - 1);
}

/* Looks up the bricks around a brick that its voxels reach, one to a lane, and lists its
 * voxels' places. */
VX_DEVICE void look_around(const struct vx_brick_map_args *args,
                           const struct brick *brick, uint64_t reaching,
                           struct near_half *near, uint8_t *places)
{
    int32_t lane = (int32_t)vx_lane();
    if (lane < VX_NEAR) {
        uint64_t mask = 0;
        uint32_t before = 0;
        if (lane == VX_OWN) {
            mask = brick->mask;
            before = (uint32_t)brick->base - 1u;
        } else if (brick->mask & reaching) {
            uint64_t key =
                vx_brick_beside(brick->key, lane / 9 - 1, lane / 3 % 3 - 1, lane % 3 - 1);
            uint32_t slot =
                vx_brick_find(args->slots, args->slots_count, args->seed, key, &mask);
            if (mask) before = (uint32_t)args->base[slot] - 1u;
        }
        near[lane * 2].bits = (uint32_t)mask;
        near[lane * 2].before = before;
        near[lane * 2 + 1].bits = (uint32_t)(mask >> 32);
        near[lane * 2 + 1].before = before + (uint32_t)vx_count_bits((uint32_t)mask);
    }
    for (uint32_t bit = (uint32_t)lane; bit < 64; bit += VX_WAVE) {
        uint64_t below = brick->mask & (((uint64_t)1 << bit) - 1);
        if (brick->mask >> bit & 1u) places[vx_count_bits64(below)] = (uint8_t)bit;
    }
}

/* Row of an entry, or -1; *there gets 1 or 0. */
VX_DEVICE uint32_t row_of(const struct near_half *near, uint32_t entry, uint32_t *there)
{
    struct near_half half = near[entry >> 5];
    uint32_t upto = half.bits << (entry & 31u); /* the voxel's bit and those below it */
    *there = upto >> 31;
    return *there ? half.before + (uint32_t)vx_count_bits(upto) : ~0u;
}

/* Writes every row of a brick, VX_WAVE / VX_LANES at a time.  Returns the pairs. */
VX_DEVICE uint32_t map_rows(const struct vx_brick_map_args *args,
                            const struct brick *brick, const struct near_half *near,
                            const uint8_t *places, const struct quad *table)
{
    uint32_t part = vx_lane() % VX_LANES, pairs = 0;
    const uint32_t count = (uint32_t)vx_count_bits64(brick->mask);
    for (uint32_t first = 0; first < count; first += VX_WAVE / VX_LANES) {
        uint32_t voxel = first + vx_lane() / VX_LANES;
        int write = voxel < count;
        const struct quad *quads =
            table + (write ? places[voxel] : 0) * VX_WORDS * VX_LANES + part;
        int64_t row = (int64_t)brick->base + voxel;
        struct vx_words4 *nbr =
            (struct vx_words4 *)(args->nbr + row * args->nbr_stride) + part;
        for (int32_t word = 0; word < VX_WORDS && word < args->words; word++) {
            struct quad quad = quads[word * VX_LANES];
            uint32_t there[4];
            struct vx_words4 rows;
            rows.x = row_of(near, quad.entries[0], &there[0]);
            rows.y = row_of(near, quad.entries[1], &there[1]);
            rows.z = row_of(near, quad.entries[2], &there[2]);
            rows.w = row_of(near, quad.entries[3], &there[3]);
            uint32_t mask = there[0] | there[1] << 1 | there[2] << 2 | there[3] << 3;
            mask <<= part * 4;
            for (uint32_t step = 1; step < VX_LANES; step *= 2)
                mask |= vx_shuffle_xor(mask, step);
            if (!write) continue;
            if (word * 32 + (int32_t)part * 4 < args->nbr_stride)
                nbr[word * VX_LANES] = rows;
            if (part) continue;
            args->masks[row * args->words + word] = mask;
            pairs += (uint32_t)vx_count_bits(mask);
        }
    }
    return pairs;
}

VX_DEVICE void map_near(const struct vx_brick_map_args *args)
{
    VX_SHARED struct quad table[64 * VX_WORDS * VX_LANES];
    VX_SHARED struct near_half near[VX_WAVES][VX_NEAR * 2];
    VX_SHARED uint8_t places[VX_WAVES][64];
    const uint64_t reaching = places_reaching(args);
    const uint32_t wave = vx_wave();
    uint64_t pairs = 0;
    struct walk walk;
    walk_begin(args, &walk);
    fill_table(args, table);
    vx_barrier();
    for (; walk.at < walk.count; walk.at += walk.step) {
        const struct brick brick = walk_take(args, &walk);
        look_around(args, &brick, reaching, near[wave], places[wave]);
        vx_wave_barrier();
        pairs += map_rows(args, &brick, near[wave], places[wave], table);
        vx_wave_barrier(); /* before the next brick overwrites `near` and `places` */
    }
    map_end(args, pairs, (uint64_t *)near); /* reused: the table of 7^3 leaves no room */
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS) brick_map(const struct vx_brick_map_args args)
{
    vx_turn();
    map_near(&args);
}

/* The arguments are copied into registers, as in brick_small_many. */
VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS_MANY)
brick_map_many(const struct vx_brick_map_many_args many)
{
    vx_turn();
    struct vx_brick_map_args args = many.sets[vx_block_y()];
    if (vx_block_x() < args.blocks) map_near(&args);
}

/* --- far: any offset, one look-up per entry --- */

VX_DEVICE int32_t row_far(const struct vx_brick_map_args *args, uint64_t key,
                          uint32_t place, const int32_t far[3])
{
    int32_t x = (int32_t)(place >> 4) + far[0];
    int32_t y = (int32_t)(place >> 2 & 3u) + far[1];
    int32_t z = (int32_t)(place & 3u) + far[2];
    uint64_t mask;
    uint32_t slot = vx_brick_find(args->slots, args->slots_count, args->seed,
                                  vx_brick_beside(key, x >> 2, y >> 2, z >> 2), &mask);
    uint32_t bit = vx_brick_bit(x, y, z);
    if (!(mask >> bit & 1u)) return -1;
    return args->base[slot] + vx_count_bits64(mask & (((uint64_t)1 << bit) - 1));
}

/* Writes one row, a lane to each offset. */
VX_DEVICE uint32_t map_row_far(const struct vx_brick_map_args *args, uint64_t key,
                               int64_t row, uint32_t place)
{
    uint32_t pairs = 0;
    for (int32_t first = 0; first < args->words * 32; first += VX_WAVE) {
        int32_t v = first + (int32_t)vx_lane(), found = -1;
        int32_t far[3];
        for (int32_t axis = 0; axis < 3; axis++)
            far[axis] = vx_brick_offset(args, v, axis);
        if (v < args->v) found = row_far(args, key, place, far);
        if (v < args->nbr_stride) args->nbr[row * args->nbr_stride + v] = found;
        uint64_t said = vx_ballot(found >= 0);
        if (vx_lane() % 32 || v / 32 >= args->words) continue;
        uint32_t mask = (uint32_t)(said >> vx_lane());
        args->masks[row * args->words + v / 32] = mask;
        pairs += (uint32_t)vx_count_bits(mask);
    }
    return pairs;
}

VX_DEVICE void map_far(const struct vx_brick_map_args *args)
{
    VX_SHARED uint64_t sum;
    uint64_t pairs = 0;
    uint32_t count = args->counts->bricks;
    for (uint32_t listed = vx_block_x() + vx_wave() * args->blocks; listed < count;
         listed += VX_WAVES * args->blocks) {
        struct brick brick = brick_of(args, args->list[listed]);
        int64_t row = brick.base;
        for (uint32_t place = 0; place < 64; place++)
            if (brick.mask >> place & 1u)
                pairs += map_row_far(args, brick.key, row++, place);
    }
    map_end(args, pairs, &sum);
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS)
brick_map_far(const struct vx_brick_map_args args)
{
    vx_turn();
    map_far(&args);
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS_MANY)
brick_map_far_many(const struct vx_brick_map_many_args many)
{
    vx_turn();
    struct vx_brick_map_args args = many.sets[vx_block_y()];
    if (vx_block_x() < args.blocks) map_far(&args);
}
