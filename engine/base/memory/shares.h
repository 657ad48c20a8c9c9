/* shares - whose entry of a full cache goes: each origin has its share, and is held to no less.
 *
 * By age alone, one client that sends ever new small things evicts those of all others within
 * seconds.  Here the origin that has the most of what is short gives its oldest entry.  The one
 * that asks counts with what it wants: so who gives has more than an equal part of all, or else
 * who asks has nothing that it could give.  An origin that is alone has everything, by age, and
 * origins that have equal parts give by age.  An origin that has asked for nothing for
 * VX_SHARES_IDLE_NS gives before all others: it has no part any more.
 *
 *   VX_TRY(vx_shares_open(entries_max, VX_SHARE_KINDS, &shares));
 *   vx_shares_ask(shares, origin, vx_clock_ns());             once per request
 *   while (full) evict(vx_shares_victim(shares, VX_SHARE_BYTES, origin, bytes));
 *   vx_shares_add(shares, entry, origin);                     in use: it is no victim
 *   vx_shares_charge(shares, entry, VX_SHARE_BYTES, bytes);   less by negative numbers
 *   vx_shares_rest(shares, entry);  ...  vx_shares_use(shares, entry, origin);
 *   vx_shares_remove(shares, entry);
 *
 * ABSENT  -> IN USE   add
 * IN USE  -> RESTING  rest: the newest of its origin
 * RESTING -> IN USE   use
 * either  -> ABSENT   remove
 *
 * Owner    the caller has the entries, and numbers them from 0 on; this has only their counts.
 * Thread   one at a time.
 * Limits   entries_max.  An origin is known while it has an entry, so there are no more of them
 *          than entries.  No allocation after open.  victim looks at a few rows; other calls at
 *          a few, too, and at as many as the number of origins has bits for each kind.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_SHARES_H
#define VX_ENGINE_BASE_SHARES_H

#include "engine/base/status.h"

/* No entry. */
#define VX_SHARES_NONE (-1)

/* Ten minutes: streams pause for less, and the addresses of clients that come and go, which leave
 * a few entries each, would else have most of the cache after some weeks. */
#define VX_SHARES_IDLE_NS (INT64_C(600) * 1000000000)

/* What may be short.  An entry is one of the first; the others are charged. */
enum vx_share {
    VX_SHARE_ENTRIES,
    VX_SHARE_BYTES,
    VX_SHARE_SETS,
    VX_SHARE_MAPS, /* or row orders */
    VX_SHARE_KINDS
};

struct vx_shares;

/* Of the first `kinds` of them. */
VX_MUST_USE vx_status vx_shares_open(i32 entries_max, i32 kinds,
                                     struct vx_shares **shares);
void vx_shares_close(struct vx_shares **shares);

/* A request of an origin comes, at that time. */
void vx_shares_ask(struct vx_shares *shares, u64 origin, i64 now_ns);
void vx_shares_add(struct vx_shares *shares, i32 entry, u64 origin);
void vx_shares_charge(struct vx_shares *shares, i32 entry, enum vx_share kind, i64 more);
/* An entry in use is another origin's from now on, with all that it has. */
void vx_shares_move(struct vx_shares *shares, i32 entry, u64 origin);
void vx_shares_rest(struct vx_shares *shares, i32 entry);
/* For a request of `origin`, which takes it over if its own origin has asked for nothing for so
 * long. */
void vx_shares_use(struct vx_shares *shares, i32 entry, u64 origin);
void vx_shares_remove(struct vx_shares *shares, i32 entry);

/* The resting entry that has to go, when `origin` wants so many more; or NONE.  It stays until it
 * is removed. */
i32 vx_shares_victim(const struct vx_shares *shares, enum vx_share kind, u64 origin,
                     i64 want);
/* Origins that have an entry. */
i32 vx_shares_origins(const struct vx_shares *shares);
/* What an origin has. */
i64 vx_shares_has(const struct vx_shares *shares, u64 origin, enum vx_share kind);

#endif
