/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/hpack_count.h"

/* Bits from here on are zeros, or gRPC ends the connection. */
#define NUMBER_BITS 32

void vx_hpack_init(struct vx_hpack_count *count)
{
    *count = (struct vx_hpack_count){.next = VX_HPACK_FIELD};
    vx_hpack_table_init(&count->table);
}

void vx_hpack_begin(struct vx_hpack_count *count)
{
    count->decoded = 0;
    count->next = VX_HPACK_FIELD;
}

bool vx_hpack_is_whole(const struct vx_hpack_count *count)
{
    return count->next == VX_HPACK_FIELD;
}

/* The number of which these are the lowest bits of a byte; true when that is all of it. */
static bool number_begin(struct vx_hpack_count *count, u8 byte, u8 mask)
{
    count->number = byte & mask;
    count->shift = 0;
    return count->number < mask;
}

static bool number_more(struct vx_hpack_count *count, u8 byte)
{
    if (count->shift < NUMBER_BITS) {
        count->number += (u64)(byte & 127) << count->shift;
        count->shift += 7;
    }
    return byte < 128;
}

/* More than a block can have is as good as endless. */
static u32 number_end(const struct vx_hpack_count *count)
{
    return count->number < UINT32_MAX ? (u32)count->number : UINT32_MAX;
}

static void field_end(struct vx_hpack_count *count)
{
    const struct vx_hpack_field *field = &count->field;
    count->decoded += (u64)field->name + field->value + VX_HPACK_FIELD_BYTES;
    if (count->form == VX_HPACK_KEPT) vx_hpack_table_add(&count->table, field);
    count->next = VX_HPACK_FIELD;
}

/* A place where nothing is has the cost of a field without text: gRPC itself ends the
 * connection, so a mistake in this table would not end an honest one. */
static void index_end(struct vx_hpack_count *count)
{
    u32 index = number_end(count);
    if (count->form == VX_HPACK_SIZE) {
        vx_hpack_table_resize(&count->table, index);
        count->next = VX_HPACK_FIELD;
        return;
    }
    vx_hpack_table_find(&count->table, index, &count->field);
    count->named = index != 0;
    if (count->form == VX_HPACK_INDEXED)
        field_end(count);
    else
        count->next = VX_HPACK_LENGTH;
}

static void text_end(struct vx_hpack_count *count)
{
    const struct vx_hpack_text *text = &count->text;
    struct vx_hpack_field *field = &count->field;
    if (text->broken) count->broken = true;
    if (count->named) {
        field->value = field->binary ? vx_hpack_text_binary(text) : text->length;
        field_end(count);
        return;
    }
    field->name = text->length;
    field->binary = vx_hpack_text_is_binary(text);
    count->named = true;
    count->next = VX_HPACK_LENGTH;
}

static void length_end(struct vx_hpack_count *count)
{
    vx_hpack_text_begin(&count->text, count->huffman, number_end(count));
    count->next = VX_HPACK_TEXT;
    if (!count->text.left) text_end(count);
}

static void field_begin(struct vx_hpack_count *count, u8 byte)
{
    bool indexed = byte & 128, kept = byte >> 6 == 1, size = byte >> 5 == 1;
    u8 mask = indexed ? 127 : kept ? 63 : size ? 31 : 15;
    count->form = indexed ? VX_HPACK_INDEXED
                  : kept  ? VX_HPACK_KEPT
                  : size  ? VX_HPACK_SIZE
                          : VX_HPACK_LITERAL;
    count->next = VX_HPACK_INDEX;
    if (number_begin(count, byte, mask)) index_end(count);
}

/* A byte that is no text. */
static void byte_take(struct vx_hpack_count *count, u8 byte)
{
    if (count->next == VX_HPACK_FIELD) {
        field_begin(count, byte);
    } else if (count->next == VX_HPACK_INDEX) {
        if (number_more(count, byte)) index_end(count);
    } else if (count->next == VX_HPACK_MORE) {
        if (number_more(count, byte)) length_end(count);
    } else {
        count->huffman = byte & 128;
        count->next = VX_HPACK_MORE;
        if (number_begin(count, byte, 127)) length_end(count);
    }
}

void vx_hpack_walk(struct vx_hpack_count *count, const u8 *bytes, size_t bytes_count)
{
    for (size_t at = 0; at < bytes_count && !count->broken;) {
        if (count->next != VX_HPACK_TEXT) {
            byte_take(count, bytes[at++]);
            continue;
        }
        at += vx_hpack_text_walk(&count->text, bytes + at, bytes_count - at);
        if (!count->text.left) text_end(count);
    }
}
