/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/brick_map.cuh"
#include "kernels/turn.cuh"
#include "kernels/waves.cuh"

#include "kernels/22_level_map.h"

/* Blocks per processor, as in 03_brick_map; for many sets, whose arguments are in
 * registers, the compiler spills with four. */
#define VX_BLOCKS      5
#define VX_BLOCKS_MANY 3
#define VX_WAVES       (VX_BRICK_MAP_THREADS / VX_WAVE)
/* Before a loop that would be long if it were unrolled. */
#define VX_ROLLED _Pragma("unroll 1")
/* The most bricks of `to` that a wave takes together. */
#define VX_GROUP_MAX 8
/* An entry of an axis's table that leads nowhere.  Others of all axes add up to less. */
#define VX_NOWHERE 0x4000u

/* One half of a brick's mask, and the number of the row before its first voxel. */
struct __attribute__((aligned(8))) near_half {
    uint32_t bits;
    uint32_t before;
};

/* A brick of `to`. */
struct level_brick {
    uint64_t mask;
    uint32_t row;       /* of its first voxel, less that voxel's place in `listed` */
    uint16_t places[3]; /* the first place of the tables that is its own */
};

/* What a wave works on. */
struct wave_part {
    struct near_half near[2 * VX_LEVEL_NEAR_MAX]; /* of one brick after the other */
    struct level_brick bricks[VX_GROUP_MAX];
    uint16_t listed[64 * VX_GROUP_MAX]; /* 64 * brick + bit of each voxel */
};

struct tables {
    /* 64 * brick + bit for each place and offset of x, then y, then z. */
    uint16_t entries[VX_LEVEL_TABLE_MAX];
    uint32_t offsets[VX_BRICK_OFFSETS_MAX]; /* kx | ky << 10 | kz << 20 */
};

/* Ends a map: rows without a brick, and the sum of the pairs. */
VX_DEVICE void map_end(const struct vx_level_map_args *args, uint64_t pairs,
                       uint64_t *shared)
{
    const struct vx_map_out out = {args->n,   args->blocks, args->nbr_stride, args->words,
                                   args->nbr, args->masks,  args->pairs};
    vx_map_nothing(&out, args->to.counts);
    vx_tally(&out, args->to.counts, pairs, shared);
}

/* The mask of a brick of `from` and the row of its first voxel; 0: there is none. */
VX_DEVICE uint64_t brick_at(const struct vx_level_map_args *args, uint64_t key,
                            uint32_t *base)
{
    const struct vx_brick_set *from = &args->from;
    uint64_t mask;
    *base = 0;
    if (from->counts->fault[0]) return 0;
    uint32_t slot = vx_brick_find(from->slots, from->slots_count, args->seed, key, &mask);
    if (mask) *base = (uint32_t)from->base[slot];
    return (int64_t)*base + vx_count_bits64(mask) <= args->from_n ? mask : 0;
}

/* CHILD: a row becomes that of a child's block in it. */
VX_DEVICE int32_t entry_of(const struct vx_level_map_args *args, int32_t row,
                           const int32_t out[3])
{
    const int32_t *stride = args->stride;
    int32_t child = 0;
    if (args->kind != VX_LEVEL_CHILD || row < 0) return row;
    VX_UNROLL
    for (int32_t axis = 2; axis >= 0; axis--) {
        int32_t in = out[axis] - vx_floor_div(out[axis], stride[axis]) * stride[axis];
        child = child * stride[axis] + in;
        row *= stride[axis];
    }
    return row + child;
}

/* --- near: what a brick reads is in a few bricks --- */

VX_DEVICE uint32_t near_count(const struct vx_level_map_args *args)
{
    return (uint32_t)(args->near[0] * args->near[1] * args->near[2]);
}

/* Where the table of an axis begins. */
VX_DEVICE int32_t table_at(const struct vx_level_map_args *args, int32_t axis)
{
    int32_t at = 0;
    for (int32_t below = 0; below < axis; below++)
        at += vx_level_places(args, below) * args->kernel[below];
    return at;
}

VX_DEVICE void fill_axis(const struct vx_level_map_args *args, int32_t axis,
                         int32_t weight, uint16_t *table)
{
    int32_t kernel = args->kernel[axis], count = vx_level_places(args, axis) * kernel;
    VX_ROLLED
    for (int32_t i = (int32_t)vx_thread(); i < count; i += VX_BRICK_MAP_THREADS) {
        int32_t at;
        uint32_t entry = VX_NOWHERE;
        if (vx_level_at(args, axis, i / kernel, i % kernel, &at)) {
            int32_t brick = ((at >> 2) - args->low[axis]) * weight;
            entry = (uint32_t)(brick * 64 + ((at & 3) << (4 - 2 * axis)));
        }
        table[i] = (uint16_t)entry;
    }
}

/* A barrier must follow. */
VX_DEVICE void fill_tables(const struct vx_level_map_args *args, struct tables *tables)
{
    int32_t weights[3] = {args->near[1] * args->near[2], args->near[2], 1};
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++)
        fill_axis(args, axis, weights[axis], tables->entries + table_at(args, axis));
    VX_ROLLED
    for (int32_t v = (int32_t)vx_thread(); v < args->v; v += VX_BRICK_MAP_THREADS) {
        int32_t xy = v / args->kernel[2];
        tables->offsets[v] =
            (uint32_t)(xy / args->kernel[1] | xy % args->kernel[1] << 10 |
                       v % args->kernel[2] << 20);
    }
}

/* The brick of `from` that is `which` of those that a brick of `to` reads.  places: as in
 * level_brick. */
VX_DEVICE uint64_t key_near(const struct vx_level_map_args *args, uint64_t key,
                            uint32_t which, uint16_t places[3])
{
    int32_t moved[3];
    VX_UNROLL
    for (int32_t axis = 2; axis >= 0; axis--) {
        int32_t stride = args->stride[axis], near = args->near[axis];
        int32_t to = vx_brick_axis(key, axis);
        int32_t middle = to * stride, first = 0;
        if (args->kind != VX_LEVEL_DOWN) {
            middle = vx_floor_div(to, stride);
            first = 4 * (to - middle * stride);
        }
        if (args->kind == VX_LEVEL_SAMPLE) middle = 0;
        places[axis] = (uint16_t)first;
        moved[axis] = middle - to + args->low[axis] + (int32_t)which % near;
        which /= (uint32_t)near;
    }
    return vx_brick_beside(key, moved[0], moved[1], moved[2]);
}

/* Looks up all that some listed bricks read, a lane each. */
VX_DEVICE void look_up(const struct vx_level_map_args *args, uint32_t listed,
                       uint32_t bricks, struct wave_part *part)
{
    uint32_t near = near_count(args);
    VX_ROLLED
    for (uint32_t at = vx_lane(); at < bricks * near; at += VX_WAVE) {
        uint32_t slot = args->to.list[listed + at / near], base;
        struct vx_brick_slot it = args->to.slots[slot];
        struct level_brick brick;
        uint64_t key = key_near(args, it.key, at % near, brick.places);
        uint64_t mask = brick_at(args, key, &base);
        struct near_half *half = &part->near[2 * at];
        half[0].bits = (uint32_t)mask;
        half[0].before = base - 1u;
        half[1].bits = (uint32_t)(mask >> 32);
        half[1].before = base - 1u + (uint32_t)vx_count_bits((uint32_t)mask);
        if (at % near) continue;
        brick.mask = it.mask;
        brick.row = (uint32_t)args->to.base[slot];
        part->bricks[at / near] = brick;
    }
}

/* Lists the voxels of the bricks; returns how many. */
VX_DEVICE uint32_t list_rows(struct wave_part *part, uint32_t bricks)
{
    uint32_t rows = 0;
    for (uint32_t b = 0; b < bricks; b++) {
        uint64_t mask = part->bricks[b].mask;
        for (uint32_t bit = vx_lane(); bit < 64; bit += VX_WAVE) {
            uint64_t below = mask & (((uint64_t)1 << bit) - 1);
            if (mask >> bit & 1u)
                part->listed[rows + (uint32_t)vx_count_bits64(below)] =
                    (uint16_t)(b << 6 | bit);
        }
        if (vx_lane() == 0) part->bricks[b].row -= rows;
        rows += (uint32_t)vx_count_bits64(mask);
    }
    return rows;
}

/* A listed voxel: its rows of the tables, and the bricks that it reads. */
struct place {
    const uint16_t *x, *y, *z;
    const struct near_half *near;
    int64_t row;
    int32_t out[3]; /* its places, which are its coordinates modulo the stride */
};

VX_DEVICE struct place place_of(const struct vx_level_map_args *args,
                                const struct tables *tables, const struct wave_part *part,
                                uint32_t at)
{
    uint32_t listed = part->listed[at], b = listed >> 6;
    const struct level_brick *brick = &part->bricks[b];
    struct place place;
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++)
        place.out[axis] = brick->places[axis] + (int32_t)(listed >> (4 - 2 * axis) & 3u);
    place.x = tables->entries + place.out[0] * args->kernel[0];
    place.y = tables->entries + table_at(args, 1) + place.out[1] * args->kernel[1];
    place.z = tables->entries + table_at(args, 2) + place.out[2] * args->kernel[2];
    place.near = part->near + 2 * near_count(args) * b;
    place.row = brick->row + at;
    return place;
}

/* Row at an offset, or -1; *there gets 1 or 0.  Offset ~0 leads nowhere. */
VX_DEVICE uint32_t row_of(const struct place *place, uint32_t offset, uint32_t *there)
{
    uint32_t entry = VX_NOWHERE;
    *there = 0;
    if (offset != ~0u)
        entry = (uint32_t)place->x[offset & 1023u] + place->y[offset >> 10 & 1023u] +
                place->z[offset >> 20];
    if (entry >= VX_NOWHERE) return ~0u;
    struct near_half half = place->near[entry >> 5];
    uint32_t upto = half.bits << (~entry & 31u); /* the voxel's bit and those below it */
    *there = upto >> 31;
    return *there ? half.before + (uint32_t)vx_count_bits(upto) : ~0u;
}

/* Writes one word of the masks of all listed rows, and its entries of nbr.  `lanes` write
 * a row together.  Returns the pairs. */
VX_DEVICE uint32_t write_word(const struct vx_level_map_args *args,
                              const struct tables *tables, const struct wave_part *part,
                              uint32_t rows, int32_t word)
{
    uint32_t pairs = 0, lanes = 1, offsets[4];
    while (lanes < 8 && (int32_t)lanes * 4 < args->v) lanes *= 2;
    uint32_t share = vx_lane() % lanes;
    int32_t v = word * 32 + (int32_t)share * 4;
    VX_UNROLL
    for (int32_t k = 0; k < 4; k++)
        offsets[k] = v + k < args->v ? tables->offsets[v + k] : ~0u;
    for (uint32_t first = 0; first < rows; first += VX_WAVE / lanes) {
        uint32_t at = first + vx_lane() / lanes, there[4];
        struct place place = place_of(args, tables, part, at < rows ? at : 0);
        struct vx_words4 found;
        found.x = row_of(&place, offsets[0], &there[0]);
        found.y = row_of(&place, offsets[1], &there[1]);
        found.z = row_of(&place, offsets[2], &there[2]);
        found.w = row_of(&place, offsets[3], &there[3]);
        uint32_t mask = there[0] | there[1] << 1 | there[2] << 2 | there[3] << 3;
        mask <<= share * 4;
        for (uint32_t step = 1; step < lanes; step *= 2)
            mask |= vx_shuffle_xor(mask, step);
        if (at >= rows || place.row >= args->n) continue;
        int32_t *nbr = args->nbr + place.row * args->nbr_stride + v;
        if (v < args->nbr_stride) *(struct vx_words4 *)nbr = found;
        if (share) continue;
        args->masks[place.row * args->words + word] = mask;
        pairs += (uint32_t)vx_count_bits(mask);
    }
    return pairs;
}

/* PARENT, CHILD, SAMPLE: a lane writes a row. */
VX_DEVICE void write_ones(const struct vx_level_map_args *args,
                          const struct tables *tables, const struct wave_part *part,
                          uint32_t rows)
{
    VX_ROLLED
    for (uint32_t at = vx_lane(); at < rows; at += VX_WAVE) {
        struct place place = place_of(args, tables, part, at);
        uint32_t there;
        int32_t row = (int32_t)row_of(&place, 0, &there);
        if (place.row >= args->n) continue;
        int32_t *nbr = args->nbr + place.row * args->nbr_stride;
        nbr[0] = entry_of(args, row, place.out);
        for (int32_t v = 1; v < args->nbr_stride; v++) nbr[v] = -1;
    }
}

VX_DEVICE void map_near(const struct vx_level_map_args *args)
{
    VX_SHARED struct tables tables;
    VX_SHARED struct wave_part parts[VX_WAVES];
    struct wave_part *part = &parts[vx_wave()];
    uint64_t pairs = 0;
    uint32_t count = args->to.counts->bricks, group = VX_WAVE / near_count(args);
    if (group > VX_GROUP_MAX) group = VX_GROUP_MAX;
    if (group < 1) group = 1;
    fill_tables(args, &tables);
    vx_barrier();
    for (uint32_t first = (vx_block_x() + vx_wave() * args->blocks) * group;
         first < count; first += VX_WAVES * args->blocks * group) {
        uint32_t bricks = count - first < group ? count - first : group;
        look_up(args, first, bricks, part);
        vx_wave_barrier();
        uint32_t rows = list_rows(part, bricks);
        vx_wave_barrier();
        if (!args->masks) write_ones(args, &tables, part, rows);
        for (int32_t word = 0; args->masks && word < args->words; word++)
            pairs += write_word(args, &tables, part, rows, word);
        vx_wave_barrier(); /* before the next bricks overwrite `part` */
    }
    map_end(args, pairs, (uint64_t *)parts);
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS) level_map(const struct vx_level_map_args args)
{
    vx_turn();
    map_near(&args);
}

/* The arguments are copied into registers, as in brick_small_many. */
VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS_MANY)
level_map_many(const struct vx_level_map_many_args many)
{
    vx_turn();
    struct vx_level_map_args args = many.sets[vx_block_y()];
    if (vx_block_x() < args.blocks) map_near(&args);
}

/* --- far: one look-up per entry --- */

VX_DEVICE int32_t row_far(const struct vx_level_map_args *args, uint64_t key,
                          const int32_t out[3], int32_t v)
{
    int32_t at[3], k = v;
    uint32_t base;
    VX_UNROLL
    for (int32_t axis = 2; axis >= 0; axis--) {
        int32_t kernel = args->kernel[axis];
        if (!vx_level_at(args, axis, out[axis], k % kernel, &at[axis])) return -1;
        k /= kernel;
    }
    uint64_t mask =
        brick_at(args, vx_brick_key(vx_brick_sample(key), at[0], at[1], at[2]), &base);
    uint32_t bit = vx_brick_bit(at[0], at[1], at[2]);
    if (!(mask >> bit & 1u)) return -1;
    return (int32_t)base + vx_count_bits64(mask & (((uint64_t)1 << bit) - 1));
}

/* Writes one row, a lane to each offset. */
VX_DEVICE uint32_t map_row_far(const struct vx_level_map_args *args, uint64_t key,
                               int64_t row, uint32_t bit)
{
    int32_t end = args->masks ? args->words * 32 : args->nbr_stride, out[3];
    uint32_t pairs = 0;
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++) out[axis] = vx_brick_voxel(key, bit, axis);
    for (int32_t first = 0; first < end; first += VX_WAVE) {
        int32_t v = first + (int32_t)vx_lane(), found = -1;
        if (v < args->v) found = entry_of(args, row_far(args, key, out, v), out);
        if (v < args->nbr_stride) args->nbr[row * args->nbr_stride + v] = found;
        uint64_t said = vx_ballot(found >= 0);
        if (!args->masks || vx_lane() % 32 || v / 32 >= args->words) continue;
        uint32_t mask = (uint32_t)(said >> vx_lane());
        args->masks[row * args->words + v / 32] = mask;
        pairs += (uint32_t)vx_count_bits(mask);
    }
    return pairs;
}

VX_DEVICE void map_far(const struct vx_level_map_args *args)
{
    VX_SHARED uint64_t sum;
    uint64_t pairs = 0;
    uint32_t count = args->to.counts->bricks;
    for (uint32_t listed = vx_block_x() + vx_wave() * args->blocks; listed < count;
         listed += VX_WAVES * args->blocks) {
        uint32_t slot = args->to.list[listed];
        struct vx_brick_slot it = args->to.slots[slot];
        int64_t row = (uint32_t)args->to.base[slot];
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (!(it.mask >> bit & 1u)) continue;
            if (row < args->n) pairs += map_row_far(args, it.key, row, bit);
            row++;
        }
    }
    map_end(args, pairs, &sum);
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS)
level_map_far(const struct vx_level_map_args args)
{
    vx_turn();
    map_far(&args);
}

VX_KERNEL(VX_BRICK_MAP_THREADS, VX_BLOCKS_MANY)
level_map_far_many(const struct vx_level_map_many_args many)
{
    vx_turn();
    struct vx_level_map_args args = many.sets[vx_block_y()];
    if (vx_block_x() < args.blocks) map_far(&args);
}
