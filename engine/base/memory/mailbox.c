/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/mailbox.h"

#include "engine/base/process/check.h"

void vx_mailbox_init(struct vx_mailbox *box, void (*wakeup)(void *), void *wakeup_context)
{
    *box = (struct vx_mailbox){.wakeup = wakeup, .wakeup_context = wakeup_context};
    box->last = &box->first;
    VX_ASSERT(!pthread_mutex_init(&box->lock, NULL));
    VX_ASSERT(!pthread_cond_init(&box->given, NULL));
}

void vx_mailbox_fini(struct vx_mailbox *box)
{
    VX_ASSERT(!box->first);
    pthread_cond_destroy(&box->given);
    pthread_mutex_destroy(&box->lock);
}

void vx_mailbox_give(struct vx_mailbox *box, struct vx_link *link)
{
    link->next = NULL;
    pthread_mutex_lock(&box->lock);
    *box->last = link;
    box->last = &link->next;
    pthread_cond_signal(&box->given);
    pthread_mutex_unlock(&box->lock);
    if (box->wakeup) box->wakeup(box->wakeup_context);
}

static struct vx_link *mailbox_swap(struct vx_mailbox *box)
{
    struct vx_link *all = box->first;
    box->first = NULL;
    box->last = &box->first;
    return all;
}

struct vx_link *vx_mailbox_take_all(struct vx_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct vx_link *all = mailbox_swap(box);
    pthread_mutex_unlock(&box->lock);
    return all;
}

struct vx_link *vx_mailbox_wait_all(struct vx_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    while (!box->first) pthread_cond_wait(&box->given, &box->lock);
    struct vx_link *all = mailbox_swap(box);
    pthread_mutex_unlock(&box->lock);
    return all;
}
