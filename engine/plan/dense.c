/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/dense.h"

#include "engine/base/text/sentence.h"

#include <stdio.h>

/* Room for "voxel (511, -131072, -131072, -131072) of set 31". */
#define WHICH_BYTES 96

static const struct vx_layer *layer_of(const struct vx_plan *plan, i32 output)
{
    const struct vx_network *network = plan->graph->network;
    return &network->layers[network->outputs[output].layer];
}

bool vx_plan_is_dense(const struct vx_plan *plan, i32 output)
{
    const struct vx_network *network = plan->graph->network;
    return output < network->outputs_count &&
           layer_of(plan, output)->op == VX_OP_TO_DENSE;
}

vx_status vx_plan_check_samples(const struct vx_plan *plan, i32 output, i64 samples,
                                struct vx_why *why)
{
    const struct vx_network *network = plan->graph->network;
    VX_ENSURE_WHY(samples <= network->samples_max, why, RESOURCE_EXHAUSTED,
                  "a dense tensor has more samples than its limit",
                  "output '%.*s': the largest sample is %lld, which makes %lld samples; "
                  "limits.samples allows %d",
                  VX_NAME_SHOWN, network->outputs[output].name, (long long)samples - 1,
                  (long long)samples, network->samples_max);
    return VX_OK;
}

vx_status vx_plan_dense_outside(const struct vx_plan *plan, i32 output,
                                const struct vx_plan_voxel *voxel, struct vx_why *why)
{
    const struct vx_layer *layer = layer_of(plan, output);
    const i32 *shape = layer->shape, *at = voxel->at;
    char which[WHICH_BYTES] = "a voxel";
    if (at[0] >= 0)
        snprintf(which, sizeof which, "voxel (%d, %d, %d, %d)", at[0], at[1], at[2],
                 at[3]);
    if (at[0] >= 0 && voxel->row >= 0)
        snprintf(which, sizeof which, "coords row %lld (%d, %d, %d, %d)",
                 (long long)voxel->row, at[0], at[1], at[2], at[3]);
    char set[32] = "";
    if (layer->set) snprintf(set, sizeof set, " of set %d", layer->set);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a voxel lies outside of a dense tensor",
                "output '%.*s': %s%s lies outside of the shape of to_dense: expected 0 "
                "to %d, 0 to %d and 0 to %d in the last three columns",
                VX_NAME_SHOWN, plan->graph->network->outputs[output].name, which, set,
                shape[0] - 1, shape[1] - 1, shape[2] - 1);
}
