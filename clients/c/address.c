/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/client.h"

#include "clients/c/error.h"

#include <string.h>

#define PORT_MAX 65535

static enum voxel_code refuse(const char *address, const char *expected,
                              struct voxel_error *error)
{
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "the server's address is '%s': expected %s", address,
                           expected);
}

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* 1..65535.  gRPC takes the port modulo 65536, so that another server might answer. */
static bool is_port(const char *text)
{
    long port = 0;
    if (strlen(text) > 5) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        port = 10 * port + (*text - '0');
    }
    return port >= 1 && port <= PORT_MAX;
}

/* A name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_host(const char *text, size_t bytes)
{
    if (bytes == 0) return false;
    if (*text == '[') return bytes > 2 && text[bytes - 1] == ']';
    return !memchr(text, ':', bytes) && !memchr(text, '/', bytes);
}

enum voxel_code voxel_address_check(const char *address, struct voxel_error *error)
{
    static const char *const resolvers[] = {"dns:", "ipv4:", "ipv6:"};
    static const char form[] = "host:port, [v6]:port or unix:path";
    if (!address || !*address)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "the server's address is empty: expected host:port or unix:path");
    if (begins_with(address, "unix:"))
        return address[5] ? VOXEL_OK : refuse(address, "a path after unix:", error);
    if (begins_with(address, "unix-abstract:")) return VOXEL_OK;
    if (begins_with(address, "http://") || begins_with(address, "https://"))
        return refuse(address, "host:port without http, the port being that of gRPC",
                      error);
    const char *port = strrchr(address, ':');
    if (!port) return refuse(address, "host:port or unix:path", error);
    for (size_t i = 0; i < sizeof resolvers / sizeof *resolvers; i++)
        if (begins_with(address, resolvers[i])) {
            /* gRPC's resolver reads the rest of the address. */
            if (is_port(port + 1)) return VOXEL_OK;
            return refuse(address, "a port from 1 to 65535 at its end", error);
        }
    if (!is_host(address, (size_t)(port - address))) return refuse(address, form, error);
    if (is_port(port + 1)) return VOXEL_OK;
    return refuse(address, "host:port with a port from 1 to 65535", error);
}

bool voxel_address_is_local(const char *address)
{
    static const char *const here[] = {
        "unix:",     "unix-abstract:", "127.",           "localhost:",       "[::1]:",
        "ipv4:127.", "ipv6:[::1]:",    "dns:localhost:", "dns:///localhost:"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (begins_with(address, here[i])) return true;
    return false;
}
