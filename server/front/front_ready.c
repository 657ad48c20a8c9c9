/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front_private.h"

#include "server/front/ready_file.h"

#include <stdio.h>

bool vx_front_is_ready(const struct vx_front *front)
{
    if (front->phase != VX_FRONT_SERVING || !front->scanned) return false;
    bool any = false; /* rows in table order, unsorted: this runs in each iteration */
    for (i32 i = 0; i < vx_registry_end(front->registry); i++) {
        const struct vx_instance *row = vx_registry_row(front->registry, i);
        if (row->state == VX_INSTANCE_READY && !vx_instance_serves(row)) return false;
        any |= row->state != VX_INSTANCE_FREE && row->awaited;
    }
    if (!any && !vx_repository_is_missed(vx_models_listing(front->models)))
        return vx_workers_any_up(front->workers); /* no models: ready if a worker is up */
    return vx_registry_all_ready(front->registry);
}

void vx_front_tell_manager(struct vx_front *front)
{
    char status[sizeof front->manager.status];
    i32 all = 0, serving = 0, loading = 0;
    if (front->phase != VX_FRONT_SERVING || !front->scanned) return;
    for (i32 i = 0; i < vx_registry_end(front->registry); i++) {
        const struct vx_instance *row = vx_registry_row(front->registry, i);
        all += row->state != VX_INSTANCE_FREE;
        loading += row->state == VX_INSTANCE_LOADING;
        serving += vx_instance_serves(row);
    }
    if (!front->manager.is_ready && loading && !vx_front_is_ready(front)) return;
    snprintf(status, sizeof status, "serves %d of %d versions of models%s", serving, all,
             vx_workers_any_up(front->workers) ? "" : "; no worker is up");
    if (!front->manager.is_ready) vx_rpc_hear_handed(front->rpc, true);
    vx_manager_ready(&front->manager, status);
}

void vx_front_announce(struct vx_front *front)
{
    if (front->announced || !vx_front_is_ready(front)) return;
    front->announced = true;
    vx_registry_on_ready(front->registry);
    vx_front_tell_manager(front);
    vx_ready_file_post(&front->loop, front->config, vx_rpc_port(front->rpc),
                       vx_http_port(front->http));
}
