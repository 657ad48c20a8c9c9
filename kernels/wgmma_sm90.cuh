/* wgmma_sm90 - wgmma, the matrix instruction of a Hopper warpgroup.
 *
 * One instruction multiplies 64 rows by 16 terms of the sum and 16 to 256 columns.  It
 * reads both operands from shared memory while the warps do something else.  A lane has
 * the same part of the result as with mma.sync: 4 numbers per 8 columns (matrix.cuh).
 * The left operand lies with the sum along its rows, the right one with the columns along
 * its rows or, where WGMMA_COLUMNS_LAST is "0", as the left one.  In both the 16-byte chunks of a row are swizzled by chunk_place, as the
 * instruction expects it for rows of 128, 64 and 32 bytes.
 *
 * Owner    -
 * Thread   device code, all four warps of a warpgroup.
 * Limits   sm_90a; F16 and BF16.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_WGMMA_SM90_CUH
#define VX_KERNELS_WGMMA_SM90_CUH

#include "kernels/device.h"

#if VX_TYPE == VX_TYPE_BF16
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif

/* "1": the right operand lies with the columns along its rows; "0": with the sum. */
#ifndef WGMMA_COLUMNS_LAST
#define WGMMA_COLUMNS_LAST "1"
#endif

/* Orders earlier accesses to the sums' registers before the products that follow. */
VX_DEVICE void vx_wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
VX_DEVICE void vx_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#define vx_wgmma_wait(left_)                                                             \
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left_) : "memory")
/* Makes earlier writes to shared memory, by cp.async too, visible to wgmma. */
VX_DEVICE void vx_fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The descriptor of a matrix in shared memory.  `line` is the bytes of a row (128, 64 or
 * 32), and eight rows are one pattern of the swizzle; `panel` is the bytes between panels
 * of columns of the right operand. */
VX_DEVICE uint64_t vx_wgmma_describe(uint32_t address, uint32_t line, uint32_t panel)
{
    uint64_t swizzle = line == 128 ? 1 : line == 64 ? 2 : 3;
    return (uint64_t)(address >> 4 & 0x3fffu) | (uint64_t)(panel >> 4 & 0x3fffu) << 16 |
           (uint64_t)(8 * line >> 4) << 32 | swizzle << 62;
}

/* sum (64 x N) += left (64 x 16) . right (16 x N) */
VX_DEVICE void vx_wgmma_16(float *sum, uint64_t left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16." WGMMA_TYPES " "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, "
                 "%8, %9, 1, 1, 1, 0, " WGMMA_COLUMNS_LAST ";"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
                   "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7])
                 : "l"(left), "l"(right));
}
VX_DEVICE void vx_wgmma_32(float *sum, uint64_t left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16." WGMMA_TYPES " "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                 "%16, %17, 1, 1, 1, 0, " WGMMA_COLUMNS_LAST ";"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
                   "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
                   "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
                   "+f"(sum[14]), "+f"(sum[15])
                 : "l"(left), "l"(right));
}
VX_DEVICE void vx_wgmma_64(float *sum, uint64_t left, uint64_t right)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." WGMMA_TYPES " "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "%32, %33, 1, 1, 1, 0, " WGMMA_COLUMNS_LAST ";"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
                   "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
                   "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
                   "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
                   "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
                   "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]),
                   "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
                   "+f"(sum[30]), "+f"(sum[31])
                 : "l"(left), "l"(right));
}
VX_DEVICE void vx_wgmma_128(float *sum, uint64_t left, uint64_t right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16." WGMMA_TYPES " "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "%64, %65, 1, 1, 1, 0, " WGMMA_COLUMNS_LAST ";"
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
        : "l"(left), "l"(right));
}
VX_DEVICE void vx_wgmma_256(float *sum, uint64_t left, uint64_t right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16." WGMMA_TYPES " "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
        ", "
        "%128, %129, 1, 1, 1, 0, " WGMMA_COLUMNS_LAST ";"
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
        : "l"(left), "l"(right));
}

#endif
