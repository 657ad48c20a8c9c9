/* rpc_share - what connections share: places for calls.
 *
 * The first client could take all places and keep them, because a call that awaits its
 * message costs its client nothing.  So when all places are taken, the connection that
 * has most of them loses one to a connection with fewer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* A connection may have so many calls in flight, however many connections there are. */
#define CALLS_PART_MIN 16
/* And an origin this part of calls_max. */
#define ORIGIN_LEAST_PART 64
/* The messages of a call beyond calls_max come fast: so much of each is here, and so much came
 * in each microsecond. */
#define FAST_BYTES        (16 << 10)
#define FAST_BYTES_PER_US 1
/* A call has just begun. */
#define FRESH_US 10000
/* An origin with more late calls than this makes room for its own. */
#define LATE_FEW 4
/* So many connections a search for a place finds unheard, and so long that excuses a call. */
#define UNHEARD_MOST 32
#define UNHEARD_NS   (3 * VX_NS_PER_S)
/* The answer of a small call that has not left for so long is not read. */
#define SMALL_UNREAD_NS (10 * VX_NS_PER_MS)
/* A connection with this part of calls_max in flight, or more, gets no reserved place. */
#define CALLS_FEW_PART 128
/* So many of the reserved places a crowd may have: more than its small calls, so that a client
 * with few calls comes through whose own address is the crowd's. */
#define CROWD_RESERVED (VX_RPC_SMALL_RESERVED * 3 / 4)

/* ------- parts ------- */

/* An equal part for each origin that has calls in flight, and for one more; but not less than a few:
 * of 200 addresses with five each all were crowds, and so was a gateway with eight. */
static i32 origin_part(const struct vx_rpc *rpc, const struct vx_rpc_calls *calls)
{
    const i32 part = rpc->options.calls_max / (calls->origins + 1);
    const i32 least = rpc->options.calls_max / ORIGIN_LEAST_PART;
    return part > least ? part : least;
}

/* Whether its origin has that already. */
static bool is_crowd(const struct vx_rpc *rpc, const struct vx_rpc_calls *calls)
{
    return calls->of_origin >= origin_part(rpc, calls);
}

/* ------- making room ------- */

/* Watch and reflection last as long as their clients like, and cost them nothing. */
static bool lasts(const struct vx_rpc_record *record)
{
    enum vx_method_kind kind = vx_method_get(record->call.method)->kind;
    return kind == VX_METHOD_SERVER_STREAM || kind == VX_METHOD_BIDI;
}

/* Whether it waits for its client: to send its message, to read one of many answers, or to end
 * it, as one does that lasts.  One of a crowd also where its message waits for room: 1,000 calls of
 * one address, each with 60 KB that lay in its socket, had one of ten of a gateway's refused. */
static bool may_lose_place(const struct vx_rpc_record *record, bool crowds)
{
    int wire = atomic_load_explicit(&record->wire, memory_order_relaxed);
    if (!record->counted) return false;
    if (wire != VX_RPC_SENDING && wire != VX_RPC_CUT)
        return record->awaits &&
               (lasts(record) || vx_rpc_govern_is_due(vx_rpc_place_of(record), crowds));
    return vx_rpc_govern_has(vx_rpc_place_of(record), VX_RPC_SHARE_CALLS) >
           CALLS_PART_MIN;
}

/* A record that may make room, and who has calls. */
struct room {
    struct vx_rpc_record *going;
    struct vx_rpc_calls calls;
};

/* How many calls of its kind its connection and its origin have that wait for their client. */
struct idle {
    i32 own, of_origin;
};

static struct idle idle_of(const struct vx_rpc_record *record,
                           const struct vx_rpc_calls *calls)
{
    return lasts(record) ? (struct idle){calls->lasting, calls->lasting_of_origin}
                         : (struct idle){calls->awaited, calls->awaited_of_origin};
}

/* Whether `one` makes room before `other`: one that lasts is the last; then its origin has more idle
 * calls, or as many and its connection has more, or it is older.  By connections alone 1,088
 * Watches on as many connections left the only two of another client to go. */
static bool goes_before(const struct room *one, const struct room *other)
{
    if (!other->going) return true;
    if (lasts(one->going) != lasts(other->going)) return lasts(other->going);
    const struct idle a = idle_of(one->going, &one->calls);
    const struct idle b = idle_of(other->going, &other->calls);
    if (a.of_origin != b.of_origin) return a.of_origin > b.of_origin;
    if (a.own != b.own) return a.own > b.own;
    return one->going->call.arrived_ns < other->going->call.arrived_ns;
}

static bool is_older(const struct room *one, const struct room *other)
{
    if (!other->going) return true;
    if (lasts(one->going) != lasts(other->going)) return lasts(other->going);
    return one->going->call.arrived_ns < other->going->call.arrived_ns;
}

/* Who wants a place, whether only a crowd's calls are to make room for it, and the connections of which
 * something is unread. */
struct want {
    struct vx_rpc_record *record;
    struct vx_rpc_calls own;
    bool crowds;
    i32 unheard_count;
    u64 unheard[UNHEARD_MOST];
};

/* Whether a call of `of` may make room: one of a crowd for who is of none, never the other way
 * round; else where `more` says so. */
static bool gives(const struct want *want, const struct vx_rpc_calls *of, bool more)
{
    const struct vx_rpc *rpc = want->record->rpc;
    const bool crowd = is_crowd(rpc, of), differs = crowd != is_crowd(rpc, &want->own);
    return differs || want->crowds ? crowd && differs : more;
}

/* Whether it has more idle calls of its kind than the connection that wants a place, or its origin,
 * would have with one more. */
static bool idles_more(const struct want *want, const struct room *room)
{
    const struct vx_peer *peer = &want->record->call.peer;
    const struct idle own = idle_of(room->going, &want->own);
    const struct idle has = idle_of(room->going, &room->calls);
    return room->going->call.peer.origin == peer->origin
               ? has.own > own.own + 1
               : has.of_origin > own.of_origin + 1;
}

static bool has_waited(const struct vx_rpc_record *record)
{
    return vx_clock_ns() - record->call.arrived_ns > VX_RPC_AWAIT_NS;
}

/* Whether it is a call that has waited for its client for long.  First whether it counts: one that
 * does not may be armed meanwhile. */
static bool is_late(const struct vx_rpc_record *record)
{
    return record->counted && record->awaits && !lasts(record) && has_waited(record) &&
           may_lose_place(record, false);
}

static bool was_unheard(const struct want *want, u64 connection)
{
    for (i32 i = 0; i < want->unheard_count; i++)
        if (want->unheard[i] == connection) return true;
    return false;
}

/* Whether what its client owes is not there: it may be, and we are late.  A call of the good client that
 * was older than others made room while the server was busy.  Who goes on sending has always
 * something there, so old calls are not excused; and the system is asked of few connections, since
 * that is under the lock. */
static bool is_heard(struct want *want, const struct room *room)
{
    const u64 connection = room->going->call.peer.connection;
    if (vx_clock_ns() - room->going->call.arrived_ns > UNHEARD_NS) return true;
    if (was_unheard(want, connection) || want->unheard_count == UNHEARD_MOST)
        return false;
    if (!vx_rpc_govern_is_unheard(vx_rpc_place_of(room->going))) return true;
    want->unheard[want->unheard_count++] = connection;
    return false;
}

/* Under the lock.  A late call that makes room, with a reference; or NULL: of an origin with more
 * calls that wait for their client than the other one has late ones, or, if that has many, of its
 * own.  A crowd, too, may have such a place, and who is over its part: 54 addresses with 15 begun
 * calls each had three quarters of all places and were no crowd; a gateway with 16 was one, and
 * had every third call refused. */
static struct vx_rpc_record *room_late(struct want *want)
{
    struct vx_rpc *rpc = want->record->rpc;
    struct room others = {NULL, {0}}, own = others;
    i32 late = 0;
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct room room = {&rpc->records[i], {0}};
        if (!is_late(room.going)) continue;
        const bool is_own =
            room.going->call.peer.origin == want->record->call.peer.origin;
        struct room *first = is_own ? &own : &others;
        late += is_own;
        room.calls = vx_rpc_govern_calls(vx_rpc_place_of(room.going));
        if (goes_before(&room, first) && is_heard(want, &room)) *first = room;
    }
    struct vx_rpc_record *going = NULL;
    if (others.going && others.calls.awaited_of_origin > late + 1)
        going = others.going;
    else if (late > LATE_FEW)
        going = own.going;
    return going && vx_rpc_record_hold(going) ? going : NULL;
}

/* Under the lock.  An idle record that makes room, with a reference; or NULL.  It is of another
 * connection, which may not be known yet. */
static struct vx_rpc_record *room_idle(struct want *want)
{
    struct vx_rpc *rpc = want->record->rpc;
    const u64 connection = want->record->call.peer.connection;
    struct room first = {NULL, {0}}, oldest = first;
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct room room = {&rpc->records[i], {0}};
        if (!may_lose_place(room.going, want->crowds)) continue;
        if (room.going->call.peer.connection == connection) continue;
        room.calls = vx_rpc_govern_calls(vx_rpc_place_of(room.going));
        if (want->crowds && !gives(want, &room.calls, false)) continue;
        if (goes_before(&room, &first)) first = room;
        if (is_older(&room, &oldest) && is_heard(want, &room)) oldest = room;
    }
    if (!first.going) return NULL;
    struct vx_rpc_record *going = NULL;
    if (gives(want, &first.calls, idles_more(want, &first)))
        going = first.going;
    else if (oldest.going && gives(want, &oldest.calls, has_waited(oldest.going)))
        going = oldest.going;
    return going && vx_rpc_record_hold(going) ? going : NULL;
}

void vx_rpc_room_make(struct vx_rpc_record *going, const char *text)
{
    atomic_fetch_add_explicit(&going->rpc->refused_full, 1, memory_order_relaxed);
    grpc_call_cancel_with_status(going->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, text, NULL);
    vx_rpc_record_unref(going);
}

/* From so many calls in flight on, no connection gets more than its part. */
static i32 calls_crowded(const struct vx_rpc *rpc)
{
    return rpc->options.calls_max - rpc->options.calls_max / 4;
}

/* An equal part for each connection that has calls in flight, and for one more; or, where that
 * is more, for each of those of its origin the same of the origin's part. */
static i32 calls_part(const struct vx_rpc *rpc, const struct vx_rpc_calls *calls)
{
    i32 part = rpc->options.calls_max / (calls->active + 1);
    i32 of_origin = origin_part(rpc, calls) / (calls->active_of_origin + 1);
    if (part < of_origin) part = of_origin;
    return part > CALLS_PART_MIN ? part : CALLS_PART_MIN;
}

/* Without those that are each stream's own place, so that they take no other's. */
static i32 calls_of(const struct vx_rpc *rpc)
{
    return rpc->in_flight - rpc->in_flight_spare;
}

/* A call may have a place while fewer than this are taken; 0: only that of a late one.
 * The places beyond calls_max are for small calls, so that a probe is answered, and for
 * connections with few calls in flight: the fewer, the more places.  Some are not for a crowd: 1,000
 * connections of one address with a call each had all. */
static i32 calls_limit(const struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    enum vx_method_kind kind = vx_method_get(record->call.method)->kind;
    /* Nobody reads the answer to a call whose connection has ended: thousands of them may
     * still arrive, and no share counts them. */
    if (!vx_rpc_govern_lives(vx_rpc_place_of(record))) return calls_crowded(rpc);
    const struct vx_rpc_calls calls = vx_rpc_govern_calls(vx_rpc_place_of(record));
    const bool crowd = is_crowd(rpc, &calls), others = calls.origins > 1;
    i32 small = kind == VX_METHOD_UNARY ? VX_RPC_SMALL_RESERVED / 2 : 0;
    i64 taken =
        (i64)calls.own * VX_RPC_SMALL_RESERVED * CALLS_FEW_PART / rpc->options.calls_max;
    i32 few = taken < VX_RPC_SMALL_RESERVED ? VX_RPC_SMALL_RESERVED - (i32)taken : 0;
    if (crowd && few > CROWD_RESERVED) few = CROWD_RESERVED;
    if (crowd) small /= 2;
    if (calls_of(rpc) >= calls_crowded(rpc) &&
        ((crowd && others) || calls.own >= calls_part(rpc, &calls)))
        return 0;
    return rpc->options.calls_max + (few > small ? few : small);
}

/* Whether its answer is not read.  A small one mostly leaves at once. */
static bool is_unread(const struct vx_rpc_record *record, i64 now_ns)
{
    int wire = atomic_load_explicit(&record->wire, memory_order_relaxed);
    if (!record->counted || (wire != VX_RPC_SENDING && wire != VX_RPC_CUT)) return false;
    const bool small = vx_method_get(record->call.method)->kind == VX_METHOD_UNARY;
    const i64 most_ns = small ? SMALL_UNREAD_NS : VX_RPC_AWAIT_NS;
    return now_ns - atomic_load_explicit(&record->wire_since_ns, memory_order_relaxed) >=
           most_ns;
}

/* Whether the origin of `one` has more calls in flight than that of `other`, or then its
 * connection, or it is older. */
static bool has_more(const struct room *one, const struct room *other)
{
    if (!other->going) return true;
    if (one->calls.of_origin != other->calls.of_origin)
        return one->calls.of_origin > other->calls.of_origin;
    if (one->calls.own != other->calls.own) return one->calls.own > other->calls.own;
    return one->going->call.arrived_ns < other->going->call.arrived_ns;
}

/* Under the lock.  One whose answer is not read, with a reference; or NULL: of a crowd, or for a
 * connection with few calls in flight of one with more.  Without it 156 connections with 16 such
 * calls or one each had all places, the last ones, too; by connections alone 1,000 of one
 * address with two each gave none to a client with one. */
static struct vx_rpc_record *room_unread(const struct want *want)
{
    struct vx_rpc *rpc = want->record->rpc;
    const i64 now_ns = vx_clock_ns();
    const i32 own = want->own.own;
    const bool few = own < calls_part(rpc, &want->own);
    struct room first = {NULL, {0}};
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct room room = {&rpc->records[i], {0}};
        if (!is_unread(room.going, now_ns)) continue;
        room.calls = vx_rpc_govern_calls(vx_rpc_place_of(room.going));
        if (!gives(want, &room.calls, few && room.calls.own > own + 1)) continue;
        if (has_more(&room, &first)) first = room;
    }
    return first.going && vx_rpc_record_hold(first.going) ? first.going : NULL;
}

/* Whether the rest of the message may be on its way: it comes fast, or its call, the only one of
 * its connection, has just begun. */
static bool may_come(const struct vx_rpc_record *record, const struct vx_rpc_calls *calls,
                     i64 now_ns)
{
    const i32 has = calls->own;
    i64 came = vx_rpc_govern_came(vx_rpc_place_of(record));
    i64 age_us = (now_ns - record->call.arrived_ns) / VX_NS_PER_US;
    if (has == 1 && age_us < FRESH_US) return true;
    return came >= has * FAST_BYTES && came >= has * age_us * FAST_BYTES_PER_US;
}

/* Under the lock.  For a call that is entitled to a place beyond calls_max, and all are taken:
 * one there whose message is not whole, of a crowd or of a connection with as many calls in
 * flight, with a reference; or NULL.  Halves of messages have no time there: 64 of them kept
 * everybody out for as long as they were halves. */
static struct vx_rpc_record *room_beyond(const struct want *want)
{
    struct vx_rpc *rpc = want->record->rpc;
    const i64 now_ns = vx_clock_ns();
    struct room first = {NULL, {0}};
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct room room = {&rpc->records[i], {0}};
        if (!room.going->counted || !room.going->beyond || !room.going->awaits) continue;
        /* Only now: the place of one that is not counted may be written meanwhile. */
        const struct vx_rpc_place place = vx_rpc_place_of(room.going);
        room.calls = vx_rpc_govern_calls(place);
        if (!gives(want, &room.calls, room.calls.own >= want->own.own)) continue;
        if (!vx_rpc_govern_is_behind(place) || may_come(room.going, &room.calls, now_ns))
            continue;
        if (has_more(&room, &first)) first = room;
    }
    return first.going && vx_rpc_record_hold(first.going) ? first.going : NULL;
}

/* Under the lock. */
void vx_rpc_call_count(struct vx_rpc_record *record, bool counts)
{
    if (record->counted == counts) return;
    struct vx_rpc *rpc = record->rpc;
    i32 more = counts ? 1 : -1;
    record->counted = counts;
    if (counts) record->beyond = rpc->in_flight >= rpc->options.calls_max;
    rpc->in_flight += more;
    if (record->parent && record->beyond) rpc->in_flight_spare += more;
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_CALLS, more);
}

void vx_rpc_refused_count(struct vx_rpc_record *record, bool counts)
{
    bool counted = record->counted || record->stream.open;
    if (record->refused == counts || (counts && counted)) return;
    record->refused = counts;
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_REFUSED, counts ? 1 : -1);
}

/* Under the lock.  The record that makes room for `record`, whose calls_limit is `limit`, with a
 * reference; or NULL.  First a late one; then one of a crowd, whatever it waits for: an honest
 * gateway has many calls whose messages are on their way. */
static struct vx_rpc_record *room_find(struct vx_rpc_record *record, i32 limit)
{
    const struct vx_rpc *rpc = record->rpc;
    struct want want = {.record = record,
                        .own = vx_rpc_govern_calls(vx_rpc_place_of(record)),
                        .crowds = true};
    if (limit && calls_of(rpc) < rpc->options.calls_max) return NULL;
    const bool none = limit > rpc->options.calls_max && calls_of(rpc) >= limit;
    struct vx_rpc_record *going = room_late(&want);
    for (i32 turn = 0; limit && turn < 2 && !going; turn++) {
        want.crowds = turn == 0;
        if (want.crowds && is_crowd(rpc, &want.own)) continue;
        going = room_idle(&want);
        if (!going) going = room_unread(&want);
        if (!going && none) going = room_beyond(&want);
    }
    return going;
}

bool vx_rpc_record_admit(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    pthread_mutex_lock(&rpc->lock);
    i32 limit = calls_limit(record);
    struct vx_rpc_record *going = room_find(record, limit);
    if (going) vx_rpc_call_count(going, false);
    if (going) vx_rpc_refused_count(going, true);
    /* Who has taken another's place needs none of its own. */
    bool admitted = going || calls_of(rpc) < limit;
    if (admitted) vx_rpc_call_count(record, true);
    if (admitted && lasts(record)) vx_rpc_await_begin(record);
    pthread_mutex_unlock(&rpc->lock);
    if (going)
        vx_rpc_room_make(going,
                         "the server is at its limit of calls in flight (calls_max), and "
                         "this call was idle; try again later");
    return admitted;
}

/* ------- messages that are awaited ------- */

static enum vx_rpc_share await_share(const struct vx_rpc_record *record)
{
    return lasts(record) ? VX_RPC_SHARE_IDLE : VX_RPC_SHARE_AWAITED;
}

void vx_rpc_await_begin(struct vx_rpc_record *record)
{
    record->awaits = true;
    vx_rpc_govern_share(vx_rpc_place_of(record), await_share(record), 1);
}

void vx_rpc_await_end(struct vx_rpc_record *record)
{
    if (!record->awaits) return;
    record->awaits = false;
    vx_rpc_govern_share(vx_rpc_place_of(record), await_share(record), -1);
}

void vx_rpc_receive_begin(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    pthread_mutex_lock(&rpc->lock);
    vx_rpc_await_begin(record);
    rpc->receiving++;
    pthread_mutex_unlock(&rpc->lock);
}

void vx_rpc_receive_end(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    pthread_mutex_lock(&rpc->lock);
    vx_rpc_await_end(record);
    rpc->receiving--;
    pthread_mutex_unlock(&rpc->lock);
}
