/* The cost model: estimates with few constants how long a choice takes, to rank choices.
 * In production the table of measurements decides where it has a row (engine/tune).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/conv/conv.h"

/* What one kind of chip does per nanosecond, at `clock_mhz` and with `processors`. */
struct chip {
    i32 arch_from; /* vx_caps.arch, from this one on */
    f64 clock_mhz, processors;
    f64 cache;      /* bytes that one processor reads from the cache that all share */
    f64 wgmma, mma; /* operations of one processor on 16-bit numbers */
    f64 tf32, fma;  /* the same on TF32 and on 32-bit numbers */
    f64 memory;     /* bytes of the whole device */
    f64 waves; /* that one processor holds at 128 registers; 0 = shared memory decides */
    f64 wave,
        apart; /* lanes; bytes of shared memory that a block takes beside its tile */
};

/* Only the first row is measured, on an H200.  The others are what AMD's documents say the
 * chips can do at most, or follow from that; of what they can do in fact, of the times
 * below, and of everything that this file says about waiting, nothing was measured on AMD.
 * The rows rank the tiles that fit until a table of measurements exists (`voxeld tune`).
 *
 * Other gfx9, without matrix units: MI50 (AMD, 2018): 26.5 TFLOP/s of 16-bit and 13.3 of
 *   32-bit vectors, 1 TB/s; 64 bytes per clock from each of 16 slices of L2.
 * gfx10, without them too: RX 6900 XT (AMD, 2020): 46 and 23 TFLOP/s, 2 TB/s from its
 *   Infinity Cache, 512 GB/s.
 * gfx90a: MI250X (CDNA 2 white paper, 2021), one die: 383 TFLOP/s of 16-bit and 95.7 of
 *   32-bit matrices, 3.2 TB/s, for both dies of 110 CUs each at 1700 MHz; 128 bytes per
 *   clock from each of 32 slices of L2.
 * gfx942: MI300X (CDNA 3 white paper, 2023): 1307 TFLOP/s of 16-bit, 654 of TF32 and 163 of
 *   32-bit matrices, 5.3 TB/s; 2 KiB per clock from the L2 of each 38 CUs.
 * gfx11: RX 7900 XTX (AMD, 2022): 123 TFLOP/s of 16-bit WMMA, 61 of 32-bit vectors,
 *   3.5 TB/s from its Infinity Cache, 960 GB/s.
 * gfx12: RX 9060 XT (AMD, 2025): 103 TFLOP/s of 16-bit WMMA, 25.6 of 32-bit vectors,
 *   320 GB/s; its cache is taken to be as fast per CU and clock as that of gfx11.
 * Waves: 512 registers of 64 lanes on each of four units, or 1536 of 32 lanes on each of
 *   two (AMD's ISA documents). */
static const struct chip chips[] = {
    {0, 1980, 132, 36, 5000, 3000, 1500, 350, 4000, 0, 32, 20000},
    {90000, 1725, 60, 29, 440, 440, 220, 220, 1000, 8, 64, 2048},
    {90010, 1700, 110, 63, 1741, 1741, 435, 435, 1638, 16, 64, 2048},
    {90400, 2100, 304, 113, 4300, 4300, 2150, 537, 5300, 16, 64, 2048},
    {100000, 2250, 80, 25, 576, 576, 288, 288, 512, 16, 32, 2048},
    {110000, 2500, 96, 36, 1280, 1280, 640, 640, 960, 24, 32, 2048},
    {120000, 3130, 32, 46, 3205, 3205, 801, 801, 320, 24, 32, 2048},
};

static const struct chip *chip_of(const struct vx_caps *caps)
{
    size_t i = VX_COUNT(chips) - 1;
    while (chips[i].arch_from > caps->arch) i--;
    return &chips[i];
}

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
#define STREAM_LINE_BYTES   128 /* of a column of weights in a stage */

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

static bool is_wgmma(const struct vx_tile *tile)
{
    const i32 multiply = tile->values[MULTIPLY];
    return multiply == VX_MULTIPLY_WGMMA || multiply == VX_MULTIPLY_STREAM;
}

static f64 flops_per_ns(const struct vx_conv_problem *problem, const struct vx_tile *tile,
                        const struct chip *chip)
{
    const i32 multiply = tile->values[MULTIPLY];
    if (problem->type == VX_NUMBER_F32 || multiply == VX_MULTIPLY_FMA) return chip->fma;
    if (is_wgmma(tile)) return chip->wgmma;
    return problem->type == VX_NUMBER_TF32 ? chip->tf32 : chip->mma;
}

static f64 smaller(f64 a, f64 b)
{
    return a < b ? a : b;
}
static f64 larger(f64 a, f64 b)
{
    return a > b ? a : b;
}

/* Blocks that one processor holds at once. */
static f64 resident_blocks(const struct vx_conv_problem *problem,
                           const struct vx_kernel_spec *spec, const struct vx_tile *tile,
                           const struct vx_caps *caps)
{
    const struct chip *chip = chip_of(caps);
    f64 shared = spec->shared(tile, problem->type) + chip->apart;
    f64 blocks = caps->shared_processor / shared;
    if (chip->waves > 0)
        blocks = smaller(blocks, chip->waves * chip->wave / spec->threads(tile));
    return larger(1, (f64)(i64)blocks);
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
static f64 stream_ns(const struct vx_tile *tile, f64 row, f64 tiles, f64 stages,
                     f64 processors)
{
    const i32 *t = tile->values;
    f64 bytes = t[TILE_N] * row + (f64)t[TILE_CO] * STREAM_LINE_BYTES;
    /* Numbers of half the size are multiplied twice as fast: a line takes as long. */
    f64 flops = t[TILE_N] * row * t[TILE_CO];
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
    const struct chip *chip = chip_of(caps);
    /* A driver may not know its device's clock. */
    f64 speed = caps->clock_mhz > 0 ? caps->clock_mhz / chip->clock_mhz : 1;
    f64 processors = caps->processors;
    f64 memory = chip->memory * processors / chip->processors;
    f64 groups = vx_conv_groups(problem, choice->algorithm);
    i64 tiles_n = (problem->n + t[TILE_N] - 1) / t[TILE_N];
    i64 tiles_co = (problem->co + t[TILE_CO] - 1) / t[TILE_CO];
    f64 tiles = (f64)(tiles_n * tiles_co) * groups;
    f64 offsets = offsets_run(problem, choice, tile) / groups;
    if (t[MULTIPLY] == VX_MULTIPLY_STREAM) {
        const i32 lines = (problem->ci + t[TILE_CI] - 1) / t[TILE_CI];
        const f64 row = (f64)t[TILE_CI] * vx_number_factor_bytes(problem->type);
        return LAUNCH_NS +
               stream_ns(tile, row, tiles, offsets * lines, processors) / speed +
               aside_ns(problem, choice, memory);
    }
    f64 stages = offsets * problem->ci / t[TILE_CI];
    f64 bytes =
        (f64)(t[TILE_N] + t[TILE_CO]) * t[TILE_CI] * vx_number_bytes(problem->type);
    f64 flops = 2.0 * t[TILE_N] * t[TILE_CO] * t[TILE_CI];
    f64 stage = larger(bytes / chip->cache, flops / flops_per_ns(problem, tile, chip));
    f64 resident = resident_blocks(problem, spec, tile, caps);
    f64 busy = (f64)(i64)((tiles + processors - 1) / processors);
    f64 depth = t[STAGES] - (is_wgmma(tile) ? 2 : 1);
    f64 rounds = (f64)(i64)((busy + resident - 1) / resident);
    /* The larger bound counts: in `through` the blocks of a processor compete for it, in
     * `alone` each block waits for its own stages. */
    f64 turn = TURN_NS / smaller(resident, busy);
    f64 through = busy * (stages * (stage + turn) + BLOCK_NS / smaller(resident, busy));
    f64 alone =
        rounds * (BLOCK_NS + stages * (TURN_NS + larger(stage, STAGE_NS / depth)));
    return LAUNCH_NS + larger(through, alone) / speed + aside_ns(problem, choice, memory);
}
