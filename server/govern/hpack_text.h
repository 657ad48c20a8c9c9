/* hpack_text - the length of one text of a header block, without decoding it.
 *
 * Huffman's code makes 13 characters of 8 bytes.  It is canonical, so how many codes of
 * each length there are is enough to count characters.  Only six characters matter: gRPC
 * decodes the value of a name that ends in "-bin", and keeps fewer bytes of it.
 *
 *   vx_hpack_text_begin(&text, huffman, bytes);
 *   taken = vx_hpack_text_walk(&text, bytes, count);    cut anywhere
 *   if (!text.left) ... text.length, text.broken
 *
 * Owner    the caller owns the text.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Fails    broken: no encoder writes this.  gRPC drops such a field, and what follows it in
 *          the same buffer, and says nothing: from there on nobody knows its tables.
 * Source   RFC 7541, section 5.2, appendix B; gRPC 1.51, hpack_parser.cc.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HPACK_TEXT_H
#define VX_SERVER_HPACK_TEXT_H

#include "engine/base/types.h"

struct vx_hpack_text {
    u32 left;   /* bytes of it still to come */
    u32 length; /* characters so far */
    bool broken;
    /* State. */
    bool huffman, zero; /* its first character is 0 */
    u8 bits_count;
    u32 equals; /* at its end: base64's padding */
    u32 last;   /* the last four characters */
    u64 bits;   /* of the code that is not whole, in the lowest places */
};

void vx_hpack_text_begin(struct vx_hpack_text *text, bool huffman, u32 bytes);
/* Returns how many bytes were the text's. */
u32 vx_hpack_text_walk(struct vx_hpack_text *text, const u8 *bytes, size_t count);
/* Whether it ends in "-bin". */
bool vx_hpack_text_is_binary(const struct vx_hpack_text *text);
/* The bytes that gRPC makes of it, if it is the value of such a name. */
u32 vx_hpack_text_binary(const struct vx_hpack_text *text);

#endif
