/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/rpc/rpc_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/handed.h"

#include <grpc/compression.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Go and Java clients can be set to one ping every 10 s, no more.  One second less, so
 * that a ping that a busy network brought early does not count against them. */
#define PING_INTERVAL_MS 9000
/* A connection without traffic for this long is pinged.  A peer that has vanished
 * silently (power, network) does not answer within the timeout, and its calls end. */
#define KEEPALIVE_MS         60000
#define KEEPALIVE_TIMEOUT_MS 20000 /* also the TCP_USER_TIMEOUT */
/* Clients that wait to be accepted, as many as the system allows. */
#define BACKLOG SOMAXCONN
/* A name with several addresses and port 0: how many ports are tried until one is free on
 * all of them. */
#define PORT_TRIES 16
/* How long to wait for a directory's lock; a server that starts holds it only briefly. */
#define LOCK_NS      (3 * VX_NS_PER_S)
#define LOCK_TURN_NS VX_NS_PER_MS

grpc_server *vx_rpc_server_make(const struct vx_rpc_options *options)
{
    i64 streams = options->calls_max + 2 * VX_RPC_SMALL_RESERVED;
    if (streams > VX_H2_STREAMS_MAX / 2) streams = VX_H2_STREAMS_MAX / 2;
    struct {
        char *key;
        i64 value;
    } settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, options->message_bytes_max},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, VX_MESSAGE_BYTES_MAX},
        /* With more gRPC loses the rest of what it has read, and the connection: one call
         * with 9 KB ended 40 others of its client. */
        {GRPC_ARG_MAX_METADATA_SIZE, VX_H2_METADATA_BYTES},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_INTERVAL_MS},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS},
        /* gRPC's own queue of calls that wait to be matched has no other bound.  More
         * than calls_max, so that one busy connection is refused with a sentence and not
         * stalled. */
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, streams},
        /* gRPC buffers one window of a stream that nobody reads.  Probing would make
         * windows megabytes large: 60 streams that read no answer held 250 MB.  A message
         * that we wait for opens the window by its own size, one round trip later: one that
         * fits the first window does not need it (rpc_govern_lend.c).  With 256 KiB 250
         * streams that read no answer added 81 MB, with 128 they add 50. */
        {GRPC_ARG_HTTP2_BDP_PROBE, 0},
        {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, VX_H2_STREAM_WINDOW_BYTES},
        /* gRPC inflates a message completely before it checks its size: a thousandth of
         * the limit on the wire would fill the memory.  So compressed calls are
         * UNIMPLEMENTED, and clients are told what is accepted.  Voxels do not compress
         * well enough for this to matter. */
        {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
        {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
        /* Counters per call that this server does not read. */
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
    };
    grpc_arg args[VX_COUNT(settings)];
    for (size_t i = 0; i < VX_COUNT(settings); i++)
        args[i] = (grpc_arg){.type = GRPC_ARG_INTEGER,
                             .key = settings[i].key,
                             .value.integer = (int)settings[i].value};
    grpc_channel_args channel_args = {.num_args = VX_COUNT(args), .args = args};
    return grpc_server_create(&channel_args, NULL);
}

/* ------- addresses ------- */

/* The three kinds of address: systemd:NAME, unix:PATH, HOST:PORT. */
static bool address_is_unix(const char *address)
{
    return !strncmp(address, "unix:", 5) || !strncmp(address, "unix-abstract:", 14);
}

/* Splits HOST:PORT or [V6]:PORT; false when it is neither. */
static bool address_split(const char *address, char *host, u16 *port)
{
    const char *colon = strrchr(address, ':');
    if (!colon) return false;
    const char *begin = address, *end = colon;
    if (*begin == '[') {
        begin++;
        if (--end < begin || *end != ']') return false;
    } else if (memchr(address, ':', (size_t)(colon - address))) {
        return false; /* a V6 address without its brackets */
    }
    if (end == begin) return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = 0;
    u32 number = 0;
    size_t digits = strspn(colon + 1, "0123456789");
    if (!digits || digits > 5 || colon[1 + digits]) return false;
    for (size_t i = 0; i < digits; i++) number = number * 10 + (u32)(colon[1 + i] - '0');
    *port = (u16)number;
    return number <= UINT16_MAX;
}

/* The address to bind a Unix socket to; 0 when the name is empty or too long. */
static socklen_t address_unix(const char *address, struct sockaddr_un *at)
{
    const char *name = strchr(address, ':') + 1;
    size_t bytes = strlen(name), abstract = address[4] == '-';
    if (!bytes || bytes + 1 > sizeof at->sun_path) return 0;
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path + abstract, name, bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + 1);
}

/* True if the list names an address, one of `count` at its beginning. */
static bool addresses_have(const char *list, i32 count, const char *address)
{
    for (size_t bytes; count > 0; count--, list += bytes + 1) {
        bytes = strcspn(list, ",");
        if (bytes == strlen(address) && !strncmp(list, address, bytes)) return true;
    }
    return false;
}

/* The next address; false at the end of the list.  An empty list has one empty address. */
static bool addresses_next(const char **list, char address[VX_RPC_ADDRESS_BYTES])
{
    if (!*list) return false;
    size_t bytes = strcspn(*list, ",");
    size_t kept = bytes < VX_RPC_ADDRESS_BYTES ? bytes : VX_RPC_ADDRESS_BYTES - 1;
    memcpy(address, *list, kept);
    address[kept] = 0;
    *list = (*list)[bytes] ? *list + bytes + 1 : NULL;
    return true;
}

vx_status vx_rpc_addresses_check(const char *addresses, struct vx_why *why)
{
    char address[VX_RPC_ADDRESS_BYTES], host[VX_RPC_ADDRESS_BYTES];
    struct sockaddr_un at;
    u16 port = 0;
    i32 count = 0;
    for (const char *list = addresses; addresses_next(&addresses, address); port = 0) {
        VX_ENSURE_WHY(!address_is_unix(address) ||
                          strlen(strchr(address, ':')) <= sizeof at.sun_path,
                      why, INVALID_ARGUMENT, "the path of a Unix socket is too long",
                      "expected a Unix socket's path of at most %zu bytes, got '%s'",
                      sizeof at.sun_path - 1, address);
        bool good = strlen(address) < VX_RPC_ADDRESS_BYTES - 1 &&
                    (vx_handed_is(address) ||
                     (address_is_unix(address) ? address_unix(address, &at) != 0
                                               : address_split(address, host, &port)));
        VX_ENSURE_WHY(
            good, why, INVALID_ARGUMENT, "not an address to listen on",
            "expected HOST:PORT or [V6]:PORT with a port from 0 to 65535, unix:PATH or "
            "systemd:NAME, got '%s'",
            address);
        bool one = address_is_unix(address) || port; /* each 0 picks another port */
        VX_ENSURE_WHY(!one || !addresses_have(list, count, address), why,
                      INVALID_ARGUMENT, "an address to listen on is named twice",
                      "expected each address to listen on once, got '%s' twice", address);
        VX_ENSURE_WHY(++count <= VX_RPC_LISTENERS_MAX, why, INVALID_ARGUMENT,
                      "too many addresses to listen on",
                      "expected at most %d addresses to listen on, got one more: '%s'",
                      VX_RPC_LISTENERS_MAX, address);
    }
    return VX_OK;
}

/* ------- sockets ------- */

static vx_status listen_failed(const char *address, int error, struct vx_why *why)
{
    char text[128];
    VX_FAIL_WHY(why, UNAVAILABLE, "cannot listen there", "cannot listen on '%s': %s",
                address, strerror_r(error, text, sizeof text));
}

/* Takes over the socket. */
static void listen_add(struct vx_rpc_listeners *listeners, const char *address, int fd,
                       i32 port)
{
    struct vx_rpc_listener *added = &listeners->list[listeners->count++];
    *added = (struct vx_rpc_listener){.fd = fd, .port = port};
    memcpy(added->address, address, strlen(address) + 1);
}

/* Listens on one of the addresses of a name.  Returns 0 or errno.  *port: 0 picks one. */
static int tcp_listen(const struct addrinfo *found, u16 *port, int *listening)
{
    struct sockaddr_storage at = {0};
    VX_ASSERT(found->ai_addrlen <= sizeof at);
    memcpy(&at, found->ai_addr, found->ai_addrlen);
    _Static_assert(offsetof(struct sockaddr_in, sin_port) ==
                       offsetof(struct sockaddr_in6, sin6_port),
                   "one place for both");
    struct sockaddr_in *in = (struct sockaddr_in *)&at;
    in->sin_port = htons(*port);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    int on = 1, off = 0;
    socklen_t length = sizeof at;
    /* Not SO_REUSEPORT: a port that is taken must be an error, not a share of its
     * connections.  "[::]" means V4 too, whatever the system's default is. */
    bool good = !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
                (at.ss_family != AF_INET6 ||
                 !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) &&
                !bind(fd, (struct sockaddr *)&at, found->ai_addrlen) &&
                !listen(fd, BACKLOG) && !getsockname(fd, (struct sockaddr *)&at, &length);
    if (!good) {
        int error = errno;
        close(fd);
        return error;
    }
    *port = ntohs(in->sin_port);
    *listening = fd;
    return 0;
}

static bool name_said_before(const struct addrinfo *first, const struct addrinfo *found)
{
    for (const struct addrinfo *at = first; at != found; at = at->ai_next)
        if (at->ai_addrlen == found->ai_addrlen &&
            !memcmp(at->ai_addr, found->ai_addr, at->ai_addrlen))
            return true;
    return false;
}

/* A name may have addresses that this host does not have (::1 where IPv6 is off): one
 * that the host has is enough. */
static int name_listen_once(struct vx_rpc_listeners *listeners, const char *address,
                            const struct addrinfo *found, u16 port)
{
    i32 begin = listeners->count;
    int missing = EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        int fd = -1, error;
        if (name_said_before(found, at)) continue;
        if (listeners->count == VX_RPC_LISTENERS_MAX) return ENOBUFS;
        error = tcp_listen(at, &port, &fd);
        if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT)
            missing = error;
        else if (error)
            return error;
        else
            listen_add(listeners, address, fd, port);
    }
    return listeners->count > begin ? 0 : missing;
}

static vx_status name_listen(struct vx_rpc_listeners *listeners, const char *address,
                             struct vx_why *why)
{
    char host[VX_RPC_ADDRESS_BYTES];
    u16 port = 0;
    VX_ASSERT(address_split(address, host, &port));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int unknown = getaddrinfo(host, NULL, &hints, &found);
    VX_ENSURE_WHY(!unknown, why, INVALID_ARGUMENT, "the host is not known",
                  "cannot listen on '%s': %s", address, gai_strerror(unknown));
    i32 begin = listeners->count, tries = port ? 1 : PORT_TRIES;
    int error = EADDRINUSE;
    while (error == EADDRINUSE && tries--) {
        while (listeners->count > begin) close(listeners->list[--listeners->count].fd);
        error = name_listen_once(listeners, address, found, port);
    }
    freeaddrinfo(found);
    return error ? listen_failed(address, error, why) : VX_OK;
}

/* Removes the socket file of a server that was killed: no process answers there.  Leaves
 * a file that is not a socket, and a socket that answers. */
static vx_status unix_make_way(const char *address, const struct sockaddr_un *at,
                               struct vx_why *why)
{
    struct stat before, now;
    if (lstat(at->sun_path, &before))
        return errno == ENOENT ? VX_OK : listen_failed(address, errno, why);
    VX_ENSURE_WHY(S_ISSOCK(before.st_mode), why, UNAVAILABLE, "cannot listen there",
                  "cannot listen on '%s': a file that is not a socket exists there",
                  address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return listen_failed(address, errno, why);
    int error = connect(fd, (const struct sockaddr *)at, sizeof *at) ? errno : 0;
    close(fd);
    VX_ENSURE_WHY(error && error != EAGAIN, why, UNAVAILABLE, "cannot listen there",
                  "cannot listen on '%s': another server listens there", address);
    if (error == ENOENT) return VX_OK;
    if (error != ECONNREFUSED) return listen_failed(address, error, why);
    bool same = !lstat(at->sun_path, &now) && now.st_dev == before.st_dev &&
                now.st_ino == before.st_ino;
    if (same && unlink(at->sun_path)) return listen_failed(address, errno, why);
    return VX_OK;
}

/* Between the check of a socket file and its removal, and between bind and listen,
 * another server may do the same: this one would remove a socket that is about to answer,
 * and both would report that they are ready.  So servers lock the directory one after
 * another.  The lock ends with its descriptor and leaves no file behind.  Any process
 * that can read the directory can take the lock, so the wait for it is limited. */
static vx_status unix_lock(const char *address, const struct sockaddr_un *at,
                           struct vx_why *why, int *lock)
{
    char path[sizeof at->sun_path];
    memcpy(path, at->sun_path, sizeof path);
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    else
        memcpy(path, ".", 2);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return listen_failed(address, errno, why);
    i64 until_ns = vx_clock_ns() + LOCK_NS;
    int busy;
    while ((busy = flock(fd, LOCK_EX | LOCK_NB)) && vx_clock_ns() < until_ns)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = LOCK_TURN_NS},
                        NULL);
    int error = busy ? errno : 0;
    if (error) close(fd);
    VX_ENSURE_WHY(error != EWOULDBLOCK, why, UNAVAILABLE, "cannot listen there",
                  "cannot listen on '%s': its directory is locked by another process",
                  address);
    if (error) return listen_failed(address, error, why);
    *lock = fd;
    return VX_OK;
}

static vx_status unix_bind(struct vx_rpc_listeners *listeners, const char *address,
                           struct vx_why *why)
{
    struct sockaddr_un at;
    socklen_t length = address_unix(address, &at);
    bool abstract = !at.sun_path[0];
    if (!abstract) VX_TRY(unix_make_way(address, &at, why));
    if (listeners->count == VX_RPC_LISTENERS_MAX)
        return listen_failed(address, ENOBUFS, why);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return listen_failed(address, errno, why);
    if (bind(fd, (struct sockaddr *)&at, length)) {
        int error = errno;
        close(fd);
        return listen_failed(address, error, why);
    }
    /* From here on the file is ours to remove.  No client can connect before listen. */
    listen_add(listeners, address, fd, 0);
    struct vx_rpc_listener *added = &listeners->list[listeners->count - 1];
    added->is_unix = true;
    struct stat made = {0};
    if (!abstract && !lstat(at.sun_path, &made)) {
        added->device = made.st_dev;
        added->inode = made.st_ino;
        memcpy(added->path, at.sun_path, sizeof added->path);
    }
    /* The socket's group and the directory's permissions decide who may connect. */
    bool open = abstract || !chmod(at.sun_path, 0660);
    if (!open || listen(fd, BACKLOG)) return listen_failed(address, errno, why);
    return VX_OK;
}

static vx_status unix_listen(struct vx_rpc_listeners *listeners, const char *address,
                             struct vx_why *why)
{
    struct sockaddr_un at;
    int lock = -1;
    VX_ASSERT(address_unix(address, &at));
    if (at.sun_path[0]) VX_TRY(unix_lock(address, &at, why, &lock));
    vx_status status = unix_bind(listeners, address, why);
    if (lock >= 0) close(lock);
    return status;
}

/* All sockets of the name, which listen already. */
static vx_status handed_listen(struct vx_rpc_listeners *listeners, const char *address,
                               struct vx_why *why)
{
    i32 count = vx_handed_count(address);
    for (i32 i = 0; i < count || !i; i++) {
        int fd = -1;
        if (listeners->count == VX_RPC_LISTENERS_MAX)
            return listen_failed(address, ENOBUFS, why);
        VX_TRY(vx_handed_take(address, i, why, &fd));
        struct sockaddr_storage at = {0};
        socklen_t length = sizeof at;
        if (getsockname(fd, (struct sockaddr *)&at, &length))
            return listen_failed(address, errno, why);
        bool is_unix = at.ss_family == AF_UNIX;
        listen_add(listeners, address, fd,
                   is_unix ? 0 : ntohs(((struct sockaddr_in *)&at)->sin_port));
        listeners->list[listeners->count - 1].is_unix = is_unix;
        listeners->list[listeners->count - 1].is_handed = true;
    }
    return VX_OK;
}

vx_status vx_rpc_listen(const char *addresses, struct vx_rpc_listeners *listeners,
                        struct vx_why *why)
{
    char address[VX_RPC_ADDRESS_BYTES];
    while (addresses_next(&addresses, address))
        VX_TRY(vx_handed_is(address)      ? handed_listen(listeners, address, why)
               : address_is_unix(address) ? unix_listen(listeners, address, why)
                                          : name_listen(listeners, address, why));
    return VX_OK;
}

void vx_rpc_listeners_stop(struct vx_rpc_listeners *listeners)
{
    for (i32 i = 0; i < listeners->count; i++) {
        struct vx_rpc_listener *one = &listeners->list[i];
        struct stat now;
        /* The inode of a bound socket's file is not used for another file while the
         * socket is open: a file that has it is ours. */
        bool ours = one->path[0] && !lstat(one->path, &now) &&
                    now.st_dev == one->device && now.st_ino == one->inode;
        if (ours) unlink(one->path);
        one->path[0] = 0;
        if (one->fd >= 0 && !one->is_handed) shutdown(one->fd, SHUT_RDWR);
    }
}

void vx_rpc_listeners_close(struct vx_rpc_listeners *listeners)
{
    vx_rpc_listeners_stop(listeners);
    for (i32 i = 0; i < listeners->count; i++) {
        if (listeners->list[i].fd >= 0) close(listeners->list[i].fd);
        listeners->list[i].fd = -1;
    }
}

void vx_rpc_listeners_log(const struct vx_rpc_listeners *listeners)
{
    for (i32 i = 0; i < listeners->count; i++) {
        const struct vx_rpc_listener *one = &listeners->list[i];
        if (i && !strcmp(one[-1].address, one->address)) continue; /* the same name */
        if (one->is_unix)
            VX_LOG(LISTEN, VX_LOG_TEXT("what", "grpc"),
                   VX_LOG_TEXT("address", one->address));
        else
            VX_LOG(LISTEN, VX_LOG_TEXT("what", "grpc"),
                   VX_LOG_TEXT("address", one->address), VX_LOG_I64("port", one->port));
    }
}

bool vx_rpc_listeners_watch(const struct vx_rpc_listeners *listeners, int epoll,
                            int operation, u32 events)
{
    bool good = true;
    for (i32 i = 0; i < listeners->count; i++) {
        const struct vx_rpc_listener *one = &listeners->list[i];
        bool hears = !one->is_handed || listeners->hears_handed;
        struct epoll_event event = {.events = hears ? events : 0,
                                    .data.u64 = VX_RPC_LISTENER_ID + (u64)i};
        if (one->fd >= 0) good &= !epoll_ctl(epoll, operation, one->fd, &event);
    }
    return good;
}

i32 vx_rpc_listeners_port(const struct vx_rpc_listeners *listeners)
{
    for (i32 i = 0; i < listeners->count; i++)
        if (!listeners->list[i].is_unix) return listeners->list[i].port;
    return 0;
}

/* ------- accept ------- */

/* The options that gRPC's own listener sets. */
static void tcp_set(int fd)
{
    int on = 1, timeout_ms = KEEPALIVE_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

int vx_rpc_listener_accept(const struct vx_rpc_listener *listener, struct vx_peer *peer)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return -1;
    if (!listener->is_unix) tcp_set(fd);
    *peer = vx_rpc_peer_of(fd, listener->is_unix);
    return fd;
}
