/* save - writes an answer beside its voxels: .ply for viewers, .npy for NumPy.
 *
 *   if (save_output("out.ply", &cloud, output, &error)) ...
 *
 * A .ply has x y z (the voxel's centre in the scan's units, or its integer coordinates
 * when the scan had integers) and the channels as float: nx ny nz for three channels of
 * an output named normals, else NAME_0, NAME_1 ...  A .npy has the tensor as it came,
 * BF16 widened to float.
 *
 * Owner    borrows all.
 * Thread   any.
 * Limits   none of its own.
 * Fails    INVALID_ARGUMENT for another ending or rows that do not fit the voxels;
 * DATA_LOSS when the file cannot be written: what was there before is then there still.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SAVE_H
#define VOXEL_CLIENTS_CLI_SAVE_H

#include "clients/cli/cloud.h"

/* Whether the ending is one of ours, asked before the work begins. */
enum voxel_code save_check_path(const char *path, struct voxel_error *error);
enum voxel_code save_output(const char *path, const struct cloud *cloud,
                            const struct voxel_tensor *output, struct voxel_error *error);

/* A point that stands for a voxel: its centre, or its integers. */
void save_position(const struct cloud *cloud, int64_t row, double xyz[3]);

#endif
