/* A client that dies: it opens a connection of its own, writes the first bytes of a request in
 * HTTP/2, and then closes the connection, or resets it as a killed process does.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <grpc/slice.h>

/* The bytes that may be sent before the server's settings are known, in frames of 16 KiB. */
#define WINDOW_BYTES 60000
#define FRAME_BYTES  16384
#define HOST_BYTES   128
/* How long a server may take to send its first bytes, and how long the client lives after its last
 * byte. */
#define SPEAKS_MS    200
#define PAUSE_NS_MAX 1000000

enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_SETTINGS = 4, END_HEADERS = 4 };

static int vanish_connect(const char *address)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host) return -1;
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found;
    if (getaddrinfo(host, colon + 1, &hints, &found)) return -1;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static void write_frame(struct voxel_writer *w, const size_t head[3], const void *data)
{
    size_t bytes = head[0];
    uint8_t begin[9] = {(uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes,
                        (uint8_t)head[1], (uint8_t)head[2]};
    begin[8] = head[1] == FRAME_SETTINGS ? 0 : 1;
    voxel_write_raw(w, begin, sizeof begin);
    voxel_write_raw(w, data, bytes);
}

/* A header that is in no table, without Huffman coding. */
static void write_header(struct voxel_writer *w, const char *name, const char *value)
{
    const char *texts[2] = {name, value};
    voxel_write_raw(w, "\0", 1);
    for (int i = 0; i < 2; i++) {
        uint8_t bytes = (uint8_t)strlen(texts[i]); /* below 127 */
        voxel_write_raw(w, &bytes, 1);
        voxel_write_raw(w, texts[i], bytes);
    }
}

static void write_begin(struct voxel_writer *w, const char *method)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    uint8_t memory[512];
    struct voxel_writer headers = {.out = memory, .room = sizeof memory};
    voxel_write_raw(w, preface, sizeof preface - 1);
    write_frame(w, (size_t[]){0, FRAME_SETTINGS, 0}, "");
    voxel_write_raw(&headers, "\x83\x86", 2); /* :method POST, :scheme http */
    write_header(&headers, ":path", method);
    write_header(&headers, ":authority", "vanishing");
    write_header(&headers, "content-type", "application/grpc");
    write_header(&headers, "te", "trailers");
    write_frame(w, (size_t[]){headers.used, FRAME_HEADERS, END_HEADERS}, memory);
}

/* The first `bytes` of the message behind its gRPC prefix, in frames. */
static void write_body(struct voxel_writer *w, const struct load_body *body, size_t bytes)
{
    uint8_t *plain = w->out + w->room - bytes; /* the end: frames reach it last */
    size_t used = 5;
    plain[0] = 0;
    for (int i = 0; i < 4; i++) plain[1 + i] = (uint8_t)(body->bytes >> (24 - 8 * i));
    for (size_t i = 0; i < body->slices_count && used < bytes; i++) {
        size_t take = GRPC_SLICE_LENGTH(body->slices[i]);
        if (take > bytes - used) take = bytes - used;
        memcpy(plain + used, GRPC_SLICE_START_PTR(body->slices[i]), take);
        used += take;
    }
    for (size_t at = 0; at < used; at += FRAME_BYTES) {
        size_t frame = used - at < FRAME_BYTES ? used - at : FRAME_BYTES;
        write_frame(w, (size_t[]){frame, FRAME_DATA, 0}, plain + at);
    }
}

/* Waits until the server has begun to send: bytes that arrive before that may be lost unread. */
static bool server_speaks(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, SPEAKS_MS) == 1;
}

bool load_vanish(const struct load_work *work, const struct load_body *body,
                 struct voxels_random *random)
{
    uint8_t memory[2 * WINDOW_BYTES + 4096];
    struct voxel_writer w = {.out = memory, .room = sizeof memory};
    int fd = vanish_connect(work->options->server);
    if (fd < 0) return false;
    size_t whole = body->bytes + 5;
    if (whole > WINDOW_BYTES) whole = WINDOW_BYTES;
    /* One client in four has sent all that it can: then there is an answer, and no client to
     * receive it. */
    size_t bytes =
        voxels_next(random) % 4 ? 5 + voxels_next(random) % (whole - 5) : whole;
    write_begin(&w, work->method);
    size_t begin = w.used;
    bool sent =
        send(fd, memory, begin, MSG_NOSIGNAL) == (ssize_t)begin && server_speaks(fd);
    write_body(&w, body, bytes);
    if (sent)
        sent = send(fd, memory + begin, w.used - begin, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    const struct timespec pause = {.tv_nsec = (long)(voxels_next(random) % PAUSE_NS_MAX)};
    nanosleep(&pause, NULL); /* sleep: at random */
    /* Half of them as a killed process does, with a reset. */
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (voxels_next(random) % 2)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    return sent;
}
