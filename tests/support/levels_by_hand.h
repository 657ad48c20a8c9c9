/* levels_by_hand - small networks whose answers were worked out with pencil and paper.
 *
 * Each op has at least one, so that the oracle and the engine cannot share a misreading.
 * Voxels of coarse sets lie along x where that is enough.
 *
 *   for (size_t i = 0; i < vx_hand_cases_count; i++) ...vx_hand_cases[i].answers...
 *
 * Owner    static.
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_LEVELS_BY_HAND_H
#define VX_TESTS_SUPPORT_LEVELS_BY_HAND_H

#include "tests/support/model_files.h"

#define VX_HAND_TENSORS_MAX 4
#define VX_HAND_ANSWERS_MAX 4

/* What a layer answers.  Without voxels it lies on set 0, and so is an output. */
struct vx_hand_answer {
    const char *layer;
    const f64 *values; /* (rows, channels) */
    size_t values_count;
    const i32 (*voxels)[4]; /* sample x y z, ascending */
    size_t rows;
};
struct vx_hand_case {
    const char *name;
    const char *space;  /* of the coords: "" or ,"spatial_shape":... */
    const char *layers; /* what stands in the brackets of "layers" */
    const i32 (*coords)[4];
    size_t n;
    const f32 *feats;
    size_t feats_count;
    struct vx_test_tensor tensors[VX_HAND_TENSORS_MAX];
    struct vx_hand_answer answers[VX_HAND_ANSWERS_MAX];
};
extern const struct vx_hand_case vx_hand_cases[];
extern const size_t vx_hand_cases_count;

#endif
