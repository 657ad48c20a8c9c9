/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/log_ring.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Most bytes of one write(2).  A pipe writes so many atomically: lines of another process
 * do not get between. */
#define CHUNK_BYTES PIPE_BUF
/* After a line was lost, so many bytes must be free again before the next line is taken:
 * a few long gaps are better than many short ones. */
#define RESUME_BYTES (VX_LOG_RING_BYTES / 4)
/* More gaps than a ring can hold at once, as they are RESUME_BYTES apart. */
#define GAPS_MAX 8
/* Interval at which flush checks: it may run in a signal handler, so it polls and takes
 * no lock. */
#define LOOK_NS VX_NS_PER_MS
/* How long after its end what a second held back is said. */
#define REST_NS (20 * VX_NS_PER_MS)
/* How long a crashing process waits for its last lines. */
#define CRASH_NS VX_NS_PER_S

_Static_assert(CHUNK_BYTES >= VX_LOG_LINE_BYTES, "a chunk holds a line");
_Static_assert(GAPS_MAX > VX_LOG_RING_BYTES / RESUME_BYTES + 1,
               "gaps are that far apart");

/* `lines` lines are missing before byte `at` (a count of bytes ever given). */
struct gap {
    u64 at, lines;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* the writer waits on it */
    pthread_t writer;
    int fd;
    vx_log_say_lost say_lost;
    vx_log_say_rest say_rest;
    i64 rest_ns; /* only the writer's: when to call say_rest; 0 = not before a line */
    u64 rest_written; /* only the writer's: `written` when rest_ns was set */
    _Atomic bool is_open;
    _Atomic u64 given, written; /* bytes ever; changed under the lock */
    _Atomic u64 lost;           /* lines ever */
    struct gap gaps[GAPS_MAX];  /* (lock) */
    _Atomic i32 gaps_count;     /* changed under the lock */
    bool is_waiting, is_ending; /* (lock) */
    bool is_torn;           /* only the writer's: the last line written lacks its end */
    _Atomic bool is_broken; /* the last write failed; the next line tries again */
    char bytes[VX_LOG_RING_BYTES];
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------- giving ------- */

static void ring_lose(u64 at, u64 lines)
{
    atomic_fetch_add(&ring.lost, lines);
    struct gap *last = ring.gaps_count ? &ring.gaps[ring.gaps_count - 1] : NULL;
    if (last && (last->at == at || ring.gaps_count == GAPS_MAX))
        last->lines += lines;
    else
        ring.gaps[ring.gaps_count++] = (struct gap){at, lines};
}

static bool ring_has_room(size_t length)
{
    size_t left = VX_LOG_RING_BYTES - (size_t)(ring.given - ring.written);
    bool loses = ring.gaps_count && ring.gaps[ring.gaps_count - 1].at == ring.given;
    /* Lines that could not be written leave a gap at the end, too, but then the ring is
     * empty and has room. */
    return left >= length && (!loses || left >= RESUME_BYTES);
}

static void ring_put(const char *line, size_t length)
{
    size_t at = (size_t)(ring.given % VX_LOG_RING_BYTES);
    size_t first = VX_LOG_RING_BYTES - at < length ? VX_LOG_RING_BYTES - at : length;
    memcpy(ring.bytes + at, line, first);
    memcpy(ring.bytes, line + first, length - first);
    ring.given += length;
}

bool vx_log_ring_give(const char *line, size_t length)
{
    pthread_mutex_lock(&ring.lock);
    bool fits = ring_has_room(length);
    if (fits)
        ring_put(line, length);
    else
        ring_lose(ring.given, 1);
    if (fits && ring.is_waiting) pthread_cond_signal(&ring.filled);
    pthread_mutex_unlock(&ring.lock);
    return fits;
}

/* ------- writing ------- */

/* Writes all bytes; returns how many were written, fewer than `length` after an error. */
static size_t writer_write(const char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t now = write(ring.fd, bytes + done, length - done);
        if (now > 0) {
            done += (size_t)now;
        } else if (now < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            /* Another process made it non-blocking: the front shares the file description
             * with the process that started it. */
            struct pollfd room = {.fd = ring.fd, .events = POLLOUT};
            (void)poll(&room, 1, -1);
        } else if (now == 0 || errno != EINTR) {
            break;
        }
    }
    return done;
}

static u64 lines_count(const char *bytes, size_t length)
{
    u64 count = 0;
    for (size_t i = 0; i < length; i++) count += bytes[i] == '\n';
    return count;
}

/* Writes whole lines; returns how many were not written. */
static u64 writer_send(const char *bytes, size_t length)
{
    if (ring.is_torn && writer_write("\n", 1) == 1) ring.is_torn = false;
    size_t done = ring.is_torn ? 0 : writer_write(bytes, length);
    ring.is_broken = done < length;
    if (done && bytes[done - 1] != '\n') ring.is_torn = true;
    return lines_count(bytes + done, length - done);
}

/* Copies whole lines from byte `from`, up to byte `end`, as many as fit one write. */
static size_t writer_copy(u64 from, u64 end, char chunk[CHUNK_BYTES])
{
    size_t length = end - from < CHUNK_BYTES ? (size_t)(end - from) : CHUNK_BYTES;
    size_t at = (size_t)(from % VX_LOG_RING_BYTES);
    size_t first = VX_LOG_RING_BYTES - at < length ? VX_LOG_RING_BYTES - at : length;
    memcpy(chunk, ring.bytes + at, first);
    memcpy(chunk + first, ring.bytes, length - first);
    while (chunk[length - 1] != '\n') length--; /* a chunk holds a whole line */
    return length;
}

/* (lock) True when lines wait, or a gap can be reported. */
static bool writer_has_work(void)
{
    if (ring.given > ring.written) return true;
    return ring.gaps_count && !ring.is_broken;
}

/* (lock) Releases the lock while it writes. */
static void writer_tell_gap(char chunk[CHUNK_BYTES])
{
    u64 lines = ring.gaps[0].lines;
    pthread_mutex_unlock(&ring.lock);
    size_t length = ring.say_lost(lines, chunk, CHUNK_BYTES);
    bool said = !writer_send(chunk, length);
    pthread_mutex_lock(&ring.lock);
    if (!said) return; /* tried again with the next line */
    ring.gaps[0].lines -= lines;
    if (ring.gaps[0].lines) return; /* the gap grew meanwhile */
    ring.gaps_count--;
    memmove(ring.gaps, ring.gaps + 1, (size_t)ring.gaps_count * sizeof *ring.gaps);
}

/* (lock) Releases the lock while it writes: only the writer removes lines, so those being
 * copied stay. */
static void writer_take_lines(char chunk[CHUNK_BYTES])
{
    u64 from = ring.written, end = ring.given;
    /* Lines behind a gap are written after the line that reports it. */
    for (i32 i = 0; i < ring.gaps_count; i++)
        if (ring.gaps[i].at > from && ring.gaps[i].at < end) end = ring.gaps[i].at;
    pthread_mutex_unlock(&ring.lock);
    size_t length = writer_copy(from, end, chunk);
    u64 lost = writer_send(chunk, length);
    pthread_mutex_lock(&ring.lock);
    atomic_fetch_add(&ring.lost, lost); /* before a flush can see the lines as written */
    ring.written += length;
    if (!lost) return;
    if (ring.gaps_count && ring.gaps[0].at <= ring.written) {
        ring.gaps[0].lines += lost;
        ring.gaps[0].at = ring.written;
        return;
    }
    if (ring.gaps_count == GAPS_MAX) { /* reported with the next gap */
        ring.gaps[0].lines += lost;
        return;
    }
    memmove(ring.gaps + 1, ring.gaps, (size_t)ring.gaps_count * sizeof *ring.gaps);
    ring.gaps[0] = (struct gap){ring.written, lost};
    ring.gaps_count++;
}

/* Some time after the second is over: a thread may be about to count a line in it. */
static i64 writer_rest_ns(void)
{
    return (vx_clock_ns() / VX_NS_PER_S + 1) * VX_NS_PER_S + REST_NS;
}

/* (lock) Calls say_rest if it is time, with the lock released, and sets the next time if
 * lines were written since the last was set. */
static void writer_tell_rest(void)
{
    if (!ring.say_rest) return;
    if (ring.rest_ns && vx_clock_ns() >= ring.rest_ns) {
        ring.rest_ns = 0;
        pthread_mutex_unlock(&ring.lock);
        ring.say_rest();
        pthread_mutex_lock(&ring.lock);
    }
    if (ring.rest_ns || ring.written == ring.rest_written) return;
    ring.rest_ns = writer_rest_ns();
    ring.rest_written = ring.written;
}

/* (lock) Waits for a line, or until say_rest is to be called. */
static void writer_wait(void)
{
    const struct timespec until = {.tv_sec = ring.rest_ns / VX_NS_PER_S,
                                   .tv_nsec = ring.rest_ns % VX_NS_PER_S};
    ring.is_waiting = true;
    if (ring.rest_ns)
        (void)pthread_cond_clockwait(&ring.filled, &ring.lock, CLOCK_MONOTONIC, &until);
    else
        pthread_cond_wait(&ring.filled, &ring.lock);
    ring.is_waiting = false;
}

static void writer_main(void *context)
{
    (void)context;
    char chunk[CHUNK_BYTES];
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        writer_tell_rest();
        if (writer_has_work()) {
            bool tells = ring.gaps_count && ring.gaps[0].at <= ring.written;
            if (tells) writer_tell_gap(chunk);
            if (ring.given > ring.written) writer_take_lines(chunk);
            continue;
        }
        if (ring.is_ending) break;
        writer_wait();
    }
    pthread_mutex_unlock(&ring.lock);
}

/* ------- the end ------- */

bool vx_log_ring_flush(i64 limit_ns)
{
    if (!ring.is_open) return true;
    const struct timespec look = {.tv_nsec = LOOK_NS};
    i64 end_ns = vx_clock_ns() + limit_ns;
    for (u64 target = ring.given;;) {
        bool told = !ring.gaps_count || ring.is_broken;
        if (ring.written >= target && told) return true;
        if (vx_clock_ns() >= end_ns) return false;
        (void)nanosleep(&look, NULL);
    }
}

/* Writes the last lines, which say why the process crashes, then raises the signal again
 * with its default action. */
static void ring_on_crash(int number)
{
    int error = errno;
    const struct sigaction fallback = {.sa_handler = SIG_DFL};
    (void)vx_log_ring_flush(CRASH_NS);
    (void)sigaction(number, &fallback, NULL);
    (void)raise(number);
    errno = error;
}

/* Handles the signals that have no handler; a sanitizer, for example, keeps its own. */
static void ring_watch_crashes(void)
{
    static const int numbers[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    const struct sigaction action = {.sa_handler = ring_on_crash};
    for (size_t i = 0; i < VX_COUNT(numbers); i++) {
        struct sigaction before;
        bool is_ours = !sigaction(numbers[i], NULL, &before) &&
                       !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL;
        if (is_ours) (void)sigaction(numbers[i], &action, NULL);
    }
}

vx_status vx_log_ring_open(int fd, vx_log_say_lost say_lost, vx_log_say_rest say_rest)
{
    VX_ASSERT(!ring.is_open);
    VX_ASSERT(!pthread_cond_init(&ring.filled, NULL));
    ring.fd = fd;
    ring.say_lost = say_lost;
    ring.say_rest = say_rest;
    ring.rest_ns = 0;
    ring.rest_written = ring.written;
    ring.is_ending = false;
    ring.is_torn = false;
    ring.is_broken = false;
    /* The writer thread blocks all signals: it may wait in write(2). */
    sigset_t all, before;
    sigfillset(&all);
    VX_ASSERT(!pthread_sigmask(SIG_SETMASK, &all, &before));
    vx_status st = vx_thread_open(&ring.writer, VX_ROLE_LOG, writer_main, NULL);
    VX_ASSERT(!pthread_sigmask(SIG_SETMASK, &before, NULL));
    VX_TRY(st);
    ring.is_open = true;
    ring_watch_crashes();
    return VX_OK;
}

bool vx_log_ring_is_open(void)
{
    return ring.is_open;
}

u64 vx_log_ring_lost(void)
{
    return ring.lost;
}

void vx_log_ring_close(i64 limit_ns)
{
    if (!ring.is_open) return;
    bool all_out = vx_log_ring_flush(limit_ns);
    ring.is_open = false;
    pthread_mutex_lock(&ring.lock);
    ring.is_ending = true;
    pthread_cond_signal(&ring.filled);
    pthread_mutex_unlock(&ring.lock);
    if (all_out)
        pthread_join(ring.writer, NULL);
    else
        pthread_detach(ring.writer);
}
