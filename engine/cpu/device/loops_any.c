/* Loops for every machine of the architecture: at least 16 registers of 4 floats.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define VX_LANES               4
#define VX_TILE_VECTORS        2
#define VX_TILE_ROWS(vectors_) ((vectors_) == 2 ? 6 : 8)
#define VX_LOOPS               vx_loops_any
#define VX_LOOPS_NAME          "baseline vectors"
#include "engine/cpu/device/loops_body.h"

static bool here(void)
{
    return true;
}

const struct vx_loops *vx_loops_pick(void)
{
#ifdef __x86_64__
    static const struct vx_loops *const widest_first[] = {&vx_loops_avx512,
                                                          &vx_loops_avx2};
    for (size_t i = 0; i < VX_COUNT(widest_first); i++)
        if (widest_first[i]->here()) return widest_first[i];
#endif
    return &vx_loops_any;
}
