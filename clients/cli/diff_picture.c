/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/diff_picture.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <math.h>
#include <string.h>

#define DECADES 2.0 /* to each side of the bound */

struct scene {
    struct cloud cloud;
    float *errors; /* of each voxel, in decades over the bound */
};

/* Errors of 0 are as dark, and infinite ones as bright, as there is. */
static float decades_over(float relative, double bound)
{
    double decades = log10((double)relative / (bound > 0 ? bound : 1e-30));
    return (float)fmin(fmax(decades, -DECADES), DECADES);
}

static bool scene_room(struct scene *scene, int64_t count)
{
    scene->cloud.coords =
        voxel_memory_take((size_t)count + 1, 4 * sizeof *scene->cloud.coords);
    scene->errors = voxel_memory_take((size_t)count + 1, sizeof *scene->errors);
    return scene->cloud.coords && scene->errors;
}

static void scene_add(struct scene *scene, const int32_t *coords, float error)
{
    int64_t at = scene->cloud.count++;
    memcpy(&scene->cloud.coords[4 * at], coords, 4 * sizeof *coords);
    scene->errors[at] = error;
}

/* The voxels of A, and behind them those that only B has. */
static bool add_voxels(struct scene *scene, const struct compare_tensor *a,
                       const struct compare_tensor *b, const float *errors, double bound)
{
    struct compare_missing missing;
    if (!scene_room(scene, a->rows + b->rows)) return false;
    for (int64_t i = 0; i < a->rows; i++)
        scene_add(scene, &a->coords[4 * i], decades_over(errors[i], bound));
    if (!b->coords) return true;
    int64_t *match = compare_match(b, a, &missing);
    for (int64_t i = 0; match && i < b->rows; i++)
        if (match[i] < 0) scene_add(scene, &b->coords[4 * i], (float)DECADES);
    voxel_memory_give(match);
    return match != NULL;
}

static bool is_set(const struct compare_tensor *tensor, int64_t index)
{
    if (index >= tensor->rows) return false;
    return tensor->numbers ? tensor->numbers[index] != 0 : tensor->labels[index] != 0;
}

/* The last two or three dimensions are the axes, the first is the sample, and what is
 * between them are channels. */
static bool add_cells(struct scene *scene, const struct compare_tensor *a,
                      const struct compare_tensor *b, const float *errors, double bound)
{
    const int axes = a->rank > 4 ? 3 : 2;
    int64_t cells = 1;
    int64_t channels = 1;
    for (int d = 1; d < a->rank; d++)
        *(d < a->rank - axes ? &channels : &cells) *= a->shape[d];
    const int64_t samples = a->shape[0];
    if (!scene_room(scene, samples * cells)) return false;
    for (int64_t i = 0; i < samples * cells; i++) {
        const int64_t sample = i / cells;
        int32_t coords[4] = {(int32_t)sample, 0, 0, 0};
        bool there = false;
        float worst = 0;
        for (int64_t c = 0; c < channels; c++) {
            int64_t at = (sample * channels + c) * cells + i % cells;
            there |= is_set(a, at) || is_set(b, at) || errors[at] > 0;
            worst = fmaxf(worst, errors[at]);
        }
        int64_t rest = i % cells;
        for (int k = 3; k > 3 - axes; k--) {
            coords[k] = (int32_t)(rest % a->shape[a->rank - 4 + k]);
            rest /= a->shape[a->rank - 4 + k];
        }
        if (there) scene_add(scene, coords, decades_over(worst, bound));
    }
    return true;
}

static int32_t sample_of(const struct diff_picture *picture, const struct diff_row *row,
                         const struct scene *scene)
{
    if (picture->sample >= 0) return (int32_t)picture->sample;
    if (row->found.row >= 0) return (int32_t)row->place[0];
    for (int64_t i = 0; i < scene->cloud.count; i++)
        if ((double)scene->errors[i] >= DECADES) return scene->cloud.coords[4 * i];
    return scene->cloud.count ? scene->cloud.coords[0] : 0;
}

static enum voxel_code draw(const struct diff_picture *picture,
                            const struct diff_row *row, const struct scene *scene,
                            struct voxel_error *error)
{
    const struct voxel_tensor output =
        voxel_tensor_make(row->a->name, VOXEL_FP32, scene->cloud.count, 1, scene->errors);
    const struct render_scene drawn = {.cloud = &scene->cloud,
                                       .output = &output,
                                       .sample = sample_of(picture, row, scene),
                                       .low = -DECADES,
                                       .high = DECADES};
    return render_png(picture->path, &drawn, &picture->view, error);
}

enum voxel_code diff_picture_draw(const struct diff_picture *picture,
                                  const struct diff_table *table,
                                  const struct diff_row *row, struct voxel_error *error)
{
    struct recorded_tensor a;
    struct recorded_tensor b = {0};
    struct scene scene = {.cloud = {.size = {1, 1, 1}, .whole = true}};
    struct comparison found;
    float *errors = NULL;
    enum voxel_code code = recording_read(table->a, row->a, &a, error);
    if (!code) code = recording_read(table->b, row->b, &b, error);
    if (!code) {
        errors = voxel_memory_take((size_t)a.tensor.rows + 1, sizeof *errors);
        if (!errors) code = voxel_error_memory(error, "a picture", 0);
    }
    if (!code) code = compare_tensors(&a.tensor, &b.tensor, errors, &found, error);
    if (!code) {
        bool (*add)(struct scene *, const struct compare_tensor *,
                    const struct compare_tensor *, const float *, double) =
            a.tensor.coords ? add_voxels : add_cells;
        if (!add(&scene, &a.tensor, &b.tensor, errors, table->bound))
            code = voxel_error_memory(error, "a picture", 0);
    }
    if (!code) code = draw(picture, row, &scene, error);
    voxel_memory_give(errors);
    voxel_memory_give(scene.cloud.coords);
    voxel_memory_give(scene.errors);
    recording_give(&a);
    recording_give(&b);
    return code;
}
