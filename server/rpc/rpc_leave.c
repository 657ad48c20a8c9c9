/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_accept_private.h"

#include "engine/base/process/clock.h"

#include <time.h>

i64 vx_rpc_leaving_turn(struct vx_rpc_accept *accept, i64 now_ns)
{
    i64 next_ns = VX_NEVER;
    i32 leaving = vx_rpc_governor_leaving(accept->governor);
    for (i32 i = 0; leaving && i < accept->rows_count; i++) {
        struct vx_rpc_connection *row = &accept->rows[i];
        if (!row->given) continue;
        i64 until_ns = vx_rpc_govern_leaving_ns(vx_rpc_governor_row(accept->governor, i));
        if (until_ns <= now_ns)
            vx_rpc_connection_end(accept, row);
        else if (until_ns < next_ns)
            next_ns = until_ns;
    }
    return next_ns;
}

void vx_rpc_leaving_wait(struct vx_rpc_accept *accept)
{
    const struct timespec pause = {.tv_nsec = VX_NS_PER_MS};
    while (vx_rpc_governor_leaving(accept->governor)) (void)nanosleep(&pause, NULL);
}
