/* SPDX-License-Identifier: Apache-2.0 */
#include "server/regions/regions_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"

#include <string.h>
#include <unistd.h>

vx_status vx_regions_open(const struct vx_regions_options *options,
                          struct vx_regions **regions)
{
    struct vx_regions *r = vx_alloc_zero(sizeof *r);
    VX_ENSURE(r, RESOURCE_EXHAUSTED, "no memory for the table of shared memory");
    r->options = *options;
    VX_ASSERT(!pthread_mutex_init(&r->lock, NULL));
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) r->rows[i].fd = -1;
    const char *who = options->config->client_shm;
    r->who = !strcmp(who, "unix")    ? VX_REGIONS_UNIX
             : !strcmp(who, "local") ? VX_REGIONS_LOCAL
                                     : VX_REGIONS_OFF;
    if (r->who != VX_REGIONS_OFF) vx_foreign_guard();
    *regions = r;
    return VX_OK;
}

void vx_regions_close(struct vx_regions **regions)
{
    struct vx_regions *r = *regions;
    if (!r) return;
    *regions = NULL;
    VX_ASSERT(!r->uses);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        VX_ASSERT(!r->rows[i].closing); /* the loop has ended */
        vx_foreign_unmap(&r->rows[i].foreign);
        if (r->rows[i].fd >= 0) close(r->rows[i].fd);
    }
    pthread_mutex_destroy(&r->lock);
    vx_free(r);
}

bool vx_regions_serve(const struct vx_regions *regions, enum vx_region_kind kind)
{
    if (regions->who == VX_REGIONS_OFF) return false;
    return kind == VX_REGION_SYSTEM || vx_regions_worker_of(regions, -1) >= 0;
}

/* ------- names ------- */

struct vx_region *vx_region_find(struct vx_regions *regions, u64 owner, const char *name)
{
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        if (vx_region_is_owned(row) && row->owner == owner && !strcmp(row->name, name))
            return row;
    }
    return NULL;
}

void vx_region_leave(struct vx_regions *regions, struct vx_region *row)
{
    pthread_mutex_lock(&regions->lock);
    row->state = VX_REGION_LEAVING;
    pthread_mutex_unlock(&regions->lock);
    atomic_store(&regions->stirred, true);
}

void vx_regions_remove(struct vx_regions *regions, const struct vx_peer *peer,
                       enum vx_region_kind kind, const char *name)
{
    VX_ON(LOOP);
    pthread_mutex_lock(&regions->lock);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        if (!vx_region_is_owned(row) || row->owner != peer->connection) continue;
        if (row->kind != kind || (*name && strcmp(row->name, name))) continue;
        row->state = VX_REGION_LEAVING;
    }
    pthread_mutex_unlock(&regions->lock);
    atomic_store(&regions->stirred, true);
}

void vx_regions_owner_gone(struct vx_regions *regions, u64 connection)
{
    i32 left = 0;
    pthread_mutex_lock(&regions->lock);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        if (!vx_region_is_owned(row) || row->owner != connection) continue;
        row->state = VX_REGION_LEAVING;
        left++;
    }
    pthread_mutex_unlock(&regions->lock);
    if (!left) return;
    atomic_store(&regions->stirred, true);
    regions->options.ring(regions->options.context);
}

bool vx_regions_next(const struct vx_regions *regions, const struct vx_peer *peer,
                     enum vx_region_kind kind, i32 *cursor, struct vx_region_said *said)
{
    VX_ON(LOOP);
    pthread_mutex_t *lock = &((struct vx_regions *)(uintptr_t)regions)->lock;
    const struct vx_region *found = NULL;
    pthread_mutex_lock(lock);
    while (!found && *cursor < VX_REGIONS_MAX) {
        const struct vx_region *row = &regions->rows[(*cursor)++];
        if (row->state == VX_REGION_NAMED && row->owner == peer->connection &&
            row->kind == kind)
            found = row;
    }
    pthread_mutex_unlock(lock);
    if (!found) return false;
    *said = (struct vx_region_said){found->name, found->key, found->offset, found->bytes,
                                    found->device};
    return true;
}

/* ------- references ------- */

/* The caller holds the lock. */
static bool region_is_broken(struct vx_regions *regions, struct vx_region *row)
{
    bool is_cut = row->cut || (row->foreign && vx_foreign_broken(row->foreign));
    if (!is_cut && !row->lost && !row->condemned) return false;
    if (!row->counted_broken) regions->broken++;
    row->counted_broken = true;
    return true;
}

/* Why the memory is gone. */
static const char *region_end(const struct vx_region *row)
{
    if (row->condemned) return "its worker ended, and was started again without it";
    if (row->lost) return "its device could not open it again";
    return "its object was truncated, its file system is full, or a worker could not map "
           "it";
}

static vx_status region_check(struct vx_regions *regions, struct vx_region *row,
                              const struct vx_request_region *piece, struct vx_why *why)
{
    VX_ENSURE_WHY(row && row->state == VX_REGION_NAMED, why, NOT_FOUND,
                  "no such shared memory region",
                  "Unable to find shared memory region: '%.127s'", piece->name);
    VX_ENSURE_WHY(piece->bytes <= row->bytes &&
                      piece->offset <= row->bytes - piece->bytes,
                  why, INVALID_ARGUMENT, "not inside the shared memory region",
                  "expected a range inside shared memory region '%.127s', which has %llu "
                  "bytes, got %llu bytes at offset %llu",
                  piece->name, (unsigned long long)row->bytes,
                  (unsigned long long)piece->bytes, (unsigned long long)piece->offset);
    VX_ENSURE_WHY(!region_is_broken(regions, row), why, FAILED_PRECONDITION,
                  "the memory of a shared memory region is gone",
                  "the memory of shared memory region '%.127s' is gone: %s; register it "
                  "again",
                  piece->name, region_end(row));
    return VX_OK;
}

vx_status vx_regions_use(struct vx_regions *regions, const struct vx_peer *peer,
                         const struct vx_request_region *piece, struct vx_why *why,
                         struct vx_place *held)
{
    *held = (struct vx_place){0};
    pthread_mutex_lock(&regions->lock);
    struct vx_region *row = vx_region_find(regions, peer->connection, piece->name);
    vx_status st = region_check(regions, row, piece, why);
    if (!st.fault) {
        row->uses++;
        regions->uses++;
        bool on_device = row->kind == VX_REGION_DEVICE;
        *held = (struct vx_place){
            .offset = piece->offset,
            .bytes = piece->bytes,
            .kind = on_device ? VX_PLACE_DEVICE : VX_PLACE_SYSTEM,
            .region = vx_region_number(regions, row),
            .worker = on_device ? row->worker : 0,
        };
    }
    pthread_mutex_unlock(&regions->lock);
    return st;
}

static struct vx_region *region_of(struct vx_regions *regions,
                                   const struct vx_place *held)
{
    VX_ASSERT(held->region >= 1 && held->region <= VX_REGIONS_MAX);
    return &regions->rows[held->region - 1];
}

void vx_regions_done(struct vx_regions *regions, struct vx_place *held)
{
    if (!held->region) return;
    struct vx_region *row = region_of(regions, held);
    pthread_mutex_lock(&regions->lock);
    VX_ASSERT(row->uses > 0);
    regions->uses--;
    bool is_last = !--row->uses && row->state == VX_REGION_LEAVING;
    pthread_mutex_unlock(&regions->lock);
    *held = (struct vx_place){0};
    if (!is_last) return;
    atomic_store(&regions->stirred, true);
    regions->options.ring(regions->options.context);
}

bool vx_regions_broken(struct vx_regions *regions, const struct vx_place *held)
{
    struct vx_region *row = region_of(regions, held);
    pthread_mutex_lock(&regions->lock);
    bool broken = region_is_broken(regions, row);
    pthread_mutex_unlock(&regions->lock);
    return broken;
}

void vx_regions_lost(struct vx_regions *regions, const struct vx_place *held)
{
    struct vx_region *row = region_of(regions, held);
    pthread_mutex_lock(&regions->lock);
    /* A device region is not cut: its worker may open it again after a restart, and
     * MAPPED reports whether it could. */
    row->cut = row->kind == VX_REGION_SYSTEM;
    if (!row->counted_broken) regions->broken++;
    row->counted_broken = true;
    pthread_mutex_unlock(&regions->lock);
}

void vx_regions_condemn(struct vx_regions *regions, const struct vx_place *held)
{
    if (held->kind != VX_PLACE_DEVICE) return;
    struct vx_region *row = region_of(regions, held);
    pthread_mutex_lock(&regions->lock);
    row->condemned = true;
    pthread_mutex_unlock(&regions->lock);
}

void vx_regions_condemn_all(struct vx_regions *regions, i32 worker)
{
    pthread_mutex_lock(&regions->lock);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        if (row->kind == VX_REGION_DEVICE && row->worker == worker) row->condemned = true;
    }
    pthread_mutex_unlock(&regions->lock);
}

bool vx_regions_read(struct vx_regions *regions, const struct vx_place *held, void *to)
{
    const struct vx_region *row = region_of(regions, held);
    VX_ASSERT(row->foreign && held->bytes <= row->bytes);
    memcpy(to, vx_foreign_at(row->foreign) + held->offset, held->bytes);
    return !vx_regions_broken(regions, held);
}

/* ------- counts ------- */

void vx_regions_counts_get(struct vx_regions *regions, struct vx_regions_counts *counts)
{
    pthread_mutex_lock(&regions->lock);
    *counts = (struct vx_regions_counts){.uses = regions->uses,
                                         .registered = regions->registered,
                                         .refused = regions->refused,
                                         .broken = regions->broken};
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        const struct vx_region *row = &regions->rows[i];
        if (row->state == VX_REGION_FREE) continue;
        counts->regions[row->kind]++;
        if (row->kind == VX_REGION_SYSTEM) counts->bytes += row->bytes;
    }
    pthread_mutex_unlock(&regions->lock);
}
