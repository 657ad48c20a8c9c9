/* Typed contents, which the codec reads from the message's pieces, against protobuf-c, which unpacks
 * all of them: random requests in every form that is legal, with and without mistakes, cut
 * anywhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/trials.h"
#include "tests/unit/proto/codec_judge.h"
#include "tests/unit/proto/typed_writer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED     UINT64_C(20261129)
#define REQUESTS VX_TRIALS(40000, 6000)
#define SCRATCH  ((size_t)1 << 18) /* these messages are small */

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;
typedef Inference__InferTensorContents Contents;

static struct wire wire;
static struct parse parse;

static void set_up(void)
{
    parse_scratch_bytes = SCRATCH;
    memset(&parse, 0, sizeof parse);
}

/* ------- the sentences, from protobuf-c's arrays ------- */

struct sentence {
    char text[256];
};

static size_t list_count(const Contents *contents, int list)
{
    switch (list) {
    case 1: return contents->n_bool_contents;
    case 2: return contents->n_int_contents;
    case 3: return contents->n_int64_contents;
    case 4: return contents->n_uint_contents;
    case 5: return contents->n_uint64_contents;
    case 6: return contents->n_fp32_contents;
    case 7: return contents->n_fp64_contents;
    default: return contents->n_bytes_contents;
    }
}

static const char *const list_names[] = {
    "",
    "bool_contents",
    "int_contents",
    "int64_contents",
    "uint_contents",
    "uint64_contents",
    "fp32_contents",
    "fp64_contents",
    "bytes_contents",
};

static int list_of(const char *type)
{
    if (!strcmp(type, "BOOL")) return 1;
    if (!strcmp(type, "INT64")) return 3;
    if (!strcmp(type, "UINT64")) return 5;
    if (!strcmp(type, "FP32")) return 6;
    if (!strcmp(type, "FP64")) return 7;
    if (!strncmp(type, "INT", 3)) return 2;
    return !strncmp(type, "UINT", 4) ? 4 : 0;
}

static i64 list_value(const Contents *contents, int list, size_t at)
{
    return list == 2 ? contents->int_contents[at] : (i64)contents->uint_contents[at];
}

static bool value_fits(const char *type, i64 value)
{
    if (!strcmp(type, "INT8")) return value >= INT8_MIN && value <= INT8_MAX;
    if (!strcmp(type, "INT16")) return value >= INT16_MIN && value <= INT16_MAX;
    if (!strcmp(type, "UINT8")) return value <= UINT8_MAX;
    return strcmp(type, "UINT16") || value <= UINT16_MAX;
}

/* What is wrong with an input; "" if nothing is.  Other lists are named in this order. */
static struct sentence input_sentence(const Input *input)
{
    static const int others[] = {1, 4, 5, 2, 3, 6, 7, 8};
    const Contents *contents = input->contents;
    const char *type = input->datatype;
    const int list = list_of(type);
    const size_t elements = (size_t)input->shape[0];
    struct sentence said = {""};
    char *text = said.text;
    if (!contents && elements)
        snprintf(text, sizeof said.text,
                 "input '%s' has neither raw_input_contents nor contents", input->name);
    if (!contents) return said;
    if (!list) {
        snprintf(text, sizeof said.text,
                 "input '%s': %s has no typed contents; send raw_input_contents",
                 input->name, type);
        return said;
    }
    for (size_t i = 0; i < VX_COUNT(others); i++) {
        if (others[i] == list || !list_count(contents, others[i])) continue;
        snprintf(text, sizeof said.text,
                 "input '%s': expected values of %s in %s, got values in %s", input->name,
                 type, list_names[list], list_names[others[i]]);
        return said;
    }
    if (list_count(contents, list) != elements) {
        snprintf(text, sizeof said.text, "input '%s': expected %zu values in %s, got %zu",
                 input->name, elements, list_names[list], list_count(contents, list));
        return said;
    }
    for (size_t i = 0; (list == 2 || list == 4) && i < elements; i++) {
        const i64 value = list_value(contents, list, i);
        if (value_fits(type, value)) continue;
        snprintf(text, sizeof said.text, "input '%s': element %zu must fit %s, got %lld",
                 input->name, i, type, (long long)value);
        return said;
    }
    return said;
}

static struct sentence request_sentence(const Request *request)
{
    struct sentence said = {""};
    for (size_t i = 0; i < request->n_inputs; i++)
        if (request->n_raw_input_contents && request->inputs[i]->contents) {
            snprintf(said.text, sizeof said.text,
                     "contents field must not be specified when using "
                     "raw_input_contents for '%s' for model 'm'",
                     request->inputs[i]->name);
            return said;
        }
    for (size_t i = 0; i < request->n_inputs && !said.text[0]; i++)
        said = input_sentence(request->inputs[i]);
    return said;
}

/* ------- tests ------- */

static u64 accepted, refused, malformed;

static void check_one(const struct vx_spans *spans)
{
    Request *oracle =
        inference__model_infer_request__unpack(NULL, wire.length, wire.bytes);
    parse_run(&parse, spans);
    const char *text = parse_text(&parse);
    if (!parse.status.fault) {
        ck_assert_msg(oracle && judge_request(oracle), "accepted, but is not right");
        judge_check(oracle, &parse);
        accepted++;
    } else {
        ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_INVALID_ARGUMENT);
        const struct sentence said =
            oracle ? request_sentence(oracle) : (struct sentence){""};
        if (said.text[0]) ck_assert_str_eq(text, said.text);
        ck_assert_msg(!oracle || !judge_request(oracle), "refused: %s", text);
        if (oracle) refused++;
        if (!oracle) malformed++;
    }
    parse_end(&parse);
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

static void check_cuts(struct dice *dice)
{
    static const size_t pieces[] = {0, 1, 12, 100};
    for (size_t i = 0; i < VX_COUNT(pieces); i++) {
        struct cut cut;
        cut_open(&cut, wire.bytes, wire.length, pieces[i], dice);
        check_one(&cut.spans);
        cut_close(&cut);
    }
}

START_TEST(every_legal_form_is_read)
{
    struct dice dice = {SEED};
    accepted = refused = malformed = 0;
    for (int i = 0; i < REQUESTS / 4; i++) {
        typed_write(&wire, &dice, 0);
        check_cuts(&dice);
    }
    ck_assert_uint_eq(refused + malformed, 0);
}
END_TEST

START_TEST(mistakes_are_refused_with_the_same_sentences)
{
    struct dice dice = {SEED + 1};
    accepted = refused = malformed = 0;
    for (int i = 0; i < REQUESTS / 4; i++) {
        typed_write(&wire, &dice, 1);
        check_cuts(&dice);
    }
    printf("%llu accepted, %llu refused, %llu malformed\n", (unsigned long long)accepted,
           (unsigned long long)refused, (unsigned long long)malformed);
    ck_assert_uint_gt(refused, accepted / 4);
    ck_assert_uint_gt(malformed, accepted / 8);
}
END_TEST

/* A message of INT8 zeros in one packed list, of `bytes` bytes in all. */
static u8 *write_zeros(size_t bytes, size_t *count)
{
    struct wire *head = calloc(1, sizeof *head);
    u8 *message = calloc(1, bytes);
    for (*count = bytes;; --*count) {
        const u64 list = 1 + 4 + *count, input = 3 + 6 + 5 + 5 + list;
        head->length = 0;
        wire_add(head, "\x0a\x01m\x2a", 4);
        wire_add_varint(head, input);
        wire_add(head, "\x0a\x01x\x12\x04INT8\x18", 10);
        wire_add_varint(head, *count);
        wire_add(head, "\x2a", 1);
        wire_add_varint(head, list);
        wire_add(head, "\x12", 1);
        wire_add_varint(head, *count);
        if (head->length + *count <= bytes) break;
    }
    ck_assert_uint_eq(head->length + *count, bytes);
    memcpy(message, head->bytes, head->length);
    free(head);
    return message;
}

/* However long a list is, it takes no memory but the tensor's. */
START_TEST(lists_take_no_scratch)
{
    size_t count;
    for (size_t more = 0; more < 2; more++) {
        u8 *message = write_zeros(VX_INFER_REST_BYTES_MAX + more, &count);
        parse_flat(&parse, message, VX_INFER_REST_BYTES_MAX + more);
        if (more) {
            ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_RESOURCE_EXHAUSTED);
            ck_assert_str_eq(parse_text(&parse),
                             "expected at most 4194304 bytes of names, shapes, "
                             "parameters and typed contents, got 4194305 or more; send "
                             "tensors in raw_input_contents");
        } else {
            ck_assert_msg(!parse.status.fault, "%s", parse_text(&parse));
            ck_assert_uint_eq(parse.request.inputs[0].place.bytes, count);
            ck_assert_uint_lt(parse.scratch_used, 32 << 10);
        }
        parse_end(&parse);
        free(message);
    }
}
END_TEST

/* Malformed lists, whose sentences say what is wrong with them. */
static const struct {
    const char *notation, *sentence;
} bad[] = {
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{3x80}}", "a list ends inside a value"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{3x0180}}", "a list ends inside a value"},
    {"1'm' 5{1'x' 2'INT64' 3[0] 5{3x80}}", "a list ends inside a value"},
    {"1'm' 5{1'x' 2'FP32' 3[1] 5{6x0000803f00}}", "a list ends inside a value"},
    {"1'm' 5{1'x' 2'FP64' 3[1] 5{7x0000803f}}", "a list ends inside a value"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{3x8080808080808080808001}}",
     "a varint is longer than 10 bytes"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{!188080808080808080808001}}",
     "a varint is longer than 10 bytes"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{!1880}}", "it ends inside a varint"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{!1d01000000}}", "do not parse as one"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{!1a8180808080000a}}",
     "a length is longer than 5 bytes"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{!9a808080800001}}", "a field number is out of range"},
    {"1'm' 5{1'x' 2'INT64' 3[1] 5{3[1]} 4{!0b}}", "it has a group"},
};

START_TEST(malformed_lists_are_refused)
{
    struct dice dice = {SEED};
    wire_write(&wire, bad[_i].notation);
    for (size_t piece = 0; piece < 3; piece++) {
        struct cut cut;
        cut_open(&cut, wire.bytes, wire.length, piece, &dice);
        parse_run(&parse, &cut.spans);
        ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_INVALID_ARGUMENT);
        ck_assert_msg(strstr(parse_text(&parse), bad[_i].sentence) != NULL, "%s: %s",
                      bad[_i].notation, parse_text(&parse));
        parse_end(&parse);
        cut_close(&cut);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("typed contents");
    TCase *tcase = tcase_create("typed");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, every_legal_form_is_read);
    tcase_add_test(tcase, mistakes_are_refused_with_the_same_sentences);
    tcase_add_test(tcase, lists_take_no_scratch);
    tcase_add_loop_test(tcase, malformed_lists_are_refused, 0, (int)VX_COUNT(bad));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
