/* The client's hand-written wire code against protobuf-c: what one packs the other reads,
 * however it is split, and damaged bytes are refused and never read past.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 3000 /* coords are then too large to be copied into the head */

static int32_t coords[ROWS * 4];
static float feats[ROWS];

static struct voxel_request request_make(struct voxel_tensor inputs[2])
{
    inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, ROWS, 4, coords);
    inputs[1] = voxel_tensor_make("feats", VOXEL_FP32, ROWS, 1, feats);
    return (struct voxel_request){
        .model = "normals", .inputs = inputs, .inputs_count = 2};
}

static uint8_t *join(const struct voxel_message *message)
{
    uint8_t *all = voxel_memory_take_bytes(message->bytes);
    size_t used = 0;
    for (size_t i = 0; i < message->pieces_count; i++) {
        memcpy(all + used, message->pieces[i].data, message->pieces[i].bytes);
        used += message->pieces[i].bytes;
    }
    ck_assert_uint_eq(used, message->bytes);
    return all;
}

START_TEST(packed_request_is_what_protobuf_reads)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    const char *outputs[] = {"normals", "weight"};
    struct voxel_message message;
    struct voxel_error error;
    for (int i = 0; i < ROWS * 4; i++) coords[i] = i * 7 - 5;
    for (int i = 0; i < ROWS; i++) feats[i] = (float)i;
    request.version = 1234567890123;
    request.id = "abc";
    request.outputs = outputs;
    request.outputs_count = 2;
    request.priority = 3;
    request.timeout_us = 5000;
    request.timing = true;
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error), VOXEL_OK);
    uint8_t *all = join(&message);
    Inference__ModelInferRequest *read =
        inference__model_infer_request__unpack(NULL, message.bytes, all);
    ck_assert_ptr_nonnull(read);
    ck_assert_str_eq(read->model_name, "normals");
    ck_assert_str_eq(read->model_version, "1234567890123");
    ck_assert_str_eq(read->id, "abc");
    ck_assert_uint_eq(read->n_parameters, 3);
    ck_assert_str_eq(read->parameters[0]->key, "priority");
    ck_assert_uint_eq(read->parameters[0]->value->uint64_param, 3);
    ck_assert_str_eq(read->parameters[1]->key, "timeout");
    ck_assert_int_eq(read->parameters[1]->value->int64_param, 5000);
    ck_assert_str_eq(read->parameters[2]->key, "timing");
    ck_assert(read->parameters[2]->value->bool_param);
    ck_assert_uint_eq(read->n_inputs, 2);
    ck_assert_str_eq(read->inputs[0]->name, "coords");
    ck_assert_str_eq(read->inputs[0]->datatype, "INT32");
    ck_assert_uint_eq(read->inputs[0]->n_shape, 2);
    ck_assert_int_eq(read->inputs[0]->shape[0], ROWS);
    ck_assert_int_eq(read->inputs[0]->shape[1], 4);
    ck_assert_str_eq(read->inputs[1]->datatype, "FP32");
    ck_assert_uint_eq(read->n_outputs, 2);
    ck_assert_str_eq(read->outputs[1]->name, "weight");
    ck_assert_uint_eq(read->n_raw_input_contents, 2);
    ck_assert_uint_eq(read->raw_input_contents[0].len, sizeof coords);
    ck_assert_mem_eq(read->raw_input_contents[0].data, coords, sizeof coords);
    ck_assert_uint_eq(read->raw_input_contents[1].len, sizeof feats);
    ck_assert_mem_eq(read->raw_input_contents[1].data, feats, sizeof feats);
    inference__model_infer_request__free_unpacked(read, NULL);
    voxel_memory_give(all);
    voxel_message_fini(&message);
}
END_TEST

START_TEST(large_tensors_are_not_copied)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    ck_assert_int_eq(voxel_message_pack(&request, &message, NULL), VOXEL_OK);
    ck_assert_uint_eq(message.pieces_count, 4);
    ck_assert(!message.borrowed[0] && message.borrowed[1]);
    ck_assert_ptr_eq(message.pieces[1].data, (const uint8_t *)coords);
    ck_assert_ptr_eq(message.pieces[3].data, (const uint8_t *)feats);
    voxel_message_fini(&message);
    /* Small tensors are copied into the head: the request is one buffer. */
    inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, 10, 4, coords);
    inputs[1] = voxel_tensor_make("feats", VOXEL_FP32, 10, 1, feats);
    ck_assert_int_eq(voxel_message_pack(&request, &message, NULL), VOXEL_OK);
    ck_assert_uint_eq(message.pieces_count, 1);
    voxel_message_fini(&message);
}
END_TEST

START_TEST(empty_cloud_has_raw_entries)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, 0, 4, NULL);
    inputs[1] = voxel_tensor_make("feats", VOXEL_FP32, 0, 1, NULL);
    ck_assert_int_eq(voxel_message_pack(&request, &message, NULL), VOXEL_OK);
    uint8_t *all = join(&message);
    Inference__ModelInferRequest *read =
        inference__model_infer_request__unpack(NULL, message.bytes, all);
    ck_assert_ptr_nonnull(read);
    ck_assert_uint_eq(read->n_raw_input_contents, 2);
    ck_assert_uint_eq(read->raw_input_contents[0].len, 0);
    ck_assert_int_eq(read->inputs[0]->shape[0], 0);
    inference__model_infer_request__free_unpacked(read, NULL);
    voxel_memory_give(all);
    voxel_message_fini(&message);
}
END_TEST

static void spoil_model(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)t;
    r->model = "";
}
static void spoil_name(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[1].name = NULL;
}
static void spoil_bytes(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[0].bytes -= 4;
}
static void spoil_rank(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[0].rank = VOXEL_RANK_MAX + 1;
}
static void spoil_shape(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[0].shape[0] = INT64_MAX;
}
static void spoil_type(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[0].type = VOXEL_NONE;
}
static void spoil_size(struct voxel_request *r, struct voxel_tensor *t)
{
    (void)r;
    t[0].shape[0] = 134217728; /* 2 GiB of coords */
    t[0].bytes = (size_t)134217728 * 16;
}

/* Requests that are invalid; each row breaks one thing. */
static const struct {
    const char *expected;
    void (*spoil)(struct voxel_request *request, struct voxel_tensor *inputs);
} bad_requests[] = {
    {"needs a model's name", spoil_model},
    {"needs a name", spoil_name},
    {"its shape needs 48000 bytes, but it has 47996", spoil_bytes},
    {"rank must be 0..8, not 9", spoil_rank},
    {"must fit 64 bits", spoil_shape},
    {"needs a type", spoil_type},
    {"larger than a message may be", spoil_size},
};

START_TEST(bad_request_is_refused)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    struct voxel_error error = {0};
    bad_requests[_i].spoil(&request, inputs);
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, bad_requests[_i].expected), "%s", error.text);
    voxel_message_fini(&message);
}
END_TEST

/* An answer of two outputs and all kinds of parameters, packed by protobuf-c. */
static uint8_t *answer_pack(size_t *bytes, size_t *head_bytes)
{
    typedef Inference__ModelInferResponse__InferOutputTensor Output;
    typedef Inference__ModelInferResponse__ParametersEntry Entry;
    int64_t shapes[2][2] = {{1000, 3}, {0, 1}};
    Output one = INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Output two = INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Output *outputs[] = {&one, &two};
    one.name = (char *)(uintptr_t) "normals";
    one.datatype = (char *)(uintptr_t) "FP32";
    two.name = (char *)(uintptr_t) "none";
    two.datatype = (char *)(uintptr_t) "BF16";
    one.n_shape = two.n_shape = 2;
    one.shape = shapes[0];
    two.shape = shapes[1];
    Inference__InferParameter values[5];
    Entry entries[5];
    Entry *list[5];
    static const char *const keys[] = {"b", "i", "s", "d", "u"};
    for (int i = 0; i < 5; i++) {
        inference__infer_parameter__init(&values[i]);
        inference__model_infer_response__parameters_entry__init(&entries[i]);
        values[i].parameter_choice_case =
            (Inference__InferParameter__ParameterChoiceCase)(i + 1);
        entries[i].key = (char *)(uintptr_t)keys[i];
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    values[0].bool_param = 1;
    values[1].int64_param = -42;
    values[2].string_param = (char *)(uintptr_t) "cuda:1";
    values[3].double_param = 0.5;
    values[4].uint64_param = UINT64_MAX;
    static float cells[3000];
    for (int i = 0; i < 3000; i++) cells[i] = (float)i * 0.25f;
    ProtobufCBinaryData raw[2] = {{sizeof cells, (uint8_t *)cells}, {0, NULL}};
    Inference__ModelInferResponse answer = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    answer.model_name = (char *)(uintptr_t) "normals";
    answer.model_version = (char *)(uintptr_t) "7";
    answer.id = (char *)(uintptr_t) "abc";
    answer.n_outputs = 2;
    answer.outputs = outputs;
    answer.n_parameters = 5;
    answer.parameters = list;
    *head_bytes = inference__model_infer_response__get_packed_size(&answer);
    answer.n_raw_output_contents = 2;
    answer.raw_output_contents = raw;
    *bytes = inference__model_infer_response__get_packed_size(&answer);
    uint8_t *packed = voxel_memory_take_bytes(*bytes);
    inference__model_infer_response__pack(&answer, packed);
    return packed;
}

static void answer_check(const struct voxel_answer *answer)
{
    ck_assert_str_eq(answer->model, "normals");
    ck_assert_str_eq(answer->version, "7");
    ck_assert_str_eq(answer->id, "abc");
    ck_assert_int_eq(answer->outputs_count, 2);
    const struct voxel_tensor *normals = voxel_answer_find(answer, "normals");
    ck_assert_ptr_nonnull(normals);
    ck_assert_int_eq(normals->type, VOXEL_FP32);
    ck_assert_int_eq(normals->shape[0], 1000);
    ck_assert_int_eq(normals->shape[1], 3);
    for (int i = 0; i < 3000; i++)
        ck_assert(((const float *)normals->data)[i] == (float)i * 0.25f);
    ck_assert_int_eq(voxel_answer_find(answer, "none")->shape[0], 0);
    ck_assert_ptr_null(voxel_answer_find(answer, "other"));
    ck_assert_int_eq(answer->parameters_count, 5);
    ck_assert_int_eq(voxel_answer_find_parameter(answer, "b")->int64, 1);
    ck_assert_int_eq(voxel_answer_find_parameter(answer, "i")->int64, -42);
    ck_assert_str_eq(voxel_answer_find_parameter(answer, "s")->text, "cuda:1");
    ck_assert(voxel_answer_find_parameter(answer, "d")->number == 0.5);
    ck_assert_uint_eq(voxel_answer_find_parameter(answer, "u")->uint64, UINT64_MAX);
}

static enum voxel_code parse_split(const uint8_t *data, size_t bytes, unsigned seed,
                                   struct voxel_answer **answer)
{
    struct voxel_span list[600];
    size_t count = 0;
    size_t at = 0;
    srandom(seed);
    while (at < bytes && count < 599) {
        size_t part = (size_t)random() % (seed % 2 ? 60 : 1500);
        if (part > bytes - at) part = bytes - at;
        list[count++] = (struct voxel_span){data + at, part};
        at += part;
    }
    list[count++] = (struct voxel_span){data + at, bytes - at};
    struct voxel_spans spans = {list, count};
    return voxel_answer_parse(&spans, &(struct voxel_wanted){0}, answer, NULL);
}

START_TEST(answer_parses_at_any_split)
{
    size_t bytes, head;
    uint8_t *packed = answer_pack(&bytes, &head);
    for (unsigned seed = 1; seed < 300; seed++) {
        struct voxel_answer *answer;
        ck_assert_int_eq(parse_split(packed, bytes, seed, &answer), VOXEL_OK);
        answer_check(answer);
        ck_assert_uint_eq((uintptr_t)answer->outputs[0].data % 64, 0);
        voxel_answer_free(answer);
    }
    /* Two buffers, split at every byte of the head. */
    for (size_t at = 0; at <= head + 20; at++) {
        struct voxel_span list[2] = {{packed, at}, {packed + at, bytes - at}};
        struct voxel_spans spans = {list, 2};
        struct voxel_answer *answer;
        ck_assert_int_eq(
            voxel_answer_parse(&spans, &(struct voxel_wanted){0}, &answer, NULL),
            VOXEL_OK);
        answer_check(answer);
        voxel_answer_free(answer);
    }
    voxel_memory_give(packed);
}
END_TEST

START_TEST(cut_answer_is_refused)
{
    size_t bytes, head;
    uint8_t *packed = answer_pack(&bytes, &head);
    for (size_t cut = 0; cut < bytes; cut += cut < head + 20 ? 1 : 97) {
        /* Memory of the exact size, so that a sanitizer reports a read past its end. */
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, packed, cut);
        struct voxel_answer *answer;
        enum voxel_code code = parse_split(part, cut, (unsigned)cut, &answer);
        /* Empty bytes are an empty message: an answer without outputs. */
        if (cut == 0)
            ck_assert_int_eq(code, VOXEL_OK);
        else if (code == VOXEL_OK)
            ck_assert_int_eq(answer->outputs_count, 0);
        if (code != VOXEL_OK) ck_assert_ptr_null(answer);
        voxel_answer_free(answer);
        free(part);
    }
    voxel_memory_give(packed);
}
END_TEST

START_TEST(changed_answer_never_reads_outside)
{
    size_t bytes, head;
    uint8_t *packed = answer_pack(&bytes, &head);
    uint8_t *work = malloc(bytes);
    srandom(7);
    for (int round = 0; round < 20000; round++) {
        memcpy(work, packed, bytes);
        for (int i = 0; i <= round % 4; i++)
            work[(size_t)random() % (head + 20)] = (uint8_t)random();
        struct voxel_span list[2] = {{work, head / 2},
                                     {work + head / 2, bytes - head / 2}};
        struct voxel_spans spans = {list, 2};
        struct voxel_answer *answer;
        voxel_answer_parse(&spans, &(struct voxel_wanted){0}, &answer, NULL);
        voxel_answer_free(answer);
    }
    free(work);
    voxel_memory_give(packed);
}
END_TEST

START_TEST(outputs_go_to_their_places)
{
    size_t bytes, head;
    uint8_t *packed = answer_pack(&bytes, &head);
    struct voxel_span span = {packed, bytes};
    struct voxel_spans spans = {&span, 1};
    float memory[3000];
    struct voxel_place place = {
        .output = "normals", .memory = memory, .bytes = sizeof memory};
    struct voxel_wanted wanted = {.places = &place, .places_count = 1};
    struct voxel_answer *answer;
    struct voxel_error error;
    ck_assert_int_eq(voxel_answer_parse(&spans, &wanted, &answer, &error), VOXEL_OK);
    answer_check(answer);
    ck_assert_ptr_eq(answer->outputs[0].data, memory);
    voxel_answer_free(answer);
    place.bytes--;
    ck_assert_int_eq(voxel_answer_parse(&spans, &wanted, &answer, &error),
                     VOXEL_OUT_OF_RANGE);
    ck_assert_str_eq(error.text,
                     "output 'normals' has 12000 bytes, the place for it has 11999");
    ck_assert_ptr_null(answer);
    voxel_memory_give(packed);
}
END_TEST

/* Answers written by hand, each wrong in one way; the lengths are among the bytes. */
#define OUTPUT_X                                                                         \
    "\x2a\x0d\x0a\x01x\x12\x04"                                                          \
    "FP32"                                                                               \
    "\x1a\x02\x01\x01"
static const struct {
    const char *bytes;
    size_t size;
    enum voxel_code code;
    const char *expected;
} odd_answers[] = {
#define ROW(text, code, expected)                                                        \
    {                                                                                    \
        text, sizeof text - 1, code, expected                                            \
    }
    ROW(OUTPUT_X "\x32\x04"
                 "abcd",
        VOXEL_OK, ""),
    ROW("\x2a\x0e\x0a\x01x\x12\x04"
        "FP32"
        "\x18\x01\x18\x81\x00"
        "\x32\x04"
        "abcd",
        VOXEL_OK, ""),
    ROW(OUTPUT_X, VOXEL_INTERNAL, "has 1 outputs but 0 raw tensors"),
    ROW("\x32\x04"
        "abcd",
        VOXEL_INTERNAL, "has 0 outputs but 1 raw tensors"),
    ROW(OUTPUT_X "\x32\x03"
                 "abc",
        VOXEL_INTERNAL, "has 3 bytes; its shape needs 4"),
    ROW("\x2a\x0d\x0a\x01x\x12\x04"
        "FP99"
        "\x1a\x02\x01\x01"
        "\x32\x04"
        "abcd",
        VOXEL_INTERNAL, "no known datatype"),
    ROW("\x2a\x0f"
        "\x0a\x01x\x12\x04"
        "FP32"
        "\x1a\x02\x01\x01\x2a\x00",
        VOXEL_UNIMPLEMENTED, "typed contents"),
    ROW("\x2b\x0a", VOXEL_INTERNAL, "damaged"),
    ROW("\x00\x00", VOXEL_INTERNAL, "damaged"),
    ROW("\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", VOXEL_INTERNAL, "damaged"),
    ROW("\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", VOXEL_INTERNAL, "damaged"),
#undef ROW
};

START_TEST(odd_answer)
{
    struct voxel_span span = {(const uint8_t *)odd_answers[_i].bytes,
                              odd_answers[_i].size};
    struct voxel_spans spans = {&span, 1};
    struct voxel_answer *answer;
    struct voxel_error error;
    enum voxel_code code =
        voxel_answer_parse(&spans, &(struct voxel_wanted){0}, &answer, &error);
    ck_assert_int_eq(code, odd_answers[_i].code);
    ck_assert_msg(strstr(error.text, odd_answers[_i].expected), "%s", error.text);
    voxel_answer_free(answer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_wire");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, packed_request_is_what_protobuf_reads);
    tcase_add_test(tcase, large_tensors_are_not_copied);
    tcase_add_test(tcase, empty_cloud_has_raw_entries);
    tcase_add_loop_test(tcase, bad_request_is_refused, 0,
                        sizeof bad_requests / sizeof *bad_requests);
    tcase_add_test(tcase, answer_parses_at_any_split);
    tcase_add_test(tcase, cut_answer_is_refused);
    tcase_add_test(tcase, changed_answer_never_reads_outside);
    tcase_add_test(tcase, outputs_go_to_their_places);
    tcase_add_loop_test(tcase, odd_answer, 0, sizeof odd_answers / sizeof *odd_answers);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
