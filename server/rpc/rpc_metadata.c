/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include <string.h>

/* Headers of a call that lasts as long as its client likes (Watch, reflection): 768 such calls may
 * be held, and nothing else counts what they have.  A token (256), a tracestate (512) and what
 * proxies add, 20 headers, count 4.4 KB; gRPC's own default for any call is 8 KiB. */
#define LASTING_HEADERS_MAX (8 << 10)

static void read_traceparent(struct vx_call *call, const grpc_slice *value)
{
    size_t length = GRPC_SLICE_LENGTH(*value);
    if (length >= VX_TRACEPARENT_BYTES) return;
    memcpy(call->traceparent, GRPC_SLICE_START_PTR(*value), length);
    call->traceparent[length] = '\0';
}

/* Printable ASCII, as W3C has it: one other byte would make a batch of spans unreadable. */
static bool state_is_text(const u8 *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < ' ' || bytes[i] > '~') return false;
    return true;
}

/* It may come in several headers, which are one list in their order.  False: the list is
 * too long to be passed on, or is not text. */
static bool read_tracestate(struct vx_call *call, const grpc_slice *value)
{
    const u8 *bytes = GRPC_SLICE_START_PTR(*value);
    size_t length = GRPC_SLICE_LENGTH(*value), used = strlen(call->tracestate);
    size_t comma = used && length;
    if (used + comma + length >= VX_TRACESTATE_BYTES || !state_is_text(bytes, length))
        return false;
    if (comma) call->tracestate[used++] = ',';
    memcpy(call->tracestate + used, bytes, length);
    call->tracestate[used + length] = '\0';
    return true;
}

void vx_rpc_metadata_read(struct vx_rpc_record *record)
{
    bool whole = true; /* all of tracestate; a part of it would not be the caller's */
    for (size_t i = 0; i < record->metadata.count; i++) {
        const grpc_metadata *pair = &record->metadata.metadata[i];
        if (!grpc_slice_str_cmp(pair->key, "triton_grpc_error"))
            record->stream.strict = !grpc_slice_str_cmp(pair->value, "true");
        else if (!grpc_slice_str_cmp(pair->key, "traceparent"))
            read_traceparent(&record->call, &pair->value);
        else if (!grpc_slice_str_cmp(pair->key, "tracestate"))
            whole = read_tracestate(&record->call, &pair->value) && whole;
    }
    if (!whole) record->call.tracestate[0] = '\0';
}

void vx_rpc_metadata_drop(struct vx_rpc_record *record)
{
    grpc_metadata_array_destroy(&record->metadata);
    grpc_metadata_array_init(&record->metadata);
}

/* They lie in gRPC's call, and there is no other way to give them back than to end it. */
bool vx_rpc_metadata_refuses(struct vx_rpc_record *record)
{
    enum vx_method_kind kind = vx_method_get(record->call.method)->kind;
    if (kind != VX_METHOD_SERVER_STREAM && kind != VX_METHOD_BIDI) return false;
    size_t bytes = record->metadata.count * VX_HPACK_FIELD_BYTES;
    for (size_t i = 0; i < record->metadata.count; i++) {
        const grpc_metadata *pair = &record->metadata.metadata[i];
        bytes += GRPC_SLICE_LENGTH(pair->key) + GRPC_SLICE_LENGTH(pair->value);
    }
    if (bytes <= LASTING_HEADERS_MAX) return false;
    struct vx_why why;
    vx_why_set(&why,
               "the headers of this call are kept for as long as it lasts: expected at "
               "most %d bytes of names and values, each header with %d more, got %zu",
               LASTING_HEADERS_MAX, VX_HPACK_FIELD_BYTES, bytes);
    vx_rpc_call_refuse(record, VX_CODE_RESOURCE_EXHAUSTED, why.text);
    return true;
}
