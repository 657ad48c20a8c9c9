/* host - settings that follow from the machine: threads, spinning, open files, the heap.
 *
 * Owner    -
 * Thread   any; at start.
 * Limits   none.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HOST_H
#define VX_SERVER_HOST_H

#include "server/base/config.h"

/* Completion-queue threads: rpc_threads, or a quarter of the processors, 2 to 4.
 * Measured on 16 processors with 64 clients, 122 KB in and 108 KB out: 14,600, 27,600,
 * 39,300, 34,900 and 32,200 requests a second with 1, 2, 4, 6 and 8 of them.  gRPC has
 * one poller, and more threads wake each other. */
i32 vx_host_rpc_threads(const struct vx_config *config, i32 processors);
/* How long the loop and the workers spin after an event before they sleep: spin_us, or 0
 * when there are few processors and other threads need them. */
i64 vx_host_spin_ns(const struct vx_config *config, i32 processors);
i32 vx_host_processors(void);
/* Sets up malloc, before the first thread: all threads share one heap, which keeps freed
 * memory while messages come.  rpc_memory.c returns it to the kernel later.
 *
 * A received body can be a thousand pieces of 64 KiB.  By default glibc maps and unmaps
 * large pieces and returns the end of the heap to the kernel after each request, so the
 * next request faults every page in again.  Measured on 1 MiB bodies over TCP: 1.86 GB/s
 * by default, 2.2 to 2.5 GB/s with these settings.
 *
 * With several heaps, each would keep what its own threads have freed, and malloc_trim
 * shrinks only the end of the first: 150 MB stayed resident after messages of 20 MB.  The
 * lock of the one heap is taken only for allocations above 1 KiB, about ten times per
 * call. */
void vx_host_heap_open(void);
/* Raises the soft limit of open files to the hard limit: a connection takes two, and the
 * usual soft limit of 1024 is meant for programs that call select. */
void vx_host_raise_files(void);

#endif
