/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/zip.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <string.h>

#include <zlib.h>

#define END_BYTES      22 /* the end record without its comment */
#define ENTRY_BYTES    46
#define LOCAL_BYTES    30
#define METHOD_STORED  0
#define METHOD_DEFLATE 8
/* Deflate cannot do better than 1032 to 1; a claim beyond that is false, or an attack. */
#define INFLATE_RATIO_MAX 1040

static uint32_t u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t u32(const uint8_t *at)
{
    return u16(at) | u16(at + 2) << 16;
}

/* Finds the end record: only a comment of at most 65535 bytes may follow it. */
static const uint8_t *find_end(struct bytes file)
{
    if (file.size < END_BYTES) return NULL;
    size_t reach = file.size - END_BYTES;
    size_t first = reach > 65535 ? reach - 65535 : 0;
    for (size_t at = reach + 1; at-- > first;)
        if (memcmp(file.data + at, "PK\x05\x06", 4) == 0) return file.data + at;
    return NULL;
}

enum voxel_code zip_open(struct bytes file, struct zip *zip, struct voxel_error *error)
{
    const uint8_t *end = find_end(file);
    if (!end)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "this is not a .npz: it does not end with a zip directory");
    *zip = (struct zip){.file = file, .count = u16(end + 10), .at = u32(end + 16)};
    return VOXEL_OK;
}

bool zip_next(struct zip *zip, struct zip_entry *entry)
{
    struct bytes file = zip->file;
    if (zip->at > file.size || file.size - zip->at < ENTRY_BYTES) return false;
    const uint8_t *record = file.data + zip->at;
    if (memcmp(record, "PK\x01\x02", 4) != 0) return false;
    *entry = (struct zip_entry){.name = (const char *)record + ENTRY_BYTES,
                                .name_bytes = u16(record + 28),
                                .method = u16(record + 10),
                                .crc = u32(record + 16),
                                .packed = u32(record + 20),
                                .size = u32(record + 24),
                                .local = u32(record + 42)};
    size_t bytes = ENTRY_BYTES + entry->name_bytes + u16(record + 30) + u16(record + 32);
    if (file.size - zip->at < bytes) return false;
    zip->at += bytes;
    return true;
}

/* Inflates until `out` has `room` bytes or the entry ends.  Returns how many bytes `out`
 * has, -1 if the entry is damaged. */
static int64_t inflate_into(const uint8_t *packed, const struct zip_entry *entry,
                            uint8_t *out, size_t room)
{
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return -1;
    /* zlib counts in unsigned int, which is enough: this zip's sizes have 32 bits. */
    stream.next_in = (Bytef *)(uintptr_t)packed;
    stream.avail_in = (uInt)entry->packed;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    int result = inflate(&stream, Z_FINISH);
    bool all = room == entry->size;
    bool good = result == Z_STREAM_END || (!all && stream.avail_out == 0);
    inflateEnd(&stream);
    return good ? (int64_t)(room - stream.avail_out) : -1;
}

/* Where the entry's bytes begin; NULL and an error if they are not in the file, or cannot
 * be unpacked. */
static const uint8_t *find_packed(struct bytes file, const struct zip_entry *entry,
                                  struct voxel_error *error)
{
    int length = (int)entry->name_bytes;
    if (entry->packed == UINT32_MAX || entry->size == UINT32_MAX ||
        entry->local == UINT32_MAX) {
        voxel_error_set(error, VOXEL_UNIMPLEMENTED,
                        "%.*s is larger than 4 GiB, which is not read", length,
                        entry->name);
        return NULL;
    }
    if (entry->method != METHOD_STORED && entry->method != METHOD_DEFLATE) {
        voxel_error_set(error, VOXEL_UNIMPLEMENTED,
                        "%.*s is packed by method %u; expected stored or deflated",
                        length, entry->name, entry->method);
        return NULL;
    }
    bool good = entry->local <= file.size && file.size - entry->local >= LOCAL_BYTES;
    size_t begin = entry->local + LOCAL_BYTES;
    if (good)
        begin += u16(file.data + entry->local + 26) + u16(file.data + entry->local + 28);
    good = good && memcmp(file.data + entry->local, "PK\x03\x04", 4) == 0;
    good = good && begin <= file.size && file.size - begin >= entry->packed;
    if (good && entry->method == METHOD_STORED) good = entry->packed == entry->size;
    if (good) good = entry->size / INFLATE_RATIO_MAX <= entry->packed;
    if (good) return file.data + begin;
    voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                    "the entry %.*s is damaged: its bytes are not in the file", length,
                    entry->name);
    return NULL;
}

size_t zip_head(struct bytes file, const struct zip_entry *entry, uint8_t *out,
                size_t room)
{
    const uint8_t *packed = find_packed(file, entry, NULL);
    if (room > entry->size) room = entry->size;
    if (!packed) return 0;
    if (entry->method == METHOD_DEFLATE) {
        int64_t bytes = inflate_into(packed, entry, out, room);
        return bytes > 0 ? (size_t)bytes : 0;
    }
    memcpy(out, packed, room);
    return room;
}

enum voxel_code zip_content(struct bytes file, const struct zip_entry *entry,
                            uint8_t **content, struct voxel_error *error)
{
    struct voxel_error why = {0};
    *content = NULL;
    const uint8_t *packed = find_packed(file, entry, &why);
    if (!packed) return voxel_error_set(error, why.code, "%s", why.text);
    uint8_t *out = voxel_memory_take_bytes(entry->size);
    if (!out) return voxel_error_memory(error, "an array", entry->size);
    bool good = true;
    if (entry->method == METHOD_STORED)
        memcpy(out, packed, entry->size);
    else
        good = inflate_into(packed, entry, out, entry->size) == (int64_t)entry->size;
    good = good && crc32_z(crc32_z(0, NULL, 0), out, entry->size) == entry->crc;
    if (good) {
        *content = out;
        return VOXEL_OK;
    }
    voxel_memory_give(out);
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "the entry %.*s is damaged: its checksum is wrong",
                           (int)entry->name_bytes, entry->name);
}
