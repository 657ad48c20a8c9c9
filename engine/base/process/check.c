/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAMES_MAX                                                                       \
    48 /* deeper than any call chain of our code; libraries may go deeper */

/* Time limits for the last log lines and for the panic text: a reader that does not read
 * must not keep a dying process alive. */
#define LAST_LINES_NS VX_NS_PER_S
#define LAST_WORDS_S  2

static _Thread_local const char *note_what = "nothing noted";
static _Thread_local u64 note_id;

void vx_panic_note(const char *what, u64 id)
{
    note_what = what;
    note_id = id;
}

static void panic_on_alarm(int number)
{
    (void)number;
    abort();
}

/* If the reader of stderr has stopped reading, an alarm aborts the process. */
static void panic_limit_words(void)
{
    sigset_t alarm_set;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    (void)signal(SIGALRM, panic_on_alarm);
    (void)pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
    (void)alarm(LAST_WORDS_S);
}

void vx_panic(const char *file, int line, const char *what)
{
    char text[512];
    int length = snprintf(
        text, sizeof text,
        "panic file=%s line=%d assert=\"%s\" thread=%s doing=\"%s %llu\"\n", file, line,
        what, vx_thread_name(), note_what, (unsigned long long)note_id);
    if (length > (int)sizeof text - 1) length = (int)sizeof text - 1;
    (void)vx_log_flush(LAST_LINES_NS); /* the log lines that led here come first */
    panic_limit_words();
    /* stderr may be a broken pipe; then there is nowhere left to write. */
    if (write(STDERR_FILENO, text, (size_t)length) < 0) abort();
    void *frames[FRAMES_MAX];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
    abort();
}

void vx_process_end(int exit_code)
{
    (void)vx_log_flush(LAST_LINES_NS);
    _exit(exit_code);
}
