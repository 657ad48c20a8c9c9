/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/36_conv_narrow.h"
#include "kernels/activation.cuh"
#include "kernels/matrix.cuh"
#include "kernels/turn.cuh"

#ifndef VX_SLOT
#define VX_SLOT    4
#define VX_OFFSETS 32
#endif

/* The left operand is weights, a line to each channel of 16; the right one is voxels.  Of both a
 * lane has LANE_TERMS terms of a line, from lane_first on; of the result the lines that belong to
 * its group of lanes, LINES of them, for RESULTS voxels that follow each other. */
#if VX_CUDA
#define LANE_TERMS      (VX_STEP / 4)
#define LEFT_LINES      2 /* of one lane, in the left operand: lane / 4 and that plus 8 */
#define FRAGMENT_VOXELS 8
#define RESULTS         2
#define LINES           2
VX_DEVICE int lane_first(int lane)
{
    return lane % 4 * LANE_TERMS;
}
VX_DEVICE int lane_voxel(int lane)
{
    return lane / 4;
}
VX_DEVICE int lane_left(int lane)
{
    return lane / 4;
}
VX_DEVICE int result_voxel(int lane)
{
    return lane % 4 * RESULTS;
}
VX_DEVICE int lane_group(int lane)
{
    return lane / 4;
}
VX_DEVICE int line_group(int line)
{
    return line % 8;
}
VX_DEVICE int line_place(int line) /* among the lines of its group */
{
    return line / 8;
}
#else
#define LANE_TERMS      VX_OPERAND_TERMS
#define LEFT_LINES      1
#define FRAGMENT_VOXELS 16
#define RESULTS         1
#define LINES           VX_FRAGMENT_SUMS
#define lane_first      vx_operand_first
VX_DEVICE int lane_voxel(int lane)
{
    return lane % 16;
}
#define lane_left       lane_voxel
#define result_voxel    lane_voxel
VX_DEVICE int lane_group(int lane)
{
    return lane / 16;
}
#if VX_OPERAND_TERMS ==                                                                  \
    16 /* lanes l and l + 16 have the same operands; their lines are two apart */
VX_DEVICE int line_group(int line)
{
    return line % 2;
}
VX_DEVICE int line_place(int line)
{
    return line / 2;
}
#else
VX_DEVICE int line_group(int line)
{
    return line / LINES;
}
VX_DEVICE int line_place(int line)
{
    return line % LINES;
}
#endif
#endif

#if !VX_CUDA && VX_OPERAND_TERMS == 16
#define LEFTS 16 /* lanes with a left operand of their own */
#else
#define LEFTS VX_WAVE
#endif
#define WAVES      (VX_NARROW_THREADS / VX_WAVE)
#define VOXELS     (VX_NARROW_ROWS / FRAGMENT_VOXELS) /* fragments of a tile */
#define CHANNELS   (VX_NARROW_COLUMNS / 16)           /* and of a block's columns */
#define SLOTS      (VX_STEP / VX_SLOT)                /* offsets of a step */
#define STEPS      4                              /* of a group: entries of one load */
#define GROUP      (STEPS * SLOTS)                /* offsets of a group */
#define LOAD       (16 / (int)sizeof(vx_element)) /* the most elements of one */
#define TERMS      (LANE_TERMS < VX_SLOT ? LANE_TERMS : VX_SLOT) /* of one neighbour */
#define UNIT       (TERMS < LOAD ? TERMS : LOAD)                 /* of them in one load */
#define PARTS      (LANE_TERMS / UNIT) /* loads of a lane's terms */
#define UNIT_WORDS (UNIT * (int)sizeof(vx_element) / 4)
#define LANE_WORDS (LANE_TERMS * (int)sizeof(vx_element) / 4)
#define LEFT_WORDS (LEFT_LINES * LANE_WORDS)
#define RUN        (LINES * CHANNELS) /* channels of a lane's sums, one behind the other */
#define PIECE      (RUN < LOAD ? RUN : LOAD) /* of them in one store */

static_assert(VX_STEP % VX_SLOT == 0, "whole offsets");
static_assert(VX_OFFSETS % GROUP == 0, "whole groups");
static_assert(UNIT_WORDS == 2 || UNIT_WORDS == 4, "one load");
static_assert(LEFT_WORDS % 2 == 0, "whole loads");

struct __attribute__((aligned(UNIT_WORDS * 4))) unit {
    uint32_t words[UNIT_WORDS];
};
struct __attribute__((aligned(PIECE * sizeof(vx_element)))) piece {
    vx_element of[PIECE];
};
/* A lane's part of the left operand. */
struct __attribute__((aligned(LEFT_WORDS % 4 ? 8 : 16))) left {
    uint32_t words[LEFT_WORDS];
};
/* Neighbours of a lane's voxels in a group; -1 none. */
struct entries {
    int32_t from[VOXELS][PARTS][STEPS];
};
struct neighbours {
    struct unit unit[STEPS][VOXELS][PARTS];
};
struct narrow_sums {
    float sum[VOXELS][CHANNELS][LINES * RESULTS];
};

/* A channel is such a line of fragment c that the channels of a group's lines, of all fragments,
 * follow each other. */
VX_DEVICE int line_channel(int c, int line)
{
    return line_group(line) * RUN + c * LINES + line_place(line);
}

/* The offset of a lane's part in step 0 of a group; those of the other steps follow it, so that
 * one load has them all. */
VX_DEVICE int part_offset(int group, int lane, int part)
{
    return group * GROUP + (lane_first(lane) + part * UNIT) / VX_SLOT * STEPS;
}

VX_DEVICE vx_element weight_at(const struct vx_conv_narrow_args *args, int v, int k,
                               int channel)
{
    const vx_element *weight = (const vx_element *)args->weight;
    if (v >= args->v || k >= args->ci || channel >= args->cp) return 0;
    return weight[(uint64_t)(uint32_t)(v * args->weight_rows + k) * (uint32_t)args->cp +
                  (uint32_t)channel];
}

/* As the instruction takes a number. */
VX_DEVICE uint32_t factor_bits(uint32_t bits)
{
#if VX_CUDA && VX_TYPE == VX_TYPE_TF32
    return vx_tf32(bits);
#else
    return bits;
#endif
}

/* Word w of a lane's terms of a line: of one number or two. */
VX_DEVICE uint32_t weight_word(const struct vx_conv_narrow_args *args, int step, int lane,
                               int w, int channel)
{
    const int term = w * (4 / (int)sizeof(vx_element));
    const int v = part_offset(step / STEPS, lane, term / UNIT) + step % STEPS;
    const int k = (lane_first(lane) + term) % VX_SLOT;
#if VX_TYPE == VX_TYPE_TF32
    return factor_bits(vx_bits_of_float(weight_at(args, v, k, channel)));
#else
    return weight_at(args, v, k, channel) | (uint32_t)weight_at(args, v, k + 1, channel)
                                                << 16;
#endif
}

/* (steps, CHANNELS, LEFTS).  An operand's words are those of its lines in turn. */
VX_DEVICE void weights_lay(const struct vx_conv_narrow_args *args, int first_channel,
                           int groups, struct left *weights)
{
    const int count = groups * STEPS * CHANNELS * LEFTS;
#pragma unroll 4
    for (int i = (int)vx_thread(); i < count; i += VX_NARROW_THREADS) {
        const int lane = i % LEFTS, c = i / LEFTS % CHANNELS;
        struct left made;
#pragma unroll
        for (int w = 0; w < LEFT_WORDS; w++)
            made.words[w] = weight_word(
                args, i / (LEFTS * CHANNELS), lane, w / LEFT_LINES,
                first_channel + line_channel(c, lane_left(lane) + w % LEFT_LINES * 8));
        weights[i] = made;
    }
}

/* The tile that a wave computes: where a lane reads. */
struct tile {
    const struct vx_conv_narrow_args *args;
    int64_t first;
    int lane, rows;     /* rows of the tile, of which the last one may have fewer */
    const int32_t *nbr; /* the lane's first voxel, from the next group on */
    const char *in;     /* the lane's first channel */
    uint32_t in_bytes;  /* from a row to the next */
};

VX_DEVICE void tile_begin(const struct vx_conv_narrow_args *args, int64_t first,
                          struct tile *tile)
{
    tile->args = args;
    tile->first = first;
    tile->lane = (int)vx_lane();
    tile->rows =
        args->n - first < VX_NARROW_ROWS ? (int)(args->n - first) : VX_NARROW_ROWS;
    tile->nbr = args->nbr + (first + lane_voxel(tile->lane)) * args->nbr_stride;
    tile->in =
        (const char *)((const vx_element *)args->in + lane_first(tile->lane) % VX_SLOT);
    tile->in_bytes = (uint32_t)args->in_stride * (uint32_t)sizeof(vx_element);
}

/* `whole`, a constant: the group has no offset beyond the last. */
VX_DEVICE void group_entries(const struct tile *tile, int group, int whole,
                             struct entries *to)
{
    const int last = tile->args->v;
    const int64_t fragment = (int64_t)tile->args->nbr_stride * FRAGMENT_VOXELS;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        const int v = part_offset(group, tile->lane, p);
#pragma unroll
        for (int f = 0; f < VOXELS; f++) {
            int32_t *from = to->from[f][p];
            struct vx_words4 words = {~0u, ~0u, ~0u, ~0u};
            if (f * FRAGMENT_VOXELS + lane_voxel(tile->lane) < tile->rows &&
                (whole || v < last))
                words = *(const struct vx_words4 *)(tile->nbr + f * fragment +
                                                    part_offset(0, tile->lane, p));
            from[0] = (int32_t)words.x;
            from[1] = whole || v + 1 < last ? (int32_t)words.y : -1;
            from[2] = whole || v + 2 < last ? (int32_t)words.z : -1;
            from[3] = whole || v + 3 < last ? (int32_t)words.w : -1;
        }
    }
}

VX_DEVICE void entries_load(struct tile *tile, int group, struct entries *to)
{
    if ((group + 1) * GROUP <= tile->args->v)
        group_entries(tile, group, 1, to);
    else
        group_entries(tile, group, 0, to);
    tile->nbr += GROUP;
}

/* Zeros where there is no neighbour: without a branch, so that all loads of a group are under way
 * together. */
VX_DEVICE struct unit unit_load(const struct tile *tile, int32_t from, int part)
{
    const char *at = tile->in + (uint64_t)(uint32_t)from * tile->in_bytes +
                     part * UNIT % VX_SLOT * (int)sizeof(vx_element);
    struct unit unit;
#if VX_CUDA
    asm volatile(
        "{\n.reg .pred p;\nsetp.ge.s32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"
        "@p ld.global.v2.u32 {%0, %1}, [%2];\n}"
        : "=&r"(unit.words[0]), "=&r"(unit.words[1])
        : "l"(at), "r"(from));
#else
#pragma unroll
    for (int w = 0; w < UNIT_WORDS; w++) unit.words[w] = 0;
    if (from >= 0) unit = *(const struct unit *)at;
#endif
    return unit;
}

/* Bit j: some voxel of the tile has a neighbour in step j. */
VX_DEVICE uint32_t neighbours_load(const struct tile *tile, const struct entries *entries,
                                   struct neighbours *to)
{
    int32_t none[STEPS]; /* negative: the lane has none */
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        none[j] = -1;
#pragma unroll
        for (int i = 0; i < VOXELS * PARTS; i++) {
            const int32_t from = entries->from[i / PARTS][i % PARTS][j];
            none[j] &= from;
            to->unit[j][i / PARTS][i % PARTS] = unit_load(tile, from, i % PARTS);
        }
    }
    uint32_t steps = 0;
#pragma unroll
    for (int j = 0; j < STEPS; j++) steps |= vx_ballot(none[j] >= 0) ? 1u << j : 0u;
    return steps;
}

VX_DEVICE void group_multiply(struct narrow_sums *sums,
                              const struct neighbours *neighbours, uint32_t steps,
                              const struct left *weights)
{
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        if (!(steps >> j & 1u)) continue;
        struct left left[CHANNELS];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) left[c] = weights[(j * CHANNELS + c) * LEFTS];
#pragma unroll
        for (int f = 0; f < VOXELS; f++) {
            uint32_t right[LANE_WORDS];
#pragma unroll
            for (int w = 0; w < LANE_WORDS; w++)
                right[w] = factor_bits(
                    neighbours->unit[j][f][w / UNIT_WORDS].words[w % UNIT_WORDS]);
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                vx_multiply(sums->sum[f][c], left[c].words, right);
        }
    }
}

/* PIECE channels of a voxel, from `channel` on. */
VX_DEVICE void piece_finish(const struct vx_conv_narrow_args *args, int64_t row,
                            int channel, float sums[PIECE])
{
    struct piece piece;
    if (args->bias) {
#pragma unroll
        for (int e = 0; e < PIECE; e++) sums[e] += args->bias[channel + e];
    }
    if (args->residual) {
        piece = *(const struct piece *)((const vx_element *)args->residual +
                                        row * args->residual_stride + channel);
#pragma unroll
        for (int e = 0; e < PIECE; e++) sums[e] += vx_float_of(piece.of[e]);
    }
#pragma unroll
    for (int e = 0; e < PIECE; e++)
        piece.of[e] = vx_element_of(
            channel + e < args->co ? vx_activate(args->activation, sums[e]) : 0.0f);
    *(struct piece *)((vx_element *)args->out + row * args->out_stride + channel) = piece;
}

VX_DEVICE void sums_store(const struct tile *tile, const struct narrow_sums *sums,
                          int first_channel)
{
    const struct vx_conv_narrow_args *args = tile->args;
#pragma unroll
    for (int f = 0; f < VOXELS; f++)
#pragma unroll
        for (int r = 0; r < RESULTS; r++) {
            const int64_t row =
                tile->first + f * FRAGMENT_VOXELS + result_voxel(tile->lane) + r;
            float run[RUN];
#pragma unroll
            for (int e = 0; e < RUN; e++)
                run[e] = sums->sum[f][e / LINES][e % LINES * RESULTS + r];
#pragma unroll
            for (int e = 0; e < RUN; e += PIECE) {
                const int channel = first_channel + lane_group(tile->lane) * RUN + e;
                if (row < args->n && channel < args->cp)
                    piece_finish(args, row, channel, run + e);
            }
        }
}

/* weights: the lane's. */
VX_DEVICE void tile_run(const struct vx_conv_narrow_args *args, int64_t first,
                        int first_channel, int groups, const struct left *weights)
{
    struct tile tile;
    struct narrow_sums sums;
    struct entries entries;
    tile_begin(args, first, &tile);
#pragma unroll
    for (int i = 0; i < VOXELS * CHANNELS; i++)
#pragma unroll
        for (int e = 0; e < LINES * RESULTS; e++)
            sums.sum[i / CHANNELS][i % CHANNELS][e] = 0.0f;
    entries_load(&tile, 0, &entries);
    for (int group = 0; group < groups; group++) {
        struct neighbours neighbours;
        const uint32_t steps = neighbours_load(&tile, &entries, &neighbours);
        if (group + 1 < groups) entries_load(&tile, group + 1, &entries);
        group_multiply(&sums, &neighbours, steps, weights);
        weights += STEPS * CHANNELS * LEFTS;
    }
    sums_store(&tile, &sums, first_channel);
}

VX_KERNEL(VX_NARROW_THREADS, 2) conv_narrow(struct vx_conv_narrow_args args)
{
    vx_turn();
    extern VX_SHARED __attribute__((aligned(16))) char shared[];
    struct left *weights = (struct left *)shared;
    const int groups = (args.v + GROUP - 1) / GROUP;
    const int first_channel = (int)vx_block_y() * VX_NARROW_COLUMNS;
    const int64_t step = vx_conv_narrow_blocks(&args) * WAVES * VX_NARROW_ROWS;
    weights_lay(&args, first_channel, groups, weights);
    vx_barrier();
    for (int64_t first = ((int64_t)vx_block_x() * WAVES + vx_wave()) * VX_NARROW_ROWS;
         first < args.n; first += step)
        tile_run(&args, first, first_channel, groups, weights + vx_lane() % LEFTS);
}
