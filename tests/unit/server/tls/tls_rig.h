/* tls_rig - a server's TLS with a certificate of its own, and clients over the loopback.
 *
 * Owner    the test.
 * Thread   the test's.
 * Fails    the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_TLS_RIG_H
#define VX_TESTS_TLS_RIG_H

#include "server/tls/tls.h"

#include <openssl/ssl.h>

struct tls_rig {
    struct vx_tls *tls;
    char folder[64], cert[96], key[96];
    SSL_CTX *client; /* trusts everybody */
    _Atomic int wakeups;
};

/* One connection, both ends. */
struct tls_pair {
    struct tls_rig *rig;
    struct vx_tls_session *session;
    int fd, client_fd; /* not blocking */
    SSL *client;
    bool over; /* the session has been reported, and how: */
    enum vx_tls_result result;
};

void tls_rig_open(struct tls_rig *rig);
void tls_rig_close(struct tls_rig *rig);

/* A session, and a client that has sent its ClientHello. */
void tls_pair_open(struct tls_rig *rig, struct tls_pair *pair, u16 origin, int version);
/* Shakes hands and sends the preface, until the session is finished. */
void tls_pair_shake(struct tls_pair *pair);
/* The same with only so many bytes of the preface. */
void tls_pair_shake_part(struct tls_pair *pair, int count);
void tls_pair_close(struct tls_pair *pair);
/* Takes sessions that are over: sets `over` of the pair among `pairs` that has it. */
void tls_rig_take(struct tls_rig *rig, struct tls_pair *pairs, size_t count);
/* The client sends so many bytes; it must take them at once or after reads. */
void tls_client_send(struct tls_pair *pair, const void *bytes, int count);
/* Reads once, at most so many bytes. */
ssize_t tls_read(struct tls_pair *pair, void *to, size_t most, i64 *cost, int *left);

/* The same, when there is something, be it the end. */
ssize_t tls_read_some(struct tls_pair *pair, void *to, size_t most, i64 *cost, int *left);
/* What the client reads, when there is something. */
int tls_client_read(struct tls_pair *pair, void *to, int most);

#define TLS_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#endif
