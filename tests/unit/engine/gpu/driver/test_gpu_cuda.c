/* The CUDA table on a real device; without one it says so and passes.
 *
 * Check forks for every test, and CUDA does not outlive a fork: each test opens the device
 * for itself, and main asks for it in a child.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/jit/kernel_set.h"
#include "tests/support/jit_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N (1 << 20)

static const struct vx_gpu_options options = {.vendor = VX_GPU_CUDA};
static struct jit_rig rig;
static struct vx_jit *jit;
static struct vx_gpu *gpu;
static struct vx_gpu_stream *stream;
static struct vx_kernel_set *kernels;
static struct vx_why why;

static void check(vx_status status)
{
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
}

static void setup(void)
{
    jit_rig_open(&rig);
    check(vx_gpu_open(&options, &why, &gpu));
    jit = jit_rig_jit(&rig, vx_gpu_arch(gpu));
    check(vx_gpu_stream_open(gpu, &why, &stream));
    check(vx_kernel_set_open(gpu, jit, &why, &kernels));
}

static void teardown(void)
{
    vx_kernel_set_close(&kernels);
    vx_gpu_stream_close(gpu, &stream);
    vx_gpu_close(&gpu);
    vx_jit_close(&jit);
    jit_rig_close(&rig);
}

static struct vx_jit_wanted wanted(i32 tile)
{
    return (struct vx_jit_wanted){&scale_spec, &scale_spec.tiles[tile], VX_NUMBER_F32};
}

START_TEST(test_open)
{
    const struct vx_caps *caps = vx_gpu_caps(gpu);
    const struct vx_caps *table = vx_arch_caps(vx_gpu_arch(gpu));
    size_t free_bytes, total;
    check(vx_gpu_memory_info(gpu, &why, &free_bytes, &total));
    printf("%s, %s, driver %d: %d processors, %d B shared, %d B per processor, %d MHz, "
           "%lld B cache, %lld B memory, %zu B free\n",
           vx_gpu_name(gpu), vx_gpu_arch(gpu), vx_gpu_driver_version(gpu),
           caps->processors, caps->shared_block, caps->shared_processor, caps->clock_mhz,
           (long long)caps->cache_bytes, (long long)caps->memory_bytes, free_bytes);
    ck_assert_int_ge(caps->processors, 1);
    ck_assert_uint_le(free_bytes, total);
    if (!table) return;
    ck_assert_int_eq(caps->arch, table->arch);
    ck_assert_int_eq(caps->shared_block, table->shared_block);
    ck_assert_int_eq(caps->shared_processor, table->shared_processor);
}
END_TEST

START_TEST(test_launch)
{
    static f32 x[N];
    void *memory;
    struct vx_gpu_event *begin, *end;
    f64 ns = 0;
    const struct vx_jit_wanted list[] = {wanted(0), wanted(36)};
    check(vx_kernel_set_ready(kernels, list, 2, NULL, &why));
    check(vx_gpu_event_open(gpu, &why, &begin));
    check(vx_gpu_event_open(gpu, &why, &end));
    check(vx_gpu_alloc(gpu, sizeof x, &why, &memory));
    check(vx_gpu_host_pin(gpu, x, sizeof x, &why));
    for (i32 i = 0; i < N; i++) x[i] = (f32)i;
    struct scale_args args = {N, 3.0f, memory};
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, x, sizeof x}, &why));
    check(vx_gpu_event_record(gpu, begin, stream, &why));
    check(vx_kernel_launch(kernels, stream, &list[0], &args, &why)); /* adds 0 */
    args.factor = 1.0f;
    check(vx_kernel_launch(kernels, stream, &list[1], &args, &why)); /* adds 1 */
    args.n = 0;
    check(vx_kernel_launch(kernels, stream, &list[1], &args, &why));
    check(vx_gpu_event_record(gpu, end, stream, &why));
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){x, memory, sizeof x}, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    for (i32 i = 0; i < N; i++)
        if (x[i] != (f32)i * 3.0f + 1.0f) ck_abort_msg("element %d is %f", i, x[i]);
    check(vx_gpu_event_elapsed(gpu, begin, end, &why, &ns));
    printf("two launches of %d elements: %.1f us\n", N, ns / 1e3);
    ck_assert_double_gt(ns, 500);
    ck_assert_double_lt(ns, 1e9);
    vx_gpu_host_unpin(gpu, x);
    vx_gpu_event_close(gpu, &begin);
    vx_gpu_event_close(gpu, &end);
}
END_TEST

/* 64 KiB of shared memory, which needs an explicit request. */
START_TEST(test_shared)
{
    const struct vx_jit_wanted count = {&count_spec, NULL, 0};
    void *memory;
    u32 said = 0;
    check(vx_kernel_set_ready(kernels, &count, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 41, 4}, &why));
    struct count_args args = {memory};
    check(vx_kernel_launch(kernels, stream, &count, &args, &why));
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&said, memory, 4}, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    ck_assert_uint_eq(said, 42);
}
END_TEST

START_TEST(test_graph)
{
    const struct vx_jit_wanted one = wanted(0);
    struct vx_gpu_graph *graph;
    void *memory;
    f32 in = 2, out = 0;
    check(vx_kernel_set_ready(kernels, &one, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 0, 4}, &why));
    struct scale_args args = {1, 5.0f, memory};
    check(vx_gpu_capture_begin(gpu, stream, &why));
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, &in, 4}, &why));
    check(vx_kernel_launch(kernels, stream, &one, &args, &why));
    args.factor = 7.0f;
    check(vx_kernel_launch(kernels, stream, &one, &args, &why));
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&out, memory, 4}, &why));
    check(vx_gpu_capture_end(gpu, stream, &why, &graph));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    ck_assert_float_eq(out, 0);
    for (i32 i = 1; i < 4; i++) {
        in = (f32)i;
        check(vx_gpu_graph_launch(gpu, graph, stream, &why));
        check(vx_gpu_stream_wait(gpu, stream, &why));
        ck_assert_float_eq(out, (f32)i * 35);
    }
    vx_gpu_graph_close(gpu, &graph);
}
END_TEST

/* A fill of more bytes than 32 bits can count, and an allocation larger than the device. */
START_TEST(test_memory)
{
    const size_t large = ((size_t)5 << 30) + 4;
    void *memory, *none;
    u32 last[2] = {0};
    size_t free_bytes, total;
    check(vx_gpu_memory_info(gpu, &why, &free_bytes, &total));
    vx_status status = vx_gpu_alloc(gpu, total + large, &why, &none);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert(!vx_gpu_lost(gpu, NULL));
    if (free_bytes < large * 2) return; /* a small device */
    check(vx_gpu_alloc(gpu, large, &why, &memory));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 0x12345678, large},
                      &why));
    check(vx_gpu_copy_out(
        gpu, stream, &(struct vx_gpu_copy){last, (char *)memory + large - 8, 8}, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    ck_assert_uint_eq(last[0], 0x12345678);
    ck_assert_uint_eq(last[1], 0x12345678);
    vx_gpu_free(gpu, &memory);
}
END_TEST

/* One stream works for milliseconds, another waits for it on the device, and the host polls. */
START_TEST(test_two_streams)
{
    const size_t bytes = (size_t)256 << 20;
    struct vx_gpu_stream *other;
    struct vx_gpu_event *filled, *copied;
    void *memory;
    u32 *words;
    bool done = false;
    i64 asked = 0, waits = 0;
    check(vx_gpu_stream_open(gpu, &why, &other));
    check(vx_gpu_event_open(gpu, &why, &filled));
    check(vx_gpu_event_open(gpu, &why, &copied));
    check(vx_gpu_event_done(gpu, filled, &why, &done));
    ck_assert(done); /* never recorded */
    check(vx_gpu_alloc(gpu, bytes, &why, &memory));
    check(vx_gpu_host_alloc(gpu, 8, &why, (void **)&words));
    const struct vx_gpu_copy copy = {words, (char *)memory + bytes - 8, 8};
    for (u32 round = 1; round <= 10; round++) {
        words[0] = words[1] = 0;
        for (u32 i = 0; i <= 40; i++)
            check(vx_gpu_fill(gpu, stream,
                              &(struct vx_gpu_words){memory, round * 100 + i, bytes},
                              &why));
        check(vx_gpu_event_record(gpu, filled, stream, &why));
        check(vx_gpu_stream_after(gpu, other, filled, &why));
        check(vx_gpu_copy_out(gpu, other, &copy, &why));
        check(vx_gpu_event_record(gpu, copied, other, &why));
        for (done = false; !done; asked++) {
            check(vx_gpu_event_done(gpu, copied, &why, &done));
            waits += !done;
        }
        ck_assert_uint_eq(words[0], round * 100 + 40);
        ck_assert_uint_eq(words[1], round * 100 + 40);
        check(vx_gpu_event_done(gpu, filled, &why, &done));
        ck_assert(done);
    }
    printf("asked %lld times, %lld in vain; node %d\n", (long long)asked,
           (long long)waits, vx_gpu_numa_node(gpu));
    ck_assert_int_gt(waits, 10);
    ck_assert_int_ge(vx_gpu_numa_node(gpu), -1);
    ck_assert(!vx_gpu_lost(gpu, NULL)); /* "not ready" is no error */
    vx_gpu_host_free(gpu, (void **)&words);
    ck_assert_ptr_null(words);
    vx_gpu_free(gpu, &memory);
    vx_gpu_event_close(gpu, &filled);
    vx_gpu_event_close(gpu, &copied);
    vx_gpu_stream_close(gpu, &other);
}
END_TEST

START_TEST(test_bad_image)
{
    struct vx_gpu_module *module;
    struct vx_jit_image image;
    struct vx_gpu_function *function;
    const struct vx_jit_wanted one = wanted(0);
    static const char text[64] = "no image at all";
    ck_assert(vx_gpu_module_load(gpu, text, sizeof text, &why, &module).fault);
    ck_assert(!vx_gpu_lost(gpu, NULL));
    check(vx_jit_get(jit, &one, &why, &image));
    check(vx_gpu_module_load(gpu, image.data, image.bytes, &why, &module));
    ck_assert(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"none", 0}, &why,
                                  &function)
                  .fault);
    ck_assert_ptr_nonnull(strstr(why.text, "none"));
    ck_assert(!vx_gpu_lost(gpu, NULL));
    vx_gpu_module_unload(gpu, &module);
}
END_TEST

static void *load(void *context)
{
    vx_status *status = context;
    for (i32 i = 0; i < 10 && !status->fault; i++) {
        const struct vx_jit_wanted next = wanted(i);
        *status = vx_kernel_set_ready(kernels, &next, 1, NULL, NULL);
    }
    return NULL;
}

/* Another thread compiles and loads while this one launches and captures. */
START_TEST(test_loading_beside)
{
    const struct vx_jit_wanted last = wanted(39); /* adds 4 */
    vx_status status = VX_OK;
    struct vx_gpu_graph *graph;
    pthread_t thread;
    void *memory;
    f32 x = 0;
    check(vx_kernel_set_ready(kernels, &last, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 0, 4}, &why));
    ck_assert_int_eq(pthread_create(&thread, NULL, load, &status), 0);
    struct scale_args args = {1, 1.0f, memory};
    for (i32 i = 0; i < 1000; i++) {
        check(vx_gpu_capture_begin(gpu, stream, &why));
        check(vx_kernel_launch(kernels, stream, &last, &args, &why));
        check(vx_gpu_capture_end(gpu, stream, &why, &graph));
        check(vx_gpu_graph_launch(gpu, graph, stream, &why));
        check(vx_gpu_stream_wait(gpu, stream, &why));
        vx_gpu_graph_close(gpu, &graph);
    }
    pthread_join(thread, NULL);
    ck_assert_ptr_null(status.fault);
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&x, memory, 4}, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    ck_assert_float_eq(x, 4000);
}
END_TEST

START_TEST(test_lost)
{
    const struct vx_jit_wanted one = wanted(0);
    struct vx_why first;
    void *memory;
    check(vx_kernel_set_ready(kernels, &one, 1, NULL, &why));
    struct scale_args args = {1, 5.0f, (void *)0x40};
    check(vx_kernel_launch(kernels, stream, &one, &args, &why));
    ck_assert_int_eq(vx_status_code(vx_gpu_stream_wait(gpu, stream, &first)),
                     VX_CODE_UNAVAILABLE);
    printf("%s\n", first.text);
    ck_assert_ptr_nonnull(strstr(first.text, "CUDA error 7"));
    ck_assert(vx_gpu_lost(gpu, &why));
    ck_assert_int_eq(vx_status_code(vx_gpu_alloc(gpu, 4, &why, &memory)),
                     VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(why.text, first.text);
}
END_TEST

static bool device_is_here(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        struct vx_why said = {""};
        if (vx_gpu_count(&options, &said) > 0) _exit(0);
        dprintf(STDERR_FILENO, "SKIPPED gpu_cuda: %s\n", said.text);
        _exit(1);
    }
    int code = 1;
    return child > 0 && waitpid(child, &code, 0) == child && code == 0;
}

int main(void)
{
    if (!device_is_here()) return EXIT_SUCCESS;
    Suite *suite = suite_create("gpu_cuda");
    TCase *tests = tcase_create("gpu_cuda");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_open);
    tcase_add_test(tests, test_launch);
    tcase_add_test(tests, test_shared);
    tcase_add_test(tests, test_graph);
    tcase_add_test(tests, test_memory);
    tcase_add_test(tests, test_two_streams);
    tcase_add_test(tests, test_bad_image);
    tcase_add_test(tests, test_loading_beside);
    tcase_add_test(tests, test_lost);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
