/* The codec against protobuf-c: every cut, every truncation, and random damage.
 *
 * protobuf-c unpacks the flattened message, and codec_judge derives from that,
 * independently, what the codec must do: accept or refuse, and with which content.  The
 * codec may be stricter only where protobuf-c does not check: strings that are not UTF-8
 * or contain a NUL, and tags out of range.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/trials.h"
#include "tests/unit/proto/codec_harness.h"
#include "tests/unit/proto/codec_judge.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED      UINT64_C(20261121)
#define MUTATIONS VX_TRIALS(100000, 40000)
#define SCRATCH_SMALL                                                                    \
    ((size_t)1 << 18) /* the messages here are small, and poisoning 6 MiB is slow */

static const char *const seeds[] = {
    "1'conv' 2'7' 3'id-1' 4{1'priority' 2{5:3}} 4{1'timeout' 2{2:1500}} 5{1'coords' "
    "2'INT32' 3[3 4]} "
    "5{1'feats' 2'FP32' 3[3 4]} 6{1'out'} 7#48 7#48",
    "7#12 7#6 4{1'timing' 2{1:1}} 5{1'a' 2'INT32' 3[3]} 5{1'b' 2'BF16' 3:3} 1'm' "
    "4{1'triton_enable_empty_final_response' 2{1:0}}",
    "1'm' 4{1'coords_ref' 2{3'0123456789abcdef00f0000000000001'}} 4{1'timing' 2{1:1}} "
    "5{1'feats' 2'FP32' 3[3 4]} 7#48",
    "1'm' 4{1'coords_ref' 2{3''}} 5{1'coords' 2'INT32' 3[2 3]} 5{1'feats' 2'FP16' 3[2 "
    "4]} "
    "7#24 7#16",
    "1'm' 5{1'a' 2'INT8' 3[3] 5{2[1 -1 100]}} 5{1'b' 2'FP64' 3[1] 5{7d[2.5]}} "
    "5{1'c' 2'BOOL' 3[2] 5{1[0 1]}} 5{1'd' 2'UINT64' 3[1] 5{5:77}}",
    "1'm' 5{1'coords' 2'INT32' 3[0 4]} 5{1'feats' 2'FP16' 3[0 9] 4{1'mine' 2{2:1}}} 7#0 "
    "7#0 "
    "6{1'out' 2{1'mine' 2{1:1}}} 6{1'two'} 4{1'sequence_id' 2{2:0}} 9'unknown' 15:3",
    "1'm' 5{1'coords' 2'INT32' 3[2 4] 4{1'shared_memory_region' 2{3'r'}} "
    "4{1'shared_memory_byte_size' 2{2:32}}} 5{1'feats' 2'FP16' 3[2 4]} 7#16 "
    "6{1'out' 2{1'shared_memory_byte_size' 2{5:9}} 2{1'shared_memory_region' 2{3'o'}} "
    "2{1'shared_memory_offset' 2{2:64}}}",
    "1'm' 5{1'a' 2'INT8' 3[2] 4{1'shared_memory_region' 2{3'r'}} "
    "4{1'shared_memory_byte_size' 2{2:2}} 4{1'shared_memory_offset' 2{5:7}}} "
    "5{1'b' 2'INT8' 3[3] 5{2[1 -1 100]}}",
};

static struct wire wire;
static struct parse parse;

/* What only the codec checks. */
static bool is_stricter(const char *text)
{
    return strstr(text, "UTF-8") || strstr(text, "NUL") || strstr(text, "field number");
}

static u64 accepted, refused, stricter;

static void check_against_oracle(const u8 *bytes, size_t length,
                                 const struct vx_spans *spans)
{
    Inference__ModelInferRequest *oracle =
        inference__model_infer_request__unpack(NULL, length, bytes);
    parse_run(&parse, spans);
    bool fine = oracle && judge_request(oracle);
    const char *text = parse_text(&parse);
    if (!parse.status.fault) {
        ck_assert_msg(fine, "accepted what the oracle refuses (%d)", oracle != NULL);
        judge_check(oracle, &parse);
        accepted++;
    } else {
        enum vx_code code = vx_status_code(parse.status);
        ck_assert(code == VX_CODE_INVALID_ARGUMENT || code == VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_uint_gt(strlen(text), 10);
        ck_assert_msg(!fine || is_stricter(text), "refused what the oracle accepts: %s",
                      text);
        if (fine) stricter++;
        refused++;
    }
    parse_end(&parse);
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

static void set_up(void)
{
    parse_scratch_bytes = SCRATCH_SMALL;
    accepted = refused = stricter = judge_in_regions = 0;
    memset(&parse, 0, sizeof parse);
    wire_write(&wire, seeds[0]);
}

START_TEST(every_cut_gives_the_same_request)
{
    struct dice dice = {SEED};
    wire_write(&wire, seeds[_i]);
    for (int round = 0; round < 500; round++) {
        struct cut cut;
        cut_open(&cut, wire.bytes, wire.length, round < 10 ? 1 : 1 + (size_t)round % 60,
                 &dice);
        check_against_oracle(wire.bytes, wire.length, &cut.spans);
        cut_close(&cut);
    }
    ck_assert_uint_eq(accepted, 500);
}
END_TEST

START_TEST(every_truncation_agrees)
{
    wire_write(&wire, seeds[_i]);
    for (size_t length = 0; length < wire.length; length++) {
        struct dice dice = {SEED};
        struct cut cut;
        for (size_t piece = 0; piece <= 1; piece++) {
            cut_open(&cut, wire.bytes, length, piece, &dice);
            check_against_oracle(wire.bytes, length, &cut.spans);
            cut_close(&cut);
        }
    }
    ck_assert_uint_gt(refused, wire.length);
}
END_TEST

static size_t mutate(struct dice *dice, u8 *bytes, size_t length)
{
    for (u64 left = 1 + dice_roll(dice, 4); left; left--) {
        size_t at = (size_t)dice_roll(dice, length), run = 1 + (size_t)dice_roll(dice, 8);
        size_t from = (size_t)dice_roll(dice, length);
        if (run > length - at) run = length - at;
        if (run > length - from) run = length - from;
        switch (dice_roll(dice, 5)) {
        case 0: bytes[at] = (u8)dice_roll(dice, 256); break;
        case 1: bytes[at] ^= (u8)(1 << dice_roll(dice, 8)); break;
        case 2: bytes[at] = (u8)(bytes[at] + dice_roll(dice, 5) - 2); break;
        case 3: memmove(bytes + at, bytes + from, run); break;
        default: /* removes bytes */
            if (length - run < 8) break;
            memmove(bytes + at, bytes + at + run, length - at - run);
            length -= run;
        }
    }
    return length;
}

START_TEST(random_damage_agrees)
{
    struct dice dice = {SEED + (u64)_i};
    static u8 bytes[WIRE_BYTES_MAX];
    wire_write(&wire, seeds[_i]);
    for (int round = 0; round < MUTATIONS / (int)VX_COUNT(seeds); round++) {
        memcpy(bytes, wire.bytes, wire.length);
        size_t length = mutate(&dice, bytes, wire.length);
        struct cut cut;
        cut_open(&cut, bytes, length, (size_t)dice_roll(&dice, 30), &dice);
        check_against_oracle(bytes, length, &cut.spans);
        cut_close(&cut);
    }
    printf("seed %llu: %llu accepted, %llu refused, %llu of them fine to protobuf-c\n",
           (unsigned long long)(SEED + (u64)_i), (unsigned long long)accepted,
           (unsigned long long)refused, (unsigned long long)stricter);
    ck_assert(!strstr(seeds[_i], "shared_memory") || judge_in_regions > 100);
    ck_assert_uint_gt(accepted, 100);
    ck_assert_uint_gt(refused, 1000);
}
END_TEST

/* Very many small fields: protobuf-c's records must stop at the arena's end, and
 * quickly. */
static const char *const floods[] = {"2a00",     "2200",        "3200", "2a022a00",
                                     "3a00",     "7a00",        "7801", "22040a001200",
                                     "2a021200", "2a042a021001"};

START_TEST(floods_end_at_a_limit)
{
    parse_scratch_bytes = VX_INFER_SCRATCH_BYTES;
    wire_write(&wire, "1'm'");
    struct wire *part = calloc(1, sizeof *part);
    char notation[64];
    snprintf(notation, sizeof notation, "!%s", floods[_i]);
    wire_write(part, notation);
    size_t count = (VX_INFER_REST_BYTES_MAX - 64) / part->length;
    u8 *bytes = malloc(wire.length + count * part->length);
    memcpy(bytes, wire.bytes, wire.length);
    for (size_t i = 0; i < count; i++)
        memcpy(bytes + wire.length + i * part->length, part->bytes, part->length);
    parse_flat(&parse, bytes, wire.length + count * part->length);
    enum vx_code code = vx_status_code(parse.status);
    ck_assert_msg(code == VX_CODE_INVALID_ARGUMENT || code == VX_CODE_RESOURCE_EXHAUSTED,
                  "%s: %d", notation, code);
    parse_end(&parse);
    free(bytes);
    free(part);
}
END_TEST

/* Unknown numbers and bytes, empty outputs, outputs with an empty parameter, parameters with an
 * empty key and value.  Of inputs the ninth is refused. */
static const struct {
    const char *hex;
    u8 bytes;
    i32 parts;
} part_kinds[] = {{"7801", 2, 1},
                  {"7a00", 2, 1},
                  {"3200", 2, 1},
                  {"32021200", 4, 2},
                  {"22040a001200", 6, 3}};

/* The model's name, units of one kind, and unknown numbers until there are `parts`. */
static void parse_parts(i32 kind, i32 parts)
{
    struct wire *unit = calloc(1, sizeof *unit);
    char notation[64];
    snprintf(notation, sizeof notation, "!%s", part_kinds[kind].hex);
    wire_write(unit, notation);
    ck_assert_uint_eq(unit->length, part_kinds[kind].bytes);
    wire_write(&wire, "1'm'");
    u8 *bytes = malloc(wire.length + (size_t)parts * 6), *end = bytes + wire.length;
    memcpy(bytes, wire.bytes, wire.length);
    i32 left = parts - 1;
    for (; left >= part_kinds[kind].parts; left -= part_kinds[kind].parts) {
        memcpy(end, unit->bytes, unit->length);
        end += unit->length;
    }
    for (; left; left--) {
        memcpy(end, "\x78\x01", 2);
        end += 2;
    }
    parse_flat(&parse, bytes, (size_t)(end - bytes));
    free(bytes);
    free(unit);
}

/* As many parts as a message may have fit into what the scratch memory has for them, whatever they
 * are; one more is refused. */
START_TEST(parts_have_a_limit)
{
    parse_scratch_bytes = VX_INFER_SCRATCH_BYTES - 2 * VX_INFER_NAMES_BYTES_MAX;
    parse_parts(_i, VX_PARTS_MAX);
    ck_assert_msg(!strstr(parse_text(&parse), "fields"), "%s", parse_text(&parse));
    parse_end(&parse);
    parse_parts(_i, VX_PARTS_MAX + 1);
    ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(parse_text(&parse), "expected at most 2048 texts, sub-messages and "
                                         "unknown fields in a message, got more");
    parse_end(&parse);
}
END_TEST

/* One byte over the limit of the rest is refused before anything is unpacked; the
 * largest legal rest is parsed in the scratch memory that was sized for it: a million
 * floats. */
START_TEST(the_rest_has_a_limit)
{
    parse_scratch_bytes = VX_INFER_SCRATCH_BYTES;
    size_t floats = (VX_INFER_REST_BYTES_MAX - 64) / 4;
    struct wire *inner = calloc(1, sizeof *inner);
    u8 *bytes = calloc(1, VX_INFER_REST_BYTES_MAX + 1);
    struct wire *head = calloc(1, sizeof *head);
    wire_write(inner, "1'x' 2'FP32'");
    wire_add_varint(inner, 3 << 3);
    wire_add_varint(inner, floats);
    wire_write(head, "1'm'");
    /* input { name type shape contents { fp32_contents } }: lengths from the innermost
     * outwards */
    u64 list = floats * 4, contents = 1 + 4 + list,
        input = inner->length + 1 + 4 + contents;
    wire_add_varint(head, 5 << 3 | 2);
    wire_add_varint(head, input);
    wire_add(head, inner->bytes, inner->length);
    wire_add_varint(head, 5 << 3 | 2);
    wire_add_varint(head, contents);
    wire_add_varint(head, 6 << 3 | 2);
    wire_add_varint(head, list);
    memcpy(bytes, head->bytes, head->length);
    parse_flat(&parse, bytes, head->length + list);
    ck_assert_msg(!parse.status.fault, "%s", parse_text(&parse));
    ck_assert_uint_eq(parse.request.inputs[0].place.bytes, list);
    parse_end(&parse);
    /* The whole message as one unknown field that is one byte too long. */
    memset(bytes, 0, VX_INFER_REST_BYTES_MAX + 1);
    head->length = 0;
    wire_add_varint(head, 9 << 3 | 2);
    wire_add_varint(head, VX_INFER_REST_BYTES_MAX + 1 - 5);
    memcpy(bytes, head->bytes, head->length);
    ck_assert_uint_eq(head->length, 5);
    parse_flat(&parse, bytes, VX_INFER_REST_BYTES_MAX + 1);
    ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(parse_text(&parse), "at most 4194304 bytes of names"));
    ck_assert_ptr_nonnull(strstr(parse_text(&parse), "got 4194305"));
    parse_end(&parse);
    free(inner);
    free(head);
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec against protobuf-c");
    TCase *tcase = tcase_create("random");
    int seeds_count = (int)VX_COUNT(seeds);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, every_cut_gives_the_same_request, 0, seeds_count);
    tcase_add_loop_test(tcase, every_truncation_agrees, 0, seeds_count);
    tcase_add_loop_test(tcase, random_damage_agrees, 0, seeds_count);
    tcase_add_loop_test(tcase, floods_end_at_a_limit, 0, (int)VX_COUNT(floods));
    tcase_add_loop_test(tcase, parts_have_a_limit, 0, (int)VX_COUNT(part_kinds));
    tcase_add_test(tcase, the_rest_has_a_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
