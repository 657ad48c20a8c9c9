/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/driver/hip_arch.h"
#include "engine/gpu/driver/limits.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* hipDeviceAttribute_t; the same in 5.2 and 6.3. */
static const i32 attributes[VX_ATTRIBUTES_COUNT] = {
    [VX_ATTRIBUTE_PROCESSORS] = 63,       /* MultiprocessorCount */
    [VX_ATTRIBUTE_MAJOR] = 23,            /* ComputeCapabilityMajor */
    [VX_ATTRIBUTE_MINOR] = 61,            /* ComputeCapabilityMinor */
    [VX_ATTRIBUTE_SHARED_BLOCK] = 74,     /* MaxSharedMemoryPerBlock */
    [VX_ATTRIBUTE_SHARED_PROCESSOR] = 74, /* one block may have all of a CU's */
    [VX_ATTRIBUTE_CLOCK_KHZ] = 5,         /* ClockRate */
    [VX_ATTRIBUTE_CACHE_BYTES] = 19,      /* L2CacheSize */
    [VX_ATTRIBUTE_WAVE] = 87,             /* WarpSize */
};

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

/* Where the architecture can be read, best first.  Major and minor number alone never
 * tell it: gfx1200 and gfx1201 have the same. */
static i32 find_version(const struct vx_driver *driver, int device, const int *got)
{
    char bus[32] = "";
    i32 version = 0;
    if (!driver->device_pci(bus, (int)sizeof bus - 1, device))
        version = vx_hip_arch_of_bus(driver->root, bus);
    if (version) return version;
    const i32 others[] = {vx_hip_arch_of_struct(driver->library, device),
                          vx_hip_arch_of_all(driver->root)};
    for (size_t i = 0; i < VX_COUNT(others); i++)
        if (others[i] && others[i] / 10000 == got[VX_ATTRIBUTE_MAJOR] &&
            others[i] / 100 % 100 == got[VX_ATTRIBUTE_MINOR])
            return others[i];
    return 0;
}

static vx_status hip_identify(const struct vx_driver *driver, int device, const int *got,
                              struct vx_why *why, struct vx_driver_arch *arch)
{
    const i32 version = find_version(driver, device, got);
    const int lanes = got[VX_ATTRIBUTE_WAVE];
    arch->number = version;
    VX_ENSURE_WHY(version, why, FAILED_PRECONDITION,
                  "the architecture of the AMD GPU is not known",
                  "HIP device %d, major %d, minor %d: its architecture is not in "
                  "%s/sys/class/kfd/kfd/topology/nodes/*/properties, and this HIP does "
                  "not name it",
                  device, got[VX_ATTRIBUTE_MAJOR], got[VX_ATTRIBUTE_MINOR], driver->root);
    vx_hip_arch_name(version, arch->name);
    VX_ENSURE_WHY(version >= VX_HIP_ARCH_MIN, why, FAILED_PRECONDITION,
                  "this AMD GPU is too old",
                  "HIP device %d is %s: expected gfx900 or newer", device, arch->name);
    VX_ENSURE_WHY(!lanes || lanes == vx_hip_arch_wave(version), why, FAILED_PRECONDITION,
                  "this AMD GPU has waves of another size",
                  "HIP device %d is %s with waves of %d lanes: expected %d", device,
                  arch->name, lanes, vx_hip_arch_wave(version));
    return VX_OK;
}

/* The runtime reports a device that it may not open as no device at all. */
static void hip_absent(const struct vx_driver *driver, char *text, size_t bytes)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/dev/kfd", driver->root);
    if (!access(path, R_OK | W_OK)) return;
    const char *what = errno == EACCES
                           ? "this user needs its group, render or video"
                           : "expected the amdgpu kernel driver, and in a container "
                             "that device";
    (void)snprintf(text, bytes, "; %s: %s: %s", path, strerror(errno), what);
}

/* hipGetErrorString returns the text itself, unlike its CUDA counterpart; 5.2 has no
 * other function for it. */
static const char *hip_text(const struct vx_driver *driver, int code)
{
    const char *(*text)(int) = NULL;
    void *found = dlsym(driver->library, "hipGetErrorString");
    memcpy(&text, &found, sizeof text); /* as in driver.c */
    return text ? text(code) : NULL;
}

/* hipIpcMemLazyEnablePeerAccess became 1 with release 6. */
static unsigned hip_ipc_flags(i32 version)
{
    return version < 60000000 ? 0 : VX_IPC_LAZY_PEER;
}

void vx_driver_hip(struct vx_driver *driver)
{
    driver->word = "HIP";
    driver->version_min = VX_HIP_DRIVER_MIN;
    driver->attributes = attributes;
    driver->open = hip_open;
    driver->use = hip_use;
    driver->close = hip_close;
    driver->shared_allow = hip_shared_allow;
    driver->identify = hip_identify;
    driver->absent = hip_absent;
    driver->text = hip_text;
    driver->ipc_flags = hip_ipc_flags;
}
