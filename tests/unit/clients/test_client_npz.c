/* The reader of .npz: damage, arrays that may be samples, feats of unknown scale.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/clients/npy_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static void build_npz(struct rig_zip *zip, bool deflated, const char *feats_shape)
{
    struct rig_file coords = {0};
    struct rig_file feats = {0};
    char header[128];
    rig_npy(&coords, 1, RIG_HEADER("<i4", "(4, 3)"));
    rig_put(&coords, rig_points, sizeof rig_points);
    snprintf(header, sizeof header,
             "{'descr': '<f4', 'fortran_order': False, 'shape': %s}", feats_shape);
    rig_npy(&feats, 1, header);
    for (int i = 0; i < 8; i++) {
        float value = (float)i / 4;
        rig_put(&feats, &value, sizeof value);
    }
    rig_zip_add(zip, "feats.npy", &feats, deflated);
    rig_zip_add(zip, "coords.npy", &coords, deflated);
    rig_zip_end(zip);
}

START_TEST(npz_stored_and_deflated)
{
    struct rig_zip zip = {0};
    struct points points;
    struct voxel_error error;
    build_npz(&zip, _i == 1, "(4, 2)");
    enum voxel_code code =
        rig_read(points_read_npz, zip.body.data, zip.body.size, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    rig_check_four(&points);
    ck_assert_int_eq(points.channels, 2);
    ck_assert(points.feats[7] == 1.75f);
    points_fini(&points);
    for (size_t cut = 0; cut < zip.body.size - 3; cut++)
        ck_assert_int_ne(rig_read(points_read_npz, zip.body.data, cut, &points, &error),
                         VOXEL_OK);
    /* Any one byte changed: an error, or the same points (a name or a date changed). */
    for (size_t at = 0; at < zip.body.size; at++) {
        zip.body.data[at] ^= 0x41;
        code = rig_read(points_read_npz, zip.body.data, zip.body.size, &points, &error);
        if (code == VOXEL_OK) rig_check_four(&points);
        points_fini(&points);
        zip.body.data[at] ^= 0x41;
    }
}
END_TEST

START_TEST(npz_damage)
{
    struct rig_zip zip = {0};
    struct points points;
    struct voxel_error error;
    build_npz(&zip, false, "(2, 4)");
    ck_assert_int_eq(
        rig_read(points_read_npz, zip.body.data, zip.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "feats must be [4,C]"), "%s", error.text);
    struct rig_zip empty = {0};
    rig_zip_end(&empty);
    ck_assert_int_eq(
        rig_read(points_read_npz, empty.body.data, empty.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "no array named coords"), "%s", error.text);
    /* Another array by its name, and a name that is not in the file. */
    struct rig_zip named = {0};
    build_npz(&named, false, "(4, 2)");
    rig_asked.names = "colour";
    ck_assert_int_eq(
        rig_read(points_read_npz, named.body.data, named.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "the .npz has no array named colour; besides coords it has: feats");
    rig_asked.names = "feats";
    ck_assert_int_eq(
        rig_read(points_read_npz, named.body.data, named.body.size, &points, &error),
        VOXEL_OK);
    ck_assert_int_eq(points.channels, 2);
    points_fini(&points);
    ck_assert_int_eq(rig_read(points_read_npz, "PK", 2, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "not a .npz"), "%s", error.text);
}
END_TEST

/* coords [4,3] and one more array, of zeros. */
static enum voxel_code read_beside(const char *entry, const char *descr,
                                   const char *shape, struct points *points,
                                   struct voxel_error *error)
{
    static const uint8_t zeros[6000]; /* more than the reader searches for the header */
    struct rig_zip zip = {0};
    struct rig_file coords = {0};
    struct rig_file other = {0};
    char header[128];
    rig_npy(&coords, 1, RIG_HEADER("<i4", "(4, 3)"));
    rig_put(&coords, rig_points, sizeof rig_points);
    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': %s}", descr, shape);
    rig_npy(&other, 1, header);
    rig_put(&other, zeros, sizeof zeros);
    rig_zip_add(&zip, "coords.npy", &coords, false);
    rig_zip_add(&zip, entry, &other, true);
    rig_zip_end(&zip);
    return rig_read(points_read_npz, zip.body.data, zip.body.size, points, error);
}

/* Of several arrays the one is named that cannot be read. */
START_TEST(npz_damage_names_the_array)
{
    struct points points;
    struct voxel_error error;
    const char *expected = "feats.npy: the array's type is '>f4'; expected little-endian";
    enum voxel_code code = read_beside("feats.npy", ">f4", "(4, 2)", &points, &error);
    ck_assert_int_eq(code, VOXEL_UNIMPLEMENTED);
    ck_assert_msg(strstr(error.text, expected) == error.text, "%s", error.text);
    code = read_beside("feats.npy", "<f4", "(4, 2000)", &points, &error);
    ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "feats.npy: the array's shape needs 32000 bytes, but the "
                     "file has 6000");
}
END_TEST

/* The array beside coords [4,3], and whether it may be the samples of the rows. */
static const struct {
    const char *entry, *descr, *shape;
    bool refused;
} beside[] = {
    {"batch_indices.npy", "<i8", "(4,)", true},
    {"anything.npy", "|u1", "(4,)", true},
    {"anything.npy", "|i1", "(4,)", true},
    {"anything.npy", "<u2", "(4,)", true},
    {"anything.npy", ">i8", "(4,)", true}, /* a type that the reader does not know */
    {"anything.npy", "<i4", "(4, 1)", true},
    {"bidx.npy", "<f4", "(4,)", true},
    {"scene.npy", "<f8", "(4,)", true},
    {"offset.npy", "<i8", "(2,)", true},
    {"frame.npy", "<i4", "(3,)", true},
    {"batch_sizes.npy", "<i4", "(2, 1)", true},
    /* One number, numbers that cannot be samples, text, other shapes. */
    {"offset.npy", "<i8", "(1,)", false},
    {"offset.npy", "<f8", "(3,)", false},
    {"batch.npy", "<i8", "()", false},
    {"anything.npy", "<f4", "(4,)", false},
    {"mask.npy", "|b1", "(4,)", false},
    {"anything.npy", "<i8", "(3,)", false},
    {"normals.npy", "<i4", "(4, 3)", false},
    {"batch.npy", "<U7", "(4,)", false},
    {"batch.npy", "<i4", "(4, 3)", false},
};

START_TEST(npz_samples_elsewhere)
{
    struct points points;
    struct voxel_error error = {0};
    rig_asked = (struct feats_asked){.names = NULL};
    enum voxel_code code = read_beside(beside[_i].entry, beside[_i].descr,
                                       beside[_i].shape, &points, &error);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(beside[_i].entry, "."),
             beside[_i].entry);
    if (!code) ck_assert_str_eq(points.unused, name);
    ck_assert_msg(code == (beside[_i].refused ? VOXEL_INVALID_ARGUMENT : VOXEL_OK),
                  "%s: %s", name, error.text);
    points_fini(&points);
    if (!code) return;
    ck_assert_msg(strstr(error.text, name) && strstr(error.text, "or use --one-sample"),
                  "%s", error.text);
    rig_asked.one_sample = true;
    ck_assert(!read_beside(beside[_i].entry, beside[_i].descr, beside[_i].shape, &points,
                           &error));
    ck_assert_ptr_null(points.sample);
    ck_assert_str_eq(points.unused, name);
    points_fini(&points);
}
END_TEST

/* Unsigned features of 8 and 16 bits: those of 8 of a .ply are divided by 255. */
static const struct {
    const char *descr;
    const char *said; /* NULL = accepted as it is */
} feats_types[] = {
    {"|u1",
     "is uint8, which does not tell whether the network expects 0 to 1 or 0 to 255"},
    {"|b1", "is bool: expected numbers"},
    {"<u2",
     "the array 'feats' is uint16, which does not tell whether its numbers are 0 to "
     "65535, a share of 65535, or the bits of bfloat16: store it as float"},
    {"|i1", NULL},
    {"<i2", NULL},
    {"<u4", NULL},
    {"<f2", NULL},
};

START_TEST(npz_feats_of_no_known_scale)
{
    struct points points;
    struct voxel_error error = {0};
    const char *said = feats_types[_i].said;
    rig_asked = (struct feats_asked){.names = NULL};
    for (int raw = 0; raw < 2; raw++) {
        rig_asked.raw = raw == 1;
        enum voxel_code code =
            read_beside("feats.npy", feats_types[_i].descr, "(4, 1)", &points, &error);
        ck_assert_msg(!code == (raw || !said), "%s", error.text);
        if (code)
            ck_assert_msg(strstr(error.text, said) && strstr(error.text, "--raw-feats"),
                          "%s", error.text);
        ck_assert_str_eq(points.unused, "");
        points_fini(&points);
    }
}
END_TEST

/* Integers of feats, which are sent as float: it holds each up to 2^24. */
static const struct {
    const char *descr;
    uint64_t bits;
    size_t size;
    const char *said; /* NULL = accepted as it is */
} integers[] = {
    {"<i8", 1 << 24, 8, NULL},
    {"<i8", (uint64_t) - (1 << 24), 8, NULL},
    {"<i8", (1 << 24) + 1, 8, "got 16777217; "},
    {"<i8", (uint64_t) - (1 << 24) - 1, 8, "got -16777217; "},
    {"<u8", (UINT64_C(1) << 40) + 1, 8, "got 1099511627777; "},
    {"<u8", (UINT64_C(1) << 53) + 1, 8, "from -16777216 to 16777216"},
    {"<i4", (1 << 24) + 1, 4, "got 16777217; "},
    {"<u4", 0xfffffffe, 4, "got 4294967294; "},
    {"<u2", 0xffff, 2, NULL},
    {"<f8", 0x4170000010000000, 8, NULL}, /* 2^24 + 1: floats may be rounded */
};

START_TEST(npz_integers_of_feats_are_not_rounded)
{
    static struct rig_zip zip;
    struct rig_file coords = {0}, feats = {0};
    struct points points;
    struct voxel_error error = {0};
    char header[128];
    const char *said = integers[_i].said;
    rig_asked = (struct feats_asked){.names = "rgb", .raw = true};
    memset(&zip, 0, sizeof zip);
    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': (4, 2)}",
             integers[_i].descr);
    rig_npy(&coords, 1, RIG_HEADER("<i4", "(4, 3)"));
    rig_put(&coords, rig_points, sizeof rig_points);
    rig_npy(&feats, 1, header);
    for (int i = 0; i < 8; i++)
        rig_put_number(&feats, i == 5 ? integers[_i].bits : 0, integers[_i].size);
    rig_zip_add(&zip, "coords.npy", &coords, false);
    rig_zip_add(&zip, "rgb.npy", &feats, false);
    rig_zip_end(&zip);
    enum voxel_code code =
        rig_read(points_read_npz, zip.body.data, zip.body.size, &points, &error);
    ck_assert_int_eq(code, said ? VOXEL_INVALID_ARGUMENT : VOXEL_OK);
    if (said)
        ck_assert_msg(strstr(error.text, "row 2, channel 1 of 'rgb': expected") &&
                          strstr(error.text, said) &&
                          strstr(error.text, "store them as float"),
                      "%s", error.text);
    points_fini(&points);
}
END_TEST

START_TEST(npz_names)
{
    struct points points;
    struct voxel_error error = {0};
    /* Readers differ in which of two entries with one name they use. */
    rig_asked = (struct feats_asked){.one_sample = true};
    ck_assert_int_eq(read_beside("coords.npy", "<i4", "(4, 3)", &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "the .npz has the array coords twice: expected it once");
    /* The error lists an entry that is not an array by its full name. */
    rig_asked = (struct feats_asked){.names = "rgb"};
    ck_assert(read_beside("readme", "<i4", "(4, 3)", &points, &error));
    ck_assert_str_eq(error.text,
                     "the .npz has no array named rgb; besides coords it has: readme");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_npz");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, npz_stored_and_deflated, 0, 2);
    tcase_add_test(tcase, npz_damage);
    tcase_add_test(tcase, npz_damage_names_the_array);
    tcase_add_loop_test(tcase, npz_samples_elsewhere, 0, sizeof beside / sizeof *beside);
    tcase_add_loop_test(tcase, npz_feats_of_no_known_scale, 0,
                        sizeof feats_types / sizeof *feats_types);
    tcase_add_loop_test(tcase, npz_integers_of_feats_are_not_rounded, 0,
                        sizeof integers / sizeof *integers);
    tcase_add_test(tcase, npz_names);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
