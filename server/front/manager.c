/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front/manager.h"

#include "engine/base/process/check.h"
#include "engine/base/text/environment.h"
#include "server/base/timer.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAID_BYTES 128 /* of a datagram: a status and its keys */
#define US_PER_MS  1000

static void manager_tell(const struct vx_manager *manager, const char *said)
{
    if (manager->fd < 0) return;
    /* Never waits: a manager that does not read must not stop the loop. */
    ssize_t sent = sendto(manager->fd, said, strlen(said), MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&manager->to, manager->to_bytes);
    (void)sent;
}

static void manager_on_watchdog(uv_timer_t *timer)
{
    manager_tell(VX_CONTAINER(timer, struct vx_manager, watchdog), "WATCHDOG=1");
}

/* A path, or a name in the abstract namespace, written with '@'.  False: neither. */
static bool manager_address(struct vx_manager *manager, const char *path)
{
    size_t bytes = path ? strlen(path) : 0;
    if (bytes < 2 || bytes >= sizeof manager->to.sun_path) return false;
    if (path[0] != '/' && path[0] != '@') return false;
    manager->to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(manager->to.sun_path, path, bytes);
    if (path[0] == '@') manager->to.sun_path[0] = '\0';
    manager->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return true;
}

/* How often the manager wants to hear; 0 = it does not ask this process. */
static i64 manager_watchdog_ms(void)
{
    const char *interval = vx_environment_get("WATCHDOG_USEC");
    const char *pid = vx_environment_get("WATCHDOG_PID");
    if (!interval || (pid && strtoll(pid, NULL, 10) != getpid())) return 0;
    return strtoll(interval, NULL, 10) / US_PER_MS /
           2; /* half, as sd_watchdog_enabled advises */
}

void vx_manager_open(struct vx_manager *manager, uv_loop_t *loop)
{
    VX_ASSERT(!uv_timer_init(loop, &manager->watchdog));
    manager->fd = -1;
    manager->is_ready = false;
    manager->status[0] = '\0';
    if (!manager_address(manager, vx_environment_get("NOTIFY_SOCKET"))) return;
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    i64 every_ms = manager_watchdog_ms();
    if (manager->fd < 0 || every_ms <= 0) return;
    manager_tell(manager, "WATCHDOG=1");
    vx_timer_every(&manager->watchdog, manager_on_watchdog, every_ms);
}

void vx_manager_ready(struct vx_manager *manager, const char *status)
{
    char said[SAID_BYTES];
    if (manager->is_ready && !strcmp(status, manager->status)) return;
    snprintf(manager->status, sizeof manager->status, "%s", status);
    snprintf(said, sizeof said, "%sSTATUS=%s", manager->is_ready ? "" : "READY=1\n",
             manager->status);
    manager->is_ready = true;
    manager_tell(manager, said);
}

void vx_manager_stopping(struct vx_manager *manager)
{
    manager_tell(manager, "STOPPING=1\nSTATUS=ends the requests in flight");
}

void vx_manager_close(struct vx_manager *manager)
{
    if (manager->fd >= 0) close(manager->fd);
    manager->fd = -1;
    uv_close((uv_handle_t *)&manager->watchdog, NULL);
}
