/* parameters - the parameter maps of a request: which keys mean something here, which are
 * refused.
 *
 * Keys that stock clients send are known, and must have their type; `triton_*` beyond those
 * is refused as Triton does; keys of the user's own are taken, in the types Triton takes,
 * and ignored.  So are sequence_id, sequence_start and sequence_end: no model has a state.
 *
 *   VX_TRY(vx_parameters_read_request(message, why, request));
 *
 * Thread   any.
 * Fails    INVALID_ARGUMENT naming the key, what was expected and what came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_PARAMETERS_H
#define VX_PROTO_PARAMETERS_H

#include "open_inference.pb-c.h"
#include "proto/request.h"

/* priority, timeout, timing, coords_ref into the request. */
VX_MUST_USE vx_status
vx_parameters_read_request(const Inference__ModelInferRequest *message,
                           struct vx_why *why, struct vx_request *request);
/* Where the tensor lies when it is in shared memory; a name "" when it is not.
 * `classification` is said to be not served. */
VX_MUST_USE vx_status
vx_parameters_read_input(const Inference__ModelInferRequest__InferInputTensor *input,
                         struct vx_why *why, struct vx_request_region *region);
VX_MUST_USE vx_status vx_parameters_read_output(
    const Inference__ModelInferRequest__InferRequestedOutputTensor *output,
    struct vx_why *why, struct vx_request_region *region);

#endif
