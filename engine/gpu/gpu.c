/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/gpu.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "engine/gpu/driver.h"
#include "engine/gpu/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define GPU_MAGIC 0x76784750u /* "vxGP" */

/* The driver's handles are our handles: a module, stream, event or graph is the pointer
 * that the driver gave, so that nothing is allocated for one. */
struct vx_gpu {
    u32 magic;
    u64 number; /* of all that this process opened: names the context a thread has */
    struct vx_driver driver;
    int device;
    void *context;
    struct vx_caps caps;
    char name[VX_NAME_BYTES];
    char arch[32];
    i32 version;
    atomic_bool lost;
    pthread_mutex_t lock; /* of first */
    struct vx_why first;  /* the error that took the device */
};

/* Which gpu's context this thread has current: setting it costs a call. */
static _Thread_local u64 thread_has;
static atomic_ullong opened;

/* Calls a function of the table and turns its answer into a status. */
#define CALL(gpu_, why_, field_, ...)                                                    \
    answer((gpu_), (gpu_)->driver.field_(__VA_ARGS__), VX_CALL_##field_, (why_))

static vx_status lost_answer(struct vx_gpu *gpu, struct vx_why *why)
{
    pthread_mutex_lock(&gpu->lock);
    if (why) *why = gpu->first;
    pthread_mutex_unlock(&gpu->lock);
    VX_FAIL(UNAVAILABLE, "the GPU is lost: the process must be started anew");
}

static vx_status lose(struct vx_gpu *gpu, const struct vx_why *said, struct vx_why *why)
{
    pthread_mutex_lock(&gpu->lock);
    bool first = !atomic_load(&gpu->lost);
    if (first) gpu->first = *said;
    atomic_store(&gpu->lost, true);
    pthread_mutex_unlock(&gpu->lock);
    if (first) VX_LOG(GPU_LOST, VX_LOG_TEXT("why", said->text));
    return lost_answer(gpu, why);
}

static vx_status answer_bad(struct vx_gpu *gpu, int code, enum vx_driver_call call,
                            struct vx_why *why)
{
    struct vx_why said;
    vx_why_set(&said, "%s: %s: %s error %d (%s)",
               gpu->name[0] ? gpu->name : gpu->driver.word,
               vx_driver_call_name(gpu->driver.vendor, call), gpu->driver.word, code,
               vx_driver_error_text(&gpu->driver, code));
    if (vx_driver_sticky(code)) return lose(gpu, &said, why);
    if (why) *why = said;
    switch (code) {
    case VX_DRIVER_OUT_OF_MEMORY: VX_FAIL(RESOURCE_EXHAUSTED, "the GPU is out of memory");
    case VX_DRIVER_STUB_LIBRARY:
    case VX_DRIVER_NO_DEVICE:
    case VX_DRIVER_INVALID_DEVICE: VX_FAIL(NOT_FOUND, "there is no such GPU");
    case VX_DRIVER_TOO_OLD:
        VX_FAIL(FAILED_PRECONDITION, "the GPU driver is too old for this GPU");
    case VX_DRIVER_INVALID_IMAGE:
    case VX_DRIVER_NO_BINARY:
        VX_FAIL(FAILED_PRECONDITION, "the binary is not for this GPU and driver");
    case VX_DRIVER_NOT_READY:
        VX_FAIL(FAILED_PRECONDITION, "the event has not happened yet");
    default: VX_FAIL(INTERNAL, "the GPU driver refused a call");
    }
}

static inline vx_status answer(struct vx_gpu *gpu, int code, enum vx_driver_call call,
                               struct vx_why *why)
{
    return code ? answer_bad(gpu, code, call, why) : VX_OK;
}

/* Every call begins here: the device must be there and its context this thread's. */
static vx_status enter(struct vx_gpu *gpu, struct vx_why *why)
{
    VX_ASSERT(gpu->magic == GPU_MAGIC);
    if (atomic_load_explicit(&gpu->lost, memory_order_relaxed))
        return lost_answer(gpu, why);
    if (thread_has == gpu->number) return VX_OK;
    VX_TRY(answer(gpu, gpu->driver.use(&gpu->driver, gpu->device, gpu->context),
                  VX_CALL_context_use, why));
    thread_has = gpu->number;
    return VX_OK;
}

/* For what cannot fail: makes the context current if it can be; the driver's own answers
 * are not waited for, since a lost device gives nothing back anyway. */
static void enter_to_close(struct vx_gpu *gpu)
{
    struct vx_why unused;
    vx_status status = enter(gpu, &unused);
    (void)status;
}

/* --- the device --- */

static vx_status open_number(struct vx_gpu *gpu, struct vx_why *why, int *count)
{
    VX_TRY(CALL(gpu, why, init, 0));
    VX_TRY(CALL(gpu, why, version, &gpu->version));
    VX_ENSURE_WHY(gpu->version >= gpu->driver.version_min, why, FAILED_PRECONDITION,
                  "the GPU driver is too old",
                  "%s driver: expected at least version %d.%d, got %d.%d",
                  gpu->driver.word, gpu->driver.version_min / 1000,
                  gpu->driver.version_min % 1000 / 10, gpu->version / 1000,
                  gpu->version % 1000 / 10);
    return CALL(gpu, why, device_count, count);
}

i32 vx_gpu_count(const struct vx_gpu_options *options, struct vx_why *why)
{
    struct vx_gpu gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int count = 0;
    if (vx_driver_open(options, why, &gpu.driver).fault) return 0;
    if (open_number(&gpu, why, &count).fault) return 0;
    if (!count) vx_why_set(why, "the %s driver has no device", gpu.driver.word);
    return count;
}

static vx_status open_caps(struct vx_gpu *gpu, struct vx_why *why)
{
    int got[VX_ATTRIBUTES_COUNT] = {0};
    for (int i = 0; i < VX_ATTRIBUTES_COUNT; i++) {
        i32 number = gpu->driver.attributes[i];
        if (number >= 0)
            VX_TRY(CALL(gpu, why, device_attribute, &got[i], number, gpu->device));
    }
    size_t bytes = 0;
    VX_TRY(CALL(gpu, why, device_memory, &bytes, gpu->device));
    gpu->caps = (struct vx_caps){
        .arch = got[VX_ATTRIBUTE_MAJOR] * 10 + got[VX_ATTRIBUTE_MINOR],
        .processors = got[VX_ATTRIBUTE_PROCESSORS],
        .shared_block = got[VX_ATTRIBUTE_SHARED_BLOCK],
        .shared_processor = got[VX_ATTRIBUTE_SHARED_PROCESSOR],
        .clock_mhz = got[VX_ATTRIBUTE_CLOCK_KHZ] / 1000,
        .cache_bytes = got[VX_ATTRIBUTE_CACHE_BYTES],
        .memory_bytes = (i64)bytes,
    };
    return VX_OK;
}

static vx_status open_device(struct vx_gpu *gpu, i32 index, struct vx_why *why)
{
    int count = 0;
    VX_TRY(open_number(gpu, why, &count));
    VX_ENSURE_WHY(index >= 0 && index < count, why, NOT_FOUND, "there is no such GPU",
                  "GPU %d: the %s driver has %d", index, gpu->driver.word, count);
    VX_TRY(CALL(gpu, why, device_get, &gpu->device, index));
    char name[VX_NAME_BYTES] = "";
    VX_TRY(CALL(gpu, why, device_name, name, (int)sizeof name - 1, gpu->device));
    memcpy(gpu->name, name, sizeof gpu->name);
    VX_TRY(open_caps(gpu, why));
    VX_TRY(answer(gpu, gpu->driver.arch(&gpu->driver, gpu->device, gpu->arch),
                  VX_CALL_device_attribute, why));
    VX_TRY(answer(gpu, gpu->driver.open(&gpu->driver, gpu->device, &gpu->context),
                  VX_CALL_context_open, why));
    vx_status status = enter(gpu, why);
    if (status.fault) gpu->driver.close(&gpu->driver, gpu->device);
    return status;
}

vx_status vx_gpu_open(const struct vx_gpu_options *options, struct vx_why *why,
                      struct vx_gpu **gpu)
{
    *gpu = NULL;
    struct vx_gpu *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a GPU");
    made->magic = GPU_MAGIC;
    made->number = atomic_fetch_add(&opened, 1) + 1;
    pthread_mutex_init(&made->lock, NULL);
    vx_status status = vx_driver_open(options, why, &made->driver);
    if (!status.fault) status = open_device(made, options->index, why);
    if (status.fault) {
        pthread_mutex_destroy(&made->lock);
        vx_free(made);
        return status;
    }
    *gpu = made;
    return VX_OK;
}

/* Giving the context back ends all that is left in it. */
void vx_gpu_close(struct vx_gpu **gpu)
{
    struct vx_gpu *it = *gpu;
    *gpu = NULL;
    if (!it) return;
    enter_to_close(it);
    it->driver.close(&it->driver, it->device);
    thread_has = 0;
    it->magic = 0;
    pthread_mutex_destroy(&it->lock);
    vx_free(it);
}

const struct vx_caps *vx_gpu_caps(const struct vx_gpu *gpu)
{
    VX_ASSERT(gpu->magic == GPU_MAGIC);
    return &gpu->caps;
}

const char *vx_gpu_name(const struct vx_gpu *gpu)
{
    return gpu->name;
}

const char *vx_gpu_arch(const struct vx_gpu *gpu)
{
    return gpu->arch;
}

i32 vx_gpu_driver_version(const struct vx_gpu *gpu)
{
    return gpu->version;
}

bool vx_gpu_lost(const struct vx_gpu *gpu, struct vx_why *why)
{
    VX_ASSERT(gpu->magic == GPU_MAGIC);
    if (!atomic_load(&gpu->lost)) return false;
    /* Written once, before lost was set. */
    if (why) *why = gpu->first;
    return true;
}

/* --- memory --- */

static u64 address(const void *device)
{
    return (u64)(uintptr_t)device;
}

vx_status vx_gpu_alloc(struct vx_gpu *gpu, size_t bytes, struct vx_why *why,
                       void **memory)
{
    u64 at = 0;
    *memory = NULL;
    VX_TRY(enter(gpu, why));
    /* No driver has a piece of nothing. */
    vx_status status = CALL(gpu, why, memory_open, &at, bytes ? bytes : 1);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED)
        vx_why_set(why, "%s: out of memory: %zu bytes wanted", gpu->name, bytes);
    if (!status.fault) *memory = (void *)(uintptr_t)at;
    return status;
}

void vx_gpu_free(struct vx_gpu *gpu, void **memory)
{
    void *it = *memory;
    *memory = NULL;
    if (!it) return;
    enter_to_close(gpu);
    gpu->driver.memory_close(address(it));
}

vx_status vx_gpu_memory_info(struct vx_gpu *gpu, struct vx_why *why, size_t *free_bytes,
                             size_t *total_bytes)
{
    VX_TRY(enter(gpu, why));
    return CALL(gpu, why, memory_info, free_bytes, total_bytes);
}

vx_status vx_gpu_host_pin(struct vx_gpu *gpu, void *memory, size_t bytes,
                          struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    return CALL(gpu, why, host_pin, memory, bytes, 0);
}

void vx_gpu_host_unpin(struct vx_gpu *gpu, void *memory)
{
    if (!memory) return;
    enter_to_close(gpu);
    gpu->driver.host_unpin(memory);
}

vx_status vx_gpu_copy_in(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                         const struct vx_gpu_copy *copy, struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    if (!copy->bytes) return VX_OK;
    return CALL(gpu, why, copy_in, address(copy->to), copy->from, copy->bytes, stream);
}

vx_status vx_gpu_copy_out(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                          const struct vx_gpu_copy *copy, struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    if (!copy->bytes) return VX_OK;
    return CALL(gpu, why, copy_out, copy->to, address(copy->from), copy->bytes, stream);
}

vx_status vx_gpu_fill(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                      const struct vx_gpu_words *words, struct vx_why *why)
{
    VX_ASSERT(words->bytes % sizeof words->value == 0);
    VX_TRY(enter(gpu, why));
    if (!words->bytes) return VX_OK;
    return CALL(gpu, why, fill, address(words->at), words->value,
                words->bytes / sizeof words->value, stream);
}

/* --- streams and events --- */

vx_status vx_gpu_stream_open(struct vx_gpu *gpu, struct vx_why *why,
                             struct vx_gpu_stream **stream)
{
    void *made = NULL;
    *stream = NULL;
    VX_TRY(enter(gpu, why));
    VX_TRY(CALL(gpu, why, stream_open, &made, VX_STREAM_NON_BLOCKING, 0));
    *stream = made;
    return VX_OK;
}

void vx_gpu_stream_close(struct vx_gpu *gpu, struct vx_gpu_stream **stream)
{
    struct vx_gpu_stream *it = *stream;
    *stream = NULL;
    if (!it) return;
    enter_to_close(gpu);
    gpu->driver.stream_close(it);
}

vx_status vx_gpu_stream_wait(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                             struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    return CALL(gpu, why, stream_wait, stream);
}

vx_status vx_gpu_event_open(struct vx_gpu *gpu, struct vx_why *why,
                            struct vx_gpu_event **event)
{
    void *made = NULL;
    *event = NULL;
    VX_TRY(enter(gpu, why));
    VX_TRY(CALL(gpu, why, event_open, &made, VX_EVENT_TIMED));
    *event = made;
    return VX_OK;
}

void vx_gpu_event_close(struct vx_gpu *gpu, struct vx_gpu_event **event)
{
    struct vx_gpu_event *it = *event;
    *event = NULL;
    if (!it) return;
    enter_to_close(gpu);
    gpu->driver.event_close(it);
}

vx_status vx_gpu_event_record(struct vx_gpu *gpu, struct vx_gpu_event *event,
                              struct vx_gpu_stream *stream, struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    return CALL(gpu, why, event_record, event, stream);
}

vx_status vx_gpu_event_elapsed(struct vx_gpu *gpu, struct vx_gpu_event *begin,
                               struct vx_gpu_event *end, struct vx_why *why, f64 *ns)
{
    f32 ms = 0;
    VX_TRY(enter(gpu, why));
    VX_TRY(CALL(gpu, why, event_elapsed, &ms, begin, end));
    *ns = (f64)ms * 1e6;
    return VX_OK;
}

/* --- graphs --- */

vx_status vx_gpu_capture_begin(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                               struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    /* What other threads do meanwhile (loading a model) is no part of it. */
    return CALL(gpu, why, capture_begin, stream, VX_CAPTURE_THREAD_LOCAL);
}

vx_status vx_gpu_capture_end(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                             struct vx_why *why, struct vx_gpu_graph **graph)
{
    void *recording = NULL, *made = NULL;
    *graph = NULL;
    VX_TRY(enter(gpu, why));
    VX_TRY(CALL(gpu, why, capture_end, stream, &recording));
    vx_status status = CALL(gpu, why, graph_open, &made, recording, 0);
    gpu->driver.recording_close(recording);
    if (!status.fault) *graph = made;
    return status;
}

vx_status vx_gpu_graph_launch(struct vx_gpu *gpu, struct vx_gpu_graph *graph,
                              struct vx_gpu_stream *stream, struct vx_why *why)
{
    VX_TRY(enter(gpu, why));
    return CALL(gpu, why, graph_launch, graph, stream);
}

void vx_gpu_graph_close(struct vx_gpu *gpu, struct vx_gpu_graph **graph)
{
    struct vx_gpu_graph *it = *graph;
    *graph = NULL;
    if (!it) return;
    enter_to_close(gpu);
    gpu->driver.graph_close(it);
}

/* --- kernels --- */

vx_status vx_gpu_module_load(struct vx_gpu *gpu, const void *image, size_t bytes,
                             struct vx_why *why, struct vx_gpu_module **module)
{
    void *made = NULL;
    *module = NULL;
    VX_ASSERT(bytes > 0); /* the driver reads the length from the image itself */
    VX_TRY(enter(gpu, why));
    VX_TRY(CALL(gpu, why, module_load, &made, image));
    *module = made;
    return VX_OK;
}

void vx_gpu_module_unload(struct vx_gpu *gpu, struct vx_gpu_module **module)
{
    struct vx_gpu_module *it = *module;
    *module = NULL;
    if (!it) return;
    enter_to_close(gpu);
    gpu->driver.module_unload(it);
}

vx_status vx_gpu_function_get(struct vx_gpu *gpu, struct vx_gpu_module *module,
                              const struct vx_gpu_symbol *symbol, struct vx_why *why,
                              struct vx_gpu_function **function)
{
    void *made = NULL;
    *function = NULL;
    VX_TRY(enter(gpu, why));
    vx_status status = CALL(gpu, why, function_get, &made, module, symbol->name);
    if (status.fault && !vx_gpu_lost(gpu, NULL))
        vx_why_set(why, "%s: a binary without the kernel %s", gpu->name, symbol->name);
    VX_TRY(status);
    /* Asked for always: what the kernel has statically counts too, and only the driver
     * knows it. */
    if (symbol->shared > 0) {
        status = answer(gpu, gpu->driver.shared_allow(&gpu->driver, made, symbol->shared),
                        VX_CALL_function_set, why);
        if (status.fault && !vx_gpu_lost(gpu, NULL))
            vx_why_set(why, "%s: %s wants %d bytes of shared memory, a block has %d",
                       gpu->name, symbol->name, symbol->shared, gpu->caps.shared_block);
        VX_TRY(status);
    }
    *function = made;
    return VX_OK;
}

vx_status vx_gpu_launch(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                        const struct vx_gpu_launch *launch, struct vx_why *why)
{
    VX_ASSERT(launch->function);
    VX_ASSERT(launch->args);
    VX_TRY(enter(gpu, why));
    if (!launch->grid.x || !launch->grid.y || !launch->grid.z) return VX_OK;
    const struct vx_driver_launch start = {
        .function = launch->function,
        .grid = launch->grid,
        .threads = (unsigned)launch->threads,
        .shared = (unsigned)launch->shared,
        .stream = stream,
        .args = (void *)(uintptr_t)launch->args, /* the driver only reads */
    };
    return answer(gpu, gpu->driver.start(&gpu->driver, &start), VX_CALL_launch, why);
}
