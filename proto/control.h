/* control - protobuf-c with its memory in an arena: bounded, and never freed piecemeal.
 *
 * protobuf-c allocates each field, and a record of each member in slabs that grow.  Bound
 * to an arena, all of it is one block that the caller resets.  A hostile message that
 * needs more than the arena has is RESOURCE_EXHAUSTED.
 *
 *   ProtobufCMessage *message;
 *   VX_TRY(vx_control_unpack(&inference__model_ready_request__descriptor, bytes, arena,
 *                            &why, &message));
 *   Inference__ModelReadyRequest *request = (void *)message;
 *
 * Owner    the message lies in the arena until that is reset.
 * Thread   any.
 * Limits   what is left of the arena.
 * Fails    INVALID_ARGUMENT for bytes that are not this message, RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_CONTROL_H
#define VX_PROTO_CONTROL_H

#include "engine/base/memory/arena.h"
#include "proto/codec.h"

#include <protobuf-c/protobuf-c.h>

VX_MUST_USE vx_status vx_control_unpack(const ProtobufCMessageDescriptor *descriptor,
                                        struct vx_span bytes, struct vx_arena *arena,
                                        struct vx_why *why, ProtobufCMessage **message);

/* Packs into `out`; RESOURCE_EXHAUSTED when it does not fit. */
VX_MUST_USE vx_status vx_control_pack(const ProtobufCMessage *message, u8 *out,
                                      size_t capacity, size_t *length);

#endif
