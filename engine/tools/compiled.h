/* compiled - what `voxeld compile --check` asks of binaries: registers, and AMD's limits.
 *
 * For NVIDIA the assembler's report in the log tells what a kernel spills.  For AMD the
 * binary itself tells it, and also what would fail at the launch: shared memory, threads
 * of a block, and the size of the arguments, which hidden ones would make larger.
 *
 *   VX_TRY(vx_compiled_check(&compiled, &why));
 *
 * Owner    borrowed for the call.
 * Thread   main.
 * Limits   -
 * Fails    INTERNAL: kernels are printed, with what is wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_COMPILED_H
#define VX_ENGINE_TOOLS_COMPILED_H

#include "engine/gpu/jit/jit.h"

struct vx_compiled {
    struct vx_jit *jit;
    const char *arch;
    const struct vx_caps *caps;
    const struct vx_jit_wanted *wanted;
    i32 count;
};
VX_MUST_USE vx_status vx_compiled_check(const struct vx_compiled *compiled,
                                        struct vx_why *why);
/* Writes each binary into a file of a directory that is there, to disassemble it. */
VX_MUST_USE vx_status vx_compiled_write(const struct vx_compiled *compiled,
                                        const char *directory, struct vx_why *why);

#endif
