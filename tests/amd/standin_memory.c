/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
/* What the vendors align memory to; its end is the end of a page. */
#define ALIGNMENT 256u
/* How much of new memory is garbage and not zeros: all of a small piece. */
#define GARBAGE_BYTES (4u << 20)
/* Freed memory that nobody may touch is kept so long that a late access is noticed. */
#define GRAVES_MAX 256

/* Foreign memory is another process's, opened by its handle. */
enum use { USE_DEVICE, USE_FOREIGN, USE_HOST, USE_PINNED };

struct piece {
    struct piece *next;
    enum use use;
    int device;
    u8 *at;
    size_t bytes;
    u8 *mapped;
    size_t mapped_bytes;
};

static struct piece *pieces;
static struct {
    void *at;
    size_t bytes;
} graves[GRAVES_MAX];
static u32 graves_next;

/* --- pieces: with the lock --- */

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Maps the bytes so that they end where a page ends that nobody may touch; there is such a
 * page before them too. */
static bool piece_map(struct piece *piece)
{
    size_t inside = pages(piece->bytes);
    piece->mapped_bytes = inside + (size_t)2 * PAGE;
    u8 *at = mmap(NULL, piece->mapped_bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    piece->mapped = at;
    if (mprotect(at + PAGE, inside, PROT_READ | PROT_WRITE)) return false;
    size_t rounded = (piece->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    piece->at = at + PAGE + inside - rounded;
    memset(piece->at, 0xcd, piece->bytes < GARBAGE_BYTES ? piece->bytes : GARBAGE_BYTES);
    return true;
}

static struct piece *piece_add(enum use use, size_t bytes)
{
    struct piece *made = standin_take();
    if (!made) return NULL;
    *made = (struct piece){.use = use, .device = standin_device(), .bytes = bytes};
    if (use != USE_PINNED && !piece_map(made)) {
        if (made->mapped) (void)munmap(made->mapped, made->mapped_bytes);
        standin_give(made);
        return NULL;
    }
    made->next = pieces;
    pieces = made;
    return made;
}

static void bury(const struct piece *piece)
{
    if (!piece->mapped) return;
    /* Its pages go back, the addresses stay taken. */
    (void)mmap(piece->mapped, piece->mapped_bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (graves[graves_next].at)
        (void)munmap(graves[graves_next].at, graves[graves_next].bytes);
    graves[graves_next].at = piece->mapped;
    graves[graves_next].bytes = piece->mapped_bytes;
    graves_next = (graves_next + 1) % GRAVES_MAX;
}

static bool piece_drop(enum use use, u64 address)
{
    struct piece **link = &pieces;
    while (*link && !((*link)->use == use && (u64)(uintptr_t)(*link)->at == address))
        link = &(*link)->next;
    struct piece *it = *link;
    if (!it) return false;
    *link = it->next;
    if (use == USE_DEVICE) standin.used[it->device] -= (i64)it->bytes;
    bury(it);
    standin_give(it);
    return true;
}

/* The piece of device memory that holds all of it. */
static const struct piece *piece_of(u64 address, size_t bytes)
{
    for (const struct piece *it = pieces; it; it = it->next) {
        u64 base = (u64)(uintptr_t)it->at;
        if (it->use <= USE_FOREIGN && address >= base && address - base <= it->bytes &&
            bytes <= it->bytes - (address - base))
            return it;
    }
    return NULL;
}

bool standin_holds(u64 address, size_t bytes)
{
    return piece_of(address, bytes) != NULL;
}

/* --- HIP's functions --- */

int hipMemGetInfo(size_t *free_bytes, size_t *total)
{
    int code = standin_enter();
    *total = (size_t)standin.settings.memory;
    *free_bytes = (size_t)(standin.settings.memory - standin.used[standin_device()]);
    return standin_leave(code);
}

int hipMalloc(u64 *address, size_t bytes)
{
    int code = standin_enter(), device = standin_device();
    if (!code && !bytes) code = STANDIN_INVALID_VALUE;
    if (!code && bytes > (size_t)(standin.settings.memory - standin.used[device]))
        code = STANDIN_OUT_OF_MEMORY;
    struct piece *made = code ? NULL : piece_add(USE_DEVICE, bytes);
    if (!code && !made) code = STANDIN_OUT_OF_MEMORY;
    if (made) standin.used[device] += (i64)bytes;
    if (made) *address = (u64)(uintptr_t)made->at;
    return standin_leave(code);
}

/* As with HIP, the device is idle before memory goes. */
int hipFree(u64 address)
{
    int code = standin_enter();
    standin_wait_idle(standin_device());
    bool found = !address || piece_drop(USE_DEVICE, address);
    return standin_leave(code || found ? code : STANDIN_INVALID_VALUE);
}

int hipHostMalloc(void **memory, size_t bytes, unsigned flags)
{
    int code = standin_enter();
    if (!code && (!bytes || flags)) code = STANDIN_INVALID_VALUE;
    struct piece *made = code ? NULL : piece_add(USE_HOST, bytes);
    if (!code && !made) code = STANDIN_OUT_OF_MEMORY;
    if (made) *memory = made->at;
    return standin_leave(code);
}

int hipHostFree(void *memory)
{
    int code = standin_enter();
    standin_wait_idle(standin_device());
    bool found = piece_drop(USE_HOST, (u64)(uintptr_t)memory);
    return standin_leave(code || found ? code : STANDIN_INVALID_VALUE);
}

int hipHostRegister(void *memory, size_t bytes, unsigned flags)
{
    int code = standin_enter();
    u64 begin = (u64)(uintptr_t)memory;
    if (!code && (!memory || !bytes || flags)) code = STANDIN_INVALID_VALUE;
    for (const struct piece *it = pieces; it && !code; it = it->next) {
        u64 other = (u64)(uintptr_t)it->at;
        if (it->use == USE_PINNED && begin < other + it->bytes && other < begin + bytes)
            code = STANDIN_PINNED_ALREADY;
    }
    struct piece *made = code ? NULL : piece_add(USE_PINNED, bytes);
    if (!code && !made) code = STANDIN_OUT_OF_MEMORY;
    if (made) made->at = memory;
    return standin_leave(code);
}

int hipHostUnregister(void *memory)
{
    int code = standin_enter();
    bool found = piece_drop(USE_PINNED, (u64)(uintptr_t)memory);
    return standin_leave(code || found ? code : STANDIN_NOT_PINNED);
}

int hipMemGetAddressRange(u64 *base, size_t *bytes, u64 address)
{
    int code = standin_enter();
    const struct piece *it = code ? NULL : piece_of(address, 1);
    if (!code && !it) code = STANDIN_INVALID_VALUE;
    if (it) *base = (u64)(uintptr_t)it->at;
    if (it) *bytes = it->bytes;
    return standin_leave(code);
}

int hipPointerGetAttribute(void *value, int attribute, u64 address)
{
    int code = standin_enter();
    const struct piece *it = code ? NULL : piece_of(address, 1);
    if (!code && (!it || attribute != VX_POINTER_DEVICE)) code = STANDIN_INVALID_VALUE;
    if (!code) memcpy(value, &it->device, sizeof it->device);
    return standin_leave(code);
}

/* --- memory of other processes --- */

int hipIpcGetMemHandle(struct vx_driver_ipc *handle, u64 address)
{
    (void)handle;
    (void)address;
    int code = standin_enter();
    return standin_leave(code ? code : STANDIN_NOT_SUPPORTED);
}

/* Opens the file that a handle names; -1 = there is none of this size. */
static int handle_open(const struct standin_handle *handle)
{
    char path[64];
    struct stat about;
    if (memcmp(handle->word, STANDIN_HANDLE, sizeof handle->word) != 0) return -1;
    (void)snprintf(path, sizeof path, "/proc/%llu/fd/%llu",
                   (unsigned long long)handle->process, (unsigned long long)handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    if (!fstat(fd, &about) && handle->bytes && handle->bytes % PAGE == 0 &&
        handle->bytes <= (u64)about.st_size)
        return fd;
    (void)close(fd);
    return -1;
}

/* With the lock: the file's pages take the place of new memory's, between the same two that
 * nobody may touch. */
static struct piece *foreign_add(int fd, size_t bytes)
{
    struct piece *made = piece_add(USE_FOREIGN, bytes);
    if (made && mmap(made->at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                     0) == MAP_FAILED) {
        (void)piece_drop(USE_FOREIGN, (u64)(uintptr_t)made->at);
        return NULL;
    }
    return made;
}

int hipIpcOpenMemHandle(u64 *address, struct vx_driver_ipc handle, unsigned flags)
{
    struct standin_handle ours;
    memcpy(&ours, handle.bytes, sizeof ours);
    int code = standin_enter();
    int fd = code || flags > VX_IPC_LAZY_PEER ? -1 : handle_open(&ours);
    struct piece *made = fd < 0 ? NULL : foreign_add(fd, (size_t)ours.bytes);
    if (fd >= 0) (void)close(fd);
    if (!code && !made) code = STANDIN_INVALID_VALUE;
    *address = made ? (u64)(uintptr_t)made->at : 0;
    return standin_leave(code);
}

int hipIpcCloseMemHandle(u64 address)
{
    int code = standin_enter();
    standin_wait_idle(standin_device());
    bool found = piece_drop(USE_FOREIGN, address);
    return standin_leave(code || found ? code : STANDIN_INVALID_VALUE);
}
