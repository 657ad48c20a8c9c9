/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include <string.h>

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
