/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/govern/governor_rig.h"

#include "engine/base/process/clock.h"
#include "server/base/host.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

struct vx_rpc_governor *rig_governor;
int rig_ours[RIG_CONNECTIONS_MAX], rig_theirs[RIG_CONNECTIONS_MAX];
i32 rig_count;
bool rig_lags;
/* Bytes of the current buffer that a connection has filled. */
static size_t rig_used[RIG_CONNECTIONS_MAX];

static void on_wakeup(void *context)
{
    (void)context;
}

void rig_open(u64 arena_bytes)
{
    struct vx_rpc_governor_options options = {.connections_max = RIG_CONNECTIONS_MAX,
                                              .message_bytes_max = 64 << 20,
                                              .receive_bytes_max = RIG_RECEIVE_BYTES_MAX,
                                              .receive_ns_max = 60 * VX_NS_PER_S,
                                              .arena_bytes = arena_bytes,
                                              .wakeup = on_wakeup};
    vx_host_raise_files();
    ck_assert_ptr_null(vx_rpc_governor_open(&options, &rig_governor).fault);
    rig_count = 0;
    rig_lags = false;
}

struct vx_rpc_place rig_place(i32 i)
{
    return (struct vx_rpc_place){rig_ours[i], (u64)i + 1};
}

i32 rig_connect(void)
{
    return rig_connect_from(0);
}

i32 rig_connect_from(u16 origin)
{
    int pair[2];
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    rig_used[rig_count] = 0;
    rig_ours[rig_count] = pair[0];
    rig_theirs[rig_count] = pair[1];
    vx_rpc_govern_begin(vx_rpc_governor_row(rig_governor, rig_count),
                        rig_place(rig_count), origin);
    /* Nobody answers here, and so nobody lets the client send more. */
    struct vx_h2_meter *meter = &vx_rpc_governor_row(rig_governor, rig_count)->meter;
    meter->window = meter->stream_window = INT64_MAX / 2;
    return rig_count++;
}

void rig_hold_time(i32 i)
{
    vx_rpc_governor_row(rig_governor, i)->filled_ns = vx_clock_ns() + RIG_HELD_NS;
}

void rig_end(i32 i)
{
    vx_rpc_govern_end(vx_rpc_governor_row(rig_governor, i));
    close(rig_ours[i]);
    close(rig_theirs[i]);
    rig_ours[i] = -1;
}

bool rig_has_ended(i32 i)
{
    return rig_ours[i] < 0;
}

void rig_close(void)
{
    for (i32 i = 0; i < rig_count; i++)
        if (!rig_has_ended(i)) rig_end(i);
    vx_rpc_governor_close(&rig_governor);
}

bool rig_is_closed(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i)->cut != VX_RPC_CUT_NONE;
}

/* Reads as gRPC does, until nothing is left or nothing may be read now. */
void rig_read_all(i32 i)
{
    static u8 buffers[RIG_CONNECTIONS_MAX][RIG_BUFFER_BYTES];
    for (ssize_t got = 1; got > 0; rig_used[i] += (size_t)got * (got > 0)) {
        if (rig_used[i] == RIG_BUFFER_BYTES) rig_used[i] = 0; /* the next buffer */
        struct iovec piece = {buffers[i] + rig_used[i], RIG_BUFFER_BYTES - rig_used[i]};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        got = vx_rpc_govern_read(rig_ours[i], &message, 0);
        if (got > 0 && !rig_lags) rig_receive(i);
    }
}

void rig_receive(i32 i)
{
    const struct vx_h2_meter *meter = &vx_rpc_governor_row(rig_governor, i)->meter;
    for (i32 k = 0; k < meter->streams_count; k++)
        if (meter->streams[k].whole)
            vx_rpc_govern_received(rig_place(i), meter->streams[k].whole);
}

i32 rig_unread(i32 i)
{
    int left = 0;
    ck_assert_int_eq(ioctl(rig_ours[i], FIONREAD, &left), 0);
    return left;
}

void rig_greet(i32 i)
{
    ck_assert_int_eq(write(rig_theirs[i], HELLO, sizeof HELLO - 1), sizeof HELLO - 1);
}

void rig_call(i32 i, u32 id)
{
    struct raw_frame headers = {RAW_HEADERS, RAW_END_HEADERS, id, NULL, 15};
    ck_assert(raw_send(rig_theirs[i], &headers));
}

i64 rig_fill_with_half(i32 i)
{
    rig_greet(i);
    rig_call(i, 1);
    vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 1);
    ck_assert(raw_message(rig_theirs[i], 1, 32 << 20, 1000));
    for (rig_read_all(i); !rig_unread(i); rig_read_all(i))
        ck_assert(raw_rest(rig_theirs[i], 1, 16384));
    return vx_rpc_governor_row(rig_governor, i)->meter.held;
}
