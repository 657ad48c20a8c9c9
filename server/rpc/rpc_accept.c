/* rpc_accept - accepts connections, knows their peers, and notices when they end.
 *
 * gRPC's own listener reports neither, so connections are accepted here and given to gRPC
 * as descriptors.  A call then names its connection by the descriptor's number, "fd:N";
 * gRPC knows nothing else about it.
 *
 * A second descriptor of each connection stays in our epoll set.  It reports the end,
 * whichever side ended it, because gRPC shuts a socket down before it closes it.  A
 * client that half-closes has ended, too: gRPC sees the end of the stream and drops it.
 *
 * gRPC waits for a client's first bytes for ever.  So they are awaited here: a connection
 * is given to gRPC when the HTTP/2 preface has come.  From then on gRPC's own pings
 * detect clients that are gone.
 *
 * Owner    the accept thread owns the table of connections and the epoll set.
 * Thread   `gate` is held while a connection is given to gRPC, so that none is given to a
 *          server that is shutting down.  `lock` guards what other threads read; it is
 *          held for a few instructions or one system call.  Only the accept thread writes
 *          (lock) fields, under the lock; it reads them without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/rpc/rpc_accept_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client sends the preface at once; one that has not by then never will. */
#define SILENCE_NS (20 * VX_NS_PER_S)
/* No free descriptor: accepting pauses, and the system queues new connections. */
#define PAUSE_NS (100 * VX_NS_PER_MS)
/* Events handled per iteration, and connections accepted from one listener at a time. */
#define EVENTS_PER_TURN 64

/* Who comes yields to who is served: where processors are wanted, 2,500 connections a second that came
 * and went took half of them, and requests of others waited for 2 s (hostile mix_all; now 0.7 s). */
#define ACCEPT_NICE 10

#define ID_WAKEUP UINT64_MAX

/* Wakes the accept thread.  Any thread. */
void vx_rpc_accept_wake(void *context)
{
    struct vx_rpc_accept *accept = context;
    VX_ASSERT(write(accept->wakeup, &(u64){1}, sizeof(u64)) == sizeof(u64));
}

/* ------- open ------- */

static vx_status open_tables(struct vx_rpc_accept *accept)
{
    i32 wanted = accept->options.connections_max;
    VX_TRY(vx_rpc_window_open(&accept->window, wanted, &accept->rows_count));
    struct vx_rpc_governor_options governor = vx_rpc_governor_settings(
        &accept->options, accept->rows_count, vx_rpc_accept_wake, accept);
    VX_TRY(vx_rpc_governor_open(&governor, &accept->governor));
    accept->rows = vx_alloc_zero((size_t)accept->rows_count * sizeof *accept->rows);
    VX_ENSURE(accept->rows, RESOURCE_EXHAUSTED, "no memory for the table of connections");
    for (i32 i = accept->rows_count; i--;) {
        accept->rows[i].fd = -1;
        accept->rows[i].next = accept->free;
        accept->free = &accept->rows[i];
    }
    return VX_OK;
}

static bool epoll_has(struct vx_rpc_accept *accept, int operation, int fd, u32 events,
                      u64 id)
{
    struct epoll_event event = {.events = events, .data.u64 = id};
    return !epoll_ctl(accept->epoll, operation, fd, &event);
}

static vx_status open_all(struct vx_rpc_accept *accept, struct vx_why *why)
{
    VX_TRY(open_tables(accept));
    accept->plain = grpc_insecure_server_credentials_create();
    accept->epoll = epoll_create1(EPOLL_CLOEXEC);
    accept->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool good = accept->epoll >= 0 && accept->wakeup >= 0 &&
                epoll_has(accept, EPOLL_CTL_ADD, accept->wakeup, EPOLLIN, ID_WAKEUP);
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "no file descriptor left to watch connections");
    VX_TRY(vx_rpc_secure_open(accept, why));
    VX_TRY(vx_rpc_listen(accept->options.addresses, &accept->listeners, why));
    VX_ENSURE(
        vx_rpc_listeners_watch(&accept->listeners, accept->epoll, EPOLL_CTL_ADD, EPOLLIN),
        RESOURCE_EXHAUSTED, "cannot watch a listener (epoll_ctl)");
    return VX_OK;
}

vx_status vx_rpc_accept_open(const struct vx_rpc_options *options, struct vx_why *why,
                             struct vx_rpc_accept **accept)
{
    struct vx_rpc_accept *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to accept connections");
    made->options = *options;
    made->epoll = made->wakeup = -1;
    made->silence_ns = SILENCE_NS;
    /* The first bytes get no more time than a whole message. */
    if (options->receive_ns_max && options->receive_ns_max < SILENCE_NS)
        made->silence_ns = options->receive_ns_max;
    VX_ASSERT(!pthread_mutex_init(&made->gate, NULL));
    VX_ASSERT(!pthread_mutex_init(&made->lock, NULL));
    vx_status status = open_all(made, why);
    if (status.fault) vx_rpc_accept_close(&made);
    *accept = made;
    return status;
}

i32 vx_rpc_accept_port(const struct vx_rpc_accept *accept)
{
    return vx_rpc_listeners_port(&accept->listeners);
}

/* ------- connections ------- */

static struct vx_rpc_govern *row_govern(struct vx_rpc_accept *accept,
                                        const struct vx_rpc_connection *row)
{
    return vx_rpc_governor_row(accept->governor, (i32)(row - accept->rows));
}

/* gRPC may keep its own descriptor longer, because it ends the calls first. */
void vx_rpc_connection_end(struct vx_rpc_accept *accept, struct vx_rpc_connection *row)
{
    u64 connection = row->given ? row->peer.connection : 0;
    if (!row->given) vx_rpc_silent_remove(&accept->silents, &row->silent);
    if (row->given)
        vx_rpc_cut_note(&accept->cuts, row->name, connection,
                        vx_rpc_govern_end(row_govern(accept, row)));
    pthread_mutex_lock(&accept->lock);
    struct vx_tls_session *session = row->session;
    row->session = NULL;
    if (row->given)
        accept->window.peers[row->given - accept->window.first].connection = 0;
    row->peer.connection = 0;
    accept->connections--;
    pthread_mutex_unlock(&accept->lock);
    /* close() alone would leave it in the set while gRPC has the socket open. */
    epoll_has(accept, EPOLL_CTL_DEL, row->fd, 0, 0);
    vx_rpc_origins_give(&accept->origins, row->peer.origin);
    if (!vx_tls_session_close(&session)) close(row->fd);
    row->fd = -1;
    row->given = 0;
    row->next = accept->free;
    accept->free = row;
    if (connection && accept->options.on_disconnected)
        accept->options.on_disconnected(accept->options.context, connection);
}

void vx_rpc_connection_refused(struct vx_rpc_accept *accept)
{
    pthread_mutex_lock(&accept->lock);
    accept->refused++;
    pthread_mutex_unlock(&accept->lock);
}

/* ------- given to gRPC ------- */

void vx_rpc_connection_give(struct vx_rpc_accept *accept, struct vx_rpc_connection *row)
{
    int given = vx_rpc_window_take(&accept->window, row->fd);
    bool heard = given >= 0 && epoll_has(accept, EPOLL_CTL_MOD, row->fd, EPOLLRDHUP,
                                         (u64)(row - accept->rows));
    pthread_mutex_lock(&accept->gate);
    bool gives = heard && !accept->stopping;
    if (gives) {
        vx_rpc_silent_remove(&accept->silents, &row->silent);
        pthread_mutex_lock(&accept->lock);
        row->given = given;
        row->peer.connection = ++accept->connection_last;
        accept->window.peers[given - accept->window.first] = row->peer;
        accept->window.rows[given - accept->window.first] = (i32)(row - accept->rows);
        pthread_mutex_unlock(&accept->lock);
        vx_rpc_peer_name(row->fd, &row->peer, row->name);
        vx_rpc_govern_begin(row_govern(accept, row),
                            (struct vx_rpc_place){given, row->peer.connection},
                            row->peer.origin);
        if (row->session) vx_rpc_govern_secure(row_govern(accept, row), row->session);
        grpc_server_add_channel_from_fd(accept->server, given, accept->plain);
    }
    pthread_mutex_unlock(&accept->gate);
    if (gives) return;
    if (given >= 0) close(given);
    vx_rpc_connection_refused(accept);
    vx_rpc_connection_end(accept, row);
}

/* The client has sent something, or the connection has ended. */
static void row_on_event(struct vx_rpc_accept *accept, struct vx_rpc_connection *row,
                         u32 events)
{
    char bytes[sizeof VX_HTTP2_PREFACE - 1];
    if (row->fd < 0) return; /* on_wakeup ended it in this iteration */
    /* The end is reported together with earlier bytes. */
    bool over = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    /* A client that does not trust us says so and goes: its last bytes are read. */
    if (row->given || (over && !vx_rpc_secure_shakes(row))) {
        vx_rpc_secure_note(accept, row, VX_TLS_LEFT,
                           "the client closed the connection in its handshake");
        vx_rpc_connection_end(accept, row);
        return;
    }
    if (row->secure) {
        vx_rpc_secure_event(accept, row);
        return;
    }
    ssize_t got = recv(row->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0 || memcmp(bytes, VX_HTTP2_PREFACE, (size_t)got))
        vx_rpc_connection_end(accept, row);
    else if ((size_t)got == sizeof bytes)
        vx_rpc_connection_give(accept, row);
}

/* ------- accepted ------- */

static void accept_add(struct vx_rpc_accept *accept, int fd, const struct vx_peer *peer)
{
    struct vx_rpc_connection *row = vx_rpc_room(accept, peer) ? accept->free : NULL;
    pthread_mutex_lock(&accept->lock);
    accept->accepted++;
    accept->refused += !row;
    accept->connections += row != NULL;
    if (row) {
        accept->free = row->next;
        *row = (struct vx_rpc_connection){
            .fd = fd, .peer = *peer, .secure = accept->tls && peer->kind != VX_PEER_UNIX};
        row->silent =
            (struct vx_rpc_silent){.since_ns = vx_clock_ns(), .origin = peer->origin};
    }
    pthread_mutex_unlock(&accept->lock);
    if (!row) {
        vx_rpc_origins_give(&accept->origins, peer->origin);
        close(fd);
        return;
    }
    vx_rpc_silent_add(&accept->silents, &row->silent);
    /* Edge-triggered: the bytes are only peeked at, and stay in the socket for gRPC. */
    u32 events = EPOLLIN | EPOLLRDHUP | EPOLLET | (row->secure ? EPOLLOUT : 0);
    if (!epoll_has(accept, EPOLL_CTL_ADD, fd, events, (u64)(row - accept->rows)))
        vx_rpc_connection_end(accept, row);
}

static void on_listener(struct vx_rpc_accept *accept,
                        const struct vx_rpc_listener *listener)
{
    for (i32 i = 0; i < EVENTS_PER_TURN && listener->fd >= 0; i++) {
        struct vx_peer peer;
        int fd = vx_rpc_listener_accept(listener, &peer);
        if (fd >= 0) {
            peer.origin = vx_rpc_origins_take(&accept->origins, peer.source);
            accept_add(accept, fd, &peer);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            vx_rpc_listeners_watch(&accept->listeners, accept->epoll, EPOLL_CTL_MOD, 0);
            accept->paused_until_ns = vx_clock_ns() + PAUSE_NS;
        }
        /* After these two there may be another connection. */
        if (errno != ECONNABORTED && errno != EINTR) return;
    }
}

/* ------- the thread ------- */

/* Handles a wakeup; true when the thread must end. */
static bool on_wakeup(struct vx_rpc_accept *accept)
{
    u64 rung;
    if (read(accept->wakeup, &rung, sizeof rung) < 0) return false;
    vx_rpc_secure_turn(accept);
    pthread_mutex_lock(&accept->gate);
    bool closing = accept->closing, stopping = accept->stopping || closing;
    bool wants_handed = accept->wants_handed;
    pthread_mutex_unlock(&accept->gate);
    if (wants_handed != accept->listeners.hears_handed) {
        accept->listeners.hears_handed = wants_handed;
        if (!accept->paused_until_ns)
            vx_rpc_listeners_watch(&accept->listeners, accept->epoll, EPOLL_CTL_MOD,
                                   EPOLLIN);
    }
    if (!stopping) return false;
    /* Closing a socket that the service manager has, too, would leave it in the set. */
    vx_rpc_listeners_watch(&accept->listeners, accept->epoll, EPOLL_CTL_DEL, 0);
    vx_rpc_listeners_close(&accept->listeners);
    accept->paused_until_ns = 0;
    while (accept->silents.first)
        vx_rpc_connection_end(accept, vx_rpc_connection_of(accept->silents.first));
    return closing;
}

/* Does what is due.  Returns the ms to the next due time; -1 = wait for an event. */
static int run_due(struct vx_rpc_accept *accept)
{
    i64 now_ns = vx_clock_ns(), next_ns = VX_NEVER;
    const struct vx_rpc_silents *silents = &accept->silents;
    while (silents->first && now_ns - silents->first->since_ns >= accept->silence_ns) {
        vx_rpc_secure_note(accept, vx_rpc_connection_of(silents->first), VX_TLS_LATE,
                           "the handshake took too long");
        vx_rpc_connection_end(accept, vx_rpc_connection_of(silents->first));
    }
    if (silents->first) next_ns = silents->first->since_ns + accept->silence_ns;
    if (accept->paused_until_ns && accept->paused_until_ns <= now_ns) {
        accept->paused_until_ns = 0;
        vx_rpc_listeners_watch(&accept->listeners, accept->epoll, EPOLL_CTL_MOD, EPOLLIN);
    }
    if (accept->paused_until_ns && accept->paused_until_ns < next_ns)
        next_ns = accept->paused_until_ns;
    i64 turn_ns = vx_rpc_governor_turn(accept->governor, now_ns);
    i64 memory_ns = vx_rpc_memory_turn(&accept->memory, accept->governor, now_ns);
    turn_ns = memory_ns < turn_ns ? memory_ns : turn_ns;
    i64 leave_ns = vx_rpc_leaving_turn(accept, now_ns);
    turn_ns = leave_ns < turn_ns ? leave_ns : turn_ns;
    if (turn_ns < next_ns) next_ns = turn_ns;
    return next_ns == VX_NEVER ? -1 : (int)((next_ns - now_ns) / VX_NS_PER_MS) + 1;
}

static void accept_run(void *context)
{
    struct vx_rpc_accept *accept = context;
    struct epoll_event events[EVENTS_PER_TURN];
    VX_ON(ACCEPT);
    setpriority(PRIO_PROCESS, (id_t)gettid(), ACCEPT_NICE); /* of this thread alone */
    vx_alloc_freeze();
    for (bool ends = false; !ends;) {
        int count = epoll_wait(accept->epoll, events, EVENTS_PER_TURN, run_due(accept));
        /* Connections first: a listener may end one whose event is here, and reuse its entry. */
        for (int i = 0; i < count; i++)
            if (events[i].data.u64 < VX_RPC_LISTENER_ID)
                row_on_event(accept, &accept->rows[events[i].data.u64], events[i].events);
        for (int i = 0; i < count; i++) {
            u64 id = events[i].data.u64;
            if (id == ID_WAKEUP)
                ends = on_wakeup(accept);
            else if (id >= VX_RPC_LISTENER_ID)
                on_listener(accept, &accept->listeners.list[id - VX_RPC_LISTENER_ID]);
        }
    }
}

vx_status vx_rpc_accept_start(struct vx_rpc_accept *accept, grpc_server *server)
{
    accept->server = server;
    if (accept->tls) VX_TRY(vx_tls_start(accept->tls));
    vx_status st = vx_thread_open(&accept->thread, VX_ROLE_ACCEPT, accept_run, accept);
    accept->running = !st.fault;
    if (accept->running) vx_rpc_listeners_log(&accept->listeners);
    return st;
}

/* Sets a (gate) flag, which the thread reads next. */
static void accept_tell(struct vx_rpc_accept *accept, bool *flag, bool value)
{
    pthread_mutex_lock(&accept->gate);
    *flag = value;
    pthread_mutex_unlock(&accept->gate);
    vx_rpc_accept_wake(accept);
}

void vx_rpc_accept_hear_handed(struct vx_rpc_accept *accept, bool wanted)
{
    accept_tell(accept, &accept->wants_handed, wanted);
}

void vx_rpc_accept_stop(struct vx_rpc_accept *accept)
{
    vx_rpc_listeners_stop(&accept->listeners);
    vx_rpc_governor_stop(accept->governor);
    if (accept->running) accept_tell(accept, &accept->stopping, true);
}

void vx_rpc_accept_close(struct vx_rpc_accept **accept)
{
    struct vx_rpc_accept *going = *accept;
    *accept = NULL;
    if (!going) return;
    if (going->running) {
        vx_rpc_leaving_wait(going);
        accept_tell(going, &going->closing, true);
        pthread_join(going->thread, NULL);
    }
    for (i32 i = 0; going->rows && i < going->rows_count; i++)
        if (going->rows[i].fd >= 0) vx_rpc_connection_end(going, &going->rows[i]);
    VX_ASSERT(vx_rpc_origins_are_free(&going->origins));
    vx_tls_close(&going->tls);
    vx_rpc_governor_close(&going->governor);
    vx_rpc_listeners_close(&going->listeners);
    if (going->epoll >= 0) close(going->epoll);
    if (going->wakeup >= 0) close(going->wakeup);
    if (going->plain) grpc_server_credentials_release(going->plain);
    pthread_mutex_destroy(&going->gate);
    pthread_mutex_destroy(&going->lock);
    vx_free(going->rows);
    vx_rpc_window_close(&going->window);
    vx_free(going);
}

/* ------- called by other threads ------- */

void vx_rpc_accept_count(struct vx_rpc_accept *accept, struct vx_rpc_counters *counters)
{
    pthread_mutex_lock(&accept->lock);
    counters->connections = accept->connections;
    counters->connections_ever = accept->accepted;
    counters->connections_refused = accept->refused;
    counters->secure = accept->tls != NULL;
    for (i32 i = 0; i < VX_RPC_CUTS_COUNT; i++)
        counters->connections_cut[i] = accept->cuts.counts[i];
    pthread_mutex_unlock(&accept->lock);
    if (accept->tls) vx_tls_count(accept->tls, &counters->tls);
}

struct vx_peer vx_rpc_accept_peer(struct vx_rpc_accept *accept, grpc_call *call,
                                  i32 *descriptor)
{
    char *text = grpc_call_get_peer(call);
    *descriptor = vx_rpc_descriptor_of(text);
    i32 index = *descriptor - accept->window.first;
    gpr_free(text);
    struct vx_peer peer = {0};
    if (index < 0 || index >= accept->window.count) return peer;
    pthread_mutex_lock(&accept->lock);
    if (accept->window.peers[index].connection) peer = accept->window.peers[index];
    pthread_mutex_unlock(&accept->lock);
    return peer;
}

bool vx_rpc_accept_name(struct vx_rpc_accept *accept, struct vx_rpc_place place,
                        struct vx_tls_name *name)
{
    i32 index = place.descriptor - accept->window.first;
    name->subject[0] = '\0';
    if (index < 0 || index >= accept->window.count || !place.connection) return false;
    pthread_mutex_lock(&accept->lock);
    const struct vx_rpc_connection *row = &accept->rows[accept->window.rows[index]];
    bool same = row->peer.connection == place.connection && row->session;
    if (same) *name = *vx_tls_session_name(row->session);
    pthread_mutex_unlock(&accept->lock);
    return name->subject[0] != '\0';
}

struct vx_rpc_governor *vx_rpc_accept_governor(struct vx_rpc_accept *accept)
{
    return accept->governor;
}

/* Under the lock. */
static const struct vx_rpc_connection *row_of(const struct vx_rpc_accept *accept,
                                              u64 connection)
{
    for (i32 i = 0; connection && i < accept->rows_count; i++)
        if (accept->rows[i].peer.connection == connection) return &accept->rows[i];
    return NULL;
}

bool vx_rpc_accept_has(struct vx_rpc_accept *accept, u64 connection)
{
    pthread_mutex_lock(&accept->lock);
    bool has = row_of(accept, connection) != NULL;
    pthread_mutex_unlock(&accept->lock);
    return has;
}

bool vx_rpc_accept_in_group(struct vx_rpc_accept *accept, u64 connection, u32 gid)
{
    pthread_mutex_lock(&accept->lock);
    const struct vx_rpc_connection *row = row_of(accept, connection);
    bool in = row && row->peer.kind == VX_PEER_UNIX && vx_rpc_peer_in_group(row->fd, gid);
    pthread_mutex_unlock(&accept->lock);
    return in;
}
