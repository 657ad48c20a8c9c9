/* rpc_govern_places - which connection goes when others want its place: of those that have
 * begun no call, and of all when few places are left.
 *
 * An origin (struct vx_peer) that opens many connections loses its own: a client elsewhere
 * keeps its place, and gets one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* When more than this part of all places is taken by connections that have begun no call,
 * one of the oldest is closed that has had FRESH_NS for it; when twice as many are, one
 * is closed at once. */
#define FRESH_PART 4
#define FRESH_MIN  256 /* with few places, all of them may be */
#define FRESH_NS   (2 * VX_NS_PER_S)
#define FRESH_LOOK 32

/* A connection makes way for a newcomer when it has asked nothing for so long: one of a crowd,
 * one of an origin that has as many connections as the newcomer's or more, and one of an origin
 * with fewer.  After the last a connection is not a client between two requests. */
#define IDLE_CROWD_NS (VX_NS_PER_S / 10)
#define IDLE_EQUAL_NS VX_NS_PER_S
#define IDLE_LESS_NS  (5 * VX_NS_PER_S)
/* Where nobody of a crowd has, an origin with so few connections, or this part of its part, takes
 * one of a crowd whatever that is about: most of all places are nobody's. */
#define OWN_FEW      4
#define OWN_FEW_PART 4

/* ------- counts ------- */

static void count_fresh(struct vx_rpc_govern *govern, bool fresh)
{
    if (govern->fresh == fresh) return;
    govern->fresh = fresh;
    govern->governor->fresh += fresh ? 1 : -1;
    govern->governor->fresh_of[govern->origin] += fresh ? 1 : -1;
}

static void count_open(const struct vx_rpc_govern *govern, i32 more)
{
    i32 *open = &govern->governor->open_of[govern->origin], before = *open;
    *open += more;
    govern->governor->origins_open += (*open > 0) - (before > 0);
}

void vx_rpc_govern_place_take(struct vx_rpc_govern *govern)
{
    count_open(govern, 1);
    count_fresh(govern, true);
}

void vx_rpc_govern_place_leave(struct vx_rpc_govern *govern)
{
    count_open(govern, -1);
    count_fresh(govern, false);
}

void vx_rpc_govern_place_called(struct vx_rpc_govern *govern)
{
    count_fresh(govern, false);
}

/* ------- connections without a call ------- */

/* The claim of a connection without a call to its place. */
enum claim {
    CLAIM_NONE, /* its preface is not whole */
    CLAIM_PREFACE,
    CLAIM_WAITED, /* its client waits for us, and it is older than FRESH_NS */
    CLAIM_UNHEARD /* its client waits for us */
};

static enum claim claim_of(const struct vx_rpc_govern *govern, i64 now_ns)
{
    if (vx_rpc_govern_has_spoken(govern))
        return now_ns - govern->begun_ns > FRESH_NS ? CLAIM_WAITED : CLAIM_UNHEARD;
    return govern->meter.preface_left ? CLAIM_NONE : CLAIM_PREFACE;
}

/* Of the origin that has most of them, the connection with the least claim is closed; never one of an
 * origin with less than an equal part of them.  What we have not heard is not judged: gRPC reads it
 * soon, and then it begins a call, or is closed for what it sent, or has a smaller claim.  Of a
 * crowd that was closed unheard, newcomers from its address were a part; and while a crowd of 900
 * was not heard, a client of another address was closed each time it had no call for 2 s. */
void vx_rpc_govern_bound_fresh(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *going = NULL;
    enum claim least = CLAIM_NONE;
    i32 most = governor->connections_max / FRESH_PART, looks = 0, from = 0;
    if (most < FRESH_MIN) most = FRESH_MIN;
    if (governor->fresh <= most) return;
    i32 part = governor->fresh / governor->origins_open;
    i64 since_ns = governor->fresh > 2 * most ? now_ns : now_ns - FRESH_NS;
    for (struct vx_rpc_govern *one = governor->oldest; one; one = one->previous) {
        i32 count = governor->fresh_of[one->origin];
        if (!one->fresh || count < part) continue;
        if (one->begun_ns > since_ns || looks++ == FRESH_LOOK) break;
        enum claim claim = claim_of(one, now_ns);
        if (claim == CLAIM_UNHEARD) continue;
        if (going && (count < from || (count == from && claim >= least))) continue;
        going = one;
        from = count;
        least = claim;
    }
    if (going) vx_rpc_govern_close(going, VX_RPC_CUT_IDLE);
}

/* ------- few places are left ------- */

/* The claim of a connection that asks nothing. */
enum idle_claim {
    IDLE_EMPTY,  /* it has no call */
    IDLE_LASTS,  /* its calls last as long as it likes, or wait for its messages */
    IDLE_UNREAD, /* it has not read an answer */
    IDLE_WAITS   /* a call of it waits for us */
};

/* A call whose message is on its way waits for us, unless little of it comes. */
static enum idle_claim idle_claim_of(const struct vx_rpc_govern *govern)
{
    const bool comes = govern->meter.unfinished && !govern->slow;
    i32 lasts = comes ? govern->shares[VX_RPC_SHARE_IDLE]
                      : vx_rpc_govern_share_of(govern, VX_RPC_SHARE_IDLE);
    i32 ended = govern->shares[VX_RPC_SHARE_ENDED];
    if (govern->shares[VX_RPC_SHARE_ARRIVED] > lasts + ended) return IDLE_WAITS;
    return ended ? IDLE_UNREAD : lasts ? IDLE_LASTS : IDLE_EMPTY;
}

/* So many connections of one origin are no crowd, however many origins there are: who has 400
 * addresses takes no place of a client with five connections. */
#define PART_MIN 16

/* An equal part of all places, when so many more origins have some.  An origin that has more is
 * a crowd: of 64 addresses that take all places the largest is one for a newcomer from
 * elsewhere. */
static i32 part_of(const struct vx_rpc_governor *governor, i32 newcomers)
{
    i32 origins = governor->origins_open + newcomers;
    i32 part = governor->connections_max / (origins ? origins : 1);
    return part > PART_MIN ? part : PART_MIN;
}

/* Connections of a newcomer's origin, and its part. */
struct newcomer {
    i32 own, part;
};

/* Whether a connection is of a crowd, for this newcomer. */
static bool is_of_crowd(const struct vx_rpc_govern *govern,
                        const struct newcomer *newcomer)
{
    i32 count = govern->governor->open_of[govern->origin];
    return count > newcomer->own + 1 && count > newcomer->part;
}

/* How long a connection must have asked nothing to make way; VX_NEVER = it does not. */
static i64 idle_least_ns(const struct vx_rpc_govern *govern,
                         const struct newcomer *newcomer)
{
    if (is_of_crowd(govern, newcomer)) return IDLE_CROWD_NS;
    if (govern->governor->open_of[govern->origin] >= newcomer->own) return IDLE_EQUAL_NS;
    return newcomer->own > newcomer->part ? VX_NEVER : IDLE_LESS_NS;
}

/* Of the larger origin, then with the smaller claim, then without a request for longer. */
static bool goes_first(const struct vx_rpc_govern *a, const struct vx_rpc_govern *b)
{
    const i32 *open_of = a->governor->open_of;
    i32 more = open_of[a->origin] - open_of[b->origin];
    if (more) return more > 0;
    enum idle_claim claims[2] = {idle_claim_of(a), idle_claim_of(b)};
    return claims[0] != claims[1] ? claims[0] < claims[1] : a->asked_ns < b->asked_ns;
}

/* A connection of a crowd that makes way, whatever it is about, or NULL. */
static struct vx_rpc_govern *pressed_for(const struct vx_rpc_governor *governor,
                                         const struct newcomer *newcomer)
{
    struct vx_rpc_govern *going = NULL;
    i32 few = newcomer->part / OWN_FEW_PART;
    if (newcomer->own >= (few > OWN_FEW ? few : OWN_FEW)) return NULL;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next)
        if (!one->cut && is_of_crowd(one, newcomer) && (!going || goes_first(one, going)))
            going = one;
    return going;
}

/* A connection that makes way because it asks nothing, or NULL: of a crowd, or of others. */
static struct vx_rpc_govern *idle_for(const struct vx_rpc_governor *governor,
                                      const struct newcomer *newcomer, bool crowd,
                                      i64 now_ns)
{
    struct vx_rpc_govern *going = NULL;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (one->cut || idle_claim_of(one) == IDLE_WAITS) continue;
        if (is_of_crowd(one, newcomer) != crowd) continue;
        if (now_ns - one->asked_ns < idle_least_ns(one, newcomer)) continue;
        if (going && !goes_first(one, going)) continue;
        if (!vx_rpc_govern_has_spoken(one)) going = one;
    }
    return going;
}

bool vx_rpc_governor_crowded(struct vx_rpc_governor *governor, u16 origin, i64 now_ns)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    i32 own = governor->open_of[origin];
    const struct newcomer newcomer = {.own = own, .part = part_of(governor, own == 0)};
    struct vx_rpc_govern *going = idle_for(governor, &newcomer, true, now_ns);
    if (!going) going = pressed_for(governor, &newcomer);
    if (!going) going = idle_for(governor, &newcomer, false, now_ns);
    if (going) vx_rpc_govern_close(going, VX_RPC_CUT_IDLE);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return going;
}

bool vx_rpc_governor_is_crowd(struct vx_rpc_governor *governor, u16 origin)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    bool crowd = governor->open_of[origin] > part_of(governor, 1);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return crowd;
}
