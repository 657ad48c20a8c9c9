/* amd/lds - the shared memory of the block that runs: fenced, and garbage at first.
 *
 *   if (!amd_lds_open(1024, 512, why)) ...     (bytes: static, dynamic)
 *   amd_lds_fill(seed);                        (before each block)
 *   overrun = amd_lds_overrun();               (after it)
 *
 * Owner    the process: its addresses are fixed (object.h), so one block runs at a time.
 * Thread   one at a time: who holds the lock of fibers.c.
 * Limits   AMD_LDS_BYTES.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_LDS_H
#define VX_TESTS_AMD_LDS_H

#include "tests/amd/matrix.h"

/* Makes the bytes accessible, and everything behind them not. */
bool amd_lds_open(u32 bytes_static, u32 bytes_dynamic, char why[AMD_WHY_BYTES]);
void amd_lds_fill(u64 seed);
/* True if a byte was written that belongs to the launch's pages but not to the launch. */
bool amd_lds_overrun(void);
/* True if the address is in the range that is reserved for shared memory. */
bool amd_lds_near(u64 address);

#endif
