/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/lds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE      4096u
#define FENCE     0x10000u
#define RESERVED  (AMD_LDS_STATIC_END - AMD_LDS_BYTES - FENCE)
#define END       (AMD_LDS_DYNAMIC + AMD_LDS_BYTES + FENCE)
#define UNTOUCHED 0xc7 /* what is in bytes of a page that no launch has */

static struct {
    bool mapped;
    u32 bytes_static, bytes_dynamic;
} lds;

static u8 *at(u32 address)
{
    return (u8 *)(uintptr_t)address;
}

static u32 static_begin(void)
{
    return AMD_LDS_STATIC_END - lds.bytes_static;
}

static u32 static_page(void)
{
    return static_begin() & ~(PAGE - 1);
}

static u32 dynamic_end(void)
{
    return AMD_LDS_DYNAMIC + lds.bytes_dynamic;
}

static u32 dynamic_page(void)
{
    return (dynamic_end() + PAGE - 1) & ~(PAGE - 1);
}

static bool reserve(char why[AMD_WHY_BYTES])
{
    void *got = mmap(at(RESERVED), END - RESERVED, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    lds.mapped = got == at(RESERVED);
    if (!lds.mapped)
        (void)snprintf(why, AMD_WHY_BYTES,
                       "no shared memory at address %#x: %s: something else is there",
                       RESERVED, strerror(errno));
    return lds.mapped;
}

bool amd_lds_open(u32 bytes_static, u32 bytes_dynamic, char why[AMD_WHY_BYTES])
{
    if (bytes_static > AMD_LDS_BYTES || bytes_dynamic > AMD_LDS_BYTES - bytes_static) {
        (void)snprintf(why, AMD_WHY_BYTES,
                       "%u bytes of static and %u of dynamic shared memory: a block has "
                       "%u in all",
                       bytes_static, bytes_dynamic, AMD_LDS_BYTES);
        return false;
    }
    if (!lds.mapped && !reserve(why)) return false;
    if (bytes_static == lds.bytes_static && bytes_dynamic == lds.bytes_dynamic)
        return true;
    lds.bytes_static = bytes_static;
    lds.bytes_dynamic = bytes_dynamic;
    bool done = !mprotect(at(RESERVED), END - RESERVED, PROT_NONE) &&
                !mprotect(at(static_page()), AMD_LDS_STATIC_END - static_page(),
                          PROT_READ | PROT_WRITE) &&
                !mprotect(at(AMD_LDS_DYNAMIC), dynamic_page() - AMD_LDS_DYNAMIC,
                          PROT_READ | PROT_WRITE);
    if (!done)
        (void)snprintf(why, AMD_WHY_BYTES, "shared memory: mprotect: %s",
                       strerror(errno));
    return done;
}

static void garbage(u32 begin, u32 end, u64 seed)
{
    for (u32 i = begin; i < end; i++) {
        if (!(i & 7) || i == begin)
            seed = seed * 6364136223846793005u + 1442695040888963407u;
        *at(i) = (u8)(seed >> (32 + 4 * (i & 7)));
    }
}

void amd_lds_fill(u64 seed)
{
    memset(at(static_page()), UNTOUCHED, static_begin() - static_page());
    garbage(static_begin(), AMD_LDS_STATIC_END, seed);
    garbage(AMD_LDS_DYNAMIC, dynamic_end(), ~seed);
    memset(at(dynamic_end()), UNTOUCHED, dynamic_page() - dynamic_end());
}

static bool touched(u32 begin, u32 end)
{
    for (u32 i = begin; i < end; i++)
        if (*at(i) != UNTOUCHED) return true;
    return false;
}

bool amd_lds_overrun(void)
{
    return touched(static_page(), static_begin()) ||
           touched(dynamic_end(), dynamic_page());
}

bool amd_lds_near(u64 address)
{
    return address >= RESERVED && address < END;
}
