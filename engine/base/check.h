/* check - asserts that stay on, and the panic that says what the thread was doing.
 *
 * VX_ASSERT is for our own mistakes; what the world does wrong is a status.  A panic
 * prints the assert, this thread's name and the work it had noted, a backtrace, and
 * aborts: the front then sees one worker die and serves on.
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

/* Ends the process here and now, releasing nothing: for what may hang or crash when it is
 * closed, such as the driver of a device that is lost. */
__attribute__((noreturn)) void vx_process_end(int exit_code);

/* Remembers what this thread works on, for the panic record.  `what` must be static. */
void vx_panic_note(const char *what, u64 id);

#endif
