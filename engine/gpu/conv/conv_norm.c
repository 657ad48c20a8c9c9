/* Which choices can norm the rows that they compute (35_conv_norm).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/gpu/conv/conv.h"

enum { TILE_COLUMNS = 1 };

bool vx_conv_norms(const struct vx_conv_problem *problem,
                   const struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("conv_norm");
    if (choice->algorithm != VX_CONV_IMPLICIT && choice->algorithm != VX_CONV_MASKED)
        return false;
    VX_ASSERT(spec->tiles == vx_conv_spec(choice->algorithm)->tiles);
    return problem->co <= spec->tiles[choice->tile].values[TILE_COLUMNS];
}

struct vx_jit_wanted vx_conv_norm_wanted(const struct vx_conv_problem *problem,
                                         const struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("conv_norm");
    VX_ASSERT(vx_conv_norms(problem, choice));
    return (struct vx_jit_wanted){spec, &spec->tiles[choice->tile], problem->type};
}
