/* gpu/fake - what a test may tell the fake driver: how much memory, what goes wrong.
 *
 *   vx_fake_set(&(struct vx_fake_settings){.fail_call = 7, .fail_code = 2});
 *   ... run ...
 *   ck_assert_int_ge(vx_fake_calls(), 7);
 *
 * The fake's device is one per process, as a driver's is; set also takes back what went
 * wrong before.  Calls and launches are counted from then on, the first is 1.
 *
 * Thread   any; set: while nothing runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_FAKE_H
#define VX_ENGINE_GPU_FAKE_H

#include "engine/gpu/gpu.h"

struct vx_fake_settings {
    size_t memory_bytes; /* of the device; 0 = as vx_arch_caps("fake") says */
    i64 fail_call;       /* this call of the driver answers fail_code; 0 = none */
    int fail_code;       /* the vendor's number: 2 out of memory, 700 illegal address */
    i64 fail_count;      /* so many calls from fail_call on; 0 = that one */
    i64 lose_launch;     /* this launch is taken, and every later call answers 700 */
    /* 0: what is put on a stream runs at once.  Else it waits, as on a device, until
     * somebody waits for its stream, for a stream that comes after it, or has asked so
     * often whether an event behind it is done; copies read and write host memory then. */
    i32 event_polls;
    /* Called by the thread that page-locks memory, before it is; NULL = nothing. */
    void (*on_pin)(void);
    /* Where kernels are looked up by name; NULL = vx_kernel_find. */
    const struct vx_kernel_spec *(*find)(const char *name);
};

void vx_fake_set(const struct vx_fake_settings *settings);
i64 vx_fake_calls(void);
i64 vx_fake_launches(void);
size_t vx_fake_memory_used(void); /* bytes of device memory that are taken now */
i32 vx_fake_pinned(void);         /* ranges of host memory that are page-locked now */
i32 vx_fake_imported(void);       /* handles of other processes that are open now */

/* A handle of device memory, as any process can make one for the fake: memory of its own that
 * has a descriptor (memfd_create, shm_open), which the fake opens as /proc/PID/fd/FD and maps
 * whole.  Numbers are u64, little-endian; the rest of VX_GPU_IPC_BYTES is zeros.  Its owner
 * must not make it smaller: no device does. */
#define VX_FAKE_IPC_MAGIC "voxeld-fake-ipc" /* with its NUL 16 bytes; then: */
#define VX_FAKE_IPC_PID   16
#define VX_FAKE_IPC_FD    24
#define VX_FAKE_IPC_BYTES 32
void vx_fake_handle(int pid, int fd, u64 bytes, u8 handle[VX_GPU_IPC_BYTES]);

#endif
