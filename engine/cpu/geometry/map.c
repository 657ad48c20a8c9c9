/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/map.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "kernels/01_coord_hash.h"

#include <stdatomic.h>
#include <string.h>

/* Rows of one chunk.  A cursor starts with a binary search, which is cheap against 4096
 * steps, and all cursors of a chunk read the same keys, from the CPU's cache. */
#define PIECE_ROWS 4096

/* Most offsets of one run: a usual kernel has 3 along z; registers hold no more. */
#define RUN_MAX 3

/* Entries that one chunk fills with -1. */
#define FILL_ENTRIES 65536

/* Offsets with equal x and y and consecutive z, which share a cursor.  Only offsets
 * before the middle one are looked up. */
struct run {
    i32 v; /* index of the first offset */
    i32 length;
    i32 offset[3]; /* the first offset */
    i64 delta;     /* the same, as a difference of keys */
};

struct map_job {
    struct vx_map_build *build;
    i32 v;     /* number of offsets */
    bool edge; /* some neighbours are beyond the coordinate range: check each one */
    int runs_count;
    struct run runs[VX_KERNEL_OFFSETS_MAX / 2];
    atomic_int_fast64_t found;
};

static struct run run_make(const struct vx_map_key *key, i32 v, i32 length)
{
    struct run run = {.v = v, .length = length};
    for (int axis = 2; axis >= 0; axis--) {
        i32 k = v % key->kernel[axis];
        v /= key->kernel[axis];
        run.offset[axis] = (k - key->kernel[axis] / 2) * key->dilation[axis];
    }
    for (int axis = 0; axis < 3; axis++)
        run.delta = run.delta * (INT64_C(1) << VX_KEY_AXIS_BITS) + run.offset[axis];
    return run;
}

static void make_runs(struct map_job *job)
{
    const struct vx_map_key *key = &job->build->key;
    for (int axis = 0; axis < 3; axis++) {
        i32 reach = key->kernel[axis] / 2 * key->dilation[axis];
        job->edge |= job->build->least[axis] - reach < VX_AXIS_MIN;
        job->edge |= job->build->most[axis] + reach > VX_AXIS_MAX;
    }
    /* Between dilated offsets of one column lie other voxels: a cursor for each offset
     * skips them, a shared one would have to read them. */
    bool single = job->edge || key->dilation[2] > 1;
    i32 half = job->v / 2;
    for (i32 v = 0, length = 1; v < half; v += length) {
        if (!single) length = key->kernel[2];
        if (length > RUN_MAX) length = RUN_MAX;
        if (length > half - v) length = half - v;
        if (length > key->kernel[2] - v % key->kernel[2])
            length = key->kernel[2] - v % key->kernel[2];
        job->runs[job->runs_count++] = run_make(key, v, length);
    }
}

/* Looks up one run for keys [begin, end).  The thread that has a row writes the row's
 * entries of the first half of the offsets, found or not.  It also writes the opposite
 * entry, in the second half, of each neighbour found; only one row finds that neighbour
 * at that offset, so no two threads write the same entry.  There is no branch on a hit,
 * because hits cannot be predicted. */
static inline __attribute__((always_inline)) i64
walk(const struct map_job *job, const struct run *run, int length, i64 begin, i64 end)
{
    const u64 *keys = job->build->set.keys;
    const i32 *rows = job->build->set.rows;
    i64 n = job->build->set.n;
    i32 *ahead[RUN_MAX];
    i32 *behind[RUN_MAX];
#pragma GCC unroll 3
    for (int c = 0; c < length; c++) {
        ahead[c] = job->build->nbr + (run->v + c) * n;
        behind[c] = job->build->nbr + (job->v - 1 - run->v - c) * n;
    }
    u64 delta = (u64)run->delta;
    i64 place = vx_keys_place(&job->build->set, 0, keys[begin] + delta);
    i64 found = 0;
    i32 nowhere;
    for (i64 i = begin; i < end; i++) {
        u64 key = keys[i] + delta;
        i32 row = rows[i];
        while (keys[place] < key) place++;
        i64 at = place;
#pragma GCC unroll 3
        for (int c = 0; c < length; c++) {
            bool hit = keys[at] == key + (u64)c;
            i32 other = rows[at];
            ahead[c][row] = hit ? other : -1;
            *(hit ? behind[c] + other : &nowhere) = row;
            at += hit;
        }
        found += at - place;
    }
    return found;
}

static bool inside(const struct run *run, u64 key)
{
    for (int axis = 0; axis < 3; axis++) {
        i32 at = vx_key_axis(key, axis) + run->offset[axis];
        if (at < VX_AXIS_MIN || at > VX_AXIS_MAX) return false;
    }
    return true;
}

/* The same for sets at the edge of the coordinate range, where adding to a key could
 * carry from one coordinate into the next. */
static i64 walk_edge(const struct map_job *job, const struct run *run, i64 begin, i64 end)
{
    const struct vx_keys *set = &job->build->set;
    i64 n = set->n;
    i32 *ahead = job->build->nbr + run->v * n;
    i32 *behind = job->build->nbr + (job->v - 1 - run->v) * n;
    i64 found = 0;
    i64 place = -1;
    VX_ASSERT(run->length == 1);
    for (i64 i = begin; i < end; i++) {
        i32 row = set->rows[i];
        ahead[row] = -1;
        if (!inside(run, set->keys[i])) continue;
        u64 key = set->keys[i] + (u64)run->delta;
        if (place < 0) place = vx_keys_place(set, 0, key);
        while (set->keys[place] < key) place++;
        if (set->keys[place] != key) continue;
        ahead[row] = set->rows[place];
        behind[set->rows[place]] = row;
        found++;
    }
    return found;
}

static i64 walk_run(const struct map_job *job, const struct run *run, i64 begin, i64 end)
{
    if (run->length == 3) return walk(job, run, 3, begin, end);
    if (run->length == 2) return walk(job, run, 2, begin, end);
    VX_ASSERT(run->length == 1);
    return walk(job, run, 1, begin, end);
}

static void walk_task(void *context, i64 begin, i64 end)
{
    struct map_job *job = context;
    i64 found = 0;
    for (int r = 0; r < job->runs_count; r++) {
        const struct run *run = &job->runs[r];
        if (job->edge)
            found += walk_edge(job, run, begin, end);
        else
            found += walk_run(job, run, begin, end);
    }
    atomic_fetch_add_explicit(&job->found, found, memory_order_relaxed);
}

static void middle_task(void *context, i64 begin, i64 end)
{
    const struct map_job *job = context;
    i32 *nbr = job->build->nbr + job->v / 2 * job->build->set.n;
    for (i64 i = begin; i < end; i++) nbr[i] = (i32)i;
}

static void fill_task(void *context, i64 begin, i64 end)
{
    const struct map_job *job = context;
    i32 *nbr = job->build->nbr + (job->v / 2 + 1) * job->build->set.n;
    memset(nbr + begin, 0xff, (size_t)(end - begin) * sizeof *nbr); /* -1 */
}

void vx_map_build(struct vx_cpu *cpu, struct vx_map_build *build)
{
    i64 n = build->set.n;
    struct map_job job = {.build = build, .v = vx_map_offsets(&build->key)};
    build->pairs = 0;
    if (!n) return;
    make_runs(&job);
    vx_cpu_spread(cpu, n, FILL_ENTRIES, middle_task, &job);
    vx_cpu_spread(cpu, n * (job.v / 2), FILL_ENTRIES, fill_task, &job);
    /* All entries of the second half are -1 before the look-up begins: other threads
     * write them. */
    vx_cpu_spread(cpu, n, PIECE_ROWS, walk_task, &job);
    build->pairs = n + 2 * job.found;
}
