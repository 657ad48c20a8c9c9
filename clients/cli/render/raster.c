/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/memory.h"

#include <float.h>
#include <math.h>

bool raster_init(struct raster *raster, int32_t width, int32_t height, bool faces)
{
    size_t cells = (size_t)width * (size_t)height;
    raster->width = width;
    raster->height = height;
    raster->depth = voxel_memory_take_bytes(cells * sizeof *raster->depth);
    if (faces) raster->face = voxel_memory_take_bytes(cells * sizeof *raster->face);
    if (!raster->depth || (faces && !raster->face)) return false;
    for (size_t i = 0; i < cells; i++) raster->depth[i] = FLT_MAX;
    for (size_t i = 0; faces && i < cells; i++) raster->face[i] = -1;
    return true;
}

void raster_fini(struct raster *raster)
{
    voxel_memory_give(raster->depth);
    voxel_memory_give(raster->face);
    *raster = (struct raster){0};
}

struct draw {
    struct raster *raster;
    const struct camera *camera;
    const struct voxels *voxels;
    const struct faces *faces;
};

/* An edge as the function a x + b y + c, which is positive inside. */
struct edge {
    float a, b, c;
};

static struct edge edge_make(vec3 from, vec3 to, float sign)
{
    struct edge e = {.a = (from.y - to.y) * sign, .b = (to.x - from.x) * sign};
    e.c = -(e.a * from.x + e.b * from.y);
    return e;
}

/* Narrows [*from, *to) of row y to the part where the edge is positive. */
static void edge_clip(const struct edge *e, float y, float *from, float *to)
{
    float rest = e->b * y + e->c;
    if (e->a > 1e-12f) {
        float x = -rest / e->a;
        if (x > *from) *from = x;
    } else if (e->a < -1e-12f) {
        float x = -rest / e->a;
        if (x < *to) *to = x;
    } else if (rest < 0) {
        *to = *from;
    }
}

/* Draws rows begin .. end-1 of a face.  It is a convex quadrangle in a plane, so its
 * depth is a linear function of the pixel. */
static void draw_quad(struct raster *raster, const vec3 p[4], int32_t face, int64_t begin,
                      int64_t end)
{
    float ux = p[1].x - p[0].x, uy = p[1].y - p[0].y, uz = p[1].z - p[0].z;
    float vx = p[2].x - p[0].x, vy = p[2].y - p[0].y, vz = p[2].z - p[0].z;
    float area = ux * vy - uy * vx;
    if (fabsf(area) < 1e-12f) return;
    float dzdx = (uz * vy - vz * uy) / area;
    float dzdy = (vz * ux - uz * vx) / area;
    float sign = area > 0 ? 1.0f : -1.0f;
    const struct edge edges[4] = {
        edge_make(p[0], p[1], sign), edge_make(p[1], p[3], sign),
        edge_make(p[3], p[2], sign), edge_make(p[2], p[0], sign)};
    float low = p[0].y, high = p[0].y;
    for (int i = 1; i < 4; i++) {
        low = p[i].y < low ? p[i].y : low;
        high = p[i].y > high ? p[i].y : high;
    }
    /* Samples are at pixel centres. */
    float first = ceilf(low - 0.5f), last = floorf(high - 0.5f);
    if (!(first < (float)end) || !(last >= (float)begin)) return;
    int64_t y0 = first > (float)begin ? (int64_t)first : begin;
    int64_t y1 = last < (float)(end - 1) ? (int64_t)last : end - 1;
    for (int64_t y = y0; y <= y1; y++) {
        float cy = (float)y + 0.5f;
        float from = 0, to = (float)raster->width;
        for (int i = 0; i < 4; i++) edge_clip(&edges[i], cy, &from, &to);
        if (!(from < to)) continue;
        int32_t x0 = (int32_t)ceilf(from - 0.5f);
        int32_t x1 = (int32_t)ceilf(to - 0.5f);
        if (x1 > raster->width) x1 = raster->width;
        float z = p[0].z + ((float)x0 + 0.5f - p[0].x) * dzdx + (cy - p[0].y) * dzdy;
        int64_t row = y * raster->width;
        for (int32_t x = x0; x < x1; x++, z += dzdx) {
            if (z >= raster->depth[row + x]) continue;
            raster->depth[row + x] = z;
            if (raster->face) raster->face[row + x] = face;
        }
    }
}

static void draw_rows(void *context, int64_t begin, int64_t end)
{
    const struct draw *draw = context;
    for (int64_t f = 0; f < draw->faces->count; f++) {
        const struct face *face = &draw->faces->list[f];
        if (!camera_sees(draw->camera, draw->voxels, face)) continue;
        vec3 p[4];
        for (int i = 0; i < 4; i++)
            p[i] = camera_project(draw->camera, face_corner(draw->voxels, face, i));
        draw_quad(draw->raster, p, (int32_t)f, begin, end);
    }
}

void raster_draw(struct raster *raster, const struct camera *camera,
                 const struct voxels *voxels, const struct faces *faces)
{
    struct draw draw = {raster, camera, voxels, faces};
    parallel_run(raster->height, &draw, draw_rows);
}
