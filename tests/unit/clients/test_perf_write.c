/* What perf_analyzer reads: base64, JSON, raw files.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/perf_write.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *text;
static size_t text_bytes;

static FILE *text_open(void)
{
    FILE *to = open_memstream(&text, &text_bytes);
    ck_assert_ptr_nonnull(to);
    return to;
}

static void text_is(FILE *to, const char *expected)
{
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(base64_is_rfc_4648)
{
    /* Section 10 of the RFC, and every digit. */
    static const struct {
        const char *data, *expected;
    } rows[] = {{"", ""},
                {"f", "Zg=="},
                {"fo", "Zm8="},
                {"foo", "Zm9v"},
                {"foob", "Zm9vYg=="},
                {"fooba", "Zm9vYmE="},
                {"foobar", "Zm9vYmFy"},
                {"\xff\xef\xbe\xfb", "/+++"
                                     "+w=="}};
    FILE *to = text_open();
    perf_write_base64(to, rows[_i].data, strlen(rows[_i].data));
    text_is(to, rows[_i].expected);
}
END_TEST

START_TEST(names_are_json_strings)
{
    FILE *to = text_open();
    perf_write_text(to, "a \"b\" \\ \n\x01 \xc3\xa9");
    text_is(to, "\"a \\\"b\\\" \\\\ \\u000a\\u0001 \xc3\xa9\"");
}
END_TEST

static const int32_t coords[2][4] = {{0, -1, 2, 3}, {0, 4, 5, -2147483647 - 1}};
static const float feats[2][1] = {{0.1f}, {-1.0f}};

START_TEST(a_file_of_numbers)
{
    const struct voxel_tensor tensors[2] = {
        voxel_tensor_make("coords", VOXEL_INT32, 2, 4, coords),
        voxel_tensor_make("feats", VOXEL_FP32, 2, 1, feats)};
    FILE *to = text_open();
    perf_write_begin(to);
    perf_write_grid(to, tensors, PERF_NUMBERS, true);
    perf_write_grid(to, tensors, PERF_BASE64, false);
    perf_write_end(to);
    text_is(to, "{\"data\":[\n"
                "{\"coords\":{\"content\":[0,-1,2,3,0,4,5,-2147483648],\"shape\":[2,4]},"
                "\"feats\":{\"content\":[0.100000001,-1.0],\"shape\":[2,1]}},\n"
                "{\"coords\":{\"b64\":\"AAAAAP////8CAAAAAwAAAAAAAAAEAAAABQAAAAAAAIA=\","
                "\"shape\":[2,4]},"
                "\"feats\":{\"b64\":\"zczMPQAAgL8=\",\"shape\":[2,1]}}\n"
                "]}\n");
}
END_TEST

START_TEST(raw_files)
{
    char folder[] = "/tmp/test_perf_write.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const struct voxel_tensor tensor =
        voxel_tensor_make("coords", VOXEL_INT32, 2, 4, coords);
    ck_assert_int_eq(perf_write_raw(folder, &tensor, NULL), VOXEL_OK);
    char path[64];
    snprintf(path, sizeof path, "%s/coords", folder);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char data[64];
    ck_assert_uint_eq(fread(data, 1, sizeof data, file), sizeof coords);
    ck_assert_mem_eq(data, coords, sizeof coords);
    fclose(file);
    remove(path);

    static const char *const no_files[] = {"a/b", "..", ".x"};
    for (size_t i = 0; i < sizeof no_files / sizeof *no_files; i++) {
        struct voxel_tensor named = tensor;
        named.name = no_files[i];
        ck_assert_int_eq(perf_write_raw(folder, &named, NULL), VOXEL_INVALID_ARGUMENT);
    }
    ck_assert_int_eq(rmdir(folder), 0);
    struct voxel_error error;
    ck_assert_int_eq(perf_write_raw(folder, &tensor, &error), VOXEL_DATA_LOSS);
    ck_assert_ptr_nonnull(strstr(error.text, folder));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("perf_write");
    TCase *cases = tcase_create("perf_write");
    tcase_add_loop_test(cases, base64_is_rfc_4648, 0, 8);
    tcase_add_test(cases, names_are_json_strings);
    tcase_add_test(cases, a_file_of_numbers);
    tcase_add_test(cases, raw_files);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
