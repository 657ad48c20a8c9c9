/* infer_private - what the files of infer share; nobody else includes it.
 *
 *   infer.c        from arrival to the scheduler, and the one way out
 *   infer_place.c  tensors in regions: what may lie where, and which workers see it
 *   infer_run.c    to the worker and back
 *   infer_count.c  statistics, metrics and the access log
 *
 * Owner    as infer.h.
 * Thread   loop.
 * Limits   as infer.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_INFER_PRIVATE_H
#define VX_SERVER_INFER_PRIVATE_H

#include "server/infer.h"

/* What an inference cost and how it ended; zeros for what it did not reach. */
struct vx_infer_end {
    vx_status status;
    const struct vx_why *why;
    const struct vx_done_item *done;     /* NULL when it never was with a worker */
    const struct vx_message_done *batch; /* there when done is: the batch it ran in */
    i32 worker;
    i32 batch_items;
    i64 batch_voxels;
    bool refused_late; /* on arrival: its time would have been over before its turn */
};

/* Of a batch: what its worker said, and what was known when it was sent. */
struct vx_infer_batch {
    const struct vx_batch_plan *plan;
    const struct vx_message_done *done;
    struct vx_infer_sent sent; /* batch 0 = not known */
    i64 now_ns;
};

static inline struct vx_instance *vx_infer_row(const struct vx_infer *infer,
                                               const struct vx_call *call)
{
    return vx_registry_row(infer->registry, call->job.instance);
}

/* The geometry's name: of the coords that came, or the one that came instead of them. */
static inline struct vx_content vx_infer_content(const struct vx_call *call)
{
    bool by_name = vx_content_there(call->request.coords_ref);
    return by_name ? call->request.coords_ref : call->request.content;
}

/* The one way out for every call. */
void vx_infer_finish(struct vx_infer *infer, struct vx_call *call,
                     const struct vx_infer_end *end);
void vx_infer_fail(struct vx_infer *infer, struct vx_call *call, vx_status status,
                   const struct vx_why *why);
/* Workers that may hold its geometry and run it, as bits. */
u32 vx_infer_may_hold(const struct vx_infer *infer, const struct vx_call *call);
/* Says that the name in the request stands for nothing. */
VX_MUST_USE vx_status vx_infer_unknown_geometry(struct vx_call *call, struct vx_why *why);
/* Whether what the request has in regions can be served, and by which workers: into the
 * job.  The request is admitted. */
VX_MUST_USE vx_status vx_infer_check_regions(const struct vx_infer *infer,
                                             struct vx_call *call, struct vx_why *why);
/* Where the worker finds an input, and where it puts output number i of the answer. */
struct vx_place vx_infer_input_place(const struct vx_call *call,
                                     const struct vx_request_tensor *input);
struct vx_place vx_infer_output_place(const struct vx_call *call, i32 i);
/* The region of output number i of the answer; NULL: it goes into a slot. */
const struct vx_region_use *vx_infer_output_use(const struct vx_call *call, i32 i);
/* The reference that its request holds to a region; NULL = none. */
const struct vx_region_use *vx_infer_region_use(const struct vx_call *call, i32 region);
/* Books one call that ends now. */
void vx_infer_count(struct vx_infer *infer, const struct vx_call *call,
                    const struct vx_infer_end *end);
/* How a batch's time on the device divides. */
struct vx_infer_times {
    i64 convert_ns, geometry_ns, compute_ns, output_ns;
};
struct vx_infer_times vx_infer_times_make(const struct vx_message_done *done);
/* Books one device batch. */
void vx_infer_count_batch(struct vx_infer *infer, const struct vx_infer_batch *batch);

#endif
