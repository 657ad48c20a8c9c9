/* gpu/jit_folder - a temporary folder with the texts of one kernel, for a compiler that
 * reads files.
 *
 * It has mode 0700 and holds every text under the name by which it is included, so that a
 * compiler whose working directory it is finds kernels/device.h and our stdint.h there,
 * and none of the host's headers.
 *
 *   VX_TRY(vx_jit_folder_open(unit->closure, &why, &folder));
 *   status = vx_jit_folder_take(&folder, "out.co", &why, &bytes, &data);
 *   vx_jit_folder_close(&folder);                      (removes it with all that is in it)
 *
 * Owner    the caller's struct; `data` of take is the caller's, for vx_free.
 * Thread   any number at once, a folder each.
 * Limits   VX_JIT_IMAGE_BYTES_MAX for a file that is taken.
 * Fails    RESOURCE_EXHAUSTED the folder or a file cannot be written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_FOLDER_H
#define VX_ENGINE_GPU_JIT_FOLDER_H

#include "engine/gpu/jit/jit_key.h"

struct vx_jit_folder {
    char path[256];
};
VX_MUST_USE vx_status vx_jit_folder_open(const struct vx_jit_closure *closure,
                                         struct vx_why *why,
                                         struct vx_jit_folder *folder);
void vx_jit_folder_close(struct vx_jit_folder *folder);
/* Reads a file that the compiler wrote; *bytes 0 and *data NULL = there is none. */
VX_MUST_USE vx_status vx_jit_folder_take(const struct vx_jit_folder *folder,
                                         const char *name, struct vx_why *why,
                                         size_t *bytes, void **data);

#endif
