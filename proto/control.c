/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"

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
    (void)pointer; /* the arena's reset */
}

vx_status vx_control_unpack(const ProtobufCMessageDescriptor *descriptor,
                            struct vx_span bytes, struct vx_arena *arena,
                            struct vx_why *why, ProtobufCMessage **message)
{
    struct leash leash = {arena, false};
    ProtobufCAllocator allocator = {leash_alloc, leash_free, &leash};
    static const u8 nothing; /* an empty message may come as a NULL pointer */
    const u8 *data = bytes.bytes ? bytes.data : &nothing;
    *message = protobuf_c_message_unpack(descriptor, &allocator, bytes.bytes, data);
    if (*message) return VX_OK;
    VX_ENSURE_WHY(!leash.full, why, RESOURCE_EXHAUSTED, "the message has too many parts",
                  "a %s of %zu bytes has too many parts", descriptor->short_name,
                  bytes.bytes);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "the message could not be read",
                "expected a %s, got %zu bytes that are none", descriptor->short_name,
                bytes.bytes);
}

vx_status vx_control_pack(const ProtobufCMessage *message, u8 *out, size_t capacity,
                          size_t *length)
{
    size_t need = protobuf_c_message_get_packed_size(message);
    VX_ENSURE(need <= capacity, RESOURCE_EXHAUSTED,
              "the answer is larger than an answer may be");
    *length = protobuf_c_message_pack(message, out);
    return VX_OK;
}

bool vx_is_utf8(const char *text)
{
    static const u32 least[] = {0, 0x80, 0x800, 0x10000}; /* by continuation bytes */
    const u8 *at = (const u8 *)text;
    while (*at) {
        u8 lead = *at++;
        if (lead < 0x80) continue;
        int more = lead >= 0xf0 && lead < 0xf8 ? 3
                   : lead >= 0xe0              ? 2
                   : lead >= 0xc0              ? 1
                                               : 0;
        if (!more || lead >= 0xf8) return false;
        u32 point = lead & (0x3fu >> more);
        for (int i = 0; i < more; i++) {
            if ((*at & 0xc0) != 0x80) return false;
            point = point << 6 | (*at++ & 0x3f);
        }
        if (point < least[more] || point > 0x10ffff ||
            (point >= 0xd800 && point < 0xe000))
            return false;
    }
    return true;
}
