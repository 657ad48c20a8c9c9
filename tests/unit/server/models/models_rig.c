/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/models/models_rig.h"

#include "engine/base/process/clock.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct vx_worker_info rig_infos[RIG_WORKERS];
struct vx_message_head rig_told[RIG_TOLD_MAX];
i32 rig_told_to[RIG_TOLD_MAX], rig_told_count;
i32 rig_notes_asked[RIG_WORKERS];
struct vx_registry *rig_registry;
struct vx_sched *rig_sched;
struct vx_models *rig_models;
int rig_lost, rig_looks;
u32 rig_useless;
bool rig_refuses;
i32 rig_channels;
_Atomic i64 rig_most;
i64 rig_voxels[RIG_WORKERS], rig_batch_voxels[RIG_WORKERS];
enum vx_bound rig_bound[RIG_WORKERS];
struct vx_config rig_config;
struct vx_repository_listing rig_listing;
void *rig_ended;
enum vx_code rig_ended_code;
char rig_ended_why[VX_WHY_BYTES];

static struct vx_workers *no_workers;

i32 vx_workers_count(const struct vx_workers *workers)
{
    (void)workers;
    return RIG_WORKERS;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    (void)workers;
    return &rig_infos[worker];
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    (void)workers;
    ck_assert_uint_ge(bytes, sizeof *message);
    ck_assert_int_eq(rig_infos[worker].state, VX_WORKER_UP);
    ck_assert_int_lt(rig_told_count, RIG_TOLD_MAX);
    if (rig_refuses) return false;
    if (message->kind == VX_MESSAGE_LOAD)
        rig_notes_asked[worker] +=
            ((const struct vx_message_load *)(const void *)message)->notes;
    rig_told_to[rig_told_count] = worker;
    rig_told[rig_told_count++] = *message;
    return true;
}

static void on_lost(void *context, struct vx_job *job)
{
    (void)context;
    (void)job;
    rig_lost++;
}

i64 rig_now_ns;

static i64 rig_now(void)
{
    return rig_now_ns;
}

static void on_useless(void *context, i32 worker)
{
    (void)context;
    ck_assert_int_eq(rig_infos[worker].state, VX_WORKER_UP);
    ck_assert(!(rig_useless >> worker & 1)); /* once */
    rig_useless |= UINT32_C(1) << worker;
}

static void look(void *context)
{
    (void)context;
    rig_looks++;
}

static void on_ended(void *context, void *waiter, vx_status status,
                     const struct vx_why *why)
{
    (void)context;
    rig_ended = waiter;
    rig_ended_code = vx_status_code(status);
    snprintf(rig_ended_why, sizeof rig_ended_why, "%s",
             status.fault ? vx_status_text(status, why) : "");
}

void rig_set_up(void)
{
    memset(rig_infos, 0, sizeof rig_infos);
    for (i32 w = 0; w < RIG_WORKERS; w++) {
        rig_infos[w].device = w ? "cuda:0" : "cpu";
        rig_voxels[w] = rig_batch_voxels[w] = 1000;
    }
    rig_refuses = false;
    rig_now_ns = 1;
    rig_told_count = rig_lost = rig_looks = 0;
    rig_useless = 0;
    rig_most = 0;
    memset(rig_notes_asked, 0, sizeof rig_notes_asked);
    rig_channels = 4;
    rig_ended = NULL;
    vx_config_defaults(&rig_config);
    ck_assert(!vx_registry_open(&rig_registry).fault &&
              !vx_sched_open(8, &rig_sched).fault);
    ck_assert(!vx_models_open(&(struct vx_models_options){.repository = "/models",
                                                          .voxels_most = &rig_most,
                                                          .config = &rig_config,
                                                          .registry = rig_registry,
                                                          .sched = rig_sched,
                                                          .now_ns = rig_now,
                                                          .workers = &no_workers,
                                                          .on_lost = on_lost,
                                                          .on_useless = on_useless,
                                                          .look = look,
                                                          .on_ended = on_ended},
                              &rig_models)
                   .fault);
}

void rig_tear_down(void)
{
    vx_models_close(&rig_models);
    vx_sched_close(&rig_sched);
    vx_registry_close(&rig_registry);
}

void rig_start(const char *control, const char *load)
{
    struct vx_why why = {""};
    snprintf(rig_config.model_control, sizeof rig_config.model_control, "%s", control);
    snprintf(rig_config.load_model, sizeof rig_config.load_model, "%s", load);
    vx_status status = vx_models_start(rig_models, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
}

void rig_worker_up(i32 worker)
{
    rig_infos[worker].state = VX_WORKER_UP;
    vx_sched_worker_up(rig_sched, worker);
    vx_models_on_worker_up(rig_models, worker);
}

void rig_worker_down(i32 worker)
{
    rig_infos[worker].state = VX_WORKER_DOWN;
    vx_models_on_worker_down(rig_models, worker);
    vx_sched_worker_down(rig_sched, worker, on_lost, NULL);
}

void rig_later(i64 ns)
{
    rig_now_ns += ns;
    vx_models_step(rig_models);
}

i32 rig_loads_told(i32 worker)
{
    i32 count = 0;
    for (i32 i = 0; i < rig_told_count; i++)
        count += rig_told[i].kind == VX_MESSAGE_LOAD && rig_told_to[i] == worker;
    return count;
}

void rig_list_begin(void)
{
    rig_listing = (struct vx_repository_listing){.readable = true};
}

void rig_list_add(const char *name, i64 version, u64 fingerprint)
{
    struct vx_repository_entry *entry = &rig_listing.entries[rig_listing.count++];
    *entry = (struct vx_repository_entry){
        .version = version, .fingerprint = fingerprint, .weights_bytes = 100};
    snprintf(entry->name, sizeof entry->name, "%s", name);
}

void rig_list_unread(const char *name)
{
    snprintf(rig_listing.unread[rig_listing.unread_count++], VX_NAME_BYTES, "%s", name);
}

void rig_list_give(bool quiet)
{
    rig_listing.quiet = quiet;
    rig_listing.begun_ns = vx_clock_ns();
    vx_models_on_listing(rig_models, &rig_listing);
    vx_models_step(rig_models);
}

void rig_list(i64 version, u64 fingerprint)
{
    rig_list_begin();
    if (version) rig_list_add("m", version, fingerprint);
    rig_listing.begun_ns = vx_clock_ns();
    vx_models_on_listing(rig_models, &rig_listing);
}

/* The LOAD that a worker was sent last, or -1. */
static i32 last_load(i32 worker)
{
    i32 at = rig_told_count - 1;
    while (at >= 0 && (rig_told_to[at] != worker || rig_told[at].kind != VX_MESSAGE_LOAD))
        at--;
    return at;
}

static i32 answer_at(i32 at, enum vx_code code)
{
    i32 worker = rig_told_to[at];
    static union vx_message message;
    message.loaded = (struct vx_message_loaded){.head = rig_told[at], .code = (i32)code};
    message.head.kind = VX_MESSAGE_LOADED;
    message.loaded.signature =
        (struct vx_signature){.feats_channels = rig_channels,
                              .outputs_count = 1,
                              .voxels_max = rig_voxels[worker],
                              .voxels_bound = rig_bound[worker],
                              .batching = {.voxels_max = rig_batch_voxels[worker],
                                           .requests_max = VX_BATCH_ITEMS_MAX}};
    snprintf(message.loaded.why.text, sizeof message.loaded.why.text, "the reason");
    i32 instance = rig_told[at].instance;
    vx_models_on_message(rig_models, worker, &message);
    vx_models_step(rig_models);
    return instance;
}

void rig_made(i32 worker)
{
    i32 at = last_load(worker);
    static union vx_message message;
    ck_assert_int_ge(at, 0);
    message.progress =
        (struct vx_message_progress){.head = rig_told[at], .stage = VX_PROGRESS_MADE};
    message.head.kind = VX_MESSAGE_PROGRESS;
    vx_models_on_message(rig_models, worker, &message);
    vx_models_step(rig_models);
}

i32 rig_answer(i32 worker, enum vx_code code)
{
    i32 at = last_load(worker);
    ck_assert_int_ge(at, 0);
    return answer_at(at, code);
}

void rig_answer_all(i32 worker)
{
    for (i32 at = last_load(worker), next; at >= 0; at = next) {
        answer_at(at, VX_CODE_OK);
        next = last_load(worker);
        if (next == at) return;
    }
}

enum vx_instance_state rig_state(i32 instance)
{
    return vx_registry_row(rig_registry, instance)->state;
}

i32 rig_picked(const char *name, i64 version)
{
    i32 instance = -1;
    return vx_registry_pick(rig_registry, name, version, NULL, &instance).fault
               ? -1
               : instance;
}
