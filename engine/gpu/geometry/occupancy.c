/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/occupancy.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/top.h"
#include "kernels/26_set_occupancy.h"

#include <string.h>

/* What aligning a description may take: see upload.c. */
#define DESCRIPTION_ALIGN 64
/* Blocks that a processor holds of set_occupancy. */
#define OCCUPANCY_BLOCKS 2

struct vx_jit_wanted vx_gpu_typed_wanted(const char *name, enum vx_number type)
{
    struct vx_jit_wanted wanted = vx_gpu_map_wanted(name, 0);
    /* TF32 concerns only matrix products. */
    wanted.type = type == VX_NUMBER_TF32 ? VX_NUMBER_F32 : type;
    VX_ASSERT(wanted.spec->types & 1u << wanted.type);
    return wanted;
}

/* The set of all requests that are not left out. */
struct work {
    const struct vx_gpu_levels *levels;
    i32 set;
    const u32 *kept; /* rows of all requests, or NULL */
    i32 members[VX_BATCH_ITEMS_MAX];
    i64 firsts[VX_BATCH_ITEMS_MAX]; /* of each request, on the set that it is made from */
    i32 count;
    i64 rows; /* of all members */
};

static i64 from_rows(const struct work *work, i32 request)
{
    const struct vx_gpu_levels *levels = work->levels;
    const i32 from = levels->keys[work->set].from;
    return levels->stage.rows[(i64)request * levels->sets_count + from];
}

static void members_collect(struct work *work)
{
    i64 first = 0;
    work->count = 0;
    work->rows = 0;
    for (i32 r = 0; r < work->levels->requests_count; r++) {
        const i64 rows = from_rows(work, r);
        work->firsts[r] = first;
        first += rows;
        if (work->levels->stage.left[r] || !rows) continue;
        work->members[work->count++] = r;
        work->rows += rows;
    }
}

/* A request's share, by rows, of the blocks that the device holds. */
static u32 share(struct vx_kernel_set *set, const struct work *work, i64 rows, i64 parts)
{
    i64 all = (i64)vx_gpu_caps(vx_kernel_set_gpu(set))->processors * OCCUPANCY_BLOCKS;
    i64 each = VX_SET_THREADS / 32 * VX_OCCUPANCY_TASKS;
    i64 blocks = all * rows / work->rows, enough = (rows * parts + each - 1) / each;
    if (blocks > enough) blocks = enough;
    return blocks < 1 ? 1 : (u32)blocks;
}

static struct vx_occupancy_set describe(struct vx_kernel_set *set,
                                        const struct work *work, i32 request)
{
    const struct vx_gpu_levels *levels = work->levels;
    const struct vx_set_key *key = &levels->keys[work->set];
    const struct vx_brick_set *sets = levels->sets + (i64)request * levels->sets_count;
    const struct vx_gpu_logits *logits = &levels->stage.logits[work->set];
    const i64 first = work->firsts[request], rows = from_rows(work, request);
    const i64 bytes = vx_number_bytes(levels->stage.type);
    const i64 parts = (i64)key->stride[0] * key->stride[1] * key->stride[2];
    struct vx_occupancy_set it = {.n = rows,
                                  .to = sets[work->set],
                                  .from = sets[key->from],
                                  .logits = (const u8 *)logits->rows +
                                            first * logits->cp * bytes,
                                  .kept = work->kept ? work->kept + first : NULL,
                                  .cp = logits->cp,
                                  .blocks = share(set, work, rows, parts)};
    VX_ASSERT(parts <= logits->cp);
    memcpy(it.stride, key->stride, sizeof it.stride);
    return it;
}

static vx_status launch(const struct vx_gpu_queue *queue, struct vx_gpu_upload *upload,
                        const struct work *work, struct vx_why *why)
{
    const size_t bytes = (size_t)work->count * sizeof(struct vx_occupancy_set);
    size_t at;
    VX_ENSURE_WHY(upload->used + DESCRIPTION_ALIGN + bytes <= upload->bytes, why,
                  RESOURCE_EXHAUSTED, "too many geometries in one round",
                  "expected at most %zu bytes of descriptions of geometries in one "
                  "round, got %zu",
                  upload->bytes, upload->used + bytes);
    struct vx_occupancy_set *to = vx_gpu_upload_take(upload, bytes, &at);
    struct vx_set_occupancy_args args = {.count = work->count,
                                         .sets = (void *)(upload->device + at),
                                         .seed = vx_kernel_set_seed(queue->set)};
    for (i32 m = 0; m < work->count; m++) {
        to[m] = describe(queue->set, work, work->members[m]);
        if (to[m].blocks > args.blocks) args.blocks = to[m].blocks;
    }
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    const enum vx_number type = work->levels->stage.type;
    struct vx_jit_wanted kernel = vx_gpu_typed_wanted("set_occupancy", type);
    VX_TRY(vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why));
    kernel = vx_gpu_typed_wanted("occupancy_fault", type);
    return vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why);
}

vx_status vx_gpu_occupancy_build(const struct vx_gpu_queue *queue,
                                 struct vx_gpu_upload *upload,
                                 const struct vx_gpu_levels *levels, i32 set,
                                 struct vx_why *why)
{
    const struct vx_set_key *key = &levels->keys[set];
    struct work work = {.levels = levels, .set = set};
    VX_ASSERT(levels->stage.now > levels->stage.of[key->from]);
    members_collect(&work);
    if (!work.count) return VX_OK;
    if (key->top) VX_TRY(vx_gpu_top_build(queue, upload, levels, set, why));
    if (key->top) work.kept = vx_gpu_top_kept(levels, set);
    return launch(queue, upload, &work, why);
}

i32 vx_gpu_occupancy_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const typed[] = {"set_occupancy", "occupancy_fault", "top_keys"};
    static const char *const names[] = {"top_mark",    "key_members",  "key_starts",
                                        "order_clear", "order_digits", "order_sweep"};
    i32 count = vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
    VX_ASSERT(count + (i32)VX_COUNT(typed) <= room);
    for (size_t i = 0; i < VX_COUNT(typed); i++)
        wanted[count++] = vx_gpu_typed_wanted(typed[i], type);
    return count;
}
