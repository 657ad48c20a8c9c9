/* out - writes a file whole or not at all.
 *
 *   int error = vx_out_open(&out, path, 0644, 0);
 *   if (!error) error = vx_out_put(&out, data, bytes);
 *   error = vx_out_end(&out, error);        errno of what failed, or 0
 *
 * The content goes into a new file beside the path, which is renamed when it is complete: after
 * a failure the old file is still there.  A link stays, and the file that it leads to is
 * replaced.  What is no plain file (a device, a pipe), or lies in a folder that takes no new
 * file, is written directly and never removed: a rename would put a file in its place.
 * clients/cli/out.c does the same for those who may not include engine/base.
 *
 * Owner    the caller: vx_out_end releases, once, also after a failed open.
 * Thread   one.
 * Limits   paths of less than PATH_MAX bytes.
 * Fails    with the system's errno.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_OUT_H
#define VX_ENGINE_BASE_OUT_H

#include "engine/base/types.h"

#include <limits.h>
#include <sys/types.h>

struct vx_out {
    int file;            /* -1: none is open */
    char real[PATH_MAX]; /* the path with its links resolved */
    char part[PATH_MAX]; /* the file that is written; "" = the path itself */
};

/* `mode` is that of a new file.  `flags`: O_NONBLOCK for who must not wait for a pipe's reader;
 * without one it is ENXIO. */
VX_MUST_USE int vx_out_open(struct vx_out *out, const char *path, mode_t mode, int flags);
VX_MUST_USE int vx_out_put(struct vx_out *out, const void *data, size_t bytes);
/* Gives the file its name if `error` is 0, else discards it.  Returns the first error. */
int vx_out_end(struct vx_out *out, int error);

#endif
