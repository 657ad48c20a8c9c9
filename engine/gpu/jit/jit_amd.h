/* gpu/jit_amd - compiles kernels for AMD: clang, or else hipRTC, in a process of its own.
 *
 * clang of LLVM 19 or newer knows all AMD architectures and needs no other file of ROCm.
 * hipRTC is what ROCm itself has to compile at run time; an old one ends its process when
 * an architecture is unknown to it, so it runs in a copy of this program (hiprtc.h).
 * Both read the texts from a folder (jit_folder.h) and write the binary into it.
 *
 * The compiler is the setting's; else $ROCM_PATH/llvm/bin/clang, /opt/rocm/llvm/bin/clang,
 * the newest of clang-21, clang-20, clang-19 and clang on the search path; else hipRTC.
 * A clang that is too old, or was built without AMD's target or linker, is passed over,
 * and the error names it.
 *
 *   VX_TRY(vx_compiler_open_amd(path, &why, &compiler));
 *
 * Owner    the caller's structs.
 * Thread   compile: any number of threads at once, a process each.
 * Limits   VX_JIT_CHILD_MS, VX_JIT_IMAGE_BYTES_MAX, VX_JIT_LOG_BYTES_MAX.
 * Fails    UNAVAILABLE no compiler; INTERNAL it refuses a source (`why` quotes the log).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_AMD_H
#define VX_ENGINE_GPU_JIT_AMD_H

#include "engine/gpu/jit/jit_compile.h"

/* `path` of clang, or of hipRTC's library, whose name contains ".so"; NULL = search. */
VX_MUST_USE vx_status vx_compiler_open_amd(const char *path, struct vx_why *why,
                                           struct vx_compiler *compiler);
/* Runs a compiler that vx_compiler_open_amd has found. */
VX_MUST_USE vx_status vx_amd_compile(const struct vx_compiler *compiler,
                                     const struct vx_jit_unit *unit, struct vx_why *why,
                                     struct vx_binary *binary);
/* True for "gfx942", which is not a name of CUDA's. */
bool vx_amd_arch(const char *arch);

#endif
