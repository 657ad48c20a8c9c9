/* amd/rig - compiles a text with hip_clang and runs it through the stand-in's functions.
 *
 *   struct amd_image image = amd_rig_compile(&(struct amd_text){"tests/amd/faults.cu", "gfx942"});
 *   amd_rig_open(&rig, "arch=gfx942 seed=3");
 *   code = amd_rig_run(&rig, &(struct amd_run){.image = &image, .kernel = "sum", ...});
 *   amd_rig_close(&rig);
 *
 * Device memory is what amd_rig_memory returns: the host may read it while the device is
 * idle, because it is the host's.
 *
 * Owner    the test's; images stay until the program ends.
 * Thread   the test's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_RIG_H
#define VX_TESTS_AMD_RIG_H

#include "engine/gpu/driver/driver.h"

#define AMD_RIG_MODULES_MAX 16

struct amd_text {
    const char *path; /* from the repository's root */
    const char *arch;
    const char *const *defines; /* "-DVX_TYPE=1", ..., NULL; or NULL */
};
struct amd_image {
    u8 *bytes;
    size_t count;
};
/* Fails the test with the compiler's words if it does not compile. */
struct amd_image amd_rig_compile(const struct amd_text *text);
/* What hip_clang writes about a text that it must refuse. */
void amd_rig_refused(const struct amd_text *text, char *words, size_t bytes);

struct amd_rig {
    struct vx_driver driver;
    bool (*set)(const char *words);
    i64 (*count)(const char *what);
    const char *(*why)(void);
    void *stream;
    const struct amd_image *images[AMD_RIG_MODULES_MAX];
    void *modules[AMD_RIG_MODULES_MAX];
};
void amd_rig_open(struct amd_rig *rig, const char *settings);
void amd_rig_close(struct amd_rig *rig);
void *amd_rig_memory(struct amd_rig *rig, size_t bytes); /* zeros */
void *amd_rig_copy(struct amd_rig *rig, const void *from, size_t bytes);
void amd_rig_free(struct amd_rig *rig, void *memory);

struct amd_run {
    const struct amd_image *image;
    const char *kernel;
    void *args;
    struct vx_grid grid; /* 0,0,0 = one block */
    unsigned threads, shared;
};
/* Launches; the code of the launch. */
int amd_rig_start(struct amd_rig *rig, const struct amd_run *run);
/* Launches and waits; the first code that is not 0. */
int amd_rig_run(struct amd_rig *rig, const struct amd_run *run);

#endif
