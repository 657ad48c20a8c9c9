/* geometry_rig - a CPU device and a geometry cache for tests, and maps compared with the reference.
 *
 *   rig_open(3, (size_t)256 << 20);
 *   struct vx_geometry *geometry = rig_hold(coords, n);
 *   rig_check_map(coords, n, rig_map(geometry, rig_kernels[1]));
 *
 * Owner    one rig per process; rig_close ends it.
 * Thread   the test's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_GEOMETRY_RIG_H
#define VX_TESTS_SUPPORT_GEOMETRY_RIG_H

#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry.h"

struct rig {
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    struct vx_why why;
};
extern struct rig rig;

#define RIG_KERNELS 13
extern const struct vx_map_key rig_kernels[RIG_KERNELS];

void rig_open(i32 threads, size_t cache_bytes);
void rig_close(void);
/* With the coords_ref that a front would compute. */
struct vx_coords_view rig_view(const i32 *coords, i64 n, i32 columns);
/* coords is (n, 4); an error fails the test. */
struct vx_geometry *rig_hold(const i32 *coords, i64 n);
const struct vx_map *rig_map(struct vx_geometry *geometry, struct vx_map_key key);
/* Every entry of a map against the reference, found in the reference's own hash of the rows. */
void rig_check_map(const i32 *coords, i64 n, const struct vx_map *map);

#endif
