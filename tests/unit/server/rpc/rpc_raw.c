/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/rpc/rpc_raw.h"

#include "tests/support/wait.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES   9
#define SMALL_BYTES  4096
#define FRAME_LENGTH 16384 /* the largest that every peer accepts */
#define WINDOW_BYTES 65535 /* of HTTP/2, at first */
/* gRPC lets the prefix of a message come, and we a byte of one that must wait. */
#define WINDOW_SMALL 64

static bool send_all(int fd, const u8 *bytes, size_t count)
{
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

bool raw_send(int fd, const struct raw_frame *frame)
{
    u8 out[HEAD_BYTES + FRAME_LENGTH] = {(u8)(frame->length >> 16),
                                         (u8)(frame->length >> 8),
                                         (u8)frame->length,
                                         frame->type,
                                         frame->flags,
                                         (u8)(frame->id >> 24),
                                         (u8)(frame->id >> 16),
                                         (u8)(frame->id >> 8),
                                         (u8)frame->id};
    ck_assert_uint_le(frame->length, FRAME_LENGTH);
    if (frame->payload) memcpy(out + HEAD_BYTES, frame->payload, frame->length);
    return send_all(fd, out, HEAD_BYTES + frame->length);
}

/* With a receive buffer of so many bytes; 0 = the system's.  From the address 127.0.0.`host`. */
static int open_with(struct rpc_server *server, int receive_bytes, u32 host)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes)
        ck_assert_int_eq(
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes),
            0);
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr =
                                         htonl((INADDR_LOOPBACK & ~0xffu) | host)};
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((u16)rpc_server_port(server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert(send_all(fd, (const u8 *)hello, sizeof hello - 1));
    ck_assert(raw_send(fd, &(struct raw_frame){.type = RAW_SETTINGS}));
    return fd;
}

int raw_open(struct rpc_server *server)
{
    return open_with(server, 0, 1);
}

int raw_open_small(struct rpc_server *server)
{
    return open_with(server, SMALL_BYTES, 1);
}

int raw_open_from(struct rpc_server *server, u32 host)
{
    return open_with(server, 0, host);
}

static size_t header(u8 *out, const char *name, const char *value)
{
    size_t name_length = strlen(name), value_length = strlen(value);
    out[0] = 0; /* literal, not indexed */
    out[1] = (u8)name_length;
    memcpy(out + 2, name, name_length);
    out[2 + name_length] = (u8)value_length;
    memcpy(out + 3 + name_length, value, value_length);
    return 3 + name_length + value_length;
}

bool raw_call(int fd, u32 id, const char *path, const char *timeout)
{
    u8 headers[512];
    size_t length = 0;
    length += header(headers + length, ":method", "POST");
    length += header(headers + length, ":scheme", "http");
    length += header(headers + length, ":path", path);
    length += header(headers + length, ":authority", "test");
    length += header(headers + length, "content-type", "application/grpc");
    length += header(headers + length, "te", "trailers");
    if (timeout) length += header(headers + length, "grpc-timeout", timeout);
    return raw_send(
        fd, &(struct raw_frame){RAW_HEADERS, RAW_END_HEADERS, id, headers, length});
}

bool raw_message(int fd, u32 id, u32 length, size_t bytes)
{
    u8 part[FRAME_LENGTH] = {0, (u8)(length >> 24), (u8)(length >> 16), (u8)(length >> 8),
                             (u8)length};
    size_t first = bytes < sizeof part ? bytes : sizeof part;
    return raw_send(fd, &(struct raw_frame){RAW_DATA, 0, id, part, first}) &&
           raw_rest(fd, id, bytes - first);
}

bool raw_rest(int fd, u32 id, size_t bytes)
{
    bool good = true;
    for (size_t part; bytes && good; bytes -= part) {
        part = bytes < FRAME_LENGTH ? bytes : FRAME_LENGTH;
        good =
            raw_send(fd, &(struct raw_frame){.type = RAW_DATA, .id = id, .length = part});
    }
    return good;
}

/* False: the server has closed the connection. */
static bool receive_all(int fd, u8 *bytes, size_t count)
{
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    while (count) {
        ck_assert_msg(poll(&ask, 1, VX_WAIT_SECONDS * 1000) == 1, "the server is silent");
        ssize_t got = recv(fd, bytes, count, 0);
        if (got <= 0) return false;
        bytes += got;
        count -= (size_t)got;
    }
    return true;
}

static u32 number(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* One frame: the increment of the window of a stream, or for id 0 of the connection. */
static bool receive_window(int fd, struct raw_windows *windows)
{
    u8 head[HEAD_BYTES], payload[FRAME_LENGTH];
    if (!receive_all(fd, head, sizeof head)) return false;
    size_t length = number(head) >> 8;
    ck_assert_uint_le(length, sizeof payload);
    if (!receive_all(fd, payload, length)) return false;
    if (head[3] != RAW_WINDOW) return true;
    u32 id = number(head + 5);
    ck_assert_uint_lt(id / 2, RAW_STREAMS_MAX);
    *(id ? &windows->streams[id / 2] : &windows->connection) += number(payload);
    if (id) windows->more[id / 2] += number(payload);
    return true;
}

static void count_open(const size_t *left, struct raw_windows *windows)
{
    i32 open = 0;
    for (i32 i = 0; i < RAW_STREAMS_MAX; i++)
        open += left[i] && windows->more[i] > WINDOW_SMALL;
    if (open > windows->open_most) windows->open_most = open;
}

struct raw_windows raw_windows_after(size_t sent)
{
    struct raw_windows windows = {.connection = WINDOW_BYTES - sent};
    for (i32 i = 0; i < RAW_STREAMS_MAX; i++) windows.streams[i] = WINDOW_BYTES - sent;
    return windows;
}

/* Sends what the windows allow; false: the server has closed the connection. */
static bool send_open(int fd, u32 id, size_t *left, struct raw_windows *windows)
{
    size_t *stream = &windows->streams[id / 2], part = *left;
    if (part > *stream) part = *stream;
    if (part > windows->connection) part = windows->connection;
    *left -= part;
    *stream -= part;
    windows->connection -= part;
    return raw_rest(fd, id, part);
}

bool raw_large_rests(int fd, size_t *left, struct raw_windows *windows)
{
    for (size_t more = 1, before; more;) {
        before = more;
        more = 0;
        for (u32 i = 0; i < RAW_STREAMS_MAX; i++) {
            if (!send_open(fd, 2 * i + 1, &left[i], windows)) return false;
            more += left[i];
        }
        count_open(left, windows);
        if (more == before && !receive_window(fd, windows)) return false;
    }
    return true;
}

void raw_large_message(int fd, u32 id, u32 length, size_t bytes)
{
    size_t first = 60000, left[RAW_STREAMS_MAX] = {0};
    struct raw_windows windows = raw_windows_after(first);
    left[id / 2] = bytes - first;
    ck_assert(raw_message(fd, id, length, first));
    ck_assert(raw_large_rests(fd, left, &windows));
}

void raw_expect_end(int fd)
{
    u8 bytes[4096];
    ssize_t got = 1;
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    while (got > 0) {
        ck_assert_msg(poll(&ask, 1, VX_WAIT_SECONDS * 1000) == 1,
                      "the server does not close the connection");
        got = recv(fd, bytes, sizeof bytes, 0);
    }
    close(fd);
}
