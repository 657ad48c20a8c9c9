/* gpu/nvml - asks NVIDIA's management library (libnvidia-ml) about one device.
 *
 * The library is found with dlopen and nothing here needs it.  A number whose function an
 * older library lacks, or that the device does not report, is not known; the others are.
 * A call may take long: on an H200, energy takes 2.4 ms and at times 16 ms.
 *
 *   if (vx_nvml_find(&nvml, gpu, NULL) && vx_nvml_start(&nvml)) {
 *       struct vx_gpu_reading now = vx_nvml_read(&nvml);
 *       vx_nvml_end(&nvml);
 *   }
 *
 * Owner    the caller; the GPU is needed only by find.
 * Thread   find: device; the others: any, one after the other.
 * Limits   -
 * Fails    never: false where there is no library, or it does not know the device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_NVML_H
#define VX_ENGINE_GPU_NVML_H

#include "engine/device.h"
#include "engine/gpu/driver/gpu.h"

/* nvmlUtilization_t, in percent. */
struct vx_nvml_utilization {
    unsigned gpu, memory;
};
/* The library's functions: the first three are needed, any other may be NULL. */
struct vx_nvml_calls {
    int (*start)(void);
    int (*end)(void);
    int (*handle)(const char *bus, void **device);
    int (*utilization)(void *device, struct vx_nvml_utilization *utilization);
    int (*power)(void *device, unsigned *milliwatts);
    int (*power_limit)(void *device, unsigned *milliwatts);
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*clock)(void *device, int which, unsigned *mhz);
};
struct vx_nvml {
    struct vx_nvml_calls call;
    char bus[32];
    void *device; /* NULL until start */
};

/* What a device does now. */
struct vx_gpu_reading {
    bool clock_known, energy_known;
    i32 clock_mhz;          /* of the multiprocessors */
    i64 energy_millijoules; /* since the driver was loaded; moves every 20 to 100 ms */
};

/* `library`: path of NVML; NULL = the system's, for NVIDIA's devices only. */
bool vx_nvml_find(struct vx_nvml *nvml, struct vx_gpu *gpu, const char *library);
bool vx_nvml_start(struct vx_nvml *nvml);
void vx_nvml_end(struct vx_nvml *nvml);

/* Neither uuid nor memory. */
struct vx_gpu_stats vx_nvml_stats(const struct vx_nvml *nvml);
struct vx_gpu_reading vx_nvml_read(const struct vx_nvml *nvml);

#endif
