/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kernel_cloud.h"

#include "engine/base/process/alloc.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <string.h>

struct cloud_map cloud_map;

void cloud_add(struct cloud *cloud, i32 sample, i32 x, i32 y, i32 z)
{
    const i32 row[4] = {sample, x, y, z};
    memcpy(cloud->coords + cloud->n++ * cloud->columns, row + 4 - cloud->columns,
           (size_t)cloud->columns * sizeof *row);
}

static void cloud_add_box(struct cloud *cloud, const i32 least[4], i32 side)
{
    for (i32 i = 0; i < side * side * side; i++)
        cloud_add(cloud, least[0], least[1] + i / side / side, least[2] + i / side % side,
                  least[3] + i % side);
}

/* Two of five cells, in several samples. */
static void cloud_add_random(struct cloud *cloud, i32 samples)
{
    struct voxels_random random = {41};
    for (i32 i = 0; i < 7 * 7 * 7 * samples && cloud->n < CLOUD_ROWS_MAX; i++)
        if (voxels_between(&random, 0, 4) < 2)
            cloud_add(cloud, i / 343 * 300, i / 49 % 7 - 3, i / 7 % 7 - 5, i % 7 - 1);
}

struct cloud cloud_make(int kind)
{
    static const i32 ends[] = {CLOUD_AXIS_MIN, CLOUD_AXIS_MIN + 1, CLOUD_AXIS_MAX - 1,
                               CLOUD_AXIS_MAX};
    struct cloud cloud = {.columns = kind == CLOUD_THREE_COLUMNS ? 3 : 4};
    if (kind == CLOUD_ONE) cloud_add(&cloud, CLOUD_SAMPLE_MAX, -1, 0, CLOUD_AXIS_MIN);
    if (kind == CLOUD_LEAST_END)
        cloud_add_box(&cloud, (i32[]){0, CLOUD_AXIS_MIN, CLOUD_AXIS_MIN, CLOUD_AXIS_MIN},
                      5);
    if (kind == CLOUD_MOST_END)
        cloud_add_box(&cloud,
                      (i32[]){CLOUD_SAMPLE_MAX, CLOUD_AXIS_MAX - 4, CLOUD_AXIS_MAX - 4,
                              CLOUD_AXIS_MAX - 4},
                      5);
    for (i32 i = 0; kind == CLOUD_CORNERS && i < 128; i++)
        cloud_add(&cloud, i / 64 ? CLOUD_SAMPLE_MAX : 0, ends[i / 16 % 4],
                  ends[i / 4 % 4], ends[i % 4]);
    if (kind == CLOUD_BLOCK) cloud_add_box(&cloud, (i32[]){1, -3, -2, -5}, 6);
    if (kind == CLOUD_BOX) cloud_add_random(&cloud, 2);
    if (kind == CLOUD_THREE_COLUMNS) cloud_add_random(&cloud, 1);
    if (kind != CLOUD_THREE_COLUMNS)
        voxels_shuffle(&(struct voxels_random){9}, cloud.coords, cloud.n);
    return cloud;
}

i64 cloud_at(const struct cloud *cloud, i64 row, i32 field)
{
    if (field == 0 && cloud->columns == 3) return 0;
    return cloud->coords[row * cloud->columns + field + cloud->columns - 4];
}

const struct cloud_offsets cloud_offsets[CLOUD_OFFSETS] = {
    {{1, 1, 1}, {1, 1, 1}},          {{3, 3, 3}, {1, 1, 1}},  {{5, 5, 5}, {1, 1, 1}},
    {{7, 7, 7}, {1, 1, 1}},          {{3, 1, 5}, {2, 1, 3}},  {{1, 3, 3}, {1, 2, 1}},
    {{343, 1, 1}, {1, 1, 1}},        {{1, 1, 37}, {1, 1, 1}}, {{3, 3, 3}, {5, 1, 4}},
    {{3, 3, 3}, {1024, 1024, 1024}},
};

/* The row at offset v from row i, -1 none: v counts z fastest. */
static i32 beside(const struct cloud *cloud, const struct cloud_offsets *of, i64 i, i32 v)
{
    const i32 k[3] = {v / of->kernel[2] / of->kernel[1],
                      v / of->kernel[2] % of->kernel[1], v % of->kernel[2]};
    for (i64 j = 0; j < cloud->n; j++) {
        bool same = cloud_at(cloud, i, 0) == cloud_at(cloud, j, 0);
        for (i32 axis = 0; axis < 3; axis++)
            same &= cloud_at(cloud, j, axis + 1) ==
                    cloud_at(cloud, i, axis + 1) +
                        (i64)(k[axis] - (of->kernel[axis] - 1) / 2) * of->dilation[axis];
        if (same) return (i32)j;
    }
    return -1;
}

i32 cloud_offsets_count(const struct cloud_offsets *of)
{
    return of->kernel[0] * of->kernel[1] * of->kernel[2];
}

i32 *cloud_truth(const struct cloud *cloud, const struct cloud_offsets *of)
{
    const i32 v_count = cloud_offsets_count(of);
    i32 *truth = vx_alloc((size_t)(cloud->n * v_count + 1) * sizeof *truth);
    for (i64 e = 0; e < cloud->n * v_count; e++)
        truth[e] = beside(cloud, of, e % cloud->n, (i32)(e / cloud->n));
    return truth;
}

void cloud_map_begin(const struct cloud_offsets *of)
{
    memset(&cloud_map, 0x55, sizeof cloud_map);
    cloud_map.v = cloud_offsets_count(of);
    cloud_map.words = (cloud_map.v + 31) / 32;
    cloud_map.stride = (cloud_map.v + 3) / 4 * 4;
}

void cloud_map_check(const struct cloud *cloud, const struct cloud_offsets *of,
                     const i32 *rows)
{
    u64 pairs = 0;
    i32 row_of[CLOUD_ROWS_MAX];
    for (i32 r = 0; r < cloud->n; r++) row_of[rows ? rows[r] : r] = r;
    i32 *truth = cloud_truth(cloud, of);
    for (i32 r = 0; r < cloud->n; r++) {
        for (i32 v = 0; v < cloud_map.words * 32; v++) {
            i32 voxel =
                v < cloud_map.v ? truth[(i64)v * cloud->n + (rows ? rows[r] : r)] : -1;
            i32 expected = voxel < 0 ? -1 : row_of[voxel];
            if (v < cloud_map.stride &&
                cloud_map.nbr[r * cloud_map.stride + v] != expected)
                ck_abort_msg("row %d offset %d of %d: expected %d, got %d", r, v,
                             cloud_map.v, expected,
                             cloud_map.nbr[r * cloud_map.stride + v]);
            bool bit = cloud_map.masks[r * cloud_map.words + v / 32] >> v % 32 & 1u;
            ck_assert_int_eq(bit, expected >= 0);
            pairs += expected >= 0;
        }
    }
    /* Nothing is written behind the last row. */
    ck_assert_int_eq(cloud_map.nbr[cloud->n * cloud_map.stride], 0x55555555);
    ck_assert_uint_eq(cloud_map.masks[cloud->n * cloud_map.words], 0x55555555);
    ck_assert_uint_eq(cloud_map.pairs, pairs);
    vx_free(truth);
}

bool cloud_worth(int kind, i32 k)
{
    return kind == CLOUD_BOX || kind == CLOUD_CORNERS ||
           cloud_offsets_count(&cloud_offsets[k]) < 100;
}
