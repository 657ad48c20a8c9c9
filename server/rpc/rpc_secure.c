/* rpc_secure - connections that speak TLS, until gRPC has them.
 *
 * Nothing is spent on a connection until its first record is whole; then a thread of tls/
 * shakes hands.  Until the client's preface has come out of it, the connection is among
 * the silent ones: it has as long as they have, and goes as they do when others want its
 * place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/rpc/rpc_accept_private.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* How gRPC without TLS begins. */
static const char plain[] = "PRI ";

vx_status vx_rpc_secure_open(struct vx_rpc_accept *accept, struct vx_why *why)
{
    const struct vx_tls_files *files = &accept->options.tls;
    struct vx_tls_options options = {.files = *files,
                                     .sessions_max = accept->rows_count,
                                     .wakeup = vx_rpc_accept_wake,
                                     .context = accept};
    if (!files->cert || !files->cert[0]) return VX_OK;
    return vx_tls_open(&options, why, &accept->tls);
}

void vx_rpc_secure_note(struct vx_rpc_accept *accept, struct vx_rpc_connection *row,
                        enum vx_tls_result result, const char *why)
{
    if (row->given || !(row->session || result == VX_TLS_NOT_TLS)) return;
    vx_rpc_peer_name(row->fd, &row->peer, row->name);
    vx_tls_note(accept->tls, result, row->name, why);
}

/* Looks at the first bytes, which stay in the socket. */
static void look_first(struct vx_rpc_accept *accept, struct vx_rpc_connection *row)
{
    u8 bytes[VX_TLS_FIRST_BYTES];
    int there = 0;
    ssize_t got = recv(row->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0 || ioctl(row->fd, FIONREAD, &there)) {
        vx_rpc_connection_end(accept, row);
        return;
    }
    enum vx_tls_first first = vx_tls_first(bytes, (size_t)got, (size_t)there);
    if (first == VX_TLS_FIRST_WRONG) {
        bool is_plain = got >= 4 && !memcmp(bytes, plain, sizeof plain - 1);
        vx_rpc_secure_note(accept, row, VX_TLS_NOT_TLS,
                           is_plain ? "expected TLS, got gRPC without TLS"
                                    : "expected TLS, got something else");
        vx_rpc_connection_end(accept, row);
    } else if (first == VX_TLS_FIRST_WHOLE) {
        struct vx_tls_session *session = vx_tls_session_open(
            accept->tls, row->fd, row->peer.origin, (u64)(row - accept->rows));
        pthread_mutex_lock(&accept->lock);
        row->session = session;
        pthread_mutex_unlock(&accept->lock);
    }
}

bool vx_rpc_secure_shakes(const struct vx_rpc_connection *row)
{
    return row->session && !row->given && vx_tls_session_begun(row->session);
}

void vx_rpc_secure_event(struct vx_rpc_accept *accept, struct vx_rpc_connection *row)
{
    if (row->session)
        vx_tls_session_go(row->session);
    else
        look_first(accept, row);
}

void vx_rpc_secure_turn(struct vx_rpc_accept *accept)
{
    struct vx_tls_session *session;
    while (accept->tls && (session = vx_tls_finished(accept->tls))) {
        struct vx_rpc_connection *row = &accept->rows[vx_tls_session_row(session)];
        VX_ASSERT(row->session == session && !row->given);
        enum vx_tls_result result = vx_tls_session_result(session);
        if (result == VX_TLS_FINISHED) {
            vx_rpc_connection_give(accept, row);
            continue;
        }
        vx_rpc_secure_note(accept, row, result, vx_tls_session_why(session));
        vx_rpc_connection_end(accept, row);
    }
}

void vx_rpc_accept_reload(struct vx_rpc_accept *accept)
{
    if (accept->tls) vx_tls_reload(accept->tls);
}
