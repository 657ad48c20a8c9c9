/* typed - tensor contents in protobuf's typed lists, for requests typed by hand.
 *
 *   VX_TRY(vx_typed_check(contents, tensor, why));
 *   vx_typed_copy(contents, tensor, memory);
 *
 * Thread   any.
 * Fails    INVALID_ARGUMENT: the list of another type, the wrong number of values, a
 *          value that does not fit the datatype, or a datatype that has no list (FP16,
 *          BF16).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_TYPED_H
#define VX_PROTO_TYPED_H

#include "open_inference.pb-c.h"
#include "proto/request.h"

/* `contents` may be NULL if the tensor has no elements. */
VX_MUST_USE vx_status vx_typed_check(const Inference__InferTensorContents *contents,
                                     const struct vx_request_tensor *tensor,
                                     struct vx_why *why);
/* Writes elements * size of type bytes; the contents have been checked. */
void vx_typed_copy(const Inference__InferTensorContents *contents,
                   const struct vx_request_tensor *tensor, u8 *out);

#endif
