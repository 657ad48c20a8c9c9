/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"

#include <stdio.h>
#include <string.h>

/* hipDeviceAttribute_t; the same in 5.2 and 6.3.  -1 = not asked for. */
static const i32 attributes[VX_ATTRIBUTES_COUNT] = {
    [VX_ATTRIBUTE_PROCESSORS] = 63,       /* MultiprocessorCount */
    [VX_ATTRIBUTE_MAJOR] = 23,            /* ComputeCapabilityMajor */
    [VX_ATTRIBUTE_MINOR] = 61,            /* ComputeCapabilityMinor */
    [VX_ATTRIBUTE_SHARED_BLOCK] = 74,     /* MaxSharedMemoryPerBlock */
    [VX_ATTRIBUTE_SHARED_PROCESSOR] = 74, /* one block may have all of a CU's */
    [VX_ATTRIBUTE_CLOCK_KHZ] = -1,
    [VX_ATTRIBUTE_CACHE_BYTES] = -1,
};

/* The most nodes that are read from the kernel driver's list; a machine has a few. */
#define NODES_MAX 256

/* HIP has no contexts: a thread selects its device. */
static int hip_open(const struct vx_driver *driver, int device, void **context)
{
    *context = NULL;
    return driver->device_use(device);
}

static int hip_use(const struct vx_driver *driver, int device, void *context)
{
    (void)context;
    return driver->device_use(device);
}

static void hip_close(const struct vx_driver *driver, int device)
{
    (void)driver;
    (void)device;
}

/* A block may always use all shared memory. */
static int hip_shared_allow(const struct vx_driver *driver, void *function, int bytes)
{
    (void)driver;
    (void)function;
    (void)bytes;
    return 0;
}

/* gfx_target_version of the index-th node that is a GPU: 90402 is gfx942.  The list is in
 * the order in which the driver counts, unless the user has hidden devices. */
static int target_version(int index)
{
    for (int node = 0; node < NODES_MAX; node++) {
        char path[128], word[64];
        long long number = 0;
        int version = 0;
        (void)snprintf(path, sizeof path,
                       "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
        FILE *file = fopen(path, "re");
        if (!file) return 0;
        while (fscanf(file, "%63s %lld", word, &number) == 2)
            if (!strcmp(word, "gfx_target_version")) version = (int)number;
        (void)fclose(file);
        if (version && index-- == 0) return version;
    }
    return 0;
}

/* Does not use hipDeviceProp_t, whose layout differs between releases. */
static int hip_arch(const struct vx_driver *driver, int device, char name[32])
{
    (void)driver;
    int version = target_version(device);
    if (!version) return VX_DRIVER_INVALID_DEVICE;
    (void)snprintf(name, 32, "gfx%d%d%x", version / 10000, version / 100 % 100,
                   (unsigned)version % 100);
    return 0;
}

void vx_driver_hip(struct vx_driver *driver)
{
    driver->word = "HIP";
    driver->attributes = attributes;
    driver->open = hip_open;
    driver->use = hip_use;
    driver->close = hip_close;
    driver->shared_allow = hip_shared_allow;
    driver->arch = hip_arch;
}
