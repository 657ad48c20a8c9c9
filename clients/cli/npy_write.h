/* npy_write - writes tensors for NumPy: one array in a .npy, several in a .npz.
 *
 *   npy_write(file, &tensor);
 *   if (!npz_write(file, arrays, 2)) ...      an array is too large for a zip
 *
 * A .npz is a zip of uncompressed entries NAME.npy.  NumPy has no BF16, so it is written
 * as float.
 *
 * Owner    borrows all; the caller checks ferror of the file.
 * Thread   any.
 * Limits   NPZ_ARRAYS_MAX arrays, names up to NPZ_NAME_BYTES_MAX, a zip below 4 GiB.
 * Fails    npz_write returns false, and has written nothing, if a limit is exceeded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_NPY_WRITE_H
#define VOXEL_CLIENTS_CLI_NPY_WRITE_H

#include "clients/c/voxel.h"

#include <stdio.h>

#define NPZ_ARRAYS_MAX     160 /* two for each output of an answer, and a few */
#define NPZ_NAME_BYTES_MAX 1024

void npy_write(FILE *file, const struct voxel_tensor *tensor);
bool npz_write(FILE *file, const struct voxel_tensor *const *arrays, int32_t count);

#endif
