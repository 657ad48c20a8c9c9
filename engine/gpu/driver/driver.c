/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"

#include "engine/base/process/check.h"
#include "engine/base/text/environment.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The vendors' names of each function, and its offset in struct vx_driver. */
static const struct {
    const char *names[2]; /* by enum vx_gpu_vendor: CUDA, HIP */
    size_t offset;
} rows[VX_CALLS_COUNT] = {
#define VX_ROW(field_, cuda_, hip_, arguments_)                                          \
    {{(cuda_), (hip_)}, offsetof(struct vx_driver, field_)},
#define VX_ROW_ONE VX_ROW
#include "engine/gpu/driver/driver.def"
#undef VX_ROW
#undef VX_ROW_ONE
};

/* These libraries are installed with the driver, so the loader finds them by name. */
static const char *const libraries[2][5] = {
    {"libcuda.so.1", "libcuda.so"},
    {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
};

static vx_status open_library(const struct vx_gpu_options *options, struct vx_why *why,
                              struct vx_driver *driver)
{
    char said[VX_WHY_BYTES] = ""; /* the next dlopen overwrites dlerror's text */
    const char *const one[] = {options->library, NULL};
    const char *const *names = options->library ? one : libraries[options->vendor];
    for (const char *const *name = names; *name && !driver->library; name++) {
        driver->library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (!driver->library && name == names)
            (void)snprintf(said, sizeof said, "%s", dlerror());
    }
    VX_ENSURE_WHY(driver->library, why, NOT_FOUND, "no GPU driver on this machine",
                  "no %s driver: %.200s", driver->word, said);
    return VX_OK;
}

vx_status vx_driver_open(const struct vx_gpu_options *options, struct vx_why *why,
                         struct vx_driver *driver)
{
    *driver = (struct vx_driver){.vendor = options->vendor, .start = vx_driver_start};
    switch (options->vendor) {
    case VX_GPU_CUDA: vx_driver_cuda(driver); break;
    case VX_GPU_HIP: vx_driver_hip(driver); break;
    case VX_GPU_FAKE: vx_driver_fake(driver); return VX_OK;
    }
    /* Kernels are copied to the device when their module is loaded.  Lazy loading
     * would do so at the first launch, which may then wait for the whole device,
     * or be captured. */
    if (options->vendor == VX_GPU_CUDA &&
        !vx_environment_default("CUDA_MODULE_LOADING", "EAGER"))
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for a setting of the driver");
    VX_TRY(open_library(options, why, driver));
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        const char *name = rows[i].names[options->vendor];
        if (!name) continue; /* only the other vendor has it */
        void *found = dlsym(driver->library, name);
        VX_ENSURE_WHY(found, why, FAILED_PRECONDITION, "the GPU driver is too old",
                      "the %s driver has no function %s: expected a newer driver",
                      driver->word, name);
        /* ISO C has no cast to a function pointer, but POSIX guarantees equal bits. */
        memcpy((char *)driver + rows[i].offset, &found, sizeof found);
    }
    return VX_OK;
}

int vx_driver_start(const struct vx_driver *driver, const struct vx_driver_launch *launch)
{
    void *params[] = {launch->args};
    return driver->launch(launch->function, launch->grid.x, launch->grid.y,
                          launch->grid.z, launch->threads, 1, 1, launch->shared,
                          launch->stream, params, NULL);
}

const char *vx_driver_call_name(enum vx_gpu_vendor vendor, enum vx_driver_call call)
{
    VX_ASSERT(call < VX_CALLS_COUNT);
    const char *name = rows[call].names[vendor == VX_GPU_HIP];
    return name ? name : rows[call].names[vendor != VX_GPU_HIP];
}

/* Errors after which, as the vendors document, the contexts of the process are unusable;
 * and "unknown", after which nothing is guaranteed. */
bool vx_driver_sticky(int code)
{
    static const i16 codes[] = {
        214, /* an ECC error that could not be corrected */
        220, /* the same on NVLink */
        226, /* a fault of another process on the device, contained */
        700, /* an illegal address */
        702, /* a launch ran into the time limit */
        709, /* the context is destroyed */
        710, /* an assert on the device */
        714, /* a stack error on the device */
        715, /* an illegal instruction */
        716, /* a misaligned address */
        717, /* an invalid address space */
        718, /* an invalid program counter */
        719, /* the launch failed */
        721, /* a leak of tensor memory */
        999, /* unknown */
    };
    for (size_t i = 0; i < VX_COUNT(codes); i++)
        if (codes[i] == code) return true;
    return false;
}

const char *vx_driver_error_text(const struct vx_driver *driver, int code)
{
    const char *text = NULL;
    if (driver->error_text && driver->error_text(code, &text)) text = NULL;
    return text ? text : "no text for this number";
}
