/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"

#include <math.h>

/* Operators over all rows of a sample.  Each sample is cut into chunks of rows; a chunk
 * becomes a row of sums by channel, and the rows of a sample are added in their order.
 * The cuts follow from C and the sample's rows, never from threads or other samples. */

/* Rows of a chunk, or more: what a chunk leaves is then 1/32 of what it reads. */
#define CHUNK_ROWS 64
/* The most chunks of a sample: enough for the threads of a large machine. */
#define CHUNKS_MAX 256

/* Beside the sums of its chunks a sample has two rows of its own in the room. */
#define SAMPLE_ROWS 2

/* Samples of one round, whose bookkeeping is on the stack. */
#define ROUND_SAMPLES_MAX 512

/* Samples that are computed side by side, as many as the room holds. */
struct round {
    struct vx_cpu *cpu;
    i32 c;
    const i64 *starts; /* of the first sample of the round */
    const i32 *rows;
    const f32 *in;
    enum vx_column_kind kind;
    f64 *partial; /* (chunks, C) */
    f64 *first;   /* (samples, C) sums or maxima, then what the operator makes of them */
    f64 *second;  /* (samples, C) the same of the second pass */
    f64 *target;  /* first or second */
    i32 samples;
    i32 chunks[ROUND_SAMPLES_MAX + 1]; /* the first of each sample, and their number */
};

static i64 room_rows(i32 c)
{
    return VX_SUMS_FLOATS / c;
}

static i32 sample_chunks(i64 rows, i32 c)
{
    i64 most = room_rows(c) - SAMPLE_ROWS;
    if (most > CHUNKS_MAX) most = CHUNKS_MAX;
    i64 count = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    return (i32)(count < most ? count : most);
}

/* Takes as many samples as fit, at most `most`; the first always does. */
static void round_take(struct round *round, const i64 *starts, i64 most)
{
    i64 room = room_rows(round->c);
    i32 samples = 0;
    i32 chunks = 0;
    round->starts = starts;
    round->chunks[0] = 0;
    while (samples < most && samples < ROUND_SAMPLES_MAX) {
        VX_ASSERT(starts[samples] <= starts[samples + 1]);
        i32 more = sample_chunks(starts[samples + 1] - starts[samples], round->c);
        if (chunks + more + (samples + 1) * SAMPLE_ROWS > room) break;
        round->chunks[++samples] = chunks += more;
    }
    VX_ASSERT(samples >= 1);
    round->samples = samples;
    round->partial = round->cpu->sums;
    round->first = round->partial + (i64)chunks * round->c;
    round->second = round->first + (i64)samples * round->c;
}

/* A chunk's sample, counted in the round, and its rows. */
struct chunk {
    i64 sample, count;
    const i32 *rows;
};

static struct chunk round_chunk(const struct round *round, i64 index)
{
    i32 low = 0;
    i32 high = round->samples;
    while (high - low > 1) { /* chunks[low] <= index < chunks[high] */
        i32 middle = low + (high - low) / 2;
        if (round->chunks[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    i64 rows = round->starts[low + 1] - round->starts[low];
    i64 chunks = round->chunks[low + 1] - round->chunks[low];
    i64 k = index - round->chunks[low];
    i64 begin = rows * k / chunks;
    i64 end = rows * (k + 1) / chunks;
    return (struct chunk){low, end - begin, round->rows + round->starts[low] + begin};
}

static void chunks_task(void *context, i64 begin, i64 end)
{
    const struct round *round = context;
    for (i64 k = begin; k < end; k++) {
        struct chunk chunk = round_chunk(round, k);
        const struct vx_columns columns = {
            .kind = round->kind,
            .c = round->c,
            .count = chunk.count,
            .rows = chunk.rows,
            .in = round->in,
            .center = round->first + chunk.sample * round->c,
        };
        round->cpu->loops->columns(&columns, round->partial + k * round->c);
    }
}

static void chunks_spread(struct round *round,
                          void (*task)(void *context, i64 begin, i64 end))
{
    i64 chunks = round->chunks[round->samples];
    i64 rows = round->starts[round->samples] - round->starts[0];
    if (!chunks) return;
    i64 grain = vx_piece_rows((rows + chunks - 1) / chunks * round->c);
    vx_cpu_spread(round->cpu, chunks, grain, task, round);
}

/* Adds the chunks of some columns of one sample. */
static void chunks_combine(const struct round *round, i64 sample, i64 begin, i64 end)
{
    f64 *to = round->target + sample * round->c;
    for (i64 e = begin; e < end; e++) to[e] = 0;
    for (i64 k = round->chunks[sample]; k < round->chunks[sample + 1]; k++) {
        const f64 *from = round->partial + k * round->c;
        if (round->kind != VX_COLUMN_MAX) {
            for (i64 e = begin; e < end; e++) to[e] += from[e];
            continue;
        }
        bool is_first = k == round->chunks[sample];
        for (i64 e = begin; e < end; e++)
            if (is_first || from[e] > to[e] || isnan(from[e])) to[e] = from[e];
    }
}

/* [begin, end) are columns of all samples, one sample after the other. */
static void combine_task(void *context, i64 begin, i64 end)
{
    const struct round *round = context;
    while (begin < end) {
        i64 sample = begin / round->c;
        i64 first = begin % round->c;
        i64 last =
            end - sample * round->c < round->c ? end - sample * round->c : round->c;
        chunks_combine(round, sample, first, last);
        begin += last - first;
    }
}

/* One pass over all rows of the round: `target` has a row for each sample. */
static void round_pass(struct round *round, enum vx_column_kind kind, f64 *target)
{
    round->kind = kind;
    round->target = target;
    chunks_spread(round, chunks_task);
    i64 chunks_mean = round->chunks[round->samples] / round->samples + 1;
    vx_cpu_spread(round->cpu, (i64)round->samples * round->c, vx_piece_rows(chunks_mean),
                  combine_task, round);
}

static void global_pool_write(const struct round *round, enum vx_pool_mode mode, f32 *out)
{
    for (i64 s = 0; s < round->samples; s++) {
        i64 rows = round->starts[s + 1] - round->starts[s];
        f64 divisor = mode == VX_POOL_AVG && rows ? (f64)rows : 1.0;
        for (i64 e = s * round->c; e < (s + 1) * round->c; e++)
            out[e] = (f32)(round->first[e] / divisor);
    }
}

void vx_cpu_global_pool(struct vx_cpu *cpu, const struct vx_global_pool_args *args)
{
    VX_ASSERT(args->c >= 1);
    VX_ASSERT(args->c <= VX_CHANNELS_MAX);
    VX_ASSERT(args->mode >= VX_POOL_MAX);
    VX_ASSERT(args->mode <= VX_POOL_SUM);
    struct round round = {.cpu = cpu, .c = args->c, .rows = args->rows, .in = args->in};
    enum vx_column_kind kind = args->mode == VX_POOL_MAX ? VX_COLUMN_MAX : VX_COLUMN_SUM;
    for (i64 s = 0; s < args->samples; s += round.samples) {
        round_take(&round, args->starts + s, args->samples - s);
        round_pass(&round, kind, round.first);
        global_pool_write(&round, args->mode, args->out + s * args->c);
    }
}

/* Group norm: a round, and what its last pass needs. */
struct group_norm {
    struct round round;
    const struct vx_group_norm_args *args;
};

/* Replaces the sums of a sample's channels by the mean of each channel's group. */
static void groups_mean(const struct vx_group_norm_args *args, i64 rows, f64 *sums)
{
    const i32 width = args->c / args->groups;
    const f64 count = (f64)rows * width;
    for (i32 e = 0; e < args->c; e += width) {
        f64 sum = 0;
        for (i32 k = e; k < e + width; k++) sum += sums[k];
        for (i32 k = e; k < e + width; k++) sums[k] = sum / count;
    }
}

/* Replaces the variances of channels by what differences are multiplied with. */
static void scales_of(const struct vx_group_norm_args *args, f64 *variance)
{
    for (i32 e = 0; e < args->c; e++) {
        f64 weight = args->weight ? (f64)args->weight[e] : 1.0;
        variance[e] = weight / sqrt(variance[e] + (f64)args->eps);
    }
}

/* Makes means of the sums that the last pass left; of sums of squares, scales. */
static void moments_task(void *context, i64 begin, i64 end)
{
    const struct round *round = context;
    const struct group_norm *norm = VX_CONTAINER(round, const struct group_norm, round);
    for (i64 s = begin; s < end; s++) {
        f64 *sums = round->target + s * round->c;
        groups_mean(norm->args, round->starts[s + 1] - round->starts[s], sums);
        if (round->kind == VX_COLUMN_SQUARES) scales_of(norm->args, sums);
    }
}

static void moments(struct round *round, enum vx_column_kind kind, f64 *target)
{
    round_pass(round, kind, target);
    vx_cpu_spread(round->cpu, round->samples, vx_piece_rows(round->c), moments_task,
                  round);
}

static void normalize_task(void *context, i64 begin, i64 end)
{
    const struct round *round = context;
    const struct group_norm *norm = VX_CONTAINER(round, const struct group_norm, round);
    const struct vx_group_norm_args *args = norm->args;
    for (i64 k = begin; k < end; k++) {
        struct chunk chunk = round_chunk(round, k);
        const struct vx_normalized row = {
            .c = args->c,
            .center = round->first + chunk.sample * args->c,
            .scale = round->second + chunk.sample * args->c,
            .shift = args->bias,
        };
        for (i64 r = 0; r < chunk.count; r++) {
            i64 e = (i64)chunk.rows[r] * args->c;
            round->cpu->loops->normalize(&row, args->in + e, args->out + e);
            round->cpu->loops->activate(args->activation, args->out + e, args->out + e,
                                        args->c);
        }
    }
}

void vx_cpu_group_norm(struct vx_cpu *cpu, const struct vx_group_norm_args *args)
{
    VX_ASSERT(args->c >= 1);
    VX_ASSERT(args->c <= VX_CHANNELS_MAX);
    VX_ASSERT(args->groups >= 1);
    VX_ASSERT(args->c % args->groups == 0);
    struct group_norm norm = {
        .round = {.cpu = cpu, .c = args->c, .rows = args->rows, .in = args->in},
        .args = args,
    };
    struct round *round = &norm.round;
    for (i64 s = 0; s < args->samples; s += round->samples) {
        round_take(round, args->starts + s, args->samples - s);
        moments(round, VX_COLUMN_SUM, round->first);
        moments(round, VX_COLUMN_SQUARES, round->second);
        chunks_spread(round, normalize_task);
    }
}
