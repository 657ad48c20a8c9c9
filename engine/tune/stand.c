/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/stand.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/gpu/model_choice.h"
#include "engine/tools/shapes.h"
#include "engine/tune/measure.h"

#include <math.h>
#include <string.h>

vx_status vx_stand_open(struct vx_kernel_set *set, struct vx_gpu_stream *stream,
                        struct vx_why *why, struct vx_stand **stand)
{
    vx_status status = VX_OK;
    struct vx_stand *made = vx_alloc_zero(sizeof *made);
    *stand = NULL;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to measure with");
    made->queue.set = set;
    made->gpu = vx_kernel_set_gpu(set);
    made->queue.stream = stream;
    size_t cache = (size_t)vx_gpu_caps(made->gpu)->cache_bytes;
    made->flush_bytes =
        vx_round_up(VX_STAND_FLUSH_TIMES * cache + VX_STAND_FLUSH_BYTES_MIN,
                    VX_STAND_FLUSH_BYTES_MIN);
    VX_TRY_OR(status, fail,
              vx_gpu_alloc(made->gpu, made->flush_bytes, why, &made->flush));
    for (i32 i = 0; i < 2 * VX_STAND_RUNS_MAX; i++)
        VX_TRY_OR(status, fail, vx_gpu_event_open(made->gpu, why, &made->events[i]));
    *stand = made;
    return VX_OK;
fail:
    vx_stand_close(&made);
    return status;
}

static void stand_free(struct vx_stand *stand, void **memory)
{
    if (*memory) vx_gpu_free(stand->gpu, memory);
    *memory = NULL;
}

static void stand_unload(struct vx_stand *stand)
{
    void **const all[] = {&stand->coords,     &stand->index_memory, &stand->rows,
                          &stand->map_memory, &stand->map_scratch,  &stand->in,
                          &stand->weight,     &stand->bias,         &stand->out,
                          &stand->workspace};
    for (size_t i = 0; i < VX_COUNT(all); i++) stand_free(stand, all[i]);
    stand->map_bytes = stand->scratch_bytes = stand->workspace_bytes = 0;
    stand->want.groups = 0;
    stand->pairs = 0;
    vx_data_close(&stand->in_data);
    vx_data_close(&stand->weight_data);
}

void vx_stand_close(struct vx_stand **stand)
{
    struct vx_stand *gone = *stand;
    struct vx_why why;
    if (!gone) return;
    /* Nothing may be freed under a kernel that still runs; a device that is lost runs
     * nothing. */
    vx_status status = vx_gpu_stream_wait(gone->gpu, gone->queue.stream, &why);
    (void)status;
    vx_blas_gpu_close(&gone->queue.blas);
    stand_unload(gone);
    stand_free(gone, &gone->flush);
    for (i32 i = 0; i < 2 * VX_STAND_RUNS_MAX; i++)
        if (gone->events[i]) vx_gpu_event_close(gone->gpu, &gone->events[i]);
    vx_free(gone);
    *stand = NULL;
}

/* Makes memory larger if it is too small. */
static vx_status stand_grow(struct vx_stand *stand, void **memory, size_t *have,
                            size_t bytes, struct vx_why *why)
{
    if (bytes <= *have) return VX_OK;
    VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    stand_free(stand, memory);
    *have = 0;
    VX_TRY(vx_gpu_alloc(stand->gpu, bytes, why, memory));
    *have = bytes;
    return VX_OK;
}

/* Features are uniform in [-1, 1).  Weights are scaled so that a row's sum of V*Ci
 * products has a spread of at most 1, which does not overflow F16 for any Ci. */
static vx_status stand_load_tensors(struct vx_stand *stand, struct vx_why *why)
{
    const struct vx_conv_problem *problem = &stand->problem;
    const i64 in = problem->n * problem->ci;
    const i64 weight = (i64)problem->v * problem->ci * problem->co;
    const size_t element = (size_t)vx_number_bytes(problem->type);
    const size_t bias = (size_t)problem->co * sizeof(f32);
    const f32 scale = 3.0f / sqrtf((f32)problem->v * (f32)problem->ci);
    struct vx_data_target target = {stand->gpu, stand->queue.stream, NULL};
    VX_TRY(vx_data_open(problem->type, VX_MEASURE_SEED, 1.0f, &stand->in_data));
    VX_TRY(vx_data_open(problem->type, VX_MEASURE_SEED + 1, scale, &stand->weight_data));
    VX_TRY(vx_gpu_alloc(stand->gpu, (size_t)in * element, why, &stand->in));
    VX_TRY(vx_gpu_alloc(stand->gpu, (size_t)weight * element, why, &stand->weight));
    VX_TRY(vx_gpu_alloc(stand->gpu, bias, why, &stand->bias));
    VX_TRY(vx_gpu_alloc(stand->gpu, vx_stand_out_bytes(stand), why, &stand->out));
    target.memory = stand->in;
    VX_TRY(vx_data_send(stand->in_data, &target, in, why));
    target.memory = stand->weight;
    VX_TRY(vx_data_send(stand->weight_data, &target, weight, why));
    VX_TRY(vx_gpu_copy_in(
        stand->gpu, stand->queue.stream,
        &(struct vx_gpu_copy){stand->bias, stand->in_data->values, bias}, why));
    return vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why);
}

static vx_status stand_send_coords(struct vx_stand *stand, const i32 *coords,
                                   struct vx_why *why)
{
    const size_t bytes = (size_t)stand->problem.n * 4 * sizeof *coords;
    i32 *made = NULL;
    vx_status status = VX_OK;
    VX_TRY(vx_gpu_alloc(stand->gpu, bytes, why, &stand->coords));
    if (!coords) {
        made = vx_alloc(bytes);
        VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for coordinates to measure on");
        vx_shape_shell(vx_shape_res_of(stand->problem.n), stand->problem.n, made);
    }
    status = vx_gpu_copy_in(
        stand->gpu, stand->queue.stream,
        &(struct vx_gpu_copy){stand->coords, made ? made : coords, bytes}, why);
    if (!status.fault) status = vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why);
    vx_free(made);
    return status;
}

static vx_status stand_index(struct vx_stand *stand, struct vx_why *why)
{
    return vx_gpu_index_build(&stand->queue,
                              &(struct vx_gpu_coords){stand->coords, 4, stand->problem.n,
                                                      stand->index_memory, stand->rows},
                              why, &stand->index);
}

static vx_status stand_load_geometry(struct vx_stand *stand, const i32 *coords,
                                     struct vx_why *why)
{
    u32 fault[2] = {0};
    VX_TRY(stand_send_coords(stand, coords, why));
    VX_TRY(vx_gpu_alloc(stand->gpu, vx_gpu_index_bytes(stand->problem.n), why,
                        &stand->index_memory));
    VX_TRY(vx_gpu_alloc(stand->gpu, (size_t)stand->problem.n * sizeof(i32), why,
                        &stand->rows));
    VX_TRY(stand_index(stand, why));
    VX_TRY(vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                           &(struct vx_gpu_copy){fault, stand->index.fault, sizeof fault},
                           why));
    VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    VX_ENSURE_WHY(!fault[0] && !fault[1], why, INVALID_ARGUMENT,
                  "coordinates to measure on are out of range or duplicate",
                  "expected distinct coordinates in range to measure on, got faults %u "
                  "and %u",
                  fault[0], fault[1]);
    return VX_OK;
}

vx_status vx_stand_load(struct vx_stand *stand, const struct vx_conv_problem *problem,
                        const struct vx_stand_geometry *geometry, struct vx_why *why)
{
    VX_ASSERT(problem->n >= 1);
    VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    stand_unload(stand);
    stand->problem = *problem;
    for (int axis = 0; axis < 3; axis++) {
        i32 dilation = geometry ? geometry->dilation[axis] : 1;
        stand->key.kernel[axis] = problem->kernel[axis];
        stand->key.dilation[axis] = dilation > 0 ? dilation : 1;
    }
    VX_TRY(stand_load_tensors(stand, why));
    if (problem->v == 1) {
        stand->pairs = problem->n;
        stand->problem.fill = 1;
        return VX_OK;
    }
    return stand_load_geometry(stand, geometry ? geometry->coords : NULL, why);
}

size_t vx_stand_out_bytes(const struct vx_stand *stand)
{
    return (size_t)stand->problem.n * (size_t)stand->problem.co *
           (size_t)vx_number_bytes(stand->problem.type);
}

void vx_stand_map_want(const struct vx_stand *stand, enum vx_conv_algorithm algorithm,
                       struct vx_gpu_map_want *want)
{
    const struct vx_conv_problem *problem = &stand->problem;
    *want = (struct vx_gpu_map_want){.key = stand->key,
                                     .groups = vx_conv_groups(problem, algorithm),
                                     .sorted = vx_conv_sorted(algorithm),
                                     .gray = !stand->plain,
                                     .windows = stand->windows ? stand->windows : 1};
}

vx_status vx_stand_map_run(struct vx_stand *stand, struct vx_why *why)
{
    VX_TRY(stand_index(stand, why));
    return vx_gpu_map_build(
        &stand->queue, &stand->index,
        &(struct vx_gpu_map_work){&stand->want, stand->map_memory, stand->map_scratch},
        why, &stand->map);
}

static vx_status stand_use_map(struct vx_stand *stand, const struct vx_gpu_map_want *want,
                               struct vx_why *why)
{
    const i64 n = stand->problem.n;
    u64 pairs = 0;
    if (stand->want.groups == want->groups && stand->want.sorted == want->sorted &&
        stand->want.gray == want->gray && stand->want.windows == want->windows)
        return VX_OK;
    stand->want.groups = 0;
    VX_TRY(stand_grow(stand, &stand->map_memory, &stand->map_bytes,
                      vx_gpu_map_bytes(n, want), why));
    VX_TRY(stand_grow(stand, &stand->map_scratch, &stand->scratch_bytes,
                      vx_gpu_map_scratch_bytes(n, want), why));
    VX_TRY(vx_gpu_map_build(
        &stand->queue, &stand->index,
        &(struct vx_gpu_map_work){want, stand->map_memory, stand->map_scratch}, why,
        &stand->map));
    VX_TRY(vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                           &(struct vx_gpu_copy){&pairs, stand->map.pairs, sizeof pairs},
                           why));
    VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    stand->want = *want;
    stand->pairs = (i64)pairs;
    stand->problem.fill = (f64)pairs / ((f64)n * stand->problem.v);
    return VX_OK;
}

vx_status vx_stand_use(struct vx_stand *stand, const struct vx_conv_choice *choice,
                       struct vx_why *why)
{
    struct vx_gpu_map_want want;
    stand->choice = *choice;
    if (stand->problem.v > 1) {
        vx_stand_map_want(stand, choice->algorithm, &want);
        VX_TRY(stand_use_map(stand, &want, why));
    }
    /* Without the vendor's library the explicit algorithm uses our kernel. */
    if (choice->algorithm == VX_CONV_EXPLICIT && !stand->own && !stand->queue.blas &&
        vx_blas_gpu_open(stand->gpu, stand->queue.stream, NULL, NULL, &stand->queue.blas)
            .fault)
        stand->queue.blas = NULL;
    return stand_grow(stand, &stand->workspace, &stand->workspace_bytes,
                      vx_conv_workspace(&stand->problem, choice), why);
}

vx_status vx_stand_run(struct vx_stand *stand, void *out, struct vx_why *why)
{
    const struct vx_conv_operands operands = {.map = stand->problem.v > 1 ? &stand->map
                                                                          : NULL,
                                              .in = stand->in,
                                              .weight = stand->weight,
                                              .bias = stand->bias,
                                              .out = out,
                                              .activation = VX_ACTIVATION_NONE,
                                              .workspace = stand->workspace};
    return vx_conv_launch(&stand->queue, &stand->problem, &stand->choice, &operands, why);
}

/* --- timing --- */

static vx_status time_record(struct vx_stand *stand, const struct vx_stand_timing *timing,
                             struct vx_why *why, struct vx_gpu_graph **graph)
{
    struct vx_why second;
    VX_TRY(vx_gpu_capture_begin(stand->gpu, stand->queue.stream, why));
    vx_status status = timing->run(timing->context, why);
    /* Ends the capture even after a failure: a capturing stream cannot be used. */
    vx_status end = vx_gpu_capture_end(stand->gpu, stand->queue.stream,
                                       status.fault ? &second : why, graph);
    return status.fault ? status : end;
}

static vx_status time_once(struct vx_stand *stand, const struct vx_stand_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why)
{
    if (graph) return vx_gpu_graph_launch(stand->gpu, graph, stand->queue.stream, why);
    return timing->run(timing->context, why);
}

static vx_status time_warm(struct vx_stand *stand, const struct vx_stand_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why)
{
    bool clocked = strcmp(vx_gpu_arch(stand->gpu), "fake") != 0;
    i64 until = vx_clock_ns() + (clocked ? timing->warm_ns : 0);
    do {
        for (i32 run = 0; run < timing->warmups; run++)
            VX_TRY(time_once(stand, timing, graph, why));
        VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    } while (vx_clock_ns() < until);
    return VX_OK;
}

static vx_status time_runs(struct vx_stand *stand, const struct vx_stand_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why, f64 *ns)
{
    VX_TRY(time_warm(stand, timing, graph, why));
    for (i32 run = 0; run < timing->runs; run++) {
        if (timing->cold)
            VX_TRY(vx_gpu_fill(
                stand->gpu, stand->queue.stream,
                &(struct vx_gpu_words){stand->flush, (u32)run, stand->flush_bytes}, why));
        VX_TRY(vx_gpu_event_record(stand->gpu, stand->events[2 * run],
                                   stand->queue.stream, why));
        VX_TRY(time_once(stand, timing, graph, why));
        VX_TRY(vx_gpu_event_record(stand->gpu, stand->events[2 * run + 1],
                                   stand->queue.stream, why));
    }
    VX_TRY(vx_gpu_stream_wait(stand->gpu, stand->queue.stream, why));
    for (i32 run = 0; run < timing->runs; run++)
        VX_TRY(vx_gpu_event_elapsed(stand->gpu, stand->events[2 * run],
                                    stand->events[2 * run + 1], why, &ns[run]));
    return VX_OK;
}

static void time_sort(f64 *ns, i32 count)
{
    for (i32 i = 1; i < count; i++)
        for (i32 j = i; j > 0 && ns[j] < ns[j - 1]; j--) {
            f64 swap = ns[j];
            ns[j] = ns[j - 1];
            ns[j - 1] = swap;
        }
}

vx_status vx_stand_time(struct vx_stand *stand, const struct vx_stand_timing *timing,
                        struct vx_why *why, f64 *ns)
{
    struct vx_gpu_graph *graph = NULL;
    VX_ASSERT(timing->runs >= 1);
    VX_ASSERT(timing->runs <= VX_STAND_RUNS_MAX);
    if (timing->graph) VX_TRY(time_record(stand, timing, why, &graph));
    vx_status status = time_runs(stand, timing, graph, why, ns);
    if (graph) vx_gpu_graph_close(stand->gpu, &graph);
    if (!status.fault) time_sort(ns, timing->runs);
    return status;
}

f64 vx_stand_quantile(const f64 *sorted, i32 count, f64 share)
{
    i32 at = (i32)(share * (f64)(count - 1) + 0.5);
    return sorted[at < 0 ? 0 : at >= count ? count - 1 : at];
}
