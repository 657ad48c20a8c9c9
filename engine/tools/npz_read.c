/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/npz.h"

#include "engine/base/process/alloc.h"
#include "engine/base/text/sentence.h"
#include "engine/weights/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCAL_BYTES   30
#define ENTRY_BYTES   46
#define END_BYTES     22
#define COMMENT_MOST  65535 /* bytes that may follow the end record */
#define HEADER_MOST   4096  /* NumPy's header of a plain array has under 200 */
#define PREFIX_BYTES  12    /* of the longest form, before the header's text */
#define DESCR_MOST    16    /* of a type that an error quotes */
#define METHOD_STORED 0

struct zip_entry {
    u32 method, crc;
    u64 packed, size, local;
};

static u32 get16(const u8 *at)
{
    return (u32)at[0] | (u32)at[1] << 8;
}

static u32 get32(const u8 *at)
{
    return get16(at) | get16(at + 2) << 16;
}

static vx_status damaged(const struct vx_source *source, const char *what,
                         struct vx_why *why)
{
    VX_FAIL_WHY(why, DATA_LOSS, "a .npz is damaged", "%s: %s is damaged", source->label,
                what);
}

/* The zip's directory in new memory. */
static vx_status directory_read(const struct vx_source *source, struct vx_why *why,
                                u8 **directory, size_t *bytes)
{
    size_t tail = source->bytes < END_BYTES + COMMENT_MOST ? source->bytes
                                                           : END_BYTES + COMMENT_MOST;
    u8 *end = vx_alloc(tail + 1);
    VX_ENSURE(end, RESOURCE_EXHAUSTED, "no memory to read a .npz");
    vx_status status = vx_source_read(source, source->bytes - tail, end, tail, why);
    u64 begin = UINT64_MAX;
    for (size_t at = tail; !status.fault && at-- > 0 && begin == UINT64_MAX;)
        if (tail - at >= END_BYTES && !memcmp(end + at, "PK\x05\x06", 4)) {
            *bytes = get32(end + at + 12);
            begin = get32(end + at + 16);
        }
    vx_free(end);
    VX_TRY(status);
    VX_ENSURE_WHY(begin != UINT64_MAX, why, INVALID_ARGUMENT, "a file is no .npz",
                  "%s: expected a .npz, which ends with a zip's directory",
                  source->label);
    if (begin > source->bytes || *bytes > source->bytes - begin)
        return damaged(source, "the zip's directory", why);
    *directory = vx_alloc(*bytes + 1);
    VX_ENSURE(*directory, RESOURCE_EXHAUSTED, "no memory to read a .npz");
    return vx_source_read(source, begin, *directory, *bytes, why);
}

/* False: there is no such entry in the directory. */
static bool entry_find(const u8 *directory, size_t bytes, const char *name,
                       struct zip_entry *entry)
{
    const size_t length = strlen(name);
    for (size_t at = 0; bytes - at >= ENTRY_BYTES;) {
        const u8 *record = directory + at;
        const size_t own = get16(record + 28);
        const size_t whole = ENTRY_BYTES + own + get16(record + 30) + get16(record + 32);
        if (memcmp(record, "PK\x01\x02", 4) || whole > bytes - at) return false;
        *entry =
            (struct zip_entry){get16(record + 10), get32(record + 16), get32(record + 20),
                               get32(record + 24), get32(record + 42)};
        const char *text = (const char *)record + ENTRY_BYTES;
        if (own == length + 4 && !memcmp(text, name, length) &&
            !memcmp(text + length, ".npy", 4))
            return true;
        at += whole;
    }
    return false;
}

/* --- NumPy's header --- */

static const char *header_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ') at++;
    return at;
}

static bool shape_parse(const char *at, struct vx_npz_array *array)
{
    if (!at || *at++ != '(') return false;
    for (;;) {
        while (*at == ' ' || *at == ',') at++;
        if (*at == ')') return true;
        char *end;
        long long size = strtoll(at, &end, 10);
        if (end == at || size < 0 || size > VX_VOXELS_MAX) return false;
        if (array->rank == VX_NPZ_RANK_MAX) return false;
        array->shape[array->rank++] = size;
        at = end;
    }
}

/* The length of the type in quotes, for an error. */
static int descr_bytes(const char *descr)
{
    const size_t bytes = strcspn(descr + 1, "'");
    return bytes < DESCR_MOST ? (int)bytes : DESCR_MOST;
}

/* Reads a header such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. */
static vx_status header_parse(const char *header, const char *label, struct vx_why *why,
                              struct vx_npz_array *array)
{
    const char *descr = header_value(header, "'descr':");
    const char *order = header_value(header, "'fortran_order':");
    array->rank = 0;
    bool good = descr && order && *descr == '\'' &&
                shape_parse(header_value(header, "'shape':"), array);
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "an array of a .npz is not plain",
                  "%s: expected \"%s\" as a plain array of NumPy", label, array->name);
    VX_ENSURE_WHY(descr[1] == '<' && strchr("fiu", descr[2]) && descr[2] &&
                      strchr("248", descr[3]) && descr[3] && descr[4] == '\'',
                  why, INVALID_ARGUMENT, "an array of a .npz has another type",
                  "%s: expected \"%s\" of little-endian integers or floats, such as <f4, "
                  "got %.*s",
                  label, array->name, descr_bytes(descr), descr + 1);
    VX_ENSURE_WHY(!strncmp(order, "False", 5), why, INVALID_ARGUMENT,
                  "an array of a .npz is column-major",
                  "%s: expected \"%s\" row-major: np.ascontiguousarray makes it so",
                  label, array->name);
    array->kind = descr[2];
    array->size = descr[3] - '0';
    return VX_OK;
}

/* --- an entry --- */

static bool bytes_fit(const struct vx_npz_array *array, u64 bytes)
{
    u64 needed = (u64)array->size;
    for (i32 i = 0; i < array->rank; i++)
        if (__builtin_mul_overflow(needed, (u64)array->shape[i], &needed)) return false;
    return needed == bytes;
}

/* `content` has the entry's bytes and a NUL behind them; it becomes the array's data. */
static vx_status array_parse(const struct vx_source *source, u8 *content, u64 size,
                             struct vx_why *why, struct vx_npz_array *array)
{
    char header[HEADER_MOST + 1];
    if (size < PREFIX_BYTES || memcmp(content, "\x93NUMPY", 6))
        return damaged(source, array->name, why);
    u64 begin = content[6] == 1 ? 10 : PREFIX_BYTES;
    u64 length = content[6] == 1 ? get16(content + 8) : get32(content + 8);
    if (length > HEADER_MOST || length > size - begin)
        return damaged(source, array->name, why);
    memcpy(header, content + begin, length);
    header[length] = 0;
    VX_TRY(header_parse(header, source->label, why, array));
    if (!bytes_fit(array, size - begin - length))
        return damaged(source, array->name, why);
    memmove(content, content + begin + length, size - begin - length);
    array->data = content;
    return VX_OK;
}

static vx_status entry_read(const struct vx_source *source, const struct zip_entry *entry,
                            struct vx_why *why, struct vx_npz_array *array)
{
    u8 local[LOCAL_BYTES];
    VX_ENSURE_WHY(entry->method == METHOD_STORED, why, INVALID_ARGUMENT,
                  "an array of a .npz is compressed",
                  "%s: \"%s\" is compressed: expected it as np.savez writes it, not "
                  "np.savez_compressed",
                  source->label, array->name);
    if (entry->local > source->bytes || source->bytes - entry->local < LOCAL_BYTES)
        return damaged(source, array->name, why);
    VX_TRY(vx_source_read(source, entry->local, local, LOCAL_BYTES, why));
    u64 begin = entry->local + LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (memcmp(local, "PK\x03\x04", 4) || begin > source->bytes ||
        entry->size > source->bytes - begin || entry->size != entry->packed)
        return damaged(source, array->name, why);
    u8 *content = vx_alloc(entry->size + 1);
    VX_ENSURE(content, RESOURCE_EXHAUSTED, "no memory to read a .npz");
    vx_status status = vx_source_read(source, begin, content, entry->size, why);
    if (!status.fault && vx_npz_crc(0, content, entry->size) != entry->crc)
        status = damaged(source, array->name, why);
    if (!status.fault) status = array_parse(source, content, entry->size, why, array);
    if (status.fault) vx_free(content);
    return status;
}

vx_status vx_npz_read(const char *path, const char *name, struct vx_why *why,
                      struct vx_npz_array *array)
{
    char label[VX_LABEL_BYTES];
    struct vx_source source;
    struct zip_entry entry;
    u8 *directory = NULL;
    size_t bytes = 0;
    *array = (struct vx_npz_array){.rank = 0};
    snprintf(array->name, sizeof array->name, "%s", name);
    vx_label_of_path(path, 2, label);
    VX_TRY(vx_source_open(path, label, why, &source));
    vx_status status = directory_read(&source, why, &directory, &bytes);
    if (!status.fault && !entry_find(directory, bytes, name, &entry)) {
        static const struct vx_fault fault = {VX_CODE_NOT_FOUND, "a .npz lacks an array",
                                              __FILE__, __LINE__};
        vx_why_set(why, "%s: expected an array \"%s\" in it", label, name);
        status = (vx_status){&fault};
    }
    if (!status.fault) status = entry_read(&source, &entry, why, array);
    vx_free(directory);
    vx_source_close(&source);
    return status;
}

vx_status vx_npy_read(const char *path, struct vx_why *why, struct vx_npz_array *array)
{
    char label[VX_LABEL_BYTES];
    struct vx_source source;
    *array = (struct vx_npz_array){.name = "array"};
    vx_label_of_path(path, 2, label);
    VX_TRY(vx_source_open(path, label, why, &source));
    u8 *content = vx_alloc(source.bytes + 1);
    vx_status status = VX_OK;
    if (content) status = vx_source_read(&source, 0, content, source.bytes, why);
    if (content && !status.fault)
        status = array_parse(&source, content, source.bytes, why, array);
    if (status.fault) vx_free(content);
    vx_source_close(&source);
    VX_ENSURE(content, RESOURCE_EXHAUSTED, "no memory to read a .npy");
    return status;
}
