/* sets - the sets of voxels of a network: which there are, how each is made, how large.
 *
 * Layers that make a set by equal rules from the same set share it.
 *
 *   i32 set = vx_sets_find(sets, count, &key);      (-1: it is a new one)
 *   vx_set_init(&sets[count++], sets, &key, layer);
 *   vx_sets_rows_max(sets, count, n, rows);
 *
 * Owner    the network.
 * Thread   any; pure.
 * Limits   VX_SETS_MAX sets; strides up to VX_SET_STRIDE_MAX.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_NETWORK_SETS_H
#define VX_ENGINE_NETWORK_SETS_H

#include "engine/base/limits.h"
#include "engine/map_key.h"
#include "engine/set_key.h"

struct vx_set {
    struct vx_set_key key;
    i32 layer; /* the first one that makes it, -1 for set 0 */
    /* One step of this set is down / up voxels of the request, in lowest terms; 0 / 1:
     * a voxel is a whole sample. */
    i32 down[3], up[3];
    i32 shape[3]; /* coordinates are 0 .. shape - 1; 0 = not bounded */
    i64 rows_max; /* limits.sets; 0 = not set */
    /* How often sizes must be read before it can be made: 0 = its voxels follow from the
     * request's alone, 1 = from logits of layers of stage 0, and so on. */
    i32 stage;
    /* What bounds its rows: at most ceil(reach / pace) of its voxels along each axis
     * follow from one voxel of set `base`. */
    i32 base;
    i64 reach[3], pace[3];
};

/* The set with the voxels of that key, or -1: two steps of FLOOR count as one, and those
 * before SAMPLES as none. */
i32 vx_sets_find(const struct vx_set *sets, i32 count, const struct vx_set_key *key);
/* Fills *set, which is not yet in `sets`; key->from is.  The stage of a set by logits is
 * left to the caller, who knows the layer. */
void vx_set_init(struct vx_set *set, const struct vx_set *sets,
                 const struct vx_set_key *key, i32 layer);
/* How far a set reaches along an axis (coordinates are 0 to that - 1) if the set that it is
 * made from reaches to `from`; 0 = not bounded, -1: its kernel is larger. */
i32 vx_set_size(const struct vx_set_key *key, int axis, i32 from);
/* The most rows that each set can have when set 0 has n: at most VX_VOXELS_MAX, and at
 * most its rows_max if that is set. */
void vx_sets_rows_max(const struct vx_set *sets, i32 count, i64 n, i64 rows[VX_SETS_MAX]);
/* The most voxels, equal ones counted each time, that follow from `rows` of the set that
 * this one is made from; at most VX_VOXELS_MAX. */
i64 vx_set_candidates_max(const struct vx_set *set, i64 rows);
/* True if each voxel of it may have children and nothing but that bounds its rows: a key of
 * limits.sets would. */
bool vx_set_is_unbounded(const struct vx_set *set);
/* Writes "2x2x2" or "1/2x1/2x1/2": the stride of the set; "0x0x0" of SAMPLES. */
const char *vx_set_stride_text(const struct vx_set *set, char out[VX_SET_STRIDE_BYTES]);

#endif
