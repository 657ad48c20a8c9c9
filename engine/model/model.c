/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/model.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/model/sentence.h"

#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES + VX_PLAN_ARENA_BYTES)
#define PATH_BYTES  4096 /* PATH_MAX of Linux */

/* The names of a model's two files, and how sentences call them. */
struct paths {
    char network[PATH_BYTES], weights[PATH_BYTES];
    char network_label[VX_LABEL_BYTES], weights_label[VX_LABEL_BYTES];
};

static vx_status paths_make(const struct vx_model_source *source, struct vx_why *why,
                            struct paths *paths)
{
    size_t length = strlen(source->directory);
    while (length > 1 && source->directory[length - 1] == '/') length--;
    /* Room for the slash, ten digits, and the longer of the two names. */
    VX_ENSURE_WHY(length > 0 && length < PATH_BYTES - 40, why, INVALID_ARGUMENT,
                  "the path of a model is empty or too long",
                  "expected a model directory of 1 to %d characters, got %zu",
                  PATH_BYTES - 41, length);
    VX_ENSURE_WHY(
        source->version > 0, why, INVALID_ARGUMENT, "a version is an integer above 0",
        "%s: expected a version above 0, got %d", source->directory, source->version);
    snprintf(paths->network, PATH_BYTES, "%.*s/network.json", (int)length,
             source->directory);
    snprintf(paths->weights, PATH_BYTES, "%.*s/%d/weights.safetensors", (int)length,
             source->directory, source->version);
    vx_label_of_path(paths->network, 2, paths->network_label);
    vx_label_of_path(paths->weights, 3, paths->weights_label);
    return VX_OK;
}

/* What the file promises must fit; what it does not say becomes what fits. */
static vx_status model_fit(struct vx_model *model, size_t device_bytes,
                           struct vx_why *why)
{
    const struct vx_network *network = model->network;
    struct vx_signature *signature = &model->signature;
    signature->voxels_max = network->voxels_max;
    signature->batch_voxels_max = network->batch_voxels_max;
    if (!device_bytes) return VX_OK;
    i64 fits = vx_plan_voxels_max(model->plan, device_bytes);
    i64 must = network->voxels_max_said ? network->voxels_max : 1;
    for (i32 i = 0; network->warmup_said && i < network->warmup_count; i++)
        if (network->warmup[i] > must) must = network->warmup[i];
    VX_ENSURE_WHY(
        must <= fits, why, RESOURCE_EXHAUSTED,
        "the voxels a model promises to take do not fit in the device memory",
        "%s: limits and warmup ask for %lld voxels, which need %zu bytes of device "
        "memory (%lld channels each); it has %zu: at most %lld voxels fit",
        network->label, (long long)must, vx_plan_bytes(model->plan, must),
        (long long)model->plan->channels, device_bytes, (long long)fits);
    if (signature->voxels_max > fits) signature->voxels_max = fits;
    if (signature->batch_voxels_max > fits) signature->batch_voxels_max = fits;
    return VX_OK;
}

static void model_sign(struct vx_model *model)
{
    const struct vx_network *network = model->network;
    struct vx_signature *signature = &model->signature;
    memcpy(signature->coords_name, network->coords_name, VX_NAME_BYTES);
    memcpy(signature->feats_name, network->feats_name, VX_NAME_BYTES);
    signature->feats_channels = network->feats_channels;
    signature->outputs_count = network->outputs_count;
    for (i32 i = 0; i < network->outputs_count; i++) {
        struct vx_output *output = &signature->outputs[i];
        memcpy(output->name, network->outputs[i].name, VX_NAME_BYTES);
        output->dtype = network->outputs[i].dtype;
        output->channels = vx_network_channels(network, network->outputs[i].layer);
    }
    signature->batch_delay_us = network->batch_delay_us;
    signature->weights_bytes = vx_weights_bytes(model->graph);
    signature->layers_count = network->layers_count;
}

static vx_status model_weights(struct vx_model *model, const struct paths *paths,
                               const struct vx_model_options *options, struct vx_why *why)
{
    struct vx_safetensors *file;
    vx_status status;
    VX_TRY(vx_safetensors_open(paths->weights, paths->weights_label, why, &file));
    VX_TRY_OR(status, out, vx_weights_check(model->network, file, why));
    VX_TRY_OR(status, out, model_fit(model, options->device_bytes, why));
    VX_TRY_OR(
        status, out,
        vx_weights_open(model->graph, file, options->progress, why, &model->weights));
out:
    vx_safetensors_close(&file);
    return status;
}

static vx_status model_read(struct vx_model *model, const struct paths *paths,
                            const struct vx_model_options *options, struct vx_why *why)
{
    static const struct vx_fuse_options fuse = {.fold_norms = true,
                                                .fuse_activations = true};
    struct vx_arena arena;
    model->block = vx_alloc(ARENA_BYTES);
    VX_ENSURE(model->block, RESOURCE_EXHAUSTED, "no memory to read a model");
    vx_arena_init(&arena, model->block, ARENA_BYTES);
    VX_TRY(vx_network_read(paths->network, paths->network_label, &arena, why,
                           &model->network));
    VX_TRY(vx_fuse_build(model->network, &fuse, &arena, &model->graph));
    VX_TRY(vx_plan_build(model->graph, &arena, &model->plan));
    VX_TRY(model_weights(model, paths, options, why));
    model_sign(model);
    return VX_OK;
}

vx_status vx_model_open(const struct vx_model_source *source,
                        const struct vx_model_options *options, struct vx_why *why,
                        struct vx_model **model)
{
    struct paths paths;
    *model = NULL;
    if (why) why->text[0] = '\0';
    VX_TRY(paths_make(source, why, &paths));
    struct vx_model *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a model");
    made->magic = VX_MODEL_MAGIC;
    vx_status status = model_read(made, &paths, options, why);
    if (status.fault)
        vx_model_close(&made);
    else
        *model = made;
    return status;
}

void vx_model_close(struct vx_model **model)
{
    struct vx_model *it = *model;
    *model = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == VX_MODEL_MAGIC);
    it->magic = 0;
    vx_weights_close(&it->weights);
    vx_free(it->block);
    vx_free(it);
}

const struct vx_signature *vx_model_signature(const struct vx_model *model)
{
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    return &model->signature;
}
