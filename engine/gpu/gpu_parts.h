/* gpu_parts - what the two files behind gpu.h share: the struct, and how a call is made.
 *
 *   VX_TRY(vx_gpu_enter(gpu, why));
 *   return VX_GPU_CALL(gpu, why, stream_wait, stream);
 *
 * Owner    gpu.c makes and ends the struct.
 * Thread   as gpu.h says.
 * Limits   engine/gpu/limits.h.
 * Fails    as gpu.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_GPU_PARTS_H
#define VX_ENGINE_GPU_GPU_PARTS_H

#include "engine/base/limits.h"
#include "engine/gpu/driver.h"

#include <pthread.h>
#include <stdatomic.h>

/* The driver's handles are our handles: a module, stream, event or graph is the pointer
 * that the driver gave, so that nothing is allocated for one. */
struct vx_gpu {
    u32 magic;
    u64 number; /* of all that this process opened: names the context a thread has */
    struct vx_driver driver;
    int device;
    i32 numa_node; /* -1: not known */
    void *context;
    struct vx_caps caps;
    char name[VX_NAME_BYTES];
    char arch[32];
    i32 version;
    atomic_bool lost;
    pthread_mutex_t lock; /* of first */
    struct vx_why first;  /* the error that took the device */
};

/* Calls a function of the table and turns its answer into a status. */
#define VX_GPU_CALL(gpu_, why_, field_, ...)                                             \
    vx_gpu_answer((gpu_), (gpu_)->driver.field_(__VA_ARGS__), VX_CALL_##field_, (why_))

vx_status vx_gpu_answer_bad(struct vx_gpu *gpu, int code, enum vx_driver_call call,
                            struct vx_why *why);

VX_MUST_USE static inline vx_status
vx_gpu_answer(struct vx_gpu *gpu, int code, enum vx_driver_call call, struct vx_why *why)
{
    return code ? vx_gpu_answer_bad(gpu, code, call, why) : VX_OK;
}

/* Every call begins here: the device must be there and its context this thread's. */
VX_MUST_USE vx_status vx_gpu_enter(struct vx_gpu *gpu, struct vx_why *why);

/* For what cannot fail: makes the context current if it can be; the driver's own answers
 * are not waited for, since a lost device gives nothing back anyway. */
void vx_gpu_enter_to_close(struct vx_gpu *gpu);

#endif
