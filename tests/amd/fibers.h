/* amd/fibers - runs a kernel on the CPU: one fiber per thread, one block after another.
 *
 * A fiber runs until its thread reaches a barrier or an operation of the whole wave; when
 * all threads that take part have arrived, the operation is carried out.  In which order
 * fibers run, and how far a wave gets ahead of the others, follows from the seed: what a
 * missing barrier would have ordered comes in another order under another seed.
 *
 * Reported instead of run: lanes of a wave at different operations; threads of a block at
 * different barriers, or gone before one; a shuffle from a lane that has left; a matrix
 * instruction without all lanes; an access to memory that is not there; a byte written
 * behind the launch's shared memory.  A kernel that never ends is not noticed.
 *
 *   struct amd_launch launch = {.kernel = kernel, .wave = 64, .grid = {8, 1, 1}, ...};
 *   if (!amd_fibers_run(&launch, why)) ...
 *
 * Owner    the caller's structs; stacks and shared memory stay until the process ends.
 * Thread   any; launches wait for each other, because shared memory has one address.
 * Limits   AMD_THREADS_MAX threads to a block; AMD_LDS_BYTES.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_FIBERS_H
#define VX_TESTS_AMD_FIBERS_H

#include "tests/amd/matrix.h"

#define AMD_THREADS_MAX 1024

struct amd_launch {
    const struct amd_kernel *kernel;
    const void *args; /* aligned to 64 bytes */
    u32 wave;
    u32 grid[3];
    u32 threads;
    u32 lds_dynamic;
    u64 seed; /* 0: threads run in their order */
};

/* What a kernel's object must have in *hooks. */
extern const struct amd_hooks amd_fiber_hooks;

/* Whether a device would start the launch at all. */
bool amd_fibers_check(const struct amd_launch *launch, char why[AMD_WHY_BYTES]);
/* Runs it; false: `why` says where and what. */
bool amd_fibers_run(const struct amd_launch *launch, char why[AMD_WHY_BYTES]);

#endif
