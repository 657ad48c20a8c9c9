/* Answers as files: what is written can be read back, is whole or absent, and never
 * replaces its input.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clients/cli/save.h"
#include "clients/cli/sparse.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct feats_asked none;

static const int32_t four_points[4][3] = {
    {1, 2, 3}, {-4, 5, 6}, {7, -8, 9}, {0, 0, 100000}};

START_TEST(saved_files_read_back)
{
    int32_t coords[4][4];
    float cell[4][3];
    for (int i = 0; i < 4; i++) {
        coords[i][0] = 0;
        for (int k = 0; k < 3; k++) coords[i][k + 1] = four_points[i][k];
        for (int k = 0; k < 3; k++) cell[i][k] = (float)(i * 3 + k);
    }
    struct cloud cloud = {.count = 4, .coords = &coords[0][0], .size = {0.1, 0.1, 0.1}};
    struct voxel_tensor output = voxel_tensor_make("normals", VOXEL_FP32, 4, 3, cell);
    struct points points;
    struct cloud again;
    struct voxel_error error;
    struct save_beside beside;
    char ply[] = "/tmp/test_client_XXXXXX.ply";
    char npy[] = "/tmp/test_client_XXXXXX.npy";
    close(mkstemps(ply, 4));
    close(mkstemps(npy, 4));
    ck_assert_int_eq(save_output(ply, &cloud, &output, &beside, &error), VOXEL_OK);
    ck_assert_int_eq(points_read_file(ply, &none, &points, &error), VOXEL_OK);
    for (int k = 0; k < 3; k++) ck_assert(points.voxel_size[k] == 0.1);
    ck_assert_int_eq(cloud_make(&points, 0, &again, &error), VOXEL_OK);
    ck_assert_int_eq(again.count, 4);
    ck_assert_mem_eq(again.coords, coords, sizeof coords);
    cloud_fini(&again);
    points_fini(&points);
    ck_assert_int_eq(save_output(npy, &cloud, &output, &beside, &error), VOXEL_OK);
    ck_assert_int_eq(points_read_file(npy, &none, &points, &error), VOXEL_OK);
    ck_assert_int_eq(points.count, 4);
    ck_assert(points.xyz[11] == 11.0);
    points_fini(&points);
    ck_assert_int_eq(points_read_file(beside.path, &none, &points, &error), VOXEL_OK);
    ck_assert(points.whole);
    ck_assert_int_eq(cloud_make(&points, 0, &again, &error), VOXEL_OK);
    ck_assert_mem_eq(again.coords, coords, sizeof coords);
    cloud_fini(&again);
    points_fini(&points);
    unlink(ply);
    unlink(npy);
    unlink(beside.path);
    ck_assert_int_eq(save_output("/tmp/x.txt", &cloud, &output, &beside, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_int_eq(
        save_output("/no/such/folder/x.npy", &cloud, &output, &beside, &error),
        VOXEL_DATA_LOSS);
    ck_assert_int_eq(points_read_file("/no/such/file.ply", &none, &points, &error),
                     VOXEL_NOT_FOUND);
    ck_assert_int_eq(points_read_file("scan.txt", &none, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
}
END_TEST

/* The bytes of a file, read to its end. */
static size_t read_file(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(bytes, 1, room, file);
    fclose(file);
    ck_assert_uint_lt(length, room);
    return length;
}

/* White space would end a property's name, and a line end the property. */
START_TEST(any_name_of_an_output_makes_a_ply_that_can_be_read)
{
    int32_t coords[1][4] = {{0, 1, 2, 3}};
    float cell[1][2] = {{5, 6}};
    char path[] = "/tmp/test_client_XXXXXX.ply", bytes[1024] = "";
    struct cloud cloud = {.count = 1, .coords = &coords[0][0], .size = {1, 1, 1}};
    struct voxel_tensor output =
        voxel_tensor_make("class l\n\xc3\xbc\x7f~!", VOXEL_FP32, 1, 2, cell);
    struct save_beside beside;
    struct voxel_error error;
    struct points points;
    const struct feats_asked asked = {.names = "class_l____~!_0,class_l____~!_1"};
    close(mkstemps(path, 4));
    ck_assert_int_eq(save_output(path, &cloud, &output, &beside, &error), VOXEL_OK);
    read_file(path, bytes, sizeof bytes);
    ck_assert_msg(strstr(bytes, "\nproperty float class_l____~!_0\n"
                                "property float class_l____~!_1\nend_header\n"),
                  "%s", bytes);
    ck_assert_int_eq(points_read_file(path, &asked, &points, &error), VOXEL_OK);
    ck_assert(points.feats[0] == 5.0f && points.feats[1] == 6.0f);
    points_fini(&points);
    unlink(path);
}
END_TEST

/* Without the flag in both headers NumPy takes the name for code page 437 and does not
 * find it. */
START_TEST(a_name_beyond_ascii_is_marked_as_utf8)
{
    static const char local[] = "PK\3\4\x14\0\0\x08", central[] = "\x14\0\x14\0\0\x08";
    int32_t coords[1][4] = {{0, 1, 2, 3}};
    float cell[1] = {5};
    char path[] = "/tmp/test_client_XXXXXX.npz", bytes[2048] = "";
    struct cloud cloud = {.count = 1, .coords = &coords[0][0], .size = {1, 1, 1}};
    struct voxel_tensor output =
        voxel_tensor_make(_i ? "\xc3\xbc" : "u", VOXEL_FP32, 1, 1, cell);
    struct save_beside beside;
    struct voxel_error error;
    close(mkstemps(path, 4));
    ck_assert_int_eq(save_output(path, &cloud, &output, &beside, &error), VOXEL_OK);
    size_t length = read_file(path, bytes, sizeof bytes);
    ck_assert_int_eq(memmem(bytes, length, local, sizeof local - 1) != NULL, _i);
    ck_assert_int_eq(memmem(bytes, length, central, sizeof central - 1) != NULL, _i);
    unlink(path);
}
END_TEST

/* The size along each axis is that of the voxels in the file, whatever their stride: read
 * again, they are the same voxels, and their lower corners are coords times voxel_size. */
static const struct {
    const char *stride;
    double size[3]; /* of 0.1 in the request */
    const char *comment;
} strides[] = {
    {"2x2x2", {0.2, 0.2, 0.2}, "comment voxel_size 0.2\ncomment stride 2x2x2\n"},
    {"2x1x4", {0.2, 0.1, 0.4}, "comment voxel_size 0.2 0.1 0.4\ncomment stride 2x1x4\n"},
    {"1x1/2x1/2",
     {0.1, 0.05, 0.05},
     "comment voxel_size 0.1 0.05 0.05\ncomment stride 1x1/2x1/2\n"},
    {"0x0x0", {0.1, 0.1, 0.1}, "comment voxel_size 0.1\ncomment stride 0x0x0\n"},
};

static void check_read_again(const char *path, const struct cloud *written, bool npz)
{
    struct points points;
    struct cloud again;
    struct voxel_error error;
    enum voxel_code code = points_read_file(path, &none, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    for (int k = 0; k < 3; k++)
        ck_assert_double_eq_tol(points.voxel_size[k], written->size[k], 1e-9);
    ck_assert_int_eq(points.whole, npz);
    ck_assert_int_eq(cloud_make(&points, 0, &again, &error), VOXEL_OK);
    ck_assert_mem_eq(again.coords, written->coords, (size_t)written->count * 16);
    cloud_fini(&again);
    points_fini(&points);
}

START_TEST(a_size_is_that_of_the_voxels_in_the_file)
{
    static const char *const names[] = {"out.ply", "out.npz"};
    int32_t coords[4][4] = {{0}}, own[2][4] = {{0, 1, 2, 3}, {0, -7, 8, 9}};
    float cell[2] = {1, 2};
    char folder[] = "/tmp/test_client_XXXXXX", path[64], head[128] = "";
    struct cloud cloud = {.count = 4, .coords = &coords[0][0], .size = {0.1, 0.1, 0.1}};
    struct voxel_tensor outputs[] = {
        voxel_tensor_make("top", VOXEL_FP32, 2, 1, cell),
        voxel_tensor_make("top_coords", VOXEL_INT32, 2, 4, own)};
    const struct voxel_answer answer = {.outputs = outputs, .outputs_count = 2};
    struct voxel_error error;
    struct save_beside beside;
    struct cloud made;
    outputs[0].stride = strides[_i].stride;
    outputs[0].coords = "top_coords";
    ck_assert_int_eq(sparse_cloud(&cloud, &answer, &outputs[0], &made, &error), VOXEL_OK);
    for (int k = 0; k < 3; k++)
        ck_assert_double_eq_tol(made.size[k], strides[_i].size[k], 1e-12);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int n = 0; n < 2; n++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[n]);
        ck_assert_int_eq(save_output(path, &made, outputs, &beside, &error), VOXEL_OK);
        check_read_again(path, &made, n == 1);
        if (n == 0) {
            FILE *file = fopen(path, "rb");
            ck_assert_uint_gt(fread(head, 1, sizeof head - 1, file), 0);
            fclose(file);
            ck_assert_msg(strstr(head, strides[_i].comment), "%s", head);
        }
        unlink(path);
    }
    rmdir(folder);
}
END_TEST

/* One number would say that they are cubes of the request's grid, as files had it before. */
START_TEST(sizes_that_a_stride_makes_equal_are_three_numbers)
{
    int32_t coords[1][4] = {{0, 1, 2, 3}};
    struct cloud cloud = {
        .count = 1, .coords = &coords[0][0], .size = {2, 2, 2}, .stride = "2x1x4"};
    char text[CLOUD_SIZE_BYTES];
    ck_assert_str_eq(cloud_size_text(&cloud, text), "2 2 2");
    snprintf(cloud.stride, sizeof cloud.stride, "4x4x4");
    ck_assert_str_eq(cloud_size_text(&cloud, text), "2");
}
END_TEST

/* A file with nothing in it but its first bytes, and too large to be read. */
static const struct {
    const char *ending, *begins, *sentence;
} larges[] = {
    {".ply", "", "this is not a .ply: its first line is not 'ply'"},
    {".npy", "", "this is not a .npy array"},
    {".npz", "", "this is not a .npz: it does not end with a zip directory"},
    {".ply", "ply\n", "a file of more than 8 GiB is not read"},
    {".npy", "\x93NUMPY", "a file of more than 8 GiB is not read"},
    {".npz", "PK\x03\x04", "a file of more than 8 GiB is not read"},
};

START_TEST(a_file_is_known_by_its_first_bytes)
{
    char path[64];
    struct points points;
    struct voxel_error error;
    snprintf(path, sizeof path, "/tmp/test_client_XXXXXX%s", larges[_i].ending);
    int file = mkstemps(path, 4);
    ssize_t bytes = (ssize_t)strlen(larges[_i].begins);
    ck_assert_int_eq(write(file, larges[_i].begins, (size_t)bytes), bytes);
    ck_assert_int_eq(ftruncate(file, (off_t)9 << 30), 0);
    close(file);
    ck_assert_int_ne(points_read_file(path, &none, &points, &error), VOXEL_OK);
    ck_assert_msg(strstr(error.text, larges[_i].sentence), "%s", error.text);
    unlink(path);
}
END_TEST

/* Its size is not known beforehand: it is read until its end, however many bytes each
 * read returns. */
START_TEST(a_pipe_is_read_to_its_end)
{
    enum { ROWS = 200000 };
    char folder[] = "/tmp/test_client_XXXXXX";
    char path[64];
    struct points points;
    struct voxel_error error;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.ply", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    pid_t writer = fork();
    if (writer == 0) {
        FILE *file = fopen(path, "w");
        fprintf(file,
                "ply\nformat ascii 1.0\nelement vertex %d\nproperty int x\nproperty int "
                "y\nproperty int z\nend_header\n",
                ROWS);
        for (int i = 0; i < ROWS; i++) fprintf(file, "%d 2 3\n", i);
        _exit(fclose(file));
    }
    enum voxel_code code = points_read_file(path, &none, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(points.count, ROWS);
    ck_assert(points.xyz[3 * (ROWS - 1)] == ROWS - 1);
    points_fini(&points);
    waitpid(writer, NULL, 0);
    unlink(path);
    rmdir(folder);
}
END_TEST

/* Samples come back from every format; a .npz has the output and the output's own
 * name. */
START_TEST(samples_are_kept_apart)
{
    int32_t coords[3][4] = {{0, 1, 2, 3}, {2, 1, 2, 3}, {2, -1, 0, 9}};
    float cell[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    static const char *const names[] = {"out.ply", "out.npz", "out.npy"};
    char folder[] = "/tmp/test_client_XXXXXX", path[64];
    struct cloud cloud = {
        .count = 3, .coords = &coords[0][0], .size = {1, 1, 1}, .whole = true};
    struct voxel_tensor output = voxel_tensor_make("logits", VOXEL_FP32, 3, 2, cell);
    struct voxel_error error;
    struct save_beside beside;
    struct points points;
    struct cloud again;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, names[_i]);
    ck_assert_int_eq(save_output(path, &cloud, &output, &beside, &error), VOXEL_OK);
    ck_assert_int_eq(*beside.path != 0, _i == 2);
    const struct feats_asked both[] = {
        {.names = "logits_0,logits_1"}, {.names = "logits"}, {0}};
    const char *from = _i == 2 ? beside.path : path;
    enum voxel_code code = points_read_file(from, &both[_i], &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(cloud_make(&points, 0, &again, &error), VOXEL_OK);
    ck_assert_mem_eq(again.coords, coords, sizeof coords);
    if (_i < 2) ck_assert_mem_eq(again.feats, cell, sizeof cell);
    cloud_fini(&again);
    points_fini(&points);
    ck_assert(!unlink(path));
    if (_i == 2) ck_assert(!unlink(beside.path));
    ck_assert(!rmdir(folder));
}
END_TEST

/* What has no row for each voxel, no numbers, or a name that the file uses itself. */
static const struct {
    struct voxel_tensor second;
    const char *sentence;
} alls[] = {
    {{.name = "b", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16}, NULL},
    {{.name = "b", .type = VOXEL_INT32, .rank = 2, .shape = {1, 4}, .bytes = 16},
     "output 'b' has no row of numbers for each of the 2 voxels"},
    {{.name = "b", .type = VOXEL_BYTES, .rank = 2, .shape = {2, 1}, .bytes = 16},
     "output 'b' has no row of numbers for each of the 2 voxels"},
    {{.name = "b", .type = VOXEL_INT32, .rank = 3, .shape = {1, 2, 2}, .bytes = 16},
     NULL},
    {{.name = "coords", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     "the output has the name 'coords', which a .npz uses itself"},
    /* Some programs unpack a zip to wherever its names lead. */
    {{.name = "../x", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     "the output has the name '../x', which leads out of a .npz: write a .npy"},
    {{.name = "a/..", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     "the name 'a/..', which leads"},
    {{.name = "/x", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     "the name '/x', which leads"},
    {{.name = "..\\x", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     "the name '..\\x', which leads"},
    {{.name = "a/..b", .type = VOXEL_INT32, .rank = 2, .shape = {2, 2}, .bytes = 16},
     NULL},
};

START_TEST(all_outputs_are_written_or_the_sentence_names_the_wrong_one)
{
    int32_t coords[2][4] = {{0, 1, 2, 3}, {0, 4, 5, 6}};
    float cell[2] = {7, 8};
    char path[] = "/tmp/test_client_XXXXXX.npz";
    struct voxel_tensor outputs[] = {voxel_tensor_make("a", VOXEL_FP32, 2, 1, cell),
                                     alls[_i].second};
    outputs[1].data = coords;
    const struct voxel_answer answer = {.outputs = outputs, .outputs_count = 2};
    struct cloud cloud = {
        .count = 2, .coords = &coords[0][0], .size = {1, 1, 1}, .whole = true};
    struct voxel_error error = {.text = ""};
    close(mkstemps(path, 4));
    ck_assert(save_takes_all(path, &answer));
    ck_assert(!save_takes_all("a.npy", &answer) && !save_takes_all("a.ply", &answer));
    enum voxel_code code = save_all(path, &cloud, &answer, &error);
    if (alls[_i].sentence) {
        ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
        ck_assert_msg(strstr(error.text, alls[_i].sentence), "%s", error.text);
    } else {
        ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    }
    outputs[1].stride = "2x2x2"; /* coordinates of others are no second output */
    outputs[1].coords = NULL;
    ck_assert(!save_takes_all(path, &answer));
    unlink(path);
}
END_TEST

START_TEST(an_input_is_not_written_over)
{
    char folder[] = "/tmp/test_client_XXXXXX", scan[64], link[64], stem[64], other[64];
    struct voxel_error error;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(scan, sizeof scan, "%s/a.coords.npy", folder);
    snprintf(stem, sizeof stem, "%s/a.npy", folder);
    snprintf(link, sizeof link, "%s/b.npz", folder);
    snprintf(other, sizeof other, "%s/c.npy", folder);
    fclose(fopen(scan, "wb"));
    ck_assert(!symlink("a.coords.npy", link));
    ck_assert_int_eq(save_check_path(scan, scan, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_int_eq(save_check_path(link, scan, &error), VOXEL_INVALID_ARGUMENT);
    /* Its coordinates would be. */
    ck_assert_int_eq(save_check_path(stem, scan, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "a.coords.npy is the input"), "%s", error.text);
    ck_assert_int_eq(save_check_path(other, scan, &error), VOXEL_OK);
    ck_assert(!unlink(link) && !unlink(scan) && !rmdir(folder));
}
END_TEST

static void ck_file_is(const char *path, const char *content)
{
    char text[64] = "";
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is gone", path);
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    ck_assert_uint_eq(got, strlen(content));
    ck_assert_str_eq(text, content);
}

/* With room for so many bytes and no more, as if the disk were full. */
static enum voxel_code save_within(const char *path, rlim_t bytes)
{
    float cell[300] = {0};
    int32_t coords[400] = {0};
    struct save_beside beside;
    struct cloud cloud = {.count = 100, .size = {1, 1, 1}, .coords = coords};
    struct voxel_tensor output = voxel_tensor_make("normals", VOXEL_FP32, 100, 3, cell);
    struct voxel_error error;
    struct rlimit limit = {bytes, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    enum voxel_code code = save_output(path, &cloud, &output, &beside, &error);
    limit.rlim_cur = RLIM_INFINITY;
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    if (code) ck_assert_ptr_nonnull(strstr(error.text, "cannot be written"));
    return code;
}

/* A file is replaced whole or not at all; its mode and a link that leads to it stay. */
START_TEST(what_cannot_be_saved_leaves_what_was_there)
{
    char folder[] = "/tmp/test_client_XXXXXX", path[64], link[64], full[64], fresh[64];
    struct stat about;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/old.npy", folder);
    snprintf(link, sizeof link, "%s/link.npy", folder);
    snprintf(full, sizeof full, "%s/full.npy", folder);
    snprintf(fresh, sizeof fresh, "%s/fresh.npy", folder);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fputs("old", file);
    fclose(file);
    ck_assert(!chmod(path, 0640) && !symlink("old.npy", link));
    ck_assert_int_eq(save_within(path, 100), VOXEL_DATA_LOSS);
    ck_file_is(path, "old");
    ck_assert_int_eq(save_within(link, 100), VOXEL_DATA_LOSS);
    ck_file_is(path, "old");
    ck_assert_int_eq(save_within(fresh, 100), VOXEL_DATA_LOSS);
    ck_assert_int_eq(access(fresh, F_OK), -1);
    ck_assert_int_eq(save_within(link, RLIM_INFINITY), VOXEL_OK);
    ck_assert(!lstat(link, &about) && S_ISLNK(about.st_mode));
    ck_assert(!stat(path, &about));
    ck_assert_int_eq(about.st_mode & 0777, 0640);
    ck_assert_int_gt(about.st_size, 1200);
    /* What is not a regular file stays too, also for root. */
    ck_assert(!symlink("/dev/full", full));
    ck_assert_int_eq(save_within(full, RLIM_INFINITY), VOXEL_DATA_LOSS);
    ck_assert(!lstat(full, &about) && S_ISLNK(about.st_mode));
    snprintf(fresh, sizeof fresh, "%s/link.coords.npy", folder);
    ck_assert(!unlink(fresh));
    ck_assert(!unlink(full) && !unlink(link) && !unlink(path));
    ck_assert_msg(!rmdir(folder), "there is more in %s",
                  folder); /* nothing half-written */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_save");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_file_is_known_by_its_first_bytes, 0,
                        sizeof larges / sizeof *larges);
    tcase_add_test(tcase, a_pipe_is_read_to_its_end);
    tcase_add_test(tcase, saved_files_read_back);
    tcase_add_loop_test(tcase, a_name_beyond_ascii_is_marked_as_utf8, 0, 2);
    tcase_add_test(tcase, any_name_of_an_output_makes_a_ply_that_can_be_read);
    tcase_add_loop_test(tcase, a_size_is_that_of_the_voxels_in_the_file, 0,
                        sizeof strides / sizeof *strides);
    tcase_add_test(tcase, sizes_that_a_stride_makes_equal_are_three_numbers);
    tcase_add_loop_test(tcase, samples_are_kept_apart, 0, 3);
    tcase_add_loop_test(tcase,
                        all_outputs_are_written_or_the_sentence_names_the_wrong_one, 0,
                        sizeof alls / sizeof *alls);
    tcase_add_test(tcase, an_input_is_not_written_over);
    tcase_add_test(tcase, what_cannot_be_saved_leaves_what_was_there);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
