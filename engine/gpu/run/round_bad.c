/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_bad.h"

#include "engine/cpu/geometry/geometry.h"

/* With more voxels, the error names no row: to find it, the CPU sorts them on the device
 * thread, which meanwhile neither begins nor ends a round.  So many take milliseconds. */
#define NAMED_VOXELS_MAX 100000

static vx_status bad_of_many(const struct vx_plan *plan,
                             const struct vx_gpu_piece_result *result,
                             struct vx_item *item)
{
    if (result->fault[0] && vx_plan_shape(plan, item->shape)[0])
        return vx_plan_outside(plan, item->shape, -1, NULL, &item->why);
    VX_ENSURE_WHY(!result->fault[0], &item->why, INVALID_ARGUMENT,
                  "a coordinate is out of range",
                  "a coordinate in coords is out of range: expected %d to %d, and a "
                  "sample of 0 to %d",
                  VX_AXIS_MIN, VX_AXIS_MAX, VX_SAMPLE_MAX);
    VX_FAIL_WHY(&item->why, INVALID_ARGUMENT, "a voxel appears twice in coords",
                "a voxel appears twice in coords; each voxel may appear once");
}

/* The device has found a bad coordinate; the CPU's check finds which one, unless the
 * voxels are too many or another process may have changed the coordinates since. */
vx_status vx_gpu_bad_coords(struct vx_gpu_round *round,
                            const struct vx_gpu_piece_result *result,
                            struct vx_item *item)
{
    const struct vx_coords_view view = {
        .rows = item->coords, .n = item->voxels, .columns = item->coords_columns};
    const struct vx_plan *plan = round->model->plan;
    const struct vx_gpu_room *room = round->room;
    struct vx_geometry *geometry;
    VX_ENSURE_WHY(item->coords, &item->why, FAILED_PRECONDITION,
                  "the geometry is not in the device's cache",
                  "coords_ref: the geometry is not in the device's cache; send coords");
    if (item->voxels > NAMED_VOXELS_MAX || item->coords_change)
        return bad_of_many(plan, result, item);
    vx_status status =
        vx_geometry_hold(room->cache, room->cpu, &view, &item->why, &geometry);
    if (vx_status_code(status) == VX_CODE_INVALID_ARGUMENT) return status;
    /* No memory to find the row.  A coordinate out of range would have been found
     * without, so it is a duplicate. */
    VX_ENSURE_WHY(!status.fault, &item->why, INVALID_ARGUMENT,
                  "a voxel appears twice in coords",
                  "a voxel appears twice in coords; each voxel may appear once");
    i32 at[4];
    i64 row = vx_geometry_outside(geometry, vx_plan_shape(plan, item->shape), at);
    vx_geometry_drop(room->cache, &geometry);
    if (row >= 0) return vx_plan_outside(plan, item->shape, row, at, &item->why);
    VX_FAIL_WHY(&item->why, INTERNAL,
                "the device refused coordinates in which the CPU finds no error",
                "the device refused coordinates in which the CPU finds no error");
}
