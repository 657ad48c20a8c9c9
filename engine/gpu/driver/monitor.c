/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/monitor.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "engine/gpu/driver/gpu_parts.h"
#include "engine/gpu/driver/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MONITOR_MAGIC 0x76784d6fu /* "vxMo" */
/* As often as the front asks the worker. */
#define MONITOR_SECONDS 1

struct vx_gpu_monitor {
    u32 magic;
    struct vx_gpu *gpu;
    char uuid[VX_UUID_BYTES];
    struct vx_nvml nvml; /* of the thread once it was started */
    pthread_t thread;
    bool asking; /* the thread was started */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                /* under the lock, as all below */
    struct vx_gpu_stats last; /* the library's last numbers; no uuid, no memory */
};

/* ------- the thread ------- */

/* Sleeps for MONITOR_SECONDS; false if the monitor is to stop. */
static bool monitor_sleep(struct vx_gpu_monitor *monitor)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += MONITOR_SECONDS;
    pthread_mutex_lock(&monitor->lock);
    int waited = 0;
    while (!monitor->stop && !waited)
        waited = pthread_cond_timedwait(&monitor->wake, &monitor->lock, &until);
    bool stop = monitor->stop;
    pthread_mutex_unlock(&monitor->lock);
    return !stop;
}

static void monitor_main(void *context)
{
    struct vx_gpu_monitor *monitor = context;
    if (!vx_nvml_start(&monitor->nvml)) return;
    do {
        struct vx_gpu_stats now = vx_nvml_stats(&monitor->nvml);
        pthread_mutex_lock(&monitor->lock);
        monitor->last = now;
        pthread_mutex_unlock(&monitor->lock);
    } while (monitor_sleep(monitor));
    vx_nvml_end(&monitor->nvml);
}

/* ------- the driver ------- */

/* The id as the vendor's tools write it: NVIDIA's bytes in hex, AMD's as characters. */
static void monitor_set_uuid(struct vx_gpu_monitor *monitor)
{
    u8 id[16] = {0};
    const struct vx_driver *driver = &monitor->gpu->driver;
    if (driver->device_uuid(id, monitor->gpu->device)) return;
    char *out = monitor->uuid, *end = out + sizeof monitor->uuid;
    if (driver->vendor == VX_GPU_HIP) {
        (void)snprintf(out, sizeof monitor->uuid, "GPU-%.16s", (const char *)id);
        return;
    }
    out += snprintf(out, (size_t)(end - out), "GPU-");
    for (size_t i = 0; i < sizeof id; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        out += snprintf(out, (size_t)(end - out), dash ? "-%02x" : "%02x", id[i]);
    }
}

vx_status vx_gpu_monitor_open(struct vx_gpu *gpu, const char *library, struct vx_why *why,
                              struct vx_gpu_monitor **monitor)
{
    struct vx_gpu_monitor *made = *monitor = vx_alloc_zero(sizeof *made);
    VX_ENSURE_WHY(made, why, RESOURCE_EXHAUSTED, "no memory for a GPU's monitor",
                  "no %zu bytes for a GPU's monitor", sizeof *made);
    made->magic = MONITOR_MAGIC;
    made->gpu = gpu;
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&made->wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&made->lock, NULL);
    monitor_set_uuid(made);
    if (!vx_nvml_find(&made->nvml, gpu, library)) return VX_OK;
    vx_status status = vx_thread_open(&made->thread, VX_ROLE_COMPUTE, monitor_main, made);
    if (status.fault)
        vx_gpu_monitor_close(monitor);
    else
        made->asking = true;
    return status;
}

void vx_gpu_monitor_close(struct vx_gpu_monitor **monitor)
{
    struct vx_gpu_monitor *it = *monitor;
    *monitor = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == MONITOR_MAGIC);
    pthread_mutex_lock(&it->lock);
    it->stop = true;
    pthread_cond_signal(&it->wake);
    pthread_mutex_unlock(&it->lock);
    if (it->asking) pthread_join(it->thread, NULL);
    pthread_cond_destroy(&it->wake);
    pthread_mutex_destroy(&it->lock);
    it->magic = 0;
    vx_free(it);
}

void vx_gpu_monitor_get(struct vx_gpu_monitor *monitor, struct vx_gpu_stats *stats)
{
    size_t have = 0, total = 0;
    VX_ASSERT(monitor->magic == MONITOR_MAGIC);
    pthread_mutex_lock(&monitor->lock);
    *stats = monitor->last;
    pthread_mutex_unlock(&monitor->lock);
    memcpy(stats->uuid, monitor->uuid, sizeof stats->uuid);
    if (vx_gpu_memory_info(monitor->gpu, NULL, &have, &total).fault) return;
    stats->memory_bytes = (i64)total;
    stats->memory_bytes_used = (i64)(total - have);
}
