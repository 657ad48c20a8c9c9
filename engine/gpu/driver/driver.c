/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"

#include "engine/base/process/check.h"
#include "engine/base/text/environment.h"
#include "engine/gpu/driver/library.h"

#include <dlfcn.h>
#include <limits.h>
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

/* NVIDIA's library is installed with the driver, so the loader finds it by its name.
 * ROCm's folder is often not on the loader's path: the place before the NULL is for the
 * one that the environment names. */
#define LIBRARIES_MAX 8
static const char *const libraries[2][LIBRARIES_MAX] = {
    {"libcuda.so.1", "libcuda.so"},
    {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
     "/opt/rocm/lib/libamdhip64.so", NULL, NULL},
};

static vx_status open_library(const struct vx_gpu_options *options, struct vx_why *why,
                              struct vx_driver *driver)
{
    char word[32], rocm[PATH_MAX];
    const char *names[LIBRARIES_MAX];
    const char *folder = vx_environment_get("ROCM_PATH");
    i32 count = 0;
    memcpy(names, libraries[options->vendor], sizeof names);
    while (names[count]) count++;
    if (folder && folder[0] && options->vendor == VX_GPU_HIP) {
        (void)snprintf(rocm, sizeof rocm, "%s/lib/libamdhip64.so", folder);
        names[count] = rocm;
    }
    (void)snprintf(word, sizeof word, "%s driver", driver->word);
    const struct vx_library_wanted wanted = {word, options->library, names};
    return vx_library_open(&wanted, why, &driver->library);
}

vx_status vx_driver_open(const struct vx_gpu_options *options, struct vx_why *why,
                         struct vx_driver *driver)
{
    *driver = (struct vx_driver){
        .vendor = options->vendor,
        .start = vx_driver_start,
        .root = options->root ? options->root : "",
    };
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
    if (vendor != VX_GPU_HIP) return rows[call].names[0] ? rows[call].names[0] : "?";
    /* What CUDA does with contexts, HIP does by selecting the device. */
    return rows[call].names[1] ? rows[call].names[1] : "hipSetDevice";
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

/* CUDA: 1000 * major + 10 * minor.  HIP: 10,000,000 * major + 100,000 * minor + patch. */
void vx_driver_version_text(enum vx_gpu_vendor vendor, i32 version,
                            char text[VX_VERSION_BYTES])
{
    const bool hip = vendor == VX_GPU_HIP;
    const i32 major = hip ? version / 10000000 : version / 1000;
    const i32 minor = hip ? version / 100000 % 100 : version % 1000 / 10;
    (void)snprintf(text, VX_VERSION_BYTES, "%d.%d", major, minor);
}

const char *vx_driver_error_text(const struct vx_driver *driver, int code)
{
    const char *text = NULL;
    if (driver->text)
        text = driver->text(driver, code);
    else if (driver->error_text && driver->error_text(code, &text))
        text = NULL;
    return text ? text : "no text for this number";
}
