/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/wire.h"

#include <string.h>

#define FIELD_NUMBER_MAX 536870911u

void voxel_write_raw(struct voxel_writer *w, const void *data, size_t bytes)
{
    if (bytes && w->out && w->used <= w->room && bytes <= w->room - w->used)
        memcpy(w->out + w->used, data, bytes);
    w->used += bytes;
}

void voxel_write_varint(struct voxel_writer *w, uint64_t value)
{
    uint8_t bytes[VOXEL_VARINT_BYTES_MAX];
    size_t count = 0;
    while (value >= 0x80) {
        bytes[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[count++] = (uint8_t)value;
    voxel_write_raw(w, bytes, count);
}

void voxel_write_tag(struct voxel_writer *w, uint32_t number, enum voxel_wire wire)
{
    voxel_write_varint(w, (uint64_t)number << 3 | (uint64_t)wire);
}

void voxel_write_prefix(struct voxel_writer *w, uint32_t number, size_t bytes)
{
    voxel_write_tag(w, number, VOXEL_WIRE_LEN);
    voxel_write_varint(w, bytes);
}

void voxel_write_text(struct voxel_writer *w, uint32_t number, const char *text)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes == 0) return;
    voxel_write_prefix(w, number, bytes);
    voxel_write_raw(w, text, bytes);
}

void voxel_write_number(struct voxel_writer *w, uint32_t number, uint64_t value)
{
    if (value == 0) return;
    voxel_write_tag(w, number, VOXEL_WIRE_VARINT);
    voxel_write_varint(w, value);
}

struct voxel_reader voxel_reader_make(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    return (struct voxel_reader){at, at ? at + bytes : at, false};
}

/* Adds byte number `count` of a varint.  Returns 1 if it was the last, 0 if more follow,
 * -1 if the varint is too long. */
static int varint_add(uint64_t *value, unsigned count, uint8_t byte)
{
    if (count == 9 && byte > 1) return -1;
    *value |= (uint64_t)(byte & 0x7f) << (7 * count);
    return byte < 0x80;
}

bool voxel_reader_varint(struct voxel_reader *r, uint64_t *value)
{
    *value = 0;
    for (unsigned count = 0; r->at < r->end; count++) {
        int last = varint_add(value, count, *r->at++);
        if (last < 0) break;
        if (last) return true;
    }
    r->bad = true;
    return false;
}

/* Splits a tag; false if the format does not allow it. */
static bool tag_split(uint64_t tag, uint32_t *number, enum voxel_wire *wire)
{
    uint64_t n = tag >> 3;
    uint64_t kind = tag & 7;
    if (n == 0 || n > FIELD_NUMBER_MAX) return false;
    if (kind != VOXEL_WIRE_VARINT && kind != VOXEL_WIRE_I64 && kind != VOXEL_WIRE_LEN &&
        kind != VOXEL_WIRE_I32)
        return false;
    *number = (uint32_t)n;
    *wire = (enum voxel_wire)kind;
    return true;
}

static bool reader_fixed(struct voxel_reader *r, size_t bytes, uint64_t *value)
{
    if ((size_t)(r->end - r->at) < bytes) return false;
    *value = 0;
    for (size_t i = 0; i < bytes; i++) *value |= (uint64_t)r->at[i] << (8 * i);
    r->at += bytes;
    return true;
}

bool voxel_reader_next(struct voxel_reader *r, struct voxel_field *field)
{
    if (r->bad || r->at == r->end) return false;
    uint64_t tag;
    *field = (struct voxel_field){0};
    bool good =
        voxel_reader_varint(r, &tag) && tag_split(tag, &field->number, &field->wire);
    if (good && field->wire == VOXEL_WIRE_LEN) {
        uint64_t bytes;
        good = voxel_reader_varint(r, &bytes) && bytes <= (size_t)(r->end - r->at);
        if (good) {
            field->data = r->at;
            field->bytes = (size_t)bytes;
            r->at += bytes;
        }
    } else if (good && field->wire == VOXEL_WIRE_VARINT) {
        good = voxel_reader_varint(r, &field->value);
    } else if (good) {
        good = reader_fixed(r, field->wire == VOXEL_WIRE_I64 ? 8 : 4, &field->value);
    }
    if (!good) r->bad = true;
    return good;
}

size_t voxel_reader_count(const void *data, size_t bytes, uint32_t number)
{
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    size_t count = 0;
    while (voxel_reader_next(&r, &field))
        if (field.number == number && field.wire == VOXEL_WIRE_LEN) count++;
    return count;
}

struct voxel_walk voxel_walk_make(const struct voxel_spans *spans)
{
    struct voxel_walk walk = {.spans = spans};
    for (size_t i = 0; i < spans->count; i++) walk.left += spans->list[i].bytes;
    return walk;
}

void voxel_walk_skip(struct voxel_walk *walk, size_t bytes)
{
    walk->left -= bytes;
    while (bytes > 0) {
        size_t here = walk->spans->list[walk->index].bytes - walk->offset;
        if (bytes < here) {
            walk->offset += bytes;
            return;
        }
        bytes -= here;
        walk->index++;
        walk->offset = 0;
    }
}

void voxel_walk_copy(struct voxel_walk *walk, void *out, size_t bytes)
{
    uint8_t *to = out;
    walk->left -= bytes;
    while (bytes > 0) {
        const struct voxel_span *span = &walk->spans->list[walk->index];
        size_t here = span->bytes - walk->offset;
        size_t part = bytes < here ? bytes : here;
        if (part) memcpy(to, span->data + walk->offset, part);
        to += part;
        bytes -= part;
        walk->offset += part;
        if (walk->offset == span->bytes) {
            walk->index++;
            walk->offset = 0;
        }
    }
}

/* Reads a varint and appends its bytes to the field's head. */
static bool walk_varint(struct voxel_walk *walk, struct voxel_walk_field *field,
                        uint64_t *value)
{
    *value = 0;
    for (unsigned count = 0; walk->left > 0; count++) {
        uint8_t *byte = &field->head[field->head_bytes++];
        voxel_walk_copy(walk, byte, 1);
        int last = varint_add(value, count, *byte);
        if (last) return last > 0;
    }
    return false;
}

bool voxel_walk_next(struct voxel_walk *walk, struct voxel_walk_field *field, bool *bad)
{
    *bad = false;
    if (walk->left == 0) return false;
    uint64_t tag;
    uint64_t value = 0;
    field->head_bytes = 0;
    field->bytes = 0;
    bool good =
        walk_varint(walk, field, &tag) && tag_split(tag, &field->number, &field->wire);
    if (good && (field->wire == VOXEL_WIRE_LEN || field->wire == VOXEL_WIRE_VARINT)) {
        good = walk_varint(walk, field, &value);
        if (good && field->wire == VOXEL_WIRE_LEN) {
            good = value <= walk->left;
            field->bytes = (size_t)value;
        }
    } else if (good) {
        size_t bytes = field->wire == VOXEL_WIRE_I64 ? 8 : 4;
        good = bytes <= walk->left;
        if (good) voxel_walk_copy(walk, field->head + field->head_bytes, bytes);
        if (good) field->head_bytes += bytes;
    }
    *bad = !good;
    return good;
}
