/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/memory.h"
#include "clients/cli/convert.h"

#include <math.h>
#include <string.h>

/* The principal components are of this many channels at most. */
#define COMPONENTS_FROM 64

/* Oklab (Ottosson 2020) to linear sRGB: equal steps in Oklab look equal. */
static vec3 from_oklab(float lightness, float a, float b)
{
    float l = lightness + 0.3963377774f * a + 0.2158037573f * b;
    float m = lightness - 0.1055613458f * a - 0.0638541728f * b;
    float s = lightness - 0.0894841775f * a - 1.2914855480f * b;
    l = l * l * l;
    m = m * m * m;
    s = s * s * s;
    vec3 c = {4.0767416621f * l - 3.3077115913f * m + 0.2309699292f * s,
              -1.2684380046f * l + 2.6097574011f * m - 0.3413193965f * s,
              -0.0041960863f * l - 0.7034186147f * m + 1.7076147010f * s};
    c.x = fminf(fmaxf(c.x, 0), 1);
    c.y = fminf(fmaxf(c.y, 0), 1);
    c.z = fminf(fmaxf(c.z, 0), 1);
    return c;
}

/* From dark violet over teal to pale yellow, with evenly rising lightness. */
static vec3 colour_of_scalar(float t)
{
    t = fminf(fmaxf(t, 0), 1);
    float hue = (300.0f - 205.0f * t) * 0.01745329252f;
    float chroma = 0.11f + 0.05f * sinf(3.14159265f * t);
    return from_oklab(0.33f + 0.57f * t, chroma * cosf(hue), chroma * sinf(hue));
}

/* Each axis has a colour; a normal mixes them by its squared parts, whose sum is 1. */
static vec3 colour_of_normal(vec3 n)
{
    static const float axes[3][3] = {
        {0.66f, 0.105f, 0.060f}, {0.62f, -0.050f, -0.080f}, {0.84f, 0.004f, 0.042f}};
    float w[3] = {n.x * n.x, n.y * n.y, n.z * n.z};
    float mixed[3] = {0, 0, 0};
    for (int axis = 0; axis < 3; axis++)
        for (int k = 0; k < 3; k++) mixed[k] += w[axis] * axes[axis][k];
    return from_oklab(mixed[0], mixed[1], mixed[2]);
}

struct source {
    const struct voxel_tensor *output;
    const int64_t *rows; /* row of the output for each voxel drawn */
    int64_t count;
    int32_t channels;
    int32_t turn;     /* the axes are rotated cyclically by this many places */
    double low, high; /* of the scene */
};

static float source_cell(const struct source *source, int64_t voxel, int32_t channel)
{
    float v =
        convert_cell(source->output, source->rows[voxel] * source->channels + channel);
    return isfinite(v) ? v : 0.0f;
}

static vec3 source_normal(const struct source *source, int64_t voxel)
{
    float n[3];
    for (int32_t k = 0; k < 3; k++)
        n[k] = source_cell(source, voxel, (k + source->turn) % 3);
    return vec3_make(n[0], n[1], n[2]);
}

/* True if at least 95 % of the rows have a length near one. */
static bool is_normals(const struct source *source)
{
    if (source->channels != 3 || source->count == 0) return false;
    int64_t unit = 0;
    for (int64_t i = 0; i < source->count; i++) {
        vec3 n = source_normal(source, i);
        float square = vec3_dot(n, n);
        if (square > 0.8f && square < 1.2f) unit++;
    }
    return unit >= source->count - source->count / 20;
}

static void mean_and_spread(const struct source *source, int32_t channel, double *mean,
                            double *spread)
{
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < source->count; i++) {
        double v = (double)source_cell(source, i, channel);
        sum += v;
        squares += v * v;
    }
    *mean = sum / (double)source->count;
    double variance = squares / (double)source->count - *mean * *mean;
    *spread = variance > 0 ? sqrt(variance) : 1.0;
}

static void colour_scalar(struct voxels *voxels, const struct source *source)
{
    double mean = (source->low + source->high) / 2;
    double spread = (source->high - source->low) / 4;
    /* The colours span two spreads each way, so that an outlier does not make all other
     * voxels the same colour. */
    if (source->low >= source->high) mean_and_spread(source, 0, &mean, &spread);
    for (int64_t i = 0; i < source->count; i++) {
        double t = ((double)source_cell(source, i, 0) - mean) / (4 * spread) + 0.5;
        voxels->colour[i] = colour_of_scalar((float)t);
    }
}

struct components {
    int32_t from; /* channels used */
    double mean[COMPONENTS_FROM];
    double covariance[COMPONENTS_FROM][COMPONENTS_FROM];
    double axis[3][COMPONENTS_FROM];
    double spread[3];
};

static void find_covariance(struct components *c, const struct source *source)
{
    double unused;
    double row[COMPONENTS_FROM];
    for (int32_t a = 0; a < c->from; a++)
        mean_and_spread(source, a, &c->mean[a], &unused);
    for (int64_t i = 0; i < source->count; i++) {
        for (int32_t a = 0; a < c->from; a++)
            row[a] = (double)source_cell(source, i, a) - c->mean[a];
        for (int32_t a = 0; a < c->from; a++)
            for (int32_t b = 0; b <= a; b++) c->covariance[a][b] += row[a] * row[b];
    }
    for (int32_t a = 0; a < c->from; a++)
        for (int32_t b = 0; b <= a; b++) {
            c->covariance[a][b] /= (double)source->count;
            c->covariance[b][a] = c->covariance[a][b];
        }
}

/* The three largest axes by power iteration; each is subtracted before the next. */
static void find_axes(struct components *c)
{
    for (int k = 0; k < 3; k++) {
        double *axis = c->axis[k];
        double length = 0;
        for (int32_t a = 0; a < c->from; a++)
            axis[a] = 1.0 + 0.37 * (double)((a * 7 + k) % 5);
        for (int round = 0; round < 60; round++) {
            double next[COMPONENTS_FROM];
            length = 0;
            for (int32_t a = 0; a < c->from; a++) {
                next[a] = 0;
                for (int32_t b = 0; b < c->from; b++)
                    next[a] += c->covariance[a][b] * axis[b];
                length += next[a] * next[a];
            }
            length = sqrt(length);
            for (int32_t a = 0; a < c->from; a++)
                axis[a] = length > 0 ? next[a] / length : 0.0;
        }
        c->spread[k] = length > 0 ? sqrt(length) : 1.0;
        for (int32_t a = 0; a < c->from; a++)
            for (int32_t b = 0; b < c->from; b++)
                c->covariance[a][b] -= length * axis[a] * axis[b];
    }
}

static bool colour_components(struct voxels *voxels, const struct source *source)
{
    struct components *c = voxel_memory_take(1, sizeof *c);
    if (!c) return false;
    c->from = source->channels < COMPONENTS_FROM ? source->channels : COMPONENTS_FROM;
    find_covariance(c, source);
    find_axes(c);
    for (int64_t i = 0; i < source->count; i++) {
        float t[3];
        for (int k = 0; k < 3; k++) {
            double dot = 0;
            for (int32_t a = 0; a < c->from; a++)
                dot += ((double)source_cell(source, i, a) - c->mean[a]) * c->axis[k][a];
            double s = dot / (2.2 * c->spread[k]);
            t[k] = (float)(s / (1 + fabs(s))); /* -1..1, also for an outlier */
        }
        voxels->colour[i] = from_oklab(0.68f + 0.30f * t[0], 0.26f * t[1], 0.26f * t[2]);
    }
    voxel_memory_give(c);
    return true;
}

bool colour_voxels(struct voxels *voxels, const struct render_scene *scene,
                   const int64_t *rows, const struct render_view *view)
{
    voxels->colour = voxel_memory_take((size_t)voxels->count, sizeof *voxels->colour);
    if (!voxels->colour) return false;
    struct source source = {.output = scene->output,
                            .rows = rows,
                            .count = voxels->count,
                            .low = scene->low,
                            .high = scene->high};
    source.turn = view->up == 'x' ? 1 : view->up == 'y' ? 2 : 0;
    if (!scene->output) {
        for (int64_t i = 0; i < voxels->count; i++)
            voxels->colour[i] = vec3_make(0.62f, 0.55f, 0.47f);
        return true;
    }
    source.channels = 1;
    for (int32_t i = 1; i < scene->output->rank; i++)
        source.channels *= (int32_t)scene->output->shape[i];
    if (is_normals(&source)) {
        voxels->normal = voxel_memory_take((size_t)voxels->count, sizeof *voxels->normal);
        if (!voxels->normal) return false;
        for (int64_t i = 0; i < voxels->count; i++) {
            voxels->normal[i] = vec3_unit(source_normal(&source, i));
            voxels->colour[i] = colour_of_normal(voxels->normal[i]);
        }
        return true;
    }
    if (source.channels >= 3) return colour_components(voxels, &source);
    colour_scalar(voxels, &source);
    return true;
}
