/* hpack_rig - writes header blocks, one field after the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/govern/hpack_rig.h"

#include <check.h>
#include <string.h>

/* RFC 7541, appendix B: the bits of each character's code. */
static const u8 code_bits[256] = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11,
    10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8,
    15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
    7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14, 6,  15, 5,  6,  5,
    6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,
    7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
};

void hpack_byte(struct hpack_block *block, u32 byte)
{
    ck_assert_uint_lt(block->length, sizeof block->bytes);
    block->bytes[block->length++] = (u8)byte;
}

void hpack_number(struct hpack_block *block, u32 first, u32 bits, u32 number)
{
    u32 most = (1u << bits) - 1, count = 0;
    hpack_byte(block, first | (number < most ? number : most));
    if (number < most) return;
    for (number -= most; number >= 128; number >>= 7, count++)
        hpack_byte(block, (number & 127) | 128);
    hpack_byte(block, number | (block->zeros ? 128 : 0));
    if (!block->zeros) return;
    for (count++; count < 4 + block->zeros; count++) hpack_byte(block, 128);
    hpack_byte(block, 0);
}

/* Codes of one length follow on each other, in the order of their characters. */
static u32 code_of(u8 character)
{
    u32 code = 0;
    for (u32 bits = 5; bits <= code_bits[character]; bits++) {
        code <<= 1;
        for (u32 i = 0; i < 256; i++) {
            if (bits == code_bits[character] && i == character) return code;
            if (code_bits[i] == bits) code++;
        }
    }
    return code;
}

size_t hpack_huffman(const u8 *text, size_t length, u8 *bytes)
{
    size_t count = 0;
    u64 left = 0;
    u32 bits = 0;
    for (size_t i = 0; i < length; i++) {
        left = left << code_bits[text[i]] | code_of(text[i]);
        for (bits += code_bits[text[i]]; bits >= 8; bits -= 8)
            bytes[count++] = (u8)(left >> (bits - 8));
    }
    if (bits) bytes[count++] = (u8)(left << (8 - bits) | 0xffu >> bits);
    return count;
}

void hpack_text(struct hpack_block *block, const u8 *text, size_t length, bool huffman)
{
    u8 coded[1 << 14];
    ck_assert_uint_lt(length, sizeof coded / 4);
    if (huffman) length = hpack_huffman(text, length, coded);
    hpack_number(block, huffman ? 128 : 0, 7, (u32)length);
    ck_assert_uint_le(block->length + length, sizeof block->bytes);
    memcpy(block->bytes + block->length, huffman ? coded : text, length);
    block->length += length;
}

u32 hpack_random(u32 limit)
{
    static u64 state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (u32)(state >> 11) % limit;
}
