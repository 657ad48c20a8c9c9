/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/clients/npy_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

void rig_put(struct rig_file *b, const void *data, size_t bytes)
{
    ck_assert_uint_le(bytes, sizeof b->data - b->size);
    memcpy(b->data + b->size, data, bytes);
    b->size += bytes;
}

void rig_put_text(struct rig_file *b, const char *text)
{
    rig_put(b, text, strlen(text));
}

void rig_put_number(struct rig_file *b, uint64_t value, size_t bytes)
{
    rig_put(b, &value, bytes);
}

struct feats_asked rig_asked;

/* The reader gets memory of the exact size, so that a sanitizer reports a read past
 * its end. */
enum voxel_code rig_read(enum voxel_code (*read)(struct bytes, const struct feats_asked *,
                                                 struct points *, struct voxel_error *),
                         const void *data, size_t size, struct points *points,
                         struct voxel_error *error)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    enum voxel_code code = read((struct bytes){copy, size}, &rig_asked, points, error);
    free(copy);
    if (code) {
        ck_assert_ptr_null(points->xyz);
        ck_assert_ptr_null(points->feats);
    }
    return code;
}

void rig_npy(struct rig_file *b, unsigned version, const char *header)
{
    uint8_t magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)version, 0};
    rig_put(b, magic, sizeof magic);
    rig_put_number(b, strlen(header), version == 1 ? 2 : 4);
    rig_put_text(b, header);
}

const int32_t rig_points[4][3] = {{1, 2, 3}, {-4, 5, 6}, {7, -8, 9}, {0, 0, 100000}};

void rig_check_four(const struct points *points)
{
    ck_assert_int_eq(points->count, 4);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++)
            ck_assert(points->xyz[3 * i + k] == (double)rig_points[i][k]);
}

/* Adds an entry; `deflated` as numpy.savez_compressed does. */
void rig_zip_add(struct rig_zip *zip, const char *name, const struct rig_file *content,
                 bool deflated)
{
    uint8_t packed[8192];
    uLongf packed_bytes = content->size;
    memcpy(packed, content->data, content->size);
    if (deflated) {
        z_stream stream = {0};
        ck_assert_int_eq(
            deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
            Z_OK);
        stream.next_in = (Bytef *)(uintptr_t)content->data;
        stream.avail_in = (uInt)content->size;
        stream.next_out = packed;
        stream.avail_out = sizeof packed;
        ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
        packed_bytes = stream.total_out;
        deflateEnd(&stream);
    }
    size_t local = zip->body.size;
    uint32_t crc = (uint32_t)crc32(0, content->data, (uInt)content->size);
    for (int central = 0; central < 2; central++) {
        struct rig_file *b = central ? &zip->directory : &zip->body;
        rig_put_text(b, central ? "PK\x01\x02" : "PK\x03\x04");
        rig_put_number(b, 20, central ? 4 : 2);
        rig_put_number(b, 0, 2);
        rig_put_number(b, deflated ? 8 : 0, 2);
        rig_put_number(b, 0, 4);
        rig_put_number(b, crc, 4);
        rig_put_number(b, packed_bytes, 4);
        rig_put_number(b, content->size, 4);
        rig_put_number(b, strlen(name), 2);
        rig_put_number(b, central ? 0 : 4,
                       2); /* an extra field in the local header only */
        if (central) {
            rig_put_number(b, 0, 8);
            rig_put_number(b, 0, 2);
            rig_put_number(b, local, 4);
        }
        rig_put_text(b, name);
        if (!central) {
            rig_put_number(b, 0, 4);
            rig_put(b, packed, packed_bytes);
        }
    }
    zip->count++;
}

void rig_zip_end(struct rig_zip *zip)
{
    size_t begin = zip->body.size;
    rig_put(&zip->body, zip->directory.data, zip->directory.size);
    rig_put_text(&zip->body, "PK\x05\x06");
    rig_put_number(&zip->body, 0, 4);
    rig_put_number(&zip->body, zip->count, 2);
    rig_put_number(&zip->body, zip->count, 2);
    rig_put_number(&zip->body, zip->directory.size, 4);
    rig_put_number(&zip->body, begin, 4);
    rig_put_number(&zip->body, 3, 2);
    rig_put_text(&zip->body, "end");
}
