/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/codec_sample.h"

#include "engine/base/arena.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)

/* ------- slots of plain memory, counted ------- */

static u8 slot_memory[ARENA_BYTES];
static size_t slot_used;
size_t codec_slot_limit = ARENA_BYTES;
int codec_slots_out;

static bool slots_take(void *context, size_t bytes, struct vx_slot *slot)
{
    (void)context;
    *slot = (struct vx_slot){0, 0};
    if (bytes > codec_slot_limit - slot_used) return false;
    *slot = (struct vx_slot){slot_used, bytes};
    slot_used += bytes;
    codec_slots_out += bytes > 0;
    return true;
}

void codec_slots_give(void *context, struct vx_slot *slot)
{
    (void)context;
    codec_slots_out -= slot->bytes > 0;
    if (!codec_slots_out) slot_used = 0;
    *slot = (struct vx_slot){0, 0};
}

u8 *codec_slots_view(void *context, const struct vx_slot *slot)
{
    (void)context;
    return slot_memory + slot->offset;
}

static const struct vx_slots slots = {slots_take, codec_slots_give, codec_slots_view,
                                      NULL};

static struct vx_arena scratch;
static void *scratch_block;

void codec_set_up(void)
{
    scratch_block = malloc(VX_INFER_SCRATCH_BYTES);
    vx_arena_init(&scratch, scratch_block, VX_INFER_SCRATCH_BYTES);
    slot_used = 0;
    codec_slots_out = 0;
    codec_slot_limit = ARENA_BYTES;
}

void codec_tear_down(void)
{
    vx_arena_reset(&scratch);
    free(scratch_block);
}

void codec_give_back(struct vx_request *request)
{
    for (i32 i = 0; i < request->inputs_count; i++)
        codec_slots_give(NULL, &request->inputs[i].slot);
    ck_assert_int_eq(codec_slots_out, 0);
}

/* ------- messages, built with protobuf-c ------- */

static i64 coords_shape[2] = {3, 4}, feats_shape[2] = {3, 2};
u8 codec_coords_bytes[48], codec_feats_bytes[24];

void codec_sample_init(struct codec_sample *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < sizeof codec_coords_bytes; i++)
        codec_coords_bytes[i] = (u8)(i * 7 + 1);
    for (size_t i = 0; i < sizeof codec_feats_bytes; i++)
        codec_feats_bytes[i] = (u8)(i * 5 + 3);
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
    s->raws[0] = (ProtobufCBinaryData){sizeof codec_coords_bytes, codec_coords_bytes};
    s->raws[1] = (ProtobufCBinaryData){sizeof codec_feats_bytes, codec_feats_bytes};
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

size_t codec_sample_pack(const struct codec_sample *s, u8 *out)
{
    size_t bytes = inference__model_infer_request__get_packed_size(&s->request);
    ck_assert_uint_le(bytes, MESSAGE_BYTES);
    return inference__model_infer_request__pack(&s->request, out);
}

vx_status codec_parse(const struct vx_spans *spans, struct vx_why *why,
                      struct vx_request *request)
{
    vx_arena_reset(&scratch);
    why->text[0] = '\0';
    vx_status st = vx_codec_parse_infer(spans, &slots, &scratch, why, request);
    if (st.fault) ck_assert_int_eq(codec_slots_out, 0);
    return st;
}

vx_status codec_parse_flat(const u8 *bytes, size_t length, struct vx_why *why,
                           struct vx_request *request)
{
    struct vx_span span = {bytes, length};
    return codec_parse(&(struct vx_spans){&span, 1, length}, why, request);
}

void codec_check_sample(const struct vx_request *request)
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
    ck_assert_int_eq(
        memcmp(codec_slots_view(NULL, &coords->slot), codec_coords_bytes, 48), 0);
    ck_assert_int_eq(memcmp(codec_slots_view(NULL, &feats->slot), codec_feats_bytes, 24),
                     0);
}

u64 codec_random_state;

u64 codec_random_below(u64 below)
{
    codec_random_state ^= codec_random_state << 13;
    codec_random_state ^= codec_random_state >> 7;
    codec_random_state ^= codec_random_state << 17;
    return codec_random_state % below;
}
