/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "engine/base/process/check.h"
#include "server/devices/devices.h"
#include "server/workers/workers.h"

#include "model_config.pb-c.h"
#include "open_inference.pb-c.h"

#include <stdio.h>

/* Limits that clients should know but for which ModelConfig has no field. */
#define CONFIG_LIMITS     9
#define CONFIG_PARAMETERS (CONFIG_LIMITS + 2 * VX_OUTPUTS_MAX)

/* A ModelConfigResponse and everything it points to, taken from the arena at once. */
struct config_answer {
    Inference__ModelConfigResponse response;
    Inference__ModelConfig config;
    Inference__ModelVersionPolicy policy;
    Inference__ModelVersionPolicy__All all;
    Inference__ModelDynamicBatching batching;
    Inference__ModelQueuePolicy policies[VX_PRIORITY_LEVELS_MAX + 1];
    Inference__ModelDynamicBatching__PriorityQueuePolicyEntry
        policy_entries[VX_PRIORITY_LEVELS_MAX];
    Inference__ModelDynamicBatching__PriorityQueuePolicyEntry
        *policy_list[VX_PRIORITY_LEVELS_MAX];
    Inference__ModelTransactionPolicy transaction;
    Inference__ModelInstanceGroup groups[VX_WORKERS_MAX]; /* GPUs by count, CPU */
    Inference__ModelInstanceGroup *group_list[VX_WORKERS_MAX];
    char group_names[VX_WORKERS_MAX][VX_NAME_BYTES + 8];
    int32_t gpus[VX_WORKERS_MAX];
    Inference__ModelInput inputs[2];
    Inference__ModelInput *input_list[2];
    Inference__ModelOutput outputs[VX_OUTPUTS_MAX];
    Inference__ModelOutput *output_list[VX_OUTPUTS_MAX];
    i64 dims[2 + VX_OUTPUTS_MAX][1 + VX_OUTPUT_DIMS_MAX];
    Inference__ModelConfig__ParametersEntry entries[CONFIG_PARAMETERS];
    Inference__ModelConfig__ParametersEntry *entry_list[CONFIG_PARAMETERS];
    Inference__ModelParameter parameters[CONFIG_PARAMETERS];
    char parameter_texts[CONFIG_LIMITS][VX_CONTROL_NUMBER_BYTES];
    char parameter_names[2 * VX_OUTPUTS_MAX][VX_NAME_BYTES + 8];
};

static void config_set_input(struct config_answer *answer, i32 number, char *name,
                             enum vx_dtype dtype, i64 columns)
{
    Inference__ModelInput *input = &answer->inputs[number];
    inference__model_input__init(input);
    answer->input_list[number] = input;
    answer->dims[number][0] = -1; /* rows: any number of voxels */
    answer->dims[number][1] = columns;
    input->name = name;
    input->data_type = (Inference__DataType)vx_control_dtype_get(dtype).config;
    input->n_dims = 2;
    input->dims = answer->dims[number];
}

static void config_set_outputs(struct config_answer *answer,
                               struct vx_signature *signature)
{
    for (i32 i = 0; i < signature->outputs_count; i++) {
        Inference__ModelOutput *output = &answer->outputs[i];
        inference__model_output__init(output);
        answer->output_list[i] = output;
        output->name = signature->outputs[i].name;
        output->data_type =
            (Inference__DataType)vx_control_dtype_get(signature->outputs[i].dtype).config;
        output->n_dims =
            (size_t)vx_output_shape(&signature->outputs[i], -1, answer->dims[2 + i]);
        output->dims = answer->dims[2 + i];
    }
    answer->config.n_output = (size_t)signature->outputs_count;
    answer->config.output = answer->output_list;
}

static void config_add_text(struct config_answer *answer, char *name, char *text)
{
    size_t number = answer->config.n_parameters++;
    inference__model_config__parameters_entry__init(&answer->entries[number]);
    inference__model_parameter__init(&answer->parameters[number]);
    answer->parameters[number].string_value = text;
    answer->entries[number].key = name;
    answer->entries[number].value = &answer->parameters[number];
    answer->entry_list[number] = &answer->entries[number];
    answer->config.parameters = answer->entry_list;
}

static void config_add_limit(struct config_answer *answer, char *name, i64 value)
{
    char *text = answer->parameter_texts[answer->config.n_parameters];
    VX_ASSERT(answer->config.n_parameters < CONFIG_LIMITS);
    snprintf(text, VX_CONTROL_NUMBER_BYTES, "%lld", (long long)value);
    config_add_text(answer, name, text);
}

/* What would have to be larger so that voxels_max were: "cache_bytes". */
static void config_add_bound(struct config_answer *answer, enum vx_bound bound)
{
    char *text = answer->parameter_texts[answer->config.n_parameters];
    VX_ASSERT(answer->config.n_parameters < CONFIG_LIMITS);
    snprintf(text, VX_CONTROL_NUMBER_BYTES, "%s", vx_bound_name(bound));
    config_add_text(answer, "voxels_max_bound", text);
}

/* Only a dense output has a size that follows from the samples. */
static void config_add_samples(struct config_answer *answer,
                               const struct vx_signature *signature)
{
    for (i32 o = 0; o < signature->outputs_count; o++) {
        if (signature->outputs[o].set != VX_OUTPUT_DENSE) continue;
        config_add_limit(answer, "samples_max", signature->samples_max);
        return;
    }
}

/* "1440x1440x40", as a request may send one of its own; nothing where there is none. */
static void config_add_shape(struct config_answer *answer, const i32 shape[3])
{
    char *text = answer->parameter_texts[answer->config.n_parameters];
    if (!shape[0]) return;
    VX_ASSERT(answer->config.n_parameters < CONFIG_LIMITS);
    snprintf(text, VX_CONTROL_NUMBER_BYTES, "%dx%dx%d", shape[0], shape[1], shape[2]);
    config_add_text(answer, "spatial_shape", text);
}

/* "coords.NAME" and "stride.NAME" of outputs whose rows are not the request's: ModelOutput
 * has no parameters of its own. */
static void config_add_outputs(struct config_answer *answer,
                               struct vx_signature *signature)
{
    char(*names)[VX_NAME_BYTES + 8] = answer->parameter_names;
    for (i32 o = 0; o < signature->outputs_count; o++) {
        struct vx_output *output = &signature->outputs[o];
        if (output->set <= 0) continue;
        snprintf(*names, sizeof *names, "stride.%s", output->name);
        config_add_text(answer, *names++, output->stride);
        if (output->coords == o) continue;
        snprintf(*names, sizeof *names, "coords.%s", output->name);
        config_add_text(answer, *names++, signature->outputs[output->coords].name);
    }
}

static void config_set_policy(struct config_answer *answer, i32 level,
                              const struct vx_queue_policy *from)
{
    Inference__ModelQueuePolicy *policy = &answer->policies[level];
    inference__model_queue_policy__init(policy);
    policy->timeout_action = from->timeout_delay
                                 ? INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY
                                 : INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__REJECT;
    policy->default_timeout_microseconds = (u64)from->default_timeout_us;
    policy->allow_timeout_override = from->allow_timeout_override;
    policy->max_queue_size = (u32)from->max_queue_size;
}

/* Writes every level, also those that network.json does not mention. */
static void config_set_batching(struct config_answer *answer,
                                const struct vx_batching *from)
{
    Inference__ModelDynamicBatching *batching = &answer->batching;
    inference__model_dynamic_batching__init(batching);
    batching->max_queue_delay_microseconds = (u64)from->delay_us;
    batching->priority_levels = (u64)from->priority_levels;
    batching->default_priority_level = (u64)from->default_priority_level;
    config_set_policy(answer, 0, &from->policies[0]);
    batching->default_queue_policy = &answer->policies[0];
    for (i32 level = 1; level <= from->priority_levels; level++) {
        config_set_policy(answer, level, &from->policies[level]);
        Inference__ModelDynamicBatching__PriorityQueuePolicyEntry *entry =
            &answer->policy_entries[level - 1];
        inference__model_dynamic_batching__priority_queue_policy_entry__init(entry);
        entry->key = (u64)level;
        entry->value = &answer->policies[level];
        answer->policy_list[level - 1] = entry;
    }
    batching->n_priority_queue_policy = (size_t)from->priority_levels;
    batching->priority_queue_policy = answer->policy_list;
}

struct vx_control_device vx_control_device_of(const struct vx_workers *workers,
                                              i32 worker)
{
    i64 id = -1;
    if (workers && worker < vx_workers_count(workers))
        id = vx_device_id(vx_workers_info(workers, worker)->device, worker);
    return (struct vx_control_device){id >= 0, id >= 0 ? (i32)id : 0};
}

static Inference__ModelInstanceGroup *config_add_group(struct config_answer *answer,
                                                       const char *model)
{
    size_t at = answer->config.n_instance_group++;
    Inference__ModelInstanceGroup *group = &answer->groups[at];
    inference__model_instance_group__init(group);
    snprintf(answer->group_names[at], sizeof answer->group_names[at], "%s_%zu", model,
             at);
    group->name = answer->group_names[at];
    answer->group_list[at] = group;
    answer->config.instance_group = answer->group_list;
    return group;
}

/* Adds a group with the GPUs that have `count` instances each, if there are any. */
static void config_add_gpus(struct config_answer *answer, const char *model,
                            const i32 instances[VX_WORKERS_MAX], i32 count, size_t *gpus)
{
    size_t first = *gpus;
    for (i32 id = 0; id < VX_WORKERS_MAX; id++)
        if (instances[id] == count) answer->gpus[(*gpus)++] = id;
    if (*gpus == first) return;
    Inference__ModelInstanceGroup *group = config_add_group(answer, model);
    group->kind = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU;
    group->count = count;
    group->n_gpus = *gpus - first;
    group->gpus = &answer->gpus[first];
}

/* One instance per worker that has the model; a GPU may have several workers. */
static void config_set_instances(struct config_answer *answer,
                                 const struct vx_instance *row,
                                 const struct vx_workers *workers)
{
    i32 cpus = 0, instances[VX_WORKERS_MAX] = {0};
    size_t gpus = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        if (!(row->workers_loaded >> w & 1)) continue;
        struct vx_control_device device = vx_control_device_of(workers, w);
        VX_ASSERT(device.index < VX_WORKERS_MAX);
        cpus += !device.gpu;
        instances[device.index] += device.gpu;
    }
    for (i32 count = 1; count <= VX_WORKERS_MAX; count++)
        config_add_gpus(answer, row->name, instances, count, &gpus);
    if (cpus) {
        Inference__ModelInstanceGroup *group = config_add_group(answer, row->name);
        group->kind = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
        group->count = cpus;
    }
}

/* Dynamic batching, by voxels; no decoupled responses; all versions are served. */
static void config_set_scheduling(struct config_answer *answer,
                                  const struct vx_instance *row)
{
    Inference__ModelConfig *config = &answer->config;
    config_set_batching(answer, &row->signature.batching);
    config->scheduling_choice_case =
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    config->dynamic_batching = &answer->batching;
    inference__model_transaction_policy__init(
        &answer->transaction); /* decoupled: false */
    config->model_transaction_policy = &answer->transaction;
    inference__model_version_policy__init(&answer->policy);
    inference__model_version_policy__all__init(&answer->all);
    answer->policy.policy_choice_case =
        INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL;
    answer->policy.all = &answer->all;
    config->version_policy = &answer->policy;
}

/* max_batch_size stays 0: the first dimension of a shape is voxels, not requests.
 * dynamic_batching is set so that tools report queue times. */
vx_status vx_control_model_config(struct vx_control_question *question)
{
    const Inference__ModelConfigRequest *request = (const void *)question->request;
    struct vx_instance *row;
    VX_TRY(vx_control_pick(question, request->name, request->version, &row));
    struct config_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    struct vx_signature *signature = &row->signature;
    Inference__ModelConfig *config = &answer->config;
    inference__model_config_response__init(&answer->response);
    inference__model_config__init(config);
    answer->response.config = config;
    config->name = row->name;
    config->platform = VX_CONTROL_PLATFORM;
    config->backend = VX_CONTROL_PLATFORM;
    config->default_model_filename = "weights.safetensors";
    config_set_input(answer, 0, signature->coords_name, VX_DTYPE_I32, 4);
    config_set_input(answer, 1, signature->feats_name, VX_DTYPE_F32,
                     signature->feats_channels);
    config->n_input = 2;
    config->input = answer->input_list;
    config_set_outputs(answer, signature);
    config_set_scheduling(answer, row);
    config_set_instances(answer, row, question->view->workers);
    config_add_limit(answer, "voxels_max", signature->voxels_max);
    config_add_limit(answer, "batch_voxels_max", signature->batching.voxels_max);
    config_add_limit(answer, "batch_requests_max", signature->batching.requests_max);
    config_add_limit(answer, "batch_pairs_max", signature->batching.pairs_max);
    config_add_samples(answer, signature);
    if (signature->fp8_layers)
        config_add_limit(answer, "fp8_layers", signature->fp8_layers);
    config_add_bound(answer, signature->voxels_bound);
    config_add_shape(answer, signature->shape);
    if (*signature->axes) config_add_text(answer, "axes", signature->axes);
    config_add_outputs(answer, signature);
    question->answer = &answer->response.base;
    return VX_OK;
}
