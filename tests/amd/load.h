/* amd/load - takes a kernel's object from bytes in memory into this process.
 *
 * Owner    who loads an object unloads it; what it holds ends with it.
 * Thread   any.
 * Limits   AMD_IMAGE_BYTES_MAX.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_LOAD_H
#define VX_TESTS_AMD_LOAD_H

#include "tests/amd/matrix.h"

#define AMD_IMAGE_BYTES_MAX (64u << 20)

enum amd_image {
    AMD_IMAGE_OURS,  /* hip_clang made it for the architecture */
    AMD_IMAGE_OTHER, /* a kernel, but for another architecture or for a real GPU */
    AMD_IMAGE_BAD,   /* no kernel */
};

struct amd_loaded {
    void *library;
    const struct amd_object *object;
};

/* The image's size follows from its ELF header, as for hipModuleLoadData. */
enum amd_image amd_load(const void *image, const char *arch, struct amd_loaded *loaded,
                        char why[AMD_WHY_BYTES]);
void amd_unload(struct amd_loaded *loaded);
/* NULL = no such kernel. */
const struct amd_kernel *amd_find(const struct amd_loaded *loaded, const char *name);

#endif
