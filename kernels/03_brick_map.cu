/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/brick_map.cuh"
#include "kernels/brick_near.cuh"
#include "kernels/turn.cuh"

/* Blocks per processor: more waves hide more latency.  With five a thread has 48 registers,
 * which do for one word of mask, with four 64, with three 80.  The arguments of many sets are
 * in registers, not in constant memory, and take a block more. */
#define VX_BLOCKS      (VX_WORDS > 4 ? 3 : VX_WORDS > 1 ? 4 : 5)
#define VX_BLOCKS_MANY (VX_WORDS > 1 ? 3 : 4)
/* Fewer voxels than these in a brick, on average, are scattered. */
#define VX_SCATTERED_VOXELS 2

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
    const int32_t lane = (int32_t)vx_lane();
    struct brick beside = *brick;
    if (brick->mask & reaching)
        beside = look_up(args, vx_brick_beside(brick->key, lane / 9 - 1, lane / 3 % 3 - 1,
                                               lane % 3 - 1));
    if (brick->mask & reaching || lane == VX_OWN) near_is(near + 2 * lane, &beside);
    for (uint32_t bit = (uint32_t)lane; bit < 64; bit += VX_WAVE) {
        uint64_t below = brick->mask & (((uint64_t)1 << bit) - 1);
        if (brick->mask >> bit & 1u) places[vx_count_bits64(below)] = (uint8_t)bit;
    }
}

/* Writes every row of a brick.  Returns the pairs. */
VX_DEVICE uint32_t map_rows(const struct vx_brick_map_args *args,
                            const struct brick *brick, const struct near_half *near,
                            const uint8_t *places, const struct quad *table)
{
    uint32_t pairs = 0;
    const uint32_t count = (uint32_t)vx_count_bits64(brick->mask);
    for (uint32_t first = 0; first < count; first += VX_AT_ONCE) {
        const uint32_t voxel = first + vx_lane() / VX_LANES;
        const int write = voxel < count;
        pairs += map_row(args, near, quads_of(table, write ? places[voxel] : 0),
                         (int64_t)brick->base + voxel, write);
    }
    return pairs;
}

/* A wave to each brick.  Returns the pairs. */
VX_DEVICE uint32_t map_bricks(const struct vx_brick_map_args *args,
                              struct map_shared *shared)
{
    struct near_half *near = shared->near[vx_wave()];
    uint8_t *places = shared->places[vx_wave()];
    const uint64_t reaching = places_reaching(args);
    uint32_t pairs = 0;
    struct walk walk;
    walk_begin(args, &walk);
    fill_table(args, 0, shared->table);
    if (vx_lane() == 0) near_none(near + 2 * (VX_NEAR - 1));
    vx_barrier();
    for (; walk.at < walk.count; walk.at += walk.step) {
        const struct brick brick = walk_take(args, &walk);
        look_around(args, &brick, reaching, near, places);
        vx_wave_barrier();
        pairs += map_rows(args, &brick, near, places, shared->table);
        vx_wave_barrier(); /* before the next brick overwrites `near` and `places` */
    }
    return pairs;
}

/* --- scattered: few voxels in a brick, and one reaches at most two bricks along an axis --- */

/* On which side the brick lies that a voxel reaches along an axis beside its own; 0: none. */
VX_DEVICE int32_t side_of(const struct vx_brick_map_args *args, int32_t axis,
                          uint32_t place)
{
    const int32_t at = (int32_t)(place >> (4 - 2 * axis) & 3u);
    const int32_t reach = args->kernel[axis] / 2 * args->dilation[axis];
    return at < reach ? -1 : at >= 4 - reach;
}

/* Looks up the bricks that a voxel reaches, one to each of its lanes: bit 2 - axis of the lane's
 * number says that it is the one beside along the axis. */
VX_DEVICE void look_beside(const struct vx_brick_map_args *args,
                           const struct brick *brick, uint32_t place,
                           struct near_half *near)
{
    const uint32_t part = vx_lane() % VX_LANES;
    int32_t sides[3];
    int reached = 1;
    VX_UNROLL
    for (int32_t axis = 0; axis < 3; axis++) {
        sides[axis] = 0;
        if (!(part >> (2 - axis) & 1u)) continue;
        sides[axis] = side_of(args, axis, place);
        reached &= sides[axis] != 0;
    }
    if (!reached) return;
    struct brick beside = *brick;
    if (part)
        beside = look_up(args, vx_brick_beside(brick->key, sides[0], sides[1], sides[2]));
    near_is(near + 2 * part, &beside);
}

VX_DEVICE uint64_t shuffle64(uint64_t value, uint32_t lane)
{
    return (uint64_t)vx_shuffle((uint32_t)(value >> 32), lane) << 32 |
           vx_shuffle((uint32_t)value, lane);
}

/* A voxel among those of the bricks that the lanes of a wave have. */
struct voxel {
    struct brick brick;
    uint32_t place;
    int32_t row;
};

/* Voxel `at` of them, the same for VX_LANES lanes: first, and their number among the lanes.
 * through: the voxels of this lane's brick and of the lanes below.  Past the end: some voxel of
 * no meaning. */
VX_DEVICE struct voxel voxel_at(const struct brick *own, uint32_t through, uint32_t first)
{
    const uint32_t group = vx_lane() / VX_LANES;
    uint32_t lane = 0;
    VX_UNROLL
    for (uint32_t k = 0; k < VX_AT_ONCE; k++) {
        const uint32_t below = vx_lanes_count(vx_lanes_said(through <= first + k));
        if (k == group) lane = below % VX_WAVE;
    }
    struct voxel it;
    it.brick.key = shuffle64(own->key, lane);
    it.brick.mask = shuffle64(own->mask, lane);
    it.brick.base = (int32_t)vx_shuffle((uint32_t)own->base, lane);
    const uint32_t from =
        vx_shuffle(through, lane) - (uint32_t)vx_count_bits64(it.brick.mask);
    uint64_t left = it.brick.mask;
    it.row = it.brick.base + (int32_t)(first + group - from);
    VX_ROLLED
    for (int32_t row = it.brick.base; left && row < it.row; row++) left &= left - 1;
    it.place = left ? (uint32_t)vx_count_bits64((left & (0u - left)) - 1) : 0;
    return it;
}

/* How many bricks a wave takes at a time, so that all waves take equally many. */
VX_DEVICE uint32_t bricks_of_wave(uint32_t count, uint32_t waves)
{
    const uint32_t each = (count + waves - 1) / waves;
    const uint32_t rounds = (each + VX_WAVE - 1) / VX_WAVE;
    return (each + rounds - 1) / rounds;
}

/* A wave takes bricks, one to each lane, and VX_LANES lanes one voxel of them after the other.
 * Returns the pairs. */
VX_DEVICE uint32_t map_scattered(const struct vx_brick_map_args *args,
                                 struct map_shared *shared)
{
    struct near_half *near =
        shared->near[vx_wave()] + 2 * VX_NEAR_FEW * (vx_lane() / VX_LANES);
    const uint32_t count = args->counts->bricks, waves = VX_WAVES * args->blocks;
    const uint32_t each = bricks_of_wave(count, waves);
    uint32_t pairs = 0, begin = (vx_block_x() + vx_wave() * args->blocks) * each;
    fill_table(args, 1, shared->table);
    if (vx_lane() % VX_LANES == 0) near_none(near + 2 * (VX_NEAR_FEW - 1));
    vx_barrier();
    for (; begin < count; begin += waves * each) {
        struct brick own = {0, 0, 0};
        if (vx_lane() < each && begin + vx_lane() < count)
            own = brick_of(args, args->list[begin + vx_lane()]);
        const uint32_t through = vx_wave_sum_through((uint32_t)vx_count_bits64(own.mask));
        const uint32_t voxels = vx_shuffle(through, VX_WAVE - 1);
        for (uint32_t first = 0; first < voxels; first += VX_AT_ONCE) {
            const int write = first + vx_lane() / VX_LANES < voxels;
            const struct voxel it = voxel_at(&own, through, first);
            if (write) look_beside(args, &it.brick, it.place, near);
            vx_wave_barrier();
            pairs +=
                map_row(args, near, quads_of(shared->table, it.place), it.row, write);
            vx_wave_barrier(); /* before the next voxel overwrites `near` */
        }
    }
    return pairs;
}

/* True if a voxel reaches at most two bricks along each axis, and there are few in a brick. */
VX_DEVICE int is_scattered(const struct vx_brick_map_args *args)
{
    int few = VX_SCATTERED;
    for (int32_t axis = 0; axis < 3; axis++)
        few &= args->kernel[axis] / 2 * args->dilation[axis] <= 2;
    return few && args->counts->rows < VX_SCATTERED_VOXELS * args->counts->bricks;
}

VX_DEVICE void map_near(const struct vx_brick_map_args *args)
{
    VX_SHARED struct map_shared shared;
    const uint32_t pairs =
        is_scattered(args) ? map_scattered(args, &shared) : map_bricks(args, &shared);
    map_end(args, pairs, (uint64_t *)shared.near); /* the table of 7^3 leaves no room */
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
