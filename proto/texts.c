/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/texts.h"

#include "engine/base/process/check.h"
#include "engine/base/utf8.h"
#include "proto/scan.h"

#include <string.h>

#define DEPTH_MAX 16 /* our .proto files nest 6 deep; only a recursive schema has more */

static vx_status texts_check_one(const ProtobufCMessageDescriptor *descriptor,
                                 const ProtobufCFieldDescriptor *field,
                                 struct vx_span text, struct vx_why *why)
{
    VX_ENSURE_WHY(vx_utf8_is(text.data, text.bytes), why, INVALID_ARGUMENT,
                  "a string is not UTF-8", "%s of %s: expected UTF-8 text", field->name,
                  descriptor->short_name);
    VX_ENSURE_WHY(!text.bytes || !memchr(text.data, 0, text.bytes), why, INVALID_ARGUMENT,
                  "a string has a NUL byte", "%s of %s: expected text without NUL bytes",
                  field->name, descriptor->short_name);
    return VX_OK;
}

/* Numbers grow little.  Whatever else there is gets memory of its own. */
static bool is_part(const ProtobufCFieldDescriptor *field)
{
    return !field || field->type == PROTOBUF_C_TYPE_STRING ||
           field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_MESSAGE;
}

static vx_status texts_check_depth(const ProtobufCMessageDescriptor *descriptor,
                                   struct vx_span message, struct vx_why *why, int depth,
                                   i32 *parts)
{
    VX_ASSERT(depth < DEPTH_MAX);
    struct vx_spans spans = {&message, 1, message.bytes};
    struct vx_scan scan;
    struct vx_scan_field got;
    vx_scan_init(&scan, &spans);
    while (vx_scan_left(&scan)) {
        VX_TRY(vx_scan_field(&scan, &got));
        /* The message is one span, so the value is contiguous. */
        struct vx_span value = {scan.at, (size_t)got.bytes};
        vx_scan_copy(&scan, NULL, value.bytes);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(descriptor, got.number);
        *parts += is_part(field);
        VX_ENSURE_WHY(*parts <= VX_PARTS_MAX, why, RESOURCE_EXHAUSTED,
                      "the message has too many fields",
                      "expected at most %d texts, sub-messages and unknown fields in a "
                      "message, got more",
                      VX_PARTS_MAX);
        if (!field || got.type != VX_SCAN_BYTES) continue;
        if (field->type == PROTOBUF_C_TYPE_STRING)
            VX_TRY(texts_check_one(descriptor, field, value, why));
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            VX_TRY(texts_check_depth(field->descriptor, value, why, depth + 1, parts));
    }
    return VX_OK;
}

vx_status vx_texts_check(const ProtobufCMessageDescriptor *descriptor,
                         struct vx_span message, struct vx_why *why)
{
    i32 parts = 0;
    return texts_check_depth(descriptor, message, why, 0, &parts);
}
