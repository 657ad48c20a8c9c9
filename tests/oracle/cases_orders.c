/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order.h"
#include "kernels/05_mask_order.h"
#include "tests/oracle/cases.h"

#include <string.h>

void vx_order_small_ref(const void *args, enum vx_number type);
void vx_order_tiles_ref(const void *args, enum vx_number type);

#define JOBS_MAX 6
/* Fewer than lists have tiles, so that there are several rounds. */
#define TILES_BLOCKS 24
/* Memory begins as ones, so that what nobody clears is seen, and there is more of it than the
 * orders need: with a kernel broken (cases_self.c) the next one reads what was not written, and must
 * stay inside. */
#define BEFORE 1
#define SLACK  ((size_t)1 << 20)

struct shape {
    i64 n;
    i32 v, groups;
    bool gray;
    i32 edge; /* of a kernel whose rows are sorted by their signature; 0 = by the mask */
    i32 run;  /* of the signature */
    bool steep; /* a few rows have all the offsets but one */
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
                                      .kernel = {shape->edge, shape->edge, shape->edge},
                                      .sorted = true,
                                      .gray = shape->gray,
                                      .blocks = TILES_BLOCKS,
                                      .neighbours = true};
}

/* A map of anything: it only moves. */
static i32 *random_map(struct vx_rig *rig, const struct shape *shape)
{
    const size_t count = (size_t)(shape->n * vx_nbr_stride(shape->v));
    i32 *nbr = vx_rig_take(rig, count * 4);
    for (size_t i = 0; i < count; i++) nbr[i] = (i32)(vx_rig_random(rig) % 1000) - 1;
    return nbr;
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
        for (i32 bit = 0; bit < (shape->steep && i % 40 ? 1 : 9); bit++) {
            i32 v = (bit / 3 * 113 + bit % 3 + 3) % shape->v; /* three of one run */
            if (vx_rig_random(rig) & 1) masks[i * words + v / 32] |= 1u << v % 32;
        }
    job->expected =
        (struct vx_mask_order_args){.n = shape->n,
                                    .words = words,
                                    .bits = shape->v / shape->groups,
                                    .run = shape->run,
                                    .groups = shape->groups,
                                    .gray = shape->gray,
                                    .masks = masks,
                                    .rows_out = vx_rig_take(rig, rows * 4),
                                    .block_masks = vx_rig_take(rig, blocks * 4),
                                    .nbr_stride = vx_nbr_stride(shape->v),
                                    .nbr = random_map(rig, shape)};
    vx_order_small_ref(&job->expected, 0);
}

static u8 *take(u8 **memory, size_t bytes)
{
    u8 *at = *memory;
    *memory += vx_round_up(bytes, 256);
    return at;
}

static size_t map_bytes(const struct shape *shape)
{
    return (size_t)(shape->n * vx_nbr_stride(shape->v)) * 4;
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
        u8 *nbr = take(&at, map_bytes(&shapes[i]));
        u8 *order = take(&at, vx_gpu_order_bytes(&want));
        u8 *scratch = take(&at, vx_gpu_order_scratch_bytes(&want));
        if (!memory) continue;
        jobs[i].map = (struct vx_gpu_map){.nbr_stride = vx_nbr_stride(shapes[i].v),
                                          .nbr = (void *)nbr,
                                          .masks = (void *)masks};
        vx_gpu_order_place(&want, order, &jobs[i].map);
        wanted[i] = (struct vx_gpu_order_job){want, &jobs[i].map, scratch};
    }
    return (size_t)(at - memory);
}

static void copy_out(struct vx_rig *rig, void *host, const void *device, size_t bytes)
{
    struct vx_why why = {""};
    vx_rig_need(rig,
                vx_gpu_copy_out(rig->bench.gpu, rig->bench.stream,
                                &(struct vx_gpu_copy){host, device, bytes}, &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(rig->bench.gpu, rig->bench.stream, &why), &why);
}

static bool same(struct vx_rig *rig, const void *device, const void *expected,
                 size_t bytes)
{
    void *host = vx_rig_take(rig, bytes);
    copy_out(rig, host, device, bytes);
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

/* The map in the order of the rows, where there are enough of them. */
static void check_neighbours(struct vx_rig *rig, const struct job *job, i32 index)
{
    const struct vx_mask_order_args *it = &job->expected;
    const size_t count = (size_t)(it->bits * it->n);
    const bool wanted = it->groups == 1 && it->n > VX_ORDER_SMALL_ROWS;
    if (wanted != (job->map.neighbours != NULL))
        vx_rig_fail(rig, "orders, %d of N=%lld: neighbours %s", index, (long long)it->n,
                    wanted ? "are missing" : "where nobody wants them");
    if (!job->map.neighbours) return;
    i32 *expected = vx_rig_take(rig, count * 4);
    for (i32 v = 0; v < it->bits; v++)
        for (i64 place = 0; place < it->n; place++)
            expected[v * it->n + place] =
                it->nbr[(i64)it->rows_out[place] * it->nbr_stride + v];
    if (!same(rig, job->map.neighbours, expected, count * 4))
        vx_rig_fail(rig, "orders, %d of N=%lld %d bits: other neighbours", index,
                    (long long)it->n, it->bits);
}

/* Offsets that the rows of a tile have; what is no tile stays as it is. */
static i32 tile_work(const struct vx_mask_order_args *it, i64 rows, i64 index)
{
    const i64 blocks = vx_mask_blocks(it->n), tiles = (it->n + rows - 1) / rows;
    const i64 first = index % tiles * (rows / VX_MASK_BLOCK);
    i32 count = 0;
    if (index < 0 || index >= tiles * it->groups) return (i32)index;
    for (i32 v = 0; v < it->words * 32; v++) {
        bool there = false;
        for (i64 b = first; b < first + rows / VX_MASK_BLOCK && b < blocks; b++)
            there |= it->block_masks[(index / tiles * blocks + b) * it->words + v / 32] >>
                         v % 32 &
                     1;
        count += there;
    }
    return count;
}

/* Every tile once, and in each place one with as much work as in the reference's list: tiles with
 * as many offsets may stand in any order. */
static void check_tiles(struct vx_rig *rig, const struct job *job, i32 index)
{
    const struct vx_mask_order_args *it = &job->expected;
    struct vx_order_tiles_args args = {.count = 1,
                                       .blocks = TILES_BLOCKS,
                                       .one = {.n = it->n,
                                               .words = it->words,
                                               .groups = it->groups,
                                               .block_masks = it->block_masks}};
    i64 numbers[VX_ORDER_TILES_KINDS];
    for (i32 kind = 0; kind < VX_ORDER_TILES_KINDS; kind++) {
        const i64 count = vx_order_tiles_count(it->n, it->groups, kind);
        numbers[kind] = vx_order_tiles_numbers(count, TILES_BLOCKS);
        args.one.tiles[kind] = vx_rig_take(rig, (size_t)numbers[kind] * 4);
    }
    if (!job->map.tiles[0]) return; /* few rows */
    vx_order_tiles_ref(&args, VX_NUMBER_F32);
    for (i32 kind = 0; kind < VX_ORDER_TILES_KINDS; kind++) {
        const i64 rows = (i64)VX_ORDER_TILES_ROWS << kind;
        const i64 count = vx_order_tiles_count(it->n, it->groups, kind);
        const i32 *expected = args.one.tiles[kind];
        i32 *list = vx_rig_take(rig, (size_t)numbers[kind] * 4);
        bool *met = vx_rig_take(rig, (size_t)count), good = true;
        copy_out(rig, list, job->map.tiles[kind], (size_t)numbers[kind] * 4);
        for (i64 i = 0;
             good && (!i || expected[i - 1] != VX_ORDER_TILES_END || i % TILES_BLOCKS);
             i++) {
            good = tile_work(it, rows, list[i]) == tile_work(it, rows, expected[i]);
            if (!good || list[i] < 0) continue;
            good = !met[list[i]];
            met[list[i]] = true;
        }
        if (!good)
            vx_rig_fail(rig, "orders, %d of N=%lld: a wrong list of tiles of %lld rows",
                        index, (long long)it->n, (long long)rows);
    }
}

static void copy_in(struct vx_rig *rig, void *device, const void *host, size_t bytes)
{
    struct vx_why why = {""};
    vx_rig_need(rig,
                vx_gpu_copy_in(rig->bench.gpu, rig->bench.stream,
                               &(struct vx_gpu_copy){device, host, bytes}, &why),
                &why);
}

static void orders_case(struct vx_rig *rig, const struct shape *shapes, i32 count)
{
    const struct vx_gpu_queue queue = {.set = rig->bench.set,
                                       .stream = rig->bench.stream};
    struct job jobs[JOBS_MAX];
    struct vx_gpu_order_job wanted[JOBS_MAX];
    struct vx_why why = {""};
    const size_t bytes = place(shapes, count, NULL, NULL, NULL);
    u8 *device = vx_rig_device(rig, bytes + SLACK);
    struct vx_gpu_upload upload = {.host = vx_rig_take(rig, VX_GPU_UPLOAD_BYTES),
                                   .device = device,
                                   .bytes = VX_GPU_UPLOAD_BYTES};
    rig->trials++;
    vx_rig_need(rig,
                vx_gpu_fill(rig->bench.gpu, rig->bench.stream,
                            &(struct vx_gpu_words){device, BEFORE, bytes + SLACK}, &why),
                &why);
    (void)place(shapes, count, device, jobs, wanted);
    for (i32 i = 0; i < count; i++) {
        job_make(rig, &shapes[i], &jobs[i]);
        copy_in(rig, jobs[i].map.masks, jobs[i].expected.masks, masks_bytes(&shapes[i]));
        copy_in(rig, jobs[i].map.nbr, jobs[i].expected.nbr, map_bytes(&shapes[i]));
    }
    vx_rig_need(rig, vx_gpu_orders_build(&queue, &upload, wanted, count, &why), &why);
    for (i32 i = 0; i < count; i++) {
        check(rig, &jobs[i], i);
        check_tiles(rig, &jobs[i], i);
        check_neighbours(rig, &jobs[i], i);
    }
    vx_rig_reset(rig);
}

void vx_cases_orders(struct vx_rig *rig)
{
    static const struct {
        i32 count;
        struct shape shapes[JOBS_MAX];
    } lists[] = {
        {1, {{16385, 27, 3, true, 0, 0, false}}},
        {1, {{16400, 27, 1, true, 0, 0, true}}},
        {2, {{1, 27, 1, true, 3, 3, false}, {33, 8, 1, true, 2, 0, false}}},
        {4,
         {{700, 27, 1, true, 3, 3, false},
          {8192, 27, 3, true, 0, 0, false},
          {5, 125, 1, true, 5, 5, false},
          {64, 343, 7, true, 0, 0, false}}},
        {2, {{8193, 27, 1, true, 0, 0, false}, {8193, 27, 1, true, 3, 3, false}}},
        {3,
         {{9001, 27, 1, true, 0, 0, false},
          {40, 8, 1, true, 0, 0, false},
          {2048, 27, 9, false, 0, 0, false}}},
        {4,
         {{12289, 8, 1, true, 0, 0, false},
          {1, 1, 1, true, 1, 0, false},
          {10007, 125, 5, true, 5, 0, false},
          {4096, 27, 1, true, 0, 0, false}}},
        {6,
         {{20001, 343, 1, true, 7, 13, false},
          {8300, 343, 1, true, 7, 13, false},
          {9100, 125, 1, false, 5, 5, false},
          {2049, 27, 1, false, 0, 0, false},
          {31, 32, 1, true, 0, 0, false},
          {17001, 27, 3, true, 3, 0, false}}},
        {1, {{600001, 27, 1, true, 0, 0, false}}},
        {1, {{131072, 27, 1, true, 3, 3, false}}},
        {2, {{300001, 27, 1, true, 3, 3, false}, {70001, 27, 1, true, 3, 3, false}}},
        {1, {{2500001, 27, 1, false, 3, 3, false}}},
    };
    static const char *const names[] = {"order_small_many",  "order_clear_many",
                                        "order_digits_many", "order_sweep_many",
                                        "order_blocks_many", "order_tiles"};
    /* The last ones are for a device: more tiles than order_tiles looks at in one round, ranks of
     * 18, 27 and 32 bits, and more tiles of a sweep than a device has at once. */
    const size_t counts[] = {[VX_RIG_FULL] = VX_COUNT(lists),
                             [VX_RIG_FAKE] = VX_COUNT(lists) - 4,
                             [VX_RIG_SMALL] = 6};
    const size_t count = counts[rig->size];
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
