/* unet - writes the network.json of a U-net as MinkowskiEngine's MinkUNet is one.
 *
 * A stem; at each level a strided convolution and blocks of two 3^3 convolutions with a residual;
 * then back, an inverse convolution, a concat with what the level had, and blocks, the first of
 * which has a linear layer on its way around.  All with batch norm and relu.  The output "y" is a
 * linear layer on the request's voxels.
 *
 *   static char text[VX_UNET_BYTES];
 *   vx_unet_write(&vx_unet_minkowski_18, text);
 *
 * Owner    the caller's text.
 * Thread   any; pure.
 * Limits   VX_UNET_LEVELS_MAX levels.
 * Fails    with an assert.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_UNET_H
#define VX_TESTS_SUPPORT_UNET_H

#include "engine/base/types.h"

#define VX_UNET_LEVELS_MAX 4
#define VX_UNET_BYTES      (64 << 10)

struct vx_unet {
    i32 feats, stem, classes; /* channels */
    i32 levels, blocks;       /* blocks at each level, each way */
    i32 down[VX_UNET_LEVELS_MAX], up[VX_UNET_LEVELS_MAX]; /* channels, in their order */
    /* Each input of a concat is also read by a softmax, which needs rows of its own.  Those are
     * outputs, behind "y"; then there are at most 3 levels. */
    bool apart;
};

/* 3 features, planes 32, 64, 128, 256, 256, 128, 96, 96, two blocks each, 20 classes. */
extern const struct vx_unet vx_unet_minkowski_18;

void vx_unet_write(const struct vx_unet *unet, char out[VX_UNET_BYTES]);

#endif
