/* numa - which CPUs and which memory are near a device, and staying near them.
 *
 * A machine with several sockets has several nodes: CPUs with their own memory and their
 * own buses.  A thread that runs, and memory that lies, on the node of its device saves
 * the way over the link between the sockets.
 *
 *   if (!vx_numa_bind_thread(node, &why)) VX_LOG(...);
 *   if (!vx_numa_prefer(memory, bytes, node, &why)) VX_LOG(...);
 *
 * All of it are hints: what the system refuses is false with a sentence, and never fatal.
 * On a machine with one node there is nothing to do, and each call says so.
 *
 * Owner    nobody: values.
 * Thread   any; bind_thread is about the calling one.
 * Limits   VX_NUMA_CPUS_MAX, VX_NUMA_NODES_MAX: what has a higher number is not used.
 * Fails    false and why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_NUMA_H
#define VX_ENGINE_BASE_NUMA_H

#include "engine/base/status.h"

#define VX_NUMA_CPUS_MAX  1024 /* as the C library's cpu_set_t */
#define VX_NUMA_NODES_MAX 64   /* one word of the system call's mask */

/* Numbers of CPUs or of nodes. */
struct vx_numa_set {
    u64 words[VX_NUMA_CPUS_MAX / 64];
};

/* The system's way to write a set: "0-15,32-47", "3", and "" for none; an end of line may
 * follow.  Pure. */
VX_MUST_USE bool vx_numa_parse(const char *text, struct vx_numa_set *set,
                               struct vx_why *why);
bool vx_numa_has(const struct vx_numa_set *set, i32 number);
i32 vx_numa_count(const struct vx_numa_set *set);

/* The nodes of this machine, one bit each; 1 (node 0 alone) when the system does not say. */
u64 vx_numa_nodes(void);

/* The node that a PCI device ("0000:3B:00.0") is on; -1 when the system does not say. */
i32 vx_numa_of_pci(const char *bus);

/* The CPUs of a node. */
VX_MUST_USE bool vx_numa_cpus(i32 node, struct vx_numa_set *cpus, struct vx_why *why);

/* From now on the calling thread, and what it starts, runs on those CPUs of the node that
 * the process may use; none of them: nothing is changed. */
VX_MUST_USE bool vx_numa_bind_thread(i32 node, struct vx_why *why);

/* Pages of the memory that are not there yet come from the node while it has room.  Whole
 * pages inside the range count. */
VX_MUST_USE bool vx_numa_prefer(void *memory, size_t bytes, i32 node, struct vx_why *why);

/* The same, page by page in turn over all nodes of the mask. */
VX_MUST_USE bool vx_numa_interleave(void *memory, size_t bytes, u64 nodes,
                                    struct vx_why *why);

#endif
