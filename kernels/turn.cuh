/* turn - how a kernel takes its turn behind the launch before it.
 *
 *   VX_KERNEL(...) name(...) { vx_turn(); ... }        the first statement
 *
 * Its blocks may be on the processors before the launch in front has ended, and those of the next
 * one while it still works: what a launch costs between two kernels is then paid beside them.
 *
 * Owner    -
 * Thread   device code; every thread of every block calls it, before it reads or writes memory.
 * Limits   kernels whose spec says `waits` (kernel.h).
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_TURN_CUH
#define VX_KERNELS_TURN_CUH

#include "kernels/device.h"

VX_DEVICE void vx_turn(void)
{
    vx_launch_next();
    vx_launch_before();
}

#endif
