/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/source.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

vx_status vx_source_open(const char *path, const char *label, struct vx_why *why,
                         struct vx_source *source)
{
    /* O_NONBLOCK: a named pipe in place of the file must not block the loading thread. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = errno;
    *source = (struct vx_source){.fd = fd, .label = label};
    if (fd < 0) return vx_access_failed(path, label, error, why);
    struct stat info = {0};
    bool good = !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0;
    if (good)
        source->bytes = (size_t)info.st_size;
    else
        vx_source_close(source);
    VX_ENSURE_WHY(good, why, DATA_LOSS, "a weights file is empty or not a file",
                  "%s: expected a regular file with bytes in it, got %s", label,
                  vx_access_kind(&info));
    return VX_OK;
}

struct vx_source vx_source_of_memory(const u8 *memory, size_t bytes, const char *label)
{
    return (struct vx_source){.fd = -1, .memory = memory, .bytes = bytes, .label = label};
}

/* One call copies at most 2 GiB, and less when a signal comes; 0 is the end of the file. */
static vx_status file_read(const struct vx_source *source, size_t offset, u8 *out,
                           size_t bytes, struct vx_why *why)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(source->fd, out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        VX_ENSURE_WHY(got >= 0, why, DATA_LOSS, "a weights file cannot be read",
                      "%s: cannot be read: %s", source->label, strerror(errno));
        VX_ENSURE_WHY(got > 0, why, DATA_LOSS,
                      "a weights file was truncated while it was read",
                      "%s: the file was truncated while it was read: expected %zu bytes "
                      "at offset %zu, got %zu",
                      source->label, bytes, offset, done);
        done += (size_t)got;
    }
    return VX_OK;
}

vx_status vx_source_read(const struct vx_source *source, size_t offset, void *out,
                         size_t bytes, struct vx_why *why)
{
    VX_ASSERT(offset <= source->bytes);
    VX_ASSERT(bytes <= source->bytes - offset);
    if (!source->memory) return file_read(source, offset, out, bytes, why);
    if (bytes) memcpy(out, source->memory + offset, bytes);
    return VX_OK;
}

void vx_source_close(struct vx_source *source)
{
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}
