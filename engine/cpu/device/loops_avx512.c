/* Loops for AVX-512, with 32 registers of 16 floats: a tile of 6 rows and 64 columns
 * needs 24 for sums, 4 for weights and 1 for a value.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define VX_LANES               16
#define VX_TILE_VECTORS        4
#define VX_TILE_ROWS(vectors_) ((vectors_) == 4 ? 6 : 8)
#define VX_LOOPS               vx_loops_avx512
#define VX_LOOPS_NAME          "AVX-512"
#include "engine/cpu/device/loops_body.h"

static bool here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
