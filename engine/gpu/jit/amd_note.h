/* gpu/amd_note - what the compiler wrote into an AMD binary about one of its kernels.
 *
 * The binary is an ELF file with a note "AMDGPU" whose contents are a map in MessagePack:
 * registers, spills, shared memory, size of the arguments.  CUDA's compiler prints this
 * into its log instead.  The bytes may come from a file on disk, so every length in them
 * is checked.
 *
 *   struct vx_amd_kernel kernel;
 *   if (!vx_amd_kernel_read(image, bytes, "pool", &kernel)) ...
 *
 * Owner    the caller's struct.
 * Thread   any.
 * Limits   maps and lists nested VX_AMD_NOTE_DEPTH deep.
 * Fails    false: not such a file, or it describes no such kernel.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_AMD_NOTE_H
#define VX_ENGINE_GPU_AMD_NOTE_H

#include "engine/base/types.h"

#define VX_AMD_NOTE_DEPTH 16

struct vx_amd_kernel {
    i64 vgprs, sgprs;
    i64 vgpr_spills, sgpr_spills;
    i64 lds_bytes;       /* static shared memory */
    i64 scratch_bytes;   /* memory of each thread: spills and arrays */
    i64 arguments_bytes; /* hidden ones included */
    i64 threads_max;
    i64 wave;
};
bool vx_amd_kernel_read(const void *image, size_t bytes, const char *name,
                        struct vx_amd_kernel *kernel);
/* True for an ELF file of the machine AMD GPU. */
bool vx_amd_image_check(const void *image, size_t bytes);

#endif
