/* front - the process that owns the network: one libuv loop that connects all its parts.
 *
 * Input: calls from rpc, messages from workers, signals, admin HTTP.  Output: batches to
 * workers, replies to rpc.  All of it happens on the loop thread, one step per iteration.
 *
 *   VX_TRY(vx_front_expect(&config, &why));
 *   vx_front_block_signals();
 *   return vx_front_run(&config);
 *
 * Thread   the caller becomes the loop thread.
 * Fails    expect: INVALID_ARGUMENT; RESOURCE_EXHAUSTED: memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FRONT_H
#define VX_SERVER_FRONT_H

#include "server/base/config.h"

/* Fails where the settings' texts alone show that a start must fail: another start, or another
 * machine, would not help.  Opens nothing and asks nobody. */
VX_MUST_USE vx_status vx_front_expect(const struct vx_config *config, struct vx_why *why);
/* From here to the end of the process only the loop hears SIGTERM, SIGINT and SIGHUP.  Must
 * be called before the first thread is created: threads inherit what is blocked. */
void vx_front_block_signals(void);
/* Serves until a signal stops it; returns the exit code of the process. */
int vx_front_run(const struct vx_config *config);

#endif
