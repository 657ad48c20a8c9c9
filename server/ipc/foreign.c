/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/ipc/foreign.h"

#include "engine/base/process/check.h"
#include "engine/base/process/cores.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A mapping; [begin, end) are whole pages.  The handler reads rows on any thread while
 * others are set, so `serial` is odd while a row changes. */
struct vx_foreign {
    atomic_bool taken;
    atomic_uint serial;
    _Atomic uintptr_t begin, end;
    atomic_bool broken;
    u8 *at;
    u64 bytes;
};

static struct vx_foreign foreign_rows[VX_FOREIGN_MAX];
static atomic_bool foreign_guarded;
static struct sigaction foreign_before; /* the handler for every other SIGBUS */
static uintptr_t foreign_page;          /* bytes */

/* ------- the handler ------- */

/* True if `at` is in this row.  Then the row does not change: a thread accesses it. */
static bool foreign_has(struct vx_foreign *row, uintptr_t at, uintptr_t *end)
{
    unsigned before = atomic_load(&row->serial);
    uintptr_t begin = atomic_load(&row->begin);
    *end = atomic_load(&row->end);
    return !(before & 1) && begin <= at && at < *end &&
           before == atomic_load(&row->serial);
}

/* Replaces the page and everything behind it, which is gone or worthless too: one new
 * mapping instead of one signal per page. */
static bool foreign_mend(uintptr_t at)
{
    for (i32 i = 0; i < VX_FOREIGN_MAX; i++) {
        uintptr_t end, page = at & ~(foreign_page - 1);
        if (!foreign_has(&foreign_rows[i], at, &end)) continue;
        atomic_store(&foreign_rows[i].broken, true);
        void *put = mmap((void *)page, end - page, PROT_READ | PROT_WRITE,
                         MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return put != MAP_FAILED;
    }
    return false;
}

static void foreign_pass_on(int number, siginfo_t *info, void *context)
{
    if (foreign_before.sa_flags & SA_SIGINFO) {
        foreign_before.sa_sigaction(number, info, context);
    } else if (foreign_before.sa_handler != SIG_DFL &&
               foreign_before.sa_handler != SIG_IGN) {
        foreign_before.sa_handler(number);
    } else {
        /* A faulting access runs again when the handler returns, and ends the process.  A
         * signal sent by a process must be raised again. */
        struct sigaction fallback = {.sa_handler = SIG_DFL};
        (void)sigaction(number, &fallback, NULL);
        if (info->si_code <= 0) (void)raise(number);
    }
}

static void foreign_on_bus(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool is_access = info->si_code == BUS_ADRERR;
    if (!is_access || !foreign_mend((uintptr_t)info->si_addr))
        foreign_pass_on(number, info, context);
    errno = saved;
}

void vx_foreign_guard(void)
{
    if (atomic_exchange(&foreign_guarded, true)) return;
    foreign_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction action = {.sa_sigaction = foreign_on_bus,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    VX_ASSERT(!sigaction(SIGBUS, NULL, &foreign_before));
    VX_ASSERT(!sigaction(SIGBUS, &action, NULL));
}

/* ------- mappings ------- */

static vx_status foreign_check(int fd, u64 offset, u64 bytes, struct vx_why *why)
{
    struct stat object;
    u64 end;
    VX_ENSURE_WHY(bytes > 0, why, INVALID_ARGUMENT, "a mapping of no bytes",
                  "expected at least one byte of shared memory, got 0");
    VX_ENSURE(!fstat(fd, &object), INVALID_ARGUMENT, "not a shared memory object");
    VX_ENSURE_WHY(!__builtin_add_overflow(offset, bytes, &end) &&
                      end <= (u64)object.st_size,
                  why, INVALID_ARGUMENT, "the shared memory object is smaller",
                  "expected a shared memory object that holds %llu bytes at offset %llu, "
                  "got one of %llu bytes",
                  (unsigned long long)bytes, (unsigned long long)offset,
                  (unsigned long long)object.st_size);
    return VX_OK;
}

static struct vx_foreign *foreign_take(void)
{
    for (i32 i = 0; i < VX_FOREIGN_MAX; i++)
        if (!atomic_exchange(&foreign_rows[i].taken, true)) return &foreign_rows[i];
    return NULL;
}

static void foreign_set(struct vx_foreign *row, uintptr_t begin, uintptr_t end)
{
    atomic_fetch_add(&row->serial, 1);
    atomic_store(&row->begin, begin);
    atomic_store(&row->end, end);
    atomic_fetch_add(&row->serial, 1);
}

vx_status vx_foreign_map(int fd, u64 offset, u64 bytes, struct vx_why *why,
                         struct vx_foreign **foreign)
{
    VX_ASSERT(atomic_load(&foreign_guarded));
    VX_TRY(foreign_check(fd, offset, bytes, why));
    u64 lead = offset & (foreign_page - 1);
    size_t mapped = vx_round_up(lead + bytes, foreign_page);
    struct vx_foreign *row = foreign_take();
    VX_ENSURE_WHY(row, why, RESOURCE_EXHAUSTED, "too many mappings",
                  "expected at most %d mappings of shared memory at once",
                  VX_FOREIGN_MAX);
    u8 *begin = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                     (off_t)(offset - lead));
    if (begin == MAP_FAILED) {
        atomic_store(&row->taken, false);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "a shared memory object cannot be mapped",
                    "%llu bytes of shared memory could not be mapped: %m",
                    (unsigned long long)bytes);
    }
    vx_core_leave_out(begin, mapped);
    row->at = begin + lead;
    row->bytes = bytes;
    atomic_store(&row->broken, false);
    foreign_set(row, (uintptr_t)begin, (uintptr_t)begin + mapped);
    *foreign = row;
    return VX_OK;
}

void vx_foreign_unmap(struct vx_foreign **foreign)
{
    struct vx_foreign *row = *foreign;
    if (!row) return;
    *foreign = NULL;
    uintptr_t begin = atomic_load(&row->begin), end = atomic_load(&row->end);
    foreign_set(row, 0, 0);
    VX_ASSERT(!munmap((void *)begin, end - begin));
    atomic_store(&row->taken, false);
}

u8 *vx_foreign_at(const struct vx_foreign *foreign)
{
    return foreign->at;
}

u64 vx_foreign_bytes(const struct vx_foreign *foreign)
{
    return foreign->bytes;
}

void vx_foreign_pages(const struct vx_foreign *foreign, void **begin, u64 *bytes)
{
    *begin = (void *)atomic_load(&foreign->begin);
    *bytes = atomic_load(&foreign->end) - atomic_load(&foreign->begin);
}

bool vx_foreign_broken(const struct vx_foreign *foreign)
{
    return atomic_load(&foreign->broken);
}
