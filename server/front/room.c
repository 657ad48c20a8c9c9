/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front/room.h"

#include "server/base/host.h"
#include "server/http/http.h"

#include <string.h>

#define MIB ((i64)1 << 20)
/* A front with one worker holds 22 descriptors, and opens about 12 more for short times:
 * to start a worker, to read the repository, to make a page. */
#define FILES_FRONT      64
#define FILES_PER_WORKER 4
/* Fewer gRPC connections than this are of little use; each takes two descriptors. */
#define CONNECTIONS_MIN 16
/* rpc_accept.c leaves the lower half of the descriptors to everything but gRPC, and 128
 * of that half to everything but its own connections. */
#define FILES_OTHERS 128
/* Address space: a stack of 8 MiB, and 64 MiB that the allocator reserves for each
 * thread.  With less, the order of allocations decides whether the last thread gets its
 * stack. */
#define BYTES_PER_THREAD (80 * MIB)
/* The binary, its libraries, tables. */
#define BYTES_OF_FRONT  (256 * MIB)
#define BYTES_OF_WORKER (256 * MIB)
/* Threads of the front besides rpc and senders: loop, log, accept, four of libuv, six of
 * gRPC. */
#define THREADS_FRONT 13
/* Of each queue: the one that waits, one that sends, one that reads. */
#define THREADS_RPC 3
#define THREADS_TLS 3 /* two that shake hands, one that watches files */
/* Threads of a worker besides those that compute: main, log, device, and one that
 * compiles or watches. */
#define THREADS_WORKER 4

/* ------- what the settings need ------- */

static i64 workers_of(const struct vx_config *config)
{
    i64 count = 1;
    for (const char *c = config->device; *c; c++) count += *c == ',';
    return count;
}

static i64 front_threads(const struct vx_config *config, i32 processors)
{
    i64 exporter = config->otlp_endpoint[0] != '\0';
    i64 tls = config->tls_cert[0] ? THREADS_TLS : 0;
    return THREADS_FRONT + exporter + tls + processors +
           THREADS_RPC * vx_host_rpc_threads(config, processors);
}

static i64 worker_threads(const struct vx_config *config, i32 processors)
{
    return THREADS_WORKER + (config->threads ? config->threads : processors);
}

/* Private memory of a process: of the front or of a worker, whichever is larger. */
static i64 data_needed(const struct vx_config *config, i32 processors)
{
    i64 front = BYTES_OF_FRONT + front_threads(config, processors) * BYTES_PER_THREAD;
    i64 worker = BYTES_OF_WORKER + worker_threads(config, processors) * BYTES_PER_THREAD +
                 config->device_bytes + config->cache_bytes;
    return front > worker ? front : worker;
}

static i64 files_needed(const struct vx_config *config)
{
    i64 others =
        FILES_FRONT + FILES_PER_WORKER * workers_of(config) + VX_HTTP_CONNECTIONS_MIN;
    if (others < FILES_OTHERS) others = FILES_OTHERS;
    return 2 * (others + CONNECTIONS_MIN);
}

/* ------- checks ------- */

static vx_status check_files(const struct vx_config *config, const struct vx_room *room,
                             struct vx_why *why)
{
    i64 needed = files_needed(config);
    VX_ENSURE_WHY(
        room->files >= needed, why, RESOURCE_EXHAUSTED, "too few open files are allowed",
        "the limit of open files (RLIMIT_NOFILE: ulimit -n, systemd's LimitNOFILE) is "
        "%lld: expected at least %lld for %lld worker(s), the admin port and %d "
        "connections, and two more for each further connection",
        (long long)room->files, (long long)needed, (long long)workers_of(config),
        CONNECTIONS_MIN);
    return VX_OK;
}

static vx_status check_sizes(const struct vx_config *config, i32 processors,
                             const struct vx_room *room, struct vx_why *why)
{
    VX_ENSURE_WHY(room->file_bytes >= config->arena_bytes, why, RESOURCE_EXHAUSTED,
                  "files may not become as large as the arena",
                  "the limit of a file's size (RLIMIT_FSIZE: ulimit -f, systemd's "
                  "LimitFSIZE) is %lld bytes: the shared arena is a file in memory of "
                  "arena_bytes, %lld; raise the limit or lower --arena-bytes",
                  (long long)room->file_bytes, (long long)config->arena_bytes);
    i64 data = data_needed(config, processors), all = data + config->arena_bytes;
    VX_ENSURE_WHY(room->address_bytes >= all, why, RESOURCE_EXHAUSTED,
                  "too little address space is allowed",
                  "the limit of address space (RLIMIT_AS: ulimit -v, systemd's LimitAS) "
                  "is %lld bytes: expected at least %lld for arena_bytes, device_bytes, "
                  "cache_bytes and threads; raise the limit or lower these settings",
                  (long long)room->address_bytes, (long long)all);
    VX_ENSURE_WHY(room->data_bytes >= data, why, RESOURCE_EXHAUSTED,
                  "too little data is allowed",
                  "the limit of a process's data (RLIMIT_DATA: ulimit -d, systemd's "
                  "LimitDATA) is %lld bytes: expected at least %lld for device_bytes, "
                  "cache_bytes and threads; raise the limit or lower these settings",
                  (long long)room->data_bytes, (long long)data);
    return VX_OK;
}

static vx_status check_threads(const struct vx_config *config, i32 processors,
                               const struct vx_room *room, struct vx_why *why)
{
    i64 needed = front_threads(config, processors) +
                 workers_of(config) * worker_threads(config, processors);
    VX_ENSURE_WHY(
        room->threads >= needed, why, RESOURCE_EXHAUSTED, "too few threads are allowed",
        "%s leaves room for %lld more threads: expected at least %lld for the front and "
        "%lld worker(s); raise the limit or lower --threads and --rpc-threads",
        room->threads_why, (long long)room->threads, (long long)needed,
        (long long)workers_of(config));
    return VX_OK;
}

static bool names_gpu(const struct vx_config *config)
{
    return strstr(config->device, "cuda") || strstr(config->device, "hip");
}

/* A GPU's worker page-locks the arena, so all of it is in memory from the start. */
static vx_status check_memory(const struct vx_config *config, const struct vx_room *room,
                              struct vx_why *why)
{
    if (!names_gpu(config)) return VX_OK;
    i64 needed = config->arena_bytes + BYTES_OF_FRONT;
    VX_ENSURE_WHY(room->memory_bytes >= needed, why, RESOURCE_EXHAUSTED,
                  "too little memory is allowed",
                  "the limit of memory (of the control group or the machine) is %lld "
                  "bytes: expected at least %lld, since a GPU's worker locks all of "
                  "arena_bytes in memory; raise the limit or lower --arena-bytes",
                  (long long)room->memory_bytes, (long long)needed);
    return VX_OK;
}

vx_status vx_room_check(const struct vx_config *config, i32 processors,
                        const struct vx_room *room, struct vx_why *why)
{
    VX_TRY(check_files(config, room, why));
    VX_TRY(check_sizes(config, processors, room, why));
    VX_TRY(check_threads(config, processors, room, why));
    return check_memory(config, room, why);
}

bool vx_room_advise(const struct vx_config *config, const struct vx_room *room,
                    struct vx_why *why)
{
    i64 each = config->cache_bytes;
    if (!names_gpu(config)) each += config->device_bytes;
    i64 most = config->arena_bytes + workers_of(config) * each;
    if (room->memory_bytes >= most) return false;
    vx_why_set(
        why,
        "the settings allow %lld bytes (arena_bytes, and for each device device_bytes "
        "and cache_bytes), and the control group or the machine has %lld: the kernel may "
        "kill a worker during a large request (out of memory)",
        (long long)most, (long long)room->memory_bytes);
    return true;
}

i32 vx_room_admin_connections(i64 files, i64 connections_max)
{
    i64 half = files / 2;
    i64 rows = half / 2 < half - FILES_OTHERS ? half / 2 : half - FILES_OTHERS;
    if (rows > connections_max) rows = connections_max;
    i64 left = half - rows - (FILES_OTHERS - VX_HTTP_CONNECTIONS_MIN);
    if (left < VX_HTTP_CONNECTIONS_MIN) return VX_HTTP_CONNECTIONS_MIN;
    return left < VX_HTTP_CONNECTIONS_MAX ? (i32)left : VX_HTTP_CONNECTIONS_MAX;
}
