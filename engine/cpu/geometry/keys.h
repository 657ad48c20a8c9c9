/* keys - checks, packs and sorts coordinates, and searches them for duplicates.
 *
 * On the CPU sorted keys replace a hash table.  They need half the memory, sorting puts
 * duplicates side by side, neighbours are found by sequential reads, and no client can
 * choose coordinates that make it slow.
 *
 *   VX_TRY(vx_keys_scan(cpu, &view, &why, &scan));
 *   vx_keys_pack(cpu, &view, &set);
 *   if (!scan.sorted) vx_keys_sort(cpu, &scan, &sort);
 *   VX_TRY(vx_keys_check_unique(cpu, &set, &why));
 *
 * Thread   one at a time; work is spread over the CPU device's threads.
 * Limits   VX_VOXELS_MAX rows.
 * Fails    INVALID_ARGUMENT for coordinates out of range, with the first such row and its
 *          first such column, and for duplicates, with the smallest second row.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_KEYS_H
#define VX_ENGINE_GEOMETRY_KEYS_H

#include "engine/base/status.h"
#include "engine/cpu/geometry/geometry.h"

struct vx_cpu;

struct vx_keys_scan {
    i64 n;
    i32 least[4]; /* sample x y z; meaningless for n = 0 */
    i32 most[4];
    bool sorted; /* the rows are in strictly rising order of their keys */
};
/* Checks the range of all coordinates and finds their bounds. */
VX_MUST_USE vx_status vx_keys_scan(struct vx_cpu *cpu, const struct vx_coords_view *view,
                                   struct vx_why *why, struct vx_keys_scan *scan);

/* Keys with their rows: row rows[i] has keys[i].  keys[n] is larger than every key. */
struct vx_keys {
    i64 n;
    u64 *keys; /* (n + 1) */
    i32 *rows; /* (n + 1), the last is 0 */
};
/* Fills `set` in the order of the rows. */
void vx_keys_pack(struct vx_cpu *cpu, const struct vx_coords_view *view,
                  const struct vx_keys *set);
/* True when the sorted `set` has exactly these coordinates, in these rows. */
bool vx_keys_equal(struct vx_cpu *cpu, const struct vx_coords_view *view,
                   const struct vx_keys *set);

/* Most chunks that a sort is cut into, for any number of threads and rows: 2^30 rows take a tenth
 * of a second each. */
#define VX_KEYS_PIECES_MAX 256
#define VX_KEYS_DIGIT_BITS 11

/* Into how many n rows are cut: one for each thread, if they have `least` rows or more, and so many
 * that none has more than `most`. */
i64 vx_keys_pieces(const struct vx_cpu *cpu, i64 n, i64 least, i64 most);

struct vx_keys_sort {
    struct vx_keys set;                     /* packed; sorted on return */
    struct vx_keys scratch;                 /* of the same size; overwritten */
    u32 (*counts)[1 << VX_KEYS_DIGIT_BITS]; /* (VX_KEYS_PIECES_MAX); overwritten */
};
/* Stable: equal keys stay in the order of their rows. */
void vx_keys_sort(struct vx_cpu *cpu, const struct vx_keys_scan *scan,
                  const struct vx_keys_sort *sort);

/* memcpy by all threads. */
void vx_keys_copy(struct vx_cpu *cpu, void *to, const void *from, size_t bytes);

/* The first index in [begin, n] of the sorted `set` whose key is not below `key`. */
static inline i64 vx_keys_place(const struct vx_keys *set, i64 begin, u64 key)
{
    i64 end = set->n;
    while (begin < end) {
        i64 middle = begin + (end - begin) / 2;
        if (set->keys[middle] < key)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Fails when the sorted `set` has a key twice. */
VX_MUST_USE vx_status vx_keys_check_unique(struct vx_cpu *cpu, const struct vx_keys *set,
                                           struct vx_why *why);

#endif
