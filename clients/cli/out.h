/* out - writes a file whole or not at all.
 *
 *   struct out out;
 *   if (out_open(&out, path, &error)) ...
 *   fwrite(..., out.file);
 *   if (out_close(&out, &error)) ...      or out_drop(&out), to discard it
 *
 * The content goes into a new file beside the path, which is renamed when it is complete:
 * after a failure the old file is still there.  A path that is no plain file (a device, a
 * pipe), or whose folder takes no new file, is written directly and never removed.
 *
 * Owner    the caller: out_close or out_drop releases, once; the path is borrowed.
 * Thread   one.
 * Limits   paths of PATH_MAX bytes.
 * Fails    DATA_LOSS with the system's reason; out_check_input: INVALID_ARGUMENT.
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
    char real[PATH_MAX]; /* the path with its links resolved */
    char part[PATH_MAX]; /* the file that is written; "" = the path itself */
};

/* INVALID_ARGUMENT if both lead to the same plain file, also by a link: writing would destroy
 * what was read. */
enum voxel_code out_check_input(const char *path, const char *input,
                                struct voxel_error *error);
/* Fails if out_open would probably fail; makes no file.  For a check before long work. */
enum voxel_code out_check(const char *path, struct voxel_error *error);
enum voxel_code out_open(struct out *out, const char *path, struct voxel_error *error);
/* Reports also an earlier failure of fprintf or fwrite. */
enum voxel_code out_close(struct out *out, struct voxel_error *error);
void out_drop(struct out *out);

#endif
