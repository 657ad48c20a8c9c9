/* geometries - which worker holds which geometry, as far as the front has heard.
 *
 * A table of names, no coordinates.  Workers say what they kept with each answer and never
 * what they threw out, so a row may be stale: a request that goes by name alone and finds
 * nothing is answered FAILED_PRECONDITION, and the row is dropped.
 *
 *   vx_geometries_kept(geometries, content, worker, &fact);
 *   if (vx_geometries_find(geometries, content, &fact)) job->holders = fact.workers;
 *   vx_geometries_gone(geometries, content, worker);
 *   vx_geometries_worker_down(geometries, worker);
 *
 * Owner    the front.
 * Thread   loop.
 * Limits   VX_GEOMETRIES_MAX rows; the one that was longest unused goes.  No allocation
 *          after open; every call but worker_down is a few memory accesses.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_GEOMETRIES_H
#define VX_SERVER_GEOMETRIES_H

#include "engine/base/content.h"
#include "engine/base/status.h"
#include "server/sched.h"

/* As many as sixteen workers keep when each is full of small ones. */
#define VX_GEOMETRIES_MAX 65536

struct vx_geometry_fact {
    u32 workers; /* bit per worker that said it holds it */
    i64 voxels;
    i64 pairs; /* of the first map; 0 = the model has none */
};

struct vx_geometries;

VX_MUST_USE vx_status vx_geometries_open(struct vx_geometries **geometries);
void vx_geometries_close(struct vx_geometries **geometries);

/* What has no name is not noted. */
void vx_geometries_kept(struct vx_geometries *geometries, struct vx_content content,
                        i32 worker, i64 voxels, i64 pairs);
/* False when the front has not heard of it; counts as a use. */
bool vx_geometries_find(struct vx_geometries *geometries, struct vx_content content,
                        struct vx_geometry_fact *fact);
void vx_geometries_gone(struct vx_geometries *geometries, struct vx_content content,
                        i32 worker);
void vx_geometries_worker_down(struct vx_geometries *geometries, i32 worker);
i32 vx_geometries_count(const struct vx_geometries *geometries);

#endif
