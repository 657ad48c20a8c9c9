/* diff_table - what was found of each layer, and how it is printed.
 *
 * Owner    the caller; rows borrow their names from the recordings.
 * Thread   main.
 * Limits   -
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_DIFF_TABLE_H
#define VOXEL_CLIENTS_CLI_DIFF_TABLE_H

#include "clients/cli/recording.h"

struct diff_row {
    const struct recorded *a, *b;
    int32_t rank, other_rank; /* of A's, of B's */
    int64_t shape[VOXEL_RANK_MAX], other_shape[VOXEL_RANK_MAX];
    bool within, dense;
    /* Of the worst element: sample x y z; in a dense tensor A's indices. */
    int64_t place[VOXEL_RANK_MAX];
    struct comparison found;
};

struct diff_table {
    struct diff_row *rows; /* layers in A's order, then outputs */
    int32_t count;
    double bound;
    const struct recording *a, *b;
    const char *layers; /* names that were asked for; NULL = all */
};

/* The first row over the bound; else, if `worst`, the one with the largest error.  NULL =
 * there is none. */
const struct diff_row *diff_table_first(const struct diff_table *table, bool worst);
/* The first output that only one of the runs has, A's first: NULL = there is none.  Such a
 * one is over the bound, as what is answered differs; a layer need not be recorded. */
const struct recorded *diff_table_missing(const struct diff_table *table, bool *in_a);
/* No row is over the bound, and no output is missing. */
bool diff_table_within(const struct diff_table *table);
/* True if no layer and no output has a row in either run. */
bool diff_table_is_empty(const struct diff_table *table);
/* True if the comparison takes this one: --layers names it. */
bool diff_table_takes(const struct diff_table *table, const struct recorded *recorded);

void diff_table_print(const struct diff_table *table);
/* One line of JSON; a number that is not finite is null. */
void diff_table_print_json(const struct diff_table *table);

/* "layer stem", "output out". */
#define DIFF_NAME_BYTES 160
const char *diff_row_name(const struct diff_row *row, char text[DIFF_NAME_BYTES]);

#endif
