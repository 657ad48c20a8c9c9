/* arena_unpack - an answer as a client of the test reads it, in an arena.
 *
 * vx_control_unpack is for what clients send: the longest answers have more parts than that allows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_ARENA_UNPACK_H
#define VX_TESTS_SUPPORT_ARENA_UNPACK_H

#include "engine/base/memory/arena.h"

#include <protobuf-c/protobuf-c.h>

static inline void *arena_unpack_take(void *arena, size_t bytes)
{
    return vx_arena_take(arena, bytes);
}

static inline void arena_unpack_free(void *arena, void *piece)
{
    (void)arena;
    (void)piece; /* until the arena is reset */
}

/* NULL: no such message. */
static inline ProtobufCMessage *arena_unpack(const ProtobufCMessageDescriptor *descriptor,
                                             const u8 *bytes, size_t length,
                                             struct vx_arena *arena)
{
    ProtobufCAllocator allocator = {arena_unpack_take, arena_unpack_free, arena};
    return protobuf_c_message_unpack(descriptor, &allocator, length, bytes);
}

#endif
