/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_access.h"
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"

#include <grpc/byte_buffer_reader.h>
#include <string.h>

/* gRPC drops what came of a message that END_STREAM cuts off, and does not say so. */
vx_status vx_rpc_message_missing(void)
{
    VX_FAIL(INVALID_ARGUMENT, "expected one message, but the client sent none, or only "
                              "the beginning of one");
}

/* Lists the payload's slices as spans; the payload keeps them alive. */
static vx_status infer_list_spans(const struct vx_rpc_record *record,
                                  struct vx_rpc_desk *desk, struct vx_spans *spans,
                                  struct vx_why *why)
{
    grpc_byte_buffer_reader reader;
    VX_ENSURE(grpc_byte_buffer_reader_init(&reader, record->payload), INVALID_ARGUMENT,
              "the message could not be decompressed");
    *spans = (struct vx_spans){.list = desk->spans};
    grpc_slice *piece;
    while (spans->count < record->rpc->spans_max &&
           grpc_byte_buffer_reader_peek(&reader, &piece)) {
        size_t bytes = GRPC_SLICE_LENGTH(*piece);
        desk->spans[spans->count++] =
            (struct vx_span){GRPC_SLICE_START_PTR(*piece), bytes};
        spans->bytes += bytes;
    }
    grpc_byte_buffer_reader_destroy(&reader);
    VX_ENSURE_WHY(
        spans->bytes == grpc_byte_buffer_length(record->payload), why, RESOURCE_EXHAUSTED,
        "the message came in too many fragments",
        "the message of %zu bytes came in more than %zu fragments; send larger frames",
        grpc_byte_buffer_length(record->payload), record->rpc->spans_max);
    return VX_OK;
}

/* Geometries are kept in shares: for each token, or else for each address, IPv6 network or, over a
 * Unix socket, user; not for each process as turns are, since geometries outlive those.  By a hash,
 * so that no crowd of addresses can be chosen for the numbers that they get. */
static u64 infer_names_origin(const struct vx_rpc_options *options,
                              const struct vx_call *call)
{
    const struct vx_peer *peer = &call->peer;
    const bool is_unix = peer->kind == VX_PEER_UNIX;
    const u64 source = is_unix ? (u64)1 << 63 | peer->uid : peer->source;
    const struct vx_coords_ref token = call->names_mask;
    const u64 who[3] = {vx_coords_ref_there(token) ? 0 : source, token.low, token.high};
    i32 words[6];
    memcpy(words, who, sizeof words);
    return vx_coords_ref_of(&options->owners_key, words, 1, VX_COUNT(words)).low;
}

/* Computes the coords_ref here, so that the loop never reads megabytes. */
static void infer_name_coords(const struct vx_rpc_options *options, struct vx_call *call)
{
    struct vx_request *request = &call->request;
    const struct vx_slots *slots = options->slots;
    call->names_mask = vx_coords_ref_mask(&options->owners_key, call->ticket.name);
    call->names_origin = infer_names_origin(options, call);
    const struct vx_request_tensor *coords = vx_admit_coords_of(request);
    if (!coords || coords->place.kind != VX_PLACE_ARENA) return;
    const void *bytes = slots->memory(slots->context, &coords->place);
    request->sent_ref = vx_coords_ref_of(&options->coords_ref_key, bytes,
                                         (i32)coords->shape[1], coords->shape[0]);
}

/* The arena as one call takes of it.  A block is counted for its connection before it is taken: who
 * is beyond its part takes none, not even for as long as its message is decoded, and is not one
 * who found no room, for which others would have to go. */
struct infer_slots {
    struct vx_slots slots;
    const struct vx_slots *arena;
    struct vx_call *call;
    u64 beyond; /* what the call would have had, with the first block beyond the part */
};

static bool infer_slot_take(void *context, size_t bytes, struct vx_place *slot)
{
    struct infer_slots *of = context;
    const u64 whole = vx_slot_bytes(bytes);
    if (!vx_rpc_may_take(of->call, whole)) {
        of->beyond = vx_rpc_record_of(of->call)->tensors_bytes + whole;
        *slot = (struct vx_place){0};
        return false;
    }
    if (of->arena->take(of->arena->context, bytes, slot)) return true;
    vx_rpc_gave(of->call, whole);
    return false;
}

static void infer_slot_give(void *context, struct vx_place *slot)
{
    const struct infer_slots *of = context;
    const u64 whole = vx_slot_bytes(slot->bytes);
    of->arena->give(of->arena->context, slot);
    vx_rpc_gave(of->call, whole);
}

static u8 *infer_slot_memory(void *context, const struct vx_place *slot)
{
    const struct infer_slots *of = context;
    return of->arena->memory(of->arena->context, slot);
}

/* Reads the message, and takes what its tensors need. */
static vx_status infer_parse(struct vx_rpc_record *record, struct vx_arena *scratch,
                             const struct vx_spans *spans, struct vx_why *why)
{
    struct vx_rpc *rpc = record->rpc;
    struct vx_call *call = &record->call;
    struct infer_slots of = {.arena = rpc->options.slots, .call = call};
    of.slots = (struct vx_slots){.take = infer_slot_take,
                                 .give = infer_slot_give,
                                 .memory = infer_slot_memory,
                                 .context = &of,
                                 .bytes = of.arena->bytes};
    vx_arena_reset(scratch);
    vx_status status =
        vx_codec_parse_infer(spans, &of.slots, scratch, why, &call->request);
    VX_ENSURE_WHY(
        !of.beyond, why, RESOURCE_EXHAUSTED,
        "the tensors exceed the connection's share of the arena",
        "no room for %llu bytes of tensors: that exceeds the share of this connection, "
        "or of its address, of the memory for tensors in flight while others have most "
        "of it; try again when they "
        "have their answers",
        (unsigned long long)of.beyond);
    if (status.fault) return status;
    struct vx_call_memory memory = vx_rpc_call_memory(&rpc->options);
    memory.slots = &of.slots;
    /* They may be copied: nobody need wait for that. */
    const struct vx_request_tensor *coords = vx_admit_coords_of(&call->request);
    if (coords && coords->region.name[0]) vx_rpc_crew_large(rpc, coords->region.bytes);
    call->regions_status = vx_call_tensors_take(&memory, call, &call->regions_why);
    return VX_OK;
}

static vx_status infer_decode(struct vx_rpc_record *record, struct vx_rpc_desk *desk,
                              struct vx_why *why)
{
    struct vx_rpc *rpc = record->rpc;
    if (!record->payload) return vx_rpc_message_missing();
    record->call.body_bytes = grpc_byte_buffer_length(record->payload);
    atomic_fetch_add_explicit(&rpc->bytes_in, record->call.body_bytes,
                              memory_order_relaxed);
    vx_rpc_crew_large(rpc, record->call.body_bytes);
    vx_panic_note("decoding a body of bytes", record->call.body_bytes);
    struct vx_spans spans;
    VX_TRY(infer_list_spans(record, desk, &spans, why));
    return infer_parse(record, &desk->scratch, &spans, why);
}

/* A call was asked when it began. */
static vx_status infer_may(struct vx_rpc_record *record, struct vx_why *why)
{
    vx_status may = record->parent ? vx_rpc_access_stays(record, why) : VX_OK;
    if (may.fault) vx_rpc_inputs_give(record);
    return may;
}

bool vx_rpc_may_take(struct vx_call *call, u64 bytes)
{
    struct vx_rpc_record *record = vx_rpc_record_of(call);
    if (!vx_rpc_govern_take(vx_rpc_place_of(record), bytes)) return false;
    record->tensors_bytes += bytes;
    return true;
}

void vx_rpc_gave(struct vx_call *call, u64 bytes)
{
    struct vx_rpc_record *record = vx_rpc_record_of(call);
    VX_ASSERT(record->tensors_bytes >= bytes);
    record->tensors_bytes -= bytes;
    vx_rpc_govern_give(vx_rpc_place_of(record), bytes);
}

vx_status vx_rpc_infer_read(struct vx_rpc_record *record, struct vx_rpc_desk *desk,
                            struct vx_why *why)
{
    vx_status status = infer_decode(record, desk, why);
    if (status.fault)
        status = vx_rpc_access_pay(record, status, why);
    else
        status = infer_may(record, why);
    /* For the token that it has now. */
    if (!status.fault) infer_name_coords(&record->rpc->options, &record->call);
    vx_rpc_memory_give_scratch(&desk->scratch);
    vx_rpc_message_drop(record);
    return status;
}
