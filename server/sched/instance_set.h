/* rows - a set of instances of the registry, a bit each.
 *
 *   vx_instance_set_set(&rows, instance, true);
 *   VX_INSTANCES_EACH(i, &rows) ...
 *
 * Owner    the caller.
 * Thread   the owner's.
 * Limits   VX_INSTANCES_MAX instances.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_INSTANCE_SET_H
#define VX_SERVER_INSTANCE_SET_H

#include "server/sched/sched.h"

struct vx_instance_set {
    u64 words[(VX_INSTANCES_MAX + 63) / 64];
};

static inline void vx_instance_set_set(struct vx_instance_set *rows, i32 row, bool in)
{
    u64 bit = UINT64_C(1) << (row % 64), *word = &rows->words[row / 64];
    *word = in ? *word | bit : *word & ~bit;
}

static inline bool vx_instance_set_has(const struct vx_instance_set *rows, i32 row)
{
    return rows->words[row / 64] >> (row % 64) & 1;
}

/* The first member that is `row` or follows it, or -1. */
static inline i32 vx_instance_set_next(const struct vx_instance_set *rows, i32 row)
{
    for (i32 w = row / 64; w < (i32)VX_COUNT(rows->words); w++) {
        u64 left = rows->words[w];
        if (w == row / 64) left &= ~UINT64_C(0) << (row % 64);
        if (left) return 64 * w + __builtin_ctzll(left);
    }
    return -1;
}

static inline bool vx_instance_set_any(const struct vx_instance_set *rows)
{
    return vx_instance_set_next(rows, 0) >= 0;
}

/* Visits the members in ascending order; the body may remove the current one. */
#define VX_INSTANCES_EACH(row_, rows_)                                                   \
    for (i32 row_ = vx_instance_set_next(rows_, 0); row_ >= 0;                           \
         row_ = vx_instance_set_next(rows_, row_ + 1))

#endif
