/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/safetensors.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/json.h"
#include "engine/base/text/sentence.h"
#include "engine/weights/foreign_file.h"
#include "engine/weights/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAGIC   0x76785354u /* "vxST" */
#define LENGTH_BYTES 8           /* of the header length at the start of the file */
#define METADATA_KEY "__metadata__"
#define MARK_BYTES   32   /* at the start of a file: enough for vx_foreign_file */
#define PIECE_HALVES 8192 /* read at once: they stay in the first-level cache */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors data is little-endian");

/* Every dtype of the format.  A checkpoint may hold dtypes that are not readable, such as
 * the I64 of num_batches_tracked, as long as no layer needs them. */
enum reading { READ_NOT, READ_F32, READ_F16, READ_BF16 };
static const struct dtype {
    const char *name;
    u32 bits;
    enum reading reading;
} dtypes[] = {
    {"BF16", 16, READ_BF16},  {"BOOL", 8, READ_NOT},    {"C64", 64, READ_NOT},
    {"F16", 16, READ_F16},    {"F32", 32, READ_F32},    {"F4", 4, READ_NOT},
    {"F64", 64, READ_NOT},    {"F6_E2M3", 6, READ_NOT}, {"F6_E3M2", 6, READ_NOT},
    {"F8_E4M3", 8, READ_NOT}, {"F8_E5M2", 8, READ_NOT}, {"F8_E8M0", 8, READ_NOT},
    {"I16", 16, READ_NOT},    {"I32", 32, READ_NOT},    {"I64", 64, READ_NOT},
    {"I8", 8, READ_NOT},      {"U16", 16, READ_NOT},    {"U32", 32, READ_NOT},
    {"U64", 64, READ_NOT},    {"U8", 8, READ_NOT},
};

struct vx_safetensors {
    u32 magic;
    char label[VX_LABEL_BYTES];
    struct vx_source source;
    void *block; /* memory of the arena that holds the parsed header and the names */
    struct vx_tensor *tensors; /* sorted by name */
    i32 tensors_count;
};

/* State while a header is read. */
struct reader {
    struct vx_safetensors *file;
    size_t data_offset, data_bytes; /* of the bytes after the header */
    const struct vx_json *root;
    struct vx_why *why;
};

static const struct dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < VX_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].name, name)) return &dtypes[i];
    return NULL;
}

const char *vx_shape_text(const i64 *shape, i32 rank, char out[VX_SHAPE_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(out, VX_SHAPE_TEXT_BYTES, "[");
    for (i32 i = 0; i < rank && used < VX_SHAPE_TEXT_BYTES; i++)
        used += (size_t)snprintf(out + used, VX_SHAPE_TEXT_BYTES - used, "%s%lld",
                                 i ? ", " : "", (long long)shape[i]);
    if (used < VX_SHAPE_TEXT_BYTES) snprintf(out + used, VX_SHAPE_TEXT_BYTES - used, "]");
    return out;
}

static vx_status reader_tensor_shape(const struct reader *reader,
                                     const struct vx_json *list, struct vx_tensor *tensor)
{
    VX_ENSURE_WHY(list->count <= VX_TENSOR_RANK_MAX, reader->why, INVALID_ARGUMENT,
                  "a tensor has too many dimensions",
                  "expected at most %d dimensions, got %d", VX_TENSOR_RANK_MAX,
                  list->count);
    tensor->rank = 0;
    tensor->count = 1;
    VX_JSON_EACH(size, list)
    {
        VX_ENSURE_WHY(size->kind == VX_JSON_I64 && size->number >= 0, reader->why,
                      DATA_LOSS, "a tensor's shape is not a list of sizes",
                      "expected a size >= 0 in its shape, got %s",
                      size->kind == VX_JSON_I64 ? "a negative one"
                                                : vx_json_kind_name(size->kind));
        tensor->shape[tensor->rank++] = size->number;
    }
    /* A size of 0 is legal if the product of all sizes does not overflow. */
    for (i32 i = 0; i < tensor->rank; i++)
        VX_ENSURE_WHY(
            !__builtin_mul_overflow(tensor->count, tensor->shape[i], &tensor->count),
            reader->why, DATA_LOSS, "a tensor's shape overflows",
            "the product of its shape is beyond 64 bits at dimension %d", i);
    return VX_OK;
}

static vx_status reader_tensor_span(const struct reader *reader,
                                    const struct vx_json *offsets,
                                    struct vx_tensor *tensor)
{
    const struct vx_json *first = offsets->first, *second = first ? first->next : NULL;
    bool good =
        offsets->count == 2 && first->kind == VX_JSON_I64 && second->kind == VX_JSON_I64;
    VX_ENSURE_WHY(
        good, reader->why, DATA_LOSS, "a tensor's data_offsets are not two integers",
        "expected data_offsets of two integers, got a list of %d", offsets->count);
    i64 begin = first->number, end = second->number;
    VX_ENSURE_WHY(begin >= 0 && begin <= end, reader->why, DATA_LOSS,
                  "a tensor's data_offsets are not in order",
                  "expected data_offsets with 0 <= begin <= end, got [%lld, %lld]",
                  (long long)begin, (long long)end);
    if ((u64)end > reader->data_bytes)
        VX_FAIL_WHY(reader->why, DATA_LOSS,
                    "a tensor's data_offsets do not lie in the file",
                    "its data ends at byte %lld, but the file has %zu bytes of data",
                    (long long)end, reader->data_bytes);
    tensor->offset = reader->data_offset + (size_t)begin;
    tensor->bytes = (size_t)(end - begin);
    return VX_OK;
}

static vx_status reader_tensor_bytes(const struct reader *reader,
                                     const struct dtype *dtype,
                                     const struct vx_tensor *tensor)
{
    i64 bits;
    char shape[VX_SHAPE_TEXT_BYTES];
    bool good = !__builtin_mul_overflow(tensor->count, (i64)dtype->bits, &bits);
    VX_ENSURE_WHY(good, reader->why, DATA_LOSS, "a tensor's shape overflows",
                  "%s %s is beyond 64 bits", dtype->name,
                  vx_shape_text(tensor->shape, tensor->rank, shape));
    VX_ENSURE_WHY(bits % 8 == 0, reader->why, DATA_LOSS,
                  "a tensor does not have a whole number of bytes",
                  "%s %s has %lld bits, which are not whole bytes", dtype->name,
                  vx_shape_text(tensor->shape, tensor->rank, shape), (long long)bits);
    VX_ENSURE_WHY((u64)bits / 8 == tensor->bytes, reader->why, DATA_LOSS,
                  "a tensor's bytes do not match its shape",
                  "%s %s needs %lld bytes, data_offsets give %zu", dtype->name,
                  vx_shape_text(tensor->shape, tensor->rank, shape), (long long)bits / 8,
                  tensor->bytes);
    return VX_OK;
}

/* Finds a member of a tensor's header entry, which must exist and have that kind. */
static vx_status reader_member(const struct reader *reader, const struct vx_json *entry,
                               const char *key, enum vx_json_kind kind,
                               const struct vx_json **member)
{
    *member = vx_json_find(entry, key);
    VX_ENSURE_WHY(*member, reader->why, DATA_LOSS, "a tensor's header entry lacks a key",
                  "the key \"%s\" is missing", key);
    VX_ENSURE_WHY((*member)->kind == kind, reader->why, DATA_LOSS,
                  "a tensor's header entry has a value of the wrong kind",
                  "expected %s for \"%s\", got %s", vx_json_kind_name(kind), key,
                  vx_json_kind_name((*member)->kind));
    return VX_OK;
}

static vx_status reader_tensor(const struct reader *reader, const struct vx_json *entry,
                               struct vx_tensor *tensor)
{
    VX_ENSURE_WHY(entry->kind == VX_JSON_OBJECT, reader->why, DATA_LOSS,
                  "a tensor's header entry is not an object",
                  "expected an object, got %s", vx_json_kind_name(entry->kind));
    VX_JSON_EACH(member, entry)
    {
        bool known = !strcmp(member->key, "dtype") || !strcmp(member->key, "shape") ||
                     !strcmp(member->key, "data_offsets");
        VX_ENSURE_WHY(
            known, reader->why, DATA_LOSS, "a tensor's header entry has unknown keys",
            "expected dtype, shape and data_offsets, got \"%.40s\"", member->key);
    }
    const struct vx_json *name, *shape, *offsets;
    VX_TRY(reader_member(reader, entry, "dtype", VX_JSON_TEXT, &name));
    VX_TRY(reader_member(reader, entry, "shape", VX_JSON_LIST, &shape));
    VX_TRY(reader_member(reader, entry, "data_offsets", VX_JSON_LIST, &offsets));
    const struct dtype *dtype = dtype_find(name->text);
    VX_ENSURE_WHY(dtype, reader->why, INVALID_ARGUMENT, "a tensor has an unknown dtype",
                  "expected a dtype of the safetensors format (F32, F16, BF16, ...), got "
                  "\"%.40s\"",
                  name->text);
    *tensor = (struct vx_tensor){.name = entry->key, .dtype = dtype->name};
    VX_TRY(reader_tensor_shape(reader, shape, tensor));
    VX_TRY(reader_tensor_span(reader, offsets, tensor));
    return reader_tensor_bytes(reader, dtype, tensor);
}

static vx_status reader_metadata(const struct reader *reader,
                                 const struct vx_json *metadata)
{
    VX_ENSURE_WHY(metadata->kind == VX_JSON_OBJECT, reader->why, DATA_LOSS,
                  "__metadata__ is not an object of texts",
                  "expected an object of texts, got %s",
                  vx_json_kind_name(metadata->kind));
    VX_JSON_EACH(member, metadata)
    VX_ENSURE_WHY(member->kind == VX_JSON_TEXT, reader->why, DATA_LOSS,
                  "__metadata__ is not an object of texts",
                  "expected a text for \"%.40s\", got %s", member->key,
                  vx_json_kind_name(member->kind));
    return VX_OK;
}

static int span_compare(const void *a, const void *b)
{
    const struct vx_tensor *const *left = a, *const *right = b;
    if ((*left)->offset != (*right)->offset)
        return (*left)->offset < (*right)->offset ? -1 : 1;
    /* Empty tensors first, so that they do not seem to overlap the next one. */
    return ((*left)->bytes > (*right)->bytes) - ((*left)->bytes < (*right)->bytes);
}

/* The format requires that every data byte belongs to exactly one tensor. */
static vx_status reader_check_cover(const struct reader *reader,
                                    const struct vx_tensor **order)
{
    const struct vx_safetensors *file = reader->file;
    size_t count = (size_t)file->tensors_count, end = 0;
    for (size_t i = 0; i < count; i++) order[i] = &file->tensors[i];
    if (count) qsort(order, count, sizeof *order, span_compare);
    for (size_t i = 0; i < count; i++) {
        size_t begin = order[i]->offset - reader->data_offset;
        if (begin < end)
            VX_FAIL_WHY(
                reader->why, DATA_LOSS, "two tensors overlap",
                "%s: tensors \"%.*s\" and \"%.*s\" overlap: one ends at byte %zu, the "
                "other begins at %zu",
                file->label, VX_NAME_SHOWN / 2, order[i - 1]->name, VX_NAME_SHOWN / 2,
                order[i]->name, end, begin);
        VX_ENSURE_WHY(begin == end, reader->why, DATA_LOSS,
                      "some bytes belong to no tensor",
                      "%s: bytes %zu to %zu of the data belong to no tensor", file->label,
                      end, begin);
        end = begin + order[i]->bytes;
    }
    VX_ENSURE_WHY(
        end == reader->data_bytes, reader->why, DATA_LOSS,
        "some bytes belong to no tensor",
        "%s: the last tensor ends at byte %zu, but the file has %zu bytes of data",
        file->label, end, reader->data_bytes);
    return VX_OK;
}

static vx_status reader_tensors(const struct reader *reader)
{
    struct vx_safetensors *file = reader->file;
    const struct vx_json *root = reader->root;
    VX_ENSURE_WHY(root->kind == VX_JSON_OBJECT, reader->why, DATA_LOSS,
                  "a safetensors header is not an object",
                  "%s: expected an object in the header, got %s", file->label,
                  vx_json_kind_name(root->kind));
    file->tensors = vx_alloc_zero((size_t)root->count * sizeof *file->tensors);
    VX_ENSURE(file->tensors, RESOURCE_EXHAUSTED, "no memory for a list of tensors");
    for (i32 i = 0; i < root->count; i++) {
        const struct vx_json *entry = root->by_key[i];
        bool is_tensor = strcmp(entry->key, METADATA_KEY) != 0;
        vx_status status =
            is_tensor
                ? reader_tensor(reader, entry, &file->tensors[file->tensors_count++])
                : reader_metadata(reader, entry);
        if (!status.fault) continue;
        vx_why_prefix(reader->why, "%s: tensor \"%.*s\": ", file->label, VX_NAME_SHOWN,
                      entry->key);
        return status;
    }
    const struct vx_tensor **order = vx_alloc((size_t)root->count * sizeof *order);
    VX_ENSURE(order, RESOURCE_EXHAUSTED, "no memory for a list of tensors");
    vx_status status = reader_check_cover(reader, order);
    vx_free(order);
    return status;
}

static vx_status reader_header(struct reader *reader, const char *text, size_t bytes)
{
    struct vx_safetensors *file = reader->file;
    size_t block_bytes = vx_json_arena_bytes(bytes);
    file->block = vx_alloc(block_bytes);
    VX_ENSURE_WHY(file->block, reader->why, RESOURCE_EXHAUSTED,
                  "no memory for a file's header",
                  "%s: no memory to read its header of %zu bytes", file->label, bytes);
    struct vx_arena arena;
    vx_arena_init(&arena, file->block, block_bytes);
    struct vx_why inner = {{0}};
    vx_status status = vx_json_parse(text, bytes, &arena, &inner, &reader->root);
    VX_ENSURE_WHY(!status.fault, reader->why, DATA_LOSS,
                  "a safetensors header is not JSON", "%s: header: %.*s", file->label,
                  VX_WHY_BYTES - VX_LABEL_BYTES, inner.text);
    return reader_tensors(reader);
}

/* The header's length, which must end inside the file and within the limit. */
static vx_status header_measure(const struct vx_safetensors *file, struct vx_why *why,
                                size_t *header_bytes)
{
    const struct vx_source *source = &file->source;
    u8 mark[MARK_BYTES];
    u64 length;
    size_t mark_bytes = source->bytes < sizeof mark ? source->bytes : sizeof mark;
    VX_TRY(vx_source_read(source, 0, mark, mark_bytes, why));
    const char *foreign = vx_foreign_file(mark, mark_bytes);
    VX_ENSURE_WHY(!foreign, why, INVALID_ARGUMENT, "a file is not a safetensors file",
                  "%s: expected a safetensors file, got %s", file->label, foreign);
    VX_ENSURE_WHY(mark_bytes >= LENGTH_BYTES, why, DATA_LOSS,
                  "a file is too short for a header length",
                  "%s: expected 8 bytes of header length, the file has %zu bytes",
                  file->label, mark_bytes);
    memcpy(&length, mark, LENGTH_BYTES);
    /* Without the length: a file of another kind has content there, not for clients. */
    VX_ENSURE_WHY(length <= source->bytes - LENGTH_BYTES, why, DATA_LOSS,
                  "a file is shorter than its header",
                  "%s: expected a header that ends inside the file, got one longer than "
                  "the file's %zu bytes",
                  file->label, source->bytes);
    VX_ENSURE_WHY(length <= VX_SAFETENSORS_HEADER_BYTES_MAX, why, INVALID_ARGUMENT,
                  "a safetensors header is too long",
                  "%s: expected a header of at most %d bytes, got %llu", file->label,
                  VX_SAFETENSORS_HEADER_BYTES_MAX, (unsigned long long)length);
    *header_bytes = (size_t)length;
    return VX_OK;
}

static vx_status file_parse(struct vx_safetensors *file, struct vx_why *why)
{
    size_t bytes;
    VX_TRY(header_measure(file, why, &bytes));
    struct reader reader = {.file = file, .why = why};
    reader.data_offset = LENGTH_BYTES + bytes;
    reader.data_bytes = file->source.bytes - reader.data_offset;
    /* A copy: vx_json_parse reads its text twice, and the file may change in between. */
    char *text = vx_alloc(bytes);
    VX_ENSURE(text, RESOURCE_EXHAUSTED, "no memory for a file's header");
    vx_status status = vx_source_read(&file->source, LENGTH_BYTES, text, bytes, why);
    if (!status.fault) status = reader_header(&reader, text, bytes);
    vx_free(text);
    return status;
}

static vx_status file_make(const char *label, struct vx_safetensors **file)
{
    *file = vx_alloc_zero(sizeof **file);
    VX_ENSURE(*file, RESOURCE_EXHAUSTED, "no memory to open a model file");
    (*file)->magic = FILE_MAGIC;
    snprintf((*file)->label, sizeof(*file)->label, "%s", label);
    return VX_OK;
}

vx_status vx_safetensors_parse(const u8 *data, size_t bytes, const char *label,
                               struct vx_why *why, struct vx_safetensors **file)
{
    VX_TRY(file_make(label, file));
    (*file)->source = vx_source_of_memory(data, bytes, (*file)->label);
    vx_status status = file_parse(*file, why);
    if (status.fault) vx_safetensors_close(file);
    return status;
}

vx_status vx_safetensors_open(const char *path, const char *label, struct vx_why *why,
                              struct vx_safetensors **file)
{
    VX_TRY(file_make(label, file));
    struct vx_source *source = &(*file)->source;
    vx_status status = vx_source_open(path, (*file)->label, why, source);
    if (!status.fault) status = file_parse(*file, why);
    if (status.fault) vx_safetensors_close(file);
    return status;
}

void vx_safetensors_close(struct vx_safetensors **file)
{
    struct vx_safetensors *it = *file;
    *file = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == FILE_MAGIC);
    it->magic = 0;
    vx_source_close(&it->source);
    vx_free(it->tensors);
    vx_free(it->block);
    vx_free(it);
}

i32 vx_safetensors_count(const struct vx_safetensors *file)
{
    return file->tensors_count;
}

const struct vx_tensor *vx_safetensors_get(const struct vx_safetensors *file, i32 index)
{
    VX_ASSERT(index >= 0);
    VX_ASSERT(index < file->tensors_count);
    return &file->tensors[index];
}

static int name_compare(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct vx_tensor *)tensor)->name);
}

const struct vx_tensor *vx_safetensors_find(const struct vx_safetensors *file,
                                            const char *name)
{
    if (!file->tensors_count) return NULL;
    return bsearch(name, file->tensors, (size_t)file->tensors_count,
                   sizeof *file->tensors, name_compare);
}

const char *vx_safetensors_label(const struct vx_safetensors *file)
{
    return file->label;
}

bool vx_tensor_is_readable(const struct vx_tensor *tensor)
{
    return dtype_find(tensor->dtype)->reading != READ_NOT;
}

/* Exact: f32 holds every f16 value.  An f16 subnormal is a small integer times 2^-24. */
static f32 f32_of_f16(u16 half)
{
    u32 sign = (u32)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f,
        fraction = half & 0x3ff;
    f32 value;
    if (exponent == 0) {
        value = (f32)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    u32 bits = sign | (exponent == 31 ? 0xff : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Bytes of the next piece of a tensor. */
static size_t piece_bytes(const struct vx_tensor *tensor, size_t done)
{
    size_t left = tensor->bytes - done, most = PIECE_HALVES * sizeof(u16);
    return left < most ? left : most;
}

static vx_status read_halves(const struct vx_safetensors *file,
                             const struct vx_tensor *tensor, bool is_f16,
                             struct vx_why *why, f32 *out)
{
    u16 halves[PIECE_HALVES];
    for (size_t done = 0, some; done < tensor->bytes; done += some) {
        some = piece_bytes(tensor, done);
        VX_TRY(vx_source_read(&file->source, tensor->offset + done, halves, some, why));
        for (size_t i = 0; i < some / 2; i++, out++) {
            u32 bits = (u32)halves[i] << 16; /* of a BF16 */
            if (is_f16)
                *out = f32_of_f16(halves[i]);
            else
                memcpy(out, &bits, sizeof bits);
        }
    }
    return VX_OK;
}

vx_status vx_safetensors_read_f32(const struct vx_safetensors *file,
                                  const struct vx_tensor *tensor, struct vx_why *why,
                                  f32 *out)
{
    enum reading reading = dtype_find(tensor->dtype)->reading;
    VX_ENSURE_WHY(
        reading != READ_NOT, why, INVALID_ARGUMENT, "a weight has an unusable dtype",
        "%s: tensor \"%.*s\": expected F32, F16 or BF16 to read it as a weight, got %s",
        file->label, VX_NAME_SHOWN, tensor->name, tensor->dtype);
    if (reading == READ_F32)
        return vx_source_read(&file->source, tensor->offset, out, tensor->bytes, why);
    return read_halves(file, tensor, reading == READ_F16, why, out);
}

/* An exponent of all ones means infinity or NaN.  Counts units of 2 bytes: of an F32 the
 * upper one has the exponent. */
static bool halves_are_finite(const u16 *halves, size_t count, enum reading reading)
{
    u16 ones = reading == READ_F16 ? 0x7c00 : 0x7f80;
    size_t step = reading == READ_F32 ? 2 : 1;
    bool finite = true;
    for (size_t i = step - 1; i < count; i += step) finite &= (halves[i] & ones) != ones;
    return finite;
}

vx_status vx_safetensors_is_finite(const struct vx_safetensors *file,
                                   const struct vx_tensor *tensor, struct vx_why *why,
                                   bool *finite)
{
    enum reading reading = dtype_find(tensor->dtype)->reading;
    u16 halves[PIECE_HALVES];
    *finite = true;
    VX_ASSERT(reading != READ_NOT);
    for (size_t done = 0, some; done < tensor->bytes && *finite; done += some) {
        some = piece_bytes(tensor, done);
        VX_TRY(vx_source_read(&file->source, tensor->offset + done, halves, some, why));
        *finite = halves_are_finite(halves, some / 2, reading);
    }
    return VX_OK;
}
