/* mailbox - hands objects from any thread to one thread, in order.
 *
 * It is an intrusive list under one lock.  The receiver takes the whole list at once and
 * works on it outside the lock.  `wakeup` is the receiver's wakeup: a function that give
 * calls outside the lock, such as uv_async_send for the loop; NULL for a receiver that
 * waits on the condition variable (wait_all).
 *
 *   vx_mailbox_give(&box, &call->link);       (any thread; from now the receiver's call)
 *   struct vx_link *next, *link = vx_mailbox_take_all(&box);              (the receiver)
 *   for (; link; link = next) next = link->next, ...
 *
 * Owner    the box owns a link from give to take.
 * Thread   give: any.  take_all, wait_all: the receiver.
 * Limits   none: links are part of objects that are allocated elsewhere.
 * Fails    never.
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
    void (*wakeup)(void *context);
    void *wakeup_context;
};

void vx_mailbox_init(struct vx_mailbox *box, void (*wakeup)(void *),
                     void *wakeup_context);
void vx_mailbox_fini(struct vx_mailbox *box);
void vx_mailbox_give(struct vx_mailbox *box, struct vx_link *link);
/* All links given so far, oldest first; NULL when there are none. */
struct vx_link *vx_mailbox_take_all(struct vx_mailbox *box);
/* The same, but sleeps until there is a link. */
struct vx_link *vx_mailbox_wait_all(struct vx_mailbox *box);

#endif
