/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/keys.h"
#include "engine/cpu/run/exec_job.h"
#include "engine/plan/dense.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

/* Both enums have the same values (cpu.h asserts it). */
enum vx_number vx_job_number_of(enum vx_dtype dtype)
{
    bool known = dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_F16 || dtype == VX_DTYPE_BF16;
    VX_ASSERT(known);
    return (enum vx_number)dtype;
}

bool vx_job_output_is_in_place(const struct vx_plan *plan, i32 output)
{
    const enum vx_dtype dtype = plan->graph->network->outputs[output].dtype;
    return (dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_I32) &&
           !vx_plan_is_dense(plan, output) &&
           !vx_plan_is_logits(plan, plan->outputs[output]);
}

i64 vx_job_output_rows(const struct vx_job *job, i32 o)
{
    const struct vx_plan *plan = job->plan;
    const struct vx_network *network = plan->graph->network;
    i32 set;
    if (vx_plan_is_dense(plan, o)) return vx_geometry_samples(job->geometry);
    if (o < network->outputs_count)
        set = plan->tensor_sets[plan->outputs[o]];
    else
        set = network->coords[o - network->outputs_count].set;
    VX_ASSERT(set);
    return job->rows[set];
}

/* Writes the wanted coordinates of sets; a set without rows has none to write. */
static void job_write_coords(const struct vx_job *job)
{
    const struct vx_network *network = job->plan->graph->network;
    for (i32 c = 0; c < network->coords_count; c++) {
        i32 *wanted = job->item->outputs[network->outputs_count + c];
        i32 set = job->sets[network->coords[c].set];
        if (wanted) vx_geometry_coords(job->geometry, job->exec->cpu, set, wanted);
    }
}

static const f32 *job_output(const struct vx_job *job, i32 output)
{
    i32 tensor = job->plan->outputs[output];
    return tensor ? job->tensors[tensor] : job->feats;
}

/* The samples are those of the request, and known before any layer; whether the voxels of the
 * output's set lie in its shape is known in the stage of the set. */
vx_status vx_job_dense_check(const struct vx_job *job, i32 stage)
{
    const struct vx_network *network = job->plan->graph->network;
    for (i32 o = 0; o < network->outputs_count; o++) {
        const struct vx_layer *layer = &network->layers[network->outputs[o].layer];
        const bool wanted = job->item->asks >> o & 1 || job->item->outputs[o];
        if (!wanted || !vx_plan_is_dense(job->plan, o)) continue;
        VX_TRY(vx_plan_check_samples(job->plan, o, vx_geometry_samples(job->geometry),
                                     &job->item->why));
        if (job->plan->sets[layer->set].stage != stage) continue;
        const i32 set = job->sets[layer->set];
        i64 place = vx_geometry_set_outside(job->geometry, set, layer->shape);
        if (place < 0) continue;
        const struct vx_keys *keys = vx_geometry_keys(job->geometry, set);
        struct vx_plan_voxel voxel = {.row = set ? -1 : keys->rows[place]};
        voxel.at[0] = vx_key_sample(keys->keys[place]);
        for (int axis = 0; axis < 3; axis++)
            voxel.at[axis + 1] = vx_key_axis(keys->keys[place], axis);
        return vx_plan_dense_outside(job->plan, o, &voxel, &job->item->why);
    }
    return VX_OK;
}

static void job_write_dense(struct vx_job *job, i32 output)
{
    const struct vx_network *network = job->plan->graph->network;
    const struct vx_network_output *it = &network->outputs[output];
    const struct vx_layer *layer = &network->layers[it->layer];
    const struct vx_keys *keys = vx_geometry_keys(job->geometry, job->sets[layer->set]);
    struct vx_to_dense_args args = {
        .n = keys->n,
        .c = layer->channels,
        .samples = vx_geometry_samples(job->geometry),
        .keys = keys->keys,
        .rows = keys->rows,
        .in = job_output(job, output),
        .type = vx_job_number_of(it->dtype),
        .out = job->item->outputs[output],
    };
    memcpy(args.shape, layer->shape, sizeof args.shape);
    vx_cpu_to_dense(job->exec->cpu, &args);
}

/* Converts the wanted outputs that are not in the caller's memory already. */
static void job_convert_outputs(struct vx_job *job)
{
    const struct vx_network *network = job->plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++) {
        i32 tensor = job->plan->outputs[i];
        void *wanted = job->item->outputs[i];
        const enum vx_dtype dtype = network->outputs[i].dtype;
        if (!wanted || wanted == (void *)job->tensors[tensor]) continue;
        if (vx_plan_is_dense(job->plan, i)) {
            job_write_dense(job, i);
            continue;
        }
        i64 rows = job->rows[job->plan->tensor_sets[tensor]];
        const struct vx_convert_args args = {
            .count = rows * vx_plan_channels(job->plan, tensor),
            .from_type = VX_NUMBER_F32,
            .from = job->tensors[tensor],
            /* Another output has the same numbers of channels: they are only copied. */
            .to_type = dtype == VX_DTYPE_I32 ? VX_NUMBER_F32 : vx_job_number_of(dtype),
            .to = wanted,
        };
        vx_cpu_convert(job->exec->cpu, &args);
    }
}

void vx_job_write_outputs(struct vx_job *job)
{
    job_convert_outputs(job);
    job_write_coords(job);
}
