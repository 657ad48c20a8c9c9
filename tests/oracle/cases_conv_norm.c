/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/conv/conv.h"
#include "kernels/29_weight_tile.h"
#include "kernels/35_conv_norm.h"
#include "tests/oracle/cases.h"

#include <string.h>

/* 35_conv_norm, every tile: beside its reference, and bit for bit beside the two launches that it
 * stands for, of which the convolution may have another tile. */

void vx_weight_tile_ref(const void *args, enum vx_number type);

struct shape {
    i64 n;
    i32 v;
    i32 blocks_in; /* the input channels in tiles' VX_TILE_CI */
    i32 more_in;   /* and these, for tiles that stream */
    i32 less;      /* columns fewer than the tile has, as far as it suits them */
};

/* Full tiles and parts of one, maps, widths that no tile has. */
static const struct shape shapes[] = {
    {1, 1, 1, 0, 0},   {129, 1, 2, 0, 0},  {300, 5, 1, 16, 7},
    {40, 3, 2, 48, 0}, {97, 27, 1, 0, 39}, {257, 9, 1, 16, 1},
};
/* The fake runs references, whatever the tile: few rows show it as much.  Under a sanitizer, or
 * where a core stands for a GPU, so many rows times offsets. */
#define ROWS_FAKE  20
#define WORK_SMALL 130
/* More tiles than processors: those that stream take several. */
static const struct shape many = {40000, 1, 1, 0, 0};

struct job {
    struct vx_rig *rig;
    const struct shape *shape;
    const struct vx_jit_wanted *kernel;
    i32 c; /* real channels out */
    i32 variant;
    struct vx_conv_norm_args args;
};

static bool streams(const struct vx_jit_wanted *kernel)
{
    return kernel->tile->values[6] == VX_MULTIPLY_STREAM;
}

static size_t row_bytes(const struct job *job, i32 channels)
{
    return (size_t)job->shape->n * (size_t)channels *
           (size_t)vx_number_bytes(job->kernel->type);
}

/* Of every other job, the rows that it reads and writes are parts of longer ones. */
static i32 stride_of(const struct job *job, i32 channels)
{
    return channels + (job->variant % 4 > 1 ? 16 * (1 + job->variant % 3) : 0);
}

static size_t weights_bytes(const struct vx_conv_device_args *conv, enum vx_number type)
{
    return (size_t)conv->v * (size_t)conv->ci * (size_t)conv->co *
           (size_t)vx_number_bytes(type);
}

/* Sums of size 1, zeros in the padding. */
static void weights_make(const struct job *job, struct vx_conv_device_args *conv)
{
    const enum vx_number type = job->kernel->type;
    const i64 rows = (i64)conv->v * conv->ci;
    const size_t element = (size_t)vx_number_bytes(type);
    const size_t line = (size_t)conv->co * element, real = (size_t)job->c * element;
    f64 scale = 1;
    while (scale * scale * (f64)rows > 9) scale /= 2;
    u8 *made = vx_rig_take(job->rig, weights_bytes(conv, type));
    const u8 *from = vx_rig_reals(job->rig, type, rows * conv->co, scale);
    for (i64 r = 0; r < rows; r++)
        memcpy(made + (size_t)r * line, from + (size_t)r * line, real);
    conv->weight = made;
    u16 *tiled = vx_rig_take(job->rig, vx_conv_tiled_bytes(conv->v, conv->ci, conv->co));
    vx_weight_tile_ref(
        &(struct vx_weight_tile_args){conv->v, conv->ci, conv->co, conv->weight, tiled},
        type);
    conv->tiled = tiled;
}

/* Half of the neighbours are missing. */
static const i32 *neighbours_make(const struct job *job, i32 v)
{
    const i64 n = job->shape->n;
    const i32 stride = vx_nbr_stride(v);
    i32 *nbr = vx_rig_take(job->rig, (size_t)n * (size_t)stride * sizeof *nbr);
    for (i64 e = 0; e < n * stride; e++)
        nbr[e] = (i32)(vx_rig_below(job->rig, 2) ? vx_rig_below(job->rig, n) : -1);
    return nbr;
}

/* All rows, shuffled. */
static const i32 *order_make(const struct job *job)
{
    const i64 n = job->shape->n;
    i32 *order = vx_rig_take(job->rig, (size_t)n * sizeof *order);
    for (i64 i = 0; i < n; i++) {
        const i64 at = vx_rig_below(job->rig, i + 1);
        order[i] = order[at];
        order[at] = (i32)i;
    }
    return order;
}

static void job_make(struct job *job)
{
    struct vx_conv_device_args *conv = &job->args.conv;
    struct vx_layer_norm_device_args *norm = &job->args.norm;
    const enum vx_number type = job->kernel->type;
    const struct shape *shape = job->shape;
    conv->n = shape->n;
    conv->v = shape->v;
    conv->words = conv->groups = 1;
    conv->nbr_stride = vx_nbr_stride(shape->v);
    conv->ci = shape->blocks_in * job->kernel->tile->values[2];
    if (streams(job->kernel)) conv->ci += shape->more_in;
    conv->co = vx_channels_padded(job->c);
    conv->used = job->c;
    conv->blocks = job->rig->caps->processors;
    conv->in_stride = stride_of(job, conv->ci);
    conv->residual_stride = conv->out_stride = stride_of(job, conv->co);
    weights_make(job, conv);
    conv->in = vx_rig_reals(job->rig, type, shape->n * conv->in_stride, 1);
    if (job->variant % 3 != 2)
        conv->bias = vx_rig_reals(job->rig, VX_NUMBER_F32, conv->co, 1);
    if (job->variant % 2)
        conv->residual =
            vx_rig_reals(job->rig, type, shape->n * conv->residual_stride, 1);
    if (shape->v > 1) conv->nbr = neighbours_make(job, shape->v);
    if (job->variant % 3) conv->order = order_make(job);
    *norm = (struct vx_layer_norm_device_args){.n = shape->n,
                                               .c = job->c,
                                               .cp = conv->co,
                                               .activation = job->variant % 5,
                                               .eps = 1e-5f};
    if (job->variant % 7 < 5)
        norm->weight = vx_rig_reals(job->rig, VX_NUMBER_F32, job->c, 1);
    if (job->variant % 7 < 4)
        norm->bias = vx_rig_reals(job->rig, VX_NUMBER_F32, job->c, 1);
}

static void conv_fields(const struct job *job, struct vx_conv_device_args *conv,
                        struct vx_trial *trial)
{
    const size_t n = (size_t)conv->n;
    vx_trial_in(trial, &conv->in, conv->in, row_bytes(job, conv->in_stride));
    vx_trial_in(trial, &conv->weight, conv->weight,
                weights_bytes(conv, job->kernel->type));
    vx_trial_in(trial, &conv->tiled, conv->tiled,
                vx_conv_tiled_bytes(conv->v, conv->ci, conv->co));
    if (conv->bias)
        vx_trial_in(trial, &conv->bias, conv->bias, (size_t)conv->co * sizeof(f32));
    if (conv->residual)
        vx_trial_in(trial, &conv->residual, conv->residual,
                    row_bytes(job, conv->residual_stride));
    if (conv->nbr)
        vx_trial_in(trial, &conv->nbr, conv->nbr,
                    n * (size_t)conv->nbr_stride * sizeof(i32));
    if (conv->order) vx_trial_in(trial, &conv->order, conv->order, n * sizeof(i32));
}

static void norm_fields(struct vx_layer_norm_device_args *norm, struct vx_trial *trial)
{
    const size_t floats = (size_t)norm->c * sizeof(f32);
    if (norm->weight) vx_trial_in(trial, &norm->weight, norm->weight, floats);
    if (norm->bias) vx_trial_in(trial, &norm->bias, norm->bias, floats);
}

/* A sum that rounds to the other side is one step off, and a norm divides it by the size of
 * its row, a third at least: a row whose numbers are small has small steps, too. */
static struct vx_field *out_field(const struct job *job, const void *pointer,
                                  struct vx_trial *trial)
{
    struct vx_field *field =
        vx_trial_out(job->rig, trial, pointer, row_bytes(job, job->args.conv.out_stride));
    field->kind = VX_FIELD_REAL;
    field->type = job->kernel->type;
    field->absolute = 16 * vx_trial_step(job->kernel->type);
    return field;
}

static void label(const struct job *job, struct vx_trial *trial)
{
    const struct vx_conv_device_args *conv = &job->args.conv;
    vx_trial_label(trial, "type %d, N=%lld V=%d Ci=%d C=%d, variant %d",
                   (int)job->kernel->type, (long long)conv->n, conv->v, conv->ci, job->c,
                   job->variant);
}

/* What the kernel left on the device; NULL: it was wrong already. */
static const void *fused_run(const struct job *job)
{
    struct vx_conv_norm_args args = job->args;
    struct vx_trial trial;
    vx_trial_init(&trial, job->kernel, &args);
    label(job, &trial);
    conv_fields(job, &args.conv, &trial);
    norm_fields(&args.norm, &trial);
    const struct vx_field *out = out_field(job, &args.conv.out, &trial);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

static struct vx_conv_problem problem_of(const struct job *job)
{
    const struct vx_conv_device_args *conv = &job->args.conv;
    return (struct vx_conv_problem){.n = conv->n,
                                    .kernel = {conv->v, 1, 1},
                                    .v = conv->v,
                                    .ci = conv->ci,
                                    .co = conv->co,
                                    .type = job->kernel->type};
}

static bool suits(const struct job *job, const struct vx_jit_wanted *kernel)
{
    const struct vx_conv_problem problem = problem_of(job);
    const struct vx_conv_choice choice = {VX_CONV_IMPLICIT,
                                          (i32)(kernel->tile - kernel->spec->tiles)};
    return kernel->type == problem.type &&
           vx_conv_fits(&problem, &choice, job->rig->caps);
}

static const void *conv_run(const struct job *job)
{
    const struct vx_jit_wanted *kernel = NULL;
    struct vx_conv_device_args args = job->args.conv;
    struct vx_trial trial;
    do kernel = vx_rig_next(job->rig, "conv_masked", kernel);
    while (kernel && !suits(job, kernel));
    if (!kernel) return NULL;
    vx_trial_init(&trial, kernel, &args);
    label(job, &trial);
    conv_fields(job, &args, &trial);
    const struct vx_field *out = out_field(job, &args.out, &trial);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

static const void *norm_run(const struct job *job, const void *in)
{
    const struct vx_jit_wanted *kernel = NULL;
    struct vx_layer_norm_device_args args = job->args.norm;
    struct vx_trial trial;
    enum vx_number type = job->kernel->type;
    if (type == VX_NUMBER_TF32) type = VX_NUMBER_F32;
    do kernel = vx_rig_next(job->rig, "layer_norm", kernel);
    while (kernel && kernel->type != type);
    if (!kernel) return NULL;
    vx_trial_init(&trial, kernel, &args);
    label(job, &trial);
    args.in_stride = args.out_stride = job->args.conv.out_stride;
    vx_trial_in(&trial, &args.in, in, row_bytes(job, args.in_stride));
    norm_fields(&args, &trial);
    const struct vx_field *out = out_field(job, &args.out, &trial);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

/* The columns of each row; between rows each has its own poison. */
static bool same_rows(const struct job *job, const u8 *a, const u8 *b)
{
    const size_t element = (size_t)vx_number_bytes(job->kernel->type);
    const size_t stride = (size_t)job->args.conv.out_stride * element;
    for (i64 i = 0; i < job->shape->n; i++)
        if (memcmp(a + (size_t)i * stride, b + (size_t)i * stride,
                   (size_t)job->args.conv.co * element) != 0)
            return false;
    return true;
}

static void norm_case(struct job *job)
{
    job_make(job);
    if (!suits(job, job->kernel)) return;
    const void *fused = fused_run(job);
    const void *rows = conv_run(job);
    const void *normed = rows ? norm_run(job, rows) : NULL;
    if (!fused || !normed) return; /* told, or the other kernels are not wanted */
    if (!same_rows(job, fused, normed))
        vx_rig_fail(job->rig,
                    "conv_norm type %d, N=%lld V=%d Ci=%d C=%d, variant %d: expected "
                    "the bits of its two launches",
                    (int)job->kernel->type, (long long)job->shape->n, job->shape->v,
                    job->args.conv.ci, job->c, job->variant);
}

static void shape_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 variant)
{
    const i32 columns = kernel->tile->values[1];
    /* With half of its columns or fewer it does not suit a layer. */
    const i32 less = shape->less < columns / 2 ? shape->less : columns / 2 - 1;
    struct job job = {.rig = rig,
                      .shape = shape,
                      .kernel = kernel,
                      .c = columns - less,
                      .variant = variant};
    norm_case(&job);
    vx_rig_reset(rig);
}

void vx_cases_conv_norm(struct vx_rig *rig)
{
    const struct vx_jit_wanted *kernel = NULL;
    i32 variant = 0;
    while ((kernel = vx_rig_next(rig, "conv_norm", kernel))) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            struct shape shape = shapes[i];
            if (rig->size == VX_RIG_SMALL && shape.n * shape.v > WORK_SMALL) continue;
            if (rig->size == VX_RIG_FAKE && shape.n > ROWS_FAKE) shape.n = ROWS_FAKE;
            shape_case(rig, kernel, &shape, variant++);
        }
        if (rig->size == VX_RIG_FULL && streams(kernel))
            shape_case(rig, kernel, &many, variant++);
    }
}
