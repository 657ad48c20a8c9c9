/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "engine/base/process/print.h"
#include "engine/base/text/json.h"
#include "engine/base/text/typed.h"
#include "server/http/http.h"
#include "server/tools.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define HEALTH_ADDRESS                                                                   \
    "127.0.0.1:8002" /* where the server's admin pages are by default */
#define HEALTH_TIMEOUT_S 2
/* A page and its head. */
#define REPLY_BYTES (VX_HTTP_BODY_BYTES_MAX + 4096)

static const char health_usage[] =
    "voxeld health [--http HOST:PORT]\n"
    "\n"
    "Asks a running server (" HEALTH_ADDRESS " by default) whether it is ready, and\n"
    "prints the reason if it is not.\n"
    "Exit code 0: ready; 1: not ready, or no server answers.\n";

/* Connects to the first address that answers; -1 when none does. */
static int health_connect(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    if (getaddrinfo(host, port, &hints, &list)) return -1;
    int fd = -1;
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0) continue;
        struct timeval limit = {.tv_sec = HEALTH_TIMEOUT_S};
        bool bounded = !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) &&
                       !setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (bounded && !connect(fd, at->ai_addr, at->ai_addrlen)) continue;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* Sends the request and reads until the server closes the connection or nothing comes
 * within the timeout; the reply is NUL-terminated. */
static size_t health_ask(int fd, char *reply)
{
    static const char question[] =
        "GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    size_t have = 0;
    ssize_t got = send(fd, question, sizeof question - 1, MSG_NOSIGNAL);
    while (got > 0 && have < REPLY_BYTES) {
        got = recv(fd, reply + have, REPLY_BYTES - have, 0);
        if (got > 0) have += (size_t)got;
    }
    reply[have] = '\0';
    return have;
}

/* Prints ": " and the text of the member `key` in the reply's JSON, if it has one. */
static void health_print_said(const char *reply, const char *key)
{
    const char *body = strstr(reply, "\r\n\r\n");
    if (!body) return;
    body += 4;
    size_t length = strlen(body), bytes = vx_json_arena_bytes(length);
    void *block = vx_alloc(bytes);
    if (!block) return;
    struct vx_arena arena;
    const struct vx_json *root, *said = NULL;
    vx_arena_init(&arena, block, bytes);
    if (!vx_json_parse(body, length, &arena, NULL, &root).fault &&
        root->kind == VX_JSON_OBJECT)
        said = vx_json_find(root, key);
    if (said && said->kind == VX_JSON_TEXT) vx_print(": %s", said->text);
    vx_free(block);
}

static int health_say(const char *address, const char *reply, size_t have)
{
    static const char http[] = "HTTP/1.";
    if (strncmp(reply, http, sizeof http - 1)) {
        vx_print("%s: not ready: the server there %s not speak HTTP/1: expected the "
                 "address of its status page (setting http, port 8002 by default); this "
                 "may be the gRPC port\n",
                 address, have ? "does" : "sends nothing, and probably does");
        return 1;
    }
    const char *code = strchr(reply, ' ');
    bool ready = code && !strncmp(code, " 200", 4);
    bool known = ready || (code && !strncmp(code, " 503", 4));
    vx_print("%s: %s", address, ready ? "ready" : "not ready");
    if (known)
        health_print_said(reply, ready ? "note" : "why");
    else
        vx_print(": the answer is not voxeld's: HTTP status %.3s", code ? code + 1 : "");
    vx_print("\n");
    return ready ? 0 : 1;
}

int vx_tool_health(int count, char **arguments)
{
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", health_usage);
        return 0;
    }
    bool named = count == 2 && !strcmp(arguments[0], "--http");
    const char *address = named ? arguments[1] : HEALTH_ADDRESS;
    const char *colon = strrchr(address, ':');
    char host[256];
    if ((count && !named) || !colon || (size_t)(colon - address) >= sizeof host) {
        vx_print_error("voxeld health: expected --http HOST:PORT, got \"%s\"\n",
                       count && !named ? arguments[0] : address);
        return 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    char *reply = vx_alloc(REPLY_BYTES + 1);
    int fd = reply ? health_connect(host, colon + 1) : -1;
    if (fd < 0) {
        vx_print_error("no server answers at %s\n", address);
        vx_free(reply);
        return 1;
    }
    size_t have = health_ask(fd, reply);
    close(fd);
    int code = health_say(address, reply, have);
    vx_free(reply);
    return code;
}
