/* sparse - the voxels of an output that lies on another set than the request's.
 *
 *   if (sparse_cloud(&cloud, answer, output, &own, &error)) ...
 *   save_output(path, &own, output, &beside, &error);
 *
 * Owner    *own borrows from the cloud and the answer; there is nothing to release.
 * Thread   any.
 * Fails    INVALID_ARGUMENT if the answer lacks the coordinates of the output.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SPARSE_H
#define VOXEL_CLIENTS_CLI_SPARSE_H

#include "clients/cli/cloud.h"

/* Most outputs that the answer to a request for one output may have. */
#define SPARSE_OUTPUTS_MAX 64

/* The voxels on which the output lies: those of the request's cloud, or others. */
enum voxel_code sparse_cloud(const struct cloud *cloud, const struct voxel_answer *answer,
                             const struct voxel_tensor *output, struct cloud *own,
                             struct voxel_error *error);
/* Whether an output is the coordinates of others: INT32 [-1, 4]. */
bool sparse_is_coords(const struct voxel_tensor_info *output);
/* What to request for `output` alone: it and all coordinates, since a model's metadata do
 * not tell which are its own.  Returns their number; 0 = all outputs, for NULL. */
int32_t sparse_outputs(const struct voxel_model_info *info, const char *output,
                       const char *list[SPARSE_OUTPUTS_MAX]);

#endif
