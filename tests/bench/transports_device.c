/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/bench/transports.h"

#include "engine/base/process/alloc.h"
#include "engine/gpu/fake/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The calls of NVIDIA's driver that a client with device memory of its own needs. */
struct cuda_handle {
    u8 bytes[VOXEL_HANDLE_BYTES];
};
struct cuda {
    void *library;
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int index);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*take)(u64 *at, size_t bytes);
    int (*give)(u64 at);
    int (*handle)(struct cuda_handle *handle, u64 at);
    int (*write)(u64 at, const void *data, size_t bytes);
    int (*read)(void *data, u64 at, size_t bytes);
    int (*fill)(u64 at, u8 value, size_t bytes);
    int (*wait)(void);
};

struct device_memory {
    struct cuda cuda; /* library NULL: the fake's */
    void *context;
    int device;
    u64 at;
    u8 *fake; /* mapped from fd */
    int fd;
    size_t bytes;
};

static const struct {
    const char *name;
    size_t offset;
} calls[] = {
    {"cuInit", offsetof(struct cuda, init)},
    {"cuDeviceGet", offsetof(struct cuda, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct cuda, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct cuda, context_release)},
    {"cuCtxPushCurrent_v2", offsetof(struct cuda, context_push)},
    {"cuCtxPopCurrent_v2", offsetof(struct cuda, context_pop)},
    {"cuMemAlloc_v2", offsetof(struct cuda, take)},
    {"cuMemFree_v2", offsetof(struct cuda, give)},
    {"cuIpcGetMemHandle", offsetof(struct cuda, handle)},
    {"cuMemcpyHtoD_v2", offsetof(struct cuda, write)},
    {"cuMemcpyDtoH_v2", offsetof(struct cuda, read)},
    {"cuMemsetD8_v2", offsetof(struct cuda, fill)},
    {"cuCtxSynchronize", offsetof(struct cuda, wait)},
};

static bool cuda_load(struct cuda *cuda, char *why, size_t why_bytes)
{
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda->library) {
        snprintf(why, why_bytes, "no libcuda.so.1 here");
        return false;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *call = dlsym(cuda->library, calls[i].name);
        if (!call) {
            snprintf(why, why_bytes, "libcuda has no %s", calls[i].name);
            return false;
        }
        memcpy((u8 *)cuda + calls[i].offset, &call, sizeof call);
    }
    return true;
}

/* The context of this thread is the engine's: ours is current for one call only. */
static void enter(struct device_memory *memory)
{
    transports_need(memory->cuda.context_push(memory->context) == 0, "cuCtxPushCurrent",
                    "failed");
}

static void leave(struct device_memory *memory)
{
    void *context;
    transports_need(memory->cuda.wait() == 0, "cuCtxSynchronize", "failed");
    transports_need(memory->cuda.context_pop(&context) == 0, "cuCtxPopCurrent", "failed");
}

static bool cuda_open(struct device_memory *memory, const char *device,
                      struct voxel_device_memory *shared, char *why, size_t why_bytes)
{
    struct cuda_handle handle;
    struct cuda *cuda = &memory->cuda;
    if (!cuda_load(cuda, why, why_bytes)) return false;
    int result = cuda->init(0);
    if (!result)
        result = cuda->device_get(&memory->device, transports_device_index(device));
    if (!result) result = cuda->context_retain(&memory->context, memory->device);
    if (result) {
        snprintf(why, why_bytes, "the driver says %d to %s", result, device);
        return false;
    }
    enter(memory);
    result = cuda->take(&memory->at, memory->bytes);
    if (!result) result = cuda->handle(&handle, memory->at);
    leave(memory);
    if (result) {
        snprintf(why, why_bytes, "the driver gives no memory to share: %d", result);
        return false;
    }
    memcpy(shared->handle, handle.bytes, sizeof shared->handle);
    return true;
}

/* The fake device maps what /proc/PID/fd/FD is. */
static bool fake_open(struct device_memory *memory, struct voxel_device_memory *shared)
{
    memory->fd = memfd_create("transports", MFD_CLOEXEC);
    transports_need(memory->fd >= 0 && ftruncate(memory->fd, (off_t)memory->bytes) == 0,
                    "memfd", "no memory");
    memory->fake =
        mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    transports_need(memory->fake != MAP_FAILED, "memfd", "not mapped");
    vx_fake_handle(getpid(), memory->fd, memory->bytes, shared->handle);
    return true;
}

struct device_memory *device_memory_open(const char *device, size_t bytes,
                                         struct voxel_device_memory *shared, char *why,
                                         size_t why_bytes)
{
    struct device_memory *memory = vx_alloc_zero(sizeof *memory);
    transports_need(memory != NULL, "memory", "none");
    memory->bytes = bytes;
    memory->fd = -1;
    *shared = (struct voxel_device_memory){.device = transports_device_index(device),
                                           .bytes = bytes};
    bool good = false;
    if (strncmp(device, "cuda", 4) == 0)
        good = cuda_open(memory, device, shared, why, why_bytes);
    else if (strncmp(device, "fake", 4) == 0)
        good = fake_open(memory, shared);
    else
        snprintf(why, why_bytes, "%s has no memory of its own", device);
    if (good) return memory;
    device_memory_close(memory);
    return NULL;
}

void device_memory_write(struct device_memory *memory, size_t offset, const void *data,
                         size_t bytes)
{
    if (memory->fake) {
        memcpy(memory->fake + offset, data, bytes);
        return;
    }
    enter(memory);
    int result = memory->cuda.write(memory->at + offset, data, bytes);
    leave(memory);
    transports_need(result == 0, "cuMemcpyHtoD", "failed");
}

void device_memory_read(struct device_memory *memory, size_t offset, void *data,
                        size_t bytes)
{
    if (memory->fake) {
        memcpy(data, memory->fake + offset, bytes);
        return;
    }
    enter(memory);
    int result = memory->cuda.read(data, memory->at + offset, bytes);
    leave(memory);
    transports_need(result == 0, "cuMemcpyDtoH", "failed");
}

void device_memory_fill(struct device_memory *memory, size_t offset, u8 value,
                        size_t bytes)
{
    if (memory->fake) {
        memset(memory->fake + offset, value, bytes);
        return;
    }
    enter(memory);
    int result = memory->cuda.fill(memory->at + offset, value, bytes);
    leave(memory);
    transports_need(result == 0, "cuMemsetD8", "failed");
}

void device_memory_close(struct device_memory *memory)
{
    if (memory->fake) munmap(memory->fake, memory->bytes);
    if (memory->fd >= 0) close(memory->fd);
    if (memory->at) {
        enter(memory);
        (void)memory->cuda.give(memory->at);
        leave(memory);
    }
    if (memory->context) (void)memory->cuda.context_release(memory->device);
    if (memory->cuda.library) (void)dlclose(memory->cuda.library);
    vx_free(memory);
}
