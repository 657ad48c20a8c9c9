/* amd/trap - turns a signal (bad address, division by zero) of a fiber into a report.
 *
 *   amd_trap_begin(&trap, landing);   (this thread runs fibers from now on)
 *   trap.stack = top of the fiber that runs; 0 = none: then a signal is a crash
 *   amd_trap_end(&trap);
 *
 * After a signal the fiber goes on in `landing`, which must not return.  Signals of other
 * threads, and of this one outside a fiber, go to the handler that was there before.
 *
 * Owner    the caller's struct.
 * Thread   one at a time for the whole process: who holds the lock of fibers.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_TRAP_H
#define VX_TESTS_AMD_TRAP_H

#include "engine/base/types.h"

#include <signal.h>

#define AMD_TRAP_SIGNALS 4

struct amd_trap {
    u64 stack;
    void (*landing)(void);
    int signal; /* the last one */
    u64 address;
    stack_t stack_before;
    struct sigaction before[AMD_TRAP_SIGNALS];
};

void amd_trap_begin(struct amd_trap *trap, void (*landing)(void));
void amd_trap_end(struct amd_trap *trap);

#endif
