/* rpc_raw - a client that speaks HTTP/2 by hand: it can do what no gRPC client does.
 *
 * Owner    the test, which closes the descriptor.
 * Thread   the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_RPC_RAW_H
#define VX_TESTS_UNIT_RPC_RAW_H

#include "tests/unit/server/rpc/rpc_harness.h"

enum {
    RAW_DATA = 0,
    RAW_HEADERS = 1,
    RAW_RESET = 3,
    RAW_SETTINGS = 4,
    RAW_PING = 6,
    RAW_WINDOW = 8
};
enum { RAW_END_STREAM = 1, RAW_END_HEADERS = 4 };

struct raw_frame {
    u8 type, flags;
    u32 id;
    const void *payload; /* NULL: zeros */
    size_t length;
};

#define RAW_STREAMS_MAX 20 /* whose windows are counted */

/* What the server lets a connection send. */
struct raw_windows {
    size_t connection;
    size_t streams[RAW_STREAMS_MAX]; /* by half of their ids */
    size_t more[RAW_STREAMS_MAX];    /* beside the first window of each, so far */
    i32 open_most; /* the most streams with rests of messages at a time that had some */
};

/* Connects and sends the preface. */
int raw_open(struct rpc_server *server);
/* The same from the address 127.0.0.`host`, an origin of its own. */
int raw_open_from(struct rpc_server *server, u32 host);
/* The same as raw_open with a receive buffer of a few KB. */
int raw_open_small(struct rpc_server *server);
/* False when the server has closed the connection. */
bool raw_send(int fd, const struct raw_frame *frame);
/* Begins a call of `path`; `timeout` in gRPC's notation, or NULL. */
bool raw_call(int fd, u32 id, const char *path, const char *timeout);
/* Sends the first `bytes` bytes of a message of `length` zeros. */
bool raw_message(int fd, u32 id, u32 length, size_t bytes);
/* Sends `bytes` zeros of the rest of a message. */
bool raw_rest(int fd, u32 id, size_t bytes);
/* The windows of a connection that has sent at most `sent` bytes of messages. */
struct raw_windows raw_windows_after(size_t sent);
/* The same for more bytes than the windows allow, `left` of each stream by half of its id:
 * as any client does, sends on whichever stream the server opens.  False: the server has closed the
 * connection. */
bool raw_large_rests(int fd, size_t *left, struct raw_windows *windows);
/* The same as raw_message, on a connection that uses nothing else. */
void raw_large_message(int fd, u32 id, u32 length, size_t bytes);
/* Waits until the server closes, and fails the test when it never does. */
void raw_expect_end(int fd);

#endif
