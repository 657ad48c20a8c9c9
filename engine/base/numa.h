/* numa - finds CPUs and memory near a device, and keeps threads and memory there.
 *
 * A machine with several sockets has several nodes: CPUs with their own memory and their
 * own buses.  A thread or memory on the node of its device does not use the slower link
 * between the sockets.
 *
 *   if (!vx_numa_bind_thread(node, &why)) VX_LOG(...);
 *   if (!vx_numa_prefer(memory, bytes, node, &why)) VX_LOG(...);
 *
 * All calls are hints: when the system refuses one, it returns false with a sentence, and
 * the daemon works without it.  On a machine with one node they return false, too.
 *
 * Owner    plain values; nothing to release.
 * Thread   any; bind_thread binds the calling thread.
 * Limits   VX_NUMA_CPUS_MAX, VX_NUMA_NODES_MAX: CPUs and nodes with higher numbers are
 *          not used.
 * Fails    false, with the reason in the why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_NUMA_H
#define VX_ENGINE_BASE_NUMA_H

#include "engine/base/status.h"

#define VX_NUMA_CPUS_MAX  1024 /* as the C library's cpu_set_t */
#define VX_NUMA_NODES_MAX 64   /* one word of the system call's mask */

/* A set of CPU numbers or node numbers. */
struct vx_numa_set {
    u64 words[VX_NUMA_CPUS_MAX / 64];
};

/* Reads a set as the system writes it: "0-15,32-47", "3", or "" for an empty one; an
 * end-of-line may follow.  Pure. */
VX_MUST_USE bool vx_numa_parse(const char *text, struct vx_numa_set *set,
                               struct vx_why *why);
bool vx_numa_has(const struct vx_numa_set *set, i32 number);
i32 vx_numa_count(const struct vx_numa_set *set);

/* The nodes of this machine, one bit each; 1 (only node 0) when not known. */
u64 vx_numa_nodes(void);

/* The node of a PCI device ("0000:3B:00.0"); -1 when the system does not say. */
i32 vx_numa_of_pci(const char *bus);

/* The CPUs of a node. */
VX_MUST_USE bool vx_numa_cpus(i32 node, struct vx_numa_set *cpus, struct vx_why *why);

/* Binds the calling thread, and the threads that it starts later, to the CPUs of the node
 * that the process may use.  If there are none, nothing changes. */
VX_MUST_USE bool vx_numa_bind_thread(i32 node, struct vx_why *why);

/* Pages of the range that are not touched yet are taken from the node while it has free
 * memory.  Only whole pages inside the range count. */
VX_MUST_USE bool vx_numa_prefer(void *memory, size_t bytes, i32 node, struct vx_why *why);

/* The same, but pages are taken from all nodes of the mask in turn. */
VX_MUST_USE bool vx_numa_interleave(void *memory, size_t bytes, u64 nodes,
                                    struct vx_why *why);

#endif
