/* gpu/fake - settings of the fake driver for tests: memory size, injected errors, counts.
 *
 *   vx_fake_set(&(struct vx_fake_settings){.fail_call = 7, .fail_code = 2});
 *   ... run ...
 *   ck_assert_int_ge(vx_fake_calls(), 7);
 *
 * A process has one fake device.  set also clears earlier errors and restarts the counts
 * of calls and launches; the first one is number 1.
 *
 * Thread   any; set: only while nothing runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_FAKE_H
#define VX_ENGINE_GPU_FAKE_H

#include "engine/gpu/driver/gpu.h"

struct vx_fake_settings {
    size_t memory_bytes; /* of the device; 0 = as vx_arch_caps("fake") says */
    i32 processors;      /* likewise */
    i64 fail_call;       /* this driver call returns fail_code; 0 = none */
    int fail_code;       /* the vendor's number: 2 out of memory, 700 illegal address */
    i64 fail_count;      /* so many calls fail, from fail_call on; 0 = one */
    i64 lose_launch;     /* this launch succeeds, and every later call returns 700 */
    /* 0: work on a stream runs at once.  Else it is deferred, as on a device, until its
     * stream, or a stream that depends on it, is waited for, or until an event behind it
     * has been polled this many times in vain.  Copies access host memory only then. */
    i32 event_polls;
    /* Called by the thread that page-locks memory, before it does; NULL = nothing. */
    void (*on_pin)(void);
    /* Finds a kernel by its name; NULL = vx_kernel_find. */
    const struct vx_kernel_spec *(*find)(const char *name);
};

void vx_fake_set(const struct vx_fake_settings *settings);
i64 vx_fake_calls(void);
i64 vx_fake_launches(void);
i64 vx_fake_launches_early(void);  /* of them, those that were asked to begin early */
i64 vx_fake_launches_urgent(void); /* and those on urgent streams */
size_t vx_fake_memory_used(void);  /* bytes of device memory that are allocated now */
i32 vx_fake_pinned(void);          /* ranges of host memory that are page-locked now */
i32 vx_fake_imported(void);        /* handles of other processes that are open now */

/* Makes an IPC handle for the fake device.  A handle names a process and its descriptor
 * of memory (memfd_create, shm_open); the fake opens /proc/PID/fd/FD and maps `bytes` of
 * it.  The numbers are little-endian u64; the rest of VX_GPU_IPC_BYTES is zero.  The
 * owner must not make the file smaller, because device memory never shrinks. */
#define VX_FAKE_IPC_MAGIC "voxeld-fake-ipc" /* 16 bytes with its NUL; then, at: */
#define VX_FAKE_IPC_PID   16
#define VX_FAKE_IPC_FD    24
#define VX_FAKE_IPC_BYTES 32
void vx_fake_handle(int pid, int fd, u64 bytes, u8 handle[VX_GPU_IPC_BYTES]);

#endif
