/* Orders of rows and lists of pairs as the engine builds them on the fake device: what rows are sorted
 * by for each shape of a kernel, in how many launches, one order and several, and that memory beside
 * them is left alone.  What each launch computes is tested in test_kernels_order.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/geometry/order.h"
#include "kernels/08_pair_list.h"
#include "kernels/37_order_sweep.h"
#include "tests/support/device_rig.h"
#include "tests/support/trials.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_MAX 32
#define BLOCKS      24 /* to which tiles are dealt */

/* --- what is launched --- */

#define NAMES(name_)                                                                     \
    name_(order_small) name_(order_clear) name_(order_digits) name_(order_sweep)         \
        name_(order_blocks) name_(order_small_many) name_(order_sweep_many)              \
            name_(order_blocks_many) name_(order_clear_many) name_(order_digits_many)    \
                name_(order_tiles)

#define LAUNCH(name_) LAUNCH_##name_,
enum launch { NAMES(LAUNCH) LAUNCHES };
static i32 launched[LAUNCHES];

/* A launch of several sorts has blocks for the largest of each: the device ends the others. */
static void many_check(enum launch launch, const void *given)
{
    const struct vx_mask_order_many_args *args = given;
    i64 n = 0, tiles = 0;
    i32 groups = 0;
    if (launch < LAUNCH_order_small_many || launch > LAUNCH_order_blocks_many) return;
    for (i64 s = 0; s < args->count; s++) {
        if (args->sorts[s].n > n) n = args->sorts[s].n;
        if (args->sorts[s].tiles > tiles) tiles = args->sorts[s].tiles;
        if (args->sorts[s].groups > groups) groups = args->sorts[s].groups;
    }
    ck_assert_int_gt(args->count, 0);
    ck_assert_int_eq(args->n, n);
    ck_assert_int_eq(args->tiles, tiles);
    ck_assert_int_eq(args->groups, groups);
}

static void digits_many_check(enum launch launch, const void *given)
{
    const struct vx_order_digits_many_args *args = given;
    i64 tiles = 0;
    i32 groups = 0;
    if (launch != LAUNCH_order_clear_many && launch != LAUNCH_order_digits_many) return;
    for (i64 s = 0; s < args->count; s++) {
        if (args->sorts[s].sort.tiles > tiles) tiles = args->sorts[s].sort.tiles;
        if (args->sorts[s].sort.groups > groups) groups = args->sorts[s].sort.groups;
    }
    ck_assert_int_gt(args->count, 0);
    ck_assert_int_eq(args->tiles, tiles);
    ck_assert_int_eq(args->groups, groups);
}

/* A key is made from the masks once, when its digits are counted, and carried through them; block
 * masks are made from keys that have all of the masks. */
static void keys_check(enum launch launch, const void *given)
{
    const struct vx_mask_order_args *args = given;
    const struct vx_order_digits_args *digits = given;
    const bool all = launched[LAUNCH_order_sweep] > 1 && !args->run && args->bits <= 32;
    if (launch == LAUNCH_order_digits) {
        ck_assert_ptr_null(digits->sort.keys_in);
        ck_assert_ptr_nonnull(digits->sort.keys_out);
    }
    if (launch == LAUNCH_order_sweep) ck_assert_ptr_nonnull(args->keys_in);
    if (launch == LAUNCH_order_blocks) ck_assert_int_eq(args->keys_in != NULL, all);
}

#define SEE(name_)                                                                       \
    static void see_##name_(const void *args, enum vx_number type)                       \
    {                                                                                    \
        launched[LAUNCH_##name_]++;                                                      \
        many_check(LAUNCH_##name_, args);                                                \
        digits_many_check(LAUNCH_##name_, args);                                         \
        keys_check(LAUNCH_##name_, args);                                                \
        vx_kernel_find(#name_)->ref(args, type);                                         \
    }
NAMES(SEE)

static const struct vx_kernel_spec *find(const char *name)
{
#define ROW(name_) {#name_, see_##name_},
    static const struct {
        const char *name;
        void (*see)(const void *args, enum vx_number type);
    } rows[] = {NAMES(ROW)};
    static struct vx_kernel_spec specs[VX_COUNT(rows)];
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        if (!strcmp(rows[i].name, name)) {
            specs[i] = *vx_kernel_find(name);
            specs[i].ref = rows[i].see;
            return &specs[i];
        }
    return vx_kernel_find(name);
}

static void setup(void)
{
    struct vx_jit_wanted wanted[KERNELS_MAX];
    i32 count = vx_gpu_order_kernels(wanted, KERNELS_MAX);
    count += vx_gpu_pairs_kernels(wanted + count, KERNELS_MAX - count);
    device_rig_open();
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    memset(launched, 0, sizeof launched);
}

/* --- one order --- */

struct shape {
    i64 n;
    i32 kernel[3], groups;
    bool gray;
    i32 run;    /* of the signature that is expected, 0 = the masks */
    i32 passes; /* that are expected; 0 = one block sorts alone */
};

struct order {
    const struct shape *shape;
    i32 v, words, stride;
    struct vx_gpu_order_want want;
    struct vx_gpu_map map;
    void *scratch;
    size_t order_bytes, scratch_bytes;
    u8 *order; /* memory of the order: guards before and behind it, and behind the scratch */
    const u32 *masks; /* host */
    const i32 *nbr;
};

/* Rows that are alike, full ones, and such as have few offsets: of these most signatures
 * differ from run to run. */
static const u32 *masks_make(struct voxels_random *random, const struct order *order)
{
    const i64 n = order->shape->n;
    u32 *masks = device_rig_take((size_t)(n * order->words) * sizeof *masks);
    memset(masks, 0, (size_t)(n * order->words) * sizeof *masks);
    for (i64 i = 0; i < n; i++) {
        const i32 kind = voxels_between(random, 0, 7);
        u32 *mask = masks + i * order->words;
        if (kind == 0 && i) {
            const i64 like = voxels_between(random, 0, (i32)i - 1);
            memcpy(mask, masks + like * order->words, (size_t)order->words * 4);
            continue;
        }
        for (i32 v = 0; v < order->v; v++)
            if (kind == 1 || !voxels_between(random, 0, 1 << kind / 2))
                mask[v / 32] |= 1u << v % 32;
    }
    return masks;
}

static void order_make(struct voxels_random *random, const struct shape *shape,
                       struct order *order)
{
    const i32 *kernel = shape->kernel;
    const i32 v = kernel[0] * kernel[1] * kernel[2];
    *order = (struct order){
        .shape = shape, .v = v, .words = vx_mask_words(v), .stride = vx_nbr_stride(v)};
    order->want = (struct vx_gpu_order_want){.n = shape->n,
                                             .v = v,
                                             .groups = shape->groups,
                                             .kernel = {kernel[0], kernel[1], kernel[2]},
                                             .sorted = true,
                                             .gray = shape->gray,
                                             .blocks = BLOCKS,
                                             .neighbours = true};
    const size_t entries = (size_t)(shape->n * order->stride);
    i32 *nbr = device_rig_take(entries * sizeof *nbr);
    for (size_t e = 0; e < entries; e++) nbr[e] = voxels_between(random, -1, 1000000);
    order->nbr = nbr;
    order->masks = masks_make(random, order);
    order->map = (struct vx_gpu_map){
        .nbr_stride = order->stride,
        .nbr = device_rig_put(nbr, entries * sizeof *nbr),
        .masks = device_rig_put(order->masks,
                                (size_t)(shape->n * order->words) * sizeof(u32))};
    order->order_bytes = vx_gpu_order_bytes(&order->want);
    order->scratch_bytes = vx_gpu_order_scratch_bytes(&order->want);
    order->order = device_rig_guarded(order->order_bytes);
    order->scratch = device_rig_guarded(order->scratch_bytes);
    vx_gpu_order_place(&order->want, order->order, &order->map);
}

static void neighbours_check(const struct order *order, const i32 *rows)
{
    const i64 n = order->shape->n;
    const bool wanted = order->shape->groups == 1 && n > VX_ORDER_SMALL_ROWS;
    ck_assert_int_eq(order->map.neighbours != NULL, wanted);
    if (!wanted) return;
    const i32 *got =
        device_rig_get(order->map.neighbours, (size_t)(order->v * n) * sizeof *got);
    for (i32 v = 0; v < order->v; v++)
        for (i64 place = 0; place < n; place++)
            if (got[v * n + place] != order->nbr[rows[place] * (i64)order->stride + v])
                ck_abort_msg("offset %d, place %d: another neighbour", v, (int)place);
}

/* Lists of tiles from 16384 rows on: there every list has 64 of the larger ones. */
static void tiles_check(const struct order *order, const u32 *blocks)
{
    const i64 n = order->shape->n;
    i32 *expected[VX_ORDER_TILES_KINDS];
    size_t bytes[VX_ORDER_TILES_KINDS];
    for (i32 kind = 0; kind < VX_ORDER_TILES_KINDS; kind++) {
        i64 tiles = vx_order_tiles_count(n, order->shape->groups, kind);
        bytes[kind] = (size_t)vx_order_tiles_numbers(tiles, BLOCKS) * 4;
        expected[kind] = device_rig_take(bytes[kind]);
        ck_assert_int_eq(order->map.tiles[kind] != NULL, n >= 16384);
    }
    if (n < 16384) return;
    struct vx_order_tiles_args args = {.count = 1, .blocks = BLOCKS};
    args.one = (struct vx_order_tiles_sort){.n = n,
                                            .words = order->words,
                                            .groups = order->shape->groups,
                                            .block_masks = blocks,
                                            .tiles = {expected[0], expected[1]}};
    vx_kernel_find("order_tiles")->ref(&args, VX_NUMBER_F32);
    for (i32 kind = 0; kind < VX_ORDER_TILES_KINDS; kind++)
        ck_assert_mem_eq(device_rig_get(order->map.tiles[kind], bytes[kind]),
                         expected[kind], bytes[kind]);
}

static void order_check(const struct order *order)
{
    const struct shape *shape = order->shape;
    const size_t rows = (size_t)(shape->groups * shape->n) * sizeof(i32);
    const size_t blocks = (size_t)(shape->groups * vx_mask_blocks(shape->n)) *
                          (size_t)order->words * sizeof(u32);
    const struct vx_mask_order_args args = {.n = shape->n,
                                            .words = order->words,
                                            .bits = order->v / shape->groups,
                                            .run = shape->run,
                                            .groups = shape->groups,
                                            .gray = shape->gray,
                                            .masks = order->masks,
                                            .rows_out = device_rig_take(rows),
                                            .block_masks = device_rig_take(blocks)};
    vx_kernel_find("order_small")->ref(&args, VX_NUMBER_F32);
    const i32 *got = device_rig_get(order->map.order, rows);
    for (i64 at = 0; at < shape->groups * shape->n; at++)
        if (got[at] != args.rows_out[at])
            ck_abort_msg("kernel %dx%dx%d, %d groups, place %d: row %d, expected %d",
                         shape->kernel[0], shape->kernel[1], shape->kernel[2],
                         shape->groups, (int)at, got[at], args.rows_out[at]);
    ck_assert_mem_eq(device_rig_get(order->map.block_masks, blocks), args.block_masks,
                     blocks);
    ck_assert_int_eq(order->map.groups, shape->groups);
    neighbours_check(order, args.rows_out);
    tiles_check(order, args.block_masks);
    device_rig_guards_check(order->order, order->order_bytes);
    device_rig_guards_check(order->scratch, order->scratch_bytes);
}

static const struct shape shapes[] = {
    /* Of 3^3 the planes come first.  Other kernels of 27 offsets have none like these. */
    {300, {3, 3, 3}, 1, true, 3, 0},
    {300, {3, 3, 3}, 1, false, 3, 0},
    {300, {1, 3, 9}, 1, true, 0, 0},
    {300, {9, 3, 1}, 1, true, 0, 0},
    {300, {3, 1, 9}, 1, true, 0, 0},
    {300, {3, 9, 1}, 1, true, 0, 0},
    /* The masks of a group, and all offsets that fit a key of 32 bits. */
    {300, {3, 3, 3}, 3, true, 0, 0},
    {300, {5, 5, 5}, 5, true, 0, 0},
    {300, {7, 7, 7}, 49, false, 0, 0},
    {300, {1, 7, 4}, 1, true, 0, 0},
    {300, {2, 4, 4}, 1, true, 0, 0},
    {300, {1, 1, 1}, 1, true, 0, 0},
    /* A run is a line of the kernel: 25 runs of 5, 25 of 3, 18 of 6, 16 of 3. */
    {300, {5, 5, 5}, 1, true, 5, 0},
    {300, {5, 5, 3}, 1, false, 3, 0},
    {300, {1, 18, 6}, 1, true, 6, 0},
    {300, {1, 16, 3}, 1, true, 3, 0},
    /* Fewer than 16 lines, or so many that a key has no room: the least run that fits. */
    {300, {1, 15, 3}, 1, true, 2, 0},
    {300, {3, 5, 7}, 1, true, 4, 0},
    {300, {2, 2, 16}, 1, true, 3, 0},
    {300, {3, 11, 1}, 1, true, 2, 0},
    {300, {7, 7, 2}, 1, true, 4, 0},
    {300, {9, 9, 4}, 1, true, 12, 0},
    {300, {7, 7, 7}, 1, true, 13, 0},
    /* One block sorts 8192 rows, and more take passes: of 18 bits, 9, 18, 32 of masks. */
    {8192, {3, 3, 3}, 1, true, 3, 0},
    {8193, {3, 3, 3}, 1, true, 3, 2},
    {8193, {3, 3, 3}, 3, true, 0, 1},
    {10240, {3, 3, 2}, 1, true, 0, 2},
    {8193, {2, 4, 4}, 1, false, 0, 4},
    {8193, {1, 1, 1}, 1, true, 0, 1},
    /* 25 bits, 27; 49 of a group, which are two keys, of 27 and 22 bits; 114. */
    {8193, {5, 5, 5}, 1, true, 5, 3},
    {8193, {7, 7, 7}, 1, true, 13, 3},
    {8200, {7, 7, 7}, 7, true, 0, 6},
    {8200, {3, 114, 1}, 3, false, 0, 13},
    /* Lists of tiles. */
    {16383, {3, 3, 3}, 3, true, 0, 1},
    {16384, {3, 3, 3}, 3, true, 0, 1},
    {16385, {2, 2, 2}, 1, true, 0, 1},
    /* Many rows of 3^3 have 27 bits, and more of them 32. */
    {131072, {3, 3, 3}, 1, true, 3, 2},
    {131073, {3, 3, 3}, 1, true, 3, 3},
    {524289, {3, 3, 3}, 1, true, 3, 4},
};

/* How often each kernel was launched for one order. */
static void launches_check(const struct shape *shape)
{
    const i32 lists = shape->n >= 16384, small = !shape->passes;
    /* A key has up to 32 bits, four digits, or 27 where there are several. */
    const i32 keys = shape->passes > 4 ? (shape->passes + 2) / 3 : !small;
    const i32 expected[LAUNCHES] = {
        [LAUNCH_order_small] = small,   [LAUNCH_order_clear] = keys,
        [LAUNCH_order_digits] = keys,   [LAUNCH_order_sweep] = shape->passes,
        [LAUNCH_order_blocks] = !small, [LAUNCH_order_tiles] = lists};
    for (i32 i = 0; i < LAUNCHES; i++) ck_assert_int_eq(launched[i], expected[i]);
}

START_TEST(an_order_is_sorted_as_its_kernel_says)
{
    struct voxels_random random = {(u64)_i + 5};
    struct order order;
    order_make(&random, &shapes[_i], &order);
    device_rig_check(vx_gpu_order_build(&device_rig.queue, &order.want, &order.map,
                                        order.scratch, &device_rig.why));
    order_check(&order);
    launches_check(&shapes[_i]);
}
END_TEST

/* Rows that stay as they are have block masks and nothing else. */
START_TEST(rows_as_they_are_have_block_masks)
{
    struct voxels_random random = {3};
    struct order order;
    const struct shape shape = {20000, {3, 3, 3}, 1, true, 0, 0};
    order_make(&random, &shape, &order);
    order.want.sorted = false;
    const size_t words = (size_t)vx_mask_blocks(shape.n);
    ck_assert_uint_eq(vx_gpu_order_bytes(&order.want), vx_round_up(words * 4, 256));
    order.order = device_rig_guarded(words * 4);
    vx_gpu_order_place(&order.want, order.order, &order.map);
    ck_assert_ptr_null(order.map.order);
    ck_assert_ptr_null(order.map.neighbours);
    ck_assert_ptr_null(order.map.tiles[0]);
    ck_assert_ptr_null(order.map.tiles[1]);
    device_rig_check(vx_gpu_order_build(&device_rig.queue, &order.want, &order.map, NULL,
                                        &device_rig.why));
    const u32 *got = device_rig_get(order.map.block_masks, words * 4);
    for (i64 block = 0; block < (i64)words; block++) {
        u32 joined = 0;
        for (i64 i = 32 * block; i < 32 * block + 32 && i < shape.n; i++)
            joined |= order.masks[i];
        ck_assert_uint_eq(got[block], joined);
    }
    ck_assert_int_eq(launched[LAUNCH_order_blocks], 1);
    ck_assert_int_eq(launched[LAUNCH_order_small], 0);
    device_rig_guards_check(order.order, words * 4);
}
END_TEST

/* --- several orders --- */

#define JOBS_MAX 33

/* From the table above, by their places; `room` bytes are free in the upload. */
static const struct {
    i32 count, shapes[4]; /* the first ones, then the last again and again */
    size_t room;
    i32 small_many, digits_many, sweep_many, tiles, alone;
} lists[] = {
    {1, {0}, VX_GPU_UPLOAD_BYTES, 0, 0, 0, 0, 1},
    {2, {0, 7}, VX_GPU_UPLOAD_BYTES, 1, 0, 0, 0, 0},
    {4, {8, 0, 12, 23}, VX_GPU_UPLOAD_BYTES, 1, 0, 0, 0, 0},
    /* One that is not small makes passes of all; the most are 6, of two keys. */
    {2, {0, 24}, VX_GPU_UPLOAD_BYTES, 0, 1, 2, 0, 0},
    {4, {24, 31, 34, 0}, VX_GPU_UPLOAD_BYTES, 0, 2, 6, 1, 0},
    {3, {33, 35, 34}, VX_GPU_UPLOAD_BYTES, 0, 1, 1, 1, 0},
    /* So many together, and no more; nor without room in the upload. */
    {32, {0, 11, 2}, VX_GPU_UPLOAD_BYTES, 1, 0, 0, 0, 0},
    {33, {0, 11, 2}, VX_GPU_UPLOAD_BYTES, 0, 0, 0, 0, 33},
    {2, {0, 11}, 256, 0, 0, 0, 0, 2},
};

START_TEST(several_orders_share_their_launches)
{
    struct voxels_random random = {(u64)_i + 50};
    struct order orders[JOBS_MAX];
    struct vx_gpu_order_job jobs[JOBS_MAX];
    const i32 count = lists[_i].count;
    struct vx_gpu_upload upload = {.host = device_rig_take(VX_GPU_UPLOAD_BYTES),
                                   .device = device_rig_give(VX_GPU_UPLOAD_BYTES),
                                   .bytes = VX_GPU_UPLOAD_BYTES,
                                   .used = VX_GPU_UPLOAD_BYTES - lists[_i].room};
    i32 given = 0;
    while (given + 1 < (i32)VX_COUNT(lists[_i].shapes) && lists[_i].shapes[given + 1])
        given++;
    for (i32 j = 0; j < count; j++) {
        const i32 shape = lists[_i].shapes[j < given ? j : given];
        order_make(&random, &shapes[shape], &orders[j]);
        jobs[j] =
            (struct vx_gpu_order_job){orders[j].want, &orders[j].map, orders[j].scratch};
    }
    device_rig_check(
        vx_gpu_orders_build(&device_rig.queue, &upload, jobs, count, &device_rig.why));
    for (i32 j = 0; j < count; j++) order_check(&orders[j]);
    ck_assert_int_eq(launched[LAUNCH_order_small_many], lists[_i].small_many);
    ck_assert_int_eq(launched[LAUNCH_order_digits_many], lists[_i].digits_many);
    ck_assert_int_eq(launched[LAUNCH_order_sweep_many], lists[_i].sweep_many);
    ck_assert_int_eq(launched[LAUNCH_order_blocks_many], lists[_i].sweep_many > 0);
    ck_assert_int_eq(launched[LAUNCH_order_tiles], lists[_i].tiles);
    ck_assert_int_eq(launched[LAUNCH_order_small], lists[_i].alone);
    ck_assert_int_eq(launched[LAUNCH_order_sweep], 0);
}
END_TEST

/* --- pairs --- */

/* One tile of rows exactly, one more, several; offsets that a row of the map has no room for. */
START_TEST(pairs_are_listed_by_offset)
{
    static const i32 sizes[][2] = {{1, 27}, {256, 27}, {257, 27}, {700, 343}, {900, 2}};
    struct voxels_random random = {(u64)_i + 11};
    const i32 n = sizes[_i][0], v_count = sizes[_i][1], stride = vx_nbr_stride(v_count);
    const size_t map_bytes = (size_t)n * (size_t)stride * sizeof(i32);
    i32 *nbr = device_rig_take(map_bytes), there = 0;
    for (i32 e = 0; e < n * stride; e++) {
        const bool has = e % stride < v_count && !voxels_between(&random, 0, 2);
        nbr[e] = has ? voxels_between(&random, 0, n - 1) : -1;
        there += has;
    }
    const size_t scratch_bytes = vx_gpu_pairs_scratch_bytes(n, v_count);
    const size_t starts_bytes = ((size_t)v_count + 1) * sizeof(i32);
    const size_t in_bytes = (size_t)there * sizeof(i32);
    u8 *scratch = device_rig_guarded(scratch_bytes),
       *starts = device_rig_guarded(starts_bytes);
    u8 *in_rows = device_rig_guarded(in_bytes), *places = device_rig_guarded(map_bytes);
    const struct vx_gpu_pairs pairs = {.nbr = device_rig_put(nbr, map_bytes),
                                       .scratch = scratch,
                                       .starts = (void *)starts,
                                       .in_rows = (void *)in_rows,
                                       .places = (void *)places};
    const struct vx_gpu_order_want want = {.n = n, .v = v_count};
    device_rig_check(vx_gpu_pairs_build(device_rig.bench.set, device_rig.bench.stream,
                                        &want, &pairs, &device_rig.why));
    const i32 *got_starts = device_rig_get(starts, starts_bytes);
    const i32 *got_in = device_rig_get(in_rows, in_bytes);
    const i32 *got_places = device_rig_get(places, map_bytes);
    i32 pair = 0;
    for (i32 v = 0; v < v_count; v++) {
        ck_assert_int_eq(got_starts[v], pair);
        for (i32 i = 0; i < n; i++) {
            const i32 at = i * stride + v;
            ck_assert_int_eq(got_places[at], nbr[at] < 0 ? -1 : pair);
            if (nbr[at] >= 0) ck_assert_int_eq(got_in[pair++], nbr[at]);
        }
    }
    ck_assert_int_eq(got_starts[v_count], there);
    /* Counts of one tile, and totals: 343 words each, in lines. */
    ck_assert_uint_eq(vx_gpu_pairs_scratch_bytes(256, 343), 2 * 1536);
    device_rig_guards_check(scratch, scratch_bytes);
    device_rig_guards_check(starts, starts_bytes);
    device_rig_guards_check(in_rows, in_bytes);
    device_rig_guards_check(places, map_bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_order");
    TCase *tcase = tcase_create("gpu_order");
    tcase_add_checked_fixture(tcase, setup, device_rig_close);
    /* The last three have 131,072 rows and more: not under a sanitizer. */
    tcase_add_loop_test(tcase, an_order_is_sorted_as_its_kernel_says, 0,
                        (int)VX_COUNT(shapes) - VX_TRIALS(0, 3));
    tcase_add_test(tcase, rows_as_they_are_have_block_masks);
    tcase_add_loop_test(tcase, several_orders_share_their_launches, 0,
                        (int)VX_COUNT(lists));
    tcase_add_loop_test(tcase, pairs_are_listed_by_offset, 0, 5);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
