/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/access_limit.h"

#include "engine/base/process/clock.h"

/* Sums of many small refills miss a whole unit by less. */
#define ROUNDING 1e-6

const char *vx_access_unit_name(enum vx_access_unit unit)
{
    static const char *const names[VX_ACCESS_UNITS] = {
        [VX_ACCESS_REQUESTS] = "requests",
        [VX_ACCESS_BYTES] = "bytes",
        [VX_ACCESS_VOXELS] = "voxels",
    };
    return names[unit];
}

void vx_access_bucket_fill(const struct vx_access_limit *limit,
                           struct vx_access_bucket *bucket, i64 now_ns)
{
    *bucket = (struct vx_access_bucket){.level = limit->burst, .filled_ns = now_ns};
}

/* Adds what has come since the last time. */
static void bucket_refill(const struct vx_access_limit *limit,
                          struct vx_access_bucket *bucket, i64 now_ns)
{
    if (now_ns <= bucket->filled_ns) return; /* threads read the clock in any order */
    f64 s = (f64)(now_ns - bucket->filled_ns) / (f64)VX_NS_PER_S;
    bucket->level += s * limit->per_s;
    if (bucket->level > limit->burst) bucket->level = limit->burst;
    bucket->filled_ns = now_ns;
}

i64 vx_access_bucket_wait_ns(const struct vx_access_limit *limit,
                             struct vx_access_bucket *bucket, i64 paid, i64 now_ns)
{
    if (limit->per_s <= 0) return 0;
    bucket_refill(limit, bucket, now_ns);
    const f64 level = bucket->level + (f64)paid;
    if (level >= 1 - ROUNDING) return 0;
    f64 ns = (1 - level) / limit->per_s * (f64)VX_NS_PER_S;
    return ns < 1e18 ? (i64)ns + 1 : (i64)1e18; /* + 1: never 0 */
}

void vx_access_bucket_pay(const struct vx_access_limit *limit,
                          struct vx_access_bucket *bucket, i64 cost)
{
    if (limit->per_s > 0) bucket->level -= (f64)cost;
}

void vx_access_bucket_pay_shared(const struct vx_access_limit *limit,
                                 struct vx_access_bucket *bucket, i64 cost)
{
    vx_access_bucket_pay(limit, bucket, cost);
    if (bucket->level < -limit->burst) bucket->level = -limit->burst;
}

void vx_access_bucket_change(const struct vx_access_limit *before,
                             const struct vx_access_limit *limit,
                             struct vx_access_bucket *bucket, i64 now_ns)
{
    if (before->per_s <= 0) {
        vx_access_bucket_fill(limit, bucket, now_ns);
        return;
    }
    bucket_refill(before, bucket, now_ns);
    if (bucket->level > limit->burst) bucket->level = limit->burst;
}
