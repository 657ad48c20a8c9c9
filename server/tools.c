/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tools.h"

#include "engine/base/alloc.h"
#include "engine/base/print.h"
#include "engine/base/typed.h"
#include "engine/engine.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* A table row is under 100 characters; this holds VX_LAYERS_MAX of them. */
#define DESCRIPTION_BYTES (128 * VX_LAYERS_MAX)

#define HEALTH_ADDRESS                                                                   \
    "127.0.0.1:8002" /* where the server's admin pages are by default */
#define HEALTH_TIMEOUT_S 2

static const char check_usage[] =
    "voxeld check MODEL_DIRECTORY [VERSION]\n"
    "\n"
    "Reads MODEL_DIRECTORY/network.json and MODEL_DIRECTORY/VERSION/weights.safetensors\n"
    "(version 1 if none is said) as the server would, and prints inputs, layers with "
    "the\n"
    "layout of their weights, outputs, limits, and notes: what loads and may still not "
    "be\n"
    "what was trained. Exit code 1: it cannot be served, and why.\n"
    "\n" VX_TOOL_COORDS;

static const char health_usage[] =
    "voxeld health [--http HOST:PORT]\n"
    "\n"
    "Asks a running server (" HEALTH_ADDRESS " if none is said) whether it is ready.\n"
    "Exit code 0: ready; 1: not ready, or nobody answers.\n";

int vx_tool_check(int count, char **arguments)
{
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", check_usage);
        return 0;
    }
    if (count < 1 || count > 2 || arguments[0][0] == '-') {
        vx_print_error("voxeld check: expected MODEL_DIRECTORY [VERSION], got %s\n",
                       count < 1                ? "nothing"
                       : arguments[0][0] == '-' ? arguments[0]
                                                : "more");
        return 2;
    }
    i32 version = count == 2 ? (i32)strtol(arguments[1], NULL, 10) : 1;
    struct vx_model_source source = {arguments[0], version};
    struct vx_signature signature;
    struct vx_why why = {""};
    char *text = vx_alloc(DESCRIPTION_BYTES);
    if (!text) return 1;
    vx_status st = vx_model_describe(&source, &why, &signature, text, DESCRIPTION_BYTES);
    if (st.fault)
        vx_print_error("%s: %s\n", vx_code_name(vx_status_code(st)),
                       vx_status_text(st, &why));
    else
        vx_print("%s", text);
    vx_free(text);
    return st.fault ? 1 : 0;
}

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

int vx_tool_health(int count, char **arguments)
{
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", health_usage);
        return 0;
    }
    bool named = count == 2 && !strcmp(arguments[0], "--http");
    const char *address = named ? arguments[1] : HEALTH_ADDRESS;
    const char *colon = strrchr(address, ':');
    char host[256], reply[64] = "";
    if ((count && !named) || !colon || (size_t)(colon - address) >= sizeof host) {
        vx_print_error("voxeld health: expected --http HOST:PORT, got \"%s\"\n",
                       count ? arguments[0] : address);
        return 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    int fd = health_connect(host, colon + 1);
    if (fd < 0) {
        vx_print_error("nobody answers at %s\n", address);
        return 1;
    }
    static const char question[] =
        "GET /v2/health/ready HTTP/1.1\r\nHost: voxeld\r\nConnection: close\r\n\r\n";
    bool asked =
        send(fd, question, sizeof question - 1, MSG_NOSIGNAL) == sizeof question - 1;
    ssize_t got = asked ? recv(fd, reply, sizeof reply - 1, MSG_WAITALL) : 0;
    close(fd);
    bool ready = got > 0 && !strncmp(reply, "HTTP/1.1 200", 12);
    vx_print("%s: %s\n", address, ready ? "ready" : "not ready");
    return ready ? 0 : 1;
}
