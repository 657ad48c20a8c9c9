/* npy - one NumPy array in memory: its header parsed, its cells read one by one.
 *
 *   struct npy array;
 *   if (npy_parse(file, &array, &error)) ...
 *   double x = npy_cell(&array, row, column);
 *
 * Owner    borrows the file's bytes.
 * Thread   any.
 * Limits   rank NPY_RANK_MAX; little-endian integers, floats and bools.
 * Fails    INVALID_ARGUMENT for what is no .npy file or too short for its shape,
 * UNIMPLEMENTED for other types.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_NPY_H
#define VOXEL_CLIENTS_CLI_NPY_H

#include "clients/cli/points.h"

#define NPY_RANK_MAX 8

struct npy {
    char kind;    /* 'i', 'u', 'f' or 'b', as NumPy names them; others are not read */
    int32_t size; /* bytes of an element */
    bool fortran; /* columns first */
    int32_t rank;
    int64_t shape[NPY_RANK_MAX];
    const uint8_t *data;
};

enum voxel_code npy_parse(struct bytes file, struct npy *array,
                          struct voxel_error *error);
/* Of the first bytes of a file: kind, rank and shape, whether the type is one that is read or not.
 * False when there is no such header in them. */
bool npy_describe(struct bytes head, struct npy *array);
/* Of an array of rank 2. */
double npy_cell(const struct npy *array, int64_t row, int64_t column);

/* coords of a file, and feats when it has them (else NULL), as points. */
enum voxel_code npy_points(const struct npy *coords, const struct npy *feats,
                           struct points *points, struct voxel_error *error);

#endif
