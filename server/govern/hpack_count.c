/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/hpack_count.h"

/* More bits than this gRPC refuses; they are read and forgotten. */
#define NUMBER_BITS 32

void vx_hpack_begin(struct vx_hpack_count *count)
{
    *count = (struct vx_hpack_count){.next = VX_HPACK_FIELD};
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
    if (count->shift < NUMBER_BITS - 7)
        count->number += (u32)(byte & 127) << count->shift;
    else
        count->number = UINT32_MAX;
    if (count->shift < NUMBER_BITS) count->shift += 7;
    return byte < 128;
}

static void string_next(struct vx_hpack_count *count)
{
    count->next = count->strings ? VX_HPACK_LENGTH : VX_HPACK_FIELD;
}

/* Its name is in a table, or follows as a string. */
static void index_end(struct vx_hpack_count *count)
{
    if (count->strings && !count->number) count->strings++;
    string_next(count);
}

static void length_end(struct vx_hpack_count *count)
{
    count->strings--;
    count->next = VX_HPACK_TEXT;
    if (!count->number) string_next(count);
}

static void field_begin(struct vx_hpack_count *count, u8 byte)
{
    bool indexed = byte & 128, kept = byte >> 6 == 1, size = byte >> 5 == 1;
    u8 mask = indexed ? 127 : kept ? 63 : size ? 31 : 15;
    count->fields++;
    count->strings = !indexed && !size;
    count->next = VX_HPACK_INDEX;
    if (number_begin(count, byte, mask)) index_end(count);
}

void vx_hpack_walk(struct vx_hpack_count *count, const u8 *bytes, size_t bytes_count)
{
    for (size_t at = 0; at < bytes_count;) {
        size_t left = bytes_count - at;
        if (count->next == VX_HPACK_TEXT) {
            u32 taken = left < count->number ? (u32)left : count->number;
            count->number -= taken;
            at += taken;
            if (!count->number) string_next(count);
            continue;
        }
        u8 byte = bytes[at++];
        if (count->next == VX_HPACK_FIELD) {
            field_begin(count, byte);
        } else if (count->next == VX_HPACK_INDEX) {
            if (number_more(count, byte)) index_end(count);
        } else if (count->next == VX_HPACK_MORE) {
            if (number_more(count, byte)) length_end(count);
        } else {
            count->next = VX_HPACK_MORE;
            if (number_begin(count, byte, 127)) length_end(count);
        }
    }
}
