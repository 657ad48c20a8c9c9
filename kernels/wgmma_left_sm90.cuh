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

/* Two numbers in a word, the first in its low half; rounded to nearest, ties to even. */
VX_DEVICE uint32_t vx_pair_of(float low, float high)
{
    uint32_t word;
#if VX_TYPE == VX_TYPE_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
    return word;
}

/* sum (64 x N) += left (64 x 16) . right (16 x N) */
VX_DEVICE void vx_wgmma_left_128(float *sum, const uint32_t *left, uint64_t right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16." WGMMA_TYPES " "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
        "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,"
        "%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,"
        "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),
          "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]),
          "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]),
          "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]),
          "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]),
          "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]),
          "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), "+f"(sum[49]),
          "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]),
          "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
          "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}
VX_DEVICE void vx_wgmma_left_256(float *sum, const uint32_t *left, uint64_t right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16." WGMMA_TYPES " "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
        "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,"
        "%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,"
        "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,"
        "%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,"
        "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,"
        "%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,"
        "%125,%126,%127}, "
        "{%128,%129,%130,%131}, %132, 1, 1, 1, 0;"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
          "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
          "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),
          "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]),
          "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]),
          "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
          "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]),
          "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]),
          "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]),
          "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]), "+f"(sum[49]),
          "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]),
          "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
          "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]), "+f"(sum[64]),
          "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67]), "+f"(sum[68]), "+f"(sum[69]),
          "+f"(sum[70]), "+f"(sum[71]), "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]),
          "+f"(sum[75]), "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), "+f"(sum[79]),
          "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]), "+f"(sum[84]),
          "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]), "+f"(sum[88]), "+f"(sum[89]),
          "+f"(sum[90]), "+f"(sum[91]), "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]),
          "+f"(sum[95]), "+f"(sum[96]), "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99]),
          "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103]), "+f"(sum[104]),
          "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107]), "+f"(sum[108]), "+f"(sum[109]),
          "+f"(sum[110]), "+f"(sum[111]), "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]),
          "+f"(sum[115]), "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119]),
          "+f"(sum[120]), "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]), "+f"(sum[124]),
          "+f"(sum[125]), "+f"(sum[126]), "+f"(sum[127])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}
/* sum (64 x 64) = left (64 x 16) . right (16 x 64): the first of a chain, on registers that
 * nothing has written. */
VX_DEVICE void vx_wgmma_first_64(float *sum, uint64_t left, uint64_t right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16." WGMMA_TYPES " "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%"
        "22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 0, 1, 1, 0, 0;"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3]), "=f"(sum[4]),
          "=f"(sum[5]), "=f"(sum[6]), "=f"(sum[7]), "=f"(sum[8]), "=f"(sum[9]),
          "=f"(sum[10]), "=f"(sum[11]), "=f"(sum[12]), "=f"(sum[13]), "=f"(sum[14]),
          "=f"(sum[15]), "=f"(sum[16]), "=f"(sum[17]), "=f"(sum[18]), "=f"(sum[19]),
          "=f"(sum[20]), "=f"(sum[21]), "=f"(sum[22]), "=f"(sum[23]), "=f"(sum[24]),
          "=f"(sum[25]), "=f"(sum[26]), "=f"(sum[27]), "=f"(sum[28]), "=f"(sum[29]),
          "=f"(sum[30]), "=f"(sum[31])
        : "l"(left), "l"(right));
}

#endif
