/* content - 128 bits that stand for the bytes of a geometry: its name, before anyone has
 * looked at a coordinate.
 *
 * The hash is keyed, so that nobody outside can make two geometries of one name, and what
 * looks a name up compares the coordinates all the same.  It reads memory once, at the
 * speed of a copy.
 *
 *   struct vx_content_key key;
 *   vx_content_key_make(&key);                         once per front
 *   struct vx_content name = vx_content_of(&key, coords, columns, voxels);
 *
 * Thread   any.
 * Limits   none; every size is legal.
 * Fails    never.  A name is never all zeros: that says "no name".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_CONTENT_H
#define VX_ENGINE_BASE_CONTENT_H

#include "engine/base/types.h"

struct vx_content {
    u64 low, high;
};
struct vx_content_key {
    u64 words[4];
};

/* From the system's random numbers. */
void vx_content_key_make(struct vx_content_key *key);
/* Of coordinates (voxels, columns): the same rows with another number of columns, or in
 * another order, have another name. */
struct vx_content vx_content_of(const struct vx_content_key *key, const i32 *coords,
                                i32 columns, i64 voxels);

static inline bool vx_content_there(struct vx_content content)
{
    return content.low | content.high;
}
static inline bool vx_content_equal(struct vx_content a, struct vx_content b)
{
    return a.low == b.low && a.high == b.high;
}

/* As a client writes it: 32 digits of lower-case hexadecimal, high first. */
#define VX_CONTENT_TEXT_BYTES 33
void vx_content_print(struct vx_content content, char text[VX_CONTENT_TEXT_BYTES]);
/* False when it is not such a text. */
bool vx_content_parse(const char *text, struct vx_content *content);

#endif
