/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/worker/worker.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/confine/confine.h"
#include "server/devices/devices.h"
#include "server/repository/repository.h"
#include "server/worker/worker_device.h"
#include "server/worker/worker_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The shortest interval between two PROGRESS or two WORKING: people read no faster. */
#define PROGRESS_NS (100 * VX_NS_PER_MS)

void vx_worker_say(const struct vx_worker *worker, const struct vx_message_head *message,
                   size_t bytes)
{
    /* If the front is gone, the next read reports the end of the channel. */
    vx_status st = vx_channel_send(worker->channel, message, bytes);
    if (st.fault) return;
}

void vx_worker_say_end(struct vx_worker *worker, bool lost, const char *why)
{
    struct vx_message_ends *out = &worker->out.ends;
    memset(out, 0, sizeof *out);
    out->head.kind = VX_MESSAGE_ENDS;
    out->lost = lost;
    vx_why_set(&out->why, "%s", why);
    vx_worker_say(worker, &out->head, sizeof *out);
}

/* ------- main thread: model files ------- */

void vx_worker_say_progress(struct vx_worker_load *load,
                            struct vx_message_progress *message)
{
    i64 now = vx_clock_ns();
    bool same = message->stage == load->stage_said && message->done < message->total;
    if (same && now - load->progress_said_ns < PROGRESS_NS) return;
    load->progress_said_ns = now;
    load->stage_said = message->stage;
    message->head = load->message.head;
    message->head.kind = VX_MESSAGE_PROGRESS;
    vx_worker_say(load->worker, &message->head, sizeof *message);
}

static void load_on_progress(void *context, i64 done, i64 total)
{
    struct vx_message_progress message = {.done = done, .total = total};
    vx_worker_say_progress(context, &message);
}

static vx_status main_check_files(struct vx_worker_load *load)
{
    return vx_repository_check(load->message.directory, load->message.version,
                               load->message.fingerprint, &load->why);
}

/* Logs what `voxeld check` prints under notes, an event for each line. */
static void main_log_notes(const struct vx_worker_load *load)
{
    const char *directory = load->message.directory, *slash = strrchr(directory, '/');
    const char *model = slash ? slash + 1 : directory;
    char note[VX_LOG_LINE_BYTES];
    const char *at = vx_model_notes(load->model);
    for (size_t length; *at; at += length + (at[length] != '\0')) {
        length = strcspn(at, "\n");
        snprintf(note, sizeof note, "%.*s", (int)length, at);
        VX_LOG(MODEL_NOTE, VX_LOG_TEXT("model", model),
               VX_LOG_I64("version", load->message.version), VX_LOG_TEXT("why", note));
    }
}

static void main_make_model(struct vx_worker *worker, struct vx_worker_load *load)
{
    struct vx_model_source source = {.directory = load->message.directory,
                                     .version = load->message.version};
    struct vx_progress progress = {load_on_progress, load};
    load->why.text[0] = '\0';
    /* Checked before and after: the files read are those that the front listed. */
    load->status = main_check_files(load);
    if (!load->status.fault)
        load->status =
            vx_engine_load(worker->engine, &source, &progress, &load->why, &load->model);
    if (!load->status.fault) load->status = main_check_files(load);
    if (!load->status.fault && load->message.notes) main_log_notes(load);
    vx_mailbox_give(&worker->to_device, &load->link);
}

/* Serves until the device thread gives the stop link, as its last link; gives it back as
 * the last link of the main thread. */
static void main_serve(struct vx_worker *worker)
{
    VX_ON(MAIN);
    for (;;) {
        struct vx_link *next;
        for (struct vx_link *link = vx_mailbox_wait_all(&worker->to_main); link;
             link = next) {
            next = link->next;
            if (link == &worker->stop) {
                vx_mailbox_give(&worker->to_device, link);
                return;
            }
            if (!vx_worker_regions_on_main(worker, link))
                main_make_model(worker, VX_CONTAINER(link, struct vx_worker_load, link));
        }
    }
}

/* ------- device thread: opening and ending ------- */

static void device_ring(void *context)
{
    struct vx_worker *worker = context;
    u64 one = 1;
    VX_ASSERT(write(worker->wakeup, &one, sizeof one) == sizeof one);
}

static void device_on_running(void *context, i64 done, i64 total)
{
    struct vx_worker *worker = context;
    i64 now = vx_clock_ns();
    (void)done;
    (void)total;
    if (now - worker->working_said_ns >= PROGRESS_NS) {
        worker->working_said_ns = now;
        const struct vx_message_head message = {.kind = VX_MESSAGE_WORKING};
        vx_worker_say(worker, &message, sizeof message);
    }
    vx_worker_hear_within(worker, now);
}

/* The channel for device_on_end, which a signal calls. */
static const struct vx_worker *confined;

static void device_on_end(int number, const char *name)
{
    static struct vx_message_ends message; /* the stack may be what was overwritten */
    message.head.kind = VX_MESSAGE_ENDS;
    vx_why_set(&message.why,
               "seccomp: it made system call %d (%s), which a worker never makes", number,
               name);
    vx_worker_say(confined, &message.head, sizeof message);
}

/* From here on the process may only make the system calls that its device needs. */
static vx_status device_confine(const struct vx_worker *worker, struct vx_why *why)
{
    const struct vx_config *config = worker->config;
    struct vx_device device;
    if (!worker->is_process || !strcmp(config->worker_seccomp, "off")) return VX_OK;
    VX_TRY(vx_device_parse(config->device, why, &device));
    struct vx_confine_options options = {VX_CONFINE_CUDA, device_on_end};
    if (device.kind == VX_DEVICE_CPU) options.profile = VX_CONFINE_CPU;
    if (device.kind == VX_DEVICE_HIP) options.profile = VX_CONFINE_HIP;
    confined = worker;
    vx_status st = vx_confine_calls(&options, why);
    if (!st.fault || !strcmp(config->worker_seccomp, "on")) return st;
    VX_LOG(WORKER_SECCOMP, VX_LOG_TEXT("device", config->device),
           VX_LOG_TEXT("why", vx_status_text(st, why)));
    return VX_OK;
}

static void device_open_and_serve(struct vx_worker *worker)
{
    struct vx_why why = {""};
    const struct vx_progress running = {device_on_running, worker};
    vx_status st = vx_worker_device_open(worker->config, worker->shared, &running, &why,
                                         &worker->engine);
    if (!st.fault) st = device_confine(worker, &why);
    if (st.fault) {
        vx_worker_say_end(worker, false, vx_status_text(st, &why));
        worker->exit_code = VX_WORKER_EXIT_NO_DEVICE;
        return;
    }
    vx_worker_say_stats(worker, VX_MESSAGE_UP);
    vx_alloc_freeze(); /* this thread allocates nothing from here on */
    vx_worker_serve(worker);
    vx_alloc_thaw();
}

/* Waits for the last link of the main thread, then frees what the device thread owns. */
static void device_release(struct vx_worker *worker)
{
    bool main_stopped = false;
    while (!main_stopped) {
        struct vx_link *next;
        for (struct vx_link *link = vx_mailbox_wait_all(&worker->to_device); link;
             link = next) {
            next = link->next;
            /* Other links are made models and page-locked memory, released below. */
            if (link == &worker->stop) main_stopped = true;
        }
    }
    vx_worker_regions_close(worker);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        struct vx_worker_load *load = &worker->loads[i];
        if (load->model) vx_engine_unload(worker->engine, &load->model);
        if (worker->models[i]) vx_engine_unload(worker->engine, &worker->models[i]);
    }
    if (worker->engine) vx_engine_close(&worker->engine);
}

static void device_main(void *context)
{
    struct vx_worker *worker = context;
    device_open_and_serve(worker);
    vx_mailbox_give(&worker->to_main, &worker->stop);
    device_release(worker);
}

int vx_worker_run(const struct vx_worker_start *start)
{
    vx_thread_enter(VX_ROLE_MAIN);
    struct vx_worker *worker = vx_alloc_zero(sizeof *worker);
    VX_ASSERT(worker);
    worker->config = start->config;
    worker->channel = start->channel;
    worker->is_process = start->is_process;
    worker->passed = -1;
    vx_foreign_guard();
    worker->wakeup = eventfd(0, EFD_CLOEXEC);
    VX_ASSERT(worker->wakeup >= 0);
    vx_mailbox_init(&worker->to_main, NULL, NULL);
    vx_mailbox_init(&worker->to_device, device_ring, worker);
    struct vx_why why = {""};
    pthread_t device;
    vx_status st = vx_shared_map(start->arena, &why, &worker->shared);
    if (!st.fault) st = vx_thread_open(&device, VX_ROLE_DEVICE, device_main, worker);
    if (st.fault) {
        VX_LOG(WORKER_EXIT, VX_LOG_TEXT("why", vx_status_text(st, &why)));
        return 1;
    }
    main_serve(worker);
    pthread_join(device, NULL);
    vx_mailbox_fini(&worker->to_main);
    vx_mailbox_fini(&worker->to_device);
    vx_shared_close(&worker->shared);
    close(worker->wakeup);
    int exit_code = worker->exit_code;
    vx_free(worker);
    return exit_code;
}
