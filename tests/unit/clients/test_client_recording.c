/* Recordings: which arrays belong together, what is refused, and damaged files.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"
#include "clients/cli/recording.h"
#include "tests/unit/clients/npy_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const int32_t coords[3][4] = {{0, 1, 2, 3}, {0, 4, 5, 6}, {1, 7, 8, 9}};
static const int32_t coarse[2][4] = {{0, 0, 1, 1}, {1, 3, 4, 4}};
static const float feats[3][2] = {{1, 2}, {3, 4}, {5, 6}};

/* Adds an array to the zip. */
#define ADD(zip_, name_, header_, data_)                                                 \
    do {                                                                                 \
        static struct rig_file made_;                                                    \
        made_.size = 0;                                                                  \
        rig_npy(&made_, 1, header_);                                                     \
        rig_put(&made_, data_, sizeof(data_));                                           \
        rig_zip_add(zip_, name_, &made_, false);                                         \
    } while (0)

static void add_request(struct rig_zip *zip)
{
    ADD(zip, "coords.npy", RIG_HEADER("<i4", "(3, 4)"), coords);
    ADD(zip, "feats.npy", RIG_HEADER("<f4", "(3, 2)"), feats);
}

/* The recording gets memory of the exact size, which becomes its own. */
static enum voxel_code parse(const uint8_t *data, size_t size,
                             struct recording *recording, struct voxel_error *error)
{
    uint8_t *copy = voxel_memory_take_bytes(size);
    memcpy(copy, data, size);
    return recording_parse("r.npz", (struct bytes){copy, size}, recording, error);
}

static void open_good(struct rig_zip *zip, struct recording *recording)
{
    struct voxel_error error = {0};
    rig_zip_end(zip);
    enum voxel_code code = parse(zip->body.data, zip->body.size, recording, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
}

static void read_good(const struct recording *recording, enum recorded_kind kind,
                      const char *name, struct recorded_tensor *tensor)
{
    struct voxel_error error = {0};
    const struct recorded *found = recording_find(recording, kind, name);
    ck_assert_ptr_nonnull(found);
    enum voxel_code code = recording_read(recording, found, tensor, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
}

START_TEST(layers_and_outputs_have_their_own_voxels)
{
    static struct rig_zip zip;
    const float two[2] = {5, -6};
    const float three[3] = {1, 2, 3};
    struct recording recording;
    struct recorded_tensor tensor;
    add_request(&zip);
    ADD(&zip, "layer.down.npy", RIG_HEADER("<f4", "(2, 1)"), two);
    ADD(&zip, "at.down.npy", RIG_HEADER("<i4", "(2, 4)"), coarse);
    ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(3, 1)"), three);
    ADD(&zip, "out.down.npy", RIG_HEADER("<f4", "(3, 1)"), three);
    ADD(&zip, "at.out.down.npy", RIG_HEADER("<i4", "(3, 4)"), coords);
    open_good(&zip, &recording);
    ck_assert_int_eq(recording.count, 3);
    ck_assert_int_eq(recording.layers_count, 2);
    ck_assert_str_eq(recording.list[0].name, "down");
    ck_assert_str_eq(recording.list[1].name, "a");
    read_good(&recording, RECORDED_LAYER, "down", &tensor);
    ck_assert_mem_eq(tensor.tensor.coords, coarse, sizeof coarse);
    ck_assert(tensor.tensor.numbers[1] == -6);
    recording_give(&tensor);
    read_good(&recording, RECORDED_LAYER, "a", &tensor);
    ck_assert_ptr_eq(tensor.tensor.coords, recording.coords);
    recording_give(&tensor);
    read_good(&recording, RECORDED_OUTPUT, "down", &tensor);
    ck_assert_int_eq(tensor.tensor.rows, 3);
    ck_assert_mem_eq(tensor.tensor.coords, coords, sizeof coords);
    recording_give(&tensor);
    recording_close(&recording);
}
END_TEST

START_TEST(labels_dense_tensors_and_columns_first)
{
    static struct rig_zip zip;
    const int64_t labels[3] = {4, -1, 1 << 20};
    const float dense[12] = {[7] = 9};
    const float columns[6] = {1, 3, 5, 2, 4, 6}; /* the feats, column-major */
    struct recording recording;
    struct recorded_tensor tensor;
    add_request(&zip);
    ADD(&zip, "layer.label.npy", RIG_HEADER("<i8", "(3,)"), labels);
    ADD(&zip, "layer.bev.npy", RIG_HEADER("<f4", "(1, 2, 2, 3)"), dense);
    ADD(&zip, "layer.turned.npy",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}", columns);
    open_good(&zip, &recording);
    read_good(&recording, RECORDED_LAYER, "label", &tensor);
    ck_assert_ptr_null(tensor.tensor.numbers);
    ck_assert_int_eq(tensor.tensor.columns, 1);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(tensor.tensor.labels[i], labels[i]);
    recording_give(&tensor);
    read_good(&recording, RECORDED_LAYER, "bev", &tensor);
    ck_assert_ptr_null(tensor.tensor.coords);
    ck_assert_int_eq(tensor.tensor.rows, 12);
    ck_assert(tensor.tensor.numbers[7] == 9);
    recording_give(&tensor);
    read_good(&recording, RECORDED_LAYER, "turned", &tensor);
    ck_assert_mem_eq(tensor.tensor.numbers, feats, sizeof feats);
    recording_give(&tensor);
    recording_close(&recording);
}
END_TEST

/* Reads the layer "a", which is refused with a sentence that has `expected`. */
static void expect_refused(struct rig_zip *zip, const char *expected)
{
    struct recording recording;
    struct recorded_tensor tensor;
    struct voxel_error error = {0};
    rig_zip_end(zip);
    enum voxel_code code = parse(zip->body.data, zip->body.size, &recording, &error);
    if (!code) {
        const struct recorded *found = recording_find(&recording, RECORDED_LAYER, "a");
        ck_assert_ptr_nonnull(found);
        code = recording_read(&recording, found, &tensor, &error);
        recording_close(&recording);
    }
    ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, expected) != NULL, "%s", error.text);
}

START_TEST(what_does_not_fit_is_refused)
{
    static struct rig_zip zip;
    const float two[2] = {1, 2};
    const float three[3] = {1, 2, 3};
    const int64_t beyond[4] = {0, 0, INT64_C(1) << 40, 0};
    memset(&zip, 0, sizeof zip);
    if (_i != 0) add_request(&zip);
    switch (_i) {
    case 0:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(2, 1)"), two);
        expect_refused(&zip, "expected a recording, with the arrays coords and feats");
        break;
    case 1:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(2, 1)"), two);
        expect_refused(&zip, "a has 2 rows: expected 3, as the request");
        break;
    case 2:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(3, 1)"), three);
        ADD(&zip, "at.a.npy", RIG_HEADER("<i4", "(2, 4)"), coarse);
        expect_refused(&zip, "a has 3 rows, but 2 voxels");
        break;
    case 3:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(2, 1)"), two);
        ADD(&zip, "at.a.npy", RIG_HEADER("<f4", "(2, 1)"), two);
        expect_refused(&zip, "expected integers [rows, 4]");
        break;
    case 4:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(3, 1)"), three);
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(3, 1)"), three);
        expect_refused(&zip, "layer.a comes twice");
        break;
    case 5:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(2, 1)"), two);
        ADD(&zip, "at.a.npy", RIG_HEADER("|b1", "(2, 4)"), two);
        expect_refused(&zip, "expected integers [rows, 4]");
        break;
    default:
        ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(1, 1)"), two);
        ADD(&zip, "at.a.npy", RIG_HEADER("<i8", "(1, 4)"), beyond);
        expect_refused(&zip, "a coordinate is beyond 32 bits");
    }
}
END_TEST

/* A file that was cut off ends without its directory; bytes that are not those written
 * fail their checksum, or are a sentence.  Nothing is read outside of the file. */
START_TEST(damaged_files)
{
    static struct rig_zip zip;
    const float three[3] = {1, 2, 3};
    struct recording recording;
    struct recorded_tensor tensor;
    struct voxel_error error;
    add_request(&zip);
    ADD(&zip, "layer.a.npy", RIG_HEADER("<f4", "(3, 1)"), three);
    rig_zip_end(&zip);
    const size_t comment = 3; /* behind the directory, by rig_zip_end */
    for (size_t size = 0; size < zip.body.size - comment; size++)
        ck_assert_int_ne(parse(zip.body.data, size, &recording, &error), VOXEL_OK);
    for (size_t at = 0; at < zip.body.size; at++) {
        zip.body.data[at] ^= 0x81;
        if (parse(zip.body.data, zip.body.size, &recording, &error) == VOXEL_OK) {
            const struct recorded *found =
                recording_find(&recording, RECORDED_LAYER, "a");
            if (found && !recording_read(&recording, found, &tensor, &error))
                recording_give(&tensor);
            recording_close(&recording);
        }
        zip.body.data[at] ^= 0x81;
    }
}
END_TEST

/* Feats of another model: 3 voxels of 1 channel. */
START_TEST(a_request_of_other_channels_is_said_with_both)
{
    static struct rig_zip zips[2];
    struct recording runs[2];
    struct voxel_error error;
    for (int i = 0; i < 2; i++) {
        struct rig_file one = {.size = 0};
        struct rig_file two = {.size = 0};
        rig_npy(&one, 1, RIG_HEADER("<i4", "(3, 4)"));
        rig_put(&one, coords, sizeof coords);
        rig_zip_add(&zips[i], "coords.npy", &one, false);
        rig_npy(&two, 1, i ? RIG_HEADER("<f4", "(3, 1)") : RIG_HEADER("<f4", "(3, 2)"));
        rig_put(&two, feats, sizeof feats / (i ? 2 : 1));
        rig_zip_add(&zips[i], "feats.npy", &two, true);
        open_good(&zips[i], &runs[i]);
    }
    ck_assert_int_eq(recording_same_request(&runs[0], &runs[1], &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text,
                                 "are of other requests: feats have 2 channels "
                                 "in the first, 1 in the second; record"));
    for (int i = 0; i < 2; i++) recording_close(&runs[i]);
}
END_TEST

START_TEST(a_request_of_other_numbers_is_said_so)
{
    static struct rig_zip zips[2];
    struct recording runs[2];
    struct voxel_error error;
    for (int i = 0; i < 2; i++) {
        ADD(&zips[i], "coords.npy", RIG_HEADER("<i4", "(3, 4)"), coords);
        if (i)
            ADD(&zips[i], "feats.npy", RIG_HEADER("<i4", "(3, 2)"), feats);
        else
            ADD(&zips[i], "feats.npy", RIG_HEADER("<f4", "(3, 2)"), feats);
        open_good(&zips[i], &runs[i]);
    }
    ck_assert_int_eq(recording_same_request(&runs[0], &runs[1], &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "are of other requests: feats are floats in the "
                                     "first, integers in the second; record") != NULL,
                  "%s", error.text);
    for (int i = 0; i < 2; i++) recording_close(&runs[i]);
}
END_TEST

static void open_request(struct rig_zip *zip, const int32_t (*at)[4],
                         const float (*cells)[2], struct recording *recording)
{
    struct rig_file one = {.size = 0};
    struct rig_file two = {.size = 0};
    memset(zip, 0, sizeof *zip);
    rig_npy(&one, 1, RIG_HEADER("<i4", "(3, 4)"));
    rig_put(&one, at, sizeof coords);
    rig_zip_add(zip, "coords.npy", &one, false);
    rig_npy(&two, 1, RIG_HEADER("<f4", "(3, 2)"));
    rig_put(&two, cells, sizeof feats);
    rig_zip_add(zip, "feats.npy", &two, true);
    open_good(zip, recording);
}

START_TEST(two_runs_have_one_request_in_any_order)
{
    static struct rig_zip zips[4];
    int32_t turned[3][4];
    int32_t moved[3][4];
    float mixed[3][2];
    float other[3][2];
    struct recording runs[4];
    struct voxel_error error;
    for (int i = 0; i < 3; i++) {
        memcpy(turned[i], coords[(i + 1) % 3], sizeof turned[i]);
        memcpy(mixed[i], feats[(i + 1) % 3], sizeof mixed[i]);
    }
    memcpy(moved, coords, sizeof moved);
    memcpy(other, feats, sizeof other);
    moved[1][2]++;
    other[2][0] += 1;
    open_request(&zips[0], coords, feats, &runs[0]);
    open_request(&zips[1], (const int32_t(*)[4])turned, (const float(*)[2])mixed,
                 &runs[1]);
    open_request(&zips[2], (const int32_t(*)[4])moved, feats, &runs[2]);
    open_request(&zips[3], coords, (const float(*)[2])other, &runs[3]);
    ck_assert_int_eq(recording_same_request(&runs[0], &runs[1], &error), VOXEL_OK);
    ck_assert_int_eq(recording_same_request(&runs[0], &runs[2], &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "1 voxels are only in the first"));
    ck_assert_int_eq(recording_same_request(&runs[0], &runs[3], &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "have other feats"));
    for (int i = 0; i < 4; i++) recording_close(&runs[i]);
}
END_TEST

static Suite *recording_suite(void)
{
    Suite *suite = suite_create("client_recording");
    TCase *tcase = tcase_create("recording");
    tcase_add_test(tcase, layers_and_outputs_have_their_own_voxels);
    tcase_add_test(tcase, labels_dense_tensors_and_columns_first);
    tcase_add_loop_test(tcase, what_does_not_fit_is_refused, 0, 7);
    tcase_add_test(tcase, damaged_files);
    tcase_add_test(tcase, two_runs_have_one_request_in_any_order);
    tcase_add_test(tcase, a_request_of_other_channels_is_said_with_both);
    tcase_add_test(tcase, a_request_of_other_numbers_is_said_so);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(recording_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
