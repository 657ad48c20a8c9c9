/* typed - tensor contents in protobuf's typed lists, for requests typed by hand.
 *
 * The lists stay where they are in the message.  Who walks it counts their values; when the request
 * is checked, they are read from there into the tensor's memory.
 *
 *   struct vx_typed typed = {.input = scan};                        (at the fields of an input)
 *   if (vx_typed_has(&field)) VX_TRY(vx_typed_count(&typed, &scan, &field));
 *   ...
 *   VX_TRY(vx_typed_check(contents, &typed, tensor, why));
 *   VX_TRY(vx_typed_read(&typed, tensor, why, memory));
 *
 * Owner    the message's spans are borrowed.
 * Thread   any.
 * Fails    INVALID_ARGUMENT: the list of another type, the wrong number of values, a
 *          value that does not fit the datatype, a datatype that has no list (FP16,
 *          BF16), or a list that is no protobuf.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_TYPED_H
#define VX_PROTO_TYPED_H

#include "open_inference.pb-c.h"
#include "proto/scan.h"

#define VX_TYPED_CONTENTS 5 /* the field of an input that has the lists */

/* The lists of one input by their fields in InferTensorContents: 1, bool_contents, to 7. */
#define VX_TYPED_LISTS 8
struct vx_typed {
    struct vx_scan input; /* at the input's fields; nothing else is left */
    u64 counts[VX_TYPED_LISTS];
};

/* Whether a field of InferTensorContents has values of a list.  If not, it is bytes_contents,
 * unknown, or of a wrong type: protobuf-c judges it. */
bool vx_typed_has(const struct vx_scan_field *field);
/* Counts the values of such a field, which vx_scan_field has read, and of those behind it that are
 * alike; then the scan is behind them. */
VX_MUST_USE vx_status vx_typed_count(struct vx_typed *typed, struct vx_scan *scan,
                                     const struct vx_scan_field *field);

/* `contents` has what is in no list; it may be NULL if the tensor has no elements. */
VX_MUST_USE vx_status vx_typed_check(const Inference__InferTensorContents *contents,
                                     const struct vx_typed *typed,
                                     const struct vx_request_tensor *tensor,
                                     struct vx_why *why);
/* Writes elements * size of type bytes; what there is has been checked, except the values. */
VX_MUST_USE vx_status vx_typed_read(const struct vx_typed *typed,
                                    const struct vx_request_tensor *tensor,
                                    struct vx_why *why, u8 *out);

#endif
