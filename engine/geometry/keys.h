/* keys - coordinates checked, packed, sorted, and searched for duplicates.
 *
 * Sorted keys take the place of a hash table on the CPU: half the memory, found duplicates for
 * nothing, neighbours by walking along instead of jumping about, and no set of coordinates that
 * makes it slow on purpose.
 *
 *   VX_TRY(vx_keys_scan(cpu, &view, &why, &scan));
 *   vx_keys_pack(cpu, &view, keys, rows);
 *   if (!scan.sorted) { vx_keys_sort(cpu, &scan, &sort); }
 *   VX_TRY(vx_keys_check_unique(cpu, &set, &why));
 *
 * Thread   one at a time; work is spread over the CPU device's threads.
 * Limits   VX_VOXELS_MAX rows.
 * Fails    INVALID_ARGUMENT for coordinates out of range or duplicate: always the first
 *          row, then the first column; always the pair with the smallest second row.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_KEYS_H
#define VX_ENGINE_GEOMETRY_KEYS_H

#include "engine/base/status.h"
#include "engine/geometry/geometry.h"

struct vx_cpu;

struct vx_keys_scan {
    i64 n;
    i32 least[4]; /* sample x y z; undefined for n = 0 */
    i32 most[4];
    bool sorted; /* rows are in rising order of their keys, none twice */
};
VX_MUST_USE vx_status vx_keys_scan(struct vx_cpu *cpu, const struct vx_coords_view *view,
                                   struct vx_why *why, struct vx_keys_scan *scan);

/* Keys in rising order; rows[i] is the row that has keys[i].  keys[n] is above every key. */
struct vx_keys {
    i64 n;
    u64 *keys; /* (n + 1) */
    i32 *rows; /* (n + 1), the last is 0 */
};
/* In the order of rows. */
void vx_keys_pack(struct vx_cpu *cpu, const struct vx_coords_view *view,
                  const struct vx_keys *set);
/* True when `set`, sorted, holds exactly these coordinates in this order of rows. */
bool vx_keys_equal(struct vx_cpu *cpu, const struct vx_coords_view *view,
                   const struct vx_keys *set);

/* Pieces that a sort is cut into, at most, whatever the number of threads. */
#define VX_KEYS_PIECES_MAX 16
#define VX_KEYS_DIGIT_BITS 11

struct vx_keys_sort {
    struct vx_keys set;                     /* packed; sorted on return */
    struct vx_keys scratch;                 /* as large; overwritten */
    u32 (*counts)[1 << VX_KEYS_DIGIT_BITS]; /* (VX_KEYS_PIECES_MAX); overwritten */
};
/* Equal keys stay in the order of their rows. */
void vx_keys_sort(struct vx_cpu *cpu, const struct vx_keys_scan *scan,
                  const struct vx_keys_sort *sort);

VX_MUST_USE vx_status vx_keys_check_unique(struct vx_cpu *cpu, const struct vx_keys *set,
                                           struct vx_why *why);

#endif
