/* hpack_rig - writes header blocks, one field after the other.
 *
 *   struct hpack_block block = {0};
 *   hpack_number(&block, 0x40, 6, 0);
 *   hpack_text(&block, "name", 4, true);
 *
 * Huffman's codes are made of their lengths alone, as RFC 7541 lists them.
 *
 * Thread   one at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_HPACK_RIG_H
#define VX_TESTS_HPACK_RIG_H

#include "engine/base/types.h"

struct hpack_block {
    u8 bytes[1 << 17];
    size_t length;
    u32 zeros; /* behind each number that is longer than its first byte: 5 bytes of them, and
                  so many more; 0 = none */
};

void hpack_byte(struct hpack_block *block, u32 byte);
/* A number in the lowest `bits` of a byte whose others are `first`, and in what follows. */
void hpack_number(struct hpack_block *block, u32 first, u32 bits, u32 number);
/* A text with its length. */
void hpack_text(struct hpack_block *block, const u8 *text, size_t length, bool huffman);
/* The text in Huffman's code, padded; returns its bytes. */
size_t hpack_huffman(const u8 *text, size_t length, u8 *bytes);
/* A number below `limit`, the same in each run. */
u32 hpack_random(u32 limit);

#endif
