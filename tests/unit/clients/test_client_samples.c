/* Samples in a file: read where they are declared, refused under another name, never
 * dropped.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/samples.h"

#include "clients/cli/points.h"
#include "engine/base/limits.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SAMPLE_MAX == VX_SAMPLE_MAX,
               "a file may have as many samples as a request");

static const struct {
    double value;
    bool taken;
} numbers[] = {
    {0, true},      {511, true},          {-0.0, true},        {1, true},
    {-1, false},    {512, false},         {0.5, false},        {NAN, false},
    {1e300, false}, {1.000000001, false}, {4294967296, false}, {-INFINITY, false},
};

START_TEST(a_sample_is_a_whole_number_of_the_range)
{
    int32_t sample = -7;
    ck_assert_int_eq(samples_take(numbers[_i].value, &sample), numbers[_i].taken);
    ck_assert_int_eq(sample, numbers[_i].taken ? (int32_t)numbers[_i].value : -7);
}
END_TEST

/* The columns in their order, and which of them holds the samples. */
static const struct {
    const char *columns;
    const char *misnamed;
} columns[] = {
    {"batch", "batch"},
    {"p,Batch_Idx,batch", "Batch_Idx"},
    {"batch_index", "batch_index"},
    {"sample_id", "sample_id"},
    {"Sample", "Sample"},
    {"SAMPLES", "SAMPLES"},
    {"scalar_Sample", "scalar_Sample"},
    {"b", "b"},
    {"B,intensity", "B"},
    /* The b of blue, and the b of Lab. */
    {"r,g,b", NULL},
    {"b,g,r", NULL},
    {"L,a,b", NULL},
    {"r,g,b,batch_id", "batch_id"},
    {"batch_indices", "batch_indices"},
    {"batch_inds", "batch_inds"},
    {"nx,bidx", "bidx"},
    {"sample_idxs", "sample_idxs"},
    {"frame,scene,offset", NULL}, /* samples_split knows them */
    {"red,green,blue,nx,b1,sampled,sample_weight,scalar_", NULL},
    {"", NULL},
};

START_TEST(a_column_that_has_samples_is_known_by_its_name)
{
    struct samples_names names = {0};
    const char *name = columns[_i].columns;
    for (;;) {
        size_t bytes = strcspn(name, ",");
        samples_see(&names, name, bytes);
        if (!name[bytes]) break;
        name += bytes + 1;
    }
    const char *misnamed = samples_misnamed(&names);
    ck_assert_msg(!misnamed == !columns[_i].misnamed, "%s: %s", columns[_i].columns,
                  misnamed);
    if (misnamed) ck_assert_str_eq(misnamed, columns[_i].misnamed);
}
END_TEST

/* Two vertices, of sample 0 and of the given sample, with one more property. */
static const struct {
    const char *property;
    const char *value;
    const char *feats;
    const char *refused; /* NULL = the second is of sample 1 */
} plys[] = {
    {"float sample", "1", NULL, NULL},
    {"double sample", "1.0", NULL, NULL},
    {"uchar sample", "1", NULL, NULL},
    {"float sample", "0.5", NULL,
     "vertex 1: the property sample must be a whole number from 0 to 511, not 0.5"},
    {"float sample", "nan", NULL, "from 0 to 511, not nan"},
    {"float sample", "512", NULL, "from 0 to 511, not 512"},
    {"int sample", "-1", NULL, "from 0 to 511, not -1"},
    {"double sample", "1.000000001", NULL, "from 0 to 511, not 1.000000001"},
    {"float batch", "1", NULL,
     "the property 'batch' would be ignored, but may hold samples: name it 'sample'"},
    {"int b", "1", NULL, "the property 'b' would be ignored"},
    {"int Sample", "1", "p", "the property 'Sample' would be ignored"},
    {"list uchar int sample", "1 1", NULL, "the property 'sample' would be ignored"},
    /* As in a .npz. */
    {"int frame", "1", NULL,
     "the property 'frame' would be ignored, but may hold samples: name it 'sample'"},
    {"uchar scene", "1", "p", "the property 'scene' would be ignored"},
    {"int scan_id", "1", NULL, "the property 'scan_id' would be ignored"},
    {"float scalar_Scan", "1", NULL, "the property 'scalar_Scan' would be ignored"},
};

static enum voxel_code read_ply(const char *property, const char *value,
                                const char *feats, struct points *points,
                                struct voxel_error *error)
{
    char text[512];
    const struct feats_asked asked = {.names = feats};
    int size = snprintf(text, sizeof text,
                        "ply\nformat ascii 1.0\nelement vertex 2\nproperty int x\n"
                        "property int y\nproperty int z\nproperty %s\nproperty float p\n"
                        "end_header\n0 0 0 0 5\n1 0 0 %s 6\n",
                        property, value);
    return points_read_ply((struct bytes){(const uint8_t *)text, (size_t)size}, &asked,
                           points, error);
}

START_TEST(a_sample_of_a_ply_is_of_any_type)
{
    struct points points;
    struct voxel_error error = {0};
    enum voxel_code code =
        read_ply(plys[_i].property, plys[_i].value, plys[_i].feats, &points, &error);
    ck_assert_msg(!code == !plys[_i].refused, "%s", error.text);
    if (plys[_i].refused) {
        ck_assert_msg(strstr(error.text, plys[_i].refused), "%s", error.text);
        return;
    }
    ck_assert_int_eq(points.sample[0], 0);
    ck_assert_int_eq(points.sample[1], 1);
    ck_assert_str_eq(points.unused, "p");
    points_fini(&points);
}
END_TEST

static const struct {
    const char *name;
    bool split;
} splits[] = {
    {"scan_id", true},
    {"Scan", true},
    {"frame_idx", true},
    {"scanner", false},
    {"scan_angle_rank", false},
    {"frame_time", false},
    {"offset", true},
    {"offsets", true},
    {"ptr", true},
    {"scene_id", true},
    {"frame", true},
    {"batch", true},
    {"batch_sizes", true},
    {"bidx", true},
    {"offset_xyz", false},
    {"origin", false},
    {"labels", false},
    {"framerate", false},
    {"sample_rate", false},
    {"", false},
};

START_TEST(an_array_that_splits_is_known_by_its_name)
{
    const char *name = splits[_i].name;
    ck_assert_msg(samples_split(name, strlen(name)) == splits[_i].split, "%s", name);
}
END_TEST

START_TEST(one_sample_is_what_the_user_says)
{
    static const char batch[] =
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty int x\nproperty int y\n"
        "property int z\nproperty int batch\nend_header\n0 0 0 3\n";
    static const char sample[] =
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty int x\nproperty int y\n"
        "property int z\nproperty int sample\nend_header\n0 0 0 3\n";
    const struct feats_asked one = {.one_sample = true};
    struct points points;
    struct voxel_error error = {0};
    ck_assert_msg(
        !points_read_ply((struct bytes){(const uint8_t *)batch, sizeof batch - 1}, &one,
                         &points, &error),
        "%s", error.text);
    ck_assert_ptr_null(points.sample);
    points_fini(&points);
    ck_assert(points_read_ply((struct bytes){(const uint8_t *)sample, sizeof sample - 1},
                              &one, &points, &error));
    ck_assert_msg(strstr(error.text, "--one-sample: the vertex has a property sample"),
                  "%s", error.text);
}
END_TEST

/* The points of one map can each have a frame. */
START_TEST(a_frame_is_no_sample_if_the_user_says_so)
{
    static const char file[] =
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty int x\nproperty int y\n"
        "property int z\nproperty int frame\nend_header\n0 0 0 3\n";
    const struct feats_asked asked[] = {{.one_sample = true}, {.names = "frame"}};
    struct points points;
    struct voxel_error error = {0};
    for (int i = 0; i < 2; i++) {
        enum voxel_code code =
            points_read_ply((struct bytes){(const uint8_t *)file, sizeof file - 1},
                            &asked[i], &points, &error);
        ck_assert_msg(!code, "%s", error.text);
        ck_assert_ptr_null(points.sample);
        points_fini(&points);
    }
}
END_TEST

START_TEST(a_batch_that_is_a_feature_is_one)
{
    struct points points;
    struct voxel_error error = {0};
    ck_assert_msg(!read_ply("float batch", "1", "p,batch", &points, &error), "%s",
                  error.text);
    ck_assert_int_eq(points.channels, 2);
    ck_assert_ptr_null(points.sample);
    ck_assert_str_eq(points.unused, "");
    points_fini(&points);
    ck_assert(!read_ply("float weight", "1", "p", &points, &error));
    ck_assert_str_eq(points.unused, "weight");
    points_fini(&points);
}
END_TEST

/* Clouds of `batch` samples, each a surface over x and y with `heights` of z, 0 = all 0.
 * `last`: the sample is the last column.  `order` of the rows: of the samples one after
 * the other as "xy" or "yx", or all rows by their "z", or "mixed". */
static const struct {
    int32_t batch, size, heights;
    const char *order;
    bool last, warned;
} clouds[] = {
    /* x, y, z, sample */
    {1, 40, 9, "xy", true, true},
    {1, 40, 9, "yx", true, true},
    {1, 40, 9, "mixed", true, true},
    {2, 12, 9, "xy", true, true},
    {4, 12, 9, "yx", true, true},
    {4, 40, 9, "mixed", true, true},
    {16, 40, 9, "xy", true, true},
    /* sample, x, y, z: what is ordinary is not warned of, flat or thin or of many samples */
    {1, 40, 9, "xy", false, false},
    {1, 40, 0, "yx", false, false},
    {2, 40, 0, "xy", false, false},
    {8, 40, 0, "xy", false, false},
    {32, 12, 0, "mixed", false, false},
    {2, 40, 2, "z", false, false},
    {8, 40, 4, "z", false, false},
    {16, 12, 8, "z", false, false},
    {16, 12, 1, "xy", false, false},
    {40, 12, 4, "xy", false, false},
    {400, 3, 3, "yx", false, false},
    {32, 12, 3, "mixed", false, false},
    /* too small to tell */
    {1, 5, 0, "xy", true, false},
};

static int64_t cloud_rows(int64_t c, int32_t *rows)
{
    const int32_t size = clouds[c].size, plane = size * size;
    const char *order = clouds[c].order;
    int64_t count = (int64_t)clouds[c].batch * plane;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = *order == 'm' ? (i * 7919 + 13) % count : i;
        const int32_t b = (int32_t)(at / plane), p = (int32_t)(at % plane);
        const int32_t x = *order == 'y' ? p % size : p / size;
        const int32_t y = *order == 'y' ? p / size : p % size;
        const int32_t z = clouds[c].heights ? (x + 2 * y) % clouds[c].heights : 0;
        const int32_t first[4] = {b, x, y, z}, last[4] = {x, y, z, b};
        memcpy(&rows[4 * i], clouds[c].last ? last : first, sizeof first);
    }
    return count;
}

static int by_last(const void *a, const void *b)
{
    return ((const int32_t *)a)[3] - ((const int32_t *)b)[3];
}

START_TEST(columns_of_which_the_last_is_the_sample_are_seen)
{
    static int32_t rows[4 * 400 * 1600];
    int64_t count = cloud_rows(_i, rows);
    if (*clouds[_i].order == 'z') qsort(rows, (size_t)count, 4 * sizeof *rows, by_last);
    struct samples_columns found = {0};
    ck_assert_int_eq(samples_are_last(rows, count, &found), clouds[_i].warned);
    if (!clouds[_i].warned) return;
    ck_assert_int_eq(found.first, clouds[_i].size);
    ck_assert_int_eq(found.last, clouds[_i].batch);
}
END_TEST

START_TEST(columns_that_cannot_be_so_are_not_seen)
{
    struct samples_columns found;
    int32_t rows[4 * 40] = {0};
    ck_assert(!samples_are_last(rows, 0, &found));
    for (int32_t i = 0; i < 40; i++) rows[4 * i] = i;
    ck_assert(samples_are_last(rows, 40, &found));
    for (int32_t wrong = -1; wrong <= 32; wrong += 11) { /* 10 and 21 leave a gap */
        rows[4 * 39 + 3] = wrong;
        ck_assert(!samples_are_last(rows, 40, &found));
    }
    rows[4 * 39 + 3] = 0;
    rows[4 * 39] = SAMPLE_MAX + 1;
    ck_assert(!samples_are_last(rows, 40, &found));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_samples");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, a_sample_is_a_whole_number_of_the_range, 0,
                        sizeof numbers / sizeof *numbers);
    tcase_add_loop_test(tcase, a_column_that_has_samples_is_known_by_its_name, 0,
                        sizeof columns / sizeof *columns);
    tcase_add_loop_test(tcase, a_sample_of_a_ply_is_of_any_type, 0,
                        sizeof plys / sizeof *plys);
    tcase_add_test(tcase, a_frame_is_no_sample_if_the_user_says_so);
    tcase_add_test(tcase, a_batch_that_is_a_feature_is_one);
    tcase_add_loop_test(tcase, an_array_that_splits_is_known_by_its_name, 0,
                        sizeof splits / sizeof *splits);
    tcase_add_test(tcase, one_sample_is_what_the_user_says);
    tcase_add_loop_test(tcase, columns_of_which_the_last_is_the_sample_are_seen, 0,
                        sizeof clouds / sizeof *clouds);
    tcase_add_test(tcase, columns_that_cannot_be_so_are_not_seen);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
