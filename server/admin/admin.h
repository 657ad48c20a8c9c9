/* admin - collects the front's numbers for the pages of the admin port.
 *
 *   vx_admin_answer(&(struct vx_admin){...}, request, reply);
 *
 * Owner    everything is borrowed for the call.
 * Thread   loop.
 * Fails    never; a page that does not fit is answered with HTTP status 500 (page.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ADMIN_H
#define VX_SERVER_ADMIN_H

#include "server/access/access.h"
#include "server/http/http.h"
#include "server/ipc/shared.h"
#include "server/metrics/metrics.h"
#include "server/rpc/rpc.h"
#include "server/workers/workers.h"

struct vx_admin {
    struct vx_metrics *metrics;
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_rpc *rpc;
    struct vx_workers *workers;
    struct vx_shared *shared;
    struct vx_regions *regions;         /* NULL: not served */
    struct vx_access *access;           /* NULL: no tokens and no limits */
    const struct vx_exporter *exporter; /* NULL: there is no collector */
    const char *problem;                /* with the repository; "" = none */
    bool ready;
};

void vx_admin_answer(const struct vx_admin *admin, const struct vx_http_request *request,
                     struct vx_http_reply *reply);

#endif
