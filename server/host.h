/* host - settings that follow from how many processors there are, where nobody said.
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

/* Completion queues: a quarter of the processors, 2 to 8.  Measured on 16 processors, 64
 * clients of 122 KB in and 108 KB out: 14,600, 27,600 and 36,400 requests a second with 1,
 * 2 and 4 of them. */
i32 vx_host_rpc_threads(const struct vx_config *config, i32 processors);
/* How long loop and worker go on asking after an event before they sleep: spin_us, or none
 * where processors are few and somebody else needs this one. */
i64 vx_host_spin_ns(const struct vx_config *config, i32 processors);
i32 vx_host_processors(void);

#endif
