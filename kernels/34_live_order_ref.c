/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/34_live_order.h"

#include <stdbool.h>

#include "kernels/number.h"

void vx_live_count_ref(const void *pointer, enum vx_number type);
void vx_live_write_ref(const void *pointer, enum vx_number type);
void vx_live_blocks_ref(const void *pointer, enum vx_number type);

static int64_t row_at(const struct vx_live_order_args *args, int32_t group, int64_t place)
{
    return args->order ? args->order[group * args->n + place] : place;
}

static bool is_live(const struct vx_live_order_args *args, enum vx_number type,
                    int64_t row, int32_t panel)
{
    return vx_number_ref_read(args->logits, type, row * args->cp + panel) > 0;
}

void vx_live_count_ref(const void *pointer, enum vx_number type)
{
    const struct vx_live_order_args *args = pointer;
    for (int32_t c = 0; c < args->panels; c++)
        for (int32_t group = 0; group < args->groups; group++) {
            uint32_t *counts = args->counts + (c * args->groups + group) * args->tiles;
            for (int64_t tile = 0; tile < args->tiles; tile++) counts[tile] = 0;
            for (int64_t at = 0; at < args->n; at++)
                counts[at / VX_LIVE_TILE] +=
                    is_live(args, type, row_at(args, group, at), c);
        }
}

static void list_write(const struct vx_live_order_args *args, enum vx_number type,
                       int32_t panel, int32_t group)
{
    int32_t *list = args->lists + (panel * args->groups + group) * args->n;
    int64_t count = 0;
    for (int64_t at = 0; at < args->n; at++) {
        const int64_t row = row_at(args, group, at);
        if (is_live(args, type, row, panel)) list[count++] = (int32_t)row;
    }
    while (count < args->n) list[count++] = -1;
}

void vx_live_write_ref(const void *pointer, enum vx_number type)
{
    const struct vx_live_order_args *args = pointer;
    for (int32_t c = 0; c < args->panels; c++) {
        for (int32_t group = 0; group < args->groups; group++)
            list_write(args, type, c, group);
        if (!args->live_masks) continue;
        for (int64_t row = 0; row < args->n; row++)
            for (int32_t word = 0; word < args->words; word++)
                args->live_masks[(c * args->n + row) * args->words + word] =
                    is_live(args, type, row, c) ? args->masks[row * args->words + word]
                                                : 0;
    }
}

/* Adds the offsets of one row of a list to the mask of its block. */
static void block_add(const struct vx_live_order_args *args, int32_t group, int64_t row,
                      uint32_t *block)
{
    for (int32_t v = group * (args->v / args->groups);
         v < (group + 1) * (args->v / args->groups); v++) {
        const uint32_t bit = UINT32_C(1) << v % 32;
        if (!args->masks || args->masks[row * args->words + v / 32] & bit)
            block[v / 32] |= bit;
    }
}

void vx_live_blocks_ref(const void *pointer, enum vx_number type)
{
    const struct vx_live_order_args *args = pointer;
    const int64_t blocks = vx_mask_blocks(args->n);
    (void)type;
    for (int64_t list = 0; list < (int64_t)args->panels * args->groups; list++) {
        uint32_t *masks = args->block_masks + list * blocks * args->words;
        for (int64_t word = 0; word < blocks * args->words; word++) masks[word] = 0;
        for (int64_t at = 0; at < args->n; at++) {
            const int32_t row = args->lists[list * args->n + at];
            if (row >= 0)
                block_add(args, (int32_t)(list % args->groups), row,
                          masks + at / VX_MASK_BLOCK * args->words);
        }
    }
}
