/* parameters - the parameter maps of a request: which keys are used, ignored or refused.
 *
 * Keys that stock clients send are known and must have their type.  Other keys `triton_*`
 * are refused, as Triton does, and so are keys that are a known one with one mistake.  Keys
 * of the user's own are ignored if they have one of the types that Triton takes.
 * sequence_id, sequence_start and sequence_end must have their types and are ignored too: no
 * model has a state.
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

/* Writes priority, timeout, timing, layers, spatial_shape and coords_ref to the request. */
VX_MUST_USE vx_status
vx_parameters_read_request(const Inference__ModelInferRequest *message,
                           struct vx_why *why, struct vx_request *request);
/* Where the tensor lies in shared memory; name "" if it is not there.  `classification`
 * is refused: it is not served. */
VX_MUST_USE vx_status
vx_parameters_read_input(const Inference__ModelInferRequest__InferInputTensor *input,
                         struct vx_why *why, struct vx_request_region *region);
VX_MUST_USE vx_status vx_parameters_read_output(
    const Inference__ModelInferRequest__InferRequestedOutputTensor *output,
    struct vx_why *why, struct vx_request_region *region);

#endif
