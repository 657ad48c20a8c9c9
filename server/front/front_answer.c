/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front_private.h"

#include "engine/base/process/clock.h"
#include "server/control/control.h"

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
        vx_rpc_fail(front->rpc, &call, st, &why);
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
