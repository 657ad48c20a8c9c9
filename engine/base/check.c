/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/check.h"

#include "engine/base/thread.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAMES_MAX                                                                       \
    48 /* deeper than any call chain of ours; the rest would be libraries */

static _Thread_local const char *note_what = "nothing noted";
static _Thread_local u64 note_id;

void vx_panic_note(const char *what, u64 id)
{
    note_what = what;
    note_id = id;
}

void vx_panic(const char *file, int line, const char *what)
{
    char text[512];
    int length = snprintf(
        text, sizeof text,
        "panic file=%s line=%d assert=\"%s\" thread=%s doing=\"%s %llu\"\n", file, line,
        what, vx_thread_name(), note_what, (unsigned long long)note_id);
    if (length > (int)sizeof text - 1) length = (int)sizeof text - 1;
    /* stderr may be a broken pipe by now; there is nobody left to tell. */
    if (write(STDERR_FILENO, text, (size_t)length) < 0) abort();
    void *frames[FRAMES_MAX];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
    abort();
}

void vx_process_end(int exit_code)
{
    _exit(exit_code);
}
