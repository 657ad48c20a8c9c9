/* conv_tile - the parts of a tiled convolution around its products.
 *
 * Where a block works, which offsets its rows have, which rows are their neighbours, how
 * operands are loaded, and how the sums are finished and stored.
 *
 * Owner    -
 * Thread   device code; functions that end in a barrier need every thread of the block.
 * Limits   V <= 343; a tile is a multiple of 32 rows, at most 256.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_CONV_TILE_CUH
#define VX_KERNELS_CONV_TILE_CUH

#include "kernels/06_conv_masked.h"
#include "kernels/activation.cuh"
#include "kernels/device.h"
#include "kernels/matrix.cuh"

#ifndef VX_TILE_N
#define VX_TILE_N   128
#define VX_TILE_CO  128
#define VX_TILE_CI  64
#define VX_STAGES   3
#define VX_WARPS_N  2
#define VX_WARPS_CO 2
#define VX_MULTIPLY VX_MULTIPLY_MMA
#define VX_BLOCKS   1 /* per processor, at least */
#endif

/* 1 when conv_pairs is compiled. */
#ifndef VX_PAIRS
#define VX_PAIRS 0
#endif

/* Lanes that multiply together: a wave, and where waves of 64 lanes multiply without a
 * matrix instruction, half of one. */
#define WARP    (VX_MULTIPLY == VX_MULTIPLY_MFMA ? 64 : 32)
#define THREADS (WARP * VX_WARPS_N * VX_WARPS_CO)
#define BLOCKS  (VX_TILE_N / VX_MASK_BLOCK) /* of 32 rows in the tile */

#define WALK VX_CONV_WALK
static_assert(WALK <= 32, "a lane of a warp for each");
/* Odd: the lanes of a warp write the neighbours of one row, each so many words from the
 * next, to different banks. */
#define NBR_STRIDE (VX_TILE_N + 1)

/* 16-byte chunks in a row of either operand in shared memory, and bytes of a stage. */
#define A_CHUNKS (VX_TILE_CI / VX_CHUNK_ELEMENTS)
#define B_CHUNKS (VX_TILE_CO / VX_CHUNK_ELEMENTS)
#define A_BYTES  (VX_TILE_N * VX_TILE_CI * (int)sizeof(vx_element))
#define B_BYTES  (VX_TILE_CI * VX_TILE_CO * (int)sizeof(vx_element))

/* Sums pass through shared memory as f32, so that whole rows are stored; the padding
 * spreads the fragments' stores over the banks. */
#define SUM_STRIDE (VX_TILE_CO + 8)

#define STAGE_BYTES (A_BYTES + B_BYTES)

static_assert(VX_TILE_N % 32 == 0 && VX_TILE_N <= 256, "blocks of 32 rows, 8 of them");
static_assert(VX_TILE_CI % VX_STEP == 0 && VX_TILE_CI % VX_CHUNK_ELEMENTS == 0, "steps");

struct tile_memory {
    int32_t rows[VX_TILE_N]; /* rows in the tensors; -1 beyond the last */
    int32_t nbr[WALK * NBR_STRIDE];
    uint16_t present[VX_CONV_OFFSETS]; /* offsets that some row of the tile has, rising */
    uint8_t blocks[VX_CONV_OFFSETS];   /* bit b: one of the rows 32b .. 32b+31 has it */
    int32_t present_count;
    int32_t from, count; /* the present offsets whose neighbours are in nbr */
};
static_assert(sizeof(struct tile_memory) == VX_CONV_MEMORY_BYTES(VX_TILE_N),
              "as the host counts: 06_conv_masked_spec.c");

/* Where this block works. */
struct tile_place {
    int64_t first_row; /* in the order */
    int32_t first_column;
    int32_t group;
};

/* Where a chunk of a row lies: chunks are swizzled, so that the same chunk of consecutive
 * rows is in different banks.  Rows of 128 bytes or more swizzle by the low three bits of
 * the row; shorter rows share a line of 128 bytes and swizzle from line to line. */
VX_DEVICE int chunk_place(int row, int chunk, int chunks)
{
    if (chunks >= 8) return row * chunks + (chunk ^ (row & 7));
    return row * chunks + (chunk ^ (row / (8 / chunks) % chunks));
}

VX_DEVICE struct tile_place place_find(const struct vx_conv_device_args *args)
{
    uint32_t columns = (uint32_t)((args->co + VX_TILE_CO - 1) / VX_TILE_CO);
    uint32_t tiles = (uint32_t)((args->n + VX_TILE_N - 1) / VX_TILE_N);
    uint32_t block = vx_block_x();
    struct tile_place place;
    place.first_column = (int32_t)(block % columns) * VX_TILE_CO;
    block /= columns;
    place.first_row = (int64_t)(block % tiles) * VX_TILE_N;
    place.group = (int32_t)(block / tiles);
    return place;
}

/* Rows of the block's group: N, or for pairs the length of the group's list. */
VX_DEVICE int64_t place_rows(const struct vx_conv_device_args *args,
                             const struct tile_place *place)
{
#if VX_PAIRS
    return args->starts[place->group + 1] - args->starts[place->group];
#else
    (void)place;
    return args->n;
#endif
}

/* Loads the row at place `at` of the order; for pairs, the number of the pair. */
VX_DEVICE void row_load(const struct vx_conv_device_args *args,
                        const struct tile_place *place, int64_t at, int32_t *to)
{
#if VX_PAIRS
    *to = args->starts[place->group] + (int32_t)at;
#else
    if (args->order)
        vx_copy_async4(to, args->order + (int64_t)place->group * args->n + at);
    else
        *to = (int32_t)at;
#endif
}

/* --- which offsets the tile has: their list, and which 32 rows have each --- */

VX_DEVICE uint32_t union_word(const struct vx_conv_device_args *args,
                              const struct tile_place *place, int word)
{
    int64_t blocks = vx_mask_blocks(args->n);
    int64_t first = place->first_row / VX_MASK_BLOCK;
    uint32_t all = 0;
    for (int b = 0; b < BLOCKS; b++)
        if (first + b < blocks)
            all |= args->block_masks[((int64_t)place->group * blocks + first + b) *
                                         args->words +
                                     word];
    return all;
}

/* For the first wave.  Lane w lists the offsets in word w, after those of lower words. */
VX_DEVICE void present_list(const struct vx_conv_device_args *args,
                            const struct tile_place *place, struct tile_memory *memory)
{
    int lane = (int)vx_lane();
    int per_group = args->v / args->groups;
    if (!args->block_masks) {
        for (int j = lane; j < per_group; j += VX_WAVE)
            memory->present[j] = (uint16_t)(place->group * per_group + j);
        if (lane == 0) memory->present_count = per_group;
        return;
    }
    uint32_t bits = lane < args->words ? union_word(args, place, lane) : 0;
    int before = vx_count_bits(bits);
    for (int step = 1; step < 32; step *= 2) {
        uint32_t other = vx_shuffle((uint32_t)before, (uint32_t)(lane - step) & 31u);
        if (lane >= step) before += (int)other;
    }
    if (lane == 31) memory->present_count = before;
    int at = before - vx_count_bits(bits);
    for (; bits; bits &= bits - 1)
        memory->present[at++] = (uint16_t)(lane * 32 + vx_lowest_bit(bits));
}

VX_DEVICE void present_blocks(const struct vx_conv_device_args *args,
                              const struct tile_place *place, struct tile_memory *memory)
{
    int64_t blocks = vx_mask_blocks(args->n);
    int64_t first = place->first_row / VX_MASK_BLOCK;
    for (int j = (int)vx_thread(); j < memory->present_count; j += THREADS) {
        int v = memory->present[j];
        uint32_t has = 0;
        for (int b = 0; b < BLOCKS && first + b < blocks; b++) {
            uint32_t word = ~0u;
            if (args->block_masks)
                word = args->block_masks[((int64_t)place->group * blocks + first + b) *
                                             args->words +
                                         v / 32];
            has |= (word >> v % 32 & 1u) << b;
        }
        memory->blocks[j] = (uint8_t)has;
    }
}

/* Row numbers and neighbours are copied asynchronously: they are there after
 * vx_copy_wait_all() and a barrier. */
VX_DEVICE void rows_load(const struct vx_conv_device_args *args,
                         const struct tile_place *place, struct tile_memory *memory)
{
    int64_t rows = place_rows(args, place);
    for (int r = (int)vx_thread(); r < VX_TILE_N; r += THREADS) {
        int64_t at = place->first_row + r;
        if (at < rows)
            row_load(args, place, at, memory->rows + r);
        else
            memory->rows[r] = -1;
    }
}

/* Loads the tile's neighbour rows for the next WALK present offsets from `from` on.  A
 * wave reads the entries of one row at a time, which lie together. */
VX_DEVICE void walk_load(const struct vx_conv_device_args *args, int from,
                         struct tile_memory *memory)
{
    int lane = (int)vx_lane();
    int count = memory->present_count - from;
    if (count > WALK) count = WALK;
    if (vx_thread() == 0) memory->from = from, memory->count = count;
    if (lane >= count) return;
#if VX_PAIRS
    const int32_t *nbr = args->in_rows;
    const int32_t stride = 1;
#else
    const int32_t *nbr = args->nbr ? args->nbr + memory->present[from + lane] : 0;
    const int32_t stride = args->nbr_stride;
#endif
    int32_t *to = memory->nbr + lane * NBR_STRIDE;
#pragma unroll 8
    for (int r = (int)vx_wave(); r < VX_TILE_N; r += THREADS / VX_WAVE) {
        int32_t row = memory->rows[r];
        if (row >= 0 && nbr)
            vx_copy_async4(to + r, nbr + (int64_t)row * stride);
        else
            to[r] = row;
    }
}

/* Where a chunk of the weights lies.  wgmma needs panels of up to 128 bytes of columns,
 * in each the rows of the sum one below the other.  mma reads 32-bit weights one number
 * to a lane, from eight columns of four rows: two chunks of each of four rows at once. */
#define PANEL_CHUNKS (B_CHUNKS < 8 ? B_CHUNKS : 8)
VX_DEVICE int weight_place(int row, int chunk)
{
#if VX_MULTIPLY == VX_MULTIPLY_WGMMA || VX_MULTIPLY == VX_MULTIPLY_STREAM
    int panel = chunk / PANEL_CHUNKS * VX_TILE_CI * PANEL_CHUNKS;
    return panel + chunk_place(row, chunk % PANEL_CHUNKS, PANEL_CHUNKS);
#else
    if (sizeof(vx_element) == 4 && B_CHUNKS >= 8)
        return row * B_CHUNKS + (chunk ^ ((row & 3) * 2));
    return chunk_place(row, chunk, B_CHUNKS);
#endif
}

/* A place on the walk over (present offset, block of channels). */
struct walk_place {
    int offset;  /* among the present ones whose neighbours are in nbr */
    int channel; /* first of the block */
};

VX_DEVICE void walk_step(struct walk_place *walk, int channels)
{
    walk->channel += VX_TILE_CI;
    if (walk->channel == channels) walk->channel = 0, walk->offset++;
}

/* Elements in one store of 16 bytes. */
#define OUT_ELEMENTS VX_CHUNK_ELEMENTS

union chunk_floats {
    struct vx_words4 words[OUT_ELEMENTS / 4];
    float floats[OUT_ELEMENTS];
};
union chunk_elements {
    struct vx_words4 words;
    vx_element elements[OUT_ELEMENTS];
};

VX_DEVICE union chunk_floats chunk_read(const float *from)
{
    union chunk_floats chunk;
#pragma unroll
    for (int i = 0; i < OUT_ELEMENTS / 4; i++)
        chunk.words[i] = ((const struct vx_words4 *)from)[i];
    return chunk;
}

VX_DEVICE void chunk_finish(const struct vx_conv_device_args *args, const float *sums,
                            int64_t row, int column)
{
    union chunk_floats value = chunk_read(sums);
    union chunk_elements out;
    if (args->bias) {
        union chunk_floats bias = chunk_read(args->bias + column);
#pragma unroll
        for (int i = 0; i < OUT_ELEMENTS; i++) value.floats[i] += bias.floats[i];
    }
    if (args->residual) {
        union chunk_elements residual;
        residual.words =
            *(const struct vx_words4 *)((const vx_element *)args->residual +
                                        row * args->residual_stride + column);
#pragma unroll
        for (int i = 0; i < OUT_ELEMENTS; i++)
            value.floats[i] += vx_float_of(residual.elements[i]);
    }
#pragma unroll
    for (int i = 0; i < OUT_ELEMENTS; i++) {
        float x = vx_activate(args->activation, value.floats[i]);
        /* In a padded column an infinity times the zero weight is NaN. */
        if (args->used && column + i >= args->used) x = 0.0f;
        out.elements[i] = vx_element_of(x);
    }
    *(struct vx_words4 *)((vx_element *)args->out + row * args->out_stride + column) =
        out.words;
}

VX_DEVICE void tile_finish(const struct vx_conv_device_args *args,
                           const struct tile_memory *memory,
                           const struct tile_place *place, const float *sums)
{
    int chunks = VX_TILE_CO / OUT_ELEMENTS;
    for (int id = (int)vx_thread(); id < VX_TILE_N * chunks; id += THREADS) {
        int row = id / chunks, column = id % chunks * OUT_ELEMENTS;
        int at_column = place->first_column + column;
        if (memory->rows[row] < 0 || at_column >= args->co) continue;
        chunk_finish(args, sums + row * SUM_STRIDE + column, memory->rows[row],
                     at_column);
    }
}

VX_DEVICE void tile_store_partial(const struct vx_conv_device_args *args,
                                  const struct tile_memory *memory,
                                  const struct tile_place *place, const float *sums)
{
    float *partial = args->partial;
    if (!VX_PAIRS) partial += (int64_t)place->group * args->n * args->co;
    int chunks = VX_TILE_CO / 4;
    for (int id = (int)vx_thread(); id < VX_TILE_N * chunks; id += THREADS) {
        int row = id / chunks, column = id % chunks * 4;
        int at_column = place->first_column + column;
        if (memory->rows[row] < 0 || at_column >= args->co) continue;
        int64_t element = (int64_t)memory->rows[row] * args->co + at_column;
        *(struct vx_words4 *)(partial + element) =
            *(const struct vx_words4 *)(sums + row * SUM_STRIDE + column);
    }
}

#endif
