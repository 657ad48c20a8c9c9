/* check - asserts that stay on in release builds, and the panic that they end in.
 *
 * VX_ASSERT is for our own mistakes; a mistake from outside is a vx_status.  A panic
 * prints the assert, the thread's name, the work that the thread has noted and a
 * backtrace, then aborts.  When a worker panics, the front sees it die and keeps serving.
 *
 *   VX_ASSERT(plan->ops_count > 0);
 *   vx_panic_note("batch", batch->id);
 *
 * Thread   any; notes are thread-local.
 * Fails    never returns from a panic.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_CHECK_H
#define VX_ENGINE_BASE_CHECK_H

#include "engine/base/types.h"

#define VX_ASSERT(cond_)                                                                 \
    do {                                                                                 \
        if (__builtin_expect(!(cond_), 0)) vx_panic(__FILE__, __LINE__, #cond_);         \
    } while (0)

__attribute__((noreturn)) void vx_panic(const char *file, int line, const char *what);

/* Ends the process at once and releases nothing: closing the driver of a lost device, for
 * example, may hang or crash. */
__attribute__((noreturn)) void vx_process_end(int exit_code);

/* Notes what this thread works on, for the panic record.  `what` must be static. */
void vx_panic_note(const char *what, u64 id);

#endif
