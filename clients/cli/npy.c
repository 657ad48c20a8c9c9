/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/npy.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/convert.h"
#include "clients/cli/samples.h"

#include <stdio.h>
#include <string.h>

/* The header is a Python literal, such as
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } */
struct literal {
    const char *at;
    const char *end;
};

static void literal_space(struct literal *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n')) text->at++;
}

static bool literal_take(struct literal *text, char c)
{
    literal_space(text);
    if (text->at == text->end || *text->at != c) return false;
    text->at++;
    return true;
}

static bool literal_text(struct literal *text, char *out, size_t room)
{
    literal_space(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"')) return false;
    char quote = *text->at++;
    size_t used = 0;
    while (text->at < text->end && *text->at != quote) {
        if (used + 1 >= room) return false;
        out[used++] = *text->at++;
    }
    out[used] = '\0';
    return literal_take(text, quote);
}

static bool literal_word(struct literal *text, const char *word)
{
    literal_space(text);
    size_t length = strlen(word);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
        return false;
    text->at += length;
    return true;
}

static bool literal_number(struct literal *text, int64_t *number)
{
    literal_space(text);
    const char *begin = text->at;
    for (*number = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9';
         text->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, *text->at - '0', number))
            return false;
    literal_take(text, 'L'); /* Python 2 wrote 3L */
    return text->at > begin;
}

static bool literal_shape(struct literal *text, struct npy *array)
{
    if (!literal_take(text, '(')) return false;
    while (!literal_take(text, ')')) {
        if (array->rank == NPY_RANK_MAX ||
            !literal_number(text, &array->shape[array->rank]))
            return false;
        array->rank++;
        if (!literal_take(text, ',')) return literal_take(text, ')');
    }
    return true;
}

/* False if the text is no header. */
static bool parse_header(struct literal *text, struct npy *array, char descr[16])
{
    int found = 0;
    if (!literal_take(text, '{')) return false;
    while (!literal_take(text, '}')) {
        char key[32];
        if (!literal_text(text, key, sizeof key) || !literal_take(text, ':'))
            return false;
        if (strcmp(key, "descr") == 0) {
            if (!literal_text(text, descr, 16)) return false;
            found |= 1;
        } else if (strcmp(key, "fortran_order") == 0) {
            array->fortran = literal_word(text, "True");
            if (!array->fortran && !literal_word(text, "False")) return false;
            found |= 2;
        } else if (strcmp(key, "shape") == 0) {
            if (array->rank || !literal_shape(text, array)) return false;
            found |= 4;
        } else {
            return false;
        }
        if (!literal_take(text, ',') && !(text->at < text->end && *text->at == '}'))
            return false;
    }
    return found == 7;
}

static enum voxel_code parse_descr(struct npy *array, const char *descr,
                                   struct voxel_error *error)
{
    char order = descr[0];
    char kind = order ? descr[1] : '\0';
    int size =
        kind && descr[2] >= '1' && descr[2] <= '8' && !descr[3] ? descr[2] - '0' : 0;
    bool known = (kind == 'f' && (size == 2 || size == 4 || size == 8)) ||
                 ((kind == 'i' || kind == 'u') &&
                  (size == 1 || size == 2 || size == 4 || size == 8)) ||
                 (kind == 'b' && size == 1);
    if (!known || (order != '<' && !(order == '|' && size == 1)))
        return voxel_error_set(
            error, VOXEL_UNIMPLEMENTED,
            "the array's type is '%s'; expected little-endian integers or "
            "floats, such as '<i4' or '<f4'",
            descr);
    array->kind = kind;
    array->size = size;
    return VOXEL_OK;
}

/* Reads the header; *data is the offset of the array's data. */
static enum voxel_code read_header(struct bytes file, struct npy *array, char descr[16],
                                   size_t *data, struct voxel_error *error)
{
    memset(array, 0, sizeof *array);
    if (file.size < 10 || memcmp(file.data, "\x93NUMPY", 6) != 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "this is not a .npy array");
    unsigned version = file.data[6];
    size_t begin = version == 1 ? 10 : 12;
    if (version < 1 || version > 3 || file.size < begin)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the .npy version is %u; expected 1, 2 or 3", version);
    size_t header = (size_t)file.data[8] | (size_t)file.data[9] << 8;
    if (version > 1) header |= (size_t)file.data[10] << 16 | (size_t)file.data[11] << 24;
    if (header > file.size - begin)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "the .npy header has %zu bytes, but the file ends before that", header);
    const char *first = (const char *)file.data + begin;
    struct literal text = {first, first + header};
    *data = begin + header;
    if (parse_header(&text, array, descr)) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "the .npy header is damaged, or describes a structured array");
}

bool npy_describe(struct bytes head, struct npy *array)
{
    char descr[16] = "";
    size_t data;
    if (read_header(head, array, descr, &data, NULL)) return false;
    array->kind = *descr ? descr[1] : '\0';
    return array->kind != '\0';
}

enum voxel_code npy_parse(struct bytes file, struct npy *array, struct voxel_error *error)
{
    char descr[16] = "";
    size_t data;
    enum voxel_code code = read_header(file, array, descr, &data, error);
    if (!code) code = parse_descr(array, descr, error);
    if (code) return code;
    size_t bytes = (size_t)array->size;
    bool fits = true;
    for (int32_t i = 0; i < array->rank && fits; i++)
        fits = !__builtin_mul_overflow(bytes, (size_t)array->shape[i], &bytes);
    if (!fits || bytes > file.size - data)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the array's shape needs %zu bytes, but the file has %zu",
                               fits ? bytes : SIZE_MAX, file.size - data);
    array->data = file.data + data;
    return VOXEL_OK;
}

double npy_cell(const struct npy *array, int64_t row, int64_t column)
{
    int64_t index =
        array->fortran ? column * array->shape[0] + row : row * array->shape[1] + column;
    const uint8_t *at = array->data + index * array->size;
    uint64_t bits = 0;
    memcpy(&bits, at, (size_t)array->size);
    int shift = 64 - 8 * array->size;
    if (array->kind == 'u' || array->kind == 'b') return (double)bits;
    if (array->kind == 'i') return (double)((int64_t)(bits << shift) >> shift);
    if (array->size == 2) return (double)convert_from_half((uint16_t)bits);
    if (array->size == 4) {
        float value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Room for the brackets and every size with its comma. */
#define SHAPE_BYTES (NPY_RANK_MAX * 20 + 3)

static const char *shape_text(const struct npy *array, char text[SHAPE_BYTES])
{
    size_t used = (size_t)snprintf(text, SHAPE_BYTES, "[");
    for (int32_t i = 0; i < array->rank; i++)
        used += (size_t)snprintf(text + used, SHAPE_BYTES - used, "%s%lld", i ? "," : "",
                                 (long long)array->shape[i]);
    snprintf(text + used, SHAPE_BYTES - used, "]");
    return text;
}

static enum voxel_code coords_check(const struct npy *coords, struct voxel_error *error)
{
    char text[SHAPE_BYTES];
    if (coords->rank != 2 || (coords->shape[1] != 3 && coords->shape[1] != 4))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "coords has shape %s; expected [N,3] (three axes) or "
                               "[N,4] (the sample, then three axes)",
                               shape_text(coords, text));
    if (coords->kind == 'b')
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "coords is bool: expected integers (voxels) or floats "
                               "(positions)");
    if (coords->shape[0] > POINTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%lld points; at most %d are read",
                               (long long)coords->shape[0], POINTS_MAX);
    return VOXEL_OK;
}

static enum voxel_code read_samples(const struct npy *coords, struct points *points,
                                    struct voxel_error *error)
{
    points->sample = voxel_memory_take((size_t)points->count, sizeof *points->sample);
    if (!points->sample) return voxel_error_memory(error, "samples", 0);
    char text[CONVERT_TEXT_BYTES];
    for (int64_t i = 0; i < points->count; i++) {
        double sample = npy_cell(coords, i, 0);
        if (!samples_take(sample, &points->sample[i]))
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "row %lld: column 0 is the sample, a whole number from 0 to %d, not %s; "
                "if the columns are three axes and an intensity, keep only the axes, "
                "[N,3]",
                (long long)i, SAMPLE_MAX, convert_text(sample, text));
    }
    return VOXEL_OK;
}

static enum voxel_code read_feats(const struct npy *feats, struct points *points,
                                  struct voxel_error *error)
{
    char text[SHAPE_BYTES];
    if (feats->rank != 2 || feats->shape[0] != points->count || feats->shape[1] < 1 ||
        feats->shape[1] > FEATS_MAX)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "feats must be [%lld,C], since coords has %lld rows, with C in 1..%d; it has "
            "rank %d%s%s",
            (long long)points->count, (long long)points->count, FEATS_MAX,
            (int)feats->rank, feats->rank == 2 ? ": " : "",
            feats->rank == 2 ? shape_text(feats, text) : "");
    points->channels = (int32_t)feats->shape[1];
    size_t channels = (size_t)points->channels;
    points->feats = voxel_memory_take((size_t)points->count, channels * sizeof(float));
    if (!points->feats) return voxel_error_memory(error, "feats", 0);
    for (int64_t i = 0; i < points->count; i++)
        for (int32_t c = 0; c < points->channels; c++) {
            const struct convert_cell cell = {i, c, npy_cell(feats, i, c)};
            if (convert_overflows(cell.value, VOXEL_FP32))
                return convert_refuse(&cell, VOXEL_FP32, error);
            points->feats[i * points->channels + c] = (float)cell.value;
        }
    return VOXEL_OK;
}

enum voxel_code npy_points(const struct npy *coords, const struct npy *feats,
                           struct points *points, struct voxel_error *error)
{
    memset(points, 0, sizeof *points);
    enum voxel_code code = coords_check(coords, error);
    if (code) return code;
    points->count = coords->shape[0];
    points->whole = coords->kind != 'f';
    points->xyz = voxel_memory_take((size_t)points->count, 3 * sizeof(double));
    if (!points->xyz)
        return voxel_error_memory(error, "points", (size_t)points->count * 24);
    int64_t first = coords->shape[1] - 3;
    for (int64_t i = 0; i < points->count; i++)
        for (int64_t k = 0; k < 3; k++)
            points->xyz[3 * i + k] = npy_cell(coords, i, first + k);
    if (first == 1) code = read_samples(coords, points, error);
    if (!code && feats) code = read_feats(feats, points, error);
    if (code) points_fini(points);
    return code;
}

enum voxel_code points_read_npy(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error)
{
    struct npy array;
    memset(points, 0, sizeof *points);
    if (asked->names)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a .npy has only coordinates, no feats '%s': use a .npz "
                               "with the arrays coords and %s, or a .ply",
                               asked->names, asked->names);
    enum voxel_code code = npy_parse(file, &array, error);
    return code ? code : npy_points(&array, NULL, points, error);
}
