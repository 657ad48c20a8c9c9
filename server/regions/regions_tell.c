/* SPDX-License-Identifier: Apache-2.0 */
#include "server/regions/regions_private.h"

#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <string.h>
#include <unistd.h>

/* Unanswered MAPs per worker.  Together with an UNMAP for every row they fit into a
 * socket's default buffer. */
#define OWED_MAX 128

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
        .head = {.kind = VX_MESSAGE_MAP, .serial = row->serial},
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

/* A connection's unanswered MAPs may be as many as the remaining room: a single
 * connection gets half of OWED_MAX, each further one half of what the others have left.
 * So no connection can keep others out while a worker is busy or has stopped. */
bool vx_regions_may_send(const struct vx_regions *regions, u64 owner)
{
    i32 owed[VX_WORKERS_MAX] = {0}, owned[VX_WORKERS_MAX] = {0};
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        const struct vx_region *row = &regions->rows[i];
        for (i32 w = 0; row->owe >> w; w++) {
            i32 owes = (i32)(row->owe >> w & 1);
            owed[w] += owes;
            if (row->owner == owner) owned[w] += owes;
        }
    }
    for (i32 w = 0; w < VX_WORKERS_MAX; w++)
        if (owned[w] >= OWED_MAX - owed[w]) return false;
    return true;
}

/* Also LEAVING regions that are in use: waiting requests refer to them. */
void vx_regions_on_worker_up(struct vx_regions *regions, i32 worker)
{
    VX_ON(LOOP);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        pthread_mutex_lock(&regions->lock);
        bool wanted = row->state == VX_REGION_NAMED ||
                      (row->state == VX_REGION_LEAVING && row->uses > 0);
        wanted = wanted && !row->condemned;
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
    VX_FAIL(CANCELLED,
            "the shared memory region was unregistered before its device had opened it");
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
    struct vx_region *row = &regions->rows[message->region - 1];
    if (row->serial != message->head.serial || !(row->owe & worker_bit(worker))) return;
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

/* Any thread; meanwhile no other thread touches the row's fd and foreign. */
static void region_unmap(struct vx_region *row)
{
    vx_foreign_unmap(&row->foreign);
    if (row->fd >= 0) close(row->fd);
    row->fd = -1;
}

static void region_on_work(uv_work_t *work)
{
    region_unmap(VX_CONTAINER(work, struct vx_region, work));
}

static void region_on_unmapped(uv_work_t *work, int status)
{
    struct vx_region *row = VX_CONTAINER(work, struct vx_region, work);
    struct vx_regions *regions = work->data;
    VX_ASSERT(!status); /* it is never cancelled */
    row->closing = false;
    atomic_store(&regions->stirred, true);
}

/* Releases the front's mapping, which nothing here reads any more; workers may still have
 * theirs.  The last process to unmap an object frees its pages, 0.2 s for 1 GiB, so a
 * thread of libuv's pool does it.  The bytes stay counted until it has. */
static void region_let_go(struct vx_regions *regions, struct vx_region *row)
{
    uv_loop_t *loop = regions->options.loop;
    if (!loop || !row->foreign) {
        region_unmap(row);
        return;
    }
    row->closing = true;
    row->work.data = regions;
    VX_ASSERT(!uv_queue_work(loop, &row->work, region_on_work, region_on_unmapped));
}

/* The front's mapping is released: the bytes no longer count against client_shm_bytes,
 * even if the row still waits for a MAPPED. */
static void region_discount(struct vx_regions *regions, struct vx_region *row)
{
    pthread_mutex_lock(&regions->lock);
    row->bytes = 0;
    pthread_mutex_unlock(&regions->lock);
}

static void region_free(struct vx_regions *regions, struct vx_region *row)
{
    struct vx_message_unmap unmap = {
        .head = {.kind = VX_MESSAGE_UNMAP, .serial = row->serial},
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
        if (is_used || row->closing) continue;
        region_let_go(regions, row);
        if (row->closing) continue;
        region_discount(regions, row);
        if (!row->owe) region_free(regions, row);
    }
}
