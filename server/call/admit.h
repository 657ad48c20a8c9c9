/* admit - checks whether a request fits a model; each refusal has a sentence.
 *
 * The codec has checked the request in itself (shapes, bytes, types).  This pure function
 * checks it against the model's signature and says what to run: which input is which, N,
 * and which outputs.  A request that names a known geometry (coords_ref) has no coords;
 * then N is the number of rows of feats.
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

#include "engine/signature.h"
#include "proto/request.h"

struct vx_admitted {
    /* In the request; coords is NULL when a coords_ref stands for them. */
    const struct vx_request_tensor *coords, *feats;
    i64 voxels;         /* N */
    i32 coords_columns; /* 3 or 4; 0 without coords */
    i32 shape[3];       /* spatial_shape in place of the network's; zeros: that */
    enum vx_dtype feats_dtype;
    i32 outputs_count;
    i32 outputs[VX_OUTPUTS_MAX]; /* numbers in the signature, in the answer's order */
    /* By those numbers: N, or how many rows the output's own set has, which is known only
     * when the request runs: -1 until then. */
    i64 rows[VX_OUTPUTS_MAX];
};

/* The request's coords, before its model is known: the first input that is INT32 [N,3] or
 * [N,4] with N > 0, whatever its name; NULL = none.  vx_admit accepts no other input as
 * the model's coords. */
const struct vx_request_tensor *vx_admit_coords_of(const struct vx_request *request);

VX_MUST_USE vx_status vx_admit(const char *model, const struct vx_signature *signature,
                               const struct vx_request *request, struct vx_why *why,
                               struct vx_admitted *admitted);

/* Sets the rows of all outputs to what is known before the request runs.  Of a request
 * without voxels no output has rows. */
void vx_admit_rows(const struct vx_signature *signature, struct vx_admitted *admitted);
/* The tensor of the answer for output `o` with so many rows; parts of it are borrowed from
 * the signature. */
struct vx_reply_tensor vx_admit_reply_tensor(const struct vx_signature *signature, i32 o,
                                             i64 rows);

/* What the client of a request can do whose outputs, with `others` bytes of other tensors,
 * are too large: fewer voxels, or where most of the bytes are of dense outputs, which have
 * a row for each sample, fewer samples.  Static, or written to `text`. */
#define VX_ADMIT_SMALLER_BYTES 192
const char *vx_admit_smaller(const struct vx_reply_tensor *outputs, i32 count, u64 others,
                             char text[VX_ADMIT_SMALLER_BYTES]);

#endif
