/* 23_key_order - rows sorted by the keys of their voxels, and where samples begin.
 *
 * Math     rows       the rows of each member, ascending by key; members one after the other
 *          numbers[p] = the member of rows[p]
 *          starts     = the places p at which a sample begins, rising, and then N:
 *                       p = 0, or rows[p] and rows[p-1] differ in member or sample
 *          count      = number of those places, S
 * Shapes   keys (N) u64 as vx_key_pack makes them; edges (M+1): member m has the rows
 *          edges[m] .. edges[m+1] - 1; rows, numbers (N)  starts (S+1)  count (1)
 * Types    u64 keys, i32 rows, u32 numbers, i32 starts and count.
 * Idea     Rows of a device lie brick by brick, and bricks in the order in which atomics met
 *          them.  What leaves the device, and what is summed over a sample, needs an order
 *          that follows from the voxels alone: that of keys.  A key is a mask of two words:
 *          37_order_sweep sorts it, by all of its bits (or by those that may differ, see
 *          vx_key_passes).  Few rows are sorted by one block for each member, in one launch.
 *          Many rows are sorted together, with the member as the last digit.
 * Steps    every member has at most VX_ORDER_SMALL_ROWS rows: key_small.
 *          else, with n = N, words 2, groups 1, gray 0 and masks = keys, for each key of
 *          vx_key_passes: order_clear and order_digits of its passes, and order_sweep for each
 *          of them (37_order_sweep); and, if there are several members: key_members of the last
 *          rows, and such a key with its numbers as keys_in, shift 0 and the bits of M - 1 as
 *          its one digit.
 *          then key_starts.
 * Tiles    those of 37_order_sweep; key_members 256 rows; key_starts is one block.
 * Cost     bytes 20 per row and pass; key_starts: a binary search for each sample that a
 *          member might have, up to its largest.
 * Limits   1 <= M <= VX_KEY_MEMBERS_MAX; N <= 2^30; a member has no key twice, and keys lie
 *          below 2^63.  key_small leaves the places of a larger member unwritten.
 * Order    exact: a stable sort has one answer.
 * Oracle   23_key_order_ref.c, tests/oracle/cases_samples.c; the large sort as a whole:
 *          tests/unit/kernels/test_kernels_samples.c.
 * Source   as 37_order_sweep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_KEY_ORDER_H
#define VX_KERNELS_KEY_ORDER_H

#include "kernels/01_coord_hash.h"

#include <stdint.h>

/* Requests of a round. */
#define VX_KEY_MEMBERS_MAX 64
/* Samples of one member. */
#define VX_KEY_SAMPLES_MAX (1 << VX_KEY_SAMPLE_BITS)
#define VX_KEY_BITS        (VX_KEY_SAMPLE_BITS + 3 * VX_KEY_AXIS_BITS)
/* 63 bits, 9 at a time. */
#define VX_KEY_PASSES_MAX 7

#define VX_KEY_THREADS        256  /* of key_members */
#define VX_KEY_STARTS_THREADS 1024 /* of key_starts */

/* The arguments of all key_ kernels.  Behind ';' is the kernel that writes the field. */
struct vx_key_order_args {
    int64_t n; /* rows of all members */
    int32_t members;
    int32_t edges[VX_KEY_MEMBERS_MAX + 1];
    const uint64_t *keys; /* (N); key_members does not read them */
    /* (N): of key_members, its order; of key_starts, the order by key, NULL: keys themselves
     * are in order */
    const int32_t *rows;
    int32_t *rows_out; /* (N); key_small */
    uint32_t *numbers; /* (N); key_members */
    /* S is at most the sum over members of min(rows, VX_KEY_SAMPLES_MAX). */
    int32_t *starts; /* (S+1); key_starts */
    int32_t *count;  /* (1); key_starts */
};

/* One pass of the large sort: fields of struct vx_mask_order_args. */
struct vx_key_pass {
    int32_t key_low, key_bits, shift, digit_bits;
    int32_t fresh; /* 1: the first pass of a key; 0: keys come from the pass before */
};

/* The passes that sort keys which differ in no bit outside `varying`; all VX_KEY_BITS lowest
 * bits are always right.  Returns their number, 0 if no key can differ from another. */
int32_t vx_key_passes(uint64_t varying, struct vx_key_pass passes[VX_KEY_PASSES_MAX]);

/* The end of member m: no row from n on. */
VX_BOTH int32_t vx_key_edge(const struct vx_key_order_args *args, int32_t member)
{
    int64_t edge = args->edges[member];
    return (int32_t)(edge < args->n ? edge : args->n);
}

#endif
