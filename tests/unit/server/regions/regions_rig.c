/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/regions/regions_rig.h"

#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct vx_worker_info rig_infos[RIG_WORKERS];
struct rig_told rig_told[RIG_TOLD_MAX];
i32 rig_told_count, rig_killed, rig_rings;
struct vx_config rig_config;
struct vx_regions *rig_regions;
u64 rig_dead;
void *rig_waiter;
enum vx_code rig_added;
struct vx_why rig_why;

static int rig_watched = -1; /* closes with the process */
static struct vx_workers *const some_workers = (struct vx_workers *)(void *)&rig_infos;

/* ------- workers ------- */

i32 vx_workers_count(const struct vx_workers *workers)
{
    (void)workers;
    return RIG_WORKERS;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    (void)workers;
    return &rig_infos[worker];
}

bool vx_workers_send_fd(struct vx_workers *workers, i32 worker,
                        const struct vx_message_head *message, size_t bytes, int passed)
{
    struct stat object = {0};
    (void)workers;
    if (rig_infos[worker].state != VX_WORKER_UP) return false;
    struct rig_told *told = &rig_told[rig_told_count++ % RIG_TOLD_MAX];
    *told = (struct rig_told){
        .kind = message->kind, .worker = worker, .serial = message->serial};
    if (message->kind == VX_MESSAGE_MAP) {
        ck_assert_uint_eq(bytes, sizeof told->map);
        memcpy(&told->map, message, sizeof told->map);
        told->region = told->map.region;
    } else {
        struct vx_message_unmap unmap;
        ck_assert_int_eq(message->kind, VX_MESSAGE_UNMAP);
        ck_assert_uint_eq(bytes, sizeof unmap);
        memcpy(&unmap, message, sizeof unmap);
        told->region = unmap.region;
    }
    if (passed >= 0) {
        ck_assert(!fstat(passed, &object));
        told->object_bytes = (u64)object.st_size;
    }
    return true;
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    return vx_workers_send_fd(workers, worker, message, bytes, -1);
}

void vx_workers_kill(struct vx_workers *workers, i32 worker)
{
    (void)workers;
    (void)worker;
    rig_killed++;
}

/* ------- the front ------- */

static void ring(void *context)
{
    (void)context;
    __atomic_fetch_add(&rig_rings, 1, __ATOMIC_RELAXED);
}

static bool lives(void *context, u64 connection)
{
    (void)context;
    return connection != rig_dead;
}

static bool in_group(void *context, u64 connection, u32 gid)
{
    (void)context;
    return connection == 1 && gid == RIG_GROUP;
}

static void on_added(void *context, void *waiter, vx_status status,
                     const struct vx_why *why)
{
    ck_assert_ptr_eq(context, &rig_regions);
    ck_assert_ptr_null(rig_waiter);
    rig_waiter = waiter;
    rig_added = vx_status_code(status);
    vx_why_set(&rig_why, "%s", vx_status_text(status, why));
}

/* ------- objects ------- */

#define OBJECTS "/dev/shm"

/* With our process id, because tests run side by side. */
static const char *object_key(const char *name)
{
    static char key[64];
    snprintf(key, sizeof key, "/vx-regions-%d-%.20s", (int)getpid(), name);
    return key;
}

/* Objects need their names as long as a test may register them, and a test may end
 * anywhere, even by a signal.  So another process waits for its end and removes the
 * objects that are left; it has its own session, because Check kills a test's process
 * group. */
static void objects_watch(int *tester)
{
    char mine[64], byte;
    int ends[2], length = snprintf(mine, sizeof mine, "vx-regions-%d-", (int)getpid());
    ck_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0) {
        close(ends[0]);
        ck_assert_int_eq(read(ends[1], &byte, 1), 1); /* it has left the group */
        *tester = ends[1];
        return;
    }
    close(ends[1]);
    if (setsid() < 0 || write(ends[0], "", 1) != 1) _exit(1);
    ssize_t got = read(ends[0], &byte, 1); /* 0 bytes or an error at the test's end */
    DIR *list = got <= 0 ? opendir(OBJECTS) : NULL;
    for (struct dirent *one; list && (one = readdir(list));)
        if (!strncmp(one->d_name, mine, (size_t)length)) shm_unlink(one->d_name);
    _exit(0);
}

void rig_set_up(const char *client_shm)
{
    if (rig_watched < 0) objects_watch(&rig_watched); /* once, before threads start */
    vx_thread_enter(VX_ROLE_LOOP);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_WARN, .fd = 2}, "test");
    vx_config_defaults(&rig_config);
    snprintf(rig_config.client_shm, sizeof rig_config.client_shm, "%s", client_shm);
    static const char *const devices[RIG_WORKERS] = {"cpu", "fake:0", "cuda:5"};
    for (i32 w = 0; w < RIG_WORKERS; w++)
        rig_infos[w] = (struct vx_worker_info){
            .state = w < 2 ? VX_WORKER_UP : VX_WORKER_DOWN, .device = devices[w]};
    rig_told_count = rig_killed = rig_rings = 0;
    rig_dead = 0;
    rig_waiter = NULL;
    rig_open_on(NULL);
}

void rig_open_on(struct uv_loop_s *loop)
{
    vx_regions_close(&rig_regions);
    ck_assert(!vx_regions_open(&(struct vx_regions_options){.config = &rig_config,
                                                            .loop = loop,
                                                            .workers = &some_workers,
                                                            .context = &rig_regions,
                                                            .ring = ring,
                                                            .lives = lives,
                                                            .in_group = in_group,
                                                            .on_added = on_added},
                               &rig_regions)
                   .fault);
}

void rig_tear_down(void)
{
    vx_regions_close(&rig_regions);
    ck_assert_ptr_null(rig_regions);
}

struct vx_peer rig_peer(u64 connection)
{
    return (struct vx_peer){.connection = connection,
                            .kind = VX_PEER_UNIX,
                            .uid = geteuid(),
                            .gid = getegid()};
}

const char *rig_object(const char *name, u64 bytes)
{
    int fd = shm_open(object_key(name), O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert(!ftruncate(fd, (off_t)bytes));
    close(fd);
    return object_key(name) + 1;
}

void rig_resize(const char *name, u64 bytes)
{
    int fd = shm_open(object_key(name), O_RDWR, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert(!ftruncate(fd, (off_t)bytes));
    close(fd);
}

void rig_drop_object(const char *name)
{
    ck_assert(!shm_unlink(object_key(name)));
}

/* ------- the table ------- */

/* No sentence contains the key. */
static enum vx_code code_of(vx_status status)
{
    if (status.fault)
        ck_assert_ptr_null(strstr(vx_status_text(status, &rig_why), "vx-regions-"));
    return vx_status_code(status);
}

enum vx_code rig_add(u64 connection, const char *name, u64 offset, u64 bytes)
{
    struct vx_peer peer = rig_peer(connection);
    struct vx_region_wanted wanted = {
        .name = name, .key = object_key(name), .offset = offset, .bytes = bytes};
    rig_why.text[0] = '\0';
    return code_of(vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why));
}

enum vx_code rig_add_device(u64 connection, const char *name, i64 device, void *waiter)
{
    u8 handle[VX_IPC_HANDLE_BYTES];
    memset(handle, 0x5a, sizeof handle);
    struct vx_peer peer = rig_peer(connection);
    struct vx_region_wanted wanted = {
        .name = name, .handle = handle, .device = device, .bytes = 4096};
    rig_why.text[0] = '\0';
    return code_of(vx_regions_add_device(rig_regions, &peer, &wanted, waiter, &rig_why));
}

enum vx_code rig_use(u64 connection, const char *name, u64 offset, u64 bytes,
                     struct vx_place *use)
{
    struct vx_peer peer = rig_peer(connection);
    struct vx_request_region piece = {.offset = offset, .bytes = bytes};
    snprintf(piece.name, sizeof piece.name, "%s", name);
    rig_why.text[0] = '\0';
    return code_of(vx_regions_use(rig_regions, &peer, &piece, &rig_why, use));
}

void rig_mapped(const struct rig_told *told, enum vx_code code)
{
    struct vx_message_mapped mapped = {
        .head = {.kind = VX_MESSAGE_MAPPED, .serial = told->serial},
        .region = told->region,
        .code = (i32)code,
    };
    if (code) vx_why_set(&mapped.why, "as the test wants");
    vx_regions_on_mapped(rig_regions, told->worker, &mapped);
}

void rig_mapped_all(i32 from)
{
    for (i32 i = from; i < rig_told_count; i++)
        if (rig_told[i % RIG_TOLD_MAX].kind == VX_MESSAGE_MAP)
            rig_mapped(&rig_told[i % RIG_TOLD_MAX], VX_CODE_OK);
}

void rig_step(void)
{
    vx_regions_step(rig_regions);
}

i32 rig_told_of(i32 kind, i32 worker)
{
    i32 count = 0;
    ck_assert_int_le(rig_told_count, RIG_TOLD_MAX);
    for (i32 i = 0; i < rig_told_count; i++)
        count += rig_told[i].kind == kind && (worker < 0 || rig_told[i].worker == worker);
    return count;
}

struct vx_regions_counts rig_counts(void)
{
    struct vx_regions_counts counts;
    vx_regions_counts_get(rig_regions, &counts);
    return counts;
}
