/* rpc_govern_hidden - calls that gRPC keeps and has not reported: small ones, whose message has
 * not come.  15 bytes each on the wire, 184,000 of them took 2 GB.
 *
 * What ends such a call is a message that its client sends after it, maybe after the headers
 * of a thousand others.  So a connection is never stopped for long because of them: beyond
 * what all may have one after the other reads on, as the speaker, until it has no more than
 * its part or nothing to say.  Who had its say and kept them all the same is closed when
 * there are too many.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* Of all connections together, some 11 KB each.  A connection waits only beyond them, and
 * only with more than its part of them, of an origin with more than its own: by connections
 * alone 600 of one address with 3 each kept the bursts of others waiting for 13 s. */
#define HIDDEN_ALL      1024
#define HIDDEN_PART_MIN 2
/* And of one: gRPC tells a client to open fewer streams. */
#define HIDDEN_ONE (VX_H2_STREAMS_MAX / 2)
/* A speaker without anything to read loses its turn after so long, and any of them while
 * others wait. */
#define SPEAKER_DRY_NS (20 * VX_NS_PER_MS)
#define SPEAKER_NS     (200 * VX_NS_PER_MS)
/* One that had its say is closed when no message of it has ended for so long, sooner while
 * there are so many that nobody gets a turn. */
#define HIDDEN_NS      (VX_NS_PER_S / 2)
#define HIDDEN_FULL_NS (VX_NS_PER_S / 10)

/* So many of all connections, and so many of one, take no notice. */
#define MUTE_ALL   64
#define MUTE_CALLS 2
/* When there are too many, so large a part of them ends from check to check. */
#define MUTE_PART 8

static i64 part_of(const struct vx_rpc_governor *governor)
{
    i64 part = HIDDEN_ALL / (governor->live_count + 1);
    return part > HIDDEN_PART_MIN ? part : HIDDEN_PART_MIN;
}

static i64 origin_has(const struct vx_rpc_govern *govern)
{
    return govern->governor->hidden_of[govern->origin];
}

/* Whether it has more than its part, and its origin too. */
static bool has_more(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return govern->hidden > part_of(governor) &&
           origin_has(govern) > HIDDEN_ALL / (governor->origins_hiding + 1);
}

/* No more turns: those that have had one must end their calls, or are closed. */
static bool is_full(const struct vx_rpc_governor *governor)
{
    i64 least = (i64)governor->live_count * HIDDEN_PART_MIN;
    return governor->hidden >= HIDDEN_ALL + (least > HIDDEN_ALL ? least : HIDDEN_ALL);
}

/* Large headers count as calls: those of calls whose message is not whole, gRPC knows them or
 * not, and those that have not ended. */
static i64 headers_of(const struct vx_h2_meter *meter)
{
    i64 open = meter->block_open ? (i64)meter->hpack.decoded : 0;
    return meter->heavy + open / VX_H2_HEAVY_BYTES;
}

/* gRPC reports an inference and a stream at once. */
static i64 hidden_of(const struct vx_rpc_govern *govern)
{
    const i32 *shares = govern->shares;
    i64 begun = govern->meter.unfinished - shares[VX_RPC_SHARE_STREAMS];
    i64 awaited = shares[VX_RPC_SHARE_AWAITED] - (begun > 0 ? begun : 0);
    i64 known = (awaited > 0 ? awaited : 0) + shares[VX_RPC_SHARE_IDLE] +
                shares[VX_RPC_SHARE_UNHEARD];
    i64 hidden = govern->meter.silent - known;
    return (hidden > 0 ? hidden : 0) + headers_of(&govern->meter);
}

/* So many more calls of it are on their way to us. */
static void coming_add(const struct vx_rpc_govern *govern, i64 more)
{
    i64 *coming = &govern->governor->coming_of[govern->origin], before = *coming;
    *coming += more;
    govern->governor->coming += more;
    govern->governor->origins_coming += (*coming > 0) - (before > 0);
}

void vx_rpc_govern_unseen(struct vx_rpc_govern *govern, i64 more)
{
    if (more < -govern->unseen) more = -govern->unseen;
    govern->unseen += more;
    coming_add(govern, more);
}

bool vx_rpc_govern_hides(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return governor->hidden >= HIDDEN_ALL && governor->speaker != govern &&
           has_more(govern);
}

bool vx_rpc_govern_hidden_few(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return governor->hidden < HIDDEN_ALL / 2 || governor->speaker == govern;
}

/* Its turn is over; it has ended a message in it, or not. */
static void speaker_end(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *speaker = governor->speaker;
    bool vain = speaker->meter.finished == governor->speaker_finished;
    speaker->vain_turns = vain ? speaker->vain_turns + 1 : 0;
    speaker->hushed_ns = now_ns;
    governor->speaker = NULL;
}

static void settled_set(struct vx_rpc_govern *govern, i64 settled)
{
    if (settled > govern->meter.silent) settled = govern->meter.silent;
    coming_add(govern, govern->settled - settled);
    govern->settled = settled;
}

static void hidden_set(struct vx_rpc_govern *govern, i64 hidden)
{
    struct vx_rpc_governor *governor = govern->governor;
    i64 *of_origin = &governor->hidden_of[govern->origin], before = *of_origin;
    i64 more = hidden - govern->hidden;
    govern->hidden = hidden;
    governor->hidden += more;
    *of_origin += more;
    governor->origins_hiding += (*of_origin > 0) - (before > 0);
}

void vx_rpc_govern_hidden_count(struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    i64 hidden = hidden_of(govern), before = govern->hidden, part = part_of(governor);
    hidden_set(govern, hidden);
    if (hidden < govern->hidden_least) govern->hidden_least = hidden;
    if (hidden < govern->settled) settled_set(govern, hidden);
    if (hidden > HIDDEN_ONE) vx_rpc_govern_close(govern, VX_RPC_CUT_STREAMS);
    if (hidden > part && before <= part) govern->heard_ns = vx_clock_ns();
    if (hidden > part) return;
    govern->vain_turns = 0;
    if (governor->speaker != govern) return;
    governor->speaker = NULL;
    if (governor->waiting) governor->wakeup(governor->context);
}

void vx_rpc_govern_hidden_settle(struct vx_rpc_govern *govern)
{
    settled_set(govern, govern->hidden_least);
    govern->hidden_least = govern->hidden;
}

void vx_rpc_govern_hidden_end(struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    hidden_set(govern, 0);
    settled_set(govern, 0);
    if (governor->speaker == govern) governor->speaker = NULL;
}

bool vx_rpc_govern_is_mute(const struct vx_rpc_govern *govern)
{
    i64 all = govern->governor->hidden, silent = govern->meter.silent;
    i64 hidden = govern->hidden < silent ? govern->hidden : silent;
    i64 ended = (i64)(govern->meter.finished - govern->finished_seen);
    if (all < MUTE_ALL || hidden < MUTE_CALLS) return false;
    return all >= HIDDEN_ALL ? ended * MUTE_PART < hidden : !ended;
}

bool vx_rpc_govern_speaks_before(const struct vx_rpc_govern *a,
                                 const struct vx_rpc_govern *b)
{
    return a->vain_turns != b->vain_turns ? a->vain_turns < b->vain_turns
                                          : a->hushed_ns < b->hushed_ns;
}

/* It has more than its part, has had its say, and is silent. */
static bool has_spoken_in_vain(const struct vx_rpc_govern *govern)
{
    return !govern->cut && govern != govern->governor->speaker && has_more(govern) &&
           (govern->vain_turns || !vx_rpc_govern_has_spoken(govern));
}

/* Whether its origin hides more, or as many and it more itself. */
static bool hides_more(const struct vx_rpc_govern *one, const struct vx_rpc_govern *other)
{
    if (origin_has(one) != origin_has(other)) return origin_has(one) > origin_has(other);
    return one->hidden > other->hidden;
}

/* Closes the connection that has most, of the origin that has most, and returns whether there
 * is one to wait for. */
static bool silence(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *most = NULL;
    i64 least_ns = is_full(governor) ? HIDDEN_FULL_NS : HIDDEN_NS;
    bool any = false;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (most && !hides_more(one, most)) continue;
        if (!has_spoken_in_vain(one)) continue;
        any = true;
        if (now_ns - one->heard_ns >= least_ns) most = one;
    }
    if (most) vx_rpc_govern_close(most, VX_RPC_CUT_LATE);
    return any;
}

void vx_rpc_govern_speaker_check(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *speaker = governor->speaker;
    if (!speaker || now_ns - governor->speaker_ns < SPEAKER_DRY_NS) return;
    if (!vx_rpc_govern_has_spoken(speaker) || speaker->cut ||
        now_ns - governor->speaker_ns >= SPEAKER_NS)
        speaker_end(governor, now_ns);
}

void vx_rpc_govern_speaker_give(struct vx_rpc_governor *governor,
                                struct vx_rpc_govern *next, i64 now_ns)
{
    bool any = silence(governor, now_ns);
    if (governor->speaker || (any && is_full(governor))) return;
    governor->speaker = next;
    governor->speaker_ns = next->heard_ns = now_ns;
    governor->speaker_finished = next->meter.finished;
    vx_rpc_govern_wake(next);
}
