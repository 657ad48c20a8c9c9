/* summary - prints an answer on stdout, in a few lines.
 *
 *   summary_print("scan.ply", &cloud, answer);
 *
 * Owner    borrows all.
 * Thread   main.
 * Limits   shows the least, mean and largest of the first 16 channels of each output.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SUMMARY_H
#define VOXEL_CLIENTS_CLI_SUMMARY_H

#include "clients/cli/cloud.h"

/* Warns on stderr of a file without names of columns whose last one may be the sample. */
void summary_warn_samples(const char *file, const struct cloud *cloud);
void summary_print(const char *file, const struct cloud *cloud,
                   const struct voxel_answer *answer);

#endif
