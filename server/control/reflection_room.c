/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/reflection.h"

#include "server/call/call.h"

/* What a stream's origin and its connection have. */
struct has {
    i32 of_origin, of_connection;
};

static struct has has_of(const struct vx_call *call, struct vx_call *const *all,
                         i32 count)
{
    struct has has = {0};
    for (i32 i = 0; i < count; i++) {
        has.of_origin += all[i]->peer.origin == call->peer.origin;
        has.of_connection += all[i]->peer.connection == call->peer.connection;
    }
    return has;
}

/* By connections alone 40 of one address, a stream each, ended everybody else's. */
struct vx_call *vx_reflection_least(struct vx_call *const *all, i32 count)
{
    struct vx_call *least = NULL;
    struct has most = {0};
    for (i32 i = 0; i < count; i++) {
        struct has has = has_of(all[i], all, count);
        if (has.of_origin < most.of_origin) continue;
        if (has.of_origin == most.of_origin && has.of_connection < most.of_connection)
            continue;
        most = has;
        least = all[i];
    }
    return least;
}
