/* wgmma_sm90 - wgmma, the matrix instruction of a Hopper warpgroup.
 *
 * One instruction multiplies 64 rows by 16 terms of the sum (32 of 8 bits) and 16 to 256
 * columns.  It reads both operands from shared memory while the warps do something else.  A
 * lane has the same part of the result as with mma.sync: 4 numbers per 8 columns (matrix.cuh).
 * The left operand lies with the sum along its rows, the right one with the columns along
 * its rows or, where WGMMA_COLUMNS_LAST is "0", as the left one.  In both the 16-byte chunks
 * of a row are swizzled by chunk_place, as the instruction expects it for rows of 128, 64 and
 * 32 bytes.
 *
 * Owner    -
 * Thread   device code, all four warps of a warpgroup.
 * Limits   sm_90a; F16, BF16 and E4M3.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_WGMMA_SM90_CUH
#define VX_KERNELS_WGMMA_SM90_CUH

#include "kernels/device.h"

#if VX_E4M3
#define WGMMA_TYPES "f32.e4m3.e4m3"
#elif VX_TYPE == VX_TYPE_BF16
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif

/* "1": the right operand lies with the columns along its rows; "0": with the sum. */
#ifndef WGMMA_COLUMNS_LAST
#define WGMMA_COLUMNS_LAST "1"
#endif

/* Terms of one instruction, 32 bytes of each row; what ends its text: numbers of 8 bits lie with
 * the sum along their rows, so that there is no choice. */
#if VX_E4M3
#define WGMMA_TERMS "k32."
#define WGMMA_LIE   ""
#else
#define WGMMA_TERMS "k16."
#define WGMMA_LIE   ", 0, " WGMMA_COLUMNS_LAST
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

/* Sixteen of the sums as operands, and their places in an instruction's text. */
#define WGMMA_SUMS(i_)                                                                   \
    "+f"(sum[i_]), "+f"(sum[i_ + 1]), "+f"(sum[i_ + 2]), "+f"(sum[i_ + 3]),              \
        "+f"(sum[i_ + 4]), "+f"(sum[i_ + 5]), "+f"(sum[i_ + 6]), "+f"(sum[i_ + 7]),      \
        "+f"(sum[i_ + 8]), "+f"(sum[i_ + 9]), "+f"(sum[i_ + 10]), "+f"(sum[i_ + 11]),    \
        "+f"(sum[i_ + 12]), "+f"(sum[i_ + 13]), "+f"(sum[i_ + 14]), "+f"(sum[i_ + 15])
#define WGMMA_AT_0  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_AT_16 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_AT_32 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_AT_48 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_AT_64 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_AT_80 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_AT_96                                                                      \
    "%96,%97,%98,%99,%100,%101,%102,%103,"                                               \
    "%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_AT_112                                                                     \
    "%112,%113,%114,%115,%116,%117,%118,%119,"                                           \
    "%120,%121,%122,%123,%124,%125,%126,%127"

/* The instruction of so many columns: what its text says of the sums, and the places of the
 * two operands behind them. */
#define WGMMA(columns_, sums_, left_, right_, ...)                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" columns_ WGMMA_TERMS WGMMA_TYPES    \
                 " {" sums_ "}, " left_ ", " right_ ", 1, 1, 1" WGMMA_LIE ";"            \
                 : __VA_ARGS__                                                           \
                 : "l"(left), "l"(right))

/* sum (64 x N) += left (64 x 16) . right (16 x N) */
VX_DEVICE void vx_wgmma_16(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "+f"(sum[0]), "+f"(sum[1]),
          "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]),
          "+f"(sum[7]));
}
VX_DEVICE void vx_wgmma_32(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("32", WGMMA_AT_0, "%16", "%17", WGMMA_SUMS(0));
}
VX_DEVICE void vx_wgmma_64(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("64", WGMMA_AT_0 "," WGMMA_AT_16, "%32", "%33", WGMMA_SUMS(0), WGMMA_SUMS(16));
}
VX_DEVICE void vx_wgmma_96(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("96", WGMMA_AT_0 "," WGMMA_AT_16 "," WGMMA_AT_32, "%48", "%49", WGMMA_SUMS(0),
          WGMMA_SUMS(16), WGMMA_SUMS(32));
}
VX_DEVICE void vx_wgmma_128(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("128", WGMMA_AT_0 "," WGMMA_AT_16 "," WGMMA_AT_32 "," WGMMA_AT_48, "%64", "%65",
          WGMMA_SUMS(0), WGMMA_SUMS(16), WGMMA_SUMS(32), WGMMA_SUMS(48));
}
VX_DEVICE void vx_wgmma_160(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("160",
          WGMMA_AT_0 "," WGMMA_AT_16 "," WGMMA_AT_32 "," WGMMA_AT_48 "," WGMMA_AT_64,
          "%80", "%81", WGMMA_SUMS(0), WGMMA_SUMS(16), WGMMA_SUMS(32), WGMMA_SUMS(48),
          WGMMA_SUMS(64));
}
VX_DEVICE void vx_wgmma_192(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("192",
          WGMMA_AT_0 "," WGMMA_AT_16 "," WGMMA_AT_32 "," WGMMA_AT_48 "," WGMMA_AT_64
                     "," WGMMA_AT_80,
          "%96", "%97", WGMMA_SUMS(0), WGMMA_SUMS(16), WGMMA_SUMS(32), WGMMA_SUMS(48),
          WGMMA_SUMS(64), WGMMA_SUMS(80));
}
VX_DEVICE void vx_wgmma_256(float *sum, uint64_t left, uint64_t right)
{
    WGMMA("256",
          WGMMA_AT_0 "," WGMMA_AT_16 "," WGMMA_AT_32 "," WGMMA_AT_48 "," WGMMA_AT_64
                     "," WGMMA_AT_80 "," WGMMA_AT_96 "," WGMMA_AT_112,
          "%128", "%129", WGMMA_SUMS(0), WGMMA_SUMS(16), WGMMA_SUMS(32), WGMMA_SUMS(48),
          WGMMA_SUMS(64), WGMMA_SUMS(80), WGMMA_SUMS(96), WGMMA_SUMS(112));
}

#endif
