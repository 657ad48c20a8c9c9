/* access_limit - token buckets: how many requests, bytes and voxels a second may come.
 *
 * A bucket fills at `per_s` up to `burst`.  It admits while it holds at least one unit,
 * and then pays the whole cost, into debt if need be.  So a request larger than the burst
 * is served, and what comes after it waits until the debt is paid: on the average the
 * rate holds, and no burst exceeds `burst` by more than one request.
 *
 *   vx_access_bucket_fill(&limit, &bucket, now_ns);              full
 *   if (!vx_access_bucket_wait_ns(&limit, &bucket, 0, now_ns))
 *       vx_access_bucket_pay(&limit, &bucket, cost);
 *
 * Owner    the caller.
 * Thread   one at a time.  Pure: the time is an argument.
 * Limits   VX_ACCESS_RATE_MAX.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_LIMIT_H
#define VX_SERVER_ACCESS_LIMIT_H

#include "engine/base/types.h"

/* Of a rate and of a burst: a double counts single units up to there. */
#define VX_ACCESS_RATE_MAX 1e15

enum vx_access_unit {
    VX_ACCESS_REQUESTS,
    VX_ACCESS_BYTES,
    VX_ACCESS_VOXELS,
    VX_ACCESS_UNITS
};
const char *vx_access_unit_name(enum vx_access_unit unit); /* "requests" */

struct vx_access_limit {
    f64 per_s; /* 0 = no limit */
    f64 burst; /* at least 1 if there is a limit */
};

struct vx_access_bucket {
    f64 level; /* below 0: debt */
    i64 filled_ns;
};

void vx_access_bucket_fill(const struct vx_access_limit *limit,
                           struct vx_access_bucket *bucket, i64 now_ns);
/* 0: it admits, as if `paid` were still in it.  Otherwise the time until it will. */
i64 vx_access_bucket_wait_ns(const struct vx_access_limit *limit,
                             struct vx_access_bucket *bucket, i64 paid, i64 now_ns);
void vx_access_bucket_pay(const struct vx_access_limit *limit,
                          struct vx_access_bucket *bucket, i64 cost);
/* The same, of a bucket that strangers share: it never owes more than a burst. */
void vx_access_bucket_pay_shared(const struct vx_access_limit *limit,
                                 struct vx_access_bucket *bucket, i64 cost);
/* Another limit applies from now on; what the bucket holds beyond its burst is lost. */
void vx_access_bucket_change(const struct vx_access_limit *before,
                             const struct vx_access_limit *limit,
                             struct vx_access_bucket *bucket, i64 now_ns);

#endif
