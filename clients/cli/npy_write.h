/* npy_write - tensors as NumPy reads them: one array in a .npy, several in a .npz.
 *
 *   npy_write(file, &tensor);
 *   if (!npz_write(file, arrays, 2)) ...      an array is too large for a zip
 *
 * A .npz is a zip whose entries are stored as they are, NAME.npy each.  BF16, which NumPy does
 * not have, is widened to float.
 *
 * Owner    borrows all; whoever has the file looks at ferror.
 * Thread   any.
 * Limits   entries below 4 GiB, NPZ_ARRAYS_MAX of them, names of NPZ_NAME_BYTES_MAX.
 * Fails    npz_write returns false, with nothing written, when an array is over the limits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_NPY_WRITE_H
#define VOXEL_CLIENTS_CLI_NPY_WRITE_H

#include "clients/c/voxel.h"

#include <stdio.h>

#define NPZ_ARRAYS_MAX     8
#define NPZ_NAME_BYTES_MAX 1024

void npy_write(FILE *file, const struct voxel_tensor *tensor);
bool npz_write(FILE *file, const struct voxel_tensor *const *arrays, int32_t count);

#endif
