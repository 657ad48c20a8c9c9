/* example - one request from a .npz file, and what a model answers to it.
 *
 *   VX_TRY(vx_example_read(&(struct vx_example_file){path, "--example", channels}, &why,
 *                          &example));
 *   status = vx_example_run(engine, model, &example, &answer);
 *   ...answer.outputs[o], answer.rows[o]...
 *   vx_answer_close(&answer);
 *   vx_example_close(&example);
 *
 * Owner    the caller: both are closed, also when what filled them failed.
 * Thread   one, which is the device thread.
 * Limits   those of npz.h and of the engine.
 * Fails    as npz.h and engine.h; INVALID_ARGUMENT for arrays of another shape or type.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_EXAMPLE_H
#define VX_ENGINE_TOOLS_EXAMPLE_H

#include "engine/engine.h"
#include "engine/tools/npz.h"

struct vx_example {
    struct vx_npz_array coords, feats; /* int32 [N, 4], float32 [N, C] */
};

struct vx_example_file {
    const char *path;
    const char *label; /* in error sentences */
    i32 channels;      /* of feats */
};
/* Starts from zeros. */
VX_MUST_USE vx_status vx_example_read(const struct vx_example_file *file,
                                      struct vx_why *why, struct vx_example *example);
void vx_example_close(struct vx_example *example);

/* Every output of a model, in the order of its signature. */
struct vx_answer {
    struct vx_item item; /* its `why` has the sentence of a failure */
    void *outputs[VX_OUTPUTS_MAX];
    i64 rows[VX_OUTPUTS_MAX];
};
/* A GPU's model has been warmed.  The example is borrowed for the call. */
VX_MUST_USE vx_status vx_example_run(struct vx_engine *engine, struct vx_model *model,
                                     const struct vx_example *example,
                                     struct vx_answer *answer);
/* 16-bit floats become float32, which holds each of them. */
VX_MUST_USE vx_status vx_answer_widen(const struct vx_output *output, i32 o,
                                      struct vx_answer *answer);
void vx_answer_close(struct vx_answer *answer);

#endif
