/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/derive.h"

#include "engine/base/process/check.h"
#include "engine/cpu/geometry/pieces.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

/* --- candidates --- */

struct derive {
    const struct vx_keys *from;
    const struct vx_set_key *key;
    struct vx_pieces pieces;
    u64 *out; /* NULL: only count */
    struct vx_pieces_bounds bounds[VX_KEYS_PIECES_MAX];
};

/* The values of one axis that follow from coordinate p; returns how many. */
static int candidates_of(const struct vx_set_key *key, int axis, i32 p,
                         i32 values[VX_KERNEL_AXIS_MAX])
{
    i32 stride = key->stride[axis], padding = key->padding[axis], count = 0;
    if (key->rule == VX_SET_FLOOR) {
        values[0] = p >= 0 ? p / stride : -((stride - 1 - p) / stride);
        return 1;
    }
    for (i32 k = 0; k < key->kernel[axis]; k++) {
        i32 value = p * stride - padding + k * key->dilation[axis];
        bool good = value >= VX_AXIS_MIN && value <= VX_AXIS_MAX;
        if (key->rule == VX_SET_SPCONV) {
            value = p + padding - k * key->dilation[axis];
            good = value >= 0 && value % stride == 0 &&
                   value / stride < vx_set_key_end(key, axis);
            value /= stride;
        }
        if (good) values[count++] = value;
    }
    return count;
}

static i32 common_divisor(i32 a, i32 b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* The most candidates that are one value of an axis.  FLOOR: those of a whole stride.  SPCONV: one
 * for each offset.  EXPAND: p * stride + k * dilation is the same again for the next p and a k that
 * differs by stride / gcd; LIVE and KEEP are such children, as wide as the stride. */
static i64 shared_max(const struct vx_set_key *key, int axis)
{
    const i32 stride = key->stride[axis], kernel = key->kernel[axis];
    if (key->rule == VX_SET_FLOOR) return stride;
    if (key->rule == VX_SET_SPCONV) return kernel;
    const i32 step = stride / common_divisor(stride, key->dilation[axis]);
    return (kernel - 1) / step + 1;
}

i64 vx_derive_rows_least(const struct vx_set_key *key, i64 candidates, bool *exact)
{
    i64 shared = 1;
    for (int axis = 0; axis < 3; axis++) shared *= shared_max(key, axis);
    *exact = shared == 1;
    return candidates / shared + (candidates % shared != 0);
}

/* Writes the candidates of one voxel, or only counts them. */
static i64 voxel_candidates(const struct vx_set_key *key, u64 voxel, u64 *out,
                            struct vx_pieces_bounds *bounds)
{
    i32 values[3][VX_KERNEL_AXIS_MAX];
    i32 sample = vx_key_sample(voxel);
    int counts[3];
    i64 count = 1;
    for (int axis = 0; axis < 3; axis++) {
        counts[axis] = candidates_of(key, axis, vx_key_axis(voxel, axis), values[axis]);
        count *= counts[axis];
    }
    if (!out || !count) return count;
    for (int x = 0; x < counts[0]; x++)
        for (int y = 0; y < counts[1]; y++)
            for (int z = 0; z < counts[2]; z++)
                *out++ = vx_key_pack(sample, values[0][x], values[1][y], values[2][z]);
    for (int field = 0; field < 4; field++) {
        for (int i = 0; i < (field ? counts[field - 1] : 1); i++) {
            vx_pieces_bounds_add(bounds, field, field ? values[field - 1][i] : sample);
        }
    }
    return count;
}

static void derive_task(void *context, i64 begin, i64 end)
{
    struct derive *derive = context;
    for (i64 piece = begin; piece < end; piece++) {
        struct vx_pieces_bounds *bounds = &derive->bounds[piece];
        i64 last = vx_pieces_end(&derive->pieces, piece);
        i64 at = derive->out ? derive->pieces.starts[piece] : 0;
        vx_pieces_bounds_clear(bounds);
        for (i64 i = vx_pieces_begin(&derive->pieces, piece); i < last; i++)
            at += voxel_candidates(derive->key, derive->from->keys[i],
                                   derive->out ? derive->out + at : NULL, bounds);
        if (!derive->out) derive->pieces.starts[piece] = at;
    }
}

static i64 derive_count(struct vx_cpu *cpu, struct derive *derive)
{
    derive->pieces = vx_pieces_cut(cpu, derive->from->n);
    vx_cpu_spread(cpu, derive->pieces.count, 1, derive_task, derive);
    return vx_pieces_sum(&derive->pieces);
}

i64 vx_derive_count(struct vx_cpu *cpu, const struct vx_keys *from,
                    const struct vx_set_key *key)
{
    struct derive derive = {.from = from, .key = key};
    return derive_count(cpu, &derive);
}

void vx_derive_fill(struct vx_cpu *cpu, const struct vx_keys *from,
                    const struct vx_set_key *key, const struct vx_keys *candidates,
                    struct vx_keys_scan *scan)
{
    struct derive derive = {.from = from, .key = key};
    i64 count = derive_count(cpu, &derive);
    VX_ASSERT(count == candidates->n);
    derive.out = candidates->keys;
    vx_cpu_spread(cpu, derive.pieces.count, 1, derive_task, &derive);
    *scan = vx_pieces_scan(&derive.pieces, derive.bounds, count);
}

/* --- each key once --- */

struct unique {
    const struct vx_keys *sorted;
    struct vx_pieces pieces;
    u64 *out; /* NULL: only count */
};

static void unique_task(void *context, i64 begin, i64 end)
{
    struct unique *unique = context;
    const u64 *keys = unique->sorted->keys;
    for (i64 piece = begin; piece < end; piece++) {
        i64 last = vx_pieces_end(&unique->pieces, piece);
        i64 at = unique->out ? unique->pieces.starts[piece] : 0;
        for (i64 i = vx_pieces_begin(&unique->pieces, piece); i < last; i++) {
            if (i && keys[i] == keys[i - 1]) continue;
            if (unique->out) unique->out[at] = keys[i];
            at++;
        }
        if (!unique->out) unique->pieces.starts[piece] = at;
    }
}

static i64 unique_count(struct vx_cpu *cpu, struct unique *unique)
{
    unique->pieces = vx_pieces_cut(cpu, unique->sorted->n);
    vx_cpu_spread(cpu, unique->pieces.count, 1, unique_task, unique);
    return vx_pieces_sum(&unique->pieces);
}

i64 vx_derive_unique_count(struct vx_cpu *cpu, const struct vx_keys *sorted)
{
    struct unique unique = {.sorted = sorted};
    return unique_count(cpu, &unique);
}

static void number_task(void *context, i64 begin, i64 end)
{
    const struct vx_keys *set = context;
    for (i64 i = begin; i < end; i++) set->rows[i] = (i32)i;
}

void vx_derive_unique(struct vx_cpu *cpu, const struct vx_keys *sorted,
                      const struct vx_keys *set)
{
    struct unique unique = {.sorted = sorted};
    struct vx_keys numbered = *set;
    i64 count = unique_count(cpu, &unique);
    VX_ASSERT(count == set->n);
    unique.out = set->keys;
    vx_cpu_spread(cpu, unique.pieces.count, 1, unique_task, &unique);
    vx_cpu_spread(cpu, set->n, VX_PIECES_ROWS_MIN, number_task, &numbered);
    set->keys[set->n] = VX_KEY_EMPTY;
    set->rows[set->n] = 0;
}
