/* tls_private - what the files of tls share; no other file includes it.
 *
 *   tls.c          open, close, counters; which handshake is next
 *   tls_files.c    from files to a context of OpenSSL's
 *   tls_keys.c     where keys lie, and what a handshake is lent
 *   tls_watch.c    reads the files again
 *   tls_first.c    the first bytes of a connection
 *   tls_session.c  one handshake, step by step
 *   tls_io.c       reads, writes, what the socket does not take
 *
 * Life of a session, by `state`; (tls) means that tls->lock guards it:
 *   WAITING  -> RUNNING   a thread takes it for a step
 *   RUNNING  -> WAITING   its socket had an event meanwhile
 *   RUNNING  -> RESTING   it needs more from its client
 *   RESTING  -> WAITING   vx_tls_session_go
 *   RUNNING  -> OVER      finished or failed: in the list for the accept thread
 *   RESTING  -> OVER      crowded out
 * A session that is closed while RUNNING is `left`: the thread frees it after the step.
 *
 * Owner    as tls.h says.
 * Thread   tls->lock is held for a few instructions, never during a step.  session->lock
 *          is held during a step, a read or a write; it is never taken under tls->lock.
 * Fails    as tls.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TLS_PRIVATE_H
#define VX_SERVER_TLS_PRIVATE_H

#include "engine/base/process/check.h"
#include "server/base/peer.h"
#include "server/tls/tls.h"

#include <openssl/ssl.h>

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define VX_TLS_THREADS 2
#define VX_TLS_RECORD  16384 /* plain bytes of the largest record */
/* Records that are encrypted together, so that one system call sends 64 KiB. */
#define VX_TLS_BATCH 4
/* A record has at most 5 bytes of head, 1 of type, 16 of tag, 8 of nonce (TLS 1.2). */
#define VX_TLS_RECORD_MORE 64
/* What is read from a socket at once, when govern/ lets so much be read: with a record at
 * a time a megabyte took 69 system calls, with four 20. */
#define VX_TLS_IN_BYTES  (VX_TLS_BATCH * (VX_TLS_RECORD + VX_TLS_RECORD_MORE))
#define VX_TLS_OUT_BYTES (VX_TLS_BATCH * (VX_TLS_RECORD + VX_TLS_RECORD_MORE) + 4096)

/* What the files say.  Handshakes are lent it: no session has `ssl` for its own. */
struct vx_tls_context {
    SSL_CTX *ssl;
    i64 cert_until_s, crl_until_s;
    bool key_open; /* others may read the key's file */
    char subject[VX_TLS_NAME_BYTES];
};

enum vx_tls_state { VX_TLS_WAITING, VX_TLS_RUNNING, VX_TLS_RESTING, VX_TLS_OVER };

/* Sessions, linked by their place in a list; a session is in one list at a time. */
struct vx_tls_list {
    struct vx_tls_session *first, *last;
};

struct vx_tls_session {
    struct vx_tls *tls;
    int fd;
    u16 origin;
    u64 row;

    /* (tls) */
    enum vx_tls_state state;
    bool again;             /* an event came while it ran */
    bool left;              /* closed while it ran */
    struct vx_tls_list *in; /* the list that it is in */
    bool begun;             /* it has `ssl` */
    enum vx_tls_result result;
    char why[VX_WHY_BYTES];
    struct vx_tls_session *next, *previous;

    /* Set by the thread that runs it, read when it is over. */
    struct vx_tls_name name;

    pthread_mutex_t lock;
    SSL *ssl;
    bool ended;  /* the client has said that nothing more comes */
    bool broken; /* an error: nothing is read or written any more */
    bool shaken; /* the handshake is done */
    u8 *rest;    /* what the socket has not taken, or NULL */
    size_t rest_begin, rest_end;
    size_t owed; /* plain bytes in `rest` that no write has reported as sent */
    i64 records; /* read and not yet charged */
    size_t most; /* to read from the socket at once */
    bool paused; /* the socket was not read, since `records` are many */
    u8 *out;     /* during a call: the thread's buffer, VX_TLS_OUT_BYTES */
    size_t out_end;
    atomic_bool pending;
};

struct vx_tls {
    struct vx_tls_options options;
    char paths[4][PATH_MAX]; /* of options.files */
    pthread_t threads[VX_TLS_THREADS], watcher;
    i32 threads_count;
    bool watches;
    SSL_CTX *base; /* what sessions are made of: all settings, and nothing of the files */

    pthread_mutex_t lock;
    pthread_cond_t work;                 /* signalled when a session waits */
    pthread_cond_t watch;                /* when the watcher has something to do */
    struct vx_tls_context context;       /* (lock) */
    bool closing, reloading;             /* (lock) */
    struct vx_tls_list fresh, continued; /* (lock) WAITING: first step, later steps */
    struct vx_tls_list resting;          /* (lock) RESTING, oldest first */
    struct vx_tls_list over;             /* (lock) for the accept thread */
    struct vx_tls_list unused;           /* (lock) */
    struct vx_tls_session *sessions;
    i32 begun;                    /* (lock) sessions that have begun, not OVER */
    u16 of[VX_PEER_ORIGINS];      /* (lock) sessions not OVER, of each origin */
    u64 turns;                    /* (lock) handshakes that have begun */
    u64 turn_of[VX_PEER_ORIGINS]; /* (lock) when one of each origin last did; 0 = never */
    struct stat seen[4];          /* watcher only: the files, as read */

    _Atomic u64 handshakes[VX_TLS_RESULTS_COUNT];
    _Atomic u64 reloads, reloads_failed;
    atomic_bool files_kept; /* the last reload failed */
    _Atomic i64 rest_bytes; /* of all sessions */
};

/* tls_order.c, under the lock */
void vx_tls_list_add(struct vx_tls_list *list, struct vx_tls_session *session);
void vx_tls_list_remove(struct vx_tls_session *session);
/* Takes the session whose step is next from its list; NULL = none waits. */
struct vx_tls_session *vx_tls_next(struct vx_tls *tls);

/* tls_keys.c */
/* Before the first key. */
void vx_tls_keys_open(void);
/* NULL, or a sentence: there is no room for one more key. */
const char *vx_tls_keys_full(void);
/* Gives a session what the files say; false = no memory. */
VX_MUST_USE bool vx_tls_keys_lend(SSL_CTX *from, SSL *to);
/* Takes all of it back, and the key that the handshake has made.  It is over. */
void vx_tls_keys_return(SSL *ssl);
/* That key alone, which takes no longer than a lock may be held. */
void vx_tls_keys_drop(SSL *ssl);

/* tls_files.c */
/* A context with all settings, and nothing of the files. */
VX_MUST_USE vx_status vx_tls_context_base(struct vx_why *why, SSL_CTX **base);
VX_MUST_USE vx_status vx_tls_context_open(const struct vx_tls_files *files,
                                          struct vx_why *why,
                                          struct vx_tls_context *context);
void vx_tls_context_close(struct vx_tls_context *context);
/* "CN=robot,O=Example"; "" when it is too long for OpenSSL. */
void vx_tls_subject_text(const X509_NAME *from, char text[VX_TLS_NAME_BYTES]);
/* Logs what is served from now on, what of it has expired, and a key that others may
 * read. */
void vx_tls_context_log(const struct vx_tls_files *files,
                        const struct vx_tls_context *context, i64 now_s);

/* tls_watch.c */
void vx_tls_watch_run(void *context);
/* Notes the files as they are now.  Before they are read. */
void vx_tls_watch_note(struct vx_tls *tls);

/* tls_session.c */
/* One step of the handshake: returns how it ended, or that it is under way. */
enum vx_tls_result vx_tls_step(struct vx_tls_session *session);

/* tls_io.c; all under session->lock */
VX_MUST_USE bool vx_tls_io_attach(struct vx_tls_session *session);
/* Around calls of OpenSSL, which write into the thread's buffer meanwhile. */
void vx_tls_io_begin(struct vx_tls_session *session);
/* Sends what was written.  False: the socket has not taken all of it, or is broken. */
bool vx_tls_io_end(struct vx_tls_session *session);
/* Whether the socket has nothing more, after a call that returned no bytes. */
bool vx_tls_io_drained(struct vx_tls_session *session, int result);

#endif
