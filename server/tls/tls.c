/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tls/tls_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Threads that shake hands yield to those that serve: a flood of handshakes gets a fifth
 * of a processor that is wanted, not half of it. */
#define THREADS_NICE 5
/* How many of the oldest sessions are compared when one must go. */
#define OLDEST 32

/* ------- lists, under the lock ------- */

/* ------- open ------- */

static void copy_paths(struct vx_tls *tls)
{
    struct vx_tls_files *files = &tls->options.files;
    const char **const from[] = {&files->cert, &files->key, &files->client_ca,
                                 &files->client_crl};
    for (size_t i = 0; i < VX_COUNT(from); i++) {
        size_t bytes = strlen(*from[i]);
        VX_ASSERT(bytes < sizeof tls->paths[i]);
        memcpy(tls->paths[i], *from[i], bytes + 1);
        *from[i] = tls->paths[i];
    }
}

static vx_status open_sessions(struct vx_tls *tls)
{
    /* Those that were closed during a step have their place for a moment longer. */
    i32 count = tls->options.sessions_max + VX_TLS_THREADS;
    tls->sessions = vx_alloc_zero((size_t)count * sizeof *tls->sessions);
    VX_ENSURE(tls->sessions, RESOURCE_EXHAUSTED, "no memory for TLS");
    for (i32 i = 0; i < count; i++) {
        VX_ASSERT(!pthread_mutex_init(&tls->sessions[i].lock, NULL));
        tls->sessions[i].tls = tls;
        vx_tls_list_add(&tls->unused, &tls->sessions[i]);
    }
    return VX_OK;
}

vx_status vx_tls_open(const struct vx_tls_options *options, struct vx_why *why,
                      struct vx_tls **tls)
{
    struct vx_tls *made = vx_alloc_zero(sizeof *made);
    *tls = made;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for TLS");
    made->options = *options;
    copy_paths(made);
    pthread_condattr_t attributes;
    VX_ASSERT(!pthread_mutex_init(&made->lock, NULL));
    VX_ASSERT(!pthread_condattr_init(&attributes));
    VX_ASSERT(!pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    VX_ASSERT(!pthread_cond_init(&made->watch, &attributes));
    VX_ASSERT(!pthread_cond_init(&made->work, NULL));
    pthread_condattr_destroy(&attributes);
    vx_tls_keys_open();
    vx_status status = open_sessions(made);
    if (!status.fault) status = vx_tls_context_base(why, &made->base);
    if (!status.fault) {
        vx_tls_watch_note(made);
        status = vx_tls_context_open(&made->options.files, why, &made->context);
    }
    if (status.fault) vx_tls_close(tls);
    return status;
}

void vx_tls_close(struct vx_tls **tls)
{
    struct vx_tls *going = *tls;
    *tls = NULL;
    if (!going) return;
    pthread_mutex_lock(&going->lock);
    going->closing = true;
    pthread_cond_broadcast(&going->work);
    pthread_cond_broadcast(&going->watch);
    pthread_mutex_unlock(&going->lock);
    for (i32 i = 0; i < going->threads_count; i++) pthread_join(going->threads[i], NULL);
    if (going->watches) pthread_join(going->watcher, NULL);
    i32 count = going->options.sessions_max + VX_TLS_THREADS;
    for (i32 i = 0; going->sessions && i < count; i++) {
        VX_ASSERT(going->sessions[i].in == &going->unused);
        pthread_mutex_destroy(&going->sessions[i].lock);
    }
    vx_tls_context_close(&going->context);
    SSL_CTX_free(going->base);
    pthread_cond_destroy(&going->work);
    pthread_cond_destroy(&going->watch);
    pthread_mutex_destroy(&going->lock);
    vx_free(going->sessions);
    vx_free(going);
}

/* ------- sessions, under the lock ------- */

/* Without the lock: nobody else has the session. */
static void session_clean(struct vx_tls_session *session)
{
    if (session->rest)
        atomic_fetch_sub(&session->tls->rest_bytes, (i64)session->rest_end);
    OPENSSL_free(session->rest);
    SSL_free(session->ssl);
    session->ssl = NULL;
    session->rest = NULL;
}

/* It shakes hands no longer, however that ended. */
static void session_over(struct vx_tls_session *session)
{
    struct vx_tls *tls = session->tls;
    if (session->state == VX_TLS_OVER) return;
    session->state = VX_TLS_OVER;
    tls->begun -= session->begun;
    tls->of[session->origin]--;
}

static void session_wait(struct vx_tls_session *session)
{
    struct vx_tls *tls = session->tls;
    session->state = VX_TLS_WAITING;
    vx_tls_list_add(session->begun ? &tls->continued : &tls->fresh, session);
    pthread_cond_signal(&tls->work);
}

/* For the accept thread. */
static void session_tell(struct vx_tls_session *session, enum vx_tls_result result)
{
    struct vx_tls *tls = session->tls;
    session_over(session);
    session->result = result;
    vx_tls_list_add(&tls->over, session);
    if (result == VX_TLS_FINISHED) atomic_fetch_add(&tls->handshakes[result], 1);
    tls->options.wakeup(tls->options.context);
}

/* ------- the threads ------- */

/* Of the oldest that wait for their client, one of the origin that has most. */
static void make_room(struct vx_tls *tls)
{
    struct vx_tls_session *going = tls->resting.first, *one = going;
    if (tls->begun < VX_TLS_SESSIONS_MAX || !going) return;
    for (i32 i = 0; one && i < OLDEST; i++, one = one->next)
        if (tls->of[one->origin] > tls->of[going->origin]) going = one;
    vx_tls_list_remove(going);
    vx_tls_keys_drop(going->ssl); /* the accept thread may come late */
    memcpy(going->why, "others wanted its place", sizeof "others wanted its place");
    session_tell(going, VX_TLS_CROWDED);
}

/* NULL: the room closes. */
static struct vx_tls_session *take(struct vx_tls *tls)
{
    struct vx_tls_session *session = NULL;
    while (!tls->closing && !(session = vx_tls_next(tls)))
        pthread_cond_wait(&tls->work, &tls->lock);
    if (tls->closing) return NULL;
    session->state = VX_TLS_RUNNING;
    session->again = false;
    if (!session->begun) make_room(tls);
    tls->begun += !session->begun;
    session->begun = true;
    return session;
}

static void put_back(struct vx_tls_session *session, enum vx_tls_result result)
{
    if (session->left) {
        session_over(session);
        close(session->fd);
        session_clean(session);
        vx_tls_list_add(&session->tls->unused, session);
    } else if (result) {
        session_tell(session, result);
    } else if (session->again) {
        session_wait(session);
    } else {
        session->state = VX_TLS_RESTING;
        vx_tls_list_add(&session->tls->resting, session);
    }
}

static void shake_run(void *context)
{
    struct vx_tls *tls = context;
    struct vx_tls_session *session;
    setpriority(PRIO_PROCESS, (id_t)gettid(), THREADS_NICE); /* of this thread alone */
    pthread_mutex_lock(&tls->lock);
    while ((session = take(tls))) {
        pthread_mutex_unlock(&tls->lock);
        enum vx_tls_result result = vx_tls_step(session);
        pthread_mutex_lock(&tls->lock);
        put_back(session, result);
    }
    pthread_mutex_unlock(&tls->lock);
}

vx_status vx_tls_start(struct vx_tls *tls)
{
    vx_tls_context_log(&tls->options.files, &tls->context, vx_clock_wall_ms() / 1000);
    VX_TRY(vx_thread_open(&tls->watcher, VX_ROLE_TLS, vx_tls_watch_run, tls));
    tls->watches = true;
    for (i32 i = 0; i < VX_TLS_THREADS; i++) {
        VX_TRY(vx_thread_open(&tls->threads[i], VX_ROLE_TLS, shake_run, tls));
        tls->threads_count++;
    }
    return VX_OK;
}

void vx_tls_reload(struct vx_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    tls->reloading = true;
    pthread_cond_signal(&tls->watch);
    pthread_mutex_unlock(&tls->lock);
}

/* ------- the accept thread ------- */

struct vx_tls_session *vx_tls_session_open(struct vx_tls *tls, int fd, u16 origin,
                                           u64 row)
{
    pthread_mutex_lock(&tls->lock);
    struct vx_tls_session *session = tls->unused.first;
    VX_ASSERT(session); /* a connection has one */
    vx_tls_list_remove(session);
    session->fd = fd;
    session->origin = origin;
    session->row = row;
    session->again = session->left = session->begun = false;
    session->ended = session->broken = session->shaken = session->paused = false;
    session->result = VX_TLS_UNDER_WAY;
    session->why[0] = 0;
    session->rest_begin = session->rest_end = session->owed = 0;
    session->records = 0;
    session->most = VX_TLS_RECORD;
    tls->of[origin]++;
    session_wait(session);
    pthread_mutex_unlock(&tls->lock);
    return session;
}

void vx_tls_session_go(struct vx_tls_session *session)
{
    pthread_mutex_lock(&session->tls->lock);
    if (session->state == VX_TLS_RUNNING) session->again = true;
    if (session->state == VX_TLS_RESTING) {
        vx_tls_list_remove(session);
        session_wait(session);
    }
    pthread_mutex_unlock(&session->tls->lock);
}

bool vx_tls_session_begun(const struct vx_tls_session *session)
{
    pthread_mutex_lock(&session->tls->lock);
    bool begun = session->begun;
    pthread_mutex_unlock(&session->tls->lock);
    return begun;
}

struct vx_tls_session *vx_tls_finished(struct vx_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    struct vx_tls_session *session = tls->over.first;
    if (session) vx_tls_list_remove(session);
    pthread_mutex_unlock(&tls->lock);
    return session;
}

u64 vx_tls_session_row(const struct vx_tls_session *session)
{
    return session->row;
}

enum vx_tls_result vx_tls_session_result(const struct vx_tls_session *session)
{
    return session->result;
}

const char *vx_tls_session_why(const struct vx_tls_session *session)
{
    return session->why;
}

const struct vx_tls_name *vx_tls_session_name(const struct vx_tls_session *session)
{
    return &session->name;
}

bool vx_tls_session_close(struct vx_tls_session **session)
{
    struct vx_tls_session *going = *session;
    *session = NULL;
    if (!going) return false;
    pthread_mutex_lock(&going->tls->lock);
    bool runs = going->state == VX_TLS_RUNNING;
    going->left = runs;
    vx_tls_list_remove(going);
    if (!runs) session_over(going);
    pthread_mutex_unlock(&going->tls->lock);
    if (runs) return true;
    session_clean(going);
    pthread_mutex_lock(&going->tls->lock);
    vx_tls_list_add(&going->tls->unused, going);
    pthread_mutex_unlock(&going->tls->lock);
    return false;
}

/* ------- counted ------- */

void vx_tls_note(struct vx_tls *tls, enum vx_tls_result result, const char *peer,
                 const char *why)
{
    atomic_fetch_add(&tls->handshakes[result], 1);
    VX_LOG(TLS_REFUSED, VX_LOG_TEXT("peer", peer), VX_LOG_TEXT("why", why));
}

void vx_tls_count(struct vx_tls *tls, struct vx_tls_counters *counters)
{
    for (i32 i = 0; i < VX_TLS_RESULTS_COUNT; i++)
        counters->handshakes[i] = tls->handshakes[i];
    counters->reloads = tls->reloads;
    counters->reloads_failed = tls->reloads_failed;
    counters->files_kept = tls->files_kept;
    pthread_mutex_lock(&tls->lock);
    counters->cert_until_s = tls->context.cert_until_s;
    counters->crl_until_s = tls->context.crl_until_s;
    counters->under_way = tls->begun;
    pthread_mutex_unlock(&tls->lock);
}
