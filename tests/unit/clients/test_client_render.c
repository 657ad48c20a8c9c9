/* The renderer: its index of voxels, what it refuses, and that the picture shows the
 * scene.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"
#include "clients/cli/render/render.h"
#include "clients/cli/render/render_parts.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <png.h>

#define WIDTH  160
#define HEIGHT 120

START_TEST(grid_knows_its_voxels)
{
    enum { SIDE = 40, COUNT = 3000 };
    static bool there[SIDE][SIDE][SIDE];
    static int32_t at[COUNT * 3];
    struct grid grid = {0};
    srandom(5);
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 3; k++) at[3 * i + k] = (int32_t)(random() % SIDE);
        there[at[3 * i]][at[3 * i + 1]][at[3 * i + 2]] = true;
    }
    ck_assert(grid_init(&grid, at, COUNT));
    for (int32_t x = -9; x < SIDE + 9; x++)
        for (int32_t y = -9; y < SIDE + 9; y++)
            for (int32_t z = -9; z < SIDE + 9; z++) {
                bool inside =
                    x >= 0 && y >= 0 && z >= 0 && x < SIDE && y < SIDE && z < SIDE;
                ck_assert_int_eq(grid_has(&grid, x, y, z), inside && there[x][y][z]);
            }
    grid_fini(&grid);
}
END_TEST

/* A box of voxels on the ground, coloured by an output of `channels`. */
static struct voxel_tensor make_scene(struct cloud *cloud, int32_t channels)
{
    int64_t side = 12;
    cloud->count = side * side * side;
    cloud->coords = voxel_memory_take((size_t)cloud->count, 16);
    float *cell = voxel_memory_take((size_t)(cloud->count * channels), sizeof *cell);
    for (int64_t i = 0; i < cloud->count; i++) {
        int32_t *row = &cloud->coords[4 * i];
        row[1] = (int32_t)(i % side) - 100;
        row[2] = (int32_t)(i / side % side);
        row[3] = (int32_t)(i / side / side);
        for (int32_t c = 0; c < channels; c++)
            cell[i * channels + c] = channels == 3 ? (c == 2) : (float)(i % 7 + c);
    }
    return voxel_tensor_make("x", VOXEL_FP32, cloud->count, channels, cell);
}

/* Draws to a file and reads that back. */
static void draw(const struct render_scene *scene, const struct render_view *view,
                 uint8_t *pixels)
{
    char path[] = "/tmp/test_render_XXXXXX.png";
    struct voxel_error error;
    close(mkstemps(path, 4));
    enum voxel_code code = render_png(path, scene, view, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    png_image image = {.version = PNG_IMAGE_VERSION};
    ck_assert_int_ne(png_image_begin_read_from_file(&image, path), 0);
    ck_assert_uint_eq(image.width, WIDTH);
    ck_assert_uint_eq(image.height, HEIGHT);
    image.format = PNG_FORMAT_RGB;
    ck_assert_int_ne(png_image_finish_read(&image, NULL, pixels, 0, NULL), 0);
    unlink(path);
}

static uint8_t first[WIDTH * HEIGHT * 3], second[WIDTH * HEIGHT * 3];

START_TEST(picture_is_the_same_twice_and_shows_the_box)
{
    struct cloud cloud = {0};
    struct voxel_tensor output = make_scene(&cloud, _i);
    struct render_scene scene = {.cloud = &cloud, .output = &output};
    struct render_view view = RENDER_VIEW;
    view.width = WIDTH;
    view.height = HEIGHT;
    draw(&scene, &view, first);
    draw(&scene, &view, second);
    ck_assert_mem_eq(first, second, sizeof first);
    /* The middle is the box, the corner is the background, which is much lighter. */
    const uint8_t *middle = &first[3 * (HEIGHT / 2 * WIDTH + WIDTH / 2)];
    int difference = 0;
    for (int k = 0; k < 3; k++) difference += abs(middle[k] - first[k]);
    ck_assert_int_gt(difference, 30);
    view.isometric = true;
    view.azimuth += 90;
    draw(&scene, &view, second);
    ck_assert_int_ne(memcmp(first, second, sizeof first), 0);
    voxel_memory_give((void *)(uintptr_t)output.data);
    cloud_fini(&cloud);
}
END_TEST

START_TEST(one_voxel_and_odd_views)
{
    int32_t at[8] = {0, 5, 5, 5, 1, 9, 9, 9}; /* the second is of another sample */
    struct cloud cloud = {.count = 2, .coords = at};
    struct render_scene scene = {.cloud = &cloud};
    static const double elevations[] = {-89, -20, 0, 89};
    for (int i = 0; i < 4; i++)
        for (int up = 0; up < 3; up++)
            for (int parallel = 0; parallel < 2; parallel++) {
                struct render_view view = {WIDTH,         HEIGHT,    30.0 * i,
                                           elevations[i], "xyz"[up], parallel == 1};
                draw(&scene, &view, first);
            }
}
END_TEST

START_TEST(one_sample_is_drawn_and_no_other)
{
    /* Sample 0 is a bar along x, sample 7 a bar along y; drawn over each other they
     * are a cross. */
    int32_t at[6][4] = {{0, 0, 0, 0}, {0, 1, 0, 0}, {0, 2, 0, 0},
                        {7, 0, 0, 0}, {7, 0, 1, 0}, {7, 0, 2, 0}};
    struct cloud both = {.count = 6, .coords = &at[0][0]};
    struct cloud one = {.count = 3, .coords = &at[0][0]};
    struct render_scene scene = {.cloud = &both};
    const struct render_scene alone = {.cloud = &one};
    struct render_view view = RENDER_VIEW;
    struct voxel_error error;
    view.width = WIDTH;
    view.height = HEIGHT;
    draw(&scene, &view, first);
    draw(&alone, &view, second);
    ck_assert_mem_eq(first, second, sizeof first);
    scene.sample = 7;
    draw(&scene, &view, first);
    ck_assert_int_ne(memcmp(first, second, sizeof first), 0);
    for (int i = 0; i < 3; i++) memcpy(at[i], at[i + 3], sizeof at[i]);
    const struct render_scene other = {.cloud = &one, .sample = 7};
    draw(&other, &view, second);
    ck_assert_mem_eq(first, second, sizeof first);
    scene.sample = 3;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "there is nothing to draw: no voxel is of sample 3");
}
END_TEST

START_TEST(a_picture_is_a_png)
{
    static const char *const wrong[] = {"a.jpg", "a.png.bak", "png", "a.pn", "", "a.PNG"};
    struct voxel_error error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_int_eq(render_check_path(wrong[i], &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "a.PNG: expected a picture that ends in .png");
    ck_assert_int_eq(render_check_path("a.jpg.png", &error), VOXEL_OK);
}
END_TEST

START_TEST(what_cannot_be_drawn_is_refused)
{
    int32_t at[8] = {0, 0, 0, 0, 0, RENDER_SPAN_MAX, 0, 0};
    float cells[4] = {0, 0, 0, 0};
    struct cloud cloud = {.count = 2, .coords = at};
    struct voxel_tensor output = voxel_tensor_make("x", VOXEL_FP32, 1, 3, cells);
    struct render_scene scene = {.cloud = &cloud};
    struct render_view view = RENDER_VIEW;
    struct voxel_error error;
    view.width = WIDTH;
    view.height = HEIGHT;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "spans"), "%s", error.text);
    at[5] = 1;
    ck_assert_int_eq(render_png("/no/such/folder/x.png", &scene, &view, &error),
                     VOXEL_DATA_LOSS);
    scene.output = &output;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "each of the 2 voxels"), "%s", error.text);
    scene.output = NULL;
    view.width = 5000;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    view.width = WIDTH;
    view.elevation = 90;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    cloud.count = 0;
    ck_assert_int_eq(render_png("/tmp/x.png", &scene, &view, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "empty"), "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_render");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, grid_knows_its_voxels);
    tcase_add_loop_test(tcase, picture_is_the_same_twice_and_shows_the_box, 1, 6);
    tcase_add_test(tcase, one_voxel_and_odd_views);
    tcase_add_test(tcase, one_sample_is_drawn_and_no_other);
    tcase_add_test(tcase, a_picture_is_a_png);
    tcase_add_test(tcase, what_cannot_be_drawn_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
