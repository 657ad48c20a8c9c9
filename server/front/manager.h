/* manager - tells the service manager that started this process how it is: systemd.
 *
 * READY=1 once every model serves, STOPPING=1 when it drains, STATUS= in words, and, if the
 * manager asked for it (WatchdogSec=), WATCHDOG=1 from a timer of the loop: a loop that
 * stands still is silent, and the manager restarts the process.  Without a manager all of
 * this does nothing.
 *
 *   vx_manager_open(&manager, &loop);
 *   vx_manager_ready(&manager, "serves 3 models on 2 devices");
 *   vx_manager_stopping(&manager);
 *   vx_manager_close(&manager);
 *
 * Owner    the front; the handle lies in it and is closed by the loop.
 * Thread   loop.
 * Fails    never: what the manager does not hear it finds out by its own limits.
 * Source   sd_notify(3), sd_watchdog_enabled(3): datagrams to $NOTIFY_SOCKET.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MANAGER_H
#define VX_SERVER_MANAGER_H

#include "engine/base/types.h"

#include <sys/un.h>
#include <uv.h>

struct vx_manager {
    int fd; /* -1 = there is no manager */
    struct sockaddr_un to;
    socklen_t to_bytes;
    bool is_ready;   /* READY=1 is said */
    char status[96]; /* the last one */
    uv_timer_t watchdog;
};

void vx_manager_open(struct vx_manager *manager, uv_loop_t *loop);
/* Says READY=1 the first time, and the words whenever they change. */
void vx_manager_ready(struct vx_manager *manager, const char *status);
void vx_manager_stopping(struct vx_manager *manager);
void vx_manager_close(struct vx_manager *manager);

#endif
