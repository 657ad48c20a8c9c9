/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/ipc/shared.h"

#include "engine/base/memory/buddy.h"
#include "engine/base/numa.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/cores.h"
#include "engine/base/process/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_UNIT_BYTES 4096 /* a page: slots are aligned for DMA and never share one */

struct vx_shared {
    int fd;
    u64 bytes;
    u8 *memory;
    struct vx_buddy *buddy; /* NULL in a worker */
    pthread_mutex_t lock;   /* around buddy */
    _Atomic u64 lacked;
    struct vx_slots slots;
};

static bool shared_take(void *context, size_t bytes, struct vx_place *slot)
{
    struct vx_shared *shared = context;
    *slot = (struct vx_place){.kind = VX_PLACE_ARENA};
    if (!bytes) return true;
    u64 offset;
    pthread_mutex_lock(&shared->lock);
    bool taken = vx_buddy_take(shared->buddy, bytes, &offset);
    if (!taken && vx_buddy_could(shared->buddy, bytes))
        atomic_fetch_add_explicit(&shared->lacked, 1, memory_order_relaxed);
    pthread_mutex_unlock(&shared->lock);
    *slot = taken ? (struct vx_place){offset, bytes, VX_PLACE_ARENA, 0, 0}
                  : (struct vx_place){0};
    return taken;
}

static void shared_give(void *context, struct vx_place *slot)
{
    struct vx_shared *shared = context;
    if (!slot->bytes) return;
    pthread_mutex_lock(&shared->lock);
    vx_buddy_give(shared->buddy, slot->offset);
    pthread_mutex_unlock(&shared->lock);
    *slot = (struct vx_place){0};
}

static u8 *shared_memory(void *context, const struct vx_place *slot)
{
    u8 *view = vx_shared_view(context, slot->offset, slot->bytes);
    VX_ASSERT(view);
    return view;
}

static u64 shared_lacked(void *context)
{
    const struct vx_shared *shared = context;
    return atomic_load_explicit(&shared->lacked, memory_order_relaxed);
}

static vx_status shared_map_file(struct vx_shared *shared, struct vx_why *why)
{
    void *memory = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, shared->fd, 0);
    VX_ENSURE_WHY(memory != MAP_FAILED, why, RESOURCE_EXHAUSTED,
                  "the shared arena could not be mapped",
                  "the shared arena of %llu bytes could not be mapped: %m",
                  (unsigned long long)shared->bytes);
    shared->memory = memory;
    vx_core_leave_out(memory, shared->bytes);
    return VX_OK;
}

vx_status vx_shared_open(u64 bytes, struct vx_why *why, struct vx_shared **shared)
{
    struct vx_shared *s = vx_alloc_zero(sizeof *s);
    VX_ENSURE(s, RESOURCE_EXHAUSTED, "no memory for the shared arena's record");
    s->fd = -1;
    s->bytes = bytes & ~(u64)(SLOT_UNIT_BYTES - 1);
    VX_ASSERT(!pthread_mutex_init(&s->lock, NULL));
    *shared = s;
    vx_status st;
    VX_TRY_OR(st, fail, vx_buddy_open(s->bytes, SLOT_UNIT_BYTES, &s->buddy));
    s->fd = memfd_create("voxeld-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* Sealed: no process, not even a faulty worker, can truncate the file. */
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) ||
        fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        vx_why_set(why, "the shared arena of %llu bytes could not be created: %m",
                   (unsigned long long)s->bytes);
        st = vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED);
        goto fail;
    }
    VX_TRY_OR(st, fail, shared_map_file(s, why));
    s->slots = (struct vx_slots){.take = shared_take,
                                 .give = shared_give,
                                 .memory = shared_memory,
                                 .context = s,
                                 .bytes = s->bytes,
                                 .lacked = shared_lacked};
    return VX_OK;
fail:
    vx_shared_close(shared);
    return st;
}

vx_status vx_shared_map(int fd, struct vx_why *why, struct vx_shared **shared)
{
    struct stat file;
    VX_ENSURE_WHY(!fstat(fd, &file) && file.st_size > 0, why, INTERNAL,
                  "the worker's arena descriptor is missing",
                  "fd %d is not the arena: %m", fd);
    struct vx_shared *s = vx_alloc_zero(sizeof *s);
    VX_ENSURE(s, RESOURCE_EXHAUSTED, "no memory for the shared arena's record");
    s->fd = fd;
    s->bytes = (u64)file.st_size;
    VX_ASSERT(!pthread_mutex_init(&s->lock, NULL));
    *shared = s;
    vx_status st = shared_map_file(s, why);
    if (st.fault) vx_shared_close(shared);
    return st;
}

void vx_shared_close(struct vx_shared **shared)
{
    struct vx_shared *s = *shared;
    if (!s) return;
    if (s->memory) munmap(s->memory, s->bytes);
    if (s->fd >= 0) close(s->fd);
    if (s->buddy) vx_buddy_close(&s->buddy);
    pthread_mutex_destroy(&s->lock);
    vx_free(s);
    *shared = NULL;
}

int vx_shared_fd(const struct vx_shared *shared)
{
    return shared->fd;
}

u64 vx_shared_bytes(const struct vx_shared *shared)
{
    return shared->bytes;
}

u64 vx_shared_used(struct vx_shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    u64 used = vx_buddy_used(shared->buddy);
    pthread_mutex_unlock(&shared->lock);
    return used;
}

const struct vx_slots *vx_shared_slots(struct vx_shared *shared)
{
    return &shared->slots;
}

u8 *vx_shared_view(const struct vx_shared *shared, u64 offset, u64 bytes)
{
    if (offset > shared->bytes || bytes > shared->bytes - offset) return NULL;
    return shared->memory + offset;
}

u64 vx_shared_nodes_of(i32 node)
{
    return node >= 0 && node < VX_NUMA_NODES_MAX ? UINT64_C(1) << node : vx_numa_nodes();
}

void vx_shared_place(const struct vx_shared *shared, u64 nodes)
{
    u64 all = vx_numa_nodes();
    if (!(all & (all - 1)) || !nodes) return;
    struct vx_why why = {""};
    bool is_one = !(nodes & (nodes - 1));
    bool done = is_one ? vx_numa_prefer(shared->memory, shared->bytes,
                                        __builtin_ctzll(nodes), &why)
                       : vx_numa_interleave(shared->memory, shared->bytes, nodes, &why);
    VX_LOG(NUMA, VX_LOG_TEXT("what", "arena"), VX_LOG_I64("nodes", (i64)nodes),
           VX_LOG_TEXT("how", !done    ? why.text
                              : is_one ? "near"
                                       : "in turn"));
}
