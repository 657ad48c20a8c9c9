/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order.h"
#include "kernels/05_mask_order.h"
#include "tests/oracle/cases.h"

#include <string.h>

void vx_order_small_ref(const void *args, enum vx_number type);

#define JOBS_MAX 6

struct shape {
    i64 n;
    i32 v, groups;
    bool gray;
};

/* One order of several: where it lies in the device's memory, and what is expected. */
struct job {
    struct vx_mask_order_args expected; /* host */
    struct vx_gpu_map map;              /* device */
    size_t order_bytes;
};

static struct vx_gpu_order_want want_of(const struct shape *shape)
{
    return (struct vx_gpu_order_want){.n = shape->n,
                                      .v = shape->v,
                                      .groups = shape->groups,
                                      .sorted = true,
                                      .gray = shape->gray};
}

/* Some bits of every mask, so that many rows are equal and the order must be stable. */
static void job_make(struct vx_rig *rig, const struct shape *shape, struct job *job)
{
    const i32 words = vx_mask_words(shape->v);
    const size_t rows = (size_t)(shape->groups * shape->n);
    const size_t blocks =
        (size_t)(shape->groups * vx_mask_blocks(shape->n)) * (size_t)words;
    u32 *masks = vx_rig_take(rig, (size_t)(shape->n * words) * 4);
    for (i64 i = 0; i < shape->n; i++)
        for (i32 bit = 0; bit < 9; bit++) {
            i32 v = (bit * 41 + 3) % shape->v;
            if (vx_rig_random(rig) & 1) masks[i * words + v / 32] |= 1u << v % 32;
        }
    job->expected =
        (struct vx_mask_order_args){.n = shape->n,
                                    .words = words,
                                    .bits = shape->v / shape->groups,
                                    .groups = shape->groups,
                                    .gray = shape->gray,
                                    .masks = masks,
                                    .rows_out = vx_rig_take(rig, rows * 4),
                                    .block_masks = vx_rig_take(rig, blocks * 4)};
    vx_order_small_ref(&job->expected, 0);
}

static u8 *take(u8 **memory, size_t bytes)
{
    u8 *at = *memory;
    *memory += vx_round_up(bytes, 256);
    return at;
}

static size_t masks_bytes(const struct shape *shape)
{
    return (size_t)(shape->n * vx_mask_words(shape->v)) * 4;
}

/* Places what the jobs need behind the upload; memory NULL: counts the bytes. */
static size_t place(const struct shape *shapes, i32 count, u8 *memory, struct job *jobs,
                    struct vx_gpu_order_job *wanted)
{
    u8 *at = memory;
    (void)take(&at, VX_GPU_UPLOAD_BYTES);
    for (i32 i = 0; i < count; i++) {
        const struct vx_gpu_order_want want = want_of(&shapes[i]);
        u8 *masks = take(&at, masks_bytes(&shapes[i]));
        u8 *order = take(&at, vx_gpu_order_bytes(&want));
        u8 *scratch = take(&at, vx_gpu_order_scratch_bytes(&want));
        if (!memory) continue;
        jobs[i].map = (struct vx_gpu_map){.masks = (void *)masks};
        vx_gpu_order_place(&want, order, &jobs[i].map);
        wanted[i] = (struct vx_gpu_order_job){want, &jobs[i].map, scratch};
    }
    return (size_t)(at - memory);
}

static bool same(struct vx_rig *rig, const void *device, const void *expected,
                 size_t bytes)
{
    struct vx_why why = {""};
    void *host = vx_rig_take(rig, bytes);
    vx_rig_need(rig,
                vx_gpu_copy_out(rig->bench.gpu, rig->bench.stream,
                                &(struct vx_gpu_copy){host, device, bytes}, &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(rig->bench.gpu, rig->bench.stream, &why), &why);
    return !memcmp(host, expected, bytes);
}

static void check(struct vx_rig *rig, const struct job *job, i32 index)
{
    const struct vx_mask_order_args *it = &job->expected;
    const size_t blocks = (size_t)(it->groups * vx_mask_blocks(it->n) * it->words) * 4;
    if (!same(rig, job->map.order, it->rows_out, (size_t)(it->groups * it->n) * 4))
        vx_rig_fail(rig,
                    "orders, %d of N=%lld %d bits: another order than the stable one",
                    index, (long long)it->n, it->bits);
    if (!same(rig, job->map.block_masks, it->block_masks, blocks))
        vx_rig_fail(rig, "orders, %d of N=%lld %d bits: other block masks", index,
                    (long long)it->n, it->bits);
}

static void orders_case(struct vx_rig *rig, const struct shape *shapes, i32 count)
{
    const struct vx_gpu_queue queue = {.set = rig->bench.set,
                                       .stream = rig->bench.stream};
    struct job jobs[JOBS_MAX];
    struct vx_gpu_order_job wanted[JOBS_MAX];
    struct vx_why why = {""};
    const size_t bytes = place(shapes, count, NULL, NULL, NULL);
    u8 *device = vx_rig_device(rig, bytes);
    struct vx_gpu_upload upload = {vx_rig_take(rig, VX_GPU_UPLOAD_BYTES), device,
                                   VX_GPU_UPLOAD_BYTES, 0};
    rig->trials++;
    vx_rig_need(rig,
                vx_gpu_fill(rig->bench.gpu, rig->bench.stream,
                            &(struct vx_gpu_words){device, 0x7fff7fff, bytes}, &why),
                &why);
    (void)place(shapes, count, device, jobs, wanted);
    for (i32 i = 0; i < count; i++) {
        job_make(rig, &shapes[i], &jobs[i]);
        vx_rig_need(rig,
                    vx_gpu_copy_in(rig->bench.gpu, rig->bench.stream,
                                   &(struct vx_gpu_copy){jobs[i].map.masks,
                                                         jobs[i].expected.masks,
                                                         masks_bytes(&shapes[i])},
                                   &why),
                    &why);
    }
    vx_rig_need(rig, vx_gpu_orders_build(&queue, &upload, wanted, count, &why), &why);
    for (i32 i = 0; i < count; i++) check(rig, &jobs[i], i);
    vx_rig_reset(rig);
}

void vx_cases_orders(struct vx_rig *rig)
{
    static const struct {
        i32 count;
        struct shape shapes[JOBS_MAX];
    } lists[] = {
        {2, {{1, 27, 1, true}, {33, 8, 1, true}}},
        {4,
         {{700, 27, 1, true},
          {8192, 27, 3, true},
          {5, 125, 1, true},
          {64, 343, 7, true}}},
        {2, {{8193, 27, 1, true}, {8193, 27, 1, true}}},
        {3, {{9001, 27, 1, true}, {40, 8, 1, true}, {2048, 27, 9, false}}},
        {4,
         {{12289, 8, 1, true},
          {1, 1, 1, true},
          {10007, 125, 5, true},
          {4096, 27, 1, true}}},
        {3, {{20001, 343, 1, true}, {2049, 27, 1, false}, {31, 32, 1, true}}},
    };
    static const char *const names[] = {"order_small_many", "order_count_many",
                                        "order_scan_many", "order_scatter_many",
                                        "order_blocks_many"};
    const size_t count = rig->size == VX_RIG_SMALL ? 4 : VX_COUNT(lists);
    const struct vx_jit_wanted *kernel = NULL;
    bool wants = false;
    for (size_t k = 0; k < VX_COUNT(names); k++)
        while ((kernel = vx_rig_next(rig, names[k], kernel))) {
            vx_rig_mark(rig, kernel);
            wants = true;
        }
    for (size_t l = 0; wants && l < count; l++)
        orders_case(rig, lists[l].shapes, lists[l].count);
}
