/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/conv/conv.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/order.h"
#include "kernels/04_conv_gather.h"
#include "kernels/07_conv_reduce.h"
#include "kernels/35_e4m3_rows.h"

/* A panel of the explicit product: large enough to fill a device, small enough to leave
 * its memory to the features. */
#define PANEL_BYTES ((size_t)256 << 20)
/* Rows of a panel: a multiple of every tile. */
#define PANEL_ROWS_UNIT 256
/* PAIRS_LIST may use at most this much workspace: it is for few rows and many
 * channels.  The partial sums of a split have no such bound, because the layer has
 * no other order. */
#define PAIRS_BYTES_MAX ((size_t)4 << 30)
#define ALIGN           256
/* A longer row costs so much that a sector for its number matters little: at 128 channels
 * of 16 bits the gain was 0 to 3 %, less than the neighbours cost to write (H200). */
#define NEIGHBOURS_BYTES 256
/* Terms of one instruction on numbers of 8 bits. */
#define E4M3_TERMS      32
#define STREAM_COLUMNS  32 /* of the narrowest stream */
#define STREAM_CHANNELS 64 /* of a long row in a stage of a stream */
#define COPY_BYTES      16 /* that a stream counts its tensors in */

const struct vx_kernel_spec *vx_conv_spec(enum vx_conv_algorithm algorithm)
{
    /* All other algorithms use one kernel with different arguments. */
    return vx_kernel_find(algorithm == VX_CONV_PAIRS_LIST ? "conv_pairs" : "conv_masked");
}

/* --- workspace: what each algorithm keeps between its launches, in this order --- */

struct pieces {
    size_t rounded, partial, scratch, starts, in_rows, places, panel, total;
};

static size_t piece(size_t *at, size_t bytes)
{
    size_t begin = *at;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return begin;
}

/* The rows in are rounded to numbers of 8 bits first. */
static bool rounds(const struct vx_conv_problem *problem)
{
    return problem->in_scale > 0 || problem->type == VX_NUMBER_E4M3;
}

static i64 rows_in(const struct vx_conv_problem *problem)
{
    return problem->n_in ? problem->n_in : problem->n;
}

static i64 panel_rows(const struct vx_conv_problem *problem)
{
    size_t row =
        (size_t)problem->v * (size_t)problem->ci * (size_t)vx_number_bytes(problem->type);
    i64 rows = (i64)(PANEL_BYTES / row) / PANEL_ROWS_UNIT * PANEL_ROWS_UNIT;
    if (rows < PANEL_ROWS_UNIT) rows = PANEL_ROWS_UNIT;
    return rows < problem->n ? rows : problem->n;
}

static struct pieces pieces_of(const struct vx_conv_problem *problem,
                               enum vx_conv_algorithm algorithm)
{
    struct pieces pieces = {0};
    size_t n = (size_t)problem->n, co = (size_t)problem->co, v = (size_t)problem->v;
    size_t stride = (size_t)vx_nbr_stride(problem->v);
    size_t groups = (size_t)vx_conv_groups(problem, algorithm), rows;
    switch (algorithm) {
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT:
        pieces.partial = piece(&pieces.total, groups * n * co * sizeof(f32));
        break;
    case VX_CONV_PAIRS_LIST:
        pieces.partial = piece(&pieces.total, v * n * co * sizeof(f32));
        pieces.scratch =
            piece(&pieces.total, vx_gpu_pairs_scratch_bytes(problem->n, problem->v));
        pieces.starts = piece(&pieces.total, (v + 1) * sizeof(i32));
        pieces.in_rows = piece(&pieces.total, v * n * sizeof(i32));
        pieces.places = piece(&pieces.total, n * stride * sizeof(i32));
        break;
    case VX_CONV_EXPLICIT:
        rows = (size_t)panel_rows(problem);
        pieces.panel = piece(&pieces.total, rows * v * (size_t)problem->ci *
                                                (size_t)vx_number_bytes(problem->type));
        pieces.partial = piece(&pieces.total, rows * co * sizeof(f32));
        break;
    default: break;
    }
    if (rounds(problem))
        pieces.rounded =
            piece(&pieces.total, (size_t)rows_in(problem) * (size_t)problem->ci *
                                     (size_t)vx_number_factor_bytes(problem->type));
    return pieces;
}

size_t vx_conv_workspace(const struct vx_conv_problem *problem,
                         const struct vx_conv_choice *choice)
{
    return pieces_of(problem, choice->algorithm).total;
}

/* --- legality --- */

static const struct vx_tile *tile_of(const struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    VX_ASSERT(choice->tile >= 0 && choice->tile < spec->tiles_count);
    return &spec->tiles[choice->tile];
}

/* Values of a tile of 06_conv_masked. */
enum { TILE_ROWS, TILE_COLUMNS, TILE_CHANNELS, TILE_MULTIPLY = 6 };

/* A tile of blocks that stay. */
static bool tile_streams(const struct vx_tile *tile)
{
    return tile->values[TILE_MULTIPLY] == VX_MULTIPLY_STREAM;
}

static i32 stride_or(i32 stride, i32 channels)
{
    VX_ASSERT(!stride || stride >= channels);
    return stride ? stride : channels;
}

bool vx_conv_stream_counts(i64 rows, i32 stride, i32 element_bytes)
{
    return rows * ((i64)stride * element_bytes / COPY_BYTES) <= INT32_MAX;
}

static bool stream_suits(const struct vx_conv_problem *problem)
{
    const struct vx_conv_strides *strides = &problem->strides;
    const i32 bytes = (i32)vx_number_bytes(problem->type);
    /* Rows that were rounded lie side by side. */
    const i32 in = rounds(problem) ? problem->ci : stride_or(strides->in, problem->ci);
    if (problem->type == VX_NUMBER_E4M3 && problem->ci % E4M3_TERMS) return false;
    return vx_conv_stream_counts(rows_in(problem), in,
                                 vx_number_factor_bytes(problem->type)) &&
           vx_conv_stream_counts(problem->n, stride_or(strides->out, problem->co),
                                 bytes) &&
           vx_conv_stream_counts(problem->n, stride_or(strides->residual, problem->co),
                                 bytes);
}

static bool tile_suits(const struct vx_conv_problem *problem, const struct vx_tile *tile)
{
    i64 blocks = (problem->n + tile->values[TILE_ROWS] - 1) / tile->values[TILE_ROWS];
    blocks *= (problem->co + tile->values[TILE_COLUMNS] - 1) / tile->values[TILE_COLUMNS];
    const i32 channels = tile->values[TILE_CHANNELS];
    if (tile_streams(tile)) {
        if (!stream_suits(problem)) return false;
        /* A stream may end with fewer channels; one of short rows has no second line of them. */
        if (problem->ci > channels && channels < STREAM_CHANNELS) return false;
    } else if (problem->ci % channels != 0)
        return false;
    /* At least half of the columns of so wide a tile would be zeros; no stream has fewer than 32,
     * of which a layer of 16 channels computes as fast. */
    if (tile->values[TILE_COLUMNS] >= 2 * problem->co &&
        !(tile_streams(tile) && tile->values[TILE_COLUMNS] == STREAM_COLUMNS))
        return false;
    return blocks * problem->v < INT32_MAX;
}

bool vx_conv_fits(const struct vx_conv_problem *problem,
                  const struct vx_conv_choice *choice, const struct vx_caps *caps)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    const struct vx_tile *tile = tile_of(choice);
    bool split = choice->algorithm == VX_CONV_IMPLICIT_SPLIT ||
                 choice->algorithm == VX_CONV_MASKED_SPLIT;
    if (problem->v == 1 && choice->algorithm != VX_CONV_IMPLICIT) return false;
    /* Its product is over all offsets and channels at once: weights tiled for each offset
     * do not suit. */
    if (choice->algorithm == VX_CONV_EXPLICIT && tile_streams(tile)) return false;
    if (split && vx_conv_groups(problem, choice->algorithm) < 2) return false;
    if (choice->algorithm == VX_CONV_PAIRS_LIST &&
        vx_conv_workspace(problem, choice) > PAIRS_BYTES_MAX)
        return false;
    return spec->fits(tile, problem->type, caps) && tile_suits(problem, tile);
}

i32 vx_conv_streams(enum vx_number type, const struct vx_caps *caps)
{
    return caps->arch == 90 && vx_number_bytes(type) == 2 ? caps->processors : 0;
}

bool vx_conv_multiplies_e4m3(const struct vx_conv_problem *problem,
                             const struct vx_caps *caps)
{
    return caps->arch == 90 && problem->type == VX_NUMBER_F16 &&
           problem->ci % E4M3_TERMS == 0 && problem->co > STREAM_COLUMNS &&
           vx_conv_stream_counts(rows_in(problem), problem->ci, 1);
}

bool vx_conv_wants_neighbours(const struct vx_conv_problem *problem)
{
    return problem->v > 1 &&
           problem->ci * vx_number_factor_bytes(problem->type) < NEIGHBOURS_BYTES;
}

bool vx_conv_tiled(const struct vx_conv_choice *choice)
{
    return tile_streams(tile_of(choice));
}

static struct vx_jit_wanted rounding_wanted(const struct vx_conv_problem *problem)
{
    return (struct vx_jit_wanted){vx_kernel_find("e4m3_rows"), NULL,
                                  vx_number_stored(problem->type)};
}

i32 vx_conv_kernels(const struct vx_conv_problem *problem,
                    const struct vx_conv_choice *choice,
                    struct vx_jit_wanted wanted[VX_CONV_KERNELS_MAX])
{
    i32 count = 0;
    const enum vx_number sums_type =
        problem->type == VX_NUMBER_E4M3 ? VX_NUMBER_F16 : problem->type;
    wanted[count++] = (struct vx_jit_wanted){vx_conv_spec(choice->algorithm),
                                             tile_of(choice), problem->type};
    const char *more = NULL;
    switch (choice->algorithm) {
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT: more = "conv_reduce"; break;
    case VX_CONV_PAIRS_LIST: more = "pair_reduce"; break;
    case VX_CONV_EXPLICIT: more = "conv_reduce"; break;
    default: break;
    }
    if (more)
        wanted[count++] = (struct vx_jit_wanted){vx_kernel_find(more), NULL, sums_type};
    if (choice->algorithm == VX_CONV_EXPLICIT)
        wanted[count++] =
            (struct vx_jit_wanted){vx_kernel_find("conv_gather"), NULL, problem->type};
    if (choice->algorithm == VX_CONV_PAIRS_LIST)
        count += vx_gpu_pairs_kernels(wanted + count, VX_CONV_KERNELS_MAX - count);
    if (tile_streams(tile_of(choice))) wanted[count++] = vx_conv_tile_wanted();
    if (rounds(problem)) wanted[count++] = rounding_wanted(problem);
    return count;
}

/* --- launches --- */

/* What the launches of one convolution share. */
struct job {
    const struct vx_gpu_queue *device;
    const struct vx_conv_problem *problem;
    const struct vx_conv_operands *operands;
    struct vx_jit_wanted kernels[VX_CONV_KERNELS_MAX];
    struct pieces pieces;
    struct vx_conv_device_args args;
    struct vx_why *why;
};

static void *workspace_at(const struct job *job, size_t offset)
{
    return (u8 *)job->operands->workspace + offset;
}

static vx_status launch(const struct job *job, i32 kernel, const void *args)
{
    return vx_kernel_launch(job->device->set, job->device->stream, &job->kernels[kernel],
                            args, job->why);
}

void vx_conv_args_make(const struct vx_gpu_queue *device,
                       const struct vx_conv_problem *problem,
                       const struct vx_conv_operands *operands,
                       struct vx_conv_device_args *args)
{
    const struct vx_gpu_map *map = operands->map;
    *args = (struct vx_conv_device_args){
        .n = problem->n,
        .v = problem->v,
        .words = vx_mask_words(problem->v),
        .nbr_stride = vx_nbr_stride(problem->v),
        .ci = problem->ci,
        .co = problem->co,
        .in_stride = stride_or(problem->strides.in, problem->ci),
        .residual_stride = stride_or(problem->strides.residual, problem->co),
        .out_stride = stride_or(problem->strides.out, problem->co),
        .groups = 1,
        .activation = (i32)operands->activation,
        .used = operands->channels,
        .in = operands->in,
        .weight = operands->weight,
        .tiled = operands->tiled,
        .bias = operands->bias,
        .residual = operands->residual,
        .out = operands->out,
        .blocks = vx_gpu_caps(vx_kernel_set_gpu(device->set))->processors,
        .scale = operands->scale,
    };
    if (!map) return;
    VX_ASSERT(map->v == problem->v);
    args->nbr = map->nbr;
    args->masks = map->masks;
}

static void job_args(struct job *job, enum vx_conv_algorithm algorithm)
{
    const struct vx_gpu_map *map = job->operands->map;
    vx_conv_args_make(job->device, job->problem, job->operands, &job->args);
    job->args.groups = vx_conv_groups(job->problem, algorithm);
    if (!map || !vx_conv_sorted(algorithm)) return;
    VX_ASSERT(map->groups == job->args.groups && map->order);
    job->args.order = map->order;
    job->args.block_masks = map->block_masks;
    for (i32 kind = 0; kind < 2; kind++) job->args.tiles[kind] = map->tiles[kind];
    job->args.neighbours = map->neighbours;
}

/* Rounds the rows in, beside which the convolution finds them then. */
static vx_status run_rounding(struct job *job)
{
    const struct vx_conv_problem *problem = job->problem;
    const struct vx_jit_wanted kernel = rounding_wanted(problem);
    void *rounded = workspace_at(job, job->pieces.rounded);
    const struct vx_e4m3_rows_args args = {
        .n = rows_in(problem),
        .cp = problem->ci,
        .in_stride = job->args.in_stride,
        .bytes = problem->type == VX_NUMBER_E4M3,
        .scale = problem->in_scale,
        .inverse = 1 / problem->in_scale,
        .in = job->args.in,
        .out = rounded,
    };
    job->args.in = rounded;
    job->args.in_stride = problem->ci;
    return vx_kernel_launch(job->device->set, job->device->stream, &kernel, &args,
                            job->why);
}

/* Its last launch is one of conv_masked. */
bool vx_conv_lets_early(const struct vx_conv_choice *choice)
{
    return choice->algorithm == VX_CONV_IMPLICIT || choice->algorithm == VX_CONV_MASKED;
}

/* Behind a rounding it cannot begin early: that writes what it reads, and is no convolution. */
static vx_status run_one(const struct job *job)
{
    if (!job->operands->early || rounds(job->problem)) return launch(job, 0, &job->args);
    return vx_kernel_launch_early(job->device->set, job->device->stream, &job->kernels[0],
                                  &job->args, job->why);
}

static vx_status run_split(struct job *job)
{
    job->args.partial = workspace_at(job, job->pieces.partial);
    VX_TRY(launch(job, 0, &job->args));
    /* Without block masks every group of every row was written. */
    if (!job->args.block_masks) job->args.masks = NULL;
    return launch(job, 1, &job->args);
}

static vx_status run_pairs(struct job *job)
{
    const struct vx_conv_problem *problem = job->problem;
    const struct vx_gpu_order_want want = {.n = problem->n, .v = problem->v, .groups = 1};
    const struct vx_gpu_pairs pairs = {
        .nbr = job->args.nbr,
        .scratch = workspace_at(job, job->pieces.scratch),
        .starts = workspace_at(job, job->pieces.starts),
        .in_rows = workspace_at(job, job->pieces.in_rows),
        .places = workspace_at(job, job->pieces.places),
    };
    VX_TRY(vx_gpu_pairs_build(job->device->set, job->device->stream, &want, &pairs,
                              job->why));
    job->args.starts = pairs.starts;
    job->args.in_rows = pairs.in_rows;
    job->args.partial = workspace_at(job, job->pieces.partial);
    VX_TRY(launch(job, 0, &job->args));
    const struct vx_pair_reduce_args reduce = {
        .n = problem->n,
        .v = problem->v,
        .nbr_stride = job->args.nbr_stride,
        .co = problem->co,
        .residual_stride = job->args.residual_stride,
        .out_stride = job->args.out_stride,
        .activation = job->args.activation,
        .used = job->args.used,
        .places = pairs.places,
        .partial = job->args.partial,
        .bias = job->args.bias,
        .residual = job->args.residual,
        .out = job->args.out,
    };
    return launch(job, 1, &reduce);
}

/* Multiplies a panel by the weights of all offsets.  With the vendor's library, the
 * reduction of a split then writes the output; without, the product runs as a convolution
 * with one offset and V * Ci channels. */
static vx_status multiply_panel(struct job *job, struct vx_conv_device_args *args)
{
    struct vx_blas_gpu *blas = job->device->blas;
    if (!blas) return launch(job, 0, args);
    const struct vx_blas_product product = {
        .rows = args->n,
        .depth = args->ci,
        .columns = args->co,
        .type = job->problem->type,
        .left = args->in,
        .right = args->weight,
        .out = workspace_at(job, job->pieces.partial),
    };
    VX_TRY(vx_blas_gpu_multiply(blas, job->device->stream, &product, job->why));
    args->partial = product.out;
    return launch(job, 1, args);
}

/* Gathers and multiplies one slice of rows. */
static vx_status run_panel(struct job *job, i64 first, i64 rows)
{
    const struct vx_conv_problem *problem = job->problem;
    size_t before = (size_t)first * (size_t)vx_number_bytes(problem->type);
    void *panel = workspace_at(job, job->pieces.panel);
    const struct vx_conv_gather_args gather = {
        .first = first,
        .rows = rows,
        .v = problem->v,
        .nbr_stride = job->args.nbr_stride,
        .ci = problem->ci,
        .in_stride = job->args.in_stride,
        .nbr = job->args.nbr,
        .in = job->args.in,
        .panel = panel,
    };
    VX_TRY(launch(job, 2, &gather));
    struct vx_conv_device_args args = job->args;
    args.n = rows;
    args.v = args.words = 1;
    args.ci = args.in_stride = problem->v * problem->ci;
    args.nbr = NULL;
    args.masks = NULL;
    args.in = panel;
    args.out = (u8 *)args.out + before * (size_t)args.out_stride;
    if (args.residual)
        args.residual = (const u8 *)args.residual + before * (size_t)args.residual_stride;
    return multiply_panel(job, &args);
}

static vx_status run_explicit(struct job *job)
{
    i64 step = panel_rows(job->problem);
    for (i64 first = 0; first < job->problem->n; first += step) {
        i64 left = job->problem->n - first;
        VX_TRY(run_panel(job, first, left < step ? left : step));
    }
    return VX_OK;
}

vx_status vx_conv_launch(const struct vx_gpu_queue *device,
                         const struct vx_conv_problem *problem,
                         const struct vx_conv_choice *choice,
                         const struct vx_conv_operands *operands, struct vx_why *why)
{
    struct job job = {
        .device = device, .problem = problem, .operands = operands, .why = why};
    VX_ASSERT(choice->algorithm != VX_CONV_AUTO);
    VX_ASSERT(operands->map || problem->v == 1);
    VX_ASSERT(operands->tiled || !tile_streams(tile_of(choice)));
    VX_ASSERT(problem->type != VX_NUMBER_E4M3 ||
              (problem->in_scale > 0 && operands->scale));
    if (!problem->n) return VX_OK;
    (void)vx_conv_kernels(problem, choice, job.kernels);
    job.pieces = pieces_of(problem, choice->algorithm);
    job_args(&job, choice->algorithm);
    if (rounds(problem)) VX_TRY(run_rounding(&job));
    switch (choice->algorithm) {
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT: return run_split(&job);
    case VX_CONV_PAIRS_LIST: return run_pairs(&job);
    case VX_CONV_EXPLICIT: return run_explicit(&job);
    default: return run_one(&job);
    }
}
