/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/keys.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "kernels/01_coord_hash.h"

#include <stdatomic.h>

_Static_assert((1 << VX_KEY_SAMPLE_BITS) - 1 == VX_SAMPLE_MAX,
               "kernels and engine pack alike");
_Static_assert(-VX_KEY_AXIS_BIAS == VX_AXIS_MIN, "kernels and engine pack alike");
_Static_assert(VX_KEY_AXIS_BIAS - 1 == VX_AXIS_MAX, "kernels and engine pack alike");

/* Rows of one chunk. */
#define PIECE_ROWS 4096

#define NONE UINT64_MAX

/* *least = min(*least, value). */
static void lower(_Atomic u64 *least, u64 value)
{
    u64 seen = atomic_load_explicit(least, memory_order_relaxed);
    while (value < seen && !atomic_compare_exchange_weak(least, &seen, value)) continue;
}

static void lower_i32(_Atomic i32 *least, i32 value)
{
    i32 seen = atomic_load_explicit(least, memory_order_relaxed);
    while (value < seen && !atomic_compare_exchange_weak(least, &seen, value)) continue;
}

static u64 key_of_row(const struct vx_coords_view *view, i64 row)
{
    const i32 *at = view->rows + row * view->columns;
    if (view->columns == 3) return vx_key_pack(0, at[0], at[1], at[2]);
    return vx_key_pack(at[0], at[1], at[2], at[3]);
}

struct scan {
    const struct vx_coords_view *view;
    _Atomic u64 bad; /* the first row and column out of range, as 4 * row + column */
    _Atomic i32 least[4], most_negated[4];
    atomic_bool unsorted;
};

static void scan_bad(struct scan *scan, i64 row)
{
    i32 columns = scan->view->columns;
    const i32 *at = scan->view->rows + row * columns;
    for (i32 c = 0; c < columns; c++) {
        bool sample = columns == 4 && c == 0;
        i32 least = sample ? 0 : VX_AXIS_MIN;
        i32 most = sample ? VX_SAMPLE_MAX : VX_AXIS_MAX;
        if (at[c] >= least && at[c] <= most) continue;
        lower(&scan->bad, (u64)row * 4 + (u64)c);
        return;
    }
}

static void scan_task(void *context, i64 begin, i64 end)
{
    struct scan *scan = context;
    const struct vx_coords_view *view = scan->view;
    i32 columns = view->columns;
    i32 least[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    i32 most[4] = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
    for (i64 i = begin; i < end; i++) {
        const i32 *at = view->rows + i * columns;
        for (i32 c = 0; c < columns; c++) {
            least[c] = at[c] < least[c] ? at[c] : least[c];
            most[c] = at[c] > most[c] ? at[c] : most[c];
        }
    }
    bool bad = false;
    for (i32 c = 0; c < columns; c++) {
        bool sample = columns == 4 && c == 0;
        bad |= least[c] < (sample ? 0 : VX_AXIS_MIN);
        bad |= most[c] > (sample ? VX_SAMPLE_MAX : VX_AXIS_MAX);
        i32 field = c + 4 - columns;
        lower_i32(&scan->least[field], least[c]);
        lower_i32(&scan->most_negated[field],
                  most[c] == INT32_MIN ? INT32_MAX : -most[c]);
    }
    if (bad) {
        for (i64 i = begin; i < end; i++) scan_bad(scan, i);
        return;
    }
    bool unsorted = false;
    u64 before = begin ? key_of_row(view, begin - 1) : 0;
    for (i64 i = begin; i < end; i++) {
        u64 key = key_of_row(view, i);
        unsorted |= key <= before && i > 0;
        before = key;
    }
    if (unsorted) atomic_store_explicit(&scan->unsorted, true, memory_order_relaxed);
}

static vx_status scan_fail(const struct vx_coords_view *view, u64 bad, struct vx_why *why)
{
    i64 row = (i64)(bad / 4);
    i32 column = (i32)(bad % 4);
    bool sample = view->columns == 4 && column == 0;
    /* The sentence does not name the axis: training may have used x, y, z or z, y, x. */
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a coordinate is out of range",
                "coords row %lld, column %d (%s): expected %d to %d, got %d%s",
                (long long)row, column,
                sample ? "the sample index" : "a voxel coordinate",
                sample ? 0 : VX_AXIS_MIN, sample ? VX_SAMPLE_MAX : VX_AXIS_MAX,
                view->rows[row * view->columns + column],
                sample ? "" : "; subtract a common origin from all coordinates");
}

vx_status vx_keys_scan(struct vx_cpu *cpu, const struct vx_coords_view *view,
                       struct vx_why *why, struct vx_keys_scan *scan)
{
    VX_ASSERT(view->n >= 0);
    VX_ASSERT(view->n <= VX_VOXELS_MAX);
    VX_ASSERT(view->columns == 3 || view->columns == 4);
    struct scan all = {.view = view, .bad = NONE};
    for (int field = 0; field < 4; field++)
        all.least[field] = all.most_negated[field] = INT32_MAX;
    if (view->columns == 3) all.least[0] = all.most_negated[0] = 0;
    vx_cpu_spread(cpu, view->n, PIECE_ROWS, scan_task, &all);
    if (all.bad != NONE) return scan_fail(view, all.bad, why);
    *scan = (struct vx_keys_scan){.n = view->n, .sorted = !all.unsorted};
    for (int field = 0; field < 4; field++) {
        scan->least[field] = all.least[field];
        scan->most[field] = -all.most_negated[field];
    }
    return VX_OK;
}

struct pack {
    const struct vx_coords_view *view;
    const struct vx_keys *set;
    atomic_bool differs;
};

static void pack_task(void *context, i64 begin, i64 end)
{
    const struct pack *pack = context;
    for (i64 i = begin; i < end; i++) {
        pack->set->keys[i] = key_of_row(pack->view, i);
        pack->set->rows[i] = (i32)i;
    }
}

void vx_keys_pack(struct vx_cpu *cpu, const struct vx_coords_view *view,
                  const struct vx_keys *set)
{
    struct pack pack = {.view = view, .set = set};
    VX_ASSERT(set->n == view->n);
    vx_cpu_spread(cpu, view->n, PIECE_ROWS, pack_task, &pack);
    set->keys[set->n] = VX_KEY_EMPTY;
    set->rows[set->n] = 0;
}

/* Compares unpacked coordinates: one out of range could have the key of another one. */
static void equal_task(void *context, i64 begin, i64 end)
{
    struct pack *pack = context;
    const struct vx_keys *set = pack->set;
    i32 columns = pack->view->columns;
    u32 differs = 0;
    for (i64 i = begin; i < end; i++) {
        const i32 *at = pack->view->rows + (i64)set->rows[i] * columns;
        i32 sample = columns == 4 ? *at++ : 0;
        differs |= (u32)(vx_key_sample(set->keys[i]) ^ sample);
        for (i32 axis = 0; axis < 3; axis++)
            differs |= (u32)(vx_key_axis(set->keys[i], axis) ^ at[axis]);
    }
    if (differs) atomic_store_explicit(&pack->differs, true, memory_order_relaxed);
}

bool vx_keys_equal(struct vx_cpu *cpu, const struct vx_coords_view *view,
                   const struct vx_keys *set)
{
    struct pack pack = {.view = view, .set = set};
    if (set->n != view->n) return false;
    vx_cpu_spread(cpu, view->n, PIECE_ROWS, equal_task, &pack);
    return !pack.differs;
}

struct unique {
    const struct vx_keys *set;
    _Atomic u64 first; /* smallest second row << 32 | its first row */
};

static void unique_task(void *context, i64 begin, i64 end)
{
    struct unique *unique = context;
    const u64 *keys = unique->set->keys;
    const i32 *rows = unique->set->rows;
    for (i64 i = begin; i < end; i++) {
        /* Rows of equal keys rise, so only the first two can be the smallest pair. */
        if (keys[i] != keys[i + 1] || (i && keys[i - 1] == keys[i])) continue;
        lower(&unique->first, (u64)rows[i + 1] << 32 | (u64)rows[i]);
    }
}

vx_status vx_keys_check_unique(struct vx_cpu *cpu, const struct vx_keys *set,
                               struct vx_why *why)
{
    struct unique unique = {.set = set, .first = NONE};
    vx_cpu_spread(cpu, set->n, PIECE_ROWS, unique_task, &unique);
    if (unique.first == NONE) return VX_OK;
    i32 second = (i32)(unique.first >> 32);
    i32 first = (i32)(unique.first & UINT32_MAX);
    u64 key = 0;
    for (i64 i = 0; i < set->n; i++)
        if (set->rows[i] == first) key = set->keys[i];
    /* As above, no names of axes; in three or four columns they are the last three. */
    VX_FAIL_WHY(
        why, INVALID_ARGUMENT, "a voxel appears twice in coords",
        "coords rows %d and %d are the same voxel (sample %d, last three columns %d, %d, "
        "%d); each voxel may appear once",
        first, second, vx_key_sample(key), vx_key_axis(key, 0), vx_key_axis(key, 1),
        vx_key_axis(key, 2));
}
