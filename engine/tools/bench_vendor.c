/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/bench.h"

#include "engine/tune/data.h"

#include <stdio.h>

struct vendor {
    struct vx_bench *bench;
    struct vx_blas_product product;
    void *left, *right, *out; /* device */
};

static vx_status vendor_run(void *context, struct vx_why *why)
{
    struct vendor *at = context;
    return vx_blas_gpu_multiply(at->bench->blas, at->bench->bench.stream, &at->product,
                                why);
}

/* Zeros would be multiplied faster than numbers. */
static vx_status vendor_fill(struct vendor *at, void **memory, i64 elements,
                             struct vx_why *why)
{
    const struct vx_workbench *bench = &at->bench->bench;
    const enum vx_number type = at->product.type;
    struct vx_data_target target = {bench->gpu, bench->stream, NULL};
    struct vx_data *data;
    VX_TRY(vx_gpu_alloc(bench->gpu, (size_t)elements * (size_t)vx_number_bytes(type), why,
                        memory));
    VX_TRY(vx_data_open(type, 1, 1.0f, &data));
    target.memory = *memory;
    vx_status status = vx_data_send(data, &target, elements, why);
    if (!status.fault) status = vx_gpu_stream_wait(bench->gpu, bench->stream, why);
    vx_data_close(&data);
    return status;
}

static vx_status vendor_time(struct vendor *at, const struct vx_bench_product *wanted,
                             struct vx_why *why, f64 *rate)
{
    struct vx_blas_product *product = &at->product;
    struct vx_harness_timing timing = {.run = vendor_run, .context = at};
    struct vx_bench_row row = {.what = "vendor",
                               .n = product->rows,
                               .ci = product->depth,
                               .co = product->columns,
                               .v = 1,
                               .type = product->type};
    VX_TRY(vendor_fill(at, &at->left, product->rows * product->depth, why));
    VX_TRY(vendor_fill(at, &at->right, (i64)product->depth * product->columns, why));
    VX_TRY(vx_gpu_alloc(at->bench->bench.gpu,
                        (size_t)product->rows * (size_t)product->columns * sizeof(f32),
                        why, &at->out));
    product->left = at->left;
    product->right = at->right;
    product->out = at->out;
    snprintf(row.shape, sizeof row.shape, "%s", wanted->shape);
    row.flops_useful = row.flops_executed =
        2.0 * (f64)product->rows * product->depth * product->columns;
    VX_TRY(vx_bench_time(at->bench, &timing, &row, why));
    *rate = row.median > 0 ? row.flops_useful / row.median : 0;
    return VX_OK;
}

vx_status vx_bench_vendor(struct vx_bench *bench, const struct vx_bench_product *wanted,
                          struct vx_why *why, f64 *rate)
{
    struct vendor at = {
        .bench = bench,
        .product = {.rows = wanted->rows,
                    .depth = wanted->depth,
                    .columns = wanted->columns,
                    .type = bench->type == VX_NUMBER_E4M3 ? VX_NUMBER_F16 : bench->type}};
    struct vx_why second;
    *rate = 0;
    if (!bench->blas) return VX_OK;
    vx_status status = vendor_time(&at, wanted, why, rate);
    vx_status end = vx_gpu_stream_wait(bench->bench.gpu, bench->bench.stream, &second);
    (void)end; /* `status` already reports a lost device */
    void **const all[] = {&at.left, &at.right, &at.out};
    for (size_t i = 0; i < VX_COUNT(all); i++)
        if (*all[i]) vx_gpu_free(bench->bench.gpu, all[i]);
    return status;
}
