/* control - protobuf-c on a leash: messages into an arena, with a bound and no free.
 *
 * protobuf-c allocates each field and keeps a record per member in slabs that grow; bound
 * to an arena, all of it is one block that the caller resets.  A hostile message that
 * would need more is RESOURCE_EXHAUSTED, not memory.
 *
 *   Inference__ModelReadyRequest *request;
 *   VX_TRY(vx_control_unpack(&inference__model_ready_request__descriptor, bytes, arena,
 * &why, &message));
 *
 * Owner    the message lives in the arena and is never freed by itself.
 * Thread   any.
 * Limits   what is left of the arena.
 * Fails    INVALID_ARGUMENT for bytes that are not this message, RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_CONTROL_H
#define VX_PROTO_CONTROL_H

#include "engine/base/arena.h"
#include "proto/codec.h"

#include <protobuf-c/protobuf-c.h>

VX_MUST_USE vx_status vx_control_unpack(const ProtobufCMessageDescriptor *descriptor,
                                        struct vx_span bytes, struct vx_arena *arena,
                                        struct vx_why *why, ProtobufCMessage **message);

/* Packs into `out`; RESOURCE_EXHAUSTED when it does not fit. */
VX_MUST_USE vx_status vx_control_pack(const ProtobufCMessage *message, u8 *out,
                                      size_t capacity, size_t *length);

#endif
