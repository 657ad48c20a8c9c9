/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/26_set_occupancy.h"
#include "kernels/number.h"

void vx_set_occupancy_ref(const void *pointer, enum vx_number type);
void vx_occupancy_fault_ref(const void *pointer, enum vx_number type);

/* A set in work. */
struct occupancy {
    const struct vx_occupancy_set *set;
    uint64_t seed;
    enum vx_number type;
};

/* Adds a voxel, unless it is out of range. */
static void insert(const struct occupancy *work, int32_t sample, const int32_t at[3])
{
    const struct vx_brick_set *to = &work->set->to;
    uint64_t key = vx_brick_key(sample, at[0], at[1], at[2]), mask;
    if (!key) return;
    to->counts->live++;
    uint32_t slot = vx_brick_find(to->slots, to->slots_count, work->seed, key, &mask);
    if (!to->slots[slot].key) {
        if (to->counts->bricks >= to->rows_max) {
            to->counts->fault[0] = 1;
            return;
        }
        to->slots[slot].key = key;
        to->list[to->counts->bricks++] = slot;
    }
    to->slots[slot].mask |= (uint64_t)1 << vx_brick_bit(at[0], at[1], at[2]);
}

static double logit_at(const struct occupancy *work, int64_t row, int32_t child)
{
    return vx_number_ref_read(work->set->logits, work->type, row * work->set->cp + child);
}

/* The children of a voxel, or the voxel itself. */
static void voxel(const struct occupancy *work, int32_t sample, const int32_t p[3],
                  int64_t row)
{
    const struct vx_occupancy_set *set = work->set;
    const int32_t *stride = set->stride;
    const uint64_t bad = ~vx_key_pack(sample, p[0], p[1], p[2]);
    int32_t c = 0;
    for (int32_t z = 0; z < stride[2]; z++)
        for (int32_t y = 0; y < stride[1]; y++)
            for (int32_t x = 0; x < stride[0]; x++, c++) {
                const double logit = logit_at(work, row, c);
                const int32_t at[3] = {p[0] * stride[0] + x, p[1] * stride[1] + y,
                                       p[2] * stride[2] + z};
                if (logit != logit && bad > set->to.counts->bad)
                    set->to.counts->bad = bad;
                if (set->kept ? set->kept[row] != 0 : logit > 0) insert(work, sample, at);
            }
}

static void occupy(const struct occupancy *work)
{
    const struct vx_brick_set *from = &work->set->from;
    for (uint32_t b = 0; b < from->counts->bricks; b++) {
        const struct vx_brick_slot it = from->slots[from->list[b]];
        int64_t row = (uint32_t)from->base[from->list[b]];
        for (uint32_t bit = 0; bit < 64; bit++) {
            int32_t p[3];
            if (!(it.mask >> bit & 1u)) continue;
            for (int32_t axis = 0; axis < 3; axis++)
                p[axis] = vx_brick_voxel(it.key, bit, axis);
            if (row < work->set->n) voxel(work, vx_brick_sample(it.key), p, row);
            row++;
        }
    }
}

void vx_set_occupancy_ref(const void *pointer, enum vx_number type)
{
    const struct vx_set_occupancy_args *args = pointer;
    for (int64_t s = 0; s < args->count; s++)
        occupy(&(struct occupancy){&args->sets[s], args->seed, type});
}

static void fault(const struct occupancy *work)
{
    const struct vx_occupancy_set *set = work->set;
    const int32_t parts = set->stride[0] * set->stride[1] * set->stride[2];
    const uint64_t key = ~set->to.counts->bad;
    uint64_t mask;
    if (!set->to.counts->bad) return;
    const int32_t x = vx_key_axis(key, 0), y = vx_key_axis(key, 1),
                  z = vx_key_axis(key, 2);
    const uint32_t slot =
        vx_brick_find(set->from.slots, set->from.slots_count, work->seed,
                      vx_brick_key(vx_key_sample(key), x, y, z), &mask);
    int64_t row = (uint32_t)set->from.base[slot];
    for (uint32_t bit = 0; bit < vx_brick_bit(x, y, z); bit++)
        row += (int64_t)(mask >> bit & 1u);
    for (int32_t c = parts - 1; c >= 0; c--) {
        const double logit = logit_at(work, row, c);
        if (logit != logit) set->to.counts->bad_child = (uint32_t)c;
    }
}

void vx_occupancy_fault_ref(const void *pointer, enum vx_number type)
{
    const struct vx_set_occupancy_args *args = pointer;
    for (int64_t s = 0; s < args->count; s++)
        fault(&(struct occupancy){&args->sets[s], args->seed, type});
}
