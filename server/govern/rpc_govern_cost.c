/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* Calls that gRPC may hold before we have seen them, up to 30 KB each: of all connections
 * together, and of one.  Each connection has an equal part, or a part of its origin's: by
 * connections alone 500 of one address with refused calls left a gateway 0.5 % of its rate.  They
 * are given back as fast as calls are seen, so an honest client is not held up. */
#define CALLS_ALL     512
#define CALLS_ONE_MAX 64
#define CALLS_ONE_MIN 2
#define CALLS_PER_S   100
/* After so many calls without a message a connection rests.  The thread of gRPC that reads
 * it ends its calls as well, and turns to another connection only when there is nothing
 * left to read and to end: without a rest others waited for up to 2 s while threads were
 * idle.  Where ending the calls of three connections takes as long as the fourth one's rest, it
 * has always something left (2.3 s, once), so a rest is twice as long as the one that ended lately. */
#define VAIN_CALLS     256
#define REST_NS        (10 * VX_NS_PER_MS)
#define REST_NS_MAX    (160 * VX_NS_PER_MS)
#define REST_LATELY_NS (VX_NS_PER_S / 2)
#define CALL_BYTES_MIN 14 /* a frame's head and five fields of one byte */
/* While so many are unseen, a connection that has more than its least part of them, of an origin
 * with more than its own, is not read.  One that has just come has one, and it waits for no
 * other's. */
#define CALLS_UNSEEN_MAX 1024
/* Open calls of all connections.  From so many on, time gives no calls back to a
 * connection that has its part of them: gRPC keeps what a call without a message costs
 * for as long as its client likes. */
#define CALLS_OPEN_ALL 8192
/* About what gRPC keeps of a call that has brought nothing yet. */
#define CALL_BYTES (8 << 10)
/* An eighth of receive_bytes_max: connections and calls leave messages at least this much
 * room, and the small parts that are never held up have at most this much together. */
#define ROOM_PART 8
/* After an origin within its part has waited for room, others keep to theirs for so long: a gateway
 * with a round of requests now and then found all of it taken by a byte each of a crowd. */
#define WANTED_NS (5 * VX_NS_PER_S)
/* One connection for so much of receive_bytes_max has its small part whatever its origin holds, if it
 * holds nothing yet: those with small requests beside large ones.  A byte keeps 8 KiB, so they are a
 * 32nd.  The origins that hold some share them, but some of each have one: with 4 an honest client
 * beside five connections of its address with 60 KB each was not read at all. */
#define HOLDER_BYTES (256 << 10)
#define HOLDERS_MIN  16
/* This part of the room is for what connections with several messages have to send of those whose
 * windows are open. */
#define WINDOWS_PART 2
/* What is left of a message is its tail when it is no more than this part of what is here. */
#define TAIL_PART 4
/* A frame costs about a microsecond, so all connections together get a fiftieth of a
 * processor beside what their answers earn. */
#define WORK_ONE_MAX   2000
#define WORK_ALL_PER_S 20000
#define WORK_PER_S_MAX 1000
#define WORK_PER_S_MIN 50
/* Frames that an answer causes: window updates for the message and the connection, a
 * ping, the reset of a client that leaves early.  Each KiB of it causes a window update
 * and a ping again. */
#define WORK_PER_ANSWER  20
#define WORK_ANSWER_UNIT 1024
/* A read needs at least so many calls and units of work.  A connection that has waited
 * for calls reads on at CALLS_RESUME, so that it has something to read on with. */
#define CALLS_READ   1
#define CALLS_RESUME 2 /* no more than CALLS_ONE_MIN allows */
#define WORK_READ    64
/* A read that was sized for a message may bring so much beside it; more is a flood. */
#define CALLS_DEBT 1200
#define WORK_DEBT  4096
/* What messages that wait on streams may keep of gRPC's buffers beside their own bytes: of
 * all connections together, and of one. */
#define WASTE_ALL     (16 << 20)
#define WASTE_ONE_MAX (4 << 20)
#define WASTE_ONE_MIN (256 << 10)
/* Bytes of one read: where frames of any kind may come, and inside a message. */
#define READ_BYTES      (4 << 10)
#define READ_BYTES_BODY (256 << 10)

/* ------- what a connection may cost ------- */

static i64 clamp(i64 value, i64 least, i64 most)
{
    return value < least ? least : value > most ? most : value;
}

/* An equal part of a connection, or its part of its origin's, where that is more: so the many
 * connections of a client that is alone have all.  A place is left for one that comes. */
static i64 calls_most(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const i64 open = governor->open_of[govern->origin];
    const i64 in_origin = (i64)(governor->origins_open + 1) * (open ? open : 1);
    const i64 in_all = governor->live_count + 1;
    return clamp(CALLS_ALL / (in_origin < in_all ? in_origin : in_all), CALLS_ONE_MIN,
                 CALLS_ONE_MAX);
}

static i64 work_per_s(const struct vx_rpc_governor *governor)
{
    return clamp(WORK_ALL_PER_S / (governor->live_count + 1), WORK_PER_S_MIN,
                 WORK_PER_S_MAX);
}

static void work_add(struct vx_rpc_govern *govern, i64 more)
{
    govern->work = clamp(govern->work + more, INT64_MIN, WORK_ONE_MAX);
}

static void calls_add(struct vx_rpc_govern *govern, i64 more)
{
    i64 most = calls_most(govern);
    if (govern->calls < most)
        govern->calls = clamp(govern->calls + more, INT64_MIN, most);
}

/* Only calls that we have not ended count: an ended call costs gRPC nothing more, though
 * its client may keep the stream open. */
static bool calls_many(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return governor->calls_open >= CALLS_OPEN_ALL &&
           govern->shares[VX_RPC_SHARE_ARRIVED] >= CALLS_OPEN_ALL / governor->live_count;
}

/* Not of one that has brought as many whole messages since: a proxy's, of whose clients one resets. */
static void begin_rest(struct vx_rpc_govern *govern, i64 now_ns)
{
    const bool again = now_ns - govern->rested_ns < REST_LATELY_NS &&
                       govern->meter.finished - govern->rested_finished < VAIN_CALLS;
    govern->rest_long_ns =
        again ? clamp(2 * govern->rest_long_ns, REST_NS, REST_NS_MAX) : REST_NS;
    govern->rest_ns = now_ns + govern->rest_long_ns;
}

static void begin_or_end_rest(struct vx_rpc_govern *govern, i64 now_ns)
{
    i64 vain = (i64)(govern->meter.calls - govern->meter.finished);
    bool over = govern->rest_ns && now_ns >= govern->rest_ns;
    if (over || vain < govern->vain) govern->vain = vain;
    if (over) {
        govern->rested_ns = now_ns;
        govern->rested_finished = govern->meter.finished;
        govern->rest_ns = 0;
    }
    if (!govern->rest_ns && vain - govern->vain >= VAIN_CALLS) begin_rest(govern, now_ns);
}

/* Calls that go on and wait in gRPC for us, beside those that it hides.  While time gave them back like
 * any other, 100 connections of one address with ten small calls each 20 ms had 100 MB a second
 * of them there. */
static i64 calls_waiting(const struct vx_rpc_govern *govern)
{
    const i64 arrived = govern->shares[VX_RPC_SHARE_ARRIVED];
    const i64 waiting = govern->meter.streams_count - arrived - govern->hidden;
    return waiting > 0 ? waiting : 0;
}

/* Gives back what time allows, in whole units, so that many short intervals give as much
 * as one long. */
void vx_rpc_govern_fill(struct vx_rpc_govern *govern, i64 now_ns)
{
    begin_or_end_rest(govern, now_ns);
    i64 step_ns = VX_NS_PER_S / CALLS_PER_S;
    i64 steps = (now_ns - govern->filled_ns) / step_ns;
    if (steps <= 0) return;
    govern->filled_ns += steps * step_ns;
    if (steps > CALLS_PER_S * 60) steps = CALLS_PER_S * 60;
    /* Calls that end before we have them never arrive: their client resets them, or gRPC refuses
     * them.  Those that go on may. */
    const i64 waiting = calls_waiting(govern);
    const i64 lost = govern->unseen - govern->hidden - waiting;
    vx_rpc_govern_unseen(govern, -clamp(lost, 0, steps));
    vx_rpc_govern_hidden_settle(govern);
    const i64 owed = calls_most(govern) - waiting - govern->calls;
    if (!calls_many(govern)) calls_add(govern, clamp(owed, 0, steps));
    work_add(govern, steps * work_per_s(govern->governor) / CALLS_PER_S);
}

/* Room for unfinished messages: receive_bytes_max less what connections and calls
 * weigh. */
i64 vx_rpc_govern_room(const struct vx_rpc_governor *governor)
{
    i64 most = governor->receive_bytes_max;
    i64 weight = (i64)governor->live_count * VX_RPC_CONNECTION_BYTES +
                 (governor->calls_open + governor->hidden) * CALL_BYTES;
    return clamp(most - weight, most / ROOM_PART, most);
}

/* Without the message that lies beyond the room, and with those that are whole and wait for us: a client
 * with 4 MB of numbers as text of protobuf on each of 300 connections had 660 MB of them there. */
static i64 held_in_room(const struct vx_rpc_governor *governor)
{
    return governor->held + governor->whole -
           (governor->beyond ? governor->beyond->meter.held : 0);
}

/* The small parts of all connections may lie beyond the room, and owners may add as much
 * again. */
i64 vx_rpc_govern_room_owner(const struct vx_rpc_governor *governor)
{
    i64 more = 2 * governor->receive_bytes_max / ROOM_PART;
    return vx_rpc_govern_room(governor) + more - held_in_room(governor);
}

static i64 at_least_one(i64 count)
{
    return count > 0 ? count : 1;
}

/* An equal part, or its part of its origin's, where that is more: beside 1,000 connections of one
 * address a gateway of another sent one message at a time. */
i64 vx_rpc_govern_room_windows(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const i64 all = at_least_one(governor->holders);
    const i64 in_origin = at_least_one(governor->holders_of[govern->origin]) *
                          at_least_one(governor->origins_holding);
    return governor->receive_bytes_max / WINDOWS_PART /
           (in_origin < all ? in_origin : all);
}

i64 vx_rpc_govern_room_passed(const struct vx_rpc_governor *governor)
{
    i64 more = governor->receive_bytes_max / ROOM_PART;
    i64 held = governor->beyond ? governor->beyond->meter.held : 0;
    return vx_rpc_govern_room_owner(governor) + more - held;
}

static void held_change(const struct vx_rpc_govern *govern, i64 more, i32 holders)
{
    struct vx_rpc_governor *governor = govern->governor;
    i64 *held = &governor->held_of[govern->origin], before = *held;
    *held += more;
    governor->origins_holding += (*held > 0) - (before > 0);
    governor->holders_of[govern->origin] += holders;
}

void vx_rpc_govern_held_add(const struct vx_rpc_govern *govern, i64 more)
{
    i64 held = govern->meter.held;
    held_change(govern, more, (held > 0) - (held - more > 0));
}

void vx_rpc_govern_held_end(struct vx_rpc_govern *govern)
{
    held_change(govern, -govern->meter.held, -(govern->meter.held > 0));
    vx_rpc_govern_stood_set(govern, 0);
}

void vx_rpc_govern_want(const struct vx_rpc_govern *govern, i64 now_ns)
{
    struct vx_rpc_governor *governor = govern->governor;
    if (!vx_rpc_govern_may_want(govern)) return;
    if (governor->wanted_by != govern->origin)
        governor->wanted_else_ns = governor->wanted_ns;
    governor->wanted_by = govern->origin;
    governor->wanted_ns = now_ns;
}

/* Whether another origin, whose wants count, has waited for room so lately. */
static bool others_want(const struct vx_rpc_govern *govern, i64 lately_ns)
{
    const struct vx_rpc_governor *governor = govern->governor;
    i64 wanted_ns = governor->wanted_by == govern->origin ? governor->wanted_else_ns
                                                          : governor->wanted_ns;
    return wanted_ns && governor->turn_ns - wanted_ns < lately_ns;
}

/* By equal parts, whatever an origin ends: the sum of the parts is the room.  One with little
 * is not over it: a byte is a buffer of 8 KiB, so of 900 addresses with a byte each all had more
 * than their part. */
bool vx_rpc_govern_is_over(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const i64 held = governor->held_of[govern->origin];
    i32 others = governor->origins_holding - (held > 0);
    if (!others) others = others_want(govern, WANTED_NS);
    return others && held > HELD_SMALL &&
           held > vx_rpc_govern_room(governor) / (others + 1);
}

bool vx_rpc_govern_may_want(const struct vx_rpc_govern *govern)
{
    return !vx_rpc_govern_only_holds(govern) || !vx_rpc_govern_is_over(govern);
}

bool vx_rpc_govern_is_bound(const struct vx_rpc_govern *govern)
{
    return others_want(govern, WANTED_NS) && vx_rpc_govern_is_over(govern);
}

bool vx_rpc_govern_is_barred(const struct vx_rpc_govern *govern)
{
    return others_want(govern, VX_RPC_STUCK_NS) && vx_rpc_govern_only_holds(govern) &&
           vx_rpc_govern_is_over(govern);
}

/* Of an origin that has more than its part few connections have a small part: a byte of a message on
 * each of 1,000 connections of one address was all room, and 4 KiB each of 950, of 16 addresses, 30 MB
 * of buffers. */
static bool has_small(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    if (!vx_rpc_govern_is_over(govern)) return true;
    const i32 origins = governor->origins_holding ? governor->origins_holding : 1;
    const i64 few = governor->receive_bytes_max / HOLDER_BYTES / origins;
    const i32 holders = governor->holders_of[govern->origin] - (govern->meter.held > 0);
    return holders < clamp(few, HOLDERS_MIN, INT32_MAX);
}

i64 vx_rpc_govern_small(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    if (!has_small(govern)) return 0;
    i64 part = governor->receive_bytes_max / ROOM_PART / (governor->holders + 1);
    const i64 most = vx_rpc_govern_is_over(govern) ? HELD_SMALL_MIN : HELD_SMALL;
    return clamp(part, HELD_SMALL_MIN, most);
}

i64 vx_rpc_govern_holds(const struct vx_rpc_govern *govern)
{
    const struct vx_h2_meter *meter = &govern->meter;
    return meter->held <= meter->buffer_bytes ? meter->came : meter->held;
}

i64 vx_rpc_govern_rest(const struct vx_rpc_govern *govern)
{
    const struct vx_h2_meter *meter = &govern->meter;
    return meter->announced + meter->unfinished * VX_H2_PREFIX_BYTES - meter->came -
           meter->barred;
}

/* The rest of messages of which most is here, which frees more than it takes: what an origin has
 * beyond its part does not wait for a turn to end.  0 = there is none. */
static i64 tail_of(const struct vx_rpc_govern *govern)
{
    const i64 rest = vx_rpc_govern_rest(govern);
    if (rest > govern->meter.came / TAIL_PART || rest > HELD_SMALL) return 0;
    if (govern->meter.barred) return 0;
    return rest + rest / VX_H2_UNIT_BYTES + VX_H2_HEAD_BYTES;
}

/* How many bytes it may add to what is held: none of the room where its origin has its part and
 * another one wants some.  The one message beyond the room has no
 * limit: it ends itself.  What owners add stays when their turn is over, so it has one:
 * forty clients that brought a little in each turn made 400 MB of it. */
static i64 bytes_allowed(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    i64 small = vx_rpc_govern_small(govern) - vx_rpc_govern_holds(govern);
    const i64 tail = govern->meter.held ? tail_of(govern) : 0;
    if (small < tail) small = tail;
    i64 room = vx_rpc_govern_room(governor) - held_in_room(governor);
    if (vx_rpc_govern_is_bound(govern)) room = 0;
    if (governor->beyond == govern && govern->meter.unfinished <= 1) return INT64_MAX;
    if (governor->beyond == govern)
        room = governor->message_bytes_max - govern->meter.held;
    if (governor->owner == govern) room = vx_rpc_govern_room_owner(governor);
    return small > room ? small : room;
}

static bool wastes(const struct vx_rpc_govern *govern)
{
    i64 part = WASTE_ALL / (govern->governor->streaming + 1);
    return vx_h2_meter_waste(&govern->meter) > clamp(part, WASTE_ONE_MIN, WASTE_ONE_MAX);
}

/* The calls that it may begin: hidden ones cost none of them for long. */
static i64 calls_left(const struct vx_rpc_govern *govern)
{
    i64 left = govern->calls + govern->settled, most = calls_most(govern);
    return left < most ? left : most;
}

/* Too many calls are on their way to us, and it has more than its part of them, and its origin
 * too. */
static bool brings_many(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return governor->coming >= CALLS_UNSEEN_MAX &&
           govern->unseen - govern->settled > CALLS_ONE_MIN &&
           governor->coming_of[govern->origin] >
               CALLS_UNSEEN_MAX / (governor->origins_coming + 1);
}

/* Whether a large message of it is no inference's, or of one that has not arrived yet.  A
 * call without a token brought 500 MB for ServerLive before it was refused. */
static bool is_unasked(const struct vx_rpc_govern *govern)
{
    return govern->meter.large >
           govern->shares[VX_RPC_SHARE_AWAITED] + govern->shares[VX_RPC_SHARE_STREAMS];
}

enum vx_rpc_wait vx_rpc_govern_must_wait(const struct vx_rpc_govern *govern)
{
    bool for_calls = govern->waits == VX_RPC_WAIT_CALLS;
    bool for_work = govern->waits == VX_RPC_WAIT_WORK;
    if (govern->rest_ns) return VX_RPC_WAIT_REST;
    if (brings_many(govern)) return VX_RPC_WAIT_CALLS;
    if (calls_left(govern) < (for_calls ? CALLS_RESUME : CALLS_READ))
        return VX_RPC_WAIT_CALLS;
    if (vx_rpc_govern_hides(govern)) return VX_RPC_WAIT_HIDDEN;
    if (govern->work < (for_work ? WORK_RESUME : WORK_READ)) return VX_RPC_WAIT_WORK;
    if (wastes(govern)) return VX_RPC_WAIT_TAKEN;
    if (is_unasked(govern)) return VX_RPC_WAIT_ASKED;
    if (bytes_allowed(govern) <= 0) return VX_RPC_WAIT_BYTES;
    return vx_rpc_govern_lend_left(govern) <= 0 ? VX_RPC_WAIT_WINDOW : VX_RPC_WAIT_NONE;
}

/* Nothing that fits into so many bytes costs more than the connection may.  While few
 * calls are unseen there are two exceptions: some calls, and what a client sends in place
 * of the rest of a message. */
size_t vx_rpc_govern_read_bytes(const struct vx_rpc_govern *govern)
{
    bool few =
        govern->governor->coming < CALLS_UNSEEN_FEW && vx_rpc_govern_hidden_few(govern);
    i64 most =
        few ? READ_BYTES : clamp(calls_left(govern) * CALL_BYTES_MIN, 0, READ_BYTES);
    const struct vx_h2_meter *meter = &govern->meter;
    i64 left = few ? vx_h2_meter_left(meter) : vx_h2_meter_frame_left(meter);
    most = clamp(most, 0, govern->work * VX_H2_HEAD_BYTES);
    left += left / VX_H2_UNIT_BYTES; /* for the frames' heads */
    if (left > most) most = clamp(left, 0, READ_BYTES_BODY);
    return (size_t)clamp(most, 1, bytes_allowed(govern));
}

bool vx_rpc_govern_owes(const struct vx_rpc_govern *govern)
{
    return govern->calls + govern->settled < -CALLS_DEBT || govern->work < -WORK_DEBT;
}

void vx_rpc_govern_cost_init(struct vx_rpc_govern *govern, i64 now_ns)
{
    govern->calls = calls_most(govern);
    govern->work = WORK_ONE_MAX;
    govern->filled_ns = now_ns;
}

/* ------- reports of calls ------- */

void vx_rpc_govern_wake_if_may(struct vx_rpc_govern *govern)
{
    enum vx_rpc_wait waits = govern->waits;
    bool may = waits == VX_RPC_WAIT_CALLS || waits == VX_RPC_WAIT_WORK ||
               waits == VX_RPC_WAIT_HIDDEN || waits == VX_RPC_WAIT_TAKEN ||
               waits == VX_RPC_WAIT_ASKED;
    if (may && !vx_rpc_govern_must_wait(govern)) vx_rpc_govern_wake(govern);
}

/* Adds what the connection has earned, and wakes it once that is enough to read on. */
static void earn(struct vx_rpc_govern *govern, i64 calls, i64 work)
{
    if (!govern) return;
    calls_add(govern, calls);
    work_add(govern, work);
    vx_rpc_govern_wake_if_may(govern);
}

void vx_rpc_govern_arrived(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    if (govern) govern->shares[VX_RPC_SHARE_ARRIVED]++;
    if (governor) governor->calls_open++;
    if (govern) vx_rpc_govern_unseen(govern, -1);
    earn(govern, 1, 0);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

void vx_rpc_govern_taken(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) vx_h2_meter_taken(&govern->meter);
    if (govern) vx_rpc_govern_wake_if_may(govern);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

/* What the headers of the answered call have cost: their mean, since nothing tells which
 * they were, and no more than all.  Without it a client with 7 KB of metadata in each of
 * 1,000 calls, 8 at a time, was closed twice for a flood. */
static i64 headers_repay(struct vx_rpc_govern *govern)
{
    const struct vx_h2_meter *meter = &govern->meter;
    u64 owed = meter->call_work - govern->repaid;
    u64 mean = meter->calls ? (meter->call_work + meter->calls - 1) / meter->calls : 0;
    u64 more = owed < mean ? owed : mean;
    govern->repaid += more;
    return (i64)more;
}

void vx_rpc_govern_answered(struct vx_rpc_place place, u64 bytes)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    i64 work = WORK_PER_ANSWER + (i64)(bytes / WORK_ANSWER_UNIT);
    if (govern) earn(govern, 0, work + headers_repay(govern));
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}
