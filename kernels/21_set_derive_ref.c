/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/21_set_derive.h"

#include <string.h>

/* Adds a voxel to the set.  Returns 0 when its brick finds no room. */
static int insert(const struct vx_set_derive_args *args, int32_t sample,
                  const int32_t at[3])
{
    const struct vx_brick_set *to = &args->to;
    uint64_t key = vx_brick_key(sample, at[0], at[1], at[2]), mask;
    if (!key) return 1;
    uint32_t slot = vx_brick_find(to->slots, to->slots_count, args->seed, key, &mask);
    if (!to->slots[slot].key) {
        if (to->counts->bricks >= to->rows_max) return 0;
        to->slots[slot].key = key;
        to->list[to->counts->bricks++] = slot;
    }
    to->slots[slot].mask |= (uint64_t)1 << vx_brick_bit(at[0], at[1], at[2]);
    return 1;
}

/* The coordinate that follows from p at offset k of an axis; 0: none does. */
static int follows(const struct vx_set_derive_args *args, int32_t axis, int32_t p,
                   int32_t k, int32_t *q)
{
    int32_t stride = args->stride[axis], far = k * args->dilation[axis];
    if (args->rule == VX_DERIVE_SAMPLES) {
        *q = 0;
        return 1;
    }
    if (args->rule == VX_DERIVE_FLOOR) {
        *q = p / stride;
        while (*q * stride > p) --*q;
        return 1;
    }
    if (args->rule == VX_DERIVE_EXPAND) {
        *q = p * stride - args->padding[axis] + far;
        return 1;
    }
    int32_t sum = p + args->padding[axis] - far;
    *q = sum / stride;
    return sum % stride == 0 && *q >= 0 && *q < args->shape[axis];
}

/* Adds all that follows from a voxel.  Returns 0 when there is no more room. */
static int derive_voxel(const struct vx_set_derive_args *args, int32_t sample,
                        const int32_t p[3])
{
    int32_t k[3], q[3], count[3];
    for (int32_t axis = 0; axis < 3; axis++)
        count[axis] = args->rule == VX_DERIVE_FLOOR ? 1 : args->kernel[axis];
    for (k[0] = 0; k[0] < count[0]; k[0]++)
        for (k[1] = 0; k[1] < count[1]; k[1]++)
            for (k[2] = 0; k[2] < count[2]; k[2]++) {
                int all = 1;
                for (int32_t axis = 0; axis < 3; axis++)
                    all &= follows(args, axis, p[axis], k[axis], &q[axis]);
                if (all && !insert(args, sample, q)) return 0;
            }
    return 1;
}

void vx_set_derive_ref(const struct vx_set_derive_args *args)
{
    for (uint32_t b = 0; b < args->from.counts->bricks; b++) {
        struct vx_brick_slot it = args->from.slots[args->from.list[b]];
        for (uint32_t bit = 0; bit < 64; bit++) {
            int32_t p[3];
            if (!(it.mask >> bit & 1u)) continue;
            for (int32_t axis = 0; axis < 3; axis++)
                p[axis] = vx_brick_voxel(it.key, bit, axis);
            if (derive_voxel(args, vx_brick_sample(it.key), p)) continue;
            args->to.counts->fault[0] = 1;
            return;
        }
    }
}

static void number(const struct vx_brick_set *set)
{
    int64_t rows = 0;
    for (uint32_t b = 0; b < set->counts->bricks; b++) {
        uint32_t slot = set->list[b];
        set->base[slot] = (int32_t)rows;
        for (uint64_t mask = set->slots[slot].mask; mask; mask &= mask - 1) rows++;
    }
    set->counts->rows = (uint32_t)rows;
    if (rows > set->rows_max) set->counts->fault[0] = 1;
}

void vx_set_number_ref(const struct vx_set_number_args *args)
{
    for (int64_t s = 0; s < args->count; s++) number(&args->sets[s]);
}

void vx_set_derive_many_ref(const struct vx_set_derive_many_args *args)
{
    for (int64_t s = 0; s < args->count * args->sets; s++) {
        const struct vx_brick_set *to = &args->args[s].to;
        memset(to->counts, 0, sizeof *to->counts);
        memset(to->slots, 0, to->slots_count * sizeof *to->slots);
        vx_set_derive_ref(&args->args[s]);
        number(to);
    }
}

void vx_set_coords_ref(const struct vx_set_coords_args *args)
{
    const struct vx_brick_set *set = &args->set;
    for (uint32_t b = 0; b < set->counts->bricks; b++) {
        struct vx_brick_slot it = set->slots[set->list[b]];
        int64_t row = (uint32_t)set->base[set->list[b]];
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (!(it.mask >> bit & 1u)) continue;
            uint64_t key = vx_key_pack(
                vx_brick_sample(it.key), vx_brick_voxel(it.key, bit, 0),
                vx_brick_voxel(it.key, bit, 1), vx_brick_voxel(it.key, bit, 2));
            if (row < args->n) args->keys[row] = key;
            row++;
        }
    }
    for (int64_t row = set->counts->rows; row < args->n; row++)
        args->keys[row] = VX_KEY_EMPTY;
}

void vx_set_coords_many_ref(const struct vx_set_coords_many_args *args)
{
    for (int64_t s = 0; s < args->count; s++) vx_set_coords_ref(&args->sets[s]);
}
