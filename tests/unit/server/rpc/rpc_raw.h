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

/* Connects and greets. */
int raw_open(struct rpc_server *server);
/* False when the server has closed the connection. */
bool raw_send(int fd, const struct raw_frame *frame);
/* A call of `path`; `timeout` as gRPC spells it, or NULL. */
bool raw_call(int fd, u32 id, const char *path, const char *timeout);
/* The first `bytes` bytes of a message of `length` zeros. */
bool raw_message(int fd, u32 id, u32 length, size_t bytes);
/* `bytes` zeros of what a message's rest is. */
bool raw_rest(int fd, u32 id, size_t bytes);
/* The same, of more bytes than the windows are at first: it waits for the server to open them. */
void raw_large_message(int fd, u32 id, u32 length, size_t bytes);
/* Waits until the server closes, and fails the test when it never does. */
void raw_expect_end(int fd);

#endif
