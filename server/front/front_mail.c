/* front_mail - calls that rpc hands to the loop, and calls whose clients have left: in slices.
 *
 *   arrivals, gone    mailboxes     any thread gives; emptied when the loop is woken
 *   coming            list          one call of each origin in turn, MAIL_NS in an iteration
 *   left              list          in their order, as long again
 *
 * A call that has left while it waits in `coming` is ended when its turn comes: what handles it
 * knows it only then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/front/front_private.h"

#include "engine/base/process/clock.h"

/* A call enters `arrivals` before it can enter `gone`.  So `gone` is taken first and listed last:
 * every call in it is then in `coming`, or has been handled. */
void vx_front_mail_take(struct vx_front *front)
{
    struct vx_link *next, *gone = vx_mailbox_take_all(&front->gone);
    for (struct vx_link *link = vx_mailbox_take_all(&front->arrivals); link;
         link = next) {
        next = link->next;
        vx_call_arrivals_add(&front->coming, VX_CONTAINER(link, struct vx_call, arrival));
    }
    for (struct vx_link *link = gone; link; link = next) {
        next = link->next;
        link->next = NULL;
        *(front->left_last ? &front->left_last->next : &front->left) = link;
        front->left_last = link;
    }
}

static struct vx_call *left_take(struct vx_front *front)
{
    struct vx_link *link = front->left;
    if (!link) return NULL;
    front->left = link->next;
    if (!front->left) front->left_last = NULL;
    return VX_CONTAINER(link, struct vx_call, gone);
}

void vx_front_mail_handle(struct vx_front *front, i64 most_ns)
{
    struct vx_call *call;
    i64 begin_ns = vx_clock_ns();
    while ((call = vx_call_arrivals_take(&front->coming))) {
        const bool left = call->coming.left; /* then rpc keeps the call until on_gone */
        vx_front_on_arrival(front, call);
        if (left) vx_front_on_gone(front, call);
        if (vx_clock_ns() - begin_ns >= most_ns) break;
    }
    begin_ns = vx_clock_ns();
    while ((call = left_take(front))) {
        if (call->coming.waits)
            call->coming.left = true;
        else
            vx_front_on_gone(front, call);
        if (vx_clock_ns() - begin_ns >= most_ns) break;
    }
}
