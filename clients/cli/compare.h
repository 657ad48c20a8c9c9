/* compare - how far two results of a layer are apart, row by row.
 *
 *   struct comparison found;
 *   if (compare_tensors(&a, &b, NULL, &found, &error)) ...
 *   if (!compare_within(&found, 1e-5)) ...
 *
 * Rows are matched by their voxels, in whatever order they are; a dense tensor is compared
 * number by number.  Two numbers that are not finite are equal if both are NaN, or the
 * same infinity; else they differ by infinity.  A tensor in which no number is finite in
 * both says nothing, and is not within any bound.  Labels are compared by how many differ.
 *
 * Owner    the caller; tensors are borrowed.
 * Thread   any; pure.
 * Limits   -
 * Fails    RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_COMPARE_H
#define VOXEL_CLIENTS_CLI_COMPARE_H

#include "clients/c/voxel.h"

struct compare_tensor {
    int32_t rank;
    int64_t shape[VOXEL_RANK_MAX];
    /* On voxels: a row for each.  Dense: a row for each number, one column. */
    int64_t rows, columns;
    const float *numbers;  /* [rows, columns]; NULL = it has labels */
    const int64_t *labels; /* [rows, columns]; NULL = it has numbers */
    const int32_t *coords; /* [rows, 4]: sample x y z; NULL = dense */
};

/* Relative errors are counted by decades: 0, below 1e-9, 1e-9 to 1e-8, ... 0.1 to 1, from
 * 1 on, and infinite. */
#define COMPARE_DECADES 13

struct comparison {
    bool shapes;            /* they have other channels or sizes: nothing was compared */
    bool kinds;             /* one has labels, the other numbers: nothing was compared */
    bool labels;            /* A's numbers are labels */
    int64_t rows;           /* compared */
    int64_t finite;         /* numbers that are finite in A and in B; 0 of labels */
    bool blank;             /* there are numbers, and none is finite in both */
    int64_t only_a, only_b; /* voxels that the other has not */
    double largest;         /* of the finite numbers of A */
    double worst;           /* difference */
    double relative;        /* worst over largest; of labels: the share that differs */
    double nmse;            /* sum of squared differences over that of A's squares */
    int64_t wrong;          /* labels that differ */
    int64_t row, column; /* of A: where the worst is, or the first wrong label; else -1 */
    int64_t other;       /* B's row there */
    int64_t decades[COMPARE_DECADES];
};

/* `errors`, which may be NULL, gets the relative error of each row of A: infinity where B
 * lacks its voxel, 1 where a label differs. */
enum voxel_code compare_tensors(const struct compare_tensor *a,
                                const struct compare_tensor *b, float *errors,
                                struct comparison *found, struct voxel_error *error);
/* No voxel is missing, shapes and kinds are the same, some number is finite, and the relative
 * error is within. */
bool compare_within(const struct comparison *found, double bound);
/* "equal", "< 1e-9", "< 1e-8", ... ">= 1", "infinite".  Static. */
const char *compare_decade_name(int decade);

/* For each row of A its row of B, or -1; NULL without memory.  The caller gives it back by
 * voxel_memory_give.  Equal coordinates in one tensor are matched in their order. */
struct compare_missing {
    int64_t only_a, only_b;
};
int64_t *compare_match(const struct compare_tensor *a, const struct compare_tensor *b,
                       struct compare_missing *missing);

#endif
