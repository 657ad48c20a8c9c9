/* tls_order - which handshake is next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/tls/tls_private.h"

void vx_tls_list_add(struct vx_tls_list *list, struct vx_tls_session *session)
{
    session->in = list;
    session->next = NULL;
    session->previous = list->last;
    *(session->previous ? &session->previous->next : &list->first) = session;
    list->last = session;
}

void vx_tls_list_remove(struct vx_tls_session *session)
{
    struct vx_tls_list *list = session->in;
    if (!list) return;
    *(session->previous ? &session->previous->next : &list->first) = session->next;
    *(session->next ? &session->next->previous : &list->last) = session->previous;
    session->next = session->previous = NULL;
    session->in = NULL;
}

/* A session that has begun goes first: the rest of a handshake costs little and makes room.  Of
 * the others, the oldest of the origin whose turn was longest ago: a crowd waits for itself, and
 * nobody for ever.  When it was the origin with fewest, two clients of one address waited for as
 * long as 100 addresses had one handshake each. */
struct vx_tls_session *vx_tls_next(struct vx_tls *tls)
{
    struct vx_tls_session *next = tls->continued.first;
    const u64 *turn_of = tls->turn_of;
    if (!next) next = tls->fresh.first;
    if (!next) return NULL;
    for (struct vx_tls_session *one = next; !next->begun && one; one = one->next)
        if (turn_of[one->origin] < turn_of[next->origin]) next = one;
    if (!next->begun) tls->turn_of[next->origin] = ++tls->turns;
    vx_tls_list_remove(next);
    return next;
}
