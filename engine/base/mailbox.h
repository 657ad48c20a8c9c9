/* mailbox - hands things from any thread to one owner, in order.
 *
 * An intrusive list under one lock.  The owner swaps the whole list out and acts outside
 * the lock.  The bell is a function called outside the lock after a give: uv_async_send
 * for the loop; NULL when the owner waits on the condition variable instead.
 *
 *   vx_mailbox_give(&box, &call->link);                 any thread; call is the owner's
 * now for (link = vx_mailbox_take_all(&box); link; ...)   owner
 *
 * Owner    a link belongs to the box from give to take.
 * Thread   give: any.  take_all, wait_all: the owner.
 * Fails    never; the box holds whatever was allocated elsewhere, so it has no limit of
 * its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_MAILBOX_H
#define VX_ENGINE_BASE_MAILBOX_H

#include "engine/base/types.h"

#include <pthread.h>

struct vx_link {
    struct vx_link *next;
};

struct vx_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct vx_link *first;
    struct vx_link **last;
    void (*bell)(void *context);
    void *bell_context;
};

void vx_mailbox_init(struct vx_mailbox *box, void (*bell)(void *), void *bell_context);
void vx_mailbox_fini(struct vx_mailbox *box);
void vx_mailbox_give(struct vx_mailbox *box, struct vx_link *link);
/* All that was given, oldest first, or NULL. */
struct vx_link *vx_mailbox_take_all(struct vx_mailbox *box);
/* The same, but sleeps until there is something. */
struct vx_link *vx_mailbox_wait_all(struct vx_mailbox *box);

#endif
