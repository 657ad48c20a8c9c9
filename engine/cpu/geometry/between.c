/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/map.h"
#include "kernels/01_coord_hash.h"

#include <stdatomic.h>

/* Rows of one chunk: see map.c. */
#define PIECE_ROWS 4096

/* Entries that one chunk fills with -1. */
#define FILL_ENTRIES 65536

/* One offset of the kernel.  For rising voxels of `to`, those for which it leads to a
 * voxel of `from` at all lead to rising ones.  PARENT and CHILD are UP of a kernel as wide
 * as the stride: its offsets share one row of nbr, as exactly one of them divides. */
struct offset {
    i32 add[3];      /* DOWN: out * stride + add; else (out + add) / stride */
    i32 *nbr;        /* (N) */
    i64 times, plus; /* what is written: row * times + plus */
};

struct between_job {
    struct vx_map_between *map;
    i32 offsets;
    i32 kernel[3], dilation[3];
    atomic_int_fast64_t found;
};

static struct offset offset_make(const struct between_job *job, i32 v)
{
    const struct vx_map_between *map = job->map;
    const struct vx_map_key *key = &map->key;
    i32 at[3] = {v / job->kernel[2] / job->kernel[1], v / job->kernel[2] % job->kernel[1],
                 v % job->kernel[2]};
    bool one = vx_map_is_one(key);
    struct offset offset = {.nbr = map->nbr + (one ? 0 : v * map->to.n), .times = 1};
    for (int axis = 0; axis < 3; axis++) {
        i32 far = at[axis] * job->dilation[axis] - key->padding[axis];
        offset.add[axis] = key->kind == VX_MAP_DOWN ? far : -far;
    }
    if (key->kind != VX_MAP_CHILD) return offset;
    offset.times = job->offsets;
    offset.plus = at[0] + (i64)key->stride[0] * (at[1] + (i64)key->stride[1] * at[2]);
    return offset;
}

/* The key of the voxel of `from` that a voxel of `to` reads at an offset; false: none. */
static bool target(const struct vx_map_key *map, const struct offset *offset, u64 voxel,
                   u64 *key)
{
    i32 at[3];
    for (int axis = 0; axis < 3; axis++) {
        i32 stride = map->stride[axis], p = vx_key_axis(voxel, axis);
        if (map->kind == VX_MAP_DOWN) {
            at[axis] = p * stride + offset->add[axis];
        } else {
            i32 sum = p + offset->add[axis];
            if (sum % stride) return false;
            at[axis] = sum / stride;
        }
        if (at[axis] < VX_AXIS_MIN || at[axis] > VX_AXIS_MAX) return false;
    }
    *key = vx_key_pack(vx_key_sample(voxel), at[0], at[1], at[2]);
    return true;
}

static i64 walk_offset(const struct between_job *job, i32 v, i64 begin, i64 end)
{
    const struct vx_map_between *map = job->map;
    const struct offset offset = offset_make(job, v);
    const struct vx_keys *from = &map->from;
    i64 place = -1, found = 0;
    for (i64 i = begin; i < end; i++) {
        u64 key;
        if (!target(&map->key, &offset, map->to.keys[i], &key)) continue;
        if (place < 0) place = vx_keys_place(from, 0, key);
        while (from->keys[place] < key) place++;
        if (from->keys[place] != key) continue;
        offset.nbr[map->to.rows[i]] =
            (i32)(from->rows[place] * offset.times + offset.plus);
        found++;
    }
    return found;
}

/* SAMPLE: the row of a voxel's sample. */
static i64 walk_samples(const struct vx_map_between *map, i64 begin, i64 end)
{
    const struct vx_keys *from = &map->from;
    i64 place = -1, found = 0;
    for (i64 i = begin; i < end; i++) {
        u64 key = vx_key_pack(vx_key_sample(map->to.keys[i]), 0, 0, 0);
        if (place < 0) place = vx_keys_place(from, 0, key);
        while (from->keys[place] < key) place++;
        if (from->keys[place] != key) continue;
        map->nbr[map->to.rows[i]] = from->rows[place];
        found++;
    }
    return found;
}

static void walk_task(void *context, i64 begin, i64 end)
{
    struct between_job *job = context;
    bool samples = job->map->key.kind == VX_MAP_SAMPLE;
    i64 found = samples ? walk_samples(job->map, begin, end) : 0;
    for (i32 v = 0; v < job->offsets && !samples; v++)
        found += walk_offset(job, v, begin, end);
    atomic_fetch_add_explicit(&job->found, found, memory_order_relaxed);
}

static void fill_task(void *context, i64 begin, i64 end)
{
    const struct between_job *job = context;
    for (i64 i = begin; i < end; i++) job->map->nbr[i] = -1;
}

/* True for what a pass for each offset cannot make: a point's cell may have so many. */
static bool by_cells(const struct vx_map_key *key)
{
    const i64 block = (i64)key->stride[0] * key->stride[1] * key->stride[2];
    if (key->kind == VX_MAP_CORNER) return true;
    return key->kind == VX_MAP_PARENT && block > VX_KERNEL_OFFSETS_MAX;
}

void vx_map_build_between(struct vx_cpu *cpu, struct vx_map_between *between)
{
    const struct vx_map_key *key = &between->key;
    struct between_job job = {.map = between, .offsets = 1};
    bool one = vx_map_is_one(key);
    VX_ASSERT(key->kind != VX_MAP_SUBM);
    VX_ASSERT(key->kind != VX_MAP_ORDER);
    if (by_cells(key)) {
        vx_map_build_cells(cpu, between);
        return;
    }
    between->pairs = 0;
    for (int axis = 0; axis < 3; axis++) {
        job.kernel[axis] = one ? key->stride[axis] : key->kernel[axis];
        job.dilation[axis] = one ? 1 : key->dilation[axis];
        job.offsets *= job.kernel[axis];
    }
    if (!between->to.n) return;
    vx_cpu_spread(cpu, between->to.n * vx_map_offsets(key), FILL_ENTRIES, fill_task,
                  &job);
    vx_cpu_spread(cpu, between->to.n, PIECE_ROWS, walk_task, &job);
    between->pairs = job.found;
}
