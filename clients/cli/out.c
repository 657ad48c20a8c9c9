/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clients/cli/out.h"

#include "clients/c/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_TRIES 100

static enum voxel_code out_failed(const struct out *out, int reason,
                                  struct voxel_error *error)
{
    return voxel_error_set(error, VOXEL_DATA_LOSS, "%s: %s", out->path, strerror(reason));
}

/* True if a new file may replace the file at the path; *mode is the old file's mode, 0 if
 * there is none. */
static bool may_replace(struct out *out, mode_t *mode)
{
    struct stat about;
    /* Links there lead to open files of the process, not to the name of a file. */
    if (strncmp(out->path, "/dev/", 5) == 0 || strncmp(out->path, "/proc/", 6) == 0)
        return false;
    *mode = 0;
    if (lstat(out->path, &about) != 0) {
        size_t bytes = strlen(out->path) + 1;
        if (bytes <= sizeof out->real) memcpy(out->real, out->path, bytes);
        return errno == ENOENT && bytes <= sizeof out->real;
    }
    if (!realpath(out->path, out->real) || stat(out->real, &about) != 0) return false;
    *mode = about.st_mode & 0777;
    /* A file that this user may not write must not be replaced either. */
    return S_ISREG(about.st_mode) && access(out->real, W_OK) == 0;
}

/* Makes a new file beside the other; -1 if that fails, with the reason in errno. */
static int open_part(struct out *out, mode_t mode)
{
    for (int i = 0; i < PART_TRIES; i++) {
        int used = snprintf(out->part, sizeof out->part, "%s.part-%d-%d", out->real,
                            (int)getpid(), i);
        if (used >= (int)sizeof out->part) {
            errno = ENAMETOOLONG;
            break;
        }
        int fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 && mode) fchmod(fd, mode); /* may fail: some file systems have none */
        if (fd >= 0) return fd;
        if (errno != EEXIST) break;
    }
    out->part[0] = '\0';
    return -1;
}

enum voxel_code out_check_input(const char *path, const char *input,
                                struct voxel_error *error)
{
    struct stat a, b;
    const bool same = stat(path, &a) == 0 && stat(input, &b) == 0 &&
                      a.st_dev == b.st_dev && a.st_ino == b.st_ino && S_ISREG(a.st_mode);
    if (!same) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s is the input and would be overwritten", path);
}

enum voxel_code out_check(const char *path, struct voxel_error *error)
{
    struct stat about;
    char folder[PATH_MAX];
    const struct out out = {.path = path};
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    if (stat(path, &about) == 0) {
        if (S_ISDIR(about.st_mode)) return out_failed(&out, EISDIR, error);
        return access(path, W_OK) == 0 ? VOXEL_OK : out_failed(&out, errno, error);
    }
    /* A link to nothing: out_open will see whether its target can be made. */
    if (errno == ENOENT && lstat(path, &about) == 0) return VOXEL_OK;
    if (bytes + 2 > sizeof folder) return out_failed(&out, ENAMETOOLONG, error);
    memcpy(folder, path, bytes);
    memcpy(folder + bytes, ".", 2);
    if (access(folder, W_OK | X_OK) != 0) return out_failed(&out, errno, error);
    return VOXEL_OK;
}

enum voxel_code out_open(struct out *out, const char *path, struct voxel_error *error)
{
    mode_t mode = 0;
    *out = (struct out){.path = path};
    bool replace = may_replace(out, &mode);
    int fd = replace ? open_part(out, mode) : -1;
    /* The folder takes no new file, but the file itself may still be writable. */
    bool refused =
        errno == EACCES || errno == EPERM || errno == EROFS || errno == ENAMETOOLONG;
    if (fd < 0 && (!replace || refused))
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return out_failed(out, errno, error);
    out->file = fdopen(fd, "wb");
    if (out->file) return VOXEL_OK;
    enum voxel_code code = out_failed(out, errno, error);
    close(fd);
    if (out->part[0]) unlink(out->part);
    return code;
}

enum voxel_code out_close(struct out *out, struct voxel_error *error)
{
    bool bad = ferror(out->file) != 0;
    if (fclose(out->file) != 0) bad = true;
    int reason = 0;
    if (!bad && out->part[0] && rename(out->part, out->real) != 0) reason = errno;
    if (!bad && !reason) return VOXEL_OK;
    if (out->part[0]) unlink(out->part);
    if (reason) return out_failed(out, reason, error);
    return voxel_error_set(error, VOXEL_DATA_LOSS,
                           "%s: cannot be written (is the disk full?)", out->path);
}

void out_drop(struct out *out)
{
    fclose(out->file);
    if (out->part[0]) unlink(out->part);
}
