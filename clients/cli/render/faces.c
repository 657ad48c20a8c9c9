/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/memory.h"

#include <math.h>

/* Rays per corner, and the distances that are checked along each, in voxels: near ones
 * darken where things touch, far ones where something lies deep, as a street does. */
#define RAYS 14
static const float steps[] = {0.6f, 1.4f, 2.4f, 3.8f, 5.8f, 8.6f};
#define STEPS ((int)(sizeof steps / sizeof *steps))

vec3 vec3_unit(vec3 a)
{
    float length = sqrtf(vec3_dot(a, a));
    return length > 0 ? vec3_scale(a, 1.0f / length) : vec3_make(0, 0, 1);
}

static const int32_t side_steps[6][3] = {{-1, 0, 0}, {1, 0, 0},  {0, -1, 0},
                                         {0, 1, 0},  {0, 0, -1}, {0, 0, 1}};

vec3 face_normal(int32_t side)
{
    const int32_t *s = side_steps[side];
    return vec3_make((float)s[0], (float)s[1], (float)s[2]);
}

vec3 face_corner(const struct voxels *voxels, const struct face *face, int corner)
{
    const int32_t *at = &voxels->at[3 * (int64_t)face->voxel];
    int axis = face->side / 2;
    float p[3] = {(float)at[0], (float)at[1], (float)at[2]};
    p[axis] += (float)(face->side & 1);
    p[(axis + 1) % 3] += (float)(corner & 1);
    p[(axis + 2) % 3] += (float)(corner >> 1);
    return vec3_make(p[0], p[1], p[2]);
}

bool faces_init(struct faces *faces, const struct voxels *voxels, const struct grid *grid)
{
    int64_t room = 0;
    for (int64_t i = 0; i < voxels->count; i++) {
        const int32_t *at = &voxels->at[3 * i];
        for (int32_t side = 0; side < 6; side++) {
            const int32_t *s = side_steps[side];
            if (grid_has(grid, at[0] + s[0], at[1] + s[1], at[2] + s[2])) continue;
            if (faces->count == room) {
                room = room ? room * 2 : 1 << 16;
                struct face *more =
                    voxel_memory_grow(faces->list, (size_t)room * sizeof *faces->list);
                if (!more) return false;
                faces->list = more;
            }
            faces->list[faces->count++] =
                (struct face){(int32_t)i, side, {255, 255, 255, 255}};
        }
    }
    return true;
}

void faces_fini(struct faces *faces)
{
    voxel_memory_give(faces->list);
    *faces = (struct faces){0};
}

struct occlusion {
    const struct faces *faces;
    const struct voxels *voxels;
    const struct grid *grid;
    vec3 rays[6][RAYS]; /* per side, over its hemisphere, denser near the normal */
};

static void make_rays(struct occlusion *work)
{
    for (int32_t side = 0; side < 6; side++) {
        int axis = side / 2;
        for (int i = 0; i < RAYS; i++) {
            /* A spiral (golden angle) whose density is the cosine, as of sky light. */
            float square = ((float)i + 0.5f) / RAYS;
            float flat = sqrtf(square);
            float angle = (float)i * 2.39996323f + (float)side;
            float p[3];
            p[axis] = sqrtf(1.0f - square) * (side & 1 ? 1.0f : -1.0f);
            p[(axis + 1) % 3] = flat * cosf(angle);
            p[(axis + 2) % 3] = flat * sinf(angle);
            work->rays[side][i] = vec3_make(p[0], p[1], p[2]);
        }
    }
}

static float ray_open(const struct occlusion *work, vec3 from, vec3 ray)
{
    for (int i = 0; i < STEPS; i++) {
        vec3 p = vec3_add(from, vec3_scale(ray, steps[i]));
        int32_t x = (int32_t)floorf(p.x);
        int32_t y = (int32_t)floorf(p.y);
        int32_t z = (int32_t)floorf(p.z);
        if (z < 0) return 1.0f; /* the floor is not part of the cloud */
        /* A distant voxel hides less, since light comes round it. */
        if (grid_has(work->grid, x, y, z)) return 0.75f * (float)i / STEPS;
    }
    return 1.0f;
}

static void occlude_faces(void *context, int64_t begin, int64_t end)
{
    const struct occlusion *work = context;
    for (int64_t f = begin; f < end; f++) {
        struct face *face = &work->faces->list[f];
        vec3 lift = vec3_scale(face_normal(face->side), 0.02f);
        for (int corner = 0; corner < 4; corner++) {
            vec3 from = vec3_add(face_corner(work->voxels, face, corner), lift);
            float open = 0;
            for (int i = 0; i < RAYS; i++)
                open += ray_open(work, from, work->rays[face->side][i]);
            face->open[corner] = (uint8_t)(255.0f * open / RAYS + 0.5f);
        }
    }
}

void faces_occlude(struct faces *faces, const struct voxels *voxels,
                   const struct grid *grid)
{
    struct occlusion work = {.faces = faces, .voxels = voxels, .grid = grid};
    make_rays(&work);
    parallel_run(faces->count, &work, occlude_faces);
}
