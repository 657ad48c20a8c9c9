/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/gpu/fake/fake_parts.h"

#include "engine/base/process/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Twice as many as a server has regions. */
#define RANGES_MAX 512

struct range {
    void *at; /* NULL = this row is free */
    size_t bytes;
};
static struct {
    pthread_mutex_t lock;
    struct range pinned[RANGES_MAX], imported[RANGES_MAX];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static i32 ranges_count(const struct range ranges[RANGES_MAX])
{
    i32 count = 0;
    pthread_mutex_lock(&fake.lock);
    for (i32 i = 0; i < RANGES_MAX; i++) count += ranges[i].at != NULL;
    pthread_mutex_unlock(&fake.lock);
    return count;
}

i32 vx_fake_pinned(void)
{
    return ranges_count(fake.pinned);
}

i32 vx_fake_imported(void)
{
    return ranges_count(fake.imported);
}

/* False if the range overlaps another one. */
static bool range_add(struct range ranges[RANGES_MAX], void *at, size_t bytes)
{
    struct range *free_row = NULL;
    bool meets = false;
    u64 begin = (u64)(uintptr_t)at;
    pthread_mutex_lock(&fake.lock);
    for (i32 i = 0; i < RANGES_MAX; i++) {
        u64 other = (u64)(uintptr_t)ranges[i].at;
        if (!ranges[i].at)
            free_row = &ranges[i];
        else
            meets |= begin < other + ranges[i].bytes && other < begin + bytes;
    }
    VX_ASSERT(free_row);
    if (!meets) *free_row = (struct range){at, bytes};
    pthread_mutex_unlock(&fake.lock);
    return !meets;
}

/* Removes the range that begins at `at` and returns its bytes; 0 = there is none. */
static size_t range_drop(struct range ranges[RANGES_MAX], const void *at)
{
    size_t bytes = 0;
    pthread_mutex_lock(&fake.lock);
    for (i32 i = 0; i < RANGES_MAX && !bytes; i++)
        if (at && ranges[i].at == at) {
            bytes = ranges[i].bytes;
            ranges[i] = (struct range){NULL, 0};
        }
    pthread_mutex_unlock(&fake.lock);
    return bytes;
}

/* --- page-locked memory --- */

static int fake_host_pin(void *memory, size_t bytes, unsigned flags)
{
    if (!memory || !bytes || flags) return VX_DRIVER_INVALID_VALUE;
    vx_fake_on_pin();
    int code = vx_fake_step();
    if (code) return code;
    return range_add(fake.pinned, memory, bytes) ? 0 : VX_DRIVER_HOST_PINNED_ALREADY;
}

/* Removes the range even if the call fails: a lost device holds no page locks. */
static int fake_host_unpin(void *memory)
{
    size_t bytes = range_drop(fake.pinned, memory);
    int code = vx_fake_step();
    if (code) return code;
    if (!bytes) return VX_DRIVER_INVALID_VALUE;
    vx_fake_queue_drain();
    return 0;
}

/* --- memory of other processes --- */

void vx_fake_handle(int pid, int fd, u64 bytes, u8 handle[VX_GPU_IPC_BYTES])
{
    const u64 numbers[3] = {(u64)pid, (u64)fd, bytes};
    memset(handle, 0, VX_GPU_IPC_BYTES);
    memcpy(handle, VX_FAKE_IPC_MAGIC, sizeof VX_FAKE_IPC_MAGIC);
    memcpy(handle + VX_FAKE_IPC_PID, numbers, sizeof numbers);
}

/* Maps the memory that a handle names; NULL = the handle is not valid. */
static void *handle_map(const struct vx_driver_ipc *handle, size_t *bytes)
{
    u64 numbers[3];
    char path[64];
    struct stat about;
    void *at = MAP_FAILED;
    memcpy(numbers, handle->bytes + VX_FAKE_IPC_PID, sizeof numbers);
    if (memcmp(handle->bytes, VX_FAKE_IPC_MAGIC, sizeof VX_FAKE_IPC_MAGIC) != 0)
        return NULL;
    for (i32 i = VX_FAKE_IPC_BYTES + 8; i < VX_GPU_IPC_BYTES; i++)
        if (handle->bytes[i]) return NULL;
    *bytes = numbers[2];
    (void)snprintf(path, sizeof path, "/proc/%llu/fd/%llu",
                   (unsigned long long)numbers[0], (unsigned long long)numbers[1]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && numbers[2] &&
        numbers[2] <= (u64)about.st_size)
        at = mmap(NULL, numbers[2], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static int fake_ipc_open(u64 *address, struct vx_driver_ipc handle, unsigned flags)
{
    size_t bytes;
    int code = vx_fake_step();
    if (code || flags != VX_IPC_LAZY_PEER) return code ? code : VX_DRIVER_INVALID_VALUE;
    void *at = handle_map(&handle, &bytes);
    if (!at) return VX_DRIVER_INVALID_VALUE;
    VX_ASSERT(range_add(fake.imported, at, bytes));
    *address = (u64)(uintptr_t)at;
    return 0;
}

static int fake_ipc_close(u64 address)
{
    void *at = (void *)(uintptr_t)address;
    vx_fake_queue_drain();
    size_t bytes = range_drop(fake.imported, at);
    if (bytes) (void)munmap(at, bytes);
    int code = vx_fake_step();
    return code || bytes ? code : VX_DRIVER_INVALID_VALUE;
}

/* Finds the imported range that holds all the wanted bytes: ranges may be adjacent, so
 * the address alone does not tell. */
static bool foreign_range(u64 address, size_t wanted, u64 *base, size_t *bytes)
{
    bool found = false;
    pthread_mutex_lock(&fake.lock);
    for (i32 i = 0; i < RANGES_MAX && !found; i++) {
        *base = (u64)(uintptr_t)fake.imported[i].at;
        *bytes = fake.imported[i].bytes;
        found = *base && vx_fake_within(address, wanted, *base, *bytes);
    }
    pthread_mutex_unlock(&fake.lock);
    return found;
}

bool vx_fake_foreign_holds(u64 address, size_t bytes)
{
    u64 base;
    size_t whole;
    return foreign_range(address, bytes, &base, &whole);
}

static int fake_memory_range(u64 *base, size_t *bytes, u64 address)
{
    int code = vx_fake_step();
    if (code) return code;
    bool found =
        vx_fake_range(address, 1, base, bytes) || foreign_range(address, 1, base, bytes);
    return found ? 0 : VX_DRIVER_INVALID_VALUE;
}

/* All known device memory is on the only device, 0. */
static int fake_pointer_attribute(void *value, int attribute, u64 address)
{
    const int device = 0;
    int code = vx_fake_step();
    if (code) return code;
    if (attribute != VX_POINTER_DEVICE || !vx_fake_holds(address, 1))
        return VX_DRIVER_INVALID_VALUE;
    memcpy(value, &device, sizeof device);
    return 0;
}

void vx_fake_foreign_close(void)
{
    for (i32 i = 0; i < RANGES_MAX; i++) {
        if (fake.imported[i].at)
            (void)munmap(fake.imported[i].at, fake.imported[i].bytes);
        fake.imported[i] = fake.pinned[i] = (struct range){NULL, 0};
    }
}

void vx_driver_fake_foreign(struct vx_driver *driver)
{
    driver->host_pin = fake_host_pin;
    driver->host_unpin = fake_host_unpin;
    driver->ipc_open = fake_ipc_open;
    driver->ipc_close = fake_ipc_close;
    driver->memory_range = fake_memory_range;
    driver->pointer_attribute = fake_pointer_attribute;
}
