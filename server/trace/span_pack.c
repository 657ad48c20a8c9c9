/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace/span_pack.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "proto/control.h"

#include "otlp.pb-c.h"

#include <stdio.h>
#include <string.h>

#define TRACE_ID 16
#define SPAN_ID  8
/* Most attributes of one span; pack_add_request sets them. */
#define ATTRIBUTES_MAX 20
#define SERVICE_BYTES  64
/* OTLP's flags: W3C's sampled, and whether it is known that the parent is in another
 * process, and whether it is. */
#define FLAG_SAMPLED          0x001u
#define FLAG_REMOTE_KNOWN     0x100u
#define FLAG_REMOTE           0x200u
#define ANSWER_SCRATCH_BYTES  16384
#define RESOURCE_PACKED_BYTES (VX_RESOURCE_TEXT_BYTES + 64 * VX_RESOURCE_ATTRIBUTES_MAX)
#define BODY_BYTES                                                                       \
    (VX_SPAN_PACK_RECORDS * VX_SPAN_PACK_RECORD_BYTES + RESOURCE_PACKED_BYTES)

/* Texts of the request's span once, what every span has once for each. */
_Static_assert(VX_WIRE_NAME_BYTES + VX_REQUEST_ID_BYTES + 2 * VX_WHY_BYTES +
                       64 * ATTRIBUTES_MAX +
                       VX_RECORD_SPANS_MAX * (VX_TRACESTATE_BYTES + 200) <=
                   VX_SPAN_PACK_RECORD_BYTES,
               "the longest record fits");

static const char *const stage_names[VX_STAGES_COUNT] = {
    [VX_STAGE_RECEIVE] = "receive", [VX_STAGE_QUEUE] = "queue",
    [VX_STAGE_INPUT] = "input",     [VX_STAGE_GEOMETRY] = "geometry",
    [VX_STAGE_COMPUTE] = "compute", [VX_STAGE_ANSWER] = "answer",
};

/* A list of attributes that grows. */
struct attributes {
    i32 count;
    Otlp__Attribute pairs[ATTRIBUTES_MAX];
    Otlp__Value values[ATTRIBUTES_MAX];
    Otlp__Attribute *list[ATTRIBUTES_MAX];
};

/* A record's messages, and the bytes that they point to. */
struct packed {
    const struct vx_record *record;
    Otlp__Span spans[VX_RECORD_SPANS_MAX];
    Otlp__SpanStatus status;
    struct attributes attributes;
    char service[SERVICE_BYTES];
    u8 trace_id[TRACE_ID];
    u8 parent_id[SPAN_ID];
    u8 ids[VX_RECORD_SPANS_MAX][SPAN_ID];
};

struct vx_span_pack {
    const struct vx_resource *resource;
    i32 records;
    i32 spans;
    struct packed packed[VX_SPAN_PACK_RECORDS];
    Otlp__Span *list[VX_SPAN_PACK_RECORDS * VX_RECORD_SPANS_MAX];
    u8 body[BODY_BYTES];
};

vx_status vx_span_pack_open(const struct vx_resource *resource,
                            struct vx_span_pack **pack)
{
    *pack = vx_alloc_zero(sizeof **pack);
    VX_ENSURE(*pack, RESOURCE_EXHAUSTED, "no memory to pack spans");
    (*pack)->resource = resource;
    return VX_OK;
}

void vx_span_pack_close(struct vx_span_pack **pack)
{
    vx_free(*pack);
    *pack = NULL;
}

/* ------- attributes ------- */

static Otlp__Value *attribute_add(struct attributes *to, const char *key)
{
    VX_ASSERT(to->count < ATTRIBUTES_MAX);
    i32 i = to->count++;
    to->pairs[i] = (Otlp__Attribute)OTLP__ATTRIBUTE__INIT;
    to->values[i] = (Otlp__Value)OTLP__VALUE__INIT;
    to->pairs[i].key = (char *)key;
    to->pairs[i].value = &to->values[i];
    to->list[i] = &to->pairs[i];
    return &to->values[i];
}

static void attribute_text(struct attributes *to, const char *key, const char *text)
{
    Otlp__Value *value = attribute_add(to, key);
    value->value_case = OTLP__VALUE__VALUE_STRING_VALUE;
    value->string_value = (char *)text;
}

static void attribute_i64(struct attributes *to, const char *key, i64 number)
{
    Otlp__Value *value = attribute_add(to, key);
    value->value_case = OTLP__VALUE__VALUE_INT_VALUE;
    value->int_value = number;
}

/* What a request has only if a device had it. */
static void attributes_of_run(struct attributes *to, const struct vx_record *record)
{
    attribute_text(to, "voxeld.device", record->device);
    attribute_i64(to, "voxeld.worker", record->worker);
    Otlp__Value *hit = attribute_add(to, "voxeld.geometry.hit");
    hit->value_case = OTLP__VALUE__VALUE_BOOL_VALUE;
    hit->bool_value = record->geometry_hit;
    attribute_i64(to, "voxeld.pairs", record->pairs);
    attribute_i64(to, "voxeld.batch.requests", record->batch_requests);
    attribute_i64(to, "voxeld.batch.voxels", record->batch_voxels);
    if (record->batch_fill <= 0) return;
    Otlp__Value *fill = attribute_add(to, "voxeld.batch.fill");
    fill->value_case = OTLP__VALUE__VALUE_DOUBLE_VALUE;
    fill->double_value = record->batch_fill;
}

static void attributes_of_request(struct packed *packed)
{
    const struct vx_record *record = packed->record;
    struct attributes *to = &packed->attributes;
    const char *method = strrchr(record->path, '/');
    VX_ASSERT(record->path[0] == '/');
    VX_ASSERT(method > record->path);
    (void)snprintf(packed->service, sizeof packed->service, "%.*s",
                   (int)(method - record->path - 1), record->path + 1);
    to->count = 0;
    attribute_text(to, "rpc.system", "grpc");
    attribute_text(to, "rpc.service", packed->service);
    attribute_text(to, "rpc.method", method + 1);
    attribute_i64(to, "rpc.grpc.status_code", (i64)record->code);
    if (record->code != VX_CODE_OK)
        attribute_text(to, "error.type", vx_code_name(record->code));
    if (record->why[0]) attribute_text(to, "voxeld.error", record->why);
    attribute_text(to, "voxeld.model", record->model);
    if (record->version) attribute_i64(to, "voxeld.version", record->version);
    if (record->id[0]) attribute_text(to, "voxeld.request.id", record->id);
    attribute_i64(to, "voxeld.voxels", record->voxels);
    attribute_i64(to, "voxeld.request.bytes", record->bytes_in);
    attribute_i64(to, "voxeld.answer.bytes", record->bytes_out);
    if (record->ran) attributes_of_run(to, record);
}

/* ------- one record ------- */

static u8 hex_digit(char c)
{
    return (u8)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void hex_read(const char *text, u8 *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (u8)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
}

/* The id of a stage follows from that of its request, so the loop makes one id for each
 * request.  The mixing is SplitMix64's, so ids of two requests meet as rarely as random
 * ones. */
static void stage_id(const u8 of[SPAN_ID], i32 stage, u8 out[SPAN_ID])
{
    u64 z;
    memcpy(&z, of, sizeof z);
    z += (u64)(stage + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    if (!z) z = 1; /* an id of zeros is invalid */
    memcpy(out, &z, sizeof z);
}

/* The codes for which a server's span is an error, as OpenTelemetry has them: what the
 * server is to blame for, not what the client is. */
static bool code_is_error(enum vx_code code)
{
    switch (code) {
    case VX_CODE_DEADLINE_EXCEEDED:
    case VX_CODE_UNIMPLEMENTED:
    case VX_CODE_INTERNAL:
    case VX_CODE_UNAVAILABLE:
    case VX_CODE_DATA_LOSS: return true;
    default: return false;
    }
}

static ProtobufCBinaryData binary(u8 *data, size_t bytes)
{
    return (ProtobufCBinaryData){.len = bytes, .data = data};
}

/* What all spans of a record have. */
static Otlp__Span *span_init(struct packed *packed, i32 number)
{
    Otlp__Span *span = &packed->spans[number];
    *span = (Otlp__Span)OTLP__SPAN__INIT;
    span->trace_id = binary(packed->trace_id, TRACE_ID);
    span->span_id = binary(packed->ids[number], SPAN_ID);
    span->trace_state = (char *)packed->record->trace_state;
    span->flags = FLAG_SAMPLED | FLAG_REMOTE_KNOWN;
    return span;
}

static void pack_request(struct packed *packed)
{
    const struct vx_record *record = packed->record;
    Otlp__Span *span = span_init(packed, 0);
    span->name = (char *)record->path + 1;
    span->kind = OTLP__SPAN_KIND__SERVER;
    if (record->parent_id[0]) {
        span->parent_span_id = binary(packed->parent_id, SPAN_ID);
        span->flags |= FLAG_REMOTE;
    }
    attributes_of_request(packed);
    span->attributes = packed->attributes.list;
    span->n_attributes = (size_t)packed->attributes.count;
    if (!code_is_error(record->code)) return;
    packed->status = (Otlp__SpanStatus)OTLP__SPAN_STATUS__INIT;
    packed->status.code = OTLP__STATUS_CODE__ERROR;
    packed->status.message = (char *)record->why;
    span->status = &packed->status;
}

static void pack_stage(struct packed *packed, i32 stage)
{
    Otlp__Span *span = span_init(packed, 1 + stage);
    span->name = (char *)stage_names[stage];
    span->kind = OTLP__SPAN_KIND__INTERNAL;
    span->parent_span_id = binary(packed->ids[0], SPAN_ID);
}

/* No span ends before it begins, whatever was measured. */
static void pack_times(struct packed *packed, i64 offset_ns)
{
    const struct vx_record *record = packed->record;
    i64 now_ns = record->times_ns[0];
    packed->spans[0].start_time_unix_nano = (u64)(now_ns + offset_ns);
    for (i32 stage = 0; stage < record->stages; stage++) {
        Otlp__Span *span = &packed->spans[1 + stage];
        span->start_time_unix_nano = (u64)(now_ns + offset_ns);
        if (record->times_ns[stage + 1] > now_ns) now_ns = record->times_ns[stage + 1];
        span->end_time_unix_nano = (u64)(now_ns + offset_ns);
    }
    packed->spans[0].end_time_unix_nano = (u64)(now_ns + offset_ns);
}

void vx_span_pack_add(struct vx_span_pack *pack, const struct vx_record *record)
{
    VX_ASSERT(pack->records < VX_SPAN_PACK_RECORDS);
    VX_ASSERT(record->stages >= 1);
    VX_ASSERT(record->stages <= VX_STAGES_COUNT);
    struct packed *packed = &pack->packed[pack->records++];
    packed->record = record;
    hex_read(record->trace_id, packed->trace_id, TRACE_ID);
    hex_read(record->span_id, packed->ids[0], SPAN_ID);
    if (record->parent_id[0]) hex_read(record->parent_id, packed->parent_id, SPAN_ID);
    pack_request(packed);
    pack->list[pack->spans++] = &packed->spans[0];
    for (i32 stage = 0; stage < record->stages; stage++) {
        stage_id(packed->ids[0], stage, packed->ids[1 + stage]);
        pack_stage(packed, stage);
        pack->list[pack->spans++] = &packed->spans[1 + stage];
    }
}

/* ------- the body ------- */

const u8 *vx_span_pack_end(struct vx_span_pack *pack, i64 offset_ns, size_t *length)
{
    for (i32 i = 0; i < pack->records; i++) pack_times(&pack->packed[i], offset_ns);
    Otlp__Scope scope = OTLP__SCOPE__INIT;
    scope.name = "voxeld";
    Otlp__ScopeSpans spans = OTLP__SCOPE_SPANS__INIT, *spans_list = &spans;
    spans.scope = &scope;
    spans.spans = pack->list;
    spans.n_spans = (size_t)pack->spans;
    Otlp__Attribute pairs[VX_RESOURCE_ATTRIBUTES_MAX], *list[VX_RESOURCE_ATTRIBUTES_MAX];
    Otlp__Value values[VX_RESOURCE_ATTRIBUTES_MAX];
    for (i32 i = 0; i < pack->resource->count; i++) {
        values[i] = (Otlp__Value)OTLP__VALUE__INIT;
        values[i].value_case = OTLP__VALUE__VALUE_STRING_VALUE;
        values[i].string_value = (char *)pack->resource->values[i];
        pairs[i] = (Otlp__Attribute)OTLP__ATTRIBUTE__INIT;
        pairs[i].key = (char *)pack->resource->keys[i];
        pairs[i].value = &values[i];
        list[i] = &pairs[i];
    }
    Otlp__Resource resource = OTLP__RESOURCE__INIT;
    resource.attributes = list;
    resource.n_attributes = (size_t)pack->resource->count;
    Otlp__ResourceSpans all = OTLP__RESOURCE_SPANS__INIT, *all_list = &all;
    all.resource = &resource;
    all.scope_spans = &spans_list;
    all.n_scope_spans = 1;
    Otlp__TracesRequest request = OTLP__TRACES_REQUEST__INIT;
    request.resource_spans = &all_list;
    request.n_resource_spans = 1;
    VX_ASSERT(
        !vx_control_pack(&request.base, pack->body, sizeof pack->body, length).fault);
    pack->records = pack->spans = 0;
    return pack->body;
}

i64 vx_span_answer_rejected(const u8 *body, size_t length, struct vx_why *why)
{
    _Alignas(16) u8 scratch[ANSWER_SCRATCH_BYTES];
    struct vx_arena arena;
    ProtobufCMessage *message;
    vx_arena_init(&arena, scratch, sizeof scratch);
    why->text[0] = '\0';
    struct vx_why unread;
    if (vx_control_unpack(&otlp__traces_response__descriptor,
                          (struct vx_span){body, length}, &arena, &unread, &message)
            .fault)
        return 0;
    const Otlp__PartialSuccess *partial =
        ((const Otlp__TracesResponse *)(const void *)message)->partial_success;
    if (!partial) return 0;
    vx_why_set(why, "%s", partial->error_message);
    return partial->rejected_spans > 0 ? partial->rejected_spans : 0;
}
