/* network_oracle_parts - one layer's place in the oracle's work, and the ops row by row.
 *
 * Private to network_oracle.c.
 *
 * Owner    network_oracle.c.
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_NETWORK_ORACLE_PARTS_H
#define VX_TESTS_SUPPORT_NETWORK_ORACLE_PARTS_H

#include "tests/support/network_oracle.h"

/* The unit of rounding to f32; what an operation may lose where a result is subnormal. */
#define VX_ORACLE_U    0x1p-24
#define VX_ORACLE_TINY 0x1p-126

struct vx_oracle_step {
    const struct vx_layer *layer;
    const struct vx_oracle_set *from, *to; /* of its first input, of its result */
    struct vx_oracle_window window;        /* ops with a kernel or a stride, else 0 */
    const f64 *x[VX_LAYER_INPUTS_MAX], *e[VX_LAYER_INPUTS_MAX]; /* values, bounds */
    i32 channels[VX_LAYER_INPUTS_MAX];
    f64 *y, *bound;
    f32 *tensors[VX_TENSORS_PER_LAYER];
};

/* network_oracle_predict.c: makes the set of a layer with `occupancy` or `keep`; `by` are its
 * logits. */
struct vx_oracle_logits {
    const f64 *values, *bounds;
};
void vx_oracle_predict(struct vx_network_oracle *oracle,
                       const struct vx_oracle_step *step,
                       const struct vx_oracle_logits *by, struct vx_oracle_set *set);

/* network_oracle_rows.c: each of them fills y and bound, false for another op. */
/* GLOBAL_POOL, ARGMAX, and TO_DENSE as rows. */
bool vx_oracle_samples(const struct vx_oracle_step *step);
/* network_oracle_points.c: VOXELIZE and DEVOXELIZE. */
bool vx_oracle_points(const struct vx_oracle_step *step);
bool vx_oracle_points_window(const struct vx_network *network,
                             const struct vx_layer *layer,
                             struct vx_oracle_window *window);
bool vx_oracle_norm(const struct vx_oracle_step *step);
bool vx_oracle_pointwise(const struct vx_oracle_step *step);

#endif
