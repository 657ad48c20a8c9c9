/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernel.h"

#include <string.h>

#define VX_ROW(name_) extern const struct vx_kernel_spec vx_##name_##_spec;
#include "kernels/kernels.def"
#undef VX_ROW

static const struct vx_kernel_spec *const kernels[] = {
#define VX_ROW(name_) &vx_##name_##_spec,
#include "kernels/kernels.def"
#undef VX_ROW
    NULL,
};

const struct vx_kernel_spec *const *vx_kernels(void)
{
    return kernels;
}

const struct vx_kernel_spec *vx_kernel_find(const char *name)
{
    for (const struct vx_kernel_spec *const *at = kernels; *at; at++)
        if (!strcmp((*at)->name, name)) return *at;
    return NULL;
}
