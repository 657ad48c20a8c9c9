/* render_parts - the parts of the renderer, for its own files only.
 *
 * The scene is turned so that z is up, and moved so that its lowest corner is the origin;
 * all positions are then in voxels.
 *
 *   grid (occupied cells) -> faces -> occlusion -> camera, sun: raster -> shade -> png
 *
 * Owner    render.c owns one struct render per picture.
 * Thread   each part is made, then only read; raster and shade split their work by rows.
 * Limits   render.h.
 * Fails    the _init functions and colour_voxels return false without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_RENDER_PARTS_H
#define VOXEL_CLIENTS_CLI_RENDER_PARTS_H

#include "clients/cli/render/render.h"

/* Samples per pixel along each side: the screen is so many times larger than the picture. */
#define RENDER_SAMPLES 2

typedef struct vec3 {
    float x, y, z;
} vec3;

static inline vec3 vec3_make(float x, float y, float z)
{
    return (vec3){x, y, z};
}
static inline vec3 vec3_add(vec3 a, vec3 b)
{
    return (vec3){a.x + b.x, a.y + b.y, a.z + b.z};
}
static inline vec3 vec3_sub(vec3 a, vec3 b)
{
    return (vec3){a.x - b.x, a.y - b.y, a.z - b.z};
}
static inline vec3 vec3_scale(vec3 a, float s)
{
    return (vec3){a.x * s, a.y * s, a.z * s};
}
static inline vec3 vec3_multiply(vec3 a, vec3 b)
{
    return (vec3){a.x * b.x, a.y * b.y, a.z * b.z};
}
static inline vec3 vec3_mix(vec3 a, vec3 b, float t)
{
    return vec3_add(vec3_scale(a, 1.0f - t), vec3_scale(b, t));
}
static inline float vec3_dot(vec3 a, vec3 b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}
static inline vec3 vec3_cross(vec3 a, vec3 b)
{
    return (vec3){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
vec3 vec3_unit(vec3 a);

/* The set of voxels: a hash table of bricks of 8 x 8 x 8 bits. */
struct grid {
    uint64_t *keys; /* brick key + 1, 0 = free */
    uint64_t (*bits)[8];
    uint64_t mask;
};
bool grid_init(struct grid *grid, const int32_t *voxels, int64_t count);
void grid_fini(struct grid *grid);
bool grid_has(const struct grid *grid, int32_t x, int32_t y, int32_t z);

/* The scene as drawn. */
struct voxels {
    int64_t count;
    int32_t *at;  /* [count, 3] */
    vec3 *colour; /* albedo, linear light */
    vec3 *normal; /* unit, either sign; NULL = those of the faces */
    int32_t size[3];
};

/* A visible face of a voxel: side 0..5 is -x +x -y +y -z +z. */
struct face {
    int32_t voxel;
    int32_t side;
    uint8_t open[4]; /* how much sky each corner sees, 0..255; indexed as face_corner */
};
struct faces {
    struct face *list;
    int64_t count;
};
vec3 face_normal(int32_t side);
/* Corner 0..3 of a face: bit 0 along its first axis, bit 1 along its second. */
vec3 face_corner(const struct voxels *voxels, const struct face *face, int corner);
/* Lists the faces that are next to empty space. */
bool faces_init(struct faces *faces, const struct voxels *voxels,
                const struct grid *grid);
void faces_fini(struct faces *faces);
/* Fills `open` of all faces. */
void faces_occlude(struct faces *faces, const struct voxels *voxels,
                   const struct grid *grid);

/* Maps points to pixels and pixels to rays.  In perspective all rays begin at the eye,
 * and the ray of pixel (px, py) has the direction
 *   forward + right * (px - cx) / focal - up * (py - cy) / focal
 * In parallel projection the last two terms move the ray's origin instead, and its
 * direction is forward. */
struct camera {
    vec3 eye, right, up, forward;
    float focal; /* pixels per unit at distance one; parallel: pixels per unit */
    float cx, cy;
    int32_t width, height;
    bool parallel;
};
/* x and y in pixels; z is a depth that grows with the distance: -1 / distance, or in
 * parallel projection the distance. */
vec3 camera_project(const struct camera *camera, vec3 p);
/* True if the face looks towards the camera. */
bool camera_sees(const struct camera *camera, const struct voxels *voxels,
                 const struct face *face);
void camera_ray(const struct camera *camera, float px, float py, vec3 *origin,
                vec3 *direction);
/* Places a camera that looks along `forward` so that the voxels fill the picture. */
void camera_fit(struct camera *camera, const struct voxels *voxels,
                const struct render_view *view, vec3 forward);

/* The nearest face of each pixel, and its depth. */
struct raster {
    int32_t width, height;
    float *depth;
    int32_t *face; /* its index, -1 = none; NULL for a map of depths alone */
};
bool raster_init(struct raster *raster, int32_t width, int32_t height, bool faces);
void raster_fini(struct raster *raster);
void raster_draw(struct raster *raster, const struct camera *camera,
                 const struct voxels *voxels, const struct faces *faces);

/* How much the voxels darken the floor under and around them. */
struct floor_map {
    float *open; /* [height, width], 0..1; 1 = not darkened */
    int32_t width, height;
    int32_t x0, y0; /* voxel of its first cell */
    int32_t cell;   /* voxels per cell */
};
bool floor_init(struct floor_map *map, const struct voxels *voxels);
void floor_fini(struct floor_map *map);
float floor_open(const struct floor_map *map, float x, float y);

struct render {
    struct voxels voxels;
    struct grid grid;
    struct faces faces;
    struct camera camera, sun;
    struct raster screen, shadow;
    struct floor_map floor;
    vec3 to_sun;
    uint8_t *pixels; /* [height, width, 3] */
    int32_t width, height;
};

/* Sets the voxels' colours and normals from the output; voxel i has the row rows[i]. */
bool colour_voxels(struct voxels *voxels, const struct render_scene *scene,
                   const int64_t *rows, const struct render_view *view);
/* Computes all pixels of the picture, from the drawn screen and shadow map. */
void shade_rows(struct render *render);

/* Runs work(context, begin, end) over 0..count on all cores, in pieces. */
void parallel_run(int64_t count, void *context,
                  void (*work)(void *context, int64_t begin, int64_t end));

#endif
