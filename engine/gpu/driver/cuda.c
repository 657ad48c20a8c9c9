/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/driver/limits.h"

#include <stdio.h>

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

/* The suffix "a" allows instructions that only this generation has.  Such a binary runs
 * on no other capability, which does no harm: it is compiled for this device. */
static int cuda_arch(const struct vx_driver *driver, int device, char name[32])
{
    int major = 0, minor = 0;
    int code = driver->device_attribute(&major, attributes[VX_ATTRIBUTE_MAJOR], device);
    if (!code)
        code = driver->device_attribute(&minor, attributes[VX_ATTRIBUTE_MINOR], device);
    const char *suffix = major == 9 && minor == 0 ? "a" : "";
    (void)snprintf(name, 32, "sm_%d%d%s", major, minor, suffix);
    return code;
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
    driver->arch = cuda_arch;
}
