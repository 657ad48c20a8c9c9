/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/regions_private.h"

#include "engine/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* With one slash before it: where the system keeps its shared memory, and nowhere else.
 * What begins with "sem." are semaphores there. */
static bool key_read(const char *key, char name[VX_REGION_KEY_BYTES])
{
    if (*key == '/') key++;
    size_t length = strlen(key);
    if (!length || length > VX_REGION_KEY_BYTES - 2 || strchr(key, '/')) return false;
    if (!strcmp(key, ".") || !strcmp(key, "..") || !strncmp(key, "sem.", 4)) return false;
    snprintf(name, VX_REGION_KEY_BYTES, "/%s", key);
    return true;
}

/* Whose user or group has no number here, of another user namespace, has this one. */
#define UNMAPPED 65534

static bool has_list(int fd)
{
    if (fgetxattr(fd, "system.posix_acl_access", NULL, 0) >= 0) return true;
    return errno != ENODATA && errno != EOPNOTSUPP;
}

static bool peer_in_group(const struct vx_regions_options *options,
                          const struct vx_peer *peer, u32 gid)
{
    if (peer->gid == gid) return true;
    return options->in_group &&
           options->in_group(options->context, peer->connection, gid);
}

/* Read and write, by the object's mode: never more than if the client opened it itself.
 * The first of owner, group and others that it is one of decides, as in the kernel.  What
 * cannot be told is a no: users of another namespace, and objects with a list of users
 * beside their mode, which only their owner may register.  Who comes over the loopback is
 * not known, and may what voxeld may. */
static bool peer_may(const struct vx_regions_options *options, const struct vx_peer *peer,
                     int fd, const struct stat *object)
{
    if (peer->kind != VX_PEER_UNIX || !peer->uid) return true;
    if (peer->uid == UNMAPPED || peer->gid == UNMAPPED) return false;
    if (peer->uid == object->st_uid)
        return (object->st_mode & (S_IRUSR | S_IWUSR)) == (S_IRUSR | S_IWUSR);
    if (object->st_gid == UNMAPPED || has_list(fd)) return false;
    if (peer_in_group(options, peer, object->st_gid))
        return (object->st_mode & (S_IRGRP | S_IWGRP)) == (S_IRGRP | S_IWGRP);
    return (object->st_mode & (S_IROTH | S_IWOTH)) == (S_IROTH | S_IWOTH);
}

/* A regular file, which the peer may use. */
static vx_status object_may(const struct vx_regions_options *options, int fd,
                            const struct vx_peer *peer,
                            const struct vx_region_wanted *wanted, struct vx_why *why)
{
    struct stat object;
    VX_ENSURE_WHY(!fstat(fd, &object) && S_ISREG(object.st_mode), why, INVALID_ARGUMENT,
                  "not a shared memory object",
                  "expected a shared memory object behind region '%.127s', got something "
                  "else",
                  wanted->name);
    VX_ENSURE_WHY(peer_may(options, peer, fd, &object), why, PERMISSION_DENIED,
                  "the client may not use this shared memory object",
                  "expected a shared memory object that this client's user may read and "
                  "write behind region '%.127s'",
                  wanted->name);
    return VX_OK;
}

static vx_status object_check_bytes(int fd, const struct vx_region_wanted *wanted,
                                    struct vx_why *why)
{
    struct stat object;
    u64 end;
    VX_ASSERT(!fstat(fd, &object));
    VX_ENSURE_WHY(!__builtin_add_overflow(wanted->offset, wanted->bytes, &end) &&
                      end <= (u64)object.st_size,
                  why, INVALID_ARGUMENT, "the shared memory object is smaller",
                  "expected a shared memory object behind region '%.127s' that has %llu "
                  "bytes at offset %llu, got one of %llu bytes",
                  wanted->name, (unsigned long long)wanted->bytes,
                  (unsigned long long)wanted->offset, (unsigned long long)object.st_size);
    return VX_OK;
}

static vx_status object_fault(const struct vx_region_wanted *wanted, struct vx_why *why)
{
    switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "no descriptor for a shared memory object",
                    "Unable to open shared memory region: '%.127s': %m", wanted->name);
    case EACCES:
    case EPERM:
    case ELOOP: /* a symbolic link */
        VX_FAIL_WHY(why, PERMISSION_DENIED, "a shared memory object cannot be opened",
                    "Unable to open shared memory region: '%.127s': voxeld may not read "
                    "and write its object",
                    wanted->name);
    default:
        VX_FAIL_WHY(why, NOT_FOUND, "no such shared memory object",
                    "Unable to open shared memory region: '%.127s': no shared memory "
                    "object has its key",
                    wanted->name);
    }
}

vx_status vx_region_open_object(const struct vx_regions_options *options,
                                const struct vx_peer *peer,
                                const struct vx_region_wanted *wanted, struct vx_why *why,
                                int *fd)
{
    char name[VX_REGION_KEY_BYTES];
    VX_ENSURE_WHY(key_read(wanted->key, name), why, INVALID_ARGUMENT,
                  "not a key of a shared memory object",
                  "expected the key of shared memory region '%.127s' to be the name of a "
                  "POSIX shared memory object, with or without its slash",
                  wanted->name);
    /* O_NONBLOCK: what lies there may be a pipe, and is refused below. */
    int opened = shm_open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (opened < 0) return object_fault(wanted, why);
    vx_status st = object_may(options, opened, peer, wanted, why);
    if (!st.fault) st = object_check_bytes(opened, wanted, why);
    if (st.fault)
        close(opened);
    else
        *fd = opened;
    return st;
}
