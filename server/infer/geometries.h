/* geometries - which worker holds which geometry, as far as the front knows.
 *
 * A table of coords_refs, without coordinates.  With each answer a worker reports what it
 * kept, but it never reports what it discarded, so an entry may be stale.  When a worker
 * does not hold the geometry of a request that has only a coords_ref, the worker is
 * removed from the entry; the request tries another holder or is answered
 * FAILED_PRECONDITION.
 *
 *   vx_geometries_kept(geometries, &report);
 *   if (vx_geometries_find(geometries, content, origin, &fact)) job->holders = fact.workers;
 *   vx_geometries_gone(geometries, content, worker);
 *   vx_geometries_worker_down(geometries, worker);
 *
 * Owner    the front.
 * Thread   loop.
 * Limits   VX_GEOMETRIES_MAX entries; the one that was used least recently is discarded, of the
 *          origin that has most (shares.h): it is the first that reported the geometry.
 *          No allocation after open; every call but worker_down is a few memory accesses.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_GEOMETRIES_H
#define VX_SERVER_GEOMETRIES_H

#include "engine/base/status.h"
#include "engine/base/text/coords_ref.h"
#include "server/sched/sched.h"

/* As many as sixteen workers keep when each is full of small geometries. */
#define VX_GEOMETRIES_MAX 65536

/* What a request with the geometry costs one model: others make other sets and maps. */
struct vx_geometry_cost {
    i32 instance;   /* the model version */
    i64 pairs;      /* of all neighbour maps; 0 = the model has none */
    i64 set_voxels; /* of all sets */
};
struct vx_geometry_fact {
    u32 workers; /* a bit per worker that reported to hold it */
    i64 voxels;
    struct vx_geometry_cost cost; /* as reported last */
};

/* A request that has run on a worker, which kept its geometry. */
struct vx_geometry_report {
    struct vx_coords_ref coords_ref;
    u64 origin; /* of the request */
    i32 worker;
    i64 voxels;
    struct vx_geometry_cost cost;
};

struct vx_geometries;

VX_MUST_USE vx_status vx_geometries_open(struct vx_geometries **geometries);
void vx_geometries_close(struct vx_geometries **geometries);

/* Does nothing for a geometry without a coords_ref. */
void vx_geometries_kept(struct vx_geometries *geometries,
                        const struct vx_geometry_report *report);
/* False when the front does not know it.  Counts as a use, by a request of `origin`. */
bool vx_geometries_find(struct vx_geometries *geometries, struct vx_coords_ref coords_ref,
                        u64 origin, struct vx_geometry_fact *fact);
void vx_geometries_gone(struct vx_geometries *geometries, struct vx_coords_ref coords_ref,
                        i32 worker);
void vx_geometries_worker_down(struct vx_geometries *geometries, i32 worker);
i32 vx_geometries_count(const struct vx_geometries *geometries);

#endif
