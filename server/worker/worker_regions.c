/* Clients' memory in a worker.
 *
 * Nothing here waits for a batch: batches run on while regions are mapped and unmapped.
 * MAP of a system region costs the device thread one mmap; then the region is usable, and
 * MAPPED reports it.  On a CPU that is all.  On a GPU copies are slower until the region
 * is page-locked.  The main thread does that, one region at a time, after the model files
 * that it may be reading.  First it brings the pages in, while batches run on (measured
 * on an H200: 40 ms for 64 MiB that no process had touched).  Then the driver locks them,
 * and meanwhile the device thread's next call into the driver has to wait (4 ms for 64
 * MiB, 56 ms for 1 GiB; without bringing the pages in first, 62 ms and 1351 ms).
 *
 * UNMAP frees the region's number at once, and its memory goes to the main thread.  That
 * unlocks it (1.4 ms for 64 MiB, 19 ms for 1 GiB) and calls munmap, which frees the pages
 * when no other process has the object (180 ms for 1 GiB).  A number that is mapped again
 * has new memory, so neither waits for the other.  While the main thread reads model
 * files, or has VX_WORKER_DROPS mappings to release, the device thread releases the
 * memory itself: a client's memory must neither stay for as long as a model loads nor
 * pile up.  That delays the device thread's next batch, and so do the import and the
 * release of a device region (0.3 ms and 0.2 ms), but not the batches that the device
 * already has.
 *
 * UNMAP of the region that the main thread is locking leaves the memory with it.  When
 * the main thread gives the memory back, it is released as above.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/worker/worker_private.h"

#include <string.h>
#include <unistd.h>

static struct vx_worker_region *row_of(struct vx_worker *worker, i32 region)
{
    VX_ASSERT(region >= 1 && region <= VX_REGIONS_MAX);
    return &worker->regions.rows[region];
}

static void say_mapped(struct vx_worker *worker, i32 region, vx_status status,
                       const struct vx_why *why)
{
    struct vx_message_mapped *out = &worker->out.mapped;
    memset(out, 0, sizeof *out);
    out->head.kind = VX_MESSAGE_MAPPED;
    out->head.serial = row_of(worker, region)->use;
    out->region = region;
    out->code = (i32)vx_status_code(status);
    if (status.fault) vx_why_set(&out->why, "%s", vx_status_text(status, why));
    vx_worker_say(worker, &out->head, sizeof *out);
}

/* ------- page-locking ------- */

/* Gives the main thread the next region to page-lock, in cyclic order. */
static void pin_next(struct vx_worker *worker)
{
    struct vx_worker_pin *pin = &worker->regions.pin;
    if (pin->foreign) return; /* the main thread is locking one */
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        i32 region = (pin->region + i) % VX_REGIONS_MAX + 1;
        struct vx_worker_region *row = row_of(worker, region);
        if (!row->waits) continue;
        row->waits = false;
        pin->region = region;
        pin->foreign = row->foreign;
        pin->why.text[0] = '\0';
        vx_foreign_pages(row->foreign, &pin->begin, &pin->bytes);
        vx_mailbox_give(&worker->to_main, &pin->link);
        return;
    }
}

static void main_pin(struct vx_worker *worker)
{
    struct vx_worker_pin *pin = &worker->regions.pin;
    pin->status =
        vx_engine_pin(worker->engine, pin->begin, (size_t)pin->bytes, &pin->why);
    vx_mailbox_give(&worker->to_device, &pin->link);
}

/* ------- releasing memory ------- */

/* Main or device thread. */
static void memory_drop(struct vx_worker *worker, struct vx_foreign *foreign, bool pinned)
{
    void *begin;
    u64 bytes;
    vx_foreign_pages(foreign, &begin, &bytes);
    if (pinned) vx_engine_unpin(worker->engine, begin);
    vx_foreign_unmap(&foreign);
}

static bool main_is_free(const struct vx_worker *worker)
{
    if (worker->regions.closing) return false;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        if (worker->loads[i].state == VX_LOAD_MAKING) return false;
    return true;
}

static struct vx_worker_drop *drop_take(struct vx_worker_regions *regions)
{
    for (i32 i = 0; i < VX_WORKER_DROPS; i++)
        if (!atomic_load(&regions->drops[i].busy)) return &regions->drops[i];
    return NULL;
}

static void memory_leave(struct vx_worker *worker, struct vx_foreign *foreign,
                         bool pinned)
{
    struct vx_worker_drop *drop =
        main_is_free(worker) ? drop_take(&worker->regions) : NULL;
    if (!drop) {
        memory_drop(worker, foreign, pinned);
        return;
    }
    drop->foreign = foreign;
    drop->pinned = pinned;
    atomic_store(&drop->busy, true);
    vx_mailbox_give(&worker->to_main, &drop->link);
}

static void main_drop(struct vx_worker *worker, struct vx_worker_drop *drop)
{
    memory_drop(worker, drop->foreign, drop->pinned);
    atomic_store(&drop->busy, false);
}

bool vx_worker_regions_on_main(struct vx_worker *worker, struct vx_link *link)
{
    VX_ON(MAIN);
    struct vx_worker_regions *regions = &worker->regions;
    if (link == &regions->pin.link) {
        main_pin(worker);
        return true;
    }
    for (i32 i = 0; i < VX_WORKER_DROPS; i++) {
        if (link != &regions->drops[i].link) continue;
        main_drop(worker, &regions->drops[i]);
        return true;
    }
    return false;
}

/* ------- after page-locking ------- */

/* Logs a failure only once, because clients could fill the log. */
static void pin_log(struct vx_worker *worker, const struct vx_worker_pin *pin)
{
    enum vx_code code = vx_status_code(pin->status);
    if (code == VX_CODE_OK || code == VX_CODE_UNIMPLEMENTED) return;
    if (worker->regions.refused) return;
    worker->regions.refused = true;
    VX_LOG(GPU_PIN, VX_LOG_TEXT("why", vx_status_text(pin->status, &pin->why)));
}

/* Marks the region as page-locked; if it was unmapped meanwhile, releases its memory. */
static void pin_settle(struct vx_worker *worker)
{
    struct vx_worker_pin *pin = &worker->regions.pin;
    if (!pin->foreign) return;
    struct vx_worker_region *row = row_of(worker, pin->region);
    bool locked = !pin->status.fault;
    pin_log(worker, pin);
    if (row->foreign == pin->foreign)
        row->pinned = locked;
    else
        memory_leave(worker, pin->foreign, locked);
    pin->foreign = NULL;
}

void vx_worker_on_pinned(struct vx_worker *worker)
{
    VX_ON(DEVICE);
    pin_settle(worker);
    vx_worker_end_if_lost(worker);
    pin_next(worker);
}

/* ------- MAP and UNMAP ------- */

static vx_status map_system(struct vx_worker *worker,
                            const struct vx_message_map *message, struct vx_why *why)
{
    struct vx_worker_region *row = row_of(worker, message->region);
    int fd = worker->passed;
    worker->passed = -1;
    VX_ASSERT(fd >= 0);
    vx_status status =
        vx_foreign_map(fd, message->offset, message->bytes, why, &row->foreign);
    (void)close(fd);
    row->waits = !status.fault && worker->regions.locks;
    return status;
}

void vx_worker_on_map(struct vx_worker *worker, const struct vx_message_map *message)
{
    VX_ON(DEVICE);
    struct vx_worker_region *row = row_of(worker, message->region);
    struct vx_why why = {""};
    VX_ASSERT(!row->there);
    *row =
        (struct vx_worker_region){.use = message->head.serial, .bytes = message->bytes};
    vx_status status = message->on_device
                           ? vx_engine_import(worker->engine, message->handle,
                                              (size_t)row->bytes, &why, &row->device)
                           : map_system(worker, message, &why);
    vx_worker_end_if_lost(worker);
    row->there = !status.fault;
    if (status.fault) vx_why_set(&row->why, "%s", vx_status_text(status, &why));
    say_mapped(worker, message->region, status, &why);
    pin_next(worker);
}

static void region_close(struct vx_worker *worker, i32 region)
{
    struct vx_worker_region *row = row_of(worker, region);
    const struct vx_worker_pin *pin = &worker->regions.pin;
    bool with_main = pin->foreign && pin->foreign == row->foreign;
    if (row->device) vx_engine_release(worker->engine, &row->device);
    if (row->foreign && !with_main) memory_leave(worker, row->foreign, row->pinned);
    *row = (struct vx_worker_region){.there = false};
}

void vx_worker_on_unmap(struct vx_worker *worker, const struct vx_message_unmap *message)
{
    VX_ON(DEVICE);
    region_close(worker, message->region);
}

void vx_worker_regions_close(struct vx_worker *worker)
{
    worker->regions.closing = true;
    pin_settle(worker);
    for (i32 region = 1; region <= VX_REGIONS_MAX; region++) region_close(worker, region);
}

/* ------- items ------- */

static vx_status region_gone(const struct vx_worker_region *row, struct vx_why *why)
{
    VX_FAIL_WHY(why, FAILED_PRECONDITION, "the shared memory region is not mapped",
                "the shared memory region is not mapped: %s",
                row->why.text[0] ? row->why.text : "register it again");
}

static vx_status region_cut(struct vx_why *why)
{
    static const char text[] =
        "the shared memory region has lost its memory: the client made it smaller while "
        "it was in use, or /dev/shm is full; register it again";
    VX_FAIL_WHY(why, FAILED_PRECONDITION, text, "%s", text);
}

/* Elements are read with their own type, on a CPU in place: a tensor must be aligned. */
static vx_status region_askew(size_t align, struct vx_why *why)
{
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a tensor in shared memory is not aligned",
                "a tensor in a shared memory region must begin at a multiple of its "
                "element size, %zu bytes",
                align);
}

/* Whether the client truncated the object.  Reads the region's last byte, which shows it
 * (foreign.h): when only the device copies the memory, no other access would. */
static bool region_is_cut(const struct vx_worker_region *row)
{
    if (!row->foreign) return false;
    const volatile u8 *bytes = vx_foreign_at(row->foreign);
    (void)bytes[row->bytes - 1];
    return vx_foreign_broken(row->foreign);
}

static vx_status region_look(const struct vx_worker_region *row, u64 offset,
                             const struct vx_worker_tensor *tensor, struct vx_why *why,
                             u8 **at)
{
    u64 bytes = (u64)tensor->bytes;
    if (!row->there) return region_gone(row, why);
    if (region_is_cut(row)) return region_cut(why);
    VX_ASSERT(offset <= row->bytes && bytes <= row->bytes - offset);
    u8 *memory = (row->device ? (u8 *)row->device : vx_foreign_at(row->foreign)) + offset;
    if (bytes && (uintptr_t)memory % tensor->align)
        return region_askew(tensor->align, why);
    *at = memory;
    return VX_OK;
}

void *vx_worker_at(const struct vx_worker *worker, const struct vx_place *place,
                   const struct vx_worker_tensor *tensor, struct vx_item *item,
                   struct vx_worker_uses *uses)
{
    u8 *at = NULL;
    if (place->kind == VX_PLACE_NONE) return NULL;
    if (place->kind == VX_PLACE_ARENA) {
        at = vx_shared_view(worker->shared, place->offset, (u64)tensor->bytes);
        VX_ASSERT(at);
        return at;
    }
    VX_ASSERT(place->region >= 1 && place->region <= VX_REGIONS_MAX);
    const struct vx_worker_region *row = &worker->regions.rows[place->region];
    uses->regions[uses->count++] = place->region;
    if (row->device) item->on_device |= tensor->bit;
    struct vx_why why;
    vx_status status = region_look(row, place->offset, tensor, &why, &at);
    if (status.fault && !item->status.fault) {
        bool gone = vx_status_code(status) == VX_CODE_FAILED_PRECONDITION;
        uses->lost = gone ? place->region : 0;
        uses->refused = true;
        item->status = status;
        item->why = why;
    }
    return at;
}

void vx_worker_check(const struct vx_worker *worker, struct vx_worker_uses *uses,
                     struct vx_item *item)
{
    for (i32 i = 0; i < uses->count; i++) {
        const struct vx_worker_region *row = &worker->regions.rows[uses->regions[i]];
        if (!row->there || !region_is_cut(row)) continue;
        item->status = region_cut(&item->why);
        uses->lost = uses->regions[i];
        return;
    }
}
