/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/hpack_text.h"

#define CODE_BITS_MAX 30
#define END_OF_TEXT   0x3fffffff /* a code that no text has */
#define BINARY        0x2d62696e /* "-bin" */

/* For each length of codes: the first value beyond them, when a code stands at the top of
 * CODE_BITS_MAX bits.  Shorter codes are smaller. */
static const struct {
    u32 bits, beyond;
} lengths[] = {
    {5, 0x14000000},  {6, 0x2e000000},  {7, 0x3e000000},  {8, 0x3f800000},
    {10, 0x3fd00000}, {11, 0x3fe80000}, {12, 0x3ff00000}, {13, 0x3ffc0000},
    {14, 0x3ffe0000}, {15, 0x3fff8000}, {19, 0x3fff9800}, {20, 0x3fffb800},
    {21, 0x3fffd200}, {22, 0x3fffec00}, {23, 0x3ffffa80}, {24, 0x3ffffd80},
    {25, 0x3ffffe00}, {26, 0x3ffffef0}, {27, 0x3fffff88}, {28, 0x3ffffffc},
    {30, 0x40000000},
};

/* The characters that matter. */
static const struct {
    u32 bits, code;
    u8 character;
} characters[] = {
    {5, 0x6, 'i'},  {6, 0x16, '-'}, {6, 0x20, '='},
    {6, 0x23, 'b'}, {6, 0x2a, 'n'}, {13, 0x1ff8, 0},
};

void vx_hpack_text_begin(struct vx_hpack_text *text, bool huffman, u32 bytes)
{
    *text = (struct vx_hpack_text){.huffman = huffman, .left = bytes};
}

static void character_take(struct vx_hpack_text *text, u8 character)
{
    if (!text->length) text->zero = !character;
    text->length++;
    text->last = text->last << 8 | character;
    text->equals = character == '=' ? text->equals + 1 : 0;
}

static u8 character_of(u32 bits, u32 code)
{
    for (size_t i = 0; i < VX_COUNT(characters); i++)
        if (characters[i].bits == bits && characters[i].code == code)
            return characters[i].character;
    return 'x'; /* any other */
}

/* The length of the code that the bits begin with; more than there are: it is not whole. */
static u32 code_length(const struct vx_hpack_text *text)
{
    u32 have = text->bits_count;
    u64 top = have < CODE_BITS_MAX ? text->bits << (CODE_BITS_MAX - have)
                                   : text->bits >> (have - CODE_BITS_MAX);
    size_t row = 0;
    while (top >= lengths[row].beyond) row++;
    return lengths[row].bits;
}

static void huffman_take(struct vx_hpack_text *text, u8 byte)
{
    text->bits = text->bits << 8 | byte;
    text->bits_count += 8;
    for (u32 bits; (bits = code_length(text)) <= text->bits_count;) {
        text->bits_count -= (u8)bits;
        u32 code = (u32)(text->bits >> text->bits_count);
        text->bits &= ((u64)1 << text->bits_count) - 1;
        if (code == END_OF_TEXT) text->broken = true;
        character_take(text, character_of(bits, code));
    }
}

/* What is left behind the last code is less than a byte, of ones. */
static bool is_padding(const struct vx_hpack_text *text)
{
    return text->bits_count < 8 && text->bits + 1 == (u64)1 << text->bits_count;
}

u32 vx_hpack_text_walk(struct vx_hpack_text *text, const u8 *bytes, size_t count)
{
    u32 taken = count < text->left ? (u32)count : text->left;
    for (u32 i = 0; i < taken; i++) {
        if (text->huffman)
            huffman_take(text, bytes[i]);
        else
            character_take(text, bytes[i]);
    }
    text->left -= taken;
    if (!text->left && !is_padding(text)) text->broken = true;
    return taken;
}

bool vx_hpack_text_is_binary(const struct vx_hpack_text *text)
{
    return text->last == BINARY && text->length >= sizeof text->last;
}

/* Base64 that is not whole ends the connection, so its length does not matter. */
u32 vx_hpack_text_binary(const struct vx_hpack_text *text)
{
    if (text->zero) return text->length - 1;
    u32 length = text->length - text->equals;
    return length / 4 * 3 + length % 4 * 3 / 4;
}
