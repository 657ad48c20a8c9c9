/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* For a connection that waits already, the accept thread is woken at most this often,
 * whatever the client sends. */
#define WAKEUP_NS (5 * VX_NS_PER_MS)

/* Indexed by descriptor, because a read has nothing else; for all governors of the
 * process.  Made once and kept, because gRPC's threads may outlive a governor.  A
 * descriptor whose connection has ended points to `ended`, or `ended_secure` if it spoke
 * TLS, until its number is used again. */
static struct vx_rpc_govern ended, ended_secure;
static struct vx_rpc_govern **by_descriptor;
static atomic_int descriptors_count;
pthread_mutex_t vx_rpc_govern_lock = PTHREAD_MUTEX_INITIALIZER;

/* ------- open ------- */

static vx_status open_descriptors(void)
{
    struct rlimit limit;
    VX_ASSERT(!getrlimit(RLIMIT_NOFILE, &limit));
    if (by_descriptor) return VX_OK;
    VX_TRY(vx_rpc_govern_notify_open());
    i32 count = limit.rlim_cur < INT32_MAX / 2 ? (i32)limit.rlim_cur : INT32_MAX / 2;
    void *made = mmap(NULL, (size_t)count * sizeof *by_descriptor, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    VX_ENSURE(made != MAP_FAILED, RESOURCE_EXHAUSTED, "no memory to track connections");
    by_descriptor = made;
    atomic_store(&descriptors_count, count);
    return VX_OK;
}

static size_t streams_bytes(const struct vx_rpc_governor *governor)
{
    return (size_t)governor->connections_max * VX_H2_STREAMS_MAX *
           sizeof *governor->streams;
}

static vx_status open_rows(struct vx_rpc_governor *governor)
{
    i32 rows = governor->connections_max;
    governor->rows = vx_alloc_zero((size_t)rows * sizeof *governor->rows);
    void *streams = mmap(NULL, streams_bytes(governor), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    governor->streams = streams == MAP_FAILED ? NULL : streams;
    VX_ENSURE(governor->rows && governor->streams, RESOURCE_EXHAUSTED,
              "no memory to track connections");
    for (i32 i = 0; i < rows; i++)
        governor->rows[i] = (struct vx_rpc_govern){
            .governor = governor,
            .streams = governor->streams + (size_t)i * VX_H2_STREAMS_MAX};
    return VX_OK;
}

vx_status vx_rpc_governor_open(const struct vx_rpc_governor_options *options,
                               struct vx_rpc_governor **governor)
{
    struct vx_rpc_governor *made = vx_alloc_zero(sizeof *made);
    *governor = made;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to track connections");
    made->connections_max = options->connections_max;
    made->message_bytes_max = options->message_bytes_max;
    made->receive_bytes_max = options->receive_bytes_max;
    made->receive_ns_max = options->receive_ns_max;
    made->arena_bytes = options->arena_bytes;
    made->wakeup = options->wakeup;
    made->context = options->context;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    vx_status status = open_descriptors();
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    if (!status.fault) status = open_rows(made);
    if (status.fault) vx_rpc_governor_close(governor);
    return status;
}

void vx_rpc_governor_close(struct vx_rpc_governor **governor)
{
    struct vx_rpc_governor *going = *governor;
    *governor = NULL;
    if (!going) return;
    VX_ASSERT(!going->live);
    if (going->streams) munmap(going->streams, streams_bytes(going));
    vx_free(going->rows);
    vx_free(going);
}

struct vx_rpc_govern *vx_rpc_governor_row(struct vx_rpc_governor *governor, i32 row)
{
    VX_ASSERT(row >= 0 && row < governor->connections_max);
    return &governor->rows[row];
}

/* ------- entries ------- */

struct vx_rpc_govern *vx_rpc_govern_at(int fd)
{
    struct vx_rpc_govern *govern = by_descriptor[fd];
    return govern == &ended || govern == &ended_secure ? NULL : govern;
}

bool vx_rpc_govern_was_secure(int fd)
{
    return by_descriptor[fd] == &ended_secure;
}

struct vx_rpc_govern *vx_rpc_govern_of(struct vx_rpc_place place)
{
    if (!vx_rpc_govern_may_have(place.descriptor)) return NULL;
    struct vx_rpc_govern *govern = vx_rpc_govern_at(place.descriptor);
    bool same =
        govern && place.connection && govern->place.connection == place.connection;
    return same ? govern : NULL;
}

/* ------- waiting ------- */

/* Wakes the accept thread also for a connection that waits already: at the last turn it
 * may have had nothing to read, and was passed over. */
static void wait_begin(struct vx_rpc_govern *govern, enum vx_rpc_wait waits, i64 now_ns)
{
    struct vx_rpc_governor *governor = govern->governor;
    bool first = govern->waits == VX_RPC_WAIT_NONE;
    governor->waiting += first;
    if ((first && waits != VX_RPC_WAIT_WINDOW) || now_ns - governor->turn_ns > WAKEUP_NS)
        governor->wakeup(governor->context);
    if (waits == VX_RPC_WAIT_HIDDEN && govern->waits != waits) govern->hushed_ns = now_ns;
    if (waits == VX_RPC_WAIT_BYTES && !govern->queued_ns) govern->queued_ns = now_ns;
    govern->waits = waits;
    if (waits < VX_RPC_WAIT_TAKEN) govern->held_up = true;
}

static void wait_end(struct vx_rpc_govern *govern)
{
    if (govern->waits == VX_RPC_WAIT_NONE) return;
    govern->governor->waiting--;
    govern->waits = VX_RPC_WAIT_NONE;
}

/* gRPC waits edge-triggered.  EPOLL_CTL_MOD makes a new edge of what is there. */
void vx_rpc_govern_wake(struct vx_rpc_govern *govern)
{
    wait_end(govern);
    if (govern->session)
        vx_rpc_govern_notify(govern);
    else if (govern->epoll >= 0)
        syscall(SYS_epoll_ctl, govern->epoll, EPOLL_CTL_MOD, govern->place.descriptor,
                &govern->event);
}

/* A waiting connection may be able to read on. */
static void ring(struct vx_rpc_governor *governor)
{
    if (governor->waiting) governor->wakeup(governor->context);
}

/* ------- a read ------- */

/* From now on it takes no place of newcomers: gRPC may need a while until it has ended. */
void vx_rpc_govern_close(struct vx_rpc_govern *govern, enum vx_rpc_cut why)
{
    if (govern->cut) return;
    govern->cut = why;
    vx_rpc_govern_place_leave(govern);
    /* Who only makes way has done nothing wrong. */
    if (why == VX_RPC_CUT_IDLE) vx_rpc_govern_farewell(govern);
    syscall(SYS_shutdown, govern->place.descriptor, SHUT_RDWR);
}

/* An owner that has finished a message loses its turn to the next connection. */
static void owner_pass(struct vx_rpc_govern *govern, u64 finished_before)
{
    struct vx_rpc_governor *governor = govern->governor;
    if (governor->owner != govern) return;
    if (govern->meter.finished == finished_before && govern->meter.unfinished) return;
    govern->passes = 0;
    governor->owner = NULL;
    ring(governor);
}

static const enum vx_rpc_cut faults[] = {
    [VX_H2_SOUND] = VX_RPC_CUT_NONE,           [VX_H2_BLOCK_LONG] = VX_RPC_CUT_HEADERS,
    [VX_H2_BLOCK_BROKEN] = VX_RPC_CUT_HEADERS, [VX_H2_STREAMS_MANY] = VX_RPC_CUT_STREAMS,
    [VX_H2_MESSAGE_LARGE] = VX_RPC_CUT_LARGE,
};

/* Its message is whole, or it has begun another one: the next one may lie there, if the
 * room may hold what this one keeps.  Four connections, each with 400 MB of a message and
 * then a byte of the next, had 1,659 MB. */
static void beyond_pass(struct vx_rpc_govern *govern, u64 finished_before)
{
    struct vx_rpc_governor *governor = govern->governor;
    if (governor->beyond != govern) return;
    bool same =
        govern->meter.finished == finished_before && govern->meter.unfinished == 1;
    if (govern->meter.unfinished && (same || vx_rpc_govern_room_passed(governor) <= 0))
        return;
    governor->beyond = NULL;
    ring(governor);
}

void vx_rpc_govern_account_held(struct vx_rpc_govern *govern,
                                const struct vx_h2_meter *before)
{
    struct vx_rpc_governor *governor = govern->governor;
    const struct vx_h2_meter *meter = &govern->meter;
    governor->held += meter->held - before->held;
    governor->whole += meter->whole - before->whole;
    vx_rpc_govern_held_add(govern, meter->held - before->held);
    governor->holders += (meter->held > 0) - (before->held > 0);
    if (before->held - meter->held > HELD_SMALL) governor->freed_ns = vx_clock_ns();
    if (meter->held < before->held || meter->whole < before->whole) ring(governor);
    owner_pass(govern, before->finished);
    beyond_pass(govern, before->finished);
    if (meter->finished == before->finished && meter->unfinished) return;
    govern->queued_ns = 0;
    if (govern->had_turn) governor->turned_of[govern->origin] = 0;
}

void vx_rpc_govern_judge_window(struct vx_rpc_govern *govern)
{
    const bool beyond = govern->meter.window < 0 || govern->meter.overdrawn;
    const bool kept = govern->session && govern->windows.ahead;
    if (beyond && !govern->writing && !kept)
        vx_rpc_govern_close(govern, VX_RPC_CUT_WINDOW);
}

/* Accounts for what a read brought. */
static void account_read(struct vx_rpc_govern *govern, const struct msghdr *message,
                         size_t got)
{
    struct vx_rpc_governor *governor = govern->governor;
    struct vx_h2_meter *meter = &govern->meter, before = *meter;
    vx_rpc_govern_walk_read(govern, message, got);
    governor->bytes += got;
    govern->calls -= (i64)(meter->calls - before.calls);
    govern->work -= (i64)(meter->work - before.work);
    governor->calls += meter->calls - before.calls;
    vx_rpc_govern_unseen(govern, (i64)(meter->calls - before.calls));
    govern->spent += meter->calls - before.calls + meter->work - before.work;
    if (meter->calls) vx_rpc_govern_place_called(govern);
    if (meter->calls != before.calls || meter->finished != before.finished)
        govern->asked_ns = vx_clock_ns();
    if (!before.unfinished || meter->finished != before.finished)
        govern->unfinished_since_ns = vx_clock_ns();
    if (meter->finished != before.finished) govern->heard_ns = vx_clock_ns();
    vx_rpc_govern_account_held(govern, &before);
    if (meter->fault) vx_rpc_govern_close(govern, faults[meter->fault]);
    vx_rpc_govern_judge_window(govern);
    if (vx_rpc_govern_owes(govern)) vx_rpc_govern_close(govern, VX_RPC_CUT_FLOOD);
    vx_rpc_govern_hidden_count(govern);
    if (meter->withheld) vx_rpc_govern_windows_open(govern);
}

/* Reads at most `most` bytes. */
static ssize_t read_some(int fd, struct msghdr *message, int flags, size_t most)
{
    size_t count = message->msg_iovlen, used = 0;
    while (used < count && most > message->msg_iov[used].iov_len)
        most -= message->msg_iov[used++].iov_len;
    if (used == count) return syscall(SYS_recvmsg, fd, message, flags);
    size_t whole = message->msg_iov[used].iov_len;
    message->msg_iov[used].iov_len = most;
    message->msg_iovlen = used + 1;
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    message->msg_iov[used].iov_len = whole;
    message->msg_iovlen = count;
    return got;
}

bool vx_rpc_govern_may_have(int fd)
{
    return fd >= 0 && fd < atomic_load_explicit(&descriptors_count, memory_order_acquire);
}

/* The result of a read without bytes: the end, or that there is nothing now. */
static ssize_t read_nothing(struct msghdr *message, bool end)
{
    message->msg_controllen = 0;
    message->msg_flags = 0;
    errno = EAGAIN;
    return end ? 0 : -1;
}

/* Reads at most `most` bytes, which with TLS are plain bytes. */
static ssize_t read_plain(struct vx_rpc_govern *govern, struct msghdr *message, int flags,
                          size_t most, struct vx_tls_cost *cost)
{
    *cost = (struct vx_tls_cost){0};
    if (govern->session) return vx_tls_read(govern->session, message, most, cost);
    return read_some(govern->place.descriptor, message, flags, most);
}

/* A thread leaves a read or a write.  Under the lock, which it has taken again. */
static void account_cost(struct vx_rpc_govern *govern, const struct vx_tls_cost *cost)
{
    govern->work -= cost->records;
    govern->spent += (u64)cost->records;
    if (cost->records && vx_rpc_govern_owes(govern))
        vx_rpc_govern_close(govern, VX_RPC_CUT_FLOOD);
}

/* Reads at most `most` bytes.  The connection counts as in use until it returns. */
static ssize_t read_now(struct vx_rpc_govern *govern, struct msghdr *message, int flags,
                        size_t most)
{
    struct vx_tls_cost cost;
    ssize_t got = read_plain(govern, message, flags, most, &cost);
    int error = errno;
    size_t all = got > 0 ? (size_t)got : 0;
    bool gives = false;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    if (got > 0) account_read(govern, message, all);
    account_cost(govern, &cost);
    if (got > 0 || (got < 0 && error == EAGAIN))
        gives = vx_rpc_govern_buffers_read(govern, message, &all);
    /* Nothing came of what was read, and the socket may have nothing more. */
    if (got < 0 && govern->session && vx_tls_pending(govern->session))
        vx_rpc_govern_notify(govern);
    govern->users--;
    bool closed = govern->cut != VX_RPC_CUT_NONE;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    if (gives) vx_rpc_govern_buffers_give(message, all);
    if (got < 0) message->msg_controllen = 0; /* nobody wrote what TCP has left */
    errno = error;
    if (closed) return read_nothing(message, true);
    return all ? (ssize_t)all : got;
}

ssize_t vx_rpc_govern_read(int fd, struct msghdr *message, int flags)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (!govern || govern->cut) {
        bool had = by_descriptor[fd] != NULL;
        pthread_mutex_unlock(&vx_rpc_govern_lock);
        return had ? read_nothing(message, true)
                   : syscall(SYS_recvmsg, fd, message, flags);
    }
    i64 now_ns = vx_clock_ns();
    vx_rpc_govern_fill(govern, now_ns);
    enum vx_rpc_wait waits = vx_rpc_govern_must_wait(govern);
    const i64 left = vx_rpc_govern_lend_left(govern);
    bool nothing = waits || vx_rpc_govern_buffers_pause(govern);
    size_t most = 0, filled = 0;
    bool gives = waits && waits != VX_RPC_WAIT_WINDOW &&
                 vx_rpc_govern_buffers_wait(govern, message, &filled);
    if (waits) wait_begin(govern, waits, now_ns);
    if (!nothing) {
        wait_end(govern);
        most = vx_rpc_govern_buffers_most(govern, vx_rpc_govern_read_bytes(govern));
        if ((i64)most > left) most = (size_t)left;
        govern->users++;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    if (gives) vx_rpc_govern_buffers_give(message, filled);
    if (!nothing) return read_now(govern, message, flags, most);
    ssize_t got = read_nothing(message, false);
    return filled ? (ssize_t)filled : got;
}

void vx_rpc_govern_watched(int epoll, int fd, const struct epoll_event *event)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    /* Our own epoll set has another descriptor of the connection, for its end only. */
    if (govern) {
        govern->epoll = epoll;
        govern->event = *event;
        vx_rpc_govern_notify_join(epoll);
        if (govern->session)
            vx_rpc_govern_notify(govern); /* the preface has left the socket */
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

/* ------- begin and end ------- */

void vx_rpc_govern_begin(struct vx_rpc_govern *govern, struct vx_rpc_place place,
                         u16 origin)
{
    struct vx_rpc_governor *governor = govern->governor;
    VX_ASSERT(vx_rpc_govern_may_have(place.descriptor) && origin < VX_PEER_ORIGINS);
    struct vx_h2_stream *streams = govern->streams;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    *govern = (struct vx_rpc_govern){.governor = governor,
                                     .streams = streams,
                                     .place = place,
                                     .origin = origin,
                                     .next = governor->live,
                                     .epoll = -1};
    vx_h2_meter_init(&govern->meter, streams, VX_H2_STREAMS_MAX,
                     governor->message_bytes_max);
    govern->begun_ns = govern->asked_ns = vx_clock_ns();
    vx_rpc_govern_cost_init(govern, govern->begun_ns);
    if (governor->live) governor->live->previous = govern;
    if (!governor->live) governor->oldest = govern;
    governor->live = govern;
    governor->live_count++;
    vx_rpc_govern_place_take(govern);
    vx_rpc_govern_bound_fresh(governor, govern->begun_ns);
    by_descriptor[place.descriptor] = govern;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

void vx_rpc_govern_secure(struct vx_rpc_govern *govern, struct vx_tls_session *session)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    govern->session = session;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

enum vx_rpc_cut vx_rpc_govern_end(struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    VX_ASSERT(by_descriptor[govern->place.descriptor] == govern);
    by_descriptor[govern->place.descriptor] = govern->session ? &ended_secure : &ended;
    while (govern->users) { /* it is in a system call that does not wait */
        pthread_mutex_unlock(&vx_rpc_govern_lock);
        sched_yield();
        pthread_mutex_lock(&vx_rpc_govern_lock);
    }
    vx_rpc_govern_notify_drop(govern);
    govern->session = NULL;
    vx_rpc_govern_wake(govern); /* so that gRPC reads the end */
    *(govern->previous ? &govern->previous->next : &governor->live) = govern->next;
    *(govern->next ? &govern->next->previous : &governor->oldest) = govern->previous;
    governor->live_count--;
    vx_rpc_govern_going_add(govern);
    vx_rpc_govern_unseen(govern, -govern->unseen);
    governor->leaving -= govern->leaving_ns > 0;
    governor->holders -= govern->meter.held > 0;
    vx_rpc_govern_held_end(govern);
    vx_rpc_govern_share_end(govern);
    vx_rpc_govern_buffers_end(govern);
    /* Count again, and with them what gRPC and TLS keep of a connection: it is free now. */
    governor->bytes += govern->meter.bytes + VX_RPC_CONNECTION_BYTES;
    governor->calls += (u64)govern->meter.streams_count;
    if (!govern->cut) vx_rpc_govern_place_leave(govern);
    vx_rpc_govern_hidden_end(govern);
    if (governor->owner == govern) governor->owner = NULL;
    if (governor->beyond == govern) governor->beyond = NULL;
    ring(governor);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return govern->cut;
}

u64 vx_rpc_governor_moved(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    u64 moved = governor->bytes + governor->sent;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return moved;
}

void vx_rpc_governor_total(struct vx_rpc_governor *governor, u64 *bytes, u64 *calls)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    *bytes = governor->bytes;
    *calls = governor->calls;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}
