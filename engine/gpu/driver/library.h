/* gpu/library - opens a vendor's library with dlopen, and says why none can be opened.
 *
 * The loader names only the last library that it tried, and tells a file for another
 * processor from a missing one in no word.  Here the error names what was looked for, and
 * of several causes the one that tells most: a library that is there and does not load.
 *
 *   const struct vx_library_wanted wanted = {"HIP driver", named, names};
 *   VX_TRY(vx_library_open(&wanted, &why, &library));
 *
 * Owner    libraries stay loaded until the process ends.
 * Thread   any.
 * Limits   -
 * Fails    NOT_FOUND none of them can be opened.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LIBRARY_H
#define VX_ENGINE_GPU_LIBRARY_H

#include "engine/base/status.h"

struct vx_library_wanted {
    const char *word;         /* "HIP driver" */
    const char *named;        /* the setting's path; NULL = the list */
    const char *const *names; /* ends with NULL; the first that opens is taken */
};
VX_MUST_USE vx_status vx_library_open(const struct vx_library_wanted *wanted,
                                      struct vx_why *why, void **library);

#endif
