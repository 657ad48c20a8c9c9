/* codec - wire bytes <-> request and reply; tensors go straight into their slots.
 *
 * A request arrives as a chain of byte spans: gRPC slices, but this folder does not know
 * gRPC.  Pass one walks the top-level fields and measures raw tensors (field 7).  All else
 * but the values of typed lists is gathered into scratch, where protobuf-c unpacks it
 * (rest.h).  When everything is checked, slots are taken, and pass two copies each raw
 * tensor once, span by span, into its slot, or reads its list from there (typed.h).  A
 * tensor in shared memory has no slot and no raw entry: only its place is read.
 *
 *   struct vx_spans spans = {list, count, total};
 *   VX_TRY(vx_codec_parse_infer(&spans, &slots, scratch, &why, &request));
 *   ...
 *   size_t n = vx_codec_pack_reply_head(&reply, head, sizeof head);
 *
 * Owner    spans are borrowed for the call.  On success the slots in `request` belong to
 *          the caller; on failure none is left taken.
 * Thread   parse: the rpc threads; pack: the loop.  Both are re-entrant.
 * Limits   proto/limits.h.
 * Fails    INVALID_ARGUMENT with what was expected and what came; RESOURCE_EXHAUSTED when
 *          the arena has no room, or when what is not raw tensors is larger than
 *          VX_INFER_REST_BYTES_MAX, or VX_INFER_NAMES_BYTES_MAX without typed contents.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_CODEC_H
#define VX_PROTO_CODEC_H

#include "engine/base/limits.h"
#include "engine/base/memory/arena.h"
#include "engine/base/status.h"
#include "proto/request.h"

struct vx_span {
    const u8 *data;
    size_t bytes; /* may be 0 */
};
struct vx_spans {
    const struct vx_span *list;
    size_t count;
    size_t bytes; /* sum over the list */
};

/* Where slots come from: the arena, behind a table so that tests can use plain memory. */
struct vx_slots {
    /* False when full.  The memory is not cleared.  A slot is a place in the arena. */
    bool (*take)(void *context, size_t bytes, struct vx_place *slot);
    void (*give)(void *context, struct vx_place *slot);
    u8 *(*memory)(void *context, const struct vx_place *slot);
    void *context;
    u64 bytes; /* of the whole arena; 0 = it has no end */
    /* How often take found no room for what an empty arena could have held; NULL = never. */
    u64 (*lacked)(void *context);
};

/* The least that a slot of so many bytes takes of the arena: a power of two. */
u64 vx_slot_bytes(u64 bytes);

/* Parses ModelInferRequest.  `scratch` has VX_INFER_SCRATCH_BYTES, and the caller resets
 * it before the call.  If parsing fails after the id was read, the request has its id all
 * the same, so that the error can name it. */
VX_MUST_USE vx_status vx_codec_parse_infer(const struct vx_spans *spans,
                                           const struct vx_slots *slots,
                                           struct vx_arena *scratch, struct vx_why *why,
                                           struct vx_request *request);

/* A reply is its head, then for each output a raw prefix and the tensor's bytes, in
 * order.  The head is fields 1-5; a raw prefix is the tag and length of one entry of
 * field 6.  Both functions return the bytes written; `bytes` is at least the maximum
 * below. */
#define VX_REPLY_HEAD_BYTES_MAX ((12 << 10) + VX_TAKEN_BYTES)
#define VX_RAW_PREFIX_BYTES_MAX 11
size_t vx_codec_pack_reply_head(const struct vx_reply *reply, u8 *out, size_t bytes);
size_t vx_codec_pack_raw_prefix(u64 tensor_bytes, u8 *out, size_t bytes);

/* For an answer on a stream: the tag and length in front of its infer_response, or a
 * whole message with the error `text`, which names the id and the model of `request`. */
#define VX_STREAM_PREFIX_BYTES_MAX 11
#define VX_STREAM_ERROR_BYTES_MAX  1024
size_t vx_codec_pack_stream_prefix(u64 response_bytes, u8 *out, size_t bytes);
size_t vx_codec_pack_stream_error(const char *text, const struct vx_request *request,
                                  u8 *out, size_t bytes);

/* Version strings: "" is 0, else a decimal integer > 0, with Triton's error text. */
VX_MUST_USE vx_status vx_codec_parse_version(const char *text, struct vx_why *why,
                                             i64 *version);

#endif
