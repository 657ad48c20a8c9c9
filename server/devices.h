/* devices - the names of devices, and which of them a machine has.
 *
 *   cpu            the processors that the worker may use
 *   cuda:N         one GPU, as NVIDIA's driver counts
 *   cuda           every GPU that the driver counts, or cuda:0 when it counts none
 *   auto           every GPU that the driver counts, or cpu when it counts none
 *   fake:0         for tests: a GPU that computes with the kernels' references
 *   fake:0:lose=N  the same, lost at the Nth launch of each process
 *
 * The front never loads a GPU library: what `cuda` and `auto` mean is found out by a child
 * process, `voxeld probe`, that asks the driver, prints one line and ends.
 *
 *   VX_TRY(vx_devices_list(config, &why, &list));          front, before the loop turns
 *   VX_TRY(vx_device_parse(list.names[0], &why, &device)); worker
 *
 * Owner    the caller.
 * Thread   any; list waits for the child, PROBE_MS at most.
 * Limits   VX_WORKERS_MAX devices.
 * Fails    INVALID_ARGUMENT for what is no device, or too many.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_DEVICES_H
#define VX_SERVER_DEVICES_H

#include "engine/engine.h"
#include "server/config.h"
#include "server/sched.h"

/* Longer names are cut in the worker's flag; every name above is a third of it. */
#define VX_DEVICE_NAME_BYTES 40

struct vx_device {
    enum vx_device_kind kind;
    i32 index;
    i64 lose_launch; /* of a fake; 0 = never */
};
struct vx_device_list {
    i32 count;
    char names[VX_WORKERS_MAX][VX_DEVICE_NAME_BYTES]; /* each one device */
};

/* One device; not the words for many. */
VX_MUST_USE vx_status vx_device_parse(const char *name, struct vx_why *why,
                                      struct vx_device *device);
/* As clients count the device that a worker has: a fake one is its worker's own, so it has
 * the worker's number.  -1 = it is no GPU. */
i64 vx_device_id(const char *name, i32 worker);
/* config->device with the words for many replaced by what they mean here. */
VX_MUST_USE vx_status vx_devices_list(const struct vx_config *config, struct vx_why *why,
                                      struct vx_device_list *list);
/* Whether any of them is a GPU of NVIDIA's. */
bool vx_devices_has_cuda(const struct vx_device_list *list);
/* The memory nodes that the machine's NVIDIA GPUs are on, a bit each, as the system's
 * folder of PCI devices tells without a driver; 0 when it does not. */
#define VX_PCI_FOLDER "/sys/bus/pci/devices"
u64 vx_devices_gpu_nodes(const char *folder);
/* The child: `voxeld probe`; prints how many, and why there are none. */
int vx_devices_probe(const struct vx_config *config);

#endif
