/* host - settings that follow from the machine: its processors, where nobody said, its limit
 * of open files, and its heap.
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

#include "server/config.h"

/* Completion queues: a quarter of the processors, 2 to 4.  Measured on 16 processors, 64
 * clients of 122 KB in and 108 KB out: 14,600, 27,600, 39,300, 34,900 and 32,200 requests a
 * second with 1, 2, 4, 6 and 8 of them: gRPC has one poller, and they wake each other. */
i32 vx_host_rpc_threads(const struct vx_config *config, i32 processors);
/* How long loop and worker go on asking after an event before they sleep: spin_us, or none
 * where processors are few and somebody else needs this one. */
i64 vx_host_spin_ns(const struct vx_config *config, i32 processors);
i32 vx_host_processors(void);
/* Before the first thread: one heap for all of them, which is kept while messages come.  What
 * is free of it is given back by rpc_memory.c.
 *
 * A received body is a thousand pieces of 64 KiB.  By default glibc maps and unmaps the
 * large ones and gives the heap's end back to the kernel after each request, and the next
 * one pays for every page again: measured 1.86 -> 2.2-2.5 GB/s on 1 MiB bodies over TCP.  Of
 * several heaps each keeps what its own threads have freed, and malloc_trim cuts the end of the
 * first alone: after messages of 20 MB 150 MB stayed resident.  The lock of the one is taken
 * for what is larger than 1 KiB, some ten times a call. */
void vx_host_heap_open(void);
/* Lets this process have as many open files as it may: a connection is two, and the usual
 * soft limit of 1024 is for programs that call select. */
void vx_host_raise_files(void);

#endif
