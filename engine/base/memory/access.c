/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/access.h"

#include "engine/base/types.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the target of a symbolic link; false when the path is not a link. */
static bool link_target(const char *path, char *target, size_t bytes)
{
    ssize_t length = readlink(path, target, bytes - 1);
    if (length >= 0) target[length] = '\0';
    return length >= 0;
}

#define LINK_TO "it is a link to '"

void vx_access_hide(char *sentence)
{
    char *target = strstr(sentence, LINK_TO "/");
    if (!target) return;
    target += sizeof LINK_TO - 1;
    const char *name = strrchr(target, '/') + 1;
    memmove(target, name, strlen(name) + 1);
}

/* Root's, or a directory in that of homes: what a person has there is not for others. */
static bool is_home(const char *path)
{
    static const char homes[] = "/"
                                "home/";
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (length == 5 && !strncmp(path, "/root", 5)) return true;
    return length > sizeof homes - 1 && !strncmp(path, homes, sizeof homes - 1) &&
           !memchr(path + sizeof homes - 1, '/', length - (sizeof homes - 1));
}

/* What makes the file readable; a secret, not for everybody. */
static const char *access_advice(const char *path, const struct stat *about, bool secret)
{
    if (secret) return "chown it, or chgrp and chmod g+r it";
    if (is_home(path)) return "expected a directory of voxeld's own, not a home";
    return S_ISDIR(about->st_mode) ? "chmod a+rx it" : "chmod a+r it";
}

static const char *access_text(const char *path, int error, bool secret, char *out)
{
    struct stat about;
    char target[64];
    if (error == ENOENT && link_target(path, target, sizeof target))
        snprintf(out, VX_ACCESS_BYTES, "%s: " LINK_TO "%s', which is not there",
                 strerror(error), target);
    else if (error != EACCES)
        snprintf(out, VX_ACCESS_BYTES, "%s", strerror(error));
    else if (stat(path, &about))
        snprintf(out, VX_ACCESS_BYTES,
                 "%s: voxeld runs as user %u, which may not enter one of the directories "
                 "above it",
                 strerror(error), (unsigned)geteuid());
    else
        snprintf(out, VX_ACCESS_BYTES,
                 "%s: it belongs to user %u and has mode %04o, and voxeld runs as user "
                 "%u: %s",
                 strerror(error), (unsigned)about.st_uid, (unsigned)about.st_mode & 07777,
                 (unsigned)geteuid(), access_advice(path, &about, secret));
    return out;
}

const char *vx_access_text(const char *path, int error, char out[VX_ACCESS_BYTES])
{
    return access_text(path, error, false, out);
}

const char *vx_access_secret_text(const char *path, int error, char out[VX_ACCESS_BYTES])
{
    return access_text(path, error, true, out);
}

vx_status vx_access_failed(const char *path, const char *label, int error,
                           struct vx_why *why)
{
    char room[VX_ACCESS_BYTES];
    vx_why_set(why, "%s: cannot be opened: %s", label, vx_access_text(path, error, room));
    if (error == EACCES || error == EPERM)
        VX_FAIL(PERMISSION_DENIED, "a file may not be read");
    VX_FAIL(NOT_FOUND, "a file cannot be opened");
}

const char *vx_access_kind(const struct stat *about)
{
    switch (about->st_mode & S_IFMT) {
    case S_IFREG: return about->st_size ? "a file" : "an empty file";
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a named pipe";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "something else";
    }
}
