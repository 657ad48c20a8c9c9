/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/measure.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/tune/harness.h"
#include "engine/tune/oracle.h"
#include "engine/tune/pick.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MEASURE_MAGIC   0x76784d53u /* "vxMS" */
#define MAP_KERNELS_MAX 64 /* the builds of map.h and order.h launch some twenty */

struct vx_measure {
    u32 magic;
    struct vx_measure_device device;
    struct vx_measure_want want;
    struct vx_gpu *gpu;
    struct vx_harness *harness; /* NULL until the first measurement */
    struct vx_oracle *oracle;   /* of the problem that begin set up */
    i32 measured, finals; /* candidates measured, and turns of the second timing done */
};

vx_status vx_measure_open(const struct vx_measure_device *device,
                          const struct vx_measure_want *want, struct vx_why *why,
                          struct vx_measure **measure)
{
    *measure = NULL;
    VX_ENSURE_WHY(want->mode == VX_TUNE_AUTO || want->mode == VX_TUNE_ALL, why,
                  INVALID_ARGUMENT, "the tuning mode measures nothing",
                  "expected the tuning mode auto or all");
    struct vx_measure *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to measure with");
    made->magic = MEASURE_MAGIC;
    made->device = *device;
    made->want = *want;
    made->gpu = vx_kernel_set_gpu(device->set);
    *measure = made;
    return VX_OK;
}

void vx_measure_close(struct vx_measure **measure)
{
    if (!*measure) return;
    VX_ASSERT((*measure)->magic == MEASURE_MAGIC);
    (*measure)->magic = 0;
    vx_oracle_close(&(*measure)->oracle);
    vx_harness_close(&(*measure)->harness);
    vx_free(*measure);
    *measure = NULL;
}

/* --- candidates --- */

/* Inserts a candidate behind the cheaper ones; a full list drops the dearest one. */
static i32 candidates_insert(struct vx_conv_choice *choices, f64 *costs, i32 count,
                             const struct vx_conv_choice *choice, f64 cost)
{
    i32 at = count;
    if (count == VX_MEASURE_CANDIDATES_MAX) {
        if (cost >= costs[count - 1]) return count;
        at = --count;
    }
    for (; at > 0 && cost < costs[at - 1]; at--) {
        costs[at] = costs[at - 1];
        choices[at] = choices[at - 1];
    }
    costs[at] = cost;
    choices[at] = *choice;
    return count + 1;
}

i32 vx_measure_candidates(const struct vx_measure_want *want,
                          const struct vx_conv_problem *problem,
                          const struct vx_caps *caps,
                          struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX])
{
    f64 costs[VX_MEASURE_CANDIDATES_MAX];
    i32 count = 0;
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)i;
        const struct vx_kernel_spec *spec = vx_conv_spec(algorithm);
        bool may = want->algorithm == VX_CONV_AUTO ? vx_conv_exact(problem, algorithm)
                                                   : want->algorithm == algorithm;
        for (i32 tile = 0; may && spec && tile < spec->tiles_count; tile++) {
            struct vx_conv_choice choice = {algorithm, tile};
            if (!vx_conv_fits(problem, &choice, caps)) continue;
            f64 cost = vx_conv_cost(problem, &choice, caps);
            count = candidates_insert(choices, costs, count, &choice, cost);
        }
    }
    if (want->mode != VX_TUNE_ALL && count > VX_MEASURE_CANDIDATES_AUTO)
        count = VX_MEASURE_CANDIDATES_AUTO;
    return count;
}

/* The first tile that fits of the simplest algorithm with the layer's order, so that bits
 * can be compared; if there is none, of the simplest algorithm of any order. */
static vx_status measure_oracle(const struct vx_conv_problem *problem,
                                const struct vx_caps *caps, struct vx_why *why,
                                struct vx_conv_choice *choice)
{
    static const enum vx_conv_algorithm simple[] = {
        VX_CONV_IMPLICIT,   VX_CONV_IMPLICIT_SPLIT, VX_CONV_EXPLICIT,
        VX_CONV_PAIRS_LIST, VX_CONV_MASKED,         VX_CONV_MASKED_SPLIT};
    for (int exact = 1; exact >= 0; exact--)
        for (size_t i = 0; i < VX_COUNT(simple); i++) {
            const struct vx_kernel_spec *spec = vx_conv_spec(simple[i]);
            if (exact && !vx_conv_exact(problem, simple[i])) continue;
            for (i32 tile = 0; spec && tile < spec->tiles_count; tile++) {
                *choice = (struct vx_conv_choice){simple[i], tile};
                if (vx_conv_fits(problem, choice, caps)) return VX_OK;
            }
        }
    VX_FAIL_WHY(why, INTERNAL, "no algorithm fits a problem",
                "expected an algorithm for Ci %d, Co %d, V %d on this device",
                problem->ci, problem->co, problem->v);
}

/* --- making ready --- */

vx_status vx_measure_ready(struct vx_measure *measure,
                           const struct vx_conv_problem *problem,
                           const struct vx_progress *progress, struct vx_why *why)
{
    struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX], oracle;
    const struct vx_caps *caps = vx_gpu_caps(measure->gpu);
    i32 count = vx_measure_candidates(&measure->want, problem, caps, choices);
    VX_TRY(measure_oracle(problem, caps, why, &oracle));
    size_t room = (size_t)(count + 1) * VX_CONV_KERNELS_MAX + MAP_KERNELS_MAX;
    struct vx_jit_wanted *wanted = vx_alloc(room * sizeof *wanted);
    VX_ENSURE(wanted, RESOURCE_EXHAUSTED, "no memory for the kernels to measure");
    i32 used = vx_gpu_map_kernels(wanted, MAP_KERNELS_MAX);
    VX_ASSERT(used <= MAP_KERNELS_MAX);
    used += vx_conv_kernels(problem, &oracle, wanted + used);
    for (i32 i = 0; i < count; i++)
        used += vx_conv_kernels(problem, &choices[i], wanted + used);
    vx_status status =
        vx_kernel_set_ready(measure->device.set, wanted, used, progress, why);
    vx_free(wanted);
    return status;
}

/* --- measuring --- */

static void measure_reject(const struct vx_measure_report *report,
                           const struct vx_measure_result *result)
{
    const struct vx_conv_problem *problem = &report->problem;
    VX_LOG(TUNE_REJECTED,
           VX_LOG_TEXT("algorithm", vx_conv_name(result->choice.algorithm)),
           VX_LOG_I64("tile", result->choice.tile), VX_LOG_I64("n", problem->n),
           VX_LOG_I64("ci", problem->ci), VX_LOG_I64("co", problem->co),
           VX_LOG_I64("v", problem->v),
           VX_LOG_TEXT("type", vx_tune_type_name(problem->type)),
           VX_LOG_F64("nmse", result->nmse), VX_LOG_F64("worst", result->worst));
}

static vx_status measure_run(void *context, struct vx_why *why)
{
    struct vx_harness *harness = context;
    return vx_harness_run(harness, harness->out, why);
}

/* Runs a choice once into poisoned memory. */
static vx_status measure_once(struct vx_harness *harness,
                              const struct vx_conv_choice *choice, struct vx_why *why)
{
    VX_TRY(vx_harness_use(harness, choice, why));
    VX_TRY(vx_oracle_poison(harness, why));
    VX_TRY(vx_harness_run(harness, harness->out, why));
    return vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
}

static vx_status measure_time(struct vx_harness *harness, i32 runs, struct vx_why *why,
                              struct vx_measure_result *result)
{
    const struct vx_harness_timing timing = {.run = measure_run,
                                             .context = harness,
                                             .runs = runs,
                                             .warmups = 1,
                                             .warm_ns = VX_STAND_WARM_NS,
                                             .cold = true};
    f64 ns[VX_MEASURE_RUNS_FINAL];
    VX_ASSERT(runs <= VX_MEASURE_RUNS_FINAL);
    VX_TRY(vx_harness_use(harness, &result->choice, why));
    VX_TRY(vx_harness_time(harness, &timing, why, ns));
    /* A table holds whole nanoseconds, never 0; compare here what it holds. */
    result->ns = fmax(1, ceil(vx_harness_quantile(ns, runs, 0.5)));
    return VX_OK;
}

static vx_status measure_candidate(struct vx_measure *measure,
                                   struct vx_measure_report *report,
                                   struct vx_measure_result *result, struct vx_why *why)
{
    struct vx_oracle_verdict verdict;
    struct vx_harness *harness = measure->harness;
    VX_TRY(measure_once(harness, &result->choice, why));
    VX_TRY(vx_oracle_compare(measure->oracle, harness, why, &verdict));
    bool promised = vx_conv_exact(&report->problem, result->choice.algorithm) &&
                    vx_conv_exact(&report->problem, report->oracle.algorithm);
    result->nmse = verdict.nmse;
    result->worst = verdict.worst;
    result->same = verdict.same;
    result->right = verdict.right && (verdict.same || !promised);
    if (!result->right) {
        report->rejected++;
        measure_reject(report, result);
        return VX_OK;
    }
    return measure_time(harness, VX_MEASURE_RUNS_SCREEN, why, result);
}

/* The fastest right result of one algorithm (AUTO: of any) among those that were timed
 * twice (`final`), or else among those that were timed once; -1 = none. */
static i32 report_fastest(const struct vx_measure_report *report, bool final,
                          enum vx_conv_algorithm algorithm)
{
    i32 best = -1;
    for (i32 i = 0; i < report->count; i++) {
        const struct vx_measure_result *result = &report->results[i];
        if (!result->right || result->final != final) continue;
        if (algorithm && result->choice.algorithm != algorithm) continue;
        if (best < 0 || result->ns < report->results[best].ns) best = i;
    }
    return best;
}

static vx_status measure_again(struct vx_measure *measure, i32 index, struct vx_why *why,
                               struct vx_measure_report *report)
{
    if (index < 0) return VX_OK;
    report->results[index].final = true;
    return measure_time(measure->harness, VX_MEASURE_RUNS_FINAL, why,
                        &report->results[index]);
}

/* Turns of the second timing: the best few, and the best of each algorithm, because a
 * table must compare algorithms by the same kind of timing. */
#define FINAL_TURNS (VX_MEASURE_FINALISTS + VX_CONV_ALGORITHMS_COUNT - VX_CONV_AUTO - 1)

/* The result that is timed again in this turn; -1 = none. */
static i32 final_of_turn(const struct vx_measure_report *report, i32 turn)
{
    if (turn < VX_MEASURE_FINALISTS) return report_fastest(report, false, VX_CONV_AUTO);
    i32 above = turn - VX_MEASURE_FINALISTS + 1;
    enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)(VX_CONV_AUTO + above);
    if (report_fastest(report, true, algorithm) >= 0) return -1;
    return report_fastest(report, false, algorithm);
}

static vx_status measure_final(struct vx_measure *measure, struct vx_why *why,
                               struct vx_measure_report *report)
{
    i32 next = -1;
    while (next < 0 && measure->finals < FINAL_TURNS)
        next = final_of_turn(report, measure->finals++);
    VX_TRY(measure_again(measure, next, why, report));
    if (measure->finals == FINAL_TURNS)
        report->best = report_fastest(report, true, VX_CONV_AUTO);
    return VX_OK;
}

vx_status vx_measure_begin(struct vx_measure *measure,
                           const struct vx_conv_problem *problem, struct vx_why *why,
                           struct vx_measure_report *report)
{
    struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX];
    const struct vx_measure_want *want = &measure->want;
    const struct vx_caps *caps = vx_gpu_caps(measure->gpu);
    struct vx_harness_geometry geometry = {.coords = want->coords};
    VX_ASSERT(measure->magic == MEASURE_MAGIC);
    *report = (struct vx_measure_report){.problem = *problem, .best = -1};
    report->count = vx_measure_candidates(want, problem, caps, choices);
    for (i32 i = 0; i < report->count; i++) report->results[i].choice = choices[i];
    VX_TRY(measure_oracle(problem, caps, why, &report->oracle));
    memcpy(geometry.dilation, want->dilation, sizeof geometry.dilation);
    measure->measured = measure->finals = 0;
    vx_oracle_close(&measure->oracle);
    if (!measure->harness)
        VX_TRY(vx_harness_open(measure->device.set, measure->device.stream, why,
                               &measure->harness));
    VX_TRY(vx_harness_load(measure->harness, problem, &geometry, why));
    VX_TRY(measure_once(measure->harness, &report->oracle, why));
    report->pairs = measure->harness->pairs;
    report->fill = measure->harness->problem.fill;
    return vx_oracle_open(measure->harness, why, &measure->oracle);
}

vx_status vx_measure_step(struct vx_measure *measure, struct vx_why *why,
                          struct vx_measure_report *report, bool *more)
{
    VX_ASSERT(measure->magic == MEASURE_MAGIC);
    VX_ASSERT(measure->oracle);
    if (measure->measured < report->count)
        VX_TRY(measure_candidate(measure, report, &report->results[measure->measured++],
                                 why));
    else
        VX_TRY(measure_final(measure, why, report));
    *more = measure->measured < report->count || measure->finals < FINAL_TURNS;
    return VX_OK;
}

vx_status vx_measure_conv(struct vx_measure *measure,
                          const struct vx_conv_problem *problem, struct vx_why *why,
                          struct vx_measure_report *report)
{
    bool more = true;
    VX_TRY(vx_measure_begin(measure, problem, why, report));
    while (more) VX_TRY(vx_measure_step(measure, why, report, &more));
    return VX_OK;
}

/* --- keeping --- */

void vx_measure_join(const struct vx_measure_report *one, i32 before,
                     struct vx_measure_report *all)
{
    VX_ASSERT(one->count == all->count);
    all->best = -1;
    all->rejected = 0;
    for (i32 i = 0; i < all->count; i++) {
        struct vx_measure_result *result = &all->results[i];
        const struct vx_measure_result *more = &one->results[i];
        VX_ASSERT(result->choice.algorithm == more->choice.algorithm);
        VX_ASSERT(result->choice.tile == more->choice.tile);
        if (result->right && !more->right) *result = *more;
        all->rejected += !result->right;
        if (!result->right) continue;
        result->final |= more->final;
        result->ns = ceil(exp((before * log(result->ns) + log(more->ns)) / (before + 1)));
        if (!result->final) continue; /* not among the fastest anywhere */
        if (all->best < 0 || result->ns < all->results[all->best].ns) all->best = i;
    }
}

vx_status vx_measure_keep(const struct vx_jit *jit,
                          const struct vx_measure_report *report,
                          struct vx_tune_table *table, struct vx_why *why)
{
    struct vx_tune_row row;
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)i;
        const i32 best = report_fastest(report, true, algorithm);
        const struct vx_kernel_spec *spec = vx_conv_spec(algorithm);
        char hash[65];
        if (best < 0) continue;
        vx_tune_row_make(&report->problem, &row);
        vx_jit_source_hash(jit, spec, hash);
        snprintf(row.hash, sizeof row.hash, "%.12s", hash);
        row.algorithm = algorithm;
        if (spec->tiles) row.tile = spec->tiles[report->results[best].choice.tile];
        row.ns = (i64)report->results[best].ns;
        VX_TRY(vx_tune_table_put(table, &row, why));
    }
    return VX_OK;
}
