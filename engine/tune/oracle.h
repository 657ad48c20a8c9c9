/* oracle - is what a convolution wrote right?
 *
 * The answer of one trusted choice is copied to the host and its sampled rows summed again
 * in double; every other choice is compared with it, element by element.
 *
 *   VX_TRY(vx_oracle_open(stand, &why, &oracle));   (stand has just run the trusted choice)
 *   VX_TRY(vx_oracle_compare(oracle, stand, &why, &verdict));
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

#include "engine/tune/stand.h"

/* How far two right answers may be apart. */
struct vx_oracle_bounds {
    f64 round; /* times the element: its rounding to the type */
    f64 sum;   /* plus this: the rounding of the sum; data.h makes sums of spread 1 */
    f64 nmse;  /* of a whole tensor against another */
};
struct vx_oracle_verdict {
    bool right; /* inside both bounds */
    bool same;  /* in every bit */
    f64 nmse;
    f64 worst; /* of an element, as a share of its bound */
};
struct vx_oracle;

struct vx_oracle_bounds vx_oracle_bounds(enum vx_number type, i32 v, i32 ci);
/* Fills the output with NaN, so that what is not written is seen. */
VX_MUST_USE vx_status vx_oracle_poison(struct vx_stand *stand, struct vx_why *why);
VX_MUST_USE vx_status vx_oracle_open(struct vx_stand *stand, struct vx_why *why,
                                     struct vx_oracle **oracle);
void vx_oracle_close(struct vx_oracle **oracle);
VX_MUST_USE vx_status vx_oracle_compare(struct vx_oracle *oracle, struct vx_stand *stand,
                                        struct vx_why *why,
                                        struct vx_oracle_verdict *verdict);

#endif
