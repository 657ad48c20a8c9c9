/* content - coords_ref: the 128-bit hash of coordinates that names a geometry.
 *
 * The hash is keyed, so that no client can construct two sets of coordinates with the
 * same hash; a look-up compares the coordinates nevertheless.  It reads memory once, as
 * fast as a copy, and checks no coordinate.
 *
 *   struct vx_content_key key;
 *   vx_content_key_make(&key);                         (once per front)
 *   struct vx_content name = vx_content_of(&key, coords, columns, voxels);
 *
 * Thread   any.
 * Limits   none; every size is legal.
 * Fails    never.  A coords_ref is never all zeros: zeros stand for "none".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_CONTENT_H
#define VX_ENGINE_BASE_CONTENT_H

#include "engine/base/types.h"

/* A coords_ref. */
struct vx_content {
    u64 low, high;
};
struct vx_content_key {
    u64 words[4];
};

/* A new random key. */
void vx_content_key_make(struct vx_content_key *key);
/* The hash of coords (voxels, columns) row-major.  The same voxels in another order, or
 * with another number of columns, have another hash. */
struct vx_content vx_content_of(const struct vx_content_key *key, const i32 *coords,
                                i32 columns, i64 voxels);

/* False for zeros, which stand for "none". */
static inline bool vx_content_there(struct vx_content content)
{
    return content.low | content.high;
}
static inline bool vx_content_equal(struct vx_content a, struct vx_content b)
{
    return a.low == b.low && a.high == b.high;
}

/* As clients write it: 32 lower-case hexadecimal digits, high half first. */
#define VX_CONTENT_TEXT_BYTES 33
void vx_content_print(struct vx_content content, char text[VX_CONTENT_TEXT_BYTES]);
/* False when the text has another form or is all zeros. */
bool vx_content_parse(const char *text, struct vx_content *content);

#endif
