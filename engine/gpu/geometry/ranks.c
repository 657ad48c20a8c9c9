/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/ranks.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/key_sort.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/25_set_ranks.h"

#include <string.h>

/* Blocks of the last launch for each processor: what it holds. */
#define RANK_BLOCKS 8
/* The alignment of descriptions, as in pieces.c. */
#define PART_ALIGN 64

size_t vx_gpu_ranks_bytes(i64 rows)
{
    return vx_gpu_key_sort_bytes(rows);
}

/* A build under way. */
struct build {
    const struct vx_gpu_ranks *ranks;
    struct vx_gpu_upload *upload;
    struct vx_gpu_key_sort sort;
};

static vx_status keys_make(const struct build *build)
{
    const struct vx_gpu_key_sort *sort = &build->sort;
    struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
    for (i32 m = 0; m < build->ranks->count; m++) {
        const struct vx_gpu_rank_member *member = &build->ranks->members[m];
        keys[m] = (struct vx_gpu_level_keys){member->set, member->rows,
                                             sort->keys + sort->key.edges[m]};
    }
    return vx_gpu_level_keys_build(sort->queue, build->upload, keys, build->ranks->count,
                                   sort->why);
}

/* Writes what the members keep. */
static vx_status ranks_write(const struct build *build)
{
    const struct vx_gpu_key_sort *sort = &build->sort;
    struct vx_gpu_upload *upload = build->upload;
    const i32 count = build->ranks->count;
    size_t from = vx_round_up(upload->used, PART_ALIGN), most = 0;
    size_t bytes = (size_t)count * sizeof(struct vx_set_ranks_member);
    VX_ENSURE_WHY(from <= upload->bytes && bytes <= upload->bytes - from, sort->why,
                  RESOURCE_EXHAUSTED, "too many geometries in one round",
                  "expected at most %zu bytes of descriptions of geometries in one "
                  "round, got %zu",
                  upload->bytes, from + bytes);
    struct vx_set_ranks_member *to = (void *)(upload->host + from);
    for (i32 m = 0; m < count; m++) {
        const struct vx_gpu_rank_member *member = &build->ranks->members[m];
        to[m] = (struct vx_set_ranks_member){member->rows,      sort->key.edges[m],
                                             member->to->rank,  member->to->coords,
                                             member->to->order, member->to->sorted};
        if ((size_t)member->rows > most) most = (size_t)member->rows;
    }
    upload->used = from + bytes;
    struct vx_gpu *gpu = vx_kernel_set_gpu(sort->queue->set);
    VX_TRY(vx_gpu_copy_in(
        gpu, sort->queue->stream,
        &(struct vx_gpu_copy){upload->device + from, upload->host + from, bytes},
        sort->why));
    size_t blocks = (most + VX_RANK_THREADS - 1) / VX_RANK_THREADS;
    size_t enough = (size_t)vx_gpu_caps(gpu)->processors * RANK_BLOCKS;
    const struct vx_set_ranks_args args = {.count = count,
                                           .blocks =
                                               (u32)(blocks < enough ? blocks : enough),
                                           .members = (void *)(upload->device + from),
                                           .keys = sort->key.keys,
                                           .rows = sort->rows};
    return vx_gpu_map_launch(sort->queue, "set_ranks", &args, sort->why);
}

vx_status vx_gpu_ranks_build(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload,
                             const struct vx_gpu_ranks *ranks, struct vx_why *why)
{
    struct build build = {.ranks = ranks, .upload = upload};
    struct vx_gpu_key_sort *sort = &build.sort;
    VX_ASSERT(ranks->count <= VX_BATCH_ITEMS_MAX);
    sort->queue = queue;
    sort->scratch = ranks->scratch;
    sort->why = why;
    sort->key.members = ranks->count;
    for (i32 m = 0; m < ranks->count; m++) {
        sort->key.n += ranks->members[m].rows;
        sort->key.edges[m + 1] = (i32)sort->key.n;
    }
    VX_ASSERT(sort->key.n <= VX_VOXELS_MAX);
    if (!sort->key.n) return VX_OK;
    vx_gpu_key_sort_begin(sort);
    VX_TRY(keys_make(&build));
    VX_TRY(vx_gpu_key_sort_all(sort));
    return ranks_write(&build);
}

i32 vx_gpu_ranks_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {"key_small",   "key_members", "key_starts",
                                        "group_means", "order_clear", "order_digits",
                                        "order_sweep", "set_ranks"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
