/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/harness.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/tune/measure.h"
#include "engine/tune/shapes.h"

#include <math.h>
#include <string.h>

vx_status vx_harness_open(struct vx_kernel_set *set, struct vx_gpu_stream *stream,
                          struct vx_why *why, struct vx_harness **harness)
{
    vx_status status = VX_OK;
    struct vx_harness *made = vx_alloc_zero(sizeof *made);
    *harness = NULL;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory to measure with");
    made->queue.set = set;
    made->gpu = vx_kernel_set_gpu(set);
    made->queue.stream = stream;
    size_t cache = (size_t)vx_gpu_caps(made->gpu)->cache_bytes;
    made->flush_bytes =
        vx_round_up(VX_HARNESS_FLUSH_TIMES * cache + VX_HARNESS_FLUSH_BYTES_MIN,
                    VX_HARNESS_FLUSH_BYTES_MIN);
    VX_TRY_OR(status, fail,
              vx_gpu_alloc(made->gpu, made->flush_bytes, why, &made->flush));
    for (i32 i = 0; i < 2 * VX_HARNESS_RUNS_MAX; i++)
        VX_TRY_OR(status, fail, vx_gpu_event_open(made->gpu, why, &made->events[i]));
    *harness = made;
    return VX_OK;
fail:
    vx_harness_close(&made);
    return status;
}

static void harness_free(struct vx_harness *harness, void **memory)
{
    if (*memory) vx_gpu_free(harness->gpu, memory);
    *memory = NULL;
}

static void harness_unload(struct vx_harness *harness)
{
    void **const all[] = {
        &harness->coords,      &harness->index_memory, &harness->rows,
        &harness->map_memory,  &harness->order_memory, &harness->scratch,
        &harness->in,          &harness->weight,       &harness->bias,
        &harness->out,         &harness->workspace,    &harness->tiled,
        &harness->column_scale};
    for (size_t i = 0; i < VX_COUNT(all); i++) harness_free(harness, all[i]);
    harness->map_bytes = harness->order_bytes = 0;
    harness->scratch_bytes = harness->workspace_bytes = 0;
    harness->want.groups = 0;
    harness->pairs = 0;
    vx_data_close(&harness->in_data);
    vx_data_close(&harness->weight_data);
}

void vx_harness_close(struct vx_harness **harness)
{
    struct vx_harness *gone = *harness;
    struct vx_why why;
    if (!gone) return;
    /* Nothing may be freed under a kernel that still runs; a device that is lost runs
     * nothing. */
    vx_status status = vx_gpu_stream_wait(gone->gpu, gone->queue.stream, &why);
    (void)status;
    vx_blas_gpu_close(&gone->queue.blas);
    harness_unload(gone);
    harness_free(gone, &gone->flush);
    for (i32 i = 0; i < 2 * VX_HARNESS_RUNS_MAX; i++)
        if (gone->events[i]) vx_gpu_event_close(gone->gpu, &gone->events[i]);
    vx_free(gone);
    *harness = NULL;
}

/* Makes memory larger if it is too small. */
static vx_status harness_grow(struct vx_harness *harness, void **memory, size_t *have,
                              size_t bytes, struct vx_why *why)
{
    if (bytes <= *have) return VX_OK;
    VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    harness_free(harness, memory);
    *have = 0;
    VX_TRY(vx_gpu_alloc(harness->gpu, bytes, why, memory));
    *have = bytes;
    return VX_OK;
}

/* Of type E4M3: all columns have the scale of the whole tensor. */
static vx_status harness_load_scales(struct vx_harness *harness, struct vx_why *why)
{
    const size_t bytes = (size_t)harness->problem.co * sizeof(f32);
    const f32 scale = harness->in_data->e4m3_scale * harness->weight_data->e4m3_scale;
    u32 word;
    harness->problem.in_scale = harness->in_data->e4m3_scale;
    vx_data_to_bytes(harness->weight_data);
    VX_TRY(vx_gpu_alloc(harness->gpu, bytes, why, &harness->column_scale));
    memcpy(&word, &scale, sizeof word);
    return vx_gpu_fill(harness->gpu, harness->queue.stream,
                       &(struct vx_gpu_words){harness->column_scale, word, bytes}, why);
}

/* Features are uniform in [-1, 1).  Weights are scaled so that a row's sum of V*Ci
 * products has a spread of at most 1, which does not overflow F16 for any Ci. */
static vx_status harness_load_tensors(struct vx_harness *harness, struct vx_why *why)
{
    const struct vx_conv_problem *problem = &harness->problem;
    const i64 in = problem->n * problem->ci;
    const i64 weight = (i64)problem->v * problem->ci * problem->co;
    const size_t element = (size_t)vx_number_bytes(problem->type);
    const size_t factor = (size_t)vx_number_factor_bytes(problem->type);
    const size_t bias = (size_t)problem->co * sizeof(f32);
    const f32 scale = 3.0f / sqrtf((f32)problem->v * (f32)problem->ci);
    struct vx_data_target target = {harness->gpu, harness->queue.stream, NULL};
    VX_TRY(vx_data_open(problem->type, VX_MEASURE_SEED, 1.0f, &harness->in_data));
    VX_TRY(
        vx_data_open(problem->type, VX_MEASURE_SEED + 1, scale, &harness->weight_data));
    if (problem->type == VX_NUMBER_E4M3) VX_TRY(harness_load_scales(harness, why));
    VX_TRY(vx_gpu_alloc(harness->gpu, (size_t)in * element, why, &harness->in));
    VX_TRY(vx_gpu_alloc(harness->gpu, (size_t)weight * factor, why, &harness->weight));
    VX_TRY(vx_gpu_alloc(harness->gpu, bias, why, &harness->bias));
    VX_TRY(vx_gpu_alloc(harness->gpu, vx_harness_out_bytes(harness), why, &harness->out));
    target.memory = harness->in;
    VX_TRY(vx_data_send(harness->in_data, &target, in, why));
    target.memory = harness->weight;
    VX_TRY(vx_data_send(harness->weight_data, &target, weight, why));
    VX_TRY(vx_gpu_copy_in(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){harness->bias, harness->in_data->values, bias}, why));
    return vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
}

static vx_status harness_send_coords(struct vx_harness *harness, const i32 *coords,
                                     struct vx_why *why)
{
    const size_t bytes = (size_t)harness->problem.n * 4 * sizeof *coords;
    i32 *made = NULL;
    vx_status status = VX_OK;
    VX_TRY(vx_gpu_alloc(harness->gpu, bytes, why, &harness->coords));
    if (!coords) {
        made = vx_alloc(bytes);
        VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for coordinates to measure on");
        if (vx_density_of(harness->problem.fill) == VX_DENSITY_SPARSE)
            vx_shape_noise(harness->problem.n, made);
        else
            vx_shape_shell(vx_shape_res_of(harness->problem.n), harness->problem.n, made);
    }
    status = vx_gpu_copy_in(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){harness->coords, made ? made : coords, bytes}, why);
    if (!status.fault)
        status = vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why);
    vx_free(made);
    return status;
}

static vx_status harness_index(struct vx_harness *harness, struct vx_why *why)
{
    return vx_gpu_index_build(&harness->queue,
                              &(struct vx_gpu_coords){harness->coords,
                                                      4,
                                                      harness->problem.n,
                                                      harness->index_memory,
                                                      harness->rows,
                                                      {0}},
                              why, &harness->index);
}

static vx_status harness_load_geometry(struct vx_harness *harness, const i32 *coords,
                                       struct vx_why *why)
{
    u32 fault[2] = {0};
    VX_TRY(harness_send_coords(harness, coords, why));
    VX_TRY(vx_gpu_alloc(harness->gpu, vx_gpu_index_bytes(harness->problem.n), why,
                        &harness->index_memory));
    VX_TRY(vx_gpu_alloc(harness->gpu, (size_t)harness->problem.n * sizeof(i32), why,
                        &harness->rows));
    VX_TRY(harness_index(harness, why));
    VX_TRY(vx_gpu_copy_out(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){fault, harness->index.fault, sizeof fault}, why));
    VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    VX_ENSURE_WHY(!fault[0] && !fault[1], why, INVALID_ARGUMENT,
                  "coordinates to measure on are out of range or duplicate",
                  "expected distinct coordinates in range to measure on, got faults %u "
                  "and %u",
                  fault[0], fault[1]);
    return VX_OK;
}

vx_status vx_harness_load(struct vx_harness *harness,
                          const struct vx_conv_problem *problem,
                          const struct vx_harness_geometry *geometry, struct vx_why *why)
{
    VX_ASSERT(problem->n >= 1);
    VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    harness_unload(harness);
    harness->problem = *problem;
    harness->problem.strides = (struct vx_conv_strides){0}; /* tensors of its own */
    harness->problem.n_in = 0;
    harness->problem.in_scale = 0; /* the data are of the type; of E4M3 set below */
    for (int axis = 0; axis < 3; axis++) {
        i32 dilation = geometry ? geometry->dilation[axis] : 1;
        harness->key.kernel[axis] = problem->kernel[axis];
        harness->key.dilation[axis] = dilation > 0 ? dilation : 1;
    }
    VX_TRY(harness_load_tensors(harness, why));
    if (problem->v == 1) {
        harness->pairs = problem->n;
        harness->problem.fill = 1;
        return VX_OK;
    }
    return harness_load_geometry(harness, geometry ? geometry->coords : NULL, why);
}

size_t vx_harness_out_bytes(const struct vx_harness *harness)
{
    return (size_t)harness->problem.n * (size_t)harness->problem.co *
           (size_t)vx_number_bytes(harness->problem.type);
}

/* The order that an algorithm reads, as the engine would build it. */
static struct vx_gpu_order_want order_want(const struct vx_harness *harness,
                                           enum vx_conv_algorithm algorithm)
{
    const struct vx_conv_problem *problem = &harness->problem;
    const i32 streams = vx_conv_streams(problem->type, vx_gpu_caps(harness->gpu));
    return (struct vx_gpu_order_want){
        .n = problem->n,
        .v = problem->v,
        .groups = vx_conv_groups(problem, algorithm),
        .kernel = {problem->kernel[0], problem->kernel[1], problem->kernel[2]},
        .sorted = vx_conv_sorted(algorithm),
        .gray = !harness->plain,
        .blocks = streams,
        .neighbours = streams > 0 && vx_conv_wants_neighbours(problem)};
}

static vx_status harness_map(struct vx_harness *harness,
                             const struct vx_gpu_order_want *want, struct vx_why *why)
{
    VX_TRY(vx_gpu_map_build(&harness->queue, &harness->index, &harness->key,
                            &harness->map, why));
    return vx_gpu_order_build(&harness->queue, want, &harness->map, harness->scratch,
                              why);
}

vx_status vx_harness_map_run(struct vx_harness *harness, struct vx_why *why)
{
    VX_TRY(harness_index(harness, why));
    return harness_map(harness, &harness->want, why);
}

static vx_status harness_use_map(struct vx_harness *harness,
                                 const struct vx_gpu_order_want *want, struct vx_why *why)
{
    const i64 n = harness->problem.n;
    u64 pairs = 0;
    if (harness->want.groups == want->groups && harness->want.sorted == want->sorted &&
        harness->want.gray == want->gray)
        return VX_OK;
    harness->want.groups = 0;
    VX_TRY(harness_grow(harness, &harness->map_memory, &harness->map_bytes,
                        vx_gpu_map_bytes(n, &harness->key), why));
    VX_TRY(harness_grow(harness, &harness->order_memory, &harness->order_bytes,
                        vx_gpu_order_bytes(want), why));
    VX_TRY(harness_grow(harness, &harness->scratch, &harness->scratch_bytes,
                        vx_gpu_order_scratch_bytes(want), why));
    vx_gpu_map_place(n, &harness->key, harness->map_memory, &harness->map);
    vx_gpu_order_place(want, harness->order_memory, &harness->map);
    VX_TRY(harness_map(harness, want, why));
    VX_TRY(vx_gpu_copy_out(
        harness->gpu, harness->queue.stream,
        &(struct vx_gpu_copy){&pairs, harness->map.pairs, sizeof pairs}, why));
    VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    harness->want = *want;
    harness->pairs = (i64)pairs;
    harness->problem.fill = (f64)pairs / ((f64)n * harness->problem.v);
    return VX_OK;
}

/* Tiles the weights, once for each load. */
static vx_status harness_tile(struct vx_harness *harness, struct vx_why *why)
{
    const struct vx_conv_problem *problem = &harness->problem;
    if (harness->tiled) return VX_OK;
    struct vx_conv_tiling tiling = {.v = problem->v,
                                    .ci = problem->ci,
                                    .co = problem->co,
                                    .number_bytes = vx_number_factor_bytes(problem->type),
                                    .weight = harness->weight};
    VX_TRY(
        vx_gpu_alloc(harness->gpu, vx_conv_tiled_bytes(&tiling), why, &harness->tiled));
    tiling.tiled = harness->tiled;
    return vx_conv_tile_weights(&harness->queue, &tiling, why);
}

vx_status vx_harness_use(struct vx_harness *harness, const struct vx_conv_choice *choice,
                         struct vx_why *why)
{
    harness->choice = *choice;
    if (harness->problem.v > 1) {
        const struct vx_gpu_order_want want = order_want(harness, choice->algorithm);
        VX_TRY(harness_use_map(harness, &want, why));
    }
    if (vx_conv_tiled(choice)) VX_TRY(harness_tile(harness, why));
    /* Without the vendor's library the explicit algorithm uses our kernel. */
    if (choice->algorithm == VX_CONV_EXPLICIT && !harness->own && !harness->queue.blas &&
        vx_blas_gpu_open(harness->gpu, NULL, NULL, &harness->queue.blas).fault)
        harness->queue.blas = NULL;
    return harness_grow(harness, &harness->workspace, &harness->workspace_bytes,
                        vx_conv_workspace(&harness->problem, choice), why);
}

vx_status vx_harness_run(struct vx_harness *harness, void *out, struct vx_why *why)
{
    const struct vx_conv_operands operands = {
        .map = harness->problem.v > 1 ? &harness->map : NULL,
        .in = harness->in,
        .weight = harness->weight,
        .tiled = harness->tiled,
        .scale = harness->column_scale,
        .bias = harness->bias,
        .out = out,
        .activation = VX_ACTIVATION_NONE,
        .workspace = harness->workspace};
    return vx_conv_launch(&harness->queue, &harness->problem, &harness->choice, &operands,
                          why);
}

/* --- timing --- */

static vx_status time_record(struct vx_harness *harness,
                             const struct vx_harness_timing *timing, struct vx_why *why,
                             struct vx_gpu_graph **graph)
{
    struct vx_why second;
    VX_TRY(vx_gpu_capture_begin(harness->gpu, harness->queue.stream, why));
    vx_status status = timing->run(timing->context, why);
    /* Ends the capture even after a failure: a capturing stream cannot be used. */
    vx_status end = vx_gpu_capture_end(harness->gpu, harness->queue.stream,
                                       status.fault ? &second : why, graph);
    return status.fault ? status : end;
}

static vx_status time_once(struct vx_harness *harness,
                           const struct vx_harness_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why)
{
    if (graph)
        return vx_gpu_graph_launch(harness->gpu, graph, harness->queue.stream, why);
    return timing->run(timing->context, why);
}

static vx_status time_warm(struct vx_harness *harness,
                           const struct vx_harness_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why)
{
    bool clocked = strcmp(vx_gpu_arch(harness->gpu), "fake") != 0;
    i64 until = vx_clock_ns() + (clocked ? timing->warm_ns : 0);
    do {
        for (i32 run = 0; run < timing->warmups; run++)
            VX_TRY(time_once(harness, timing, graph, why));
        VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    } while (vx_clock_ns() < until);
    return VX_OK;
}

static vx_status time_runs(struct vx_harness *harness,
                           const struct vx_harness_timing *timing,
                           struct vx_gpu_graph *graph, struct vx_why *why, f64 *ns)
{
    VX_TRY(time_warm(harness, timing, graph, why));
    for (i32 run = 0; run < timing->runs; run++) {
        if (timing->cold)
            VX_TRY(vx_gpu_fill(
                harness->gpu, harness->queue.stream,
                &(struct vx_gpu_words){harness->flush, (u32)run, harness->flush_bytes},
                why));
        VX_TRY(vx_gpu_event_record(harness->gpu, harness->events[2 * run],
                                   harness->queue.stream, why));
        VX_TRY(time_once(harness, timing, graph, why));
        VX_TRY(vx_gpu_event_record(harness->gpu, harness->events[2 * run + 1],
                                   harness->queue.stream, why));
    }
    VX_TRY(vx_gpu_stream_wait(harness->gpu, harness->queue.stream, why));
    for (i32 run = 0; run < timing->runs; run++)
        VX_TRY(vx_gpu_event_elapsed(harness->gpu, harness->events[2 * run],
                                    harness->events[2 * run + 1], why, &ns[run]));
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

vx_status vx_harness_time(struct vx_harness *harness,
                          const struct vx_harness_timing *timing, struct vx_why *why,
                          f64 *ns)
{
    struct vx_gpu_graph *graph = NULL;
    VX_ASSERT(timing->runs >= 1);
    VX_ASSERT(timing->runs <= VX_HARNESS_RUNS_MAX);
    if (timing->graph) VX_TRY(time_record(harness, timing, why, &graph));
    vx_status status = time_runs(harness, timing, graph, why, ns);
    if (graph) vx_gpu_graph_close(harness->gpu, &graph);
    if (!status.fault) time_sort(ns, timing->runs);
    return status;
}

f64 vx_harness_quantile(const f64 *sorted, i32 count, f64 share)
{
    i32 at = (i32)(share * (f64)(count - 1) + 0.5);
    return sorted[at < 0 ? 0 : at >= count ? count - 1 : at];
}
