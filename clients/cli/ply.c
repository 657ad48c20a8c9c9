/* ply - reads points from a .ply: x, y, z and `sample` of the element `vertex`, of any
 * numeric type, and the properties that the user asks for as features.  The names of all
 * other properties go into `unused`.  One whose name means samples is refused, as in a
 * .npz: voxels of different samples would be neighbours.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/ply.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/convert.h"
#include "clients/cli/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool read_binary(struct ply *ply, const struct ply_type *type, double *value)
{
    if (ply->end - ply->at < type->bytes) return false;
    uint64_t bits = 0;
    for (int32_t i = 0; i < type->bytes; i++) {
        int32_t from = ply->swapped ? type->bytes - 1 - i : i;
        bits |= (uint64_t)ply->at[from] << 8 * i;
    }
    int shift = 64 - 8 * type->bytes;
    if (type->kind == 'u') {
        *value = (double)bits;
    } else if (type->kind == 'i') {
        *value = (double)((int64_t)(bits << shift) >> shift);
    } else if (type->bytes == 4) {
        float narrow;
        uint32_t half = (uint32_t)bits;
        memcpy(&narrow, &half, sizeof narrow);
        *value = (double)narrow;
    } else {
        memcpy(value, &bits, sizeof *value);
    }
    ply->at += type->bytes;
    return true;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* True if the type can hold the value; a text file can have others. */
static bool type_holds(const struct ply_type *type, double value)
{
    if (type->kind == 'f') return true;
    double values = ldexp(1, 8 * type->bytes);
    double low = type->kind == 'i' ? -values / 2 : 0;
    return value == floor(value) && value >= low && value < low + values;
}

static bool read_ascii(struct ply *ply, const struct ply_type *type, double *value)
{
    char token[64];
    size_t used = 0;
    while (ply->at < ply->end && is_space(*ply->at)) ply->at++;
    while (ply->at < ply->end && !is_space(*ply->at)) {
        if (used + 1 == sizeof token) return false;
        token[used++] = (char)*ply->at++;
    }
    token[used] = '\0';
    char *end;
    *value = strtod(token, &end);
    return used > 0 && *end == '\0' && type_holds(type, *value);
}

static bool read_value(struct ply *ply, const struct ply_type *type, double *value)
{
    return ply->ascii ? read_ascii(ply, type, value) : read_binary(ply, type, value);
}

/* In a text file a row is a line.  Values that the header does not describe would
 * otherwise be read as the next row's. */
static bool row_ends(struct ply *ply)
{
    if (!ply->ascii) return true;
    while (ply->at < ply->end && is_space(*ply->at) && *ply->at != '\n') ply->at++;
    return ply->at == ply->end || *ply->at == '\n';
}

/* Reads one row of an element.  `values` gets each property's value, of a list the last;
 * it is NULL for an element that is skipped. */
static bool read_row(struct ply *ply, const struct ply_element *element, double *values)
{
    for (int32_t p = 0; p < element->properties_count; p++) {
        const struct ply_property *property = &element->properties[p];
        double value = 0;
        double count = 1;
        if (property->count && !read_value(ply, property->count, &count)) return false;
        if (!(count >= 0)) return false;
        for (double i = 0; i < count; i++)
            if (!read_value(ply, property->type, &value)) return false;
        if (values) values[p] = value;
    }
    return row_ends(ply);
}

/* Which properties of a vertex are read, and for what. */
struct vertex_plan {
    const struct ply_element *element;
    int32_t axes[3];
    int32_t sample; /* -1 = there is none */
    int32_t feats_count;
    int32_t feats[PLY_PROPERTIES_MAX];
    double scales[PLY_PROPERTIES_MAX];
};

static enum voxel_code plan_vertex(const struct ply_element *element,
                                   struct vertex_plan *plan, struct points *points,
                                   struct voxel_error *error)
{
    *plan = (struct vertex_plan){element, .axes = {-1, -1, -1}, .sample = -1};
    points->whole = true;
    for (int32_t p = 0; p < element->properties_count; p++) {
        const struct ply_property *property = &element->properties[p];
        if (property->axis >= 0) {
            plan->axes[property->axis] = p;
            if (property->type->kind == 'f') points->whole = false;
        } else if (property->sample) {
            plan->sample = p;
        } else if (!property->count) {
            offers_add(points->offers, property->name, strlen(property->name));
        }
    }
    if (plan->axes[0] < 0 || plan->axes[1] < 0 || plan->axes[2] < 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the element vertex needs the properties x, y and z");
    return VOXEL_OK;
}

/* The property of that name that is a number, not a list; -1 if there is none. */
static int32_t find_property(const struct ply_element *element, const char *name,
                             size_t bytes)
{
    for (int32_t p = 0; p < element->properties_count; p++) {
        const struct ply_property *property = &element->properties[p];
        if (!property->count && strlen(property->name) == bytes &&
            memcmp(property->name, name, bytes) == 0)
            return p;
    }
    return -1;
}

/* Names in a .ply have no blanks, so blanks around a name belong to the user's list. */
static size_t trim_blanks(const char **name, size_t bytes)
{
    while (bytes && **name == ' ') {
        ++*name;
        bytes--;
    }
    while (bytes && (*name)[bytes - 1] == ' ') bytes--;
    return bytes;
}

static enum voxel_code plan_feats(const struct ply_element *element,
                                  const struct feats_asked *asked,
                                  struct vertex_plan *plan, struct points *points,
                                  struct voxel_error *error)
{
    for (const char *name = asked->names; name;) {
        const char *next = strchr(name, ',');
        size_t bytes = trim_blanks(&name, next ? (size_t)(next - name) : strlen(name));
        int32_t p = find_property(element, name, bytes);
        if (p < 0)
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "the .ply has no numeric property '%.*s' of the vertex; "
                "besides x, y, z it has: %s",
                (int)bytes, name, *points->offers ? points->offers : "nothing");
        if (plan->feats_count == PLY_PROPERTIES_MAX)
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "more than %d feats of a .ply are not read",
                                   PLY_PROPERTIES_MAX);
        const struct ply_property *property = &element->properties[p];
        const struct ply_type *type = property->type;
        if (!asked->raw && type->kind == 'u' && type->bytes == 2)
            return feats_refuse_16(
                &(struct feats_named){"property", property->name, type->name}, error);
        bool scaled = !asked->raw && type->kind == 'u' && type->bytes == 1;
        plan->scales[plan->feats_count] = scaled ? 255 : 1;
        plan->feats[plan->feats_count++] = p;
        points->scaled |= scaled;
        name = next ? next + 1 : NULL;
    }
    points->channels = plan->feats_count;
    return VOXEL_OK;
}

static bool is_planned(const struct vertex_plan *plan, int32_t property)
{
    for (int32_t c = 0; c < plan->feats_count; c++)
        if (plan->feats[c] == property) return true;
    return property == plan->sample;
}

/* Collects the names of the properties that are not used.  Refuses one that seems to hold
 * samples: without them voxels would get wrong neighbours. */
static enum voxel_code plan_rest(const struct ply_element *element,
                                 const struct feats_asked *asked,
                                 const struct vertex_plan *plan, struct points *points,
                                 struct voxel_error *error)
{
    struct samples_names names = {0};
    const char *split = NULL;
    for (int32_t p = 0; p < element->properties_count; p++) {
        const struct ply_property *property = &element->properties[p];
        if (property->axis >= 0 || is_planned(plan, p)) continue;
        samples_see(&names, property->name, strlen(property->name));
        if (!split && samples_split(property->name, strlen(property->name)))
            split = property->name;
        if (!property->count)
            offers_add(points->unused, property->name, strlen(property->name));
    }
    if (asked->one_sample && plan->sample >= 0)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "--one-sample: the vertex has a property sample; expected none");
    const char *misnamed = samples_misnamed(&names);
    if (!misnamed) misnamed = split;
    if (!misnamed || plan->sample >= 0 || asked->one_sample) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "the property '%s' would be ignored, but may hold samples: name it 'sample' (one "
        "number per vertex), use it with --feats, or set --one-sample if all vertices "
        "are one sample",
        misnamed);
}

static bool take_points(struct points *points, const struct vertex_plan *plan,
                        size_t count)
{
    size_t channels = (size_t)plan->feats_count;
    points->xyz = voxel_memory_take(count, 3 * sizeof *points->xyz);
    if (plan->sample >= 0)
        points->sample = voxel_memory_take(count, sizeof *points->sample);
    if (channels)
        points->feats = voxel_memory_take(count, channels * sizeof *points->feats);
    return points->xyz && (plan->sample < 0 || points->sample) &&
           (!channels || points->feats);
}

/* Stores row i of the file in the points. */
static enum voxel_code put_vertex(struct points *points, const struct vertex_plan *plan,
                                  int64_t i, const double *values,
                                  struct voxel_error *error)
{
    char text[CONVERT_TEXT_BYTES];
    for (int k = 0; k < 3; k++) points->xyz[3 * i + k] = values[plan->axes[k]];
    for (int32_t c = 0; c < plan->feats_count; c++) {
        const struct convert_cell cell = {i, c, values[plan->feats[c]] / plan->scales[c]};
        if (convert_overflows(cell.value, VOXEL_FP32))
            return convert_refuse(&cell, VOXEL_FP32, error);
        const struct ply_property *from = &plan->element->properties[plan->feats[c]];
        if (from->type->kind != 'f' && convert_check_whole(from->name, &cell, error))
            return VOXEL_INVALID_ARGUMENT;
        points->feats[i * plan->feats_count + c] = (float)cell.value;
    }
    if (plan->sample < 0 || samples_take(values[plan->sample], &points->sample[i]))
        return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "vertex %lld: the property sample must be a whole number from 0 to "
        "%d, not %s",
        (long long)i, SAMPLE_MAX, convert_text(values[plan->sample], text));
}

static enum voxel_code read_vertices(struct ply *ply, const struct ply_element *element,
                                     const struct feats_asked *asked,
                                     struct points *points, struct voxel_error *error)
{
    struct vertex_plan plan;
    double values[PLY_PROPERTIES_MAX];
    enum voxel_code code = plan_vertex(element, &plan, points, error);
    if (!code) code = plan_feats(element, asked, &plan, points, error);
    if (!code) code = plan_rest(element, asked, &plan, points, error);
    if (code) return code;
    /* A row takes at least 3 bytes, so a count beyond the file's size cannot be true. */
    if (element->count > (ply->end - ply->at))
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "the header has %lld vertices, but only %lld bytes follow it",
            (long long)element->count, (long long)(ply->end - ply->at));
    if (!take_points(points, &plan, (size_t)element->count))
        return voxel_error_memory(error, "points", (size_t)element->count * 24);
    for (int64_t i = 0; i < element->count; i++) {
        if (!read_row(ply, element, values))
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "vertex %lld of %lld is incomplete, has more values than "
                "properties, or has a value that does not fit its type",
                (long long)i, (long long)element->count);
        code = put_vertex(points, &plan, i, values, error);
        if (code) return code;
    }
    points->count = element->count;
    return VOXEL_OK;
}

/* If vertex is the last element, only blanks may follow.  More bytes mean that the header
 * lacks a property, and that the points are wrong. */
static enum voxel_code body_ends(struct ply *ply, struct voxel_error *error)
{
    while (ply->at < ply->end && is_space(*ply->at)) ply->at++;
    if (ply->at == ply->end) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "%lld bytes follow the last vertex: expected none, as the header "
        "has no element after it",
        (long long)(ply->end - ply->at));
}

static enum voxel_code read_body(struct ply *ply, const struct feats_asked *asked,
                                 struct points *points, struct voxel_error *error)
{
    for (int32_t e = 0; e < ply->elements_count; e++) {
        const struct ply_element *element = &ply->elements[e];
        if (element->vertex) {
            enum voxel_code code = read_vertices(ply, element, asked, points, error);
            return code || e + 1 < ply->elements_count ? code : body_ends(ply, error);
        }
        for (int64_t i = 0; i < element->count && element->properties_count > 0; i++)
            if (!read_row(ply, element, NULL))
                return voxel_error_set(
                    error, VOXEL_INVALID_ARGUMENT,
                    "row %lld of an element before vertex is incomplete", (long long)i);
    }
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "the .ply has no element vertex");
}

enum voxel_code points_read_ply(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error)
{
    memset(points, 0, sizeof *points);
    struct ply *ply = voxel_memory_take(1, sizeof *ply);
    if (!ply) return voxel_error_memory(error, "a .ply header", sizeof *ply);
    ply->at = file.data;
    ply->end = file.data + file.size;
    enum voxel_code code = ply_header(ply, error);
    if (!code) code = read_body(ply, asked, points, error);
    points->named = true;
    memcpy(points->voxel_size, ply->voxel_size, sizeof points->voxel_size);
    voxel_memory_give(ply);
    if (code) points_fini(points);
    return code;
}
