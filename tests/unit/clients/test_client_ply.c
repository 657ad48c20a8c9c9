/* The reader of .ply: what it must accept, and every kind of damage.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/points.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct feats_asked asked;

/* Memory of the exact size, so that a sanitizer reports a read past its end. */
static enum voxel_code read_exact(const void *data, size_t size, struct points *points,
                                  struct voxel_error *error)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    enum voxel_code code =
        points_read_ply((struct bytes){copy, size}, &asked, points, error);
    free(copy);
    if (code) ck_assert_ptr_null(points->xyz);
    return code;
}

static const char ascii[] = "ply\r\n"
                            "format ascii 1.0\r\n"
                            "comment made by hand\n"
                            "comment voxel_size 0.25\n"
                            "element camera 1\n"
                            "property list uchar float view\n"
                            "element vertex 2\n"
                            "property uchar red\n"
                            "property float x\n"
                            "property double y\n"
                            "property list int uchar tags\n"
                            "property short z\n"
                            "element face 1\n"
                            "property list uchar int vertex_indices\n"
                            "end_header\n"
                            "2 0.5 1e3\n"
                            "255 1.5 -2.25 3 7 8 9 12\n"
                            "0 -1 1e2 0 -7\r\n"
                            "3 0 1 1\n";

START_TEST(ascii_with_lists_around)
{
    struct points points;
    struct voxel_error error;
    enum voxel_code code = read_exact(ascii, sizeof ascii - 1, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(points.count, 2);
    for (int k = 0; k < 3; k++) ck_assert(points.voxel_size[k] == 0.25);
    ck_assert(!points.whole);
    const double expected[6] = {1.5, -2.25, 12, -1, 100, -7};
    for (int i = 0; i < 6; i++) ck_assert(points.xyz[i] == expected[i]);
    points_fini(&points);
}
END_TEST

static size_t build_binary(uint8_t *out)
{
    static const char header[] =
        "ply\nformat binary_little_endian 1.0\n"
        "element edge 1\nproperty list uint16 int8 way\n"
        "element vertex 3\nproperty int32 x\nproperty uint8 y\n"
        "property list uint8 float w\nproperty int z\nend_header\n";
    size_t used = sizeof header - 1;
    memcpy(out, header, used);
    const uint8_t edge[] = {3, 0, 1, 2, 3};
    memcpy(out + used, edge, sizeof edge);
    used += sizeof edge;
    for (int32_t i = 0; i < 3; i++) {
        int32_t x = -i, z = i * 1000;
        memcpy(out + used, &x, 4);
        out[used + 4] = (uint8_t)(250 + i);
        out[used + 5] = (uint8_t)i; /* a list of i floats */
        memset(out + used + 6, 0, (size_t)i * 4);
        used += 6 + (size_t)i * 4;
        memcpy(out + used, &z, 4);
        used += 4;
    }
    return used;
}

START_TEST(binary_with_lists_inside)
{
    uint8_t file[1024];
    size_t size = build_binary(file);
    struct points points;
    struct voxel_error error;
    enum voxel_code code = read_exact(file, size, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(points.count, 3);
    ck_assert(points.whole);
    ck_assert(points.xyz[6] == -2.0);
    ck_assert(points.xyz[7] == 252.0);
    ck_assert(points.xyz[8] == 2000.0);
    points_fini(&points);
    for (size_t cut = 0; cut < size; cut++)
        ck_assert_int_eq(read_exact(file, cut, &points, &error), VOXEL_INVALID_ARGUMENT);
}
END_TEST

START_TEST(changed_bytes_never_read_outside)
{
    uint8_t file[1024], work[1024];
    size_t size = build_binary(file);
    struct points points;
    srandom(11);
    for (int round = 0; round < 20000; round++) {
        memcpy(work, file, size);
        for (int i = 0; i <= round % 3; i++)
            work[(size_t)random() % size] = (uint8_t)random();
        read_exact(work, size, &points, NULL);
        points_fini(&points);
    }
}
END_TEST

#define XYZ "property float x\nproperty float y\nproperty float z\n"
static const struct {
    const char *file;
    const char *expected;
} bad[] = {
    {"", "first line is not 'ply'"},
    {"obj\n", "first line is not 'ply'"},
    {"ply\nformat ascii 1.0\n", "has no end"},
    {"ply\nformat binary 1.0\nend_header\n",
     "expected ascii, binary_little_endian or binary_big_endian"},
    {"ply\nformat ascii 2.0\n",
     "header line 'format ascii 2.0': expected the version 1.0 of the format"},
    {"ply\nformat binary_little_endian 1.1\n", "expected the version 1.0"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty int x\nproperty float y\n"
     "property float z\nend_header\n1.5 2 3\n",
     "a value that does not fit its type"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty uint sample\n" XYZ
     "end_header\n3000000000 1 2 3\n",
     "from 0 to 511, not 3000000000"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty float p\n" XYZ "property int p\n",
     "header line 'property int p': the vertex has a property of that name already"},
    {"ply\nformat ascii 1.0\nelement vertex 1\n" XYZ "property int x\n",
     "has a property of that name already"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 0.1\ncomment voxel_size 0.2\n",
     "header line 'comment voxel_size 0.2': an earlier comment has another voxel_size"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 0.5m\n",
     "header line 'comment voxel_size 0.5m': expected 'comment voxel_size SIZE', one "
     "number above 0, or three for x, y and z"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 5 cm\n",
     "'comment voxel_size 5 cm': exp"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 0,5\n", "'comment voxel_size 0,5': exp"},
    {"ply\nformat ascii 1.0\ncomment voxel_size -0.5\n", "voxel_size -0.5': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 0\n", "voxel_size 0': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size inf\n", "voxel_size inf': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 0x1\n", "voxel_size 0x1': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 1e-320\n", "size 1e-320': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size\n", "voxel_size': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 1 2\n", "voxel_size 1 2': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 1 2 0\n", "voxel_size 1 2 0': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 1 2 3 4\n", "size 1 2 3 4': expected"},
    {"ply\nformat ascii 1.0\ncomment voxel_size 1\ncomment voxel_size 1 2 1\n",
     "header line 'comment voxel_size 1 2 1': an earlier comment has another voxel_size"},
    {"ply\nformat ascii 1.0\ncomment stride 2x1x4\ncomment voxel_size 0.1\nelement "
     "vertex 0\n" XYZ "end_header\n",
     "voxels of 'comment stride 2x1x4' are no cubes, and 'comment voxel_size 0.1' is one "
     "number: expected the three sizes of these voxels, 'comment voxel_size X Y Z'"},
    {"ply\nelement vertex 1\n" XYZ "end_header\n1 2 3\n", "no format line"},
    {"ply\nformat ascii 1.0\nend_header\n", "no element vertex"},
    {"ply\nformat ascii 1.0\nelement vertex\nend_header\n",
     "expected 'element NAME COUNT'"},
    {"ply\nformat ascii 1.0\nelement vertex -1\nend_header\n", "expected 'element"},
    {"ply\nformat ascii 1.0\nelement vertex 1x\nend_header\n", "expected 'element"},
    {"ply\nformat ascii 1.0\nelement vertex 999999999999\nend_header\n", "more than"},
    {"ply\nformat ascii 1.0\nproperty float x\n", "before any element"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty half x\n", "a type of PLY 1.0"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty float\n", "a type of PLY 1.0"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty list float int a\n",
     "integer type"},
    {"ply\nformat ascii 1.0\nsurprise\n", "expected format, comment"},
    {"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
     "end_header\n1 2\n",
     "needs the properties x, y and z"},
    {"ply\nformat ascii 1.0\nelement vertex 2\n" XYZ "end_header\n1 2 3\n4 5\n",
     "vertex 1 of 2"},
    {"ply\nformat ascii 1.0\nelement vertex 1\n" XYZ "end_header\n1 2 three\n",
     "vertex 0 of 1"},
    {"ply\nformat ascii 1.0\nelement vertex 2\n" XYZ "end_header\n1 2 3 4 5 6\n",
     "vertex 0 of 2"},
    {"ply\nformat ascii 1.0\nelement vertex 2\n" XYZ "end_header\n1 2\n3 4\n5 6\n",
     "vertex 0 of 2"},
    {"ply\nformat ascii 1.0\nelement vertex 1\n" XYZ "end_header\n1 2 3\n4 5 6\n",
     "6 bytes follow the last vertex"},
    {"ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty uchar x\n"
     "property uchar y\nproperty uchar z\nend_header\nabcdef",
     "3 bytes follow the last vertex"},
    {"ply\nformat ascii 1.0\nelement vertex 100000000\n" XYZ "end_header\n1 2 3\n",
     "only 6 bytes follow it"},
    {"ply\nformat ascii 1.0\nelement a 1\nproperty list int int b\nelement vertex 1\n" XYZ
     "end_header\n-1\n1 2 3\n",
     "before vertex is incomplete"},
};

START_TEST(damage)
{
    struct points points;
    struct voxel_error error;
    enum voxel_code code =
        read_exact(bad[_i].file, strlen(bad[_i].file), &points, &error);
    ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, bad[_i].expected), "%s", error.text);
}
END_TEST

/* Comments that are of no size, or agree with it. */
static const struct {
    const char *comments;
    double size[3];
} sizes[] = {
    {"comment voxel_size 0.2 0.1 0.4\ncomment stride 2x1x4\n", {0.2, 0.1, 0.4}},
    {"comment stride 2x2x2\ncomment voxel_size 0.2\n", {0.2, 0.2, 0.2}},
    {"comment stride of the sensor\ncomment voxel_size  3e-1 \n", {0.3, 0.3, 0.3}},
    {"comment stride 2x1x4\ncomment voxel_sizes 5\ncomment\n", {0, 0, 0}},
    {"comment voxel_size 2\ncomment voxel_size 2 2 2\n", {2, 2, 2}},
    {"comment voxel_size 2.3e-308\n",
     {2.3e-308, 2.3e-308, 2.3e-308}}, /* a normal number */
};

START_TEST(sizes_of_voxels)
{
    char file[512];
    struct points points;
    struct voxel_error error;
    snprintf(file, sizeof file,
             "ply\nformat ascii 1.0\n%selement vertex 1\n" XYZ "end_header\n1 2 3\n",
             sizes[_i].comments);
    enum voxel_code code = read_exact(file, strlen(file), &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    for (int k = 0; k < 3; k++) ck_assert(points.voxel_size[k] == sizes[_i].size[k]);
    points_fini(&points);
}
END_TEST

/* Colours, an intensity and a sample beside the position. */
#define COLOURED                                                                         \
    "ply\nformat ascii 1.0\nelement vertex 2\nproperty uchar red\nproperty uchar "       \
    "green\n"                                                                            \
    "property float intensity\nproperty list uchar int tags\nproperty ushort time\n"     \
    "property uchar sample\n" XYZ "end_header\n"                                         \
    "255 51 0.5 1 7 65535 0 1 2 3\n0 102 -2 0 3 5 4 5 6\n"
static const struct {
    const char *names;
    bool raw, scaled;
    int channels;
    float expected[2][3];
} colours[] = {
    {NULL, false, false, 0, {{0}}},
    {"red,green", false, true, 2, {{1, 0.2f}, {0, 0.4f}}},
    {"green,intensity,red", false, true, 3, {{0.2f, 0.5f, 1}, {0.4f, -2, 0}}},
    {"red,green", true, false, 2, {{255, 51}, {0, 102}}},
    /* Only 8-bit values are colours. */
    {"time", true, false, 1, {{65535}, {3}}},
    {" red,  intensity ", false, true, 2, {{1, 0.5f}, {0, -2}}},
    {"x,x", false, false, 2, {{1, 1}, {4, 4}}},
};

START_TEST(properties_are_features)
{
    struct points points;
    struct voxel_error error;
    asked = (struct feats_asked){.names = colours[_i].names, .raw = colours[_i].raw};
    enum voxel_code code = read_exact(COLOURED, sizeof COLOURED - 1, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(points.channels, colours[_i].channels);
    ck_assert_int_eq(points.scaled, colours[_i].scaled);
    ck_assert_str_eq(points.offers, "red, green, intensity, time");
    for (int row = 0; row < 2; row++) {
        ck_assert_int_eq(points.sample[row], row * 5);
        for (int c = 0; c < points.channels; c++)
            ck_assert(points.feats[row * points.channels + c] ==
                      colours[_i].expected[row][c]);
    }
    points_fini(&points);
}
END_TEST

/* 16-bit colours and intensities, and the bits of bfloat16, look the same. */
START_TEST(feats_of_16_bits_are_of_no_known_scale)
{
    struct points points;
    struct voxel_error error;
    asked = (struct feats_asked){.names = "red,time"};
    ck_assert_int_eq(read_exact(COLOURED, sizeof COLOURED - 1, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "the property 'time' is ushort, which does not tell whether its "
                     "numbers are 0 to 65535, a share of 65535, or the bits of "
                     "bfloat16: store it as float; for 0 to 65535 use --raw-feats");
}
END_TEST

static const char *const no_properties[] = {"blue", "red,blue", "tags", "", "red,", "re"};

START_TEST(a_property_that_is_not_there_is_named)
{
    struct points points;
    struct voxel_error error;
    asked = (struct feats_asked){.names = no_properties[_i]};
    ck_assert_int_eq(read_exact(COLOURED, sizeof COLOURED - 1, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "it has: red, green, intensity, time"), "%s",
                  error.text);
}
END_TEST

/* A value outside the range of its declared type is an error, e.g. 16-bit colours
 * declared uchar. */
static const struct {
    const char *type;
    const char *value;
    bool taken;
} typed[] = {
    {"uchar", "255", true},
    {"uchar", "256", false},
    {"uchar", "-1", false},
    {"uint8", "300", false},
    {"char", "-128", true},
    {"char", "127", true},
    {"char", "128", false},
    {"char", "-129", false},
    {"short", "32767", true},
    {"short", "40000", false},
    {"ushort", "65535", true},
    {"ushort", "65536", false},
    {"int", "-2147483648", true},
    {"int", "2147483648", false},
    {"int", "inf", false},
    {"uint", "4294967295", true},
    {"uint", "4294967296", false},
    {"uint", "-1", false},
    {"float", "40000.5", true},
    {"list uchar int", "300 1", false},
    {"list uchar char", "1 200", false},
};

START_TEST(a_number_is_one_of_its_type)
{
    char text[512];
    struct points points;
    struct voxel_error error = {0};
    asked = (struct feats_asked){.names = NULL};
    int size = snprintf(text, sizeof text,
                        "ply\nformat ascii 1.0\nelement vertex 1\n" XYZ
                        "property %s p\nend_header\n1 2 3 %s\n",
                        typed[_i].type, typed[_i].value);
    enum voxel_code code = read_exact(text, (size_t)size, &points, &error);
    ck_assert_msg(!code == typed[_i].taken, "%s %s: %s", typed[_i].type, typed[_i].value,
                  error.text);
    if (code)
        ck_assert_msg(strstr(error.text, "a value that does not fit its type"), "%s",
                      error.text);
    points_fini(&points);
}
END_TEST

/* Integers are sent as float, which holds each up to 2^24. */
static const struct {
    const char *type, *value;
    bool taken;
} whole[] = {
    {"int", "16777216", true},     {"int", "-16777216", true},
    {"int", "16777217", false},    {"int", "-16777217", false},
    {"uint", "4294967295", false}, {"double", "16777217", true},
};

START_TEST(integers_of_feats_are_not_rounded)
{
    char text[512];
    struct points points;
    struct voxel_error error = {0};
    asked = (struct feats_asked){.names = "z,time"};
    int size = snprintf(text, sizeof text,
                        "ply\nformat ascii 1.0\nelement vertex 1\n" XYZ
                        "property %s time\nend_header\n1 2 3 %s\n",
                        whole[_i].type, whole[_i].value);
    enum voxel_code code = read_exact(text, (size_t)size, &points, &error);
    ck_assert_msg(!code == whole[_i].taken, "%s", error.text);
    if (code)
        ck_assert_msg(strstr(error.text, "row 0, channel 1 of 'time': expected") &&
                          strstr(error.text, whole[_i].value),
                      "%s", error.text);
    points_fini(&points);
}
END_TEST

START_TEST(big_endian_is_turned)
{
    static const char file[] =
        "ply\nformat binary_big_endian 1.0\nelement vertex 1\nproperty short x\n"
        "property double y\nproperty float z\nend_header\n"
        "\xff\xfe\x3f\xf8\0\0\0\0\0\0\xc1\x20\0\0";
    struct points points;
    struct voxel_error error;
    enum voxel_code code = read_exact(file, sizeof file - 1, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert(points.xyz[0] == -2);
    ck_assert(points.xyz[1] == 1.5);
    ck_assert(points.xyz[2] == -10);
    points_fini(&points);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_ply");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, ascii_with_lists_around);
    tcase_add_test(tcase, binary_with_lists_inside);
    tcase_add_loop_test(tcase, a_number_is_one_of_its_type, 0,
                        sizeof typed / sizeof *typed);
    tcase_add_loop_test(tcase, integers_of_feats_are_not_rounded, 0,
                        sizeof whole / sizeof *whole);
    tcase_add_test(tcase, big_endian_is_turned);
    tcase_add_loop_test(tcase, properties_are_features, 0,
                        sizeof colours / sizeof *colours);
    tcase_add_test(tcase, feats_of_16_bits_are_of_no_known_scale);
    tcase_add_loop_test(tcase, a_property_that_is_not_there_is_named, 0,
                        sizeof no_properties / sizeof *no_properties);
    tcase_add_test(tcase, changed_bytes_never_read_outside);
    tcase_add_loop_test(tcase, damage, 0, sizeof bad / sizeof *bad);
    tcase_add_loop_test(tcase, sizes_of_voxels, 0, sizeof sizes / sizeof *sizes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
