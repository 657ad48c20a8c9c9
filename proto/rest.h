/* rest - a ModelInferRequest without its tensors: what protobuf-c unpacks.
 *
 * Raw tensors and the values of typed lists stay in the message's spans.  All else is copied into one
 * piece, names, shapes and parameters, and the lengths around a list that is left out become those of
 * what is left.  So what unpacking takes does not grow with the tensors.
 *
 *   struct vx_rest rest;
 *   VX_TRY(vx_rest_gather(spans, rest_bytes, scratch, why, &rest));
 *   VX_TRY(vx_control_unpack(descriptor, rest.bytes, scratch, why, &message));
 *
 * Owner    `bytes` is in scratch; the spans are borrowed.
 * Thread   any.
 * Limits   VX_INFER_NAMES_BYTES_MAX.
 * Fails    INVALID_ARGUMENT for bytes that are no protobuf; RESOURCE_EXHAUSTED beyond the limit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_REST_H
#define VX_PROTO_REST_H

#include "proto/typed.h"

#define VX_REST_RAW 7 /* the field raw_input_contents */

struct vx_rest {
    struct vx_span bytes;
    /* The lists of each; undefined where the message has no such input. */
    struct vx_typed inputs[VX_INPUTS_MAX];
};

/* `bytes` is how many the message has outside of raw tensors. */
VX_MUST_USE vx_status vx_rest_gather(const struct vx_spans *spans, size_t bytes,
                                     struct vx_arena *scratch, struct vx_why *why,
                                     struct vx_rest *rest);

#endif
