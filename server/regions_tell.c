/* SPDX-License-Identifier: Apache-2.0 */
#include "server/regions_private.h"

#include "engine/base/log.h"
#include "engine/base/thread.h"

#include <string.h>
#include <unistd.h>

static u32 worker_bit(i32 worker)
{
    return UINT32_C(1) << worker;
}

static bool worker_is_up(const struct vx_regions *regions, i32 worker)
{
    return vx_workers_info(*regions->options.workers, worker)->state == VX_WORKER_UP;
}

/* ------- MAP ------- */

static void region_send_map_to(struct vx_regions *regions, struct vx_region *row,
                               i32 worker)
{
    struct vx_workers *workers = *regions->options.workers;
    struct vx_message_map map = {
        .head = {.kind = VX_MESSAGE_MAP, .batch = row->serial},
        .region = vx_region_number(regions, row),
        .on_device = row->kind == VX_REGION_DEVICE,
        .offset = row->offset,
        .bytes = row->bytes,
    };
    if (row->kind == VX_REGION_DEVICE && row->worker != worker) return;
    if (map.on_device) memcpy(map.handle, row->handle, sizeof map.handle);
    bool sent = map.on_device
                    ? vx_workers_send(workers, worker, &map.head, sizeof map)
                    : vx_workers_send_fd(workers, worker, &map.head, sizeof map, row->fd);
    if (!sent) return;
    row->have |= worker_bit(worker);
    row->owe |= worker_bit(worker);
}

void vx_region_send_map(struct vx_regions *regions, struct vx_region *row)
{
    for (i32 w = 0; w < vx_workers_count(*regions->options.workers); w++)
        if (worker_is_up(regions, w)) region_send_map_to(regions, row, w);
}

i32 vx_regions_owed(const struct vx_regions *regions)
{
    i32 most = 0, owed[VX_WORKERS_MAX] = {0};
    for (i32 i = 0; i < VX_REGIONS_MAX; i++)
        for (i32 w = 0; regions->rows[i].owe >> w; w++)
            owed[w] += (i32)(regions->rows[i].owe >> w & 1);
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        if (owed[w] > most) most = owed[w];
    return most;
}

/* What is leaving and in use too: requests that wait name it. */
void vx_regions_on_worker_up(struct vx_regions *regions, i32 worker)
{
    VX_ON(LOOP);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        pthread_mutex_lock(&regions->lock);
        bool wanted = row->state == VX_REGION_NAMED ||
                      (row->state == VX_REGION_LEAVING && row->uses > 0);
        pthread_mutex_unlock(&regions->lock);
        if (wanted) region_send_map_to(regions, row, worker);
    }
}

/* ------- MAPPED ------- */

static void region_answer(struct vx_regions *regions, struct vx_region *row,
                          vx_status status, const struct vx_why *why)
{
    void *waiter = row->waiter;
    row->waiter = NULL;
    if (!waiter) return;
    if (status.fault) {
        pthread_mutex_lock(&regions->lock);
        regions->refused++;
        pthread_mutex_unlock(&regions->lock);
    }
    regions->options.on_added(regions->options.context, waiter, status, why);
}

static vx_status region_was_taken_back(void)
{
    VX_FAIL(CANCELLED, "the shared memory region was taken back before its device had "
                       "opened it");
}

static vx_status region_worker_ended(void)
{
    VX_FAIL(UNAVAILABLE, "the worker of the device ended while it opened the shared "
                         "memory region: try again later");
}

static void region_is_there(struct vx_regions *regions, struct vx_region *row)
{
    pthread_mutex_lock(&regions->lock);
    row->lost = false;
    bool is_new = row->state == VX_REGION_OPENING;
    pthread_mutex_unlock(&regions->lock);
    if (!is_new) return;
    bool is_named = vx_region_name(regions, row);
    region_answer(regions, row, is_named ? VX_OK : region_was_taken_back(), NULL);
}

static void region_is_refused(struct vx_regions *regions, struct vx_region *row,
                              i32 worker, const struct vx_message_mapped *message)
{
    row->have &= ~worker_bit(worker);
    pthread_mutex_lock(&regions->lock);
    bool is_new = row->state == VX_REGION_OPENING;
    if (is_new) row->state = VX_REGION_LEAVING;
    row->lost = row->kind == VX_REGION_DEVICE;
    pthread_mutex_unlock(&regions->lock);
    if (is_new)
        region_answer(regions, row, vx_status_of_code((enum vx_code)message->code),
                      &message->why);
    else
        VX_LOG(REGION, VX_LOG_I64("worker", worker),
               VX_LOG_I64("region", message->region),
               VX_LOG_TEXT("why", message->why.text));
}

void vx_regions_on_mapped(struct vx_regions *regions, i32 worker,
                          const struct vx_message_mapped *message)
{
    VX_ON(LOOP);
    if (message->region < 1 || message->region > VX_REGIONS_MAX) {
        vx_workers_kill(*regions->options.workers, worker); /* nobody asked that */
        return;
    }
    struct vx_region *row = &regions->rows[message->region - 1];
    if (row->serial != message->head.batch || !(row->owe & worker_bit(worker))) return;
    row->owe &= ~worker_bit(worker);
    atomic_store(&regions->stirred, true);
    if (message->code)
        region_is_refused(regions, row, worker, message);
    else
        region_is_there(regions, row);
}

/* ------- the end ------- */

void vx_regions_on_worker_down(struct vx_regions *regions, i32 worker)
{
    VX_ON(LOOP);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        row->have &= ~worker_bit(worker);
        row->owe &= ~worker_bit(worker);
        pthread_mutex_lock(&regions->lock);
        bool is_asked = row->state == VX_REGION_OPENING && row->worker == worker;
        if (is_asked) row->state = VX_REGION_LEAVING;
        pthread_mutex_unlock(&regions->lock);
        if (is_asked) region_answer(regions, row, region_worker_ended(), NULL);
    }
    atomic_store(&regions->stirred, true);
}

/* Nobody reads it here any more; workers may still be told of it. */
static void region_let_go(struct vx_regions *regions, struct vx_region *row)
{
    vx_foreign_unmap(&row->foreign);
    if (row->fd >= 0) close(row->fd);
    row->fd = -1;
    pthread_mutex_lock(&regions->lock);
    row->bytes = 0;
    pthread_mutex_unlock(&regions->lock);
}

static void region_free(struct vx_regions *regions, struct vx_region *row)
{
    struct vx_message_unmap unmap = {
        .head = {.kind = VX_MESSAGE_UNMAP, .batch = row->serial},
        .region = vx_region_number(regions, row),
    };
    for (i32 w = 0; row->have >> w; w++)
        if (row->have >> w & 1)
            (void)vx_workers_send(*regions->options.workers, w, &unmap.head,
                                  sizeof unmap);
    pthread_mutex_lock(&regions->lock);
    *row = (struct vx_region){.state = VX_REGION_FREE, .fd = -1};
    pthread_mutex_unlock(&regions->lock);
}

void vx_regions_step(struct vx_regions *regions)
{
    VX_ON(LOOP);
    if (!atomic_exchange(&regions->stirred, false)) return;
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        pthread_mutex_lock(&regions->lock);
        bool is_leaving = row->state == VX_REGION_LEAVING;
        bool is_used = row->uses > 0;
        pthread_mutex_unlock(&regions->lock);
        if (!is_leaving) continue;
        region_answer(regions, row, region_was_taken_back(), NULL);
        if (is_used) continue;
        region_let_go(regions, row);
        if (!row->owe) region_free(regions, row);
    }
}
