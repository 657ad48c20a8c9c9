/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/h2_sent.h"

#include <string.h>

u32 vx_h2_length_of(const u8 *head)
{
    return (u32)head[0] << 16 | (u32)head[1] << 8 | head[2];
}

u32 vx_h2_id_of(const u8 *head)
{
    u32 id = (u32)head[5] << 24 | (u32)head[6] << 16 | (u32)head[7] << 8 | head[8];
    return id & INT32_MAX;
}

u32 vx_h2_head_take(u8 *head, u32 *have, const u8 *bytes, u32 count)
{
    u32 taken = VX_H2_HEAD_BYTES - *have;
    if (taken > count) taken = count;
    memcpy(head + *have, bytes, taken);
    *have += taken;
    return taken;
}

size_t vx_h2_sent_take(struct vx_h2_sent *sent, const u8 *bytes, size_t count)
{
    u32 piece = count > UINT32_MAX ? UINT32_MAX : (u32)count, taken;
    if (sent->have < VX_H2_HEAD_BYTES) {
        taken = vx_h2_head_take(sent->head, &sent->have, bytes, piece);
        if (sent->have == VX_H2_HEAD_BYTES) sent->left = vx_h2_length_of(sent->head);
        return taken;
    }
    taken = piece < sent->left ? piece : sent->left;
    for (u32 i = taken > 4 ? taken - 4 : 0; i < taken; i++)
        sent->value = sent->value << 8 | bytes[i];
    sent->left -= taken;
    return taken;
}

bool vx_h2_sent_ends(struct vx_h2_sent *sent)
{
    if (sent->have < VX_H2_HEAD_BYTES || sent->left) return false;
    sent->have = 0;
    return true;
}

u32 vx_h2_sent_due(const struct vx_h2_sent *sent)
{
    return sent->have == VX_H2_HEAD_BYTES ? sent->left : 0;
}
