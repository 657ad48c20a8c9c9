/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/28_to_dense_device.h"
#include "tests/oracle/cases.h"

#include <string.h>

#define JOBS_MAX 13

static const i32 numbers[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16};

/* Planes of one voxel; even and odd, so that halves are written two by two and one by one;
 * of a tile, a voxel more and less; the last one is for a device alone. */
static const struct shape {
    i32 samples, at[3];
} shapes[] = {
    {1, {1, 1, 1}},   {3, {2, 3, 5}},   {2, {3, 5, 7}},     {5, {1, 16, 8}},
    {2, {1, 129, 1}}, {1, {127, 1, 1}}, {40, {1, 2, 3}},    {2, {4, 30, 31}},
    {512, {2, 1, 1}}, {3, {9, 31, 33}}, {1, {2, 200, 176}},
};
/* Parts of a tile's channels, a whole one, several, and a part of the last. */
static const i32 channels[] = {33, 1, 16, 31, 32, 64, 100, 300, 128};

static size_t shapes_count(const struct vx_rig *rig)
{
    return VX_COUNT(shapes) - (rig->size != VX_RIG_FULL);
}

/* --- checked --- */

/* Keys of which one of `every` lies outside of the shape. */
static u64 *some_keys(struct vx_rig *rig, const struct shape *shape, i64 n, i64 every)
{
    u64 *keys = vx_rig_take(rig, (size_t)n * sizeof *keys + 8);
    for (i64 i = 0; i < n; i++) {
        i32 at[3];
        for (int axis = 0; axis < 3; axis++)
            at[axis] = (i32)vx_rig_below(rig, shape->at[axis]);
        const i64 axis = vx_rig_below(rig, 3);
        if (every && !vx_rig_below(rig, every))
            at[axis] = vx_rig_below(rig, 2) ? shape->at[axis] : -1;
        keys[i] = vx_key_pack((i32)vx_rig_below(rig, 512), at[0], at[1], at[2]);
    }
    return keys;
}

static i32 *some_coords(struct vx_rig *rig, i64 n, i32 samples)
{
    i32 *coords = vx_rig_take(rig, (size_t)n * 4 * sizeof *coords + 16);
    for (i64 i = 0; i < n * 4; i++) {
        coords[i] = (i32)vx_rig_below(rig, 1 << 17);
        if (i % 4 == 0) coords[i] = (i32)vx_rig_below(rig, samples);
    }
    return coords;
}

static void check_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                       i32 turn)
{
    static const i64 sizes[] = {1, 1000, 0, 257, 33, 5000, 256};
    static const i64 every[] = {1, 0, 3, 500, 0};
    struct vx_dense_job jobs[JOBS_MAX] = {{0}};
    struct vx_dense_found found[JOBS_MAX];
    struct vx_dense_check_args args = {.count = count,
                                       .blocks = 1 + (u32)vx_rig_below(rig, 7)};
    struct vx_trial trial;
    for (i32 j = 0; j < count; j++) {
        jobs[j].n = sizes[(j + turn) % 7];
        if (j == 3 && rig->size == VX_RIG_FULL) jobs[j].n = 300000;
        memcpy(jobs[j].shape, shapes[(j + turn) % 10].at, sizeof jobs[j].shape);
        found[j] = vx_dense_nothing();
        if (j % 5 == 4) found[j].samples = 1; /* and nobody asks */
    }
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d jobs, turn %d", count, turn);
    vx_trial_both(&trial, &args.found, found, (size_t)count * sizeof *found);
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.jobs, jobs, (size_t)count * sizeof *jobs));
    for (i32 j = 0; j < count; j++) {
        const i64 n = jobs[j].n;
        const struct shape *shape = &shapes[(j + turn) % 10];
        if (j % 5 == 4)
            jobs[j].n = 0;
        else if (j % 3 == 2)
            vx_trial_in(&trial, &jobs[j].coords,
                        some_coords(rig, n, 1 + (j * 71 + turn) % 512),
                        (size_t)n * 4 * sizeof(i32));
        else
            vx_trial_in(&trial, &jobs[j].keys,
                        some_keys(rig, shape, n, every[(j + turn) % 5]),
                        (size_t)n * sizeof(u64));
    }
    vx_trial_run(rig, &trial);
}

/* --- placed --- */

/* A part of all voxels of samples first - 1 .. first + samples in a random order, and in
 * every third turn of voxels around the shape. */
static i64 voxels_make(struct vx_rig *rig, const struct shape *shape, i32 first, i32 turn,
                       u64 *keys)
{
    const i32 edge = turn % 3 == 2;
    i64 n = 0;
    for (i32 b = first ? first - 1 : 0; b <= first + shape->samples && b < 512; b++)
        for (i32 x = -edge; x < shape->at[0] + edge; x++)
            for (i32 y = -edge; y < shape->at[1] + edge; y++)
                for (i32 z = -edge; z < shape->at[2] + edge; z++) {
                    const i64 with = vx_rig_below(rig, n + 1);
                    if (turn % 2 && vx_rig_below(rig, 3)) continue;
                    keys[n] = keys[with];
                    keys[with] = vx_key_pack(b, x, y, z);
                    n++;
                }
    return n;
}

static void cells_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 turn)
{
    const i32 first = turn % 4 ? turn * 7 % (513 - shape->samples) : 0;
    const size_t cells = (size_t)(shape->samples * vx_dense_plane(shape->at));
    const size_t most = (size_t)(shape->samples + 2) * (size_t)(shape->at[0] + 2) *
                        (size_t)(shape->at[1] + 2) * (size_t)(shape->at[2] + 2);
    struct vx_dense_cells_args args = {.first = first, .samples = shape->samples};
    struct vx_trial trial;
    u64 *keys = vx_rig_take(rig, most * sizeof *keys);
    i32 *empty = vx_rig_take(rig, cells * sizeof *empty);
    memcpy(args.shape, shape->at, sizeof args.shape);
    memset(empty, 0xff, cells * sizeof *empty);
    args.n = voxels_make(rig, shape, first, turn, keys);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld, %d samples from %d of %dx%dx%d", (long long)args.n,
                   shape->samples, first, shape->at[0], shape->at[1], shape->at[2]);
    vx_trial_in(&trial, &args.keys, keys, (size_t)args.n * sizeof *keys);
    vx_trial_both(&trial, &args.cells, empty, cells * sizeof *empty);
    vx_trial_run(rig, &trial);
}

/* --- written --- */

/* Of some turns no voxel is there, of some all are. */
static i32 *some_cells(struct vx_rig *rig, i64 count, i64 rows, i32 turn)
{
    i32 *cells = vx_rig_take(rig, (size_t)count * sizeof *cells);
    for (i64 i = 0; i < count; i++) {
        bool there = turn % 5 == 1 || (turn % 5 != 2 && !vx_rig_below(rig, 3));
        cells[i] = there ? (i32)vx_rig_below(rig, rows) : -1;
    }
    return cells;
}

static void dense_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 c, i32 turn)
{
    const i64 cells = shape->samples * vx_dense_plane(shape->at), rows = cells / 3 + 1;
    struct vx_to_dense_device_args args = {.samples = shape->samples,
                                           .c = c,
                                           .cp = vx_channels_padded(c),
                                           .number = numbers[turn % 3]};
    struct vx_trial trial;
    memcpy(args.shape, shape->at, sizeof args.shape);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d samples of %dx%dx%d, C=%d, number %d", shape->samples,
                   shape->at[0], shape->at[1], shape->at[2], c, args.number);
    vx_trial_in(&trial, &args.cells, some_cells(rig, cells, rows, turn),
                (size_t)cells * sizeof(i32));
    vx_trial_in(&trial, &args.in, vx_rig_reals(rig, kernel->type, rows * args.cp, 4.0),
                (size_t)(rows * args.cp * vx_number_bytes(kernel->type)));
    vx_trial_out(rig, &trial, &args.out,
                 (size_t)(cells * c * vx_number_bytes((enum vx_number)args.number)));
    vx_trial_run(rig, &trial);
}

void vx_cases_dense(struct vx_rig *rig)
{
    const struct vx_jit_wanted *kernel = NULL;
    const i64 most = rig->size == VX_RIG_FULL ? 10000000 : 100000;
    i32 turn = 0;
    while ((kernel = vx_rig_next(rig, "dense_check", kernel)))
        for (turn = 0; turn < 14; turn++) {
            check_case(rig, kernel, 1 + turn * 3 % JOBS_MAX, turn);
            vx_rig_reset(rig);
        }
    while ((kernel = vx_rig_next(rig, "dense_cells", kernel)))
        for (size_t s = 0; s < shapes_count(rig); s++)
            for (i32 k = 0; k < 3; k++, turn++) {
                cells_case(rig, kernel, &shapes[s], turn);
                vx_rig_reset(rig);
            }
    while ((kernel = vx_rig_next(rig, "to_dense", kernel)))
        for (size_t s = 0; s < shapes_count(rig); s++)
            for (size_t c = 0; c < VX_COUNT(channels); c++, turn++) {
                const i64 cells = shapes[s].samples * vx_dense_plane(shapes[s].at);
                if (cells * channels[c] > most) continue;
                dense_case(rig, kernel, &shapes[s], channels[c], turn);
                vx_rig_reset(rig);
            }
}
