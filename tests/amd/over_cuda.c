/* amd/over_cuda - libhip_over_cuda.so: HIP's names over NVIDIA's driver and NVRTC.
 *
 * With it the HIP half of the engine drives an NVIDIA GPU: its driver table, its child that
 * compiles, its tiles, streams, graphs and faults are real, and so are the kernels, in
 * their CUDA branch.  The device says that it is a gfx1100, whose waves have 32 lanes as
 * NVIDIA's have; a tile for its matrix instruction is compiled as the same tile of mma.sync.
 *
 *   oracle --device hip:0 --driver libhip_over_cuda.so --compiler libhip_over_cuda.so
 *
 * VX_OVER_CUDA_SM in the environment names NVIDIA's architecture, "sm_90a" without it.
 *
 * Owner    the vendors' libraries stay loaded.
 * Thread   any; a thread has a device of its own (hipSetDevice).
 * Limits   OPTIONS_MAX options of a compilation, DEVICES_MAX devices.
 * Fails    numbers of CUDA's driver, which are HIP's too; 100 when it cannot be loaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/amd/hip.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX   16
#define OPTIONS_MAX   64
#define VERSION       60300000 /* 6.3 */
#define SHARED_BYTES  65536    /* of a compute unit */
#define NAME_AT       1160     /* gcnArchName in hipDeviceProp_t of release 6 */
#define NAME          "gfx1100"
#define MAJOR         11
#define MINOR         0
#define CU_SHARED_MAX 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */

/* --- the libraries --- */

/* CUDA's column of driver.def. */
static struct {
#define VX_ROW(field_, cuda_, hip_, arguments_)     int(*field_) arguments_;
#define VX_ROW_ONE(field_, cuda_, hip_, arguments_) int(*field_) arguments_;
#include "engine/gpu/driver/driver.def"
#undef VX_ROW
#undef VX_ROW_ONE
} cuda;

static struct {
    int (*version)(int *major, int *minor);
    int (*open)(void **program, const char *text, const char *name, int count,
                const char *const *texts, const char *const *names);
    int (*run)(void *program, int count, const char *const *options);
    int (*log_bytes)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
    int (*code_bytes)(void *program, size_t *bytes);
    int (*code)(void *program, char *image);
} nvrtc;

static int cuda_code, nvrtc_code; /* what their functions answer; 0 = they are loaded */
static void *contexts[DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct row {
    const char *name;
    void *to; /* a pointer to a function */
};

/* 0, or 100: there is no such library, or it lacks a function. */
static int load(const char *const *libraries, const struct row *rows, size_t count)
{
    void *library = NULL;
    for (size_t i = 0; libraries[i] && !library; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < count; i++) {
        void *found = library && rows[i].name ? dlsym(library, rows[i].name) : NULL;
        if (rows[i].name && !found) return VX_DRIVER_NO_DEVICE;
        memcpy(rows[i].to, &found, sizeof found);
    }
    return 0;
}

/* As the engine does for CUDA: kernels are on the device before the first launch. */
static void load_cuda(void)
{
    static const char *const libraries[] = {"libcuda.so.1", NULL};
    const struct row rows[] = {
#define VX_ROW(field_, cuda_, hip_, arguments_)     {cuda_, &cuda.field_},
#define VX_ROW_ONE(field_, cuda_, hip_, arguments_) {cuda_, &cuda.field_},
#include "engine/gpu/driver/driver.def"
#undef VX_ROW
#undef VX_ROW_ONE
    };
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    cuda_code = load(libraries, rows, VX_COUNT(rows));
}

static void load_nvrtc(void)
{
    static const char *const libraries[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                            "/usr/local/cuda/lib64/libnvrtc.so", NULL};
    const struct row rows[] = {
        {"nvrtcVersion", &nvrtc.version},    {"nvrtcCreateProgram", &nvrtc.open},
        {"nvrtcCompileProgram", &nvrtc.run}, {"nvrtcGetProgramLogSize", &nvrtc.log_bytes},
        {"nvrtcGetProgramLog", &nvrtc.log},  {"nvrtcGetCUBINSize", &nvrtc.code_bytes},
        {"nvrtcGetCUBIN", &nvrtc.code},
    };
    nvrtc_code = load(libraries, rows, VX_COUNT(rows));
}

static int cuda_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_cuda);
    return cuda_code;
}

static int nvrtc_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_nvrtc);
    return nvrtc_code;
}

/* --- what both drivers have: HIP's name, the field of the table --- */

#define SAME(name_, field_, parameters_, arguments_)                                     \
    int name_ parameters_                                                                \
    {                                                                                    \
        int code = cuda_ready();                                                         \
        return code ? code : cuda.field_ arguments_;                                     \
    }

SAME(hipInit, init, (unsigned flags), (flags))
SAME(hipGetDeviceCount, device_count, (int *count), (count))
SAME(hipDeviceGet, device_get, (int *device, int index), (device, index))
SAME(hipDeviceGetName, device_name, (char *name, int bytes, int device),
     (name, bytes, device))
SAME(hipDeviceGetUuid, device_uuid, (void *id, int device), (id, device))
SAME(hipDeviceGetPCIBusId, device_pci, (char *bus, int bytes, int device),
     (bus, bytes, device))
SAME(hipDeviceTotalMem, device_memory, (size_t * bytes, int device), (bytes, device))
SAME(hipMemGetInfo, memory_info, (size_t * free_bytes, size_t *total),
     (free_bytes, total))
SAME(hipMalloc, memory_open, (u64 * address, size_t bytes), (address, bytes))
SAME(hipFree, memory_close, (u64 address), (address))
SAME(hipHostRegister, host_pin, (void *memory, size_t bytes, unsigned flags),
     (memory, bytes, flags))
SAME(hipHostUnregister, host_unpin, (void *memory), (memory))
SAME(hipHostMalloc, host_open, (void **memory, size_t bytes, unsigned flags),
     (memory, bytes, flags))
SAME(hipHostFree, host_close, (void *memory), (memory))
SAME(hipIpcOpenMemHandle, ipc_open,
     (u64 * address, struct vx_driver_ipc handle, unsigned flags),
     (address, handle, flags))
SAME(hipIpcCloseMemHandle, ipc_close, (u64 address), (address))
SAME(hipMemGetAddressRange, memory_range, (u64 * base, size_t *bytes, u64 address),
     (base, bytes, address))
SAME(hipPointerGetAttribute, pointer_attribute, (void *value, int attribute, u64 address),
     (value, attribute, address))
SAME(hipMemcpyHtoDAsync, copy_in, (u64 to, const void *from, size_t bytes, void *stream),
     (to, from, bytes, stream))
SAME(hipMemcpyDtoHAsync, copy_out, (void *to, u64 from, size_t bytes, void *stream),
     (to, from, bytes, stream))
SAME(hipMemcpyDtoDAsync, copy_within, (u64 to, u64 from, size_t bytes, void *stream),
     (to, from, bytes, stream))
SAME(hipMemsetD32Async, fill, (u64 to, unsigned value, size_t words, void *stream),
     (to, value, words, stream))
SAME(hipStreamCreateWithPriority, stream_open,
     (void **stream, unsigned flags, int priority), (stream, flags, priority))
SAME(hipStreamDestroy, stream_close, (void *stream), (stream))
SAME(hipStreamSynchronize, stream_wait, (void *stream), (stream))
SAME(hipStreamWaitEvent, stream_after, (void *stream, void *event, unsigned flags),
     (stream, event, flags))
SAME(hipEventCreateWithFlags, event_open, (void **event, unsigned flags), (event, flags))
SAME(hipEventDestroy, event_close, (void *event), (event))
SAME(hipEventRecord, event_record, (void *event, void *stream), (event, stream))
SAME(hipEventQuery, event_done, (void *event), (event))
SAME(hipEventElapsedTime, event_elapsed, (f32 * ms, void *begin, void *end),
     (ms, begin, end))
SAME(hipStreamBeginCapture, capture_begin, (void *stream, int mode), (stream, mode))
SAME(hipStreamEndCapture, capture_end, (void *stream, void **recording),
     (stream, recording))
SAME(hipGraphInstantiateWithFlags, graph_open,
     (void **graph, void *recording, unsigned long long flags), (graph, recording, flags))
SAME(hipGraphLaunch, graph_launch, (void *graph, void *stream), (graph, stream))
SAME(hipGraphExecDestroy, graph_close, (void *graph), (graph))
SAME(hipGraphDestroy, recording_close, (void *recording), (recording))
SAME(hipModuleLoadData, module_load, (void **module, const void *image), (module, image))
SAME(hipModuleUnload, module_unload, (void *module), (module))
/* clang-format off */
SAME(hipModuleLaunchKernel, launch,
     (void *function, hip_word gx, hip_word gy, hip_word gz, hip_word bx, hip_word by, hip_word bz,
      hip_word shared, void *stream, void **params, void **extra),
     (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
/* clang-format on */

/* --- what differs --- */

int hipDriverGetVersion(int *version)
{
    int code = cuda_ready();
    if (!code) *version = VERSION;
    return code;
}

/* A block may have all of a compute unit's shared memory, without asking for it. */
int hipModuleGetFunction(void **function, void *module, const char *name)
{
    int code = cuda_ready();
    if (!code) code = cuda.function_get(function, module, name);
    /* A kernel whose own shared memory leaves less than that has no use for more. */
    if (!code) (void)cuda.function_set(*function, CU_SHARED_MAX, SHARED_BYTES);
    return code;
}

int hipSetDevice(int device)
{
    int code = cuda_ready();
    if (code) return code;
    if (device < 0 || device >= DEVICES_MAX) return VX_DRIVER_INVALID_DEVICE;
    (void)pthread_mutex_lock(&lock);
    if (!contexts[device]) code = cuda.context_open(&contexts[device], device);
    (void)pthread_mutex_unlock(&lock);
    return code ? code : cuda.context_use(contexts[device]);
}

/* HIP's number of an attribute, CUDA's number or the value that a gfx1100 has. */
int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    static const struct {
        int hip, cuda, value;
    } rows[] = {
        {63, 16, 0},           /* multiprocessors */
        {5, 13, 0},            /* clock */
        {19, 38, 0},           /* bytes of the L2 */
        {87, 10, 0},           /* lanes of a wave */
        {23, 0, MAJOR},        /* of the architecture */
        {61, 0, MINOR},        /* */
        {74, 0, SHARED_BYTES}, /* of a block */
    };
    int code = cuda_ready();
    if (code) return code;
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        if (rows[i].hip != attribute) continue;
        if (rows[i].cuda) return cuda.device_attribute(value, rows[i].cuda, device);
        *value = rows[i].value;
        return 0;
    }
    return VX_DRIVER_INVALID_VALUE;
}

int hipGetDevicePropertiesR0600(void *properties, int device)
{
    int code = cuda_ready();
    (void)device;
    if (!code) memcpy((char *)properties + NAME_AT, NAME, sizeof NAME);
    return code;
}

const char *hipGetErrorString(int code)
{
    const char *text = NULL;
    return !cuda_ready() && !cuda.error_text(code, &text) ? text : NULL;
}

/* --- hipRTC --- */

int hiprtcVersion(int *major, int *minor);
int hiprtcCreateProgram(void **program, const char *text, const char *name, int count,
                        const char *const *texts, const char *const *names);
int hiprtcCompileProgram(void *program, int count, const char *const *options);
int hiprtcGetProgramLogSize(void *program, size_t *bytes);
int hiprtcGetProgramLog(void *program, char *text);
int hiprtcGetCodeSize(void *program, size_t *bytes);
int hiprtcGetCode(void *program, char *image);

int hiprtcVersion(int *major, int *minor)
{
    int code = nvrtc_ready();
    return code ? code : nvrtc.version(major, minor);
}

int hiprtcCreateProgram(void **program, const char *text, const char *name, int count,
                        const char *const *texts, const char *const *names)
{
    int code = nvrtc_ready();
    return code ? code : nvrtc.open(program, text, name, count, texts, names);
}

/* Macros stay: the tile's sizes among them.  What multiplies becomes 0, mma.sync or, of f32,
 * fused multiply-adds.  All other options are clang's. */
int hiprtcCompileProgram(void *program, int count, const char *const *options)
{
    static const char multiply[] = "-DVX_MULTIPLY=";
    const char *kept[OPTIONS_MAX + 3];
    char chip[64];
    const char *sm = getenv("VX_OVER_CUDA_SM");
    int kept_count = 0;
    (void)snprintf(chip, sizeof chip, "--gpu-architecture=%s", sm ? sm : "sm_90a");
    kept[kept_count++] = chip;
    kept[kept_count++] = "--std=c++17";
    kept[kept_count++] = "-default-device";
    for (int i = 0; i < count; i++) {
        if (strncmp(options[i], "-D", 2) != 0) continue;
        if (kept_count == OPTIONS_MAX + 3) return VX_DRIVER_INVALID_VALUE;
        const bool multiplies = !strncmp(options[i], multiply, sizeof multiply - 1);
        kept[kept_count++] = multiplies ? "-DVX_MULTIPLY=0" : options[i];
    }
    return nvrtc.run(program, kept_count, kept);
}

int hiprtcGetProgramLogSize(void *program, size_t *bytes)
{
    return nvrtc.log_bytes(program, bytes);
}

int hiprtcGetProgramLog(void *program, char *text)
{
    return nvrtc.log(program, text);
}

int hiprtcGetCodeSize(void *program, size_t *bytes)
{
    return nvrtc.code_bytes(program, bytes);
}

int hiprtcGetCode(void *program, char *image)
{
    return nvrtc.code(program, image);
}
