/* Sets by logits: live children, kept voxels and the largest of each sample, by hand and
 * against a second way to compute them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/types.h"
#include "kernels/26_set_occupancy.h"
#include "kernels/27_top_rows.h"
#include "kernels/kernel.h"

#include <check.h>
#include <math.h>
#include <string.h>

void vx_set_occupancy_ref(const void *args, enum vx_number type);
void vx_occupancy_fault_ref(const void *args, enum vx_number type);
void vx_top_keys_ref(const void *args, enum vx_number type);
void vx_top_mark_ref(const void *args, enum vx_number type);

#define SEED  0x123456789abcdefull
#define ROWS  64
#define SLOTS 256
#define CP    16

struct memory {
    struct vx_brick_counts counts;
    struct vx_brick_slot slots[SLOTS];
    i32 base[SLOTS];
    u32 list[ROWS];
};
static struct memory memory[2];
static f32 logits[ROWS * CP];
static i32 row_of[ROWS]; /* the row of each voxel of the source */

static struct vx_brick_set set_make(i32 which, i64 rows_max)
{
    struct memory *it = &memory[which];
    memset(it, 0, sizeof *it);
    return (struct vx_brick_set){.rows_max = rows_max,
                                 .slots_count = SLOTS,
                                 .slots = it->slots,
                                 .counts = &it->counts,
                                 .base = it->base,
                                 .list = it->list};
}

/* A set of these voxels: sample, x, y, z. */
static struct vx_brick_set source_make(const i32 (*coords)[4], i64 n)
{
    static u64 places[ROWS];
    static i32 rows[ROWS];
    struct vx_brick_set set = set_make(0, ROWS);
    vx_brick_small_ref(&(struct vx_brick_index_args){.n = n,
                                                     .columns = 4,
                                                     .blocks = 1,
                                                     .slots_count = SLOTS,
                                                     .seed = SEED,
                                                     .coords = coords[0],
                                                     .slots = set.slots,
                                                     .counts = set.counts,
                                                     .base = set.base,
                                                     .list = set.list,
                                                     .places = places,
                                                     .rows = rows});
    for (i64 row = 0; row < n; row++) row_of[rows[row]] = (i32)row;
    return set;
}

static bool has(const struct vx_brick_set *set, i32 sample, i32 x, i32 y, i32 z)
{
    u64 mask;
    vx_brick_find(set->slots, set->slots_count, SEED, vx_brick_key(sample, x, y, z),
                  &mask);
    return mask >> vx_brick_bit(x, y, z) & 1;
}

/* All four kernels take their arguments through the registry's structs; here directly. */
static void occupy(struct vx_occupancy_set *set)
{
    const struct vx_set_occupancy_args args = {
        .count = 1, .sets = set, .seed = SEED, .blocks = 1};
    vx_set_occupancy_ref(&args, VX_NUMBER_F32);
    vx_occupancy_fault_ref(&args, VX_NUMBER_F32);
    vx_set_number_ref(
        &(struct vx_set_number_args){.count = 1, .blocks = 1, .sets = {set->to}});
}

static struct vx_occupancy_set describe(const struct vx_brick_set *from, i64 n,
                                        i64 rows_max)
{
    return (struct vx_occupancy_set){.n = n,
                                     .to = set_make(1, rows_max),
                                     .from = *from,
                                     .logits = logits,
                                     .cp = CP,
                                     .stride = {2, 2, 2},
                                     .blocks = 1};
}

static void logit(i32 voxel, i32 child, f32 value)
{
    logits[row_of[voxel] * CP + child] = value;
}

/* Child c of (x, y, z) is (2x + c%2, 2y + c/2%2, 2z + c/4); 0 and -0 are not live. */
START_TEST(children)
{
    static const i32 coords[][4] = {{0, 1, 2, 3}, {5, -1, -1, -1}, {0, 100, 0, 0}};
    const struct vx_brick_set from = source_make(coords, 3);
    struct vx_occupancy_set set = describe(&from, 3, ROWS);
    memset(logits, 0, sizeof logits);
    logit(0, 0, 0x1p-149f);
    logit(0, 6, 2);
    logit(0, 8, 9); /* not one of the eight */
    logit(1, 7, INFINITY);
    logit(1, 0, -INFINITY);
    logit(1, 1, -0.0f);
    occupy(&set);
    ck_assert_uint_eq(set.to.counts->rows, 3);
    ck_assert_uint_eq(set.to.counts->live, 3);
    ck_assert_uint_eq(set.to.counts->bad, 0);
    ck_assert(has(&set.to, 0, 2, 4, 6));
    ck_assert(has(&set.to, 0, 2, 5, 7));
    ck_assert(has(&set.to, 5, -1, -1, -1));
}
END_TEST

/* A block of 3 x 1 x 2: child x + 3 (y + z). */
START_TEST(other_strides)
{
    static const i32 coords[][4] = {{0, -2, 5, 7}};
    const struct vx_brick_set from = source_make(coords, 1);
    for (i32 c = 0; c < 6; c++) {
        struct vx_occupancy_set set = describe(&from, 1, ROWS);
        memcpy(set.stride, (const i32[]){3, 1, 2}, sizeof set.stride);
        memset(logits, 0, sizeof logits);
        logit(0, c, 1);
        occupy(&set);
        ck_assert_uint_eq(set.to.counts->rows, 1);
        ck_assert(has(&set.to, 0, -6 + c % 3, 5, 14 + c / 3));
    }
}
END_TEST

/* Of several that are no numbers the first voxel by sample, x, y, z, and its first child;
 * not those of rows that are not there. */
START_TEST(no_numbers)
{
    static const i32 coords[][4] = {
        {1, -9, 0, 0}, {0, 3, 4, 6}, {0, 3, 4, 5}, {0, 3, 5, 0}, {0, -1, 0, 0}};
    const struct vx_brick_set from = source_make(coords, 5);
    memset(logits, 0, sizeof logits);
    for (i32 i = 0; i < 4; i++) logit(i, 7 - i, NAN);
    logit(2, 2, -NAN);
    logit(4, 8, NAN); /* padding */
    struct vx_occupancy_set set = describe(&from, 5, ROWS);
    occupy(&set);
    ck_assert_uint_eq(~set.to.counts->bad, vx_key_pack(0, 3, 4, 5));
    ck_assert_uint_eq(set.to.counts->bad_child, 2);
    ck_assert_uint_eq(set.to.counts->rows, 0);
    set = describe(&from, 0, ROWS);
    occupy(&set);
    ck_assert_uint_eq(set.to.counts->bad, 0);
}
END_TEST

/* A set with too little room: the fault, and how many there would be.  A child beyond the
 * range of coordinates does not exist. */
START_TEST(bounds)
{
    static const i32 coords[][4] = {{0, 0, 0, 0}, {0, 9, 9, 9}, {0, 100000, 0, 0}};
    const struct vx_brick_set from = source_make(coords, 3);
    for (i32 i = 0; i < ROWS * CP; i++) logits[i] = 1;
    for (i64 room = 1; room <= 16; room++) {
        struct vx_occupancy_set set = describe(&from, 3, room);
        occupy(&set);
        ck_assert_uint_eq(set.to.counts->live, 16);
        ck_assert_uint_eq(set.to.counts->fault[0], room < 16);
        ck_assert_uint_le(set.to.counts->bricks, (u64)room);
    }
}
END_TEST

/* Voxels that a list keeps, whatever their logits, which must be numbers all the same. */
START_TEST(kept)
{
    static const i32 coords[][4] = {{0, 0, 0, 0}, {0, 9, 9, 9}, {3, 0, 0, 0}};
    const struct vx_brick_set from = source_make(coords, 3);
    u32 list[3] = {0};
    struct vx_occupancy_set set = describe(&from, 3, ROWS);
    for (i32 axis = 0; axis < 3; axis++) set.stride[axis] = 1;
    for (i32 i = 0; i < ROWS * CP; i++) logits[i] = -1;
    list[row_of[1]] = list[row_of[2]] = 1;
    set.kept = list;
    logit(0, 0, NAN);
    occupy(&set);
    ck_assert_uint_eq(set.to.counts->rows, 2);
    ck_assert(has(&set.to, 0, 9, 9, 9));
    ck_assert(has(&set.to, 3, 0, 0, 0));
    ck_assert_uint_eq(~set.to.counts->bad, vx_key_pack(0, 0, 0, 0));
    ck_assert_uint_eq(set.to.counts->bad_child, 0);
}
END_TEST

/* Words rise as logits fall; both zeros are one. */
START_TEST(falling)
{
    static const f32 values[] = {INFINITY,   3e38f, 7,     1.5f, 1,      0x1p-149f, 0,
                                 -0x1p-149f, -1,    -1.5f, -7,   -3e38f, -INFINITY};
    u64 keys[VX_COUNT(values)], words[VX_COUNT(values)];
    const struct vx_top_args args = {
        .n = VX_COUNT(values), .cp = CP, .logits = logits, .keys = keys, .words = words};
    for (size_t i = 0; i < VX_COUNT(values); i++) {
        keys[i] = vx_key_pack(500, (i32)i, -4, 7);
        logits[i * CP] = values[i];
    }
    vx_top_keys_ref(&args, VX_NUMBER_F32);
    for (size_t i = 0; i < VX_COUNT(values); i++) {
        ck_assert_uint_eq(words[i] >> 32, 500);
        ck_assert_uint_eq(words[i] >> VX_TOP_BITS, 0);
        if (i) ck_assert_uint_lt(words[i - 1], words[i]);
    }
    logits[6 * CP] = -0.0f;
    const u64 zero = words[6];
    vx_top_keys_ref(&args, VX_NUMBER_F32);
    ck_assert_uint_eq(words[6], zero);
}
END_TEST

/* The first two places of each sample: of three rows, of one, of two. */
START_TEST(marks)
{
    static const i32 rows[] = {5, 0, 3, 1, 4, 2}, starts[] = {0, 3, 4, 6}, count = 3;
    static const u32 expected[] = {1, 1, 1, 0, 1, 1};
    u32 made[6];
    const struct vx_top_args args = {
        .n = 6, .top = 2, .rows = rows, .starts = starts, .count = &count, .kept = made};
    memset(made, 0x55, sizeof made);
    vx_top_mark_ref(&args, 0);
    ck_assert(!memcmp(made, expected, sizeof made));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_occupancy");
    TCase *tcase = tcase_create("occupancy");
    tcase_add_test(tcase, children);
    tcase_add_test(tcase, other_strides);
    tcase_add_test(tcase, no_numbers);
    tcase_add_test(tcase, bounds);
    tcase_add_test(tcase, kept);
    tcase_add_test(tcase, falling);
    tcase_add_test(tcase, marks);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
