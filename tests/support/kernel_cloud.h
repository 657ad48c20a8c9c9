/* kernel_cloud - small sets of voxels at every limit of valid input, and their neighbours by
 * definition: all pairs of rows, coordinates in 64 bits, nothing packed, hashed or shared with
 * what is tested.
 *
 *   const struct cloud cloud = cloud_make(CLOUD_CORNERS);
 *   cloud_map_begin(&cloud_offsets[k]);
 *   ... what writes cloud_map ...
 *   cloud_map_check(&cloud, &cloud_offsets[k], rows);
 *
 * Owner    the caller; cloud_map is one for the test that runs.
 * Thread   the test's.
 * Limits   CLOUD_ROWS_MAX rows.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_KERNEL_CLOUD_H
#define VX_TESTS_SUPPORT_KERNEL_CLOUD_H

#include "engine/base/types.h"

#define CLOUD_ROWS_MAX   256
#define CLOUD_STRIDE_MAX 344
#define CLOUD_WORDS_MAX  11
#define CLOUD_AXIS_MIN   (-131072)
#define CLOUD_AXIS_MAX   131071
#define CLOUD_SAMPLE_MAX 511

struct cloud {
    i64 n;
    i32 columns;
    i32 coords[CLOUD_ROWS_MAX * 4];
};

enum {
    CLOUD_NOTHING,
    CLOUD_ONE,
    CLOUD_LEAST_END,
    CLOUD_MOST_END,
    CLOUD_CORNERS,
    CLOUD_BLOCK,
    CLOUD_BOX,
    CLOUD_THREE_COLUMNS,
    CLOUDS
};
struct cloud cloud_make(int kind);
void cloud_add(struct cloud *cloud, i32 sample, i32 x, i32 y, i32 z);
/* field: 0 sample, 1 x, 2 y, 3 z, whatever the columns. */
i64 cloud_at(const struct cloud *cloud, i64 row, i32 field);

struct cloud_offsets {
    i32 kernel[3], dilation[3];
};
#define CLOUD_OFFSETS 10
extern const struct cloud_offsets cloud_offsets[CLOUD_OFFSETS];
i32 cloud_offsets_count(const struct cloud_offsets *of);
/* True when comparing all pairs for cloud_offsets[k] is worth its time: this kind of cloud
 * has neighbours so far away, or the offsets are few. */
bool cloud_worth(int kind, i32 k);

/* The neighbour of every row at every offset, (V, N), -1 none; vx_free ends it. */
i32 *cloud_truth(const struct cloud *cloud, const struct cloud_offsets *of);

/* A map in a device's layout. */
struct cloud_map {
    i32 v, words, stride;
    i32 nbr[(CLOUD_ROWS_MAX + 1) * CLOUD_STRIDE_MAX];
    u32 masks[(CLOUD_ROWS_MAX + 1) * CLOUD_WORDS_MAX];
    u64 pairs;
};
extern struct cloud_map cloud_map;
void cloud_map_begin(const struct cloud_offsets *of); /* poisons it */
/* Row r is voxel rows[r]; rows NULL: its own. */
void cloud_map_check(const struct cloud *cloud, const struct cloud_offsets *of,
                     const i32 *rows);

#endif
