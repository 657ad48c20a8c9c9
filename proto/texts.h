/* texts - checks every string of a message before protobuf-c makes C strings of them, and how
 * many parts it has.
 *
 * protobuf-c checks neither UTF-8 nor NUL bytes: it would cut a name at its NUL, and two
 * names that differ on the wire would be one.  The walk follows the message's descriptor,
 * so that it also sees the strings in sub-messages and map entries.
 *
 *   VX_TRY(vx_texts_check(&inference__model_infer_request__descriptor, bytes, &why));
 *
 * Thread   any.
 * Limits   sub-messages as deep as the schema, which has no recursion; VX_PARTS_MAX.
 * Fails    INVALID_ARGUMENT naming the field, or for bytes that are no protobuf;
 *          RESOURCE_EXHAUSTED for too many parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_TEXTS_H
#define VX_PROTO_TEXTS_H

#include "proto/codec.h"

#include <protobuf-c/protobuf-c.h>

VX_MUST_USE vx_status vx_texts_check(const ProtobufCMessageDescriptor *descriptor,
                                     struct vx_span message, struct vx_why *why);

#endif
