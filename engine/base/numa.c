/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/numa.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/mempolicy.h, which is not installed everywhere. */
#define POLICY_PREFERRED  1
#define POLICY_INTERLEAVE 3

/* A list of 1024 single numbers would have 5 KB; real lists are far shorter. */
#define LIST_BYTES 4096

_Static_assert(VX_NUMA_CPUS_MAX <= CPU_SETSIZE, "a set is bound through cpu_set_t");

/* --- sets --- */

bool vx_numa_has(const struct vx_numa_set *set, i32 number)
{
    return number >= 0 && number < VX_NUMA_CPUS_MAX &&
           (set->words[number / 64] >> (number % 64) & 1);
}

i32 vx_numa_count(const struct vx_numa_set *set)
{
    i32 count = 0;
    for (i32 i = 0; i < VX_NUMA_CPUS_MAX / 64; i++)
        count += __builtin_popcountll(set->words[i]);
    return count;
}

/* Reads at most six digits, which cannot overflow; no CPU number has more. */
static const char *parse_number(const char *text, i32 *number)
{
    const char *at = text;
    for (*number = 0; *at >= '0' && *at <= '9' && at < text + 6; at++)
        *number = *number * 10 + (*at - '0');
    return at == text ? NULL : at;
}

bool vx_numa_parse(const char *text, struct vx_numa_set *set, struct vx_why *why)
{
    const char *at = text;
    *set = (struct vx_numa_set){0};
    while (*at && *at != '\n') {
        i32 first = 0, last = 0;
        at = parse_number(at, &first);
        last = first;
        if (at && *at == '-') at = parse_number(at + 1, &last);
        bool more = at && *at == ',';
        if (!at || last < first || (*at && *at != '\n' && !more) ||
            (more && (!at[1] || at[1] == '\n'))) {
            *set = (struct vx_numa_set){0};
            vx_why_set(why, "expected a list such as 0-15,32-47, got %.60s", text);
            return false;
        }
        for (i32 i = first; i <= last && i < VX_NUMA_CPUS_MAX; i++)
            set->words[i / 64] |= UINT64_C(1) << (i % 64);
        at += more;
    }
    return true;
}

/* --- the system's files --- */

/* Reads a file of one line; false when it cannot be read. */
static bool file_read(const char *path, char text[LIST_BYTES])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t got = read(file, text, LIST_BYTES - 1);
    (void)close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

u64 vx_numa_nodes(void)
{
    char text[LIST_BYTES];
    struct vx_numa_set nodes;
    if (!file_read("/sys/devices/system/node/online", text)) return 1;
    if (!vx_numa_parse(text, &nodes, NULL)) return 1;
    return nodes.words[0] ? nodes.words[0] : 1;
}

i32 vx_numa_of_pci(const char *bus)
{
    char path[128], text[LIST_BYTES];
    i32 node = -1;
    int used = snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    /* A driver gives the id: it must be a plain name, not a path to another place. */
    if (used < 0 || used >= (int)sizeof path || strchr(bus, '/')) return -1;
    /* The system writes ids in lower case; a driver may use upper case. */
    for (char *at = path; *at; at++) *at = (char)tolower((unsigned char)*at);
    if (!file_read(path, text) || !parse_number(text, &node)) return -1;
    return node < VX_NUMA_NODES_MAX ? node : -1;
}

bool vx_numa_cpus(i32 node, struct vx_numa_set *cpus, struct vx_why *why)
{
    char path[64], text[LIST_BYTES];
    *cpus = (struct vx_numa_set){0};
    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    if (node < 0 || !file_read(path, text)) {
        vx_why_set(why, "the system lists no CPUs for node %d", node);
        return false;
    }
    return vx_numa_parse(text, cpus, why);
}

/* Whether the nodes exist and the machine has more than one; else writes why not. */
static bool choice(u64 wanted, struct vx_why *why)
{
    u64 nodes = vx_numa_nodes();
    if (wanted & ~nodes || !wanted) {
        vx_why_set(why, "expected nodes of %#llx, got %#llx", (unsigned long long)nodes,
                   (unsigned long long)wanted);
        return false;
    }
    if (nodes & (nodes - 1)) return true;
    vx_why_set(why, "the machine has only one NUMA node");
    return false;
}

static u64 bit(i32 node)
{
    return node >= 0 && node < VX_NUMA_NODES_MAX ? UINT64_C(1) << node : 0;
}

bool vx_numa_bind_thread(i32 node, struct vx_why *why)
{
    struct vx_numa_set near;
    cpu_set_t may, both;
    if (!choice(bit(node), why) || !vx_numa_cpus(node, &near, why)) return false;
    if (sched_getaffinity(0, sizeof may, &may)) {
        vx_why_set(why, "sched_getaffinity: %s", strerror(errno));
        return false;
    }
    CPU_ZERO(&both);
    for (i32 i = 0; i < VX_NUMA_CPUS_MAX; i++)
        if (CPU_ISSET((size_t)i, &may) && vx_numa_has(&near, i))
            CPU_SET((size_t)i, &both);
    if (!CPU_COUNT(&both)) {
        vx_why_set(why, "this process may use none of the %d CPUs of node %d",
                   vx_numa_count(&near), node);
        return false;
    }
    if (!sched_setaffinity(0, sizeof both, &both)) return true;
    vx_why_set(why, "sched_setaffinity: %s", strerror(errno));
    return false;
}

/* --- memory --- */

struct policy {
    long mode;
    u64 nodes;
};

static bool bind_memory(void *memory, size_t bytes, struct policy policy,
                        struct vx_why *why)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)memory + bytes) / page * page;
    if (from >= to) {
        vx_why_set(why, "no whole page in %zu bytes", bytes);
        return false;
    }
    unsigned long mask = policy.nodes;
    /* The kernel reads one bit fewer than the count it is given. */
    if (!syscall(SYS_mbind, from, to - from, policy.mode, &mask, VX_NUMA_NODES_MAX + 1,
                 0))
        return true;
    vx_why_set(why, "mbind: %s", strerror(errno));
    return false;
}

bool vx_numa_prefer(void *memory, size_t bytes, i32 node, struct vx_why *why)
{
    if (!choice(bit(node), why)) return false;
    return bind_memory(memory, bytes, (struct policy){POLICY_PREFERRED, bit(node)}, why);
}

bool vx_numa_interleave(void *memory, size_t bytes, u64 nodes, struct vx_why *why)
{
    if (!choice(nodes, why)) return false;
    return bind_memory(memory, bytes, (struct policy){POLICY_INTERLEAVE, nodes}, why);
}
