/* log_ring: no writer waits for a reader, order is kept, and missing lines are counted where they
 * are missing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/log_ring.h"
#include "tests/support/wait.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS (60 * VX_NS_PER_S)
/* More than the ring and a pipe hold. */
#define MANY (4 * VX_LOG_RING_BYTES / 32)

static char text[16 << 20];

static size_t say_lost(u64 lines, char *line, size_t capacity)
{
    return (size_t)snprintf(line, capacity, "lost %llu\n", (unsigned long long)lines);
}

static void ring_to(int fd)
{
    vx_status st = vx_log_ring_open(fd, say_lost, NULL);
    ck_assert(!st.fault);
}

static bool give(const char *who, int number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d and some more words\n", who, number);
    return vx_log_ring_give(line, (size_t)length);
}

struct reader {
    pthread_t thread;
    int fd;
    size_t length;
};

static void *reader_main(void *context)
{
    struct reader *reader = context;
    for (ssize_t got; (got = read(reader->fd, text + reader->length,
                                  sizeof text - 1 - reader->length)) > 0;)
        reader->length += (size_t)got;
    text[reader->length] = '\0';
    return NULL;
}

static void reader_start(struct reader *reader, int fd)
{
    *reader = (struct reader){.fd = fd};
    ck_assert(!pthread_create(&reader->thread, NULL, reader_main, reader));
}

static u64 lines_read, lines_told; /* by expect_lines */

/* Lines that `who` wrote, in order; if `told_exactly`, missing lines are counted where they are
 * missing.  Each line is parsed alone: under a sanitizer sscanf reads to the end of the text. */
static void expect_lines(const char *who, int count, bool told_exactly)
{
    int next = 0, number;
    char pattern[64];
    unsigned long long lost;
    lines_read = lines_told = 0;
    snprintf(pattern, sizeof pattern, "%s %%d and some more words", who);
    const char *all_end = text + strlen(text);
    for (char *line = text, *end; line < all_end; line = end) {
        end = memchr(line, '\n', (size_t)(all_end - line));
        if (!end) ck_abort_msg("torn: %.80s", line);
        *end = '\0';
        if (sscanf(line, "lost %llu", &lost) == 1) {
            lines_told += lost;
            if (told_exactly) next += (int)lost;
        } else if (sscanf(line, pattern, &number) == 1) {
            if (told_exactly ? number != next : number < next)
                ck_abort_msg("%s %d where %d was expected", who, number, next);
            next = number + 1;
            lines_read++;
        } else if (told_exactly) {
            ck_abort_msg("not a line: %.80s", line);
        }
        *end++ = '\n';
    }
    if (told_exactly) ck_assert_int_eq(next, count);
}

START_TEST(a_stuck_reader_keeps_nobody)
{
    int ends[2], given = 0;
    ck_assert(!pipe(ends));
    ring_to(ends[1]);
    for (int i = 0; i < (int)MANY; i++) given += give("a", i);
    ck_assert_int_lt(given, (int)MANY);
    ck_assert_int_gt(given, VX_LOG_RING_BYTES / 64);
    ck_assert_uint_eq(vx_log_ring_lost(), MANY - (u64)given);
    ck_assert(!vx_log_ring_flush(VX_NS_PER_MS)); /* it returns */
    /* Now it reads: every line is there or counted as missing, in its place. */
    struct reader reader;
    reader_start(&reader, ends[0]);
    ck_assert(vx_log_ring_flush(PATIENCE_NS));
    ck_assert(give("a", (int)MANY)); /* lines are taken again */
    vx_log_ring_close(PATIENCE_NS);
    close(ends[1]);
    pthread_join(reader.thread, NULL);
    expect_lines("a", (int)MANY + 1, true);
    ck_assert_uint_eq(lines_told, vx_log_ring_lost());
}
END_TEST

START_TEST(a_pipe_that_does_not_block_loses_nothing)
{
    int ends[2], count = VX_LOG_RING_BYTES / 64;
    ck_assert(!pipe2(ends, O_NONBLOCK));
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, 0), 0);
    ring_to(ends[1]);
    int given = 0;
    for (int i = 0; i < count; i++) given += give("b", i);
    ck_assert_int_eq(given, count);
    struct reader reader;
    reader_start(&reader, ends[0]);
    vx_log_ring_close(PATIENCE_NS);
    close(ends[1]);
    pthread_join(reader.thread, NULL);
    expect_lines("b", count, true);
    ck_assert_uint_eq(vx_log_ring_lost(), 0);
}
END_TEST

/* The disk is full in the middle of a line: that line is ended before the next one begins. */
START_TEST(a_torn_line_is_ended_and_lost_lines_are_told_later)
{
    signal(SIGXFSZ, SIG_IGN);
    int fd = memfd_create("log", MFD_CLOEXEC);
    struct rlimit limit;
    ck_assert(!getrlimit(RLIMIT_FSIZE, &limit));
    ring_to(fd);
    /* No assertion while it holds: Check writes files, too. */
    bool good = !setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, limit.rlim_max});
    int i = 0;
    while (good && !vx_log_ring_lost())
        good = give("c", i++) && vx_log_ring_flush(PATIENCE_NS);
    for (int more = 0; more < 5; more++, i++) good = good && give("c", i);
    good = good && vx_log_ring_flush(PATIENCE_NS); /* lost, so flush ends */
    good = !setrlimit(RLIMIT_FSIZE, &limit) && good;
    ck_assert(good);
    ck_assert_uint_eq(vx_log_ring_lost(), 6);
    ck_assert(give("c", i));
    vx_log_ring_close(PATIENCE_NS);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    ck_assert_int_gt(length, 1000);
    text[length] = '\0';
    char expected[64];
    snprintf(expected, sizeof expected, "\nlost 6\nc %d and some more words\n", i);
    ck_assert_msg(strstr(text + 1000, expected) == text + 1000, "%s", text + 960);
}
END_TEST

START_TEST(nobody_to_write_to_is_no_reason_to_spin)
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    ck_assert(!pipe(ends));
    close(ends[0]);
    ring_to(ends[1]);
    for (int i = 0; i < 100; i++) ck_assert(give("d", i));
    ck_assert(vx_log_ring_flush(PATIENCE_NS));
    ck_assert_uint_eq(vx_log_ring_lost(), 100);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    usleep(200000); /* sleep: in which it must not spin */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    i64 used_ns =
        (after.tv_sec - before.tv_sec) * VX_NS_PER_S + (after.tv_nsec - before.tv_nsec);
    ck_assert_int_lt(used_ns, 100 * VX_NS_PER_MS); /* of this process alone: it sleeps */
    vx_log_ring_close(PATIENCE_NS);
}
END_TEST

#define THREADS      4
#define THREAD_LINES 20000
static const char *const names[THREADS] = {"t0", "t1", "t2", "t3"};

static void *thread_main(void *name)
{
    for (int i = 0; i < THREAD_LINES; i++) (void)give(name, i);
    return NULL;
}

START_TEST(lines_of_threads_keep_their_order)
{
    int ends[2];
    ck_assert(!pipe(ends));
    ring_to(ends[1]);
    struct reader reader;
    reader_start(&reader, ends[0]);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert(!pthread_create(&threads[i], NULL, thread_main, (void *)names[i]));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    vx_log_ring_close(PATIENCE_NS);
    close(ends[1]);
    pthread_join(reader.thread, NULL);
    u64 lines = 0;
    for (int i = 0; i < THREADS; i++) {
        expect_lines(names[i], THREAD_LINES, false);
        lines += lines_read;
    }
    ck_assert_uint_eq(lines + vx_log_ring_lost(), (u64)THREADS * THREAD_LINES);
    ck_assert_uint_eq(lines_told, vx_log_ring_lost());
}
END_TEST

/* What the log does with missing lines: it writes one line about them, and counts them for
 * /metrics. */
START_TEST(the_log_says_how_many_are_missing)
{
    int ends[2];
    ck_assert(!pipe(ends));
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = ends[1]}, "test");
    ck_assert(!vx_log_open().fault);
    int said = 0;
    for (; !vx_log_dropped(); said++) VX_LOG(ACCESS, VX_LOG_I64("i", said));
    struct reader reader;
    reader_start(&reader, ends[0]);
    ck_assert(vx_log_flush(PATIENCE_NS));
    VX_LOG(ACCESS, VX_LOG_I64("i", said));
    vx_log_ring_close(PATIENCE_NS);
    close(ends[1]);
    pthread_join(reader.thread, NULL);
    ck_assert_ptr_nonnull(strstr(text, " warn LOG_DROPPED process=test lines=1\n"));
    ck_assert_uint_eq(vx_log_dropped(), 1);
    ck_assert_uint_ge(vx_log_count(VX_EVENT_LOG_DROPPED), 1);
}
END_TEST

/* True when the file of the log has `words`. */
static bool log_has(int fd, const char *words)
{
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    ck_assert_int_ge(length, 0);
    text[length] = '\0';
    return strstr(text, words);
}

/* No next line of the event comes: the writer thread says what is missing. */
START_TEST(what_was_held_back_is_said_once_the_second_is_over)
{
    int fd = memfd_create("log", MFD_CLOEXEC);
    char words[80];
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = fd}, "test");
    ck_assert(!vx_log_open().fault);
    for (int turn = 0; turn < 2; turn++) { /* and again after a pause */
        int held = VX_LOG_BURST + 5 + turn;
        /* All in one second, whose first lines were not there yet. */
        i64 second = vx_clock_ns() / VX_NS_PER_S;
        VX_WAIT_UNTIL(vx_clock_ns() / VX_NS_PER_S > second);
        for (int i = 0; i < VX_LOG_BURST + held; i++) VX_LOG(DRAIN, VX_LOG_I64("i", i));
        snprintf(words, sizeof words,
                 " warn LOG_SUPPRESSED process=test of=DRAIN lines=%d\n", held);
        VX_WAIT_UNTIL(log_has(fd, words));
    }
    ck_assert_ptr_null(strstr(text, "suppressed="));
    ck_assert(vx_log_flush(PATIENCE_NS));
    vx_log_ring_close(PATIENCE_NS);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_LOG_SUPPRESSED), 2);
}
END_TEST

/* Runs before the log's own handler, which was registered first. */
static void flood(void)
{
    for (int i = 0; i < 3 * VX_LOG_BURST; i++) VX_LOG(STOP, VX_LOG_I64("i", i));
}

START_TEST(what_was_held_back_is_said_at_exit)
{
    int fd = memfd_create("log", MFD_CLOEXEC);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = fd}, "test");
        if (_i && vx_log_open().fault) _exit(1); /* with the thread, and without */
        atexit(flood);
        exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(log_has(fd, " warn LOG_SUPPRESSED process=test of=STOP lines="));
}
END_TEST

/* Otherwise the front would hang in its panic, and nothing would restart it. */
START_TEST(a_panic_ends_although_nobody_reads)
{
    int ends[2];
    ck_assert(!pipe(ends));
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(ends[1], text, PIPE_BUF) > 0) continue; /* full */
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0);
    ring_to(STDERR_FILENO);
    ck_assert(give("e", 0));
    vx_panic(__FILE__, __LINE__, "a test");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log_ring");
    TCase *tests = tcase_create("log_ring");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_stuck_reader_keeps_nobody);
    tcase_add_test(tests, a_pipe_that_does_not_block_loses_nothing);
    tcase_add_test(tests, a_torn_line_is_ended_and_lost_lines_are_told_later);
    tcase_add_test(tests, nobody_to_write_to_is_no_reason_to_spin);
    tcase_add_test(tests, lines_of_threads_keep_their_order);
    tcase_add_test(tests, the_log_says_how_many_are_missing);
    tcase_add_test(tests, what_was_held_back_is_said_once_the_second_is_over);
    tcase_add_loop_test(tests, what_was_held_back_is_said_at_exit, 0, 2);
    tcase_add_test_raise_signal(tests, a_panic_ends_although_nobody_reads, SIGABRT);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
