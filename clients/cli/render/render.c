/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/render/png.h"

#include <math.h>
#include <string.h>

/* Side of the shadow map: several texels per voxel in scenes of some hundred voxels. */
#define SHADOW_PIXELS 3072

static vec3 direction_of(double azimuth, double elevation)
{
    double a = azimuth * 0.017453292519943295;
    double e = elevation * 0.017453292519943295;
    return vec3_make((float)(cos(e) * cos(a)), (float)(cos(e) * sin(a)), (float)sin(e));
}

static enum voxel_code scene_check(const struct render_scene *scene,
                                   const struct render_view *view,
                                   struct voxel_error *error)
{
    if (scene->cloud->count == 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "there is nothing to draw: the cloud is empty");
    int64_t row = 0;
    while (row < scene->cloud->count && scene->cloud->coords[4 * row] != scene->sample)
        row++;
    if (row == scene->cloud->count)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "there is nothing to draw: no voxel is of sample %d",
                               (int)scene->sample);
    if (view->width < RENDER_PIXELS_MIN || view->width > RENDER_PIXELS_MAX ||
        view->height < RENDER_PIXELS_MIN || view->height > RENDER_PIXELS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a picture is %d to %d pixels wide and high, not %d x %d",
                               RENDER_PIXELS_MIN, RENDER_PIXELS_MAX, (int)view->width,
                               (int)view->height);
    if (!(view->elevation >= -89 && view->elevation <= 89) || !isfinite(view->azimuth))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the view's elevation must be -89 to 89 degrees, not %g",
                               view->elevation);
    const struct voxel_tensor *output = scene->output;
    if (!output) return VOXEL_OK;
    if (output->rank > 2)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "output '%s' is a dense tensor and cannot be drawn",
                               output->name);
    int64_t channels = 1;
    for (int32_t i = 1; i < output->rank; i++)
        if (__builtin_mul_overflow(channels, output->shape[i], &channels)) channels = -1;
    if (output->rank < 1 || channels < 1 || output->shape[0] != scene->cloud->count ||
        channels > FEATS_MAX || output->type == VOXEL_BYTES)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "output '%s' cannot be drawn: expected a row of 1 to %d numbers "
            "for each of the %lld voxels",
            output->name, FEATS_MAX, (long long)scene->cloud->count);
    return VOXEL_OK;
}

static enum voxel_code span_check(const int64_t low[3], const int64_t high[3],
                                  struct voxel_error *error)
{
    for (int k = 0; k < 3; k++)
        if (high[k] - low[k] >= RENDER_SPAN_MAX)
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "the cloud spans %lld voxels along %c; at most %d can be drawn",
                (long long)(high[k] - low[k]), 'x' + k, RENDER_SPAN_MAX);
    return VOXEL_OK;
}

/* Copies the voxels of the scene's sample, turned and moved; rows[i] is voxel i's row in
 * the cloud. */
static enum voxel_code take_voxels(struct voxels *voxels, int64_t *rows,
                                   const struct render_scene *scene,
                                   const struct render_view *view,
                                   struct voxel_error *error)
{
    const struct cloud *cloud = scene->cloud;
    int turn = view->up == 'x' ? 1 : view->up == 'y' ? 2 : 0;
    int64_t low[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
    int64_t high[3] = {INT64_MIN, INT64_MIN, INT64_MIN};
    for (int64_t i = 0; i < cloud->count; i++) {
        const int32_t *at = &cloud->coords[4 * i];
        if (at[0] != scene->sample) continue;
        rows[voxels->count++] = i;
        for (int k = 0; k < 3; k++) {
            int64_t v = at[1 + (k + turn) % 3];
            low[k] = v < low[k] ? v : low[k];
            high[k] = v > high[k] ? v : high[k];
        }
    }
    enum voxel_code code = span_check(low, high, error);
    if (code) return code;
    for (int64_t i = 0; i < voxels->count; i++) {
        const int32_t *at = &cloud->coords[4 * rows[i]];
        for (int k = 0; k < 3; k++)
            voxels->at[3 * i + k] = (int32_t)(at[1 + (k + turn) % 3] - low[k]);
    }
    for (int k = 0; k < 3; k++) voxels->size[k] = (int32_t)(high[k] - low[k] + 1);
    return VOXEL_OK;
}

static bool make_parts(struct render *render, const struct render_view *view)
{
    struct voxels *voxels = &render->voxels;
    if (!grid_init(&render->grid, voxels->at, voxels->count)) return false;
    if (!faces_init(&render->faces, voxels, &render->grid)) return false;
    faces_occlude(&render->faces, voxels, &render->grid);
    if (!floor_init(&render->floor, voxels)) return false;

    struct render_view large = *view;
    large.width *= RENDER_SAMPLES;
    large.height *= RENDER_SAMPLES;
    vec3 towards = direction_of(view->azimuth, view->elevation);
    camera_fit(&render->camera, voxels, &large, vec3_scale(towards, -1));

    /* The sun stands above and to the left of the eye, so shadows fall to the right and
     * away. */
    render->to_sun = direction_of(view->azimuth - 62, 47);
    struct render_view map = {SHADOW_PIXELS, SHADOW_PIXELS, 0, 0, 'z', true};
    camera_fit(&render->sun, voxels, &map, vec3_scale(render->to_sun, -1));
    return raster_init(&render->screen, large.width, large.height, true) &&
           raster_init(&render->shadow, SHADOW_PIXELS, SHADOW_PIXELS, false);
}

static void render_fini(struct render *render)
{
    voxel_memory_give(render->voxels.at);
    voxel_memory_give(render->voxels.colour);
    voxel_memory_give(render->voxels.normal);
    voxel_memory_give(render->pixels);
    grid_fini(&render->grid);
    faces_fini(&render->faces);
    floor_fini(&render->floor);
    raster_fini(&render->screen);
    raster_fini(&render->shadow);
}

static enum voxel_code render_run(struct render *render, const struct render_scene *scene,
                                  const struct render_view *view,
                                  struct voxel_error *error)
{
    size_t count = (size_t)scene->cloud->count;
    int64_t *rows = voxel_memory_take(count, sizeof *rows);
    render->voxels.at = voxel_memory_take(count, 3 * sizeof *render->voxels.at);
    render->width = view->width;
    render->height = view->height;
    render->pixels = voxel_memory_take((size_t)view->width * (size_t)view->height, 3);
    enum voxel_code code = VOXEL_OK;
    if (!rows || !render->voxels.at || !render->pixels)
        code = voxel_error_memory(error, "a picture", count * 20);
    if (!code) code = take_voxels(&render->voxels, rows, scene, view, error);
    if (!code &&
        (!colour_voxels(&render->voxels, scene, rows, view) || !make_parts(render, view)))
        code = voxel_error_memory(error, "a picture", 0);
    voxel_memory_give(rows);
    if (code) return code;
    raster_draw(&render->screen, &render->camera, &render->voxels, &render->faces);
    raster_draw(&render->shadow, &render->sun, &render->voxels, &render->faces);
    shade_rows(render);
    return VOXEL_OK;
}

enum voxel_code render_check_path(const char *path, struct voxel_error *error)
{
    size_t bytes = strlen(path);
    if (bytes >= 4 && strcmp(path + bytes - 4, ".png") == 0) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: expected a picture that ends in .png", path);
}

enum voxel_code render_png(const char *path, const struct render_scene *scene,
                           const struct render_view *view, struct voxel_error *error)
{
    enum voxel_code code = scene_check(scene, view, error);
    if (code) return code;
    struct render render;
    memset(&render, 0, sizeof render);
    code = render_run(&render, scene, view, error);
    if (!code) code = png_write(path, render.pixels, view->width, view->height, error);
    render_fini(&render);
    return code;
}
