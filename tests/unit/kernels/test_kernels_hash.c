/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/01_coord_hash.h"
#include "kernels/01_coord_hash_device.h"
#include "kernels/02_neighbor_map.h"
#include "kernels/02_neighbor_map_device.h"
#include "kernels/03_brick_index.h"
#include "tests/support/kernel_cloud.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Keys and hashes, of the host and of a device, and the maps that are built from them, against
 * their definition (kernel_cloud). */

#define SLOTS 1024

static struct vx_coord_hash_args hash_of(const struct cloud *cloud, u64 slots)
{
    static u64 keys[CLOUD_ROWS_MAX], slots_key[SLOTS];
    static i32 slots_row[SLOTS];
    struct vx_coord_hash_args args = {.n = cloud->n,
                                      .columns = cloud->columns,
                                      .coords = cloud->coords,
                                      .slots_count = slots,
                                      .keys = keys,
                                      .slots_key = slots_key,
                                      .slots_row = slots_row};
    memset(slots_key, 0x55, sizeof slots_key);
    vx_coord_hash_ref(&args);
    return args;
}

START_TEST(test_keys_find_their_rows)
{
    const struct cloud cloud = cloud_make(_i);
    u64 slots = 1;
    while (slots <= (u64)cloud.n) slots *= 2; /* full: searches wrap around */
    const struct vx_coord_hash_args hash = hash_of(&cloud, slots);
    ck_assert_int_eq(hash.bad_row, -1);
    ck_assert_int_eq(hash.bad_column, -1);
    ck_assert_int_eq(hash.first, -1);
    ck_assert_int_eq(hash.second, -1);
    for (i64 i = 0; i < cloud.n; i++) {
        u64 key = (u64)cloud_at(&cloud, i, 0);
        for (i32 axis = 1; axis < 4; axis++)
            key = key * 262144 + (u64)(cloud_at(&cloud, i, axis) + 131072);
        ck_assert_uint_eq(hash.keys[i], key);
        ck_assert_int_eq(vx_coord_hash_find(hash.slots_key, hash.slots_row, slots, key),
                         i);
        /* No key has bit 63: this search must end at a free slot. */
        ck_assert_int_eq(vx_coord_hash_find(hash.slots_key, hash.slots_row, slots,
                                            key | UINT64_C(1) << 63),
                         -1);
    }
}
END_TEST

/* One step beyond each end of each column, and the ends themselves. */
START_TEST(test_ranges)
{
    const i32 columns = _i < 8 ? 4 : 3, column = _i < 8 ? _i / 2 : (_i - 8) / 2;
    const bool sample = columns == 4 && column == 0;
    const i32 end = _i % 2 ? (sample ? CLOUD_SAMPLE_MAX : CLOUD_AXIS_MAX)
                           : (sample ? 0 : CLOUD_AXIS_MIN);
    struct cloud cloud = {.columns = columns};
    for (i32 i = 0; i < 9; i++) cloud_add(&cloud, 3, i, 2 * i, -i);
    i32 *at = cloud.coords + 5 * columns + column;
    *at = end;
    ck_assert_int_eq(hash_of(&cloud, 16).bad_row, -1);
    *at = end + (_i % 2 ? 1 : -1);
    cloud.coords[7 * columns + columns - 1] =
        CLOUD_AXIS_MAX + 1; /* later, and so not named */
    const struct vx_coord_hash_args hash = hash_of(&cloud, 16);
    ck_assert_int_eq(hash.bad_row, 5);
    ck_assert_int_eq(hash.bad_column, column);
    ck_assert_int_eq(hash.second, -1);
}
END_TEST

/* Of several pairs the one whose second row is the smallest; of three equal rows the first two. */
START_TEST(test_first_pair)
{
    struct cloud cloud = {.columns = 4};
    static const i32 x[] = {1, 2, 3, 3, 2, 1, 3, 3};
    for (size_t i = 0; i < VX_COUNT(x); i++) cloud_add(&cloud, 0, x[i], 0, 0);
    struct vx_coord_hash_args hash = hash_of(&cloud, 16);
    ck_assert_int_eq(hash.first, 2);
    ck_assert_int_eq(hash.second, 3);
    cloud.coords[3 * 4 + 1] = 9;
    hash = hash_of(&cloud, 16);
    ck_assert_int_eq(hash.first, 1);
    ck_assert_int_eq(hash.second, 4);
}
END_TEST

START_TEST(test_map)
{
    const struct cloud cloud = cloud_make(_i);
    const struct vx_coord_hash_args hash = hash_of(&cloud, SLOTS);
    for (size_t k = 0; k < CLOUD_OFFSETS; k++) {
        const i32 v_count = cloud_offsets_count(&cloud_offsets[k]);
        const size_t bytes = (size_t)(cloud.n * v_count) * 4;
        if (!cloud_worth(_i, (i32)k)) continue;
        i32 *truth = cloud_truth(&cloud, &cloud_offsets[k]);
        struct vx_neighbor_map_args args = {.keys = hash.keys,
                                            .slots_key = hash.slots_key,
                                            .slots_row = hash.slots_row,
                                            .slots_count = SLOTS,
                                            .n = cloud.n,
                                            .nbr = vx_alloc(bytes + 4)};
        memcpy(args.kernel, cloud_offsets[k].kernel, sizeof args.kernel);
        memcpy(args.dilation, cloud_offsets[k].dilation, sizeof args.dilation);
        memset(args.nbr, 0x55, bytes);
        vx_neighbor_map_ref(&args);
        ck_assert(!memcmp(args.nbr, truth, bytes));
        vx_free(args.nbr);
        vx_free(truth);
    }
}
END_TEST

/* --- the device's hash --- */

static u64 slots_64[SLOTS];
static u32 slots_32[SLOTS];
static i32 slots_row[SLOTS];

static struct vx_hash_insert_args insert(const struct cloud *cloud, i32 bits,
                                         u32 fault[2])
{
    struct vx_hash_insert_args args = {.n = cloud->n,
                                       .columns = cloud->columns,
                                       .coords = cloud->coords,
                                       .fault = fault};
    args.table.key_bits = bits;
    args.table.slots_count = SLOTS;
    args.table.slots_key = bits == 64 ? (void *)slots_64 : (void *)slots_32;
    args.table.slots_row = slots_row;
    for (i32 field = 0; field < 4; field++) {
        i64 least = INT32_MAX, most = INT32_MIN;
        for (i64 i = 0; i < cloud->n; i++) {
            i64 at = cloud_at(cloud, i, field);
            least = at < least ? at : least;
            most = at > most ? at : most;
        }
        args.table.least[field] = (i32)least;
        args.table.size[field] = (i32)(most - least + 1);
    }
    memset(slots_64, 0xff, sizeof slots_64);
    memset(slots_32, 0xff, sizeof slots_32);
    fault[0] = fault[1] = 0;
    vx_hash_insert_ref(&args);
    return args;
}

static void check_hash_map(const struct cloud *cloud, const struct vx_hash_table *table,
                           const struct cloud_offsets *of)
{
    cloud_map_begin(of);
    struct vx_hash_map_args args = {.n = cloud->n,
                                    .columns = cloud->columns,
                                    .coords = cloud->coords,
                                    .table = *table,
                                    .v = cloud_map.v,
                                    .words = cloud_map.words,
                                    .nbr_stride = cloud_map.stride,
                                    .nbr = cloud_map.nbr,
                                    .masks = cloud_map.masks,
                                    .pairs = &cloud_map.pairs};
    memcpy(args.kernel, of->kernel, sizeof args.kernel);
    memcpy(args.dilation, of->dilation, sizeof args.dilation);
    memset(cloud_map.nbr, 0xff, (size_t)(cloud->n * cloud_map.stride) * 4);
    memset(cloud_map.masks, 0, (size_t)(cloud->n * cloud_map.words) * 4);
    cloud_map.pairs = 0;
    vx_hash_map_ref(&args);
    cloud_map_check(cloud, of, NULL);
}

START_TEST(test_device_hash)
{
    const struct cloud cloud = cloud_make(_i);
    for (i32 bits = 32; bits <= 64; bits += 32) {
        u32 fault[2];
        if (bits == 32 && (_i == CLOUD_CORNERS || !cloud.n))
            continue; /* no box that small */
        const struct vx_hash_insert_args args = insert(&cloud, bits, fault);
        ck_assert_uint_eq(fault[0] | fault[1], 0);
        for (size_t k = 0; k < CLOUD_OFFSETS; k++)
            if (cloud_worth(_i, (i32)k))
                check_hash_map(&cloud, &args.table, &cloud_offsets[k]);
    }
}
END_TEST

START_TEST(test_device_faults)
{
    struct cloud cloud = {.columns = 4};
    u32 fault[2];
    for (i32 i = 0; i < 6; i++) cloud_add(&cloud, 0, 5 * i, 0, 0);
    if (_i & 1) cloud.coords[1 * 4 + 3] = CLOUD_AXIS_MIN - 1;
    if (_i & 2) memcpy(cloud.coords + 4 * 4, cloud.coords + 2 * 4, 16);
    (void)insert(&cloud, 64, fault);
    ck_assert_uint_eq(fault[0], (u32)_i & 1);
    ck_assert_uint_eq(fault[1], (u32)_i >> 1);
}
END_TEST

/* A voxel beyond any end of any column has no brick and no key; a voxel at the end has both. */
START_TEST(test_ranges_of_the_device)
{
    static const i64 ends[4][2] = {{0, CLOUD_SAMPLE_MAX},
                                   {CLOUD_AXIS_MIN, CLOUD_AXIS_MAX},
                                   {CLOUD_AXIS_MIN, CLOUD_AXIS_MAX},
                                   {CLOUD_AXIS_MIN, CLOUD_AXIS_MAX}};
    const struct vx_hash_table table = {.key_bits = 64};
    i32 at[4] = {1, 2, 3, 4};
    for (i32 far = 0; far < 2; far++) {
        at[_i / 2] = (i32)ends[_i / 2][_i % 2] + (_i % 2 ? far : -far);
        u64 key = vx_hash_key(&table, at);
        ck_assert_int_eq(key == VX_KEY_EMPTY, far);
        ck_assert_int_eq(vx_brick_key(at[0], at[1], at[2], at[3]) == 0, far);
        /* Of 32 bits: a box that ends where this one does. */
        struct vx_hash_table box = {.key_bits = 32, .size = {2, 3, 4, 5}};
        for (i32 field = 0; field < 4; field++)
            box.least[field] =
                at[field] - (field == _i / 2 && _i % 2 ? box.size[field] - 1 : 0);
        if (far) box.least[_i / 2] += _i % 2 ? -1 : 1;
        ck_assert_int_eq(vx_hash_key(&box, at) == VX_KEY_EMPTY, far);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_hash");
    TCase *cases = tcase_create("kernels_hash");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_keys_find_their_rows, 0, CLOUDS);
    tcase_add_loop_test(cases, test_ranges, 0, 14);
    tcase_add_test(cases, test_first_pair);
    tcase_add_loop_test(cases, test_map, 0, CLOUDS);
    tcase_add_loop_test(cases, test_device_hash, 0, CLOUDS);
    tcase_add_loop_test(cases, test_device_faults, 0, 4);
    tcase_add_loop_test(cases, test_ranges_of_the_device, 0, 8);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
