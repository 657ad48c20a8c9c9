/* out - a file that is written: whole under its name, or not at all.
 *
 *   struct out out;
 *   if (out_open(&out, path, &error)) ...
 *   fwrite(..., out.file);
 *   if (out_close(&out, &error)) ...      or out_drop(&out), when there is nothing to keep
 *
 * It is written under another name beside the path and renamed when all of it is there: who
 * fails leaves what was there before.  What is no plain file (a device, a pipe) is written as it
 * is and never removed; so is a file whose folder takes no other.
 *
 * Owner    out_open opens, out_close or out_drop closes, each once; the path is borrowed.
 * Thread   one.
 * Limits   paths of PATH_MAX bytes.
 * Fails    DATA_LOSS with the system's reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_OUT_H
#define VOXEL_CLIENTS_CLI_OUT_H

#include "clients/c/voxel.h"

#include <limits.h>
#include <stdio.h>

struct out {
    FILE *file;
    const char *path;
    char real[PATH_MAX]; /* where a link leads */
    char part[PATH_MAX]; /* what is written; "" = the path itself */
};

/* Whether it looks as if out_open would do it; nothing is made.  For before the work. */
enum voxel_code out_check(const char *path, struct voxel_error *error);
enum voxel_code out_open(struct out *out, const char *path, struct voxel_error *error);
/* Also what fprintf and fwrite could not do is said here. */
enum voxel_code out_close(struct out *out, struct voxel_error *error);
void out_drop(struct out *out);

#endif
