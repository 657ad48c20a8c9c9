/* rpc_window - numbers for gRPC's descriptors, by which gRPC names connections.
 *
 * The number of a descriptor is free again when its connection ends, and a call that is
 * still on its way would be taken for one of the next connection.  So gRPC gets its
 * descriptors from a window of high numbers that is used in rotation: a number comes
 * again only after as many connections as there are free numbers in the window,
 * thousands.  A number that is still in use is skipped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Size of the window, at most; larger only for more connections. */
#define WINDOW_MAX 32768
/* Descriptors below the window that are not connections: libraries, workers, HTTP. */
#define OTHERS_MAX 128
/* How many consecutive numbers are tried to find a free one. */
#define WINDOW_TRIES 64

vx_status vx_rpc_window_open(struct vx_rpc_window *window, i32 connections_max,
                             i32 *connections)
{
    struct rlimit limit;
    VX_ASSERT(!getrlimit(RLIMIT_NOFILE, &limit));
    i32 most = 2 * connections_max;
    if (most < WINDOW_MAX) most = WINDOW_MAX;
    i32 half = limit.rlim_cur / 2 < (rlim_t)most ? (i32)(limit.rlim_cur / 2) : most;
    i32 fit = half / 2 < half - OTHERS_MAX ? half / 2 : half - OTHERS_MAX;
    if (fit < 1) fit = 1;
    *connections = connections_max < fit ? connections_max : fit;
    if (*connections < connections_max)
        VX_LOG(
            CONFIG, VX_LOG_I64("connections_max", *connections),
            VX_LOG_TEXT("why", "the limit of open files (RLIMIT_NOFILE) allows no more"));
    *window = (struct vx_rpc_window){.first = half, .count = half, .next = half};
    window->peers = vx_alloc_zero((size_t)half * sizeof *window->peers);
    window->rows = vx_alloc_zero((size_t)half * sizeof *window->rows);
    VX_ENSURE(window->peers && window->rows, RESOURCE_EXHAUSTED,
              "no memory for the table of connections");
    return VX_OK;
}

void vx_rpc_window_close(struct vx_rpc_window *window)
{
    vx_free(window->peers);
    vx_free(window->rows);
    window->peers = NULL;
    window->rows = NULL;
}

int vx_rpc_window_take(struct vx_rpc_window *window, int fd)
{
    i32 end = window->first + window->count;
    for (i32 i = 0; i < WINDOW_TRIES; i++) {
        int given = fcntl(fd, F_DUPFD_CLOEXEC, window->next);
        bool inside = given >= 0 && given < end;
        window->next = inside && given + 1 < end ? given + 1 : window->first;
        /* Only this thread writes there. */
        if (inside && !window->peers[given - window->first].connection) return given;
        if (given >= 0) close(given);
    }
    return -1;
}
