/* oracle - checks the output of a convolution.
 *
 * The output of one trusted choice is copied to the host, and sampled rows of it are
 * summed again in double.  The output of every other choice is compared with it, element
 * by element.
 *
 *   VX_TRY(vx_oracle_open(harness, &why, &oracle));   (after a run of the trusted choice)
 *   VX_TRY(vx_oracle_compare(oracle, harness, &why, &verdict));
 *   vx_oracle_close(&oracle);
 *
 * Owner    the caller.
 * Thread   device; bounds: any.
 * Limits   host memory for two outputs of one problem.
 * Fails    INTERNAL when the trusted choice is itself wrong; as gpu.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_ORACLE_H
#define VX_ENGINE_TUNE_ORACLE_H

#include "engine/tune/harness.h"

/* The largest errors of a correct output.  An element may differ from its exact sum by
 * `round` times the sum plus `sum`, and from another output by twice as much. */
struct vx_oracle_bounds {
    f64 round; /* rounding of an element to the type */
    f64 sum;   /* rounding within the sum; the harness makes sums of spread 1 */
    f64 nmse;  /* of a whole output against another */
};
struct vx_oracle_verdict {
    bool right; /* within both bounds */
    bool same;  /* equal in every bit */
    f64 nmse;
    f64 worst; /* the largest error of an element, as a share of its bound */
};
struct vx_oracle;

struct vx_oracle_bounds vx_oracle_bounds(enum vx_number type, i32 v, i32 ci);
/* Fills output and workspace with NaN, to find elements that are not written. */
VX_MUST_USE vx_status vx_oracle_poison(struct vx_harness *harness, struct vx_why *why);
VX_MUST_USE vx_status vx_oracle_open(struct vx_harness *harness, struct vx_why *why,
                                     struct vx_oracle **oracle);
void vx_oracle_close(struct vx_oracle **oracle);
VX_MUST_USE vx_status vx_oracle_compare(struct vx_oracle *oracle,
                                        struct vx_harness *harness, struct vx_why *why,
                                        struct vx_oracle_verdict *verdict);

#endif
