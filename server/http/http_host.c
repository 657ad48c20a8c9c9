/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/http_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

/* The longest name, or an address in brackets. */
#define NAME_BYTES 256

/* Whether all that follows a name is a port. */
static bool is_port(const char *text)
{
    if (!*text) return true;
    return *text == ':' && strspn(text + 1, "0123456789") == strlen(text + 1);
}

/* Takes the name off "NAME:PORT"; false: it is too long, or something else follows. */
static bool name_read(const char *host, char name[NAME_BYTES])
{
    size_t length = *host == '[' ? strcspn(host, "]") : strcspn(host, ":");
    length += host[length] == ']';
    if (length >= NAME_BYTES || !is_port(host + length)) return false;
    memcpy(name, host, length);
    name[length] = '\0';
    return true;
}

static bool is_address(char *name)
{
    struct in6_addr address;
    size_t length = strlen(name);
    if (name[0] != '[') return inet_pton(AF_INET, name, &address) == 1;
    if (name[length - 1] != ']') return false;
    name[length - 1] = '\0';
    bool good = inet_pton(AF_INET6, name + 1, &address) == 1;
    name[length - 1] = ']';
    return good;
}

bool vx_http_host_fits(const char *host, const char *own)
{
    char name[NAME_BYTES];
    if (!*host) return true;
    if (!name_read(host, name)) return false;
    return is_address(name) || !strcasecmp(name, "localhost") ||
           (*own && !strcasecmp(name, own));
}

bool vx_http_host_is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (address->ss_family != AF_INET6) return false;
    const struct in6_addr *six =
        &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) ||
           (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}
