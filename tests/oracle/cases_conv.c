/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"
#include "engine/tune/oracle.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <math.h>
#include <string.h>

/* The guard around an output: longer than any vector store. */
#define GUARD  256
#define POISON 0x7fff7fffu
/* The most products that the host sums again in double for one table row: a tenth of a second. */
#define PRODUCTS_MAX       INT64_C(100000000)
#define PRODUCTS_MAX_SMALL INT64_C(2000000)
/* A curve's slope is 1.13 at most (gelu), and its own error below 2^-19 (cases_pointwise.c). */
#define SLOPE 1.13
#define CURVE 0x1p-19

/* One row of the table. */
struct layer {
    enum vx_cloud_kind kind;
    i64 n;
    i32 kernel[3], dilation;
    i32 ci, co;
};

/* Rows that are parts of longer ones: elements of poison behind the channels of each. */
struct gaps {
    i32 in, residual, out;
};

/* A layer loaded on the device, and what its sampled rows should become. */
struct conv {
    struct vx_rig *rig;
    struct vx_harness *stand;
    const struct layer *layer;
    struct vx_blas_gpu *blas; /* the vendor's, or NULL */
    i32 variant;              /* which bias, residual, activation, gaps */
    struct gaps gaps;
    void *residual;
    void *spread[2];   /* features and residual as the device gets them */
    i64 samples, step; /* every step-th row, and the last */
    f64 *truth;        /* (samples, co) ahead of the curve */
    void *accepted;    /* the first right answer, in all bits */
    struct vx_oracle_bounds bounds;
    bool all_tiles; /* else the first two that fit */
};

static enum vx_activation activation_of(const struct conv *conv)
{
    return (enum vx_activation)(conv->variant % 5);
}

static i64 sample_row(const struct conv *conv, i64 sample)
{
    i64 row = sample * conv->step;
    return row < conv->layer->n ? row : conv->layer->n - 1;
}

static size_t rows_bytes(const struct conv *conv, i32 channels, i32 gap)
{
    const struct vx_conv_problem *problem = &conv->stand->problem;
    return (size_t)problem->n * (size_t)(channels + gap) *
           (size_t)vx_number_bytes(problem->type);
}

static struct vx_conv_strides strides_of(const struct conv *conv)
{
    return (struct vx_conv_strides){conv->layer->ci + conv->gaps.in,
                                    conv->layer->co + conv->gaps.residual,
                                    conv->layer->co + conv->gaps.out};
}

/* --- the expected values --- */

static f64 *reals_of(struct vx_rig *rig, const struct vx_data *data, i64 count)
{
    f64 *reals = vx_rig_take(rig, (size_t)count * sizeof *reals);
    for (i64 e = 0; e < count; e++) reals[e] = vx_data_at(data, e);
    return reals;
}

static void truth_row(const struct conv *conv, const i32 *nbr, const f64 *reals[2],
                      f64 *sums)
{
    const struct vx_conv_problem *problem = &conv->stand->problem;
    for (i32 v = 0; v < problem->v; v++) {
        if (nbr[v] < 0) continue;
        for (i64 c = 0; c < problem->ci; c++) {
            const f64 x = reals[0][(i64)nbr[v] * problem->ci + c];
            const f64 *w = reals[1] + (v * (i64)problem->ci + c) * problem->co;
            for (i32 o = 0; o < problem->co; o++) sums[o] += x * w[o];
        }
    }
}

/* Sums over the map that the device built, which cases_map.c has checked. */
static void truth_make(struct conv *conv)
{
    struct vx_rig *rig = conv->rig;
    struct vx_harness *stand = conv->stand;
    const struct vx_conv_problem *problem = &stand->problem;
    const i64 n = problem->n, stride = problem->v > 1 ? stand->map.nbr_stride : 1;
    const i64 most = rig->size == VX_RIG_FULL ? PRODUCTS_MAX : PRODUCTS_MAX_SMALL;
    const i64 row_products = (i64)problem->v * problem->ci * problem->co;
    struct vx_why why = {""};
    i32 *nbr = vx_rig_take(rig, (size_t)(n * stride) * sizeof *nbr);
    for (i64 i = 0; i < n; i++) nbr[i * stride] = (i32)i; /* V is 1 */
    if (problem->v > 1)
        vx_rig_need(
            rig,
            vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                            &(struct vx_gpu_copy){nbr, stand->map.nbr,
                                                  (size_t)(n * stride) * sizeof *nbr},
                            &why),
            &why);
    vx_rig_need(rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
    const f64 *reals[2] = {
        reals_of(rig, stand->in_data, n * problem->ci),
        reals_of(rig, stand->weight_data, (i64)problem->v * problem->ci * problem->co)};
    /* An odd step, which no tile's height divides. */
    conv->step = n * row_products <= most ? 1 : n * row_products / most * 2 + 1;
    conv->samples = (n - 1 + conv->step - 1) / conv->step + 1;
    conv->truth = vx_rig_take(rig, (size_t)(conv->samples * problem->co) * sizeof(f64));
    for (i64 s = 0; s < conv->samples; s++) {
        i64 row = sample_row(conv, s);
        f64 *sums = conv->truth + s * problem->co;
        truth_row(conv, nbr + row * stride, reals, sums);
        for (i32 o = 0; o < problem->co; o++) {
            if (conv->variant & 1) sums[o] += (f64)stand->in_data->values[o];
            if (conv->variant & 2)
                sums[o] += vx_number_ref_read(conv->residual, problem->type,
                                              row * problem->co + o);
        }
    }
}

/* --- the comparison --- */

static void conv_fail(const struct conv *conv, const char *what, i64 row, f64 got)
{
    const struct vx_harness *stand = conv->stand;
    const struct vx_conv_problem *problem = &stand->problem;
    const struct vx_tile *tile =
        &vx_conv_spec(stand->choice.algorithm)->tiles[stand->choice.tile];
    vx_rig_fail(
        conv->rig,
        "%s [%d,%d,%d,%d] type %d, N=%lld V=%d %dx%d kind %d variant %d: %s at row "
        "%lld, got %.9g",
        vx_conv_name(stand->choice.algorithm), tile->values[0], tile->values[1],
        tile->values[2], tile->values[3], (int)problem->type, (long long)problem->n,
        problem->v, problem->ci, problem->co, (int)conv->layer->kind, conv->variant, what,
        (long long)row, got);
}

static bool compare_samples(const struct conv *conv, const void *answer)
{
    const struct vx_conv_problem *problem = &conv->stand->problem;
    f64 power = 0, error = 0;
    for (i64 s = 0; s < conv->samples; s++) {
        i64 row = sample_row(conv, s);
        for (i32 o = 0; o < problem->co; o++) {
            f64 sum = conv->truth[s * problem->co + o];
            f64 truth = vx_activation_ref_one(activation_of(conv), sum);
            f64 got = vx_number_ref_read(answer, problem->type, row * problem->co + o);
            f64 bound = conv->bounds.round * fabs(truth) + SLOPE * conv->bounds.sum +
                        CURVE +
                        (vx_number_stored(problem->type) == VX_NUMBER_F16 ? 0x1p-25 : 0);
            if (!(fabs(got - truth) <= bound)) {
                conv_fail(conv, "outside its bound", row, got);
                return false;
            }
            power += truth * truth;
            error += (got - truth) * (got - truth);
        }
    }
    const f64 count = (f64)(conv->samples * problem->co);
    if (error <= 2 * conv->bounds.nmse * power + count * CURVE * CURVE) return true;
    conv_fail(conv, "NMSE too large", -1, error / power);
    return false;
}

/* Rows that were not sampled are compared with an answer whose samples were right. */
static bool compare_accepted(const struct conv *conv, const void *answer)
{
    const struct vx_conv_problem *problem = &conv->stand->problem;
    for (i64 e = 0; e < problem->n * problem->co; e++) {
        f64 trusted = vx_number_ref_read(conv->accepted, problem->type, e);
        f64 got = vx_number_ref_read(answer, problem->type, e);
        f64 bound = 2 * (conv->bounds.round * fabs(trusted) + SLOPE * conv->bounds.sum +
                         CURVE + 0x1p-25);
        if (fabs(got - trusted) <= bound) continue;
        conv_fail(conv, "far from another right answer", e / problem->co, got);
        return false;
    }
    return true;
}

/* Puts the rows of an output beside each other; false: something is written between them. */
static bool compact(const struct conv *conv, u8 *rows)
{
    const struct vx_conv_problem *problem = &conv->stand->problem;
    const size_t element = (size_t)vx_number_bytes(problem->type);
    const size_t row = (size_t)problem->co * element;
    const size_t gap = (size_t)conv->gaps.out * element;
    const u32 poison = POISON;
    for (i64 i = 0; gap && i < problem->n; i++) {
        const u8 *from = rows + (size_t)i * (row + gap);
        for (size_t at = 0; at < gap; at += 4)
            if (memcmp(from + row + at, &poison, 4) != 0) {
                conv_fail(conv, "wrote between rows", i, 0);
                return false;
            }
        memmove(rows + (size_t)i * row, from, row);
    }
    return true;
}

static void compare(struct conv *conv, u8 *back)
{
    const size_t bytes = vx_harness_out_bytes(conv->stand);
    const size_t wide = rows_bytes(conv, conv->layer->co, conv->gaps.out);
    const u32 poison = POISON;
    for (size_t at = 0; at < GUARD; at += 4)
        if (memcmp(back + at, &poison, 4) != 0 ||
            memcmp(back + GUARD + wide + at, &poison, 4) != 0) {
            conv_fail(conv, "wrote outside its output", (i64)at - GUARD, 0);
            return;
        }
    if (!compact(conv, back + GUARD)) return;
    if (conv->accepted && !memcmp(conv->accepted, back + GUARD, bytes)) return;
    if (!compare_samples(conv, back + GUARD)) return;
    if (conv->accepted) {
        (void)compare_accepted(conv, back + GUARD);
        return;
    }
    conv->accepted = vx_rig_take(conv->rig, bytes);
    memcpy(conv->accepted, back + GUARD, bytes);
}

/* --- launches --- */

/* The rows of a tensor on the host with a gap behind each. */
static void *spread(const struct conv *conv, const void *rows, i32 channels, i32 gap)
{
    const size_t element = (size_t)vx_number_bytes(conv->stand->problem.type);
    const size_t row = (size_t)channels * element, step = row + (size_t)gap * element;
    const size_t bytes = rows_bytes(conv, channels, gap);
    u8 *made = vx_rig_take(conv->rig, bytes);
    vx_rig_poison(made, bytes);
    for (i64 i = 0; i < conv->stand->problem.n; i++)
        memcpy(made + (size_t)i * step, (const u8 *)rows + (size_t)i * row, row);
    return made;
}

/* Reads the features that the harness made, and spreads them. */
static void *spread_feats(const struct conv *conv)
{
    struct vx_harness *stand = conv->stand;
    struct vx_why why = {""};
    const size_t bytes = rows_bytes(conv, stand->problem.ci, 0);
    void *rows = vx_rig_take(conv->rig, bytes);
    vx_rig_need(conv->rig,
                vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                                &(struct vx_gpu_copy){rows, stand->in, bytes}, &why),
                &why);
    vx_rig_need(conv->rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why),
                &why);
    return spread(conv, rows, stand->problem.ci, conv->gaps.in);
}

static void send(const struct conv *conv, void *to, const void *from, size_t bytes)
{
    struct vx_harness *stand = conv->stand;
    struct vx_why why = {""};
    vx_rig_need(conv->rig,
                vx_gpu_copy_in(stand->gpu, stand->queue.stream,
                               &(struct vx_gpu_copy){to, from, bytes}, &why),
                &why);
}

static void conv_run(struct conv *conv, struct vx_blas_gpu *blas, u8 *back)
{
    struct vx_rig *rig = conv->rig;
    struct vx_harness *stand = conv->stand;
    struct vx_conv_problem problem = stand->problem;
    const size_t bytes = rows_bytes(conv, problem.co, conv->gaps.out);
    const size_t residual = rows_bytes(conv, problem.co, conv->gaps.residual);
    const size_t in = rows_bytes(conv, problem.ci, conv->gaps.in);
    const size_t residual_at = vx_round_up(2 * GUARD + bytes, GUARD);
    const size_t in_at = vx_round_up(residual_at + residual, GUARD);
    struct vx_why why = {""};
    u8 *device = vx_rig_device(rig, in_at + in);
    const struct vx_gpu_queue on = {
        .set = stand->queue.set, .stream = stand->queue.stream, .blas = blas};
    const struct vx_conv_operands operands = {
        .map = stand->problem.v > 1 ? &stand->map : NULL,
        .in = device + in_at,
        .weight = stand->weight,
        .tiled = stand->tiled,
        .scale = stand->column_scale,
        .bias = conv->variant & 1 ? stand->bias : NULL,
        .residual = conv->variant & 2 ? device + residual_at : NULL,
        .out = device + GUARD,
        .activation = activation_of(conv),
        .workspace = stand->workspace};
    vx_rig_need(rig, vx_oracle_poison(stand, &why), &why);
    vx_rig_need(rig,
                vx_gpu_fill(stand->gpu, stand->queue.stream,
                            &(struct vx_gpu_words){device, POISON, residual_at}, &why),
                &why);
    send(conv, device + residual_at, conv->spread[1], residual);
    send(conv, device + in_at, conv->spread[0], in);
    problem.strides = strides_of(conv);
    vx_rig_need(rig, vx_conv_launch(&on, &problem, &stand->choice, &operands, &why),
                &why);
    vx_rig_need(rig,
                vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                                &(struct vx_gpu_copy){back, device, 2 * GUARD + bytes},
                                &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
}

static void conv_choice(struct conv *conv, const struct vx_conv_choice *choice, u8 *back)
{
    struct vx_rig *rig = conv->rig;
    struct vx_jit_wanted wanted[VX_CONV_KERNELS_MAX];
    struct vx_why why = {""};
    vx_rig_need(rig, vx_harness_use(conv->stand, choice, &why), &why);
    if (!conv->truth) truth_make(conv);
    rig->trials++;
    i32 count = vx_conv_kernels(&conv->stand->problem, choice, wanted);
    for (i32 k = 0; k < count; k++) vx_rig_mark(rig, &wanted[k]);
    conv_run(conv, NULL, back);
    compare(conv, back);
    /* With the vendor's product the tile has no effect: one run is enough. */
    if (!conv->blas || choice->algorithm != VX_CONV_EXPLICIT) return;
    conv_run(conv, conv->blas, back);
    compare(conv, back);
    conv->blas = NULL;
}

/* A layer in one type: every algorithm, every tile. */
static void conv_case(const struct conv *given, enum vx_number type)
{
    struct conv conv = *given;
    struct vx_rig *rig = conv.rig;
    struct vx_harness *stand = conv.stand;
    const struct layer *layer = conv.layer;
    const i32 *size = layer->kernel;
    const struct vx_conv_problem problem = {.n = layer->n,
                                            .kernel = {size[0], size[1], size[2]},
                                            .v = size[0] * size[1] * size[2],
                                            .ci = layer->ci,
                                            .co = layer->co,
                                            .type = type,
                                            .strides = strides_of(&conv)};
    struct vx_cloud cloud;
    struct vx_why why = {""};
    vx_cloud_make(rig, layer->kind, layer->n, &cloud);
    const struct vx_harness_geometry geometry = {
        cloud.coords, {layer->dilation, layer->dilation, layer->dilation}};
    vx_rig_need(rig, vx_harness_load(stand, &problem, &geometry, &why), &why);
    conv.bounds = vx_oracle_bounds(type, problem.v, problem.ci);
    conv.residual = vx_rig_reals(rig, type, layer->n * layer->co, 1);
    conv.spread[0] = spread_feats(&conv);
    conv.spread[1] = spread(&conv, conv.residual, layer->co, conv.gaps.residual);
    u8 *back = vx_rig_take(rig, 2 * GUARD + rows_bytes(&conv, layer->co, conv.gaps.out));
    for (i32 a = VX_CONV_AUTO + 1; a < VX_CONV_ALGORITHMS_COUNT; a++) {
        struct vx_conv_choice choice = {.algorithm = (enum vx_conv_algorithm)a};
        i32 ran = 0;
        for (; choice.tile < vx_conv_spec(choice.algorithm)->tiles_count; choice.tile++) {
            if (!vx_conv_fits(&problem, &choice, rig->caps)) continue;
            if (!conv.all_tiles && ran >= 2) break;
            conv_choice(&conv, &choice, back);
            ran++;
        }
    }
    vx_rig_reset(rig);
}

static const struct layer layers[] = {
    /* The first shape suits every tile, and the fake has time for no larger one. */
    {VX_CLOUD_BLOCK, 33, {3, 1, 1}, 1, 64, 144},
    {VX_CLOUD_SURFACE, 65, {3, 3, 3}, 1, 16, 32},
    {VX_CLOUD_ISOLATED, 31, {3, 3, 3}, 1, 32, 16},
    {VX_CLOUD_LINE, 32, {3, 3, 3}, 1, 16, 16},
    {VX_CLOUD_SAMPLES, 40, {1, 3, 5}, 1, 16, 16},
    {VX_CLOUD_LIMIT, 129, {5, 5, 5}, 1, 16, 16},
    {VX_CLOUD_RANDOM, 1, {3, 3, 3}, 1, 32, 48},
    {VX_CLOUD_RANDOM, 33, {1, 1, 1}, 1, 64, 32},
    /* On a device the trial goes on.  From 16384 voxels on blocks have lists of tiles. */
    {VX_CLOUD_SCATTERED, 60007, {3, 3, 3}, 1, 32, 272},
    {VX_CLOUD_SCATTERED, 60007, {3, 3, 3}, 1, 64, 64},
    {VX_CLOUD_SURFACE, 40009, {3, 3, 3}, 1, 32, 528},
    {VX_CLOUD_SURFACE, 1000, {3, 3, 3}, 1, 64, 64},
    {VX_CLOUD_SURFACE, 10007, {3, 3, 3}, 1, 32, 48},
    {VX_CLOUD_BLOCK, 1000, {3, 3, 3}, 1, 128, 128},
    {VX_CLOUD_ISOLATED, 300, {3, 3, 3}, 1, 96, 64},
    {VX_CLOUD_LINE, 257, {3, 3, 3}, 1, 256, 256},
    {VX_CLOUD_NEGATIVE, 129, {5, 5, 5}, 1, 32, 32},
    {VX_CLOUD_NEGATIVE, 1000, {3, 3, 3}, 2, 64, 96},
    {VX_CLOUD_LIMIT, 1000, {3, 3, 3}, 1, 64, 32},
    {VX_CLOUD_SAMPLES, 1000, {7, 7, 7}, 1, 16, 32},
    {VX_CLOUD_SAMPLES, 10007, {3, 3, 3}, 1, 16, 16},
    {VX_CLOUD_RANDOM, 63, {3, 3, 3}, 1, 64, 64},
    {VX_CLOUD_RANDOM, 64, {3, 3, 3}, 1, 64, 128},
    {VX_CLOUD_RANDOM, 65, {3, 3, 3}, 1, 128, 64},
    {VX_CLOUD_RANDOM, 127, {3, 3, 3}, 1, 64, 256},
    {VX_CLOUD_RANDOM, 128, {3, 3, 3}, 1, 64, 64},
    {VX_CLOUD_RANDOM, 255, {3, 3, 3}, 1, 64, 16},
    {VX_CLOUD_RANDOM, 256, {3, 3, 3}, 1, 64, 272},
    {VX_CLOUD_RANDOM, 257, {3, 3, 3}, 1, 48, 64},
    {VX_CLOUD_SURFACE, 513, {3, 3, 3}, 1, 512, 64},
    {VX_CLOUD_SURFACE, 300, {3, 3, 3}, 1, 1024, 32},
    {VX_CLOUD_BLOCK, 700, {1, 3, 5}, 1, 32, 32},
    {VX_CLOUD_BLOCK, 700, {3, 1, 1}, 1, 64, 144},
    {VX_CLOUD_RANDOM, 1000, {1, 1, 1}, 1, 64, 256},
    {VX_CLOUD_RANDOM, 10007, {1, 1, 1}, 1, 1040, 16},
    {VX_CLOUD_LINE, 700, {343, 1, 1}, 1, 16, 16},
    {VX_CLOUD_SURFACE, 10007, {3, 3, 3}, 1, 256, 128},
};
#define LAYERS_SMALL 8

/* Without rows nothing is launched: no pointer is used. */
static void conv_nothing(struct vx_rig *rig)
{
    const struct vx_gpu_queue on = {.set = rig->bench.set, .stream = rig->bench.stream};
    const struct vx_conv_problem problem = {
        .kernel = {1, 1, 1}, .v = 1, .ci = 16, .co = 16, .type = VX_NUMBER_F16};
    const struct vx_conv_choice choice = {.algorithm = VX_CONV_IMPLICIT};
    const struct vx_conv_operands operands = {.workspace = NULL};
    struct vx_why why = {""};
    rig->trials++;
    vx_rig_need(rig, vx_conv_launch(&on, &problem, &choice, &operands, &why), &why);
    vx_rig_need(rig, vx_gpu_stream_wait(rig->bench.gpu, rig->bench.stream, &why), &why);
}

void vx_cases_conv(struct vx_rig *rig)
{
    static const enum vx_number types[] = {VX_NUMBER_F16, VX_NUMBER_BF16, VX_NUMBER_TF32,
                                           VX_NUMBER_F32, VX_NUMBER_E4M3};
    const size_t count = rig->size == VX_RIG_FULL ? VX_COUNT(layers) : LAYERS_SMALL;
    struct conv conv = {.rig = rig, .variant = 3};
    struct vx_blas_gpu *blas = NULL;
    struct vx_why why = {""};
    bool wanted = false;
    for (i32 a = VX_CONV_AUTO + 1; a < VX_CONV_ALGORITHMS_COUNT; a++)
        if (vx_rig_wants(rig, vx_conv_spec((enum vx_conv_algorithm)a)->name))
            wanted = true;
    if (!wanted) return;
    vx_rig_need(
        rig, vx_harness_open(rig->bench.set, rig->bench.stream, &why, &conv.stand), &why);
    /* Not under the sanitizers: racecheck finds hazards in cuBLAS's own kernels. */
    vx_why_set(&why, "its kernels are not ours to sanitize");
    bool none = rig->size == VX_RIG_SMALL ||
                vx_blas_gpu_open(rig->bench.gpu, NULL, &why, &blas).fault;
    if (none && !rig->quiet)
        vx_print("  NOT TESTED: explicit with the vendor's product: %s\n", why.text);
    conv_nothing(rig);
    for (size_t at = 0; at < count; at++)
        for (size_t type = 0; type < VX_COUNT(types); type++) {
            conv.layer = &layers[at];
            conv.all_tiles = rig->size != VX_RIG_SMALL || !at;
            conv.blas = blas;
            conv.gaps = conv.variant % 3 == 1 ? (struct gaps){16, 48, 32}
                                              : (struct gaps){0, 0, 0};
            conv_case(&conv, types[type]);
            conv.variant++;
        }
    vx_blas_gpu_close(&blas);
    vx_harness_close(&conv.stand);
}
