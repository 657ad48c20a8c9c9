/* instance_set - a set of instances of the registry, a bit each.
 *
 *   vx_instance_set_put(&set, instance, true);
 *   VX_INSTANCES_EACH(i, &set) ...
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

static inline void vx_instance_set_put(struct vx_instance_set *set, i32 instance, bool in)
{
    u64 bit = UINT64_C(1) << (instance % 64), *word = &set->words[instance / 64];
    *word = in ? *word | bit : *word & ~bit;
}

static inline bool vx_instance_set_has(const struct vx_instance_set *set, i32 instance)
{
    return set->words[instance / 64] >> (instance % 64) & 1;
}

/* The first member that is `instance` or follows it, or -1. */
static inline i32 vx_instance_set_next(const struct vx_instance_set *set, i32 instance)
{
    for (i32 w = instance / 64; w < (i32)VX_COUNT(set->words); w++) {
        u64 left = set->words[w];
        if (w == instance / 64) left &= ~UINT64_C(0) << (instance % 64);
        if (left) return 64 * w + __builtin_ctzll(left);
    }
    return -1;
}

static inline bool vx_instance_set_any(const struct vx_instance_set *set)
{
    return vx_instance_set_next(set, 0) >= 0;
}

/* Visits the members in ascending order; the body may remove the current one. */
#define VX_INSTANCES_EACH(instance_, set_)                                               \
    for (i32 instance_ = vx_instance_set_next(set_, 0); instance_ >= 0;                  \
         instance_ = vx_instance_set_next(set_, instance_ + 1))

#endif
