/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include <math.h>

/* How often a sample reads the shadow map, and the radius in voxels of the disc on which
 * it does: the penumbra. */
#define SHADOW_TAPS 10
#define SHADOW_WIDE 1.3f
/* A point is lifted this far (in voxels) off its surface, so that the surface does not
 * shadow itself. */
#define SHADOW_LIFT 0.75f

static const vec3 sun_light = {2.35f, 2.20f, 1.95f};
static const vec3 sky_light = {0.92f, 0.98f, 1.10f};
static const vec3 floor_light = {0.62f, 0.58f, 0.54f};
static const vec3 backdrop_middle = {0.90f, 0.91f, 0.92f};
static const vec3 backdrop_edge = {0.56f, 0.60f, 0.66f};

/* A well-mixed number in 0..1 for each pixel.  It turns the shadow disc, so that grain
 * replaces bands. */
static float grain(int64_t x, int64_t y)
{
    uint32_t h = (uint32_t)x * 0x9e3779b1u ^ (uint32_t)y * 0x85ebca77u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    return (float)(h >> 8) / 16777216.0f;
}

/* Places on a disc of radius one, evenly spread (golden angle): x, y, and the distance
 * from the middle. */
static const float disc[SHADOW_TAPS][3] = {
    {0.2236f, 0.0000f, 0.2236f},   {-0.2856f, 0.2616f, 0.3873f},
    {0.0437f, -0.4981f, 0.5000f},  {0.3600f, 0.4695f, 0.5916f},
    {-0.6606f, -0.1168f, 0.6708f}, {0.6257f, -0.3980f, 0.7416f},
    {-0.2093f, 0.7786f, 0.8062f},  {-0.3992f, -0.7686f, 0.8660f},
    {0.8660f, 0.3163f, 0.9220f},   {-0.9009f, 0.3719f, 0.9747f},
};

/* The part of the sun that p sees, 0..1. */
static float sun_seen(const struct render *render, vec3 p, float turn)
{
    const struct raster *map = &render->shadow;
    vec3 at = camera_project(&render->sun, p);
    float wide = SHADOW_WIDE * render->sun.focal;
    float seen = 0;
    float c = wide * cosf(turn * 6.2831853f);
    float s = wide * sinf(turn * 6.2831853f);
    for (int i = 0; i < SHADOW_TAPS; i++) {
        const float *tap = disc[i];
        float x = at.x + c * tap[0] - s * tap[1];
        float y = at.y + s * tap[0] + c * tap[1];
        if (!(x >= 0 && y >= 0 && x < (float)map->width && y < (float)map->height)) {
            seen += 1;
            continue;
        }
        float depth = map->depth[(int64_t)y * map->width + (int64_t)x];
        /* Depths are in voxels (parallel projection).  A surface may slope, so the
         * tolerance grows with the tap's distance from the middle. */
        if (at.z <= depth + 0.5f + 0.6f * SHADOW_WIDE * tap[2]) seen += 1;
    }
    return seen / SHADOW_TAPS;
}

/* The backdrop: lightest in the middle of the picture. */
static vec3 backdrop(const struct render *render, float px, float py)
{
    float x = px / (float)render->camera.width - 0.5f;
    float y = py / (float)render->camera.height - 0.45f;
    float t = (x * x * 1.1f + y * y * 1.3f) * 1.7f;
    t = t / (1 + t * 0.6f);
    return vec3_mix(backdrop_middle, backdrop_edge, fminf(t * 1.5f, 1));
}

static vec3 shade_floor(const struct render *render, float px, float py, float turn)
{
    vec3 base = backdrop(render, px, py);
    vec3 origin, ray;
    camera_ray(&render->camera, px, py, &origin, &ray);
    if (!(ray.z < -1e-4f) || render->camera.forward.z > -0.02f) return base;
    vec3 p = vec3_add(origin, vec3_scale(ray, -origin.z / ray.z));
    float light = floor_open(&render->floor, p.x, p.y);
    light *= 0.58f + 0.42f * sun_seen(render, p, turn);
    return vec3_scale(base, light);
}

/* The point of the face that the pixel shows; uv is its place along both axes. */
static vec3 face_hit(const struct render *render, const struct face *face,
                     const float pixel[2], float uv[2])
{
    vec3 origin, ray;
    camera_ray(&render->camera, pixel[0], pixel[1], &origin, &ray);
    vec3 corner = face_corner(&render->voxels, face, 0);
    vec3 normal = face_normal(face->side);
    float t = vec3_dot(vec3_sub(corner, origin), normal) / vec3_dot(ray, normal);
    vec3 p = vec3_add(origin, vec3_scale(ray, t));
    vec3 d = vec3_sub(p, corner);
    float parts[3] = {d.x, d.y, d.z};
    int axis = face->side / 2;
    uv[0] = fminf(fmaxf(parts[(axis + 1) % 3], 0), 1);
    uv[1] = fminf(fmaxf(parts[(axis + 2) % 3], 0), 1);
    return p;
}

static float open_at(const struct face *face, const float uv[2])
{
    float low = (float)face->open[0] * (1 - uv[0]) + (float)face->open[1] * uv[0];
    float high = (float)face->open[2] * (1 - uv[0]) + (float)face->open[3] * uv[0];
    return (low * (1 - uv[1]) + high * uv[1]) / 255.0f;
}

/* Darkens the edges of a cube, if the cube is large enough on the screen. */
static float edge_shade(const struct render *render, vec3 p, const float uv[2])
{
    const struct camera *camera = &render->camera;
    float z =
        camera->parallel ? 1.0f : vec3_dot(vec3_sub(p, camera->eye), camera->forward);
    float pixels = camera->focal / z;
    float strength = fminf(fmaxf((pixels - 4) / 14, 0), 1) * 0.30f;
    float to_edge = fminf(fminf(uv[0], 1 - uv[0]), fminf(uv[1], 1 - uv[1]));
    float t = fminf(to_edge / 0.10f, 1);
    return 1 - strength * (1 - t * t);
}

static vec3 shade_face(const struct render *render, int32_t index, const float pixel[2],
                       float turn)
{
    const struct face *face = &render->faces.list[index];
    const struct voxels *voxels = &render->voxels;
    float uv[2];
    vec3 p = face_hit(render, face, pixel, uv);
    vec3 out = face_normal(face->side);
    vec3 normal = out;
    vec3 view = render->camera.parallel ? vec3_scale(render->camera.forward, -1)
                                        : vec3_unit(vec3_sub(render->camera.eye, p));
    if (voxels->normal) {
        /* Normals have either sign: take the one that faces the camera. */
        normal = voxels->normal[face->voxel];
        if (vec3_dot(normal, view) < 0) normal = vec3_scale(normal, -1);
        normal = vec3_unit(vec3_add(vec3_scale(normal, 0.72f), vec3_scale(out, 0.28f)));
    }
    float open = open_at(face, uv);
    vec3 lifted = vec3_add(p, vec3_scale(vec3_add(normal, out), SHADOW_LIFT * 0.7f));
    float lambert = fmaxf(vec3_dot(normal, render->to_sun), 0);
    float sun = lambert > 0 ? lambert * sun_seen(render, lifted, turn) : 0;
    vec3 light = vec3_scale(vec3_mix(floor_light, sky_light, 0.5f + 0.5f * normal.z),
                            0.95f * open * (0.35f + 0.65f * open));
    light = vec3_add(light, vec3_scale(sun_light, sun * (0.55f + 0.45f * open)));
    /* A little light from beside the eye keeps shadow sides readable. */
    light = vec3_add(light, vec3_scale(vec3_make(0.16f, 0.16f, 0.17f),
                                       open * fmaxf(vec3_dot(normal, view), 0)));
    vec3 colour = vec3_multiply(voxels->colour[face->voxel], light);
    /* Each cube gets a slightly different shade, so that a wall shows its voxels. */
    float own = 0.955f + 0.09f * grain(face->voxel, 17);
    return vec3_scale(colour, 0.54f * own * edge_shade(render, p, uv));
}

/* Linear light to a byte: compresses highlights, applies the sRGB curve and adds up to
 * one step of grain, so that the backdrop shows no bands. */
static uint8_t to_byte(float linear, float noise)
{
    float v = fmaxf(linear, 0);
    v = v < 0.6f ? v : 0.6f + 0.4f * (1 - expf(-(v - 0.6f) / 0.4f));
    float s = v <= 0.0031308f ? 12.92f * v : 1.055f * powf(v, 1 / 2.4f) - 0.055f;
    float byte = s * 255 + noise;
    return (uint8_t)(byte < 0 ? 0 : byte > 255 ? 255 : byte);
}

static void shade_some(void *context, int64_t begin, int64_t end)
{
    struct render *render = context;
    for (int64_t y = begin; y < end; y++) {
        for (int64_t x = 0; x < render->width; x++) {
            vec3 sum = {0, 0, 0};
            for (int s = 0; s < RENDER_SAMPLES * RENDER_SAMPLES; s++) {
                int64_t sx = x * RENDER_SAMPLES + s % RENDER_SAMPLES;
                int64_t sy = y * RENDER_SAMPLES + s / RENDER_SAMPLES;
                float pixel[2] = {(float)sx + 0.5f, (float)sy + 0.5f};
                float turn = grain(sx, sy);
                int32_t face = render->screen.face[sy * render->screen.width + sx];
                sum = vec3_add(sum, face >= 0
                                        ? shade_face(render, face, pixel, turn)
                                        : shade_floor(render, pixel[0], pixel[1], turn));
            }
            sum = vec3_scale(sum, 1.0f / (RENDER_SAMPLES * RENDER_SAMPLES));
            uint8_t *out = &render->pixels[3 * (y * render->width + x)];
            float noise = grain(x, y + 7919);
            out[0] = to_byte(sum.x, noise);
            out[1] = to_byte(sum.y, noise);
            out[2] = to_byte(sum.z, noise);
        }
    }
}

void shade_rows(struct render *render)
{
    parallel_run(render->height, render, shade_some);
}
