/* number - reads decimal numbers of options and headers.
 *
 *   double size;
 *   const char *end = number_read(text, &size);
 *   if (!end || *end || !number_is_size(size)) ...
 *
 * strtod alone also takes hexadecimal, nan, inf and blanks before a number.
 *
 * Owner    nothing.
 * Thread   any.
 * Limits   none.
 * Fails    NULL where no such number begins.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_NUMBER_H
#define VOXEL_CLIENTS_CLI_NUMBER_H

#include <stdbool.h>

/* A number such as -1.5e3 at the begin of the text; returns what follows it.  NULL if there
 * is none, or if a double does not hold it: it is too large, or below the normal numbers and
 * not 0. */
const char *number_read(const char *text, double *number);

/* True for what can be the size of a voxel in a file: positive, normal, below 1e300. */
bool number_is_size(double number);

#endif
