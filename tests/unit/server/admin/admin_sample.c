/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/admin/admin_sample.h"

#include "engine/base/process/clock.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct vx_instance *sample_model(struct sample *sample, const char *name,
                                        i64 version, enum vx_instance_state state)
{
    i32 instance = vx_registry_add(sample->registry, name, version, 0);
    ck_assert_int_ge(instance, 0);
    struct vx_instance *model = vx_registry_row(sample->registry, instance);
    model->state = state;
    return model;
}

static void sample_serving(struct vx_instance *model, u64 requests)
{
    struct vx_signature *signature = &model->signature;
    model->workers_loaded = 1;
    model->load_ns = 340 * VX_NS_PER_MS;
    signature->feats_channels = 1;
    signature->outputs_count = 1;
    signature->weights_bytes = 1835008;
    signature->outputs[0] =
        (struct vx_output){"normals", VX_DTYPE_F32, 3, 0, -1, "", 0, {0}};
    *model->stats = (struct vx_instance_stats){
        .inference_count = requests,
        .execution_count = requests / 2,
        .voxels = requests * 31415,
        .pairs = requests * 31415 * 9,
        .set_voxels = requests * 40000,
        .success = {requests, requests * 41000000},
        .fail = {12, 3000000},
        .queue = {requests, requests * 2500000},
        .compute_input = {requests, requests * 300500},
        .compute_infer = {requests, requests * 33000000},
        .compute_output = {requests, requests * 200999},
        .geometry_hit = {requests - requests / 5, requests * 90000},
        .geometry_miss = {requests / 5, requests * 700000},
        .rejected = 4,
        .cancelled = 5,
        .broken = 2,
    };
}

static void sample_models(struct sample *sample)
{
    sample_serving(sample_model(sample, "normals", 1, VX_INSTANCE_READY), 128431);
    sample_serving(sample_model(sample, "normals", 2, VX_INSTANCE_UNLOADING), 7);
    sample_serving(sample_model(sample, "normals", 2, VX_INSTANCE_READY), 9000);
    struct vx_instance *model = sample_model(sample, "segment", 4, VX_INSTANCE_LOADING);
    snprintf(model->reason, sizeof model->reason, "14 of 52 layers");
    model->load_done = 14;
    model->load_total = 52;
    model = sample_model(sample, "we\"ird\\<b>\n", 1, VX_INSTANCE_UNAVAILABLE);
    snprintf(model->reason, sizeof model->reason,
             "layer 'enc.conv1': expected tensor 'enc.conv1.weight' of shape "
             "(32, 3, 3, 3, 16), got <none> & nothing else");
}

static void sample_requests(struct vx_metrics *metrics)
{
    u64 state = 1;
    for (int i = 0; i < 4000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        i64 compute = (i64)(20 + (state >> 40) % 30 + (i % 50 ? 0 : 100u)) * VX_NS_PER_MS;
        vx_metrics_observe_request(metrics, &(struct vx_metrics_request){
                                                .code = VX_CODE_OK,
                                                .total_ns = compute + 4 * VX_NS_PER_MS,
                                                .voxels = (i64)(state >> 50),
                                                .bytes_in = (state >> 50) * 20,
                                                .ran = true,
                                                .queue_ns = compute / 16,
                                                .compute_ns = compute,
                                                .geometry_ns = compute / 30,
                                            });
    }
    vx_metrics_observe_request(
        metrics, &(struct vx_metrics_request){.code = VX_CODE_INVALID_ARGUMENT});
    vx_failures_note(&metrics->failures,
                     &(struct vx_failure){.code = VX_CODE_INVALID_ARGUMENT,
                                          .method = "/inference/ModelInfer",
                                          .model = "normals",
                                          .text = "expected a shape, got <i>"});
    vx_metrics_observe_batch(metrics,
                             &(struct vx_metrics_batch){.requests = 3,
                                                        .voxels = 90000,
                                                        .set_voxels = 90000,
                                                        .voxels_max = 100000,
                                                        .border_ns = 15000,
                                                        .device_ns = 2000000,
                                                        .predicted_ns = 2100000});
}

/* One entry, and a file that is wrong now. */
static struct vx_access *sample_access(void)
{
    struct vx_access *access;
    struct vx_why why;
    char text[] = "{\"tokens\": [{\"name\": \"open\", \"anyone\": true, \"models\": "
                  "[\"*\"], \"methods\": [\"infer\"]}]}";
    const struct vx_access_options options = {.tokens = true, .connections_max = 1};
    ck_assert(!vx_access_open(&options, &access).fault);
    struct vx_access_table *table = vx_access_spare(access);
    ck_assert(!vx_access_table_parse(text, strlen(text), &why, table).fault);
    vx_access_use_spare(access, 0);
    vx_access_file_state_set(access, VX_ACCESS_FILE_BAD);
    return access;
}

void sample_open(struct sample *sample)
{
    memset(sample, 0, sizeof *sample);
    ck_assert(!vx_metrics_open(&sample->metrics).fault);
    ck_assert(!vx_registry_open(&sample->registry).fault);
    ck_assert(!vx_sched_open(16, &sample->sched).fault);
    sample_models(sample);
    sample_requests(sample->metrics);
    sample->rpc = (struct vx_rpc_counters){.refused_bad = 3,
                                           .cut_sending = 6,
                                           .bytes_in = 123456789012,
                                           .bytes_out = 99,
                                           .in_flight = 5,
                                           .connections = 12,
                                           .connections_ever = 345,
                                           .connections_refused = 6,
                                           .streams = 2,
                                           .receiving = 1};
    sample->rpc.calls[VX_METHOD_ID_MODEL_INFER] = 137500;
    sample->spans = (struct vx_exporter_counts){
        .sent = 962500, .rejected = 14, .failed = 3584, .dropped = 77};
    sample->workers[0] = (struct vx_worker_view){.index = 0,
                                                 .device = "cpu",
                                                 .state = "up",
                                                 .up = true,
                                                 .restarts = 2,
                                                 .losses = 1,
                                                 .hangs = 3,
                                                 .pid = 4242};
    sample->workers[0].stats = (struct vx_engine_stats){
        .device_name = "cpu: AMD EPYC, 2 threads, OpenBLAS SkylakeX",
        .device_bytes = INT64_C(4) << 30,
        .device_bytes_used_max = 734003200,
        .cache_bytes = 201326592,
        .cache_bytes_max = 536870912,
        .cache_hits = 110000,
        .cache_misses = 27500,
        .cache_evictions = 812,
        .gpu = {.uuid = SAMPLE_UUID,
                .memory_bytes = 150109880320,
                .memory_bytes_used = 552402944,
                .utilization_known = true,
                .power_known = true,
                .utilization = 7,
                .power_mw = 124411,
                .power_limit_mw = 700000,
                .energy_mj = INT64_C(2956908000123)}};
    sample->workers[1] =
        (struct vx_worker_view){.index = 1, .device = "cpu", .state = "starting"};
    sample->sources = (struct vx_metrics_sources){.metrics = sample->metrics,
                                                  .registry = sample->registry,
                                                  .rpc = &sample->rpc,
                                                  .sched = sample->sched,
                                                  .workers = sample->workers,
                                                  .workers_count = 2,
                                                  .access = sample_access(),
                                                  .spans = &sample->spans,
                                                  .queued = 3,
                                                  .running = 2,
                                                  .queued_voxels = 94245,
                                                  .arena_bytes = UINT64_C(2) << 30,
                                                  .arena_bytes_used = 14680064};
}

void sample_close(struct sample *sample)
{
    vx_access_close(&sample->sources.access);
    vx_sched_close(&sample->sched);
    vx_registry_close(&sample->registry);
    vx_metrics_close(&sample->metrics);
}

void sample_add(struct sample *sample, const char *name, const char *reason)
{
    struct vx_instance *model = sample_model(sample, name, 1, VX_INSTANCE_READY);
    sample_serving(model, 1000);
    snprintf(model->reason, sizeof model->reason, "%s", reason);
}
