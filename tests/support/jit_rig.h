/* jit_rig - a folder of small kernel texts of our own, a cache beside it, and the specs.
 *
 *   struct jit_rig rig;
 *   jit_rig_open(&rig);
 *   struct vx_jit *jit = jit_rig_jit(&rig, "fake");
 *   jit_rig_close(&rig);              (removes both folders)
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_JIT_RIG_H
#define VX_TESTS_SUPPORT_JIT_RIG_H

#include "engine/gpu/jit/jit.h"

struct jit_rig {
    char root[64];  /* of both */
    char texts[96]; /* root/texts */
    char cache[96]; /* root/cache */
};
void jit_rig_open(struct jit_rig *rig);
void jit_rig_close(struct jit_rig *rig);
/* Writes a text; `name` as in the folder: "90_scale.cu". */
void jit_rig_write(const struct jit_rig *rig, const char *name, const char *text);
/* With the rig's texts and cache, and the machine's compiler. */
struct vx_jit *jit_rig_jit(const struct jit_rig *rig, const char *arch);

/* x[i] = x[i] * factor + VX_ADD, in F32 or F16; 1 block per VX_ROWS elements. */
struct scale_args {
    i64 n;
    f32 factor;
    void *x;
};
extern const struct vx_kernel_spec scale_spec; /* tiles: (rows, add), 40 of them */
/* A spec of the same text, without types or a tile; 64 KiB of shared memory. */
struct count_args {
    u32 *count;
};
extern const struct vx_kernel_spec count_spec;
const struct vx_kernel_spec *jit_rig_find(const char *name); /* for vx_fake_settings */

#endif
