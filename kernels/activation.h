/* activation - the curves that kernels apply before they store; 10_activation has their math.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ACTIVATION_KIND_H
#define VX_KERNELS_ACTIVATION_KIND_H

enum vx_activation {
    VX_ACTIVATION_NONE,
    VX_ACTIVATION_RELU,
    VX_ACTIVATION_SILU,
    VX_ACTIVATION_GELU, /* exact: x * Phi(x), as torch.nn.GELU() */
    VX_ACTIVATION_SIGMOID,
};

/* One element in double, for every reference with an activation of its own. */
double vx_activation_ref_one(enum vx_activation activation, double x);

#endif
