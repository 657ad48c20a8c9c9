/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include <float.h>
#include <math.h>

/* The tangent of half the view angle: about 30 degrees in all, which suits boxes. */
#define LENS 0.27f
/* The part of the picture that the scene may fill, across and down. */
#define FILL_ACROSS 0.92f
#define FILL_DOWN   0.86f

vec3 camera_project(const struct camera *camera, vec3 p)
{
    vec3 d = vec3_sub(p, camera->eye);
    float x = vec3_dot(d, camera->right);
    float y = vec3_dot(d, camera->up);
    float z = vec3_dot(d, camera->forward);
    float scale = camera->parallel ? camera->focal : camera->focal / z;
    return vec3_make(camera->cx + x * scale, camera->cy - y * scale,
                     camera->parallel ? z : -1.0f / z);
}

void camera_ray(const struct camera *camera, float px, float py, vec3 *origin,
                vec3 *direction)
{
    float x = (px - camera->cx) / camera->focal;
    float y = (camera->cy - py) / camera->focal;
    vec3 offset = vec3_add(vec3_scale(camera->right, x), vec3_scale(camera->up, y));
    *origin = camera->parallel ? vec3_add(camera->eye, offset) : camera->eye;
    *direction = camera->parallel ? camera->forward : vec3_add(camera->forward, offset);
}

bool camera_sees(const struct camera *camera, const struct voxels *voxels,
                 const struct face *face)
{
    vec3 look = camera->forward;
    if (!camera->parallel) look = vec3_sub(face_corner(voxels, face, 0), camera->eye);
    return vec3_dot(look, face_normal(face->side)) < 0;
}

static void camera_turn(struct camera *camera, vec3 forward)
{
    vec3 world_up = fabsf(forward.z) < 0.999f ? vec3_make(0, 0, 1) : vec3_make(0, 1, 0);
    camera->forward = forward;
    camera->right = vec3_unit(vec3_cross(forward, world_up));
    camera->up = vec3_cross(camera->right, forward);
}

struct bounds {
    float low[2], high[2];
    float near_z;
};

/* The bounds of the voxels' projections on the plane at distance one. */
static struct bounds bounds_of(const struct camera *camera, const struct voxels *voxels)
{
    struct bounds b = {{FLT_MAX, FLT_MAX}, {-FLT_MAX, -FLT_MAX}, FLT_MAX};
    /* About 100,000 voxels are enough; the margin of a box covers the rest. */
    int64_t stride = voxels->count / 100000 + 1;
    for (int64_t i = 0; i < voxels->count; i += stride) {
        const int32_t *at = &voxels->at[3 * i];
        vec3 p = vec3_make((float)at[0] + 0.5f, (float)at[1] + 0.5f, (float)at[2] + 0.5f);
        vec3 d = vec3_sub(p, camera->eye);
        float z = vec3_dot(d, camera->forward);
        float scale = camera->parallel ? 1.0f : 1.0f / z;
        float xy[2] = {vec3_dot(d, camera->right) * scale,
                       vec3_dot(d, camera->up) * scale};
        for (int k = 0; k < 2; k++) {
            float half = 0.87f * scale;
            if (xy[k] - half < b.low[k]) b.low[k] = xy[k] - half;
            if (xy[k] + half > b.high[k]) b.high[k] = xy[k] + half;
        }
        if (z < b.near_z) b.near_z = z;
    }
    return b;
}

void camera_fit(struct camera *camera, const struct voxels *voxels,
                const struct render_view *view, vec3 forward)
{
    float size = sqrtf((float)voxels->size[0] * (float)voxels->size[0] +
                       (float)voxels->size[1] * (float)voxels->size[1] +
                       (float)voxels->size[2] * (float)voxels->size[2]);
    vec3 middle = vec3_make((float)voxels->size[0] / 2, (float)voxels->size[1] / 2,
                            (float)voxels->size[2] / 2);
    camera->parallel = view->isometric;
    camera->width = view->width;
    camera->height = view->height;
    camera_turn(camera, forward);
    float wide = (float)view->width * FILL_ACROSS;
    float high = (float)view->height * FILL_DOWN;
    float distance = camera->parallel ? size * 2 : size / (2 * LENS) + size;
    /* The perspective changes as the eye moves, so iterate until both settle. */
    for (int round = 0; round < 12; round++) {
        camera->eye = vec3_sub(middle, vec3_scale(forward, distance));
        struct bounds b = bounds_of(camera, voxels);
        float x = (b.low[0] + b.high[0]) / 2;
        float y = (b.low[1] + b.high[1]) / 2;
        float focal_x = wide / (b.high[0] - b.low[0]);
        float focal_y = high / (b.high[1] - b.low[1]);
        camera->focal = focal_x < focal_y ? focal_x : focal_y;
        camera->cx = (float)view->width / 2 - x * camera->focal;
        camera->cy = (float)view->height / 2 + y * camera->focal;
        if (camera->parallel) continue;
        /* The lens is fixed: move the eye until the scene fills the picture. */
        float want = (float)view->width / (2 * LENS);
        float next = distance * want / camera->focal;
        float least = distance - b.near_z + size * 0.05f + 2;
        distance = next > least ? next : least;
    }
}
