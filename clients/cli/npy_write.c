/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/npy_write.h"

#include "clients/cli/convert.h"

#include <inttypes.h>
#include <string.h>

#include <zlib.h>

/* The first day that a zip can express; a fixed date keeps the file's bytes the same. */
#define ZIP_DATE    0x0021
#define ZIP_NEEDS   20     /* version 2.0: stored entries */
#define ZIP_UTF8    0x0800 /* flag: the name is UTF-8 and not code page 437 */
#define LOCAL_BYTES 30
#define ENTRY_BYTES 46
#define END_BYTES   22

/* Where bytes go: into a file or, if that is NULL, only into the count and checksum. */
struct sink {
    FILE *file;
    uint64_t bytes;
    uint32_t crc;
};

static void sink_put(struct sink *sink, const void *data, size_t bytes)
{
    if (sink->file)
        fwrite(data, 1, bytes, sink->file);
    else
        sink->crc = (uint32_t)crc32_z(sink->crc, data, bytes);
    sink->bytes += bytes;
}

/* NumPy's name of a type; NULL for a type that is written as float. */
static const char *descr_of(enum voxel_type type)
{
    switch (type) {
    case VOXEL_BOOL: return "|b1";
    case VOXEL_UINT8: return "|u1";
    case VOXEL_INT8: return "|i1";
    case VOXEL_UINT16: return "<u2";
    case VOXEL_INT16: return "<i2";
    case VOXEL_UINT32: return "<u4";
    case VOXEL_INT32: return "<i4";
    case VOXEL_UINT64: return "<u8";
    case VOXEL_INT64: return "<i8";
    case VOXEL_FP16: return "<f2";
    case VOXEL_FP32: return "<f4";
    case VOXEL_FP64: return "<f8";
    default: return NULL;
    }
}

static void put_header(struct sink *sink, const struct voxel_tensor *tensor,
                       const char *descr)
{
    char header[512];
    int used = snprintf(header, sizeof header,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        descr ? descr : "<f4");
    for (int32_t i = 0; i < tensor->rank; i++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%" PRId64 ", ",
                         tensor->shape[i]);
    used += snprintf(header + used, sizeof header - (size_t)used, "), }");
    /* NumPy aligns the data to 64 bytes: pad with spaces, end with a newline. */
    while ((10 + used + 1) % 64 != 0) header[used++] = ' ';
    header[used++] = '\n';
    const uint8_t size[2] = {(uint8_t)used, (uint8_t)(used >> 8)};
    sink_put(sink, "\x93NUMPY\x01", 8); /* the string's NUL is the minor version, 0 */
    sink_put(sink, size, sizeof size);
    sink_put(sink, header, (size_t)used);
}

static void put_array(struct sink *sink, const struct voxel_tensor *tensor)
{
    const char *descr = descr_of(tensor->type);
    put_header(sink, tensor, descr);
    if (descr) {
        sink_put(sink, tensor->data, tensor->bytes);
        return;
    }
    int64_t cells = 1;
    for (int32_t i = 0; i < tensor->rank; i++) cells *= tensor->shape[i];
    for (int64_t i = 0; i < cells; i++) {
        float cell = convert_cell(tensor, i);
        sink_put(sink, &cell, sizeof cell);
    }
}

void npy_write(FILE *file, const struct voxel_tensor *tensor)
{
    struct sink sink = {.file = file};
    put_array(&sink, tensor);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, uint64_t value)
{
    put16(at, (uint32_t)value);
    put16(at + 2, (uint32_t)(value >> 16));
}

struct entry {
    char name[NPZ_NAME_BYTES_MAX + 5];
    uint32_t name_bytes;
    uint64_t offset;
    struct sink body; /* its size and checksum */
};

static bool is_ascii(const char *name)
{
    for (; *name; name++)
        if ((uint8_t)*name >= 0x80) return false;
    return true;
}

/* The fields from the version on, which both headers of an entry share. */
static void put_common(uint8_t *at, const struct entry *entry)
{
    put16(at, ZIP_NEEDS);
    put16(at + 2, is_ascii(entry->name) ? 0 : ZIP_UTF8);
    put16(at + 8, ZIP_DATE);
    put32(at + 10, entry->body.crc);
    put32(at + 14, entry->body.bytes);
    put32(at + 18, entry->body.bytes);
    put16(at + 22, entry->name_bytes);
}

static void put_local(FILE *file, const struct entry *entry)
{
    uint8_t head[LOCAL_BYTES] = "PK\x03\x04";
    put_common(head + 4, entry);
    fwrite(head, sizeof head, 1, file);
    fwrite(entry->name, 1, entry->name_bytes, file);
}

static void put_entry(FILE *file, const struct entry *entry)
{
    uint8_t head[ENTRY_BYTES] = "PK\x01\x02";
    put16(head + 4, ZIP_NEEDS);
    put_common(head + 6, entry);
    put32(head + 42, entry->offset);
    fwrite(head, sizeof head, 1, file);
    fwrite(entry->name, 1, entry->name_bytes, file);
}

bool npz_write(FILE *file, const struct voxel_tensor *const *arrays, int32_t count)
{
    struct entry entries[NPZ_ARRAYS_MAX] = {0};
    uint64_t at = 0;
    uint64_t directory = 0;
    if (count > NPZ_ARRAYS_MAX) return false;
    for (int32_t i = 0; i < count; i++) {
        struct entry *entry = &entries[i];
        int used = snprintf(entry->name, sizeof entry->name, "%s.npy", arrays[i]->name);
        if (used >= (int)sizeof entry->name) return false;
        put_array(&entry->body, arrays[i]);
        entry->name_bytes = (uint32_t)used;
        entry->offset = at;
        at += LOCAL_BYTES + entry->name_bytes + entry->body.bytes;
        directory += ENTRY_BYTES + entry->name_bytes;
        /* A field of all ones would refer to zip64's fields, which are not written. */
        if (entry->body.bytes >= UINT32_MAX || at >= UINT32_MAX) return false;
    }
    for (int32_t i = 0; i < count; i++) {
        put_local(file, &entries[i]);
        npy_write(file, arrays[i]);
    }
    for (int32_t i = 0; i < count; i++) put_entry(file, &entries[i]);
    uint8_t end[END_BYTES] = "PK\x05\x06";
    put16(end + 8, (uint32_t)count);
    put16(end + 10, (uint32_t)count);
    put32(end + 12, directory);
    put32(end + 16, at);
    fwrite(end, sizeof end, 1, file);
    return true;
}
