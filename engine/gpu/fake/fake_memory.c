/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/fake/fake_parts.h"

#include "engine/base/process/check.h"

#include <string.h>
#include <sys/mman.h>

/* As new device memory has old contents, so many bytes of an allocation get this byte. */
#define STALE_BYTES (4 << 20)
#define STALE_BYTE  0xa5

struct memory {
    struct memory *next;
    u8 *at;
    size_t bytes;
    size_t mapped; /* bytes of the whole mapping, which begins with this struct */
};

static struct {
    pthread_mutex_t lock;
    size_t used; /* of the device */
    struct memory *memories;
    struct memory *hosts; /* page-locked host memory */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

size_t vx_fake_memory_used(void)
{
    pthread_mutex_lock(&fake.lock);
    size_t used = fake.used;
    pthread_mutex_unlock(&fake.lock);
    return used;
}

static void memories_close(struct memory **list)
{
    while (*list) {
        struct memory *it = *list;
        *list = it->next;
        (void)munmap(it, it->mapped);
    }
}

void vx_fake_memory_close(void)
{
    memories_close(&fake.memories);
    memories_close(&fake.hosts);
    fake.used = 0;
}

static int fake_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = vx_fake_memory_total();
    *free_bytes = *total_bytes - vx_fake_memory_used();
    return vx_fake_step();
}

/* Uses mmap and not our allocator, because a thread whose allocator is frozen may
 * allocate device memory.  A protected page behind the memory catches overruns. */
static struct memory *memory_map(size_t bytes)
{
    const size_t page = 4096, line = 256;
    size_t data = vx_round_up(bytes, page), mapped = data + 2 * page;
    u8 *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    VX_ASSERT(base != MAP_FAILED); /* fails if the test machine is out of memory */
    VX_ASSERT(!mprotect(base + page + data, page, PROT_NONE));
    struct memory *made = (struct memory *)(void *)base;
    *made = (struct memory){NULL, base + page + data - vx_round_up(bytes, line), bytes,
                            mapped};
    return made;
}

static u8 *memory_keep(struct memory **list, size_t bytes)
{
    struct memory *made = memory_map(bytes);
    memset(made->at, STALE_BYTE, bytes < STALE_BYTES ? bytes : STALE_BYTES);
    pthread_mutex_lock(&fake.lock);
    made->next = *list;
    *list = made;
    pthread_mutex_unlock(&fake.lock);
    return made->at;
}

/* Frees the memory that begins at the address; returns its bytes, 0 = there is none. */
static size_t memory_drop(struct memory **list, u64 address)
{
    pthread_mutex_lock(&fake.lock);
    struct memory **link = list;
    while (*link && (u64)(uintptr_t)(*link)->at != address) link = &(*link)->next;
    struct memory *it = *link;
    size_t bytes = it ? it->bytes : 0;
    if (it) *link = it->next;
    if (it && list == &fake.memories) fake.used -= bytes;
    pthread_mutex_unlock(&fake.lock);
    if (it) (void)munmap(it, it->mapped);
    return bytes;
}

static int fake_memory_open(u64 *address, size_t bytes)
{
    int code = vx_fake_step();
    if (code) return code;
    pthread_mutex_lock(&fake.lock);
    bool room = bytes <= vx_fake_memory_total() - fake.used;
    if (room) fake.used += bytes;
    pthread_mutex_unlock(&fake.lock);
    if (!room) return VX_DRIVER_OUT_OF_MEMORY;
    *address = (u64)(uintptr_t)memory_keep(&fake.memories, bytes);
    return 0;
}

static int fake_memory_close(u64 address)
{
    int code = vx_fake_step();
    if (code) return code;
    vx_fake_queue_drain();
    return memory_drop(&fake.memories, address) ? 0 : VX_DRIVER_INVALID_VALUE;
}

bool vx_fake_range(u64 address, size_t wanted, u64 *base, size_t *bytes)
{
    bool found = false;
    pthread_mutex_lock(&fake.lock);
    for (const struct memory *it = fake.memories; it && !found; it = it->next) {
        *base = (u64)(uintptr_t)it->at;
        *bytes = it->bytes;
        found = vx_fake_within(address, wanted, *base, *bytes);
    }
    pthread_mutex_unlock(&fake.lock);
    return found;
}

bool vx_fake_holds(u64 address, size_t bytes)
{
    u64 base;
    size_t whole;
    return vx_fake_range(address, bytes, &base, &whole) ||
           vx_fake_foreign_holds(address, bytes);
}

static int fake_host_open(void **memory, size_t bytes, unsigned flags)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!bytes || flags) return VX_DRIVER_INVALID_VALUE;
    *memory = memory_keep(&fake.hosts, bytes);
    return 0;
}

static int fake_host_close(void *memory)
{
    int code = vx_fake_step();
    if (code) return code;
    vx_fake_queue_drain();
    return memory_drop(&fake.hosts, (u64)(uintptr_t)memory) ? 0 : VX_DRIVER_INVALID_VALUE;
}

/* All memory of the host is mapped where it lies. */
static int fake_host_at(u64 *at, void *memory, unsigned flags)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!memory || flags) return VX_DRIVER_INVALID_VALUE;
    *at = (u64)(uintptr_t)memory;
    return 0;
}

void vx_driver_fake_memory(struct vx_driver *driver)
{
    driver->memory_info = fake_memory_info;
    driver->memory_open = fake_memory_open;
    driver->memory_close = fake_memory_close;
    driver->host_open = fake_host_open;
    driver->host_close = fake_host_close;
    driver->host_at = fake_host_at;
}
