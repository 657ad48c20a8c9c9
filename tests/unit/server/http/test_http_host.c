/* By which names the admin port may be asked when it is on the loopback: pages of strangers
 * may have theirs lead to 127.0.0.1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/http/http_host.h"
#include "tests/unit/server/http/http_harness.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *host;
    bool fits;
} hosts[] = {
    {"", true},
    {"localhost", true},
    {"LocalHost:8002", true},
    {"127.0.0.1", true},
    {"127.0.0.1:1", true},
    {"192.0.2.7:8002", true}, /* of a proxy, or a port that was forwarded */
    {"[::1]", true},
    {"[2001:db8::1]:8002", true},
    {"admin.local:8002", true}, /* what --http says */
    {"ADMIN.LOCAL", true},
    {"evil.example", false},
    {"evil.example:8002", false},
    {"localhost.evil.example", false},
    {"evil.localhost", false},
    {"127.0.0.1.evil.example", false},
    {"127.0.0.1evil", false},
    {"127.1", false},
    {"[::1].evil.example", false},
    {"[evil.example]", false},
    {"[127.0.0.1]", false},
    {"[]", false},
    {"[", false},
    {"[::1", false},
    {"::1", false},
    {":8002", false},
    {"localhost:8002x", false},
    {"localhost:80:02", false},
    {"localhost,evil.example", false},
    {"localhost@evil.example", false},
    {"evil.example@localhost", false},
};

START_TEST(names_that_no_stranger_can_have)
{
    ck_assert_msg(vx_http_host_fits(hosts[_i].host, "admin.local") == hosts[_i].fits,
                  "'%s'", hosts[_i].host);
}
END_TEST

START_TEST(a_long_name_fits_nothing)
{
    char host[1000];
    memset(host, 'a', sizeof host);
    for (size_t i = 1; i < sizeof host; i++) {
        host[i] = '\0';
        ck_assert(!vx_http_host_fits(host, ""));
        host[i] = 'a';
    }
}
END_TEST

static const struct {
    const char *address;
    bool loopback;
} addresses[] = {
    {"127.0.0.1", true},  {"127.9.9.9", true},         {"::1", true},
    {"0.0.0.0", false},   {"::ffff:127.0.0.1", true},  {"::", false},
    {"192.0.2.1", false}, {"::ffff:192.0.2.1", false}, {"2001:db8::1", false},
};

START_TEST(addresses_of_the_loopback)
{
    struct sockaddr_storage at = {0};
    const char *text = addresses[_i].address;
    struct sockaddr_in *four = (void *)&at;
    struct sockaddr_in6 *six = (void *)&at;
    at.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    void *to = at.ss_family == AF_INET ? (void *)&four->sin_addr : &six->sin6_addr;
    ck_assert_int_eq(inet_pton(at.ss_family, text, to), 1);
    ck_assert_msg(vx_http_host_is_loopback(&at) == addresses[_i].loopback, "%s", text);
}
END_TEST

/* ------- through the port ------- */

static const struct {
    const char *head;
    int status;
    const char *body;
} asked[] = {
    {"HTTP/1.1\r\nHost: localhost:8002\r\n", 200, "/x|"},
    {"HTTP/1.1\r\nhost:  127.0.0.1 \t\r\n", 200, "/x|"},
    {"HTTP/1.0\r\nConnection: keep-alive\r\n", 200, "/x|"},
    {"HTTP/1.1\r\nHost: evil.example:8002\r\n", 403, "expected such a Host"},
    {"HTTP/1.0\r\nHost: evil.example\r\n", 403, "expected such a Host"},
    {"HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400, "one header Host"},
    {"HTTP/1.1\r\nX: 1\r\nHost: evil.example\r\nY: localhost\r\n", 403, "Host"},
};

static void ask(const char *address, const char *head, int status, const char *body)
{
    char text[256];
    server_open(address, NULL);
    ck_assert_msg(!server.status.fault, "%s", server.why.text);
    int fd = client_open();
    snprintf(text, sizeof text, "GET /x %s\r\n", head);
    client_send(fd, text);
    struct answer answer = client_receive(fd, false);
    ck_assert_int_eq(answer.status, status);
    ck_assert_msg(strstr(answer.body, body) != NULL, "%.*s", (int)answer.body_bytes,
                  answer.body);
    if (status != 200) expect_closed(fd);
    close(fd);
    server_close();
}

START_TEST(the_loopback_asks_for_a_name_of_its_own)
{
    ask("127.0.0.1:0", asked[_i].head, asked[_i].status, asked[_i].body);
}
END_TEST

/* Who binds it elsewhere has names that we cannot know. */
START_TEST(other_addresses_answer_by_any_name)
{
    ask("0.0.0.0:0", "HTTP/1.1\r\nHost: voxeld.example\r\n", 200, "/x|");
}
END_TEST

/* The next request of a connection has its own Host. */
START_TEST(each_request_is_asked)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    "GET /y HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    expect_answer(fd, 200, "/x|");
    ck_assert_int_eq(client_receive(fd, false).status, 403);
    expect_closed(fd);
    close(fd);
    server_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_host");
    TCase *tests = tcase_create("names");
    tcase_add_loop_test(tests, names_that_no_stranger_can_have, 0, VX_COUNT(hosts));
    tcase_add_test(tests, a_long_name_fits_nothing);
    tcase_add_loop_test(tests, addresses_of_the_loopback, 0, VX_COUNT(addresses));
    tcase_set_timeout(tests, 2 * PATIENCE_MS / 1000.0);
    tcase_add_loop_test(tests, the_loopback_asks_for_a_name_of_its_own, 0,
                        VX_COUNT(asked));
    tcase_add_test(tests, other_addresses_answer_by_any_name);
    tcase_add_test(tests, each_request_is_asked);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
