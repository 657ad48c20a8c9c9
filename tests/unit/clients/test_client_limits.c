/* Answers and requests at the limits of the C library, and one beyond each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/c/wire.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of ModelInferResponse, its tensors and parameters. */
enum { ID = 3, PARAMETERS = 4, OUTPUTS = 5, RAW = 6, NAME = 1, TYPE = 2, SHAPE = 3 };

/* What an answer has: outputs of `rank` ones, raw tensors of 4 bytes, parameters, and
 * an id of this many bytes in each of `ids` fields. */
struct shape {
    int outputs, raw, rank, parameters, ids;
    size_t id_bytes;
};

static void write_output(struct voxel_writer *w, int number, int rank)
{
    char name[16];
    snprintf(name, sizeof name, "o%d", number);
    voxel_write_text(w, NAME, name);
    voxel_write_text(w, TYPE, "FP32");
    for (int d = 0; d < rank; d++) voxel_write_number(w, SHAPE, 1);
}

static void write_answer(struct voxel_writer *w, const struct shape *shape,
                         const char *filling)
{
    for (int i = 0; i < shape->ids; i++) {
        voxel_write_prefix(w, ID, shape->id_bytes);
        voxel_write_raw(w, filling, shape->id_bytes);
    }
    for (int i = 0; i < shape->parameters; i++) {
        voxel_write_prefix(w, PARAMETERS, 3);
        voxel_write_text(w, NAME, "p");
    }
    for (int i = 0; i < shape->outputs; i++) {
        struct voxel_writer body = {0};
        write_output(&body, i, shape->rank);
        voxel_write_prefix(w, OUTPUTS, body.used);
        write_output(w, i, shape->rank);
    }
    for (int i = 0; i < shape->raw; i++) {
        voxel_write_prefix(w, RAW, 4);
        voxel_write_raw(w, "abcd", 4);
    }
}

static enum voxel_code parse(const struct shape *shape, struct voxel_answer **answer,
                             struct voxel_error *error)
{
    char *filling = malloc(shape->id_bytes + 1);
    memset(filling, 'x', shape->id_bytes);
    struct voxel_writer size = {0};
    write_answer(&size, shape, filling);
    struct voxel_writer w = {.out = malloc(size.used + 1), .room = size.used};
    write_answer(&w, shape, filling);
    const struct voxel_span span = {w.out, w.used};
    const struct voxel_spans spans = {&span, 1};
    enum voxel_code code =
        voxel_answer_parse(&spans, &(struct voxel_wanted){0}, answer, error);
    free(w.out);
    free(filling);
    return code;
}

/* A tag of one byte and a length of three come before a field of not quite 2 MB. */
#define HALF (VOXEL_REST_BYTES_MAX / 2 - 4)

static const struct {
    struct shape shape;
    const char *refused; /* NULL = it is accepted */
} answers[] = {
    {{VOXEL_OUTPUTS_MAX, VOXEL_OUTPUTS_MAX, 1, 0, 0, 0}, NULL},
    {{VOXEL_OUTPUTS_MAX, VOXEL_OUTPUTS_MAX + 1, 1, 0, 0, 0}, "more than 64 raw outputs"},
    {{VOXEL_OUTPUTS_MAX + 1, VOXEL_OUTPUTS_MAX, 1, 0, 0, 0},
     "65 outputs and 0 parameters"},
    {{0, VOXEL_OUTPUTS_MAX + 40, 1, 0, 0, 0}, "more than 64 raw outputs"},
    {{1, 1, VOXEL_RANK_MAX, 0, 0, 0}, NULL},
    {{1, 1, VOXEL_RANK_MAX + 1, 0, 0, 0}, "an output is not valid protobuf"},
    {{1, 1, 1, VOXEL_PARAMETERS_MAX, 0, 0}, NULL},
    {{1, 1, 1, VOXEL_PARAMETERS_MAX + 1, 0, 0}, "257 parameters"},
    {{0, 0, 0, 0, 2, HALF}, NULL},
    {{0, 0, 0, 0, 2, HALF + 1}, "bytes besides its tensors"},
    {{0, 0, 0, 0, 3, HALF / 2 + HALF / 3}, "bytes besides its tensors"},
};

START_TEST(answers_at_their_limits)
{
    const struct shape *shape = &answers[_i].shape;
    struct voxel_answer *answer = (struct voxel_answer *)1;
    struct voxel_error error = {0};
    enum voxel_code code = parse(shape, &answer, &error);
    if (answers[_i].refused) {
        ck_assert_int_eq(code, VOXEL_INTERNAL);
        ck_assert_msg(strstr(error.text, answers[_i].refused) != NULL, "%s", error.text);
        ck_assert_ptr_null(answer);
        return;
    }
    ck_assert_msg(!code, "%s", error.text);
    ck_assert_int_eq(answer->outputs_count, shape->outputs);
    ck_assert_int_eq(answer->parameters_count, shape->parameters);
    if (shape->ids) ck_assert_uint_eq(strlen(answer->id), shape->id_bytes);
    for (int i = 0; i < shape->outputs; i++) {
        ck_assert_int_eq(answer->outputs[i].rank, shape->rank);
        ck_assert_uint_eq(answer->outputs[i].bytes, 4);
        ck_assert_int_eq(memcmp(answer->outputs[i].data, "abcd", 4), 0);
    }
    voxel_answer_free(answer);
}
END_TEST

/* 64 bits are nine groups of seven bits and one more: a tenth byte is 0 or 1. */
START_TEST(varints_have_64_bits)
{
    uint8_t bytes[11] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0};
    uint64_t value;
    struct voxel_reader r = voxel_reader_make(bytes, 10);
    ck_assert(voxel_reader_varint(&r, &value));
    ck_assert_uint_eq(value, UINT64_MAX);
    bytes[9] = 2;
    r = voxel_reader_make(bytes, 10);
    ck_assert(!voxel_reader_varint(&r, &value));
    bytes[9] = 0x80;
    r = voxel_reader_make(bytes, 11);
    ck_assert(!voxel_reader_varint(&r, &value));
    r = voxel_reader_make(bytes, 5); /* truncated */
    ck_assert(!voxel_reader_varint(&r, &value));
}
END_TEST

static enum voxel_code pack(const struct voxel_request *request)
{
    struct voxel_message message;
    struct voxel_error error;
    enum voxel_code code = voxel_message_pack(request, &message, &error);
    if (!code) voxel_message_fini(&message);
    return code;
}

START_TEST(requests_at_their_limits)
{
    static struct voxel_tensor inputs[VOXEL_INPUTS_MAX + 1];
    static const char *outputs[VOXEL_OUTPUTS_MAX + 1];
    static struct voxel_place places[VOXEL_OUTPUTS_MAX + 1];
    static char ref[VOXEL_REF_BYTES_MAX + 1], names[VOXEL_OUTPUTS_MAX + 1][8];
    float one = 1;
    for (int i = 0; i <= VOXEL_INPUTS_MAX; i++)
        inputs[i] = (struct voxel_tensor){
            .name = "x", .type = VOXEL_FP32, .data = &one, .bytes = 4};
    for (int i = 0; i <= VOXEL_OUTPUTS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "o%d", i);
        outputs[i] = names[i];
        places[i] = (struct voxel_place){.output = names[i], .memory = &one, .bytes = 4};
    }
    memset(ref, 'r', sizeof ref - 1);
    for (int beyond = 0; beyond < 5; beyond++) {
        ref[VOXEL_REF_BYTES_MAX - 1] = beyond == 4 ? 'r' : '\0';
        const struct voxel_request request = {
            .model = "m",
            .inputs = inputs,
            .inputs_count = VOXEL_INPUTS_MAX + (beyond == 1),
            .outputs = outputs,
            .outputs_count = VOXEL_OUTPUTS_MAX + (beyond == 2),
            .places = places,
            .places_count = VOXEL_OUTPUTS_MAX + (beyond == 3),
            .coords_ref = ref};
        ck_assert_int_eq(pack(&request), beyond ? VOXEL_INVALID_ARGUMENT : VOXEL_OK);
    }
}
END_TEST

/* A count without its array is a mistake of the caller, not memory to read. */
START_TEST(counts_need_their_arrays)
{
    const struct voxel_request requests[] = {{.model = "m", .inputs_count = 1},
                                             {.model = "m", .outputs_count = 1},
                                             {.model = "m", .places_count = 1},
                                             {.model = "m"}};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pack(&requests[i]), i < 3 ? VOXEL_INVALID_ARGUMENT : VOXEL_OK);
}
END_TEST

START_TEST(codes_have_their_names)
{
    static const struct {
        enum voxel_code code;
        int number;
        const char *name;
    } codes[] = {{VOXEL_OK, 0, "OK"},
                 {VOXEL_INVALID_ARGUMENT, 3, "INVALID_ARGUMENT"},
                 {VOXEL_RESOURCE_EXHAUSTED, 8, "RESOURCE_EXHAUSTED"},
                 {VOXEL_FAILED_PRECONDITION, 9, "FAILED_PRECONDITION"},
                 {VOXEL_OUT_OF_RANGE, 11, "OUT_OF_RANGE"},
                 {VOXEL_UNIMPLEMENTED, 12, "UNIMPLEMENTED"},
                 {VOXEL_INTERNAL, 13, "INTERNAL"}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        ck_assert_int_eq((int)codes[i].code, codes[i].number);
        ck_assert_str_eq(voxel_code_name(codes[i].code), codes[i].name);
    }
    ck_assert_str_eq(voxel_code_name((enum voxel_code)16), "UNAUTHENTICATED");
    ck_assert_str_eq(voxel_code_name((enum voxel_code)17), "UNKNOWN");
    ck_assert_str_eq(voxel_code_name((enum voxel_code) - 1), "UNKNOWN");
}
END_TEST

static const struct {
    const char *address;
    const char *expected; /* NULL = it is accepted */
} addresses[] = {
    {"127.0.0.1:8001", NULL},
    {"localhost:1", NULL},
    {"gpu-7.example:65535", NULL},
    {"[::1]:8001", NULL},
    {"unix:/run/voxeld/grpc", NULL},
    {"unix:///run/a:b", NULL},
    {"dns:///gpu-7:8001", NULL},
    {"ipv4:127.0.0.1:8001", NULL},
    {"127.0.0.1:65536",
     "'127.0.0.1:65536': expected host:port with a port from 1 to 65535"},
    {"127.0.0.1:73537", "a port from 1 to 65535"},
    {"127.0.0.1:4294967297", "a port from 1 to 65535"},
    {"127.0.0.1:0", "a port from 1 to 65535"},
    {"127.0.0.1:-1", "a port from 1 to 65535"},
    {"127.0.0.1:", "a port from 1 to 65535"},
    {"127.0.0.1:80x", "a port from 1 to 65535"},
    {"dns:///gpu-7:73537", "a port from 1 to 65535"},
    {":8001", "':8001': expected host:port, [v6]:port or unix:path"},
    {"[]:8001", "expected host:port, [v6]:port"},
    {"::1:8001", "expected host:port, [v6]:port"},
    {"grpc://127.0.0.1:8001", "expected host:port, [v6]:port"},
    {"127.0.0.1:8001/", "a port from 1 to 65535"},
    {"http://127.0.0.1:8001", "expected host:port without http"},
    {"localhost", "expected host:port or unix:path"},
    {"unix:", "expected a path after unix:"},
    {"", "is empty: expected host:port or unix:path"},
};

START_TEST(an_address_is_one_or_says_why_not)
{
    struct voxel_client *client = NULL;
    struct voxel_error error = {0};
    enum voxel_code code =
        voxel_client_open(addresses[_i].address, NULL, &client, &error);
    voxel_client_close(client);
    const char *expected = addresses[_i].expected;
    ck_assert_msg(code == (expected ? VOXEL_INVALID_ARGUMENT : VOXEL_OK), "%s: %s",
                  addresses[_i].address, error.text);
    if (expected) ck_assert_msg(strstr(error.text, expected), "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_limits");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, answers_at_their_limits, 0,
                        sizeof answers / sizeof *answers);
    tcase_add_test(tcase, varints_have_64_bits);
    tcase_add_test(tcase, requests_at_their_limits);
    tcase_add_test(tcase, counts_need_their_arrays);
    tcase_add_test(tcase, codes_have_their_names);
    tcase_add_loop_test(tcase, an_address_is_one_or_says_why_not, 0,
                        sizeof addresses / sizeof *addresses);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
