/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/14_rows.h"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* The request side: its type, and how it may be accessed.  Constants at each call, so
 * that each case is compiled on its own. */
struct rows_kind {
    int32_t number; /* VX_TYPE_F32, VX_TYPE_F16, VX_TYPE_BF16 */
    int32_t wide;   /* 1: VX_LANES numbers in accesses of 8 or 16 bytes; 0: one by one */
};

struct __attribute__((aligned(8))) words2 {
    uint32_t x, y;
};

/* VX_LANES numbers of the request, not converted: one to a word, or two of 2 bytes. */
struct rows_raw {
    uint32_t words[VX_LANES];
};

VX_DEVICE void rows_load_wide(const char *at, int32_t bytes, int32_t left,
                              struct rows_raw *raw)
{
    if (bytes == 2 && VX_LANES == 4) {
        struct words2 two = {0, 0};
        if (left > 0) two = *(const struct words2 *)at;
        raw->words[0] = two.x;
        raw->words[1] = two.y;
        return;
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_LANES * bytes / 16; k++) {
        struct vx_words4 four = vx_vector_zero();
        if (k * (16 / bytes) < left) four = ((const struct vx_words4 *)at)[k];
        raw->words[4 * k] = four.x;
        raw->words[4 * k + 1] = four.y;
        raw->words[4 * k + 2] = four.z;
        raw->words[4 * k + 3] = four.w;
    }
}

VX_DEVICE void rows_load_each(const char *at, int32_t bytes, int32_t left,
                              struct rows_raw *raw)
{
    if (bytes == 4) {
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            raw->words[e] = e < left ? ((const uint32_t *)at)[e] : 0;
        return;
    }
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e += 2) {
        uint32_t low = e < left ? ((const uint16_t *)at)[e] : 0;
        uint32_t high = e + 1 < left ? ((const uint16_t *)at)[e + 1] : 0;
        raw->words[e / 2] = low | high << 16;
    }
}

VX_DEVICE float rows_float(struct rows_kind kind, const struct rows_raw *raw, int32_t e)
{
    uint16_t half;
    if (kind.number == VX_TYPE_F32) return vx_float_of_bits(raw->words[e]);
    half = (uint16_t)(raw->words[e / 2] >> (e % 2 * 16));
    return kind.number == VX_TYPE_F16 ? vx_float_of_f16(half) : vx_float_of_bf16(half);
}

VX_DEVICE void rows_raw_set(struct rows_kind kind, struct rows_raw *raw, int32_t e,
                            float value)
{
    uint32_t half;
    if (kind.number == VX_TYPE_F32) {
        raw->words[e] = vx_bits_of_float(value);
        return;
    }
    half = kind.number == VX_TYPE_F16 ? vx_f16_of_float(value) : vx_bf16_of_float(value);
    raw->words[e / 2] = e % 2 ? raw->words[e / 2] | half << 16 : half;
}

VX_DEVICE void rows_store_wide(char *at, int32_t bytes, int32_t left,
                               const struct rows_raw *raw)
{
    if (bytes == 2 && VX_LANES == 4) {
        struct words2 two = {raw->words[0], raw->words[1]};
        if (left > 0) *(struct words2 *)at = two;
        return;
    }
    VX_UNROLL
    for (int32_t k = 0; k < VX_LANES * bytes / 16; k++) {
        struct vx_words4 four = {raw->words[4 * k], raw->words[4 * k + 1],
                                 raw->words[4 * k + 2], raw->words[4 * k + 3]};
        if (k * (16 / bytes) < left) ((struct vx_words4 *)at)[k] = four;
    }
}

VX_DEVICE void rows_store_each(char *at, int32_t bytes, int32_t left,
                               const struct rows_raw *raw)
{
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++) {
        if (e < left && bytes == 4) ((uint32_t *)at)[e] = raw->words[e];
        if (e < left && bytes == 2)
            ((uint16_t *)at)[e] = (uint16_t)(raw->words[e / 2] >> (e % 2 * 16));
    }
}

/* The request's rows of a thread's next VX_ROUNDS device rows; -1 beyond the last. */
VX_DEVICE void rows_numbers(const struct vx_rows_args *args, int64_t row,
                            const struct vx_walk *walk, int64_t *numbers)
{
    VX_UNROLL
    for (int32_t k = 0; k < VX_ROUNDS; k++) {
        int64_t at = row + k * walk->step;
        numbers[k] = -1;
        if (at < walk->last) numbers[k] = args->rows ? args->rows[at] : at;
    }
}

VX_DEVICE void rows_in_block(const struct vx_rows_args *args, struct rows_kind kind)
{
    int32_t columns = args->cp / VX_LANES;
    int32_t bytes = kind.number == VX_TYPE_F32 ? 4 : 2;
    struct vx_walk walk = vx_walk_begin(args->n, args->cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS) {
        int32_t left = args->c - walk.column * VX_LANES; /* real channels; may be < 0 */
        const char *in = (const char *)args->in + (int64_t)walk.column * VX_LANES * bytes;
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            int64_t numbers[VX_ROUNDS];
            struct rows_raw raw[VX_ROUNDS];
            rows_numbers(args, row, &walk, numbers);
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                const char *at = in + numbers[k] * args->c * bytes;
                int32_t there = numbers[k] < 0 ? 0 : left;
                if (kind.wide)
                    rows_load_wide(at, bytes, there, &raw[k]);
                else
                    rows_load_each(at, bytes, there, &raw[k]);
            }
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                float x[VX_LANES];
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++)
                    x[e] = rows_float(kind, &raw[k], e);
                if (numbers[k] >= 0)
                    vx_vector_store(args->out,
                                    (row + k * walk.step) * columns + walk.column,
                                    vx_vector_pack(x));
            }
        }
    }
}

VX_DEVICE void rows_out_block(const struct vx_rows_args *args, struct rows_kind kind)
{
    int32_t columns = args->cp / VX_LANES; /* of a row, with its padding */
    int32_t used = (args->c + VX_LANES - 1) / VX_LANES;
    int32_t bytes = kind.number == VX_TYPE_F32 ? 4 : 2;
    struct vx_walk walk = vx_walk_begin(args->n, args->cp, used);
    for (; walk.column < used; walk.column += VX_POINTWISE_THREADS) {
        int32_t left = args->c - walk.column * VX_LANES;
        char *out = (char *)args->out + (int64_t)walk.column * VX_LANES * bytes;
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            int64_t numbers[VX_ROUNDS];
            struct vx_words4 words[VX_ROUNDS];
            rows_numbers(args, row, &walk, numbers);
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = (row + k * walk.step) * columns + walk.column;
                words[k] = vx_vector_zero();
                if (numbers[k] >= 0) words[k] = vx_vector_load(args->in, at);
            }
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                char *at = out + numbers[k] * args->c * bytes;
                int32_t there = numbers[k] < 0 ? 0 : left;
                struct rows_raw raw;
                float x[VX_LANES];
                vx_vector_unpack(words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++) rows_raw_set(kind, &raw, e, x[e]);
                if (kind.wide)
                    rows_store_wide(at, bytes, there, &raw);
                else
                    rows_store_each(at, bytes, there, &raw);
            }
        }
    }
}

VX_DEVICE int32_t rows_wide(const struct vx_rows_args *args, const void *request)
{
    int64_t bytes = (int64_t)args->c * (args->number == VX_TYPE_F32 ? 4 : 2);
    return bytes % 16 == 0 && (uint64_t)request % 16 == 0;
}

#define ROWS_CASES(block_, request_)                                                     \
    do {                                                                                 \
        struct rows_kind f32_wide = {VX_TYPE_F32, 1}, f32_each = {VX_TYPE_F32, 0};       \
        struct rows_kind f16_wide = {VX_TYPE_F16, 1}, f16_each = {VX_TYPE_F16, 0};       \
        struct rows_kind bf16_wide = {VX_TYPE_BF16, 1}, bf16_each = {VX_TYPE_BF16, 0};   \
        int32_t wide = rows_wide(&args, request_);                                       \
        if (args.number == VX_TYPE_F32 && wide) block_(&args, f32_wide);                 \
        if (args.number == VX_TYPE_F32 && !wide) block_(&args, f32_each);                \
        if (args.number == VX_TYPE_F16 && wide) block_(&args, f16_wide);                 \
        if (args.number == VX_TYPE_F16 && !wide) block_(&args, f16_each);                \
        if (args.number == VX_TYPE_BF16 && wide) block_(&args, bf16_wide);               \
        if (args.number == VX_TYPE_BF16 && !wide) block_(&args, bf16_each);              \
    } while (0)

VX_KERNEL(VX_POINTWISE_THREADS, 4) rows_in(struct vx_rows_args args)
{
    vx_turn();
    ROWS_CASES(rows_in_block, args.in);
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) rows_out(struct vx_rows_args args)
{
    vx_turn();
    ROWS_CASES(rows_out_block, args.out);
}
