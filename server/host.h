/* host - settings that follow from the machine: its processors, where nobody said, and its
 * limit of open files.
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
/* Lets this process have as many open files as it may: a connection is two, and the usual
 * soft limit of 1024 is for programs that call select. */
void vx_host_raise_files(void);

#endif
