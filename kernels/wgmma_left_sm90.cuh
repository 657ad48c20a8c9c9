/* wgmma_left_sm90 - wgmma with its left operand in registers.
 *
 * A lane has of the 64 x 16 numbers what it has of a result of as many columns, two in a
 * word: with g = lane / 4 and t = lane % 4, left[0] is row g, columns 2t and 2t+1 of the
 * warp's 16 rows, left[1] the same of row g + 8, left[2] and left[3] those of columns
 * 2t + 8 and 2t + 9.  So the sums of one product are the left operand of the next without
 * a lane giving anything to another.  The right operand lies with the sum along its rows.
 *
 * Owner    -
 * Thread   device code, all four warps of a warpgroup.
 * Limits   sm_90a; F16 and BF16.  `left` must not change before the product has ended.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_WGMMA_LEFT_SM90_CUH
#define VX_KERNELS_WGMMA_LEFT_SM90_CUH

#include "kernels/wgmma_sm90.cuh"

/* The names of 32 registers, and as many sums, from a place on. */
#define NAMES_0                                                                          \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"             \
    "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_32                                                                         \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,"               \
    "%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_64                                                                         \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,"               \
    "%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_96                                                                         \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,"                 \
    "%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,"             \
    "%124,%125,%126,%127"
#define SUMS_4(at_)                                                                      \
    "+f"(sum[at_]), "+f"(sum[(at_) + 1]), "+f"(sum[(at_) + 2]), "+f"(sum[(at_) + 3])
#define SUMS_16(at_) SUMS_4(at_), SUMS_4((at_) + 4), SUMS_4((at_) + 8), SUMS_4((at_) + 12)
#define SUMS_64(at_)                                                                     \
    SUMS_16(at_), SUMS_16((at_) + 16), SUMS_16((at_) + 32), SUMS_16((at_) + 48)
#define FIRST_4(at_)                                                                     \
    "=f"(sum[at_]), "=f"(sum[(at_) + 1]), "=f"(sum[(at_) + 2]), "=f"(sum[(at_) + 3])
#define FIRST_16(at_)                                                                    \
    FIRST_4(at_), FIRST_4((at_) + 4), FIRST_4((at_) + 8), FIRST_4((at_) + 12)
#define LEFT "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3])

/* sum (64 x N) += left (64 x 16) . right (16 x N) */
VX_DEVICE void vx_wgmma_left_128(float *sum, const uint32_t *left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." WGMMA_TYPES " {" NAMES_0
                 "," NAMES_32 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : SUMS_64(0)
                 : LEFT, "l"(right));
}
VX_DEVICE void vx_wgmma_left_256(float *sum, const uint32_t *left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16." WGMMA_TYPES " {" NAMES_0
                 "," NAMES_32 "," NAMES_64 "," NAMES_96
                 "}, {%128,%129,%130,%131}, %132, 1, 1, 1, 0;"
                 : SUMS_64(0), SUMS_64(64)
                 : LEFT, "l"(right));
}
/* sum (64 x 64) = left (64 x 16) . right (16 x 64): the first of a chain, on registers that
 * nothing has written. */
VX_DEVICE void vx_wgmma_first_64(float *sum, uint64_t left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." WGMMA_TYPES " {" NAMES_0
                 "}, %32, %33, 0, 1, 1, 0, 0;"
                 : FIRST_16(0), FIRST_16(16)
                 : "l"(left), "l"(right));
}

#endif
