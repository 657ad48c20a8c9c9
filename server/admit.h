/* admit - does this request fit this model?  A pure function with a sentence for every
 * no.
 *
 * The codec has checked the request against itself (shapes, bytes, types); this checks it
 * against the model's signature and says what to run: which input is which, N, and which
 * outputs.  A request that names a known geometry has no coords; N is what feats say.
 *
 *   VX_TRY(vx_admit(name, &signature, &call->request, &why, &admitted));
 *
 * Thread   any.
 * Fails    INVALID_ARGUMENT, or RESOURCE_EXHAUSTED for more voxels than the model serves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ADMIT_H
#define VX_SERVER_ADMIT_H

#include "engine/engine.h"
#include "proto/request.h"

struct vx_admitted {
    const struct vx_request_tensor *coords, *feats; /* in the request; coords NULL: its
                                                       coords_ref stands for them */
    i64 voxels;                                     /* N */
    i32 coords_columns;                             /* 3 or 4; 0 without coords */
    enum vx_dtype feats_dtype;
    i32 outputs_count;
    i32 outputs[VX_OUTPUTS_MAX]; /* numbers in the signature, in the order of the answer
                                  */
};

VX_MUST_USE vx_status vx_admit(const char *model, const struct vx_signature *signature,
                               const struct vx_request *request, struct vx_why *why,
                               struct vx_admitted *admitted);

/* The answer's tensor for output `o` of a request of `voxels` rows. */
struct vx_reply_tensor vx_admit_reply_tensor(const struct vx_signature *signature, i32 o,
                                             i64 voxels);

#endif
