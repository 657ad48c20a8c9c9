/* cases - the tables of shapes that kernels are tried on, by area.
 *
 * Each reads from the rig how thorough to be and which kernels are wanted, and prints and
 * counts the failures.
 *
 * Owner    the rig's arena, reset between trials.
 * Thread   the device thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ORACLE_CASES_H
#define VX_TESTS_ORACLE_CASES_H

#include "tests/oracle/trial.h"

void vx_cases_hash(struct vx_rig *rig);   /* 01, 02: hash_insert, hash_map */
void vx_cases_brick(struct vx_rig *rig);  /* 03: index and map, kernel by kernel */
void vx_cases_map(struct vx_rig *rig);    /* map.h as a whole, against the hash table */
void vx_cases_levels(struct vx_rig *rig); /* 21: sets from sets */
void vx_cases_level_map(struct vx_rig *rig);    /* 22: maps between two */
void vx_cases_ranks(struct vx_rig *rig);        /* 25: rows in canonical order */
void vx_cases_occupancy(struct vx_rig *rig);    /* 26, 27: sets by logits */
void vx_cases_live(struct vx_rig *rig);         /* 34: rows that have each child */
void vx_cases_level_rounds(struct vx_rig *rig); /* levels.h as a whole */
void vx_cases_order(struct vx_rig *rig);        /* 05, 08 */
void vx_cases_orders(struct vx_rig *rig);       /* 05: several orders at once */
void vx_cases_pointwise(struct vx_rig *rig);    /* 10, 12, 13, 14, 19, 20 */
void vx_cases_windows(struct vx_rig *rig);      /* 16, 17, 24: through a map */
void vx_cases_points(struct vx_rig *rig);       /* 31, 32: points to voxels and back */
void vx_cases_samples(struct vx_rig *rig);      /* 18, 23: orders and norms of samples */
void vx_cases_dense(struct vx_rig *rig);        /* 28: dense outputs */
void vx_cases_join(struct vx_rig *rig);         /* 15: pieces of a batch */
void vx_cases_parts(struct vx_rig *rig);        /* 04, 07: gather and reduce */
void vx_cases_conv(struct vx_rig *rig);         /* conv.h: every algorithm, every tile */
void vx_cases_left_out(struct vx_rig *rig);     /* 06: orders that lack rows */
void vx_cases_mlp(struct vx_rig *rig);          /* 33 */
/* N*V and N*C beyond 2^31; false = too little device memory, with a line of output. */
bool vx_cases_big(struct vx_rig *rig);
/* All but big. */
void vx_cases_run(struct vx_rig *rig);
/* Proves that these cases can fail: breaks every kernel in turn, on the fake; returns the
 * number of broken kernels that no case detected. */
i32 vx_cases_self(const struct vx_rig_wanted *wanted);

#endif
