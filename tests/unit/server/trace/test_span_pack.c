/* span_pack: the bytes are those of OpenTelemetry's own encoder (tests/golden/spans.py), the
 * longest record fits, and what collectors answer is understood.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/trace/span_pack.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OFFSET_NS INT64_C(1700000000000000000)
#define PATH      "/inference.GRPCInferenceService/ModelInfer"

static struct vx_resource resource;
static struct vx_span_pack *pack;

static void setup(void)
{
    struct vx_why why;
    resource = (struct vx_resource){0};
    vx_resource_set(&resource, "service.name", "voxeld");
    ck_assert(!vx_resource_parse(&resource, "place=a%2Cb %C3%bc", &why).fault);
    ck_assert(!vx_span_pack_open(&resource, &pack).fault);
}

static void teardown(void)
{
    vx_span_pack_close(&pack);
}

static const struct vx_record ran = {
    .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
    .span_id = "b7ad6b7169203331",
    .parent_id = "00f067aa0ba902b7",
    .trace_state = "a=1,b=2",
    .path = PATH,
    .code = VX_CODE_OK,
    .times_ns = {1000, 2000, 3000, 4500, 5000, 9000, 9500},
    .stages = VX_STAGES_COUNT,
    .model = "normals",
    .id = "scan-\u00e9",
    .version = 3,
    .voxels = 848,
    .bytes_in = 17000,
    .bytes_out = 10176,
    .ran = true,
    .geometry_hit = true,
    .device = "cuda:1",
    .worker = 1,
    .pairs = 12345,
    .batch_requests = 4,
    .batch_voxels = 3000,
    .batch_fill = 0.375,
};
/* Its second time is before its first. */
static const struct vx_record refused = {
    .trace_id = "0af7651916cd43dd8448eb211c80319c",
    .span_id = "00000000000000ff",
    .path = PATH,
    .code = VX_CODE_UNAVAILABLE,
    .why = "the server stops",
    .times_ns = {7000, 6000, 8000},
    .stages = VX_STAGE_QUEUE + 1,
    .model = "normals",
    .bytes_in = 5,
};

static size_t golden_read(u8 *bytes, size_t capacity)
{
    FILE *file = fopen("tests/golden/spans.bin", "rb");
    ck_assert_msg(file != NULL, "run this from the repository root");
    size_t length = fread(bytes, 1, capacity, file);
    fclose(file);
    return length;
}

START_TEST(the_bytes_are_opentelemetrys)
{
    static u8 golden[8192];
    size_t expected = golden_read(golden, sizeof golden), length;
    for (int round = 0; round < 2; round++) { /* a pack is empty again after its end */
        vx_span_pack_add(pack, &ran);
        vx_span_pack_add(pack, &refused);
        const u8 *bytes = vx_span_pack_end(pack, OFFSET_NS, &length);
        ck_assert_uint_eq(length, expected);
        ck_assert_mem_eq(bytes, golden, length);
    }
}
END_TEST

/* As many records as fit, each with the longest of every text. */
START_TEST(the_longest_fits)
{
    static struct vx_record longest;
    size_t length, one;
    longest = ran;
    memset(longest.trace_state, 's', sizeof longest.trace_state - 1);
    memset(longest.why, 'w', sizeof longest.why - 1);
    memset(longest.model, 'm', sizeof longest.model - 1);
    memset(longest.id, 'i', sizeof longest.id - 1);
    memset(longest.device, 'd', sizeof longest.device - 1);
    longest.code = VX_CODE_INTERNAL;
    longest.version = longest.voxels = longest.pairs = INT64_MIN; /* ten bytes each */
    longest.bytes_in = longest.bytes_out = longest.batch_voxels = INT64_MIN;
    longest.batch_requests = INT64_MIN;
    longest.worker = INT32_MIN;
    vx_span_pack_add(pack, &longest);
    (void)vx_span_pack_end(pack, 0, &one);
    ck_assert_uint_le(one, VX_SPAN_PACK_RECORD_BYTES);
    for (i32 i = 0; i < VX_SPAN_PACK_RECORDS; i++) vx_span_pack_add(pack, &longest);
    (void)vx_span_pack_end(pack, 0, &length);
    ck_assert_uint_gt(length, (one - 200) * VX_SPAN_PACK_RECORDS);
}
END_TEST

static bool bytes_have(const u8 *bytes, size_t length, const void *what, size_t count)
{
    return memmem(bytes, length, what, count) != NULL;
}

/* OpenTelemetry's list for servers: what the server is to blame for. */
START_TEST(some_codes_are_errors)
{
    static const struct {
        enum vx_code code;
        bool is_error;
    } rows[] = {
        {VX_CODE_OK, false},
        {VX_CODE_CANCELLED, false},
        {VX_CODE_INVALID_ARGUMENT, false},
        {VX_CODE_DEADLINE_EXCEEDED, true},
        {VX_CODE_NOT_FOUND, false},
        {VX_CODE_ALREADY_EXISTS, false},
        {VX_CODE_PERMISSION_DENIED, false},
        {VX_CODE_RESOURCE_EXHAUSTED, false},
        {VX_CODE_FAILED_PRECONDITION, false},
        {VX_CODE_UNIMPLEMENTED, true},
        {VX_CODE_INTERNAL, true},
        {VX_CODE_UNAVAILABLE, true},
        {VX_CODE_DATA_LOSS, true},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_record record = refused;
        size_t length;
        record.code = rows[i].code;
        strcpy(record.why, "W");
        vx_span_pack_add(pack, &record);
        const u8 *bytes = vx_span_pack_end(pack, 0, &length);
        /* Field 15 of 5 bytes: message "W", code ERROR. */
        ck_assert_msg(bytes_have(bytes, length, "\x7a\x05\x12\x01W\x18\x02", 7) ==
                          rows[i].is_error,
                      "%s", vx_code_name(rows[i].code));
    }
}
END_TEST

START_TEST(what_a_collector_rejects)
{
    static const struct {
        const char *body;
        size_t length;
        i64 rejected;
        const char *why;
    } rows[] = {
        {"", 0, 0, ""},
        {"\x0a\x00", 2, 0, ""},
        {"\x0a\x02\x08\x07", 4, 7, ""},
        {"\x0a\x05\x08\x07\x12\x01x", 7, 7, "x"},
        {"\x0a\x03\x12\x01x", 5, 0, "x"}, /* a warning */
        {"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13, 0, ""}, /* -1 */
        {"\x0a\x05\x08\x07\x12\x01\xff", 7, 0, ""}, /* not UTF-8 */
        {"\x0a\x05\x08\x07\x12\x05x", 7, 0, ""},    /* cut */
        {"{}", 2, 0, ""},
        {"<html>", 6, 0, ""},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_why why;
        i64 rejected =
            vx_span_answer_rejected((const u8 *)rows[i].body, rows[i].length, &why);
        ck_assert_msg(rejected == rows[i].rejected, "row %zu: %lld", i,
                      (long long)rejected);
        ck_assert_str_eq(why.text, rows[i].why);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("span_pack");
    TCase *tests = tcase_create("span_pack");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_bytes_are_opentelemetrys);
    tcase_add_test(tests, the_longest_fits);
    tcase_add_test(tests, some_codes_are_errors);
    tcase_add_test(tests, what_a_collector_rejects);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
