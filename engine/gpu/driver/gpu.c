/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/gpu.h"

#include "engine/base/numa.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/gpu/driver/gpu_parts.h"

#include <stdio.h>
#include <string.h>

#define GPU_MAGIC 0x76784750u /* "vxGP" */

/* The number of the GPU whose context this thread has, to set it only when it differs. */
static _Thread_local u64 thread_has;
static atomic_ullong opened;

static vx_status lost_answer(struct vx_gpu *gpu, struct vx_why *why)
{
    pthread_mutex_lock(&gpu->lock);
    if (why) *why = gpu->first;
    pthread_mutex_unlock(&gpu->lock);
    VX_FAIL(UNAVAILABLE, "the GPU is lost: restart the process");
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

vx_status vx_gpu_lose(struct vx_gpu *gpu, struct vx_why *why)
{
    VX_ASSERT(gpu->magic == GPU_MAGIC);
    const struct vx_why said = *why;
    return lose(gpu, &said, why);
}

/* Then "unknown" does not mean that the device is lost: the memory belongs to another
 * process, which may have cut it or taken it away. */
static bool is_about_memory(int code, enum vx_driver_call call)
{
    return code == VX_DRIVER_UNKNOWN &&
           (call == VX_CALL_host_pin || call == VX_CALL_ipc_open);
}

vx_status vx_gpu_answer_bad(struct vx_gpu *gpu, int code, enum vx_driver_call call,
                            struct vx_why *why)
{
    struct vx_why said;
    char cause[VX_WHY_BYTES] = "";
    bool none = code == VX_DRIVER_NO_DEVICE || code == VX_DRIVER_INVALID_DEVICE ||
                call == VX_CALL_init;
    if (none && gpu->driver.absent) gpu->driver.absent(&gpu->driver, cause, sizeof cause);
    vx_why_set(&said, "%s: %s: %s error %d (%s)%s",
               gpu->name[0] ? gpu->name : gpu->driver.word,
               vx_driver_call_name(gpu->driver.vendor, call), gpu->driver.word, code,
               vx_driver_error_text(&gpu->driver, code), cause);
    if (vx_driver_sticky(code) && !is_about_memory(code, call))
        return lose(gpu, &said, why);
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
        VX_FAIL(FAILED_PRECONDITION,
                "the kernel binary does not fit this GPU and driver");
    case VX_DRIVER_NOT_READY:
        VX_FAIL(FAILED_PRECONDITION, "the event has not happened yet");
    default: VX_FAIL(INTERNAL, "the GPU driver refused a call");
    }
}

vx_status vx_gpu_enter(struct vx_gpu *gpu, struct vx_why *why)
{
    VX_ASSERT(gpu->magic == GPU_MAGIC);
    if (atomic_load_explicit(&gpu->lost, memory_order_relaxed))
        return lost_answer(gpu, why);
    if (thread_has == gpu->number) return VX_OK;
    VX_TRY(vx_gpu_answer(gpu, gpu->driver.use(&gpu->driver, gpu->device, gpu->context),
                         VX_CALL_context_use, why));
    thread_has = gpu->number;
    return VX_OK;
}

void vx_gpu_enter_to_close(struct vx_gpu *gpu)
{
    struct vx_why unused;
    vx_status status = vx_gpu_enter(gpu, &unused);
    (void)status;
}

/* --- the device --- */

static vx_status open_number(struct vx_gpu *gpu, struct vx_why *why, int *count)
{
    VX_TRY(VX_GPU_CALL(gpu, why, init, 0));
    VX_TRY(VX_GPU_CALL(gpu, why, version, &gpu->version));
    char least[VX_VERSION_BYTES], got[VX_VERSION_BYTES];
    vx_driver_version_text(gpu->driver.vendor, gpu->driver.version_min, least);
    vx_driver_version_text(gpu->driver.vendor, gpu->version, got);
    VX_ENSURE_WHY(gpu->version >= gpu->driver.version_min, why, FAILED_PRECONDITION,
                  "the GPU driver is too old",
                  "%s driver: expected at least version %s, got %s", gpu->driver.word,
                  least, got);
    return VX_GPU_CALL(gpu, why, device_count, count);
}

i32 vx_gpu_count(const struct vx_gpu_options *options, struct vx_why *why)
{
    struct vx_gpu gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int count = 0;
    if (vx_driver_open(options, why, &gpu.driver).fault) return 0;
    if (open_number(&gpu, why, &count).fault) return 0;
    char cause[VX_WHY_BYTES] = "";
    if (!count && gpu.driver.absent) gpu.driver.absent(&gpu.driver, cause, sizeof cause);
    if (!count) vx_why_set(why, "the %s driver has no device%s", gpu.driver.word, cause);
    return count;
}

/* HIP does not have every attribute on every device and in every release. */
static vx_status open_attributes(struct vx_gpu *gpu, struct vx_why *why,
                                 int got[VX_ATTRIBUTES_COUNT])
{
    for (int i = 0; i < VX_ATTRIBUTES_COUNT; i++) {
        i32 number = gpu->driver.attributes[i];
        got[i] = 0;
        if (number < 0) continue;
        int code = gpu->driver.device_attribute(&got[i], number, gpu->device);
        if (code && !vx_driver_sticky(code) && gpu->driver.vendor == VX_GPU_HIP &&
            i >= VX_ATTRIBUTE_CLOCK_KHZ)
            got[i] = 0;
        else
            VX_TRY(vx_gpu_answer(gpu, code, VX_CALL_device_attribute, why));
    }
    return VX_OK;
}

static vx_status open_caps(struct vx_gpu *gpu, struct vx_why *why)
{
    int got[VX_ATTRIBUTES_COUNT];
    size_t bytes = 0;
    VX_TRY(open_attributes(gpu, why, got));
    VX_TRY(VX_GPU_CALL(gpu, why, device_memory, &bytes, gpu->device));
    VX_TRY(gpu->driver.identify(&gpu->driver, gpu->device, got, why, &gpu->arch));
    gpu->caps = (struct vx_caps){
        .arch = gpu->arch.number,
        .processors = got[VX_ATTRIBUTE_PROCESSORS],
        .shared_block = got[VX_ATTRIBUTE_SHARED_BLOCK],
        .shared_processor = got[VX_ATTRIBUTE_SHARED_PROCESSOR],
        .clock_mhz = got[VX_ATTRIBUTE_CLOCK_KHZ] / 1000,
        .cache_bytes = got[VX_ATTRIBUTE_CACHE_BYTES],
        .memory_bytes = (i64)bytes,
    };
    return VX_OK;
}

/* Only a hint: -1 if the driver does not name the device's bus. */
static i32 open_numa_node(struct vx_gpu *gpu)
{
    char bus[32] = "";
    int code = gpu->driver.device_pci(bus, (int)sizeof bus - 1, gpu->device);
    return code ? -1 : vx_numa_of_pci(bus);
}

static vx_status open_device(struct vx_gpu *gpu, i32 index, struct vx_why *why)
{
    int count = 0;
    VX_TRY(open_number(gpu, why, &count));
    VX_ENSURE_WHY(index >= 0 && index < count, why, NOT_FOUND, "there is no such GPU",
                  "GPU %d does not exist: the %s driver has %d device%s", index,
                  gpu->driver.word, count, count == 1 ? "" : "s");
    VX_TRY(VX_GPU_CALL(gpu, why, device_get, &gpu->device, index));
    char name[VX_NAME_BYTES] = "";
    VX_TRY(VX_GPU_CALL(gpu, why, device_name, name, (int)sizeof name - 1, gpu->device));
    memcpy(gpu->name, name, sizeof gpu->name);
    VX_TRY(open_caps(gpu, why));
    /* HIP knows the names of cards from a file that may not be there. */
    if (!gpu->name[0])
        (void)snprintf(gpu->name, sizeof gpu->name, "%s %s", gpu->driver.word,
                       gpu->arch.name);
    gpu->numa_node = open_numa_node(gpu);
    VX_TRY(vx_gpu_answer(gpu, gpu->driver.open(&gpu->driver, gpu->device, &gpu->context),
                         VX_CALL_context_open, why));
    vx_status status = vx_gpu_enter(gpu, why);
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

/* Releasing the context frees all that is left in it. */
void vx_gpu_close(struct vx_gpu **gpu)
{
    struct vx_gpu *it = *gpu;
    *gpu = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(it);
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

i32 vx_gpu_numa_node(const struct vx_gpu *gpu)
{
    return gpu->numa_node;
}

const char *vx_gpu_arch(const struct vx_gpu *gpu)
{
    return gpu->arch.name;
}

i32 vx_gpu_driver_version(const struct vx_gpu *gpu)
{
    return gpu->version;
}

void vx_gpu_driver_version_text(const struct vx_gpu *gpu, char text[VX_VERSION_BYTES])
{
    vx_driver_version_text(gpu->driver.vendor, gpu->version, text);
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
    VX_TRY(vx_gpu_enter(gpu, why));
    /* Drivers refuse to allocate 0 bytes. */
    vx_status status = VX_GPU_CALL(gpu, why, memory_open, &at, bytes ? bytes : 1);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED)
        vx_why_set(why, "%s: out of device memory: %zu bytes requested", gpu->name,
                   bytes);
    if (!status.fault) *memory = (void *)(uintptr_t)at;
    return status;
}

void vx_gpu_free(struct vx_gpu *gpu, void **memory)
{
    void *it = *memory;
    *memory = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.memory_close(address(it));
}

vx_status vx_gpu_memory_info(struct vx_gpu *gpu, struct vx_why *why, size_t *free_bytes,
                             size_t *total_bytes)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, memory_info, free_bytes, total_bytes);
}

vx_status vx_gpu_host_pin(struct vx_gpu *gpu, void *memory, size_t bytes,
                          struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, host_pin, memory, bytes, 0);
}

struct vx_gpu_reach vx_gpu_host_reach(struct vx_gpu *gpu, void *memory, size_t bytes)
{
    struct vx_why unused;
    u64 at = 0;
    if (!gpu->driver.host_at || vx_gpu_enter(gpu, &unused).fault ||
        gpu->driver.host_at(&at, memory, 0) || at != address(memory))
        return (struct vx_gpu_reach){NULL, 0};
    return (struct vx_gpu_reach){memory, bytes};
}

vx_status vx_gpu_host_alloc(struct vx_gpu *gpu, size_t bytes, struct vx_why *why,
                            void **memory)
{
    void *made = NULL;
    *memory = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    vx_status status = VX_GPU_CALL(gpu, why, host_open, &made, bytes ? bytes : 1, 0);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED)
        vx_why_set(why, "%s: out of page-locked memory: %zu bytes requested", gpu->name,
                   bytes);
    if (!status.fault) *memory = made;
    return status;
}

void vx_gpu_host_free(struct vx_gpu *gpu, void **memory)
{
    void *it = *memory;
    *memory = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.host_close(it);
}

void vx_gpu_host_unpin(struct vx_gpu *gpu, void *memory)
{
    if (!memory) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.host_unpin(memory);
}

vx_status vx_gpu_copy_in(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                         const struct vx_gpu_copy *copy, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    if (!copy->bytes) return VX_OK;
    return VX_GPU_CALL(gpu, why, copy_in, address(copy->to), copy->from, copy->bytes,
                       stream);
}

vx_status vx_gpu_copy_out(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                          const struct vx_gpu_copy *copy, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    if (!copy->bytes) return VX_OK;
    return VX_GPU_CALL(gpu, why, copy_out, copy->to, address(copy->from), copy->bytes,
                       stream);
}

vx_status vx_gpu_copy_within(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                             const struct vx_gpu_copy *copy, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    if (!copy->bytes) return VX_OK;
    return VX_GPU_CALL(gpu, why, copy_within, address(copy->to), address(copy->from),
                       copy->bytes, stream);
}

/* --- memory of another process --- */

static vx_status import_check(struct vx_gpu *gpu, u64 at, size_t bytes,
                              struct vx_why *why)
{
    u64 base = 0;
    size_t whole = 0;
    int device = -1;
    VX_TRY(VX_GPU_CALL(gpu, why, memory_range, &base, &whole, at));
    VX_TRY(VX_GPU_CALL(gpu, why, pointer_attribute, &device, VX_POINTER_DEVICE, at));
    VX_ENSURE_WHY(device == gpu->device, why, INVALID_ARGUMENT,
                  "the handle names memory of another device",
                  "the handle names memory of another device");
    VX_ENSURE_WHY(base <= at && at - base <= whole && bytes <= whole - (at - base), why,
                  INVALID_ARGUMENT, "the device memory is too small",
                  "the device memory has %zu bytes: expected at least %zu",
                  base <= at && at - base <= whole ? whole - (size_t)(at - base) : 0,
                  bytes);
    return VX_OK;
}

/* Any error other than a lost device or exhausted memory is the handle's fault. */
static vx_status import_open(struct vx_gpu *gpu, const u8 handle[VX_GPU_IPC_BYTES],
                             struct vx_why *why, u64 *at)
{
    struct vx_driver_ipc ipc;
    memcpy(ipc.bytes, handle, sizeof ipc.bytes);
    unsigned flags =
        gpu->driver.ipc_flags ? gpu->driver.ipc_flags(gpu->version) : VX_IPC_LAZY_PEER;
    vx_status status = VX_GPU_CALL(gpu, why, ipc_open, at, ipc, flags);
    enum vx_code code = vx_status_code(status);
    if (code == VX_CODE_OK || code == VX_CODE_UNAVAILABLE ||
        code == VX_CODE_RESOURCE_EXHAUSTED)
        return status;
    const struct vx_why said = *why;
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "the handle names no memory of this device",
                "the handle names no memory of this device: %s", said.text);
}

vx_status vx_gpu_import(struct vx_gpu *gpu, const u8 handle[VX_GPU_IPC_BYTES],
                        size_t bytes, struct vx_why *why, void **memory)
{
    u64 at = 0;
    *memory = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(import_open(gpu, handle, why, &at));
    vx_status status = import_check(gpu, at, bytes, why);
    if (status.fault)
        gpu->driver.ipc_close(at);
    else
        *memory = (void *)(uintptr_t)at;
    return status;
}

void vx_gpu_release(struct vx_gpu *gpu, void **memory)
{
    void *it = *memory;
    *memory = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.ipc_close(address(it));
}

vx_status vx_gpu_fill(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                      const struct vx_gpu_words *words, struct vx_why *why)
{
    VX_ASSERT(words->bytes % sizeof words->value == 0);
    VX_TRY(vx_gpu_enter(gpu, why));
    if (!words->bytes) return VX_OK;
    return VX_GPU_CALL(gpu, why, fill, address(words->at), words->value,
                       words->bytes / sizeof words->value, stream);
}
