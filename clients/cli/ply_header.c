/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/ply.h"

#include "clients/c/error.h"
#include "clients/c/infer_wire.h"
#include "clients/cli/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 1024

static const struct ply_type types[] = {
    {"char", "int8", 1, 'i'},     {"uchar", "uint8", 1, 'u'},
    {"short", "int16", 2, 'i'},   {"ushort", "uint16", 2, 'u'},
    {"int", "int32", 4, 'i'},     {"uint", "uint32", 4, 'u'},
    {"float", "float32", 4, 'f'}, {"double", "float64", 8, 'f'},
};

static enum voxel_code bad_line(struct voxel_error *error, const char *line,
                                const char *why)
{
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "header line '%.80s': %s", line,
                           why);
}

/* The next header line without its line end; false if there is none or it is too long. */
static bool next_line(struct ply *ply, char line[LINE_BYTES_MAX])
{
    size_t room = (size_t)(ply->end - ply->at);
    const uint8_t *end = room ? memchr(ply->at, '\n', room) : NULL;
    if (!end || end - ply->at >= LINE_BYTES_MAX) return false;
    size_t bytes = (size_t)(end - ply->at);
    memcpy(line, ply->at, bytes);
    if (bytes && line[bytes - 1] == '\r') bytes--;
    line[bytes] = '\0';
    ply->at = end + 1;
    return true;
}

static const struct ply_type *type_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0 || strcmp(types[i].other, name) == 0)
            return &types[i];
    return NULL;
}

static enum voxel_code header_element(struct ply *ply, char *save, const char *line,
                                      struct voxel_error *error)
{
    const char *name = strtok_r(NULL, " \t", &save);
    const char *number = strtok_r(NULL, " \t", &save);
    char *end = NULL;
    long long count = number ? strtoll(number, &end, 10) : -1;
    if (!name || !end || *end || count < 0)
        return bad_line(error, line, "expected 'element NAME COUNT'");
    if (ply->elements_count == PLY_ELEMENTS_MAX)
        return bad_line(error, line, "more than 16 elements are not read");
    struct ply_element *element = &ply->elements[ply->elements_count++];
    element->vertex = strcmp(name, "vertex") == 0;
    element->count = count;
    if (element->vertex && count > POINTS_MAX)
        return bad_line(error, line, "more than 268435456 points are not read");
    return VOXEL_OK;
}

static enum voxel_code header_property(struct ply *ply, char *save, const char *line,
                                       struct voxel_error *error)
{
    if (ply->elements_count == 0)
        return bad_line(error, line, "it comes before any element");
    struct ply_element *element = &ply->elements[ply->elements_count - 1];
    if (element->properties_count == PLY_PROPERTIES_MAX)
        return bad_line(error, line, "more than 128 properties are not read");
    struct ply_property property = {.axis = -1};
    const char *word = strtok_r(NULL, " \t", &save);
    if (word && strcmp(word, "list") == 0) {
        property.count = type_of(strtok_r(NULL, " \t", &save));
        if (!property.count || property.count->kind == 'f')
            return bad_line(error, line, "a list's count must be of an integer type");
        word = strtok_r(NULL, " \t", &save);
    }
    property.type = type_of(word);
    const char *name = strtok_r(NULL, " \t", &save);
    if (!property.type || !name)
        return bad_line(error, line,
                        "expected 'property TYPE NAME' with a type of PLY 1.0");
    size_t bytes = strlen(name) + 1;
    if (bytes > PLY_NAME_BYTES)
        return bad_line(error, line, "a property's name must be shorter than 48 bytes");
    memcpy(property.name, name, bytes);
    for (int32_t p = 0; p < element->properties_count && element->vertex; p++)
        if (strcmp(element->properties[p].name, name) == 0)
            return bad_line(error, line,
                            "the vertex has a property of that name already");
    if (element->vertex && !property.count && strlen(name) == 1 && *name >= 'x' &&
        *name <= 'z')
        property.axis = *name - 'x';
    property.sample = element->vertex && !property.count && strcmp(name, "sample") == 0;
    element->properties[element->properties_count++] = property;
    return VOXEL_OK;
}

static enum voxel_code header_format(struct ply *ply, char *save, const char *line,
                                     struct voxel_error *error)
{
    const char *name = strtok_r(NULL, " \t", &save);
    ply->ascii = name && strcmp(name, "ascii") == 0;
    ply->swapped = name && strcmp(name, "binary_big_endian") == 0;
    if (!ply->ascii && !ply->swapped &&
        !(name && strcmp(name, "binary_little_endian") == 0))
        return bad_line(error, line,
                        "expected ascii, binary_little_endian or binary_big_endian");
    const char *version = strtok_r(NULL, " \t", &save);
    if (!version || strcmp(version, "1.0") == 0) return VOXEL_OK;
    return bad_line(error, line, "expected the version 1.0 of the format");
}

static bool read_size(const char *word, double *size)
{
    const char *end = number_read(word, size);
    return end && !*end && number_is_size(*size);
}

static enum voxel_code comment_size(struct ply *ply, char *save, const char *line,
                                    struct voxel_error *error)
{
    double size[3];
    int count = 0;
    bool good = true;
    for (char *word; (word = strtok_r(NULL, " \t", &save)); count++)
        good = good && count < 3 && read_size(word, &size[count]);
    if (!good || (count != 1 && count != 3))
        return bad_line(
            error, line,
            "expected 'comment voxel_size SIZE', one number above 0, or three "
            "for x, y and z");
    for (int k = count; k < 3; k++) size[k] = size[0];
    if (ply->voxel_size[0] > 0 && memcmp(ply->voxel_size, size, sizeof size) != 0)
        return bad_line(error, line, "an earlier comment has another voxel_size");
    memcpy(ply->voxel_size, size, sizeof size);
    ply->cubes = count == 1;
    return VOXEL_OK;
}

/* A comment of other words is anybody's. */
static void comment_stride(struct ply *ply, char *save)
{
    double stride[3];
    const char *text = strtok_r(NULL, " \t", &save);
    if (!text || !voxel_stride_read(text, stride)) return;
    if (stride[0] == stride[1] && stride[1] == stride[2]) return;
    snprintf(ply->stride, sizeof ply->stride, "%s", text);
}

static enum voxel_code header_comment(struct ply *ply, char *save, const char *line,
                                      struct voxel_error *error)
{
    const char *word = strtok_r(NULL, " \t", &save);
    if (!word) return VOXEL_OK;
    if (strcmp(word, "voxel_size") == 0) return comment_size(ply, save, line, error);
    if (strcmp(word, "stride") == 0) comment_stride(ply, save);
    return VOXEL_OK;
}

/* Before its sizes were three, such a file had the size of other voxels than its own. */
static enum voxel_code header_end(const struct ply *ply, struct voxel_error *error)
{
    if (!*ply->stride || !ply->cubes) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "voxels of 'comment stride %s' are no cubes, and 'comment "
                           "voxel_size %g' is one number: expected the three sizes of "
                           "these voxels, 'comment voxel_size X Y Z'",
                           ply->stride, ply->voxel_size[0]);
}

enum voxel_code ply_header(struct ply *ply, struct voxel_error *error)
{
    char line[LINE_BYTES_MAX];
    char copy[LINE_BYTES_MAX];
    bool format = false;
    if (!next_line(ply, line) || strcmp(line, "ply") != 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "this is not a .ply: its first line is not 'ply'");
    while (next_line(ply, line)) {
        enum voxel_code code = VOXEL_OK;
        char *save = NULL;
        memcpy(copy, line, sizeof copy);
        const char *word = strtok_r(copy, " \t", &save);
        if (!word || strcmp(word, "obj_info") == 0) continue;
        if (strcmp(word, "end_header") == 0) {
            if (format) return header_end(ply, error);
            return bad_line(error, line, "there is no format line before it");
        }
        if (strcmp(word, "format") == 0) {
            code = header_format(ply, save, line, error);
            format = true;
        } else if (strcmp(word, "comment") == 0) {
            code = header_comment(ply, save, line, error);
        } else if (strcmp(word, "element") == 0) {
            code = header_element(ply, save, line, error);
        } else if (strcmp(word, "property") == 0) {
            code = header_property(ply, save, line, error);
        } else {
            return bad_line(error, line, "expected format, comment, element or property");
        }
        if (code) return code;
    }
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "the .ply header has no end");
}
