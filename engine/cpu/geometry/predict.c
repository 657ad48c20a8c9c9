/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/predict.h"

#include "engine/base/process/check.h"
#include "engine/cpu/geometry/pieces.h"
#include "kernels/01_coord_hash.h"

#include <math.h>
#include <string.h>

/* Without `top`, KEEP is LIVE of blocks of one voxel. */
struct job {
    struct vx_cpu *cpu;
    const struct vx_predict *predict;
    struct vx_pieces pieces;
    i32 children;
    u64 *out; /* NULL: only count */
    struct vx_pieces_bounds bounds[VX_KEYS_PIECES_MAX];
};

static struct job job_make(struct vx_cpu *cpu, const struct vx_predict *predict)
{
    const i32 *stride = predict->key->stride;
    return (struct job){.cpu = cpu,
                        .predict = predict,
                        .pieces = vx_pieces_cut(cpu, predict->from->n),
                        .children = stride[0] * stride[1] * stride[2]};
}

static const f32 *job_logits(const struct job *job, i64 index)
{
    return job->predict->logits + (i64)job->predict->from->rows[index] * job->children;
}

/* --- NaN --- */

/* starts[piece] becomes the first voxel of the chunk with such a logit, or n. */
static void nan_task(void *context, i64 begin, i64 end)
{
    struct job *job = context;
    for (i64 piece = begin; piece < end; piece++) {
        i64 last = vx_pieces_end(&job->pieces, piece), found = job->pieces.n;
        for (i64 i = vx_pieces_begin(&job->pieces, piece); i < last; i++) {
            const f32 *logits = job_logits(job, i);
            bool bad = false;
            for (i32 child = 0; child < job->children; child++)
                bad = bad || isnan(logits[child]);
            if (bad && i < found) found = i;
        }
        job->pieces.starts[piece] = found;
    }
}

bool vx_predict_nan(struct vx_cpu *cpu, const struct vx_predict *predict, i64 *index,
                    i32 *child)
{
    struct job job = job_make(cpu, predict);
    *index = job.pieces.n;
    *child = 0;
    vx_cpu_spread(cpu, job.pieces.count, 1, nan_task, &job);
    for (i64 piece = 0; piece < job.pieces.count; piece++)
        if (job.pieces.starts[piece] < *index) *index = job.pieces.starts[piece];
    if (*index == job.pieces.n) return false;
    const f32 *logits = job_logits(&job, *index);
    while (*child < job.children - 1 && !isnan(logits[*child])) ++*child;
    return true;
}

/* --- logits above 0 --- */

/* Where the voxels of the new set are written: `out` NULL, they are only counted.  More than
 * `room` are not written, but counted. */
struct writer {
    u64 *out;
    i64 room, count;
    struct vx_pieces_bounds *bounds;
};

/* Writes a voxel, or only counts it; one beyond the range of coordinates does not exist. */
static inline void voxel_write(struct writer *writer, const i32 at[4])
{
    for (int axis = 1; axis < 4; axis++)
        if (at[axis] < VX_AXIS_MIN || at[axis] > VX_AXIS_MAX) return;
    const i64 place = writer->count++;
    if (!writer->out || place >= writer->room) return;
    writer->out[place] = vx_key_pack(at[0], at[1], at[2], at[3]);
    for (int field = 0; field < 4; field++)
        vx_pieces_bounds_add(writer->bounds, field, at[field]);
}

/* Writes the live children of a voxel. */
static void voxel_children(const struct job *job, i64 index, struct writer *to)
{
    struct writer writer = *to; /* in registers: what is written could be its count */
    const i32 *stride = job->predict->key->stride;
    const f32 *logits = job_logits(job, index);
    u64 voxel = job->predict->from->keys[index];
    for (i32 child = 0; child < job->children; child++) {
        if (!(logits[child] > 0)) continue;
        const i32 k[3] = {child % stride[0], child / stride[0] % stride[1],
                          child / stride[0] / stride[1]};
        i32 at[4] = {vx_key_sample(voxel)};
        for (int axis = 0; axis < 3; axis++)
            at[axis + 1] = vx_key_axis(voxel, axis) * stride[axis] + k[axis];
        voxel_write(&writer, at);
    }
    *to = writer;
}

static void children_task(void *context, i64 begin, i64 end)
{
    struct job *job = context;
    for (i64 piece = begin; piece < end; piece++) {
        i64 last = vx_pieces_end(&job->pieces, piece), *starts = job->pieces.starts;
        struct writer writer = {.bounds = &job->bounds[piece]};
        if (job->out) {
            writer.out = job->out + starts[piece];
            writer.room = starts[piece + 1] - starts[piece];
        }
        vx_pieces_bounds_clear(writer.bounds);
        for (i64 i = vx_pieces_begin(&job->pieces, piece); i < last; i++)
            voxel_children(job, i, &writer);
        if (job->out)
            VX_ASSERT(writer.count == writer.room); /* what was counted */
        else
            starts[piece] = writer.count;
    }
}

/* --- the largest of each sample --- */

/* The logits of a sample are searched digit by digit, from the highest down, for the one
 * that is the last to stay.  It needs no memory that grows with the voxels. */
static const struct digit {
    int shift, bits;
} digits[] = {{21, 11}, {10, 11}, {0, 10}};
#define DIGIT_VALUES (1 << 11)

/* These loops are the device thread's alone: it says after so many voxels that it goes on. */
#define TOLD_ROWS (1 << 18)
static inline void top_tell(const struct job *job, i64 index)
{
    if (index % TOLD_ROWS == TOLD_ROWS - 1) vx_cpu_go_on(job->cpu);
}

/* A number that rises with the logit; equal logits have equal ones, -0 and 0 too. */
static u32 rank_of(f32 logit)
{
    u32 bits;
    if (logit == 0) logit = 0;
    memcpy(&bits, &logit, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* The end of the sample that begins at index `begin`. */
static i64 sample_end(const struct vx_keys *keys, i64 begin)
{
    i32 next = vx_key_sample(keys->keys[begin]) + 1;
    return vx_keys_place(keys, begin,
                         vx_key_pack(next, VX_AXIS_MIN, VX_AXIS_MIN, VX_AXIS_MIN));
}

/* Of the voxels begin to end - 1, more than `top`: the rank of the last one to stay; *ties:
 * how many with that rank stay. */
static u32 rank_last(const struct job *job, i64 begin, i64 end, i64 *ties)
{
    u32 rank = 0, known = 0;
    i64 left = job->predict->key->top;
    for (size_t d = 0; d < VX_COUNT(digits); d++) {
        u32 counts[DIGIT_VALUES] = {0}, most = (UINT32_C(1) << digits[d].bits) - 1;
        for (i64 i = begin; i < end; i++) {
            top_tell(job, i);
            u32 mine = rank_of(job_logits(job, i)[0]);
            if ((mine & known) == rank) counts[mine >> digits[d].shift & most]++;
        }
        u32 digit = most;
        for (; digit && counts[digit] < left; digit--) left -= counts[digit];
        rank |= digit << digits[d].shift;
        known |= most << digits[d].shift;
    }
    *ties = left;
    return rank;
}

/* Writes the voxels that stay. */
static void top_write(const struct job *job, struct writer *writer)
{
    const struct vx_keys *from = job->predict->from;
    for (i64 begin = 0, end; begin < from->n; begin = end) {
        end = sample_end(from, begin);
        bool all = end - begin <= job->predict->key->top;
        i64 ties = 0;
        u32 last = all ? 0 : rank_last(job, begin, end, &ties);
        for (i64 i = begin; i < end; i++) {
            top_tell(job, i);
            u32 rank = rank_of(job_logits(job, i)[0]);
            if (!all && (rank < last || (rank == last && ties-- <= 0))) continue;
            u64 key = from->keys[i];
            const i32 at[4] = {vx_key_sample(key), vx_key_axis(key, 0),
                               vx_key_axis(key, 1), vx_key_axis(key, 2)};
            voxel_write(writer, at);
        }
    }
}

static i64 top_count(const struct vx_predict *predict)
{
    i64 count = 0;
    for (i64 begin = 0, end; begin < predict->from->n; begin = end) {
        end = sample_end(predict->from, begin);
        count += end - begin < predict->key->top ? end - begin : predict->key->top;
    }
    return count;
}

i64 vx_predict_count(struct vx_cpu *cpu, const struct vx_predict *predict)
{
    if (predict->key->top) return top_count(predict);
    struct job job = job_make(cpu, predict);
    vx_cpu_spread(cpu, job.pieces.count, 1, children_task, &job);
    return vx_pieces_sum(&job.pieces);
}

void vx_predict_fill(struct vx_cpu *cpu, const struct vx_predict *predict,
                     const struct vx_keys *candidates, struct vx_keys_scan *scan)
{
    struct job job = job_make(cpu, predict);
    if (predict->key->top) {
        struct writer writer = {candidates->keys, candidates->n, 0, job.bounds};
        job.pieces.count = 1;
        vx_pieces_bounds_clear(job.bounds);
        top_write(&job, &writer);
        VX_ASSERT(writer.count == writer.room);
    } else {
        vx_cpu_spread(cpu, job.pieces.count, 1, children_task, &job);
        VX_ASSERT(vx_pieces_sum(&job.pieces) == candidates->n);
        job.out = candidates->keys;
        vx_cpu_spread(cpu, job.pieces.count, 1, children_task, &job);
    }
    *scan = vx_pieces_scan(&job.pieces, job.bounds, candidates->n);
}
