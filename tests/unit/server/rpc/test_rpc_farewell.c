/* The last answers of a server that stops, and clients that read them late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TENSOR_BYTES 60000 /* with the rest of the answer, less than the first window */
#define PINGS        10
/* So long a server that stops waits for its clients to read (rpc_govern_leave.c). */
#define LEAVE_NS (2 * VX_NS_PER_S)

enum { GOAWAY = 7, ACKNOWLEDGED = 1 };

struct frame {
    u8 type, flags;
    u32 id;
    size_t length;
    u8 payload[1 << 14];
};

static bool receive_all(int fd, u8 *bytes, size_t count)
{
    return recv(fd, bytes, count, MSG_WAITALL) == (ssize_t)count;
}

/* False at the end of the connection. */
static bool receive(int fd, struct frame *frame)
{
    u8 head[9];
    if (!receive_all(fd, head, sizeof head)) return false;
    frame->length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    frame->type = head[3];
    frame->flags = head[4];
    frame->id = (u32)head[5] << 24 | (u32)head[6] << 16 | (u32)head[7] << 8 | head[8];
    ck_assert_uint_le(frame->length, sizeof frame->payload);
    return receive_all(fd, frame->payload, frame->length);
}

/* A client that has sent one inference and reads with a small buffer, so that most of the
 * answer stays with the server. */
static int ask(struct rpc_server *server)
{
    static u8 body[TENSOR_BYTES + 1024], tensor[TENSOR_BYTES];
    int fd = raw_open_small(server);
    size_t length = rpc_infer_body(body, sizeof body, tensor, sizeof tensor);
    ck_assert(raw_call(fd, 1, RPC_INFER, NULL));
    u8 head[5] = {0, 0, 0, (u8)(length >> 8), (u8)length};
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_DATA, 0, 1, head, sizeof head}));
    for (size_t at = 0, part; at < length; at += part) {
        part = length - at < 16384 ? length - at : 16384;
        u8 flags = at + part == length ? RAW_END_STREAM : 0;
        ck_assert(raw_send(fd, &(struct raw_frame){RAW_DATA, flags, 1, body + at, part}));
    }
    rpc_wait_seen(server, 1, 0);
    return fd;
}

/* Answers the ping between the two farewells of a server that stops. */
static void hear_farewell(int fd)
{
    static struct frame frame;
    for (i32 farewells = 0; farewells < 2;) {
        ck_assert(receive(fd, &frame));
        farewells += frame.type == GOAWAY;
        if (frame.type == RAW_PING && !(frame.flags & ACKNOWLEDGED))
            ck_assert(raw_send(fd, &(struct raw_frame){RAW_PING, ACKNOWLEDGED, 0,
                                                       frame.payload, frame.length}));
    }
}

/* Reads to the end of the connection; false when the answer broke off. */
static bool read_answer(int fd, size_t *bytes)
{
    static struct frame frame;
    bool ended = false;
    *bytes = 0;
    while (receive(fd, &frame)) {
        if (frame.id == 1 && frame.type == RAW_DATA) *bytes += frame.length;
        ended = ended || (frame.id == 1 && frame.flags & RAW_END_STREAM);
    }
    return ended;
}

static void stop(struct rpc_server *server)
{
    vx_rpc_stop_accepting(rpc_server_rpc(server));
}

static i32 in_flight(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.in_flight;
}

/* True when the client had its answer; false when it came later than the server waits. */
static bool talk_and_read(void)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    rpc_server_hold(server);
    int fd = ask(server);
    rpc_server_do(server, stop);
    hear_farewell(fd);
    i64 begin_ns = vx_clock_ns();
    rpc_server_release(server);
    VX_WAIT_UNTIL(in_flight(server) == 0);
    for (i32 i = 0; i < PINGS; i++) {
        u8 text[8] = "farewell";
        (void)raw_send(fd, &(struct raw_frame){RAW_PING, 0, 0, text, sizeof text});
        rpc_sleep_ms(1); /* sleep: gRPC ends the connection meanwhile */
    }
    size_t bytes;
    bool whole = read_answer(fd, &bytes);
    ck_assert_msg(whole || vx_clock_ns() - begin_ns >= LEAVE_NS,
                  "the answer broke off after %zu bytes", bytes);
    ck_assert(!whole || bytes > TENSOR_BYTES);
    close(fd);
    rpc_server_close(server);
    return whole;
}

/* gRPC closes the connection once its last call has ended; what the client sends then, as
 * it may, must not make the system throw away the answer. */
START_TEST(a_client_that_still_talks_reads_its_answer)
{
    while (!talk_and_read()) continue;
}
END_TEST

/* A server does not wait for ever for clients that do not close. */
START_TEST(a_client_that_stays_is_left)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    rpc_server_hold(server);
    int fd = ask(server);
    rpc_server_do(server, stop);
    hear_farewell(fd);
    rpc_server_release(server);
    rpc_server_close(server);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_farewell");
    TCase *tests = tcase_create("rpc_farewell");
    tcase_add_test(tests, a_client_that_still_talks_reads_its_answer);
    tcase_add_test(tests, a_client_that_stays_is_left);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
