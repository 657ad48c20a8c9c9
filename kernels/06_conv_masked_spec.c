/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/kernel.h"

void vx_conv_masked_ref(const void *args, enum vx_number type);

static const char *const macros[] = {"VX_TILE_N",   "VX_TILE_CO", "VX_TILE_CI",
                                     "VX_STAGES",   "VX_WARPS_N", "VX_WARPS_CO",
                                     "VX_MULTIPLY", "VX_BLOCKS"};
enum { TILE_N, TILE_CO, TILE_CI, STAGES, WARPS_N, WARPS_CO, MULTIPLY, BLOCKS, MACROS };

/* Tiles of many columns reuse what they load and need many rows; tiles of few rows fill a
 * device when rows are few; tiles of few columns waste nothing on a layer of few
 * channels.  On an H200 streams are the fastest from 16 channels up; where no neighbours lie in
 * the order of the rows, 128x32x32 of wgmma is, from 250,000 rows on. */
static const struct vx_tile tiles[] = {
    {{128, 256, 64, 4, 8, 1, 1, 1}},
    {{256, 128, 64, 4, 16, 1, 1, 1}},
    {{128, 128, 64, 3, 8, 1, 1, 2}},
    {{64, 256, 64, 4, 4, 2, 1, 1}},
    {{64, 128, 64, 4, 4, 1, 1, 2}},
    {{128, 64, 64, 4, 8, 1, 1, 2}},
    {{64, 64, 64, 4, 4, 1, 1, 3}},
    {{64, 64, 64, 8, 4, 1, 1, 1}},
    {{64, 32, 64, 8, 4, 1, 1, 1}},
    {{128, 128, 32, 6, 8, 1, 1, 2}},
    {{128, 64, 32, 5, 8, 1, 1, 2}},
    {{128, 32, 32, 4, 8, 1, 1, 2}},
    {{64, 32, 32, 6, 4, 1, 1, 3}},
    {{128, 16, 32, 6, 8, 1, 1, 2}},
    {{128, 64, 16, 6, 8, 1, 1, 2}},
    {{64, 32, 16, 8, 4, 1, 1, 3}},
    {{128, 16, 16, 8, 8, 1, 1, 2}},
    /* streams: eight warps multiply and four fetch, or eight where that is faster and registers
     * are left for them; of 64 rows, for few of them: four warps multiply, the others fetch */
    {{128, 256, 64, 4, 12, 1, 2, 1}},
    {{128, 192, 64, 5, 12, 1, 2, 1}},
    {{128, 160, 64, 6, 16, 1, 2, 1}},
    {{256, 128, 64, 4, 12, 1, 2, 1}},
    {{128, 128, 64, 7, 16, 1, 2, 1}},
    {{256, 96, 64, 5, 16, 1, 2, 1}},
    {{256, 64, 64, 5, 16, 1, 2, 1}},
    {{128, 64, 64, 9, 16, 1, 2, 1}},
    {{64, 32, 64, 18, 20, 1, 2, 1}},
    {{64, 64, 64, 13, 16, 1, 2, 1}},
    {{64, 128, 64, 9, 12, 1, 2, 1}},
    /* streams of short rows: 32 channels, and 16 */
    {{256, 64, 32, 9, 16, 1, 2, 1}},
    {{256, 32, 32, 11, 16, 1, 2, 1}},
    {{64, 64, 32, 18, 16, 1, 2, 1}},
    {{64, 32, 32, 26, 20, 1, 2, 1}},
    {{256, 32, 16, 18, 16, 1, 2, 1}},
    {{64, 32, 16, 30, 20, 1, 2, 1}},
    /* streams of numbers of 8 bits: as many bytes */
    {{128, 256, 128, 4, 12, 1, 2, 1}},
    {{128, 192, 128, 5, 12, 1, 2, 1}},
    {{128, 160, 128, 6, 16, 1, 2, 1}},
    {{256, 128, 128, 4, 12, 1, 2, 1}},
    {{128, 128, 128, 7, 16, 1, 2, 1}},
    {{256, 96, 128, 5, 16, 1, 2, 1}},
    {{256, 64, 128, 5, 16, 1, 2, 1}},
    {{128, 64, 128, 9, 16, 1, 2, 1}},
    {{64, 32, 128, 18, 20, 1, 2, 1}},
    {{64, 64, 128, 13, 16, 1, 2, 1}},
    {{64, 128, 128, 9, 12, 1, 2, 1}},
    /* without wgmma */
    {{128, 256, 64, 3, 2, 4, 0, 1}},
    {{128, 128, 64, 4, 2, 4, 0, 1}},
    {{128, 128, 32, 4, 2, 2, 0, 1}},
    {{64, 128, 64, 3, 2, 2, 0, 1}},
    {{128, 64, 64, 3, 4, 1, 0, 1}},
    {{64, 64, 64, 3, 2, 2, 0, 1}},
    {{64, 64, 32, 4, 2, 2, 0, 1}},
    {{32, 64, 64, 4, 1, 4, 0, 1}},
    {{128, 32, 32, 4, 4, 1, 0, 1}},
    {{64, 32, 32, 4, 2, 1, 0, 1}},
    {{32, 32, 32, 6, 1, 2, 0, 1}},
    {{64, 64, 16, 4, 2, 2, 0, 1}},
    {{128, 16, 16, 4, 4, 1, 0, 1}},
    /* AMD, waves of 64 lanes; not measured: sizes that leave room for two blocks in the
     * 64 KB of a processor, or that reuse more */
    {{128, 64, 32, 2, 4, 1, 3, 1}},
    {{64, 128, 32, 2, 2, 2, 3, 1}},
    {{64, 64, 64, 2, 2, 2, 3, 1}},
    {{64, 64, 32, 2, 2, 2, 3, 1}},
    {{32, 64, 64, 2, 1, 2, 3, 1}},
    {{64, 32, 32, 2, 2, 1, 3, 1}},
    {{64, 64, 16, 2, 2, 2, 3, 1}},
    {{64, 32, 16, 2, 2, 1, 3, 1}},
    {{64, 16, 16, 2, 2, 1, 3, 1}},
    /* AMD, waves of 32 lanes */
    {{128, 64, 32, 2, 4, 2, 4, 1}},
    {{64, 128, 32, 2, 2, 4, 4, 1}},
    {{64, 64, 64, 2, 2, 2, 4, 1}},
    {{64, 64, 32, 2, 2, 2, 4, 1}},
    {{32, 64, 64, 2, 1, 4, 4, 1}},
    {{64, 32, 32, 2, 2, 1, 4, 1}},
    {{64, 64, 16, 2, 2, 2, 4, 1}},
    {{64, 32, 16, 2, 2, 1, 4, 1}},
    {{64, 16, 16, 2, 2, 1, 4, 1}},
    /* AMD, fused multiply-adds */
    {{64, 64, 32, 2, 2, 2, 5, 1}},
    {{64, 32, 32, 2, 2, 1, 5, 1}},
    {{64, 64, 16, 2, 2, 2, 5, 1}},
    {{64, 32, 16, 2, 2, 1, 5, 1}},
    {{64, 16, 16, 2, 2, 1, 5, 1}},
};

/* Of a column of weights in a stage of a stream, and of the longest row there. */
#define LINE_BYTES 128

/* A tile of blocks that stay. */
static bool streams(const struct vx_tile *tile)
{
    return tile->values[MULTIPLY] == VX_MULTIPLY_STREAM;
}

/* The stages begin behind it. */
static int32_t memory_bytes(const struct vx_tile *tile)
{
    if (streams(tile)) return 0;
    int32_t bytes = VX_CONV_MEMORY_BYTES(tile->values[TILE_N]);
    return (bytes + 1023) / 1024 * 1024;
}

static int32_t threads(const struct vx_tile *tile)
{
    int32_t lanes = tile->values[MULTIPLY] == VX_MULTIPLY_MFMA ? 64 : 32;
    return lanes * tile->values[WARPS_N] * tile->values[WARPS_CO];
}

/* The stages; at the end the sums take their place, or behind them lie
 * barriers. */
static int32_t shared(const struct vx_tile *tile, enum vx_number type)
{
    const int32_t *t = tile->values;
    const int32_t row = t[TILE_CI] * vx_number_factor_bytes(type);
    if (streams(tile))
        return t[STAGES] * (t[TILE_N] * row + t[TILE_CO] * LINE_BYTES) +
               VX_STREAM_MORE_BYTES;
    int32_t stage = (t[TILE_N] + t[TILE_CO]) * row;
    int32_t sums = t[TILE_N] * (t[TILE_CO] + 8) * 4;
    int32_t stages = t[STAGES] * stage;
    return stages > sums ? stages : sums;
}

/* CDNA: MFMA takes every type.  gfx908 lacks that of bf16 with 16 terms. */
static bool has_mfma(int32_t arch)
{
    return arch == 90010 || (arch >= 90400 && arch <= 90402) || arch == 90500;
}

/* RDNA 3 and 4. */
static bool has_wmma(int32_t arch)
{
    return arch >= 110000 && arch < 130000;
}

/* Whether tiles of such a VX_MULTIPLY are for the device.  On Hopper 16-bit types use wgmma
 * and nothing else: with one instruction the order of sums is the same for every tile. */
static bool multiplies(int32_t multiply, enum vx_number type, const struct vx_caps *caps)
{
    const bool halves = vx_number_bytes(type) == 2;
    if (type == VX_NUMBER_E4M3) return caps->arch == 90 && multiply == VX_MULTIPLY_STREAM;
    if (caps->arch >= VX_ARCH_AMD) {
        if (has_mfma(caps->arch)) return multiply == VX_MULTIPLY_MFMA;
        return multiply ==
               (halves && has_wmma(caps->arch) ? VX_MULTIPLY_WMMA : VX_MULTIPLY_FMA);
    }
    if (caps->arch == 90 && halves)
        return multiply == VX_MULTIPLY_WGMMA || multiply == VX_MULTIPLY_STREAM;
    return multiply == VX_MULTIPLY_MMA;
}

/* The most sums of one thread: with more, the operands no longer fit in registers beside
 * them.  Fused multiply-adds hold more operands than a matrix instruction does; before
 * sm_80 only fp16 has one. */
static int32_t sums_max(enum vx_number type, const struct vx_caps *caps)
{
    if (caps->arch < 80 && type != VX_NUMBER_F16) return 32;
    switch (type) {
    case VX_NUMBER_F32: return 32;
    case VX_NUMBER_TF32: return 64;
    default: return 128;
    }
}

static bool fits(const struct vx_tile *tile, enum vx_number type,
                 const struct vx_caps *caps)
{
    const int32_t *t = tile->values;
    if (!multiplies(t[MULTIPLY], type, caps)) return false;
    if (t[TILE_N] * t[TILE_CO] / threads(tile) > sums_max(type, caps)) return false;
    const int32_t row = t[TILE_CI] * vx_number_factor_bytes(type);
    if (streams(tile) &&
        (row > LINE_BYTES || (row < LINE_BYTES && type == VX_NUMBER_E4M3)))
        return false;
    /* Rows of 4-byte numbers are twice as long: a larger TILE_CI gains nothing. */
    if (vx_number_bytes(type) == 4 && t[TILE_CI] > 32) return false;
    return shared(tile, type) + memory_bytes(tile) <= caps->shared_block;
}

static struct vx_grid grid(const struct vx_tile *tile, const void *args)
{
    const struct vx_conv_device_args *a = args;
    int64_t tiles_n = (a->n + tile->values[TILE_N] - 1) / tile->values[TILE_N];
    int64_t tiles_co = (a->co + tile->values[TILE_CO] - 1) / tile->values[TILE_CO];
    int64_t tiles_all = tiles_n * tiles_co * a->groups;
    if (streams(tile) && tiles_all > a->blocks) tiles_all = a->blocks;
    return (struct vx_grid){(uint32_t)tiles_all, 1, 1};
}

/* Lists of pairs have other lengths for each offset: no tile of them streams. */
static bool pairs_fits(const struct vx_tile *tile, enum vx_number type,
                       const struct vx_caps *caps)
{
    return !streams(tile) && fits(tile, type, caps);
}

#define TYPES                                                                            \
    (1u << VX_NUMBER_F32 | 1u << VX_NUMBER_F16 | 1u << VX_NUMBER_BF16 |                  \
     1u << VX_NUMBER_TF32)

/* Two entry points with the same tiles and the same functions.  The lists of pairs are made just
 * before conv_pairs, which reads them at once. */
#define TILED(name_, source_, types_, fits_, turn_)                                      \
    {                                                                                    \
        .name = (name_), .source = (source_), .macros = macros, .macros_count = MACROS,  \
        .tiles = tiles, .tiles_count = sizeof tiles / sizeof tiles[0],                   \
        .types = (types_), .turn = (turn_),                                              \
        .args_bytes = sizeof(struct vx_conv_device_args), .threads = threads,            \
        .shared = shared, .fits = fits_, .grid = grid, .ref = vx_conv_masked_ref,        \
    }

const struct vx_kernel_spec vx_conv_masked_spec =
    TILED("conv_masked", "06_conv_masked.cu", TYPES | 1u << VX_NUMBER_E4M3, fits,
          VX_TURN_ASKED);
const struct vx_kernel_spec vx_conv_pairs_spec =
    TILED("conv_pairs", "06_conv_pairs.cu", TYPES, pairs_fits, VX_TURN_PLAIN);
