/* rpc_stream_room - places for streams, and which one goes when all are taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/clock.h"

/* A stream that has had nothing to do for so long may lose its place; sooner, when no request
 * of it was ever answered. */
#define STREAM_IDLE_NS  (5 * VX_NS_PER_S)
#define STREAM_FRESH_NS VX_NS_PER_S
/* After so long also for an origin that has more of them than its own. */
#define STREAM_LEFT_NS (60 * VX_NS_PER_S)
/* The same for one whose answer is not read. */
#define STREAM_UNREAD_NS (10 * VX_NS_PER_S)

/* Of a connection with more than its part a stream goes at once: one connection whose answers
 * did not get through its windows had all of them for as long as send_ns_max, and then
 * again. */
static bool has_more(const struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    i32 streaming = vx_rpc_governor_streaming(vx_rpc_accept_governor(rpc->accept));
    i32 part = rpc->options.streams_max / (streaming + 1);
    return vx_rpc_govern_has(vx_rpc_place_of(record), VX_RPC_SHARE_STREAMS) >
           (part > 1 ? part : 1);
}

/* A stream without a request may be in the middle of a message: gRPC does not tell.  One that
 * hardly comes is none. */
static i64 stream_idle_ns(const struct vx_rpc_record *record)
{
    struct vx_rpc_place place = vx_rpc_place_of(record);
    bool behind = vx_rpc_govern_is_behind(place) && !vx_rpc_govern_is_due(place, false);
    if (has_more(record)) return VX_RPC_AWAIT_NS;
    return record->stream.served || behind ? STREAM_IDLE_NS : STREAM_FRESH_NS;
}

/* Whether it is idle, or its answer is not read. */
static bool may_lose_stream(const struct vx_rpc_record *record)
{
    const struct vx_rpc_stream *stream = &record->stream;
    if (!stream->open || !stream->started) return false;
    i64 now_ns = vx_clock_ns();
    if (!stream->first) return now_ns - stream->active_ns > stream_idle_ns(record);
    i64 since_ns = atomic_load_explicit(&record->wire_since_ns, memory_order_relaxed);
    return atomic_load_explicit(&record->wire, memory_order_relaxed) != VX_RPC_IDLE &&
           now_ns - since_ns > (has_more(record) ? VX_RPC_AWAIT_NS : STREAM_UNREAD_NS);
}

static bool may_lose_unserved(const struct vx_rpc_record *record)
{
    return !record->stream.served && may_lose_stream(record);
}

/* Whether its origin has more than its part. */
static bool is_over(const struct vx_rpc_record *record)
{
    return record->stream.open && record->stream.started &&
           !vx_rpc_govern_has_part(vx_rpc_place_of(record),
                                   record->rpc->options.streams_max);
}

/* The same, and it is idle, or nothing of it was ever answered well. */
static bool may_lose_over(const struct vx_rpc_record *record)
{
    return is_over(record) && (!record->stream.served || may_lose_stream(record));
}

/* It was answered a moment ago, and its origin has no more than its part: others have no
 * claim to it.  An origin with four busy streams lost three of them to 64 addresses with
 * streams that were never answered. */
static bool is_busy(const struct vx_rpc_record *record)
{
    const struct vx_rpc_stream *stream = &record->stream;
    return stream->served && vx_clock_ns() - stream->active_ns < STREAM_FRESH_NS &&
           vx_rpc_govern_has_part(vx_rpc_place_of(record),
                                  record->rpc->options.streams_max);
}

/* Under the lock.  For a stream from an origin that has fewer of them than another: one of the
 * other's, with a reference; or NULL.  It is between two requests, and has been for longest.
 * 70 connections of one client with one stream each had all of them for as long as each sent
 * something now and then. */
static struct vx_rpc_record *room_crowd(const struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    i32 most = vx_rpc_govern_streams_from(vx_rpc_place_of(record)) + 2;
    i64 until_ns = vx_clock_ns() - VX_RPC_AWAIT_NS;
    struct vx_rpc_record *going = NULL;
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct vx_rpc_record *one = &rpc->records[i];
        const struct vx_rpc_stream *stream = &one->stream;
        if (!stream->open || !stream->started || stream->first) continue;
        struct vx_rpc_place place = vx_rpc_place_of(one);
        if (stream->active_ns > until_ns && vx_rpc_govern_is_behind(place)) continue;
        if (is_busy(one)) continue;
        i32 has = vx_rpc_govern_streams_from(place);
        bool shorter = going && stream->active_ns >= going->stream.active_ns;
        if (has < most || (has == most && shorter)) continue;
        most = has;
        going = one;
    }
    return going && vx_rpc_record_hold(going) ? going : NULL;
}

/* Whether `a` goes before `b`: its origin has more streams, then its connection, then it is
 * older. */
static bool goes_before(const struct vx_rpc_record *a, const struct vx_rpc_record *b)
{
    struct vx_rpc_place a_at = vx_rpc_place_of(a), b_at = vx_rpc_place_of(b);
    i32 more = vx_rpc_govern_streams_from(a_at) - vx_rpc_govern_streams_from(b_at);
    if (more) return more > 0;
    more = vx_rpc_govern_has(a_at, VX_RPC_SHARE_STREAMS) -
           vx_rpc_govern_has(b_at, VX_RPC_SHARE_STREAMS);
    return more ? more > 0 : a->call.arrived_ns < b->call.arrived_ns;
}

/* Under the lock.  The first of those that may go and whose origin has `least` streams, or
 * which nobody has used for STREAM_LEFT_NS, with a reference; or NULL.  None of the
 * connection's own. */
static struct vx_rpc_record *room_stream(const struct vx_rpc_record *record,
                                         bool (*may)(const struct vx_rpc_record *),
                                         i32 least)
{
    struct vx_rpc *rpc = record->rpc;
    struct vx_rpc_record *going = NULL;
    i64 left_ns = vx_clock_ns() - STREAM_LEFT_NS;
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct vx_rpc_record *one = &rpc->records[i];
        if (!may(one)) continue;
        if (one->call.peer.connection == record->call.peer.connection) continue;
        bool left = !one->stream.first && one->stream.active_ns < left_ns;
        if (!left && vx_rpc_govern_streams_from(vx_rpc_place_of(one)) < least) continue;
        if (!going || goes_before(one, going)) going = one;
    }
    return going && vx_rpc_record_hold(going) ? going : NULL;
}

/* Under the lock.  The one that makes room, with a reference; or NULL.  For an origin that has no
 * more than its part one of an origin that has more, a busy one if nobody has an idle one: 256
 * connections of one address with an unread answer each, begun again every 8 s, had all of
 * them. */
static struct vx_rpc_record *room_find(const struct vx_rpc_record *record)
{
    const struct vx_rpc_place place = vx_rpc_place_of(record);
    const i32 own = vx_rpc_govern_streams_from(place);
    const bool has_part = vx_rpc_govern_has_part(place, record->rpc->options.streams_max);
    struct vx_rpc_record *going = NULL;
    if (has_part) going = room_stream(record, may_lose_over, 0);
    /* None of an origin with fewer streams: a crowd of one address took every stream of others
     * that paused for 5 s, or that had asked nothing for 1 s. */
    if (!going) going = room_stream(record, may_lose_unserved, own);
    if (!going && has_part) going = room_stream(record, is_over, 0);
    if (!going) going = room_crowd(record);
    return going ? going : room_stream(record, may_lose_stream, own);
}

bool vx_rpc_stream_admit(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    pthread_mutex_lock(&rpc->lock);
    const bool full = rpc->streams >= rpc->options.streams_max;
    struct vx_rpc_record *going = full ? room_find(record) : NULL;
    if (going) vx_rpc_stream_uncount(going);
    if (going) vx_rpc_refused_count(going, true);
    bool admitted = rpc->streams < rpc->options.streams_max;
    record->stream = (struct vx_rpc_stream){
        .open = admitted, .strict = record->stream.strict, .active_ns = vx_clock_ns()};
    record->stream.last = &record->stream.first;
    if (admitted) {
        rpc->streams++;
        record->stream.unheard = true;
        vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_STREAMS, 1);
        vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_UNHEARD, 1);
    }
    pthread_mutex_unlock(&rpc->lock);
    if (going)
        vx_rpc_room_make(going,
                         "the server is at its limit of open streams (streams_max), and "
                         "this one was idle or not read; try again later, or use "
                         "ModelInfer");
    return admitted;
}

/* Under the lock. */
static void heard(struct vx_rpc_record *record)
{
    if (!record->stream.unheard) return;
    record->stream.unheard = false;
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_UNHEARD, -1);
}

void vx_rpc_stream_heard(struct vx_rpc_record *record)
{
    pthread_mutex_lock(&record->rpc->lock);
    heard(record);
    pthread_mutex_unlock(&record->rpc->lock);
}

void vx_rpc_stream_served(struct vx_rpc_record *record)
{
    if (record->stream.served || !record->stream.open) return;
    record->stream.served = true;
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_SERVED, 1);
}

void vx_rpc_stream_uncount(struct vx_rpc_record *record)
{
    heard(record);
    if (!record->stream.open) return;
    record->stream.open = false;
    record->rpc->streams--;
    if (record->stream.served)
        vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_SERVED, -1);
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_STREAMS, -1);
}
