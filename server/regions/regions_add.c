/* SPDX-License-Identifier: Apache-2.0 */
#include "server/regions/regions_private.h"

#include "engine/base/process/thread.h"
#include "server/devices/devices.h"

#include <string.h>
#include <unistd.h>

/* ------- permission ------- */

static vx_status add_check_peer(const struct vx_regions *regions,
                                const struct vx_peer *peer, enum vx_region_kind kind,
                                struct vx_why *why)
{
    bool loopback = regions->who == VX_REGIONS_LOCAL;
    VX_ENSURE(vx_regions_serve(regions, kind), UNIMPLEMENTED,
              "client shared memory is not enabled on this server");
    bool is_local = peer->kind == VX_PEER_LOCAL && loopback;
    VX_ENSURE_WHY(peer->connection && (peer->kind == VX_PEER_UNIX || is_local), why,
                  PERMISSION_DENIED, "this client may not register shared memory",
                  "expected a client %s, since the setting client_shm is %s",
                  loopback ? "on a unix socket or on this host's loopback"
                           : "on a unix socket",
                  regions->options.config->client_shm);
    return VX_OK;
}

static vx_status add_check_name(const char *name, struct vx_why *why)
{
    VX_ENSURE(*name, INVALID_ARGUMENT,
              "expected a name for the shared memory region, got none");
    for (const char *at = name; *at; at++)
        VX_ENSURE((u8)*at >= ' ' && *at != 0x7f, INVALID_ARGUMENT,
                  "expected a name for the shared memory region without control "
                  "characters");
    VX_ENSURE_WHY(strlen(name) < VX_WIRE_NAME_BYTES, why, INVALID_ARGUMENT,
                  "the name of a shared memory region is too long",
                  "expected a name for the shared memory region of at most %d bytes",
                  VX_WIRE_NAME_BYTES - 1);
    return VX_OK;
}

/* ------- what it needs ------- */

/* What the rows that are not FREE take: rows of all connections and of this one, bytes of
 * system regions. */
struct add_taken {
    i32 rows, rows_owned;
    u64 bytes;
    struct vx_region *row; /* a FREE row, or NULL */
    bool is_named;
};

static struct add_taken add_look(struct vx_regions *regions, u64 owner, const char *name)
{
    struct add_taken taken = {0};
    pthread_mutex_lock(&regions->lock);
    taken.is_named = vx_region_find(regions, owner, name) != NULL;
    for (i32 i = VX_REGIONS_MAX - 1; i >= 0; i--) {
        struct vx_region *row = &regions->rows[i];
        if (row->state == VX_REGION_FREE) {
            taken.row = row;
            continue;
        }
        taken.rows++;
        taken.rows_owned += row->owner == owner;
        if (row->kind == VX_REGION_SYSTEM) taken.bytes += row->bytes;
    }
    pthread_mutex_unlock(&regions->lock);
    return taken;
}

static vx_status add_check_wanted(const struct add_taken *taken,
                                  const struct vx_region_wanted *wanted,
                                  struct vx_why *why)
{
    VX_ENSURE_WHY(!taken->is_named, why, ALREADY_EXISTS,
                  "the name of a shared memory region is taken",
                  "shared memory region '%.127s' already in manager", wanted->name);
    VX_ENSURE_WHY(wanted->bytes > 0, why, INVALID_ARGUMENT,
                  "the shared memory region has no bytes",
                  "expected a byte_size above 0 for shared memory region '%.127s', got 0",
                  wanted->name);
    /* Also for a device region, whose size has no other bound.  A worker refuses more. */
    VX_ENSURE_WHY(wanted->bytes <= (u64)INT64_MAX, why, INVALID_ARGUMENT,
                  "the shared memory region is larger than any memory",
                  "expected a byte_size of at most %lld for shared memory region "
                  "'%.127s', got %llu",
                  (long long)INT64_MAX, wanted->name, (unsigned long long)wanted->bytes);
    return VX_OK;
}

static vx_status add_check_room(const struct vx_regions *regions,
                                const struct add_taken *taken, u64 owner,
                                struct vx_why *why)
{
    VX_ENSURE_WHY(taken->rows_owned < VX_REGIONS_OWNER_MAX, why, RESOURCE_EXHAUSTED,
                  "too many shared memory regions of one connection",
                  "expected at most %d shared memory regions of one connection",
                  VX_REGIONS_OWNER_MAX);
    VX_ENSURE_WHY(taken->row, why, RESOURCE_EXHAUSTED, "too many shared memory regions",
                  "expected at most %d shared memory regions of all clients",
                  VX_REGIONS_MAX);
    VX_ENSURE(vx_regions_may_send(regions, owner), RESOURCE_EXHAUSTED,
              "a worker still has many shared memory regions of this connection to map: "
              "try again later");
    return VX_OK;
}

static vx_status add_check_bytes(const struct vx_regions *regions,
                                 const struct add_taken *taken,
                                 const struct vx_region_wanted *wanted,
                                 struct vx_why *why)
{
    u64 most = (u64)regions->options.config->client_shm_bytes;
    u64 left = taken->bytes < most ? most - taken->bytes : 0;
    VX_ENSURE_WHY(
        wanted->bytes <= left, why, RESOURCE_EXHAUSTED, "too many bytes of shared memory",
        "expected shared memory region '%.127s' to have at most %llu bytes, the "
        "remainder of client_shm_bytes, got %llu",
        wanted->name, (unsigned long long)left, (unsigned long long)wanted->bytes);
    return VX_OK;
}

/* Without the lock: only the loop touches a FREE row. */
static void add_fill(struct vx_regions *regions, struct vx_region *row,
                     const struct vx_peer *peer, const struct vx_region_wanted *wanted)
{
    row->owner = peer->connection;
    row->serial = ++regions->serial;
    row->bytes = wanted->bytes;
    memcpy(row->name, wanted->name, strlen(wanted->name) + 1);
}

static bool add_owner_lives(const struct vx_regions *regions, u64 owner)
{
    const struct vx_regions_options *options = &regions->options;
    return !options->lives || options->lives(options->context, owner);
}

bool vx_region_name(struct vx_regions *regions, struct vx_region *row)
{
    pthread_mutex_lock(&regions->lock);
    row->state = VX_REGION_NAMED;
    regions->registered++;
    pthread_mutex_unlock(&regions->lock);
    if (add_owner_lives(regions, row->owner)) return true;
    vx_region_leave(regions, row);
    return false;
}

static vx_status add_count(struct vx_regions *regions, vx_status st)
{
    if (!st.fault) return st;
    pthread_mutex_lock(&regions->lock);
    regions->refused++;
    pthread_mutex_unlock(&regions->lock);
    return st;
}

/* ------- system regions ------- */

static vx_status add_system(struct vx_regions *regions, const struct vx_peer *peer,
                            const struct vx_region_wanted *wanted, struct vx_why *why)
{
    VX_TRY(add_check_peer(regions, peer, VX_REGION_SYSTEM, why));
    VX_TRY(add_check_name(wanted->name, why));
    struct add_taken taken = add_look(regions, peer->connection, wanted->name);
    VX_TRY(add_check_wanted(&taken, wanted, why));
    VX_TRY(add_check_room(regions, &taken, peer->connection, why));
    VX_TRY(add_check_bytes(regions, &taken, wanted, why));
    int fd;
    VX_TRY(vx_region_open_object(&regions->options, peer, wanted, why, &fd));
    struct vx_region *row = taken.row;
    vx_status st = vx_foreign_map(fd, wanted->offset, wanted->bytes, why, &row->foreign);
    if (st.fault) {
        close(fd);
        return st;
    }
    add_fill(regions, row, peer, wanted);
    row->kind = VX_REGION_SYSTEM;
    row->fd = fd;
    row->offset = wanted->offset;
    memcpy(row->key, wanted->key, strlen(wanted->key) + 1);
    vx_region_send_map(regions, row);
    VX_ENSURE(vx_region_name(regions, row), CANCELLED, "the client's connection is gone");
    return VX_OK;
}

vx_status vx_regions_add_system(struct vx_regions *regions, const struct vx_peer *peer,
                                const struct vx_region_wanted *wanted, struct vx_why *why)
{
    VX_ON(LOOP);
    return add_count(regions, add_system(regions, peer, wanted, why));
}

/* ------- device regions ------- */

/* Of several workers on one GPU the first that is up, or the first if none is. */
i32 vx_regions_worker_of(const struct vx_regions *regions, i64 device)
{
    const struct vx_workers *workers = *regions->options.workers;
    i32 found = -1;
    for (i32 w = 0; workers && w < vx_workers_count(workers); w++) {
        const struct vx_worker_info *info = vx_workers_info(workers, w);
        i64 id = vx_device_id(info->device, w);
        if (id < 0 || (device >= 0 && id != device)) continue;
        if (info->state == VX_WORKER_UP) return w;
        if (found < 0) found = w;
    }
    return found;
}

static vx_status add_device(struct vx_regions *regions, const struct vx_peer *peer,
                            const struct vx_region_wanted *wanted, struct vx_why *why,
                            struct vx_region **added)
{
    VX_TRY(add_check_peer(regions, peer, VX_REGION_DEVICE, why));
    VX_TRY(add_check_name(wanted->name, why));
    struct add_taken taken = add_look(regions, peer->connection, wanted->name);
    VX_TRY(add_check_wanted(&taken, wanted, why));
    VX_TRY(add_check_room(regions, &taken, peer->connection, why));
    i32 worker = wanted->device < 0 ? -1 : vx_regions_worker_of(regions, wanted->device);
    VX_ENSURE_WHY(worker >= 0, why, INVALID_ARGUMENT, "no worker has this device",
                  "expected shared memory region '%.127s' to be of a GPU that voxeld "
                  "uses, got device_id %lld",
                  wanted->name, (long long)wanted->device);
    struct vx_region *row = taken.row;
    add_fill(regions, row, peer, wanted);
    row->kind = VX_REGION_DEVICE;
    row->device = wanted->device;
    row->worker = worker;
    memcpy(row->handle, wanted->handle, sizeof row->handle);
    vx_region_send_map(regions, row);
    VX_ENSURE_WHY(row->have, why, UNAVAILABLE, "the worker of this device is down",
                  "the worker of device_id %lld is not up: try again later",
                  (long long)wanted->device);
    *added = row;
    return VX_OK;
}

vx_status vx_regions_add_device(struct vx_regions *regions, const struct vx_peer *peer,
                                const struct vx_region_wanted *wanted, void *waiter,
                                struct vx_why *why)
{
    VX_ON(LOOP);
    VX_ASSERT(waiter);
    struct vx_region *row;
    vx_status st = add_count(regions, add_device(regions, peer, wanted, why, &row));
    if (st.fault) return st;
    row->waiter = waiter;
    pthread_mutex_lock(&regions->lock);
    row->state = VX_REGION_OPENING;
    pthread_mutex_unlock(&regions->lock);
    /* The next vx_regions_step reports this to the waiter. */
    if (!add_owner_lives(regions, row->owner)) vx_region_leave(regions, row);
    return VX_OK;
}

bool vx_regions_forget(struct vx_regions *regions, void *waiter)
{
    VX_ON(LOOP);
    for (i32 i = 0; i < VX_REGIONS_MAX; i++) {
        struct vx_region *row = &regions->rows[i];
        if (row->waiter != waiter) continue;
        row->waiter = NULL;
        vx_region_leave(regions, row);
        return true;
    }
    return false;
}
