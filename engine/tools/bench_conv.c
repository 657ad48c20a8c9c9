/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/bench.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

#define MAP_KERNELS_MAX 64
#define DENSE_EDGE      8192  /* of the dense product: the same as for other libraries */
#define DENSE_EDGE_FAKE 64    /* a reference in C computes it: enough to run every line */
#define VENDOR_ROWS     65536 /* of the vendor's product: enough to fill any device */

/* --- what a tile executes --- */

i64 vx_bench_union(const u32 *block_masks, i64 blocks, i32 words, i32 tile_rows)
{
    const i64 step = tile_rows / VX_MASK_BLOCK > 1 ? tile_rows / VX_MASK_BLOCK : 1;
    i64 executed = 0;
    for (i64 first = 0; first < blocks; first += step) {
        i64 end = first + step < blocks ? first + step : blocks;
        for (i32 word = 0; word < words; word++) {
            u32 all = 0;
            for (i64 block = first; block < end; block++)
                all |= block_masks[block * words + word];
            executed += (i64)__builtin_popcount(all) * tile_rows;
        }
    }
    return executed;
}

/* The rows of one tile of the choice: its macro VX_TILE_N. */
static i32 bench_tile_rows(const struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    for (i32 i = 0; spec->tiles && i < spec->macros_count; i++)
        if (!strcmp(spec->macros[i], "VX_TILE_N"))
            return spec->tiles[choice->tile].values[i];
    return 1;
}

static vx_status bench_executed_masked(struct vx_harness *harness, i32 rows,
                                       struct vx_why *why, i64 *executed)
{
    const struct vx_gpu_map *map = &harness->map;
    const i64 blocks = vx_mask_blocks(harness->problem.n);
    const size_t count = (size_t)map->groups * (size_t)blocks * (size_t)map->words;
    u32 *masks = vx_alloc(count * sizeof *masks);
    VX_ENSURE(masks, RESOURCE_EXHAUSTED, "no memory to count what tiles execute");
    vx_status status = vx_gpu_copy_out(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){masks, map->block_masks, count * sizeof *masks}, why);
    if (!status.fault)
        status = vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
    *executed = 0;
    for (i32 group = 0; group < map->groups && !status.fault; group++)
        *executed +=
            vx_bench_union(masks + (size_t)group * (size_t)blocks * (size_t)map->words,
                           blocks, map->words, rows);
    vx_free(masks);
    return status;
}

/* The pairs of each offset, rounded up to whole tiles. */
static vx_status bench_executed_pairs(struct vx_harness *harness, i32 rows,
                                      struct vx_why *why, i64 *executed)
{
    const i64 n = harness->problem.n;
    const i32 words = harness->map.words;
    i64 counts[VX_KERNEL_OFFSETS_MAX] = {0};
    u32 *masks = vx_alloc((size_t)n * (size_t)words * sizeof *masks);
    VX_ENSURE(masks, RESOURCE_EXHAUSTED, "no memory to count what tiles execute");
    vx_status status =
        vx_gpu_copy_out(harness->gpu, harness->queue.stream,
                        &(struct vx_gpu_copy){masks, harness->map.masks,
                                              (size_t)n * (size_t)words * sizeof *masks},
                        why);
    if (!status.fault)
        status = vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
    for (i64 i = 0; i < n && !status.fault; i++)
        for (i32 v = 0; v < harness->problem.v; v++)
            counts[v] += masks[i * words + v / 32] >> (v % 32) & 1;
    *executed = 0;
    for (i32 v = 0; v < harness->problem.v; v++)
        *executed += (counts[v] + rows - 1) / rows * rows;
    vx_free(masks);
    return status;
}

vx_status vx_bench_executed(struct vx_harness *harness, struct vx_why *why, i64 *executed)
{
    const i32 rows = bench_tile_rows(&harness->choice);
    if (harness->problem.v > 1 && vx_conv_sorted(harness->choice.algorithm))
        return bench_executed_masked(harness, rows, why, executed);
    if (harness->problem.v > 1 && harness->choice.algorithm == VX_CONV_PAIRS_LIST)
        return bench_executed_pairs(harness, rows, why, executed);
    *executed = (harness->problem.n + rows - 1) / rows * rows * harness->problem.v;
    return VX_OK;
}

/* --- one convolution --- */

struct vx_bench_set vx_bench_set_of_shape(const struct vx_shape *shape)
{
    struct vx_bench_set set = {.n = vx_shape_shell_count(shape->res),
                               .channels = shape->channels,
                               .layers = shape->layers};
    snprintf(set.name, sizeof set.name, "%d", shape->res);
    return set;
}

static vx_status bench_conv_run(void *context, struct vx_why *why)
{
    struct vx_harness *harness = context;
    return vx_harness_run(harness, harness->out, why);
}

static void bench_problem(const struct vx_bench *bench, i64 n, i32 channels, i32 edge,
                          struct vx_conv_problem *problem)
{
    const i32 padded = vx_channels_padded(channels);
    *problem = (struct vx_conv_problem){.n = n,
                                        .kernel = {edge, edge, edge},
                                        .v = edge * edge * edge,
                                        .ci = padded,
                                        .co = padded,
                                        .type = bench->type};
}

/* Of numbers of 8 bits there are only tiles that stream. */
static vx_status bench_check_fp8(const struct vx_bench *bench,
                                 const struct vx_conv_problem *problem,
                                 struct vx_why *why)
{
    struct vx_conv_problem halves = *problem;
    halves.type = VX_NUMBER_F16;
    VX_ENSURE_WHY(
        problem->type != VX_NUMBER_E4M3 ||
            vx_conv_multiplies_e4m3(&halves, vx_gpu_caps(bench->bench.gpu)),
        why, INVALID_ARGUMENT, "a shape that is not computed in FP8",
        "--type fp8: expected a Hopper GPU and a multiple of 32 channels from 64 "
        "on, got %s and %d channels",
        vx_gpu_arch(bench->bench.gpu), problem->ci);
    return VX_OK;
}

/* The pick, with the tile of --tile if that is given. */
static vx_status bench_choose(const struct vx_bench *bench,
                              const struct vx_conv_problem *problem, struct vx_why *why,
                              struct vx_conv_choice *choice)
{
    VX_TRY(bench_check_fp8(bench, problem, why));
    (void)vx_pick_conv(&bench->pick, problem, choice);
    if (bench->tile < 0) return VX_OK;
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    choice->tile = bench->tile;
    bool good = bench->tile < spec->tiles_count &&
                vx_conv_fits(problem, choice, vx_gpu_caps(bench->bench.gpu));
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "the tile does not fit the shape",
                  "expected a tile of %s from 0 to %d that fits the shape, got %d",
                  vx_conv_name(choice->algorithm), spec->tiles_count - 1, bench->tile);
    return VX_OK;
}

static vx_status bench_ready(struct vx_bench *bench,
                             const struct vx_conv_problem *problem,
                             const struct vx_conv_choice *choice, struct vx_why *why)
{
    struct vx_jit_wanted wanted[MAP_KERNELS_MAX + VX_CONV_KERNELS_MAX];
    i32 count = vx_gpu_map_kernels(wanted, MAP_KERNELS_MAX);
    VX_ASSERT(count <= MAP_KERNELS_MAX);
    count += vx_conv_kernels(problem, choice, wanted + count);
    return vx_kernel_set_ready(bench->bench.set, wanted, count, NULL, why);
}

static vx_status bench_use(struct vx_bench *bench, const struct vx_conv_problem *problem,
                           const struct vx_conv_choice *choice, struct vx_why *why)
{
    VX_TRY(bench_ready(bench, problem, choice, why));
    return vx_harness_use(bench->harness, choice, why);
}

/* Loads the problem into the harness, with its choice.  `coords`: NULL = a shell.  The
 * fill of a cloud is known when its map is made; then the choice may be another one. */
static vx_status bench_load(struct vx_bench *bench, const struct vx_conv_problem *problem,
                            const i32 *coords, struct vx_why *why)
{
    const struct vx_harness_geometry geometry = {.coords = coords};
    struct vx_conv_problem counted = *problem;
    struct vx_conv_choice choice, first;
    VX_TRY(bench_choose(bench, problem, why, &first));
    VX_TRY(bench_ready(bench, problem, &first, why));
    VX_TRY(vx_harness_load(bench->harness, problem, &geometry, why));
    VX_TRY(vx_harness_use(bench->harness, &first, why));
    if (!coords || problem->v == 1 || bench->tile >= 0) return VX_OK;
    counted.fill = bench->harness->problem.fill;
    VX_TRY(bench_choose(bench, &counted, why, &choice));
    if (!memcmp(&choice, &first, sizeof choice)) return VX_OK;
    return bench_use(bench, problem, &choice, why);
}

static vx_status bench_row_of(struct vx_harness *harness, struct vx_why *why,
                              struct vx_bench_row *row)
{
    const struct vx_conv_problem *problem = &harness->problem;
    const f64 element = vx_number_bytes(problem->type);
    const f64 multiply_add = 2.0 * problem->ci * problem->co;
    i64 executed;
    VX_TRY(vx_bench_executed(harness, why, &executed));
    row->n = problem->n;
    row->pairs = harness->pairs;
    row->ci = problem->ci;
    row->co = problem->co;
    row->v = problem->v;
    row->type = problem->type;
    row->choice = &harness->choice;
    row->spec = vx_conv_spec(harness->choice.algorithm);
    row->flops_useful = multiply_add * (f64)harness->pairs;
    row->flops_executed = multiply_add * (f64)executed;
    row->bytes = element * ((f64)problem->n * (problem->ci + problem->co) +
                            (f64)problem->v * problem->ci * problem->co);
    /* To read any map takes at least one 4-byte entry for each pair. */
    if (problem->v > 1) row->bytes += 4.0 * (f64)harness->pairs;
    return VX_OK;
}

/* One request of a network of L equal layers: builds the map, then runs L convolutions.
 * The layers share their weights, which are read again for each layer only if they do not
 * fit in the cache. */
struct infer {
    struct vx_harness *harness;
    i32 layers;
};

static vx_status bench_infer_run(void *context, struct vx_why *why)
{
    const struct infer *infer = context;
    if (infer->harness->problem.v > 1) VX_TRY(vx_harness_map_run(infer->harness, why));
    for (i32 layer = 0; layer < infer->layers; layer++)
        VX_TRY(vx_harness_run(infer->harness, infer->harness->out, why));
    return VX_OK;
}

static vx_status bench_infer(struct vx_bench *bench, const struct vx_bench_row *conv,
                             i32 layers, struct vx_why *why)
{
    struct infer infer = {bench->harness, layers};
    struct vx_bench_row row = *conv;
    struct vx_harness_timing timing = {
        .run = bench_infer_run, .context = &infer, .graph = true};
    row.what = "infer";
    snprintf(row.shape, sizeof row.shape, "%.20s:%d", conv->shape, layers);
    row.flops_useful *= layers;
    row.flops_executed *= layers;
    row.bytes *= layers;
    return vx_bench_time(bench, &timing, &row, why);
}

/* The vendor's product of as many channels: what the convolution would be if every row had
 * all neighbours, and they lay side by side.  More rows would not make it faster. */
static vx_status bench_ceiling(struct vx_bench *bench,
                               const struct vx_conv_problem *problem,
                               struct vx_bench_row *row, struct vx_why *why)
{
    const i64 rows = problem->n < VENDOR_ROWS ? problem->n : VENDOR_ROWS;
    return vx_bench_vendor(bench,
                           &(struct vx_bench_product){
                               row->shape, rows, problem->v * problem->ci, problem->co},
                           why, &row->ceiling);
}

/* Every tile of the algorithm that fits, one after the other. */
static vx_status bench_tiles(struct vx_bench *bench, const struct vx_bench_set *set,
                             struct vx_why *why)
{
    struct vx_conv_problem problem;
    struct vx_conv_choice choice;
    vx_status status = VX_OK;
    bench_problem(bench, set->n, set->channels, bench->kernel, &problem);
    VX_TRY(bench_check_fp8(bench, &problem, why));
    (void)vx_pick_conv(&bench->pick, &problem, &choice);
    const i32 count = vx_conv_spec(choice.algorithm)->tiles_count;
    for (choice.tile = 0; choice.tile < count && !status.fault; choice.tile++) {
        if (!vx_conv_fits(&problem, &choice, vx_gpu_caps(bench->bench.gpu))) continue;
        bench->tile = choice.tile;
        status = vx_bench_conv(bench, set, why);
    }
    bench->tile = VX_BENCH_TILE_ALL;
    return status;
}

vx_status vx_bench_conv(struct vx_bench *bench, const struct vx_bench_set *set,
                        struct vx_why *why)
{
    if (bench->tile == VX_BENCH_TILE_ALL) return bench_tiles(bench, set, why);
    struct vx_conv_problem problem;
    struct vx_bench_row row = {.what = "conv"};
    struct vx_harness_timing timing = {
        .run = bench_conv_run, .context = bench->harness, .graph = true};
    snprintf(row.shape, sizeof row.shape, "%s:%d", set->name, set->channels);
    bench_problem(bench, set->n, set->channels, bench->kernel, &problem);
    VX_TRY(bench_load(bench, &problem, set->coords, why));
    VX_TRY(bench_row_of(bench->harness, why, &row));
    VX_TRY(bench_ceiling(bench, &problem, &row, why));
    VX_TRY(vx_bench_time(bench, &timing, &row, why));
    timing.cold = true;
    VX_TRY(vx_bench_time(bench, &timing, &row, why));
    return set->layers > 1 ? bench_infer(bench, &row, set->layers, why) : VX_OK;
}

/* --- the map of a convolution --- */

static vx_status bench_map_run(void *context, struct vx_why *why)
{
    return vx_harness_map_run(context, why);
}

vx_status vx_bench_map(struct vx_bench *bench, const struct vx_bench_set *set,
                       struct vx_why *why)
{
    struct vx_conv_problem problem;
    struct vx_bench_row row = {.what = "map"};
    struct vx_harness_timing timing = {
        .run = bench_map_run, .context = bench->harness, .graph = true};
    snprintf(row.shape, sizeof row.shape, "%s:%d", set->name, set->channels);
    bench_problem(bench, set->n, set->channels, bench->kernel, &problem);
    VX_ENSURE_WHY(problem.v > 1, why, INVALID_ARGUMENT, "a kernel of 1 has no map",
                  "expected --kernel of at least 3 for the list \"map\"");
    VX_TRY(bench_load(bench, &problem, set->coords, why));
    row.n = problem.n;
    row.pairs = bench->harness->pairs;
    row.v = problem.v;
    row.choice = &bench->harness->choice;
    /* Coordinates read once; the map and its masks written once. */
    row.bytes = (f64)problem.n *
                (16 + 4.0 * vx_nbr_stride(problem.v) + 4.0 * vx_mask_words(problem.v));
    VX_TRY(vx_bench_time(bench, &timing, &row, why));
    timing.graph = false;
    return vx_bench_time(bench, &timing, &row, why);
}

/* --- ceilings --- */

static vx_status bench_dense(struct vx_bench *bench, struct vx_why *why)
{
    const i32 edge = bench->bench.fake ? DENSE_EDGE_FAKE : DENSE_EDGE;
    const struct vx_pick pick = bench->pick;
    const i32 tile = bench->tile;
    struct vx_conv_problem problem;
    struct vx_bench_row row = {.what = "dense"};
    struct vx_harness_timing timing = {
        .run = bench_conv_run, .context = bench->harness, .graph = true};
    snprintf(row.shape, sizeof row.shape, "%d^3", edge);
    bench_problem(bench, edge, edge, 1, &problem);
    /* A layer of one offset has no map, and only IMPLICIT needs none. */
    bench->pick.algorithm = VX_CONV_IMPLICIT;
    bench->tile = -1;
    vx_status status = bench_load(bench, &problem, NULL, why);
    bench->pick = pick;
    bench->tile = tile;
    VX_TRY(status);
    VX_TRY(bench_row_of(bench->harness, why, &row));
    VX_TRY(vx_bench_time(bench, &timing, &row, why));
    VX_TRY(vx_bench_vendor(bench, &(struct vx_bench_product){row.shape, edge, edge, edge},
                           why, &bench->dense_rate));
    if (!(bench->dense_rate > 0) && row.median > 0)
        bench->dense_rate = row.flops_useful / row.median;
    return VX_OK;
}

vx_status vx_bench_ceilings(struct vx_bench *bench, struct vx_why *why)
{
    VX_TRY(vx_bench_pointwise(bench, NULL, why));
    return bench_dense(bench, why);
}
