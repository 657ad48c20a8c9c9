/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/oracle.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/tune/measure.h"
#include "kernels/13_elementwise.h"

#include <math.h>
#include <string.h>

#define CHUNK   (INT64_C(4) << 20) /* elements compared at once: 16 MB as f32 */
#define NAN_ALL 0x7fff7fffu        /* a NaN in every type, and as two 16-bit numbers */
/* Channels of each sampled row that are summed again: 64 x 64 sums of 27 x 1024 products
 * take a tenth of a second. */
#define CHANNELS_MAX 64

struct vx_oracle {
    struct vx_conv_problem problem;
    struct vx_oracle_bounds bounds;
    i64 count;     /* elements of the output */
    void *answer;  /* the output of the trusted choice */
    void *chunk;   /* of the output that is compared */
    f32 *reals[2]; /* a chunk of each as f32 */
};

/* A sum has K = V*Ci products, each exact in f32 (inputs of TF32 are rounded before they
 * are sent).  A matrix instruction cuts off what is below 2^-23 of the largest of its
 * terms, so each of at most K steps has an error of 2^-23 of a partial sum, which is
 * below 4 times the spread of the sums, and that is at most 1.  Then the sum is rounded
 * once to the type.  For a whole output: two roundings of relative size `round`, and two
 * sums that drift by 2^-23 in each of K/8 steps of 8 products, which is below K * 2^-23
 * with a factor of 4 to spare.
 *
 * Of numbers of 8 bits an instruction adds 32 products and keeps 13 bits of fraction. */
struct vx_oracle_bounds vx_oracle_bounds(enum vx_number type, i32 v, i32 ci)
{
    const f64 k = (f64)v * ci;
    f64 round = 0x1p-24;
    f64 step = 0x1p-23; /* what a step of K cuts off, as a share of the sum */
    if (vx_number_stored(type) == VX_NUMBER_F16) round = 0x1p-11;
    if (type == VX_NUMBER_BF16) round = 0x1p-8;
    if (type == VX_NUMBER_E4M3) step = 0x1p-13 / 32;
    return (struct vx_oracle_bounds){.round = round,
                                     .sum = k * step * 4,
                                     .nmse = 4 * round * round + k * k * step * step};
}

vx_status vx_oracle_poison(struct vx_harness *harness, struct vx_why *why)
{
    if (harness->workspace)
        VX_TRY(vx_gpu_fill(harness->gpu, harness->queue.stream,
                           &(struct vx_gpu_words){harness->workspace, NAN_ALL,
                                                  harness->workspace_bytes / 4 * 4},
                           why));
    return vx_gpu_fill(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_words){harness->out, NAN_ALL, vx_harness_out_bytes(harness)},
        why);
}

/* Copies `count` elements of the output to the host, from `first` on. */
static vx_status oracle_copy(struct vx_harness *harness, i64 first, i64 count, void *host,
                             struct vx_why *why)
{
    const size_t element = (size_t)vx_number_bytes(harness->problem.type);
    VX_TRY(vx_gpu_copy_out(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){host, (const u8 *)harness->out + (size_t)first * element,
                              (size_t)count * element},
        why));
    return vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
}

static void oracle_reals(const struct vx_oracle *oracle, const void *from, i64 count,
                         f32 *reals)
{
    const enum vx_number type = oracle->problem.type;
    const struct vx_convert_args args = {.count = count,
                                         .from_type = vx_number_stored(type),
                                         .from = from,
                                         .to_type = VX_NUMBER_F32,
                                         .to = reals};
    vx_convert_ref(&args);
}

/* One element of the output, summed in double. */
static f64 oracle_sum(const struct vx_harness *harness, const i32 *nbr, i32 channel)
{
    const struct vx_conv_problem *problem = &harness->problem;
    f64 sum = harness->in_data->values[channel]; /* the bias */
    for (i32 v = 0; v < problem->v; v++) {
        if (nbr[v] < 0) continue;
        i64 in = (i64)nbr[v] * problem->ci;
        i64 weight = (i64)v * problem->ci * problem->co + channel;
        for (i32 c = 0; c < problem->ci; c++)
            sum += (f64)vx_data_at(harness->in_data, in + c) *
                   (f64)vx_data_at(harness->weight_data, weight + (i64)c * problem->co);
    }
    return sum;
}

static vx_status oracle_check_row(struct vx_oracle *oracle, struct vx_harness *harness,
                                  i64 row, struct vx_why *why)
{
    const struct vx_conv_problem *problem = &oracle->problem;
    const size_t element = (size_t)vx_number_bytes(problem->type);
    const i32 step = (problem->co + CHANNELS_MAX - 1) / CHANNELS_MAX;
    i32 nbr[VX_KERNEL_OFFSETS_MAX + 4] = {(i32)row}; /* V is 1: each row itself */
    if (problem->v > 1) {
        VX_TRY(vx_gpu_copy_out(
            harness->gpu, harness->queue.stream,
            &(struct vx_gpu_copy){nbr, harness->map.nbr + row * harness->map.nbr_stride,
                                  (size_t)problem->v * sizeof *nbr},
            why));
        VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    }
    for (i32 channel = (i32)(row % step); channel < problem->co; channel += step) {
        f32 got;
        i64 at = row * problem->co + channel;
        oracle_reals(oracle, (const u8 *)oracle->answer + (size_t)at * element, 1, &got);
        f64 sum = oracle_sum(harness, nbr, channel);
        f64 bound = oracle->bounds.round * fabs(sum) + oracle->bounds.sum;
        VX_ENSURE_WHY(fabs((f64)got - sum) <= bound, why, INTERNAL,
                      "the output of the trusted algorithm is wrong",
                      "%s, Ci %d, Co %d, V %d: expected %.9g within %.3g at row %lld "
                      "channel %d, got %.9g",
                      vx_conv_name(harness->choice.algorithm), problem->ci, problem->co,
                      problem->v, sum, bound, (long long)row, channel, (f64)got);
    }
    return VX_OK;
}

static vx_status oracle_check(struct vx_oracle *oracle, struct vx_harness *harness,
                              struct vx_why *why)
{
    u64 state = VX_MEASURE_SEED;
    const u64 n = (u64)oracle->problem.n;
    VX_TRY(oracle_check_row(oracle, harness, 0, why));
    VX_TRY(oracle_check_row(oracle, harness, (i64)n - 1, why));
    for (i32 i = 2; i < VX_MEASURE_ROWS; i++)
        VX_TRY(oracle_check_row(oracle, harness, (i64)(vx_data_next(&state) % n), why));
    return VX_OK;
}

void vx_oracle_close(struct vx_oracle **oracle)
{
    if (!*oracle) return;
    vx_free((*oracle)->answer);
    vx_free((*oracle)->chunk);
    vx_free((*oracle)->reals[0]);
    vx_free((*oracle)->reals[1]);
    vx_free(*oracle);
    *oracle = NULL;
}

static vx_status oracle_take(struct vx_oracle *oracle, struct vx_harness *harness,
                             struct vx_why *why)
{
    const i64 room = oracle->count < CHUNK ? oracle->count : CHUNK;
    const size_t element = (size_t)vx_number_bytes(oracle->problem.type);
    oracle->answer = vx_alloc((size_t)oracle->count * element);
    oracle->chunk = vx_alloc((size_t)room * element);
    oracle->reals[0] = vx_alloc((size_t)room * sizeof(f32));
    oracle->reals[1] = vx_alloc((size_t)room * sizeof(f32));
    bool good = oracle->answer && oracle->chunk && oracle->reals[0] && oracle->reals[1];
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "no memory to compare outputs");
    return oracle_copy(harness, 0, oracle->count, oracle->answer, why);
}

vx_status vx_oracle_open(struct vx_harness *harness, struct vx_why *why,
                         struct vx_oracle **oracle)
{
    vx_status status = VX_OK;
    struct vx_oracle *made = vx_alloc_zero(sizeof *made);
    *oracle = NULL;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to compare outputs");
    made->problem = harness->problem;
    made->bounds =
        vx_oracle_bounds(harness->problem.type, harness->problem.v, harness->problem.ci);
    made->count = harness->problem.n * harness->problem.co;
    VX_TRY_OR(status, fail, oracle_take(made, harness, why));
    VX_TRY_OR(status, fail, oracle_check(made, harness, why));
    *oracle = made;
    return VX_OK;
fail:
    vx_oracle_close(&made);
    return status;
}

/* What a comparison adds up. */
struct sums {
    f64 error, power; /* squares of the differences, and of the oracle's elements */
    f64 worst;
};

static void oracle_add(const struct vx_oracle *oracle, i64 count, struct sums *sums)
{
    const f64 round = 2 * oracle->bounds.round, sum = 2 * oracle->bounds.sum;
    for (i64 i = 0; i < count; i++) {
        f64 trusted = oracle->reals[0][i];
        f64 error = fabs((f64)oracle->reals[1][i] - trusted);
        f64 share = error / (round * fabs(trusted) + sum);
        sums->error += error * error;
        sums->power += trusted * trusted;
        /* This form of the condition makes a NaN the worst error. */
        if (!(share <= sums->worst)) sums->worst = isnan(share) ? INFINITY : share;
    }
}

vx_status vx_oracle_compare(struct vx_oracle *oracle, struct vx_harness *harness,
                            struct vx_why *why, struct vx_oracle_verdict *verdict)
{
    const size_t element = (size_t)vx_number_bytes(oracle->problem.type);
    struct sums sums = {0, 0, 0};
    VX_ASSERT(harness->problem.n * harness->problem.co == oracle->count);
    verdict->same = true;
    for (i64 at = 0; at < oracle->count; at += CHUNK) {
        i64 count = oracle->count - at < CHUNK ? oracle->count - at : CHUNK;
        const u8 *answer = (const u8 *)oracle->answer + (size_t)at * element;
        VX_TRY(oracle_copy(harness, at, count, oracle->chunk, why));
        if (!memcmp(answer, oracle->chunk, (size_t)count * element)) continue;
        verdict->same = false;
        oracle_reals(oracle, answer, count, oracle->reals[0]);
        oracle_reals(oracle, oracle->chunk, count, oracle->reals[1]);
        oracle_add(oracle, count, &sums);
    }
    /* Chunks that are equal in every bit are not in the sums.  The NMSE without them is
     * the larger one, which only makes the verdict stricter. */
    verdict->nmse = verdict->same ? 0 : sums.error / sums.power;
    verdict->worst = sums.worst;
    verdict->right =
        verdict->same || (verdict->nmse <= oracle->bounds.nmse && verdict->worst <= 1);
    return VX_OK;
}
