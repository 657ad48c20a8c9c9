/* rpc_govern_walk - what was read and sent, through the connection's meter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include <string.h>

/* The size of the buffer in which a piece lies. */
static size_t buffer_bytes(const struct vx_rpc_govern *govern, const struct iovec *piece)
{
    for (i32 i = 0; i < govern->tails_count; i++)
        if (govern->tails[i].at == piece->iov_base) return govern->tails[i].bytes;
    return piece->iov_len;
}

void vx_rpc_govern_walk_tails(struct vx_rpc_govern *govern, const struct msghdr *message,
                              size_t count)
{
    struct vx_rpc_tail tails[VX_RPC_TAILS];
    i32 tails_count = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *piece = &message->msg_iov[i];
        const size_t taken = piece->iov_len < count ? piece->iov_len : count;
        const size_t left = piece->iov_len - taken, bytes = buffer_bytes(govern, piece);
        count -= taken;
        if (left && left < bytes && tails_count < VX_RPC_TAILS)
            tails[tails_count++] = (struct vx_rpc_tail){(u8 *)piece->iov_base + taken,
                                                        (u32)left, (u32)bytes};
    }
    memcpy(govern->tails, tails, (size_t)tails_count * sizeof *tails);
    govern->tails_count = tails_count;
}

/* What does not follow on the last read lies in another buffer of gRPC's.  A message that begins in
 * one with older bytes keeps all of it; what goes on in the other of two counts as what is left. */
void vx_rpc_govern_walk_read(struct vx_rpc_govern *govern, const struct msghdr *message,
                             size_t count)
{
    const size_t all = count;
    for (size_t i = 0; i < message->msg_iovlen && count; i++) {
        const struct iovec *one = &message->msg_iov[i];
        const u8 *bytes = one->iov_base;
        size_t piece = one->iov_len < count ? one->iov_len : count;
        bool begins = !govern->meter.unfinished;
        if (bytes != govern->read_end)
            vx_h2_meter_buffer(&govern->meter,
                               begins ? buffer_bytes(govern, one) : one->iov_len);
        vx_h2_meter_walk(&govern->meter, bytes, piece);
        govern->read_end = bytes + piece;
        count -= piece;
    }
    vx_rpc_govern_walk_tails(govern, message, all);
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
