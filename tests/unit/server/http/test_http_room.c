/* http: which connection is closed when a new one comes and all places are taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/http/http_private.h"
#include "tests/unit/server/http/http_harness.h"

#include <arpa/inet.h>
#include <check.h>
#include <string.h>
#include <unistd.h>

#define PLACES  16
#define EARLIER 20 /* connections of an address that have ended */

static int open_idle(int last)
{
    int fd = client_open_from(last);
    client_send(fd, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(fd, 200, "/x|");
    return fd;
}

static void expect_lives(int fd)
{
    client_send(fd, "GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(fd, 200, "/y|");
}

static void setup(void)
{
    server.connections_max = PLACES;
    server_start(NULL);
}

static void settle(void)
{
    usleep(30000); /* sleep: longer than a newcomer's protection */
}

/* The idlest connection is the one that has been silent longest, not the one that came
 * first. */
START_TEST(who_speaks_again_is_not_the_oldest)
{
    int fds[PLACES];
    for (int i = 0; i < PLACES; i++) fds[i] = open_idle(1);
    settle();
    expect_lives(fds[0]);
    int late = open_idle(1);
    expect_closed(fds[1]);
    for (int i = 0; i < PLACES; i++)
        if (i != 1) expect_lives(fds[i]);
    expect_lives(late);
    for (int i = 0; i < PLACES; i++) close(fds[i]);
    close(late);
    server_close();
}
END_TEST

/* An address gives up a place according to the connections it has, not those it had. */
START_TEST(connections_that_ended_do_not_count)
{
    int fds[PLACES];
    for (int i = 0; i < EARLIER; i++) close(open_idle(2));
    for (int i = 0; i < 3; i++) expect_serves(); /* iterations that process the ends */
    for (int i = 0; i < PLACES; i++)
        fds[i] = open_idle(i < 2 ? 2 : 1); /* address 2 is the oldest */
    settle();
    int late = open_idle(1);
    expect_closed(fds[2]);
    expect_lives(fds[0]);
    expect_lives(fds[1]);
    for (int i = 0; i < PLACES; i++) close(fds[i]);
    close(late);
    server_close();
}
END_TEST

static u64 key_of(const char *text)
{
    struct sockaddr_storage from = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    void *at = &((struct sockaddr_in *)(void *)&from)->sin_addr;
    if (from.ss_family == AF_INET6)
        at = &((struct sockaddr_in6 *)(void *)&from)->sin6_addr;
    ck_assert_int_eq(inet_pton(from.ss_family, text, at), 1);
    return http_source_key(&from);
}

/* One key for all addresses of a host, and each host has its own. */
START_TEST(networks_are_counted_apart)
{
    static const char *const hosts[] = {"127.0.0.1",    "10.0.0.1",      "1.0.0.10",
                                        "::1",          "2001:db8::1",   "2001:db9::1",
                                        "2001:db8:1::", "2001:db8:0:1::"};
    for (size_t i = 0; i < VX_COUNT(hosts); i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(key_of(hosts[i]) != key_of(hosts[k]), "%s and %s", hosts[i],
                          hosts[k]);
    ck_assert_uint_eq(key_of("2001:db8::1"), key_of("2001:db8::ffff:2"));
    ck_assert_uint_eq(key_of("::ffff:10.0.0.1"), key_of("10.0.0.1"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_room");
    TCase *tests = tcase_create("http_room");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, who_speaks_again_is_not_the_oldest);
    tcase_add_test(tests, connections_that_ended_do_not_count);
    tcase_add_test(tests, networks_are_counted_apart);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
