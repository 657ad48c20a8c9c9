/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

#include <poll.h>
#include <sys/ioctl.h>

#define LOOK_NS (VX_NS_PER_S / 2)
/* How often a connection that waits for calls or work is checked. */
#define WAIT_NS (10 * VX_NS_PER_MS)
/* An owner that has nothing to read after so long loses its turn to the next one. */
#define OWNER_NS (5 * VX_NS_PER_MS)
/* In the order of turns, so much is left of any message at least, and of a connection's at most; so
 * many turns that one let pass count, and so many milliseconds of a wait.  The product of the most
 * of each and of 65,536 connections is less than 2^63. */
#define REST_MIN      (64 << 10)
#define REST_MAX      ((i64)511 << 20)
#define WAITED_MAX_MS 30000
#define PASSES_MAX    7
/* What lies beyond the room and brings nothing for so long makes way for another. */
#define BEYOND_DRY_NS (20 * VX_NS_PER_MS)
/* While others wait for its room, a connection brings so many bytes from check to check,
 * or is closed after so many checks. */
#define STILL_BYTES (128 << 10)
#define STILL_LOOKS 6
/* While nothing else may go on, the message beyond the room has so many checks left at the
 * rate at which it comes: 10 s.  If next to nothing comes, it is closed sooner. */
#define BEYOND_LOOKS 20
/* A connection that brings less from check to check has no claim to its place. */
#define SLOW_BYTES (8 << 10)
/* A connection is a flood after so many checks in which it is held up for calls or work,
 * and most of its calls bring no message or its work is used up. */
#define FLOOD_LOOKS 3
#define FLOOD_CALLS 100 /* per check */
/* A connection that costs so much work from check to check while it reads none of our
 * answers is closed after so many checks. */
#define UNREAD_WORK  100
#define UNREAD_LOOKS 8
/* A connection is closed after so many checks in which it waits for messages to be taken,
 * and none is: its client reads no answer. */
#define UNTAKEN_LOOKS 8
/* A connection is closed after so many checks in which it waits for the call of a large
 * message to arrive: no call of it takes one. */
#define UNASKED_LOOKS 10
/* A connection is closed after so many checks in which several calls of it await their
 * message and none gets one. */
#define MUTE_LOOKS 10
/* A connection is closed after so many checks within the preface or one header block. */
#define BROKEN_LOOKS 40
/* While records are scarce, a connection is closed that has had refused calls and read
 * nothing for so long; then nothing is closed while gRPC ends the calls. */
#define REFUSED_NS (VX_NS_PER_S / 4)
#define SPARE_NS   (VX_NS_PER_S / 10)
/* How many records are set free at a time. */
#define SPARE_CALLS 64
/* Added to receive_ns_max: the call's own limit comes first; its status has a
 * sentence. */
#define LATE_NS (5 * VX_NS_PER_S)

/* ------- iterations of the accept thread ------- */

bool vx_rpc_govern_has_spoken(const struct vx_rpc_govern *govern)
{
    struct pollfd ask = {.fd = govern->place.descriptor, .events = POLLIN};
    return (govern->session && vx_tls_pending(govern->session)) || poll(&ask, 1, 0) > 0;
}

/* gRPC reads once more after the last byte.  A connection that waits for room may
 * therefore have sent nothing more; then we wait for the client.  gRPC opens its window within
 * milliseconds, if its client reads. */
bool vx_rpc_govern_waits_for_us(const struct vx_rpc_govern *govern)
{
    if (govern->waits == VX_RPC_WAIT_WINDOW) return false;
    bool full = govern->waits == VX_RPC_WAIT_BYTES || govern->waits == VX_RPC_WAIT_HIDDEN;
    if (!full) return govern->waits != VX_RPC_WAIT_NONE;
    return vx_rpc_govern_has_spoken(govern);
}

/* What it asks for: less if little is left of its messages, it used its turns, and its origin has
 * few connections.  Else 800 connections of one address with a byte each had 800 turns, one after
 * the other, before an honest client had one. */
static i64 asks_for(const struct vx_rpc_govern *govern)
{
    i32 passes = govern->passes < PASSES_MAX ? govern->passes : PASSES_MAX;
    i32 open = govern->governor->open_of[govern->origin];
    i64 rest =
        vx_rpc_govern_rest(govern) < REST_MAX ? vx_rpc_govern_rest(govern) : REST_MAX;
    return (rest + REST_MIN) * (1 + passes) * (open ? open : 1);
}

static i64 waited_ms(const struct vx_rpc_govern *govern)
{
    i64 waited_ns = govern->queued_ns ? govern->governor->turn_ns - govern->queued_ns : 0;
    i64 waited = waited_ns > 0 ? waited_ns / VX_NS_PER_MS + 1 : 1;
    return waited < WAITED_MAX_MS ? waited : WAITED_MAX_MS;
}

/* First one of an origin within its part; of those with more than theirs in turn; then the one that
 * has waited longest for what it asks for: so the fewest wait, and none for ever.  By what is left
 * alone, 8 clients with messages of 5 bytes kept one of 1 MB waiting for 38 s. */
static bool goes_before(const struct vx_rpc_govern *a, const struct vx_rpc_govern *b)
{
    const bool over = vx_rpc_govern_is_over(a);
    if (over != vx_rpc_govern_is_over(b)) return !over;
    const u64 *last_of = a->governor->last_of;
    if (over && a->origin != b->origin) return last_of[a->origin] < last_of[b->origin];
    return waited_ms(a) * asks_for(b) > waited_ms(b) * asks_for(a);
}

static void owner_check(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *owner = governor->owner;
    if (!owner || now_ns - governor->owner_ns < OWNER_NS) return;
    if (owner->waits == VX_RPC_WAIT_NONE && vx_rpc_govern_has_spoken(owner)) return;
    owner->passes++;
    governor->owner = NULL;
}

static void turn_begin(struct vx_rpc_govern *govern, i64 now_ns)
{
    struct vx_rpc_governor *governor = govern->governor;
    governor->turned_of[govern->origin] = governor->looks + 1;
    governor->last_of[govern->origin] = ++governor->turns;
    govern->queued_ns = now_ns;
    govern->had_turn = true;
    vx_rpc_govern_wake(govern);
}

static void owner_set(struct vx_rpc_governor *governor, struct vx_rpc_govern *owner,
                      i64 now_ns)
{
    governor->owner = owner;
    governor->owner_ns = now_ns;
    turn_begin(owner, now_ns);
}

/* While another message wants its place, what brings nothing goes back into the room, as far as the
 * room may hold so much more; not of an origin that has more than its part already: 1,000 connections
 * of 16 addresses went on there, one after the other, until turns had no room. */
static void beyond_check(struct vx_rpc_governor *governor,
                         const struct vx_rpc_govern *next, i64 now_ns)
{
    struct vx_rpc_govern *beyond = governor->beyond;
    if (!beyond) return;
    if (vx_rpc_govern_has_spoken(beyond)) governor->beyond_ns = now_ns;
    if (now_ns - governor->beyond_ns < BEYOND_DRY_NS) return;
    const i32 *open_of = governor->open_of;
    if (vx_rpc_govern_is_bound(beyond) &&
        open_of[next->origin] >= open_of[beyond->origin])
        return;
    if (vx_rpc_govern_room_passed(governor) <= 0) return;
    beyond->passes++;
    governor->beyond = NULL;
}

/* Who is next, of those that wait. */
struct next {
    struct vx_rpc_govern *owner, *beyond, *speaker;
};

static void next_consider(struct next *next, struct vx_rpc_govern *one)
{
    bool hides = one->waits == VX_RPC_WAIT_HIDDEN;
    bool owner = !hides && vx_rpc_govern_may_turn(one) &&
                 (!next->owner || goes_before(one, next->owner));
    bool beyond = !hides && vx_rpc_govern_may_pass(one) &&
                  (!next->beyond || goes_before(one, next->beyond));
    bool speaker =
        hides && (!next->speaker || vx_rpc_govern_speaks_before(one, next->speaker));
    if (!(owner || beyond || speaker) || !vx_rpc_govern_has_spoken(one)) return;
    if (owner) next->owner = one;
    if (beyond) next->beyond = one;
    if (speaker) next->speaker = one;
}

/* The first message for which there is no room lies beyond it, and leaves its bytes to the
 * others; turns are for the quarter that owners may add. */
static void turn_give(struct vx_rpc_governor *governor, const struct next *next,
                      i64 now_ns)
{
    if (next->beyond) beyond_check(governor, next->beyond, now_ns);
    if (!governor->beyond && next->beyond) {
        governor->beyond = next->beyond;
        governor->beyond_ns = now_ns;
        turn_begin(next->beyond, now_ns);
    } else if (vx_rpc_govern_room_owner(governor) > 0) {
        owner_set(governor, next->owner, now_ns);
    }
}

/* Whether it has something to read, for which its origin has a part; one of each will do.  Last what
 * asks the system: of a crowd that is over its part nobody is asked. */
static bool wants(const struct vx_rpc_govern *govern, i64 now_ns)
{
    const struct vx_rpc_governor *governor = govern->governor;
    bool said = governor->wanted_ns == now_ns && governor->wanted_by == govern->origin;
    return !said && vx_rpc_govern_may_want(govern) && vx_rpc_govern_has_spoken(govern);
}

static i64 turn_wake(struct vx_rpc_governor *governor, i64 now_ns)
{
    owner_check(governor, now_ns);
    vx_rpc_govern_speaker_check(governor, now_ns);
    struct next next = {0};
    i64 next_ns = VX_NEVER;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        /* Calls of one that waits for nothing would count as on their way until it is read. */
        const bool is_waiting = one->waits != VX_RPC_WAIT_NONE;
        if (is_waiting || one->unseen > one->settled) vx_rpc_govern_fill(one, now_ns);
        if (!is_waiting) continue;
        enum vx_rpc_wait waits = vx_rpc_govern_must_wait(one);
        if (waits == VX_RPC_WAIT_NONE) {
            /* What it may read now may be a crumb. */
            if (one->waits == VX_RPC_WAIT_BYTES) next_consider(&next, one);
            vx_rpc_govern_wake(one);
            continue;
        }
        one->waits = waits;
        if (waits != VX_RPC_WAIT_BYTES && waits != VX_RPC_WAIT_WINDOW)
            next_ns = now_ns + WAIT_NS;
        if (waits == VX_RPC_WAIT_BYTES && wants(one, now_ns))
            vx_rpc_govern_want(one, now_ns);
        if (waits == VX_RPC_WAIT_BYTES || waits == VX_RPC_WAIT_HIDDEN)
            next_consider(&next, one);
    }
    if (next.speaker) vx_rpc_govern_speaker_give(governor, next.speaker, now_ns);
    if (!next.owner || vx_rpc_govern_going_is_much(governor)) return next_ns;
    if (!governor->owner) turn_give(governor, &next, now_ns);
    return now_ns + OWNER_NS < next_ns ? now_ns + OWNER_NS : next_ns;
}

/* Whether room is wanted: by anybody, or by one whose origin does not only hold some. */
static bool waits_for_room(const struct vx_rpc_governor *governor, bool anybody)
{
    for (const struct vx_rpc_govern *one = governor->live; one; one = one->next)
        if (one->waits == VX_RPC_WAIT_BYTES && (anybody || vx_rpc_govern_may_want(one)) &&
            vx_rpc_govern_has_spoken(one))
            return true;
    return false;
}

/* Several connections that each hold several messages may block each other: no message
 * ends, and none goes on.  So the connection that holds most is closed. */
static void look_stuck(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *most = NULL;
    if (governor->wanted_ns && now_ns - governor->wanted_ns <= LOOK_NS &&
        vx_rpc_govern_close_crowds(governor))
        return;
    if (now_ns - governor->freed_ns < VX_RPC_STUCK_NS) return;
    if (vx_rpc_govern_room_owner(governor) > 0) return;
    if (vx_rpc_govern_close_crowds(governor)) {
        governor->freed_ns = now_ns;
        return;
    }
    if (governor->owner || governor->beyond) return;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (one->still && !vx_rpc_govern_waits_for_us(one))
            return; /* one without progress is closed first */
        /* Else before a crowd stands that has come a little later. */
        if (one->cut || one->meter.unfinished <= 1 || !one->stood) continue;
        if (!most || one->meter.held > most->meter.held) most = one;
    }
    if (most) vx_rpc_govern_close(most, VX_RPC_CUT_UNFINISHED);
    governor->freed_ns = now_ns;
}

/* Everything is used, and what lies beyond it takes so long that others do not get its
 * place: it is closed.  Its rate in the last interval is all that is known of it. */
static void look_beyond(struct vx_rpc_governor *governor, bool room_wanted, i64 now_ns)
{
    struct vx_rpc_govern *beyond = governor->beyond;
    bool stuck = beyond && room_wanted &&
                 now_ns - governor->freed_ns >= VX_RPC_STUCK_NS &&
                 vx_rpc_govern_room_owner(governor) <= 0;
    i64 brought = beyond ? (i64)(beyond->meter.bytes - beyond->bytes_seen) : 0;
    bool slow = stuck && vx_rpc_govern_rest(beyond) > BEYOND_LOOKS * brought;
    i32 looks = brought < SLOW_BYTES ? STILL_LOOKS / 2 : 1;
    governor->beyond_slow = slow ? governor->beyond_slow + looks : 0;
    if (governor->beyond_slow < STILL_LOOKS) return;
    vx_rpc_govern_close(beyond, VX_RPC_CUT_STILL);
    governor->beyond_slow = 0;
}

/* Nothing can be written: its client does not read. */
bool vx_rpc_govern_is_blocked(const struct vx_rpc_govern *govern)
{
    struct pollfd ask = {.fd = govern->place.descriptor, .events = POLLOUT};
    return poll(&ask, 1, 0) == 0;
}

static bool is_unread(const struct vx_rpc_govern *govern)
{
    return govern->spent - govern->spent_seen >= UNREAD_WORK &&
           vx_rpc_govern_is_blocked(govern);
}

void vx_rpc_govern_unread(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern && vx_rpc_govern_is_blocked(govern))
        vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

/* The connection that keeps most records with refused calls, and reads nothing. */
static struct vx_rpc_govern *refused_most(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *most = NULL;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        i32 has = one->shares[VX_RPC_SHARE_REFUSED];
        if (one->cut || !has || now_ns - one->refused_ns < REFUSED_NS) continue;
        if (most && has <= most->shares[VX_RPC_SHARE_REFUSED]) continue;
        if (vx_rpc_govern_is_blocked(one)) most = one;
    }
    return most;
}

/* A refused call has its record until the refusal is sent, and nothing counts it in
 * flight: 1,300 of them, whose client read nothing, were all records, and nobody was
 * answered any more. */
static void look_scarce(struct vx_rpc_governor *governor, i64 now_ns)
{
    struct vx_rpc_govern *one;
    if (now_ns - governor->spared_ns < SPARE_NS) return;
    for (i32 spared = 0; spared < SPARE_CALLS; governor->spared_ns = now_ns) {
        if (!(one = refused_most(governor, now_ns))) return;
        spared += one->shares[VX_RPC_SHARE_REFUSED];
        vx_rpc_govern_close(one, VX_RPC_CUT_UNREAD);
    }
}

void vx_rpc_governor_scarce(struct vx_rpc_governor *governor, bool scarce)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    governor->scarce = scarce;
    if (scarce) governor->wakeup(governor->context);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

static bool is_flood(const struct vx_rpc_govern *govern)
{
    const struct vx_h2_meter *meter = &govern->meter;
    u64 calls = meter->calls - govern->calls_seen;
    u64 whole = meter->finished - govern->finished_seen;
    bool in_vain = calls >= FLOOD_CALLS && whole < calls / 8;
    return govern->held_up && (in_vain || govern->work < WORK_RESUME);
}

/* For calls, work or a rest: the others are not the client's doing alone. */
static bool is_held_up(const struct vx_rpc_govern *govern)
{
    return govern->waits > VX_RPC_WAIT_NONE && govern->waits < VX_RPC_WAIT_TAKEN;
}

static bool is_untaken(const struct vx_rpc_govern *govern)
{
    return govern->waits == VX_RPC_WAIT_TAKEN &&
           govern->meter.waiting >= govern->waiting_seen;
}

/* The checks of a connection that brings too little or reads too little. */
static void look_at_rest(struct vx_rpc_govern *govern)
{
    bool waits = vx_rpc_govern_waits_for_us(govern);
    bool broken = govern->meter.preface_left || govern->meter.block_open;
    govern->untaken = is_untaken(govern) ? govern->untaken + 1 : 0;
    govern->waiting_seen = govern->meter.waiting;
    govern->unasked = govern->waits == VX_RPC_WAIT_ASKED ? govern->unasked + 1 : 0;
    bool mute = (!waits || govern->vain_turns) && vx_rpc_govern_is_mute(govern);
    govern->mute = mute ? govern->mute + 1 : 0;
    govern->broken = broken && !waits ? govern->broken + 1 : 0;
    if (govern->untaken >= UNTAKEN_LOOKS) vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
    if (govern->unasked >= UNASKED_LOOKS) vx_rpc_govern_close(govern, VX_RPC_CUT_LARGE);
    if (govern->mute >= MUTE_LOOKS || govern->broken >= BROKEN_LOOKS)
        vx_rpc_govern_close(govern, VX_RPC_CUT_LATE);
}

/* It waits for room, and its client has sent next to nothing meanwhile, though it may: the
 * rest of its message is not there. */
static bool stalls(const struct vx_rpc_govern *govern)
{
    int sent = 0;
    if (govern->waits != VX_RPC_WAIT_BYTES) return false;
    (void)ioctl(govern->place.descriptor, FIONREAD, &sent);
    return sent < SLOW_BYTES && sent < vx_rpc_govern_rest(govern);
}

/* Others have the room that is wanted.  A client with 1.6 Mbit/s of an address of its own was closed
 * after 3 s, nine times of nine, while 300 connections of two others wanted room. */
static bool is_spared(const struct vx_rpc_govern *govern)
{
    return govern->governor->origins_holding > 1 && !vx_rpc_govern_is_over(govern);
}

/* What brings next to nothing makes no progress either while nobody waits: else it would
 * begin anew between two requests of others. */
static void look_still(struct vx_rpc_govern *govern, bool counts)
{
    u64 brought = govern->meter.bytes - govern->bytes_seen;
    bool holds = vx_rpc_govern_holds(govern) > vx_rpc_govern_small(govern);
    bool is_asked =
        counts && vx_rpc_govern_is_tight(govern->governor) && !is_spared(govern);
    if (!holds || brought >= (is_asked ? STILL_BYTES : SLOW_BYTES))
        govern->still = 0;
    else if (counts)
        govern->still++;
}

/* Checks one connection.  One that waits for us is not slow. */
static void look_at(struct vx_rpc_govern *govern, bool room_wanted, i64 now_ns)
{
    i64 late_ns = govern->governor->receive_ns_max;
    const struct vx_h2_meter *meter = &govern->meter;
    bool waits = vx_rpc_govern_waits_for_us(govern);
    bool little = meter->bytes - govern->bytes_seen < SLOW_BYTES;
    look_still(govern, room_wanted && (!waits || govern->had_turn || stalls(govern)));
    govern->had_turn = false;
    govern->unread = is_unread(govern) ? govern->unread + 1 : 0;
    govern->flood = is_flood(govern) ? govern->flood + 1 : 0;
    govern->held_up = waits && is_held_up(govern);
    look_at_rest(govern);
    vx_rpc_govern_whole_look(govern);
    vx_rpc_govern_lend_look(govern);
    govern->calls_seen = meter->calls;
    govern->finished_seen = meter->finished;
    govern->bytes_seen = meter->bytes;
    govern->spent_seen = govern->spent;
    govern->slow = little && !waits;
    if (!waits) vx_h2_windows_look(&govern->meter);
    if (meter->withheld) vx_rpc_govern_windows_open(govern);
    vx_rpc_govern_stood_look(govern, little);
    if (waits) govern->unfinished_since_ns += LOOK_NS;
    bool late = late_ns && meter->unfinished &&
                now_ns - govern->unfinished_since_ns > late_ns + LATE_NS;
    if (govern->still >= STILL_LOOKS) vx_rpc_govern_close(govern, VX_RPC_CUT_STILL);
    if (govern->flood >= FLOOD_LOOKS) vx_rpc_govern_close(govern, VX_RPC_CUT_FLOOD);
    if (govern->unread >= UNREAD_LOOKS) vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
    if (late) vx_rpc_govern_close(govern, VX_RPC_CUT_LATE);
}

static void look(struct vx_rpc_governor *governor, i64 now_ns)
{
    const bool room_wanted =
        !vx_rpc_govern_lags(governor) && waits_for_room(governor, true);
    const bool room_due = room_wanted && waits_for_room(governor, false);
    governor->look_ns = now_ns;
    governor->looks++;
    look_beyond(governor, room_wanted, now_ns);
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next)
        look_at(one, room_due, now_ns);
    if (!room_wanted) governor->freed_ns = now_ns;
    if (!vx_rpc_govern_lags(governor)) look_stuck(governor, now_ns);
}

static i64 earlier(i64 a, i64 b)
{
    return a < b ? a : b;
}

i64 vx_rpc_governor_turn(struct vx_rpc_governor *governor, i64 now_ns)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    bool looks = governor->live != NULL;
    i64 next_ns = vx_rpc_govern_going_forget(governor, now_ns);
    governor->turn_ns = now_ns;
    if (looks && now_ns - governor->look_ns >= LOOK_NS) look(governor, now_ns);
    if (governor->scarce) look_scarce(governor, now_ns);
    next_ns = earlier(vx_rpc_govern_buffers_look(governor, now_ns), next_ns);
    if (governor->waiting) next_ns = earlier(turn_wake(governor, now_ns), next_ns);
    if (governor->scarce) next_ns = earlier(now_ns + WAIT_NS, next_ns);
    if (looks) next_ns = earlier(governor->look_ns + LOOK_NS, next_ns);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return next_ns;
}
