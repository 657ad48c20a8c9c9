/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"

#include "proto/texts.h"

struct leash {
    struct vx_arena *arena;
    bool full;
};

static void *leash_alloc(void *context, size_t bytes)
{
    struct leash *leash = context;
    void *piece = vx_arena_take(leash->arena, bytes);
    if (!piece) leash->full = true;
    return piece;
}

static void leash_free(void *context, void *pointer)
{
    (void)context;
    (void)pointer; /* freed by the arena's reset */
}

vx_status vx_control_unpack(const ProtobufCMessageDescriptor *descriptor,
                            struct vx_span bytes, struct vx_arena *arena,
                            struct vx_why *why, ProtobufCMessage **message)
{
    struct leash leash = {arena, false};
    ProtobufCAllocator allocator = {leash_alloc, leash_free, &leash};
    static const u8 nothing; /* an empty message may come as a NULL pointer */
    const u8 *data = bytes.bytes ? bytes.data : &nothing;
    *message = NULL;
    VX_TRY(vx_texts_check(descriptor, (struct vx_span){data, bytes.bytes}, why));
    *message = protobuf_c_message_unpack(descriptor, &allocator, bytes.bytes, data);
    if (*message) return VX_OK;
    VX_ENSURE_WHY(!leash.full, why, RESOURCE_EXHAUSTED, "the message has too many fields",
                  "a %s of %zu bytes has too many fields", descriptor->short_name,
                  bytes.bytes);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "the message could not be parsed",
                "expected a %s, got %zu bytes that do not parse as one",
                descriptor->short_name, bytes.bytes);
}

vx_status vx_control_pack(const ProtobufCMessage *message, u8 *out, size_t capacity,
                          size_t *length)
{
    size_t need = protobuf_c_message_get_packed_size(message);
    VX_ENSURE(need <= capacity, RESOURCE_EXHAUSTED,
              "the answer exceeds the maximum size of an answer");
    *length = protobuf_c_message_pack(message, out);
    return VX_OK;
}
