/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/model.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/model/notes.h"
#include "engine/weights/folder_hint.h"
#include "engine/weights/safetensors.h"

#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES + VX_PLAN_ARENA_BYTES)
#define PATH_BYTES  4096  /* PATH_MAX of Linux */
#define NOTES_BYTES 16384 /* room for all notes with a few names each */
#define HINT_BYTES  (VX_NAME_SHOWN + 32)

/* The paths of a model's two files, and their names in error sentences. */
struct paths {
    char network[PATH_BYTES], weights[PATH_BYTES];
    char network_label[VX_LABEL_BYTES], weights_label[VX_LABEL_BYTES];
};

static vx_status paths_make(const struct vx_model_source *source, struct vx_why *why,
                            struct paths *paths)
{
    size_t length = strlen(source->directory);
    while (length > 1 && source->directory[length - 1] == '/') length--;
    /* 40 bytes are enough for the slashes, ten digits, and the longer file name. */
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

static void sign_dense(const struct vx_layer *layer, struct vx_output *output)
{
    output->set = VX_OUTPUT_DENSE;
    output->dims_count = vx_layer_dense_dims(layer, output->dims);
    output->channels = 1; /* the network's reader has checked the product */
    for (i32 d = 0; d < output->dims_count; d++) output->channels *= output->dims[d];
}

/* Output `o`, the features of a set, and number `coords`, their coordinates; -1 = none. */
static void sign_output(struct vx_model *model, i32 o, i32 coords)
{
    const struct vx_network *network = model->network;
    const struct vx_network_output *from = &network->outputs[o];
    struct vx_output *output = &model->signature.outputs[o];
    memcpy(output->name, from->name, VX_NAME_BYTES);
    output->dtype = from->dtype;
    output->channels = vx_network_channels(network, from->layer);
    output->coords = coords;
    if (network->layers[from->layer].op == VX_OP_TO_DENSE) {
        sign_dense(&network->layers[from->layer], output);
        return;
    }
    output->set = vx_network_set(network, from->layer);
    if (output->set) vx_set_stride_text(&network->sets[output->set], output->stride);
}

static void sign_coords(struct vx_model *model, i32 o, const struct vx_network_coords *of)
{
    struct vx_output *output = &model->signature.outputs[o];
    memcpy(output->name, of->name, VX_NAME_BYTES);
    output->dtype = VX_DTYPE_I32;
    output->channels = 4;
    output->set = of->set;
    output->coords = o;
    vx_set_stride_text(&model->network->sets[of->set], output->stride);
}

static void model_sign(struct vx_model *model)
{
    const struct vx_network *network = model->network;
    struct vx_signature *signature = &model->signature;
    memcpy(signature->coords_name, network->coords_name, VX_NAME_BYTES);
    memcpy(signature->axes, network->axes, sizeof signature->axes);
    memcpy(signature->feats_name, network->feats_name, VX_NAME_BYTES);
    signature->feats_channels = network->feats_channels;
    memcpy(signature->shape, network->sets[0].shape, sizeof signature->shape);
    i32 features = network->outputs_count;
    signature->outputs_count = features + network->coords_count;
    for (i32 o = 0; o < features; o++) {
        i32 coords = network->outputs[o].coords;
        sign_output(model, o, coords < 0 ? -1 : features + coords);
    }
    for (i32 c = 0; c < network->coords_count; c++)
        sign_coords(model, features + c, &network->coords[c]);
    signature->weights_bytes = vx_weights_bytes(model->graph);
    signature->layers_count = network->layers_count;
    signature->fp8_layers = network->fp8.layers_count;
}

/* The type in which a GPU multiplies, by the types of the weights: TF32 if mixed. */
static enum vx_number weights_number(const struct vx_model *model)
{
    const struct vx_network *network = model->network;
    enum vx_number number = 0;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (!vx_op_is_conv(layer->op) && layer->op != VX_OP_LINEAR) continue;
        const char *dtype =
            vx_safetensors_find(model->file, layer->tensors[VX_TENSOR_WEIGHT])->dtype;
        enum vx_number mine = !strcmp(dtype, "F16")    ? VX_NUMBER_F16
                              : !strcmp(dtype, "BF16") ? VX_NUMBER_BF16
                                                       : VX_NUMBER_TF32;
        if (number && number != mine) return VX_NUMBER_TF32;
        number = mine;
    }
    return number ? number : VX_NUMBER_TF32;
}

static enum vx_number model_number(const struct vx_model *model)
{
    switch (model->network->precision) {
    case VX_PRECISION_AUTO: return weights_number(model);
    case VX_PRECISION_FP16: return VX_NUMBER_F16;
    case VX_PRECISION_BF16: return VX_NUMBER_BF16;
    case VX_PRECISION_TF32: return VX_NUMBER_TF32;
    case VX_PRECISION_FP32: return VX_NUMBER_F32;
    }
    return VX_NUMBER_F32;
}

/* What is not rounded to e4m3 is stored in the network's type, in 16 bits. */
static vx_status check_fp8(const struct vx_model *model, struct vx_why *why)
{
    const struct vx_network *network = model->network;
    VX_ENSURE_WHY(
        !network->fp8.layers_count || model_number(model) != VX_NUMBER_TF32, why,
        INVALID_ARGUMENT, "FP8 needs 16-bit numbers beside it",
        "%s: \"precision\": expected \"fp16\" or \"bf16\" with layers that have "
        "\"fp8_scale\", got \"auto\", which is tf32 for these weights",
        network->label);
    return VX_OK;
}

/* When there is no network.json, adds a hint: the person may have named the repository or
 * a file. */
static vx_status model_read_network(struct vx_model *model, const struct paths *paths,
                                    struct vx_arena *arena, struct vx_why *why)
{
    char directory[PATH_BYTES], hint[VX_FOLDER_HINT_BYTES];
    vx_status status = vx_network_read(paths->network, paths->network_label, arena, why,
                                       &model->network);
    if (vx_status_code(status) != VX_CODE_NOT_FOUND || !why) return status;
    snprintf(directory, sizeof directory, "%.*s",
             (int)(strrchr(paths->network, '/') - paths->network), paths->network);
    vx_why_add(why, vx_folder_hint(directory, hint));
    return status;
}

static vx_status model_open_weights(struct vx_model *model, const struct paths *paths,
                                    i32 version, struct vx_why *why)
{
    char directory[PATH_BYTES], hint[VX_FOLDER_HINT_BYTES];
    vx_status status =
        vx_safetensors_open(paths->weights, paths->weights_label, why, &model->file);
    if (vx_status_code(status) != VX_CODE_NOT_FOUND || !why) return status;
    snprintf(directory, sizeof directory, "%.*s",
             (int)(strrchr(paths->network, '/') - paths->network), paths->network);
    vx_why_add(why, vx_version_hint(directory, version, hint));
    return status;
}

static vx_status model_read(struct vx_model *model, const struct paths *paths,
                            const struct vx_model_source *source, bool gpu,
                            struct vx_why *why)
{
    const struct vx_fuse_options fuse = {.fold_norms = true,
                                         .fuse_activations = true,
                                         .fuse_residuals = gpu,
                                         .fuse_gathers = gpu,
                                         .fuse_live = gpu};
    struct vx_arena arena;
    model->block = vx_alloc(ARENA_BYTES);
    VX_ENSURE(model->block, RESOURCE_EXHAUSTED, "no memory to read a model");
    vx_arena_init(&arena, model->block, ARENA_BYTES);
    VX_TRY(model_read_network(model, paths, &arena, why));
    if (source->leave_fp8) vx_network_leave_fp8(model->network);
    VX_TRY(vx_fuse_build(model->network, &fuse, &arena, &model->graph));
    VX_TRY(model_open_weights(model, paths, source->version, why));
    VX_TRY(vx_weights_check(model->network, model->file, why));
    VX_TRY(check_fp8(model, why));
    model->number = gpu ? model_number(model) : VX_NUMBER_F32;
    struct vx_plan_options plan = vx_plan_cpu;
    if (gpu) plan = vx_plan_gpu(vx_number_bytes(model->number));
    model->signature.voxels_max = model->network->voxels_max;
    model->signature.samples_max = model->network->samples_max;
    for (i32 s = 0; s < model->network->sets_count; s++)
        if (vx_set_is_predicted(&model->network->sets[s].key))
            model->signature.predicts = true;
    model->signature.batching = model->network->batching;
    return vx_plan_build(model->graph, &plan, &arena, &model->plan);
}

vx_status vx_model_begin(const struct vx_model_source *source, bool gpu,
                         struct vx_why *why, struct vx_model **model)
{
    struct paths paths;
    *model = NULL;
    if (why) why->text[0] = '\0';
    VX_TRY(paths_make(source, why, &paths));
    struct vx_model *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a model");
    made->magic = VX_MODEL_MAGIC;
    vx_status status = model_read(made, &paths, source, gpu, why);
    if (status.fault)
        vx_model_close(&made);
    else
        *model = made;
    return status;
}

/* The most voxels that fit, by bisection: `need` never falls as N grows. */
static i64 room_voxels(const struct vx_model_room *room)
{
    i64 fits = 0, above = (i64)VX_VOXELS_MAX + 1;
    while (above - fits > 1) {
        i64 middle = fits + (above - fits) / 2;
        if (room->need(room->context, middle) <= room->bytes)
            fits = middle;
        else
            above = middle;
    }
    return fits;
}

/* What to do about a network of which nothing fits, as its children count with all that there
 * can be; "" if that is not why. */
static const char *limits_hint(const struct vx_network *network, char text[HINT_BYTES])
{
    text[0] = '\0';
    for (i32 i = 1; i < network->sets_count && !text[0]; i++)
        if (vx_set_is_unbounded(&network->sets[i]))
            snprintf(text, HINT_BYTES, "; set limits.sets for \"%.*s\"", VX_NAME_SHOWN,
                     network->layers[network->sets[i].layer].name);
    return text;
}

/* The voxels that a key of network.json asks for; `fits`: the most that fit. */
struct ask {
    const char *key;
    i64 voxels, fits;
};
static vx_status model_ask(const struct vx_model *model, const struct vx_model_room *room,
                           const struct ask *ask, struct vx_why *why)
{
    char hint[HINT_BYTES];
    VX_ENSURE_WHY(
        ask->voxels <= ask->fits, why, RESOURCE_EXHAUSTED,
        "the voxels that a model must take do not fit",
        "%s: %s is %lld voxels, which need %zu bytes of %s (%s); %s is %zu: at most "
        "%lld voxels fit%s",
        model->network->label, ask->key, (long long)ask->voxels,
        room->need(room->context, ask->voxels), room->memory, room->what,
        vx_bound_name(room->bound), room->bytes, (long long)ask->fits,
        limits_hint(model->network, hint));
    return VX_OK;
}

vx_status vx_model_fit(struct vx_model *model, const struct vx_model_room *room,
                       struct vx_why *why)
{
    const struct vx_network *network = model->network;
    struct vx_signature *signature = &model->signature;
    if (!room->bytes) return VX_OK;
    i64 fits = room_voxels(room);
    struct ask ask = {"the smallest request", 1, fits};
    if (network->voxels_max_said)
        ask = (struct ask){"limits.voxels_max", network->voxels_max, fits};
    VX_TRY(model_ask(model, room, &ask, why));
    ask.key = "warmup";
    for (i32 i = 0; network->warmup_said && i < network->warmup_count; i++) {
        ask.voxels = network->warmup[i];
        VX_TRY(model_ask(model, room, &ask, why));
    }
    if (signature->voxels_max > fits) {
        signature->voxels_max = fits;
        signature->voxels_bound = room->bound;
    }
    /* A GPU counts `need` only up to network->voxels_max.  If all of that fits, the bound
     * of a batch stays: a batch that is too large runs in rounds. */
    bool counted = fits != network->voxels_max;
    if (counted && signature->batching.voxels_max > fits)
        signature->batching.voxels_max = fits;
    return VX_OK;
}

static vx_status model_note(struct vx_model *model, struct vx_why *why)
{
    model->notes = vx_alloc_zero(NOTES_BYTES);
    VX_ENSURE(model->notes, RESOURCE_EXHAUSTED, "no memory for notes about a model");
    struct vx_page page = {model->notes, NOTES_BYTES, 0};
    return vx_notes_write(model->network, model->file, why, &page);
}

vx_status vx_model_finish(struct vx_model *model, const struct vx_progress *progress,
                          struct vx_why *why)
{
    VX_TRY(vx_weights_open(model->graph, model->file, progress, why, &model->weights));
    VX_TRY(model_note(model, why));
    vx_safetensors_close(&model->file);
    model_sign(model);
    return VX_OK;
}

vx_status vx_model_open(const struct vx_model_source *source, struct vx_why *why,
                        struct vx_model **model)
{
    struct vx_model *made;
    vx_status status;
    *model = NULL;
    VX_TRY(vx_model_begin(source, false, why, &made));
    VX_TRY_OR(status, out, vx_model_finish(made, NULL, why));
    *model = made;
    return VX_OK;
out:
    vx_model_close(&made);
    return status;
}

void vx_model_close(struct vx_model **model)
{
    struct vx_model *it = *model;
    *model = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == VX_MODEL_MAGIC);
    it->magic = 0;
    VX_ASSERT(!it->gpu); /* its device releases it first */
    vx_safetensors_close(&it->file);
    vx_weights_close(&it->weights);
    vx_free(it->notes);
    vx_free(it->block);
    vx_free(it);
}

const struct vx_signature *vx_model_signature(const struct vx_model *model)
{
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    return &model->signature;
}

const char *vx_model_notes(const struct vx_model *model)
{
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    return model->notes;
}
