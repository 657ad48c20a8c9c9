/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/03_brick_index.h"

#include <string.h>

/* The slot of the brick; creates and lists the brick if there is none. */
static uint32_t slot_of(const struct vx_brick_index_args *args, uint64_t key)
{
    uint64_t mask;
    uint32_t slot = vx_brick_find(args->slots, args->slots_count, args->seed, key, &mask);
    if (!args->slots[slot].key) {
        args->slots[slot].key = key;
        args->list[args->counts->bricks++] = slot;
    }
    return slot;
}

void vx_brick_insert_ref(const struct vx_brick_index_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        const int32_t *at = args->coords + i * args->columns;
        int32_t sample = args->columns == 4 ? *at++ : 0;
        uint64_t key = vx_brick_of(args, sample, at[0], at[1], at[2]);
        args->places[i] = VX_BRICK_NONE;
        if (!key) {
            args->counts->fault[0] = 1;
            continue;
        }
        uint32_t slot = slot_of(args, key), bit = vx_brick_bit(at[0], at[1], at[2]);
        if (args->slots[slot].mask >> bit & 1u) args->counts->fault[1] = 1;
        args->slots[slot].mask |= (uint64_t)1 << bit;
        args->places[i] = (uint64_t)slot << 6 | bit;
    }
}

void vx_brick_number_ref(const struct vx_brick_index_args *args)
{
    uint32_t rows = 0;
    if (args->fault) memcpy(args->fault, args->counts->fault, sizeof args->counts->fault);
    for (uint32_t b = 0; b < args->counts->bricks; b++) {
        uint32_t slot = args->list[b];
        args->base[slot] = (int32_t)rows;
        for (uint64_t mask = args->slots[slot].mask; mask; mask &= mask - 1) rows++;
    }
    args->counts->rows = rows;
}

void vx_brick_rank_ref(const struct vx_brick_index_args *args)
{
    for (int64_t row = args->counts->rows; row < args->n; row++)
        args->rows[row] = (int32_t)row;
    for (int64_t i = 0; i < args->n; i++) {
        if (args->places[i] == VX_BRICK_NONE) continue;
        uint64_t slot = args->places[i] >> 6;
        int32_t row = args->base[slot];
        for (uint64_t bit = 0; bit < (args->places[i] & 63u); bit++)
            row += (int32_t)(args->slots[slot].mask >> bit & 1u);
        args->rows[row] = (int32_t)i;
    }
}

void vx_brick_small_ref(const struct vx_brick_index_args *args)
{
    memset(args->counts, 0, sizeof *args->counts);
    memset(args->slots, 0, args->slots_count * sizeof *args->slots);
    vx_brick_insert_ref(args);
    vx_brick_number_ref(args);
    vx_brick_rank_ref(args);
}

void vx_brick_small_many_ref(const struct vx_brick_small_many_args *args)
{
    for (int64_t set = 0; set < args->count; set++) vx_brick_small_ref(&args->sets[set]);
}
