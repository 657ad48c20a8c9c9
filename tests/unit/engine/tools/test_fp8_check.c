/* FP8 in `voxeld check`: the error of two answers by hand, and models beside themselves on
 * their data; and a recording of a model in FP8.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/fp8_error.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "engine/engine.h"
#include "engine/tools/npz.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[VX_TEST_PATH_BYTES];

static void set_up(void)
{
    vx_test_directory(folder);
}

static void tear_down(void)
{
    vx_test_remove(folder);
}

/* --- the error of two answers --- */

static struct vx_output output_of(enum vx_dtype dtype, i32 channels)
{
    return (struct vx_output){.name = "y", .dtype = dtype, .channels = channels};
}

START_TEST(an_error_by_hand)
{
    static const f32 plain[] = {1, 2, 3, 4}, rounded[] = {1, 2.5f, 3, 3};
    const struct vx_output output = output_of(VX_DTYPE_F32, 2);
    const struct vx_fp8_rows a = {2, plain, NULL}, b = {2, rounded, NULL};
    const struct vx_fp8_error error = vx_fp8_error_of(&output, &a, &b);
    ck_assert(vx_fp8_nmse(&error) == (0.25 + 1) / 30);
    ck_assert(error.plain == 4 && error.rounded == 3);
    ck_assert_int_eq(error.row, 1);
    ck_assert_int_eq(error.channel, 1);
    ck_assert_int_eq(error.rows, 2);
    const struct vx_fp8_error none = vx_fp8_error_of(&output, &a, &a);
    ck_assert(vx_fp8_nmse(&none) == 0);
    ck_assert_int_eq(none.channel, -1);
}
END_TEST

START_TEST(zeros_and_what_is_no_number)
{
    static const f32 zeros[2] = {0}, one[] = {0, 1}, nan[] = {NAN, 5};
    const struct vx_output output = output_of(VX_DTYPE_F32, 2);
    const struct vx_fp8_rows a = {1, zeros, NULL}, b = {1, one, NULL}, c = {1, nan, NULL};
    struct vx_fp8_error error = vx_fp8_error_of(&output, &a, &a);
    ck_assert(vx_fp8_nmse(&error) == 0);
    error = vx_fp8_error_of(&output, &a, &b);
    ck_assert(isinf(vx_fp8_nmse(&error)));
    error = vx_fp8_error_of(&output, &b, &c);
    ck_assert(isnan(vx_fp8_nmse(&error)));
    ck_assert_int_eq(error.channel, 0); /* 4 is less than what is no number */
}
END_TEST

/* Voxels 1, 2, 4 without rounding and 2, 3, 4 with: 1 is lost, 3 is new. */
START_TEST(rows_of_other_voxels_count_with_zeros)
{
    static const i32 plain_at[] = {0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0};
    static const i32 rounded_at[] = {0, 0, 0, 2, 0, 0, 0, 3, 1, 0, 0, 0};
    static const f32 plain[] = {1, 2, 3}, rounded[] = {2, 5, 3};
    const struct vx_output output = output_of(VX_DTYPE_F32, 1);
    const struct vx_fp8_rows a = {3, plain, plain_at}, b = {3, rounded, rounded_at};
    const struct vx_fp8_error error = vx_fp8_error_of(&output, &a, &b);
    ck_assert(vx_fp8_nmse(&error) == (1.0 + 25) / (1 + 4 + 9));
    ck_assert_int_eq(error.lost, 1);
    ck_assert_int_eq(error.gained, 1);
    ck_assert_int_eq(error.rows, 4);
    ck_assert(error.plain == 0 && error.rounded == 5);
}
END_TEST

START_TEST(an_argmax_is_rows_of_0_and_1)
{
    static const i32 plain[] = {3, 1, 0, 7}, rounded[] = {3, 2, 0};
    const struct vx_output output = output_of(VX_DTYPE_I32, 1);
    const struct vx_fp8_rows a = {4, plain, NULL}, b = {3, rounded, NULL};
    const struct vx_fp8_error error = vx_fp8_error_of(&output, &a, &b);
    ck_assert(vx_fp8_nmse(&error) == (2.0 + 1) / 4);
    ck_assert_int_eq(error.changed, 1);
    ck_assert_int_eq(error.lost, 1);
}
END_TEST

/* --- a model beside itself --- */

#define HEAD "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":3}},\"layers\":["
#define TAIL(bound)                                                                      \
    ",\"precision\":\"bf16\",\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":" bound "}}"
#define CONV                                                                             \
    "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":8,"           \
    "\"kernel\":3,\"layout\":\"oxyzi\",\"fp8_scale\":0.0078125},"
/* Outputs of 32 and 16 bits, on another set, of choices, and dense. */
#define NETWORK                                                                          \
    HEAD CONV                                                                            \
        "{\"name\":\"y\",\"op\":\"silu\",\"input\":\"c\"},"                              \
        "{\"name\":\"p\",\"op\":\"max_pool\",\"input\":\"y\",\"kernel\":2,\"stride\":2," \
        "\"rule\":\"floor\"},"                                                           \
        "{\"name\":\"a\",\"op\":\"argmax\",\"input\":\"p\"}],"                           \
        "\"outputs\":[{\"layer\":\"y\"},{\"name\":\"half\",\"layer\":\"y\","             \
        "\"datatype\":\"FP16\"},{\"layer\":\"p\"},{\"layer\":\"a\"}]"
/* Logits of e4m3 numbers decide which children there are. */
#define PREDICTED                                                                        \
    HEAD CONV "{\"name\":\"d\",\"op\":\"downsample\",\"input\":\"c\",\"stride\":2},"     \
              "{\"name\":\"u\",\"op\":\"upsample\",\"input\":\"d\",\"stride\":2,"        \
              "\"occupancy\":\"d\"}],\"outputs\":[{\"layer\":\"u\"}]"

/* coords (N, 4) and feats (N, channels). */
static void write_request(i64 voxels, i64 channels, i32 *coords, f32 *feats)
{
    char path[VX_TEST_PATH_BYTES + 32];
    struct vx_why why = {""};
    struct vx_npz *npz;
    const struct vx_npz_array arrays[] = {{.name = "coords",
                                           .kind = 'i',
                                           .size = 4,
                                           .rank = 2,
                                           .shape = {voxels, 4},
                                           .data = coords},
                                          {.name = "feats",
                                           .kind = 'f',
                                           .size = 4,
                                           .rank = 2,
                                           .shape = {voxels, channels},
                                           .data = feats}};
    (void)snprintf(path, sizeof path, "%s/fp8.npz", folder);
    ck_assert(!vx_npz_create(path, &why, &npz).fault);
    for (size_t a = 0; a < VX_COUNT(arrays); a++)
        ck_assert(!vx_npz_add(npz, &arrays[a], &why).fault);
    ck_assert(!vx_npz_close(&npz, &why).fault);
}

static void write_data(i64 voxels, i64 channels)
{
    struct vx_rig_request *request = vx_rig_request(9, voxels, 4, VX_DTYPE_F32);
    write_request(voxels, channels, request->coords, request->feats);
    vx_free(request);
}

static vx_status run_check(struct vx_why *why, char *text, size_t bytes)
{
    const struct vx_model_source source = {.directory = folder, .version = 1};
    return vx_engine_check_fp8(&source, why, text, bytes);
}

static char text[4096];

START_TEST(a_model_within_its_bound)
{
    struct vx_why why = {""};
    vx_rig_write_model(folder, NETWORK TAIL("0.5"), 5);
    write_data(150, 3);
    ck_assert_msg(!run_check(&why, text, sizeof text).fault, "%s", why.text);
    ck_assert_msg(strstr(text,
                         "FP8: 1 of 4 layers multiply e4m3; outputs on fp8.npz (150 "
                         "voxels), in f32 with and without\n"
                         "  output                   NMSE         at most      "
                         "worst element\n"
                         "  y                        0.00") == text,
                  "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "\n  half                     0.00"));
    ck_assert_ptr_nonnull(strstr(text, " 0.5          "));
    ck_assert_ptr_nonnull(strstr(text, " became "));
    ck_assert_ptr_nonnull(strstr(text, " rows choose another channel\n"));
    ck_assert_ptr_null(strstr(text, "p_coords"));
    ck_assert_ptr_null(strstr(text, "lost"));
}
END_TEST

START_TEST(a_model_that_exceeds_its_bound)
{
    struct vx_why why = {""};
    vx_rig_write_model(folder, NETWORK TAIL("1e-9"), 5);
    write_data(150, 3);
    vx_status status = run_check(&why, text, sizeof text);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text,
                         "/network.json: output \"y\" in FP8: expected an NMSE of "
                         "at most 1e-09 (\"fp8\": \"nmse_max\") on fp8.npz, got "
                         "0.00") != NULL,
                  "%s", why.text);
    ck_assert_ptr_nonnull(strstr(text, "\n  a                        ")); /* all of it */
}
END_TEST

START_TEST(predicted_voxels_may_differ)
{
    struct vx_why why = {""};
    vx_rig_write_model(folder, PREDICTED TAIL("1"), 5);
    write_data(150, 3);
    ck_assert_msg(!run_check(&why, text, sizeof text).fault, "%s", why.text);
    ck_assert_msg(strstr(text, " rows are lost, ") != NULL, "%s", text);
}
END_TEST

START_TEST(data_that_cannot_be_used)
{
    static const struct {
        i64 voxels, channels;
        const char *says;
        enum vx_code code;
    } cases[] = {
        {-1, 0, "/fp8.npz: cannot be opened", VX_CODE_NOT_FOUND},
        {20, 2, "/fp8.npz: expected feats float32 [20, 3], got float32 [20, 2]",
         VX_CODE_INVALID_ARGUMENT},
        {0, 3, "/fp8.npz: expected at least 1 voxel, got 0", VX_CODE_INVALID_ARGUMENT},
    };
    struct vx_why why = {""};
    vx_rig_write_model(folder, NETWORK TAIL("0.5"), 5);
    if (cases[_i].voxels >= 0) write_data(cases[_i].voxels, cases[_i].channels);
    vx_status status = run_check(&why, text, sizeof text);
    ck_assert_msg(strstr(why.text, "\"fp8\": \"data\": ") == why.text, "%s", why.text);
    ck_assert_msg(strstr(why.text, cases[_i].says) != NULL, "%s", why.text);
    ck_assert_int_eq(vx_status_code(status), cases[_i].code);
    ck_assert_str_eq(text, "");
}
END_TEST

/* A request that the engine refuses: a voxel twice. */
START_TEST(data_that_the_engine_refuses)
{
    struct vx_why why = {""};
    i32 coords[8] = {0};
    f32 feats[6] = {0};
    vx_rig_write_model(folder, NETWORK TAIL("0.5"), 5);
    write_request(2, 3, coords, feats);
    vx_status status = run_check(&why, text, sizeof text);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, "/fp8.npz: ") != NULL, "%s", why.text);
}
END_TEST

/* What is not a number is within no bound, whether both runs have it or one. */
START_TEST(an_error_that_is_no_number)
{
    struct vx_why why = {""};
    i32 coords[4] = {0};
    f32 feats[3] = {1, NAN, 1};
    vx_rig_write_model(folder, NETWORK TAIL("1"), 5);
    write_request(1, 3, coords, feats);
    vx_status status = run_check(&why, text, sizeof text);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, "on fp8.npz, got nan") != NULL, "%s", why.text);
}
END_TEST

/* --- a recording --- */

static struct vx_npz_array read_array(const char *path, const char *name)
{
    struct vx_why why = {""};
    struct vx_npz_array array;
    vx_status status = vx_npz_read(path, name, &why, &array);
    ck_assert_msg(!status.fault, "%s", why.text);
    return array;
}

/* Each run of a recording has "fp8" if its layers have it. */
START_TEST(a_recording_of_a_model_in_fp8)
{
    static const char network[] =
        HEAD "{\"name\":\"a\",\"op\":\"relu\",\"input\":\"feats\"}," CONV
             "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"c\",\"channels\":2},"
             "{\"name\":\"z\",\"op\":\"concat\",\"inputs\":[\"y\",\"a\"]}],"
             "\"outputs\":[{\"layer\":\"z\"}]" TAIL("0.5");
    char example[VX_TEST_PATH_BYTES + 32], out[VX_TEST_PATH_BYTES + 32];
    vx_rig_write_model(folder, network, 5);
    write_data(150, 3);
    (void)snprintf(example, sizeof example, "%s/fp8.npz", folder);
    (void)snprintf(out, sizeof out, "%s/r.npz", folder);
    const char *const words[] = {"record", folder, "--example", example, "-o", out};
    char *arguments[VX_COUNT(words)], *kept[VX_COUNT(words)];
    for (size_t i = 0; i < VX_COUNT(words); i++)
        kept[i] = arguments[i] = strdup(words[i]);
    ck_assert_int_eq(vx_engine_tool((int)VX_COUNT(words), arguments), 0);
    for (size_t i = 0; i < VX_COUNT(words); i++) free(kept[i]);
    struct vx_npz_array c = read_array(out, "layer.c"), z = read_array(out, "layer.z"),
                        last = read_array(out, "out.z");
    ck_assert_int_eq(c.shape[1], 8);
    ck_assert_mem_eq(z.data, last.data, vx_npz_bytes(&z));
    vx_free(c.data);
    vx_free(z.data);
    vx_free(last.data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fp8_check");
    TCase *tcase = tcase_create("fp8_check");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, an_error_by_hand);
    tcase_add_test(tcase, zeros_and_what_is_no_number);
    tcase_add_test(tcase, rows_of_other_voxels_count_with_zeros);
    tcase_add_test(tcase, an_argmax_is_rows_of_0_and_1);
    tcase_add_test(tcase, a_model_within_its_bound);
    tcase_add_test(tcase, a_model_that_exceeds_its_bound);
    tcase_add_test(tcase, predicted_voxels_may_differ);
    tcase_add_loop_test(tcase, data_that_cannot_be_used, 0, 3);
    tcase_add_test(tcase, data_that_the_engine_refuses);
    tcase_add_test(tcase, an_error_that_is_no_number);
    tcase_add_test(tcase, a_recording_of_a_model_in_fp8);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
