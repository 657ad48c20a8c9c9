/* Requests from wire bytes, however they are cut, damaged or made up; replies to wire
 * bytes.
 *
 * protobuf-c on the flattened message is the oracle: where it accepts, the codec must see
 * the same content; where it refuses, the codec must refuse.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/arena.h"
#include "open_inference.pb-c.h"
#include "proto/codec.h"
#include "proto/control.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED          UINT64_C(20261121)
#define ARENA_BYTES   (1 << 20)
#define MESSAGE_BYTES 4096
#define SPANS_MAX     4096

/* ------- slots of plain memory, counted ------- */

static u8 slot_memory[ARENA_BYTES];
static size_t slot_used, slot_limit = ARENA_BYTES;
static int slots_out;

static bool slots_take(void *context, size_t bytes, struct vx_slot *slot)
{
    (void)context;
    *slot = (struct vx_slot){0, 0};
    if (bytes > slot_limit - slot_used) return false;
    *slot = (struct vx_slot){slot_used, bytes};
    slot_used += bytes;
    slots_out += bytes > 0;
    return true;
}

static void slots_give(void *context, struct vx_slot *slot)
{
    (void)context;
    slots_out -= slot->bytes > 0;
    if (!slots_out) slot_used = 0;
    *slot = (struct vx_slot){0, 0};
}

static u8 *slots_view(void *context, const struct vx_slot *slot)
{
    (void)context;
    return slot_memory + slot->offset;
}

static const struct vx_slots slots = {slots_take, slots_give, slots_view, NULL};

static struct vx_arena scratch;
static void *scratch_block;

static void set_up(void)
{
    scratch_block = malloc(VX_INFER_SCRATCH_BYTES);
    vx_arena_init(&scratch, scratch_block, VX_INFER_SCRATCH_BYTES);
    slot_used = 0;
    slots_out = 0;
    slot_limit = ARENA_BYTES;
}

static void tear_down(void)
{
    vx_arena_reset(&scratch);
    free(scratch_block);
}

static void give_back(struct vx_request *request)
{
    for (i32 i = 0; i < request->inputs_count; i++)
        slots_give(NULL, &request->inputs[i].slot);
    ck_assert_int_eq(slots_out, 0);
}

/* ------- messages, built with protobuf-c ------- */

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;

static i64 coords_shape[2] = {3, 4}, feats_shape[2] = {3, 2};
static u8 coords_bytes[48], feats_bytes[24];

struct sample {
    Request request;
    Input inputs[2], *input_list[2];
    ProtobufCBinaryData raws[2];
    Inference__ModelInferRequest__InferRequestedOutputTensor output, *output_list[1];
    Inference__ModelInferRequest__ParametersEntry entry, *entry_list[1];
    Inference__InferParameter parameter;
    Inference__InferTensorContents contents[2];
};

static void sample_init(struct sample *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < sizeof coords_bytes; i++) coords_bytes[i] = (u8)(i * 7 + 1);
    for (size_t i = 0; i < sizeof feats_bytes; i++) feats_bytes[i] = (u8)(i * 5 + 3);
    inference__model_infer_request__init(&s->request);
    for (int i = 0; i < 2; i++) {
        inference__model_infer_request__infer_input_tensor__init(&s->inputs[i]);
        inference__infer_tensor_contents__init(&s->contents[i]);
        s->input_list[i] = &s->inputs[i];
        s->inputs[i].n_shape = 2;
        s->inputs[i].shape = i ? feats_shape : coords_shape;
        s->inputs[i].name = i ? "feats" : "coords";
        s->inputs[i].datatype = i ? "FP32" : "INT32";
    }
    s->raws[0] = (ProtobufCBinaryData){sizeof coords_bytes, coords_bytes};
    s->raws[1] = (ProtobufCBinaryData){sizeof feats_bytes, feats_bytes};
    inference__model_infer_request__infer_requested_output_tensor__init(&s->output);
    inference__model_infer_request__parameters_entry__init(&s->entry);
    inference__infer_parameter__init(&s->parameter);
    s->output.name = "normals";
    s->output_list[0] = &s->output;
    s->entry.key = "timing";
    s->entry.value = &s->parameter;
    s->entry_list[0] = &s->entry;
    s->parameter.parameter_choice_case =
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    s->parameter.bool_param = 1;
    s->request.model_name = "model";
    s->request.model_version = "3";
    s->request.id = "an id";
    s->request.n_inputs = 2;
    s->request.inputs = s->input_list;
    s->request.n_outputs = 1;
    s->request.outputs = s->output_list;
    s->request.n_parameters = 1;
    s->request.parameters = s->entry_list;
    s->request.n_raw_input_contents = 2;
    s->request.raw_input_contents = s->raws;
}

static size_t sample_pack(const struct sample *s, u8 *out)
{
    size_t bytes = inference__model_infer_request__get_packed_size(&s->request);
    ck_assert_uint_le(bytes, MESSAGE_BYTES);
    return inference__model_infer_request__pack(&s->request, out);
}

static vx_status parse(const struct vx_spans *spans, struct vx_why *why,
                       struct vx_request *request)
{
    vx_arena_reset(&scratch);
    why->text[0] = '\0';
    vx_status st = vx_codec_parse_infer(spans, &slots, &scratch, why, request);
    if (st.fault) ck_assert_int_eq(slots_out, 0);
    return st;
}

static vx_status parse_flat(const u8 *bytes, size_t length, struct vx_why *why,
                            struct vx_request *request)
{
    struct vx_span span = {bytes, length};
    return parse(&(struct vx_spans){&span, 1, length}, why, request);
}

static void check_sample(const struct vx_request *request)
{
    ck_assert_str_eq(request->model, "model");
    ck_assert_int_eq(request->version, 3);
    ck_assert_str_eq(request->id, "an id");
    ck_assert(request->timing);
    ck_assert_int_eq(request->inputs_count, 2);
    ck_assert_int_eq(request->outputs_count, 1);
    ck_assert_str_eq(request->outputs[0], "normals");
    const struct vx_request_tensor *coords = &request->inputs[0],
                                   *feats = &request->inputs[1];
    ck_assert_str_eq(coords->name, "coords");
    ck_assert_int_eq(coords->type, VX_WIRE_INT32);
    ck_assert_int_eq(coords->elements, 12);
    ck_assert_int_eq(feats->type, VX_WIRE_FP32);
    ck_assert_int_eq(feats->shape[1], 2);
    ck_assert_uint_eq(coords->slot.bytes, 48);
    ck_assert_int_eq(memcmp(slots_view(NULL, &coords->slot), coords_bytes, 48), 0);
    ck_assert_int_eq(memcmp(slots_view(NULL, &feats->slot), feats_bytes, 24), 0);
}

/* ------- good messages ------- */

static u64 random_state;

static u64 random_below(u64 below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static struct vx_span span_list[SPANS_MAX];

/* Cuts a message at random places; pieces may be empty.  most = 1: every byte its own
 * span. */
static struct vx_spans cut(const u8 *bytes, size_t length, u64 most)
{
    struct vx_spans spans = {span_list, 0, length};
    for (size_t at = 0; at < length;) {
        size_t piece = most == 1 ? 1 : random_below(most + 1);
        if (piece > length - at) piece = length - at;
        ck_assert_uint_lt(spans.count, SPANS_MAX);
        span_list[spans.count++] = (struct vx_span){bytes + at, piece};
        at += piece;
    }
    return spans;
}

START_TEST(any_cut_gives_the_same_request)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    random_state = SEED;
    sample_init(&s);
    size_t length = sample_pack(&s, message);
    for (int i = 0; i < 2000; i++) {
        struct vx_spans spans = cut(message, length, i == 0 ? 1 : 2 + (u64)i % 90);
        ck_assert_msg(!parse(&spans, &why, &request).fault, "%s", why.text);
        check_sample(&request);
        give_back(&request);
    }
}
END_TEST

/* Field 7 first, then the rest in reverse: the wire promises no order between fields. */
START_TEST(fields_may_come_in_any_order)
{
    struct sample s;
    u8 rest[MESSAGE_BYTES], raws[MESSAGE_BYTES], message[2 * MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    sample_init(&s);
    s.request.n_raw_input_contents = 0;
    size_t rest_bytes = sample_pack(&s, rest);
    Request only = INFERENCE__MODEL_INFER_REQUEST__INIT;
    only.n_raw_input_contents = 2;
    only.raw_input_contents = s.raws;
    size_t raw_bytes = inference__model_infer_request__pack(&only, raws);
    memcpy(message, raws, raw_bytes);
    memcpy(message + raw_bytes, rest, rest_bytes);
    ck_assert(!parse_flat(message, raw_bytes + rest_bytes, &why, &request).fault);
    check_sample(&request);
    give_back(&request);
}
END_TEST

START_TEST(typed_contents_land_as_raw_bytes)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    i32 ints[12];
    float floats[6];
    sample_init(&s);
    for (int i = 0; i < 12; i++) ints[i] = i - 6;
    for (int i = 0; i < 6; i++) floats[i] = (float)i / 3;
    s.contents[0].n_int_contents = 12;
    s.contents[0].int_contents = ints;
    s.contents[1].n_fp32_contents = 6;
    s.contents[1].fp32_contents = floats;
    s.inputs[0].contents = &s.contents[0];
    s.inputs[1].contents = &s.contents[1];
    s.request.n_raw_input_contents = 0;
    size_t length = sample_pack(&s, message);
    ck_assert_msg(!parse_flat(message, length, &why, &request).fault, "%s", why.text);
    ck_assert_int_eq(memcmp(slots_view(NULL, &request.inputs[0].slot), ints, sizeof ints),
                     0);
    ck_assert_int_eq(
        memcmp(slots_view(NULL, &request.inputs[1].slot), floats, sizeof floats), 0);
    give_back(&request);
    /* A narrow type takes the low bytes, and refuses what does not fit. */
    s.inputs[0].datatype = "INT8";
    length = sample_pack(&s, message);
    ck_assert(!parse_flat(message, length, &why, &request).fault);
    ck_assert_int_eq(((i8 *)slots_view(NULL, &request.inputs[0].slot))[0], -6);
    ck_assert_uint_eq(request.inputs[0].slot.bytes, 12);
    give_back(&request);
    ints[5] = 200;
    length = sample_pack(&s, message);
    ck_assert_int_eq(vx_status_code(parse_flat(message, length, &why, &request)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "element 5 must fit INT8, got 200"));
}
END_TEST

START_TEST(no_rows_need_no_slot)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    i64 none[2] = {0, 4}, none_wide[2] = {0, INT64_MAX};
    sample_init(&s);
    s.inputs[0].shape = none;
    s.inputs[1].shape = none_wide; /* nothing times anything is nothing */
    s.raws[0].len = s.raws[1].len = 0;
    size_t length = sample_pack(&s, message);
    ck_assert_msg(!parse_flat(message, length, &why, &request).fault, "%s", why.text);
    ck_assert_int_eq(request.inputs[0].elements + request.inputs[1].elements, 0);
    ck_assert_int_eq(slots_out, 0);
}
END_TEST

/* ------- refused messages ------- */

static i64 bad_shape[16];

static void shape_set(struct sample *s, size_t n, i64 first, i64 second)
{
    for (size_t i = 0; i < n; i++) bad_shape[i] = i ? second : first;
    s->inputs[0].shape = bad_shape;
    s->inputs[0].n_shape = n;
}

static char long_name[300];

static void key_set(struct sample *s, const char *key, int kind)
{
    s->entry.key = (char *)(uintptr_t)key;
    s->parameter.parameter_choice_case = kind;
    s->parameter.uint64_param = 1; /* overlays all numbers */
}

static void bad_no_model(struct sample *s)
{
    s->request.model_name = "";
}
static void bad_long_model(struct sample *s)
{
    memset(long_name, 'x', sizeof long_name - 1);
    s->request.model_name = long_name;
}
static void bad_utf8(struct sample *s)
{
    s->request.model_name = "\xff\xfe";
}
static void bad_overlong_utf8(struct sample *s)
{
    s->inputs[0].name = "\xc0\x80";
}
static void bad_version(struct sample *s)
{
    s->request.model_version = "1.5";
}
static void bad_version_negative(struct sample *s)
{
    s->request.model_version = "-1";
}
static void bad_version_huge(struct sample *s)
{
    s->request.model_version = "99999999999999999999";
}
static void bad_type(struct sample *s)
{
    s->inputs[1].datatype = "FP31";
}
static void bad_bytes_type(struct sample *s)
{
    s->inputs[1].datatype = "BYTES";
}
static void bad_rank(struct sample *s)
{
    shape_set(s, VX_RANK_MAX + 1, 1, 1);
}
static void bad_negative(struct sample *s)
{
    shape_set(s, 2, -1, 4);
}
static void bad_product(struct sample *s)
{
    shape_set(s, 2, INT64_MAX / 2, 4);
}
static void bad_product_bytes(struct sample *s)
{
    shape_set(s, 2, INT64_MAX / 16, 8);
}
static void bad_short(struct sample *s)
{
    s->raws[0].len = 44;
}
static void bad_twice(struct sample *s)
{
    s->inputs[1].name = "coords";
}
static void bad_raw_count(struct sample *s)
{
    s->request.n_raw_input_contents = 1;
}
static void bad_mixed(struct sample *s)
{
    s->inputs[1].contents = &s->contents[1];
}
static void bad_nothing(struct sample *s)
{
    s->request.n_raw_input_contents = 0;
}
static void bad_typed_count(struct sample *s)
{
    s->request.n_raw_input_contents = 0;
    s->inputs[0].contents = &s->contents[0];
    s->inputs[1].contents = &s->contents[1];
}
static void bad_timing(struct sample *s)
{
    key_set(s, "timing", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
}
static void bad_priority(struct sample *s)
{
    key_set(s, "priority", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    s->parameter.int64_param = -1;
}
static void bad_priority_missing(struct sample *s)
{
    s->entry.key = "priority";
    s->entry.value = NULL;
}
static void bad_reserved(struct sample *s)
{
    key_set(s, "triton_other", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
}
static void bad_sequence(struct sample *s)
{
    key_set(s, "sequence_id", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
}

static const struct {
    void (*change)(struct sample *);
    const char *text;
} refusals[] = {
    {bad_no_model, "model_name is missing"},
    {bad_long_model, "model_name: expected at most 127 bytes, got 299"},
    {bad_utf8, "expected UTF-8"},
    {bad_overlong_utf8, "expected UTF-8"},
    {bad_version, "specified version string '1.5'"},
    {bad_version_negative, "'-1'"},
    {bad_version_huge, "'99999999999999999999'"},
    {bad_type, "got 'FP31'"},
    {bad_bytes_type, "got BYTES"},
    {bad_rank, "at most 8 dimensions, got 9"},
    {bad_negative, "dimension 0 must be 0 or more, got -1"},
    {bad_product, "does not fit 64 bits"},
    {bad_product_bytes, "does not fit 64 bits"},
    {bad_short, "input byte size mismatch for input 'coords', expected 48, got 44"},
    {bad_twice, "'coords' is there twice"},
    {bad_raw_count,
     "expected 2 entries in raw_input_contents, one for each input, got 1"},
    {bad_mixed, "contents field must not be specified when using raw_input_contents"},
    {bad_nothing, "neither raw_input_contents nor contents"},
    {bad_typed_count, "expected 12 values in int_contents, got 0"},
    {bad_timing, "'timing': expected bool_param"},
    {bad_priority, "'priority': expected int64_param or uint64_param"},
    {bad_priority_missing, "'priority': expected"},
    {bad_reserved, "reserved, got 'triton_other'"},
    {bad_sequence, "keep no state"},
};

START_TEST(a_refusal_has_its_sentence)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    sample_init(&s);
    refusals[_i].change(&s);
    vx_status st = parse_flat(message, sample_pack(&s, message), &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(vx_status_text(st, &why), refusals[_i].text), "got: %s",
                  vx_status_text(st, &why));
}
END_TEST

START_TEST(a_full_arena_leaves_no_slot_taken)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    sample_init(&s);
    slot_limit = 50; /* coords fit, feats do not */
    vx_status st = parse_flat(message, sample_pack(&s, message), &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(why.text, "24 bytes of input 'feats'"));
}
END_TEST

START_TEST(a_rest_beyond_its_limits_is_refused_not_served_by_memory)
{
    size_t length = VX_INFER_REST_BYTES_MAX + 2;
    u8 *message = malloc(length);
    struct vx_request request;
    struct vx_why why;
    /* Empty inputs, two bytes each: the most members a message can have. */
    for (size_t i = 0; i < length; i += 2) {
        message[i] = 5 << 3 | 2;
        message[i + 1] = 0;
    }
    ck_assert_int_eq(vx_status_code(parse_flat(message, length, &why, &request)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(vx_status_code(parse_flat(message, length - 2, &why, &request)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    vx_status st = parse_flat(message, 2000, &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    free(message);
}
END_TEST

/* ------- damaged messages, with protobuf-c as the oracle ------- */

static void compare_with_oracle(const u8 *message, size_t length)
{
    struct vx_request request;
    struct vx_why why;
    Request *oracle = inference__model_infer_request__unpack(NULL, length, message);
    vx_status st = parse_flat(message, length, &why, &request);
    if (!st.fault) {
        ck_assert_msg(oracle, "accepted what protobuf-c refuses");
        ck_assert_str_eq(request.model, oracle->model_name);
        ck_assert_str_eq(request.id, oracle->id);
        ck_assert_uint_eq((size_t)request.inputs_count, oracle->n_inputs);
        for (size_t i = 0; i < oracle->n_raw_input_contents; i++) {
            const struct vx_slot *slot = &request.inputs[i].slot;
            ck_assert_uint_eq(slot->bytes, oracle->raw_input_contents[i].len);
            if (slot->bytes)
                ck_assert_int_eq(memcmp(slots_view(NULL, slot),
                                        oracle->raw_input_contents[i].data, slot->bytes),
                                 0);
        }
        give_back(&request);
    }
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

/* A cut between two fields leaves a shorter message, which may be one; any other cut is
 * refused. */
START_TEST(every_truncation_is_refused_or_a_shorter_message)
{
    struct sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    int accepted = 0;
    sample_init(&s);
    size_t length = sample_pack(&s, message);
    for (size_t cut_at = 0; cut_at < length; cut_at++) {
        /* In memory of exactly its size, so that a read beyond it is seen. */
        u8 *exact = malloc(cut_at ? cut_at : 1);
        memcpy(exact, message, cut_at);
        compare_with_oracle(exact, cut_at);
        if (!parse_flat(exact, cut_at, &why, &request).fault) {
            ck_assert_int_eq(request.inputs_count, 0);
            accepted++;
        }
        free(exact);
    }
    /* Behind model_name, model_version, id and the parameter: before the first input. */
    ck_assert_int_eq(accepted, 4);
}
END_TEST

START_TEST(random_damage_never_disagrees_with_protobuf_c)
{
    struct sample s;
    u8 good[MESSAGE_BYTES], message[MESSAGE_BYTES];
    sample_init(&s);
    size_t length = sample_pack(&s, good);
    random_state = SEED;
    for (int round = 0; round < 100000; round++) {
        memcpy(message, good, length);
        u64 changes = 1 + random_below(6);
        for (u64 i = 0; i < changes; i++)
            message[random_below(length)] = (u8)random_below(256);
        compare_with_oracle(message, length);
    }
}
END_TEST

/* ------- replies ------- */

START_TEST(a_reply_is_what_protobuf_c_reads)
{
    static struct vx_reply reply = {.model = "model",
                                    .version = 12,
                                    .id = "an id",
                                    .outputs_count = 2,
                                    .parameters_count = 3};
    static const u8 payload[6] = "tensor";
    u8 message[VX_REPLY_HEAD_BYTES_MAX + 64];
    reply.outputs[0] =
        (struct vx_reply_tensor){"normals", VX_WIRE_FP32, 2, {1000000, 3}, 6};
    reply.outputs[1] = (struct vx_reply_tensor){"empty", VX_WIRE_FP16, 2, {0, 3}, 0};
    reply.parameters[0] =
        (struct vx_reply_parameter){"queue_ns", VX_PARAMETER_I64, -5, ""};
    reply.parameters[1] = (struct vx_reply_parameter){"hit", VX_PARAMETER_BOOL, 1, ""};
    reply.parameters[2] =
        (struct vx_reply_parameter){"device", VX_PARAMETER_TEXT, 0, "cpu:0"};
    size_t n = vx_codec_pack_reply_head(&reply, message, sizeof message);
    n += vx_codec_pack_raw_prefix(6, message + n, sizeof message - n);
    memcpy(message + n, payload, 6);
    n += 6;
    n += vx_codec_pack_raw_prefix(0, message + n, sizeof message - n);
    Inference__ModelInferResponse *got =
        inference__model_infer_response__unpack(NULL, n, message);
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got->model_name, "model");
    ck_assert_str_eq(got->model_version, "12");
    ck_assert_str_eq(got->id, "an id");
    ck_assert_uint_eq(got->n_parameters, 3);
    ck_assert_int_eq(got->parameters[0]->value->int64_param, -5);
    ck_assert(got->parameters[1]->value->bool_param);
    ck_assert_str_eq(got->parameters[2]->value->string_param, "cpu:0");
    ck_assert_uint_eq(got->n_outputs, 2);
    ck_assert_str_eq(got->outputs[0]->datatype, "FP32");
    ck_assert_int_eq(got->outputs[0]->shape[0], 1000000);
    ck_assert_int_eq(got->outputs[1]->shape[0], 0);
    ck_assert_uint_eq(got->n_raw_output_contents, 2);
    ck_assert_int_eq(memcmp(got->raw_output_contents[0].data, payload, 6), 0);
    ck_assert_uint_eq(got->raw_output_contents[1].len, 0);
    inference__model_infer_response__free_unpacked(got, NULL);
}
END_TEST

START_TEST(the_largest_reply_head_fits_its_limit)
{
    static struct vx_reply reply;
    static u8 head[VX_REPLY_HEAD_BYTES_MAX];
    memset(reply.model, 'm', sizeof reply.model - 1);
    memset(reply.id, 'i', sizeof reply.id - 1);
    reply.version = INT64_MAX;
    reply.outputs_count = VX_REQUEST_OUTPUTS_MAX;
    reply.parameters_count = VX_REPLY_PARAMETERS_MAX;
    for (int i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++) {
        struct vx_reply_tensor *tensor = &reply.outputs[i];
        memset(tensor->name, 'o', sizeof tensor->name - 1);
        tensor->type = VX_WIRE_UINT16;
        tensor->rank = VX_RANK_MAX;
        for (int d = 0; d < VX_RANK_MAX; d++) tensor->shape[d] = INT64_MAX;
    }
    for (int i = 0; i < VX_REPLY_PARAMETERS_MAX; i++) {
        struct vx_reply_parameter *parameter = &reply.parameters[i];
        memset(parameter->name, 'p', sizeof parameter->name - 1);
        memset(parameter->text, 't', sizeof parameter->text - 1);
        parameter->kind = VX_PARAMETER_TEXT;
    }
    ck_assert_uint_le(vx_codec_pack_reply_head(&reply, head, sizeof head), sizeof head);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec");
    TCase *tcase = tcase_create("codec");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, any_cut_gives_the_same_request);
    tcase_add_test(tcase, fields_may_come_in_any_order);
    tcase_add_test(tcase, typed_contents_land_as_raw_bytes);
    tcase_add_test(tcase, no_rows_need_no_slot);
    tcase_add_loop_test(tcase, a_refusal_has_its_sentence, 0, (int)VX_COUNT(refusals));
    tcase_add_test(tcase, a_full_arena_leaves_no_slot_taken);
    tcase_add_test(tcase, a_rest_beyond_its_limits_is_refused_not_served_by_memory);
    tcase_add_test(tcase, every_truncation_is_refused_or_a_shorter_message);
    tcase_add_test(tcase, random_damage_never_disagrees_with_protobuf_c);
    tcase_add_test(tcase, a_reply_is_what_protobuf_c_reads);
    tcase_add_test(tcase, the_largest_reply_head_fits_its_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
