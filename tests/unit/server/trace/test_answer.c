/* answer: what a collector may answer, whole and byte by byte, and when to try again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/trace/answer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define OK      "HTTP/1.1 200 OK\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"

struct row {
    const char *text;
    bool ends; /* the collector closes behind it */
    enum vx_answered answered;
    i32 status;
    bool keep_alive;
    const char *retry_after, *body;
};

static const struct row rows[] = {
    {OK "Content-Length: 2\r\n\r\nab", false, VX_ANSWER_DONE, 200, true, "", "ab"},
    {OK "Content-Length: 0\r\n\r\n", false, VX_ANSWER_DONE, 200, true, "", ""},
    {OK "Content-Length: 0\r\n\r\nmore", false, VX_ANSWER_DONE, 200, false, "", ""},
    {OK "Connection: close\r\nContent-Length: 1\r\n\r\na", false, VX_ANSWER_DONE, 200,
     false, "", "a"},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", false, VX_ANSWER_DONE, 200, false,
     "", "a"},
    {OK CHUNKED "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", false, VX_ANSWER_DONE, 200, true, "",
     "abc"},
    {"HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 1\r\n\r\na", false,
     VX_ANSWER_DONE, 200, true, "", "a"},
    {"HTTP/1.1 204 No Content\r\n\r\n", false, VX_ANSWER_DONE, 204, true, "", ""},
    {"HTTP/1.1 503 Later\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", false,
     VX_ANSWER_DONE, 503, true, "7", ""},
    {"HTTP/1.1 429 Slow\r\nRETRY-AFTER:  9  \r\nX-Retry-After: 8\r\nContent-Length: "
     "0\r\n\r\n",
     false, VX_ANSWER_DONE, 429, true, "9", ""},
    {OK "\r\nuntil the end", true, VX_ANSWER_DONE, 200, false, "", "until the end"},
    {OK "\r\n", true, VX_ANSWER_DONE, 200, false, "", ""},
    {"", true, VX_ANSWER_BAD, 0, false, "", ""},
    {OK, true, VX_ANSWER_BAD, 0, false, "", ""},
    {OK "Content-Length: 3\r\n\r\nab", true, VX_ANSWER_BAD, 0, false, "", "ab"},
    {OK CHUNKED "2\r\nab\r\n", true, VX_ANSWER_BAD, 0, false, "", "ab"},
    {OK "Content-Length: 3\r\n\r\nab", false, VX_ANSWER_MORE, 0, false, "", "ab"},
    {"SSH-2.0-x\r\n", false, VX_ANSWER_BAD, 0, false, "", ""},
    {"GET / HTTP/1.1\r\n", false, VX_ANSWER_BAD, 0, false, "", ""},
    {"HTTP/2.0 200 OK\r\nContent-Length: -1\r\n\r\n", false, VX_ANSWER_BAD, 0, false, "",
     ""},
    {OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", false, VX_ANSWER_BAD, 0, false,
     "", ""},
    {OK "bad header\r\n\r\n", false, VX_ANSWER_BAD, 0, false, "", ""},
};

static void feed(const struct row *row, size_t piece)
{
    static struct vx_answer answer;
    size_t length = strlen(row->text);
    enum vx_answered answered = VX_ANSWER_MORE;
    vx_answer_init(&answer);
    for (size_t at = 0; at < length && answered == VX_ANSWER_MORE; at += piece)
        answered = vx_answer_feed(&answer, row->text + at,
                                  length - at < piece ? length - at : piece);
    if (answered == VX_ANSWER_MORE && row->ends) answered = vx_answer_end(&answer);
    ck_assert_msg(answered == row->answered, "%d: %s", answered, row->text);
    ck_assert(!answer.why == (answered != VX_ANSWER_BAD));
    if (answered != VX_ANSWER_DONE) return;
    ck_assert_int_eq(answer.status, row->status);
    /* In pieces nobody sees what comes behind. */
    if (piece >= length)
        ck_assert_msg(answer.keep_alive == row->keep_alive, "%s", row->text);
    ck_assert_str_eq(answer.retry_after, row->retry_after);
    ck_assert_uint_eq(answer.body_length, strlen(row->body));
    ck_assert_mem_eq(answer.body, row->body, answer.body_length);
}

START_TEST(answers)
{
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        for (size_t piece = 1; piece < 200; piece++) feed(&rows[i], piece);
}
END_TEST

/* Feeds `more` until the answer is not wanted any more; returns the bytes fed. */
static size_t feed_until_bad(const char *first, const char *more)
{
    static struct vx_answer answer;
    vx_answer_init(&answer);
    size_t fed = strlen(first);
    ck_assert(vx_answer_feed(&answer, first, fed) == VX_ANSWER_MORE);
    while (vx_answer_feed(&answer, more, strlen(more)) == VX_ANSWER_MORE) {
        fed += strlen(more);
        ck_assert_uint_le(fed, VX_ANSWER_WIRE_BYTES_MAX);
    }
    ck_assert_str_eq(answer.why, "its answer has no end");
    ck_assert_uint_le(answer.body_length, VX_ANSWER_BODY_BYTES);
    return fed;
}

START_TEST(what_has_no_end_is_cut)
{
    ck_assert_uint_gt(feed_until_bad(OK, "X-More: 1234567890\r\n"), 60000);
    ck_assert_uint_gt(feed_until_bad(OK "X-More: ", "1234567890"), 60000);
    ck_assert_uint_gt(feed_until_bad(OK CHUNKED, "3\r\nabc\r\n"), 60000);
    ck_assert_uint_gt(feed_until_bad(OK "Content-Length: 999999999\r\n\r\n", "0123456"),
                      60000);
    ck_assert_uint_gt(
        feed_until_bad("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"),
        60000);
}
END_TEST

START_TEST(retry_after)
{
    /* Sun, 06 Nov 1994 08:49:37 GMT is 784111777 s since 1970. */
    static const i64 now_ms = INT64_C(784111777000);
    static const struct {
        const char *text;
        i64 ms;
    } cases[] = {
        {"0", 0},
        {"3", 3000},
        {"60", 60000},
        {"61", VX_RETRY_AFTER_MS_MAX},
        {"999999999", VX_RETRY_AFTER_MS_MAX},
        {"99999999999999999999999", VX_RETRY_AFTER_MS_MAX},
        {"Sun, 06 Nov 1994 08:49:47 GMT", 10000},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1994 08:00:00 GMT", 0}, /* past */
        {"Sun, 06 Nov 2094 08:00:00 GMT", VX_RETRY_AFTER_MS_MAX},
        {"Sun, 06 Nov 1994 08:49:37 GMT ", -1},
        {"", -1},
        {"-1", -1},
        {"1.5", -1},
        {"soon", -1},
        {"Sun, 06 Foo 1994 08:49:37 GMT", -1},
    };
    for (size_t i = 0; i < VX_COUNT(cases); i++)
        ck_assert_msg(vx_retry_after_ms(cases[i].text, now_ms) == cases[i].ms, "'%s'",
                      cases[i].text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answer");
    TCase *tests = tcase_create("answer");
    tcase_add_test(tests, answers);
    tcase_add_test(tests, what_has_no_end_is_cut);
    tcase_add_test(tests, retry_after);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
