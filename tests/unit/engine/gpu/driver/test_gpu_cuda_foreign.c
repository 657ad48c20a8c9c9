/* Memory of other processes on a real device: imported from a second process, page-locked while
 * batches run, and truncated during a batch.  Without a device it says so and passes.
 *
 * As `PROGRAM client FD BYTES` it is that second process: device memory of its own, whose
 * contents come from and go to the shared memory FD.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "engine/gpu/driver/gpu.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N            400
#define CLIENT_BYTES ((size_t)4 << 20)
#define LARGE_BYTES  ((size_t)1 << 30)

static const struct vx_gpu_options cuda = {.vendor = VX_GPU_CUDA};

/* ------- the other process ------- */

/* It reads a letter: g, get the memory's contents from the shared memory; p, put them there; e,
 * end.  It answers each with a letter when it is done; ahead of the first it sends the handle. */
static int client_main(int fd, size_t bytes)
{
    typedef int (*get_handle)(u8 handle[VX_GPU_IPC_BYTES], u64 memory);
    struct vx_why why;
    struct vx_gpu *gpu;
    struct vx_gpu_stream *stream;
    void *memory, *found, *library = dlopen("libcuda.so.1", RTLD_NOW);
    u8 handle[VX_GPU_IPC_BYTES];
    get_handle get;
    char letter;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    found = library ? dlsym(library, "cuIpcGetMemHandle") : NULL;
    if (!found || shared == MAP_FAILED) return 2;
    memcpy(&get, &found, sizeof get);
    if (vx_gpu_open(&cuda, &why, &gpu).fault) return 3;
    if (vx_gpu_stream_open(gpu, &why, &stream).fault) return 3;
    if (vx_gpu_alloc(gpu, bytes, &why, &memory).fault) return 3;
    if (get(handle, (u64)(uintptr_t)memory)) return 4;
    if (write(1, handle, sizeof handle) != sizeof handle) return 5;
    while (read(0, &letter, 1) == 1 && letter != 'e') {
        vx_status status =
            letter == 'g'
                ? vx_gpu_copy_in(gpu, stream,
                                 &(struct vx_gpu_copy){memory, shared, bytes}, &why)
                : vx_gpu_copy_out(gpu, stream,
                                  &(struct vx_gpu_copy){shared, memory, bytes}, &why);
        if (status.fault || vx_gpu_stream_wait(gpu, stream, &why).fault) return 6;
        if (write(1, &letter, 1) != 1) return 5;
    }
    return 0;
}

static struct client {
    pid_t pid;
    int fd, to, from;
    u8 *shared;
    u8 handle[VX_IPC_HANDLE_BYTES];
} client;

static void client_open(void)
{
    int in[2], out[2];
    char fd[16], bytes[32];
    char *arguments[] = {"client", "client", fd, bytes, NULL};
    posix_spawn_file_actions_t actions;
    client.fd = memfd_create("client", 0);
    ck_assert_int_ge(client.fd, 0);
    ck_assert(!ftruncate(client.fd, (off_t)CLIENT_BYTES));
    client.shared =
        mmap(NULL, CLIENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client.fd, 0);
    ck_assert_ptr_ne(client.shared, MAP_FAILED);
    snprintf(fd, sizeof fd, "%d", client.fd);
    snprintf(bytes, sizeof bytes, "%zu", CLIENT_BYTES);
    ck_assert(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ck_assert(
        !posix_spawn(&client.pid, "/proc/self/exe", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    client.to = in[1];
    client.from = out[0];
    ssize_t got = read(client.from, client.handle, sizeof client.handle);
    ck_assert_msg(got == sizeof client.handle, "the other process has no handle");
}

static void client_do(char letter)
{
    char back = 0;
    ck_assert(write(client.to, &letter, 1) == 1);
    ck_assert(read(client.from, &back, 1) == 1);
    ck_assert_int_eq(back, letter);
}

static void client_close(void)
{
    int code;
    ck_assert(write(client.to, "e", 1) == 1);
    ck_assert(waitpid(client.pid, &code, 0) == client.pid && code == 0);
    close(client.to);
    close(client.from);
    close(client.fd);
    munmap(client.shared, CLIENT_BYTES);
}

/* ------- the engine ------- */

static struct vx_model *model;
static struct vx_rig_request *request, *again;
static struct vx_why why;

static void check(vx_status status)
{
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
}

static size_t output_bytes(i32 o)
{
    const struct vx_output *it = &vx_model_signature(model)->outputs[o];
    return (size_t)N * (size_t)it->channels * vx_dtype_bytes(it->dtype);
}

static void set_up(void)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CUDA,
                                              .threads = 2,
                                              .device_bytes = (size_t)256 << 20,
                                              .cache_bytes = 64 << 20};
    vx_thread_enter(VX_ROLE_DEVICE);
    vx_test_directory(vx_rig_root);
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 5);
    check(vx_engine_open(&options, &why, &vx_rig_engine));
    model = vx_rig_load(vx_rig_root);
    check(vx_engine_warm(vx_rig_engine, model, &why));
    request = vx_rig_request(1, N, 4, VX_DTYPE_F32);
    again = vx_rig_request(1, N, 4, VX_DTYPE_F32);
    vx_rig_run(model, &request->item);
    check(request->item.status);
}

static void tear_down(void)
{
    struct vx_why said = {""};
    ck_assert_msg(!vx_engine_lost(vx_rig_engine, &said), "%s", said.text);
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    vx_test_remove(vx_rig_root);
    vx_free(request);
    vx_free(again);
}

/* The outputs that lie at these addresses are the same as the first answer's. */
static void ck_answer(const u8 *const outputs[VX_OUTPUTS_MAX])
{
    for (i32 o = 0; o < vx_model_signature(model)->outputs_count; o++)
        ck_assert_msg(!memcmp(outputs[o], request->outputs[o], output_bytes(o)),
                      "output %d", o);
}

/* The tensors of `again` in memory that the engine has at `seen` and this process at `own`. */
static struct vx_item placed(u8 *seen, u8 *own, bool on_device,
                             const u8 *outputs[VX_OUTPUTS_MAX])
{
    struct vx_item item = again->item;
    size_t used = 0;
    memcpy(own, again->coords, N * 16);
    item.coords = (const i32 *)(const void *)seen;
    item.coords_change = true;
    item.coords_ref = (struct vx_coords_ref){0};
    used += N * 16;
    memcpy(own + used, again->feats, N * 4 * VX_RIG_CHANNELS);
    item.feats = seen + used;
    used += N * 4 * VX_RIG_CHANNELS;
    for (i32 o = 0; o < vx_model_signature(model)->outputs_count; o++) {
        memset(own + used, 0xe7, output_bytes(o));
        item.outputs[o] = seen + used;
        outputs[o] = own + used;
        used += output_bytes(o);
    }
    ck_assert_uint_le(used, CLIENT_BYTES);
    if (on_device) item.on_device = 63;
    return item;
}

START_TEST(test_import)
{
    const u8 *outputs[VX_OUTPUTS_MAX];
    void *memory = NULL, *second = NULL;
    client_open();
    i64 begin = vx_clock_ns();
    vx_status status =
        vx_engine_import(vx_rig_engine, client.handle, CLIENT_BYTES, &why, &memory);
    i64 import_ns = vx_clock_ns() - begin;
    check(status);
    for (i32 round = 0; round < 3; round++) {
        struct vx_item item = placed(memory, client.shared, true, outputs);
        client_do('g');
        vx_rig_run(model, &item);
        check(item.status);
        memset(client.shared, 0, CLIENT_BYTES);
        client_do('p');
        ck_answer(outputs);
    }
    /* Imported a second time while it is in use; then with more bytes than it has. */
    check(vx_engine_import(vx_rig_engine, client.handle, 16, &why, &second));
    vx_engine_release(vx_rig_engine, &second);
    status =
        vx_engine_import(vx_rig_engine, client.handle, (size_t)1 << 36, &why, &second);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    printf("too much: %s\n", why.text);
    struct vx_item item = placed(memory, client.shared, true, outputs);
    client_do('g');
    vx_rig_run(model, &item);
    check(item.status);
    client_do('p');
    ck_answer(outputs);
    begin = vx_clock_ns();
    vx_engine_release(vx_rig_engine, &memory);
    printf("import %.3f ms, release %.3f ms\n", (f64)import_ns / 1e6,
           (f64)(vx_clock_ns() - begin) / 1e6);
    client_close();
}
END_TEST

/* Handles of no memory: refused, and the device goes on working. */
START_TEST(test_no_handles)
{
    struct vx_test_random random = {1};
    i32 opened = 0;
    client_open();
    for (i32 i = 0; i < 300; i++) {
        u8 handle[VX_IPC_HANDLE_BYTES];
        void *memory = NULL;
        memcpy(handle, client.handle, sizeof handle);
        if (i % 3 == 0)
            for (i32 b = 0; b < VX_IPC_HANDLE_BYTES; b++)
                handle[b] = (u8)vx_test_next(&random);
        else
            handle[vx_test_next(&random) % VX_IPC_HANDLE_BYTES] ^=
                (u8)(1u << vx_test_next(&random) % 8);
        vx_status status =
            vx_engine_import(vx_rig_engine, handle, CLIENT_BYTES, &why, &memory);
        opened += !status.fault;
        if (i < 6) printf("%s\n", vx_status_text(status, &why));
        vx_engine_release(vx_rig_engine, &memory);
        ck_assert_msg(!vx_engine_lost(vx_rig_engine, &why), "handle %d: %s", i, why.text);
    }
    printf("%d of 300 broken handles opened something\n", opened);
    vx_rig_run(model, &again->item);
    check(again->item.status);
    client_close();
}
END_TEST

/* ------- memory of this host ------- */

struct pinning {
    u8 *memory;
    size_t bytes;
    bool touches; /* first, so that locking does not */
    vx_status status;
    struct vx_why why;
    i64 touch_ns, ns;
    atomic_bool over;
};

static void pin_run(void *context)
{
    struct pinning *it = context;
    i64 begin = vx_clock_ns();
    if (it->touches && madvise(it->memory, it->bytes, MADV_POPULATE_WRITE))
        printf("pages are not brought in\n");
    it->touch_ns = vx_clock_ns() - begin;
    begin = vx_clock_ns();
    it->status = vx_engine_pin(vx_rig_engine, it->memory, it->bytes, &it->why);
    it->ns = vx_clock_ns() - begin;
    atomic_store(&it->over, true);
}

static i64 run_ns(struct vx_item item)
{
    i64 begin = vx_clock_ns();
    vx_rig_run(model, &item);
    check(item.status);
    return vx_clock_ns() - begin;
}

static u8 *map_file(int *fd, size_t bytes)
{
    *fd = memfd_create("region", MFD_CLOEXEC);
    ck_assert(*fd >= 0 && !ftruncate(*fd, (off_t)bytes));
    u8 *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

/* Another thread page-locks memory while batches run in it: a gigabyte, and as much as a client
 * has; with its pages untouched, and with its pages present. */
START_TEST(test_pin)
{
    const u8 *outputs[VX_OUTPUTS_MAX];
    struct pinning pinning = {.bytes = _i & 1 ? (size_t)64 << 20 : LARGE_BYTES,
                              .touches = _i & 2};
    i64 before = INT64_MAX, during = 0, sum = 0, count = 0, after = INT64_MAX;
    pthread_t thread;
    int fd;
    u8 *memory = pinning.memory = map_file(&fd, pinning.bytes);
    struct vx_item item = placed(memory, memory, false, outputs);
    for (i32 i = 0; i < 50; i++) {
        i64 ns = run_ns(item);
        if (ns < before) before = ns;
    }
    ck_assert(!vx_thread_open(&thread, VX_ROLE_MAIN, pin_run, &pinning).fault);
    while (!atomic_load(&pinning.over)) {
        i64 ns = run_ns(item);
        if (ns > during) during = ns;
        sum += ns;
        count++;
    }
    pthread_join(thread, NULL);
    if (pinning.status.fault) /* a sandbox may refuse it: then it is only slower */
        printf("not page-locked: %s\n", pinning.why.text);
    item = placed(memory, memory, false, outputs);
    for (i32 i = 0; i < 50; i++) {
        i64 ns = run_ns(item);
        if (ns < after) after = ns;
    }
    ck_answer(outputs);
    i64 begin = vx_clock_ns();
    if (!pinning.status.fault) vx_engine_unpin(vx_rig_engine, memory);
    printf("%zu MiB: touch %.1f ms, pin %.1f ms, unpin %.1f ms; a batch takes %.3f ms "
           "before, "
           "%.3f (most %.3f, %lld of them) meanwhile, %.3f after\n",
           pinning.bytes >> 20, (f64)pinning.touch_ns / 1e6, (f64)pinning.ns / 1e6,
           (f64)(vx_clock_ns() - begin) / 1e6, (f64)before / 1e6,
           count ? (f64)sum / (f64)count / 1e6 : 0, (f64)during / 1e6, (long long)count,
           (f64)after / 1e6);
    munmap(memory, pinning.bytes);
    close(fd);
}
END_TEST

/* What server/ipc/foreign.c does; this program does not link it. */
static u8 *cut_begin;
static void on_bus(int number, siginfo_t *info, void *context)
{
    u8 *at = info->si_addr;
    (void)number;
    (void)context;
    if (at < cut_begin || at >= cut_begin + CLIENT_BYTES) _exit(77);
    u8 *page = cut_begin + (size_t)(at - cut_begin) / 4096 * 4096;
    if (mmap(page, (size_t)(cut_begin + CLIENT_BYTES - page), PROT_READ | PROT_WRITE,
             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        _exit(78);
}

/* The client makes its object smaller: while it is page-locked, while it is not, and just before;
 * ahead of a batch and during one.  That answer may be anything, the next one is right. */
START_TEST(test_cut)
{
    bool locks = _i & 1, under_way = _i & 2, late = _i & 4;
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    const u8 *outputs[VX_OUTPUTS_MAX];
    vx_status pinned = {NULL};
    int fd;
    ck_assert(!sigaction(SIGBUS, &action, NULL));
    u8 *memory = cut_begin = map_file(&fd, CLIENT_BYTES);
    struct vx_item item = placed(memory, memory, false, outputs);
    struct vx_batch batch = {.items = &item, .items_count = 1};
    if (locks && !late) {
        pinned = vx_engine_pin(vx_rig_engine, memory, CLIENT_BYTES, &why);
        if (pinned.fault) printf("not page-locked: %s\n", why.text);
    }
    if (!under_way) ck_assert(!ftruncate(fd, 0));
    if (locks && late) {
        pinned = vx_engine_pin(vx_rig_engine, memory, CLIENT_BYTES, &why);
        printf("page-locking what was cut: %s\n", pinned.fault ? why.text : "goes well");
    }
    vx_engine_submit(vx_rig_engine, model, &batch);
    if (under_way) ck_assert(!ftruncate(fd, 0));
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    printf("locked %d, under way %d, late %d: %s\n", locks, under_way, late,
           item.status.fault ? item.why.text : "answered");
    (void)((volatile u8 *)memory)[CLIENT_BYTES - 1];
    ck_assert_msg(!vx_engine_lost(vx_rig_engine, &why), "%s", why.text);
    if (locks && !pinned.fault) vx_engine_unpin(vx_rig_engine, memory);
    munmap(memory, CLIENT_BYTES);
    close(fd);
    for (i32 o = 0; o < vx_model_signature(model)->outputs_count; o++)
        outputs[o] = (const u8 *)again->outputs[o];
    vx_rig_run(model, &again->item);
    check(again->item.status);
    ck_answer(outputs);
}
END_TEST

static bool device_is_here(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        struct vx_why said = {""};
        if (vx_gpu_count(&cuda, &said) > 0) _exit(0);
        dprintf(STDERR_FILENO, "SKIPPED gpu_cuda_foreign: %s\n", said.text);
        _exit(1);
    }
    int code = 1;
    return child > 0 && waitpid(child, &code, 0) == child && code == 0;
}

int main(int count, char **arguments)
{
    if (count == 4)
        return client_main((int)strtol(arguments[2], NULL, 10),
                           (size_t)strtoul(arguments[3], NULL, 10));
    if (!device_is_here()) return EXIT_SUCCESS;
    Suite *suite = suite_create("gpu_cuda_foreign");
    TCase *tests = tcase_create("gpu_cuda_foreign");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, test_import);
    tcase_add_test(tests, test_no_handles);
    tcase_add_loop_test(tests, test_pin, 0, 4);
    tcase_add_loop_test(tests, test_cut, 0, 6);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
