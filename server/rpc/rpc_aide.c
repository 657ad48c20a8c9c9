/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"

void vx_rpc_aide_init(struct vx_rpc_aide *aide,
                      void (*take)(void *context, struct vx_rpc_record *record),
                      void *context)
{
    *aide = (struct vx_rpc_aide){.take = take, .context = context};
    vx_mailbox_init(&aide->mail, NULL, NULL);
}

static void aide_run(void *context)
{
    struct vx_rpc_aide *aide = context;
    vx_alloc_freeze();
    for (;;) {
        struct vx_link *next;
        for (struct vx_link *link = vx_mailbox_wait_all(&aide->mail); link; link = next) {
            next = link->next;
            if (link == &aide->stop) return;
            aide->take(aide->context, VX_CONTAINER(link, struct vx_rpc_record, outgoing));
        }
    }
}

vx_status vx_rpc_aide_start(struct vx_rpc_aide *aide)
{
    VX_TRY(vx_thread_open(&aide->thread, VX_ROLE_RPC, aide_run, aide));
    aide->running = true;
    return VX_OK;
}

void vx_rpc_aide_give(struct vx_rpc_aide *aide, struct vx_rpc_record *record)
{
    vx_mailbox_give(&aide->mail, &record->outgoing);
}

void vx_rpc_aide_close(struct vx_rpc_aide *aide)
{
    if (aide->running) {
        vx_mailbox_give(&aide->mail, &aide->stop);
        pthread_join(aide->thread, NULL);
    }
    vx_mailbox_fini(&aide->mail);
}
