/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_load.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/sha256.h"

#include <string.h>

/* Combines the progress of two parts into one that reports every step once: first nodes,
 * then kernels, of which only missing binaries take time. */
struct steps {
    const struct vx_progress *outer;
    i64 before, count; /* steps before this part, and of this part */
    i64 told, total;   /* steps reported, and of both parts */
};

static void steps_report(void *context, i64 done, i64 total)
{
    struct steps *steps = context;
    i64 now = steps->before + (total ? steps->count * done / total : 0);
    if (!steps->outer || !steps->outer->report) return;
    while (steps->told < now)
        steps->outer->report(steps->outer->context, ++steps->told, steps->total);
}

struct need {
    const struct vx_gpu_choices *choices;
    struct vx_gpu_places *places;
};

static size_t need_bytes(const void *context, i64 n)
{
    const struct need *need = context;
    return vx_gpu_places_need(need->choices, n, need->places);
}

static vx_status load_choose(const struct vx_gpu_load *load, struct vx_model *model)
{
    const struct vx_network *network = model->network;
    const struct vx_gpu_choices_want want = {model->plan, model->number,
                                             network->voxels_max, load->pick};
    const struct vx_gpu_tune_sizes sizes = {load->tune, network->warmup,
                                            network->warmup_count};
    struct vx_gpu_model *gpu = model->gpu;
    pthread_mutex_lock(load->tuner.lock);
    vx_status status = vx_gpu_choices_open(&want, &gpu->choices);
    if (!status.fault) vx_gpu_tune_list(gpu->choices, load->pick, &sizes, &gpu->tune);
    pthread_mutex_unlock(load->tuner.lock);
    return status;
}

static vx_status load_weights(const struct vx_gpu_load *load, struct vx_model *model,
                              const struct vx_progress *progress, struct vx_why *why)
{
    struct vx_gpu_model *gpu = model->gpu;
    VX_TRY(vx_model_finish(model, progress, why));
    const struct vx_gpu_weights_want want = {model->plan, gpu->choices->numbers};
    VX_TRY(vx_gpu_weights_open(&want, model->weights, why, &gpu->weights));
    vx_weights_close(&model->weights);
    if (vx_conv_streams(model->number, vx_gpu_caps(load->gpu)))
        vx_gpu_weights_tile(gpu->weights);
    model->signature.weights_bytes = (i64)vx_gpu_weights_bytes(gpu->weights);
    return VX_OK;
}

/* Checks before the upload, which checks again: another model may take the memory. */
static vx_status load_check_room(const struct vx_gpu_load *load,
                                 const struct vx_model *model, struct vx_why *why)
{
    size_t bytes = vx_gpu_weights_bytes(model->gpu->weights), have, total;
    VX_TRY(vx_gpu_memory_info(load->gpu, why, &have, &total));
    VX_ENSURE_WHY(
        bytes <= have, why, RESOURCE_EXHAUSTED,
        "the weights do not fit in the device memory",
        "%s: its weights need %zu bytes of device memory, of which %zu are free "
        "beside the activations and other models",
        model->network->label, bytes, have);
    return VX_OK;
}

/* Models with equal lists of sets, of ordered sets and of maps share geometries. */
static struct vx_coords_ref maps_name_of(const struct vx_plan *plan)
{
    struct vx_sha256 sha;
    u8 digest[VX_SHA256_BYTES];
    struct vx_coords_ref name;
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, plan->sets[0].shape, sizeof plan->sets[0].shape);
    for (i32 i = 1; i < plan->sets_count; i++)
        vx_sha256_add(&sha, &plan->sets[i].key, sizeof plan->sets[i].key);
    for (i32 i = 0; i < plan->ordered_count; i++) {
        const struct vx_plan_ordered *ordered = &plan->ordered[i];
        const i32 kept[] = {ordered->set, ordered->output, ordered->samples,
                            ordered->dense};
        vx_sha256_add(&sha, kept, sizeof kept);
    }
    vx_sha256_add(&sha, plan->maps, (size_t)plan->maps_count * sizeof *plan->maps);
    vx_sha256_finish(&sha, digest);
    memcpy(&name, digest, sizeof name);
    return name;
}

static vx_status load_maps(struct vx_model *model)
{
    struct vx_gpu_model *gpu = model->gpu;
    size_t maps = (VX_BATCH_ITEMS_MAX + 1) * (size_t)model->plan->maps_count;
    gpu->maps_name = maps_name_of(model->plan);
    gpu->maps = vx_alloc_zero((maps + 1) * sizeof *gpu->maps);
    gpu->sorted =
        vx_alloc_zero((size_t)model->plan->launches_count * sizeof *gpu->sorted);
    size_t ordered = (VX_BATCH_ITEMS_MAX + 1) * (size_t)model->plan->ordered_count;
    gpu->ordered = vx_alloc_zero((ordered + 1) * sizeof *gpu->ordered);
    VX_ENSURE(gpu->maps && gpu->sorted && gpu->ordered, RESOURCE_EXHAUSTED,
              "no memory for a model");
    return VX_OK;
}

static vx_status load_parts(const struct vx_gpu_load *load, struct vx_model *model,
                            struct vx_gpu_wanted *wanted,
                            const struct vx_progress *progress, struct vx_why *why)
{
    struct vx_gpu_model *gpu = model->gpu = vx_alloc_zero(sizeof *gpu);
    VX_ENSURE(gpu, RESOURCE_EXHAUSTED, "no memory for a model");
    VX_TRY(load_choose(load, model));
    VX_TRY(load_maps(model));
    const struct need need = {gpu->choices, &gpu->places};
    const struct vx_model_room room = {.bytes = load->bytes,
                                       .need = need_bytes,
                                       .context = &need,
                                       .memory = "device memory",
                                       .bound = VX_BOUND_DEVICE_BYTES,
                                       .what = "activations, neighbour maps, workspaces"};
    VX_TRY(vx_model_fit(model, &room, why));
    /* So that there is room for a round of each lane. */
    vx_gpu_choices_beside(gpu->choices, model->signature.voxels_max, load->bytes / 2,
                          &gpu->places);
    VX_TRY(vx_gpu_wanted_model(wanted, gpu->choices, model->signature.voxels_max, why));

    i64 nodes = model->graph->nodes_count;
    struct steps steps = {progress, 0, nodes, 0, nodes + wanted->count};
    const struct vx_progress inner = {steps_report, &steps};
    VX_TRY(load_weights(load, model, &inner, why));
    VX_TRY(load_check_room(load, model, why));
    steps.before = nodes;
    steps.count = wanted->count;
    VX_TRY(vx_kernel_set_ready(load->tuner.device.set, wanted->list, wanted->count,
                               &inner, why));
    steps_report(&steps, 1, 1);
    return vx_gpu_tune_ready(&gpu->tune, &load->tuner, why);
}

vx_status vx_gpu_model_open(const struct vx_gpu_load *load,
                            const struct vx_model_source *source,
                            const struct vx_progress *progress, struct vx_why *why,
                            struct vx_model **model)
{
    *model = NULL;
    struct vx_gpu_wanted *wanted = vx_alloc_zero(sizeof *wanted);
    VX_ENSURE(wanted, RESOURCE_EXHAUSTED, "no memory for a model");
    struct vx_model *made = NULL;
    vx_status status = vx_model_begin(source, true, why, &made);
    if (!status.fault) status = load_parts(load, made, wanted, progress, why);
    vx_free(wanted);
    if (status.fault)
        vx_gpu_model_close(NULL, &made);
    else
        *model = made;
    return status;
}

/* `gpu` NULL: a model whose weights never went to the device. */
void vx_gpu_model_close(struct vx_gpu *gpu, struct vx_model **model)
{
    if (!*model) return;
    struct vx_gpu_model *it = (*model)->gpu;
    (*model)->gpu = NULL;
    if (it) {
        vx_gpu_tune_close(&it->tune);
        vx_gpu_weights_close(&it->weights, gpu);
        vx_gpu_choices_close(&it->choices);
        vx_free(it->maps);
        vx_free(it->sorted);
        vx_free(it->ordered);
        vx_free(it);
    }
    vx_model_close(model);
}

vx_status vx_gpu_model_kernels(const struct vx_model_source *source,
                               const struct vx_pick *pick, struct vx_why *why,
                               struct vx_gpu_wanted *wanted)
{
    struct vx_model *model;
    struct vx_gpu_choices *choices = NULL;
    vx_status status;
    VX_TRY(vx_model_begin(source, true, why, &model));
    const struct vx_gpu_choices_want want = {model->plan, model->number,
                                             model->network->voxels_max, pick};
    VX_TRY_OR(status, out, vx_gpu_choices_open(&want, &choices));
    VX_TRY_OR(status, out,
              vx_gpu_wanted_model(wanted, choices, model->network->voxels_max, why));
out:
    vx_gpu_choices_close(&choices);
    vx_model_close(&model);
    return status;
}
