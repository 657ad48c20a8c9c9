/* gpu/child - runs another program, a compiler, with a time limit, and keeps what it says.
 *
 * The child gets no descriptor of ours but a pipe for what it prints, no input, a folder
 * as its working directory and for its temporary files, and the default signals.  It is a
 * process group of its own, which is killed as a whole when the time is up, because a
 * compiler starts programs too.
 *
 *   const struct vx_child child = {arguments, folder, VX_JIT_CHILD_MS};
 *   int failed = vx_child_run(&child, &said);
 *   (said.text, said.end)
 *   vx_child_close(&said);
 *
 * Owner    the caller closes `said`.
 * Thread   any number at once; waits for the child.
 * Limits   VX_JIT_LOG_BYTES_MAX of what it prints; the rest is read and dropped.
 * Fails    an errno when the program cannot be started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_CHILD_H
#define VX_ENGINE_GPU_CHILD_H

#include "engine/base/types.h"

struct vx_child {
    const char *const *arguments; /* the program's path first; ends with NULL */
    const char *folder;           /* NULL = ours */
    i64 limit_ms;
};

enum vx_child_end { VX_CHILD_EXIT, VX_CHILD_SIGNAL, VX_CHILD_TIME };

struct vx_child_said {
    char *text; /* what it printed, both streams; NULL = no memory for it */
    size_t bytes;
    enum vx_child_end end;
    int number; /* exit code or signal */
};

int vx_child_run(const struct vx_child *child, struct vx_child_said *said);
void vx_child_close(struct vx_child_said *said);
/* True when it ended by itself with exit code 0. */
static inline bool vx_child_good(const struct vx_child_said *said)
{
    return said->end == VX_CHILD_EXIT && said->number == 0;
}
/* "exit code 1", "signal 6 (Aborted)", "stopped after 300 s". */
void vx_child_end_text(const struct vx_child *child, const struct vx_child_said *said,
                       char *text, size_t bytes);

#endif
