/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/levels.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/levels_parts.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/occupancy.h"

#include <string.h>

static size_t take(size_t *bytes, size_t count, size_t each)
{
    size_t offset = *bytes;
    *bytes += vx_round_up(count * each, VX_GPU_LINE_BYTES);
    return offset;
}

/* --- sets --- */

static const i64 *rows_of(const struct vx_gpu_levels *levels, i32 request)
{
    return levels->rows_max + (i64)request * levels->sets_count;
}

static struct vx_brick_set *sets_of(const struct vx_gpu_levels *levels, i32 request)
{
    return levels->sets + (i64)request * levels->sets_count;
}

static bool small(const struct vx_gpu_levels *levels, i32 request)
{
    for (i32 s = 0; s < levels->sets_count; s++)
        if (rows_of(levels, request)[s] > VX_BRICK_SMALL) return false;
    return true;
}

static u64 slots_of(i64 rows_max)
{
    u64 slots = VX_BRICK_GROUP;
    VX_ASSERT(rows_max >= 1);
    VX_ASSERT(rows_max <= VX_VOXELS_MAX);
    while (slots < 2 * (u64)rows_max) slots *= 2;
    return slots;
}

/* Counts and slots of all requests come first, so that one fill clears them: *zeros are
 * their bytes.  memory NULL: no pointer is set.  Returns the bytes. */
static size_t layout(const struct vx_gpu_levels *levels, u8 *memory, size_t *zeros)
{
    size_t bytes = 0;
    (void)take(&bytes, 1, vx_gpu_levels_counts_bytes(levels));
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; s < levels->sets_count; s++) {
            u64 slots = slots_of(rows_of(levels, r)[s]);
            size_t at = take(&bytes, (size_t)slots, sizeof(struct vx_brick_slot));
            if (!memory) continue;
            sets_of(levels, r)[s].slots_count = slots;
            sets_of(levels, r)[s].slots = (void *)(memory + at);
        }
    *zeros = bytes;
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; s < levels->sets_count; s++) {
            i64 rows = rows_of(levels, r)[s];
            size_t base = take(&bytes, (size_t)slots_of(rows), sizeof(i32));
            size_t list = take(&bytes, (size_t)rows, sizeof(u32));
            if (!memory) continue;
            sets_of(levels, r)[s].base = (void *)(memory + base);
            sets_of(levels, r)[s].list = (void *)(memory + list);
        }
    return bytes;
}

size_t vx_gpu_levels_bytes(const struct vx_gpu_levels *levels)
{
    size_t zeros;
    return layout(levels, NULL, &zeros);
}

size_t vx_gpu_levels_counts_bytes(const struct vx_gpu_levels *levels)
{
    return (size_t)levels->requests_count * (size_t)(levels->sets_count - 1) *
           sizeof(struct vx_brick_counts);
}

/* Set 0, as map.c has laid it out. */
static struct vx_brick_set set_of_index(struct vx_kernel_set *set,
                                        const struct vx_gpu_index *index)
{
    const struct vx_gpu_coords at = {
        .columns = 3, .n = index->n, .memory = index->bricks};
    struct vx_brick_index_args args;
    vx_gpu_index_args(set, &at, &args);
    return (struct vx_brick_set){.rows_max = args.n,
                                 .slots_count = args.slots_count,
                                 .slots = args.slots,
                                 .counts = args.counts,
                                 .base = args.base,
                                 .list = args.list};
}

void vx_gpu_levels_place(struct vx_kernel_set *set, struct vx_gpu_levels *levels,
                         const struct vx_gpu_index *indices, void *memory)
{
    const i32 derived = levels->sets_count - 1;
    size_t zeros;
    levels->counts = memory;
    for (i32 r = 0; r < levels->requests_count; r++) {
        VX_ASSERT(indices[r].n == rows_of(levels, r)[0]);
        sets_of(levels, r)[0] = set_of_index(set, &indices[r]);
        for (i32 s = 1; s <= derived; s++)
            sets_of(levels, r)[s] =
                (struct vx_brick_set){.rows_max = rows_of(levels, r)[s],
                                      .counts = levels->counts + r * derived + s - 1};
    }
    (void)layout(levels, memory, &zeros);
}

static void derive_args(struct vx_kernel_set *set, const struct vx_gpu_levels *levels,
                        i32 request, i32 index, struct vx_set_derive_args *args)
{
    static const i32 rules[] = {[VX_SET_FLOOR] = VX_DERIVE_FLOOR,
                                [VX_SET_SPCONV] = VX_DERIVE_SPCONV,
                                [VX_SET_EXPAND] = VX_DERIVE_EXPAND,
                                [VX_SET_SAMPLES] = VX_DERIVE_SAMPLES};
    const struct vx_set_key *key = &levels->keys[index];
    struct vx_set_key own = *key;
    if (levels->shapes && key->rule == VX_SET_SPCONV)
        memcpy(own.shape, levels->shapes[(i64)request * levels->sets_count + index],
               sizeof own.shape);
    const struct vx_brick_set *sets = sets_of(levels, request);
    VX_ASSERT(key->rule != VX_SET_REQUEST);
    VX_ASSERT(key->from >= 0);
    VX_ASSERT(key->from < index);
    *args = (struct vx_set_derive_args){.to = sets[index],
                                        .from = sets[key->from],
                                        .seed = vx_kernel_set_seed(set),
                                        .rule = rules[key->rule]};
    memcpy(args->kernel, key->kernel, sizeof args->kernel);
    memcpy(args->dilation, key->dilation, sizeof args->dilation);
    memcpy(args->stride, key->stride, sizeof args->stride);
    memcpy(args->padding, key->padding, sizeof args->padding);
    for (int axis = 0; axis < 3; axis++) args->shape[axis] = vx_set_key_end(&own, axis);
    vx_set_derive_plan(args);
    i64 steps = (i64)args->steps[0] * args->steps[1] * args->steps[2];
    args->blocks = vx_gpu_level_blocks(set, args->from.rows_max * steps, VX_SET_THREADS,
                                       VX_GPU_SET_BLOCKS);
}

static bool is_now(const struct vx_gpu_levels *levels, i32 set)
{
    return !levels->stage.of || levels->stage.of[set] == levels->stage.now;
}

/* Numbers the sets of this stage of the requests first .. end - 1. */
static vx_status number(const struct vx_gpu_queue *queue,
                        const struct vx_gpu_levels *levels, i32 first, i32 end,
                        struct vx_why *why)
{
    struct vx_set_number_args args = {.count = 0};
    i64 most = 1;
    for (i32 at = first * levels->sets_count; at < end * levels->sets_count; at++) {
        const i32 request = at / levels->sets_count, set = at % levels->sets_count;
        const bool last = at + 1 == end * levels->sets_count;
        if (set && is_now(levels, set) && !levels->stage.left[request]) {
            args.sets[args.count++] = levels->sets[at];
            if (levels->sets[at].rows_max > most) most = levels->sets[at].rows_max;
        }
        if (!args.count || (!last && args.count < VX_SET_NUMBER_MAX)) continue;
        args.blocks =
            vx_gpu_level_blocks(queue->set, most, VX_SET_THREADS, VX_GPU_SET_BLOCKS);
        VX_TRY(vx_gpu_map_launch(queue, "set_number", &args, why));
        args.count = 0;
        most = 1;
    }
    return VX_OK;
}

/* The sets of one request, one after the other; then numbers for all of them. */
static vx_status build_one(const struct vx_gpu_queue *queue,
                           const struct vx_gpu_levels *levels, i32 request,
                           struct vx_why *why)
{
    struct vx_set_derive_args derive;
    for (i32 s = 1; s < levels->sets_count; s++) {
        if (!is_now(levels, s)) continue;
        derive_args(queue->set, levels, request, s, &derive);
        VX_TRY(vx_gpu_map_launch(queue, "set_derive", &derive, why));
    }
    return number(queue, levels, request, request + 1, why);
}

/* The sets made from set 0 that are made now. */
static i32 derived_count(const struct vx_gpu_levels *levels)
{
    i32 count = 0;
    for (i32 s = 1; s < levels->sets_count; s++) count += is_now(levels, s);
    return count;
}

/* The sets of all small requests. */
static vx_status build_small(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload,
                             const struct vx_gpu_levels *levels, i32 count,
                             struct vx_why *why)
{
    const i32 derived = derived_count(levels);
    size_t at;
    struct vx_set_derive_args *args =
        vx_gpu_upload_take(upload, (size_t)count * (size_t)derived * sizeof *args, &at);
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; small(levels, r) && s < levels->sets_count; s++)
            if (is_now(levels, s)) derive_args(queue->set, levels, r, s, args++);
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    const struct vx_set_derive_many_args many = {count, derived,
                                                 (void *)(upload->device + at)};
    return vx_gpu_map_launch(queue, "set_derive_many", &many, why);
}

/* The sets of a stage that begins with sets by logits: of all requests together, or, where
 * sets are made from those, one by one. */
static vx_status build_later(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload,
                             const struct vx_gpu_levels *levels, struct vx_why *why)
{
    for (i32 s = 1; s < levels->sets_count; s++) {
        if (!is_now(levels, s)) continue;
        if (vx_set_is_predicted(&levels->keys[s])) {
            VX_TRY(vx_gpu_occupancy_build(queue, upload, levels, s, why));
            continue;
        }
        for (i32 r = 0; r < levels->requests_count; r++) {
            struct vx_set_derive_args derive;
            if (levels->stage.left[r]) continue;
            derive_args(queue->set, levels, r, s, &derive);
            VX_TRY(vx_gpu_map_launch(queue, "set_derive", &derive, why));
        }
    }
    return number(queue, levels, 0, levels->requests_count, why);
}

vx_status vx_gpu_levels_build(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_levels *levels, struct vx_why *why)
{
    const i32 derived = derived_count(levels);
    size_t zeros;
    i32 count = 0;
    if (levels->sets_count < 2 || !levels->requests_count) return VX_OK;
    if (levels->stage.now) return build_later(queue, upload, levels, why);
    (void)layout(levels, NULL, &zeros);
    for (i32 r = 0; r < levels->requests_count; r++) count += small(levels, r);
    size_t bytes = (size_t)derived * sizeof(struct vx_set_derive_args);
    const bool together =
        count && derived && vx_gpu_upload_fits(upload, (size_t)count * bytes);
    if (!together || count < levels->requests_count || derived + 1 < levels->sets_count) {
        const struct vx_gpu_words words = {levels->counts, 0, zeros};
        VX_TRY(vx_gpu_fill(vx_kernel_set_gpu(queue->set), queue->stream, &words, why));
    }
    if (together) VX_TRY(build_small(queue, upload, levels, count, why));
    for (i32 r = 0; r < levels->requests_count; r++)
        if (!together || !small(levels, r)) VX_TRY(build_one(queue, levels, r, why));
    return VX_OK;
}

struct vx_brick_counts vx_gpu_levels_count(const struct vx_gpu_levels *levels,
                                           i32 request, i32 set, const void *counts)
{
    const i64 at = (i64)request * (levels->sets_count - 1) + set - 1;
    struct vx_brick_counts it;
    VX_ASSERT(set >= 1);
    memcpy(&it, (const u8 *)counts + at * (i64)sizeof it, sizeof it);
    return it;
}

vx_status vx_gpu_levels_rows(const struct vx_gpu_levels *levels, i32 request,
                             const void *counts, struct vx_why *why, i64 *rows)
{
    const i64 *most = rows_of(levels, request);
    if (!levels->stage.now) rows[0] = most[0];
    for (i32 s = 1; s < levels->sets_count; s++) {
        if (!is_now(levels, s)) continue;
        const struct vx_brick_counts it = vx_gpu_levels_count(levels, request, s, counts);
        rows[s] = it.rows;
        if (it.fault[0] && vx_set_is_predicted(&levels->keys[s])) rows[s] = it.live;
        if (it.fault[0] && rows[s] <= most[s]) rows[s] = most[s] + 1;
        VX_ENSURE_WHY(!it.fault[0], why, RESOURCE_EXHAUSTED,
                      "a set of voxels is larger than its bound",
                      "expected at most %lld voxels in set %d, got at least %lld",
                      (long long)most[s], s, (long long)rows[s]);
    }
    return VX_OK;
}

i32 vx_gpu_levels_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {
        "set_derive",    "set_derive_many", "set_number",
        "set_coords",    "set_coords_many", "level_map",
        "level_map_far", "level_map_many",  "level_map_far_many"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
