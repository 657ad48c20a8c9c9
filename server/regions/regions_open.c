/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/regions/regions_private.h"

#include "engine/base/process/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The key as shm_open takes it, with one leading slash; a further slash could lead out of
 * the system's shared memory directory.  Names that begin with "sem." are semaphores. */
static bool key_read(const char *key, char name[VX_REGION_KEY_BYTES])
{
    if (*key == '/') key++;
    size_t length = strlen(key);
    if (!length || length > VX_REGION_KEY_BYTES - 2 || strchr(key, '/')) return false;
    if (!strcmp(key, ".") || !strcmp(key, "..") || !strncmp(key, "sem.", 4)) return false;
    snprintf(name, VX_REGION_KEY_BYTES, "/%s", key);
    return true;
}

/* The kernel shows this uid or gid for one that has no number in our user namespace. */
#define UNMAPPED 65534

/* True if the object has an access control list, or if that cannot be read. */
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

/* True if the object's mode lets the client read and write it: never more than if the
 * client opened it itself.  As in the kernel, the first class that the client is in
 * decides: owner, group, others.  In doubt the answer is no: for users of another user
 * namespace, and for objects with an access control list, which only their owner may
 * register.  A client on the loopback has no known user and may use whatever voxeld may;
 * so may root. */
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

/* OK for a regular file that the peer may use. */
static vx_status object_may(const struct vx_regions_options *options, int fd,
                            const struct vx_peer *peer,
                            const struct vx_region_wanted *wanted, struct vx_why *why)
{
    struct stat object;
    VX_ENSURE_WHY(!fstat(fd, &object) && S_ISREG(object.st_mode), why, INVALID_ARGUMENT,
                  "not a shared memory object",
                  "expected the key of region '%.127s' to name a shared memory object, "
                  "got another kind of file",
                  wanted->name);
    VX_ENSURE_WHY(peer_may(options, peer, fd, &object), why, PERMISSION_DENIED,
                  "the client may not use this shared memory object",
                  "expected region '%.127s' to be of a shared memory object that this "
                  "client's user may read and write",
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
                  "expected the shared memory object of region '%.127s' to have %llu "
                  "bytes at offset %llu, got an object of %llu bytes",
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
                    "object has this key",
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
    /* O_NONBLOCK: opening a pipe must not block; object_may refuses it. */
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
