/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/sparse.h"

#include "clients/c/error.h"
#include "clients/c/infer_wire.h"

#include <stdio.h>
#include <string.h>

enum voxel_code sparse_cloud(const struct cloud *cloud, const struct voxel_answer *answer,
                             const struct voxel_tensor *output, struct cloud *own,
                             struct voxel_error *error)
{
    double stride[3];
    *own = *cloud;
    if (!output->stride || !voxel_stride_read(output->stride, stride)) return VOXEL_OK;
    const struct voxel_tensor *coords =
        output->coords ? voxel_answer_find(answer, output->coords) : output;
    if (!coords)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the answer lacks '%s', the coordinates of output '%s'",
                               output->coords, output->name);
    own->count = coords->shape[0];
    own->coords = (int32_t *)(uintptr_t)coords->data;
    own->channels = 0;
    own->feats = NULL;
    snprintf(own->stride, sizeof own->stride, "%s", output->stride);
    if (stride[0] == 0) return VOXEL_OK; /* one voxel for a whole sample */
    for (int k = 0; k < 3; k++) own->size[k] *= stride[k];
    return VOXEL_OK;
}

bool sparse_is_coords(const struct voxel_tensor_info *output)
{
    return output->type == VOXEL_INT32 && output->rank == 2 && output->shape[0] < 0 &&
           output->shape[1] == 4;
}

int32_t sparse_outputs(const struct voxel_model_info *info, const char *output,
                       const char *list[SPARSE_OUTPUTS_MAX])
{
    if (!output) return 0;
    int32_t count = 0;
    list[count++] = output;
    for (int32_t i = 0; i < info->outputs_count && count < SPARSE_OUTPUTS_MAX; i++)
        if (sparse_is_coords(&info->outputs[i]) &&
            strcmp(info->outputs[i].name, output) != 0)
            list[count++] = info->outputs[i].name;
    return count;
}
