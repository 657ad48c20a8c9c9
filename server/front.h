/* front - the process that owns the network: one libuv loop, everything in its place.
 *
 * What enters: calls from rpc, words from workers, signals, admin HTTP.  What leaves:
 * batches to workers, replies to rpc.  All of it on the loop thread, one step per turn of
 * the loop.
 *
 *   return vx_front_run(&config);
 *
 * Thread   the caller becomes the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FRONT_H
#define VX_SERVER_FRONT_H

#include "server/config.h"

/* Serves until told to stop; the exit code of the process. */
int vx_front_run(const struct vx_config *config);

#endif
