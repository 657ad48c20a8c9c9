/* devices - the names of devices, and which of them a machine has.
 *
 *   cpu            the processors that the worker may use
 *   cuda:N         GPU number N, as NVIDIA's driver counts
 *   cuda           every GPU that the driver counts, or cuda:0 when it counts none
 *   hip:N, hip     the same of AMD's GPUs, as HIP counts
 *   auto           every GPU that both drivers count, or cpu when they count none
 *   fake:0         for tests: a GPU that computes with the kernels' references
 *   fake:0:lose=N  the same, but the Nth launch of each process loses the device
 *
 * The front never loads a GPU library.  To resolve `cuda`, `hip` and `auto` it starts a
 * child process for each vendor, `voxeld probe`, which asks the driver, prints one line
 * and ends.
 *
 *   VX_TRY(vx_devices_list(config, &why, &list));          front, before the loop runs
 *   VX_TRY(vx_device_parse(list.names[0], &why, &device)); worker
 *
 * Owner    the caller.
 * Thread   any; list waits for the child, at most PROBE_MS.
 * Limits   VX_WORKERS_MAX devices.
 * Fails    INVALID_ARGUMENT for an unknown device, or too many devices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_DEVICES_H
#define VX_SERVER_DEVICES_H

#include "engine/device.h"
#include "server/base/config.h"
#include "server/sched/sched.h"

/* Longer names are refused; all names above are shorter. */
#define VX_DEVICE_NAME_BYTES 40

struct vx_device {
    enum vx_device_kind kind;
    i32 index;
    i64 lose_launch; /* N of fake:0:lose=N; 0 = never */
};
struct vx_device_list {
    i32 count;
    char names[VX_WORKERS_MAX][VX_DEVICE_NAME_BYTES]; /* one device each */
};

/* Parses the name of one device; `cuda`, `hip` and `auto` are refused. */
VX_MUST_USE vx_status vx_device_parse(const char *name, struct vx_why *why,
                                      struct vx_device *device);
/* The number by which clients name the worker's GPU: N of cuda:N or hip:N, the number that
 * the client's own driver has for it; with both vendors it may name two.  Each worker has its
 * own fake GPU, so the number of that is the worker's.  -1 = not a GPU. */
i64 vx_device_id(const char *name, i32 worker);
/* config->device, with `cuda`, `hip` and `auto` replaced by what they mean here. */
VX_MUST_USE vx_status vx_devices_list(const struct vx_config *config, struct vx_why *why,
                                      struct vx_device_list *list);
/* What the text alone says, without a look at the machine: *open if one of the words is `cuda`,
 * `hip` or `auto`, which are in the list as they are, and may stand for more than one. */
VX_MUST_USE vx_status vx_devices_read(const struct vx_config *config, struct vx_why *why,
                                      struct vx_device_list *list, bool *open);
/* Whether any of them is a real GPU. */
bool vx_devices_has_gpu(const struct vx_device_list *list);
/* The NUMA nodes of the machine's NVIDIA and AMD GPUs, a bit each, read from the system's folder
 * of PCI devices, without a driver; 0 when they are not known. */
#define VX_PCI_FOLDER "/sys/bus/pci/devices"
u64 vx_devices_gpu_nodes(const char *folder);
/* Runs in the child, `voxeld probe`: prints how many GPUs the vendor of config->device,
 * `cuda` or `hip`, has, or why there is none. */
int vx_devices_probe(const struct vx_config *config);

#endif
