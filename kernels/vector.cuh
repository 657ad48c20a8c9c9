/* vector - 16 bytes of a row at a time, and the walk of a block over its rows.
 *
 * Owner    -
 * Thread   device code.
 * Limits   rows are padded to 16 channels and tensors begin at multiples of 16 bytes, so
 *          that a vector never crosses the end of a row.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_VECTOR_CUH
#define VX_KERNELS_VECTOR_CUH

#include "kernels/math.cuh"
#include "kernels/pointwise.h"

#if VX_TYPE == VX_TYPE_F16 || VX_TYPE == VX_TYPE_BF16
#define VX_LANES 8 /* elements of one vector */
#else
#define VX_LANES 4
#endif
/* Vectors of one thread that are in flight together. */
#define VX_ROUNDS (VX_POINTWISE_CHANNELS / VX_LANES / VX_POINTWISE_THREADS)

/* Before a loop that must be unrolled, so that the loads of all rounds come first. */
#define VX_UNROLL _Pragma("unroll")

/* What CUDA calls float4. */
struct __attribute__((aligned(16))) vx_floats4 {
    float x, y, z, w;
};

VX_DEVICE struct vx_words4 vx_vector_load(const void *base, int64_t vector)
{
    return ((const struct vx_words4 *)base)[vector];
}

VX_DEVICE void vx_vector_store(void *base, int64_t vector, struct vx_words4 words)
{
    ((struct vx_words4 *)base)[vector] = words;
}

/* Vectors from a row to the next, of so many elements; 0: as many as a row's cp channels. */
VX_DEVICE int32_t vx_row_vectors(int32_t stride, int32_t cp)
{
    return (stride ? stride : cp) / VX_LANES;
}

VX_DEVICE struct vx_words4 vx_vector_zero(void)
{
    struct vx_words4 words = {0, 0, 0, 0};
    return words;
}

#if VX_LANES == 8
VX_DEVICE void vx_pair_unpack(uint32_t word, float *values)
{
    values[0] = vx_float_of((vx_element)(word & 0xffffu));
    values[1] = vx_float_of((vx_element)(word >> 16));
}
VX_DEVICE uint32_t vx_pair_pack(const float *values)
{
    return (uint32_t)vx_element_of(values[0]) | (uint32_t)vx_element_of(values[1]) << 16;
}
VX_DEVICE void vx_vector_unpack(struct vx_words4 words, float *values)
{
    vx_pair_unpack(words.x, values);
    vx_pair_unpack(words.y, values + 2);
    vx_pair_unpack(words.z, values + 4);
    vx_pair_unpack(words.w, values + 6);
}
VX_DEVICE struct vx_words4 vx_vector_pack(const float *values)
{
    struct vx_words4 words = {vx_pair_pack(values), vx_pair_pack(values + 2),
                              vx_pair_pack(values + 4), vx_pair_pack(values + 6)};
    return words;
}
#else
VX_DEVICE void vx_vector_unpack(struct vx_words4 words, float *values)
{
    values[0] = vx_float_of_bits(words.x);
    values[1] = vx_float_of_bits(words.y);
    values[2] = vx_float_of_bits(words.z);
    values[3] = vx_float_of_bits(words.w);
}
VX_DEVICE struct vx_words4 vx_vector_pack(const float *values)
{
    struct vx_words4 words = {vx_bits_of_float(values[0]), vx_bits_of_float(values[1]),
                              vx_bits_of_float(values[2]), vx_bits_of_float(values[3])};
    return words;
}
#endif

/* Loads VX_LANES numbers of an f32 array, from `first` on, a multiple of 4. */
VX_DEVICE void vx_floats_load(const float *base, int64_t first, float *values)
{
    VX_UNROLL
    for (int32_t e = 0; e < VX_LANES; e += 4) {
        struct vx_floats4 four = *(const struct vx_floats4 *)(base + first + e);
        values[e] = four.x;
        values[e + 1] = four.y;
        values[e + 2] = four.z;
        values[e + 3] = four.w;
    }
}

/* The way of one thread over its block's rows: it keeps its columns, so that the values
 * of a channel are read once, and steps down the rows.  Without a row, row = last. */
struct vx_walk {
    int64_t row, last; /* rows [row, last) in steps of `step` */
    int32_t step;
    int32_t column; /* then column + VX_POINTWISE_THREADS, up to the row's last */
};

/* `columns`: the parts that a row of `cp` channels is divided into, a thread to each. */
VX_DEVICE struct vx_walk vx_walk_begin(int64_t n, int32_t cp, int32_t columns)
{
    struct vx_walk walk;
    uint32_t wide = columns < VX_POINTWISE_THREADS ? (uint32_t)columns
                                                   : (uint32_t)VX_POINTWISE_THREADS;
    uint32_t rows = (uint32_t)VX_POINTWISE_ROWS(cp);
    uint32_t above = vx_thread() / wide;
    int64_t first = (int64_t)vx_block_x() * rows;
    walk.step = (int32_t)((uint32_t)VX_POINTWISE_THREADS / wide);
    walk.column = (int32_t)(vx_thread() - above * wide);
    walk.last = first + rows < n ? first + rows : n;
    walk.row = (int32_t)above < walk.step ? first + above : walk.last;
    return walk;
}

#endif
