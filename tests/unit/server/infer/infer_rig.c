/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/infer/infer_rig.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)

struct rig rig;
struct vx_message_done rig_said;

/* ------- workers ------- */

i32 vx_workers_count(const struct vx_workers *workers)
{
    (void)workers;
    return RIG_WORKERS;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    (void)workers;
    return &rig.infos[worker];
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    (void)workers;
    if (message->kind == VX_MESSAGE_PLACES) {
        struct rig_places *said = &rig.places[rig.places_count++];
        ck_assert_int_lt(rig.places_count, RIG_WORDS);
        said->worker = worker;
        memcpy(&said->places, message, bytes);
        ck_assert_uint_eq(bytes, vx_message_places_bytes(said->places.items_count));
        return !rig.deaf;
    }
    if (message->kind != VX_MESSAGE_RUN) return true; /* about regions */
    ck_assert_int_lt(rig.runs_count, RIG_WORDS);
    if (rig.deaf) return false;
    struct rig_run *run = &rig.runs[rig.runs_count++];
    *run = (struct rig_run){.worker = worker};
    memcpy(&run->run, message, bytes);
    ck_assert_uint_eq(bytes, vx_message_run_bytes(run->run.items_count));
    return true;
}

bool vx_workers_send_fd(struct vx_workers *workers, i32 worker,
                        const struct vx_message_head *message, size_t bytes, int passed)
{
    (void)passed;
    return vx_workers_send(workers, worker, message, bytes);
}

void vx_workers_kill(struct vx_workers *workers, i32 worker)
{
    (void)workers;
    rig.killed |= 1 << worker;
}

u32 vx_models_workers(const struct vx_models *models, i32 instance)
{
    (void)models;
    ck_assert_int_eq(instance, 0);
    return rig.model_workers;
}

/* ------- clients ------- */

const struct vx_method *vx_method_get(i32 method)
{
    static const struct vx_method infer = {"/test/Infer", VX_METHOD_UNARY_BIG};
    (void)method;
    return &infer;
}

/* Counts as rpc_infer.c does: what a call has counted is what its slots take, neither less
 * nor more. */
static void counted_add(const struct vx_call *call, i64 bytes)
{
    rig.counted[call - rig.calls] += bytes;
    ck_assert_int_ge(rig.counted[call - rig.calls], 0);
}

static struct rig_answer *answer_add(struct vx_call **call, enum vx_code code)
{
    ck_assert_int_lt(rig.answers_count, RIG_WORDS);
    ck_assert_ptr_null(rig_answer_of(*call)); /* once */
    ck_assert((*call)->answered);
    struct rig_answer *answer = &rig.answers[rig.answers_count++];
    *answer = (struct rig_answer){.call = *call, .code = code, .coming = rig.coming};
    *call = NULL;
    return answer;
}

void vx_rpc_reply_infer(struct vx_rpc *rpc, struct vx_call **call,
                        const struct vx_reply *reply, const struct vx_place *outputs)
{
    (void)rpc;
    const i64 counted = rig.counted[*call - rig.calls];
    struct rig_answer *answer = answer_add(call, VX_CODE_OK);
    i64 slots_bytes = 0;
    const struct vx_slots *slots = vx_shared_slots(rig.infer.shared);
    answer->reply = *reply;
    for (i32 i = 0; i < reply->outputs_count; i++) {
        answer->outputs[i] = outputs[i];
        struct vx_place sent = outputs[i];
        slots_bytes += (i64)vx_slot_bytes(sent.bytes);
        if (sent.bytes) slots->give(slots->context, &sent);
    }
    ck_assert_int_eq(counted, slots_bytes);
}

void vx_rpc_fail(struct vx_rpc *rpc, struct vx_call **call, vx_status status,
                 const struct vx_why *why)
{
    (void)rpc;
    ck_assert_ptr_nonnull(status.fault);
    ck_assert_int_eq(rig.counted[*call - rig.calls], 0);
    struct rig_answer *answer = answer_add(call, vx_status_code(status));
    vx_why_set(&answer->why, "%s", vx_status_text(status, why));
}

bool vx_rpc_may_take(struct vx_call *call, u64 bytes)
{
    if (rig.beyond) return false;
    counted_add(call, (i64)bytes);
    rig.took += bytes;
    return true;
}

void vx_rpc_gave(struct vx_call *call, u64 bytes)
{
    counted_add(call, -(i64)bytes);
    rig.gave += bytes;
}

void vx_rpc_answers_coming(struct vx_rpc *rpc, i32 count)
{
    (void)rpc;
    rig.coming = count;
}

static void on_ring(void *context)
{
    (void)context;
}

/* ------- the front ------- */

struct vx_signature *rig_signature(void)
{
    return &vx_registry_row(rig.infer.registry, 0)->signature;
}

static void model_open(void)
{
    ck_assert(!vx_registry_open(&rig.infer.registry).fault);
    ck_assert_int_eq(vx_registry_add(rig.infer.registry, "conv", 7, 0), 0);
    struct vx_instance *row = vx_registry_row(rig.infer.registry, 0);
    row->signature =
        (struct vx_signature){.coords_name = "coords",
                              .feats_name = "feats",
                              .feats_channels = 4,
                              .outputs_count = 2,
                              .outputs = {{"normals", VX_DTYPE_F32, 3, 0, -1, "", 0, {0}},
                                          {"score", VX_DTYPE_F16, 1, 0, -1, "", 0, {0}}},
                              .voxels_max = 1000,
                              .batching = {.voxels_max = 1000, .requests_max = 4}};
    row->state = VX_INSTANCE_READY;
    row->workers_loaded = rig.model_workers = 3;
    vx_sched_instance_set(rig.infer.sched, 0, &row->signature.batching, true);
    for (i32 w = 0; w < RIG_WORKERS; w++) {
        rig.infos[w] = (struct vx_worker_info){.state = VX_WORKER_UP, .device = "cpu"};
        vx_sched_worker_up(rig.infer.sched, w);
        vx_sched_instance_ready(rig.infer.sched, 0, w, true);
    }
}

void rig_set_up(void)
{
    struct vx_why why = {""};
    memset(&rig, 0, sizeof rig);
    vx_thread_enter(VX_ROLE_LOOP);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_ERROR, .fd = 2}, "test");
    vx_config_defaults(&rig.config);
    snprintf(rig.config.client_shm, sizeof rig.config.client_shm, "unix");
    struct vx_infer *infer = &rig.infer;
    infer->config = &rig.config;
    ck_assert(!vx_sched_open((i32)rig.config.queue_max, &infer->sched).fault);
    ck_assert(!vx_geometries_open(&infer->geometries).fault);
    ck_assert(!vx_metrics_open(&infer->metrics).fault);
    ck_assert(!vx_shared_open(ARENA_BYTES, &why, &infer->shared).fault);
    model_open();
    ck_assert(!vx_tracing_open(infer->registry, &infer->tracing).fault);
    ck_assert(!vx_regions_open(&(struct vx_regions_options){.config = &rig.config,
                                                            .workers = &rig.workers,
                                                            .ring = on_ring},
                               &infer->regions)
                   .fault);
}

static void drop_lost(void *context, struct vx_job *job)
{
    (void)context;
    rig_drop_slots(vx_call_of_job(job));
}

/* Nothing may be taken any more, except what the test itself has left waiting or
 * running. */
void rig_tear_down(void)
{
    struct vx_infer *infer = &rig.infer;
    for (i32 w = 0; w < RIG_WORKERS; w++)
        vx_sched_worker_down(infer->sched, w, drop_lost, NULL);
    vx_sched_drop_instance(infer->sched, 0, drop_lost, NULL);
    ck_assert_uint_eq(rig_used(), 0);
    vx_regions_close(&infer->regions);
    vx_tracing_close(&infer->tracing);
    vx_registry_close(&infer->registry);
    vx_shared_close(&infer->shared);
    vx_metrics_close(&infer->metrics);
    vx_geometries_close(&infer->geometries);
    vx_sched_close(&infer->sched);
}

/* ------- calls ------- */

static struct vx_request_tensor tensor_make(const char *name, enum vx_wire_type type,
                                            i64 voxels)
{
    const struct vx_slots *slots = vx_shared_slots(rig.infer.shared);
    struct vx_request_tensor tensor = {
        .type = type, .rank = 2, .shape = {voxels, 4}, .elements = voxels * 4};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    ck_assert(slots->take(slots->context, (size_t)voxels * 16, &tensor.place));
    return tensor;
}

static void input_add(struct vx_call *call, const char *name, enum vx_wire_type type,
                      i64 voxels)
{
    struct vx_request *request = &call->request;
    struct vx_request_tensor *input = &request->inputs[request->inputs_count++];
    *input = tensor_make(name, type, voxels);
    counted_add(call, (i64)vx_slot_bytes(input->place.bytes));
}

struct vx_call *rig_call_named(i32 i, i64 voxels, u64 geometry)
{
    ck_assert_int_lt(i, RIG_CALLS);
    struct vx_call *call = &rig.calls[i];
    memset(call, 0, sizeof *call);
    rig.counted[i] = 0;
    call->magic = VX_CALL_MAGIC;
    call->method = VX_METHOD_ID_MODEL_INFER;
    call->peer = (struct vx_peer){.connection = 1, .kind = VX_PEER_UNIX};
    call->deadline_ns = VX_NEVER;
    call->arrived_ns = call->decoded_ns = vx_clock_ns();
    struct vx_request *request = &call->request;
    snprintf(request->model, sizeof request->model, "conv");
    snprintf(request->id, sizeof request->id, "call-%d", i);
    input_add(call, "feats", VX_WIRE_FP32, voxels);
    request->coords_ref = (struct vx_coords_ref){geometry, 0};
    for (i32 a = 0; a < rig.answers_count; a++)
        if (rig.answers[a].call == call)
            rig.answers[a].call = NULL; /* of an earlier use */
    return call;
}

struct vx_call *rig_call(i32 i, i64 voxels)
{
    struct vx_call *call = rig_call_named(i, voxels, 0);
    struct vx_request *request = &call->request;
    input_add(call, "coords", VX_WIRE_INT32, voxels);
    request->sent_ref = (struct vx_coords_ref){(u64)i + 1, 0};
    return call;
}

void rig_drop_slots(struct vx_call *call)
{
    const struct vx_slots *slots = vx_shared_slots(rig.infer.shared);
    for (i32 i = 0; i < VX_INPUTS_MAX; i++)
        slots->give(slots->context, &call->request.inputs[i].place);
    for (i32 o = 0; o < VX_REQUEST_OUTPUTS_MAX; o++)
        slots->give(slots->context, &call->outputs[o]);
    rig.counted[call - rig.calls] = 0;
}

struct rig_run *rig_start(struct vx_call *call)
{
    i32 before = rig.runs_count;
    vx_infer_on_call(&rig.infer, call);
    vx_infer_dispatch(&rig.infer);
    ck_assert_int_eq(rig.runs_count, before + 1);
    ck_assert_int_eq(rig.runs[before].run.items_count, 1);
    return &rig.runs[before];
}

/* ------- ends ------- */

void rig_done(const struct rig_run *run)
{
    i64 now = vx_clock_ns();
    memset(&rig_said, 0, sizeof rig_said);
    rig_said.head = (struct vx_message_head){VX_MESSAGE_DONE, 0, run->run.head.serial};
    rig_said.items_count = run->run.items_count;
    rig_said.received_ns = now - 2000;
    rig_said.sent_ns = now;
    rig_said.device_ns = 1000;
    for (i32 i = 0; i < rig_said.items_count; i++)
        rig_said.items[i] = (struct vx_done_item){.why = -1,
                                                  .ran = true,
                                                  .convert_ns = 100,
                                                  .geometry_ns = 200,
                                                  .compute_ns = 300,
                                                  .output_ns = 400,
                                                  .pairs = 27 * (i + 1),
                                                  .set_voxels = 15 * (i + 1)};
}

void rig_end(const struct rig_run *run)
{
    vx_infer_on_done(&rig.infer, run->worker, &rig_said);
}

void rig_restart(i32 worker)
{
    struct vx_instance *row = vx_registry_row(rig.infer.registry, 0);
    row->workers_loaded &= ~(1u << worker);
    vx_infer_on_worker_down(&rig.infer, worker);
    vx_sched_worker_up(rig.infer.sched, worker);
    vx_sched_instance_ready(rig.infer.sched, 0, worker, true);
    row->workers_loaded |= 1u << worker;
}

struct rig_answer *rig_answer_of(const struct vx_call *call)
{
    for (i32 a = 0; a < rig.answers_count; a++)
        if (rig.answers[a].call == call) return &rig.answers[a];
    return NULL;
}

struct rig_answer *rig_expect(const struct vx_call *call, enum vx_code code)
{
    struct rig_answer *answer = rig_answer_of(call);
    ck_assert_msg(answer != NULL, "%s: no answer", call->request.id);
    ck_assert_msg(answer->code == code, "%s: %s: %s", call->request.id,
                  vx_code_name(answer->code), answer->why.text);
    return answer;
}

void rig_kept(struct vx_coords_ref coords_ref, i32 worker)
{
    const struct vx_geometry_report report = {coords_ref, 0, worker, 10, {0, 270, 41}};
    vx_geometries_kept(rig.infer.geometries, &report);
}

u64 rig_used(void)
{
    return vx_shared_used(rig.infer.shared);
}
