/* A .npz is a zip of .npy files, stored or deflated.  Only what that needs of the zip
 * format is here: the directory at the end, one entry's bytes, their checksum.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/npy.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/samples.h"

#include <string.h>

#include <zlib.h>

#define END_BYTES      22 /* the end record without its comment */
#define ENTRY_BYTES    46
#define LOCAL_BYTES    30
#define METHOD_STORED  0
#define METHOD_DEFLATE 8
/* Deflate cannot do better than 1032 to 1; a claim beyond that is a lie or a bomb. */
#define INFLATE_RATIO_MAX 1040

struct zip_entry {
    const uint8_t *name;
    size_t name_bytes;
    unsigned method;
    uint32_t crc;
    size_t packed;
    size_t size;
    size_t local; /* offset of the local header */
};

static uint32_t u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t u32(const uint8_t *at)
{
    return u16(at) | u16(at + 2) << 16;
}

/* The end record is the last thing in the file but for a comment of at most 65535 bytes.
 */
static const uint8_t *find_end(struct bytes file)
{
    if (file.size < END_BYTES) return NULL;
    size_t reach = file.size - END_BYTES;
    size_t first = reach > 65535 ? reach - 65535 : 0;
    for (size_t at = reach + 1; at-- > first;)
        if (memcmp(file.data + at, "PK\x05\x06", 4) == 0) return file.data + at;
    return NULL;
}

static bool read_entry(struct bytes file, size_t *at, struct zip_entry *entry)
{
    if (*at > file.size || file.size - *at < ENTRY_BYTES) return false;
    const uint8_t *record = file.data + *at;
    if (memcmp(record, "PK\x01\x02", 4) != 0) return false;
    *entry = (struct zip_entry){.name = record + ENTRY_BYTES,
                                .name_bytes = u16(record + 28),
                                .method = u16(record + 10),
                                .crc = u32(record + 16),
                                .packed = u32(record + 20),
                                .size = u32(record + 24),
                                .local = u32(record + 42)};
    size_t bytes = ENTRY_BYTES + entry->name_bytes + u16(record + 30) + u16(record + 32);
    if (file.size - *at < bytes) return false;
    *at += bytes;
    return true;
}

static bool inflate_into(const uint8_t *packed, const struct zip_entry *entry,
                         uint8_t *out)
{
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    /* zlib counts in unsigned int; entries are below 4 GiB, as this zip's sizes are
     * 32-bit. */
    stream.next_in = (Bytef *)(uintptr_t)packed;
    stream.avail_in = (uInt)entry->packed;
    stream.next_out = out;
    stream.avail_out = (uInt)entry->size;
    int result = inflate(&stream, Z_FINISH);
    bool good = result == Z_STREAM_END && stream.avail_out == 0;
    inflateEnd(&stream);
    return good;
}

/* The entry's content, inflated and checked, in new memory. */
static enum voxel_code read_content(struct bytes file, const struct zip_entry *entry,
                                    uint8_t **content, struct voxel_error *error)
{
    int length = (int)entry->name_bytes;
    const char *name = (const char *)entry->name;
    *content = NULL;
    if (entry->packed == UINT32_MAX || entry->size == UINT32_MAX ||
        entry->local == UINT32_MAX)
        return voxel_error_set(error, VOXEL_UNIMPLEMENTED,
                               "%.*s is larger than 4 GiB, which is not read", length,
                               name);
    if (entry->method != METHOD_STORED && entry->method != METHOD_DEFLATE)
        return voxel_error_set(error, VOXEL_UNIMPLEMENTED,
                               "%.*s is packed by method %u; expected stored or deflated",
                               length, name, entry->method);
    bool good = entry->local <= file.size && file.size - entry->local >= LOCAL_BYTES;
    size_t begin = entry->local + LOCAL_BYTES;
    if (good)
        begin += u16(file.data + entry->local + 26) + u16(file.data + entry->local + 28);
    good = good && memcmp(file.data + entry->local, "PK\x03\x04", 4) == 0;
    good = good && begin <= file.size && file.size - begin >= entry->packed;
    if (good && entry->method == METHOD_STORED) good = entry->packed == entry->size;
    if (good) good = entry->size / INFLATE_RATIO_MAX <= entry->packed;
    if (!good)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the entry %.*s is damaged: its bytes are not in the file",
                               length, name);
    uint8_t *out = voxel_memory_take_bytes(entry->size);
    if (!out) return voxel_error_memory(error, "an array", entry->size);
    if (entry->method == METHOD_STORED)
        memcpy(out, file.data + begin, entry->size);
    else
        good = inflate_into(file.data + begin, entry, out);
    good = good && crc32_z(crc32_z(0, NULL, 0), out, entry->size) == entry->crc;
    if (!good) {
        voxel_memory_give(out);
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the entry %.*s is damaged: its checksum is wrong", length,
                               name);
    }
    *content = out;
    return VOXEL_OK;
}

/* Whether the entry is NAME.npy. */
static bool is_array(const struct zip_entry *entry, const char *name)
{
    size_t bytes = strlen(name);
    return entry->name_bytes == bytes + 4 && memcmp(entry->name, name, bytes) == 0 &&
           memcmp(entry->name + bytes, ".npy", 4) == 0;
}

/* Of NAME, where the entry is NAME.npy. */
static size_t name_bytes(const struct zip_entry *entry)
{
    return entry->name_bytes > 4 ? entry->name_bytes - 4 : entry->name_bytes;
}

/* A zip, and the names of the arrays in it but coords. */
struct archive {
    struct bytes file;
    char others[OFFERS_BYTES];
};

/* Finds NAME.npy; *content stays NULL when there is none: `others` is then complete. */
static enum voxel_code read_array(struct archive *archive, const char *name,
                                  uint8_t **content, struct npy *array,
                                  struct voxel_error *error)
{
    struct bytes file = archive->file;
    const uint8_t *end = find_end(file);
    *content = NULL;
    if (!end)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "this is no .npz: a zip's directory is missing at its end");
    size_t count = u16(end + 10);
    size_t at = u32(end + 16);
    archive->others[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        struct zip_entry entry;
        if (!read_entry(file, &at, &entry))
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "entry %zu of the zip's directory is damaged", i);
        if (!is_array(&entry, "coords") && !is_array(&entry, "voxel_size"))
            offers_add(archive->others, (const char *)entry.name, name_bytes(&entry));
        if (!is_array(&entry, name)) continue;
        enum voxel_code code = read_content(file, &entry, content, error);
        if (!code) code = npy_parse((struct bytes){*content, entry.size}, array, error);
        return code;
    }
    return VOXEL_OK;
}

/* Whether it is an array with a number for each row. */
static bool is_column(struct bytes file, const struct zip_entry *entry, int64_t rows)
{
    struct npy array;
    uint8_t *content;
    if (read_content(file, entry, &content, NULL)) return false;
    bool column = !npy_parse((struct bytes){content, entry->size}, &array, NULL) &&
                  (array.rank == 1 || (array.rank == 2 && array.shape[1] == 1)) &&
                  array.shape[0] == rows;
    voxel_memory_give(content);
    return column;
}

/* Samples beside coords of three columns would be an answer about other neighbours. */
static enum voxel_code check_samples(struct bytes file, const struct feats_asked *asked,
                                     const struct npy *coords, struct voxel_error *error)
{
    struct samples_names names = {0};
    struct zip_entry entry;
    const uint8_t *end = find_end(file);
    size_t count = end && coords->shape[1] == 3 ? u16(end + 10) : 0;
    size_t at = end ? u32(end + 16) : 0;
    for (size_t i = 0; i < count && read_entry(file, &at, &entry); i++) {
        const char *name = (const char *)entry.name;
        struct samples_names one = {0};
        if (asked->names && is_array(&entry, asked->names)) continue;
        samples_see(&one, name, name_bytes(&entry));
        if (samples_misnamed(&one) && !is_column(file, &entry, coords->shape[0]))
            continue;
        samples_see(&names, name, name_bytes(&entry));
    }
    const char *misnamed = samples_misnamed(&names);
    if (!misnamed) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "the array '%s' would not be used: expected samples as column "
                           "0 of coords [N,4]; put it "
                           "there, leave it out, or take it with --feats",
                           misnamed);
}

/* The size that save.c writes beside voxels.  An array of that name that is no such number says
 * nothing of a voxel, and is left alone. */
static double read_size(struct archive *archive)
{
    uint8_t *content;
    struct npy array;
    double size = 0;
    enum voxel_code code = read_array(archive, "voxel_size", &content, &array, NULL);
    if (!code && content && array.rank == 0) size = npy_cell(&array, 0, 0);
    voxel_memory_give(content);
    return size > 0 && size < 1e300 ? size : 0;
}

enum voxel_code points_read_npz(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error)
{
    struct npy coords;
    struct npy feats;
    uint8_t *coords_bytes = NULL;
    uint8_t *feats_bytes = NULL;
    struct archive archive = {.file = file};
    memset(points, 0, sizeof *points);
    const char *name = asked->names ? asked->names : "feats";
    enum voxel_code code = read_array(&archive, "coords", &coords_bytes, &coords, error);
    if (!code && !coords_bytes)
        code = voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the .npz has no array named coords; it has: %s",
                               archive.others);
    if (!code) code = read_array(&archive, name, &feats_bytes, &feats, error);
    if (!code && !feats_bytes && asked->names)
        code = voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the .npz has no array named %s; beside coords it has: %s",
                               name, *archive.others ? archive.others : "nothing");
    if (!code) code = npy_points(&coords, feats_bytes ? &feats : NULL, points, error);
    if (!code) code = check_samples(file, asked, &coords, error);
    if (code) points_fini(points);
    memcpy(points->offers, archive.others, sizeof archive.others);
    /* Beside positions it would decide where they are put: that is --voxel's. */
    if (points->whole) points->voxel_size = read_size(&archive);
    voxel_memory_give(coords_bytes);
    voxel_memory_give(feats_bytes);
    return code;
}
