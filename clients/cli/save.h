/* save - writes an answer with its voxels: .ply for viewers, .npz and .npy for NumPy.
 *
 *   if (save_output("out.ply", &cloud, output, &beside, &error)) ...
 *
 *   .ply   x y z: the voxel's centre in the scan's units, or its integer coordinates if
 *          the scan has integers.  The sample, if one is not 0.  The channels as float:
 *          nx ny nz for three channels of an output named normals, else NAME_0 ...
 *   .npz   coords INT32 [N,4], the output under its name, and voxel_size if points were
 *          put on a grid or the scan has one.  Of all outputs of an answer coords and
 *          voxel_size are the scan's; an output on other voxels has theirs in another
 *          output, and stride.NAME beside it.
 *   .npy   the output alone; NAME.coords.npy beside NAME.npy has coords.
 *
 * NumPy's files keep the output's type; BF16 becomes float.
 *
 * Owner    borrows all.
 * Thread   any.
 * Limits   none of its own.
 * Fails    INVALID_ARGUMENT for another ending, for a path that is the input, or for an
 *          output without a row for each voxel; DATA_LOSS if a file cannot be written:
 *          the old file then stays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SAVE_H
#define VOXEL_CLIENTS_CLI_SAVE_H

#include "clients/cli/cloud.h"

#include <limits.h>

/* Checks before the work that the ending is known and that `input` is not overwritten. */
enum voxel_code save_check_path(const char *path, const char *input,
                                struct voxel_error *error);

/* Checks before the inference that an output can be written to `path` and drawn: a dense tensor
 * has no voxels.  `output`: its name, NULL = the first; path and picture may be NULL. */
enum voxel_code save_check_output(const char *path, const char *picture,
                                  const char *output, const struct voxel_model_info *info,
                                  struct voxel_error *error);

/* The path of the second file that was written; "" = none. */
struct save_beside {
    char path[PATH_MAX];
};
enum voxel_code save_output(const char *path, const struct cloud *cloud,
                            const struct voxel_tensor *output, struct save_beside *beside,
                            struct voxel_error *error);

/* Whether a .npz is to have all outputs of the answer: it has several, without those that
 * are coordinates of others.  save_all writes them. */
bool save_takes_all(const char *path, const struct voxel_answer *answer);
enum voxel_code save_all(const char *path, const struct cloud *cloud,
                         const struct voxel_answer *answer, struct voxel_error *error);

/* The position of a voxel in a .ply: its centre, or its integer coordinates. */
void save_position(const struct cloud *cloud, int64_t row, double xyz[3]);

#endif
