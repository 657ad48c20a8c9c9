/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/rpc_private.h"

#include <grpc/compression.h>
#include <grpc/grpc_security.h>

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 10 s is the least that Go and Java clients can be set to; a second less, so that a ping
 * that a busy network brought early does not count against them. */
#define PING_INTERVAL_MS 9000
/* A peer that vanished without a word (power, network) is found out after this, and its
 * calls end. */
#define KEEPALIVE_MS         60000
#define KEEPALIVE_TIMEOUT_MS 20000
/* "unix:" paths: what sockaddr_un holds. */
#define UNIX_PATH_BYTES_MAX 107
#define ADDRESS_BYTES_MAX   300 /* a DNS name of 253, brackets, a port */

grpc_server *vx_rpc_server_make(const struct vx_rpc_options *options)
{
    struct {
        char *key;
        i64 value;
    } settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, options->message_bytes_max},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, VX_MESSAGE_BYTES_MAX},
        /* A port that is taken must be an error, not a share of its connections. */
        {GRPC_ARG_ALLOW_REUSEPORT, 0},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_INTERVAL_MS},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS},
        /* gRPC's own queue of calls that wait to be matched has no other bound.  More
         * than there are records, so that one busy connection is refused with a sentence
         * and not stalled. */
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, options->calls_max + 2 * VX_RPC_SMALL_RESERVED},
        /* gRPC inflates a message whole before it looks at its size: a thousandth of the
         * limit on the wire would fill the memory.  Compressed calls are UNIMPLEMENTED,
         * clients are told what is accepted, and voxels do not compress well enough to be
         * missed. */
        {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
        {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
        /* Counters per call that nobody here reads. */
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

static bool address_is_unix(const char *address)
{
    return !strncmp(address, "unix:", 5) || !strncmp(address, "unix-abstract:", 14);
}

/* HOST:PORT or [V6]:PORT into its two halves; false when it is neither. */
static bool address_split(const char *address, char *host, const char **port)
{
    size_t length = strlen(address);
    const char *colon = strrchr(address, ':');
    if (!colon || length >= ADDRESS_BYTES_MAX) return false;
    *port = colon + 1;
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
    size_t digits = strspn(*port, "0123456789");
    if (!digits || digits > 5 || (*port)[digits]) return false;
    for (size_t i = 0; i < digits; i++) number = number * 10 + (u32)((*port)[i] - '0');
    return number <= UINT16_MAX;
}

vx_status vx_rpc_address_check(const char *address, struct vx_why *why)
{
    char host[ADDRESS_BYTES_MAX];
    const char *port;
    bool good = address_is_unix(address)
                    ? strlen(strchr(address, ':') + 1) - 1 < UNIX_PATH_BYTES_MAX
                    : address_split(address, host, &port);
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "not an address to listen on",
                  "expected HOST:PORT, [V6]:PORT or unix:PATH, got '%s'", address);
    return VX_OK;
}

/* gRPC only says that it failed; asking the system once more says why. */
static vx_status listen_explain(const char *address, struct vx_why *why)
{
    char host[ADDRESS_BYTES_MAX];
    const char *port;
    if (address_is_unix(address) || !address_split(address, host, &port))
        VX_FAIL_WHY(why, UNAVAILABLE, "cannot listen there",
                    "cannot listen on '%s': is the directory there, and may this user "
                    "write in it?",
                    address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        VX_FAIL_WHY(why, INVALID_ARGUMENT, "the host is not known",
                    "cannot listen on '%s': %s", address, gai_strerror(error));
    int on = 1;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
                 !bind(fd, found->ai_addr, found->ai_addrlen);
    char text[128];
    const char *reason =
        bound ? "it was taken a moment ago" : strerror_r(errno, text, sizeof text);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
    VX_FAIL_WHY(why, UNAVAILABLE, "cannot listen there", "cannot listen on '%s': %s",
                address, reason);
}

vx_status vx_rpc_listen(struct vx_rpc *rpc, struct vx_why *why)
{
    const char *address = rpc->options.address;
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    i32 port = grpc_server_add_http2_port(rpc->server, address, plain);
    grpc_server_credentials_release(plain);
    if (!port) return listen_explain(address, why);
    rpc->port = address_is_unix(address) ? 0 : port;
    return VX_OK;
}
