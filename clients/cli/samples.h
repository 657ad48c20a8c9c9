/* samples - which sample a point is of: the number held to its range, the names it goes by.
 *
 * Where samples are not taken as such all points are of one, and the answer is of neighbours that
 * there are none of.  So a file that has them under another name is refused.
 *
 *   if (!samples_take(value, &points->sample[row])) ...
 *
 *   struct samples_names names = {0};
 *   samples_see(&names, "batch_idx", 9);      each column that nobody uses
 *   if (samples_misnamed(&names)) ...         "batch_idx"
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   a sample is 0 to SAMPLE_MAX; names of SAMPLES_NAME_BYTES are seen.
 * Fails    samples_take: false for what is no whole number of that range.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SAMPLES_H
#define VOXEL_CLIENTS_CLI_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A unit test holds it against the server's limit. */
#define SAMPLE_MAX         511
#define SAMPLES_NAME_BYTES 48

bool samples_take(double value, int32_t *sample);

/* What the names of columns say; all zero before the first. */
struct samples_names {
    char name[SAMPLES_NAME_BYTES];   /* the first that means a sample and nothing else */
    char letter[SAMPLES_NAME_BYTES]; /* b: a batch, unless it is a colour */
    bool colours;                    /* g or a: b is blue, or of Lab */
};
void samples_see(struct samples_names *names, const char *name, size_t bytes);
/* The column that has the samples; NULL = there is none that looks so. */
const char *samples_misnamed(const struct samples_names *names);

/* Whether an array of whole numbers beside coords, of that name, says where samples end or what
 * they are: offset, as Pointcept has it.  Of a point's property it would say less: a map has a
 * frame for each point, and is one. */
bool samples_split(const char *name, size_t bytes);

#endif
