/* round_stages - a round of a network in which the voxels of sets depend on features.
 *
 * Such a network runs in stages (plan.h): the sets of stage 0, its maps and layers; then the
 * sets that follow from their logits, and so on.  The host reads the sizes of each stage, and
 * nothing else waits.  All offsets count from bounds, so that the round is laid out once.
 * The store keeps coordinates, but no sets and no maps of such a network.
 *
 * A member that exceeds a bound, or has a logit that is not a number, fails alone: its sets
 * stay empty from there on, and its mates' bits are the same as without it.
 *
 *   VX_TRY(vx_gpu_round_sizes_launch(&round, &why));          (round.h)
 *   vx_gpu_round_sizes_read(&round, &refused);
 *   for (;;) {
 *       VX_TRY(vx_gpu_round_stage_launch(&round, &why));
 *       if (vx_gpu_round_stage_last(&round)) break;
 *       (the lane's event `sized` has happened)
 *       vx_gpu_round_stage_read(&round);
 *   }
 *   (on as after vx_gpu_round_launch)
 *
 * Owner    the round's.
 * Thread   device.
 * Limits   those of round.h; VX_GPU_STAGE_UPLOAD bytes of descriptions of sets by logits.
 * Fails    launch: as vx_kernel_launch.  read: in each member's status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_STAGES_H
#define VX_ENGINE_GPU_ROUND_STAGES_H

#include "engine/gpu/run/round.h"

/* The end of an upload, for the sets of a stage: what comes before may fill the rest. */
#define VX_GPU_STAGE_UPLOAD (48 << 10)
/* What the description of one such set of one member takes there at most. */
#define VX_GPU_STAGE_UPLOAD_EACH 256

static inline bool vx_gpu_round_staged(const struct vx_gpu_round *round)
{
    return round->model->plan->stages_count > 1;
}
/* True if the round's stage is the last of the network. */
static inline bool vx_gpu_round_stage_last(const struct vx_gpu_round *round)
{
    return round->stage + 1 == round->model->plan->stages_count;
}
/* Puts the maps and layers of the round's stage on the lane's stream, and the sets of the
 * next one up to the event `sized`; after the last stage what vx_gpu_round_launch ends
 * with. */
VX_MUST_USE vx_status vx_gpu_round_stage_launch(struct vx_gpu_round *round,
                                                struct vx_why *why);
/* Goes to the next stage: reads the sizes of its sets into round->rows. */
void vx_gpu_round_stage_read(struct vx_gpu_round *round);

/* Nanoseconds of the geometry of all stages after 0, which lie between the marks FEATS and
 * LAYERS, with what the host needed to read sizes.  0 without stages. */
VX_MUST_USE vx_status vx_gpu_round_stage_times(const struct vx_gpu_round *round,
                                               struct vx_why *why, i64 *ns);

/* Sets round->forward for its launches; stays: its places outlive the launch. */
void vx_gpu_round_forward(struct vx_gpu_round *round, bool stays);

#endif
