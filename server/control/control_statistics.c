/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "open_inference.pb-c.h"

#include <stdio.h>
#include <string.h>

/* Eight of requests, and three for each size of batch. */
#define STATISTICS_DURATIONS (8 + 3 * VX_BATCH_ITEMS_MAX)

/* A ModelStatistics and everything it points to. */
struct statistics_row {
    Inference__ModelStatistics model;
    char version[VX_CONTROL_NUMBER_BYTES];
    Inference__StatisticDuration durations[STATISTICS_DURATIONS];
    i32 durations_count;
    Inference__InferStatistics infer;
    Inference__InferBatchStatistics batches[VX_BATCH_ITEMS_MAX];
    Inference__InferBatchStatistics *batch_list[VX_BATCH_ITEMS_MAX];
    Inference__MemoryUsage memory[VX_WORKERS_MAX];
    Inference__MemoryUsage *memory_list[VX_WORKERS_MAX];
};
/* Rows are taken from the arena one by one: VX_INSTANCES_MAX of them are megabytes, which
 * would have to be cleared. */
struct statistics_answer {
    Inference__ModelStatisticsResponse response;
    Inference__ModelStatistics *list[VX_INSTANCES_MAX];
};

static Inference__StatisticDuration *statistics_duration(struct statistics_row *row,
                                                         const struct vx_duration *from)
{
    Inference__StatisticDuration *duration = &row->durations[row->durations_count++];
    inference__statistic_duration__init(duration);
    duration->count = from->count;
    duration->ns = from->ns;
    return duration;
}

/* One entry for each size of batch that has run. */
static void statistics_set_batches(struct statistics_row *row,
                                   const struct vx_instance_stats *stats)
{
    size_t count = 0;
    for (u64 size = 1; size <= VX_BATCH_ITEMS_MAX; size++) {
        const struct vx_batch_stats *from = &stats->batches[size - 1];
        if (!from->compute_infer.count) continue;
        Inference__InferBatchStatistics *batch = &row->batches[count];
        inference__infer_batch_statistics__init(batch);
        batch->batch_size = size;
        batch->compute_input = statistics_duration(row, &from->compute_input);
        batch->compute_infer = statistics_duration(row, &from->compute_infer);
        batch->compute_output = statistics_duration(row, &from->compute_output);
        row->batch_list[count++] = batch;
    }
    row->model.n_batch_stats = count;
    row->model.batch_stats = row->batch_list;
}

static Inference__MemoryUsage *memory_of(struct statistics_row *row,
                                         struct vx_control_device device, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        if (row->memory[i].id == device.index &&
            !strcmp(row->memory[i].type, "GPU") == device.gpu)
            return &row->memory[i];
    Inference__MemoryUsage *memory = &row->memory[*count];
    inference__memory_usage__init(memory);
    memory->type = device.gpu ? "GPU" : "CPU";
    memory->id = device.index;
    row->memory_list[(*count)++] = memory;
    return memory;
}

/* The bytes of the weights on each device: the sum over its workers, each of which has
 * its own.  response_stats stays empty: it is for models that answer one request several
 * times, and none here does. */
static void statistics_set_memory(struct statistics_row *row,
                                  const struct vx_instance *instance,
                                  const struct vx_workers *workers)
{
    size_t count = 0;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        if (!(instance->workers_loaded >> w & 1)) continue;
        memory_of(row, vx_control_device_of(workers, w), &count)->byte_size +=
            (u64)instance->weights_bytes[w];
    }
    row->model.n_memory_usage = count;
    row->model.memory_usage = row->memory_list;
}

static void statistics_set_row(struct statistics_row *row, struct vx_instance *instance,
                               const struct vx_workers *workers)
{
    const struct vx_instance_stats *stats = instance->stats;
    Inference__ModelStatistics *model = &row->model;
    inference__model_statistics__init(model);
    /* A decimal number: perf_analyzer reads it as one. */
    snprintf(row->version, sizeof row->version, "%lld", (long long)instance->version);
    model->name = instance->name;
    model->version = row->version;
    model->last_inference = stats->last_inference_ms;
    model->inference_count = stats->inference_count;
    model->execution_count = stats->execution_count;
    inference__infer_statistics__init(&row->infer);
    row->infer.success = statistics_duration(row, &stats->success);
    row->infer.fail = statistics_duration(row, &stats->fail);
    row->infer.queue = statistics_duration(row, &stats->queue);
    row->infer.compute_input = statistics_duration(row, &stats->compute_input);
    row->infer.compute_infer = statistics_duration(row, &stats->compute_infer);
    row->infer.compute_output = statistics_duration(row, &stats->compute_output);
    /* These are for Triton's response cache; voxeld computes every answer.  What the
     * geometry cache saves is in /metrics and in the answers' `timing`. */
    row->infer.cache_hit = statistics_duration(row, &(struct vx_duration){0});
    row->infer.cache_miss = statistics_duration(row, &(struct vx_duration){0});
    model->inference_stats = &row->infer;
    statistics_set_batches(row, stats);
    statistics_set_memory(row, instance, workers);
}

/* An empty name asks for all models, an empty version for all versions.  A version that
 * is being unloaded still counts: its last requests end now. */
static bool statistics_wanted(const struct vx_instance *row, const char *name,
                              i64 version)
{
    if (row->state != VX_INSTANCE_READY && row->state != VX_INSTANCE_UNLOADING)
        return false;
    return (!*name || !strcmp(row->name, name)) && (!version || row->version == version);
}

/* Both instances of a version that is replaced have its counts: the one that serves tells
 * them, or the newest. */
static bool statistics_are_told(struct vx_registry *registry,
                                const struct vx_instance *row)
{
    i32 cursor = vx_registry_seek(registry, row->name, row->version);
    const struct vx_instance *best = row, *other;
    while ((other = vx_registry_next(registry, &cursor)) && other->stats == row->stats)
        if (other->state == VX_INSTANCE_READY ||
            (other->state == VX_INSTANCE_UNLOADING && best->state != VX_INSTANCE_READY))
            best = other;
    return best == row;
}

vx_status vx_control_model_statistics(struct vx_control_question *question)
{
    const Inference__ModelStatisticsRequest *request = (const void *)question->request;
    struct vx_registry *registry = question->view->registry;
    i64 version;
    VX_TRY(vx_codec_parse_version(request->version, question->why, &version));
    struct vx_instance *row;
    if (*request->name) /* only for the error when there is no such model */
        VX_TRY(vx_control_pick(question, request->name, request->version, &row));
    struct statistics_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__model_statistics_response__init(&answer->response);
    i32 cursor = 0;
    size_t count = 0;
    while ((row = vx_registry_next(registry, &cursor))) {
        if (!statistics_wanted(row, request->name, version)) continue;
        if (!vx_control_sees(question, row->name)) continue;
        if (!statistics_are_told(registry, row)) continue;
        struct statistics_row *said = vx_arena_take(question->scratch, sizeof *said);
        VX_ENSURE(said, RESOURCE_EXHAUSTED, "no room for the answer");
        statistics_set_row(said, row, question->view->workers);
        answer->list[count++] = &said->model;
    }
    answer->response.n_model_stats = count;
    answer->response.model_stats = answer->list;
    question->answer = &answer->response.base;
    return VX_OK;
}
