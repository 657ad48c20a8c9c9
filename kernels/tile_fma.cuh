/* tile_fma - multiplies a stage by fused multiply-adds: no matrix instruction takes the type.
 *
 * Private to tile_mma.cuh.
 *
 * Owner    -
 * Thread   device code, every thread of the block.
 * Limits   as conv_tile.cuh; a step is 16 bytes of a row.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TILE_FMA_CUH
#define VX_KERNELS_TILE_FMA_CUH

#include "kernels/tile_warps.cuh"

/* The weights of two columns that lie side by side. */
VX_DEVICE void weights_pair(uint32_t address, float *first, float *second)
{
#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
    uint32_t pair = vx_load_shared(address);
    *first = vx_float_of((vx_element)(pair & 0xffffu));
    *second = vx_float_of((vx_element)(pair >> 16));
#else
    *first = vx_float_of_bits(vx_load_shared(address));
    *second = vx_float_of_bits(vx_load_shared(address + 4));
#endif
}

/* `at` is a constant. */
VX_DEVICE float chunk_term(struct vx_words4 words, int at)
{
#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
    uint32_t pair = vx_bits_of_float(vx_word_float(words, at / 2));
    return vx_float_of((vx_element)(at % 2 ? pair >> 16 : pair & 0xffffu));
#else
    return vx_word_float(words, at);
#endif
}

/* Multiplies the row fragments [first, last) in one step of the sum. */
VX_DEVICE void step_multiply(struct tile_sums *sums, uint32_t stage, int step, int first,
                             int last)
{
    int lane = (int)warp_lane(), g = lane / 4, t = lane % 4;
    int row0 = (int)warp_index() / VX_WARPS_CO * WARP_N + g;
    int column0 = (int)warp_index() % VX_WARPS_CO * WARP_CO + 2 * t;
#pragma unroll
    for (int r = first; r < last; r++) {
        struct vx_words4 a[2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            a[half] = vx_load_shared4(
                stage +
                16u * (uint32_t)chunk_place(row0 + r * 16 + half * 8, step, A_CHUNKS));
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            int column = column0 + c * 8;
#pragma unroll
            for (int k = 0; k < VX_STEP; k++) {
                uint32_t at =
                    stage + A_BYTES +
                    16u * (uint32_t)weight_place(step * VX_STEP + k,
                                                 column / VX_CHUNK_ELEMENTS) +
                    (uint32_t)(column % VX_CHUNK_ELEMENTS) * (uint32_t)sizeof(vx_element);
                float b0, b1;
                weights_pair(at, &b0, &b1);
                float a0 = chunk_term(a[0], k), a1 = chunk_term(a[1], k);
                float *sum = sums->sum[r][c];
                sum[0] = vx_fma(a0, b0, sum[0]);
                sum[1] = vx_fma(a0, b1, sum[1]);
                sum[2] = vx_fma(a1, b0, sum[2]);
                sum[3] = vx_fma(a1, b1, sum[3]);
            }
        }
    }
}

#endif
