/* brick_sets - indices of bricks in trials: made from clouds, handed to a kernel, compared.
 *
 *   struct vx_brick_set from = vx_oracle_set_source(rig, &cloud, seed);
 *   vx_oracle_set_fields(&trial, &args.from, false);
 *   const i32 to = vx_oracle_set_fields(&trial, &args.to, true);
 *   back = vx_oracle_set_back(&trial, to, &args.to);         (after the trial has run)
 *   vx_oracle_set_check(rig, &trial, &back, &expected);
 *
 * Owner    the rig's arena, until vx_rig_reset.
 * Thread   one.
 * Limits   four fields of a trial for each set.
 * Fails    check: false, after what is wrong has been printed and counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ORACLE_BRICK_SETS_H
#define VX_TESTS_ORACLE_BRICK_SETS_H

#include "kernels/21_set_derive.h"
#include "tests/oracle/clouds.h"

/* A set of zeros with so much room. */
struct vx_brick_set vx_oracle_set_make(struct vx_rig *rig, i64 rows_max);
/* The set of a cloud, as the references of 03_brick_index build it. */
struct vx_brick_set vx_oracle_set_source(struct vx_rig *rig, const struct vx_cloud *cloud,
                                         u64 seed);
/* The parts of a set in the arguments, which hold it: read only, or not.  Returns the
 * first field of four. */
i32 vx_oracle_set_fields(struct vx_trial *trial, struct vx_brick_set *set, bool out);
/* The set as the device left it. */
struct vx_brick_set vx_oracle_set_back(const struct vx_trial *trial, i32 first,
                                       const struct vx_brick_set *set);
bool vx_oracle_wrong(struct vx_rig *rig, const struct vx_trial *trial, const char *what,
                     i64 at);

struct vx_oracle_expected {
    const struct vx_brick_set *ref;  /* the same arguments, by the reference */
    const struct vx_brick_set *full; /* with room for all */
    u64 seed;
};
/* The bricks of `full`, each listed once; as many as there is room for if it is not enough
 * for all, and then with some of their voxels. */
bool vx_oracle_set_check(struct vx_rig *rig, const struct vx_trial *trial,
                         const struct vx_brick_set *back,
                         const struct vx_oracle_expected *expected);

#endif
