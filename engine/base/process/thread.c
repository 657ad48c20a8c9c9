/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/thread.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"

#include <time.h>

static _Thread_local enum vx_role thread_role = VX_ROLE_NONE;

static const char *const role_names[] = {
    [VX_ROLE_NONE] = "none",       [VX_ROLE_LOOP] = "loop",
    [VX_ROLE_ACCEPT] = "accept",   [VX_ROLE_TLS] = "tls",
    [VX_ROLE_RPC] = "rpc",         [VX_ROLE_MAIN] = "main",
    [VX_ROLE_DEVICE] = "device",   [VX_ROLE_COMPUTE] = "compute",
    [VX_ROLE_COMPILE] = "compile", [VX_ROLE_LOG] = "log",
    [VX_ROLE_TRACE] = "trace",
};

void vx_thread_enter(enum vx_role role)
{
    VX_ASSERT(thread_role == VX_ROLE_NONE || thread_role == role);
    thread_role = role;
}

enum vx_role vx_thread_role(void)
{
    return thread_role;
}

const char *vx_thread_name(void)
{
    return role_names[thread_role];
}

struct thread_start {
    enum vx_role role;
    void (*run)(void *);
    void *context;
};

static void *thread_main(void *argument)
{
    struct thread_start start = *(struct thread_start *)argument;
    vx_free(argument);
    vx_thread_enter(start.role);
    pthread_setname_np(pthread_self(), role_names[start.role]);
    start.run(start.context);
    return NULL;
}

vx_status vx_thread_open(pthread_t *thread, enum vx_role role, void (*run)(void *),
                         void *context)
{
    struct thread_start *start = vx_alloc(sizeof *start);
    VX_ENSURE(start, RESOURCE_EXHAUSTED, "no memory to start a thread");
    *start = (struct thread_start){role, run, context};
    if (pthread_create(thread, NULL, thread_main, start)) {
        vx_free(start);
        VX_FAIL(RESOURCE_EXHAUSTED, "the system refused to start another thread");
    }
    return VX_OK;
}

bool vx_thread_join_within(pthread_t thread, i64 limit_ns)
{
    const struct timespec pause = {.tv_nsec = VX_NS_PER_MS};
    const i64 end_ns = vx_clock_ns() + limit_ns;
    while (pthread_tryjoin_np(thread, NULL)) {
        if (vx_clock_ns() >= end_ns) {
            pthread_detach(thread);
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}
