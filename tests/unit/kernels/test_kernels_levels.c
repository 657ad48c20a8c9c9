/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/22_level_map.h"
#include "tests/support/kernel_cloud.h"
#include "tests/support/level_truth.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Sets that are made from sets, and maps between them, against their definitions
 * (level_truth); and that the steps of the device's text reach all that they must. */

#define ROWS_MAX  16384
#define SLOTS     (2 * ROWS_MAX)
#define SETS      3
#define V_MAX     64
#define SEED      0x123456789abcdef1ull
#define UNBOUNDED (1 << 20)

static struct {
    struct vx_brick_slot slots[SLOTS];
    struct vx_brick_counts counts;
    i32 base[SLOTS], row_at[ROWS_MAX];
    u32 list[ROWS_MAX];
    u64 keys[ROWS_MAX], true_keys[ROWS_MAX];
} memory[SETS];
static struct level_set truths[SETS];
static i32 nbr[ROWS_MAX * V_MAX];
static u32 masks[ROWS_MAX * 2];

static struct vx_brick_set set_make(i32 which, i64 rows_max)
{
    memset(&memory[which].counts, 0x55, sizeof memory[which].counts);
    memset(memory[which].slots, 0x55, sizeof memory[which].slots);
    return (struct vx_brick_set){.rows_max = rows_max,
                                 .slots_count = SLOTS,
                                 .slots = memory[which].slots,
                                 .counts = &memory[which].counts,
                                 .base = memory[which].base,
                                 .list = memory[which].list};
}

static struct vx_brick_set source_make(const struct cloud *cloud)
{
    static u64 places[CLOUD_ROWS_MAX];
    static i32 rows[CLOUD_ROWS_MAX];
    struct vx_brick_set set = set_make(0, cloud->n);
    vx_brick_small_ref(&(struct vx_brick_index_args){.n = cloud->n,
                                                     .columns = cloud->columns,
                                                     .blocks = 1,
                                                     .slots_count = SLOTS,
                                                     .seed = SEED,
                                                     .coords = cloud->coords,
                                                     .slots = set.slots,
                                                     .counts = set.counts,
                                                     .base = set.base,
                                                     .list = set.list,
                                                     .places = places,
                                                     .rows = rows});
    truths[0].keys = memory[0].true_keys;
    level_truth_set(cloud->coords, cloud->columns, cloud->n, &truths[0]);
    return set;
}

static struct vx_set_derive_args derive_make(const struct vx_set_key *key,
                                             const struct vx_brick_set *from,
                                             const struct vx_brick_set *to)
{
    static const i32 rules[] = {[VX_SET_FLOOR] = VX_DERIVE_FLOOR,
                                [VX_SET_SPCONV] = VX_DERIVE_SPCONV,
                                [VX_SET_EXPAND] = VX_DERIVE_EXPAND,
                                [VX_SET_SAMPLES] = VX_DERIVE_SAMPLES};
    struct vx_set_derive_args args = {
        .to = *to, .from = *from, .seed = SEED, .blocks = 1};
    args.rule = rules[key->rule];
    memcpy(args.kernel, key->kernel, sizeof args.kernel);
    memcpy(args.dilation, key->dilation, sizeof args.dilation);
    memcpy(args.stride, key->stride, sizeof args.stride);
    memcpy(args.padding, key->padding, sizeof args.padding);
    memcpy(args.shape, key->shape, sizeof args.shape);
    vx_set_derive_plan(&args);
    return args;
}

/* The set has the voxels of the truth, each with a row; a row behind them is empty. */
static void check_set(i32 which, const struct vx_brick_set *set)
{
    const i64 n = truths[which].n;
    ck_assert_uint_eq(set->counts->fault[0] | set->counts->fault[1], 0);
    ck_assert_uint_eq(set->counts->rows, (u64)n);
    memset(memory[which].keys, 0x55, sizeof memory[which].keys);
    const struct vx_set_coords_args args = {n + 1, 1, *set, memory[which].keys};
    vx_set_coords_many_ref(&(struct vx_set_coords_many_args){1, &args, 1});
    ck_assert_uint_eq(memory[which].keys[n], VX_KEY_EMPTY);
    ck_assert_uint_eq(memory[which].keys[n + 1], 0x5555555555555555ull);
    const char *wrong =
        level_truth_rows(&truths[which], memory[which].keys, memory[which].row_at);
    if (wrong) ck_abort_msg("%s", wrong);
}

static void check_map(const struct vx_map_key *key, const struct vx_brick_set sets[SETS])
{
    static const i32 kinds[] = {
        [VX_MAP_DOWN] = VX_LEVEL_DOWN,     [VX_MAP_UP] = VX_LEVEL_UP,
        [VX_MAP_PARENT] = VX_LEVEL_PARENT, [VX_MAP_CHILD] = VX_LEVEL_CHILD,
        [VX_MAP_SAMPLE] = VX_LEVEL_SAMPLE, [VX_MAP_CORNER] = VX_LEVEL_CORNER};
    const bool one = vx_map_is_one(key);
    const i64 n = truths[key->to].n;
    const i32 v = vx_map_offsets(key);
    u64 pairs = 1;
    char text[LEVEL_TRUTH_TEXT];
    struct vx_level_map_args args = {.n = n,
                                     .from_n = truths[key->from].n,
                                     .seed = SEED,
                                     .from = sets[key->from],
                                     .to = sets[key->to],
                                     .kind = kinds[key->kind],
                                     .v = v,
                                     .words = (v + 31) / 32,
                                     .nbr_stride = one ? 1 : (v + 3) / 4 * 4,
                                     .blocks = 1,
                                     .nbr = nbr,
                                     .masks = one ? NULL : masks,
                                     .pairs = one ? NULL : &pairs};
    memcpy(args.kernel, key->kernel, sizeof args.kernel);
    memcpy(args.dilation, key->dilation, sizeof args.dilation);
    memcpy(args.stride, key->stride, sizeof args.stride);
    memcpy(args.padding, key->padding, sizeof args.padding);
    memset(nbr, 0x55, sizeof nbr);
    memset(masks, 0x55, sizeof masks);
    vx_level_map_many_ref(&(struct vx_level_map_many_args){1, &args, 1});
    ck_assert_int_eq(nbr[n * args.nbr_stride], 0x55555555);
    ck_assert_uint_eq(masks[one ? 0 : n * args.words], 0x55555555);
    const struct level_truth_map map = {.key = key,
                                        .from = &truths[key->from],
                                        .from_row_at = memory[key->from].row_at,
                                        .rows = n,
                                        .keys = memory[key->to].keys,
                                        .nbr_stride = args.nbr_stride,
                                        .words = one ? 0 : args.words,
                                        .nbr = nbr,
                                        .masks = args.masks,
                                        .pairs = args.pairs};
    const char *wrong = level_truth_map(&map, text);
    if (wrong) ck_abort_msg("kind %d: %s", (int)key->kind, wrong);
}

/* Maps of a rule's own numbers, both ways between a set and the one that it is made from. */
static void check_maps(const struct vx_set_key *rule, i32 made,
                       const struct vx_brick_set sets[SETS])
{
    const bool expands = rule->rule == VX_SET_EXPAND;
    struct vx_map_key key;
    for (i32 kind = VX_MAP_DOWN; kind <= VX_MAP_CORNER; kind++) {
        bool one = kind >= VX_MAP_PARENT, down = kind == VX_MAP_DOWN;
        i32 coarse = expands ? rule->from : made, fine = expands ? made : rule->from;
        key = (struct vx_map_key){.kernel = {1, 1, 1},
                                  .dilation = {1, 1, 1},
                                  .kind = (enum vx_map_kind)kind,
                                  .from = down ? fine : coarse,
                                  .to = down ? coarse : fine};
        memcpy(key.stride, rule->stride, sizeof key.stride);
        for (int axis = 0; axis < 3 && kind == VX_MAP_SAMPLE; axis++)
            key.stride[axis] = 1;
        if (!one && rule->rule != VX_SET_FLOOR) {
            memcpy(key.kernel, rule->kernel, sizeof key.kernel);
            memcpy(key.dilation, rule->dilation, sizeof key.dilation);
            memcpy(key.padding, rule->padding, sizeof key.padding);
        }
        if (!one && rule->rule == VX_SET_FLOOR)
            memcpy(key.kernel, (i32[]){3, 2, 3}, sizeof key.kernel);
        if (kind == VX_MAP_CORNER)
            memcpy(key.kernel, (i32[]){2, 2, 2}, sizeof key.kernel);
        check_map(&key, sets);
    }
}

#define FLOOR_RULE(x_, y_, z_)                                                           \
    {                                                                                    \
        {1, 1, 1}, {1, 1, 1}, {x_, y_, z_}, {0, 0, 0}, {0, 0, 0}, VX_SET_FLOOR, 0, 0, 0  \
    }
static const struct vx_set_key rules[] = {
    FLOOR_RULE(2, 2, 2),
    FLOOR_RULE(4, 1, 2),
    FLOOR_RULE(3, 5, 64),
    FLOOR_RULE(8, 16, 32),
    {{3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {9, 4, 7}, VX_SET_SPCONV, 0, 0, 0},
    {{3, 3, 3},
     {1, 1, 1},
     {2, 2, 2},
     {1, 1, 1},
     {1 << 20, 1 << 20, 1 << 20},
     VX_SET_SPCONV,
     0,
     0,
     0},
    {{3, 1, 1},
     {1, 1, 1},
     {2, 1, 1},
     {0, 0, 0},
     {1 << 17, 1 << 17, 3},
     VX_SET_SPCONV,
     0,
     0,
     0},
    {{2, 3, 2}, {2, 1, 3}, {1, 3, 2}, {1, 0, 3}, {50, 50, 50}, VX_SET_SPCONV, 0, 0, 0},
    {{2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, VX_SET_EXPAND, 0, 0, 0},
    {{3, 1, 2}, {1, 1, 9}, {2, 3, 1}, {1, 0, 4}, {0, 0, 0}, VX_SET_EXPAND, 0, 0, 0},
    {{1, 2, 1},
     {1, 1024, 1},
     {64, 1, 5},
     {0, 351232, 2},
     {0, 0, 0},
     VX_SET_EXPAND,
     0,
     0,
     0},
    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, VX_SET_SAMPLES, 0, 0, 0},
};

/* A set of every rule, and one more from that. */
START_TEST(test_sets)
{
    const struct cloud cloud = cloud_make(_i);
    const struct vx_set_key again = {
        {1, 1, 1}, {1, 1, 1}, {2, 3, 2}, {0, 0, 0}, {0, 0, 0}, VX_SET_FLOOR, 1, 0, 0};
    struct vx_brick_set sets[SETS] = {source_make(&cloud)};
    check_set(0, &sets[0]);
    for (size_t k = 0; k < VX_COUNT(rules); k++) {
        for (i32 s = 1; s < SETS; s++) {
            const struct vx_set_key *key = s == 1 ? &rules[k] : &again;
            sets[s] = set_make(s, ROWS_MAX);
            truths[s].keys = memory[s].true_keys;
            level_truth_derive(&truths[key->from], key, &truths[s]);
        }
        const struct vx_set_derive_args chain[] = {
            derive_make(&rules[k], &sets[0], &sets[1]),
            derive_make(&again, &sets[1], &sets[2])};
        vx_set_derive_many_ref(&(struct vx_set_derive_many_args){1, 2, chain});
        for (i32 s = 1; s < SETS; s++) check_set(s, &sets[s]);
        check_maps(&rules[k], 1, sets);
        check_maps(&again, 2, sets);
    }
}
END_TEST

/* The set has as much room as it needs, or one row less, or room for one row. */
START_TEST(test_bound)
{
    const struct cloud cloud = cloud_make(_i);
    struct vx_brick_set from = source_make(&cloud);
    for (size_t k = 0; k < VX_COUNT(rules); k++) {
        struct level_set *truth = &truths[1];
        truth->keys = memory[1].true_keys;
        level_truth_derive(&truths[0], &rules[k], truth);
        for (i64 less = 0; less < 3 && truth->n > less; less++) {
            struct vx_brick_set to = set_make(1, less < 2 ? truth->n - less : 1);
            struct vx_set_derive_args args = derive_make(&rules[k], &from, &to);
            const u32 kept = to.list[to.rows_max];
            vx_set_derive_many_ref(&(struct vx_set_derive_many_args){1, 1, &args});
            ck_assert_uint_eq(to.counts->fault[0], to.rows_max < truth->n);
            ck_assert_uint_le(to.counts->bricks, (u64)to.rows_max);
            ck_assert_uint_eq(to.list[to.rows_max], kept);
        }
    }
}
END_TEST

/* Rows from from_n on are never named, and none at all after a fault. */
START_TEST(test_guards)
{
    const struct cloud cloud = cloud_make(CLOUD_BLOCK);
    struct vx_brick_set from = source_make(&cloud), to = set_make(1, ROWS_MAX);
    struct vx_set_derive_args derive = derive_make(&rules[0], &from, &to);
    u64 pairs;
    vx_set_derive_many_ref(&(struct vx_set_derive_many_args){1, 1, &derive});
    struct vx_level_map_args args = {.n = to.counts->rows,
                                     .from_n = cloud.n / 2,
                                     .seed = SEED,
                                     .from = from,
                                     .to = to,
                                     .kernel = {2, 2, 2},
                                     .dilation = {1, 1, 1},
                                     .stride = {2, 2, 2},
                                     .kind = VX_LEVEL_DOWN,
                                     .v = 8,
                                     .words = 1,
                                     .nbr_stride = 8,
                                     .blocks = 1,
                                     .nbr = nbr,
                                     .masks = masks,
                                     .pairs = &pairs};
    vx_level_map_ref(&args);
    ck_assert_uint_gt(pairs, 0);
    ck_assert_uint_le(pairs, (u64)args.from_n);
    for (i64 e = 0; e < args.n * 8; e++) ck_assert_int_lt(nbr[e], (i32)args.from_n);
    from.counts->fault[0] = 1;
    vx_level_map_ref(&args);
    ck_assert_uint_eq(pairs, 0);
    for (i64 e = 0; e < args.n * 8; e++) ck_assert_int_eq(nbr[e], -1);
}
END_TEST

/* --- the steps of the device's text --- */

static void axis_random(struct voxels_random *random, bool wild, i32 numbers[4])
{
    static const i32 most[4] = {4, 3, 4, 5}, wild_most[4] = {300, 1024, 64, 400000};
    for (int i = 0; i < 4; i++)
        numbers[i] = voxels_between(random, i < 3, wild ? wild_most[i] : most[i]);
    if (numbers[3] > 343 * 1024) numbers[3] = 343 * 1024;
}

/* True if one of an axis's steps is the target brick of q, for the voxel p at offset k. */
static bool step_reaches(const struct vx_set_derive_args *args, i32 p, i32 k, i32 q)
{
    const struct vx_set_window window = vx_set_window(args, 0);
    const i32 apart = args->apart[0];
    i32 first = vx_floor_div(p, 4) * 4, padding = window.padding;
    i32 reach = (window.offsets - 1) * window.far;
    if (apart & VX_APART_OFFSETS) {
        padding -= k * window.far;
        reach = 0;
    }
    if (apart & VX_APART_VOXELS) first = p;
    i32 brick = vx_floor_div(q, 4) -
                vx_floor_div(vx_set_lowest(args, 0, first, padding, reach), 4);
    return brick >= 0 && brick < args->spans[0];
}

/* Every voxel that follows lies in the target brick of a step, and there are not more
 * steps than voxels and offsets of a brick. */
START_TEST(test_steps)
{
    struct voxels_random random = {(u64)_i + 1};
    for (i32 turn = 0; turn < 60; turn++) {
        struct vx_set_derive_args args = {.rule = turn % 3};
        i32 numbers[4];
        axis_random(&random, turn % 4 == 3, numbers);
        for (int axis = 0; axis < 3; axis++) {
            args.kernel[axis] = numbers[0];
            args.dilation[axis] = numbers[1];
            args.stride[axis] = numbers[2];
            args.padding[axis] = numbers[3];
            args.shape[axis] = UNBOUNDED;
        }
        vx_set_derive_plan(&args);
        const struct vx_set_window window = vx_set_window(&args, 0);
        ck_assert_int_le(args.steps[0], 4 * window.offsets);
        for (i32 p = -270; p < 270; p++)
            for (i32 k = 0; k < window.offsets; k++) {
                i32 sum = p + window.padding - k * window.far, q = sum / args.stride[0];
                if (args.rule == VX_DERIVE_EXPAND)
                    q = p * args.stride[0] - window.padding + k * window.far;
                else if (sum % args.stride[0])
                    continue;
                if (!step_reaches(&args, p, k, q))
                    ck_abort_msg("rule %d of %d %d %d %d: from %d to %d", args.rule,
                                 numbers[0], numbers[1], numbers[2], numbers[3], p, q);
            }
    }
}
END_TEST

/* The bricks that level_map looks up hold every voxel that a brick may read. */
START_TEST(test_near)
{
    struct voxels_random random = {(u64)_i + 77};
    for (i32 turn = 0; turn < 60; turn++) {
        struct vx_level_map_args args = {.kind = turn % 4};
        i32 numbers[4];
        axis_random(&random, turn % 5 == 4, numbers);
        for (int axis = 0; axis < 3; axis++) {
            args.kernel[axis] = args.kind < VX_LEVEL_PARENT && !axis ? numbers[0] : 1;
            args.dilation[axis] = numbers[1];
            args.stride[axis] = numbers[2];
            args.padding[axis] = args.kind < VX_LEVEL_PARENT ? numbers[3] : 0;
        }
        if (!vx_level_map_plan(&args)) continue;
        i32 entries = 0;
        for (i32 axis = 0; axis < 3; axis++)
            entries += vx_level_places(&args, axis) * args.kernel[axis];
        ck_assert_int_le(entries, VX_LEVEL_TABLE_MAX);
        ck_assert_int_le(args.near[0] * args.near[1] * args.near[2], VX_LEVEL_NEAR_MAX);
        for (i32 out = -270; out < 270; out++)
            for (i32 k = 0; k < args.kernel[0]; k++) {
                i32 to = vx_floor_div(out, 4), stride = args.stride[0], at;
                if (!vx_level_at(&args, 0, out, k, &at)) continue;
                i32 middle =
                    args.kind == VX_LEVEL_DOWN ? to * stride : vx_floor_div(to, stride);
                i32 brick = vx_floor_div(at, 4) - middle - args.low[0];
                ck_assert_int_ge(brick, 0);
                ck_assert_int_lt(brick, args.near[0]);
            }
    }
}
END_TEST

/* What people use needs one step, or a few look-ups. */
START_TEST(test_common)
{
    struct vx_set_derive_args set = {.rule = VX_DERIVE_FLOOR,
                                     .kernel = {1, 1, 1},
                                     .dilation = {1, 1, 1},
                                     .stride = {2, 2, 2}};
    vx_set_derive_plan(&set);
    ck_assert_int_eq(set.folds, 1);
    ck_assert_int_eq(set.steps[0] * set.steps[1] * set.steps[2], 1);
    set.stride[1] = 3; /* a brick of `to` holds three of `from` */
    vx_set_derive_plan(&set);
    ck_assert_int_eq(set.folds, 0);
    ck_assert_int_eq(set.steps[1], 1);
    set.stride[1] = 2;
    struct vx_level_map_args map = {.kind = VX_LEVEL_DOWN,
                                    .kernel = {2, 2, 2},
                                    .dilation = {1, 1, 1},
                                    .stride = {2, 2, 2}};
    ck_assert_int_eq(vx_level_map_plan(&map), 1);
    ck_assert_int_eq(map.near[0] * map.near[1] * map.near[2], 8);
    map.kind = VX_LEVEL_UP;
    ck_assert_int_eq(vx_level_map_plan(&map), 1);
    ck_assert_int_eq(map.near[0] * map.near[1] * map.near[2], 1);
    for (int axis = 0; axis < 3; axis++) {
        set.kernel[axis] = map.kernel[axis] = 3;
        set.padding[axis] = map.padding[axis] = 1;
    }
    set.rule = VX_DERIVE_SPCONV;
    vx_set_derive_plan(&set);
    ck_assert_int_eq(set.steps[0] * set.steps[1] * set.steps[2], 8);
    ck_assert_int_eq(vx_level_map_plan(&map), 1);
    ck_assert_int_eq(map.near[0] * map.near[1] * map.near[2], 8);
    map.kind = VX_LEVEL_DOWN;
    ck_assert_int_eq(vx_level_map_plan(&map), 1);
    ck_assert_int_eq(map.near[0] * map.near[1] * map.near[2], 27);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_levels");
    TCase *cases = tcase_create("kernels_levels");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_sets, 0, CLOUDS);
    tcase_add_loop_test(cases, test_bound, 0, CLOUDS);
    tcase_add_test(cases, test_guards);
    tcase_add_loop_test(cases, test_steps, 0, 8);
    tcase_add_loop_test(cases, test_near, 0, 8);
    tcase_add_test(cases, test_common);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
