/* npy - reads one NumPy array in memory: parses its header, returns its cells.
 *
 *   struct npy array;
 *   if (npy_parse(file, &array, &error)) ...
 *   double x = npy_cell(&array, row, column);
 *
 * Owner    borrows the file's bytes; points are the caller's, see points_fini.
 * Thread   any.
 * Limits   rank NPY_RANK_MAX; little-endian integers, floats and bools.
 * Fails    INVALID_ARGUMENT for a file that is no .npy or too short for its shape, or for
 *          arrays that cannot be points; UNIMPLEMENTED for other types.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_NPY_H
#define VOXEL_CLIENTS_CLI_NPY_H

#include "clients/cli/points.h"

#define NPY_RANK_MAX 8

struct npy {
    char kind; /* 'i', 'u', 'f' or 'b', as NumPy names them; npy_parse refuses others */
    int32_t size; /* bytes of an element */
    bool fortran; /* column-major */
    int32_t rank;
    int64_t shape[NPY_RANK_MAX];
    const uint8_t *data;
};

enum voxel_code npy_parse(struct bytes file, struct npy *array,
                          struct voxel_error *error);
/* Gets kind, rank and shape from the first bytes of a file, also of a type that npy_parse
 * refuses.  False if they have no complete header. */
bool npy_describe(struct bytes head, struct npy *array);
/* A cell of an array of rank 2, or the only cell of rank 0 (row 0, column 0). */
double npy_cell(const struct npy *array, int64_t row, int64_t column);

/* Makes points of coords and feats; `feats` is NULL if the file has none. */
enum voxel_code npy_points(const struct npy *coords, const struct npy *feats,
                           struct points *points, struct voxel_error *error);

#endif
