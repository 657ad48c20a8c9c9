/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"

#include <string.h>

/* The least Ci * Co for which a BLAS pays for its copies. */
#define BLAS_CHANNELS_MIN (32 * 32)

/* A linear layer is a convolution of one offset: each row is its own neighbour. */
struct conv {
    struct vx_conv_args args; /* nbr NULL: each row is its own neighbour */
    struct vx_cpu *cpu;
    i32 blas_rows; /* height of a BLAS panel */
};

/* Lists the pairs of offset v and rows [begin, end) in `work`; rows of out count from
 * begin.  Returns their number. */
static i64 conv_pairs(const struct conv *conv, struct vx_work *work, i32 v, i64 begin,
                      i64 end)
{
    i64 count = 0;
    if (!conv->args.nbr) {
        for (; count < end - begin; count++) {
            work->in_rows[count] = (i32)(begin + count);
            work->out_rows[count] = (i32)count;
        }
        return count;
    }
    const i32 *nbr = conv->args.nbr + v * conv->args.n;
    for (i64 i = begin; i < end; i++) {
        work->in_rows[count] = nbr[i];
        work->out_rows[count] = (i32)(i - begin);
        count += nbr[i] >= 0;
    }
    return count;
}

/* Sets every row of out to the bias. */
static void conv_bias(const f32 *bias, i32 columns, f32 *out, i64 rows, i64 stride)
{
    for (i64 r = 0; r < rows; r++) {
        if (bias)
            memcpy(out + r * stride, bias, (size_t)columns * sizeof *out);
        else
            memset(out + r * stride, 0, (size_t)columns * sizeof *out);
    }
}

/* Copies columns [first, first + columns) of `depth` rows of a weight into a dense panel,
 * padded with zeros to a whole number of vectors. */
static void pack_panel(const struct vx_conv_args *args, struct vx_product *product,
                       i32 first, i32 columns, f32 *panel)
{
    size_t bytes = (size_t)columns * sizeof *panel;
    size_t bytes_zero = (size_t)(product->columns - columns) * sizeof *panel;
    const f32 *weight = product->weight + first;
    for (i32 k = 0; k < product->depth; k++) {
        memcpy(panel + k * product->columns, weight + (i64)k * args->co, bytes);
        memset(panel + k * product->columns + columns, 0, bytes_zero);
    }
    product->weight = panel;
    product->weight_stride = product->columns;
}

/* Products between two words that a tile goes on: 0.1 to 0.3 ms of a core. */
#define GOES_ON_PRODUCTS (INT64_C(1) << 22)

/* With 1,536 channels a tile takes up to a second, so the thread that spreads says within it, too, that
 * it goes on, and a brief request passes there.  Tiles of fewer rows would read all weights more often:
 * 32 rows took twice as long. */
static void tile_goes_on(const struct conv *conv, struct vx_work *work, i64 products)
{
    if (work != conv->cpu->works) return;
    work->untold += products;
    if (work->untold < GOES_ON_PRODUCTS) return;
    work->untold = 0;
    vx_cpu_go_on(conv->cpu);
}

/* Computes one tile of rows and one panel of columns: all offsets, all channels. */
static void conv_block(const struct conv *conv, struct vx_work *work, i64 begin, i64 end,
                       struct vx_product *product)
{
    const struct vx_conv_args *args = &conv->args;
    i32 first = (i32)(product->weight - args->weight);
    i32 columns =
        args->co - first < VX_PANEL_COLUMNS ? args->co - first : VX_PANEL_COLUMNS;
    bool packed = product->columns != args->co;
    for (i32 v = 0; v < args->v; v++) {
        product->pairs = conv_pairs(conv, work, v, begin, end);
        if (!product->pairs) continue;
        for (i32 k = 0; k < args->ci; k += VX_PANEL_ROWS) {
            product->depth = args->ci - k < VX_PANEL_ROWS ? args->ci - k : VX_PANEL_ROWS;
            product->in = args->in + k;
            product->weight = args->weight + ((i64)v * args->ci + k) * args->co;
            product->weight_stride = args->co;
            if (packed) pack_panel(args, product, first, columns, work->panel);
            conv->cpu->loops->multiply(product);
            tile_goes_on(conv, work, product->pairs * product->depth * product->columns);
        }
    }
}

static void conv_tile(void *context, i32 worker, i64 begin, i64 end)
{
    const struct conv *conv = context;
    const struct vx_conv_args *args = &conv->args;
    const struct vx_loops *loops = conv->cpu->loops;
    struct vx_work *work = &conv->cpu->works[worker];
    i64 rows = end - begin;
    for (i32 first = 0; first < args->co; first += VX_PANEL_COLUMNS) {
        i32 columns =
            args->co - first < VX_PANEL_COLUMNS ? args->co - first : VX_PANEL_COLUMNS;
        i32 padded = (columns + loops->lanes - 1) / loops->lanes * loops->lanes;
        /* Rows that are whole vectors are summed in the output itself, others in the
         * workspace: a vector must not reach into the next row, which another thread may
         * be writing. */
        bool direct = padded == args->co;
        f32 *block = direct ? args->out + begin * args->out_stride : work->block;
        const i64 stride = direct ? args->out_stride : padded;
        struct vx_product product = {
            .in_rows = work->in_rows,
            .out_rows = work->out_rows,
            .in_stride = args->in_stride,
            .weight = args->weight + first,
            .columns = padded,
            .out = block,
            .out_stride = stride,
        };
        if (padded != columns) memset(block, 0, (size_t)(rows * padded) * sizeof *block);
        conv_bias(args->bias ? args->bias + first : NULL, columns, block, rows, stride);
        conv_block(conv, work, begin, end, &product);
        vx_rows_activate(loops, args->activation,
                         &(struct vx_rows){block, rows, stride, padded});
        for (i64 r = 0; r < rows && !direct; r++)
            memcpy(args->out + (begin + r) * args->out_stride + first, block + r * padded,
                   (size_t)columns * sizeof *block);
    }
}

/* Copies the rows in_rows[p] of the input into a panel, padded with rows of zeros.  The
 * BLAS gets the same sizes each time, so the bits of a row depend on no other row. */
static void blas_gather(const struct conv *conv, const i32 *in_rows, i64 count,
                        f32 *panel)
{
    size_t ci = (size_t)conv->args.ci;
    for (i64 p = 0; p < count; p++)
        memcpy(panel + (size_t)p * ci,
               conv->args.in + (i64)in_rows[p] * conv->args.in_stride,
               ci * sizeof *panel);
    memset(panel + (size_t)count * ci, 0,
           (size_t)(conv->blas_rows - count) * ci * sizeof *panel);
}

static void blas_scatter(const struct conv *conv, const i32 *out_rows, i64 count,
                         const f32 *product, f32 *out)
{
    i32 co = conv->args.co;
    for (i64 p = 0; p < count; p++) {
        f32 *row = out + (i64)out_rows[p] * conv->args.out_stride;
        conv->cpu->loops->add(product + p * co, row, row, co);
    }
}

static void blas_tile(void *context, i32 worker, i64 begin, i64 end)
{
    const struct conv *conv = context;
    const struct vx_conv_args *args = &conv->args;
    struct vx_work *work = &conv->cpu->works[worker];
    f32 *out = args->out + begin * args->out_stride;
    f32 *gathered = work->blas;
    f32 *result = work->blas + (size_t)conv->blas_rows * (size_t)args->ci;
    conv_bias(args->bias, args->co, out, end - begin, args->out_stride);
    for (i32 v = 0; v < args->v; v++) {
        i64 pairs = conv_pairs(conv, work, v, begin, end);
        for (i64 p = 0; p < pairs; p += conv->blas_rows) {
            i64 count = pairs - p < conv->blas_rows ? pairs - p : conv->blas_rows;
            blas_gather(conv, work->in_rows + p, count, gathered);
            const f32 *weight = args->weight + (i64)v * args->ci * args->co;
            const struct vx_blas_product product = {conv->blas_rows, args->co, args->ci,
                                                    gathered,        weight,   result};
            vx_blas_multiply(&conv->cpu->blas, &product);
            blas_scatter(conv, work->out_rows + p, count, result, out);
            tile_goes_on(conv, work, (i64)conv->blas_rows * args->ci * args->co);
        }
    }
    vx_rows_activate(conv->cpu->loops, args->activation,
                     &(struct vx_rows){out, end - begin, args->out_stride, args->co});
}

/* The channels of out that are computed together: a panel of one group. */
struct slice {
    i32 in_first;  /* channel of in where the group begins */
    i32 out_first; /* channel of out */
    i32 columns;
};

/* What fits into a block side by side, `width` columns each. */
struct slices {
    i32 count, width;
    struct slice list[VX_PANEL_COLUMNS];
};

/* Groups are one after the other, and in a group panels. */
static struct slice slice_of(const struct vx_conv_args *args, i32 index)
{
    i32 co = args->co / args->groups;
    i32 panels = (co + VX_PANEL_COLUMNS - 1) / VX_PANEL_COLUMNS;
    i32 group = index / panels;
    i32 first = index % panels * VX_PANEL_COLUMNS;
    return (struct slice){
        .in_first = group * (args->ci / args->groups),
        .out_first = group * co + first,
        .columns = co - first < VX_PANEL_COLUMNS ? co - first : VX_PANEL_COLUMNS,
    };
}

/* Adds the pairs of one offset to a slice of the block.  No sum mixes groups: zeros in
 * place of the other groups' weights would be fewer products, but a NaN of one group
 * would reach the next. */
static void slice_multiply(const struct conv *conv, struct vx_product *product, i32 v,
                           const struct slice *slice, f32 *panel)
{
    const struct vx_conv_args *args = &conv->args;
    i32 depth = args->ci / args->groups;
    for (i32 k = 0; k < depth; k += VX_PANEL_ROWS) {
        product->depth = depth - k < VX_PANEL_ROWS ? depth - k : VX_PANEL_ROWS;
        product->in = args->in + slice->in_first + k;
        product->weight = args->weight + ((i64)v * depth + k) * args->co;
        pack_panel(args, product, slice->out_first, slice->columns, panel);
        conv->cpu->loops->multiply(product);
    }
}

static void slice_copy(const struct vx_conv_args *args, const struct slice *slice,
                       const f32 *block, i64 begin, i64 end)
{
    for (i64 i = begin; i < end; i++, block += VX_PANEL_COLUMNS)
        memcpy(args->out + i * args->out_stride + slice->out_first, block,
               (size_t)slice->columns * sizeof *block);
}

/* Computes some slices of a tile: the pairs of an offset are listed once for all of them. */
static void slices_run(const struct conv *conv, struct vx_work *work, i64 begin, i64 end,
                       const struct slices *slices)
{
    const struct vx_conv_args *args = &conv->args;
    struct vx_product product = {
        .in_rows = work->in_rows,
        .out_rows = work->out_rows,
        .in_stride = args->in_stride,
        .columns = slices->width,
        .out_stride = VX_PANEL_COLUMNS,
    };
    i64 rows = end - begin;
    memset(work->block, 0, (size_t)rows * VX_PANEL_COLUMNS * sizeof *work->block);
    for (i32 s = 0; s < slices->count; s++) {
        const struct slice *slice = &slices->list[s];
        conv_bias(args->bias ? args->bias + slice->out_first : NULL, slice->columns,
                  work->block + s * slices->width, rows, VX_PANEL_COLUMNS);
    }
    for (i32 v = 0; v < args->v; v++) {
        product.pairs = conv_pairs(conv, work, v, begin, end);
        for (i32 s = 0; s < slices->count && product.pairs; s++) {
            product.out = work->block + s * slices->width;
            slice_multiply(conv, &product, v, &slices->list[s], work->panel);
            tile_goes_on(conv, work,
                         product.pairs * (args->ci / args->groups) * slices->width);
        }
    }
    conv->cpu->loops->activate(args->activation, work->block, work->block,
                               rows * VX_PANEL_COLUMNS);
    for (i32 s = 0; s < slices->count; s++)
        slice_copy(args, &slices->list[s], work->block + s * slices->width, begin, end);
}

static void groups_tile(void *context, i32 worker, i64 begin, i64 end)
{
    const struct conv *conv = context;
    const struct vx_conv_args *args = &conv->args;
    i32 lanes = conv->cpu->loops->lanes;
    i32 co = args->co / args->groups;
    i32 total = (co + VX_PANEL_COLUMNS - 1) / VX_PANEL_COLUMNS * args->groups;
    struct slices slices;
    slices.width =
        co < VX_PANEL_COLUMNS ? (co + lanes - 1) / lanes * lanes : VX_PANEL_COLUMNS;
    for (i32 done = 0; done < total;) {
        slices.count = 0;
        while (slices.count < VX_PANEL_COLUMNS / slices.width && done < total)
            slices.list[slices.count++] = slice_of(args, done++);
        slices_run(conv, &conv->cpu->works[worker], begin, end, &slices);
    }
}

static void depthwise_task(void *context, i32 worker, i64 begin, i64 end)
{
    const struct conv *conv = context;
    const struct vx_conv_args *args = &conv->args;
    struct vx_work *work = &conv->cpu->works[worker];
    struct vx_gathered gathered = {.c = args->co,
                                   .rows = work->in_rows,
                                   .in = args->in,
                                   .stride = args->in_stride,
                                   .offsets = work->out_rows,
                                   .weight = args->weight,
                                   .bias = args->bias};
    for (i64 i = begin; i < end; i++) {
        gathered.count = vx_gather_list(args->nbr + i, args->n, args->v, work->in_rows,
                                        work->out_rows);
        conv->cpu->loops->depthwise(&gathered, args->out + i * args->out_stride);
    }
    vx_rows_activate(conv->cpu->loops, args->activation,
                     &(struct vx_rows){args->out + begin * args->out_stride, end - begin,
                                       args->out_stride, args->co});
}

/* Rows of the largest panel that fits: a multiple of 16 leaves BLAS code no remainder. */
static i32 blas_rows(const struct vx_conv_args *args)
{
    i32 rows = VX_BLAS_FLOATS / (args->ci + args->co) / 16 * 16;
    return rows < VX_BLAS_ROWS_MAX ? rows : VX_BLAS_ROWS_MAX;
}

/* Whether a BLAS multiplies.  The choice depends on the layer and the machine only, so
 * that the bits of a row never depend on the batch.  Our loops read rows and add products
 * in place; a BLAS needs both copied.  With vectors of 8 or 16 the loops are faster (3^3,
 * one core, GFLOP/s):
 *
 *           loops   OpenBLAS
 *   C 16       75         36
 *   C 64       96         60
 *   C 256      94         58
 *
 * With vectors of 4 they reach 34, and a BLAS is faster (60) once a layer is wide enough
 * to pay for the copies. */
static bool use_blas(const struct vx_cpu *cpu, i32 ci, i32 co)
{
    if (cpu->multiplier != VX_MULTIPLIER_AUTO)
        return cpu->multiplier == VX_MULTIPLIER_BLAS;
    return cpu->blas.sgemm && (i64)ci * co >= BLAS_CHANNELS_MIN;
}

const char *vx_cpu_multiplier(const struct vx_cpu *cpu, i32 ci, i32 co)
{
    return use_blas(cpu, ci, co) ? cpu->blas.name : cpu->loops->name;
}

const char *vx_cpu_loops_name(const struct vx_cpu *cpu)
{
    return cpu->loops->name;
}

/* Small sets are cut finer, so that every thread has work; no row's bits change. */
static i64 tile_rows(const struct vx_cpu *cpu, i64 n)
{
    i64 rows = n / (4 * (i64)vx_cpu_threads(cpu));
    rows = (rows + 15) / 16 * 16;
    if (rows > VX_TILE_ROWS_MAX) return VX_TILE_ROWS_MAX;
    return rows < 32 ? 32 : rows;
}

static void conv_check(const struct vx_conv_args *args)
{
    VX_ASSERT(args->v >= 1);
    VX_ASSERT(args->v <= VX_KERNEL_OFFSETS_MAX);
    VX_ASSERT(args->ci >= 1);
    VX_ASSERT(args->ci <= VX_CHANNELS_MAX);
    VX_ASSERT(args->co >= 1);
    VX_ASSERT(args->co <= VX_CHANNELS_MAX);
    VX_ASSERT(args->n >= 0);
    VX_ASSERT(args->n <= VX_VOXELS_MAX);
}

static struct vx_conv_args with_strides(const struct vx_conv_args *args)
{
    struct vx_conv_args full = *args;
    if (!full.in_stride) full.in_stride = full.ci;
    if (!full.out_stride) full.out_stride = full.co;
    VX_ASSERT(full.in_stride >= full.ci);
    VX_ASSERT(full.out_stride >= full.co);
    return full;
}

static void conv_run(struct vx_cpu *cpu, const struct vx_conv_args *args, i64 rows)
{
    struct conv conv = {with_strides(args), cpu, blas_rows(args)};
    bool blas = use_blas(cpu, args->ci, args->co);
    vx_pool_spread(cpu->pool, &(struct vx_pool_job){rows, tile_rows(cpu, rows),
                                                    blas ? blas_tile : conv_tile, &conv});
}

/* A BLAS is never used: it pays for wide layers only, and a group is narrow. */
static void groups_run(struct vx_cpu *cpu, const struct vx_conv_args *args, i64 rows)
{
    VX_ASSERT(args->ci % args->groups == 0);
    VX_ASSERT(args->co % args->groups == 0);
    struct conv conv = {with_strides(args), cpu, 0};
    struct vx_pool_job job = {rows, tile_rows(cpu, rows), groups_tile, &conv};
    if (args->groups == args->ci && args->ci == args->co) {
        job.grain = vx_piece_rows(args->co);
        job.task = depthwise_task;
    }
    vx_pool_spread(cpu->pool, &job);
}

void vx_cpu_conv(struct vx_cpu *cpu, const struct vx_conv_args *args)
{
    vx_cpu_conv_rows(cpu, args, args->n);
}

void vx_cpu_conv_rows(struct vx_cpu *cpu, const struct vx_conv_args *args, i64 rows)
{
    VX_ASSERT(args->nbr || !args->n);
    VX_ASSERT(rows <= args->n);
    conv_check(args);
    if (args->groups > 1)
        groups_run(cpu, args, rows);
    else
        conv_run(cpu, args, rows);
}

void vx_cpu_linear(struct vx_cpu *cpu, const struct vx_linear_args *args)
{
    const struct vx_conv_args conv = {
        .n = args->n,
        .v = 1,
        .ci = args->ci,
        .co = args->co,
        .in = args->in,
        .weight = args->weight,
        .bias = args->bias,
        .activation = args->activation,
        .out = args->out,
        .in_stride = args->in_stride,
        .out_stride = args->out_stride,
    };
    conv_check(&conv);
    conv_run(cpu, &conv, conv.n);
}
