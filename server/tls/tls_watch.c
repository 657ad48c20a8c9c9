/* tls_watch - reads the certificate files again, when asked to and when they have changed.
 *
 * A certificate and its key are two files, and they are renewed one after the other.  So
 * files that have changed are read when they have been the same for one more check.  Files
 * are compared by what stat reports of what the path leads to now, so a symbolic link that is
 * replaced counts, as Kubernetes renews a mounted secret.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/tls/tls_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <string.h>
#include <time.h>

#define LOOK_NS VX_NS_PER_S

static void look(const struct vx_tls *tls, struct stat now[4])
{
    memset(now, 0, 4 * sizeof *now);
    for (i32 i = 0; i < 4; i++)
        if (tls->paths[i][0] && stat(tls->paths[i], &now[i])) now[i].st_ino = 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
    for (i32 i = 0; i < 4; i++)
        if (a[i].st_dev != b[i].st_dev || a[i].st_ino != b[i].st_ino ||
            a[i].st_size != b[i].st_size || a[i].st_mtim.tv_sec != b[i].st_mtim.tv_sec ||
            a[i].st_mtim.tv_nsec != b[i].st_mtim.tv_nsec)
            return false;
    return true;
}

void vx_tls_watch_note(struct vx_tls *tls)
{
    look(tls, tls->seen);
}

static void read_again(struct vx_tls *tls)
{
    struct vx_tls_context made, old;
    struct vx_why why = {""};
    vx_tls_watch_note(tls);
    vx_status status = vx_tls_context_open(&tls->options.files, &why, &made);
    tls->files_kept = status.fault != NULL;
    if (status.fault) {
        atomic_fetch_add(&tls->reloads_failed, 1);
        VX_LOG(TLS_KEPT, VX_LOG_TEXT("why", vx_status_text(status, &why)));
        return;
    }
    pthread_mutex_lock(&tls->lock);
    old = tls->context;
    tls->context = made;
    pthread_mutex_unlock(&tls->lock);
    vx_tls_context_close(&old);
    atomic_fetch_add(&tls->reloads, 1);
    vx_tls_context_log(&tls->options.files, &made, vx_clock_wall_ms() / 1000);
}

/* Waits for a request or for the next check.  False: the room closes. */
static bool wait_turn(struct vx_tls *tls, bool *asked)
{
    i64 until_ns = vx_clock_ns() + LOOK_NS;
    struct timespec until = {.tv_sec = until_ns / VX_NS_PER_S,
                             .tv_nsec = until_ns % VX_NS_PER_S};
    pthread_mutex_lock(&tls->lock);
    while (!tls->closing && !tls->reloading && vx_clock_ns() < until_ns)
        pthread_cond_timedwait(&tls->watch, &tls->lock, &until);
    *asked = tls->reloading;
    tls->reloading = false;
    bool goes_on = !tls->closing;
    pthread_mutex_unlock(&tls->lock);
    return goes_on;
}

void vx_tls_watch_run(void *context)
{
    struct vx_tls *tls = context;
    struct stat now[4], before[4];
    bool asked;
    memcpy(before, tls->seen, sizeof before);
    while (wait_turn(tls, &asked)) {
        look(tls, now);
        bool settled = same(now, before);
        memcpy(before, now, sizeof before);
        if (asked || (settled && !same(now, tls->seen))) read_again(tls);
    }
}
