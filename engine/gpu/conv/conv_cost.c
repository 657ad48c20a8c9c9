/* The cost model: estimates with few constants how long a choice takes, to rank choices.
 * In production the table of measurements decides where it has a row (engine/tune).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/conv/conv.h"

/* Measured on an H200: how fast one processor reads from the second-level cache, and how
 * fast it multiplies 16-bit numbers, with and without wgmma. */
#define CACHE_BYTES_PER_NS  36.0
#define WGMMA_FLOPS_PER_NS  5000.0
#define MMA_FLOPS_PER_NS    3000.0
#define FMA_FLOPS_PER_NS    350.0
#define MEMORY_BYTES_PER_NS 4000.0 /* of the whole device */
#define CLOCK_MHZ           1980.0

/* The fixed time of a block: it reads row numbers, neighbours and the first rows, and
 * writes the sums. */
#define BLOCK_NS  3000.0
#define STAGE_NS  700.0 /* from the request of a stage to its arrival */
#define TURN_NS   120.0 /* overhead of the step to the next stage */
#define LAUNCH_NS 2500.0
/* Of tiles that stream, measured on an H200: how fast one processor reads and multiplies,
 * and what the end of a tile costs it, for each sum of a thread. */
#define STREAM_BYTES_PER_NS 60.0
#define STREAM_FLOPS_PER_NS 5300.0
#define STREAM_BLOCK_NS     300.0
#define STREAM_SUM_NS       23.0

#define FILL_DEFAULT 0.47 /* pairs / (N*V) of surfaces */

enum { TILE_N, TILE_CO, TILE_CI, STAGES, WARPS_N, WARPS_CO, MULTIPLY };

/* How many rows a tile computes for each row that has the offset; fitted to measured
 * counts.  The waste is large while there are fewer rows than different masks; it falls
 * at fewer rows if a group has fewer offsets. */
static f64 waste(const struct vx_conv_problem *problem, const struct vx_tile *tile,
                 i32 groups)
{
    f64 rows = 15000.0 * tile->values[TILE_N] / 64;
    f64 most = 1.1;
    if (groups > 1) most = 0.8, rows /= groups < 9 ? 4 : 30;
    /* Approximates (n / rows)^0.8 without libm. */
    f64 x = (f64)problem->n / rows;
    f64 power = x < 1 ? x * (1.3 - 0.3 * x) : 0.6 * x + 0.4;
    return 1.0 + most / (1.0 + power);
}

/* Offsets that a tile computes for each of its rows, over all groups. */
static f64 offsets_run(const struct vx_conv_problem *problem,
                       const struct vx_conv_choice *choice, const struct vx_tile *tile)
{
    i32 groups = vx_conv_groups(problem, choice->algorithm);
    f64 useful = (problem->fill > 0 ? problem->fill : FILL_DEFAULT) * problem->v;
    if (choice->algorithm == VX_CONV_PAIRS_LIST) return useful;
    if (!vx_conv_sorted(choice->algorithm)) return problem->v;
    f64 run = useful * waste(problem, tile, groups);
    return run < problem->v ? run : problem->v;
}

static f64 flops_per_ns(const struct vx_conv_problem *problem, const struct vx_tile *tile)
{
    if (problem->type == VX_NUMBER_F32) return FMA_FLOPS_PER_NS;
    if (tile->values[MULTIPLY] != VX_MULTIPLY_MMA) return WGMMA_FLOPS_PER_NS;
    return problem->type == VX_NUMBER_TF32 ? MMA_FLOPS_PER_NS / 2 : MMA_FLOPS_PER_NS;
}

static f64 smaller(f64 a, f64 b)
{
    return a < b ? a : b;
}
static f64 larger(f64 a, f64 b)
{
    return a > b ? a : b;
}

/* The time of the memory traffic and launches that an algorithm adds to its products. */
static f64 aside_ns(const struct vx_conv_problem *problem,
                    const struct vx_conv_choice *choice, f64 memory)
{
    f64 n = (f64)problem->n, groups = vx_conv_groups(problem, choice->algorithm);
    f64 fill = problem->fill > 0 ? problem->fill : FILL_DEFAULT;
    switch (choice->algorithm) {
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT: return LAUNCH_NS + 8.0 * groups * n * problem->co / memory;
    case VX_CONV_PAIRS_LIST:
        return 4 * LAUNCH_NS +
               (8.0 * fill * problem->co + 12.0) * problem->v * n / memory;
    case VX_CONV_EXPLICIT:
        return LAUNCH_NS + 2.0 * vx_number_bytes(problem->type) * problem->v * n *
                               problem->ci / memory;
    default: return 0;
    }
}

/* A processor takes its share of the tiles one after the other, and waits only for the
 * first stages. */
static f64 stream_ns(const struct vx_tile *tile, f64 tiles, f64 stages, f64 processors)
{
    const i32 *t = tile->values;
    f64 bytes = (f64)(t[TILE_N] + t[TILE_CO]) * t[TILE_CI] * 2;
    f64 flops = 2.0 * t[TILE_N] * t[TILE_CO] * t[TILE_CI];
    f64 stage = larger(bytes / STREAM_BYTES_PER_NS, flops / STREAM_FLOPS_PER_NS);
    f64 end = STREAM_BLOCK_NS + STREAM_SUM_NS * t[TILE_N] * t[TILE_CO] / 256.0;
    f64 busy = (f64)(i64)((tiles + processors - 1) / processors);
    return BLOCK_NS + busy * (stages * stage + end);
}

f64 vx_conv_cost(const struct vx_conv_problem *problem,
                 const struct vx_conv_choice *choice, const struct vx_caps *caps)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    const struct vx_tile *tile = &spec->tiles[choice->tile];
    const i32 *t = tile->values;
    f64 speed = caps->clock_mhz / CLOCK_MHZ, processors = caps->processors;
    f64 groups = vx_conv_groups(problem, choice->algorithm);
    i64 tiles_n = (problem->n + t[TILE_N] - 1) / t[TILE_N];
    i64 tiles_co = (problem->co + t[TILE_CO] - 1) / t[TILE_CO];
    f64 tiles = (f64)(tiles_n * tiles_co) * groups;
    f64 stages = offsets_run(problem, choice, tile) / groups * problem->ci / t[TILE_CI];
    if (t[MULTIPLY] == VX_MULTIPLY_STREAM) {
        if (problem->ci % t[TILE_CI])
            stages += offsets_run(problem, choice, tile) / groups;
        return LAUNCH_NS + stream_ns(tile, tiles, stages, processors) / speed +
               aside_ns(problem, choice, MEMORY_BYTES_PER_NS * processors / 132);
    }
    f64 bytes =
        (f64)(t[TILE_N] + t[TILE_CO]) * t[TILE_CI] * vx_number_bytes(problem->type);
    f64 flops = 2.0 * t[TILE_N] * t[TILE_CO] * t[TILE_CI];
    f64 stage = larger(bytes / CACHE_BYTES_PER_NS, flops / flops_per_ns(problem, tile));
    f64 shared = spec->shared(tile, problem->type) + 20000.0;
    f64 resident = larger(1, (f64)(i64)(caps->shared_processor / shared));
    f64 busy = (f64)(i64)((tiles + processors - 1) / processors);
    f64 depth = t[STAGES] - (t[MULTIPLY] != VX_MULTIPLY_MMA ? 2 : 1);
    f64 rounds = (f64)(i64)((busy + resident - 1) / resident);
    /* The larger bound counts: in `through` the blocks of a processor compete for it, in
     * `alone` each block waits for its own stages. */
    f64 turn = TURN_NS / smaller(resident, busy);
    f64 through = busy * (stages * (stage + turn) + BLOCK_NS / smaller(resident, busy));
    f64 alone =
        rounds * (BLOCK_NS + stages * (TURN_NS + larger(stage, STAGE_NS / depth)));
    return LAUNCH_NS + larger(through, alone) / speed +
           aside_ns(problem, choice, MEMORY_BYTES_PER_NS * processors / 132);
}
