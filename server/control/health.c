/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/health.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "proto/control.h"
#include "server/control/reflection.h"
#include "server/infer/view.h"

#include "health.pb-c.h"

#include <stdio.h>
#include <string.h>

#define INFERENCE_SERVICE "inference.GRPCInferenceService"
/* How often open streams are asked for their tokens: as often as the file is looked at. */
#define REVIEW_NS VX_NS_PER_S
/* Stands for a service whose name is too long for a model's: a folder cannot have it. */
#define NO_MODEL "/"

/* The answer for a name; 0 (UNKNOWN in the protocol) is never sent. */
enum health_status {
    HEALTH_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
    HEALTH_NOT_SERVING =
        GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
    HEALTH_UNKNOWN =
        GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN,
};

struct vx_health {
    struct vx_rpc *rpc;
    struct vx_call *streams; /* Watch and reflection, by call->watch_next */
    i32 streams_count;
    u64 seen;    /* health_fingerprint when the watchers were last told */
    bool behind; /* a watcher's stream was full: it is told later */
    i64 review_ns;
    struct vx_control_answer answer;
};

vx_status vx_health_open(struct vx_rpc *rpc, struct vx_health **health)
{
    struct vx_health *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for health");
    made->rpc = rpc;
    made->answer = (struct vx_control_answer){.bytes = vx_alloc(VX_ANSWER_BYTES_MAX),
                                              .capacity = VX_ANSWER_BYTES_MAX};
    *health = made;
    if (made->answer.bytes) return VX_OK;
    vx_health_close(health);
    VX_FAIL(RESOURCE_EXHAUSTED, "no memory for health");
}

static void stream_enter(struct vx_health *health, struct vx_call *call)
{
    call->watch_next = health->streams;
    health->streams = call;
    health->streams_count++;
}

static void stream_leave(struct vx_health *health, struct vx_call *call)
{
    struct vx_call **at = &health->streams;
    while (*at != call) at = &(*at)->watch_next;
    *at = call->watch_next;
    health->streams_count--;
    call->answered = true;
}

static void stream_fail(struct vx_health *health, struct vx_call *call, vx_status status,
                        const struct vx_why *why)
{
    stream_leave(health, call);
    vx_rpc_fail(health->rpc, &call, status, why);
}

static bool stream_reflects(const struct vx_call *call)
{
    return call->method == VX_METHOD_ID_REFLECTION_V1 ||
           call->method == VX_METHOD_ID_REFLECTION_V1ALPHA;
}

/* Adds a reflection stream; when there are too many, one ends. */
static void reflection_enter(struct vx_health *health, struct vx_call *call)
{
    struct vx_call *all[VX_REFLECTIONS_MAX + 1];
    i32 count = 0;
    stream_enter(health, call);
    for (struct vx_call *one = health->streams; one; one = one->watch_next) {
        if (!stream_reflects(one)) continue;
        VX_ASSERT(count <= VX_REFLECTIONS_MAX); /* what was one too many has left */
        all[count++] = one;
    }
    if (count <= VX_REFLECTIONS_MAX) return;
    struct vx_why why;
    vx_why_set(&why,
               "the limit of %d reflection streams is reached and this one was the "
               "oldest of the address with most; open it again",
               VX_REFLECTIONS_MAX);
    stream_fail(health, vx_reflection_least(all, count),
                vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED), &why);
}

static vx_status health_ending(void)
{
    VX_FAIL(UNAVAILABLE, "GRPC server is shutting down");
}

void vx_health_close(struct vx_health **health)
{
    struct vx_health *going = *health;
    *health = NULL;
    if (!going) return;
    while (going->streams) stream_fail(going, going->streams, health_ending(), NULL);
    vx_free(going->answer.bytes);
    vx_free(going);
}

/* A model serves when one of its versions can run somewhere right now, even if the server
 * as a whole is not ready because another model is loading. */
static enum health_status health_of_model(const struct vx_front_view *view,
                                          const char *name)
{
    i32 instance;
    if (vx_registry_find(view->registry, name, 0, NULL, &instance).fault)
        return HEALTH_UNKNOWN;
    bool serves = vx_instance_serves(vx_registry_row(view->registry, instance));
    return serves && !view->draining ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static enum health_status health_of(const struct vx_front_view *view, const char *service)
{
    if (!*service || !strcmp(service, INFERENCE_SERVICE))
        return view->ready ? HEALTH_SERVING : HEALTH_NOT_SERVING;
    return health_of_model(view, service);
}

static void health_pack_status(struct vx_health *health, enum health_status status)
{
    Grpc__Health__V1__HealthCheckResponse response =
        GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    /* Two bytes, so they fit. */
    vx_status packed = vx_control_pack(&response.base, health->answer.bytes,
                                       health->answer.capacity, &health->answer.length);
    VX_ASSERT(!packed.fault);
}

/* Whether the client may ask about that service: about a model only if it may name it. */
static vx_status check_may(const struct vx_front_view *view, struct vx_call *call,
                           const char *service, struct vx_why *why)
{
    if (!view->access || !*service || !strcmp(service, INFERENCE_SERVICE)) return VX_OK;
    return vx_access_model(view->access, &call->ticket, service, why);
}

/* Answered as it comes, before any that waits: so it is small. */
#define REQUEST_BYTES_MAX 1024

/* The service that a client asks for. */
static vx_status request_unpack(const struct vx_call *call, struct vx_arena *scratch,
                                struct vx_why *why, const char **service)
{
    ProtobufCMessage *request;
    VX_ENSURE_WHY(call->message.bytes <= REQUEST_BYTES_MAX, why, INVALID_ARGUMENT,
                  "the health request is too long",
                  "expected a health request of at most %d bytes, got %zu",
                  REQUEST_BYTES_MAX, call->message.bytes);
    VX_TRY(vx_control_unpack(&grpc__health__v1__health_check_request__descriptor,
                             call->message, scratch, why, &request));
    *service = ((Grpc__Health__V1__HealthCheckRequest *)(void *)request)->service;
    return VX_OK;
}

static vx_status check_answer(struct vx_health *health, const struct vx_front_view *view,
                              struct vx_call *call, struct vx_arena *scratch,
                              struct vx_why *why)
{
    const char *service;
    VX_TRY(request_unpack(call, scratch, why, &service));
    VX_TRY(check_may(view, call, service, why));
    enum health_status status = health_of(view, service);
    VX_ENSURE_WHY(status != HEALTH_UNKNOWN, why, NOT_FOUND, "unknown service",
                  "unknown service '%.100s'; expected '', '" INFERENCE_SERVICE
                  "' or the name of a model",
                  service);
    health_pack_status(health, status);
    return VX_OK;
}

/* All that a HealthListResponse points to: the two fixed names and one for each model. */
#define LIST_MAX (2 + VX_INSTANCES_MAX)
struct list_answer {
    Grpc__Health__V1__HealthListResponse response;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entries[LIST_MAX];
    Grpc__Health__V1__HealthListResponse__StatusesEntry *list[LIST_MAX];
    Grpc__Health__V1__HealthCheckResponse statuses[LIST_MAX];
};

static void list_add(struct list_answer *answer, const struct vx_front_view *view,
                     char *service)
{
    size_t count = answer->response.n_statuses++;
    grpc__health__v1__health_list_response__statuses_entry__init(&answer->entries[count]);
    grpc__health__v1__health_check_response__init(&answer->statuses[count]);
    answer->statuses[count].status =
        (Grpc__Health__V1__HealthCheckResponse__ServingStatus)health_of(view, service);
    answer->entries[count].key = service;
    answer->entries[count].value = &answer->statuses[count];
    answer->list[count] = &answer->entries[count];
}

static vx_status list_pack(struct vx_health *health, const struct vx_front_view *view,
                           struct vx_call *call, struct vx_arena *scratch)
{
    struct list_answer *answer = vx_arena_take(scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    grpc__health__v1__health_list_response__init(&answer->response);
    answer->response.statuses = answer->list;
    list_add(answer, view, "");
    list_add(answer, view, INFERENCE_SERVICE);
    i32 cursor = 0;
    struct vx_instance *row;
    const char *last = "";
    while ((row = vx_registry_next(view->registry, &cursor))) {
        bool sees =
            !view->access || vx_access_sees(view->access, &call->ticket, row->name);
        if (sees && strcmp(row->name, last))
            list_add(answer, view, row->name); /* the registry is ordered by name */
        last = row->name;
    }
    return vx_control_pack(&answer->response.base, health->answer.bytes,
                           health->answer.capacity, &health->answer.length);
}

static void unary_end(struct vx_health *health, struct vx_call *call, vx_status status,
                      const struct vx_why *why)
{
    call->answered = true;
    if (status.fault)
        vx_rpc_fail(health->rpc, &call, status, why);
    else
        vx_rpc_reply(health->rpc, &call, health->answer.bytes, health->answer.length);
}

/* Tells one watcher if its status has changed; if the stream is full, it is told
 * later. */
static void watch_tell(struct vx_health *health, const struct vx_front_view *view,
                       struct vx_call *call)
{
    enum health_status status = health_of(view, call->request.model);
    if (call->watch_said == (i32)status) return;
    health_pack_status(health, status);
    if (vx_rpc_send(health->rpc, call, health->answer.bytes, health->answer.length))
        call->watch_said = (i32)status;
    else
        health->behind = true;
}

static void watch_start(struct vx_health *health, const struct vx_front_view *view,
                        struct vx_call *call, struct vx_arena *scratch)
{
    struct vx_why why = {{0}};
    const char *service = "";
    vx_status status = request_unpack(call, scratch, &why, &service);
    if (!status.fault) status = check_may(view, call, service, &why);
    if (status.fault) {
        unary_end(health, call, status, &why);
        return;
    }
    /* The name is kept in request.model.  A name that does not fit is no model's. */
    bool fits = strlen(service) < sizeof call->request.model;
    snprintf(call->request.model, sizeof call->request.model, "%s",
             fits ? service : NO_MODEL);
    vx_rpc_message_end(health->rpc, call);
    stream_enter(health, call);
    watch_tell(health, view, call); /* the first one always fits */
    if (call->is_gone) vx_health_on_gone(health, call);
}

static void reflection_on_message(struct vx_health *health, struct vx_call *call,
                                  struct vx_arena *scratch)
{
    if (!vx_rpc_take_message(health->rpc, call)) return; /* health has ended it */
    bool first = !call->watch_said;
    call->watch_said = 1;
    if (first) reflection_enter(health, call);
    if (call->message_end || call->is_gone) {
        stream_leave(health, call);
        vx_rpc_finish(health->rpc, &call);
        return;
    }
    struct vx_why why = {{0}};
    vx_status status =
        vx_reflection_answer(call->message, scratch, &why, &health->answer);
    if (status.fault) {
        stream_fail(health, call, status, &why);
    } else if (!vx_rpc_send(health->rpc, call, health->answer.bytes,
                            health->answer.length)) {
        vx_why_set(&why, "%d answers are unread; read them before you send more",
                   VX_STREAM_SENDS_MAX);
        stream_fail(health, call, vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED), &why);
    } else {
        vx_rpc_receive(health->rpc, call);
    }
}

bool vx_health_on_call(struct vx_health *health, const struct vx_front_view *view,
                       struct vx_call *call, struct vx_arena *scratch)
{
    VX_ON(LOOP);
    struct vx_why why = {{0}};
    switch (call->method) {
    case VX_METHOD_ID_HEALTH_CHECK:
        unary_end(health, call, check_answer(health, view, call, scratch, &why), &why);
        return true;
    case VX_METHOD_ID_HEALTH_LIST:
        unary_end(health, call, list_pack(health, view, call, scratch), &why);
        return true;
    case VX_METHOD_ID_HEALTH_WATCH: watch_start(health, view, call, scratch); return true;
    case VX_METHOD_ID_REFLECTION_V1:
    case VX_METHOD_ID_REFLECTION_V1ALPHA:
        reflection_on_message(health, call, scratch);
        return true;
    default: return false;
    }
}

void vx_health_on_gone(struct vx_health *health, struct vx_call *call)
{
    VX_ON(LOOP);
    VX_ASSERT(!call->answered);
    call->is_gone = true;
    bool entered = call->watch_said != 0;
    if (!entered) return; /* its first message is still in the mailbox */
    stream_leave(health, call);
    vx_rpc_finish(health->rpc, &call);
}

i32 vx_health_streams(const struct vx_health *health)
{
    return health->streams_count;
}

/* A number that changes whenever something changes that health_of depends on. */
static u64 health_fingerprint(const struct vx_front_view *view)
{
    /* FNV-1a, a word at a time. */
    u64 hash = 14695981039346656037u ^ (u64)view->ready ^ (u64)view->draining << 1;
    for (i32 i = 0; i < vx_registry_end(view->registry); i++) {
        const struct vx_instance *row = vx_registry_row(view->registry, i);
        const u64 words[] = {(u64)row->state, (u64)row->load_started_ns,
                             (u64)row->version, (u64)vx_instance_serves(row)};
        for (size_t k = 0; k < VX_COUNT(words); k++)
            hash = (hash ^ words[k]) * 1099511628211u;
    }
    return hash;
}

static vx_status stream_stays(const struct vx_front_view *view, struct vx_call *call,
                              struct vx_why *why)
{
    VX_TRY(vx_access_stays(view->access, &call->ticket, call->method, why));
    if (stream_reflects(call) || !strcmp(call->request.model, NO_MODEL)) return VX_OK;
    return check_may(view, call, call->request.model, why);
}

/* Ends the streams whose tokens were taken away or have expired, which nothing else would:
 * a Watch sends no message. */
static void streams_review(struct vx_health *health, const struct vx_front_view *view)
{
    const i64 now_ns = vx_clock_ns();
    if (!view->access || now_ns < health->review_ns) return;
    health->review_ns = now_ns + REVIEW_NS;
    for (struct vx_call *call = health->streams, *next; call; call = next) {
        struct vx_why why = {{0}};
        next = call->watch_next;
        vx_status status = stream_stays(view, call, &why);
        if (status.fault) stream_fail(health, call, status, &why);
    }
}

void vx_health_step(struct vx_health *health, const struct vx_front_view *view)
{
    VX_ON(LOOP);
    streams_review(health, view);
    u64 seen = health_fingerprint(view);
    if (seen == health->seen && !health->behind) return;
    health->seen = seen;
    health->behind = false;
    for (struct vx_call *call = health->streams; call; call = call->watch_next)
        if (call->method == VX_METHOD_ID_HEALTH_WATCH) watch_tell(health, view, call);
}
