/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/npz.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/out.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first day that a zip can express; a fixed date keeps the file's bytes the same. */
#define ZIP_DATE     0x0021
#define ZIP_NEEDS    20     /* version 2.0: stored entries */
#define ZIP_UTF8     0x0800 /* flag: the name is UTF-8 and not code page 437 */
#define LOCAL_BYTES  30
#define ENTRY_BYTES  46
#define END_BYTES    22
#define HEADER_BYTES 512 /* of an array of the largest shape: under 300 */
#define ALIGNMENT    64  /* of an array's data in its entry, as NumPy aligns it */

struct entry {
    char name[VX_NPZ_NAME_BYTES + 4]; /* with .npy */
    u32 crc, bytes, offset;
    i32 place;
};

struct vx_npz {
    struct vx_out out;
    char path[PATH_MAX];
    u64 at; /* bytes written */
    i32 count;
    struct entry entries[VX_NPZ_ARRAYS_MAX];
};

u32 vx_npz_crc(u32 crc, const void *data, size_t bytes)
{
    static u32 table[256];
    if (!table[1])
        for (u32 i = 0; i < 256; i++) {
            u32 value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table[i] = value;
        }
    const u8 *at = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) crc = table[(crc ^ at[i]) & 255] ^ crc >> 8;
    return ~crc;
}

size_t vx_npz_bytes(const struct vx_npz_array *array)
{
    size_t bytes = (size_t)array->size;
    for (i32 i = 0; i < array->rank; i++) bytes *= (size_t)array->shape[i];
    return bytes;
}

vx_status vx_npz_create(const char *path, struct vx_why *why, struct vx_npz **npz)
{
    *npz = NULL;
    struct vx_npz *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to write a .npz");
    snprintf(made->path, sizeof made->path, "%s", path);
    int error = vx_out_open(&made->out, path, 0666, 0);
    if (error) {
        vx_why_set(why, "%s: cannot be written: %s", path, strerror(error));
        vx_free(made);
        VX_FAIL(UNAVAILABLE, "a .npz cannot be written");
    }
    *npz = made;
    return VX_OK;
}

static vx_status put(struct vx_npz *npz, const void *data, size_t bytes,
                     struct vx_why *why)
{
    int error = vx_out_put(&npz->out, data, bytes);
    VX_ENSURE_WHY(!error, why, UNAVAILABLE, "a .npz cannot be written",
                  "%s: cannot be written: %s", npz->path, strerror(error));
    npz->at += bytes;
    return VX_OK;
}

static void put16(u8 *at, u32 value)
{
    at[0] = (u8)value;
    at[1] = (u8)(value >> 8);
}

static void put32(u8 *at, u32 value)
{
    put16(at, value);
    put16(at + 2, value >> 16);
}

/* NumPy's header of an array; returns its length. */
static size_t header_make(const struct vx_npz_array *array, u8 header[HEADER_BYTES])
{
    char text[HEADER_BYTES];
    int used = snprintf(text, sizeof text,
                        "{'descr': '<%c%d', 'fortran_order': False, 'shape': (",
                        array->kind, array->size);
    for (i32 i = 0; i < array->rank; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld, ",
                         (long long)array->shape[i]);
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    while ((10 + used + 1) % ALIGNMENT) text[used++] = ' ';
    text[used++] = '\n';
    memcpy(header, "\x93NUMPY\x01", 8); /* the text's NUL is the minor version, 0 */
    put16(header + 8, (u32)used);
    memcpy(header + 10, text, (size_t)used);
    return 10 + (size_t)used;
}

static bool is_ascii(const char *name)
{
    for (; *name; name++)
        if ((u8)*name >= 0x80) return false;
    return true;
}

/* The fields from the version on, which both headers of an entry share. */
static void put_common(u8 *at, const struct entry *entry)
{
    put16(at, ZIP_NEEDS);
    put16(at + 2, is_ascii(entry->name) ? 0 : ZIP_UTF8);
    put16(at + 8, ZIP_DATE);
    put32(at + 10, entry->crc);
    put32(at + 14, entry->bytes);
    put32(at + 18, entry->bytes);
    put16(at + 22, (u32)strlen(entry->name));
}

vx_status vx_npz_add(struct vx_npz *npz, const struct vx_npz_array *array,
                     struct vx_why *why)
{
    u8 header[HEADER_BYTES], head[LOCAL_BYTES] = "PK\x03\x04";
    const size_t length = header_make(array, header), bytes = vx_npz_bytes(array);
    VX_ASSERT(npz->count < VX_NPZ_ARRAYS_MAX);
    struct entry *entry = &npz->entries[npz->count];
    const u64 after = npz->at + LOCAL_BYTES + sizeof entry->name + length + bytes;
    /* A field of all ones would refer to zip64's fields. */
    VX_ENSURE_WHY(after < UINT32_MAX - (u64)VX_NPZ_ARRAYS_MAX * 256, why,
                  RESOURCE_EXHAUSTED, "a .npz would be larger than 4 GiB",
                  "%s: would be larger than 4 GiB at \"%.*s\": record fewer layers at "
                  "once, or a smaller example",
                  npz->path, VX_NAME_BYTES, array->name);
    snprintf(entry->name, sizeof entry->name, "%s.npy", array->name);
    entry->place = array->place;
    entry->offset = (u32)npz->at;
    entry->bytes = (u32)(length + bytes);
    entry->crc = vx_npz_crc(vx_npz_crc(0, header, length), array->data, bytes);
    put_common(head + 4, entry);
    npz->count++;
    VX_TRY(put(npz, head, sizeof head, why));
    VX_TRY(put(npz, entry->name, strlen(entry->name), why));
    VX_TRY(put(npz, header, length, why));
    return put(npz, array->data, bytes, why);
}

static int compare_places(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return (a->place > b->place) - (a->place < b->place);
}

static vx_status put_directory(struct vx_npz *npz, struct vx_why *why)
{
    u8 end[END_BYTES] = "PK\x05\x06";
    const u64 begin = npz->at;
    qsort(npz->entries, (size_t)npz->count, sizeof *npz->entries, compare_places);
    for (i32 i = 0; i < npz->count; i++) {
        const struct entry *entry = &npz->entries[i];
        u8 head[ENTRY_BYTES] = "PK\x01\x02";
        put16(head + 4, ZIP_NEEDS);
        put_common(head + 6, entry);
        put32(head + 42, entry->offset);
        VX_TRY(put(npz, head, sizeof head, why));
        VX_TRY(put(npz, entry->name, strlen(entry->name), why));
    }
    put16(end + 8, (u32)npz->count);
    put16(end + 10, (u32)npz->count);
    put32(end + 12, (u32)(npz->at - begin));
    put32(end + 16, (u32)begin);
    return put(npz, end, sizeof end, why);
}

/* Gives the file its name if `status` is good, else removes it; releases in any case. */
static vx_status finish(struct vx_npz **npz, vx_status status, struct vx_why *why)
{
    struct vx_npz *closing = *npz;
    if (!status.fault) {
        int error = vx_out_end(&closing->out, 0);
        if (error) {
            static const struct vx_fault fault = {
                VX_CODE_UNAVAILABLE, "a .npz cannot be written", __FILE__, __LINE__};
            vx_why_set(why, "%s: cannot be written: %s", closing->path, strerror(error));
            status = (vx_status){&fault};
        }
    }
    vx_npz_drop(npz);
    return status;
}

vx_status vx_npz_close(struct vx_npz **npz, struct vx_why *why)
{
    return finish(npz, put_directory(*npz, why), why);
}

vx_status vx_npy_write(const char *path, const struct vx_npz_array *array,
                       struct vx_why *why)
{
    u8 header[HEADER_BYTES];
    struct vx_npz *file;
    VX_TRY(vx_npz_create(path, why, &file));
    vx_status status = put(file, header, header_make(array, header), why);
    if (!status.fault) status = put(file, array->data, vx_npz_bytes(array), why);
    return finish(&file, status, why);
}

void vx_npz_drop(struct vx_npz **npz)
{
    if (!*npz) return;
    (void)vx_out_end(&(*npz)->out,
                     ECANCELED); /* after a close there is nothing to discard */
    vx_free(*npz);
    *npz = NULL;
}
