/* gpu_parts - shared by the files that implement gpu.h: the struct, and driver calls.
 *
 *   VX_TRY(vx_gpu_enter(gpu, why));
 *   return VX_GPU_CALL(gpu, why, stream_wait, stream);
 *
 * Owner    gpu.c allocates and frees the struct.
 * Thread   as gpu.h says.
 * Limits   engine/gpu/driver/limits.h.
 * Fails    as gpu.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_GPU_PARTS_H
#define VX_ENGINE_GPU_GPU_PARTS_H

#include "engine/base/limits.h"
#include "engine/gpu/driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>

/* Our handles are the driver's: the pointer to a module, stream, event or graph is the
 * one that the driver returned, so that nothing is allocated for it. */
struct vx_gpu {
    u32 magic;
    u64 number; /* unique in the process: identifies the context a thread has */
    struct vx_driver driver;
    int device;
    i32 numa_node; /* -1: not known */
    void *context;
    struct vx_caps caps;
    char name[VX_NAME_BYTES];
    struct vx_driver_arch arch;
    i32 version;
    atomic_bool lost;
    pthread_mutex_t lock; /* guards `first` */
    struct vx_why first;  /* the error that lost the device */
};

/* Calls a function of the table and turns its error code into a status. */
#define VX_GPU_CALL(gpu_, why_, field_, ...)                                             \
    vx_gpu_answer((gpu_), (gpu_)->driver.field_(__VA_ARGS__), VX_CALL_##field_, (why_))

vx_status vx_gpu_answer_bad(struct vx_gpu *gpu, int code, enum vx_driver_call call,
                            struct vx_why *why);

VX_MUST_USE static inline vx_status
vx_gpu_answer(struct vx_gpu *gpu, int code, enum vx_driver_call call, struct vx_why *why)
{
    return code ? vx_gpu_answer_bad(gpu, code, call, why) : VX_OK;
}

/* Every call begins with this: fails if the device is lost, and makes its context current
 * on this thread. */
VX_MUST_USE vx_status vx_gpu_enter(struct vx_gpu *gpu, struct vx_why *why);

/* The same for functions that cannot fail, such as close and free: ignores errors,
 * because a lost device has nothing left to free. */
void vx_gpu_enter_to_close(struct vx_gpu *gpu);

#endif
