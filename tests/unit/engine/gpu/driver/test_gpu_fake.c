/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/jit/kernel_set.h"
#include "tests/support/jit_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL ((size_t)1 << 20)
#define N     1000

static struct jit_rig rig;
static struct vx_jit *jit;
static struct vx_gpu *gpu;
static struct vx_gpu_stream *stream;
static struct vx_why why;

static void check(vx_status status)
{
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
}

static void set(const struct vx_fake_settings *settings)
{
    struct vx_fake_settings it = *settings;
    it.memory_bytes = TOTAL;
    it.find = jit_rig_find;
    vx_fake_set(&it);
}

static void open_gpu(void)
{
    check(vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu));
    check(vx_gpu_stream_open(gpu, &why, &stream));
}

static void setup(void)
{
    jit_rig_open(&rig);
    set(&(struct vx_fake_settings){0});
    jit = jit_rig_jit(&rig, "fake");
    open_gpu();
}

static void teardown(void)
{
    vx_gpu_stream_close(gpu, &stream);
    vx_gpu_close(&gpu);
    ck_assert_uint_eq(vx_fake_memory_used(), 0);
    vx_jit_close(&jit);
    jit_rig_close(&rig);
}

static void ck_fails(vx_status status, enum vx_code code, const char *part)
{
    ck_assert_int_eq(vx_status_code(status), code);
    if (!strstr(why.text, part)) ck_abort_msg("\"%s\" lacks \"%s\"", why.text, part);
}

/* --- opening --- */

START_TEST(test_open)
{
    struct vx_gpu_options options = {.vendor = VX_GPU_FAKE};
    struct vx_gpu *none;
    ck_assert_str_eq(vx_gpu_arch(gpu), "fake");
    ck_assert_str_eq(vx_gpu_name(gpu), "fake GPU");
    ck_assert_int_eq(vx_gpu_count(&options, &why), 1);
    struct vx_caps caps = *vx_arch_caps("fake");
    caps.memory_bytes = TOTAL;
    ck_assert_mem_eq(vx_gpu_caps(gpu), &caps, sizeof caps);
    options.index = 1;
    ck_fails(vx_gpu_open(&options, &why, &none), VX_CODE_NOT_FOUND, "GPU 1");
    ck_assert_ptr_null(none);
    options.index = -1;
    ck_fails(vx_gpu_open(&options, &why, &none), VX_CODE_NOT_FOUND, "GPU -1");
}
END_TEST

START_TEST(test_no_driver)
{
    static const enum vx_gpu_vendor vendors[] = {VX_GPU_CUDA, VX_GPU_HIP};
    static const char *const first[] = {"cuInit", "hipInit"};
    struct vx_gpu *none;
    for (size_t i = 0; i < VX_COUNT(vendors); i++) {
        struct vx_gpu_options options = {.vendor = vendors[i],
                                         .library = "/nowhere/lib.so"};
        ck_fails(vx_gpu_open(&options, &why, &none), VX_CODE_NOT_FOUND,
                 "/nowhere/lib.so");
        ck_assert_int_eq(vx_gpu_count(&options, &why), 0);
        ck_assert_ptr_nonnull(strstr(why.text, "/nowhere/lib.so"));
        options.library = "libm.so.6"; /* a library, but no driver */
        ck_fails(vx_gpu_open(&options, &why, &none), VX_CODE_FAILED_PRECONDITION,
                 first[i]);
    }
}
END_TEST

/* --- memory --- */

START_TEST(test_memory)
{
    void *a, *b, *c;
    size_t free_bytes, total;
    u32 words[100], back[100];
    check(vx_gpu_alloc(gpu, TOTAL / 2, &why, &a));
    check(vx_gpu_alloc(gpu, TOTAL / 2 - 400, &why, &b));
    ck_fails(vx_gpu_alloc(gpu, 401, &why, &c), VX_CODE_RESOURCE_EXHAUSTED,
             "401 bytes requested");
    ck_assert_ptr_null(c);
    ck_assert(!vx_gpu_lost(gpu, NULL));
    check(vx_gpu_alloc(gpu, 400, &why, &c));
    check(vx_gpu_memory_info(gpu, &why, &free_bytes, &total));
    ck_assert_uint_eq(free_bytes, 0);
    ck_assert_uint_eq(total, TOTAL);
    for (u32 i = 0; i < 100; i++) words[i] = i * i;
    check(vx_gpu_host_pin(gpu, words, sizeof words, &why));
    check(
        vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){c, words, sizeof words}, &why));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){(u32 *)c + 10, 0xabcdef01u, 40},
                      &why));
    check(
        vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){back, c, sizeof back}, &why));
    vx_gpu_host_unpin(gpu, words);
    for (u32 i = 0; i < 100; i++)
        ck_assert_uint_eq(back[i], i >= 10 && i < 20 ? 0xabcdef01u : i * i);
    /* A size of 0 is allowed; an address beyond the end is not. */
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){c, words, 0}, &why));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){c, 0, 0}, &why));
    ck_fails(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){(char *)c + 4, words, 400},
                            &why),
             VX_CODE_INTERNAL, "cuMemcpyHtoDAsync");
    ck_fails(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){back, words, 4}, &why),
             VX_CODE_INTERNAL, "cuMemcpyDtoHAsync");
    ck_fails(
        vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){(char *)c + 400, 0, 4}, &why),
        VX_CODE_INTERNAL, "cuMemsetD32Async");
    vx_gpu_free(gpu, &a);
    ck_assert_ptr_null(a);
    vx_gpu_free(gpu, &a);
    ck_assert_uint_eq(vx_fake_memory_used(), TOTAL / 2);
    /* The close frees b and c. */
}
END_TEST

/* --- kernels --- */

static struct vx_jit_wanted wanted(i32 tile, enum vx_number type)
{
    return (struct vx_jit_wanted){&scale_spec, &scale_spec.tiles[tile], type};
}

START_TEST(test_launch)
{
    struct vx_kernel_set *kernels;
    const struct vx_jit_wanted list[] = {wanted(0, VX_NUMBER_F32),
                                         wanted(7, VX_NUMBER_F32),
                                         wanted(7, VX_NUMBER_F16),
                                         {&count_spec, NULL, 0}};
    f32 x[N];
    u32 count;
    void *memory;
    check(vx_kernel_set_open(gpu, jit, &why, &kernels));
    ck_assert_ptr_eq(vx_kernel_set_gpu(kernels), gpu);
    check(vx_kernel_set_ready(kernels, list, 4, NULL, &why));
    check(vx_kernel_set_ready(kernels, list, 4, NULL, &why));
    check(vx_gpu_alloc(gpu, sizeof x, &why, &memory));
    for (i32 i = 0; i < N; i++) x[i] = (f32)i;
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, x, sizeof x}, &why));
    struct scale_args args = {N, 3.0f, memory};
    check(vx_kernel_launch(kernels, stream, &list[0], &args, &why));
    args.factor = 0.5f;
    check(vx_kernel_launch(kernels, stream, &list[1], &args, &why));
    ck_assert_int_eq(vx_fake_launches(), 2);
    args.n = 0; /* no block: nothing is launched */
    check(vx_kernel_launch(kernels, stream, &list[1], &args, &why));
    ck_assert_int_eq(vx_fake_launches(), 2);
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){x, memory, sizeof x}, &why));
    for (i32 i = 0; i < N; i++) ck_assert_float_eq(x[i], (f32)i * 1.5f);
    args = (struct scale_args){2, 77.0f, memory};
    check(vx_kernel_launch(kernels, stream, &list[2], &args, &why));
    u16 halves[2];
    check(vx_gpu_copy_out(gpu, stream,
                          &(struct vx_gpu_copy){halves, memory, sizeof halves}, &why));
    ck_assert_int_eq(halves[0], 77);
    ck_assert_int_eq(halves[1], 77);
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 5, 4}, &why));
    struct count_args counted = {memory};
    check(vx_kernel_launch(kernels, stream, &list[3], &counted, &why));
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&count, memory, 4}, &why));
    ck_assert_uint_eq(count, 6);
    check(vx_gpu_stream_wait(gpu, stream, &why));
    vx_kernel_set_close(&kernels);
    ck_assert_ptr_null(kernels);
}
END_TEST

START_TEST(test_functions)
{
    struct vx_gpu_module *module;
    struct vx_gpu_function *function;
    struct vx_jit_image image;
    const struct vx_jit_wanted count = {&count_spec, NULL, 0};
    u32 *memory;
    ck_fails(vx_gpu_module_load(gpu, "no image", 9, &why, &module),
             VX_CODE_FAILED_PRECONDITION, "cuModuleLoadData");
    check(vx_jit_get(jit, &count, &why, &image));
    check(vx_gpu_module_load(gpu, image.data, image.bytes, &why, &module));
    ck_fails(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"none", 0}, &why,
                                 &function),
             VX_CODE_INTERNAL, "does not contain the kernel none");
    ck_fails(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"scale", 0}, &why,
                                 &function),
             VX_CODE_INTERNAL, "does not contain the kernel scale"); /* of another text */
    ck_fails(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"count", 1 << 20},
                                 &why, &function),
             VX_CODE_INTERNAL, "shared memory");
    check(vx_gpu_alloc(gpu, 4, &why, (void **)&memory));
    *memory = 0;
    struct count_args args = {memory};
    struct vx_gpu_launch launch = {NULL, {1, 1, 1}, 32, 60000, &args, sizeof args, false};
    check(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"count", 0}, &why,
                              &launch.function));
    ck_fails(vx_gpu_launch(gpu, stream, &launch, &why), VX_CODE_INTERNAL,
             "cuLaunchKernel"); /* more shared memory than was asked for */
    check(vx_gpu_function_get(gpu, module, &(struct vx_gpu_symbol){"count", 60000}, &why,
                              &launch.function));
    check(vx_gpu_launch(gpu, stream, &launch, &why));
    launch.threads = 1025;
    ck_fails(vx_gpu_launch(gpu, stream, &launch, &why), VX_CODE_INTERNAL, "error 1");
    launch.threads = 32;
    launch.grid.y = 65536;
    ck_fails(vx_gpu_launch(gpu, stream, &launch, &why), VX_CODE_INTERNAL, "error 1");
    ck_assert_uint_eq(*memory, 1);
    vx_gpu_module_unload(gpu, &module);
    vx_gpu_module_unload(gpu, &module);
}
END_TEST

/* --- events and graphs --- */

START_TEST(test_events)
{
    struct vx_gpu_event *begin, *end;
    f64 ns;
    check(vx_gpu_event_open(gpu, &why, &begin));
    check(vx_gpu_event_open(gpu, &why, &end));
    check(vx_gpu_event_record(gpu, begin, stream, &why));
    ck_fails(vx_gpu_event_elapsed(gpu, begin, end, &why, &ns), VX_CODE_INTERNAL,
             "cuEventElapsedTime");
    check(vx_gpu_event_record(gpu, end, stream, &why));
    check(vx_gpu_event_elapsed(gpu, begin, end, &why, &ns));
    ck_assert_double_ge(ns, 0);
    ck_assert_double_lt(ns, 3600e9); /* nanoseconds, no other unit */
    vx_gpu_event_close(gpu, &begin);
    ck_assert_ptr_null(begin);
    vx_gpu_event_close(gpu, &begin);
}
END_TEST

START_TEST(test_graph)
{
    struct vx_kernel_set *kernels;
    struct vx_gpu_graph *graph;
    const struct vx_jit_wanted f32s = wanted(4, VX_NUMBER_F32);
    f32 in = 2, out = 0;
    void *memory;
    check(vx_kernel_set_open(gpu, jit, &why, &kernels));
    check(vx_kernel_set_ready(kernels, &f32s, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 64, &why, &memory));
    check(vx_gpu_fill(gpu, stream, &(struct vx_gpu_words){memory, 0, 64}, &why));
    vx_alloc_freeze(); /* a driver's memory is its own */
    check(vx_gpu_capture_begin(gpu, stream, &why));
    struct scale_args args = {1, 5.0f, memory};
    check(
        vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, &in, sizeof in}, &why));
    check(vx_kernel_launch(kernels, stream, &f32s, &args, &why));
    args.factor = 7.0f; /* the first was copied */
    check(vx_kernel_launch(kernels, stream, &f32s, &args, &why));
    args.factor = 0;
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&out, memory, sizeof out},
                          &why));
    ck_fails(vx_gpu_stream_wait(gpu, stream, &why), VX_CODE_INTERNAL, "error 900");
    check(vx_gpu_capture_end(gpu, stream, &why, &graph));
    ck_assert_float_eq(out, 0); /* nothing has run */
    check(vx_gpu_graph_launch(gpu, graph, stream, &why));
    ck_assert_float_eq(out, 70);
    in = 1;
    check(vx_gpu_graph_launch(gpu, graph, stream, &why));
    ck_assert_float_eq(out, 35);
    vx_gpu_graph_close(gpu, &graph);
    ck_fails(vx_gpu_capture_end(gpu, stream, &why, &graph), VX_CODE_INTERNAL,
             "cuStreamEndCapture");
    /* A recording that is never ended goes with its stream. */
    check(vx_gpu_capture_begin(gpu, stream, &why));
    vx_alloc_thaw();
    vx_kernel_set_close(&kernels);
}
END_TEST

/* --- what goes wrong --- */

/* A few calls of each kind; every failure is a status of `code`, and nothing leaks. */
static vx_status everything(void)
{
    struct vx_gpu *it = NULL;
    struct vx_gpu_stream *queue = NULL;
    struct vx_kernel_set *kernels = NULL;
    struct vx_gpu_graph *graph = NULL;
    struct vx_gpu_event *event = NULL;
    void *memory = NULL, *host = NULL;
    bool done = false;
    const struct vx_jit_wanted list[] = {wanted(1, VX_NUMBER_F32),
                                         {&count_spec, NULL, 0}};
    f32 out = 0;
    vx_status status;
    VX_TRY(vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &it));
    VX_TRY_OR(status, out, vx_gpu_stream_open(it, &why, &queue));
    VX_TRY_OR(status, out, vx_gpu_alloc(it, 64, &why, &memory));
    VX_TRY_OR(status, out, vx_gpu_host_alloc(it, 64, &why, &host));
    VX_TRY_OR(status, out, vx_gpu_event_open(it, &why, &event));
    VX_TRY_OR(status, out, vx_kernel_set_open(it, jit, &why, &kernels));
    VX_TRY_OR(status, out, vx_kernel_set_ready(kernels, list, 2, NULL, &why));
    VX_TRY_OR(status, out,
              vx_gpu_fill(it, queue, &(struct vx_gpu_words){memory, 0, 64}, &why));
    VX_TRY_OR(status, out, vx_gpu_capture_begin(it, queue, &why));
    struct scale_args args = {1, 5.0f, memory};
    VX_TRY_OR(status, out, vx_kernel_launch(kernels, queue, list, &args, &why));
    VX_TRY_OR(status, out, vx_gpu_capture_end(it, queue, &why, &graph));
    VX_TRY_OR(status, out, vx_gpu_graph_launch(it, graph, queue, &why));
    VX_TRY_OR(status, out,
              vx_gpu_copy_out(it, queue, &(struct vx_gpu_copy){&out, memory, 4}, &why));
    VX_TRY_OR(status, out, vx_gpu_event_record(it, event, queue, &why));
    VX_TRY_OR(status, out, vx_gpu_stream_after(it, queue, event, &why));
    VX_TRY_OR(status, out, vx_gpu_event_done(it, event, &why, &done));
    VX_TRY_OR(status, out, vx_gpu_stream_wait(it, queue, &why));
out:
    vx_gpu_event_close(it, &event);
    vx_gpu_host_free(it, &host);
    vx_gpu_graph_close(it, &graph);
    vx_kernel_set_close(&kernels);
    vx_gpu_free(it, &memory);
    vx_gpu_stream_close(it, &queue);
    vx_gpu_close(&it);
    return status;
}

START_TEST(test_every_call_fails)
{
    static const struct {
        int number;
        enum vx_code code;
    } kinds[] = {{2, VX_CODE_RESOURCE_EXHAUSTED},
                 {700, VX_CODE_UNAVAILABLE},
                 {1, VX_CODE_INTERNAL}};
    vx_gpu_stream_close(gpu, &stream);
    vx_gpu_close(&gpu);
    set(&(struct vx_fake_settings){0});
    check(everything());
    i64 calls = vx_fake_calls();
    ck_assert_int_gt(calls, 30);
    i64 failed = 0;
    for (i64 i = 1; i <= calls; i++) {
        set(&(struct vx_fake_settings){.fail_call = i, .fail_code = kinds[_i].number});
        why.text[0] = 0;
        vx_status status = everything();
        if (!status.fault) continue; /* a closing call: it reports no error */
        ck_assert_int_eq(vx_status_code(status), kinds[_i].code);
        ck_assert_uint_gt(strlen(why.text), 0);
        failed++;
    }
    ck_assert_int_gt(failed, 25);
    set(&(struct vx_fake_settings){0});
    check(everything());
    open_gpu();
}
END_TEST

START_TEST(test_lost)
{
    struct vx_kernel_set *kernels;
    const struct vx_jit_wanted f32s = wanted(4, VX_NUMBER_F32);
    static const char said[] =
        "fake GPU: cuStreamSynchronize: fake error 700 (an illegal "
        "memory access was encountered)";
    u64 logged = vx_log_count(VX_EVENT_GPU_LOST);
    void *memory, *more;
    f32 x = 0;
    check(vx_kernel_set_open(gpu, jit, &why, &kernels));
    check(vx_kernel_set_ready(kernels, &f32s, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 64, &why, &memory));
    struct scale_args args = {1, 5.0f, memory};
    set(&(struct vx_fake_settings){.lose_launch = 2});
    check(vx_kernel_launch(kernels, stream, &f32s, &args, &why));
    check(vx_gpu_stream_wait(gpu, stream, &why));
    check(vx_kernel_launch(kernels, stream, &f32s, &args, &why));
    ck_assert(!vx_gpu_lost(gpu, &why));
    ck_fails(vx_gpu_stream_wait(gpu, stream, &why), VX_CODE_UNAVAILABLE, said);
    why.text[0] = 0;
    ck_assert(vx_gpu_lost(gpu, &why));
    ck_assert_str_eq(why.text, said);
    /* From now on every call reports the same error. */
    ck_fails(vx_kernel_launch(kernels, stream, &f32s, &args, &why), VX_CODE_UNAVAILABLE,
             said);
    ck_fails(vx_gpu_alloc(gpu, 4, &why, &more), VX_CODE_UNAVAILABLE, said);
    ck_fails(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&x, memory, 4}, &why),
             VX_CODE_UNAVAILABLE, said);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_GPU_LOST), logged + 1);
    vx_kernel_set_close(&kernels);
}
END_TEST

START_TEST(test_sticky)
{
    static const int sticky[] = {214, 700, 702, 710, 714, 716, 719, 999};
    static const int passing[] = {0, 1, 2, 100, 200, 209, 400, 500, 600, 701, 712, 900};
    for (size_t i = 0; i < VX_COUNT(sticky); i++) ck_assert(vx_driver_sticky(sticky[i]));
    for (size_t i = 0; i < VX_COUNT(passing); i++)
        ck_assert(!vx_driver_sticky(passing[i]));
}
END_TEST

/* --- two threads: one makes kernels ready, the other launches --- */

struct loading {
    struct vx_kernel_set *kernels;
    vx_status status;
    struct vx_why why;
};

static void *load(void *context)
{
    struct loading *loading = context;
    for (i32 i = 1; i < scale_spec.tiles_count && !loading->status.fault; i++) {
        const struct vx_jit_wanted next = wanted(i, VX_NUMBER_F32);
        loading->status =
            vx_kernel_set_ready(loading->kernels, &next, 1, NULL, &loading->why);
    }
    return NULL;
}

START_TEST(test_loading_beside)
{
    struct loading loading = {0};
    const struct vx_jit_wanted first = wanted(0, VX_NUMBER_F32);
    pthread_t thread;
    void *memory;
    f32 x = 1;
    check(vx_kernel_set_open(gpu, jit, &why, &loading.kernels));
    check(vx_kernel_set_ready(loading.kernels, &first, 1, NULL, &why));
    check(vx_gpu_alloc(gpu, 4, &why, &memory));
    check(vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){memory, &x, 4}, &why));
    ck_assert_int_eq(pthread_create(&thread, NULL, load, &loading), 0);
    struct scale_args args = {1, -1.0f, memory};
    for (i32 i = 0; i < 2001; i++)
        check(vx_kernel_launch(loading.kernels, stream, &first, &args, &why));
    pthread_join(thread, NULL);
    ck_assert_ptr_null(loading.status.fault);
    check(vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){&x, memory, 4}, &why));
    ck_assert_float_eq(x, -1);
    for (i32 i = 0; i < scale_spec.tiles_count; i++) {
        const struct vx_jit_wanted each = wanted(i, VX_NUMBER_F32);
        check(vx_kernel_launch(loading.kernels, stream, &each, &args, &why));
    }
    vx_kernel_set_close(&loading.kernels);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_fake");
    TCase *tests = tcase_create("gpu_fake");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_open);
    tcase_add_test(tests, test_no_driver);
    tcase_add_test(tests, test_memory);
    tcase_add_test(tests, test_launch);
    tcase_add_test(tests, test_functions);
    tcase_add_test(tests, test_events);
    tcase_add_test(tests, test_graph);
    tcase_add_loop_test(tests, test_every_call_fails, 0, 3);
    tcase_add_test(tests, test_lost);
    tcase_add_test(tests, test_sticky);
    tcase_add_test(tests, test_loading_beside);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
