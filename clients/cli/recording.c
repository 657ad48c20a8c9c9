/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/recording.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/npy.h"

#include <stdio.h>
#include <string.h>

#define SUFFIX ".npy"

/* --- the directory of the zip --- */

/* The rest of the entry's name between the prefix and .npy; NULL = it has not both. */
static const char *name_after(const struct zip_entry *entry, const char *prefix,
                              size_t *bytes)
{
    size_t length = strlen(prefix);
    size_t tail = strlen(SUFFIX);
    if (entry->name_bytes < length + tail || memcmp(entry->name, prefix, length) != 0 ||
        memcmp(entry->name + entry->name_bytes - tail, SUFFIX, tail) != 0)
        return NULL;
    *bytes = entry->name_bytes - length - tail;
    return entry->name + length;
}

static bool is_array(const struct zip_entry *entry, const char *prefix, const char *name)
{
    size_t bytes;
    const char *own = name_after(entry, prefix, &bytes);
    return own && bytes == strlen(name) && memcmp(own, name, bytes) == 0;
}

static enum voxel_code refuse(const struct recording *recording, const char *what,
                              struct voxel_error *error)
{
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "%s: %s", recording->path,
                           what);
}

/* Makes a list of all entries. */
static enum voxel_code list_entries(const struct recording *recording,
                                    struct zip_entry **entries, size_t *count,
                                    struct voxel_error *error)
{
    struct zip zip;
    struct voxel_error why;
    if (zip_open(recording->file, &zip, &why)) return refuse(recording, why.text, error);
    *count = zip.count;
    *entries = voxel_memory_take(zip.count + 1, sizeof **entries);
    if (!*entries) return voxel_error_memory(error, "a recording", 0);
    for (size_t i = 0; i < *count; i++)
        if (!zip_next(&zip, &(*entries)[i]))
            return refuse(recording, "its directory is damaged", error);
    return VOXEL_OK;
}

static struct zip_entry find_entry(const struct zip_entry *entries, size_t count,
                                   const char *prefix, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (is_array(&entries[i], prefix, name)) return entries[i];
    return (struct zip_entry){.name = NULL};
}

/* Adds the arrays whose names begin so. */
static enum voxel_code add_kind(struct recording *recording, enum recorded_kind kind,
                                const struct zip_entry *entries, size_t count,
                                struct voxel_error *error)
{
    const char *prefix = kind == RECORDED_LAYER ? "layer." : "out.";
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *own = name_after(&entries[i], prefix, &bytes);
        if (!own) continue;
        struct recorded *made = &recording->list[recording->count];
        *made = (struct recorded){.kind = kind, .array = entries[i]};
        made->name = voxel_pool_take_text(recording->pool, own, bytes);
        if (!made->name) return voxel_error_memory(error, "a recording", 0);
        if (recording_find(recording, kind, made->name))
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "%s: the array %s%s comes twice: expected it once",
                                   recording->path, prefix, made->name);
        if (kind == RECORDED_OUTPUT)
            made->coords = find_entry(entries, count, "at.out.", made->name);
        if (!made->coords.name)
            made->coords = find_entry(entries, count, "at.", made->name);
        recording->count++;
        recording->layers_count += kind == RECORDED_LAYER;
    }
    return VOXEL_OK;
}

/* --- arrays --- */

/* Reads an array; its content is new memory in *memory. */
static enum voxel_code read_npy(const struct recording *recording,
                                const struct zip_entry *entry, void **memory,
                                struct npy *array, struct voxel_error *error)
{
    struct voxel_error why = {0};
    uint8_t *content = NULL;
    enum voxel_code code = zip_content(recording->file, entry, &content, &why);
    *memory = content;
    if (!code) code = npy_parse((struct bytes){content, entry->size}, array, &why);
    if (!code) return VOXEL_OK;
    return voxel_error_set(error, code, "%s: %.*s: %s", recording->path,
                           (int)entry->name_bytes, entry->name, why.text);
}

/* Coordinates as int32 [rows, 4]. */
static enum voxel_code read_coords(const struct recording *recording,
                                   const struct zip_entry *entry, void **memory,
                                   int64_t *rows, struct voxel_error *error)
{
    struct npy array;
    void *content = NULL;
    enum voxel_code code = read_npy(recording, entry, &content, &array, error);
    *memory = NULL;
    if (!code && (array.rank != 2 || array.shape[1] != 4 || !strchr("iu", array.kind) ||
                  array.shape[0] > POINTS_MAX))
        code = voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s: %.*s: expected integers [rows, 4]: sample x y z",
                               recording->path, (int)entry->name_bytes, entry->name);
    if (!code) {
        *rows = array.shape[0];
        int32_t *coords = voxel_memory_take((size_t)*rows + 1, 4 * sizeof *coords);
        if (!coords) code = voxel_error_memory(error, "coords", (size_t)*rows * 16);
        for (int64_t i = 0; !code && i < 4 * *rows; i++) {
            double cell = npy_cell(&array, i / 4, i % 4);
            if (cell < INT32_MIN || cell > INT32_MAX)
                code = refuse(recording, "a coordinate is beyond 32 bits", error);
            else
                coords[i] = (int32_t)cell;
        }
        *memory = coords;
    }
    voxel_memory_give(content);
    return code;
}

/* The place in the file of number `index` in row-major order. */
static int64_t place_of(const struct npy *array, int64_t index)
{
    if (!array->fortran) return index;
    int64_t at[NPY_RANK_MAX];
    for (int32_t d = array->rank; d-- > 0; index /= array->shape[d])
        at[d] = index % array->shape[d];
    int64_t place = 0;
    for (int32_t d = array->rank; d-- > 0;) place = place * array->shape[d] + at[d];
    return place;
}

/* Copies the numbers into memory of their own, or takes those of the file. */
static enum voxel_code take_numbers(const struct npy *array, int64_t count,
                                    struct recorded_tensor *tensor,
                                    struct voxel_error *error)
{
    /* One row of all numbers, so that npy_cell reads any rank. */
    struct npy flat = *array;
    const bool labels = array->kind != 'f';
    flat.rank = 2;
    flat.fortran = false;
    flat.shape[0] = 1;
    flat.shape[1] = count;
    if (array->kind == 'f' && array->size == 4 && !array->fortran &&
        (uintptr_t)array->data % sizeof(float) == 0) {
        tensor->tensor.numbers = (const float *)(const void *)array->data;
        return VOXEL_OK;
    }
    size_t size = labels ? sizeof(int64_t) : sizeof(float);
    void *memory = voxel_memory_take((size_t)count + 1, size);
    if (!memory) return voxel_error_memory(error, "an array", (size_t)count * size);
    tensor->memory[1] = memory;
    for (int64_t i = 0; i < count; i++) {
        double cell = npy_cell(&flat, 0, place_of(array, i));
        if (labels)
            ((int64_t *)memory)[i] = cell < 0x1p62 ? (int64_t)cell : INT64_MAX;
        else
            ((float *)memory)[i] = (float)cell;
    }
    if (labels)
        tensor->tensor.labels = memory;
    else
        tensor->tensor.numbers = memory;
    return VOXEL_OK;
}

/* Rows and columns of an array on voxels, or of a dense one. */
static enum voxel_code set_shape(const struct recording *recording,
                                 const struct recorded *recorded, const struct npy *array,
                                 struct compare_tensor *tensor, struct voxel_error *error)
{
    int64_t count = 1;
    tensor->rank = array->rank;
    for (int32_t d = 0; d < array->rank; d++) {
        tensor->shape[d] = array->shape[d];
        count *= array->shape[d];
    }
    const bool dense = array->rank > 2;
    tensor->columns = array->rank == 2 ? array->shape[1] : 1;
    tensor->rows = dense || array->rank == 0 ? count : array->shape[0];
    if (dense || recorded->coords.name) return VOXEL_OK;
    tensor->coords = recording->coords;
    if (array->rank && tensor->rows == recording->rows) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: %s has %lld rows: expected %lld, as the request, or an "
                           "array at.%s with their "
                           "voxels",
                           recording->path, recorded->name, (long long)tensor->rows,
                           (long long)recording->rows, recorded->name);
}

enum voxel_code recording_read(const struct recording *recording,
                               const struct recorded *recorded,
                               struct recorded_tensor *tensor, struct voxel_error *error)
{
    struct npy array;
    int64_t rows = 0;
    struct compare_tensor *made = &tensor->tensor;
    memset(tensor, 0, sizeof *tensor);
    enum voxel_code code =
        read_npy(recording, &recorded->array, &tensor->memory[0], &array, error);
    if (!code) code = set_shape(recording, recorded, &array, made, error);
    if (!code) code = take_numbers(&array, made->rows * made->columns, tensor, error);
    if (!code && recorded->coords.name && array.rank <= 2) {
        code =
            read_coords(recording, &recorded->coords, &tensor->memory[2], &rows, error);
        made->coords = tensor->memory[2];
        if (!code && rows != made->rows)
            code = voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT, "%s: %s has %lld rows, but %lld voxels",
                recording->path, recorded->name, (long long)made->rows, (long long)rows);
    }
    if (code) recording_give(tensor);
    return code;
}

void recording_give(struct recorded_tensor *tensor)
{
    for (size_t i = 0; i < sizeof tensor->memory / sizeof *tensor->memory; i++)
        voxel_memory_give(tensor->memory[i]);
    memset(tensor, 0, sizeof *tensor);
}

/* --- a recording --- */

const struct recorded *recording_find(const struct recording *recording,
                                      enum recorded_kind kind, const char *name)
{
    for (int32_t i = 0; i < recording->count; i++)
        if (recording->list[i].kind == kind && strcmp(recording->list[i].name, name) == 0)
            return &recording->list[i];
    return NULL;
}

static enum voxel_code fill(struct recording *recording, const struct zip_entry *entries,
                            size_t count, struct voxel_error *error)
{
    void *memory = NULL;
    struct zip_entry coords = find_entry(entries, count, "", "coords");
    recording->feats = (struct recorded){
        RECORDED_FEATS, "feats", find_entry(entries, count, "", "feats"), {0}};
    if (!coords.name || !recording->feats.array.name)
        return refuse(recording, "expected a recording, with the arrays coords and feats",
                      error);
    recording->list = voxel_memory_take(count + 1, sizeof *recording->list);
    recording->pool = voxel_pool_open();
    if (!recording->list || !recording->pool)
        return voxel_error_memory(error, "a recording", 0);
    enum voxel_code code =
        read_coords(recording, &coords, &memory, &recording->rows, error);
    recording->coords = memory;
    if (!code) code = add_kind(recording, RECORDED_LAYER, entries, count, error);
    if (!code) code = add_kind(recording, RECORDED_OUTPUT, entries, count, error);
    return code;
}

enum voxel_code recording_parse(const char *path, struct bytes file,
                                struct recording *recording, struct voxel_error *error)
{
    struct zip_entry *entries = NULL;
    size_t count = 0;
    *recording = (struct recording){.path = path, .file = file};
    enum voxel_code code = list_entries(recording, &entries, &count, error);
    if (!code) code = fill(recording, entries, count, error);
    voxel_memory_give(entries);
    if (code) recording_close(recording);
    return code;
}

enum voxel_code recording_open(const char *path, struct recording *recording,
                               struct voxel_error *error)
{
    struct bytes file;
    enum voxel_code code = file_read(path, "PK", &file, error);
    memset(recording, 0, sizeof *recording);
    return code ? code : recording_parse(path, file, recording, error);
}

void recording_close(struct recording *recording)
{
    voxel_memory_give(recording->coords);
    voxel_memory_give(recording->list);
    voxel_pool_close(recording->pool);
    voxel_memory_give((void *)(uintptr_t)recording->file.data);
    memset(recording, 0, sizeof *recording);
}

enum voxel_code recording_same_request(const struct recording *a,
                                       const struct recording *b,
                                       struct voxel_error *error)
{
    struct recorded_tensor left;
    struct recorded_tensor right = {0};
    struct comparison found;
    enum voxel_code code = recording_read(a, &a->feats, &left, error);
    if (!code) code = recording_read(b, &b->feats, &right, error);
    if (!code) code = compare_tensors(&left.tensor, &right.tensor, NULL, &found, error);
    long long channels[2] = {0, 0};
    if (!code) channels[0] = left.tensor.columns, channels[1] = right.tensor.columns;
    recording_give(&left);
    recording_give(&right);
    if (code) return code;
    static const char again[] = "record both with the same --example";
    if (found.only_a || found.only_b)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s and %s are of other requests: %lld voxels are only in "
                               "the first, %lld only in the second; %s",
                               a->path, b->path, (long long)found.only_a,
                               (long long)found.only_b, again);
    if (found.kinds)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "%s and %s are of other requests: feats are %s in the first, %s in the "
            "second; %s",
            a->path, b->path, found.labels ? "integers" : "floats",
            found.labels ? "floats" : "integers", again);
    if (found.shapes)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "%s and %s are of other requests: feats have %lld channels "
            "in the first, %lld in the second; %s",
            a->path, b->path, channels[0], channels[1], again);
    if (found.relative == 0) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s and %s have other feats, by %.3g of the largest; %s",
                           a->path, b->path, found.relative, again);
}
