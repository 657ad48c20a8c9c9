/* infer_private - what the files of infer share; no other file includes it.
 *
 *   infer.c        from arrival to the scheduler, and the end of a call
 *   infer_place.c  tensors in regions: checks, and which workers have them
 *   infer_run.c    to the worker and back
 *   infer_sizes.c  outputs whose size is known only while the request runs
 *   infer_count.c  statistics, metrics and the access log
 *   infer_spans.c  what the exporter gets
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

#include "server/infer/infer.h"

/* What an inference cost and how it ended; zeros for what it did not reach. */
struct vx_infer_end {
    vx_status status;
    const struct vx_why *why;
    const struct vx_done_item *done;     /* NULL when no worker had it */
    const struct vx_message_done *batch; /* set when done is: the batch that it ran in */
    i32 worker;
    i32 batch_items;
    i64 batch_voxels;
    bool refused_late; /* refused on arrival: it could not run in time */
};

/* A batch: what its worker reported, and what was known when it was sent. */
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

/* The geometry's coords_ref as its client knows it: computed from the coords that came, or sent
 * in their place. */
static inline struct vx_coords_ref vx_infer_name(const struct vx_call *call)
{
    bool by_name = vx_coords_ref_there(call->request.coords_ref);
    return by_name ? call->request.coords_ref : call->request.sent_ref;
}

/* The same as the front and its workers know it, where each token has names of its own. */
static inline struct vx_coords_ref vx_infer_coords_ref(const struct vx_call *call)
{
    return vx_coords_ref_masked(vx_infer_name(call), call->names_mask);
}

/* What the front knows of its geometry; false: nothing. */
static inline bool vx_infer_find_fact(const struct vx_infer *infer,
                                      const struct vx_call *call,
                                      struct vx_geometry_fact *fact)
{
    return vx_geometries_find(infer->geometries, vx_infer_coords_ref(call),
                              call->names_origin, fact);
}

/* Ends a call.  Every call ends here. */
void vx_infer_finish(struct vx_infer *infer, struct vx_call *call,
                     const struct vx_infer_end *end);
void vx_infer_fail(struct vx_infer *infer, struct vx_call *call, vx_status status,
                   const struct vx_why *why);
/* An item may come back from its worker without having run. */
static inline bool vx_infer_ran(const struct vx_infer_end *end)
{
    return end->done && end->done->ran;
}
/* Pays what the request costs its token or connection, or refuses it: vx_access_spend. */
VX_MUST_USE vx_status vx_infer_spend(struct vx_infer *infer, struct vx_call *call,
                                     const struct vx_access_cost *cost,
                                     struct vx_why *why);
/* Pays for the voxels that features made in its sets, beyond its own: they are known when it has run,
 * and may leave a debt, in which its next request waits. */
void vx_infer_pay_made(struct vx_infer *infer, struct vx_call *call,
                       const struct vx_infer_end *end);
/* Workers that can run the request if they hold its geometry, as bits. */
u32 vx_infer_may_hold(const struct vx_infer *infer, const struct vx_call *call);
/* Fails because the coords_ref of the request is not known. */
VX_MUST_USE vx_status vx_infer_unknown_geometry(struct vx_call *call, struct vx_why *why);
/* Checks the request's tensors in regions, and writes into the job which workers can run
 * it.  The request is admitted. */
VX_MUST_USE vx_status vx_infer_check_regions(const struct vx_infer *infer,
                                             struct vx_call *call, struct vx_why *why);
/* The range of a region that output number i of the answer goes into; NULL: it goes into
 * a slot. */
const struct vx_place *vx_infer_output_held(const struct vx_call *call, i32 i);
/* The reference that the request holds to a region; NULL = none. */
const struct vx_place *vx_infer_region_held(const struct vx_call *call, i32 region);
/* True if the size of output `o` is known only when the request runs, and not yet. */
static inline bool vx_infer_output_later(const struct vx_call *call, i32 o)
{
    return call->admitted.rows[o] < 0;
}
/* Takes places for the outputs whose size is known and that have none: their regions, or
 * slots.  RESOURCE_EXHAUSTED with the bytes and when to try again; what was taken stays
 * with the call. */
VX_MUST_USE vx_status vx_infer_take_outputs(struct vx_infer *infer, struct vx_call *call,
                                            struct vx_why *why);
/* The same of one output that a region holds: fails, and marks the call, if that is too
 * small. */
VX_MUST_USE vx_status vx_infer_check_room(const struct vx_infer *infer,
                                          struct vx_call *call, i32 i,
                                          struct vx_why *why);
/* Gives back what these outputs, as bits, have in slots, and forgets their places; a region
 * stays held. */
void vx_infer_give_outputs(struct vx_infer *infer, struct vx_call *call, u32 outputs);
/* The outputs for which the request asks while it runs, as bits (vx_run_item.asks). */
u32 vx_infer_asks(const struct vx_infer *infer, const struct vx_call *call);
/* Bytes of those of `outputs` that the request wants and whose size is known. */
i64 vx_infer_answer_bytes(const struct vx_infer *infer, const struct vx_call *call,
                          u32 outputs);
/* Forgets the sizes and gives back the places that came while the call ran: it will run
 * again. */
void vx_infer_forget_sizes(struct vx_infer *infer, struct vx_call *call);
/* The same for all calls that the worker has. */
void vx_infer_forget_worker(struct vx_infer *infer, i32 worker);
/* Counts one call that ends now. */
void vx_infer_count(struct vx_infer *infer, const struct vx_call *call,
                    const struct vx_infer_end *end);
/* When a request reached each stage, by the clock that front and workers share; 0 = it did
 * not. */
struct vx_infer_steps {
    i64 decoded_ns; /* the whole message had arrived: Triton's REQUEST_START */
    i64 queued_ns, compute_ns, input_end_ns, geometry_end_ns, output_ns, compute_end_ns;
    i64 end_ns;
};
/* The call's code: CANCELLED for one that ran well, but whose client has left. */
enum vx_code vx_infer_code(const struct vx_call *call, const struct vx_infer_end *end);
/* The call's sentence as pages, logs and spans may have it: other clients read them.  It has no
 * voxel, and no name of a region. */
void vx_infer_kept_text(const struct vx_call *call, const struct vx_infer_end *end,
                        char text[VX_WHY_BYTES]);
/* Bytes of the output tensors. */
u64 vx_infer_bytes_out(const struct vx_infer *infer, const struct vx_call *call);
/* Gives the exporter what its spans need. */
void vx_infer_export(const struct vx_infer *infer, const struct vx_call *call,
                     const struct vx_infer_end *end, const struct vx_infer_steps *steps,
                     const struct vx_trace *trace);
/* How a batch's time on the device is divided. */
struct vx_infer_times {
    i64 convert_ns, geometry_ns, compute_ns, output_ns;
};
struct vx_infer_times vx_infer_times_make(const struct vx_message_done *done);
/* Counts one batch of a device. */
void vx_infer_count_batch(struct vx_infer *infer, const struct vx_infer_batch *batch);

#endif
