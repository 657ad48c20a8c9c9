/* device_rig - the fake device with its kernels, and memory of host and device, for tests of
 * code that launches kernels.
 *
 *   device_rig_open();
 *   device_rig_check(vx_kernel_set_ready(device_rig.bench.set, wanted, count, ...));
 *   i32 *coords = device_rig_put(host, bytes);
 *   ... launches ...
 *   const i32 *back = device_rig_get(rows, bytes);
 *   device_rig_close();
 *
 * Owner    one for the test that runs; memory lives until a rewind or the close.
 * Thread   the test's, which becomes the device thread.
 * Limits   512 MB on either side.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_DEVICE_RIG_H
#define VX_TESTS_SUPPORT_DEVICE_RIG_H

#include "engine/base/memory/arena.h"
#include "engine/tools/workbench.h"

struct device_rig {
    struct vx_workbench bench;
    struct vx_gpu_queue queue;
    struct vx_arena host;
    void *host_block, *device_block;
    size_t device_used;
    struct vx_why why;
};
extern struct device_rig device_rig;

void device_rig_open(void);
void device_rig_close(void);
/* Ends the test with the sentence of a status that is not good. */
void device_rig_check(vx_status status);

void *device_rig_take(size_t bytes); /* of the host */
void *device_rig_give(size_t bytes); /* of the device */
void *device_rig_put(const void *data, size_t bytes);
void *device_rig_get(const void *at, size_t bytes);

/* Of the device, full of poison and with a guard on both sides; check ends the test where somebody
 * wrote to one. */
void *device_rig_guarded(size_t bytes);
void device_rig_guards_check(const u8 *at, size_t bytes);

/* Frees the memory that was taken after a mark. */
struct device_rig_mark {
    size_t host, device;
};
struct device_rig_mark device_rig_mark(void);
void device_rig_rewind(struct device_rig_mark mark);

#endif
