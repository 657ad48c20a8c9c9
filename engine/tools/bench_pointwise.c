/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/bench.h"

#include "engine/base/process/check.h"
#include "kernels/10_activation.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/14_rows.h"
#include "kernels/28_to_dense_device.h"

#include <stdio.h>
#include <string.h>

#define MAP_KERNELS_MAX 64
/* The pass over memory that is the ceiling reads ten times the cache of an H200, and
 * writes as much; on the fake device it is just enough to run every line. */
#define COPY_BYTES      ((i64)512 << 20)
#define COPY_BYTES_FAKE ((i64)64 << 10)
#define COPY_CHANNELS   64
#define LAYER_NORM_EPS  1e-6f

/* The arguments of the kernels that make one pass over the rows. */
union args {
    struct vx_activation_device_args activation;
    struct vx_add_device_args add;
    struct vx_layer_norm_device_args layer_norm;
    struct vx_rows_args rows;
    struct vx_to_dense_device_args to_dense;
};
enum { ACTIVATION, ADD, LAYER_NORM, ROWS_IN, ROWS_OUT, TO_DENSE, KERNELS };
static const char *const names[KERNELS] = {"activation", "add",      "layer_norm",
                                           "rows_in",    "rows_out", "to_dense"};

struct pointwise {
    struct vx_bench *bench;
    i64 n;
    i32 c, cp;
    enum vx_number type;
    void *a, *b, *out, *vector; /* device: (N, cp); vector: (cp) of f32 */
    const i32 *rows;            /* device: (N), or NULL */
    struct vx_jit_wanted wanted[KERNELS];
    i32 kernel; /* the one that is timed */
    union args args;
};

static vx_status pointwise_run(void *context, struct vx_why *why)
{
    struct pointwise *pointwise = context;
    const struct vx_workbench *bench = &pointwise->bench->bench;
    return vx_kernel_launch(bench->set, bench->stream,
                            &pointwise->wanted[pointwise->kernel], &pointwise->args, why);
}

/* Requests have no TF32. */
static i32 number_of(const struct pointwise *at)
{
    return (i32)vx_number_stored(at->type);
}

/* A voxel in every place, in the order of a request: all rows are read. */
static void to_dense_args(struct pointwise *at)
{
    at->args.to_dense = (struct vx_to_dense_device_args){.samples = 1,
                                                         .c = at->c,
                                                         .cp = at->cp,
                                                         .shape = {1, 1, (i32)at->n},
                                                         .number = number_of(at),
                                                         .cells = at->rows,
                                                         .in = at->a,
                                                         .out = at->out};
}

static void pointwise_args(struct pointwise *at)
{
    union args *args = &at->args;
    memset(args, 0, sizeof *args);
    if (at->kernel == ACTIVATION)
        args->activation = (struct vx_activation_device_args){
            at->n, at->cp, VX_ACTIVATION_NONE, at->a, at->out};
    if (at->kernel == ADD)
        args->add = (struct vx_add_device_args){at->n, at->cp, VX_ACTIVATION_NONE,
                                                at->a, at->b,  at->out};
    if (at->kernel == LAYER_NORM)
        args->layer_norm = (struct vx_layer_norm_device_args){.n = at->n,
                                                              .c = at->c,
                                                              .cp = at->cp,
                                                              .eps = LAYER_NORM_EPS,
                                                              .in = at->a,
                                                              .weight = at->vector,
                                                              .bias = at->vector,
                                                              .out = at->out};
    if (at->kernel == ROWS_IN || at->kernel == ROWS_OUT)
        args->rows = (struct vx_rows_args){at->n,    at->c, at->cp, number_of(at),
                                           at->rows, at->a, at->out};
    if (at->kernel == TO_DENSE) to_dense_args(at);
}

static vx_status pointwise_alloc(struct pointwise *at, struct vx_why *why)
{
    struct vx_bench *bench = at->bench;
    struct vx_gpu *gpu = bench->bench.gpu;
    const size_t bytes =
        (size_t)at->n * (size_t)at->cp * (size_t)vx_number_bytes(at->type);
    struct vx_data_target target = {gpu, bench->bench.stream, NULL};
    struct vx_data *data;
    vx_status status = VX_OK;
    VX_TRY(vx_gpu_alloc(gpu, bytes, why, &at->a));
    VX_TRY(vx_gpu_alloc(gpu, bytes, why, &at->b));
    VX_TRY(vx_gpu_alloc(gpu, bytes, why, &at->out));
    VX_TRY(vx_gpu_alloc(gpu, (size_t)at->cp * sizeof(f32), why, &at->vector));
    VX_TRY(vx_data_open(at->type, 1, 1.0f, &data));
    target.memory = at->a;
    VX_TRY_OR(status, out, vx_data_send(data, &target, at->n * at->cp, why));
    target.memory = at->b;
    VX_TRY_OR(status, out, vx_data_send(data, &target, at->n * at->cp, why));
    VX_TRY_OR(status, out,
              vx_gpu_copy_in(gpu, bench->bench.stream,
                             &(struct vx_gpu_copy){at->vector, data->values,
                                                   (size_t)at->cp * sizeof(f32)},
                             why));
    status = vx_gpu_stream_wait(gpu, bench->bench.stream, why);
out:
    vx_data_close(&data);
    return status;
}

static vx_status pointwise_ready(struct pointwise *at, struct vx_why *why)
{
    for (i32 i = 0; i < KERNELS; i++) {
        const struct vx_kernel_spec *spec = vx_kernel_find(names[i]);
        VX_ASSERT(spec);
        bool typed = spec->types >> at->type & 1;
        at->wanted[i] =
            (struct vx_jit_wanted){spec, NULL, typed ? at->type : VX_NUMBER_F32};
    }
    return vx_kernel_set_ready(at->bench->bench.set, at->wanted, KERNELS, NULL, why);
}

static vx_status pointwise_time(struct pointwise *at, struct vx_bench_row *row,
                                struct vx_why *why)
{
    struct vx_harness_timing timing = {
        .run = pointwise_run, .context = at, .graph = true};
    const f64 element = vx_number_bytes(at->type);
    pointwise_args(at);
    row->n = at->n;
    row->ci = row->co = at->cp;
    row->type = at->type;
    row->spec = at->wanted[at->kernel].spec;
    row->bytes = (at->kernel == ADD ? 3 : 2) * element * (f64)at->n * at->cp;
    if (at->rows) row->bytes += 4.0 * (f64)at->n;
    return vx_bench_time(at->bench, &timing, row, why);
}

/* Builds the index of the shell, to use the row order that a request would have. */
static vx_status pointwise_rows(struct pointwise *at, struct vx_why *why)
{
    struct vx_jit_wanted wanted[MAP_KERNELS_MAX];
    const i32 count = vx_gpu_map_kernels(wanted, MAP_KERNELS_MAX);
    const struct vx_conv_problem problem = {.n = at->n,
                                            .kernel = {3, 3, 3},
                                            .v = 27,
                                            .ci = VX_CHANNELS_UNIT,
                                            .co = VX_CHANNELS_UNIT,
                                            .type = at->type};
    VX_TRY(vx_kernel_set_ready(at->bench->bench.set, wanted, count, NULL, why));
    VX_TRY(vx_harness_load(at->bench->harness, &problem, NULL, why));
    at->rows = at->bench->harness->index.rows;
    return VX_OK;
}

static vx_status pointwise_all(struct pointwise *at, const struct vx_bench_set *set,
                               struct vx_why *why)
{
    struct vx_bench_row row = {.what = "copy"};
    VX_TRY(pointwise_ready(at, why));
    VX_TRY(pointwise_alloc(at, why));
    if (!set) {
        at->kernel = ACTIVATION;
        VX_TRY(pointwise_time(at, &row, why));
        at->bench->copy_rate = row.median > 0 ? row.bytes / row.median : 0;
        return VX_OK;
    }
    snprintf(row.shape, sizeof row.shape, "%s:%d", set->name, set->channels);
    for (at->kernel = 0; at->kernel < KERNELS; at->kernel++) {
        if (at->kernel == ROWS_IN) VX_TRY(pointwise_rows(at, why));
        row.what = names[at->kernel];
        VX_TRY(pointwise_time(at, &row, why));
    }
    return VX_OK;
}

vx_status vx_bench_pointwise(struct vx_bench *bench, const struct vx_bench_set *set,
                             struct vx_why *why)
{
    struct pointwise at = {.bench = bench, .type = bench->type};
    /* Only convolutions multiply numbers of 8 bits. */
    if (at.type == VX_NUMBER_E4M3) at.type = VX_NUMBER_F16;
    struct vx_why second;
    at.c = set ? set->channels : COPY_CHANNELS;
    at.cp = vx_channels_padded(at.c);
    at.n = set ? set->n
               : (bench->bench.fake ? COPY_BYTES_FAKE : COPY_BYTES) /
                     (at.cp * vx_number_bytes(at.type));
    vx_status status = pointwise_all(&at, set, why);
    void **const all[] = {&at.a, &at.b, &at.out, &at.vector};
    vx_status end = vx_gpu_stream_wait(bench->bench.gpu, bench->bench.stream, &second);
    (void)end; /* `status` already reports a lost device */
    for (size_t i = 0; i < VX_COUNT(all); i++)
        if (*all[i]) vx_gpu_free(bench->bench.gpu, all[i]);
    return status;
}
