/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit_folder.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/environment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A text's name has at most one folder: "kernels/device.h". */
#define INSIDE "kernels"

static bool write_all(int file, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t done = write(file, data, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        bytes -= (size_t)done;
    }
    return true;
}

static vx_status write_text(int folder, const struct vx_text *text, struct vx_why *why)
{
    int file = openat(folder, text->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = file >= 0 && write_all(file, text->data, text->bytes);
    int failed = errno;
    if (file >= 0) close(file);
    VX_ENSURE_WHY(good, why, RESOURCE_EXHAUSTED, "a kernel source cannot be written",
                  "%s, for the compiler: %s", text->name, strerror(failed));
    return VX_OK;
}

static vx_status write_texts(const char *path, const struct vx_jit_closure *closure,
                             struct vx_why *why)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = folder >= 0 && !mkdirat(folder, INSIDE, 0700);
    int failed = errno;
    vx_status status = VX_OK;
    for (i32 i = 0; good && i < closure->count && !status.fault; i++)
        status = write_text(folder, closure->texts[i], why);
    if (folder >= 0) close(folder);
    VX_ENSURE_WHY(good, why, RESOURCE_EXHAUSTED, "a kernel source cannot be written",
                  "%s, for the compiler: %s", path, strerror(failed));
    return status;
}

vx_status vx_jit_folder_open(const struct vx_jit_closure *closure, struct vx_why *why,
                             struct vx_jit_folder *folder)
{
    const char *above = vx_environment_get("TMPDIR");
    int length = snprintf(folder->path, sizeof folder->path, "%s/voxeld-kernel-XXXXXX",
                          above && above[0] == '/' ? above : "/tmp");
    VX_ENSURE_WHY(length < (int)sizeof folder->path && mkdtemp(folder->path), why,
                  RESOURCE_EXHAUSTED, "no temporary folder for the compiler",
                  "no temporary folder for the compiler: %s: %s", folder->path,
                  strerror(errno));
    vx_status status = write_texts(folder->path, closure, why);
    if (status.fault) vx_jit_folder_close(folder);
    return status;
}

/* Removes the files of a folder: ours, and what a compiler left when it was killed. */
static void remove_files(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (const struct dirent *it = readdir(folder); it; it = readdir(folder))
        (void)unlinkat(dirfd(folder), it->d_name, 0); /* fails for folders */
    closedir(folder);
}

void vx_jit_folder_close(struct vx_jit_folder *folder)
{
    char inside[sizeof folder->path + sizeof INSIDE];
    VX_ASSERT(folder->path[0]);
    (void)snprintf(inside, sizeof inside, "%s/" INSIDE, folder->path);
    remove_files(inside);
    (void)rmdir(inside);
    remove_files(folder->path);
    (void)rmdir(folder->path);
    folder->path[0] = 0;
}

static bool read_all(int file, char *data, size_t bytes)
{
    while (bytes) {
        ssize_t done = read(file, data, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        bytes -= (size_t)done;
    }
    return true;
}

static vx_status take_file(int file, const char *name, struct vx_why *why, size_t *bytes,
                           void **data)
{
    struct stat about;
    VX_ENSURE_WHY(!fstat(file, &about) && S_ISREG(about.st_mode) &&
                      about.st_size <= VX_JIT_IMAGE_BYTES_MAX,
                  why, RESOURCE_EXHAUSTED, "a device binary is too large",
                  "%s: expected a file of at most %d bytes", name,
                  VX_JIT_IMAGE_BYTES_MAX);
    *data = vx_alloc_zero((size_t)about.st_size + 1);
    VX_ENSURE(*data, RESOURCE_EXHAUSTED, "no memory for a device binary");
    if (read_all(file, *data, (size_t)about.st_size)) {
        *bytes = (size_t)about.st_size;
        return VX_OK;
    }
    vx_free(*data);
    *data = NULL;
    VX_FAIL_WHY(why, INTERNAL, "a device binary cannot be read", "%s: cannot be read",
                name);
}

vx_status vx_jit_folder_take(const struct vx_jit_folder *folder, const char *name,
                             struct vx_why *why, size_t *bytes, void **data)
{
    char path[sizeof folder->path + 64];
    (void)snprintf(path, sizeof path, "%s/%s", folder->path, name);
    *bytes = 0;
    *data = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return VX_OK;
    vx_status status = take_file(file, name, why, bytes, data);
    close(file);
    return status;
}
