/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/driver/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* CUfunction_attribute: MAX_DYNAMIC_SHARED_SIZE_BYTES. */
#define FUNCTION_SHARED_MAX 8

/* CUdevice_attribute. */
static const i32 attributes[VX_ATTRIBUTES_COUNT] = {
    [VX_ATTRIBUTE_PROCESSORS] = 16,       /* MULTIPROCESSOR_COUNT */
    [VX_ATTRIBUTE_MAJOR] = 75,            /* COMPUTE_CAPABILITY_MAJOR */
    [VX_ATTRIBUTE_MINOR] = 76,            /* COMPUTE_CAPABILITY_MINOR */
    [VX_ATTRIBUTE_SHARED_BLOCK] = 97,     /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    [VX_ATTRIBUTE_SHARED_PROCESSOR] = 81, /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
    [VX_ATTRIBUTE_CLOCK_KHZ] = 13,        /* CLOCK_RATE */
    [VX_ATTRIBUTE_CACHE_BYTES] = 38,      /* L2_CACHE_SIZE */
    [VX_ATTRIBUTE_WAVE] = 10,             /* WARP_SIZE */
};

/* The primary context: the one that libraries in this process would use too. */
static int cuda_open(const struct vx_driver *driver, int device, void **context)
{
    return driver->context_open(context, device);
}

static int cuda_use(const struct vx_driver *driver, int device, void *context)
{
    (void)device;
    return driver->context_use(context);
}

static void cuda_close(const struct vx_driver *driver, int device)
{
    driver->context_close(device);
}

static int cuda_shared_allow(const struct vx_driver *driver, void *function, int bytes)
{
    return driver->function_set(function, FUNCTION_SHARED_MAX, bytes);
}

/* CUlaunchAttribute and CUlaunchConfig. */
struct attribute {
    int id; /* CUlaunchAttributeID */
    int padding;
    union {
        int allowed;
        u64 words[8];
    } value;
};
struct config {
    unsigned grid[3], threads[3], shared;
    void *stream;
    const struct attribute *attributes;
    unsigned attributes_count;
};
#define ATTRIBUTE_EARLY 6 /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

static int cuda_start(const struct vx_driver *driver,
                      const struct vx_driver_launch *launch)
{
    const struct attribute early = {.id = ATTRIBUTE_EARLY, .value.allowed = 1};
    const struct config config = {
        .grid = {launch->grid.x, launch->grid.y, launch->grid.z},
        .threads = {launch->threads, 1, 1},
        .shared = launch->shared,
        .stream = launch->stream,
        .attributes = &early,
        .attributes_count = 1,
    };
    void *params[] = {launch->args};
    if (!launch->early) return vx_driver_start(driver, launch);
    return driver->launch_with(&config, launch->function, params, NULL);
}

/* The suffix "a" allows instructions that only this generation has.  Such a binary runs
 * on no other capability, which does no harm: it is compiled for this device. */
static vx_status cuda_identify(const struct vx_driver *driver, int device, const int *got,
                               struct vx_why *why, struct vx_driver_arch *arch)
{
    const int major = got[VX_ATTRIBUTE_MAJOR], minor = got[VX_ATTRIBUTE_MINOR];
    const char *suffix = major == 9 && minor == 0 ? "a" : "";
    (void)driver;
    (void)device;
    (void)why;
    arch->number = major * 10 + minor;
    (void)snprintf(arch->name, sizeof arch->name, "sm_%d%d%s", major, minor, suffix);
    return VX_OK;
}

/* The first of these that this user may not use; a driver that cannot says only a number. */
static void cuda_absent(const struct vx_driver *driver, char *text, size_t bytes)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    char path[256];
    for (size_t i = 0; i < VX_COUNT(nodes); i++) {
        (void)snprintf(path, sizeof path, "%s%s", driver->root, nodes[i]);
        int file = open(path, O_RDWR | O_CLOEXEC);
        const int error = errno;
        if (file >= 0) {
            close(file);
            continue;
        }
        /* EPERM: a container or a unit does not let the device through. */
        const bool forbidden = error == EACCES || error == EPERM;
        (void)snprintf(text, bytes, "; %s: %s: %s", path, strerror(error),
                       forbidden
                           ? "expected a file that this user may read and write"
                           : "expected NVIDIA's kernel driver and its device files, "
                             "and in a container those");
        return;
    }
}

void vx_driver_cuda(struct vx_driver *driver)
{
    driver->word = "CUDA";
    driver->version_min = VX_CUDA_DRIVER_MIN;
    driver->attributes = attributes;
    driver->open = cuda_open;
    driver->use = cuda_use;
    driver->close = cuda_close;
    driver->shared_allow = cuda_shared_allow;
    driver->start = cuda_start;
    driver->identify = cuda_identify;
    driver->absent = cuda_absent;
}
