/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/tls/tls_rig.h"

#include "tests/support/wait.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSIONS_MAX 400

static void wakeup(void *context)
{
    struct tls_rig *rig = context;
    rig->wakeups++;
}

static void write_files(const struct tls_rig *rig)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    ck_assert(key && cert);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const u8 *)"rig", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    ck_assert_int_gt(X509_sign(cert, key, EVP_sha256()), 0);
    FILE *file = fopen(rig->cert, "w");
    ck_assert(file && PEM_write_X509(file, cert));
    fclose(file);
    file = fopen(rig->key, "w");
    ck_assert(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

void tls_rig_open(struct tls_rig *rig)
{
    *rig = (struct tls_rig){.tls = NULL};
    snprintf(rig->folder, sizeof rig->folder, "/tmp/tls_rig.XXXXXX");
    ck_assert(mkdtemp(rig->folder));
    snprintf(rig->cert, sizeof rig->cert, "%s/cert.pem", rig->folder);
    snprintf(rig->key, sizeof rig->key, "%s/key.pem", rig->folder);
    write_files(rig);
    struct vx_why why = {""};
    struct vx_tls_options options = {.files = {rig->cert, rig->key, "", ""},
                                     .sessions_max = SESSIONS_MAX,
                                     .wakeup = wakeup,
                                     .context = rig};
    vx_status status = vx_tls_open(&options, &why, &rig->tls);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    status = vx_tls_start(rig->tls);
    ck_assert(!status.fault);
    rig->client = SSL_CTX_new(TLS_client_method());
    ck_assert(rig->client);
    SSL_CTX_set_mode(rig->client, SSL_MODE_ENABLE_PARTIAL_WRITE);
    ck_assert_int_eq(SSL_CTX_set_alpn_protos(rig->client, (const u8 *)"\2h2", 3), 0);
}

void tls_rig_close(struct tls_rig *rig)
{
    vx_tls_close(&rig->tls);
    SSL_CTX_free(rig->client);
    unlink(rig->cert);
    unlink(rig->key);
    rmdir(rig->folder);
}

/* Both ends of a TCP connection. */
static void connect_pair(struct tls_pair *pair)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    ck_assert(!bind(listener, (struct sockaddr *)&at, bytes) && !listen(listener, 1));
    ck_assert(!getsockname(listener, (struct sockaddr *)&at, &bytes));
    pair->client_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(!connect(pair->client_fd, (struct sockaddr *)&at, bytes));
    ck_assert(!fcntl(pair->client_fd, F_SETFL, O_NONBLOCK));
    pair->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    ck_assert_int_ge(pair->fd, 0);
    setsockopt(pair->client_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

void tls_pair_open(struct tls_rig *rig, struct tls_pair *pair, u16 origin, int version)
{
    *pair = (struct tls_pair){.rig = rig};
    connect_pair(pair);
    pair->client = SSL_new(rig->client);
    ck_assert(pair->client && SSL_set_fd(pair->client, pair->client_fd));
    if (version) {
        SSL_set_min_proto_version(pair->client, version);
        SSL_set_max_proto_version(pair->client, version);
    }
    SSL_set_connect_state(pair->client);
    ck_assert_int_lt(SSL_do_handshake(pair->client), 0);
    pair->session = vx_tls_session_open(rig->tls, pair->fd, origin, (u64)(uintptr_t)pair);
}

void tls_rig_take(struct tls_rig *rig, struct tls_pair *pairs, size_t count)
{
    struct vx_tls_session *session;
    while ((session = vx_tls_finished(rig->tls)))
        for (size_t i = 0; i < count; i++)
            if (pairs[i].session == session) {
                ck_assert_uint_eq(vx_tls_session_row(session), (uintptr_t)&pairs[i]);
                pairs[i].over = true;
                pairs[i].result = vx_tls_session_result(session);
            }
}

static bool shake_step(struct tls_pair *pair, int count, bool *said)
{
    if (SSL_do_handshake(pair->client) == 1 && !*said)
        *said = SSL_write(pair->client, TLS_PREFACE, count) == count;
    ERR_clear_error();
    vx_tls_session_go(pair->session);
    tls_rig_take(pair->rig, pair, 1);
    return pair->over;
}

void tls_pair_shake_part(struct tls_pair *pair, int count)
{
    bool said = false;
    VX_WAIT_UNTIL(shake_step(pair, count, &said));
}

void tls_pair_shake(struct tls_pair *pair)
{
    tls_pair_shake_part(pair, sizeof TLS_PREFACE - 1);
}

void tls_pair_close(struct tls_pair *pair)
{
    if (!vx_tls_session_close(&pair->session)) close(pair->fd);
    SSL_free(pair->client);
    if (pair->client_fd >= 0) close(pair->client_fd);
}

void tls_client_send(struct tls_pair *pair, const void *bytes, int count)
{
    int sent = SSL_write(pair->client, bytes, count);
    ck_assert_int_eq(sent, count);
}

ssize_t tls_read(struct tls_pair *pair, void *to, size_t most, i64 *cost, int *left)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec pieces[2] = {{to, most / 3}, {(u8 *)to + most / 3, most - most / 3}};
    struct msghdr message = {.msg_iov = pieces,
                             .msg_iovlen = 2,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct vx_tls_cost costs;
    ssize_t got = vx_tls_read(pair->session, &message, most, &costs);
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    ck_assert(head && head->cmsg_level == SOL_TCP && head->cmsg_type == TCP_CM_INQ);
    memcpy(left, CMSG_DATA(head), sizeof *left);
    ck_assert_int_eq(*left, vx_tls_pending(pair->session));
    *cost = costs.records;
    return got;
}

ssize_t tls_read_some(struct tls_pair *pair, void *to, size_t most, i64 *cost, int *left)
{
    ssize_t got;
    VX_WAIT_UNTIL((got = tls_read(pair, to, most, cost, left)) >= 0);
    return got;
}

int tls_client_read(struct tls_pair *pair, void *to, int most)
{
    int got;
    VX_WAIT_UNTIL((ERR_clear_error(), got = SSL_read(pair->client, to, most)) > 0 ||
                  SSL_get_error(pair->client, got) != SSL_ERROR_WANT_READ);
    return got;
}
