/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/http/http_private.h"

#include "engine/base/process/check.h"
#include "server/base/handed.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that wait in the kernel to be accepted.  Beyond that a client's first
 * packet is dropped, and it tries again after a second: so as many as systems allow. */
#define BACKLOG 4096
/* The kernel's buffers for a connection, which it doubles; a page of a hundred models is
 * 60 KB.  What does not fit waits in one of vx_http.pages. */
#define SEND_BYTES    (128 * 1024)
#define RECEIVE_BYTES (16 * 1024)

/* Splits "HOST:PORT" or "[V6]:PORT"; *port points into `address`. */
static bool address_split(const char *address, char host[256], const char **port)
{
    const char *colon = strrchr(address, ':');
    if (!colon) return false;
    size_t length = (size_t)(colon - address);
    if (length > 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    } else if (strcspn(address, ":[]") < length) {
        return false; /* a V6 address without its brackets */
    }
    if (length == 0 || length > 255) return false;
    memcpy(host, address, length);
    host[length] = '\0';
    *port = colon + 1;
    size_t digits = strspn(*port, "0123456789");
    return digits > 0 && digits <= 5 && !(*port)[digits] &&
           strtol(*port, NULL, 10) <= 65535;
}

void http_listen_host(const char *address, char host[256])
{
    const char *port;
    host[0] = '\0';
    if (!vx_handed_is(address)) VX_ASSERT(address_split(address, host, &port));
}

vx_status vx_http_address_check(const char *address, struct vx_why *why)
{
    char host[256];
    const char *port;
    VX_ENSURE_WHY(vx_handed_is(address) || address_split(address, host, &port), why,
                  INVALID_ARGUMENT, "the admin address is not HOST:PORT",
                  "http: expected HOST:PORT or [V6]:PORT with a port from 0 to 65535, or "
                  "systemd:NAME, got '%.100s'",
                  address);
    return VX_OK;
}

static vx_status address_parse(const char *address, struct vx_why *why,
                               struct sockaddr_storage *out, socklen_t *out_bytes)
{
    char host[256];
    const char *port;
    VX_TRY(vx_http_address_check(address, why));
    VX_ASSERT(address_split(address, host, &port));
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE},
                    *found = NULL;
    int error = getaddrinfo(host, port, &wanted, &found);
    VX_ENSURE_WHY(!error, why, INVALID_ARGUMENT, "the admin address has an unknown host",
                  "http: expected a host of this machine, got '%.100s': %s", host,
                  gai_strerror(error));
    VX_ASSERT(found->ai_addrlen <= sizeof *out);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *out_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return VX_OK;
}

/* 0, or an errno. */
static int socket_listen(int fd, const struct sockaddr_storage *address, socklen_t bytes)
{
    int yes = 1, no = 0, send_bytes = SEND_BYTES, receive_bytes = RECEIVE_BYTES;
    bool good = !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
                !setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes) &&
                !setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes,
                            sizeof receive_bytes); /* accepted ones inherit both */
    if (good && address->ss_family == AF_INET6)
        good = !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (good) good = !bind(fd, (const struct sockaddr *)address, bytes);
    if (good) good = !listen(fd, BACKLOG);
    return good ? 0 : errno;
}

static vx_status handed_listen(const char *address, struct vx_why *why, int *listener)
{
    int fd = -1, family = 0;
    socklen_t bytes = sizeof family;
    VX_TRY(vx_handed_take(address, 0, why, &fd));
    VX_ENSURE_WHY(!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) &&
                      (family == AF_INET || family == AF_INET6),
                  why, INVALID_ARGUMENT, "the admin address is not TCP",
                  "http: expected '%.100s' to be a TCP socket, got another kind",
                  address);
    *listener = fd;
    return VX_OK;
}

vx_status http_listen(const char *address, struct vx_why *why, int *listener)
{
    if (vx_handed_is(address)) return handed_listen(address, why, listener);
    struct sockaddr_storage where = {0};
    socklen_t bytes = 0;
    char text[128];
    VX_TRY(address_parse(address, why, &where, &bytes));
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? errno : socket_listen(fd, &where, bytes);
    if (error && fd >= 0) close(fd);
    VX_ENSURE_WHY(!error, why, UNAVAILABLE, "the admin port cannot be opened",
                  "http: cannot listen on '%.100s': %s", address,
                  strerror_r(error, text, sizeof text));
    *listener = fd;
    return VX_OK;
}
