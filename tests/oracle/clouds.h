/* clouds - sets of voxels that a map must get right, by name: the table of geometries.
 *
 *   struct vx_cloud cloud;
 *   vx_cloud_make(rig, VX_CLOUD_LIMIT, 1000, &cloud);
 *
 * Rows are shuffled, so that nothing depends on their order.
 *
 * Owner    the rig's arena, until vx_rig_reset.
 * Thread   one.
 * Limits   n up to 32768 for ISOLATED and LINE, 100000 for the others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ORACLE_CLOUDS_H
#define VX_TESTS_ORACLE_CLOUDS_H

#include "tests/oracle/trial.h"

enum vx_cloud_kind {
    VX_CLOUD_SURFACE,  /* a shell: half of 27 offsets, masks of every kind */
    VX_CLOUD_BLOCK,    /* solid: every offset of most rows */
    VX_CLOUD_ISOLATED, /* the centre and nothing else */
    VX_CLOUD_LINE,     /* pairs along x: one offset beside the centre, on one side */
    VX_CLOUD_NEGATIVE, /* a shell around the origin, so that bricks begin below zero */
    VX_CLOUD_LIMIT,    /* the corners of the range, in the first and last samples */
    VX_CLOUD_SAMPLES,  /* many small sets in the same place, told apart by their sample */
    VX_CLOUD_RANDOM,   /* two fifths of a box */
    VX_CLOUD_NOISE, /* one in 60 cells: few voxels in a brick, neighbours in all directions */
    VX_CLOUD_KINDS,
    /* Of many voxels, where it is asked for: one in 32 is of a shell, the others are alone. */
    VX_CLOUD_SCATTERED
};

struct vx_cloud {
    const char *name;
    i64 n;
    i32 columns; /* 4, or 3: without the sample */
    i32 *coords; /* (n, columns) */
};

void vx_cloud_make(struct vx_rig *rig, enum vx_cloud_kind kind, i64 n,
                   struct vx_cloud *cloud);
/* The same cloud without the column of the sample; voxels of several samples become duplicates. */
void vx_cloud_narrow(struct vx_rig *rig, struct vx_cloud *cloud);

#endif
