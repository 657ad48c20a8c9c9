/* round_fills - how dense the neighbourhoods of a round are: known, or as those before it.
 *
 * The pairs of a new geometry are counted by the round that computes on it, so that the host
 * knows them only afterwards.  A round is launched for the fill (pairs / (rows * V)) that it
 * is expected to have: that of each geometry which the store has, and of the model's last
 * round for others.  A wrong guess costs time, never bits: all choices of a layer sum in its
 * order (conv.h).
 *
 * The last round decides alone.  A change of density costs nothing, as all kernels are there
 * and every round is laid out anyway; near the bound both choices take the same time; and
 * requests of two kinds that take turns would be guessed no better by an average.
 *
 *   vx_gpu_round_densities(&round);          (before its layers are laid out)
 *   (its results are on the host)
 *   vx_gpu_round_fills(&round, counted);
 *
 * Owner    the round, and its model's `fills`.
 * Thread   device.
 * Limits   the maps that vx_gpu_choices.followed has.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_FILLS_H
#define VX_ENGINE_GPU_ROUND_FILLS_H

#include "engine/gpu/run/round.h"

/* Sets round->densities.  The rows of the members must be known, or with stages bounded. */
void vx_gpu_round_densities(struct vx_gpu_round *round);
/* Where the pairs of each map of each member lie behind the results of the members, on the
 * device or on the host; NULL: no choice depends on them. */
u64 *vx_gpu_round_pairs(const struct vx_gpu_round *round,
                        struct vx_gpu_piece_result *results);
/* Keeps the fills of the members that were answered; counted: the lane has their pairs. */
void vx_gpu_round_fills(struct vx_gpu_round *round, bool counted);

#endif
