/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/handed.h"

#include "engine/base/text/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX      "systemd:"
#define FIRST_FD    3   /* where the manager's descriptors begin */
#define HANDED_MAX  256 /* far more than anybody listens on; bounds a wrong LISTEN_FDS */
#define NAMES_SHOWN 160 /* bytes of LISTEN_FDNAMES in an error */

bool vx_handed_is(const char *address)
{
    return !strncmp(address, PREFIX, strlen(PREFIX)) && address[strlen(PREFIX)] != '\0';
}

static const char *environment_of(const char *name)
{
    const char *value = vx_environment_get(name);
    return value ? value : "";
}

/* The manager's sockets are this process's only if it says so: a child inherits the
 * variables but not the descriptors. */
static i32 handed_total(void)
{
    if (strtoll(environment_of("LISTEN_PID"), NULL, 10) != getpid()) return 0;
    i64 count = strtoll(environment_of("LISTEN_FDS"), NULL, 10);
    return count < 0 ? 0 : (i32)(count < HANDED_MAX ? count : HANDED_MAX);
}

/* The descriptor of the index'th socket with the name; -1 if there are fewer. */
static int handed_find(const char *name, i32 index)
{
    const char *names = environment_of("LISTEN_FDNAMES");
    i32 total = handed_total();
    for (i32 i = 0; i < total; i++) {
        size_t bytes = strcspn(names, ":");
        bool same = strlen(name) == bytes && !memcmp(name, names, bytes);
        if (same && !index--) return FIRST_FD + i;
        names += bytes + (names[bytes] == ':');
    }
    return -1;
}

i32 vx_handed_count(const char *address)
{
    i32 count = 0;
    while (handed_find(address + strlen(PREFIX), count) >= 0) count++;
    return count;
}

void vx_handed_where(const char *address, char *text, size_t bytes)
{
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } at = {.room = {0}};
    socklen_t length = sizeof at;
    char host[128], port[8];
    int fd = handed_find(address + strlen(PREFIX), 0);
    snprintf(text, bytes, "%s", address);
    if (fd < 0 || getsockname(fd, &at.any, &length)) return;
    if (at.any.sa_family == AF_UNIX)
        snprintf(text, bytes, "unix:%s", at.local.sun_path);
    else if (!getnameinfo(&at.any, length, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(text, bytes, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

vx_status vx_handed_take(const char *address, i32 index, struct vx_why *why, int *fd)
{
    int found = handed_find(address + strlen(PREFIX), index), listens = 0;
    socklen_t bytes = sizeof listens;
    VX_ENSURE_WHY(found >= 0, why, INVALID_ARGUMENT, "no such socket was handed over",
                  "cannot listen on '%s': expected a socket of that name from systemd "
                  "(FileDescriptorName= in the .socket unit), got %s%.*s",
                  address, handed_total() ? "" : "none", NAMES_SHOWN,
                  handed_total() ? environment_of("LISTEN_FDNAMES") : "");
    bool good =
        !getsockopt(found, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) && listens;
    VX_ENSURE_WHY(
        good, why, INVALID_ARGUMENT, "a descriptor that does not listen",
        "cannot listen on '%s': expected descriptor %d to be a listening stream "
        "socket (ListenStream=, Accept=no), got something else",
        address, found);
    int flags = fcntl(found, F_GETFL);
    VX_ENSURE_WHY(flags >= 0 && !fcntl(found, F_SETFL, flags | O_NONBLOCK) &&
                      !fcntl(found, F_SETFD, FD_CLOEXEC),
                  why, INVALID_ARGUMENT, "a descriptor that cannot be set",
                  "cannot listen on '%s': %s", address, strerror(errno));
    *fd = found;
    return VX_OK;
}
