/* Loops for AVX2, with 16 registers of 8 floats: a tile of 6 rows and 16 columns needs 12
 * for sums, 2 for weights and 1 for a value.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define VX_LANES               8
#define VX_TILE_VECTORS        2
#define VX_TILE_ROWS(vectors_) ((vectors_) == 2 ? 6 : 8)
#define VX_LOOPS               vx_loops_avx2
#define VX_LOOPS_NAME          "AVX2"
#include "engine/cpu/device/loops_body.h"

static bool here(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
