/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/22_level_map.h"

/* The row of the voxel of `from` at `at`, -1 none. */
static int64_t row_at(const struct vx_level_map_args *args, int32_t sample,
                      const int32_t at[3])
{
    const struct vx_brick_set *from = &args->from;
    uint64_t key = vx_brick_key(sample, at[0], at[1], at[2]), mask;
    if (from->counts->fault[0]) return -1;
    uint32_t slot = vx_brick_find(from->slots, from->slots_count, args->seed, key, &mask);
    uint32_t bit = vx_brick_bit(at[0], at[1], at[2]);
    if (!(mask >> bit & 1u)) return -1;
    int64_t row = (uint32_t)from->base[slot], end = row;
    for (uint32_t other = 0; other < 64; other++) end += (int64_t)(mask >> other & 1u);
    for (uint32_t below = 0; below < bit; below++) row += (int64_t)(mask >> below & 1u);
    return end <= args->from_n ? row : -1;
}

/* The coordinate that is read; 0: none. */
static int reads(const struct vx_level_map_args *args, int32_t axis, int32_t out,
                 int32_t k, int32_t *at)
{
    int32_t stride = args->stride[axis], padding = args->padding[axis];
    int32_t far = k * args->dilation[axis];
    switch (args->kind) {
    case VX_LEVEL_DOWN: *at = out * stride - padding + far; return 1;
    case VX_LEVEL_UP:
        *at = (out + padding - far) / stride;
        return (out + padding - far) % stride == 0;
    case VX_LEVEL_SAMPLE: *at = 0; return 1;
    default:
        *at = out / stride;
        while (*at * stride > out) --*at;
        if (args->kind == VX_LEVEL_CORNER) *at += k;
        return 1;
    }
}

/* What the entry of a row that is read becomes. */
static int32_t entry_of(const struct vx_level_map_args *args, int64_t row,
                        const int32_t out[3])
{
    const int32_t *s = args->stride;
    int32_t in[3];
    if (args->kind != VX_LEVEL_CHILD || row < 0) return (int32_t)row;
    for (int32_t axis = 0; axis < 3; axis++)
        in[axis] = ((out[axis] % s[axis]) + s[axis]) % s[axis];
    return (int32_t)(row * s[0] * s[1] * s[2] + in[0] + s[0] * (in[1] + s[1] * in[2]));
}

/* Writes one row of nbr and of masks.  voxel: sample, x, y, z; NULL = it has none. */
static void map_row(const struct vx_level_map_args *args, int64_t row,
                    const int32_t voxel[4])
{
    int32_t *nbr = args->nbr + row * args->nbr_stride;
    if (row >= args->n) return;
    for (int32_t v = 0; v < args->nbr_stride; v++) nbr[v] = -1;
    for (int32_t word = 0; args->masks && word < args->words; word++)
        args->masks[row * args->words + word] = 0;
    for (int32_t v = 0; voxel && v < args->v; v++) {
        const int32_t k[3] = {v / args->kernel[2] / args->kernel[1],
                              v / args->kernel[2] % args->kernel[1], v % args->kernel[2]};
        int32_t at[3];
        int all = 1;
        for (int32_t axis = 0; axis < 3; axis++)
            all &= reads(args, axis, voxel[axis + 1], k[axis], &at[axis]);
        if (all) nbr[v] = entry_of(args, row_at(args, voxel[0], at), voxel + 1);
        if (nbr[v] < 0) continue;
        if (args->masks) args->masks[row * args->words + v / 32] |= 1u << v % 32;
        if (args->pairs) ++*args->pairs;
    }
}

void vx_level_map_ref(const struct vx_level_map_args *args)
{
    const struct vx_brick_set *to = &args->to;
    if (args->pairs) *args->pairs = 0;
    for (uint32_t b = 0; b < to->counts->bricks; b++) {
        struct vx_brick_slot it = to->slots[to->list[b]];
        int64_t row = (uint32_t)to->base[to->list[b]];
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (!(it.mask >> bit & 1u)) continue;
            const int32_t voxel[4] = {
                vx_brick_sample(it.key), vx_brick_voxel(it.key, bit, 0),
                vx_brick_voxel(it.key, bit, 1), vx_brick_voxel(it.key, bit, 2)};
            map_row(args, row++, voxel);
        }
    }
    for (int64_t row = to->counts->rows; row < args->n; row++) map_row(args, row, 0);
}

void vx_level_map_many_ref(const struct vx_level_map_many_args *args)
{
    for (int64_t set = 0; set < args->count; set++) vx_level_map_ref(&args->sets[set]);
}
