/* The reader of .npy: what it must accept, and every kind of damage.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"
#include "tests/unit/clients/npy_rig.h"

#include "engine/base/limits.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(FEATS_MAX == VX_CHANNELS_MAX,
               "a file may have as many channels as a network");

START_TEST(npy_versions)
{
    unsigned version = (unsigned)_i;
    struct rig_file b = {0};
    struct points points;
    struct voxel_error error;
    rig_npy(&b, version, "{'descr': '<i4', 'fortran_order': False, 'shape': (4, 3), }\n");
    rig_put(&b, rig_points, sizeof rig_points);
    ck_assert_int_eq(rig_read(points_read_npy, b.data, b.size, &points, &error),
                     VOXEL_OK);
    rig_check_four(&points);
    ck_assert(points.whole);
    ck_assert_ptr_null(points.sample);
    points_fini(&points);
    for (size_t cut = 0; cut < b.size; cut++) {
        enum voxel_code code = rig_read(points_read_npy, b.data, cut, &points, &error);
        ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(npy_fortran_with_samples)
{
    struct rig_file b = {0};
    struct points points;
    rig_npy(&b, 1, "{\"shape\": (4L, 4), \"fortran_order\": True, \"descr\": \"<f8\"}");
    for (int i = 0; i < 4; i++) {
        double sample = i < 2 ? 0 : 1;
        rig_put(&b, &sample, sizeof sample);
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++) {
            double v = (double)rig_points[i][k];
            rig_put(&b, &v, sizeof v);
        }
    ck_assert_int_eq(rig_read(points_read_npy, b.data, b.size, &points, NULL), VOXEL_OK);
    rig_check_four(&points);
    ck_assert(!points.whole);
    ck_assert_int_eq(points.sample[1], 0);
    ck_assert_int_eq(points.sample[2], 1);
    points_fini(&points);
}
END_TEST

/* One value of every type NumPy may write, three times in a row of [1,3]. */
static const struct {
    const char *descr;
    uint64_t bits;
    size_t size;
    double value;
} cells[] = {
    {"|i1", 0xfe, 1, -2},
    {"|u1", 0xfe, 1, 254},
    {"<i2", 0xfffe, 2, -2},
    {"<u2", 0xfffe, 2, 65534},
    {"<i4", 0xfffffffe, 4, -2},
    {"<u4", 0xfffffffe, 4, 4294967294.0},
    {"<i8", UINT64_MAX - 1, 8, -2},
    {"<u8", 1ull << 40, 8, 1099511627776.0},
    {"<f2", 0xc100, 2, -2.5},
    {"<f4", 0xc0200000, 4, -2.5},
    {"<f8", 0xc004000000000000, 8, -2.5},
};

START_TEST(npy_types)
{
    struct rig_file b = {0};
    struct points points;
    char header[128];
    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': (1, 3)}", cells[_i].descr);
    rig_npy(&b, 1, header);
    for (int k = 0; k < 3; k++) rig_put_number(&b, cells[_i].bits, cells[_i].size);
    ck_assert_int_eq(rig_read(points_read_npy, b.data, b.size, &points, NULL), VOXEL_OK);
    ck_assert(points.xyz[2] == cells[_i].value);
    points_fini(&points);
}
END_TEST

static const struct {
    const char *header;
    enum voxel_code code;
    const char *expected;
} bad_npy[] = {
    {RIG_HEADER(">i4", "(4, 3)"), VOXEL_UNIMPLEMENTED, "little-endian"},
    {RIG_HEADER("<c8", "(4, 3)"), VOXEL_UNIMPLEMENTED, "'<c8'"},
    {RIG_HEADER("|b1", "(4, 3)"), VOXEL_INVALID_ARGUMENT,
     "coords is bool: expected integers (voxels) or floats (positions)"},
    {RIG_HEADER("<i4", "(12,)"), VOXEL_INVALID_ARGUMENT,
     "coords has shape [12]; expected [N,3]"},
    {RIG_HEADER("<i4", "(2, 6)"), VOXEL_INVALID_ARGUMENT,
     "coords has shape [2,6]; expected [N,3] (three axes) or [N,4]"},
    {RIG_HEADER("<i4", "()"), VOXEL_INVALID_ARGUMENT, "coords has shape []; expected"},
    {RIG_HEADER("<i4", "(5, 3)"), VOXEL_INVALID_ARGUMENT,
     "needs 60 bytes, but the file has 48"},
    {RIG_HEADER("<i4", "(9223372036854775807, 3)"), VOXEL_INVALID_ARGUMENT,
     "the file has 48"},
    {RIG_HEADER("<i4", "(99999999999999999999, 3)"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {RIG_HEADER("<i4", "(4, -3)"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {RIG_HEADER("<i4", "(4, 3"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4,)}",
     VOXEL_INVALID_ARGUMENT, "structured"},
    {"{'descr': '<i4', 'shape': (4, 3)}", VOXEL_INVALID_ARGUMENT, "damaged"},
    {"{'descr': '<i4', 'fortran_order': Maybe, 'shape': (4, 3)}", VOXEL_INVALID_ARGUMENT,
     "damaged"},
    {"", VOXEL_INVALID_ARGUMENT, "damaged"},
};

START_TEST(npy_damage)
{
    struct rig_file b = {0};
    struct points points;
    struct voxel_error error;
    rig_npy(&b, 1, bad_npy[_i].header);
    rig_put(&b, rig_points, sizeof rig_points);
    enum voxel_code code = rig_read(points_read_npy, b.data, b.size, &points, &error);
    ck_assert_int_eq(code, bad_npy[_i].code);
    ck_assert_msg(strstr(error.text, bad_npy[_i].expected), "%s", error.text);
}
END_TEST

START_TEST(npy_sample_must_be_whole)
{
    struct rig_file b = {0};
    struct points points;
    struct voxel_error error;
    const float row[4] = {0.5f, 1, 2, 3};
    rig_npy(&b, 1, RIG_HEADER("<f4", "(1, 4)"));
    rig_put(&b, row, sizeof row);
    ck_assert_int_eq(rig_read(points_read_npy, b.data, b.size, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "column 0 is the sample"), "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_files");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, npy_versions, 1, 4);
    tcase_add_test(tcase, npy_fortran_with_samples);
    tcase_add_loop_test(tcase, npy_types, 0, sizeof cells / sizeof *cells);
    tcase_add_loop_test(tcase, npy_damage, 0, sizeof bad_npy / sizeof *bad_npy);
    tcase_add_test(tcase, npy_sample_must_be_whole);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
