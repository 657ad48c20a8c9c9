/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *vx_access_text(const char *path, int error, char out[VX_ACCESS_BYTES])
{
    struct stat about;
    if (error != EACCES)
        snprintf(out, VX_ACCESS_BYTES, "%s", strerror(error));
    else if (stat(path, &about))
        snprintf(out, VX_ACCESS_BYTES,
                 "%s: voxeld runs as user %u, who may not enter a directory above it",
                 strerror(error), (unsigned)geteuid());
    else
        snprintf(
            out, VX_ACCESS_BYTES,
            "%s: it belongs to user %u and has mode %04o, and voxeld runs as user %u: "
            "chmod a+r%s it",
            strerror(error), (unsigned)about.st_uid, (unsigned)about.st_mode & 07777,
            (unsigned)geteuid(), S_ISDIR(about.st_mode) ? "x" : "");
    return out;
}
