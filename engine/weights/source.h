/* source - the bytes of a weights file, on a disk or in memory.
 *
 * Another process may write the file while it is read: `cp new old` empties it first.  In
 * a mapping, a read behind the new end raises SIGBUS, which ends the worker and all its
 * models.  So bytes are copied with pread, and a file that became shorter is a status.
 *
 *   VX_TRY(vx_source_open(path, label, &why, &source));
 *   VX_TRY(vx_source_read(&source, offset, out, bytes, &why));
 *   vx_source_close(&source);
 *
 * Owner    the caller owns the source, which owns its descriptor; memory and label are the
 *          caller's and stay valid until close.
 * Thread   any; one source may be read by several threads.  It blocks as pread(2) does.
 * Limits   none of its own.
 * Fails    NOT_FOUND; DATA_LOSS: not a regular file with bytes in it, shorter than when it
 *          was opened, or the disk has an error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_WEIGHTS_SOURCE_H
#define VX_ENGINE_WEIGHTS_SOURCE_H

#include "engine/base/status.h"

struct vx_source {
    int fd;            /* -1 = in memory, or closed */
    const u8 *memory;  /* NULL = in a file */
    size_t bytes;      /* when it was opened */
    const char *label; /* in error sentences */
};

/* On failure the source is closed. */
VX_MUST_USE vx_status vx_source_open(const char *path, const char *label,
                                     struct vx_why *why, struct vx_source *source);
struct vx_source vx_source_of_memory(const u8 *memory, size_t bytes, const char *label);
/* All of the bytes, or a status; offset + bytes is at most source->bytes. */
VX_MUST_USE vx_status vx_source_read(const struct vx_source *source, size_t offset,
                                     void *out, size_t bytes, struct vx_why *why);
/* Safe on a source that is closed. */
void vx_source_close(struct vx_source *source);

#endif
