/* tls - TLS below gRPC: handshakes, certificate files, and what a connection reads and writes.
 *
 * gRPC takes a descriptor of ours as it is, without TLS of its own, and govern/ must see
 * plain HTTP/2.  So TLS ends between the socket and both.  The accept thread asks of each
 * new connection whether its first record is whole (vx_tls_first); only then a session is
 * made, and threads of this room shake hands.  When the client's HTTP/2 preface has come
 * out of the first records, the session is `finished`, and gRPC is given the descriptor.
 * From then on govern/ reads and writes through the session.
 *
 *   VX_TRY(vx_tls_open(&options, &why, &tls));        reads the files
 *   VX_TRY(vx_tls_start(tls));                        its threads run
 *   session = vx_tls_session_open(tls, fd, origin, row);
 *   vx_tls_session_go(session);                       its socket has an event
 *   session = vx_tls_finished(tls);                   after options.wakeup
 *   got = vx_tls_read(session, &message, most, &cost);
 *   vx_tls_session_close(&session);
 *
 * Owner    the accept thread owns the sessions.  A thread of this room uses one for a step
 *          of its handshake; gRPC's threads use it after that, until govern/ says that
 *          none does.
 * Thread   open, start, close: loop.  Sessions: accept.  Read, write, bye, pending: any;
 *          a lock in the session puts them in order.  reload, counters: any.
 * Limits   VX_TLS_SESSIONS_MAX handshakes at once: one more ends the oldest of the origin
 *          that has most.  VX_TLS_FILE_BYTES_MAX a file.
 * Fails    open: INVALID_ARGUMENT with the file and what is wrong with it.  A reload that
 *          fails is logged, and the old files stay in use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TLS_H
#define VX_SERVER_TLS_H

#include "engine/base/status.h"

#include <sys/socket.h>
#include <sys/types.h>

/* Handshakes that have begun and not ended; each takes about 40 KB. */
#define VX_TLS_SESSIONS_MAX 256
/* Lists of revoked certificates may have a million rows. */
#define VX_TLS_FILE_BYTES_MAX (32 << 20)

/* The files, as set; "" = none. */
struct vx_tls_files {
    const char *cert, *key;
    const char *client_ca;  /* clients must have a certificate of these */
    const char *client_crl; /* and it is not one of these */
};

/* How a handshake ended. */
enum vx_tls_result {
    VX_TLS_UNDER_WAY,
    VX_TLS_FINISHED,
    VX_TLS_NOT_TLS,         /* the first bytes are no TLS: gRPC without TLS, or garbage */
    VX_TLS_NO_AGREEMENT,    /* version, cipher or ALPN; a broken or foreign message */
    VX_TLS_NO_CERTIFICATE,  /* the client has none, and must */
    VX_TLS_BAD_CERTIFICATE, /* not of our authorities, expired, revoked */
    VX_TLS_REFUSED,         /* by the client, with an alert: it does not trust us */
    VX_TLS_LEFT,            /* the client closed the connection */
    VX_TLS_LATE,            /* not done in time */
    VX_TLS_CROWDED,         /* others wanted its place, or there is no memory */
    VX_TLS_RESULTS_COUNT
};

/* What the first bytes of a connection are. */
enum vx_tls_first {
    VX_TLS_FIRST_PART, /* the beginning of a ClientHello: more must come */
    VX_TLS_FIRST_WHOLE,
    VX_TLS_FIRST_WRONG
};
/* Pure.  `got` bytes were peeked at, of `there` in the socket. */
#define VX_TLS_FIRST_BYTES 11
enum vx_tls_first vx_tls_first(const u8 *bytes, size_t got, size_t there);

struct vx_tls;
struct vx_tls_session;

struct vx_tls_options {
    struct vx_tls_files files;     /* copied */
    i32 sessions_max;              /* connections */
    void (*wakeup)(void *context); /* a session has finished or failed; any thread */
    void *context;
};

VX_MUST_USE vx_status vx_tls_open(const struct vx_tls_options *options,
                                  struct vx_why *why, struct vx_tls **tls);
VX_MUST_USE vx_status vx_tls_start(struct vx_tls *tls);
/* No session is left. */
void vx_tls_close(struct vx_tls **tls);
/* Reads the files again soon, though they look unchanged. */
void vx_tls_reload(struct vx_tls *tls);

struct vx_tls_counters {
    u64 handshakes[VX_TLS_RESULTS_COUNT];
    u64 reloads, reloads_failed;
    /* The files have changed and cannot be used: those that were read before are kept. */
    bool files_kept;
    i64 cert_until_s, crl_until_s; /* since 1970; 0 = there is none */
    i32 under_way;                 /* handshakes */
};
void vx_tls_count(struct vx_tls *tls, struct vx_tls_counters *counters);
/* Counts and logs a handshake that has failed. */
void vx_tls_note(struct vx_tls *tls, enum vx_tls_result result, const char *peer,
                 const char *why);

/* ------- one connection ------- */

/* What every HTTP/2 client sends first. */
#define VX_HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

/* Who a client is, by its certificate, which one of our authorities has signed: its subject as
 * RFC 2253 writes it, the last part first: "CN=robot,O=Example".  "" = it has shown none, or
 * one whose subject does not fit. */
#define VX_TLS_NAME_BYTES 256
struct vx_tls_name {
    char subject[VX_TLS_NAME_BYTES];
};

/* The descriptor stays the caller's. */
struct vx_tls_session *vx_tls_session_open(struct vx_tls *tls, int fd, u16 origin,
                                           u64 row);
/* Its socket has something to read, or room to write.  Any number of times. */
void vx_tls_session_go(struct vx_tls_session *session);
/* False: nothing has been spent on it yet. */
bool vx_tls_session_begun(const struct vx_tls_session *session);
/* One that has finished or failed since it was last asked; NULL = no other. */
struct vx_tls_session *vx_tls_finished(struct vx_tls *tls);
u64 vx_tls_session_row(const struct vx_tls_session *session);
enum vx_tls_result vx_tls_session_result(const struct vx_tls_session *session);
const char *vx_tls_session_why(const struct vx_tls_session *session);
const struct vx_tls_name *vx_tls_session_name(const struct vx_tls_session *session);
/* True: a thread shakes hands just now and closes the descriptor when it is done.  False:
 * the descriptor is still the caller's. */
VX_MUST_USE bool vx_tls_session_close(struct vx_tls_session **session);

/* What a read cost beside its bytes: records that brought next to nothing, and messages
 * of TLS itself. */
struct vx_tls_cost {
    i64 records;
};
/* recvmsg and sendmsg, in plain bytes; `most` for a read.  A write that returns EAGAIN has
 * kept what it encrypted, and the next one must begin with the same bytes. */
ssize_t vx_tls_read(struct vx_tls_session *session, struct msghdr *message, size_t most,
                    struct vx_tls_cost *cost);
ssize_t vx_tls_write(struct vx_tls_session *session, const struct msghdr *message);
/* Tells the client that nothing more comes, if that can be sent at once. */
void vx_tls_bye(struct vx_tls_session *session);
/* Whether bytes that have left the socket have not been read.  Takes no lock. */
bool vx_tls_pending(const struct vx_tls_session *session);

#endif
