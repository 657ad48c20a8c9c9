/* save - writes an answer with its voxels: .ply for viewers, .npz and .npy for NumPy.
 *
 *   if (save_output("out.ply", &cloud, output, &beside, &error)) ...
 *
 * A .ply has x y z (the voxel's centre in the scan's units, or its integer coordinates
 * when the scan had integers), the sample where there is another than 0, and the channels as
 * float: nx ny nz for three channels of an output named normals, else NAME_0, NAME_1 ...
 * A .npz has coords INT32 [N,4], the output under its name and, for points put on a grid
 * or where the scan said it, voxel_size.  A .npy has the output alone; NAME.coords.npy beside NAME.npy has coords.
 * Tensors are as they came, BF16 widened to float.
 *
 * Owner    borrows all.
 * Thread   any.
 * Limits   none of its own.
 * Fails    INVALID_ARGUMENT for another ending, for what would write over its input, or
 * rows that do not fit the voxels;
 * DATA_LOSS when the file cannot be written: what was there before is then there still.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SAVE_H
#define VOXEL_CLIENTS_CLI_SAVE_H

#include "clients/cli/cloud.h"

#include <limits.h>

/* Whether the ending is one of ours and `input` stays as it is, asked before the work. */
enum voxel_code save_check_path(const char *path, const char *input,
                                struct voxel_error *error);

/* What was written besides; "" = nothing. */
struct save_beside {
    char path[PATH_MAX];
};
enum voxel_code save_output(const char *path, const struct cloud *cloud,
                            const struct voxel_tensor *output, struct save_beside *beside,
                            struct voxel_error *error);

/* A point that stands for a voxel: its centre, or its integers. */
void save_position(const struct cloud *cloud, int64_t row, double xyz[3]);

#endif
