/* exporter: batches through real sockets, to a collector that a test plays by hand.
 *
 * tests/e2e/test_traces.py has the collectors that behave badly; here are bodies larger
 * than what sockets hold, a full ring, and the end beside a collector that hangs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/trace/exporter.h"

#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/trace/record_ring.h"
#include "server/trace/span_pack.h"
#include "tests/support/wait.h"

#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Small, so that a body of a megabyte waits for its reader. */
#define SOCKET_BYTES 4096

static int listener = -1;
static char url[64];
static struct vx_exporter *exporter;

static void setup(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int small = SOCKET_BYTES;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(!setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    ck_assert(!bind(listener, (struct sockaddr *)&at, length));
    ck_assert(!listen(listener, 8));
    ck_assert(!getsockname(listener, (struct sockaddr *)&at, &length));
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
}

static void teardown(void)
{
    if (listener >= 0) close(listener);
    listener = -1;
}

static void open_exporter(i64 timeout_ns)
{
    struct vx_why why = {""};
    const struct vx_exporter_options options = {.endpoint = url,
                                                .resource = "",
                                                .delay_ns = 10 * VX_NS_PER_MS,
                                                .timeout_ns = timeout_ns,
                                                .pause_ms = 1};
    vx_status st = vx_exporter_open(&options, &why, &exporter);
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
}

/* With the longest texts: eight kilobytes of spans. */
static bool give(void)
{
    struct vx_record *record = vx_exporter_begin(exporter, VX_RECORD_SPANS_MAX);
    if (!record) return false;
    memset(record->trace_id, 'a', sizeof record->trace_id - 1);
    memset(record->span_id, 'b', sizeof record->span_id - 1);
    memset(record->parent_id, 'c', sizeof record->parent_id - 1);
    memset(record->trace_state, 's', sizeof record->trace_state - 1);
    memset(record->id, 'i', sizeof record->id - 1);
    record->path = "/inference.GRPCInferenceService/ModelInfer";
    record->stages = VX_STAGES_COUNT;
    vx_exporter_end(exporter);
    return true;
}

static struct vx_exporter_counts counts(void)
{
    struct vx_exporter_counts now;
    vx_exporter_counts_get(exporter, &now);
    return now;
}

/* ------- the collector ------- */

static int accept_one(void)
{
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void say(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Reads one POST, and the size of its body; false when the exporter has given up. */
static bool read_post_try(int fd, size_t *body)
{
    static char head[4096];
    size_t used = 0;
    char *end = NULL;
    while (!end) {
        ssize_t got = read(fd, head + used, sizeof head - 1 - used);
        if (got <= 0) return false;
        used += (size_t)got;
        head[used] = '\0';
        end = memmem(head, used, "\r\n\r\n", 4);
    }
    const char *length = strstr(head, "Content-Length: ");
    ck_assert(length != NULL);
    *body = strtoul(length + 16, NULL, 10);
    for (size_t there = used - (size_t)(end + 4 - head); there < *body;) {
        ssize_t got = read(fd, head, sizeof head);
        if (got <= 0) return false;
        there += (size_t)got;
    }
    return true;
}

static size_t read_post(int fd)
{
    size_t body = 0;
    ck_assert(read_post_try(fd, &body));
    return body;
}

/* ------- cases ------- */

START_TEST(a_body_larger_than_what_a_socket_holds)
{
    open_exporter(VX_WAIT_SECONDS * VX_NS_PER_S);
    for (i32 i = 0; i < VX_SPAN_PACK_RECORDS; i++) ck_assert(give());
    int fd = accept_one();
    u64 all = VX_SPAN_PACK_RECORDS * VX_RECORD_SPANS_MAX;
    size_t bytes = 0;
    for (u64 sent = 0; sent < all; sent = counts().sent) { /* one POST or several */
        bytes += read_post(fd);
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        VX_WAIT_UNTIL(counts().sent > sent);
    }
    ck_assert_uint_gt(bytes, VX_SPAN_PACK_RECORDS * 4096);
    close(fd);
    vx_exporter_close(&exporter, VX_NS_PER_S);
    ck_assert_ptr_eq(exporter, NULL);
}
END_TEST

/* It refuses a body that it has not read, and is heard. */
START_TEST(an_early_refusal)
{
    open_exporter(VX_WAIT_SECONDS * VX_NS_PER_S);
    for (i32 i = 0; i < VX_SPAN_PACK_RECORDS; i++) ck_assert(give());
    int fd = accept_one();
    say(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    VX_WAIT_UNTIL(counts().rejected > 0);
    close(fd);
    vx_exporter_close(&exporter, 0);
}
END_TEST

START_TEST(a_full_ring_drops)
{
    open_exporter(VX_WAIT_SECONDS * VX_NS_PER_S);
    ck_assert(give());
    int fd = accept_one(); /* it has the first batch, and is not answered */
    i64 given = 1;
    while (give()) given++;
    ck_assert_int_ge(given, VX_RECORD_RING_SLOTS);
    for (i32 i = 0; i < 99; i++) ck_assert(!give());
    ck_assert_uint_eq(counts().dropped, 100 * VX_RECORD_SPANS_MAX);
    ck_assert_uint_eq(counts().sent + counts().failed + counts().rejected, 0);
    close(fd);
    vx_exporter_close(&exporter, 0);
}
END_TEST

START_TEST(the_end_beside_a_collector_that_hangs)
{
    u64 said = vx_log_count(VX_EVENT_SPANS_FAIL);
    open_exporter(VX_WAIT_SECONDS * VX_NS_PER_S);
    for (i32 i = 0; i < 3 * VX_SPAN_PACK_RECORDS; i++) ck_assert(give());
    int fd = accept_one();
    vx_exporter_close(&exporter, 50 * VX_NS_PER_MS);
    ck_assert_ptr_eq(exporter, NULL);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_SPANS_FAIL), said + 1);
    close(fd);
}
END_TEST

/* Takes one try and answers it; true when the exporter had not given up by then. */
static bool answer_in_time(void)
{
    static const char well[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    int fd = accept_one();
    struct pollfd left = {.fd = fd, .events = POLLIN};
    size_t body;
    if (read_post_try(fd, &body) && send(fd, well, sizeof well - 1, MSG_NOSIGNAL) > 0)
        while (!counts().sent && !poll(&left, 1, 1)) continue;
    close(fd);
    return counts().sent > 0;
}

/* Each try is over after its time, and the connection is not used again. */
START_TEST(a_try_has_its_time)
{
    open_exporter(50 * VX_NS_PER_MS);
    ck_assert(give());
    for (i32 i = 0; i < 3; i++) close(accept_one());
    int flow = (int)vx_log_count(VX_EVENT_SPANS_FLOW);
    while (!answer_in_time()) continue;
    ck_assert_uint_eq(counts().sent, VX_RECORD_SPANS_MAX);
    VX_WAIT_UNTIL((int)vx_log_count(VX_EVENT_SPANS_FLOW) == flow + 1);
    vx_exporter_close(&exporter, 0);
}
END_TEST

int main(void)
{
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_ERROR, .fd = 2}, "test");
    vx_thread_enter(VX_ROLE_LOOP);
    Suite *suite = suite_create("exporter");
    TCase *tests = tcase_create("exporter");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_body_larger_than_what_a_socket_holds);
    tcase_add_test(tests, an_early_refusal);
    tcase_add_test(tests, a_full_ring_drops);
    tcase_add_test(tests, the_end_beside_a_collector_that_hangs);
    tcase_add_test(tests, a_try_has_its_time);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
