/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/utf8.h"
#include "server/admin/admin.h"
#include "server/control/control.h"

void vx_front_note_failure(struct vx_front *front, const struct vx_rpc_refusal *refusal)
{
    struct vx_failure failure = {
        .code = refusal->code, .method = refusal->method, .no_model = true};
    vx_utf8_print(failure.model, sizeof failure.model, "%s", refusal->model);
    vx_utf8_print(failure.text, sizeof failure.text, "%s", refusal->text);
    vx_failures_note(&front->metrics->failures, &failure);
}

/* Sentences of these methods have the name of a region, which is its client's alone. */
static bool front_names_region(i32 method)
{
    return method >= VX_METHOD_ID_SYSTEM_SHARED_MEMORY_STATUS &&
           method <= VX_METHOD_ID_CUDA_SHARED_MEMORY_UNREGISTER;
}

void vx_front_fail(struct vx_front *front, struct vx_call **call, vx_status status,
                   const struct vx_why *why)
{
    const i32 method = (*call)->method;
    vx_front_note_failure(
        front,
        &(struct vx_rpc_refusal){
            .code = vx_status_code(status),
            .method = vx_method_get(method)->path,
            .model = "",
            .text = vx_status_text(status, front_names_region(method) ? NULL : why)});
    vx_rpc_fail(front->rpc, call, status, why);
}

static void front_answer_control(struct vx_front *front, struct vx_call *call)
{
    struct vx_front_view view = vx_front_view(front);
    struct vx_why why = {""};
    struct vx_control_answer answer = {.scratch = &front->scratch,
                                       .bytes = front->answer,
                                       .capacity = VX_ANSWER_BYTES_MAX,
                                       .peer = &call->peer,
                                       .ticket = &call->ticket,
                                       .waiter = call};
    vx_arena_reset(&front->scratch);
    vx_status st = vx_control_answer(&view, call->method, call->message, &answer, &why);
    if (!st.fault && answer.later) return; /* front_on_answered answers it */
    call->answered = true;
    if (st.fault)
        vx_front_fail(front, &call, st, &why);
    else
        vx_rpc_reply(front->rpc, &call, answer.bytes, answer.length);
}

void vx_front_answer(struct vx_front *front, i64 most_ns)
{
    i64 begin_ns = vx_clock_ns();
    struct vx_call *call;
    while ((call = vx_call_turns_take(&front->control))) {
        if (call->is_gone) {
            call->answered = true;
            vx_rpc_fail(front->rpc, &call, vx_status_of_code(VX_CODE_CANCELLED), NULL);
            continue;
        }
        front_answer_control(front, call);
        if (vx_clock_ns() - begin_ns >= most_ns) break;
    }
}

void vx_front_on_http(void *context, const struct vx_http_request *request,
                      struct vx_http_reply *reply)
{
    struct vx_front *front = context;
    if (vx_front_refuses_page(front, request, reply)) return;
    const struct vx_admin admin = {
        .metrics = front->metrics,
        .registry = front->registry,
        .sched = front->sched,
        .rpc = front->rpc,
        .workers = front->workers,
        .shared = front->shared,
        .regions = front->regions,
        .access = front->access,
        .exporter = front->exporter,
        .problem = vx_models_problem(front->models),
        .ready = vx_front_is_ready(front),
    };
    vx_admin_answer(&admin, request, reply);
}
