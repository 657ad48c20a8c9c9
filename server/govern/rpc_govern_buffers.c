/* rpc_govern_buffers - what gRPC's read buffers keep while there is nothing to read.
 *
 * gRPC 1.51 reads into buffers of 8 or 64 KiB that it makes before it reads, and makes as many as
 * it expects to fill: as many bytes as it read until the socket was last empty, or twice as many
 * as it expected then.  A connection that sent a message of 1 MB has 1 MB of them from then on,
 * until it sends as much again: 1,000 idle ones were 550 MB.  No argument of gRPC's limits that.
 * So,
 *
 *   pause   where connections are many, gRPC hears now and then that the socket is empty, though it
 *           is not, and then that it is not.  So it expects no more than it gets between two of
 *           these.
 *   fill    of a connection that has brought nothing for a while, or must wait, the rest of the
 *           buffers that have bytes already is filled with frames of a type that nobody knows, which
 *           HTTP/2 tells gRPC to skip: it is done with them, and frees them with what they brought.
 *           They may be two: what is left of several buffers gRPC keeps in the opposite order, so
 *           that the next bytes go into an empty one, and 60 KB of 64 lie behind a last piece of 5.
 *   give    the pages of the buffers behind it go back to the system.  Nobody knows what a read
 *           leaves in what it does not fill.  It happens within gRPC's own call, since only
 *           then these buffers certainly exist.  A look of the governor makes gRPC call.
 *
 * A connection that is busy keeps its buffers: their pages would be made again for each message,
 * which cost 64 clients a quarter of their requests.  Only where all keep too much together, each
 * gives at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* So much all connections together keep for ever. */
#define KEPT_IDLE (4 << 20)
/* And so much while they are busy, less what each costs besides: the connection itself and the pages
 * in which its buffers begin and end.  It is below the 64 MiB that a crowd may cost. */
#define KEPT_BUSY   (48 << 20)
#define KEPT_BESIDE (256 << 10)
/* From look to look; who brings nothing meanwhile is idle.  So many are woken at a time. */
#define IDLE_NS   (VX_NS_PER_S / 10)
#define IDLE_MANY 128
/* Of one, less is not worth the work. */
#define KEPT_MIN (4 << 10)
/* At most so much is filled at once: two of the largest buffers that gRPC makes. */
#define FILL_MOST (128 << 10)
/* Between two pauses, at least.  gRPC then makes buffers for at most five times as many bytes (it
 * doubles what it expects while it gets four fifths of that, a filled buffer included), and of
 * each the page stays in which the next one begins. */
#define ROUND_MIN (64 << 10)
/* Of all connections together, so that it is no matter to few. */
#define ROUND_ALL (8 << 20)
/* The frame that gRPC skips: its type, and its longest payload (RFC 9113, 4.1 and 5.5). */
#define FRAME_UNKNOWN   0xfe
#define FRAME_BYTES_MAX (16 << 10)

/* ------- pause ------- */

static u64 round_of(const struct vx_rpc_govern *govern)
{
    u64 part = ROUND_ALL / (u64)(govern->governor->live_count + 1);
    return part > ROUND_MIN ? part : ROUND_MIN;
}

size_t vx_rpc_govern_buffers_most(const struct vx_rpc_govern *govern, size_t most)
{
    u64 left = round_of(govern) - govern->round_bytes;
    return most < left ? most : (size_t)left;
}

bool vx_rpc_govern_buffers_pause(struct vx_rpc_govern *govern)
{
    if (govern->epoll < 0) govern->round_bytes = 0; /* nothing would wake it */
    if (govern->round_bytes < round_of(govern)) return false;
    /* gRPC first takes what it has read so far, and asks again at once. */
    if (!govern->round_open) govern->round_bytes = 0;
    govern->round_open = false;
    if (govern->idle) vx_rpc_govern_notify(govern); /* its socket may have nothing */
    vx_rpc_govern_wake(govern);
    return true;
}

/* ------- fill and give ------- */

/* What TCP says is left in the socket, as gRPC asks it to; -1 = nothing was said. */
static int left_of(struct msghdr *message)
{
    int left = -1;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one;
         one = CMSG_NXTHDR(message, one))
        if (one->cmsg_level == SOL_TCP && one->cmsg_type == TCP_CM_INQ &&
            one->cmsg_len == CMSG_LEN(sizeof left))
            memcpy(&left, CMSG_DATA(one), sizeof left);
    return left;
}

static size_t room_of(const struct msghdr *message)
{
    size_t room = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) room += message->msg_iov[i].iov_len;
    return room;
}

/* What lies in buffers that are neither empty nor full, if these may be filled now. */
static u64 filled(const struct vx_rpc_govern *govern)
{
    u64 bytes = 0;
    for (i32 i = 0; i < govern->tails_count && vx_h2_meter_between(&govern->meter); i++)
        bytes += govern->tails[i].bytes - govern->tails[i].left;
    return bytes;
}

/* What it keeps of memory, at most, with so many bytes of buffers that are not filled: these,
 * unless they have been given back, and what lies in front of them. */
static u64 keeps(const struct vx_rpc_govern *govern, u64 spare)
{
    u64 since = govern->read_bytes - govern->given_at;
    bool are_new = spare + since > govern->given;
    return filled(govern) + (are_new ? spare : 0);
}

static void kept_set(struct vx_rpc_govern *govern, u64 kept)
{
    govern->governor->kept += kept - govern->kept;
    govern->kept = kept;
}

/* What all together may keep while they are busy. */
static u64 kept_most(const struct vx_rpc_governor *governor)
{
    i64 left = KEPT_BUSY - (i64)governor->live_count * KEPT_BESIDE;
    return left > KEPT_IDLE ? (u64)left : KEPT_IDLE;
}

/* Nothing is there to be read.  Whether it keeps too much; if not, that is counted. */
static bool is_due(struct vx_rpc_govern *govern, u64 spare)
{
    u64 kept = keeps(govern, spare);
    bool idle = govern->idle;
    govern->idle = false;
    if (kept < KEPT_MIN) return false;
    if (idle || govern->governor->kept + kept > kept_most(govern->governor)) return true;
    kept_set(govern, kept);
    return false;
}

static void given(struct vx_rpc_govern *govern, u64 spare)
{
    govern->given = spare;
    govern->given_at = govern->read_bytes;
}

static void byte_put(const struct msghdr *message, size_t at, u8 byte)
{
    const struct iovec *piece = message->msg_iov;
    for (; at >= piece->iov_len; piece++) at -= piece->iov_len;
    ((u8 *)piece->iov_base)[at] = byte;
}

/* Frames, from one end to the other; gRPC looks at their heads alone. */
static void fill(const struct msghdr *message, size_t at, size_t end)
{
    while (at < end) {
        size_t piece = VX_H2_HEAD_BYTES + FRAME_BYTES_MAX, count = end - at;
        if (piece > count) piece = count;
        if (count - piece > 0 && count - piece < VX_H2_HEAD_BYTES)
            piece -= VX_H2_HEAD_BYTES;
        size_t payload = piece - VX_H2_HEAD_BYTES;
        const u8 head[VX_H2_HEAD_BYTES] = {(u8)(payload >> 16), (u8)(payload >> 8),
                                           (u8)payload, FRAME_UNKNOWN};
        for (size_t i = 0; i < sizeof head; i++) byte_put(message, at + i, head[i]);
        at += piece;
    }
}

static bool is_tail(const struct vx_rpc_govern *govern, const u8 *at)
{
    for (i32 i = 0; i < govern->tails_count; i++)
        if (govern->tails[i].at == at) return true;
    return false;
}

/* Up to where to fill, so that no buffer is left that has bytes; `got` if there is none, or the only
 * one has no room for the head of a frame.  Where that is far, to the end of the first, for now. */
static size_t fill_end(const struct vx_rpc_govern *govern, const struct msghdr *message,
                       size_t got)
{
    size_t begin = 0, first = 0, last = got;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *piece = &message->msg_iov[i];
        const size_t end = begin + piece->iov_len, skip = got > begin ? got - begin : 0;
        if (end >= got + VX_H2_HEAD_BYTES && !first) first = end;
        if (end > got && is_tail(govern, (u8 *)piece->iov_base + skip)) last = end;
        begin = end;
    }
    if (last == got || !first) return got;
    return last < first || last - got > FILL_MOST ? first : last;
}

/* gRPC expects more the more it gets until it hears that there is nothing: where that is much, it
 * first hears that.  If buffers are left that have bytes, it is made to read again. */
static size_t buffers_fill(struct vx_rpc_govern *govern, const struct msghdr *message,
                           size_t got)
{
    if (govern->cut || !vx_h2_meter_between(&govern->meter)) return got;
    const size_t end = fill_end(govern, message, got);
    if (end == got) return got;
    const bool may = govern->round_bytes < round_of(govern);
    if (may) {
        fill(message, got, end);
        govern->round_bytes += end - got;
        govern->read_end = NULL;
        vx_rpc_govern_walk_tails(govern, message, end);
    }
    govern->idle = govern->tails_count > 0;
    if (govern->idle) vx_rpc_govern_notify(govern);
    return may ? end : got;
}

bool vx_rpc_govern_buffers_read(struct vx_rpc_govern *govern, struct msghdr *message,
                                size_t *got)
{
    bool empty = !*got || left_of(message) == 0;
    u64 room = room_of(message);
    govern->read_bytes += *got;
    if (*got) govern->round_bytes = empty ? 0 : govern->round_bytes + *got;
    govern->round_open = !empty && *got < room;
    kept_set(govern, 0);
    if (*got) govern->idle = false;
    bool due = empty && is_due(govern, room - *got);
    if (due) *got = buffers_fill(govern, message, *got);
    if (due) given(govern, room - *got);
    if (!*got) govern->round_bytes = 0; /* gRPC hears that there is nothing */
    return due;
}

bool vx_rpc_govern_buffers_wait(struct vx_rpc_govern *govern,
                                const struct msghdr *message, size_t *got)
{
    u64 spare = room_of(message);
    kept_set(govern, 0);
    if (!is_due(govern, spare)) return false;
    *got = buffers_fill(govern, message, 0);
    if (!*got) govern->round_bytes = 0; /* gRPC hears that there is nothing */
    given(govern, spare - *got);
    return true;
}

/* A connection that is woken reads nothing, and gives then. */
i64 vx_rpc_govern_buffers_look(struct vx_rpc_governor *governor, i64 now_ns)
{
    if (governor->kept <= KEPT_IDLE) return VX_NEVER;
    if (now_ns - governor->kept_ns < IDLE_NS) return governor->kept_ns + IDLE_NS;
    governor->kept_ns = now_ns;
    i32 woken = 0;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        bool rests = one->kept && one->looked_at == one->read_bytes &&
                     one->waits == VX_RPC_WAIT_NONE;
        one->looked_at = one->read_bytes;
        if (!rests || woken >= IDLE_MANY) continue;
        one->idle = true;
        woken++;
        vx_rpc_govern_notify(one);
    }
    return now_ns + IDLE_NS;
}

void vx_rpc_govern_buffers_end(struct vx_rpc_govern *govern)
{
    kept_set(govern, 0);
}

void vx_rpc_govern_buffers_give(const struct msghdr *message, size_t got)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *piece = &message->msg_iov[i];
        size_t filled = got < piece->iov_len ? got : piece->iov_len;
        uintptr_t begin = ((uintptr_t)piece->iov_base + filled + page - 1) / page * page;
        uintptr_t end = ((uintptr_t)piece->iov_base + piece->iov_len) / page * page;
        if (end > begin) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
        got -= filled;
    }
}
