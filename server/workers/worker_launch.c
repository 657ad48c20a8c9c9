/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/workers/worker_launch.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/base/host.h"
#include "server/devices/spawn.h"
#include "server/ipc/channel.h"
#include "server/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* The longest name of a flag, "--kernel-cache-bytes=", and the longest value. */
#define ARGUMENT_BYTES (VX_CONFIG_TEXT_BYTES + 32)
#define ARGUMENTS_MAX  23

struct argument_list {
    i32 count;
    char text[ARGUMENTS_MAX][ARGUMENT_BYTES];
    char *pointers[ARGUMENTS_MAX];
};

struct vx_worker_thread {
    struct vx_config config; /* the front's, with this worker's device */
    struct vx_worker_start start;
    pthread_t thread;
    int exit_code;
};

/* ------- a process ------- */

static VX_PRINTF(2, 3) void argument_add(struct argument_list *list, const char *format,
                                         ...)
{
    VX_ASSERT(list->count < ARGUMENTS_MAX - 1);
    va_list values;
    va_start(values, format);
    char *text = list->text[list->count];
    int length = vsnprintf(text, ARGUMENT_BYTES, format, values);
    va_end(values);
    VX_ASSERT(length < ARGUMENT_BYTES);
    list->pointers[list->count++] = text;
    list->pointers[list->count] = NULL;
}

/* The worker's settings as command-line flags, which are those of the same table. */
static void process_arguments(const struct vx_launch *launch, struct argument_list *list)
{
    const struct vx_config *config = launch->config;
    list->count = 0;
    argument_add(list, "voxeld");
    argument_add(list, "worker");
    argument_add(list, "--device=%s", launch->device);
    argument_add(list, "--threads=%lld", (long long)config->threads);
    argument_add(list, "--device-bytes=%lld", (long long)config->device_bytes);
    argument_add(list, "--cache-bytes=%lld", (long long)config->cache_bytes);
    argument_add(list, "--numa=%s", config->numa ? "true" : "false");
    argument_add(list, "--gpu-driver=%s", config->gpu_driver);
    argument_add(list, "--gpu-compiler=%s", config->gpu_compiler);
    argument_add(list, "--hip-library=%s", config->hip_library);
    argument_add(list, "--hip-compiler=%s", config->hip_compiler);
    argument_add(list, "--kernel-cache=%s", config->kernel_cache);
    argument_add(list, "--kernel-cache-bytes=%lld",
                 (long long)config->kernel_cache_bytes);
    argument_add(list, "--kernel-texts=%s", config->kernel_texts);
    argument_add(list, "--tune-table=%s", config->tune_table);
    argument_add(list, "--tune=%s", config->tune);
    argument_add(list, "--algorithm=%s", config->algorithm);
    argument_add(
        list, "--spin-us=%lld",
        (long long)(vx_host_spin_ns(config, vx_host_processors()) / VX_NS_PER_US));
    argument_add(list, "--worker-seccomp=%s", config->worker_seccomp);
    argument_add(list, "--log-format=%s", config->log_format);
    argument_add(list, "--log-level=%s", config->log_level);
}

static int process_launch(const struct vx_launch *launch, struct vx_launched *launched)
{
    struct argument_list list; /* 20 KiB: its paths */
    process_arguments(launch, &list);
    const struct vx_spawn spawn = {
        list.pointers,
        {{launch->channel, VX_WORKER_CHANNEL_FD}, {launch->arena, VX_WORKER_ARENA_FD}},
        2};
    int failed = vx_spawn_self(&spawn, &launched->pid);
    if (failed) return failed;
    launched->pidfd = pidfd_open(launched->pid, 0);
    if (launched->pidfd >= 0) return 0;
    /* A process that cannot be watched, because no descriptor is free, must not run. */
    failed = errno;
    kill(launched->pid, SIGKILL); /* not waited for yet: the pid is still its own */
    waitpid(launched->pid, NULL, 0);
    return failed;
}

static bool process_join(struct vx_launched *launched, struct vx_worker_end *end)
{
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)launched->pidfd, &info, WEXITED | WNOHANG) || !info.si_pid)
        return false;
    *end = (struct vx_worker_end){info.si_code == CLD_EXITED ? "exit" : "signal",
                                  info.si_status};
    return true;
}

/* ------- a thread ------- */

static void thread_main(void *context)
{
    struct vx_worker_thread *thread = context;
    thread->exit_code = vx_worker_run(&thread->start);
    close(thread->start.channel); /* tells the front that the worker has ended */
}

static int thread_launch(const struct vx_launch *launch, struct vx_launched *launched)
{
    struct vx_worker_thread *thread = vx_alloc_zero(sizeof *thread);
    if (!thread) return ENOMEM;
    thread->config = *launch->config;
    thread->config.spin_us =
        vx_host_spin_ns(launch->config, vx_host_processors()) / VX_NS_PER_US;
    snprintf(thread->config.device, sizeof thread->config.device, "%s", launch->device);
    thread->start = (struct vx_worker_start){
        .config = &thread->config,
        .channel = fcntl(launch->channel, F_DUPFD_CLOEXEC, 0),
        .arena = fcntl(launch->arena, F_DUPFD_CLOEXEC, 0),
    };
    bool has_fds = thread->start.channel >= 0 && thread->start.arena >= 0;
    vx_status st = VX_OK;
    if (has_fds) st = vx_thread_open(&thread->thread, VX_ROLE_MAIN, thread_main, thread);
    if (has_fds && !st.fault) {
        launched->pid = getpid();
        launched->thread = thread;
        return 0;
    }
    if (thread->start.channel >= 0) close(thread->start.channel);
    if (thread->start.arena >= 0) close(thread->start.arena);
    vx_free(thread);
    return EAGAIN;
}

static bool thread_join(struct vx_launched *launched, struct vx_worker_end *end)
{
    pthread_join(launched->thread->thread, NULL);
    *end = (struct vx_worker_end){"exit", launched->thread->exit_code};
    vx_free(launched->thread);
    launched->thread = NULL;
    return true;
}

/* ------- process or thread ------- */

int vx_worker_launch(const struct vx_launch *launch, struct vx_launched *launched)
{
    *launched = (struct vx_launched){.pidfd = -1};
    int failed = launch->config->in_process ? thread_launch(launch, launched)
                                            : process_launch(launch, launched);
    close(launch->channel);
    return failed;
}

void vx_worker_kill(const struct vx_launched *launched)
{
    if (launched->thread) {
        VX_LOG(
            STOP,
            VX_LOG_TEXT("why", "the in-process worker must end, and the server with it"));
        vx_process_end(1);
    }
    if (launched->pidfd >= 0) pidfd_send_signal(launched->pidfd, SIGKILL, NULL, 0);
}

bool vx_worker_join(struct vx_launched *launched, struct vx_worker_end *end)
{
    return launched->thread ? thread_join(launched, end) : process_join(launched, end);
}
