/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_e4m3_rows.h"
#include "kernels/e4m3.h"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

/* The numbers of a vector, four to a word. */
VX_DEVICE void bytes_store(const struct vx_e4m3_rows_args *args, int64_t vector,
                           const float *values)
{
    uint32_t *out = (uint32_t *)args->out + vector * (VX_LANES / 4);
    VX_UNROLL
    for (int32_t w = 0; w < VX_LANES / 4; w++) {
        uint32_t word = 0;
        VX_UNROLL
        for (int32_t e = 0; e < 4; e++)
            word |= (uint32_t)vx_e4m3_of(values[4 * w + e]) << 8 * e;
        out[w] = word;
    }
}

#if VX_TYPE == VX_TYPE_F16
#define NUMBER_MOST VX_E4M3_F16_MOST
#else
#define NUMBER_MOST VX_E4M3_ANY_MOST
#endif

VX_DEVICE void numbers_store(const struct vx_e4m3_rows_args *args, int64_t vector,
                             float *values)
{
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e++)
        values[e] = vx_e4m3_in(vx_e4m3_round(values[e]) * args->scale, NUMBER_MOST);
    vx_vector_store(args->out, vector, vx_vector_pack(values));
}

VX_KERNEL(VX_POINTWISE_THREADS, 4) e4m3_rows(struct vx_e4m3_rows_args args)
{
    vx_turn();
    int32_t columns = args.cp / VX_LANES;
    int32_t stride = vx_row_vectors(args.in_stride, args.cp);
    struct vx_walk walk = vx_walk_begin(args.n, args.cp, columns);
    for (; walk.column < columns; walk.column += VX_POINTWISE_THREADS)
        for (int64_t row = walk.row; row < walk.last; row += VX_ROUNDS * walk.step) {
            struct vx_words4 words[VX_ROUNDS];
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                words[k] = at < walk.last
                               ? vx_vector_load(args.in, at * stride + walk.column)
                               : vx_vector_zero();
            }
            VX_UNROLL
            for (int32_t k = 0; k < VX_ROUNDS; k++) {
                int64_t at = row + k * walk.step;
                float x[VX_LANES];
                if (at >= walk.last) break;
                vx_vector_unpack(words[k], x);
                VX_UNROLL
                for (int32_t e = 0; e < VX_LANES; e++) x[e] *= args.inverse;
                if (args.bytes)
                    bytes_store(&args, at * columns + walk.column, x);
                else
                    numbers_store(&args, at * columns + walk.column, x);
            }
        }
}
