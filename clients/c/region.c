/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clients/c/region.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/c/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVICE "/inference.GRPCInferenceService/"

/* Enough for the longest message: a name, a key or a handle, and two numbers. */
#define REGION_REQUEST_BYTES_MAX 256
/* How long a close waits: a server that is away has dropped the region anyway. */
#define REGION_CLOSE_US 2000000
/* How much is allocated per call once a signal has come: a signal undoes the call that it
 * interrupts. */
#define OBJECT_PIECE_BYTES ((size_t)4 << 20)

/* Field numbers of Register, of both kinds of memory; Unregister has only the name. */
enum {
    REGISTER_NAME = 1,
    SYSTEM_KEY = 2,
    SYSTEM_BYTES = 4,
    DEVICE_HANDLE = 2,
    DEVICE_ID = 3,
    DEVICE_BYTES = 4,
};

void voxel_region_pack_register(const struct voxel_region *region, struct voxel_writer *w)
{
    voxel_write_text(w, REGISTER_NAME, region->name);
    if (region->memory) {
        voxel_write_text(w, SYSTEM_KEY, region->key);
        voxel_write_number(w, SYSTEM_BYTES, region->bytes);
        return;
    }
    voxel_write_prefix(w, DEVICE_HANDLE, VOXEL_HANDLE_BYTES);
    voxel_write_raw(w, region->device.handle, VOXEL_HANDLE_BYTES);
    voxel_write_number(w, DEVICE_ID, (uint64_t)region->device.device);
    voxel_write_number(w, DEVICE_BYTES, region->bytes);
}

void voxel_region_pack_unregister(const struct voxel_region *region,
                                  struct voxel_writer *w)
{
    voxel_write_text(w, REGISTER_NAME, region->name);
}

/* Sends one message whose answer is empty. */
static enum voxel_code region_tell(const struct voxel_region *region, const char *method,
                                   const struct voxel_span *message, int64_t deadline_us,
                                   struct voxel_error *error)
{
    struct voxel_call call = {.method = method,
                              .pieces = message,
                              .pieces_count = 1,
                              .deadline_us = deadline_us};
    voxel_call_run(region->client, &call);
    voxel_call_fini(&call);
    if (call.error.code)
        return voxel_error_set(error, call.error.code, "%s", call.error.text);
    return voxel_error_clear(error);
}

static enum voxel_code region_register(const struct voxel_region *region,
                                       struct voxel_error *error)
{
    uint8_t bytes[REGION_REQUEST_BYTES_MAX];
    struct voxel_writer w = {.out = bytes, .room = sizeof bytes};
    voxel_region_pack_register(region, &w);
    const struct voxel_span message = {bytes, w.used};
    return region_tell(region,
                       region->memory ? SERVICE "SystemSharedMemoryRegister"
                                      : SERVICE "CudaSharedMemoryRegister",
                       &message, 0, error);
}

static void region_unregister(const struct voxel_region *region)
{
    uint8_t bytes[REGION_REQUEST_BYTES_MAX];
    struct voxel_writer w = {.out = bytes, .room = sizeof bytes};
    voxel_region_pack_unregister(region, &w);
    const struct voxel_span message = {bytes, w.used};
    region_tell(region,
                region->memory ? SERVICE "SystemSharedMemoryUnregister"
                               : SERVICE "CudaSharedMemoryUnregister",
                &message, REGION_CLOSE_US, NULL);
}

static enum voxel_code region_name(struct voxel_region *region, struct voxel_error *error)
{
    static const char digits[] = "0123456789abcdef";
    static const char begin[] = "/voxel-";
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return voxel_error_set(error, VOXEL_INTERNAL, "no random bytes: %s",
                               strerror(errno));
    char *at = region->key + sizeof begin - 1;
    memcpy(region->key, begin, sizeof begin);
    for (size_t i = 0; i < sizeof random; i++) {
        *at++ = digits[random[i] >> 4];
        *at++ = digits[random[i] & 15];
    }
    *at = '\0';
    region->name = region->key + 1;
    return VOXEL_OK;
}

static enum voxel_code object_failed(struct voxel_error *error, const char *what,
                                     size_t bytes, int reason)
{
    bool full =
        reason == ENOSPC || reason == ENOMEM || reason == EMFILE || reason == ENFILE;
    return voxel_error_set(error, full ? VOXEL_RESOURCE_EXHAUSTED : VOXEL_INTERNAL,
                           "shared memory of %zu bytes: %s: %s", bytes, what,
                           strerror(reason));
}

/* Allocates all of the object, also while signals come; returns 0 or an errno.  First
 * tries all of it in one call, so that a size beyond the machine's memory is refused
 * before any of it is allocated. */
static int object_fill(int fd, size_t bytes)
{
    size_t at = 0, piece = bytes;
    while (at < bytes) {
        if (piece > bytes - at) piece = bytes - at;
        int reason = posix_fallocate(fd, (off_t)at, (off_t)piece);
        if (reason && reason != EINTR) return reason;
        if (!reason)
            at += piece;
        else if (piece > OBJECT_PIECE_BYTES)
            piece = OBJECT_PIECE_BYTES;
    }
    return 0;
}

/* Makes the object under its name and maps it: at address `at` with the content from
 * there, or anywhere if `at` is NULL.  Allocates every page, so that a full memory is an
 * error here and not a signal later. */
static enum voxel_code object_make(const struct voxel_region *region, void *at,
                                   void **memory, struct voxel_error *error)
{
    size_t bytes = region->mapped_bytes;
    int fd = shm_open(region->key, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return object_failed(error, "shm_open", bytes, errno);
    int reason = fchmod(fd, 0600) ? errno : 0; /* the umask may have cleared bits */
    if (!reason) reason = object_fill(fd, bytes);
    const char *what = "posix_fallocate";
    void *made = MAP_FAILED;
    if (!reason) {
        what = "mmap";
        made =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (made == MAP_FAILED) reason = errno;
    }
    if (!reason && at) {
        /* Copies the content and moves the new mapping to the old address. */
        memcpy(made, at, bytes);
        void *moved = mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
        if (moved == MAP_FAILED) {
            reason = errno;
            munmap(made, bytes);
        }
        made = moved;
    }
    close(fd);
    if (!reason) {
        *memory = made;
        return VOXEL_OK;
    }
    shm_unlink(region->key);
    return object_failed(error, what, bytes, reason);
}

static struct voxel_region *region_make(struct voxel_client *client, size_t bytes)
{
    struct voxel_region *region = voxel_memory_take(1, sizeof *region);
    if (!region) return NULL;
    region->client = client;
    region->bytes = bytes;
    return region;
}

static void region_release(struct voxel_region *region)
{
    if (region->memory) munmap(region->memory, region->mapped_bytes);
    voxel_memory_give(region);
}

enum voxel_code voxel_region_open(struct voxel_client *client, size_t bytes,
                                  struct voxel_region **region, struct voxel_error *error)
{
    *region = NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > (size_t)INT64_MAX - page)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a region needs at least 1 byte, not %zu", bytes);
    struct voxel_region *made = region_make(client, bytes);
    if (!made) return voxel_error_memory(error, "a region", sizeof *made);
    made->mapped_bytes = (bytes + page - 1) / page * page;
    enum voxel_code code = region_name(made, error);
    if (!code) code = object_make(made, NULL, &made->memory, error);
    if (!code) {
        code = region_register(made, error);
        shm_unlink(made->key); /* the server has it open */
    }
    if (code) {
        region_release(made);
        return code;
    }
    *region = made;
    return voxel_error_clear(error);
}

enum voxel_code voxel_region_open_device(struct voxel_client *client,
                                         const struct voxel_device_memory *memory,
                                         struct voxel_region **region,
                                         struct voxel_error *error)
{
    *region = NULL;
    if (memory->bytes == 0 || memory->device < 0)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "a device region needs at least 1 byte on device 0 or above, "
            "not %zu bytes on device %lld",
            memory->bytes, (long long)memory->device);
    struct voxel_region *made = region_make(client, memory->bytes);
    if (!made) return voxel_error_memory(error, "a region", sizeof *made);
    made->device = *memory;
    enum voxel_code code = region_name(made, error);
    if (!code) code = region_register(made, error);
    if (code) {
        region_release(made);
        return code;
    }
    *region = made;
    return voxel_error_clear(error);
}

enum voxel_code voxel_region_renew(struct voxel_region *region, struct voxel_error *error)
{
    region_unregister(region); /* it may still be registered on this connection */
    if (!region->memory) return region_register(region, error);
    /* The mapped object is unlinked and cannot be named again: another replaces it. */
    enum voxel_code code = region_name(region, error);
    if (!code) code = object_make(region, region->memory, &region->memory, error);
    if (code) return code;
    code = region_register(region, error);
    shm_unlink(region->key);
    return code;
}

void *voxel_region_memory(const struct voxel_region *region)
{
    return region->memory;
}

size_t voxel_region_bytes(const struct voxel_region *region)
{
    return region->bytes;
}

const uint8_t *voxel_region_tensor(const struct voxel_tensor *tensor)
{
    if (!tensor->region) return tensor->data;
    const uint8_t *memory = voxel_region_memory(tensor->region);
    size_t room = voxel_region_bytes(tensor->region);
    if (!memory || tensor->region_offset > room ||
        tensor->bytes > room - tensor->region_offset)
        return NULL;
    return memory + tensor->region_offset;
}

void voxel_region_close(struct voxel_region *region)
{
    if (!region) return;
    region_unregister(region);
    region_release(region);
}
