/* rpc_govern_walk - what was read and sent, through the connection's meter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

/* What does not follow on the last read lies in another buffer of gRPC's. */
void vx_rpc_govern_walk_read(struct vx_rpc_govern *govern, const struct msghdr *message,
                             size_t count)
{
    for (size_t i = 0; i < message->msg_iovlen && count; i++) {
        const u8 *bytes = message->msg_iov[i].iov_base;
        size_t room = message->msg_iov[i].iov_len, piece = room < count ? room : count;
        if (bytes != govern->read_end) vx_h2_meter_buffer(&govern->meter, room);
        vx_h2_meter_walk(&govern->meter, bytes, piece);
        govern->read_end = bytes + piece;
        count -= piece;
    }
}

void vx_rpc_govern_walk_sent(struct vx_rpc_govern *govern, const struct msghdr *message,
                             size_t count)
{
    for (size_t i = 0; i < message->msg_iovlen && count; i++) {
        size_t piece = message->msg_iov[i].iov_len;
        if (piece > count) piece = count;
        vx_h2_meter_sent(&govern->meter, message->msg_iov[i].iov_base, piece);
        count -= piece;
    }
}
