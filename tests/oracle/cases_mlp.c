/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/33_mlp.h"
#include "engine/gpu/conv/conv.h"
#include "kernels/29_weight_tile.h"
#include "tests/oracle/cases.h"

#include <string.h>

/* 33_mlp: beside its reference, and bit for bit beside the three launches that it stands for. */

void vx_weight_tile_ref(const void *args, enum vx_number type);

/* Sizes of the weights, so that all tensors are of size 1. */
#define UP_SCALE   0.125
#define DOWN_SCALE 0.0625

struct shape {
    i64 n;
    i32 c, hidden, co; /* real channels */
};

/* Full tiles and parts of one, more tiles than processors, widths that no tile has. */
static const struct shape shapes[] = {
    {1, 128, 64, 16},      {64, 128, 512, 128},  {129, 256, 1024, 256},
    {300, 96, 384, 96},    {127, 250, 192, 250}, {40000, 128, 64, 16},
    {257, 144, 576, 144},  {65, 80, 64, 16},     {200, 65, 256, 64},
    {34000, 200, 64, 100}, {128, 256, 64, 250},  {140, 128, 3072, 64},
};

/* What is about to be computed, with all its buffers. */
struct job {
    struct vx_rig *rig;
    const struct shape *shape;
    enum vx_number type;
    i32 variant;
    struct vx_mlp_args args;
    f64 absolute;
};

/* Of every other job, the rows that it reads and writes are parts of longer ones. */
static i32 stride_of(const struct job *job, i32 channels)
{
    return channels + (job->variant % 4 > 1 ? 16 * (1 + job->variant % 3) : 0);
}

static bool has_norm(const struct job *job)
{
    return job->variant % 3 != 2;
}

static size_t row_bytes(const struct job *job, i32 channels)
{
    return (size_t)job->shape->n * (size_t)channels * (size_t)vx_number_bytes(job->type);
}

/* Weights of real channels, zeros in the padding. */
static void *weights_make(const struct job *job, const struct vx_conv_device_args *layer,
                          i32 real_in, f64 scale)
{
    const size_t element = (size_t)vx_number_bytes(job->type);
    const i32 real_out = layer->used ? layer->used : layer->co;
    u8 *made = vx_rig_take(job->rig, (size_t)layer->ci * (size_t)layer->co * element);
    const u8 *from = vx_rig_reals(job->rig, job->type, (i64)layer->ci * layer->co, scale);
    for (i32 c = 0; c < real_in; c++)
        memcpy(made + (size_t)c * (size_t)layer->co * element,
               from + (size_t)c * (size_t)layer->co * element,
               (size_t)real_out * element);
    return made;
}

static size_t tiled_bytes(const struct vx_conv_device_args *layer)
{
    return (size_t)vx_weight_tile_blocks(layer->ci, sizeof(u16)) * (size_t)layer->co *
           VX_WEIGHT_TILE_LINE;
}

static void layer_make(struct job *job, struct vx_conv_device_args *layer, i32 real_in,
                       f64 scale)
{
    layer->n = job->shape->n;
    layer->v = layer->words = layer->groups = 1;
    layer->nbr_stride = 4;
    layer->blocks = job->rig->caps->processors;
    layer->weight = weights_make(job, layer, real_in, scale);
    u16 *tiled = vx_rig_take(job->rig, tiled_bytes(layer));
    vx_weight_tile_ref(&(struct vx_weight_tile_args){1, layer->ci, layer->co, sizeof(u16),
                                                     layer->weight, tiled},
                       job->type);
    layer->tiled = tiled;
    layer->bias = vx_rig_reals(job->rig, VX_NUMBER_F32, layer->co, 1);
}

static void job_make(struct job *job)
{
    const struct shape *shape = job->shape;
    struct vx_mlp_args *args = &job->args;
    const i32 cp = vx_channels_padded(shape->c);
    args->norm = (struct vx_layer_norm_device_args){
        .n = shape->n, .c = has_norm(job) ? shape->c : 0, .cp = cp, .eps = 1e-5f};
    args->norm.in_stride = stride_of(job, cp);
    args->norm.in = vx_rig_reals(job->rig, job->type, shape->n * args->norm.in_stride, 1);
    if (has_norm(job)) {
        args->norm.weight = vx_rig_reals(job->rig, VX_NUMBER_F32, shape->c, 1);
        args->norm.bias = vx_rig_reals(job->rig, VX_NUMBER_F32, shape->c, 1);
    }
    args->up = (struct vx_conv_device_args){
        .ci = cp, .co = shape->hidden, .activation = job->variant % 5};
    args->down = (struct vx_conv_device_args){.ci = shape->hidden,
                                              .co = vx_channels_padded(shape->co),
                                              .used = shape->co,
                                              .activation = job->variant % 7 == 6};
    layer_make(job, &args->up, shape->c, UP_SCALE);
    layer_make(job, &args->down, shape->hidden, DOWN_SCALE);
    args->up.in = args->norm.in;
    args->up.in_stride = args->norm.in_stride;
    args->down.in_stride = shape->hidden;
    args->up.out_stride = shape->hidden;
    args->down.residual_stride = args->down.out_stride = stride_of(job, args->down.co);
    if (job->variant % 4 == 3) args->up.bias = NULL;
    if (job->variant % 2)
        args->down.residual =
            vx_rig_reals(job->rig, job->type, shape->n * args->down.residual_stride, 1);
    /* A number in between that rounds to the other side is one step off: of the hidden ones,
     * a few in a row, each times a weight; of the normalised ones, less. */
    job->absolute = 32 * DOWN_SCALE * vx_trial_step(job->type);
}

static void layer_fields(struct vx_trial *trial, const struct vx_conv_device_args *layer,
                         const struct job *job)
{
    const size_t bytes =
        (size_t)layer->ci * (size_t)layer->co * (size_t)vx_number_bytes(job->type);
    vx_trial_in(trial, &layer->weight, layer->weight, bytes);
    vx_trial_in(trial, &layer->tiled, layer->tiled, tiled_bytes(layer));
    if (layer->bias)
        vx_trial_in(trial, &layer->bias, layer->bias, (size_t)layer->co * sizeof(f32));
    if (layer->residual)
        vx_trial_in(trial, &layer->residual, layer->residual,
                    row_bytes(job, layer->residual_stride));
}

static void norm_fields(struct vx_trial *trial,
                        const struct vx_layer_norm_device_args *norm,
                        const struct job *job)
{
    const size_t floats = (size_t)norm->c * sizeof(f32);
    vx_trial_in(trial, &norm->in, norm->in, row_bytes(job, norm->in_stride));
    if (norm->weight) vx_trial_in(trial, &norm->weight, norm->weight, floats);
    if (norm->bias) vx_trial_in(trial, &norm->bias, norm->bias, floats);
}

static struct vx_field *out_field(struct vx_trial *trial, const struct job *job,
                                  const void *pointer, i32 channels)
{
    struct vx_field *field =
        vx_trial_out(job->rig, trial, pointer, row_bytes(job, channels));
    field->kind = VX_FIELD_REAL;
    field->type = job->type;
    field->absolute = job->absolute;
    return field;
}

static void label(struct vx_trial *trial, const struct job *job)
{
    const struct shape *shape = job->shape;
    vx_trial_label(trial, "type %d, N=%lld C=%d to %d to %d, variant %d", (int)job->type,
                   (long long)shape->n, shape->c, shape->hidden, shape->co, job->variant);
}

/* The fused kernel; what it left on the device, NULL: it was wrong already. */
static const void *fused_run(struct job *job, const struct vx_jit_wanted *kernel)
{
    struct vx_mlp_args args = job->args;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, job);
    norm_fields(&trial, &args.norm, job);
    vx_trial_same(&trial, &args.up.in, &trial.fields[0]);
    layer_fields(&trial, &args.up, job);
    layer_fields(&trial, &args.down, job);
    const struct vx_field *out =
        out_field(&trial, job, &args.down.out, args.down.out_stride);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

static const void *norm_run(struct job *job)
{
    const struct vx_jit_wanted *kernel = NULL;
    struct vx_layer_norm_device_args args = job->args.norm;
    struct vx_trial trial;
    do kernel = vx_rig_next(job->rig, "layer_norm", kernel);
    while (kernel && kernel->type != job->type);
    if (!kernel) return NULL;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, job);
    norm_fields(&trial, &args, job);
    const struct vx_field *out = out_field(&trial, job, &args.out, args.cp);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

/* The engine chooses no tile that does not suit the layer's channels. */
static const struct vx_jit_wanted *layer_kernel(const struct job *job,
                                                const struct vx_conv_device_args *layer)
{
    const struct vx_conv_problem problem = {.n = layer->n,
                                            .kernel = {1, 1, 1},
                                            .v = 1,
                                            .ci = layer->ci,
                                            .co = layer->co,
                                            .type = job->type};
    const struct vx_jit_wanted *kernel = NULL;
    while ((kernel = vx_rig_next(job->rig, "conv_masked", kernel))) {
        const struct vx_conv_choice choice = {VX_CONV_IMPLICIT,
                                              (i32)(kernel->tile - kernel->spec->tiles)};
        if (kernel->type == job->type && vx_conv_fits(&problem, &choice, job->rig->caps))
            return kernel;
    }
    return NULL;
}

static const void *layer_run(struct job *job, const struct vx_conv_device_args *layer,
                             const void *in, i32 in_stride)
{
    const struct vx_jit_wanted *kernel = layer_kernel(job, layer);
    struct vx_conv_device_args args = *layer;
    struct vx_trial trial;
    if (!kernel) return NULL;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, job);
    args.in_stride = in_stride;
    vx_trial_in(&trial, &args.in, in, row_bytes(job, in_stride));
    layer_fields(&trial, &args, job);
    const struct vx_field *out = out_field(&trial, job, &args.out, args.out_stride);
    return vx_trial_run(job->rig, &trial) ? out->back : NULL;
}

static void mlp_case(struct job *job, const struct vx_jit_wanted *kernel)
{
    job_make(job);
    const void *fused = fused_run(job, kernel);
    const void *x = has_norm(job) ? norm_run(job) : job->args.norm.in;
    const i32 stride = has_norm(job) ? job->args.norm.cp : job->args.norm.in_stride;
    const i32 hidden_stride = job->args.down.in_stride;
    const void *hidden = x ? layer_run(job, &job->args.up, x, stride) : NULL;
    const void *out =
        hidden ? layer_run(job, &job->args.down, hidden, hidden_stride) : NULL;
    if (!fused || !out) return; /* told, or the other kernels are not wanted */
    if (memcmp(fused, out, row_bytes(job, job->args.down.out_stride)) != 0)
        vx_rig_fail(job->rig,
                    "mlp type %d, N=%lld C=%d to %d to %d, variant %d: expected "
                    "the bits of its three launches",
                    (int)job->type, (long long)job->shape->n, job->shape->c,
                    job->shape->hidden, job->shape->co, job->variant);
}

void vx_cases_mlp(struct vx_rig *rig)
{
    const struct vx_jit_wanted *kernel = NULL;
    i32 variant = 0;
    while ((kernel = vx_rig_next(rig, "mlp", kernel)))
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const struct shape *shape = &shapes[i];
            if (rig->size == VX_RIG_SMALL && shape->n > 300) continue;
            /* More tiles than blocks: a reference knows neither. */
            if (rig->size != VX_RIG_FULL && shape->n > 10000) continue;
            if (vx_channels_padded(shape->c) > kernel->tile->values[0] ||
                vx_channels_padded(shape->co) > kernel->tile->values[1])
                continue;
            struct job job = {
                .rig = rig, .shape = shape, .type = kernel->type, .variant = variant++};
            mlp_case(&job, kernel);
            vx_rig_reset(rig);
        }
}
