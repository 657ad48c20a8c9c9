/* conv - the convolution algorithms of a GPU: what each needs and how it is launched.
 *
 * The algorithm determines the order in which a row is summed; the tile affects only the
 * speed.  A layer has one order (vx_conv_order_of) that depends on its shape alone, and
 * AUTO chooses only among algorithms with that order, so that an answer has the same bits
 * whatever the size of the batch, the tile or the run.  An algorithm that the user pins
 * may have another order.
 *
 *   algorithm       order    launches
 *   EXPLICIT        its own  gather to (N, V*Ci), one dense product: the vendor's BLAS
 *                            where there is one, else IMPLICIT's kernel
 *   IMPLICIT        CHAIN    every offset of every row
 *   MASKED          CHAIN    rows sorted by mask, a tile runs the union of its masks
 *   IMPLICIT_SPLIT  SPLIT    as IMPLICIT, offsets in groups, partial sums, one reduction
 *   MASKED_SPLIT    SPLIT    as MASKED, rows sorted separately for each group
 *   PAIRS_LIST      PAIRS    one list of pairs per offset, no row without a neighbour
 *
 * CHAIN sums all offsets and channels of a row in one chain.  SPLIT sums each plane (or
 * column) of offsets in a separate chain, then adds these sums.  PAIRS does the same with
 * each offset as a group.
 *
 * Owner    the caller owns what it passes; nothing is kept.
 * Thread   the pure functions: any; launch: device.
 * Limits   those of kernels/06_conv_masked.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_CONV_H
#define VX_ENGINE_GPU_CONV_H

#include "engine/device.h"
#include "engine/gpu/conv/blas.h"
#include "engine/gpu/geometry/map.h"
#include "kernels/06_conv_masked.h"

enum vx_conv_order {
    VX_CONV_ORDER_CHAIN,
    VX_CONV_ORDER_PLANES,
    VX_CONV_ORDER_COLUMNS,
    VX_CONV_ORDER_PAIRS,
};

/* Elements from a row of a tensor to the next, where rows are part of longer ones; 0: as many
 * as the row has channels.  Multiples of VX_CHANNELS_UNIT. */
struct vx_conv_strides {
    i32 in, residual, out;
};
/* A convolution to compute, without its data. */
struct vx_conv_problem {
    i64 n;
    i64 n_in; /* rows in, where they are those of another set; 0: n */
    i32 kernel[3];
    i32 v;
    i32 ci, co; /* padded */
    enum vx_number type;
    f64 fill; /* pairs / (N*V); 0 = not known; surfaces have 0.47 */
    struct vx_conv_strides strides;
    /* 0, or: the rows in are rounded to numbers of 8 bits times this power of two
     * (kernels/e4m3.h).  Of type E4M3 never 0. */
    f32 in_scale;
};
/* How to compute it. */
struct vx_conv_choice {
    enum vx_conv_algorithm algorithm; /* not AUTO */
    i32 tile;                         /* index in the tiles of vx_conv_spec(algorithm) */
};

/* From this many input channels on, a layer is summed by planes, or by columns.  With fewer
 * channels the partial sums cost more memory traffic, and power, than the wasted rows that
 * they save.  Microseconds, H200, 3^3, FP16, with 512 channels in a chain and by planes: 848
 * rows 43, 39; 3,840 rows 79, 83; 64,160 rows 765, 855; all layers of TRELLIS.2's decoder
 * 12172, 12914.  With 1024 by planes and by columns: 192 rows 51, 37; 15,192 rows 722, 860. */
#define VX_CONV_SPLIT_CHANNELS 1024
/* Numbers of 32 bits are multiplied more slowly, so wasted rows cost more: by planes up to
 * VX_CONV_SPLIT_CHANNELS.  As it was for all types; not measured for these alone. */
#define VX_CONV_SPLIT_CHANNELS_32 512

enum vx_conv_order vx_conv_order_of(const struct vx_conv_problem *problem);
/* How many groups of offsets the algorithm sums separately: 1, Kx, Kx*Ky or V. */
i32 vx_conv_groups(const struct vx_conv_problem *problem,
                   enum vx_conv_algorithm algorithm);
/* True when AUTO may choose the algorithm: its order is the layer's own. */
bool vx_conv_exact(const struct vx_conv_problem *problem,
                   enum vx_conv_algorithm algorithm);
/* True when the algorithm reads rows sorted by mask (map.h: sorted). */
bool vx_conv_sorted(enum vx_conv_algorithm algorithm);

/* The main kernel of an algorithm, whose tiles are its search space. */
const struct vx_kernel_spec *vx_conv_spec(enum vx_conv_algorithm algorithm);
bool vx_conv_fits(const struct vx_conv_problem *problem,
                  const struct vx_conv_choice *choice, const struct vx_caps *caps);
/* Nanoseconds as the cost model estimates them, to rank choices without a table. */
f64 vx_conv_cost(const struct vx_conv_problem *problem,
                 const struct vx_conv_choice *choice, const struct vx_caps *caps);
/* Device memory that a launch needs besides its operands: partial sums, panels, lists. */
size_t vx_conv_workspace(const struct vx_conv_problem *problem,
                         const struct vx_conv_choice *choice);
/* The blocks of tiles that stream, which stay on the device (kernels/tile_stream_sm90.cuh); 0: none
 * of them may be chosen.  They read the weights tiled: so many bytes, written once by
 * vx_conv_tile_weights. */
i32 vx_conv_streams(enum vx_number type, const struct vx_caps *caps);
/* True if a tile that streams can address such a tensor: it counts in 31 bits of 16 bytes. */
bool vx_conv_stream_counts(i64 rows, i32 stride, i32 element_bytes);
/* True if the problem, of at most n rows, can be of type E4M3 instead of its own: the device
 * multiplies numbers of 8 bits.  Elsewhere in_scale alone gives the same numbers. */
bool vx_conv_multiplies_e4m3(const struct vx_conv_problem *problem,
                             const struct vx_caps *caps);
bool vx_conv_tiled(const struct vx_conv_choice *choice); /* it reads them so */
/* Where they stream: whether the layer is worth the map in the order of its rows (order.h). */
bool vx_conv_wants_neighbours(const struct vx_conv_problem *problem);
struct vx_conv_tiling {
    i32 v, ci, co;      /* padded */
    i32 number_bytes;   /* of a weight: vx_number_factor_bytes */
    const void *weight; /* (V, ci, co) */
    void *tiled;
};
size_t vx_conv_tiled_bytes(const struct vx_conv_tiling *tiling);
VX_MUST_USE vx_status vx_conv_tile_weights(const struct vx_gpu_queue *device,
                                           const struct vx_conv_tiling *tiling,
                                           struct vx_why *why);
struct vx_jit_wanted vx_conv_tile_wanted(void);

/* Every binary that a choice launches; returns how many. */
#define VX_CONV_KERNELS_MAX 12
i32 vx_conv_kernels(const struct vx_conv_problem *problem,
                    const struct vx_conv_choice *choice,
                    struct vx_jit_wanted wanted[VX_CONV_KERNELS_MAX]);

/* The operands; tensors are (N, padded channels) of the problem's type, with its strides. */
struct vx_conv_operands {
    const struct vx_gpu_map *map; /* NULL: V is 1 */
    const void *in;
    const void *weight;   /* (V, ci, co), padded with zeros; of type E4M3: bytes */
    const void *tiled;    /* the same, tiled; NULL: no tile that streams is chosen */
    const f32 *scale;     /* of type E4M3: (co), of a column's weights times in_scale */
    const f32 *bias;      /* (co) or NULL */
    const void *residual; /* (N, co) or NULL */
    void *out;
    /* The launch before this one is that of a convolution that lets another begin early
     * (vx_conv_lets_early), and what this one reads beside in and residual was written before the
     * last launch that did not begin early. */
    bool early;
    enum vx_activation activation;
    i32 channels; /* of co: the real ones, the others become zeros; 0 = all are real */
    void *workspace;
};
/* What a launch of one offset, or of IMPLICIT, gets: for kernels that are more than a
 * convolution. */
void vx_conv_args_make(const struct vx_gpu_queue *device,
                       const struct vx_conv_problem *problem,
                       const struct vx_conv_operands *operands,
                       struct vx_conv_device_args *args);
/* Whether a convolution behind such a one on the stream may begin early (vx_conv_operands). */
bool vx_conv_lets_early(const struct vx_conv_choice *choice);
/* The map must have been built with vx_conv_groups and vx_conv_sorted
 * of the algorithm.  Its order may leave rows out: -1 in their places, whose block masks have
 * no offset but those of other rows.  What is not in the order is not written, but by a
 * split, whose reduction writes the bias' activation there. */
VX_MUST_USE vx_status vx_conv_launch(const struct vx_gpu_queue *device,
                                     const struct vx_conv_problem *problem,
                                     const struct vx_conv_choice *choice,
                                     const struct vx_conv_operands *operands,
                                     struct vx_why *why);

#endif
