/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/out.h"

#include "engine/base/process/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the path names an open file of the process: what it leads to is not to be replaced,
 * and not to be cut off where a shell has redirected it to. */
static bool is_descriptor(const char *path)
{
    return !strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/dev/std", 8) ||
           !strncmp(path, "/proc/", 6);
}

/* Whether a new file may take the path's place; *mode becomes that of the old one. */
static bool may_replace(struct vx_out *out, const char *path, mode_t *mode)
{
    struct stat about;
    if (is_descriptor(path)) return false;
    if (!lstat(path, &about)) {
        if (!realpath(path, out->real) || stat(out->real, &about)) return false;
        *mode = about.st_mode & 0777;
        return S_ISREG(about.st_mode);
    }
    size_t bytes = strlen(path) + 1;
    if (bytes <= sizeof out->real) memcpy(out->real, path, bytes);
    return errno == ENOENT && bytes <= sizeof out->real;
}

/* A new file beside the other; 0 or errno. */
static int open_part(struct vx_out *out, mode_t mode, bool keeps_mode)
{
    /* A random name: process numbers repeat in containers that share a folder. */
    u64 nobodys = 0;
    if (getrandom(&nobodys, sizeof nobodys, 0) != sizeof nobodys)
        nobodys = (u64)vx_clock_ns();
    int used = snprintf(out->part, sizeof out->part, "%s.%016llx.new", out->real,
                        (unsigned long long)nobodys);
    errno = ENAMETOOLONG;
    if (used < (int)sizeof out->part)
        out->file = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (out->file < 0) {
        out->part[0] = 0;
        return errno;
    }
    if (keeps_mode) (void)fchmod(out->file, mode); /* some file systems have none */
    return 0;
}

int vx_out_open(struct vx_out *out, const char *path, mode_t mode, int flags)
{
    mode_t old = 0;
    out->file = -1;
    out->part[0] = 0;
    if (may_replace(out, path, &old)) {
        int error = open_part(out, old ? old : mode, old != 0);
        /* The folder takes no new file, but the file itself may still be writable. */
        if (error != EACCES && error != EPERM && error != EROFS && error != ENAMETOOLONG)
            return error;
    }
    flags |= is_descriptor(path) ? O_APPEND : O_TRUNC;
    out->file = open(path, O_WRONLY | O_CLOEXEC | flags);
    if (out->file < 0 && errno == ENOENT) /* a link to nothing */
        out->file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
    return out->file < 0 ? errno : 0;
}

int vx_out_put(struct vx_out *out, const void *data, size_t bytes)
{
    const u8 *at = data;
    while (bytes) {
        ssize_t done = write(out->file, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : ENOSPC;
        at += done;
        bytes -= (size_t)done;
    }
    return 0;
}

int vx_out_end(struct vx_out *out, int error)
{
    if (out->file >= 0 && close(out->file) && !error) error = errno;
    out->file = -1;
    if (!error && out->part[0] && rename(out->part, out->real)) error = errno;
    if (error && out->part[0]) (void)unlink(out->part);
    out->part[0] = 0;
    return error;
}
