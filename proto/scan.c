/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/scan.h"

#include "engine/base/process/check.h"

#include <string.h>

#define VARINT_BYTES_MAX 10 /* 64 bits, seven at a time */
/* Of a tag and of a length, which have 32 bits: other readers take no more either, so what is read
 * here and what protobuf-c reads of it are the same fields. */
#define SHORT_BYTES_MAX 5

void vx_scan_init(struct vx_scan *scan, const struct vx_spans *spans)
{
    *scan = (struct vx_scan){.next = spans->list, .left = spans->bytes};
}

/* At the end of a span, moves to the next that is not empty.  Something must be left. */
static void scan_fill(struct vx_scan *scan)
{
    while (scan->at == scan->end) {
        const struct vx_span *span = scan->next++;
        if (!span->bytes) continue; /* its data may be NULL: no arithmetic */
        scan->at = span->data;
        scan->end = span->data + span->bytes;
    }
}

static vx_status scan_varint_slow(struct vx_scan *scan, u64 *value)
{
    *value = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX; i++) {
        VX_ENSURE(scan->left, INVALID_ARGUMENT,
                  "the message is not valid protobuf: it ends inside a varint");
        scan_fill(scan);
        u8 byte = *scan->at++;
        scan->left--;
        *value |= (u64)(byte & 0x7f) << (7 * i); /* bits beyond the 64th fall off */
        if (!(byte & 0x80)) return VX_OK;
    }
    VX_FAIL(INVALID_ARGUMENT,
            "the message is not valid protobuf: a varint is longer than 10 bytes");
}

/* Most have one byte: tags, and the values of lists without a length. */
static inline vx_status scan_varint(struct vx_scan *scan, u64 *value)
{
    if (!scan->left || scan->at == scan->end || *scan->at & 0x80)
        return scan_varint_slow(scan, value);
    *value = *scan->at++;
    scan->left--;
    return VX_OK;
}

vx_status vx_scan_tag(struct vx_scan *scan, struct vx_scan_field *field)
{
    u64 tag;
    const size_t before = scan->left;
    VX_TRY(scan_varint(scan, &tag));
    VX_ENSURE(tag <= UINT32_MAX && tag >> 3 && before - scan->left <= SHORT_BYTES_MAX,
              INVALID_ARGUMENT,
              "the message is not valid protobuf: a field number is out of range");
    field->number = (u32)(tag >> 3);
    field->type = (enum vx_scan_type)(tag & 7);
    return VX_OK;
}

vx_status vx_scan_value(struct vx_scan *scan, struct vx_scan_field *field)
{
    u64 value;
    const size_t before = scan->left;
    switch (field->type) {
    case VX_SCAN_VARINT: field->bytes = 0; return scan_varint(scan, &value);
    case VX_SCAN_FIXED64: field->bytes = 8; break;
    case VX_SCAN_FIXED32: field->bytes = 4; break;
    case VX_SCAN_BYTES:
        VX_TRY(scan_varint(scan, &field->bytes));
        VX_ENSURE(before - scan->left <= SHORT_BYTES_MAX, INVALID_ARGUMENT,
                  "the message is not valid protobuf: a length is longer than 5 bytes");
        break;
    default:
        VX_FAIL(INVALID_ARGUMENT, "the message is not valid protobuf 3: it has a group");
    }
    VX_ENSURE(field->bytes <= scan->left, INVALID_ARGUMENT,
              "the message is not valid protobuf: a field is longer than the message");
    return VX_OK;
}

vx_status vx_scan_field(struct vx_scan *scan, struct vx_scan_field *field)
{
    VX_TRY(vx_scan_tag(scan, field));
    return vx_scan_value(scan, field);
}

struct vx_span vx_scan_piece(struct vx_scan *scan, size_t bytes)
{
    VX_ASSERT(bytes && bytes <= scan->left);
    scan_fill(scan);
    const size_t here = (size_t)(scan->end - scan->at);
    return (struct vx_span){scan->at, here < bytes ? here : bytes};
}

void vx_scan_copy(struct vx_scan *scan, void *out, size_t bytes)
{
    VX_ASSERT(bytes <= scan->left);
    scan->left -= bytes;
    u8 *to = out;
    while (bytes) {
        scan_fill(scan);
        size_t here = (size_t)(scan->end - scan->at);
        if (here > bytes) here = bytes;
        if (to) {
            memcpy(to, scan->at, here);
            to += here;
        }
        scan->at += here;
        bytes -= here;
    }
}
