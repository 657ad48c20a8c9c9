/* coords_ref - the 128-bit hash of coordinates that names a geometry.
 *
 * The hash is keyed, so that no client can construct two sets of coordinates with the
 * same hash; a look-up compares the coordinates nevertheless.  It reads memory once, as
 * fast as a copy, and checks no coordinate.
 *
 *   struct vx_coords_ref_key key;
 *   vx_coords_ref_key_make(&key);                         (once per front)
 *   struct vx_coords_ref name = vx_coords_ref_of(&key, coords, columns, voxels);
 *
 * Thread   any.
 * Limits   none; every size is legal.
 * Fails    never.  A coords_ref is never all zeros: zeros stand for "none".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_COORDS_REF_H
#define VX_ENGINE_BASE_COORDS_REF_H

#include "engine/base/types.h"

/* A coords_ref. */
struct vx_coords_ref {
    u64 low, high;
};
struct vx_coords_ref_key {
    u64 words[4];
};

/* A new random key. */
void vx_coords_ref_key_make(struct vx_coords_ref_key *key);
/* The hash of coords (voxels, columns) row-major.  The same voxels in another order, or
 * with another number of columns, have another hash. */
struct vx_coords_ref vx_coords_ref_of(const struct vx_coords_ref_key *key,
                                      const i32 *coords, i32 columns, i64 voxels);

/* False for zeros, which stand for "none". */
static inline bool vx_coords_ref_there(struct vx_coords_ref coords_ref)
{
    return coords_ref.low | coords_ref.high;
}
static inline bool vx_coords_ref_equal(struct vx_coords_ref a, struct vx_coords_ref b)
{
    return a.low == b.low && a.high == b.high;
}

/* As clients write it: 32 lower-case hexadecimal digits, high half first. */
#define VX_COORDS_REF_TEXT_BYTES 33
void vx_coords_ref_print(struct vx_coords_ref coords_ref,
                         char text[VX_COORDS_REF_TEXT_BYTES]);
/* False when the text has another form or is all zeros. */
bool vx_coords_ref_parse(const char *text, struct vx_coords_ref *coords_ref);

/* For sentences, logs and pages: who has a coords_ref may use its geometry, so no text that others
 * may read has more of it than tells two of them apart. */
#define VX_COORDS_REF_SHORT_DIGITS 4
#define VX_COORDS_REF_SHORT_BYTES  8
void vx_coords_ref_print_short(struct vx_coords_ref coords_ref,
                               char text[VX_COORDS_REF_SHORT_BYTES]);

/* What a name stands for depends on whose it is: the tables of geometries have the name under the
 * mask of its owner, and the name of one owner finds nothing under the mask of another.  The key is
 * one of its own.  Zeros for the owner "", whose names anybody may use. */
struct vx_coords_ref vx_coords_ref_mask(const struct vx_coords_ref_key *key,
                                        const char *owner);
/* Puts the mask on, or takes it off; "none" stays none. */
static inline struct vx_coords_ref vx_coords_ref_masked(struct vx_coords_ref coords_ref,
                                                        struct vx_coords_ref mask)
{
    if (!vx_coords_ref_there(coords_ref)) return coords_ref;
    return (struct vx_coords_ref){coords_ref.low ^ mask.low, coords_ref.high ^ mask.high};
}

#endif
