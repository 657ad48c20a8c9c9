/* The stand-in for HIP's library behaves as a device does: streams that run by themselves, events,
 * captures, images it must refuse, memory, and the faults that a test asks for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/faults.h"
#include "tests/amd/rig.h"

#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS AMD_FAULT_THREADS
#define BYTES   (THREADS * sizeof(u32))

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_IMAGE = 200,
    NO_BINARY = 209,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719
};

static struct amd_image image;
static struct amd_rig rig;
static const struct vx_driver *hip = &rig.driver;

static u64 address(const void *memory)
{
    return (u64)(uintptr_t)memory;
}

static int start(const char *kernel, const u32 *in, u32 *out, u32 place)
{
    struct amd_fault_args args = {in, out, place, 0};
    return amd_rig_start(
        &rig, &(struct amd_run){
                  .image = &image, .kernel = kernel, .args = &args, .threads = THREADS});
}

static void ck_all(const u32 *out, u32 value)
{
    for (u32 i = 0; i < THREADS; i++) ck_assert_uint_eq(out[i], value);
}

/* --- what it says of itself --- */

START_TEST(test_devices)
{
    static const struct {
        const char *arch;
        int major, minor, wave;
    } rows[] = {{"gfx90a", 9, 0, 64},
                {"gfx942", 9, 4, 64},
                {"gfx1100", 11, 0, 32},
                {"gfx1200", 12, 0, 32}};
    static const int numbers[] = {23, 61, 87, 74};
    int (*properties)(void *, int);
    amd_rig_open(&rig, "devices=3");
    void *found = dlsym(hip->library, "hipGetDevicePropertiesR0600");
    memcpy(&properties, &found, sizeof properties);
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        char words[64] = "devices=3 arch=", about[1472];
        int count = 0;
        ck_assert(rig.set(strcat(words, rows[i].arch)));
        ck_assert_int_eq(hip->device_count(&count), OK);
        ck_assert_int_eq(count, 3);
        const int expected[] = {rows[i].major, rows[i].minor, rows[i].wave, 65536};
        for (size_t n = 0; n < VX_COUNT(numbers); n++) {
            int value = -1;
            ck_assert_int_eq(hip->device_attribute(&value, numbers[n], 2), OK);
            ck_assert_int_eq(value, expected[n]);
        }
        ck_assert_int_eq(properties(about, 2), OK);
        ck_assert_int_eq(strncmp(about + 1160, rows[i].arch, strlen(rows[i].arch)), 0);
        ck_assert_int_eq(properties(about, 3), 101);
    }
    amd_rig_close(&rig);
}
END_TEST

START_TEST(test_settings)
{
    static const char *const bad[] = {"devices=9", "devices", "colour=3",
                                      "seed=x",    "arch=",   "seed=1,devices=2"};
    int count = 0;
    amd_rig_open(&rig, "");
    for (size_t i = 0; i < VX_COUNT(bad); i++)
        ck_assert_msg(!rig.set(bad[i]), "\"%s\" is taken", bad[i]);
    ck_assert(rig.set("devices=0"));
    ck_assert_int_eq(hip->init(0), NO_DEVICE);
    ck_assert_int_eq(hip->device_count(&count), NO_DEVICE);
    ck_assert(rig.set(" version=50200000  seed=0 "));
    ck_assert_int_eq(hip->version(&count), OK);
    ck_assert_int_eq(count, 50200000);
    amd_rig_close(&rig);
}
END_TEST

/* --- streams --- */

/* A kernel that ends when the host says so: the launch has long returned. */
START_TEST(test_asynchronous)
{
    void *event, *other;
    amd_rig_open(&rig, "");
    u32 *word = amd_rig_memory(&rig, 4), *out = amd_rig_memory(&rig, BYTES);
    u32 back[THREADS] = {0};
    ck_assert_int_eq(hip->event_open(&event, VX_EVENT_TIMED), OK);
    ck_assert_int_eq(hip->event_done(event), OK); /* never recorded */
    ck_assert_int_eq(hip->stream_open(&other, VX_STREAM_NON_BLOCKING, 0), OK);
    ck_assert_int_eq(start("wait_for_word", word, out, 0), OK);
    ck_assert_int_eq(hip->event_record(event, rig.stream), OK);
    ck_assert_int_eq(hip->stream_after(other, event, 0), OK);
    ck_assert_int_eq(hip->copy_out(back, address(out), BYTES, other), OK);
    ck_assert_int_eq(hip->event_done(event), NOT_READY);
    ck_all(out, 0);
    __atomic_store_n(word, 7, __ATOMIC_SEQ_CST);
    ck_assert_int_eq(hip->stream_wait(other), OK);
    ck_all(back, 7);
    ck_assert_int_eq(hip->event_done(event), OK);
    ck_assert_int_eq(hip->stream_close(other), OK);
    ck_assert_int_eq(hip->event_close(event), OK);
    ck_assert_int_eq(hip->event_done(event), 400); /* no longer a handle */
    amd_rig_close(&rig);
}
END_TEST

START_TEST(test_events_measure)
{
    void *first, *last;
    f32 ms = -1;
    amd_rig_open(&rig, "");
    u32 *out = amd_rig_memory(&rig, BYTES);
    ck_assert_int_eq(hip->event_open(&first, VX_EVENT_TIMED), OK);
    ck_assert_int_eq(hip->event_open(&last, VX_EVENT_TIMED), OK);
    ck_assert_int_eq(hip->event_record(first, rig.stream), OK);
    ck_assert_int_eq(hip->event_elapsed(&ms, first, last), 400); /* last: no record */
    ck_assert_int_eq(start("add", out, out, 1), OK);
    ck_assert_int_eq(hip->event_record(last, rig.stream), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
    ck_assert_int_eq(hip->event_elapsed(&ms, first, last), OK);
    ck_assert(ms > 0);
    (void)hip->event_close(first);
    (void)hip->event_close(last);
    amd_rig_close(&rig);
}
END_TEST

START_TEST(test_capture)
{
    void *recording, *graph;
    amd_rig_open(&rig, "");
    u32 *out = amd_rig_memory(&rig, BYTES), *copy = amd_rig_memory(&rig, BYTES);
    i64 blocks = rig.count("blocks");
    ck_assert_int_eq(hip->capture_begin(rig.stream, VX_CAPTURE_THREAD_LOCAL), OK);
    ck_assert_int_eq(hip->capture_begin(rig.stream, VX_CAPTURE_THREAD_LOCAL), 401);
    ck_assert_int_eq(hip->fill(address(out), 5, THREADS, rig.stream), OK);
    ck_assert_int_eq(start("add", out, out, 3), OK);
    ck_assert_int_eq(start("add", out, out, 10), OK);
    ck_assert_int_eq(hip->copy_within(address(copy), address(out), BYTES, rig.stream),
                     OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), 900);
    ck_assert_int_eq(hip->capture_end(rig.stream, &recording), OK);
    ck_assert_int_eq(hip->graph_open(&graph, recording, 0), OK);
    ck_assert_int_eq(hip->recording_close(recording), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
    ck_all(copy, 0); /* nothing has run */
    for (i32 i = 0; i < 2; i++) {
        memset(copy, 0, BYTES);
        ck_assert_int_eq(hip->graph_launch(graph, rig.stream), OK);
        ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
        ck_all(copy, 18);
    }
    ck_assert_int_eq(hip->graph_close(graph), OK);
    ck_assert_int_eq(hip->graph_close(graph), 400);
    ck_assert_int_le(rig.count("blocks"), blocks + 3); /* the module and two functions */
    amd_rig_close(&rig);
}
END_TEST

/* --- images --- */

START_TEST(test_images)
{
    void *module = NULL;
    u8 text[4096] = "no code object";
    amd_rig_open(&rig, "arch=gfx1100");
    ck_assert_int_eq(hip->module_load(&module, image.bytes), NO_BINARY); /* of gfx942 */
    ck_assert_int_eq(hip->module_load(&module, text), BAD_IMAGE);
    Elf64_Ehdr head = {.e_machine = 224, .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(head.e_ident, ELFMAG "\2\1\1\x40", 8);
    memcpy(text, &head, sizeof head);
    ck_assert_int_eq(hip->module_load(&module, text), NO_BINARY); /* for a real GPU */
    head.e_machine = EM_X86_64;
    memcpy(text, &head, sizeof head);
    ck_assert_int_eq(hip->module_load(&module, text), BAD_IMAGE);
    ck_assert_ptr_null(module);
    ck_assert(rig.set("arch=gfx942"));
    ck_assert_int_eq(hip->module_load(&module, image.bytes), OK);
    void *function = NULL;
    ck_assert_int_eq(hip->function_get(&function, module, "subtract"), NOT_FOUND);
    ck_assert_int_eq(hip->function_get(&function, module, "add"), OK);
    ck_assert_int_eq(hip->module_unload(module), OK);
    ck_assert_int_eq(hip->module_unload(module), 400);
    amd_rig_close(&rig);
}
END_TEST

/* Two modules of one text have variables of their own, and each can go. */
START_TEST(test_modules_apart)
{
    void *modules[3], *functions[3];
    amd_rig_open(&rig, "");
    for (i32 i = 0; i < 3; i++) {
        ck_assert_int_eq(hip->module_load(&modules[i], image.bytes), OK);
        ck_assert_int_eq(hip->function_get(&functions[i], modules[i], "add"), OK);
        if (i == 1) ck_assert_int_eq(hip->module_unload(modules[0]), OK);
    }
    u32 *out = amd_rig_memory(&rig, BYTES);
    struct amd_fault_args args = {out, out, 4, 0};
    for (i32 i = 1; i < 3; i++)
        ck_assert_int_eq(
            hip->start(
                hip,
                &(struct vx_driver_launch){
                    functions[i], {1, 1, 1}, THREADS, 0, false, rig.stream, &args}),
            OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
    ck_all(out, 8);
    ck_assert_int_eq(
        hip->start(
            hip,
            &(struct vx_driver_launch){
                functions[1], {1, 1, 1}, THREADS / 2, 0, false, rig.stream, &args}),
        INVALID_VALUE);
    amd_rig_close(&rig);
}
END_TEST

/* --- memory --- */

START_TEST(test_memory)
{
    u64 all = 0, more = 0;
    size_t free_bytes = 0, total = 0;
    amd_rig_open(&rig, "memory=1000000");
    ck_assert_int_eq(hip->memory_open(&more, 0), INVALID_VALUE);
    ck_assert_int_eq(hip->memory_open(&all, 900000), OK);
    ck_assert_int_eq(hip->memory_open(&more, 200000), OUT_OF_MEMORY);
    ck_assert_int_eq(hip->memory_info(&free_bytes, &total), OK);
    ck_assert_uint_eq(free_bytes, 100000);
    ck_assert_int_eq(rig.count("memory"), 900000);
    ck_assert_int_eq(hip->memory_close(all + 256), INVALID_VALUE);
    ck_assert_int_eq(hip->memory_close(all), OK);
    ck_assert_int_eq(hip->memory_close(all), INVALID_VALUE);
    ck_assert_int_eq(hip->memory_open(&more, 200000), OK);
    ck_assert_int_eq(rig.count("memory"), 200000);
    ck_assert_uint_eq(more % 256, 0);
    amd_rig_close(&rig);
}
END_TEST

static struct vx_driver_ipc handle_of(int fd, u64 bytes)
{
    struct vx_driver_ipc handle = {{0}};
    const u64 numbers[] = {(u64)getpid(), (u64)fd, bytes};
    memcpy(handle.bytes, "voxeld-amd-ipc", 15);
    memcpy(handle.bytes + 16, numbers, sizeof numbers);
    return handle;
}

/* Here the other process is this one. */
START_TEST(test_foreign_memory)
{
    enum { PAGE = 4096 };
    const struct vx_driver_ipc nothing = {{0}};
    u64 at, base;
    size_t bytes;
    int device = -1, fd = memfd_create("foreign", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, PAGE), 0);
    u32 *here = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(here, MAP_FAILED);
    amd_rig_open(&rig, "");
    ck_assert_int_eq(hip->ipc_open(&at, nothing, 1), INVALID_VALUE);
    ck_assert_int_eq(hip->ipc_open(&at, handle_of(9999, PAGE), 1), INVALID_VALUE);
    ck_assert_int_eq(hip->ipc_open(&at, handle_of(fd, 2 * PAGE), 1), INVALID_VALUE);
    ck_assert_int_eq(hip->ipc_open(&at, handle_of(fd, PAGE), 2), INVALID_VALUE);
    ck_assert_int_eq(hip->ipc_open(&at, handle_of(fd, PAGE), 1), OK);
    ck_assert_int_eq(hip->memory_range(&base, &bytes, at + 100), OK);
    ck_assert_uint_eq(base, at);
    ck_assert_uint_eq(bytes, PAGE);
    ck_assert_int_eq(hip->pointer_attribute(&device, VX_POINTER_DEVICE, at), OK);
    ck_assert_int_eq(device, 0);
    u32 *memory = (u32 *)(uintptr_t)at;
    for (u32 i = 0; i < THREADS; i++) here[i] = 5;
    ck_assert_int_eq(start("add", memory, memory, 2), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
    ck_all(here, 7);
    ck_assert_int_eq(hip->memory_close(at), INVALID_VALUE);
    ck_assert_int_eq(hip->ipc_close(at), OK);
    ck_assert_int_eq(hip->ipc_close(at), INVALID_VALUE);
    ck_assert_int_eq(start("add", memory, memory, 2), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), LAUNCH_FAILED);
    amd_rig_close(&rig);
    (void)munmap(here, PAGE);
    (void)close(fd);
}
END_TEST

START_TEST(test_copies)
{
    u32 here[THREADS] = {1};
    amd_rig_open(&rig, "");
    u64 there = address(amd_rig_memory(&rig, BYTES)), us = address(here);
    void *s = rig.stream, *host = (void *)(uintptr_t)there;
    ck_assert_int_eq(hip->copy_in(there, here, BYTES, s), OK);
    ck_assert_int_eq(hip->copy_in(there, here, BYTES + 4, s), INVALID_VALUE);
    ck_assert_int_eq(hip->copy_in(us, here, 4, s), INVALID_VALUE);
    ck_assert_int_eq(hip->copy_out(host, there, 4, s), INVALID_VALUE);
    ck_assert_int_eq(hip->copy_out(here, us, 4, s), INVALID_VALUE);
    ck_assert_int_eq(hip->copy_within(there + BYTES, there, 4, s), INVALID_VALUE);
    ck_assert_int_eq(hip->fill(there + 4, 0, THREADS, s), INVALID_VALUE);
    ck_assert_int_eq(hip->copy_in(there, here, BYTES, NULL), 400);
    ck_assert_int_eq(hip->host_pin(here, BYTES, 0), OK);
    ck_assert_int_eq(hip->host_pin(here + 5, 4, 0), 712);
    ck_assert_int_eq(hip->host_unpin(here), OK);
    ck_assert_int_eq(hip->host_unpin(here), 713);
    amd_rig_close(&rig);
}
END_TEST

START_TEST(test_freed_memory)
{
    amd_rig_open(&rig, "");
    u32 *out = amd_rig_memory(&rig, BYTES), *other = amd_rig_memory(&rig, BYTES);
    amd_rig_free(&rig, out);
    ck_assert_int_eq(start("add", out, out, 1), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), LAUNCH_FAILED);
    ck_assert(strstr(rig.why(), "memory that is not there"));
    /* Sticky: nothing works any more, and nothing runs. */
    ck_assert_int_eq(start("add", other, other, 1), LAUNCH_FAILED);
    ck_all(other, 0);
    amd_rig_close(&rig);
}
END_TEST

/* --- faults on request --- */

START_TEST(test_calls_that_fail)
{
    u64 memory = 0;
    int count = 0;
    amd_rig_open(&rig, "");
    ck_assert(rig.set("fail_call=3 fail_code=2 fail_count=2"));
    for (i32 call = 1; call <= 6; call++)
        ck_assert_int_eq(hip->memory_open(&memory, 16),
                         call == 3 || call == 4 ? OUT_OF_MEMORY : OK);
    ck_assert_int_eq(rig.count("calls"), 6);
    ck_assert(rig.set("fail_call=2 fail_code=999")); /* sticky */
    ck_assert_int_eq(hip->device_count(&count), OK);
    ck_assert_int_eq(hip->device_count(&count), 999);
    ck_assert_int_eq(hip->memory_open(&memory, 16), 999);
    ck_assert(rig.set("")); /* whole again */
    ck_assert_int_eq(hip->memory_open(&memory, 16), OK);
    amd_rig_close(&rig);
}
END_TEST

START_TEST(test_a_launch_loses_its_device)
{
    amd_rig_open(&rig, "devices=2 lose_launch=3 fault_device=0");
    u32 *out = amd_rig_memory(&rig, BYTES);
    for (i32 i = 0; i < 3; i++) {
        ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
        ck_assert_int_eq(start("add", out, out, 1), OK);
    }
    ck_assert_int_eq(hip->stream_wait(rig.stream), ILLEGAL_ADDRESS);
    ck_all(out, 2);
    ck_assert_int_eq(start("add", out, out, 1), ILLEGAL_ADDRESS);
    /* The other device does not notice. */
    struct amd_rig other = rig;
    ck_assert_int_eq(hip->device_use(1), OK);
    ck_assert_int_eq(hip->stream_open(&rig.stream, VX_STREAM_NON_BLOCKING, 0), OK);
    memset(rig.images, 0, sizeof rig.images);
    u32 *mine = amd_rig_memory(&rig, BYTES);
    ck_assert_int_eq(start("add", mine, mine, 9), OK);
    ck_assert_int_eq(hip->stream_wait(rig.stream), OK);
    ck_all(mine, 9);
    amd_rig_close(&rig);
    ck_assert_int_eq(hip->device_use(0), OK);
    amd_rig_close(&other);
}
END_TEST

static void compile_all(void)
{
    image = amd_rig_compile(&(struct amd_text){"tests/amd/standin.cu", "gfx942", NULL});
}

int main(void)
{
    Suite *suite = suite_create("amd_standin");
    TCase *tcase = tcase_create("standin");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, compile_all, NULL);
    tcase_add_test(tcase, test_devices);
    tcase_add_test(tcase, test_settings);
    tcase_add_test(tcase, test_asynchronous);
    tcase_add_test(tcase, test_events_measure);
    tcase_add_test(tcase, test_capture);
    tcase_add_test(tcase, test_images);
    tcase_add_test(tcase, test_modules_apart);
    tcase_add_test(tcase, test_memory);
    tcase_add_test(tcase, test_foreign_memory);
    tcase_add_test(tcase, test_copies);
    tcase_add_test(tcase, test_freed_memory);
    tcase_add_test(tcase, test_calls_that_fail);
    tcase_add_test(tcase, test_a_launch_loses_its_device);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
