/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/nvml.h"

#include "engine/base/process/check.h"
#include "engine/gpu/driver/gpu_parts.h"

#include <dlfcn.h>
#include <string.h>

#define CLOCK_SM 1 /* NVML_CLOCK_SM */

/* In the order of vx_nvml_calls; the library without one of the first is not used. */
#define NAMES_NEEDED 3
static const char *const names[] = {"nvmlInit_v2",
                                    "nvmlShutdown",
                                    "nvmlDeviceGetHandleByPciBusId_v2",
                                    "nvmlDeviceGetUtilizationRates",
                                    "nvmlDeviceGetPowerUsage",
                                    "nvmlDeviceGetPowerManagementLimit",
                                    "nvmlDeviceGetTotalEnergyConsumption",
                                    "nvmlDeviceGetClockInfo"};
_Static_assert(VX_COUNT(names) * sizeof(void *) == sizeof(struct vx_nvml_calls),
               "one name each");

static bool nvml_find_calls(struct vx_nvml_calls *call, const char *library)
{
    void *opened = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!opened) return false;
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        void *found = dlsym(opened, names[i]);
        if (!found && i < NAMES_NEEDED) return false;
        /* ISO C has no cast to a function pointer, but POSIX guarantees equal bits. */
        memcpy((char *)call + i * sizeof found, &found, sizeof found);
    }
    return true;
}

bool vx_nvml_find(struct vx_nvml *nvml, struct vx_gpu *gpu, const char *library)
{
    const struct vx_driver *driver = &gpu->driver;
    *nvml = (struct vx_nvml){.device = NULL};
    if (driver->vendor != VX_GPU_CUDA && !library) return false;
    if (driver->device_pci(nvml->bus, (int)sizeof nvml->bus - 1, gpu->device))
        return false;
    return nvml_find_calls(&nvml->call, library);
}

bool vx_nvml_start(struct vx_nvml *nvml)
{
    VX_ASSERT(!nvml->device);
    if (nvml->call.start()) return false;
    if (!nvml->call.handle(nvml->bus, &nvml->device) && nvml->device) return true;
    nvml->device = NULL;
    nvml->call.end();
    return false;
}

void vx_nvml_end(struct vx_nvml *nvml)
{
    VX_ASSERT(nvml->device);
    nvml->call.end();
    nvml->device = NULL;
}

/* A number that the device does not report is unknown: a MIG slice has no utilisation. */
struct vx_gpu_stats vx_nvml_stats(const struct vx_nvml *nvml)
{
    const struct vx_nvml_calls *call = &nvml->call;
    struct vx_gpu_stats stats = {0};
    struct vx_nvml_utilization share = {0};
    unsigned power = 0, limit = 0;
    unsigned long long energy = 0;
    VX_ASSERT(nvml->device);
    stats.utilization_known =
        call->utilization && !call->utilization(nvml->device, &share);
    stats.power_known = call->power && call->power_limit && call->energy &&
                        !call->power(nvml->device, &power) &&
                        !call->power_limit(nvml->device, &limit) &&
                        !call->energy(nvml->device, &energy);
    stats.utilization = (i32)share.gpu;
    stats.power_mw = (i64)power;
    stats.power_limit_mw = (i64)limit;
    stats.energy_mj = (i64)energy;
    return stats;
}

struct vx_gpu_reading vx_nvml_read(const struct vx_nvml *nvml)
{
    const struct vx_nvml_calls *call = &nvml->call;
    struct vx_gpu_reading now = {0};
    unsigned mhz = 0;
    unsigned long long energy = 0;
    VX_ASSERT(nvml->device);
    now.clock_known = call->clock && !call->clock(nvml->device, CLOCK_SM, &mhz);
    now.energy_known = call->energy && !call->energy(nvml->device, &energy);
    now.clock_mhz = (i32)mhz;
    now.energy_millijoules = (i64)energy;
    return now;
}
