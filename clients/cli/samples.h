/* samples - checks the number of a sample, and recognises columns that hold samples.
 *
 * If a file has samples under a name that the readers do not use, all its points become
 * one sample, and voxels of different samples become neighbours.  So such a file is
 * refused.
 *
 *   if (!samples_take(value, &points->sample[row])) ...
 *
 *   struct samples_names names = {0};
 *   samples_see(&names, "batch_idx", 9);      each column that is not used
 *   if (samples_misnamed(&names)) ...         "batch_idx"
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   a sample is 0 to SAMPLE_MAX; names of SAMPLES_NAME_BYTES or more are ignored.
 * Fails    samples_take returns false for a value that is no whole number of that range.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SAMPLES_H
#define VOXEL_CLIENTS_CLI_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A unit test compares it with the server's limit. */
#define SAMPLE_MAX         511
#define SAMPLES_NAME_BYTES 48

bool samples_take(double value, int32_t *sample);

/* What the names of columns tell; all zero before the first. */
struct samples_names {
    char name[SAMPLES_NAME_BYTES];   /* the first name that can only mean samples */
    char letter[SAMPLES_NAME_BYTES]; /* "b": a batch, unless it is a colour */
    bool colours;                    /* "g" or "a" exists: b is blue, or of Lab */
};
/* Adds one column's name. */
void samples_see(struct samples_names *names, const char *name, size_t bytes);
/* The name of the column that seems to hold samples; NULL if there is none. */
const char *samples_misnamed(const struct samples_names *names);

/* True if an array of a .npz, or a property of a .ply, of that name tells samples or where
 * they end, such as `offset` of Pointcept, or `scan_id`.  The points of one map can each
 * have a frame, too: then the user says that all are one sample. */
bool samples_split(const char *name, size_t bytes);

/* What columns 0 and 3 of [N,4] take; `last` values are 0 to last - 1. */
struct samples_columns {
    int32_t first, last;
};

/* True if the columns seem to be x, y, z and the sample, as TorchSparse before 2.1 has
 * them: the last takes few values from 0, and column 0 more than twice as many.  A batch
 * of [b, x, y, z] is told by its samples lying together, or by there being few of them:
 * also if it is flat.  clients/python/voxeld/columns.py has the same rule. */
bool samples_are_last(const int32_t *coords, int64_t rows, struct samples_columns *found);

#endif
