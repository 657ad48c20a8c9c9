/* tls_io - what a connection reads and writes, between OpenSSL and the socket.
 *
 * OpenSSL writes into a buffer of the calling thread, and the buffer is sent with one
 * system call.  What the socket does not take is kept with the session: its plain bytes
 * are `owed`, which means that no write has reported them as sent.  So gRPC waits until
 * the socket has room and comes with the same bytes again, and those are then counted
 * and not encrypted a second time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/tls/tls_private.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Records that one read takes at most, so that a client that sends a byte in each is not
 * read for long: afterwards govern/ decides again. */
#define READS_MAX 64
/* OpenSSL itself reads on as long as records bring nothing for us.  When one call has
 * cost so much, the socket is not read any more, so that govern/ decides here, too. */
#define RECORDS_MAX 256
/* A record must fit, or what OpenSSL has of it; beyond that no more is taken out of the
 * socket than may be read now, since it would lie here while the connection waits. */
#define IN_BYTES_MIN (VX_TLS_RECORD + VX_TLS_RECORD_MORE)
/* A record that brings fewer bytes costs as much as a frame. */
#define RECORD_BYTES_FEW 64
/* A message of TLS itself, on a connection that is in use: KeyUpdate makes new keys. */
#define MESSAGE_COST 16
/* From so many bytes on that sockets have not taken, of all sessions, records are
 * encrypted one at a time: each client that does not read has at most one of them here. */
#define REST_BYTES_MAX (8 << 20)
/* Of one session: a batch, and answers to a client's KeyUpdates. */
#define REST_BYTES_ONE_MAX (2 * VX_TLS_OUT_BYTES)

static _Thread_local u8 out_of_thread[VX_TLS_OUT_BYTES];
static _Thread_local u8 plain_of_thread[VX_TLS_RECORD];

/* ------- OpenSSL's side ------- */

static int bio_read(BIO *bio, char *bytes, int count)
{
    struct vx_tls_session *session = BIO_get_data(bio);
    ssize_t got = -1;
    BIO_clear_retry_flags(bio);
    session->paused = session->records > RECORDS_MAX;
    if (session->paused) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t most = (size_t)count < session->most ? (size_t)count : session->most;
    do got = recv(session->fd, bytes, most, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
    return (int)got;
}

static int bio_write(BIO *bio, const char *bytes, int count)
{
    struct vx_tls_session *session = BIO_get_data(bio);
    VX_ASSERT(session->out && count >= 0);
    BIO_clear_retry_flags(bio);
    if ((size_t)count > VX_TLS_OUT_BYTES - session->out_end) return -1;
    memcpy(session->out + session->out_end, bytes, (size_t)count);
    session->out_end += (size_t)count;
    return count;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;
static pthread_once_t bio_once = PTHREAD_ONCE_INIT;

static void bio_method_make(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "voxeld");
    VX_ASSERT(bio_method);
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_control);
}

/* Counts what arrives, record by record. */
static void openssl_on_message(int writes, int version, int type, const void *bytes,
                               size_t count, SSL *ssl, void *context)
{
    struct vx_tls_session *session = context;
    (void)version;
    (void)bytes;
    (void)count;
    (void)ssl;
    if (writes) return;
    if (type == SSL3_RT_HEADER) session->records++;
    if (type == SSL3_RT_HANDSHAKE && session->shaken) session->records += MESSAGE_COST;
}

bool vx_tls_io_attach(struct vx_tls_session *session)
{
    pthread_once(&bio_once, bio_method_make);
    BIO *bio = BIO_new(bio_method);
    if (!bio) return false;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio);
    SSL_set_msg_callback(session->ssl, openssl_on_message);
    SSL_set_msg_callback_arg(session->ssl, session);
    return true;
}

/* ------- the socket's side ------- */

/* Sends from `bytes`; returns how many it took.  An error other than a full socket makes
 * the session broken. */
static size_t send_some(struct vx_tls_session *session, const u8 *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        ssize_t sent =
            send(session->fd, bytes + done, count - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            done += (size_t)sent;
        else if (errno != EINTR) {
            session->broken = session->broken || errno != EAGAIN;
            break;
        }
    }
    return done;
}

static void rest_drop(struct vx_tls_session *session)
{
    atomic_fetch_sub(&session->tls->rest_bytes, (i64)session->rest_end);
    OPENSSL_free(session->rest);
    session->rest = NULL;
    session->rest_begin = session->rest_end = 0;
}

/* Sends what earlier calls could not.  True when none of it is left. */
static bool rest_send(struct vx_tls_session *session)
{
    if (!session->rest) return true;
    session->rest_begin += send_some(session, session->rest + session->rest_begin,
                                     session->rest_end - session->rest_begin);
    if (session->rest_begin < session->rest_end) return false;
    rest_drop(session);
    return true;
}

static void rest_add(struct vx_tls_session *session, const u8 *bytes, size_t count)
{
    size_t end = session->rest_end + count;
    u8 *grown = end > REST_BYTES_ONE_MAX ? NULL : OPENSSL_realloc(session->rest, end);
    if (!grown) {
        session->broken = true;
        return;
    }
    memcpy(grown + session->rest_end, bytes, count);
    session->rest = grown;
    session->rest_end = end;
    atomic_fetch_add(&session->tls->rest_bytes, (i64)count);
}

void vx_tls_io_begin(struct vx_tls_session *session)
{
    session->out = out_of_thread;
    session->out_end = 0;
    ERR_clear_error();
}

bool vx_tls_io_end(struct vx_tls_session *session)
{
    bool done = rest_send(session);
    size_t sent = 0;
    if (done && session->out_end)
        sent = send_some(session, session->out, session->out_end);
    if (sent < session->out_end && !session->broken)
        rest_add(session, session->out + sent, session->out_end - sent);
    done = done && sent == session->out_end;
    session->out = NULL;
    session->out_end = 0;
    return done && !session->broken;
}

/* ------- reads ------- */

/* What a failed call of OpenSSL's means.  True: the socket has nothing more now. */
bool vx_tls_io_drained(struct vx_tls_session *session, int result)
{
    switch (SSL_get_error(session->ssl, result)) {
    case SSL_ERROR_WANT_READ: return !session->paused;
    case SSL_ERROR_ZERO_RETURN: session->ended = true; return false;
    default: session->broken = true; return false;
    }
}

/* Fills the pieces up to `most` bytes. */
static size_t read_pieces(struct vx_tls_session *session, const struct msghdr *message,
                          size_t most, bool *drained)
{
    size_t total = 0;
    i32 reads = 0;
    for (size_t i = 0; i < message->msg_iovlen && total < most; i++) {
        const struct iovec *piece = &message->msg_iov[i];
        for (size_t at = 0; at < piece->iov_len && total < most;) {
            size_t room = piece->iov_len - at;
            if (room > most - total) room = most - total;
            if (room > VX_TLS_RECORD) room = VX_TLS_RECORD;
            if (reads++ == READS_MAX) return total;
            int got = SSL_read(session->ssl, (u8 *)piece->iov_base + at, (int)room);
            if (got <= 0) {
                *drained = vx_tls_io_drained(session, got);
                return total;
            }
            at += (size_t)got;
            total += (size_t)got;
        }
    }
    return total;
}

/* gRPC asks the kernel how many bytes are left and waits for an event when there are
 * none.  The kernel does not know what OpenSSL still has, so we say it. */
static void say_left(struct msghdr *message, bool left)
{
    int number = left;
    message->msg_flags = 0;
    if (message->msg_controllen < CMSG_SPACE(sizeof number)) {
        message->msg_controllen = 0;
        return;
    }
    message->msg_controllen = CMSG_SPACE(sizeof number);
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof number),
                             .cmsg_level = SOL_TCP,
                             .cmsg_type = TCP_CM_INQ};
    memcpy(CMSG_DATA(head), &number, sizeof number);
}

ssize_t vx_tls_read(struct vx_tls_session *session, struct msghdr *message, size_t most,
                    struct vx_tls_cost *cost)
{
    bool drained = false;
    size_t got = 0;
    pthread_mutex_lock(&session->lock);
    if (!session->ended && !session->broken) {
        vx_tls_io_begin(session);
        session->most = most > IN_BYTES_MIN ? most : IN_BYTES_MIN;
        got = read_pieces(session, message, most, &drained);
        vx_tls_io_end(session);
    }
    cost->records = session->records - (i64)(got / RECORD_BYTES_FEW);
    if (cost->records < 0) cost->records = 0;
    session->records = 0;
    bool over = session->ended || session->broken;
    atomic_store_explicit(&session->pending, !drained, memory_order_relaxed);
    pthread_mutex_unlock(&session->lock);
    say_left(message, !drained);
    if (got) return (ssize_t)got;
    errno = EAGAIN;
    return over ? 0 : -1;
}

bool vx_tls_pending(const struct vx_tls_session *session)
{
    return atomic_load_explicit(&session->pending, memory_order_relaxed);
}

/* ------- writes ------- */

struct cursor {
    const struct msghdr *message;
    size_t piece, at;
};

static size_t cursor_skip(struct cursor *cursor, size_t count)
{
    size_t skipped = 0;
    while (skipped < count && cursor->piece < cursor->message->msg_iovlen) {
        size_t left = cursor->message->msg_iov[cursor->piece].iov_len - cursor->at;
        size_t step = left < count - skipped ? left : count - skipped;
        skipped += step;
        cursor->at += step;
        if (step < left) break;
        cursor->piece++;
        cursor->at = 0;
    }
    return skipped;
}

/* The next bytes, at most a record, in one place: where they lie, or copied together. */
static const u8 *cursor_record(struct cursor *cursor, size_t *count)
{
    size_t used = 0;
    *count = 0;
    while (used < VX_TLS_RECORD && cursor->piece < cursor->message->msg_iovlen) {
        const struct iovec *piece = &cursor->message->msg_iov[cursor->piece];
        const u8 *from = (const u8 *)piece->iov_base + cursor->at;
        size_t left = piece->iov_len - cursor->at, room = VX_TLS_RECORD - used;
        size_t step = left < room ? left : room;
        if (!left) {
            cursor->piece++;
            cursor->at = 0;
            continue;
        }
        if (!used && step == VX_TLS_RECORD) {
            *count = cursor_skip(cursor, step);
            return from;
        }
        memcpy(plain_of_thread + used, from, step);
        used += cursor_skip(cursor, step);
    }
    *count = used;
    return plain_of_thread;
}

/* Encrypts up to a batch of records; returns their plain bytes. */
static size_t encrypt(struct vx_tls_session *session, struct cursor *cursor)
{
    bool few = atomic_load_explicit(&session->tls->rest_bytes, memory_order_relaxed) >
               REST_BYTES_MAX;
    size_t plain = 0, count;
    for (i32 i = 0; i < (few ? 1 : VX_TLS_BATCH); i++) {
        const u8 *bytes = cursor_record(cursor, &count);
        if (!count) break;
        int written = SSL_write(session->ssl, bytes, (int)count);
        if (written != (int)count) {
            session->broken = true;
            break;
        }
        plain += count;
    }
    return plain;
}

/* Returns how many bytes may be reported as sent. */
static size_t write_all(struct vx_tls_session *session, const struct msghdr *message)
{
    struct cursor cursor = {.message = message};
    size_t sent = cursor_skip(&cursor, session->owed);
    session->owed -= sent;
    while (!session->broken) {
        vx_tls_io_begin(session);
        size_t plain = encrypt(session, &cursor);
        bool done = vx_tls_io_end(session);
        if (done) sent += plain;
        if (!done && !session->broken) session->owed += plain;
        if (!done || !plain) break;
    }
    return sent;
}

ssize_t vx_tls_write(struct vx_tls_session *session, const struct msghdr *message)
{
    size_t sent = 0;
    pthread_mutex_lock(&session->lock);
    if (!session->broken && rest_send(session)) sent = write_all(session, message);
    bool broken = session->broken;
    pthread_mutex_unlock(&session->lock);
    if (sent) return (ssize_t)sent;
    errno = broken ? EPIPE : EAGAIN;
    return -1;
}

void vx_tls_bye(struct vx_tls_session *session)
{
    pthread_mutex_lock(&session->lock);
    if (!session->broken && !session->rest && session->shaken) {
        vx_tls_io_begin(session);
        SSL_shutdown(session->ssl);
        vx_tls_io_end(session);
    }
    pthread_mutex_unlock(&session->lock);
}
