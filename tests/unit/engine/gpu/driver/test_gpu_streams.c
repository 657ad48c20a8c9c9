/* Where the fake behaves as a device does: streams that wait for one another, events that have not
 * happened yet, page-locked memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/fake/fake.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct vx_gpu *gpu;
static struct vx_gpu_stream *stream;
static struct vx_why why;

static void check(vx_status status)
{
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
}

static void open_gpu(void)
{
    check(vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu));
    check(vx_gpu_stream_open(gpu, &why, &stream));
}

static void setup(void)
{
    vx_fake_set(&(struct vx_fake_settings){0});
    open_gpu();
}

static void teardown(void)
{
    vx_gpu_stream_close(gpu, &stream);
    vx_gpu_close(&gpu);
    ck_assert_uint_eq(vx_fake_memory_used(), 0);
}

static void ck_fails(vx_status status, enum vx_code code, const char *part)
{
    ck_assert_int_eq(vx_status_code(status), code);
    if (!strstr(why.text, part)) ck_abort_msg("\"%s\" lacks \"%s\"", why.text, part);
}

/* --- streams that wait --- */

/* Two streams on one piece of memory: what the second may do, and when. */
START_TEST(test_waiting)
{
    struct vx_gpu_stream *other;
    struct vx_gpu_event *filled, *copied;
    u32 in = 7, out = 0;
    bool done = true;
    void *memory;
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 3});
    check(vx_gpu_stream_open(gpu, &why, &other));
    check(vx_gpu_event_open(gpu, &why, &filled));
    check(vx_gpu_event_open(gpu, &why, &copied));
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    check(vx_gpu_event_done(gpu, filled, &why, &done));
    ck_assert(done); /* never recorded */
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, &in, 4}, &why));
    check(vx_gpu_event_record(gpu, filled, stream, &why));
    check(vx_gpu_stream_after(gpu, other, filled, &why));
    check(vx_gpu_copy_out(gpu, other, &(struct vx_gpu_copy){&out, memory, 4}, &why));
    check(vx_gpu_event_record(gpu, copied, other, &why));
    in = 8; /* a buffer must stay as it is until its copy is done: this one did not */
    for (int i = 0; i < 3; i++) {
        check(vx_gpu_event_done(gpu, copied, &why, &done));
        ck_assert(!done);
        ck_assert_uint_eq(out, 0);
    }
    check(vx_gpu_event_done(gpu, copied, &why, &done));
    ck_assert(done);
    ck_assert_uint_eq(out, 8);
    check(vx_gpu_event_done(gpu, filled, &why, &done));
    ck_assert(done); /* not yet done */
    /* An event that is recorded again has not happened until its stream is waited for. */
    f64 ns;
    in = 9;
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, &in, 4}, &why));
    check(vx_gpu_event_record(gpu, filled, stream, &why));
    ck_fails(vx_gpu_event_elapsed(gpu, filled, copied, &why, &ns),
             VX_CODE_FAILED_PRECONDITION, "error 600");
    check(vx_gpu_event_done(gpu, filled, &why, &done));
    ck_assert(!done);
    check(vx_gpu_stream_wait(gpu, stream, &why));
    check(vx_gpu_event_done(gpu, filled, &why, &done));
    ck_assert(done);
    check(vx_gpu_event_elapsed(gpu, copied, filled, &why, &ns));
    ck_assert_double_ge(ns, 0);
    /* Without a wait between them, streams run in any order. */
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 10, 4}, &why));
    check(vx_gpu_copy_out(gpu, other, &(struct vx_gpu_copy){&out, memory, 4}, &why));
    check(vx_gpu_stream_wait(gpu, other, &why));
    ck_assert_uint_eq(out, 9);
    /* Queued work is run before its memory, its event or its stream is closed. */
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&out, memory, 4}, &why));
    vx_gpu_free(gpu, &memory);
    ck_assert_uint_eq(out, 10);
    vx_gpu_event_close(gpu, &filled);
    vx_gpu_event_close(gpu, &copied);
    vx_gpu_stream_close(gpu, &other);
}
END_TEST

/* More than a queue holds: order is kept, nothing is lost. */
START_TEST(test_waiting_full)
{
    u32 last = 0;
    void *memory;
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 1});
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    for (u32 i = 1; i <= 10000; i++)
        check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, i, 4}, &why));
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&last, memory, 4}, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    ck_assert_uint_eq(last, 10000);
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 1, 4}, &why));
    vx_fake_set(
        &(struct vx_fake_settings){0}); /* from now on at once, after queued calls */
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&last, memory, 4}, &why));
    ck_assert_uint_eq(last, 1);
}
END_TEST

START_TEST(test_waiting_refuses)
{
    struct vx_gpu_event *event;
    struct vx_gpu_graph *graph;
    bool done = true;
    check(vx_gpu_event_open(gpu, &why, &event));
    check(vx_gpu_event_record(gpu, event, stream, &why));
    check(vx_gpu_event_done(gpu, event, &why, &done));
    ck_assert(done); /* at once, as the settings are */
    check(vx_gpu_stream_after(gpu, stream, event, &why));
    ck_fails(vx_gpu_stream_after(gpu, stream, (struct vx_gpu_event *)stream, &why),
             VX_CODE_INTERNAL, "cuStreamWaitEvent");
    ck_fails(vx_gpu_event_done(gpu, (struct vx_gpu_event *)stream, &why, &done),
             VX_CODE_INTERNAL, "cuEventQuery");
    ck_assert(!done);
    check(vx_gpu_capture_begin(gpu, stream, &why));
    ck_fails(vx_gpu_stream_after(gpu, stream, event, &why), VX_CODE_INTERNAL, "905");
    check(vx_gpu_capture_end(gpu, stream, &why, &graph));
    vx_gpu_graph_close(gpu, &graph);
    /* A device that is lost is not "not ready". */
    vx_fake_set(
        &(struct vx_fake_settings){.event_polls = 2, .fail_call = 2, .fail_code = 700});
    check(vx_gpu_event_record(gpu, event, stream, &why));
    ck_fails(vx_gpu_event_done(gpu, event, &why, &done), VX_CODE_UNAVAILABLE,
             "cuEventQuery");
    ck_assert(!done);
    ck_assert(vx_gpu_lost(gpu, &why));
}
END_TEST

/* --- page-locked memory, and where the device is --- */

START_TEST(test_host_memory)
{
    u32 *memory, *left, *none, *device;
    check(vx_gpu_host_alloc(gpu, 4000, &why, (void **)&memory));
    check(vx_gpu_host_alloc(gpu, 0, &why, (void **)&left)); /* close ends it */
    ck_assert_ptr_nonnull(left);
    check(vx_gpu_alloc(gpu, 4000, &why, (void **)&device));
    for (u32 i = 0; i < 1000; i++) memory[i] = i;
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){device, memory, 4000}, &why));
    memset(memory, 0, 4000);
    check(
        vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){memory, device, 4000}, &why));
    for (u32 i = 0; i < 1000; i++) ck_assert_uint_eq(memory[i], i);
    ck_assert_uint_eq(vx_fake_memory_used(), 4000); /* memory of the device alone */
    vx_gpu_host_free(gpu, (void **)&memory);
    ck_assert_ptr_null(memory);
    vx_gpu_host_free(gpu, (void **)&memory);
    vx_fake_set(&(struct vx_fake_settings){.fail_call = 1, .fail_code = 2});
    ck_fails(vx_gpu_host_alloc(gpu, 4001, &why, (void **)&none),
             VX_CODE_RESOURCE_EXHAUSTED, "4001 bytes requested");
    ck_assert_ptr_null(none);
    ck_assert_int_eq(vx_gpu_numa_node(gpu), -1);
}
END_TEST

/* The bus is a hint: a driver that does not name it serves as well. */
START_TEST(test_no_bus)
{
    vx_gpu_stream_close(gpu, &stream);
    vx_gpu_close(&gpu);
    i64 opens = 0;
    for (i64 i = 1; i < 16; i++) {
        vx_fake_set(&(struct vx_fake_settings){.fail_call = i, .fail_code = 1});
        vx_status status =
            vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu);
        if (status.fault || vx_fake_calls() < i) continue;
        opens++;
        ck_assert_int_eq(vx_gpu_numa_node(gpu), -1);
        vx_gpu_close(&gpu);
    }
    ck_assert_int_eq(opens, 1); /* that one call may fail, the others may not */
    vx_fake_set(&(struct vx_fake_settings){0});
    open_gpu();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_streams");
    TCase *tests = tcase_create("gpu_streams");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_waiting);
    tcase_add_test(tests, test_waiting_full);
    tcase_add_test(tests, test_waiting_refuses);
    tcase_add_test(tests, test_host_memory);
    tcase_add_test(tests, test_no_bus);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
