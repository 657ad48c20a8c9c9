/* gpu/hiprtc - AMD's run-time compiler, in a process of its own.
 *
 * Debian's hipRTC ends the process that gives it an architecture that it does not know,
 * and keeps 120 MB of it.  So this program starts itself as a child with the command
 * `hiprtc`, which opens the library, compiles and ends:
 *
 *   voxeld hiprtc version LIBRARY                             prints "5.2"
 *   voxeld hiprtc compile LIBRARY OUT COUNT NAME... OPTION... texts, the kernel's first
 *
 * A program that does not hand this command to vx_hiprtc_main, such as a test, would run
 * as a whole instead: hipRTC is used only after vx_hiprtc_allow.
 *
 * Thread   allow: main, before others start; main: the child's only one.
 * Limits   VX_JIT_TEXTS_MAX texts of VX_JIT_TEXT_BYTES_MAX.
 * Fails    main: exit code 1, and a line with "error" on standard error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_HIPRTC_H
#define VX_ENGINE_GPU_HIPRTC_H

#include "engine/base/types.h"

#define VX_HIPRTC_COMMAND "hiprtc"

void vx_hiprtc_allow(void);
bool vx_hiprtc_allowed(void);
/* The child's work; the arguments after the command.  Returns the exit code. */
int vx_hiprtc_main(int count, char **arguments);

#endif
