/* control - answers the control calls: liveness, metadata, configuration, statistics.
 *
 * Each handler unpacks a message, reads the registry and packs the answer; it has no
 * state.  Three calls are answered later: a load and an unload, once they have ended
 * (models.h), and the registration of a device region, once its worker has opened it
 * (regions.h).  The answer to all three is an empty message.
 *
 *   vx_status st = vx_control_answer(&view, method, message, &answer, &why);
 *   if (!st.fault && answer.later)
 *       ...later models' on_ended(answer.waiter) or regions' on_added(answer.waiter)...
 *
 * Thread   loop.
 * Limits   VX_QUESTION_BYTES_MAX in, VX_ANSWER_BYTES_MAX out.
 * Fails    the status codes and error texts of the Open Inference Protocol as stock
 *          clients know them; UNIMPLEMENTED, with the reason, for what this server does
 *          not serve.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CONTROL_H
#define VX_SERVER_CONTROL_H

#include "engine/base/memory/arena.h"
#include "proto/codec.h"
#include "server/access/access.h"
#include "server/base/peer.h"
#include "server/infer/view.h"

struct vx_control_answer {
    struct vx_arena *scratch;        /* caller's, which has reset it */
    u8 *bytes;                       /* caller's buffer */
    size_t capacity;                 /* VX_ANSWER_BYTES_MAX */
    size_t length;                   /* out */
    const struct vx_peer *peer;      /* the client; NULL: not known */
    struct vx_access_ticket *ticket; /* whose call it is; with view->access */
    void *waiter; /* passed to on_ended or on_added; NULL: those calls are refused */
    bool later;   /* out: with OK, there is no answer yet */
};

VX_MUST_USE vx_status vx_control_answer(const struct vx_front_view *view, i32 method,
                                        struct vx_span message,
                                        struct vx_control_answer *answer,
                                        struct vx_why *why);

#endif
