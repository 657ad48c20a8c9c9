/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_silent.h"

#include <stddef.h>

/* How many of the oldest are compared when one must go. */
#define OLDEST 32

void vx_rpc_silent_add(struct vx_rpc_silents *silents, struct vx_rpc_silent *one)
{
    one->next = NULL;
    one->previous = silents->last;
    *(one->previous ? &one->previous->next : &silents->first) = one;
    silents->last = one;
    silents->of[one->origin]++;
}

void vx_rpc_silent_remove(struct vx_rpc_silents *silents, struct vx_rpc_silent *one)
{
    *(one->previous ? &one->previous->next : &silents->first) = one->next;
    *(one->next ? &one->next->previous : &silents->last) = one->previous;
    one->next = one->previous = NULL;
    silents->of[one->origin]--;
}

/* An origin that opens many connections loses its own: a client elsewhere keeps the time
 * that its network takes. */
struct vx_rpc_silent *vx_rpc_silent_least(const struct vx_rpc_silents *silents)
{
    struct vx_rpc_silent *least = silents->first, *one = least;
    for (i32 i = 0; one && i < OLDEST; i++, one = one->next)
        if (silents->of[one->origin] > silents->of[least->origin]) least = one;
    return least;
}

bool vx_rpc_silent_goes(const struct vx_rpc_silents *silents, u16 origin)
{
    const struct vx_rpc_silent *least = vx_rpc_silent_least(silents);
    return least && (least->origin == origin ||
                     silents->of[least->origin] > silents->of[origin] + 1);
}
