/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/gpu/jit/child.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/gpu/driver/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Variables of ours that would change what a compiler reads or in which language it
 * speaks; two of them get our values. */
static const char *const hidden[] = {
    "CPATH=",  "C_INCLUDE_PATH=", "CPLUS_INCLUDE_PATH=", "CCC_OVERRIDE_OPTIONS=",
    "LC_ALL=", "TMPDIR=",
};
#define VARIABLES_MAX 512

static bool is_hidden(const char *variable)
{
    for (size_t i = 0; i < VX_COUNT(hidden); i++)
        if (!strncmp(variable, hidden[i], strlen(hidden[i]))) return true;
    return false;
}

static void variables_make(char *temporary, char *list[VARIABLES_MAX + 3])
{
    static char language[] = "LC_ALL=C";
    size_t count = 0;
    for (char **at = environ; *at && count < VARIABLES_MAX; at++)
        if (!is_hidden(*at)) list[count++] = *at;
    list[count++] = language;
    if (temporary[0]) list[count++] = temporary;
    list[count] = NULL;
}

static int start(const struct vx_child *child, int out, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char temporary[512] = "", *variables[VARIABLES_MAX + 3];
    if (child->folder)
        (void)snprintf(temporary, sizeof temporary, "TMPDIR=%s", child->folder);
    variables_make(temporary, variables);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (child->folder) posix_spawn_file_actions_addchdir_np(&actions, child->folder);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    /* posix_spawn only reads the arguments. */
    int failed = posix_spawn(pid, child->arguments[0], &actions, &attributes,
                             (char *const *)(uintptr_t)child->arguments, variables);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

/* Reads until the pipe ends; false = the deadline came first. */
static bool listen_until(int in, i64 deadline_ns, struct vx_child_said *said)
{
    char dropped[4096];
    for (;;) {
        const i64 left_ns = deadline_ns - vx_clock_ns();
        struct pollfd readable = {.fd = in, .events = POLLIN};
        if (left_ns <= 0) return false;
        if (poll(&readable, 1, (int)(left_ns / VX_NS_PER_MS) + 1) <= 0) continue;
        const size_t room = said->text ? VX_JIT_LOG_BYTES_MAX - said->bytes : 0;
        char *into = room ? said->text + said->bytes : dropped;
        ssize_t got = read(in, into, room ? room : sizeof dropped);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        if (room) said->bytes += (size_t)got;
    }
}

/* A program can close its output long before it ends. */
static bool wait_until(pid_t pid, i64 deadline_ns, int *status)
{
    const struct timespec pause = {.tv_nsec = 2 * VX_NS_PER_MS};
    while (waitpid(pid, status, WNOHANG) == 0) {
        if (vx_clock_ns() >= deadline_ns) return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

int vx_child_run(const struct vx_child *child, struct vx_child_said *said)
{
    int pipes[2], status = 0;
    pid_t pid;
    *said = (struct vx_child_said){.end = VX_CHILD_TIME};
    if (pipe2(pipes, O_CLOEXEC)) return errno;
    int failed = start(child, pipes[1], &pid);
    close(pipes[1]);
    if (failed) {
        close(pipes[0]);
        return failed;
    }
    const i64 deadline_ns = vx_clock_ns() + child->limit_ms * VX_NS_PER_MS;
    said->text = vx_alloc_zero(VX_JIT_LOG_BYTES_MAX + 1);
    bool ended = listen_until(pipes[0], deadline_ns, said) &&
                 wait_until(pid, deadline_ns, &status);
    close(pipes[0]);
    if (!ended) { /* not waited for yet: the number is still its own */
        kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        return 0;
    }
    said->end = WIFEXITED(status) ? VX_CHILD_EXIT : VX_CHILD_SIGNAL;
    said->number = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    return 0;
}

void vx_child_close(struct vx_child_said *said)
{
    vx_free(said->text);
    said->text = NULL;
}

void vx_child_end_text(const struct vx_child *child, const struct vx_child_said *said,
                       char *text, size_t bytes)
{
    switch (said->end) {
    case VX_CHILD_EXIT: (void)snprintf(text, bytes, "exit code %d", said->number); break;
    case VX_CHILD_SIGNAL:
        (void)snprintf(text, bytes, "signal %d (%s)", said->number,
                       sigdescr_np(said->number) ? sigdescr_np(said->number) : "unknown");
        break;
    case VX_CHILD_TIME:
        (void)snprintf(text, bytes, "stopped after %lld s",
                       (long long)(child->limit_ms / 1000));
        break;
    }
}
