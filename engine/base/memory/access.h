/* access - tells a person why a file could not be opened.
 *
 * strerror alone is often not enough: safetensors writes files of mode 0600, so the text
 * for a refused file names its owner and the user that voxeld runs as.
 *
 *   if (fd < 0) ... "%s: cannot be opened: %s", label, vx_access_text(path, errno, room)
 *
 *   "%s: expected a regular file, got %s", label, vx_access_kind(&info)
 *
 * Owner    the caller's buffer.
 * Thread   any; it asks the system about the path, so it may block as open(2) does.
 * Limits   VX_ACCESS_BYTES; texts are cut to fit.
 * Fails    never; vx_access_failed returns the failure of its caller.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_ACCESS_H
#define VX_ENGINE_BASE_ACCESS_H

#include "engine/base/status.h"

#define VX_ACCESS_BYTES 160

struct stat;

/* `error` is the errno of the call that failed for `path`; returns `out`. */
const char *vx_access_text(const char *path, int error, char out[VX_ACCESS_BYTES]);
/* The same for tokens and private keys: its advice lets only the user or a group read. */
const char *vx_access_secret_text(const char *path, int error, char out[VX_ACCESS_BYTES]);
/* Why a file could not be opened: PERMISSION_DENIED if it may not be, else NOT_FOUND, and the
 * sentence "LABEL: cannot be opened: ..." */
VX_MUST_USE vx_status vx_access_failed(const char *path, const char *label, int error,
                                       struct vx_why *why);
/* What stat(2) found: "a directory", "an empty file"; static. */
const char *vx_access_kind(const struct stat *about);
/* Of a sentence with such a text in it, for somebody elsewhere: leaves only the name of a
 * link's target, if it is an absolute path. */
void vx_access_hide(char *sentence);

#endif
