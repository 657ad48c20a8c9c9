/* clock_jump - a library for LD_PRELOAD: the wall clock of a program jumps, as when it is set; the
 * monotonic clock goes on.
 *
 * CLOCK_JUMP names a file of 8 bytes, the seconds by which the clock is wrong; the program maps it, so
 * the clock jumps when a test writes to it.  Waits until a time of day are given to the kernel by its own
 * clock.  libfaketime does the same and more: it also moves timers of the monotonic clock (timerfd).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static long (*real_syscall)(long, ...);
static const volatile int64_t *seconds;

static __attribute__((constructor)) void begin(void)
{
    void *at = dlsym(RTLD_NEXT, "clock_gettime");
    __builtin_memcpy(&real_clock_gettime, &at, sizeof at);
    at = dlsym(RTLD_NEXT, "syscall");
    __builtin_memcpy(&real_syscall, &at, sizeof at);
    const char *path = getenv("CLOCK_JUMP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    at = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) abort();
    seconds = at;
    close(file);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_clock_gettime) begin();
    int result = real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += *seconds;
    return result;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

/* gRPC's locks wait by this. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
long syscall(long number, ...)
{
    long a[6];
    struct timespec until;
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (!real_syscall) begin();
    const struct timespec *given = (const struct timespec *)(uintptr_t)a[3];
    if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) && given) {
        until = *given;
        until.tv_sec = until.tv_sec > *seconds ? until.tv_sec - *seconds : 0;
        a[3] = (long)(uintptr_t)&until;
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
